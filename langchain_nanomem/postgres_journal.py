"""Journals in a PostgreSQL database, for programs on many machines."""

from __future__ import annotations

import contextlib
import copy
import logging
import threading
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from typing_extensions import override

from langchain_nanomem.errors import CorruptRecordError, DatabaseError, UnsupportedFormatError
from langchain_nanomem.files import file_stem
from langchain_nanomem.journal import (
    Bound,
    Journal,
    JournalInfo,
    JournalReader,
    Journals,
    JournalState,
    Position,
    Record,
)
from langchain_nanomem.journal_lines import load_line
from langchain_nanomem.postgres_database import Database, Pool
from langchain_nanomem.postgres_locks import Hold, Holds
from langchain_nanomem.postgres_reader import PostgresReader
from langchain_nanomem.postgres_schema import Schema, newest_version
from langchain_nanomem.postgres_search import PostgresSearch
from langchain_nanomem.postgres_tables import Head, Tables, scope_in, state_in
from langchain_nanomem.scope_names import checked_scope, scope_name
from langchain_nanomem.values import dump_record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from langchain_nanomem.postgres_database import Answers, Query, Rows
    from langchain_nanomem.postgres_isolation import Isolation
    from langchain_nanomem.search_tables import SearchTables

logger = logging.getLogger(__name__)


