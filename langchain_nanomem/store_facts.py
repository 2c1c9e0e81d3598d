"""Facts and their versions as items of a store that can neither lock nor compare and set.

What is written is never altered, so that nobody overwrites another's change: each change is an
item of its own, with the keys of those it was made from. The facts are what no other was made
from. Two that were made at the same moment, from the same one, are both: they are merged by lines,
as a person's edit and a model's are, until the next change is made from both.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_nanomem.merging import merge_lines
from langchain_nanomem.store_items import StoreItems

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from langgraph.store.base import BaseStore


class Change(NamedTuple):
    """The facts as one change made them."""

    key: str
    text: str
    generation: int
    """Above that of all it was made from."""
    replaced: list[str]
    """The keys of those it was made from."""
    change: str | None
    """The `change_stem` of its cause."""
    at: str
    """When it was made."""


class Archived(NamedTuple):
    """A change that another was made from."""

    was: Change
    at: str
    """When the other was made."""
    by: str | None
    """The `change_stem` of the other's cause."""


class Facts(NamedTuple):
    """The facts at one moment."""

    text: str | None
    """None where there are none."""
    changes: dict[str, Change]
    """What they are made of, and what is to be archived yet."""


class StoreFacts:
    """The facts of one scope, and what they were.

    A change is first put, then what it was made from is archived, then that is removed. Whatever
    crashes in between, the next change finishes it. Whoever writes holds the store's lock; other
    programs can't be kept out.

    Args:
        store: The store.
        namespace: Where the items of the scope are.
    """

    def __init__(self, store: BaseStore, namespace: tuple[str, ...]) -> None:
        self.present = StoreItems(store, (*namespace, "facts"))
        self.archive = StoreItems(store, (*namespace, "versions"))

    def read(self) -> Facts:
        """The facts now, from which a change may be made."""
        found = self.present.all()
        changes = {key: _change_in(key, value) for key, value in found.items()}
        heads = _heads(changes.values())
        if len(heads) < 2:  # noqa: PLR2004 - one, or none
            return Facts(heads[0].text if heads else None, changes)
        earlier = {key: one.was for key, one in self.versions().items()}
        return Facts(_Merge({**earlier, **changes}).of(heads), changes)

    def is_made(self, change: str) -> bool:
        """Whether the change of this stem was made, as long as it is kept."""
        key = _key_of(change)
        return self.present.get(key) is not None or self.archive.get(key) is not None

    def replace(self, facts: Facts, text: str, change: str | None) -> None:
        """Make a change from what was read.

        Args:
            facts: What it is made from; what others wrote since is merged with it.
            text: What it makes of it.
            change: The `change_stem` of its cause.
        """
        heads = _heads(facts.changes.values())
        made = Change(
            _key_of(change) if change else f"-{uuid.uuid4().hex}",
            text,
            1 + max((head.generation for head in heads), default=0),
            [head.key for head in heads],
            change,
            datetime.now(UTC).isoformat(),
        )
        self._put(self.present, made.key, made)
        for one in (*facts.changes.values(), made):  # others too, which a crash kept from it
            self._archive(one, facts.changes)
        self.present.remove(facts.changes)

    def versions(self) -> dict[str, Archived]:
        """What was replaced, by keys, newest first."""
        found = [_archived_in(key, value) for key, value in self.archive.all().items()]
        found.sort(key=lambda one: _order(one.was), reverse=True)
        return {one.was.key: one for one in found}

    def version(self, key: str) -> Archived | None:
        """What was replaced, by its key; None where it is not there any more."""
        value = self.archive.get(key)
        return None if value is None else _archived_in(key, value)

    def _archive(self, made: Change, known: Mapping[str, Change]) -> None:
        """Keep what a change was made from; of one that is known by its cause also nothing."""
        from_what = [known[key] for key in made.replaced if key in known]
        if made.change and not made.replaced:
            from_what = [Change(f".{made.key}", "", 0, [], None, made.at)]
        for one in from_what:
            self._put(self.archive, one.key, one, archived_at=made.at, by=made.change)

    def _put(self, items: StoreItems, key: str, change: Change, **more: Any) -> None:
        value = {name: value for name, value in change._asdict().items() if name != "key"}
        items.put(key, value | more)


class _Merge:
    """Merges changes that know nothing of each other, into the same for everybody.

    Args:
        known: All changes by their keys, as far as they are kept.
    """

    def __init__(self, known: Mapping[str, Change]) -> None:
        self._known = known

    def of(self, heads: list[Change]) -> str:
        """The text with all that was changed; "" of none."""
        if not heads:
            return ""
        text, has = heads[0].text, self._behind(heads[0])
        for head in heads[1:]:
            behind = self._behind(head)
            shared = self.of(_heads(self._known[key] for key in has & behind))
            text, has = merge_lines(shared, text, head.text), has | behind
        return text

    def _behind(self, change: Change) -> set[str]:
        """Its key, and those of all it was made from."""
        found, left = set[str](), [change.key]
        while left:
            key = left.pop()
            if key in self._known and key not in found:
                found.add(key)
                left += self._known[key].replaced
        return found


def _heads(changes: Iterable[Change]) -> list[Change]:
    """Those from which no other was made; what was made from the newest is last."""
    changes = list(changes)
    gone = {key for one in changes for key in one.replaced}
    return sorted((one for one in changes if one.key not in gone), key=_order)


def _order(change: Change) -> tuple[int, str, str]:
    return change.generation, change.at, change.key


def _key_of(change: str) -> str:
    return f"+{change}"


def _change_in(key: str, value: Mapping[str, Any]) -> Change:
    return Change(key, **{name: value[name] for name in Change._fields[1:]})


def _archived_in(key: str, value: Mapping[str, Any]) -> Archived:
    return Archived(_change_in(key, value), value["archived_at"], value["by"])
