"""What PostgreSQL's errors mean: what is wrong, where, and what to do."""

from __future__ import annotations

import psycopg
from psycopg import errors as server

from langchain_nanomem.connection_urls import without
from langchain_nanomem.errors import DatabaseError


class ConnectionLostError(DatabaseError):
    """The connection broke; on another one the same may succeed."""


def explained(
    error: psycopg.Error, place: str, secrets: list[str], *, is_lost: bool, is_coming: bool = False
) -> DatabaseError:
    """The error to raise for one of PostgreSQL's.

    Args:
        error: What psycopg raised.
        place: Which database it is.
        secrets: What its text must not show.
        is_lost: Whether the connection broke.
        is_coming: Whether the server will soon take connections.
    """
    told = without(secrets, str(error).strip()) or type(error).__name__
    known = (f"{what}. {remedy}" for kind, what, remedy in _KNOWN if isinstance(error, kind))
    reason = next(known, "")
    if not reason and isinstance(error, psycopg.OperationalError) and not error.sqlstate:
        reason = _LOST if is_lost else _NOT_YET if is_coming else _UNREACHABLE
    message = f"{place}: {reason or 'it refused a statement.'} It says: {told}"
    can_retry = is_lost or is_coming or isinstance(error, _WORTH_ANOTHER_TRY)
    return (ConnectionLostError if can_retry else DatabaseError)(message)


_LOST = "the connection was lost."
_UNREACHABLE = (
    "it cannot be reached. See that the server runs, and that host, port, database, user and "
    "password of the URL are right."
)
_NOT_YET = "it takes no connections now, for it starts, stops or recovers."
_WORTH_ANOTHER_TRY = (
    server.DeadlockDetected,
    server.SerializationFailure,
    server.AdminShutdown,
    server.CrashShutdown,
    server.CannotConnectNow,
    server.IdleInTransactionSessionTimeout,
)
_KNOWN: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str, str], ...] = (
    (
        server.LockNotAvailable,
        "another holds the session for longer than timeout_seconds, or its memory",
        "Try again, or give more timeout_seconds.",
    ),
    (
        (server.QueryCanceled, getattr(server, "TransactionTimeout", server.QueryCanceled)),
        "a statement took longer than timeout_seconds",
        "Give more timeout_seconds, or see what keeps the server busy.",
    ),
    (
        server.InsufficientPrivilege,
        "the user has no right to do this",
        "Have its owner GRANT it; making the tables takes CREATE on the database.",
    ),
    (
        (server.InvalidPassword, server.InvalidAuthorizationSpecification),
        "the user or the password is wrong",
        "Correct it in the URL.",
    ),
    (
        server.InvalidCatalogName,
        "there is no such database",
        "Create it, or correct its name in the URL.",
    ),
    (
        server.DiskFull,
        "the disk of the server is full",
        "Make room there; nothing was written.",
    ),
    (
        server.TooManyConnections,
        "the server takes no more connections",
        "Give fewer max_connections, or raise the server's max_connections.",
    ),
    (
        server.UniqueViolation,
        "something of this name is there, and is not to be seen: it belongs to another scope",
        "Use another thread_id or session_id.",
    ),
    (
        server.ReadOnlySqlTransaction,
        "it is only to be read, as a standby is",
        "Connect to the primary: target_session_attrs=read-write in the URL.",
    ),
    (
        (server.UndefinedTable, server.UndefinedColumn, server.InvalidSchemaName),
        "the tables are not as they were made",
        "Someone dropped or changed them: restore them, or make a new journal for new ones.",
    ),
)
