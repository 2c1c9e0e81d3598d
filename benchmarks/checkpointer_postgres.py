"""PostgresSaver in a schema of its own, which goes with the measurement."""

from __future__ import annotations

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


def stored_bytes(place: Path, _: BaseCheckpointSaver[Any]) -> int:
    """The size of the schema's tables with their indexes."""
    where = (
        "where relkind = 'r' and relnamespace = (select oid from pg_namespace where nspname = %s)"
    )
    return int(_execute(f"{_TABLES} {where}", place.name)[0])


def server_version() -> str:
    """The version of the server."""
    return str(_execute("show server_version")[0])


def discard(place: Path) -> None:
    """Drop the schema."""
    if (place / "schema").exists():
        _execute(f'drop schema "{place.name}" cascade')


def _execute(statement: str, *values: str) -> Any:
    """The first row of the answer, or None."""
    import psycopg  # noqa: PLC0415 - optional

    with psycopg.connect(os.environ[URL], autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values)
        return cursor.fetchone() if cursor.description else None
