"""What a memory says twice, and what of one is not in another. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from langchain_nanomem.memory_outline import bare, closed, outline, what_it_says

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from langchain_nanomem.memory_outline import Piece


@dataclass
class _Section:
    """A heading, or a line with its list, and what stands under it."""

    depth: int
    lines: list[str]
    known: set[tuple[str, ...]] = field(default_factory=set)
    below: dict[tuple[int, str, int], _Section] = field(default_factory=dict)
    is_met_again: bool = False

    def opened(self, piece: Piece) -> _Section:
        """The section that begins with a piece; the one that is there, if it says the same."""
        said = piece.says
        key = (piece.depth, said, 0 if said else piece.place)
        if key in self.below:
            self.below[key].is_met_again = True
        return self.below.setdefault(key, _Section(piece.depth, [piece.text]))

    def add(self, item: list[Piece]) -> None:
        """Put a list item in with all that is nested in it; a code block or a blank line, too."""
        said = () if item[0].is_code else tuple(piece.says for piece in item)
        if any(said) and said in self.known:
            return
        self.known.add(said)
        lines = "\n".join(piece.text for piece in item).split("\n")
        if self.is_met_again:  # indented further than what now precedes it, it would be nested
            first = lines[0]
            indent = first[: len(first) - len(first.lstrip())]
            lines = [line.removeprefix(indent) for line in lines]
        self.lines += lines

    def text(self) -> Iterator[str]:
        """Its lines; what is deeper goes first, lest it be taken for a part of what is not."""
        yield from self.lines
        for section in sorted(self.below.values(), key=lambda one: -one.depth):
            yield from section.text()


def without_repeats(text: str) -> str:
    """A memory in which no section says the same thing twice: the first one stays.

    List items are compared with all that is nested in them, in any case and spacing. A section
    is known by its whole path: what stands under a heading, or as a list under a line, that came
    before under the same headings goes there. Code in fences, and lines without a letter or
    digit, are let alone.
    """
    body = text.rstrip("\n")
    root = _Section(0, [])
    path = [root]
    for item in _items(outline(closed(body))):
        first = item[0]
        if first.is_item or not first.depth:
            path[-1].add(item)
            continue
        while path[-1].depth >= first.depth:
            path.pop()
        path.append(path[-1].opened(first))
    return "\n".join(root.text()) + text[len(body) :]


def lines_left(before: str, after: str) -> list[str]:
    """What a memory says that another one does not say in the same place.

    Each with the headings that it stood under, which may say whom it is about.
    """
    kept = {_told_by(piece) for piece in outline(after)}
    pieces = [piece for piece in outline(before) if piece.says]
    parents = {_path(piece) for piece in pieces}
    left: dict[object, str] = {}
    for piece in pieces:
        told = path, said = _told_by(piece)
        if told not in kept and not (piece.is_heading and (*path, said) in parents):
            left.setdefault(told, _shown(piece))
    return list(left.values())


def _items(pieces: list[Piece]) -> Iterable[list[Piece]]:
    """The pieces, each list item together with what is nested in it."""
    items: list[list[Piece]] = []
    top = 0
    for piece in pieces:
        if piece.is_item and piece.parent is not None and pieces[piece.parent].is_item:
            items[top] += [*chain.from_iterable(items[top + 1 :]), piece]
            del items[top + 1 :]
            continue
        top = len(items) if piece.depth else top
        items.append([piece])
    return items


def _told_by(piece: Piece) -> tuple[tuple[str, ...], str]:
    return _path(piece), piece.says


def _path(piece: Piece) -> tuple[str, ...]:
    return tuple(map(what_it_says, piece.path))


def _shown(piece: Piece) -> str:
    text = piece.text if piece.is_code else bare(piece.text.lstrip("#"))
    gap = "\n" if piece.is_code else " "
    return f"{' / '.join(piece.path)}:{gap}{text}" if piece.path else text
