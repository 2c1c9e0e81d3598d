"""The lines of MEMORY.md: which are shown, how one is put in, found and changed. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_nanomem.memory_outline import (
    HEADING,
    PLAIN,
    bare,
    fact_places,
    outline,
    what_it_says,
)
from langchain_nanomem.memory_words import has_words, words_of
from langchain_nanomem.search_query import tags_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langchain_nanomem.memory_outline import Piece

NOTED = "# Noted"
"""The section that facts go to which are put in one by one."""


def shown_with(text: str, tags: Iterable[str] | None) -> str:
    """What a prompt shows of a memory: lines without a tag, and those with one of these tags.

    The tags of a heading, or of a line that others are nested in, are those of all below it.
    What a shown line stands under is shown; a heading below which nothing is goes. Code has no
    tags of its own.

    Args:
        text: The memory.
        tags: Such as ``project`` for ``#project``, in any case; None: everything is shown.
    """
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


def with_fact(text: str, fact: str) -> str | None:
    """A memory with one more fact, in the section for such; None where a line says it already."""
    lines = text.rstrip("\n").split("\n") if text.strip() else []
    if what_it_says(fact) in map(what_it_says, lines):
        return None
    if NOTED not in lines:
        lines += ["", NOTED] if lines else [NOTED]
    start = lines.index(NOTED) + 1
    ends = (place for place in range(start, len(lines)) if HEADING.match(lines[place]))
    end = next(ends, len(lines))
    while end > start and not lines[end - 1].strip():
        end -= 1
    return "\n".join([*lines[:end], f"- {fact}", *lines[end:]]) + "\n"


def lines_about(text: str, fact: str) -> list[int]:
    """The places of the lines that are meant by `fact`.

    It is the lines that say just that; else those that say it among other things; else those
    that have all of its words. A part of a word is none. Headings are none.
    """
    lines, said, words = text.split("\n"), what_it_says(fact), words_of(fact)
    if not words:
        return []
    says = {place: what_it_says(lines[place]) for place in fact_places(text)}
    ways: tuple[Callable[[str], bool], ...] = (
        lambda line: line == said,
        lambda line: bare(line) == bare(said),
        lambda line: has_words(line, said),
        lambda line: all(has_words(line, word) for word in words),
    )
    found = ([place for place, line in says.items() if meant(line)] for meant in ways)
    return next(filter(None, found), [])


def with_line(text: str, place: int, fact: str | None) -> str:
    """A memory in which another fact stands in place of a line; or none."""
    lines = text.split("\n")
    line = lines[place].rstrip()
    mark = line[: len(line) - len(bare(line))]
    lines[place : place + 1] = [] if fact is None else [f"{mark}{fact}"]
    return "\n".join(lines)
