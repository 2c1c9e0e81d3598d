"""The end of a journal as it was last read or written, so that it is not fetched once more."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_nanomem.postgres_tables import Piece

_ROOM_BYTES = 32_768
"""A turn of a chat has about 6 KB, and its records are asked for by the next turn."""


class _Kept(NamedTuple):
    journal: int | None
    pieces: tuple[Piece, ...]


class RecentLines:
    """Bounded, and safe between threads: what is kept is always replaced as a whole."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Keep nothing."""
        self._kept = _Kept(None, ())

    def note(self, journal: int | None, pieces: Sequence[Piece]) -> None:
        """Keep the last of these chunks, and what is kept of those before them."""
        if not pieces:
            return
        kept = self._kept.pieces if self._kept.journal == journal else ()
        if kept and kept[-1].start >= pieces[0].start:
            kept = tuple(one for one in kept if one.start < pieces[0].start)
        joined, first = (*kept, *pieces), 0
        least = pieces[-1].start + len(pieces[-1].content) - _ROOM_BYTES
        while joined[first].start < least and first < len(joined) - 1:
            first += 1
        self._kept = _Kept(journal, joined[first:])

    def line(self, journal: int | None, start: int, size: int) -> bytes | None:
        """The bytes at a place of a journal; None where they are not kept."""
        known, pieces = self._kept
        if known == journal:
            for piece in reversed(pieces):
                at = start - piece.start
                if 0 <= at <= len(piece.content) - size:
                    return piece.content[at : at + size]
        return None
