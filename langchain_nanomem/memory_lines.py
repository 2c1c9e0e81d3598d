"""The lines of MEMORY.md: which are shown, how one is put in, found and changed. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langchain_nanomem.memory_outline import (
    PLAIN,
    bare,
    closed,
    fact_places,
    key_in,
    outline,
    unbulleted,
    unkeyed,
    what_it_says,
    with_key,
)
from langchain_nanomem.memory_words import has_words, words_of
from langchain_nanomem.search_query import tags_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langchain_nanomem.memory_outline import Piece

NOTED = "# Noted"
"""The section that facts go to which are put in one by one."""
_DATE = re.compile(r"\s*\(\d{4}-\d\d-\d\d\)$")


def shown_with(text: str, tags: Iterable[str] | None) -> str:
    """What a prompt shows of a memory: lines without a tag, and those with one of these tags.

    The tags of a heading, or of a line that others are nested in, are those of all below it.
    What a shown line stands under is shown; a heading below which nothing is goes. Code has no
    tags of its own. The keys of lines are for programs, and not shown.

    Args:
        text: The memory.
        tags: Such as ``project`` for ``#project``, in any case; None: everything is shown.
    """
    text = unkeyed(text)
    if tags is None:
        return text
    chosen = {tag.removeprefix("#").casefold() for tag in tags}
    pieces = outline(text)
    above = [_above(pieces, piece) for piece in pieces]
    filled = {place for places in above for place in places}
    own = [set() if piece.is_code else tags_in(piece.text) for piece in pieces]
    shown: set[int] = set()
    for place, piece in enumerate(pieces):
        has = own[place].union(*(own[one] for one in above[place]))
        if not (piece.is_heading and place in filled) and (not has or has & chosen):
            shown |= {place, *above[place]}
    return "\n".join(pieces[place].text for place in sorted(shown))


def _above(pieces: list[Piece], piece: Piece) -> list[int]:
    """The headings that a piece stands under, and the lines it is nested in; a gap has none."""
    places: list[int] = []
    while piece.depth and piece.parent is not None:
        if pieces[piece.parent].depth != PLAIN:
            places.append(piece.parent)
        piece = pieces[piece.parent]
    return places


def with_fact(text: str, fact: str, noted: str = "") -> str | None:
    """A memory with one more fact, in the section for such; None where a line says it already.

    Args:
        text: The memory.
        fact: What is put in.
        noted: Its date, such as ``(2026-05-08)``. A line that says the same of another day says
            it already; without one the fact has a date of its own, and differs by it.
    """
    if line_that_says(text, fact, noted) is not None:
        return None
    return with_noted(text, f"{fact} {noted}".rstrip())


def line_that_says(text: str, fact: str, noted: str = "") -> int | None:
    """The place of a line that says a fact, as `with_fact` looks for it; None where none does."""
    asked = what_it_says(fact)
    for piece in outline(text):
        if piece.is_heading or piece.is_code:
            continue
        if asked in ({piece.says, undated(piece.says)} if noted else {piece.says}):
            return piece.place
    return None


def with_noted(text: str, line: str) -> str:
    """A memory with one more line, in the section for such, whatever else says the same."""
    lines = closed(text.rstrip("\n")).split("\n") if text.strip() else []
    place = _end_of_noted(outline("\n".join(lines)))
    if place is None:
        lines += ["", NOTED] if lines else [NOTED]
        place = len(lines)
    return "\n".join([*lines[:place], f"- {line}", *lines[place:]]) + "\n"


def _end_of_noted(pieces: list[Piece]) -> int | None:
    """Behind the last line of the section for facts; None where there is none."""
    headings = [place for place, piece in enumerate(pieces) if piece.is_heading]
    start = next((one for one in headings if pieces[one].text.strip() == NOTED), None)
    if start is None:
        return None
    end = next((one for one in headings if one > start), len(pieces))
    last = max(place for place in range(start, end) if pieces[place].depth)
    return pieces[last].place + pieces[last].text.count("\n") + 1


def lines_about(text: str, fact: str) -> list[int]:
    """The places of the lines that are meant by `fact`.

    It is the lines that say just that; else those that do so but for a mark of a list or a date
    at their end; else those that say it among other things; else those that have all of its
    words. A part of a word is none. Headings are none.
    """
    lines, said, words = text.split("\n"), what_it_says(fact), words_of(fact)
    if not words:
        return []
    says = {place: what_it_says(lines[place]) for place in fact_places(text)}
    ways: tuple[Callable[[str], bool], ...] = (
        lambda line: line == said,
        lambda line: said in {bare(line), undated(line), undated(bare(line))},
        lambda line: has_words(line, said),
        lambda line: all(has_words(line, word) for word in words),
    )
    found = ([place for place, line in says.items() if meant(line)] for meant in ways)
    return next(filter(None, found), [])


def with_line(text: str, place: int, fact: str | None) -> str:
    """A memory in which another fact stands in place of a line; or none. Its key stays."""
    lines = text.split("\n")
    line, key = unkeyed(lines[place]).rstrip(), key_in(lines[place])
    mark = line[: len(line) - len(bare(line))]
    if fact and bare(fact) != fact:  # it has a number or a check mark of its own
        mark = line[: len(line) - len(unbulleted(line))]
    new = [] if fact is None else [with_key(f"{mark}{fact}", key_in(fact) or key)]
    lines[place : place + 1] = new
    return "\n".join(lines)


def with_keys_of(before: str, after: str) -> str:
    """A memory in which each line that says what one did before has the key of that.

    A model that writes the memory anew sees no keys.
    """
    if unkeyed(before) == before:
        return after
    keys: dict[str, str] = {}
    for piece in _lines_of(before):
        if (key := key_in(piece.text)) is not None:
            keys.setdefault(piece.says, key)
    lines = after.split("\n")
    known = {key_in(piece.text) for piece in _lines_of(after)}
    for piece in _lines_of(after):
        key = keys.get(piece.says)
        if key not in known:
            known.add(key)
            lines[piece.place] = with_key(lines[piece.place], key_in(piece.text) or key)
    return "\n".join(lines)


def _lines_of(text: str) -> list[Piece]:
    return [piece for piece in outline(text) if piece.says and not piece.is_code]


def undated(said: str) -> str:
    """What a line says, without a date in brackets at its end."""
    return _DATE.sub("", said).rstrip(" .。")


def without_day(line: str) -> str:
    """A line without a date in brackets at its end."""
    return _DATE.sub("", line)


def day_in(line: str) -> str:
    """The date in brackets at the end of a line, such as ``2026-05-08``; "" where there is none."""
    found = _DATE.search(line)
    return found[0].strip(" ()") if found else ""
