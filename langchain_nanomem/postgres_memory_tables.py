"""What is asked of the tables of memories, and what the answers mean."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from langchain_nanomem.history_log import HistoryEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_nanomem.memory_versions import ArchivedVersion
    from langchain_nanomem.postgres_database import Query, Rows
    from langchain_nanomem.postgres_schema import Schema

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class MemoryTables:
    """The statements for the memory of one scope.

    Args:
        schema: Where the tables are.
        scope: The scope's `scope_name`.
    """

    def __init__(self, schema: Schema, scope: str) -> None:
        self._make, self._scope = schema.statement, scope
        self._lock_number = schema.lock_number(f"+memory+{scope}")  # no journal's name has a plus

    def _of_scope(self, text: str, *values: Any) -> Query:
        return self._make(text), (self._scope, *values)

    def lock(self) -> Query:
        """Waits for the lock of the scope, and has it until the transaction ends."""
        return b"SELECT pg_advisory_xact_lock(%s)", (self._lock_number,)

    def begin(self) -> Query:
        """Have the scope be known."""
        return self._of_scope("INSERT INTO {s}.memories (scope) VALUES (%s) ON CONFLICT DO NOTHING")

    # --- facts ---

    def facts(self) -> Query:
        """Gives the facts; no row, or NULL, where there are none."""
        return self._of_scope("SELECT facts FROM {s}.memories WHERE scope = %s")

    def put_facts(self, content: bytes) -> Query:
        """Make this the facts."""
        return self._of_scope(_PUT_FACTS, content)

    def change(self, change: str) -> Query:
        """Gives a row where a change was made."""
        return self._of_scope(
            "SELECT 1 FROM {s}.memory_versions WHERE scope = %s AND change = %s", change
        )

    def archive(self, version: str, change: str | None, content: bytes) -> Query:
        """Keep what was replaced."""
        return self._of_scope(_ARCHIVE, version, change, content)

    def put_version(self, version: ArchivedVersion, content: bytes) -> Query:
        """Keep what was replaced elsewhere, as it is there."""
        told = version.version, version.change, content, version.archived_at
        return self._of_scope(_PUT_VERSION, *told)

    def versions(self) -> Query:
        """Gives id, version, time and change of what was replaced, newest first."""
        return self._of_scope(
            "SELECT id, version, archived_at, change FROM {s}.memory_versions "
            "WHERE scope = %s ORDER BY id DESC"
        )

    def version(self, number: int) -> Query:
        """Gives the content of one of them."""
        return self._of_scope(
            "SELECT content FROM {s}.memory_versions WHERE scope = %s AND id = %s", number
        )

    def remove_versions(self, numbers: Sequence[int]) -> Query:
        """Remove some of them."""
        return self._of_scope(
            "DELETE FROM {s}.memory_versions WHERE scope = %s AND id = ANY (%s)", list(numbers)
        )

    # --- the log ---

    def append(self, entry: HistoryEntry) -> Query:
        """Append an entry, unless there is one of its id."""
        entry_id, source = _encoded(entry.entry_id), _encoded(entry.source)
        return self._of_scope(_APPEND, entry_id, entry.at, source, entry.text.encode())

    def entry(self, entry_id: str) -> Query:
        """Gives a row where there is an entry of this id."""
        return self._of_scope(
            "SELECT 1 FROM {s}.log_entries WHERE scope = %s AND entry_id = %b", entry_id.encode()
        )

    def entries(self) -> Query:
        """Gives the rows for `entries_in`."""
        return self._of_scope(_ENTRIES)

    def log_state(self) -> Query:
        """Gives what changes whenever the log does; no row where it never had an entry."""
        return self._of_scope(_LOG_STATE)

    def remove_entries(self, numbers: Sequence[int]) -> list[Query]:
        """Remove entries, and note that."""
        return [
            self._of_scope(
                "DELETE FROM {s}.log_entries WHERE scope = %s AND id = ANY (%s)", list(numbers)
            ),
            self._of_scope("UPDATE {s}.memories SET removals = removals + 1 WHERE scope = %s"),
        ]

    # --- all of it ---

    def erase(self) -> list[Query]:
        """Remove all that there is of the scope."""
        return [self._of_scope(f"DELETE FROM {{s}}.{table} WHERE scope = %s") for table in _TABLES]  # noqa: S608 - of constants

    def rows(self) -> Query:
        """Gives how many rows there are of it."""
        counts = " + ".join(
            f"(SELECT count(*) FROM {{s}}.{table} WHERE scope = asked.scope)"  # noqa: S608 - of constants
            for table in _TABLES
        )
        return self._of_scope(f"SELECT {counts} FROM (SELECT %s::text AS scope) AS asked")  # noqa: S608 - of constants


def entries_in(rows: Rows) -> list[HistoryEntry]:
    """The entries that the rows of `MemoryTables.entries` say."""
    return [
        HistoryEntry(
            None if seconds is None else _EPOCH + timedelta(seconds=seconds),
            bytes(content).decode(),
            _decoded(entry_id),
            _decoded(source),
            number,
        )
        for number, (_, entry_id, seconds, source, content) in enumerate(rows, 1)
    ]


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _decoded(content: bytes | None) -> str | None:
    return None if content is None else bytes(content).decode()


_TABLES = ("memory_versions", "log_entries", "memories")
SCOPES = "SELECT scope FROM {s}.memories WHERE scope <> '' ORDER BY scope"

_PUT_FACTS = """
INSERT INTO {s}.memories (scope, facts) VALUES (%s, %b)
ON CONFLICT (scope) DO UPDATE SET facts = excluded.facts
"""
_ARCHIVE = """
INSERT INTO {s}.memory_versions (scope, version, change, content) VALUES (%s, %s, %s, %b)
"""
_PUT_VERSION = """
INSERT INTO {s}.memory_versions (scope, version, change, content, archived_at)
VALUES (%s, %s, %s, %b, %s)
"""
_APPEND = """
INSERT INTO {s}.log_entries (scope, entry_id, at, source, content) VALUES (%s, %b, %s, %b, %b)
ON CONFLICT (scope, entry_id) DO NOTHING
"""
# A time of psycopg's own can't hold all that PostgreSQL's can in every time zone.
_ENTRIES = """
SELECT id, entry_id, extract(epoch FROM at)::bigint, source, content FROM {s}.log_entries
WHERE scope = %s ORDER BY id
"""
_LOG_STATE = """
SELECT (SELECT max(id) FROM {s}.log_entries WHERE log_entries.scope = memories.scope), removals
FROM {s}.memories WHERE scope = %s
"""
