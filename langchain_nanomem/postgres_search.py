"""A search index in a PostgreSQL database, which all workers share.

PostgreSQL keeps what the ranking needs, and finds the passages that have a term by its inverted
index (GIN). That one is of all scopes, so each term stands there behind the number of its own
index: a term of another one is another key, and what others have is neither read nor counted.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from typing_extensions import override

from langchain_nanomem.postgres_database import Transaction
from langchain_nanomem.postgres_search_rows import PostgresRows, SearchStatements
from langchain_nanomem.scope_names import scope_name
from langchain_nanomem.search_tables import DamagedIndexError, SearchRows, SearchTables, T

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_nanomem.postgres_database import Database
    from langchain_nanomem.postgres_schema import Schema


class PostgresSearch(SearchTables):
    """The index of a scope in a database.

    Whoever writes to it holds an advisory lock of the transaction: others wait, and see what was
    written then. What is read in a block is of one snapshot.

    Args:
        database: Where it lies.
        schema: The schema there.
        prepare: Makes the tables, where they are not there.
        scope: Whose it is.
    """

    def __init__(
        self,
        database: Database,
        schema: Schema,
        prepare: Callable[[], None],
        scope: tuple[str, ...],
    ) -> None:
        self._database = database
        self._prepare = prepare
        self._statements = SearchStatements(
            schema, scope_name(scope), is_isolated=database.scope is not None
        )
        self._rows: PostgresRows | None = None
        self.place = f"{database.place}, schema {schema.name!r}, search index of {scope!r}"

    @override
    def persist(self, work: Callable[[], T]) -> T:
        self._prepare()
        try:
            return self._database.persist(work)
        except DamagedIndexError:
            self.remove()
            return self._database.persist(work)

    @override
    @contextlib.contextmanager
    def opened(self) -> Iterator[SearchRows]:
        yield self._rows or PostgresRows(self._statements, self._database.ask)

    @override
    @contextlib.contextmanager
    def reading(self) -> Iterator[SearchRows]:
        transaction = Transaction(self._database, is_of_one_moment=True)
        try:
            by_index = self._statements.by_index()
            with self._used(PostgresRows(self._statements, transaction.ask, by_index)) as rows:
                yield rows
        finally:
            transaction.roll_back()

    @override
    @contextlib.contextmanager
    def writing(self) -> Iterator[SearchRows]:
        transaction = Transaction(self._database)
        try:
            lock = self._statements.lock()
            with self._used(PostgresRows(self._statements, transaction.ask, lock)) as rows:
                rows.begin()
                yield rows
                transaction.commit(rows.end(), durable=False)
        finally:
            transaction.roll_back()

    @contextlib.contextmanager
    def _used(self, rows: PostgresRows) -> Iterator[PostgresRows]:
        self._rows = rows
        try:
            yield rows
        finally:
            self._rows = None

    @override
    def forget_source(self, name: str) -> None:
        self._database.write(*self._statements.forget(name))

    @override
    def remove(self) -> None:
        self._prepare()
        self._database.persist(lambda: self._database.write(*self._statements.remove()))

    @override
    def close(self) -> None:
        self._rows = None  # the connections belong to the journal
