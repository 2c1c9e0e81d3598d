"""One scope's search index on the disk: a SQLite file with FTS5. All of it can be made anew."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
import threading
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from langchain_nanomem.errors import NanomemError
from langchain_nanomem.files import FILE_MODE, make_directory
from langchain_nanomem.search_terms import TERMS_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

logger = logging.getLogger(__name__)

_WAIT_SECONDS = 60.0
_OF_THE_PARENT: list[sqlite3.Connection] = []
"""Kept after a fork: to close them would take the parent's away from under it."""
_FORMAT = 1_000 + TERMS_VERSION
_SCHEMA = """
CREATE TABLE sources(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, label TEXT NOT NULL,
    version TEXT NOT NULL, size INTEGER NOT NULL, mark INTEGER NOT NULL);
CREATE TABLE passages(
    id INTEGER PRIMARY KEY AUTOINCREMENT, source INTEGER NOT NULL, place INTEGER NOT NULL,
    episode INTEGER NOT NULL, length INTEGER NOT NULL, traits INTEGER NOT NULL,
    at REAL, speaker TEXT NOT NULL, text TEXT NOT NULL, about TEXT NOT NULL,
    UNIQUE(source, place));
CREATE TABLE removals(count INTEGER NOT NULL);
INSERT INTO removals VALUES (0);
CREATE VIRTUAL TABLE terms USING fts5(
    stems, columnsize=0, tokenize="unicode61 remove_diacritics 0 categories 'L* N* M* Co'");
"""


class Source(NamedTuple):
    """What was read of a session, or of the event log."""

    id: int
    name: str
    label: str
    """The session's key; "" for the event log."""
    version: str
    size: int
    """The number of its passages."""
    mark: int
    """Tells whether they are still what it begins with."""


class Passage(NamedTuple):
    """A message, or an entry of the event log, as it is searched."""

    place: int
    """Where it stands in its source."""
    episode: int
    """Where the run of messages begins that it is in."""
    traits: int
    at: float | None
    """When it was said, in seconds since 1970."""
    speaker: str
    """Who said it; "" for what nobody said."""
    text: str
    about: str
    """What an entry tells of: ``key start-end``; "" for a message."""
    terms: list[str]
    dates: list[str]
    """The terms of when it was said, which do not make it longer."""


class PassageRow(NamedTuple):
    """A passage as the ranking needs it."""

    id: int
    source: int
    place: int
    episode: int
    length: int
    traits: int
    at: float | None
    speaker: str
    about: str


class SearchFile:
    """A connection to one index, used by one thread at a time.

    What is damaged, or of another version, is made anew, empty. Where nothing can be written it
    is kept in memory.

    Args:
        path: The file; None: in memory alone.
    """

    _connection: sqlite3.Connection | None = None

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._guard = threading.RLock()
        self._process = os.getpid()
        self._inode: int | None = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """The connection, to be used until the block ends.

        Raises:
            sqlite3.DatabaseError: It is damaged, locked for too long, or can't be written.
        """
        with self._guard:
            try:
                yield self._connected()
            except sqlite3.DatabaseError:
                self._close()
                raise

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """The same in a transaction: all that is read is of one moment, whoever writes meanwhile.

        Nothing is written in it.
        """
        return self._transaction("BEGIN")

    def writing(self) -> AbstractContextManager[sqlite3.Connection]:
        """The same in a transaction: nobody else writes, all of it is kept or nothing."""
        return self._transaction("BEGIN IMMEDIATE")

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self.opened() as connection:
            connection.execute(begin)
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def remove(self) -> None:
        """Remove the file, and what SQLite keeps beside it."""
        with self._guard:
            self._close()
            if self.path is not None:
                remove_files(self.path)

    def close(self) -> None:
        """Let go of the file."""
        with self._guard:
            self._close()

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._process == os.getpid():
            connection.close()
        else:
            _OF_THE_PARENT.append(connection)

    def _connected(self) -> sqlite3.Connection:
        """The connection, made anew after a fork, and where the file is another one now.

        A transaction goes on in the file that it began in.
        """
        is_ours = self._process == os.getpid()
        is_begun = self._connection is not None and self._connection.in_transaction
        if (
            self._connection is None
            or not is_ours
            or not (is_begun or self._inode == _inode(self.path))
        ):
            self._close()
            self._connection = _connected(self.path)
            self._process, self._inode = os.getpid(), _inode(self.path)
        return self._connection


