"""Memories in a PostgreSQL database, beside the sessions of a `PostgresJournal`."""

from __future__ import annotations

import contextlib
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

from typing_extensions import override

from langchain_nanomem.errors import ScopeError
from langchain_nanomem.history_log import decode
from langchain_nanomem.memory_backend import MemoryBackend, ScopeMemory
from langchain_nanomem.memory_versions import (
    ArchivedVersion,
    MemoryVersion,
    beyond_limits,
    version_of,
)
from langchain_nanomem.postgres_database import Transaction
from langchain_nanomem.postgres_errors import ConnectionLostError
from langchain_nanomem.postgres_memory_tables import SCOPES, MemoryTables, entries_in
from langchain_nanomem.postgres_samples import holding
from langchain_nanomem.postgres_search_rows import SearchStatements
from langchain_nanomem.scope_names import scope_name
from langchain_nanomem.search_places import LOG
from langchain_nanomem.search_scopes import SessionScopes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from datetime import datetime

    from langchain_nanomem.history_log import HistoryEntry
    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.memory_backend import Noting
    from langchain_nanomem.postgres_database import Answers, Query
    from langchain_nanomem.postgres_journal import PostgresJournal
    from langchain_nanomem.search_sources import LogStates
    from langchain_nanomem.search_tables import SearchTables

T = TypeVar("T")
Decision = tuple["Sequence[Query]", T]
"""What is to be written, and what is told of it."""


class ScopeRows(ScopeMemory):
    """Facts, versions and log of one scope as rows.

    Each change reads behind an advisory lock of the scope, decides, and writes, in one
    transaction. A thread that holds the lock of a session, and has read it, does so in the
    transaction that has the lock: the change is made only if the session is as it was read. The
    lock ends with it, as with each thing that is written.

    Args:
        journal: The sessions beside it.
        name: The scope's `scope_name`.
    """

    def __init__(self, journal: PostgresJournal, name: str) -> None:
        self.name = name
        self._journal, self._database = journal, journal.database
        self._tables = MemoryTables(journal.schema, name)
        self._search = SearchStatements(journal.schema, name)
        whose = f"the memory of {name!r}" if name else "the workspace's own memory"
        self.place = f"{journal.place}, {whose}"
        self.facts_place, self.log_place = f"{self.place}: facts", f"{self.place}: log"

    # --- facts ---

    @override
    def current(self) -> MemoryVersion:
        content = _facts_in(self._ask(self._tables.facts()))
        text = "" if content is None else decode(Path(self.facts_place), content, _NOT_UTF8)
        return MemoryVersion(text, version_of(content))

    @override
    def put(self, content: bytes) -> None:
        def decide(facts: Answers) -> Decision[None]:
            current = _facts_in(facts)
            return ([] if current == content else self._replacing(current, content, None)), None

        self._change([self._tables.facts()], decide)

    @override
    def replace(self, content: bytes, expected_version: str, change: str | None) -> bool:
        asked = [self._tables.facts(), *([self._tables.change(change)] if change else [])]
        tries: list[bytes] = []
        """What was about to be written when an answer was lost: then it may be there."""

        def decide(told: Answers) -> Decision[bool]:
            facts, *made = told
            current = _facts_in([facts])
            if any(made) or current in tries:
                return [], True
            if version_of(current) != expected_version:
                return [], False
            if not change and current == content:
                return [], True
            tries.append(content)
            return self._replacing(current, content, change), True

        return self._change(asked, decide)

    def _replacing(self, old: bytes | None, content: bytes, change: str | None) -> list[Query]:
        kept: list[Query] = []
        if old is not None or change:
            kept = [self._tables.archive(version_of(old or b""), change, old or b"")]
        return [*kept, self._tables.put_facts(content)]

    @override
    def is_made(self, change: str) -> bool:
        return bool(self._ask(self._tables.change(change))[0])

    @override
    def versions(self) -> list[ArchivedVersion]:
        return [version for _, version in self._versions_in(self._ask(self._tables.versions()))]

    def _versions_in(self, told: Answers) -> list[tuple[int, ArchivedVersion]]:
        return [
            (
                number,
                ArchivedVersion(
                    version,
                    archived_at.astimezone(UTC),
                    f"{self.place}: version {number}",
                    None if change is None else unquote(change),
                    partial(self._content_of, number),
                    change,
                ),
            )
            for number, version, archived_at, change in told[0]
        ]

    def _content_of(self, number: int) -> bytes:
        (rows,) = self._ask(self._tables.version(number))
        if not rows:
            raise FileNotFoundError(f"{self.place}: version {number} is not there any more")
        return bytes(rows[0][0])

    @override
    def put_version(self, version: ArchivedVersion, content: bytes) -> None:
        def decide(told: Answers) -> Decision[None]:
            known = [
                (one.archived_at, one.version, one.change) for _, one in self._versions_in(told)
            ]
            if (version.archived_at, version.version, version.change) in known:
                return [], None
            return [self._tables.begin(), self._tables.put_version(version, content)], None

        self._change([self._tables.versions()], decide)

    @override
    def settle(self, content: bytes, expected_version: str) -> bool:
        tries: list[bytes] = []

        def decide(facts: Answers) -> Decision[bool]:
            current = _facts_in(facts)
            if current in tries:  # the answer was lost
                return [], True
            if version_of(current) != expected_version:
                return [], False
            tries.append(content)
            return [self._tables.put_facts(content)], True

        return self._change([self._tables.facts()], decide)

    @override
    def prune(self, keep: int | None, older_than: datetime | None) -> list[ArchivedVersion]:
        def decide(told: Answers) -> Decision[list[ArchivedVersion]]:
            numbered = self._versions_in(told)
            goes = beyond_limits([one for _, one in numbered], keep, older_than)
            numbers = [number for number, one in numbered if one in goes]
            return ([self._tables.remove_versions(numbers)] if numbers else []), goes

        return self._change([self._tables.versions()], decide)

    # --- the log ---

    @override
    def append(self, entry: HistoryEntry) -> None:
        writes = [self._tables.begin(), self._tables.append(entry)]
        self._change([], lambda _: (writes, None))

    @override
    def extend(self, entries: Sequence[HistoryEntry]) -> None:
        sizes: list[int] = []
        """How long the log was before each try."""

        def decide(told: Answers) -> Decision[None]:
            if sizes and len(told[0]) > sizes[0]:  # the answer was lost
                return [], None
            sizes.append(len(told[0]))
            return [self._tables.begin(), *map(self._tables.append, entries)], None

        self._change([self._tables.entries()], decide)

    @override
    def contains(self, entry_id: str) -> bool:
        return bool(self._ask(self._tables.entry(entry_id))[0])

    @override
    def entries(self) -> list[HistoryEntry]:
        return entries_in(self._ask(self._tables.entries())[0])

    @override
    def matching(self, is_meant: Callable[[HistoryEntry], bool]) -> list[HistoryEntry]:
        return [*filter(is_meant, self.entries())]

    @override
    def forget(self, is_meant: Callable[[HistoryEntry], bool]) -> list[HistoryEntry]:
        def decide(told: Answers) -> Decision[list[HistoryEntry]]:
            numbers = [row[0] for row in told[0]]
            numbered = zip(numbers, entries_in(told[0]), strict=True)
            goes = [(number, entry) for number, entry in numbered if is_meant(entry)]
            removing = self._tables.remove_entries([number for number, _ in goes])
            found = [entry for _, entry in goes]
            return ([*removing, *self._search.forget(LOG)] if goes else []), found

        return self._change([self._tables.entries()], decide)

    @override
    def log_states(self) -> LogStates:
        (rows,) = self._ask(self._tables.log_state())
        return tuple(rows[0]) if rows and any(rows[0]) else ()

    # --- all of it ---

    @override
    def erase(self) -> list[Path]:
        self._change([], lambda _: (self._tables.erase(), None))
        return []

    @override
    def rows(self) -> int:
        return int(self._ask(self._tables.rows())[0][0][0])

    def _ask(self, *queries: Query) -> Answers:
        self._journal.prepare()
        if (joined := self._database.current) is None:
            return self._database.ask(*queries)
        with _told_of_loss():
            return joined.ask(*queries)

    def _change(self, asked: Sequence[Query], decide: Callable[[Answers], Decision[T]]) -> T:
        """Ask behind the lock, decide, and write, in one transaction; what is told of it."""
        self._journal.prepare()
        if (joined := self._database.current) is None:
            return self._database.persist(
                lambda: self._changed(Transaction(self._database), asked, decide)
            )
        with _told_of_loss():
            return self._changed(joined, asked, decide)

    def _changed(
        self,
        transaction: Transaction,
        asked: Sequence[Query],
        decide: Callable[[Answers], Decision[T]],
    ) -> T:
        if not asked:
            writes, told = decide([])
            transaction.commit(self._tables.lock(), *writes)
            return told
        _, *answers = transaction.ask(self._tables.lock(), *asked)
        try:
            writes, told = decide(answers)
        except BaseException:
            transaction.roll_back()
            raise
        transaction.commit(*writes)  # also nothing: others wait for the lock
        return told


