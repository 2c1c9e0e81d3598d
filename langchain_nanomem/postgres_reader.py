"""One journal in PostgreSQL, held open for reading."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from langchain_nanomem.errors import CorruptRecordError
from langchain_nanomem.journal import (
    ORIGIN,
    Address,
    Entry,
    JournalReader,
    Position,
    Record,
    ReplacedError,
)
from langchain_nanomem.journal_lines import load_line, load_lines
from langchain_nanomem.postgres_tables import (
    State,
    append_of,
    check_gapless,
    journal_of,
    pieces_in,
    position,
    seen_in,
    state_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langchain_nanomem.postgres_database import Answers, Database, Query
    from langchain_nanomem.postgres_locks import Hold
    from langchain_nanomem.postgres_tables import Piece, Tables


class PostgresReader(JournalReader):
    """The lines in a journal's chunks as records.

    It goes with the journal that has the key when it first reads. It reads that one on when
    another took its place, for at least ten minutes; what was deleted or erased is gone at once.

    Args:
        database: Where it lies.
        tables: What is asked there.
        hold: The lock of its key. A thread that holds it reads under it.
        key: Whose journal.
    """

    def __init__(self, database: Database, tables: Tables, hold: Hold, key: str) -> None:
        self._database, self._tables, self._hold, self._key = database, tables, hold, key
        self._journal: int | None = None

    @override
    def renew(self) -> None:
        self._journal = None

    @override
    def read(self, start: Position = ORIGIN) -> tuple[list[Entry], Position]:
        if (known := self._known(start)) is not None:
            return known
        state, pieces = self._state_and_tail(start)
        if self._journal is None:
            self._journal = pieces[0].journal if pieces and start == ORIGIN else state.journal
        if start == ORIGIN and not pieces:
            self._journal = None
            return [], ORIGIN
        self._check(state, start, pieces)
        end = check_gapless(pieces, start.offset, self._place)
        self._hold.recent.note(self._journal, pieces)
        return list(self._entries(pieces)), self._end(start, end, pieces)

    def _end(self, start: Position, end: int, pieces: list[Piece]) -> Position:
        return position(self._journal or 0, end, pieces[-1].append_id) if pieces else start

    def _state_and_tail(self, start: Position) -> tuple[State, list[Piece]]:
        wanted = self._journal if self._journal is not None else journal_of(start)
        is_other = wanted != journal_of(start) or self._database.current is not None
        if start == ORIGIN or is_other or self._hold.is_mine:
            state, (rows,) = self._ask(self._tables.tail(self._key, wanted, start.offset))
            return state, pieces_in(rows)
        query = self._tables.look(self._key, start)
        row = self._database.persist(lambda: self._database.call(query))
        state, pieces = seen_in(row, wanted or 0)
        self._hold.note(state)
        return state, pieces

    def _known(self, start: Position) -> tuple[list[Entry], Position] | None:
        """What can be told without asking, since nobody else writes, or wrote, meanwhile."""
        hold = self._hold
        if not hold.is_mine:
            return None
        known = hold.believed
        if known is not None and known.end == start and self._goes_with(start):
            return [], start
        written = hold.written
        if written is not None and written.start == start and self._goes_with(written.end):
            return list(self._lines_at(start.offset, written.lines)), written.end
        return None

    def _goes_with(self, place: Position) -> bool:
        """Whether a place, in the journal there is now, is one in the journal that is read."""
        journal = journal_of(place)
        if self._journal is None:
            self._journal = journal
        return self._journal == journal

    def _check(self, state: State, start: Position, pieces: list[Piece]) -> None:
        """See that there is still the journal that `start` is a place in, and what ends there."""
        journal = self._journal
        if journal is None or (start != ORIGIN and journal_of(start) != journal):
            raise ReplacedError(self._key)
        if start == ORIGIN:
            return
        if state.journal != journal:
            is_there = bool(self._database.ask(self._tables.is_kept(journal))[0])
        elif start.offset < state.size:
            is_there = bool(pieces) and pieces[0].before == append_of(start)
        else:
            is_there = start == state.end
        if not is_there:
            raise ReplacedError(self._key)

    def _ask(self, *queries: Query) -> tuple[State, Answers]:
        if self._hold.is_mine:
            return self._hold.ask(*queries)
        told, *rows = self._database.ask(self._tables.state(self._key), *queries)
        state = state_in(told)
        self._hold.note(state)
        return state, rows

    @override
    def load(self, addresses: Sequence[Address]) -> list[Record]:
        wanted = sorted(set(addresses))
        lines = self._kept(wanted)
        lines |= self._lines([one for one in wanted if one not in lines])
        found = dict(
            zip(wanted, self._records([lines[one] for one in wanted], wanted), strict=True)
        )
        return [found[address] for address in addresses]

    def _kept(self, wanted: list[Address]) -> dict[Address, bytes]:
        recent, journal = self._hold.recent, self._journal
        found = ((one, recent.line(journal, *one)) for one in wanted)
        return {one: line for one, line in found if line is not None}

    def _lines(self, wanted: list[Address]) -> dict[Address, bytes]:
        """The lines at these addresses, which ascend; empty where none was ever given."""
        pieces = self._pieces_with([start for start, _ in wanted])
        starts = [piece.start for piece in pieces]
        lines = {}
        for start, size in wanted:
            place = bisect_right(starts, start) - 1
            piece = pieces[place] if place >= 0 else None
            at = start - piece.start if piece else 0
            lines[start, size] = piece.content[at : at + size] if piece else b""
        return lines

    def _pieces_with(self, offsets: list[int]) -> list[Piece]:
        if self._journal is None:
            state, _ = self._ask()
            self._journal = state.journal
        if self._journal is None or not offsets:
            return []
        (rows,) = self._database.ask(self._tables.pieces(self._journal, offsets))
        return sorted(pieces_in(rows))

    def _entries(self, pieces: list[Piece]) -> Iterator[Entry]:
        for piece in pieces:
            yield from self._lines_at(piece.start, piece.content.splitlines(keepends=True))

    def _lines_at(self, offset: int, lines: Sequence[bytes]) -> Iterator[Entry]:
        addresses: list[Address] = []
        for line in lines:
            addresses.append((offset, len(line) - 1))
            offset += len(line)
        return map(Entry, addresses, self._records([line[:-1] for line in lines], addresses))

    def _records(self, lines: list[bytes], addresses: Sequence[Address]) -> Sequence[Record]:
        try:
            return load_lines(lines, self.objects)
        except ValueError:  # one by one, to tell which
            return [self._record(*one) for one in zip(lines, addresses, strict=True)]

    def _record(self, line: bytes, address: Address) -> Record:
        try:
            return load_line(line, Path(self._key), lambda: 0, self.objects)
        except CorruptRecordError as error:
            raise CorruptRecordError(
                Path(self._place), address[0], str(error.__cause__), _REMEDY
            ) from error.__cause__

    @property
    def _place(self) -> str:
        return f"{self._database.place}, session {self._key!r}"


_REMEDY = "It was written by something else: mend it there by hand, or restore it from a backup."
