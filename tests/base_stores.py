"""LangGraph stores for the tests, real ones."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from langgraph.store.base import PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore
from psycopg import Connection
from psycopg.rows import dict_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from databases import Databases
    from langgraph.store.base import BaseStore, Op

STORES = ("in memory", "sqlite", "postgres")


def open_store(name: str, path: Path, databases: Callable[[], Databases]) -> BaseStore:
    """A store of a kind, empty and ready.

    Args:
        name: One of `STORES`.
        path: Where files may be.
        databases: Gives the PostgreSQL server.
    """
    if name == "in memory":
        return InMemoryStore()
    if name == "sqlite":
        connection = sqlite3.connect(
            path / "store.db", check_same_thread=False, isolation_level=None
        )
        store: Any = SqliteStore(connection)
    else:
        place = databases()
        schema = place.schema()
        place.ask(f"CREATE SCHEMA {schema}")
        store = postgres_store(place.url, schema)
    store.setup()
    return store


def postgres_store(url: str, schema: str) -> PostgresStore:
    """A store in a schema, on a connection of its own."""
    connection = Connection.connect(
        url,
        autocommit=True,
        prepare_threshold=0,
        row_factory=dict_row,
        options=f"-c search_path={schema}",
    )
    return PostgresStore(connection)


def close_store(store: BaseStore) -> None:
    """Let go of its connection."""
    if (connection := getattr(store, "conn", None)) is not None:
        connection.close()


class InterruptedStore(InMemoryStore):
    """A store in which something happens right before its n-th write from now on."""

    __slots__ = ("_happens", "_left")

    def __init__(self) -> None:
        super().__init__()
        self._left, self._happens = 0, lambda: None

    def before_write(self, number: int, happens: Callable[[], None]) -> None:
        """Have something happen before a write, counted from 1; once."""
        self._left, self._happens = number, happens

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        ops = list(ops)
        if any(isinstance(op, PutOp) for op in ops):
            self._left -= 1
            if self._left == 0:
                self._happens()
        return super().batch(ops)


class StingyStore(InMemoryStore):
    """A store that gives a hundred items at most; something happens before its n-th search."""

    __slots__ = ("_happens", "_left")

    def __init__(self) -> None:
        super().__init__()
        self._left, self._happens = 0, lambda: None

    def before_search(self, number: int, happens: Callable[[], None]) -> None:
        """Have something happen before a search, counted from 1; once."""
        self._left, self._happens = number, happens

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        ops = list(ops)
        if any(isinstance(op, SearchOp) for op in ops):
            self._left -= 1
            if self._left == 0:
                self._happens()
        return super().batch(
            op._replace(limit=min(op.limit, 100)) if isinstance(op, SearchOp) else op for op in ops
        )