class PostgresMemory(MemoryBackend):
    """The memories beside the sessions of a `PostgresJournal`, in the same schema.

    It uses the connections of the journal, and its options.

    Args:
        journal: The sessions.
    """

    def __init__(self, journal: PostgresJournal) -> None:
        self._journal = journal

    def __repr__(self) -> str:
        return f"PostgresMemory({self._journal!r})"

    @property
    @override
    def journal(self) -> PostgresJournal:
        return self._journal

    @override
    def named(self, name: str) -> ScopeRows:
        own = self._journal.scope
        if own is not None and name != scope_name(own):
            raise ScopeError(
                f"only what belongs to the scope {own!r} is to be seen here, and the memory of "
                f"{name or 'the workspace'!r} was asked for: take isolated(...) of its own scope"
            )
        return ScopeRows(self._journal, name)

    @override
    def all(self) -> Iterator[ScopeRows]:
        if (own := self._journal.scope) is not None:
            yield self.named(scope_name(own))
            return
        self._journal.prepare()
        query = self._journal.schema.statement(SCOPES)
        (rows,) = self._journal.database.ask((query, ()))
        yield self.named("")
        yield from (self.named(name) for (name,) in rows)

    @override
    def search_places(
        self, scope: tuple[str, ...], sessions: SessionManager
    ) -> tuple[SearchTables, SessionScopes]:
        return self._journal.search_tables(scope), SessionScopes(None, sessions)

    @override
    def holding(self, samples: Collection[bytes], noting: Noting) -> list[str]:
        self._journal.prepare()
        return holding(self._journal.database, self._journal.schema, samples, noting)


@contextlib.contextmanager
def _told_of_loss() -> Iterator[None]:
    """Say of a lost connection that it `may_be_written`, where the lock of a session went with it.

    On another connection nobody could tell whether the session is still as it was read.
    """
    try:
        yield
    except ConnectionLostError as error:
        error.may_be_written = True
        raise


def _facts_in(told: Answers) -> bytes | None:
    rows = told[0]
    return bytes(rows[0][0]) if rows and rows[0][0] is not None else None


_NOT_UTF8 = (
    "It was written by something else: bring an earlier version back with restore_long_term, "
    "which keeps the damaged one."
)
