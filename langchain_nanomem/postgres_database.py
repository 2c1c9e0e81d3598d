"""A PostgreSQL database: connections, transactions, and errors that say what to do.

Nothing here depends on the state of a connection outlasting a transaction, so a pooler may hand
out another one for each.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import re
import threading
import time
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

try:
    import psycopg
    from psycopg.adapt import Transformer
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg.errors import error_from_result
    from psycopg.generators import execute
    from psycopg.pq import ExecStatus, Format
    from psycopg.rows import tuple_row
    from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout
except ImportError as error:
    raise ImportError(
        "PostgresJournal needs psycopg and its pool: pip install 'langchain-nanomem[postgres]'"
    ) from error

from langchain_nanomem.connection_urls import forms_of, is_url, secrets_in
from langchain_nanomem.errors import DatabaseError
from langchain_nanomem.postgres_errors import ConnectionLostError, explained
from langchain_nanomem.postgres_isolation import Isolation, check_isolation, setting_of
from langchain_nanomem.postgres_ping import will_soon_be_there

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self


Pool = ConnectionPool[Any]
Rows = list[tuple[Any, ...]]
Answers = list[Rows]
"""The rows of several queries, in their order."""
Query = tuple[bytes, tuple[Any, ...]]
"""A statement and what stands for its placeholders."""
T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
"""Seconds between two tries to go on after a connection was lost."""
_STATEMENT_MORE = 1.0
"""How many seconds longer a statement may take than a lock: else it can't be told which it was."""
_WHOLE = 2
"""How many deadlines a transaction may take: then a program that was stopped has no lock more."""
_HAS_TRANSACTION_TIMEOUT = 170_000


