"""Facts put into MEMORY.md under keys, or taken out: all of them in one change."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from langchain_nanomem.fact_items import fact_items, with_item, without_item
from langchain_nanomem.memory_lines import day_in, without_day
from langchain_nanomem.memory_outline import what_it_says
from langchain_nanomem.noting import Change, Noting, UnfitFactError, changed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_nanomem.fact_items import FactItem
    from langchain_nanomem.memory import MemoryStore
    from langchain_nanomem.noting import Fact
    from langchain_nanomem.store_values import Given

_MOST_KEY_CHARACTERS = 200


class FactWriter:
    """Writes items of a memory.

    Args:
        noting: Makes facts ready.
    """

    def __init__(self, noting: Noting) -> None:
        self._noting = noting

    def write(self, memory: MemoryStore, items: Mapping[str, Given | None]) -> None:
        """Have items be so, all of them or none, whoever changes the memory meanwhile.

        Args:
            memory: The memory.
            items: What each key is to have; None: nothing.

        Raises:
            UnfitFactError: One can't be kept as it is, or there is no room.
            RedactionError: One has something that must not be written.
            CorruptRecordError: The memory is no text.
            OSError: It can't be read or written.
        """
        for key, given in items.items():
            if given is not None:
                _check_key(memory, key)
        facts = {
            key: (given, self._noting.fact(memory, given.content))
            for key, given in items.items()
            if given is not None
        }

        def change(before: str) -> Change:
            after = before
            for key in items.keys() - facts.keys():
                after = without_item(after, key)
            for key, (given, fact) in facts.items():
                after = _with(after, key, given, fact)
            _check(after, facts)
            self._noting.check_room(before, after)
            return Change(None if after == before else after, "")

        changed(memory, change)


def _with(text: str, key: str, given: Given, fact: Fact) -> str:
    item = fact_items(text).get(key)
    if item is not None and item.content == fact.text and given.noted in {None, item.noted}:
        return text
    day = fact.noted
    if given.noted is not None:
        day = f"({given.noted})" if given.noted else ""
    return with_item(text, key, fact.text, day, known=fact.noted if given.noted is None else None)


def _check_key(memory: MemoryStore, key: str) -> None:
    is_fit = key and len(key) <= _MOST_KEY_CHARACTERS
    if not is_fit or not (_is_random(key) or memory.cleaned(key) == key):
        raise UnfitFactError(
            f"A key must have 1 to {_MOST_KEY_CHARACTERS} characters, and nothing that must not be "
            "written: give another one."
        )


def _is_random(key: str) -> bool:
    """Whether it is a UUID, the digits of which may look like the number of a card."""
    try:
        return bool(UUID(key))
    except ValueError:
        return False


def _check(text: str, facts: Mapping[str, tuple[Given, Fact]]) -> None:
    """See that what was put comes back."""
    items = fact_items(text)
    for key, (given, fact) in facts.items():
        item = items.get(key)
        if item is None or not _is_so(item, given, fact):
            stands = "" if item is None else f", and stands under {item.section!r}"
            raise UnfitFactError(
                f"{fact.text!r} can't be kept as it was put: it is a line of a memory{stands}."
            )


def _is_so(item: FactItem, given: Given, fact: Fact) -> bool:
    return (
        what_it_says(item.content) == what_it_says(without_day(fact.text))
        and given.tags <= set(item.tags)
        and given.section in {None, item.section}
        and given.noted in {None, item.noted, day_in(fact.text)}
    )
