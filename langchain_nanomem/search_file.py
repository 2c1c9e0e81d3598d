"""One scope's search index on the disk: a SQLite file with FTS5. All of it can be made anew."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from typing import TYPE_CHECKING

from langchain_nanomem.errors import NanomemError
from langchain_nanomem.files import FILE_MODE, make_directory
from langchain_nanomem.search_terms import TERMS_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator
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


def wipe_removed(file: SearchFile) -> None:
    """Have what was removed leave SQLite's own log too.

    Raises:
        sqlite3.OperationalError: Someone reads it right now.
    """
    with file.opened() as connection:
        is_busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if is_busy:
            raise sqlite3.OperationalError("the log of removed text is in use")


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
