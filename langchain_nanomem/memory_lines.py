"""The lines of MEMORY.md: what they say, which are shown, how one is put in or changed. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langchain_nanomem.search_query import tags_in

if TYPE_CHECKING:
    from collections.abc import Iterable

HEADING = re.compile(r"#{1,6}\s")
NOTED = "# Noted"
"""The section that facts go to which are put in one by one."""
_MARKS = re.compile(r"^(?:[-*+]|\d+[.)]|\[[ xX]\])\s+")
_SPACE = re.compile(r"\s+")
_FENCE = ("```", "~~~")
_WORD = re.compile(r"\w+")


def without_repeats(text: str) -> str:
    """A memory with each line once: the first one of those that say the same.

    Lines are compared without their list marks, in any case and spacing. What stands under a
    heading that came before goes there. Code in fences, and lines without a letter or digit, are
    let alone.
    """
    sections: dict[str, list[str]] = {}
    seen: set[str] = set()
    name, is_code = "", False
    for line in text.split("\n"):
        is_mark = line.lstrip().startswith(_FENCE)
        said = "" if is_code or is_mark else what_it_says(line)
        is_code ^= is_mark
        if said and HEADING.match(line):
            name = f"{line.split()[0]} {said}"
            if name not in sections:
                sections[name] = [line]
            continue
        if said and said in seen:
            continue
        seen.add(said)
        sections.setdefault(name, []).append(line)
    return "\n".join(line for lines in sections.values() for line in lines)


def lines_left(before: str, after: str) -> list[str]:
    """The lines of a memory that say something which stands in no line of another one."""
    kept = {"", *map(what_it_says, after.splitlines())}
    lines = dict.fromkeys(line.strip() for line in before.splitlines())
    return [one for one in lines if not HEADING.match(one) and what_it_says(one) not in kept]


def what_it_says(line: str) -> str:
    """What a line says, however it is marked and spaced; "" for one that says nothing."""
    said = _SPACE.sub(" ", bare(line.strip().lstrip("#"))).casefold().rstrip(" .。")
    return said if any(map(str.isalnum, said)) else ""


def bare(line: str) -> str:
    """A line without its ends and its list marks."""
    line = line.strip()
    while (shorter := _MARKS.sub("", line)) != line:
        line = shorter
    return line


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
