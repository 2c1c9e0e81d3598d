"""A search index in a SQLite file with FTS5."""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

from typing_extensions import override

from langchain_nanomem.errors import DatabaseError
from langchain_nanomem.search_file import SearchFile, wipe_removed
from langchain_nanomem.search_tables import (
    DamagedIndexError,
    Occurrences,
    Passage,
    PassageRow,
    SearchRows,
    SearchTables,
    Source,
    T,
    VectorRow,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
    from pathlib import Path

logger = logging.getLogger(__name__)

_MEMORY_ONLY = frozenset(
    {
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
    }
)
_IN_USE = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_VECTORS = """
CREATE TABLE IF NOT EXISTS vectors(
    id INTEGER PRIMARY KEY AUTOINCREMENT, passage INTEGER NOT NULL UNIQUE, vector BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS embedder(name TEXT NOT NULL);
CREATE TRIGGER IF NOT EXISTS vector_goes AFTER DELETE ON passages
    BEGIN DELETE FROM vectors WHERE passage=old.id; END;
"""


class FileTables(SearchTables):
    """The index of a scope in a file.

    What is damaged is built anew, with a warning; where nothing can be written it is kept in
    memory.

    Args:
        path: The file; None: it is kept in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self.place = str(path)
        self._file = SearchFile(path)

    @override
    def persist(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (sqlite3.DatabaseError, DamagedIndexError) as error:
            self._recover(error)
        try:
            return work()
        except (sqlite3.Error, DamagedIndexError) as error:
            raise DatabaseError(f"{self.place}: {error}") from error

    def _recover(self, error: Exception) -> None:
        """Make it possible to go on: without a disk, or with a new file."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _IN_USE:
            raise DatabaseError(f"{self.place}: someone else keeps it: {error}") from error
        if code in _MEMORY_ONLY:
            logger.warning("%s can't be written (%s): kept in memory", self.place, error)
            self._file.close()
            self._file = SearchFile(None)
        else:
            logger.warning("%s is damaged (%s): it is built anew", self.place, error)
            self._file.remove()

    @override
    @contextlib.contextmanager
    def opened(self) -> Iterator[SearchRows]:
        with self._file.opened() as connection:
            yield FileRows(connection)

    @override
    @contextlib.contextmanager
    def reading(self) -> Iterator[SearchRows]:
        with self._file.reading() as connection:
            yield FileRows(connection)

    @override
    @contextlib.contextmanager
    def writing(self) -> Iterator[SearchRows]:
        with self._file.writing() as connection:
            yield FileRows(connection)

    @override
    def forget_source(self, name: str) -> None:
        forget_source(self._file, name)

    @override
    def remove(self) -> None:
        self._file.remove()

    @override
    def close(self) -> None:
        self._file.close()


def forget_source(file: SearchFile, name: str) -> None:
    """Remove a source and its passages, so that nothing of them is on the disk."""
    with file.writing() as connection:
        rows = FileRows(connection)
        known = rows.sources().get(name)
        if known is None:
            return
        rows.remove_passages(known.id)
        connection.execute("DELETE FROM sources WHERE id=?", (known.id,))
    wipe_removed(file)


class FileRows(SearchRows):
    """What is in the tables of a file.

    Args:
        connection: A connection to it.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._ask = connection.execute

    @override
    def generation(self) -> Hashable:
        (removals,) = self._ask("SELECT count FROM removals").fetchone()
        return self._connection, removals  # another connection may be one to another file

    # --- sources ---

    @override
    def sources(self) -> dict[str, Source]:
        rows = self._ask("SELECT id, name, label, version, size, mark FROM sources")
        return {row[1]: Source(*row) for row in rows}

    @override
    def put_source(self, source: Source, journal: int | None = None) -> int | None:
        row = self._ask(
            "INSERT INTO sources(id, name, label, version, size, mark) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT(name) DO UPDATE SET version=excluded.version, size=excluded.size, "
            "mark=excluded.mark RETURNING id",
            (source.id or None, *source[1:]),
        )
        return int(row.fetchone()[0])

    @override
    def last_of(self, source: int) -> tuple[int, int, float | None]:
        row = self._ask(
            "SELECT place, episode, at FROM passages WHERE source=? ORDER BY place DESC LIMIT 1",
            (source,),
        ).fetchone()
        return row or (-1, 0, None)

    # --- passages ---

    @override
    def add_passages(self, source: int, added: Iterable[Passage]) -> None:
        for one in added:
            passage_id = self._ask(
                "INSERT INTO passages(source, place, episode, length, traits, at, speaker, text, "
                "about) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (source, one.place, one.episode, len(one.terms), *one[2:7]),
            ).lastrowid
            self._ask(
                "INSERT INTO terms(rowid, stems) VALUES (?, ?)",
                (passage_id, " ".join([*one.terms, *one.dates])),
            )

    @override
    def remove_passages(self, source: int) -> None:
        gone = self._ask(
            "DELETE FROM terms WHERE rowid IN (SELECT id FROM passages WHERE source=?)", (source,)
        )
        if gone.rowcount:
            self._ask("DELETE FROM passages WHERE source=?", (source,))
            self._ask("UPDATE removals SET count=count+1")
            self._ask("INSERT INTO terms(terms) VALUES ('optimize')")

    @override
    def rows_behind(self, last_id: int) -> list[PassageRow]:
        rows = self._ask(
            "SELECT id, source, place, episode, length, traits, at, speaker, about FROM passages "
            "WHERE id>? ORDER BY id",
            (last_id,),
        )
        return [PassageRow(*row) for row in rows]

    @override
    def texts_of(self, ids: Sequence[int]) -> dict[int, str]:
        rows = self._ask(
            "SELECT id, text FROM passages WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(ids),),
        )
        return dict(rows.fetchall())

    @override
    def passages_with(self, part: str) -> Occurrences:
        rows = self._ask("SELECT id FROM passages WHERE instr(text, ?)", (part,))
        return Counter(chain.from_iterable(rows.fetchall()))

    # --- terms ---

    @override
    def terms_behind(self, last_id: int) -> list[tuple[int, Sequence[str]]]:
        rows = self._ask("SELECT rowid, stems FROM terms WHERE rowid>?", (last_id,))
        return [(passage_id, stems.split()) for passage_id, stems in rows]

    @override
    def occurrences(self, terms: Sequence[str]) -> dict[str, Occurrences]:
        return {term: self._occurrences(term) for term in terms}

    def _occurrences(self, term: str) -> Occurrences:
        rows = self._ask("SELECT doc FROM temp.occurrences WHERE term=?", (term,))
        return Counter(chain.from_iterable(rows.fetchall()))

    @override
    def vocabulary(self) -> set[str]:
        return {term for (term,) in self._ask("SELECT term FROM temp.vocabulary")}

    # --- vectors ---

    @override
    def embedder(self) -> str | None:
        tables = self._ask("SELECT name FROM sqlite_master")
        if not {("vectors",), ("embedder",)}.issubset(tables):
            return None
        row = self._ask("SELECT name FROM embedder").fetchone()
        return None if row is None else str(row[0])

    @override
    def begin_vectors(self, embedder: str) -> int | None:
        for statement in _VECTORS.split(";\n"):
            self._ask(statement)
        if self.embedder() == embedder:
            return None
        gone = self._ask("DELETE FROM vectors").rowcount
        self._ask("DELETE FROM embedder")
        self._ask("INSERT INTO embedder VALUES (?)", (embedder,))
        return gone

    @override
    def vectors_behind(self, last_id: int) -> list[VectorRow]:
        rows = self._ask(
            "SELECT id, passage, vector FROM vectors WHERE id>? ORDER BY id", (last_id,)
        )
        return [VectorRow(*row) for row in rows]

    @override
    def add_vectors(self, made: Sequence[tuple[int, str, bytes]]) -> None:
        self._connection.executemany(
            "INSERT OR IGNORE INTO vectors(passage, vector) "
            "SELECT id, ?3 FROM passages WHERE id=?1 AND text=?2",
            made,
        )
