"""Checkpointers in PostgreSQL, each measurement in a schema of its own, which goes with it."""

from __future__ import annotations

import contextlib
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Iterator
    from pathlib import Path

    from langgraph.checkpoint.base import BaseCheckpointSaver

URL = "NANOMEM_POSTGRES_URL"
"""The environment variable that names the database."""
_TABLES = "select coalesce(sum(pg_total_relation_size(oid)), 0) from pg_class"


@contextmanager
def open_saver(place: Path, _: AbstractEventLoop) -> Iterator[BaseCheckpointSaver[Any]]:
    """A PostgresSaver whose schema has the directory's name; set up at the first opening."""
    from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415 - optional
    from psycopg.conninfo import make_conninfo  # noqa: PLC0415 - optional

    is_new = not (place / "schema").exists()
    if is_new:
        _execute(f'create schema "{place.name}"')
        (place / "schema").touch()
    own = make_conninfo(os.environ[URL], options=f'-c search_path="{place.name}"')
    with PostgresSaver.from_conn_string(own) as saver:
        if is_new:
            saver.setup()
        yield saver


@contextmanager
def open_ours(place: Path, _: AbstractEventLoop) -> Iterator[BaseCheckpointSaver[Any]]:
    """A NanomemSaver whose schema has the directory's name."""
    from langchain_nanomem import NanomemSaver, SessionManager  # noqa: PLC0415 - as the next
    from langchain_nanomem.postgres_journal import PostgresJournal  # noqa: PLC0415 - optional

    (place / "schema").touch()
    with PostgresJournal(os.environ[URL], schema=place.name) as journal:
        journal.prepare()
        yield NanomemSaver(SessionManager(journal))


def stored_bytes(place: Path, _: BaseCheckpointSaver[Any]) -> int:
    """The size of the schema's tables with their indexes."""
    where = (
        "where relkind = 'r' and relnamespace = (select oid from pg_namespace where nspname = %s)"
    )
    return int(_execute(f"{_TABLES} {where}", place.name)[0])


@contextmanager
def wal_counted() -> Iterator[list[int]]:
    """Counts the bytes that the server writes to its log in the block; the one number in the list.

    All that the server does counts. It begins behind a checkpoint where the user may make one, so
    that each begins with the same whole pages to be logged.
    """
    import psycopg  # noqa: PLC0415 - optional

    with contextlib.suppress(psycopg.Error):
        _execute("checkpoint")
    counted: list[int] = []
    (start,) = _execute("select pg_current_wal_lsn()::text")
    try:
        yield counted
    finally:
        (size,) = _execute("select pg_current_wal_lsn() - %s::pg_lsn", start)
        counted.append(int(size))


def server_version() -> str:
    """The version of the server."""
    return str(_execute("show server_version")[0])


def server_settings(*names: str) -> dict[str, str]:
    """What the server is set to."""
    return {name: str(_execute("select current_setting(%s)", name)[0]) for name in names}


def discard(place: Path) -> None:
    """Drop the schema."""
    if (place / "schema").exists():
        _execute(f'drop schema if exists "{place.name}" cascade')


def _execute(statement: str, *values: str) -> Any:
    """The first row of the answer, or None."""
    import psycopg  # noqa: PLC0415 - optional

    with psycopg.connect(os.environ[URL], autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchone() if cursor.description else None
