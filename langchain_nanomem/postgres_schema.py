"""The tables in PostgreSQL, made and brought up to date."""

from __future__ import annotations

import contextlib
import hashlib
import re
from typing import TYPE_CHECKING

from psycopg.errors import InsufficientPrivilege
from psycopg.rows import tuple_row

from langchain_nanomem.errors import DatabaseError, UnsupportedFormatError
from langchain_nanomem.postgres_isolation import POLICIES, STATE, objection, turning

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import psycopg

    from langchain_nanomem.postgres_database import Database

_OLDEST_SERVER = 150_000
"""The oldest that it is tested with, and that is still maintained."""
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")

_SEARCH = """
    ALTER TABLE {s}.journals ADD COLUMN scope text;     -- whose memory; NULL: not known yet
    CREATE INDEX ON {s}.journals (scope);
    CREATE TABLE {s}.searches (         -- the search index of a scope; can be made anew
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        scope text NOT NULL,
        format int NOT NULL,            -- of the terms
        removals bigint NOT NULL DEFAULT 0,
        last_passage bigint NOT NULL DEFAULT 0,
        last_vector bigint NOT NULL DEFAULT 0,
        embedder bytea,
        UNIQUE (scope, format)
    );
    CREATE TABLE {s}.search_sources (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        search bigint NOT NULL REFERENCES {s}.searches ON DELETE CASCADE,
        name text NOT NULL,
        label bytea NOT NULL,
        version bytea NOT NULL,
        size bigint NOT NULL,
        mark bigint NOT NULL,
        UNIQUE (search, name)
    );
    CREATE INDEX ON {s}.search_sources (name);
    CREATE TABLE {s}.search_passages (  -- what the ranking needs
        search bigint NOT NULL,
        id bigint NOT NULL,
        source bigint NOT NULL REFERENCES {s}.search_sources ON DELETE CASCADE,
        place bigint NOT NULL,
        episode bigint NOT NULL,
        length bigint NOT NULL,
        traits bigint NOT NULL,
        at double precision,
        speaker bytea NOT NULL,
        about bytea NOT NULL,
        PRIMARY KEY (search, id),
        UNIQUE (source, place)
    );
    CREATE TABLE {s}.search_texts (
        search bigint NOT NULL,
        id bigint NOT NULL,
        text bytea NOT NULL,
        terms bytea[] NOT NULL,         -- each behind the number of its index: see postgres_search
        PRIMARY KEY (search, id),
        FOREIGN KEY (search, id) REFERENCES {s}.search_passages ON DELETE CASCADE
    );
    CREATE INDEX ON {s}.search_texts USING gin (terms)
        WITH (fastupdate = off);        -- or each search reads through what is new of all
    CREATE TABLE {s}.search_vectors (
        search bigint NOT NULL,
        id bigint NOT NULL,
        passage bigint NOT NULL,
        vector bytea NOT NULL,
        PRIMARY KEY (search, id),
        UNIQUE (search, passage),
        FOREIGN KEY (search, passage) REFERENCES {s}.search_passages ON DELETE CASCADE
    );
"""

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE {s}.journals (
        name text PRIMARY KEY,          -- a readable, injective form of the key
        key bytea NOT NULL,             -- the key itself, in UTF-8
        id bigint NOT NULL UNIQUE,      -- another one for one that took its place
        first_record bytea NOT NULL
    );
    CREATE TABLE {s}.chunks (           -- the lines of one append, or a part of them
        journal bigint NOT NULL,
        start bigint NOT NULL,          -- at which byte of the journal they begin
        append_id bigint NOT NULL,      -- tells an append that is tried again
        written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        content bytea NOT NULL,
        PRIMARY KEY (journal, start)    -- two appends on the same end exclude each other
    );
    CREATE TABLE {s}.replaced (         -- journals that others took the place of
        journal bigint PRIMARY KEY,
        name text NOT NULL,
        replaced_at timestamptz NOT NULL DEFAULT clock_timestamp()
    );
    CREATE INDEX ON {s}.replaced (name);
    CREATE INDEX ON {s}.replaced (replaced_at);
    CREATE TABLE {s}.indexes (          -- makes opening a journal quick; may be lost
        journal bigint PRIMARY KEY,
        content bytea NOT NULL
    );
    CREATE TABLE {s}.deletions (
        name bytea PRIMARY KEY,         -- a hash of the key: it tells no key
        deleted_at timestamptz NOT NULL
    );
    CREATE FUNCTION {s}.append(         -- in one round trip; false where it is to be done otherwise
        lock_limit text, lock_number bigint, of_name text, of_journal bigint,
        end_at bigint, end_append bigint, new_append bigint, is_durable boolean,
        lines bytea, sizes int[]        -- the sizes of the chunks; NULL where it is one
    ) RETURNS boolean LANGUAGE plpgsql AS $$
    DECLARE
        last record;
    BEGIN
        IF current_setting('transaction_isolation') <> 'read committed'
            OR current_setting('transaction_read_only')::boolean
        THEN
            RETURN false;               -- what is behind the lock might not be seen
        END IF;
        PERFORM set_config('lock_timeout', lock_limit, true);
        PERFORM pg_advisory_xact_lock(lock_number);
        PERFORM 1 FROM {s}.journals WHERE name = of_name AND id = of_journal;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        SELECT start + octet_length(content) AS size, append_id INTO last
        FROM {s}.chunks WHERE journal = of_journal ORDER BY start DESC LIMIT 1;
        IF last.size IS DISTINCT FROM end_at OR last.append_id IS DISTINCT FROM end_append THEN
            RETURN false;
        END IF;
        IF NOT is_durable THEN
            PERFORM set_config('synchronous_commit', 'off', true);
        END IF;
        IF sizes IS NULL THEN
            INSERT INTO {s}.chunks (journal, append_id, start, content)
            VALUES (of_journal, new_append, end_at, lines);
        ELSE
            INSERT INTO {s}.chunks (journal, append_id, start, content)
            SELECT of_journal, new_append, end_at + behind - size,
                substring(lines FROM (behind - size + 1)::int FOR size)
            FROM (
                SELECT size, sum(size) OVER (ORDER BY place) AS behind
                FROM unnest(sizes) WITH ORDINALITY AS chunk (size, place)
            ) AS new;
        END IF;
        RETURN true;
    END $$;
    CREATE FUNCTION {s}.look(           -- what holds, and what is behind a place, at one moment
        lock_limit text, of_name text, of_deletion bytea, of_journal bigint, behind bigint,
        OUT id bigint, OUT size bigint, OUT append_id bigint, OUT deleted_at timestamptz,
        OUT starts bigint[], OUT contents bytea[], OUT append_ids bigint[], OUT before bigint
    ) LANGUAGE plpgsql STABLE AS $$
    #variable_conflict use_column
    BEGIN
        PERFORM set_config('lock_timeout', lock_limit, true);
        SELECT journals.id INTO id FROM {s}.journals WHERE name = of_name;
        SELECT start + octet_length(content), append_id INTO size, append_id
        FROM {s}.chunks WHERE journal = look.id ORDER BY start DESC LIMIT 1;
        SELECT deletions.deleted_at INTO deleted_at FROM {s}.deletions WHERE name = of_deletion;
        IF look.id = of_journal AND look.size = behind THEN
            RETURN;                     -- mostly nobody has written since
        END IF;
        SELECT array_agg(start ORDER BY start), array_agg(content ORDER BY start),
            array_agg(append_id ORDER BY start)
        INTO starts, contents, append_ids
        FROM {s}.chunks WHERE journal = of_journal AND start >= behind;
        SELECT append_id INTO before
        FROM {s}.chunks WHERE journal = of_journal AND start < behind ORDER BY start DESC LIMIT 1;
    END $$;
    """,
    """
    CREATE TABLE {s}.memories (
        scope text PRIMARY KEY,         -- a readable, injective form of the scope
        facts bytea,                    -- in UTF-8; NULL where there are none
        removals bigint NOT NULL DEFAULT 0  -- how often something left the log
    );
    CREATE TABLE {s}.memory_versions (  -- facts that others took the place of
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        scope text NOT NULL,
        version text NOT NULL,          -- a hash of the content
        change text,                    -- what they were replaced by; it is made once
        archived_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        content bytea NOT NULL,
        UNIQUE (scope, change)
    );
    CREATE INDEX ON {s}.memory_versions (scope, id);
    CREATE TABLE {s}.log_entries (
        id bigint GENERATED ALWAYS AS IDENTITY,
        scope text NOT NULL,
        entry_id bytea,                 -- in UTF-8, as all text, which has no NUL; NULL: a note
        at timestamptz,
        source bytea,
        content bytea NOT NULL,
        PRIMARY KEY (scope, id),
        UNIQUE (scope, entry_id)        -- an entry is there once
    );
    """,
    _SEARCH,
    POLICIES,
)
"""What brings the tables from each version to the next one. What was released never changes."""


def newest_version() -> int:
    """The version of the tables that this program works with."""
    return len(MIGRATIONS)


class Schema:
    """The tables of one schema of a database.

    Args:
        name: The schema: lower-case letters, digits and ``_``.

    Raises:
        ValueError: The name is another.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name.startswith("pg_"):
            raise ValueError(
                "schema must be a name of up to 63 lower-case letters, digits and _ that begins "
                f"with a letter and not with pg_, not {name!r}"
            )
        self.name = name

    def statement(self, text: str) -> bytes:
        """A statement in which ``{s}`` stands for the schema."""
        return text.replace("{s}", f'"{self.name}"').encode()

    def prepare(self, database: Database) -> None:
        """Make the tables, or bring them up to date, whoever does the same meanwhile.

        Raises:
            UnsupportedFormatError: A newer version made them.
            DatabaseError: It can't be done, and nothing was changed; or the isolation of the
                tables is not what the program needs.
        """
        with database.single() as connection, database.translated():
            self._make(connection, database)
            self._check_isolation(connection, database)

    def _make(self, connection: psycopg.Connection[Any], database: Database) -> None:
        if self._version(connection, database) < newest_version():
            self._migrate(connection, database)

    def isolate(self, database: Database, *, is_on: bool) -> None:
        """Turn the isolation of scopes on or off; make the tables, if need be.

        Raises:
            UnsupportedFormatError: A newer version made them.
            DatabaseError: It can't be done; nothing was changed.
        """
        with database.single() as connection, database.translated():
            self._make(connection, database)
            with self._changing(connection, database) as cursor:
                cursor.execute(self.statement(turning(is_on=is_on)))

    def is_isolated(self, database: Database) -> bool:
        """Whether the isolation of scopes is on; False where there are no tables."""
        with database.single() as connection, database.translated():
            return self._isolation(connection)[0]

    def check_isolation(self, database: Database) -> None:
        """See that the isolation of the tables is what the program needs.

        Raises:
            DatabaseError: It is not.
        """
        with database.single() as connection, database.translated():
            self._check_isolation(connection, database)

    def _check_isolation(self, connection: psycopg.Connection[Any], database: Database) -> None:
        reason = objection(database.isolation, self._isolation(connection))
        if reason:
            raise DatabaseError(f"{database.place}, schema {self.name!r}: {reason}")

    def _isolation(self, connection: psycopg.Connection[Any]) -> tuple[bool, bool, str]:
        cursor = connection.cursor(row_factory=tuple_row)
        row = cursor.execute(STATE.encode(), (self.name,), prepare=False).fetchone()
        return row or (False, False, "")

    def version(self, database: Database) -> int:
        """Of which version the tables are; 0 where there are none. Changes nothing.

        Raises:
            UnsupportedFormatError: They are of a newer one.
            DatabaseError: It can't be told.
        """
        with database.single() as connection, database.translated():
            return self._version(connection, database)

    @contextlib.contextmanager
    def _changing(
        self, connection: psycopg.Connection[Any], database: Database
    ) -> Iterator[psycopg.Cursor[Any]]:
        """A transaction in which nobody else changes the tables' form."""
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute(b"SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE")
            cursor.execute(*database.settings(connection), prepare=False)
            cursor.execute(_LOCK, (self.lock_number(""),), prepare=False)
            yield cursor

    def _migrate(self, connection: psycopg.Connection[Any], database: Database) -> None:
        with self._changing(connection, database) as cursor:
            done = self._version(connection, database)
            try:
                if not self._exists(connection):
                    cursor.execute(self.statement("CREATE SCHEMA {s}"))
                for version in range(done, newest_version()):
                    self._advance(cursor, version)
                if not done and database.isolation == "scope":
                    cursor.execute(self.statement(turning(is_on=True)))
            except InsufficientPrivilege as error:
                raise DatabaseError(self._denied(database, done)) from error

    def _advance(self, cursor: psycopg.Cursor[Any], version: int) -> None:
        if not version:
            cursor.execute(self.statement("CREATE TABLE {s}.version (version int NOT NULL)"))
            cursor.execute(self.statement("INSERT INTO {s}.version VALUES (0)"))
        cursor.execute(self.statement(MIGRATIONS[version]))
        cursor.execute(
            self.statement("UPDATE {s}.version SET version = %s"), (version + 1,), prepare=False
        )

    def _version(self, connection: psycopg.Connection[Any], database: Database) -> int:
        """How far the tables are: 0 where there are none."""
        if connection.info.server_version < _OLDEST_SERVER:
            found, needed = connection.info.server_version // 10_000, _OLDEST_SERVER // 10_000
            raise UnsupportedFormatError(
                f"{database.place}: the server is PostgreSQL {found}, and langchain-nanomem needs "
                f"{needed} or later."
            )
        if not self._has_version(connection):
            return 0
        cursor = connection.cursor(row_factory=tuple_row)
        asked = cursor.execute(self.statement("SELECT version FROM {s}.version"), prepare=False)
        row = asked.fetchone()
        version = int(row[0]) if row else 0
        if version > newest_version():
            raise UnsupportedFormatError(
                f"{database.place}: the tables of the schema {self.name!r} are of version "
                f"{version}; this version of langchain-nanomem works with version "
                f"{newest_version()}. Upgrade langchain-nanomem, or use another schema."
            )
        return version

    def _exists(self, connection: psycopg.Connection[Any]) -> bool:
        return _finds(connection, "SELECT 1 FROM pg_namespace WHERE nspname = %s", self.name)

    def _has_version(self, connection: psycopg.Connection[Any]) -> bool:
        return _finds(connection, _VERSION_TABLE, self.name)

    def lock_number(self, name: str) -> int:
        """The number of the advisory lock of this name in this schema."""
        digest = hashlib.blake2b(f"nanomem\0{self.name}\0{name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)

    def _denied(self, database: Database, done: int) -> str:
        what = f"of version {done}, and older than this program" if done else "not there"
        return (
            f"{database.place}: the tables of the schema {self.name!r} are {what}, and this user "
            "has no right to make them. Have a user open it once who may: CREATE on the "
            "database, or the owner of the schema."
        )


def _finds(connection: psycopg.Connection[Any], query: str, name: str) -> bool:
    cursor = connection.cursor(row_factory=tuple_row)
    return cursor.execute(query.encode(), (name,), prepare=False).fetchone() is not None


_LOCK = b"SELECT pg_advisory_xact_lock(%s)"

# The catalog may be asked by all; to_regclass fails where one may not look into the schema.
_VERSION_TABLE = (
    "SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
    "WHERE nspname = %s AND relname = 'version' AND relkind = 'r'"
)