def remove_files(path: Path) -> None:
    """Remove a database, and what SQLite keeps beside it."""
    for ending in ("-wal", "-shm", "-journal", ""):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def _inode(path: Path | None) -> int | None:
    try:
        return None if path is None else path.stat().st_ino
    except OSError:
        return None


def _connected(path: Path | None) -> sqlite3.Connection:
    if path is None:
        return _set_up(_connection(":memory:"))
    try:
        make_directory(path.parent)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, FILE_MODE))
        return _prepared(path)
    except (OSError, sqlite3.OperationalError) as error:
        if isinstance(error, sqlite3.OperationalError) and "fts5" in str(error):
            raise NanomemError("Python's SQLite has no FTS5, which the search needs") from error
        logger.warning("%s can't be written (%s): this search index is kept in memory", path, error)
        return _set_up(_connection(":memory:"))


def _prepared(path: Path) -> sqlite3.Connection:
    try:
        return _set_up(_connection(str(path)))
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        logger.warning("%s is damaged (%s): it is built anew", path, error)
        remove_files(path)
        return _set_up(_connection(str(path)))


def _connection(name: str) -> sqlite3.Connection:
    return sqlite3.connect(
        name, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
    )


def _set_up(connection: sqlite3.Connection) -> sqlite3.Connection:
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA secure_delete=ON")
        if _format_of(connection) != _FORMAT:
            _create(connection)
        connection.execute(
            "CREATE VIRTUAL TABLE temp.occurrences USING fts5vocab(main, terms, instance)"
        )
        connection.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab(main, terms, row)")
    except BaseException:
        connection.close()
        raise
    return connection


