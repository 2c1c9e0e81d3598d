"""The locks of journals in PostgreSQL, and what is known of a journal while one is held.

A lock is one for the threads of this process around an advisory lock of a transaction, which is
begun when something is first asked of the journal. So threads that wait for each other take no
connections, and nothing is left where a process dies.

What is written has to be safe when the call returns, so the transaction is committed with each
write, and the advisory lock ends with it. The next question in the same block begins another
transaction, and waits for the lock again. Whether someone else wrote in between is seen by the
journal's end, which each write compares with what was read.

An append upon a known end needs no transaction held open: a function does it in one round trip.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from langchain_nanomem.errors import DatabaseError
from langchain_nanomem.files import file_stem
from langchain_nanomem.journal import ORIGIN, Position, ReplacedError
from langchain_nanomem.postgres_database import Transaction
from langchain_nanomem.postgres_errors import ConnectionLostError
from langchain_nanomem.postgres_recent import RecentLines
from langchain_nanomem.postgres_tables import (
    Head,
    State,
    append_of,
    journal_of,
    pieces_of,
    position,
    state_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langchain_nanomem.postgres_database import Answers, Database, Query
    from langchain_nanomem.postgres_tables import Tables

_RECENT_HOLDS = 1024


class Written(NamedTuple):
    """What was appended last in a block."""

    start: Position
    lines: Sequence[bytes]
    end: Position


class _Attempt(NamedTuple):
    """An append that may have been done."""

    start: Position
    journal: int
    append_id: int

    def written(self, lines: Sequence[bytes]) -> Written:
        """What it has done, if it was."""
        end = self.start.offset + sum(map(len, lines))
        return Written(self.start, lines, position(self.journal, end, self.append_id))


class Hold:
    """The lock of one key."""

    def __init__(self, database: Database, tables: Tables, key: str) -> None:
        self._database, self._tables, self._key = database, tables, key
        self._name = file_stem(key)
        self._thread = threading.RLock()
        self._owner: int | None = None
        self._depth = 0
        self._transaction: Transaction | None = None
        self._state: State | None = None
        self._latest: State | None = None
        """What this program last knew of it; others may have written since."""
        self._is_attempt = False
        self.recent = RecentLines()
        self._seen: Position | None = None
        """The end that was last read or written in this block."""
        self.written: Written | None = None
        """What was appended since; nobody else wrote before it was safe."""

    @contextlib.contextmanager
    def entered(self, *, is_attempt: bool = False) -> Iterator[None]:
        """Hold the lock until the block ends; a thread may enter it again.

        Args:
            is_attempt: Whether what was last known may be believed in the block, which keeps
                nobody out then before something is asked.
        """
        if not self._thread.acquire(timeout=self._database.timeout_seconds):
            raise DatabaseError(
                f"session {self._key!r}: another thread holds it for longer than "
                f"{self._database.timeout_seconds:g} s. Try again, or give more timeout_seconds."
            )
        self._owner, self._depth = threading.get_ident(), self._depth + 1
        outer, self._is_attempt = self._is_attempt, is_attempt
        try:
            yield
        finally:
            self._depth -= 1
            self._is_attempt = outer
            try:
                if not self._depth:
                    self._leave()
            finally:
                self._thread.release()

    def _leave(self) -> None:
        transaction, self._transaction = self._transaction, None
        self._owner = self._state = self._seen = self.written = None
        if transaction is not None:
            transaction.roll_back()

    @property
    def is_mine(self) -> bool:
        """Whether this thread holds it."""
        return self._owner == threading.get_ident()

    @property
    def known(self) -> State | None:
        """What holds as long as the transaction is open; None where it is not."""
        is_open = self._transaction is not None and self._transaction.is_open
        return self._state if is_open else None

    @property
    def believed(self) -> State | None:
        """What holds, or held when it was last looked at; None where it is to be asked."""
        latest = self._latest if self._is_attempt else None
        return self.known or (latest if latest and latest.journal is not None else None)

    def note(self, state: State) -> None:
        """Note what was just read."""
        self._latest = state

    # --- asking ---

    def ask(self, *queries: Query) -> tuple[State, Answers]:
        """What holds, and the rows that these give, with everyone else kept from writing."""
        state, rows = self._database.persist(lambda: self._ask(queries))
        self._seen = state.end
        return state, rows

    def _ask(self, queries: Sequence[Query]) -> tuple[State, Answers]:
        state, transaction = self.known, self._transaction
        if state is not None and transaction is not None:
            return state, transaction.ask(*queries) if queries else []
        self.written = None
        self._transaction = Transaction(self._database)
        asked = (self._tables.lock(self._name), self._tables.state(self._key), *queries)
        _, told, *rows = self._transaction.ask(*asked)
        self._state = self._latest = state_in(told)
        return self._state, rows

    # --- writing ---

    def append(
        self,
        lines: Sequence[bytes],
        head: Head,
        expected_end: Position | None,
        *,
        durable: bool,
    ) -> Position:
        """Append lines, once; the new end.

        Raises:
            ReplacedError: The end is not the expected one; nothing was written.
            DatabaseError: It could not be written, or `may_be_written`.
        """
        attempts: list[_Attempt] = []
        try:
            written = self._database.persist(
                lambda: self._append(lines, head, expected_end, attempts, durable=durable)
            )
        except DatabaseError as error:
            error.may_be_written = bool(attempts)
            raise
        self.written, self._seen = written, written.end
        self._note_written(written)
        return written.end

    def _note_written(self, written: Written) -> None:
        journal, end = journal_of(written.end), written.end
        self._latest = self._latest and self._latest._replace(
            journal=journal, size=end.offset, append_id=append_of(end)
        )
        self.recent.note(journal, pieces_of(written.start.offset, written.lines))

    def _append(
        self,
        lines: Sequence[bytes],
        head: Head,
        expected_end: Position | None,
        attempts: list[_Attempt],
        *,
        durable: bool,
    ) -> Written:
        """One try. What was tried before is looked for first: its answer may have been lost."""
        end = expected_end or (self._latest.end if self._latest else ORIGIN)
        if self.known is None and not attempts and end != ORIGIN and head.scope is None:
            written = self._append_at(end, lines, attempts, durable=durable)
            if written is not None:
                return written
        state, found = self._ask([self._tables.is_there(*one) for one in attempts])
        for attempt, rows in zip(attempts, found, strict=True):
            if rows:
                return attempt.written(lines)
        if expected_end not in {None, state.end}:
            raise ReplacedError(self._key)
        begun, journal = self._begun(state, head)
        attempt = _Attempt(state.end, journal, secrets.randbits(63))
        insert = self._tables.insert(journal, attempt.append_id, pieces_of(state.size, lines))
        try:
            self._commit(*begun, insert, durable=durable)
        except ConnectionLostError:
            attempts.append(attempt)
            raise
        return attempt.written(lines)

    def _append_at(
        self, end: Position, lines: Sequence[bytes], attempts: list[_Attempt], *, durable: bool
    ) -> Written | None:
        """Append in one round trip; None where `end` is not the end, or it can't be done so."""
        attempt = _Attempt(end, journal_of(end) or 0, secrets.randbits(63))
        pieces = pieces_of(end.offset, lines)
        number = attempt.append_id
        query = self._tables.append(self._name, end, number, pieces, durable=durable)
        try:
            (is_done,) = self._database.call(query)
        except ConnectionLostError:
            attempts.append(attempt)
            raise
        return attempt.written(lines) if is_done else None

    def _begun(self, state: State, head: Head) -> tuple[list[Query], int]:
        """The journal of the key; and what begins it, or says whose it is, where that is new."""
        journal = state.journal
        if journal is None:
            journal = secrets.randbits(63)
            return [self._tables.begin(self._key, journal, head)], journal
        if head.scope in {None, state.scope}:
            return [], journal
        return [self._tables.bind(journal, head.scope or "")], journal

    def rewrite(self, lines: Sequence[bytes], head: Head, *, erase: bool) -> Position:
        """Put these lines in place of all; the new end."""
        journal, append_id = secrets.randbits(63), secrets.randbits(63)
        new: list[Query] = []
        if lines:
            new = [
                self._tables.begin(self._key, journal, head),
                self._tables.insert(journal, append_id, pieces_of(0, lines)),
            ]
        old = self._tables.clear(self._key) if erase else self._tables.replace(self._key)
        note = [self._tables.bury(self._key)] if erase else []
        end = position(journal, sum(map(len, lines)), append_id)
        self._replace([*old, *note, *new], self._seen, end)
        return end

    def delete(self) -> bool:
        """Remove the journal and note it; False where there was none."""
        seen = self._seen
        state, _ = self.ask()
        if seen not in {None, state.end}:
            raise ReplacedError(self._key)
        if state.journal is None:
            return False
        self._replace([*self._tables.clear(self._key), self._tables.bury(self._key)], seen, ORIGIN)
        return True

    def _replace(self, queries: Sequence[Query], seen: Position | None, end: Position) -> None:
        """Do what leaves the journal with this end; doing it once more does no harm."""
        try:
            self._database.persist(lambda: self._replace_once(queries, seen, end))
        except DatabaseError as error:
            error.may_be_written = isinstance(error, ConnectionLostError)
            raise
        self.written, self._seen = None, end
        self._latest = None
        self.recent.forget()

    def _replace_once(self, queries: Sequence[Query], seen: Position | None, end: Position) -> None:
        state, _ = self._ask(())
        if state.end == end:
            return  # it was done, and only the answer was lost
        if seen not in {None, state.end}:
            raise ReplacedError(self._key)
        self._commit(*queries)

    def write(self, *queries: Query) -> None:
        """Do what may be lost, and is no part of the journal."""
        if self.known is None:
            self._database.write(*queries, durable=False)
        else:
            self._commit(*queries, durable=False)

    def _commit(self, *queries: Query, durable: bool = True) -> None:
        transaction, self._transaction, self._state = self._transaction, None, None
        if transaction is not None:
            transaction.commit(*queries, durable=durable)


class Holds:
    """The locks of all keys."""

    def __init__(self, database: Database, tables: Tables) -> None:
        self._database, self._tables = database, tables
        self._guard = threading.Lock()
        self._holds: WeakValueDictionary[str, Hold] = WeakValueDictionary()
        self._recent: deque[Hold] = deque(maxlen=_RECENT_HOLDS)
        """Kept so that they need not be made anew for each block."""

    def of(self, key: str) -> Hold:
        """The lock of a key."""
        with self._guard:
            hold = self._holds.get(key)
            if hold is None:
                hold = self._holds[key] = Hold(self._database, self._tables, key)
                self._recent.append(hold)
            return hold
