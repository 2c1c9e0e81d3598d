"""Two changes of one text made at the same time: a model's and a person's."""

from __future__ import annotations

import re

_LINE_END = re.compile(r"\r\n|\r|\n")


def merge_lines(base: str, theirs: str, ours: str) -> str:
    """`ours`, with what a person changed between `base` and `theirs`. The person wins.

    Lines that the person added are in the result, behind the line that they stand behind in
    `theirs` where that is there too; lines that the person removed are not.
    """
    base_lines, their_lines = _lines(base), _lines(theirs)
    removed = {line for line in base_lines if line.strip()} - set(their_lines)
    merged = [line for line in _lines(ours) if line not in removed]
    known, have = set(base_lines), set(merged)
    for place, line in enumerate(their_lines):
        if line.strip() and line not in known and line not in have:
            merged.insert(_behind(merged, their_lines[:place]), line)
            have.add(line)
    return "\n".join(merged) + ("\n" if ours.endswith("\n") else "")


def _lines(text: str) -> list[str]:
    """The lines of a text, whatever editor wrote it: ended by LF, CRLF or CR, and by no more."""
    *lines, last = _LINE_END.split(text)
    return [*lines, last] if last else lines


def _behind(merged: list[str], before: list[str]) -> int:
    """Where to insert a line that stood behind the lines `before`."""
    for line in reversed(before):
        if line.strip() and line in merged:
            return merged.index(line) + 1
    return len(merged) if before else 0