class PostgresJournal(Journal):
    """Journals in a PostgreSQL database: give it to `SessionManager` in place of a directory.

    Safe between threads, processes and machines. Each append is one transaction, and on the disk
    of the server when it returns. A connection that is lost is made anew, and what was under way
    is done once: an append whose answer was lost is looked for before it is tried again. Only
    what is needed is read. The tables are made, and brought up to date, at the first use; it may
    be the first use of many processes at once. Nothing of a connection's state is needed beyond
    a transaction, so poolers such as pgbouncer may hand out another one for each.

    The search indexes of the sessions' scopes are in the same schema: one for all workers, kept up
    to date by whoever searches.

    What is deleted is gone for every query; the server itself gives its space back with its
    VACUUM, and its own backups keep what they hold.

    Args:
        source: A URL ``postgresql://user:password@host:port/database``, libpq's ``key=value``
            form, or a `psycopg_pool.ConnectionPool`, which stays open when this is closed. The
            password is in no message, log or repr.
        schema: The schema that the tables are in; several are as several databases. Lower-case
            letters, digits and ``_``.
        max_connections: How many connections are open at most; of a pool, it says so itself.
            Each thread that reads or writes takes one for as long as it does.
        timeout_seconds: How long to wait at most for a connection, for another who writes to
            the same session, for the end of a statement, and for a server that restarts.
        isolation: "scope": the database itself keeps the scopes apart. This has the sessions of
            the workspace's own scope alone, `isolated` those of another. Tables that it makes
            are isolated; of others ``nanomem db isolate`` turns that on. "all": it sees and
            writes what belongs to any scope, for maintenance. None: it works where the tables
            are not isolated.

    Raises:
        ImportError: psycopg or its pool is missing: the extra ``postgres``.
        ValueError: The URL can't be read, or an option is out of its range.
    """

    database: Database
    """Where it lies; what is kept beside the sessions uses the same connections."""
    schema: Schema
    """The tables."""

    def __init__(
        self,
        source: str | Pool,
        *,
        schema: str = "nanomem",
        max_connections: int = 10,
        timeout_seconds: float = 30.0,
        isolation: Isolation = None,
    ) -> None:
        self.schema = Schema(schema)
        self._begin(
            Database(
                source,
                max_connections=max_connections,
                timeout_seconds=timeout_seconds,
                isolation=isolation,
            )
        )

    def _begin(self, database: Database, root: Self | None = None) -> None:
        self._root = root
        self.database, self.scope = database, database.scope
        self._tables = Tables(self.schema, database.scope or ())
        self._holds = Holds(database, self._tables)
        self._guard = threading.Lock()
        self._is_prepared = False

    def __repr__(self) -> str:
        return f"PostgresJournal({self.database.place!r}, schema={self.schema.name!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. The next use opens new ones."""
        self.database.close()

    def isolated(self, scope: tuple[str, ...]) -> Self:
        """The sessions of a scope alone, over the same connections: closing it closes none.

        The database shows and takes no row of another scope in any of its transactions, whatever
        is asked. A session of a name that another scope has can't be begun.

        Raises:
            ValueError: This is not isolated, or the scope is none.
        """
        if self.database.isolation is None:
            raise ValueError('isolated scopes need isolation="scope"')
        other = copy.copy(self)
        is_same = self.database.isolation == "scope"  # then what holds for this holds for it
        other._begin(  # noqa: SLF001 - it is one of us
            self.database.of_scope(checked_scope(scope)), (self._root or self) if is_same else None
        )
        return other

    def isolate(self, *, is_on: bool = True) -> None:
        """Have the database keep the scopes apart, or no longer; for the owner of the tables.

        While it is on, programs without `isolation` can neither read nor write. What is bound to
        no scope belongs to the workspace's own.

        Raises:
            DatabaseError: It can't be done; nothing was changed.
        """
        self.schema.isolate(self.database, is_on=is_on)

    def is_isolated(self) -> bool:
        """Whether the database keeps the scopes apart."""
        return self.schema.is_isolated(self.database)

    def prepare(self) -> None:
        """Make the tables, or bring them up to date; else the first use does it.

        Raises:
            UnsupportedFormatError: A newer version made them.
            DatabaseError: It can't be done; nothing was changed.
        """
        if self._root is not None:
            self._root.prepare()
            return
        with self._guard:
            if not self._is_prepared:
                self.database.persist(lambda: self.schema.prepare(self.database))
                self._is_prepared = True

    def version(self) -> int:
        """Of which version the tables are; 0 where there are none. Makes and changes nothing.

        Raises:
            UnsupportedFormatError: They are of a newer one.
            DatabaseError: It can't be told.
        """
        return self.schema.version(self.database)

    @override
    def is_there(self) -> bool:
        with self._guard:
            version, newest = self.version(), newest_version()
            if 0 < version < newest:
                raise UnsupportedFormatError(
                    f"{self!r}: the tables are of version {version}, and this program works with "
                    f"version {newest}. Bring them up to date: nanomem db upgrade"
                )
            if version == newest:
                self.schema.check_isolation(self.database)
            self._is_prepared = version == newest
            return self._is_prepared

    @override
    def lock(self, key: str) -> AbstractContextManager[None]:
        return self._hold(key).entered()

    @override
    def attempt(self, key: str) -> AbstractContextManager[None]:
        return self._hold(key).entered(is_attempt=True)

    @override
    def append(
        self,
        key: str,
        records: Sequence[Record],
        *,
        expected_end: Position | None = None,
        durable: bool = True,
    ) -> Position:
        lines = [dump_record(record) + b"\n" for record in records]
        hold = self._hold(key)
        with hold.entered():
            if not lines:
                return hold.ask()[0].end
            return hold.append(lines, _head_of(records, lines), expected_end, durable=durable)

    @override
    def open(self, key: str) -> AbstractContextManager[JournalReader]:
        hold = self._hold(key)
        return contextlib.nullcontext(PostgresReader(self.database, self._tables, hold, key))

    @override
    def rewrite(self, key: str, records: Sequence[Record], *, erase: bool = False) -> Position:
        lines = [dump_record(record) + b"\n" for record in records]
        hold = self._hold(key)
        with hold.entered():
            return hold.rewrite(lines, _head_of(records, lines), erase=erase)

    @override
    def delete(self, key: str) -> bool:
        hold = self._hold(key)
        with hold.entered():
            return hold.delete()

    @override
    def deleted_at(self, key: str) -> datetime | None:
        hold = self._hold(key)
        state = hold.believed if hold.is_mine else None
        if state is None:
            (rows,) = self._ask(self._tables.state(key))
            state = state_in(rows)
        return None if state.deleted_at is None else state.deleted_at.astimezone(UTC)

    @override
    def deletions(self) -> dict[bytes, datetime]:
        (rows,) = self._ask(self._tables.deletions())
        return {bytes(name): at.astimezone(UTC) for name, at in rows}

    @override
    def note_deletion(self, name: bytes, at: datetime) -> None:
        self.prepare()
        self.database.persist(lambda: self.database.write(self._tables.note_deletion(name, at)))

    @override
    def set_updated_at(self, key: str, at: datetime) -> None:
        hold = self._hold(key)
        with hold.entered():
            hold.write(self._tables.set_written_at(key, at))

    @override
    def list(self) -> Journals:
        (rows,) = self._ask(self._tables.infos())
        return sorted(map(self._told, rows), key=lambda info: info.key)

    @override
    def info(self, key: str) -> JournalInfo | None:
        rows = self._rows(key, self._tables.info(key))
        return self._told(rows[0]) if rows else None

    def _told(self, row: tuple[Any, ...]) -> JournalInfo:
        encoded, _, first, size, written_at = row
        key = bytes(encoded).decode()
        record = load_line(bytes(first).rstrip(b"\n"), Path(self.place), lambda: 1)
        return JournalInfo(key, record, written_at.astimezone(UTC), size, self.place)

    @property
    def place(self) -> str:
        """Where it is, for people; no password."""
        return f"{self.database.place}, schema {self.schema.name!r}"

    @override
    def states(self) -> dict[str, JournalState]:
        (rows,) = self._ask(self._tables.states())
        return {name: _state_in(told) for name, *told in rows}

    @override
    def sessions_of(self, scope: tuple[str, ...]) -> dict[str, Bound]:
        name = scope_name(scope)
        unbound, rows = self._ask(self._tables.unbound(), self._tables.states_of(name))
        if unbound:
            self._settle(unbound)
            (rows,) = self._ask(self._tables.states_of(name))
        return {
            stem: Bound(bytes(key).decode(), scope, _state_in(told)) for key, stem, *told in rows
        }

    def _settle(self, unbound: Rows) -> None:
        """Find out whose the journals are that an earlier version began."""
        for encoded, journal in unbound:
            key = bytes(encoded).decode()
            try:
                scope = scope_in(self.read(key)[0])
                self.database.write(self._tables.settle(journal, scope or scope_name(())))
            except CorruptRecordError as error:
                logger.warning("whose session %r is can't be told: %s", key, error)

    def search_tables(self, scope: tuple[str, ...]) -> SearchTables:
        """What the search index of a scope is kept in."""
        return PostgresSearch(self.database, self.schema, self.prepare, scope)

    @override
    def key_of(self, name: str) -> str | None:
        (rows,) = self._ask(self._tables.key(name))
        return bytes(rows[0][0]).decode() if rows else None

    @override
    def index(self, key: str) -> bytes | None:
        rows = self._rows(key, self._tables.index(key))
        try:
            return zlib.decompress(rows[0][0]) if rows else None
        except zlib.error:
            return None

    @override
    def keep_index(self, key: str, content: bytes) -> None:
        try:
            packed = zlib.compress(content, 1)  # each one leaves the last for VACUUM
            self._hold(key).write(*self._tables.keep_index(key, packed))
        except DatabaseError as error:
            logger.debug("%s: the index of %r is not kept (%s)", self, key, error)

    def _rows(self, key: str, query: Query) -> Rows:
        """What a query gives, under the lock of a key where this thread has it."""
        hold = self._hold(key)
        return hold.ask(query)[1][0] if hold.is_mine else self._ask(query)[0]

    def _ask(self, *queries: Query) -> Answers:
        self.prepare()
        return self.database.ask(*queries)

    def _hold(self, key: str) -> Hold:
        """The lock of a key.

        Raises:
            ValueError: It can't be a key.
        """
        file_stem(key)
        self.prepare()
        return self._holds.of(key)


def _head_of(records: Sequence[Record], lines: Sequence[bytes]) -> Head:
    return Head(lines[0] if lines else b"", scope_in(records))


def _state_in(told: Sequence[Any]) -> JournalState:
    journal, size, written_at = told
    return JournalState(journal, size, int(written_at.timestamp() * 1e6))