class Database:
    """A database, and how to get at it. Does nothing before it is asked something.

    Args:
        source: A URL ``postgresql://…``, libpq's ``key=value`` form, or a pool. A pool is never
            closed here.
        max_connections: How many connections are open at most, if `source` is no pool.
        timeout_seconds: How long to wait for a connection, for a lock, and for the end of a
            statement.
        isolation: What may be seen of tables that are isolated: "scope", the rows of the
            workspace's own scope alone, until `of_scope`; "all"; None: none of them.

    Raises:
        ValueError: The URL can't be read, or an option is out of its range.
    """

    place: str
    """Where it is, for people; no password."""
    isolation: Isolation
    """What may be seen of tables that are isolated."""
    scope: tuple[str, ...] | None
    """Whose rows alone may be seen; None where nothing says so."""

    def __init__(
        self,
        source: str | Pool,
        *,
        max_connections: int = 10,
        timeout_seconds: float = 30.0,
        isolation: Isolation = None,
    ) -> None:
        check_isolation(isolation)
        if type(max_connections) is not int or max_connections < 1:
            raise ValueError(f"max_connections must be 1 or more, not {max_connections!r}")
        if not 0 < timeout_seconds < math.inf:
            raise ValueError(f"timeout_seconds must be above 0, not {timeout_seconds!r}")
        self.max_connections = max_connections
        self.timeout_seconds = timeout_seconds
        self._given = None if isinstance(source, str) else source
        address = source if isinstance(source, str) else source.conninfo
        self._secrets, options = _read_address(str(address) if address else "")
        self.place = _place_of(options)
        self._conninfo = make_conninfo(**(_limits(timeout_seconds) | options))
        self._pool: Pool | None = None
        self._pid = 0
        self._autocommit = True
        """What the pool's connections have; ours have it, and those of a given pool get it back."""
        self._guard = threading.Lock()
        self._of_thread = threading.local()
        limits = (timeout_seconds, timeout_seconds + _STATEMENT_MORE, timeout_seconds * _WHOLE)
        self.lock_limit = str(math.ceil(timeout_seconds * 1000))
        """How long a lock is waited for, in ms, as a setting."""
        self._limits = tuple(str(math.ceil(one * 1000)) for one in limits)
        self.isolation = isolation
        self._lender = self
        self._take_on(() if isolation == "scope" else None)

    def of_scope(self, scope: tuple[str, ...]) -> Self:
        """The same over the same connections, for the rows of this scope alone."""
        other = copy.copy(self)
        other._of_thread = threading.local()  # noqa: SLF001 - it is one of us
        other.isolation = "scope"
        other._take_on(scope)  # noqa: SLF001
        return other

    def _take_on(self, scope: tuple[str, ...] | None) -> None:
        self.scope = scope
        setting = setting_of(self.isolation, scope or ())
        self._naming = b"" if setting is None else _NAMING
        self._named = () if setting is None else (setting,)

    def settings(self, connection: psycopg.Connection[Any]) -> Query:
        """What is set in each transaction, for as long as it lasts."""
        if connection.info.server_version < _HAS_TRANSACTION_TIMEOUT:
            return _SETTINGS + self._naming, (*self._limits[:2], *self._named)
        return _SETTINGS + _SETTING_MORE + self._naming, (*self._limits, *self._named)

    @property
    def _brief(self) -> Query:
        """What is set for a few questions."""
        return _BRIEF + self._naming, (*self._limits[:2], *self._named)

    def close(self) -> None:
        """Close the connections, unless they are a given pool's, or those of another of us."""
        if self._lender is not self:
            return
        with self._guard:
            pool, self._pool = self._pool, None
        if pool is not None and pool is not self._given:
            pool.close()

    # --- asking ---

    def ask(self, *queries: Query) -> Answers:
        """The rows that each of these gives, in one round trip; nothing may be written by them.

        A thread that has a transaction open asks in it. Each query sees what was committed when
        it began.

        Raises:
            DatabaseError: The database can't be used.
        """
        return self.persist(lambda: self._ask_once(queries))

    def _ask_once(self, queries: tuple[Query, ...]) -> Answers:
        if (current := self.current) is not None:
            return current.ask(*queries)
        with self._lent() as connection:
            return _answers(connection, (self._brief, *queries))[1:]

    def call(self, function: Query) -> tuple[Any, ...]:
        """The row that a function gives, in one statement, which is a transaction of its own.

        A pipeline that sets the limits before would cost twice as much. A limit for statements
        comes too late in one; one for transactions, which older servers don't have, does not. A
        cursor would cost as much again as sending the values as they are.

        Args:
            function: The function, which takes as its first argument ``given.lock_limit``.

        Raises:
            ConnectionLostError: The connection broke; all of it is done, or nothing.
            DatabaseError: It can't be done; nothing is.
        """
        text, values = function
        with self._lent() as connection:
            if connection.info.server_version < _HAS_TRANSACTION_TIMEOUT:
                statement = _CALLING % (b"", text), (self.lock_limit, *values)
                return _answers(connection, (self._brief, statement))[1][0]
            given = _SETTING_MORE + self._naming
            limits = (self.lock_limit, self._limits[1], *self._named)
            return _row_of(connection, _CALLING % (given, text), (*limits, *values))

    @contextlib.contextmanager
    def _lent(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection of the pool until the block ends."""
        connection = self.take()
        try:
            yield connection
        except psycopg.Error as error:
            raise self.error_of(error, is_lost=connection.closed) from None
        finally:
            self.give_back(connection)

    def write(self, *queries: Query, durable: bool = True) -> Answers:
        """Have these done in a transaction of their own, in one round trip; their rows.

        Raises:
            ConnectionLostError: The connection broke; all of it is done, or nothing.
            DatabaseError: The database can't be used; nothing is done.
        """
        return Transaction(self).commit(*queries, durable=durable)

    def persist(self, work: Callable[[], T]) -> T:
        """What `work` gives, which is begun anew while connections are lost and time is left."""
        deadline, pause = time.monotonic() + self.timeout_seconds, _FIRST_PAUSE
        while True:
            try:
                return work()
            except ConnectionLostError:
                if time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    @property
    def current(self) -> Transaction | None:
        """The transaction that this thread has open and may read in; None where it has none."""
        opened: list[Transaction] = [one for one in self._opened if one.is_open]
        return opened[-1] if opened else None

    @property
    def _opened(self) -> list[Transaction]:
        stack: list[Transaction] = self._of_thread.__dict__.setdefault("opened", [])
        return stack

    # --- connections ---

    @contextlib.contextmanager
    def single(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection for what is done before the pool is used; errors say why there is none."""
        if self._given is not None:
            connection = self.take()
            try:
                yield connection
            finally:
                self.give_back(connection)
            return
        with self.translated():
            connection = self._connect()
        try:
            yield connection
        finally:
            connection.close()

    def _connect(self) -> psycopg.Connection[Any]:
        made: psycopg.Connection[Any] = psycopg.connect(
            self._conninfo, autocommit=True, prepare_threshold=None
        )
        return made

    def take(self) -> psycopg.Connection[Any]:
        """A connection of the pool; `give_back` returns it."""
        pool = self._lender._open_pool()  # noqa: SLF001 - it is one of us
        try:
            connection: psycopg.Connection[Any] = pool.getconn(timeout=self.timeout_seconds)
        except PoolTimeout:
            raise self._none_left(pool) from None
        except PoolClosed:
            raise DatabaseError(f"{self.place}: the pool of connections is closed") from None
        self._autocommit = connection.autocommit
        if not self._autocommit:
            connection.autocommit = True
        return connection

    def give_back(self, connection: psycopg.Connection[Any]) -> None:
        """Return a connection to the pool, as it was."""
        lender = self._lender
        pool = lender._given or lender._pool  # noqa: SLF001 - it is one of us
        if not connection.closed:
            with contextlib.suppress(psycopg.Error):
                connection.rollback()
                if not self._autocommit:
                    connection.autocommit = False
        if pool is None or os.getpid() != lender._pid:  # noqa: SLF001 - closed meanwhile
            connection.close()
        else:
            pool.putconn(connection)

    def _open_pool(self) -> Pool:
        with self._guard:
            if self._pool is None or self._pid != os.getpid():  # a fork shares no connections
                self._pool, self._pid = self._given or self._own_pool(), os.getpid()
            return self._pool

    def _own_pool(self) -> Pool:
        return ConnectionPool(
            self._conninfo,
            kwargs={"autocommit": True, "prepare_threshold": None},
            min_size=0,
            max_size=self.max_connections,
            timeout=self.timeout_seconds,
            reconnect_timeout=self.timeout_seconds,
            open=True,
            name="nanomem",
        )

    def _none_left(self, pool: Pool) -> DatabaseError:
        """The error where no connection came in time: the reason, if there is one."""
        if self._given is None:
            try:
                self._connect().close()
            except psycopg.Error as error:
                return self.error_of(error)
        return DatabaseError(
            f"{self.place}: no connection was free for {self.timeout_seconds:g} s; all "
            f"{pool.max_size} are in use, or none can be made. Give more max_connections, or "
            "more timeout_seconds, or let fewer threads work at once."
        )

    # --- errors ---

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Raise what the database says as a `DatabaseError`."""
        try:
            yield
        except psycopg.Error as error:
            raise self.error_of(error) from None  # its text is in it, and it may tell a secret

    def error_of(self, error: psycopg.Error, *, is_lost: bool = False) -> DatabaseError:
        """What an error of the database means, where, and what to do about it."""
        is_refused = isinstance(error, psycopg.OperationalError) and not error.sqlstate
        is_coming = is_refused and not is_lost and will_soon_be_there(str(error), self._conninfo)
        return explained(error, self.place, self._secrets, is_lost=is_lost, is_coming=is_coming)


class Transaction:
    """One transaction on a connection of the pool, which it takes when it is first asked.

    Args:
        database: The database.
        is_of_one_moment: Whether all questions see what was committed when the first was asked;
            then nothing is to be written. Otherwise each sees what was when it was asked.
    """

    def __init__(self, database: Database, *, is_of_one_moment: bool = False) -> None:
        self._database = database
        self._isolation = _ONE_MOMENT if is_of_one_moment else _ISOLATION
        self._connection: psycopg.Connection[Any] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has a connection."""
        return self._connection is not None

    def ask(self, *queries: Query) -> Answers:
        """The rows that each of these gives, in one round trip. After an error it is over."""
        return self._run(queries)

    def commit(self, *queries: Query, durable: bool = True) -> Answers:
        """Have these done, and all before them, for good; then it is over.

        Raises:
            ConnectionLostError: The connection broke; all of it is done, or nothing.
            DatabaseError: It could not be done; nothing is.
        """
        lazily = [] if durable else [_LAZILY]
        rows = self._run((*lazily, *queries, _COMMIT))
        self._end()
        return rows[len(lazily) : -1]

    def roll_back(self) -> None:
        """End it, with nothing done."""
        self._end()

    def _run(self, queries: tuple[Query, ...]) -> Answers:
        begin: tuple[Query, ...] = ()
        if self._connection is None:
            self._connection = self._database.take()
            self._database._opened.append(self)  # noqa: SLF001 - it is its own note of it
            begin = (_BEGIN, self._isolation, self._database.settings(self._connection))
        try:
            return _answers(self._connection, (*begin, *queries))[len(begin) :]
        except psycopg.Error as error:
            is_lost = self._connection.closed or _is_of_the_connection(error)
            self._end()
            raise self._database.error_of(error, is_lost=is_lost) from None
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._database._opened.remove(self)  # noqa: SLF001 - it is its own note of it
            self._database.give_back(connection)


def _is_of_the_connection(error: psycopg.Error) -> bool:
    """Whether no statement was wrong, but what was to carry it."""
    is_of_a_statement = error.sqlstate or isinstance(error, psycopg.errors.PipelineAborted)
    return isinstance(error, psycopg.OperationalError) and not is_of_a_statement


def _answers(connection: psycopg.Connection[Any], queries: tuple[Query, ...]) -> Answers:
    """What each of these gives, in one round trip."""
    cursors = [connection.cursor(binary=True, row_factory=tuple_row) for _ in queries]
    with connection.pipeline():
        for cursor, (statement, values) in zip(cursors, queries, strict=True):
            cursor.execute(statement, values or None, prepare=False)
    return [cursor.fetchall() if cursor.description else [] for cursor in cursors]


def _row_of(
    connection: psycopg.Connection[Any], statement: bytes, values: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The only row that a statement gives, which tells the server the type of each value."""
    sent, are_binary = list(map(_sent, values)), [type(one) is bytes for one in values]
    with connection.lock:
        connection.pgconn.send_query_params(
            _numbered(statement), sent, None, are_binary, Format.BINARY
        )
        result = connection.wait(execute(connection.pgconn))[-1]
    if result.status != ExecStatus.TUPLES_OK:
        raise error_from_result(result, connection.info.encoding)
    made = Transformer(connection)
    made.set_pgresult(result)
    return made.load_row(0, tuple) or ()


@lru_cache(64)
def _numbered(statement: bytes) -> bytes:
    """A statement with the server's own placeholders."""
    numbers = count(1)
    return _PLACEHOLDER.sub(lambda _: b"$%d" % next(numbers), statement).replace(b"%%", b"%")


def _sent(value: Any) -> bytes | None:
    """A value as the server reads it; bytes as they are."""
    if value is None or type(value) is bytes:
        return value
    text = "{" + ",".join(map(str, value)) + "}" if isinstance(value, list) else str(value)
    return text.encode()


def _read_address(address: str) -> tuple[list[str], dict[str, Any]]:
    """The secrets in an address, and what else libpq takes from it."""
    secrets = secrets_in(address) if is_url(address) else []
    try:
        options: dict[str, Any] = conninfo_to_dict(address)
    except psycopg.Error:  # its text shows parts of the address
        raise ValueError(
            "the address of the database cannot be read: it must be a URL "
            "postgresql://user:password@host:port/database, with signs such as / ? # @ : in its "
            "parts written as %2F %3F %23 %40 %3A"
        ) from None
    words = [str(value) for name, value in options.items() if "pass" in name and name != "passfile"]
    return [*secrets, *(form for word in words for form in forms_of(word))], options


def _place_of(options: dict[str, Any]) -> str:
    """Where a database is, for people."""
    host = options.get("host") or options.get("hostaddr") or "localhost"
    name = options.get("dbname") or options.get("user") or "the user's own"
    return f"PostgreSQL database {name!r} at {host}:{options.get('port') or 5432}"


def _limits(timeout_seconds: float) -> dict[str, Any]:
    """What libpq is told unless the address says otherwise."""
    return {
        "connect_timeout": max(2, math.ceil(timeout_seconds)),  # libpq takes 1 for 2
        "tcp_user_timeout": math.ceil(timeout_seconds * 2000),
        "fallback_application_name": "langchain-nanomem",
    }


_BEGIN: Query = (b"BEGIN", ())
_COMMIT: Query = (b"COMMIT", ())
_ISOLATION: Query = (b"SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE", ())
"""Whatever the database's own default is: a statement behind a lock has to see what came before."""
_ONE_MOMENT: Query = (b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", ())
_BRIEF = b"SELECT set_config('lock_timeout', %s, true), set_config('statement_timeout', %s, true)"
_SETTINGS = (
    _BRIEF + b", "
    b"set_config('tcp_keepalives_idle', '10', true), "
    b"set_config('tcp_keepalives_interval', '5', true), "
    b"set_config('tcp_keepalives_count', '3', true)"
)
"""With them a machine that vanished has lost its locks after half a minute."""
_NAMING = b", set_config('nanomem.scope', %s, true)"
_PLACEHOLDER = re.compile(rb"%[sb]")
_CALLING = b"""
SELECT told.* FROM (SELECT %%s::text AS lock_limit%b OFFSET 0) AS given, LATERAL %b AS told
"""
"""What is set comes first: the function takes its argument from there."""
_SETTING_MORE = b", set_config('transaction_timeout', %s, true)"
"""idle_in_transaction_session_timeout never ends anything here: psycopg's pipelines end in a Flush,
which stops that clock."""
_LAZILY: Query = (b"SET LOCAL synchronous_commit = off", ())
