"""MEMORY.md as an outline: what each line says, and what it stands under. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAIN = 7
"""The depth of a line that is neither heading nor list item: a list below it is its own."""
_ITEM = PLAIN + 1
HEADING = re.compile(r"^(#{1,6})(?:\s+|$)")
"""What a heading begins with."""
_BULLETS = re.compile(r"^(?:[-*+]\s+)+")
_MARKS = re.compile(r"^(?:(?:[-*+]\s+)+|\d{1,9}[.)]\s+)?(?:\[[ xX]\]\s+)?")
_LISTED = re.compile(r"[-*+]\s|\d{1,9}[.)]\s")
_OPENING = re.compile(r"`{3,}(?=[^`]*$)|~{3,}")
_KEY = re.compile(r"[ \t]*<!-- key: (\S+) -->[ \t\r]*$", re.MULTILINE)
_SPACE = re.compile(r"\s+")
_TAB = 4


class Piece(NamedTuple):
    """A line, or a block of fenced code, whole."""

    text: str
    place: int
    """The line where it begins, counted from 0."""
    depth: int
    """0 for a blank line, 1 to 6 for a heading, `PLAIN`, or more the further it is indented."""
    is_code: bool
    parent: int | None
    """The place in the outline of what it stands under."""
    path: tuple[str, ...]
    """What the pieces are that it stands under, from the outermost on, without marks."""

    @property
    def is_heading(self) -> bool:
        """Whether it is a heading."""
        return 0 < self.depth < PLAIN

    @property
    def is_item(self) -> bool:
        """Whether it is a list item, indented, or code."""
        return self.depth > PLAIN

    @property
    def says(self) -> str:
        """What it says; see `what_it_says`. Code says itself."""
        if not self.is_code:
            return what_it_says(self.text)
        lines = self.text.rstrip().split("\n")
        mark = fence_mark(lines[0])
        body = lines[:-1] if len(lines) > 1 and _closes(lines[-1], mark) else lines
        return _SPACE.sub(" ", "\n".join(body).strip())


def outline(text: str) -> list[Piece]:
    """The pieces of a memory, in order; joined by newlines they are the text."""
    found: list[Piece] = []
    under: list[int] = []
    for place, block, is_code in _blocks(text.split("\n")):
        depth = _depth(block, is_code=is_code)
        while depth and under and found[under[-1]].depth >= depth:
            under.pop()
        path = tuple(_name(found[one].text) for one in under)
        found.append(Piece(block, place, depth, is_code, under[-1] if under else None, path))
        if depth:
            under.append(len(found) - 1)
    return found


def closed(text: str) -> str:
    """A memory whose last block of code has an end, so that what is put behind it is none."""
    last = outline(text)[-1]
    mark = fence_mark(last.text.split("\n")[0]) if last.is_code else ""
    if not mark or ("\n" in last.text and _closes(last.text.split("\n")[-1], mark)):
        return text
    return f"{text}\n{mark}"


def fact_places(text: str) -> list[int]:
    """The lines that may be facts: neither blank nor headings nor marks of a fence."""
    lines = text.split("\n")
    places: list[int] = []
    for piece in outline(text):
        end = piece.place + piece.text.count("\n") + 1
        if piece.is_code:
            mark = fence_mark(lines[piece.place])
            inner = range(piece.place + 1, end)
            places += [one for one in inner if lines[one].strip() and not _closes(lines[one], mark)]
        elif piece.depth and not piece.is_heading:
            places.append(piece.place)
    return places


def what_it_says(line: str) -> str:
    """What a line says, however it is bulleted and spaced; "" for one that says nothing.

    A number in front, or a check mark, is part of it: "3. May" isn't "4. May", nor done undone.
    Its key is none.
    """
    said = _SPACE.sub(" ", _name(unkeyed(line))).casefold().rstrip(" .。")
    return said if any(c.isalnum() or not c.isascii() for c in said) else ""


def bare(line: str) -> str:
    """A line without its ends, and without the marks of a list, also numbers and check marks."""
    return _MARKS.sub("", line.strip(), count=1)


def unbulleted(line: str) -> str:
    """A line without its ends and its bullets."""
    return _BULLETS.sub("", line.strip(), count=1)


def unkeyed(text: str) -> str:
    """A line, or a memory, without the keys at the ends of lines; see `with_key`."""
    return _KEY.sub("", text) if "<!-- key: " in text else text


def key_in(line: str) -> str | None:
    """The key of a line; None where it has none."""
    found = _KEY.search(line)
    return unquote(found[1].replace("=", "-")) if found else None


def with_key(line: str, key: str | None) -> str:
    """A line with a key behind it, by which a program knows it; a prompt does not show it.

    A hyphen is ``=`` there: two would end the comment, and with them a UUID may look like the
    number of a card.
    """
    bared = unkeyed(line)
    quoted = "" if key is None else quote(key, safe="").replace("-", "=")
    return f"{bared} <!-- key: {quoted} -->" if quoted else bared


def unmarked(text: str) -> str:
    """A text as it can stand in a line of its own: no heading, list item or fence."""
    while True:
        shorter = _name(text)
        if mark := fence_mark(shorter):
            shorter = shorter.removeprefix(mark)
        if shorter == text:
            return text
        text = shorter


def fence_mark(line: str) -> str:
    """The mark with which a line opens a block of code; "" if it opens none."""
    found = _OPENING.match(unbulleted(line))
    return found[0] if found else ""


def _blocks(lines: list[str]) -> Iterator[tuple[int, str, bool]]:
    """Lines and blocks of code, each with its place."""
    place = 0
    while place < len(lines):
        mark, end = fence_mark(lines[place]), place + 1
        if mark:
            closing = (one for one in range(end, len(lines)) if _closes(lines[one], mark))
            end = next(closing, len(lines) - 1) + 1
        yield place, "\n".join(lines[place:end]), bool(mark)
        place = end


def _closes(line: str, mark: str) -> bool:
    line = line.strip()
    return line.startswith(mark) and not line.strip(mark[0])


def _depth(block: str, *, is_code: bool) -> int:
    if not block.strip():
        return 0
    if not is_code and (heading := HEADING.match(block)):
        return len(heading[1])
    first = block.split("\n", 1)[0].expandtabs(_TAB)
    indent = len(first) - len(first.lstrip())
    is_plain = not is_code and not indent and not _LISTED.match(first)
    return PLAIN if is_plain else _ITEM + indent


def _name(line: str) -> str:
    """A line without the marks of a heading or a list item."""
    return HEADING.sub("", unbulleted(line), count=1).strip()
