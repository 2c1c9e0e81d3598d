"""The lines of MEMORY.md as items with keys: read, put in, altered and taken out one by one. Pure.

A line is known by the key behind it (`with_key`), else by one made of what it says.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from langchain_nanomem.memory_lines import (
    day_in,
    line_that_says,
    undated,
    with_line,
    with_noted,
    without_day,
)
from langchain_nanomem.memory_outline import (
    key_in,
    outline,
    unbulleted,
    unkeyed,
    what_it_says,
    with_key,
)
from langchain_nanomem.search_query import tags_in

if TYPE_CHECKING:
    from langchain_nanomem.memory_outline import Piece

_KEY_LENGTH = 16


class FactItem(NamedTuple):
    """A line of a memory."""

    content: str
    """What it says, as it is written, without its bullet and the day behind it."""
    noted: str
    """The day in brackets behind it, such as ``2026-05-08``; "" where there is none."""
    tags: list[str]
    """The tags in it, in lower case, sorted."""
    section: str
    """The headings and lines that it stands under, joined by " / "; "" where it has none."""
    place: int
    """The line of the memory, from 0."""


def fact_items(text: str) -> dict[str, FactItem]:
    """The facts of a memory by their keys, in its order. Headings and code are none.

    Of lines that have the same key the first one has it. Of those that say the same each but the
    first has a number behind its key.
    """
    pieces = [piece for piece in outline(text) if _is_fact(piece)]
    given: dict[str, int] = {}
    for piece in pieces:
        if (key := key_in(piece.text)) is not None:
            given.setdefault(key, piece.place)
    found: dict[str, FactItem] = {}
    for piece in pieces:
        key = key_in(piece.text)
        if key is None or given[key] != piece.place:
            key = _free(_derived(piece.says), found.keys() | given.keys())
        found[key] = _item(piece)
    return found


def with_item(text: str, key: str, line: str, day: str, *, known: str | None) -> str:
    """A memory in which the item of this key is a line; where it has none, with one more.

    Args:
        text: The memory.
        key: The key.
        line: The fact.
        day: What stands behind it, such as ``(2026-05-08)``; "" for nothing.
        known: Behind what day a line that says it already, and has no key of its own, is given
            this one and stays as it is; as in `line_that_says`. None: none is.

    Returns:
        The new memory; the old one where the line says nothing.
    """
    items = fact_items(text)
    if not what_it_says(line):
        return text
    if key in items:
        place = items[key].place
        return _keyed(with_line(text, place, f"{line} {day}".rstrip()), place, key)
    same = None if known is None else line_that_says(text, line, known)
    if same is not None and key_in(text.split("\n")[same]) is None:
        return _keyed(text, same, key)
    after = with_noted(text, with_key(f"{line} {day}".rstrip(), key))
    return _keyed(after, fact_items(after)[key].place, key)


def without_item(text: str, key: str) -> str:
    """A memory without the line of this key; the memory where there is none."""
    item = fact_items(text).get(key)
    return text if item is None else with_line(text, item.place, None)


def _keyed(text: str, place: int, key: str) -> str:
    """A memory in which a line is the item of a key, with the key behind it only if it must be."""
    lines = text.split("\n")
    lines[place] = unkeyed(lines[place])
    item = fact_items("\n".join(lines)).get(key)
    if item is None or item.place != place:
        lines[place] = with_key(lines[place], key)
    return "\n".join(lines)


def _is_fact(piece: Piece) -> bool:
    return bool(piece.depth and not piece.is_heading and not piece.is_code and piece.says)


def _item(piece: Piece) -> FactItem:
    line = unbulleted(unkeyed(piece.text))
    tags = sorted(tags_in(line))
    return FactItem(without_day(line), day_in(line), tags, " / ".join(piece.path), piece.place)


def _derived(says: str) -> str:
    return hashlib.sha256(undated(says).encode()).hexdigest()[:_KEY_LENGTH]


def _free(key: str, taken: set[str]) -> str:
    """The key, with a number behind it where it is another's."""
    free, number = key, 1
    while free in taken:
        number += 1
        free = f"{key}-{number}"
    return free
