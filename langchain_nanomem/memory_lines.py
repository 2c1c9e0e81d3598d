"""The lines of MEMORY.md: which are shown, how one is put in, found and changed. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langchain_nanomem.memory_outline import HEADING, bare, what_it_says
from langchain_nanomem.search_query import tags_in

if TYPE_CHECKING:
    from collections.abc import Iterable

NOTED = "# Noted"
"""The section that facts go to which are put in one by one."""
_WORD = re.compile(r"\w+")


def shown_with(text: str, tags: Iterable[str] | None) -> str:
    """What a prompt shows of a memory: lines without a tag, and those with one of these tags.

    A heading's tags are those of all lines under it. A heading whose lines all go goes, too.

    Args:
        text: The memory.
        tags: Such as ``project`` for ``#project``, in any case; None: everything is shown.
    """
    if tags is None:
        return text
    chosen = {tag.removeprefix("#").casefold() for tag in tags}
    of_heading: set[str] = set()
    heading: list[str] = []
    shown: list[str] = []
    for line in text.split("\n"):
        if HEADING.match(line):
            of_heading, heading = tags_in(line), [line]
            continue
        own = tags_in(line) | of_heading
        if line.strip() and own and not own & chosen:
            continue
        if line.strip():
            shown += heading
            heading = []
        shown.append(line)
    return "\n".join(shown)


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

    It is the lines that say just that; else those that contain it; else those that have all of
    its words. Headings are none.
    """
    lines = text.split("\n")
    facts = [place for place, line in enumerate(lines) if line.strip() and not HEADING.match(line)]
    said, words = what_it_says(fact), set(_WORD.findall(fact.casefold()))
    if not words:
        return []
    same = [place for place in facts if what_it_says(lines[place]) == said]
    holding = [place for place in facts if said in what_it_says(lines[place])]
    naming = [place for place in facts if words <= set(_WORD.findall(lines[place].casefold()))]
    return same or holding or naming


def with_line(text: str, place: int, fact: str | None) -> str:
    """A memory in which another fact stands in place of a line; or none."""
    lines = text.split("\n")
    line = lines[place].rstrip()
    mark = line[: len(line) - len(bare(line))]
    lines[place : place + 1] = [] if fact is None else [f"{mark}{fact}"]
    return "\n".join(lines)