def _format_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _create(connection: sqlite3.Connection) -> None:
    """Make the tables, in place of those of another version."""
    connection.execute("BEGIN IMMEDIATE")
    if _format_of(connection) != _FORMAT:  # else another process was faster
        for table in ("sources", "passages", "removals", "terms", "vectors", "embedder"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in filter(str.strip, _SCHEMA.split(";\n")):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version={_FORMAT}")
    connection.execute("COMMIT")


# --- its tables ---------------------------------------------------------------------


def sources_in(connection: sqlite3.Connection) -> dict[str, Source]:
    """What was read, by name."""
    rows = connection.execute("SELECT id, name, label, version, size, mark FROM sources")
    return {row[1]: Source(*row) for row in rows}


def put_source(connection: sqlite3.Connection, source: Source) -> int:
    """Note what was read; an id of 0 is a new one. Gives the id."""
    row = connection.execute(
        "INSERT INTO sources(id, name, label, version, size, mark) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT(name) DO UPDATE SET version=excluded.version, size=excluded.size, "
        "mark=excluded.mark RETURNING id",
        (source.id or None, *source[1:]),
    )
    return int(row.fetchone()[0])


def add_passages(connection: sqlite3.Connection, source: int, added: Iterable[Passage]) -> None:
    """Put passages behind those that a source has."""
    for one in added:
        passage_id = connection.execute(
            "INSERT INTO passages(source, place, episode, length, traits, at, speaker, text, about)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (source, one.place, one.episode, len(one.terms), *one[2:7]),
        ).lastrowid
        connection.execute(
            "INSERT INTO terms(rowid, stems) VALUES (?, ?)",
            (passage_id, " ".join([*one.terms, *one.dates])),
        )


def remove_passages(connection: sqlite3.Connection, source: int) -> None:
    """Remove those of a source, so that nothing of them is left in the file."""
    gone = connection.execute(
        "DELETE FROM terms WHERE rowid IN (SELECT id FROM passages WHERE source=?)", (source,)
    )
    if gone.rowcount:
        connection.execute("DELETE FROM passages WHERE source=?", (source,))
        connection.execute("UPDATE removals SET count=count+1")
        connection.execute("INSERT INTO terms(terms) VALUES ('optimize')")


def forget_source(file: SearchFile, name: str) -> None:
    """Remove a source and its passages, so that nothing of them is on the disk."""
    with file.writing() as connection:
        known = sources_in(connection).get(name)
        if known is None:
            return
        remove_passages(connection, known.id)
        connection.execute("DELETE FROM sources WHERE id=?", (known.id,))
    wipe_removed(file)


def wipe_removed(file: SearchFile) -> None:
    """Have what was removed leave SQLite's own log too.

    Raises:
        sqlite3.OperationalError: Someone reads it right now.
    """
    with file.opened() as connection:
        is_busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if is_busy:
            raise sqlite3.OperationalError("the log of removed text is in use")


def last_of(connection: sqlite3.Connection, source: int) -> tuple[int, int, float | None]:
    """Place, episode and time of a source's last passage; (-1, 0, None) where there is none."""
    row = connection.execute(
        "SELECT place, episode, at FROM passages WHERE source=? ORDER BY place DESC LIMIT 1",
        (source,),
    ).fetchone()
    return row or (-1, 0, None)


def removals_in(connection: sqlite3.Connection) -> int:
    """How often something was removed."""
    return int(connection.execute("SELECT count FROM removals").fetchone()[0])


def rows_behind(connection: sqlite3.Connection, last_id: int) -> list[PassageRow]:
    """The passages added after one, in the order of their ids."""
    rows = connection.execute(
        "SELECT id, source, place, episode, length, traits, at, speaker, about FROM passages "
        "WHERE id>? ORDER BY id",
        (last_id,),
    )
    return [PassageRow(*row) for row in rows]


def stems_behind(connection: sqlite3.Connection, last_id: int) -> list[tuple[int, str]]:
    """The terms of the passages added after one, as one text each."""
    rows = connection.execute("SELECT rowid, stems FROM terms WHERE rowid>?", (last_id,))
    return rows.fetchall()


def occurrences(connection: sqlite3.Connection, term: str) -> Counter[int]:
    """The passages that have a term, each with how often."""
    rows = connection.execute("SELECT doc FROM temp.occurrences WHERE term=?", (term,))
    return Counter(chain.from_iterable(rows.fetchall()))


def terms_with(connection: sqlite3.Connection, part: str, most: int) -> list[str]:
    """The terms that have a text in them."""
    rows = connection.execute(
        "SELECT term FROM temp.vocabulary WHERE instr(term, ?) LIMIT ?", (part, most)
    )
    return [term for (term,) in rows]


def terms_from(connection: sqlite3.Connection, start: str, most: int) -> list[str]:
    """The terms that begin with a text."""
    rows = connection.execute(
        "SELECT term FROM temp.vocabulary WHERE term>=? AND term<? LIMIT ?",
        (start, start + "\U0010ffff", most),
    )
    return [term for (term,) in rows]


def passages_with(connection: sqlite3.Connection, part: str) -> Counter[int]:
    """The passages whose text has a text in it."""
    rows = connection.execute("SELECT id FROM passages WHERE instr(text, ?)", (part,))
    return Counter(chain.from_iterable(rows.fetchall()))


def texts_of(connection: sqlite3.Connection, ids: list[int]) -> dict[int, str]:
    """The texts of passages."""
    rows = connection.execute(
        "SELECT id, text FROM passages WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(ids),),
    )
    return dict(rows.fetchall())
