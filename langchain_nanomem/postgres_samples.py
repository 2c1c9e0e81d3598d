"""Texts looked for in all tables, after something was erased."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from langchain_nanomem.memory_backend import Noting
    from langchain_nanomem.postgres_database import Database
    from langchain_nanomem.postgres_schema import Schema

_ROWS_AT_ONCE = 256
"""So that no statement takes long, however much there is."""


class _Source(NamedTuple):
    """A table that has texts."""

    what: str
    """What its rows are, for people, with ``{}`` for whose."""
    table: str
    keys: tuple[str, str]
    """What its rows are ordered by."""
    types: tuple[str, str]
    whose: str
    content: str


_CHUNKS = "{s}.chunks LEFT JOIN {s}.journals ON id = journal"
_INDEXES = "{s}.indexes LEFT JOIN {s}.journals ON id = journal"
_TEXTS = "{s}.search_texts JOIN {s}.searches ON searches.id = search"
_NUMBERS, _NAMED = ("bigint", "bigint"), ("text", "bigint")
_SOURCES = (
    _Source("session {}", _CHUNKS, ("journal", "start"), _NUMBERS, "key", "content"),
    _Source("index of session {}", _INDEXES, ("journal", "0::bigint"), _NUMBERS, "key", "content"),
    _Source("facts of {}", "{s}.memories", ("scope", "0::bigint"), _NAMED, "scope", "facts"),
    _Source("version of {}", "{s}.memory_versions", ("scope", "id"), _NAMED, "scope", "content"),
    _Source("log of {}", "{s}.log_entries", ("scope", "id"), _NAMED, "scope", "content"),
    _Source("search index of {}", _TEXTS, ("search", "search_texts.id"), _NUMBERS, "scope", "text"),
)


def holding(
    database: Database, schema: Schema, samples: Collection[bytes], noting: Noting
) -> list[str]:
    """The places, for people, that hold one of these texts."""
    found: dict[str, None] = {}
    for source in _SOURCES:
        with noting(f"{database.place}: {source.table.split()[0].format(s=schema.name)}"):
            for whose, content in _rows(database, schema, source):
                if any(sample in content for sample in samples):
                    found[f"{database.place}: {source.what.format(whose)}"] = None
    return [*found]


def _rows(database: Database, schema: Schema, source: _Source) -> Iterator[tuple[str, bytes]]:
    """Whose each row is, and its content; read piece by piece."""
    statement = schema.statement(_statement(source))
    last: tuple[Any, Any] = (None, None)
    while True:
        (rows,) = database.ask((statement, (last[0], *last)))
        for *_, whose, content in rows:
            yield _named(whose), bytes(content or b"")
        if len(rows) < _ROWS_AT_ONCE:
            return
        last = rows[-1][:2]


def _named(whose: str | bytes | None) -> str:
    if not whose:
        return "that was replaced" if whose is None else "the workspace"
    return repr(whose if isinstance(whose, str) else bytes(whose).decode())


def _statement(source: _Source) -> str:
    keys, (first, second) = ", ".join(source.keys), source.types
    return (
        f"SELECT {keys}, {source.whose}, {source.content} FROM {source.table} "  # noqa: S608 - of constants
        f"WHERE %s::{first} IS NULL OR ({keys}) > (%s::{first}, %s::{second}) "
        f"ORDER BY {keys} LIMIT {_ROWS_AT_ONCE}"
    )
