"""The checkpointers that others wrote to a file or a database, opened to be read."""

from __future__ import annotations

import contextlib
import importlib
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from langchain_nanomem.connection_urls import is_url, secrets_in, without
from langchain_nanomem.errors import MigrationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from langgraph.checkpoint.base import BaseCheckpointSaver

_SQLITE_MAGIC = b"SQLite format 3\0"
_COLUMNS = {
    "checkpoints": {
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
        "parent_checkpoint_id",
        "type",
        "checkpoint",
        "metadata",
    },
    "writes": {
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
        "task_id",
        "idx",
        "channel",
        "type",
        "value",
    },
}


def open_saver(source: str) -> AbstractContextManager[BaseCheckpointSaver[Any]]:
    """The checkpointer whose file or database is `source`, to be read only.

    Args:
        source: The path of a file of `SqliteSaver` or `AsyncSqliteSaver`, or a URL
            ``postgresql://…`` of a database of `PostgresSaver`.

    Raises:
        MigrationError: The package that reads it is not installed, or it is missing, locked,
            damaged, or something else. No message contains the URL.
    """
    return _postgres(source) if is_url(source) else _sqlite(Path(source))


# --- SQLite -----------------------------------------------------------------


@contextlib.contextmanager
def _sqlite(path: Path) -> Iterator[BaseCheckpointSaver[Any]]:
    _check_is_database(path)
    try:
        savers = importlib.import_module("langgraph.checkpoint.sqlite")
    except ImportError as error:
        raise MigrationError(_MISSING.format("langgraph-checkpoint-sqlite")) from error
    with contextlib.closing(_connected(path)) as connection:
        columns = _columns(connection, path)
        saver = savers.SqliteSaver(connection)
        saver.is_setup = True  # its set-up would write to the file
        saver._has_task_path = "task_path" in columns["writes"]  # noqa: SLF001 - else its set-up tells
        yield saver


def _check_is_database(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(len(_SQLITE_MAGIC))
    except OSError as error:
        raise MigrationError(f"{path}: {error.strerror or error}") from error
    if not start:
        raise MigrationError(f"{path} is an empty file")
    if start != _SQLITE_MAGIC:
        raise MigrationError(f"{path} is no SQLite database")


def _connected(path: Path) -> sqlite3.Connection:
    """A connection that can't write.

    A database beside which nothing can be written is read as one that nobody changes, unless
    others have just written to it.
    """
    wal = path.with_name(f"{path.name}-wal")
    connection = _connection(path, "mode=ro")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        connection.close()
        if "locked" in str(error) or (wal.exists() and wal.stat().st_size):
            raise MigrationError(_UNREADABLE.format(path=path, error=error)) from error
        connection = _connection(path, "mode=ro&immutable=1")
    return connection


def _connection(path: Path, options: str) -> sqlite3.Connection:
    address = f"file:{quote(str(path.absolute()))}?{options}"
    return sqlite3.connect(address, uri=True, check_same_thread=False)


def _columns(connection: sqlite3.Connection, path: Path) -> dict[str, set[str]]:
    """The columns of the tables that hold the checkpoints."""
    found: dict[str, set[str]] = {}
    for table, needed in _COLUMNS.items():
        try:
            rows = connection.execute(f"PRAGMA table_info({table})").fetchall()
        except sqlite3.Error as error:
            raise MigrationError(_UNREADABLE.format(path=path, error=error)) from error
        found[table] = {row[1] for row in rows}
        if missing := sorted(needed - found[table]):
            raise MigrationError(
                f"{path} holds no checkpoints of LangGraph: its table {table!r} has no column "
                f"{missing[0]!r}"
                if found[table]
                else f"{path} holds no checkpoints of LangGraph: it has no table {table!r}"
            )
    return found


# --- PostgreSQL -------------------------------------------------------------


@contextlib.contextmanager
def _postgres(url: str) -> Iterator[BaseCheckpointSaver[Any]]:
    secrets = _secrets(url)
    try:
        psycopg = importlib.import_module("psycopg")
        savers = importlib.import_module("langgraph.checkpoint.postgres")
    except ImportError as error:
        raise MigrationError(
            _MISSING.format("langgraph-checkpoint-postgres 'psycopg[binary]'")
        ) from error
    try:
        with savers.PostgresSaver.from_conn_string(url) as saver:
            saver.conn.execute("SET default_transaction_read_only = on")
            yield saver
    except psycopg.Error as error:
        reason = without(secrets, str(error).strip())
        raise MigrationError(f"the database cannot be read: {reason}") from None


def _secrets(url: str) -> list[str]:
    try:
        return secrets_in(url)
    except ValueError as error:
        raise MigrationError(str(error)) from None


_MISSING = "it takes another package to read it: pip install {}"
_UNREADABLE = (
    "{path} cannot be read ({error}). If another program uses it, stop that; if it is damaged, "
    "take a backup; if its directory is read-only, copy it with its -wal file elsewhere"
)
