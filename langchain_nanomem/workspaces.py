"""Where everything of an agent is kept: a directory, or a PostgreSQL database."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_nanomem.connection_urls import is_url
from langchain_nanomem.file_journal import FileJournal
from langchain_nanomem.journal import Journal
from langchain_nanomem.memory_backend import MemoryBackend
from langchain_nanomem.scope_files import DirectoryMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_nanomem.postgres_isolation import Isolation
    from langchain_nanomem.postgres_journal import PostgresJournal

    Source = str | os.PathLike[str] | Journal | Any
    """A directory, a URL, a journal, or a pool of connections."""


class Workspace(NamedTuple):
    """Sessions and memories that belong together."""

    journal: Journal
    memory: MemoryBackend
    close: Callable[[], None]
    """Lets go of what was opened for it alone."""
    place: str
    """Where it is, for people; no password."""


def open_workspace(
    source: Source, schema: str | None = None, isolation: Isolation = None
) -> Workspace:
    """The sessions and memories of a directory or a database. Nothing is read or made yet.

    Args:
        source: A directory; a URL ``postgresql://…``; a `FileJournal` or `PostgresJournal`; or a
            `psycopg_pool.ConnectionPool`.
        schema: The schema of the tables, where a URL or a pool is given.
        isolation: What may be seen of isolated tables there: see `PostgresJournal`.

    Raises:
        ImportError: It is a database, and the extra ``postgres`` is missing.
        ValueError: It is nothing of the kind, or can't be read.
    """
    is_address = isinstance(source, str) and is_url(source)
    if isinstance(source, str | os.PathLike) and not is_address:
        _check_none("a directory", schema=schema, isolation=isolation)
        return _of_files(FileJournal(source))
    if isinstance(source, FileJournal):
        _check_none("a journal, which has its place", schema=schema, isolation=isolation)
        return _of_files(source)
    return _of_database(source, schema=schema, isolation=isolation)


def memory_backend(
    source: str | os.PathLike[str] | Journal | MemoryBackend,
) -> MemoryBackend:
    """The memories of a directory, or beside a journal's sessions.

    Raises:
        ValueError: It is nothing of the kind.
    """
    if isinstance(source, MemoryBackend):
        return source
    journal = source if isinstance(source, Journal) else FileJournal(source)
    return open_workspace(journal).memory


def _of_files(journal: FileJournal) -> Workspace:
    return Workspace(
        journal, DirectoryMemory(Path(journal.workspace)), lambda: None, str(journal.workspace)
    )


def _of_database(source: Source, **options: Any) -> Workspace:
    from langchain_nanomem.postgres_journal import PostgresJournal  # noqa: PLC0415 - an extra

    if isinstance(source, PostgresJournal):
        _check_none("a journal, which has its options", **options)
        return beside(source)
    if isinstance(source, Journal):
        raise ValueError(  # noqa: TRY004 - wrong arguments are ValueError throughout this package
            f"no memory is known beside {source!r}; give a directory, a URL, a FileJournal or a "
            "PostgresJournal"
        )
    pool: Any = source
    given = {name: value for name, value in options.items() if value is not None}
    journal = PostgresJournal(pool, **given)
    return beside(journal)._replace(close=journal.close)


def beside(journal: PostgresJournal) -> Workspace:
    """The sessions of a journal, which stays open, and the memories beside them."""
    from langchain_nanomem.postgres_memory import PostgresMemory  # noqa: PLC0415 - an extra

    return Workspace(journal, PostgresMemory(journal), lambda: None, journal.place)


def _check_none(what: str, **options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name} is for a database, and {what} was given")
