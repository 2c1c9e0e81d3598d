"""What is asked of the tables of journals, and what the answers mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_nanomem.errors import DatabaseError
from langchain_nanomem.files import file_stem
from langchain_nanomem.journal import ORIGIN, Position, deletion_name
from langchain_nanomem.scope_names import scope_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from langchain_nanomem.journal import Record
    from langchain_nanomem.postgres_database import Query, Rows
    from langchain_nanomem.postgres_schema import Schema

_ID_BYTES = 8
_MARK_BYTES = 2 * _ID_BYTES
_CHUNK_BYTES = 16_384
"""About how long a chunk is at most: what is read for one record of it. A line is never parted."""


class State(NamedTuple):
    """What holds of a key at one moment."""

    journal: int | None
    """The id of its journal; None where there is none."""
    size: int
    append_id: int
    """Of what was appended last."""
    deleted_at: datetime | None
    scope: str | None = None
    """The name of the scope that it is noted to belong to; None where that isn't known yet."""

    @property
    def end(self) -> Position:
        """The end of the journal."""
        if self.journal is None:
            return ORIGIN
        return position(self.journal, self.size, self.append_id)


class Head(NamedTuple):
    """What is noted beside the records of a journal."""

    first_record: bytes
    scope: str | None
    """The name of the scope that the records say; None where they say nothing of it."""


class Piece(NamedTuple):
    """Some lines of a journal."""

    start: int
    content: bytes
    journal: int = 0
    append_id: int = 0
    before: int | None = None
    """The append before the first one that was asked for; None where there is none."""


def position(journal: int, offset: int, append_id: int) -> Position:
    """The end of an append: after a crash of the server another one may end in the same place."""
    mark = journal.to_bytes(_ID_BYTES, "big") + append_id.to_bytes(_ID_BYTES, "big")
    return Position(offset, mark) if offset else ORIGIN


def journal_of(place: Position) -> int | None:
    """The id of the journal that a place is in; None where it is the origin of any."""
    mark = place.mark
    return int.from_bytes(mark[:_ID_BYTES], "big") if len(mark) == _MARK_BYTES else None


def append_of(place: Position) -> int:
    """The number of the append that ends there; 0 for the origin."""
    return int.from_bytes(place.mark[_ID_BYTES:], "big")


def pieces_of(start: int, lines: Sequence[bytes]) -> list[Piece]:
    """Lines as chunks, the first of which begins at `start`."""
    pieces: list[Piece] = []
    gathered: list[bytes] = []
    size = 0
    for line in lines:
        if gathered and size + len(line) > _CHUNK_BYTES:
            pieces.append(Piece(start, b"".join(gathered)))
            start, gathered, size = start + size, [], 0
        gathered.append(line)
        size += len(line)
    return [*pieces, Piece(start, b"".join(gathered))] if gathered else pieces


def scope_in(records: Iterable[Record]) -> str | None:
    """The name of the scope that records bind a session to; None where they say nothing of it."""
    heads = (one for one in records if one.get("_type") == "metadata" and "scope" in one)
    scope = next((one["scope"] for one in reversed([*heads])), None)
    return None if scope is None else scope_name(tuple(scope))


class Tables:
    """The statements, for one schema.

    Args:
        schema: The schema.
        scope: Whose the journals are of which their records say nothing.
    """

    def __init__(self, schema: Schema, scope: tuple[str, ...] = ()) -> None:
        self._schema, self._scope = schema, scope_name(scope)
        make = schema.statement
        self._state = make(_STATE)
        self._tail, self._tail_of_name = make(_TAIL), make(_TAIL_OF_NAME)
        self._pieces, self._is_kept = make(_PIECES), make(_IS_KEPT)
        self._list, self._info = make(_LIST), make(_INFO)
        self._states, self._key = make(_STATES), make(_KEY)
        self._index, self._keep_index = make(_INDEX), make(_KEEP_INDEX)
        self._append, self._look = make(_APPEND), make(_LOOK)
        self._insert, self._begin = make(_INSERT), make(_BEGIN)
        self._is_there = make(_IS_THERE)
        self._bind, self._unbound = make(_BIND), make(_UNBOUND)
        self._states_of, self._settle = make(_STATES_OF), make(_SETTLE)
        self._bury, self._note_deletion = make(_BURY), make(_NOTE_DELETION)
        self._deletions = make(_DELETIONS)
        self._set_written_at = make(_SET_WRITTEN_AT)
        self._clear = [make(text) for text in _CLEAR]
        self._replace = [make(text) for text in _REPLACE]
        self._sweep = [make(text) for text in _SWEEP]

    # --- reading ---

    def lock(self, name: str) -> Query:
        """Waits for the lock of a name, and has it until the transaction ends."""
        return _LOCK, (self._schema.lock_number(name),)

    def state(self, key: str) -> Query:
        """Gives a row for `state_in`."""
        return self._state, (file_stem(key), deletion_name(key))

    def tail(self, key: str, journal: int | None, start: int) -> Query:
        """Gives a `Piece` for each chunk from `start` on, of a journal or of the one there is."""
        if journal is None:
            return self._tail_of_name, (file_stem(key), start)
        return self._tail, (journal, start, journal, start)

    def look(self, key: str, end: Position) -> Query:
        """For `Database.call`; gives a row for `seen_in`: `state` and `tail`, behind an end."""
        names = file_stem(key), deletion_name(key)
        return self._look, (*names, journal_of(end), end.offset)

    def pieces(self, journal: int, offsets: Sequence[int]) -> Query:
        """Gives the `Piece` in which each of these bytes lies."""
        return self._pieces, (journal, journal, list(offsets))

    def is_kept(self, journal: int) -> Query:
        """Gives a row where a journal that was replaced can still be read."""
        return self._is_kept, (journal,)

    def infos(self) -> Query:
        """Gives a row of `JOURNAL_COLUMNS` for each journal."""
        return self._list, ()

    def info(self, key: str) -> Query:
        """Gives such a row for one."""
        return self._info, (file_stem(key),)

    def states(self) -> Query:
        """Gives name, id, size and the time of the last change of each journal."""
        return self._states, ()

    def states_of(self, scope: str) -> Query:
        """Gives key, name, id, size and the time of the last change of a scope's journals."""
        return self._states_of, (scope,)

    def unbound(self) -> Query:
        """Gives key and id of the journals of which it isn't known whose they are."""
        return self._unbound, ()

    def key(self, name: str) -> Query:
        """Gives the key of the journal of this name."""
        return self._key, (name,)

    def deletions(self) -> Query:
        """Gives the name and the time of each deletion."""
        return self._deletions, ()

    def index(self, key: str) -> Query:
        """Gives what is kept with a journal."""
        return self._index, (file_stem(key),)

    # --- writing ---

    def keep_index(self, key: str, content: bytes) -> list[Query]:
        """Keep this with a journal, if it is there; and clear away what nobody reads any more."""
        return [(self._keep_index, (content, file_stem(key))), *self.sweep()]

    def append(
        self,
        name: str,
        end: Position,
        append_id: int,
        pieces: Sequence[Piece],
        *,
        durable: bool,
    ) -> Query:
        """For `Database.call`: append these behind `end`, in the lock; gives if that was so."""
        lines, sizes = pieces[0].content, None
        if len(pieces) > 1:
            lines = b"".join(one.content for one in pieces)
            sizes = [len(one.content) for one in pieces]
        number, at = self._schema.lock_number(name), (journal_of(end), end.offset, append_of(end))
        return self._append, (number, name, *at, append_id, durable, lines, sizes)

    def insert(self, journal: int, append_id: int, pieces: Sequence[Piece]) -> Query:
        """Append these chunks."""
        starts = [piece.start for piece in pieces]
        return self._insert, (journal, append_id, starts, [piece.content for piece in pieces])

    def begin(self, key: str, journal: int, head: Head) -> Query:
        """Begin a journal."""
        scope = self._scope if head.scope is None else head.scope
        return self._begin, (file_stem(key), key.encode(), journal, head.first_record, scope)

    def bind(self, journal: int, scope: str) -> Query:
        """Note whose a journal is."""
        return self._bind, (scope, journal)

    def settle(self, journal: int, scope: str) -> Query:
        """Note whose a journal is, if that isn't known."""
        return self._settle, (scope, journal)

    def is_there(self, end: Position, journal: int, append_id: int) -> Query:
        """Gives a row where this append was done, behind that end."""
        return self._is_there, (journal, end.offset, append_id)

    def replace(self, key: str) -> list[Query]:
        """Take a journal off its key; who has it open reads on for a while."""
        return [*((text, (file_stem(key),)) for text in self._replace), *self.sweep()]

    def clear(self, key: str) -> list[Query]:
        """Remove all that there is of a key, and what others took the place of."""
        return [(text, (file_stem(key),)) for text in self._clear]

    def bury(self, key: str) -> Query:
        """Note that a journal was deleted."""
        return self._bury, (deletion_name(key),)

    def note_deletion(self, name: bytes, at: datetime) -> Query:
        """Note that the journal of this `deletion_name` was deleted then, or later."""
        return self._note_deletion, (name, at)

    def set_written_at(self, key: str, at: datetime) -> Query:
        """Have a journal be written last at this moment."""
        return self._set_written_at, (at, file_stem(key))

    def sweep(self) -> list[Query]:
        """Remove what was replaced long ago, and nobody reads any more."""
        return [(text, ()) for text in self._sweep]


def state_in(rows: Rows) -> State:
    """What the row of `Tables.state` says."""
    (row,) = rows
    return State(*row)


def seen_in(row: tuple[Any, ...], journal: int) -> tuple[State, list[Piece]]:
    """What the row of `Tables.look` says."""
    journal_id, size, append_id, deleted_at, starts, contents, append_ids, before = row
    rows = zip(starts or (), contents or (), append_ids or (), strict=True)
    pieces = [Piece(start, bytes(one), journal, number, before) for start, one, number in rows]
    return State(journal_id, size or 0, append_id or 0, deleted_at), pieces


def pieces_in(rows: Rows) -> list[Piece]:
    """What the rows of `Tables.tail` and `Tables.pieces` say."""
    return [Piece(start, bytes(content), *rest) for start, content, *rest in rows]


def check_gapless(pieces: Sequence[Piece], start: int, what: str) -> int:
    """The end of chunks that follow each other from `start` on.

    Raises:
        DatabaseError: One is missing.
    """
    for piece in pieces:
        if piece.start != start:
            raise DatabaseError(
                f"{what}: the chunk at byte {start} is missing, for someone removed it by hand. "
                "Nothing was changed; restore it from a backup"
            )
        start += len(piece.content)
    return start


_LOCK = b"SELECT pg_advisory_xact_lock(%s)"

_LAST = """
LATERAL (
    SELECT start + octet_length(content) AS size, append_id, written_at FROM {s}.chunks
    WHERE journal = id ORDER BY start DESC LIMIT 1
) AS last
"""
_STATE = f"""
SELECT id, coalesce(size, 0), coalesce(append_id, 0), deleted_at, scope
FROM (SELECT %s::text AS name, %b::bytea AS tombstone) AS asked
LEFT JOIN {{s}}.journals ON journals.name = asked.name
LEFT JOIN {_LAST} ON true
LEFT JOIN {{s}}.deletions ON deletions.name = tombstone
"""  # noqa: S608 - made of constants alone, as all of these
_TAIL = """
SELECT start, content, journal, append_id, (
    SELECT append_id FROM {s}.chunks WHERE journal = %s AND start < %s ORDER BY start DESC LIMIT 1
) FROM {s}.chunks WHERE journal = %s AND start >= %s ORDER BY start
"""
_TAIL_OF_NAME = """
SELECT start, content, journal, append_id FROM {s}.chunks
WHERE journal = (SELECT id FROM {s}.journals WHERE name = %s) AND start >= %s ORDER BY start
"""
_PIECES = """
SELECT start, content, journal FROM {s}.chunks
WHERE journal = %s AND start = ANY (ARRAY(
    SELECT (SELECT max(start) FROM {s}.chunks WHERE journal = %s AND start <= place)
    FROM unnest(%s::bigint[]) AS place
))
"""
_IS_KEPT = "SELECT 1 FROM {s}.replaced WHERE journal = %s"
JOURNAL_COLUMNS = "key, id, first_record, size, written_at"
_LIST = f"SELECT {JOURNAL_COLUMNS} FROM {{s}}.journals, {_LAST}"  # noqa: S608
_INFO = f"{_LIST} WHERE name = %s"
_STATES = f"SELECT name, id, size, written_at FROM {{s}}.journals, {_LAST}"  # noqa: S608
_STATES_OF = f"SELECT key, name, id, size, written_at FROM {{s}}.journals, {_LAST} WHERE scope = %s"  # noqa: S608
_UNBOUND = "SELECT key, id FROM {s}.journals WHERE scope IS NULL"
_BIND = "UPDATE {s}.journals SET scope = %s WHERE id = %s"
_SETTLE = f"{_BIND} AND scope IS NULL"
_KEY = "SELECT key FROM {s}.journals WHERE name = %s"
_INDEX = """
SELECT content FROM {s}.indexes JOIN {s}.journals ON id = journal WHERE name = %s
"""
_KEEP_INDEX = """
INSERT INTO {s}.indexes SELECT id, %b FROM {s}.journals WHERE name = %s
ON CONFLICT (journal) DO UPDATE SET content = excluded.content
"""
_APPEND = """
{s}.append(given.lock_limit, %s, %s::text, %s, %s, %s, %s, %s, %b::bytea, %s::int[])
"""
_LOOK = "{s}.look(given.lock_limit, %s::text, %b::bytea, %s, %s)"
_INSERT = """
INSERT INTO {s}.chunks (journal, append_id, start, content)
SELECT %s, %s, start, content FROM unnest(%s::bigint[], %b::bytea[]) AS new (start, content)
"""
_BEGIN = """
INSERT INTO {s}.journals (name, key, id, first_record, scope) VALUES (%s, %b, %s, %b, %s)
"""
_IS_THERE = """
SELECT 1 FROM {s}.chunks WHERE journal = %s AND start = %s AND append_id = %s
"""
_REPLACE = (
    """
    INSERT INTO {s}.replaced (journal, name, scope)
    SELECT id, name, scope FROM {s}.journals WHERE name = %s
    """,
    """DELETE FROM {s}.indexes USING {s}.journals WHERE id = journal AND name = %s""",
    "DELETE FROM {s}.journals WHERE name = %s",
)
_OF_NAME = """journal IN (
    SELECT id FROM {s}.journals WHERE name = asked.name
    UNION ALL SELECT journal FROM {s}.replaced WHERE name = asked.name
)"""
_CLEAR = (
    f"DELETE FROM {{s}}.indexes USING (SELECT %s::text AS name) AS asked WHERE {_OF_NAME}",  # noqa: S608
    f"DELETE FROM {{s}}.chunks USING (SELECT %s::text AS name) AS asked WHERE {_OF_NAME}",  # noqa: S608
    "DELETE FROM {s}.replaced WHERE name = %s",
    "DELETE FROM {s}.journals WHERE name = %s",
    # behind it: who puts something of the journal into an index has it locked until then
    """
    UPDATE {s}.searches SET removals = removals + 1
    WHERE id IN (SELECT search FROM {s}.search_sources WHERE name = %s)
    """,
    "DELETE FROM {s}.search_sources WHERE name = %s",
)
_SWEEP = (
    """
    DELETE FROM {s}.chunks WHERE journal IN (
        SELECT journal FROM {s}.replaced WHERE replaced_at < now() - interval '10 minutes'
    )
    """,
    """
    DELETE FROM {s}.replaced
    WHERE replaced_at < now() - interval '10 minutes'
    AND NOT EXISTS (SELECT 1 FROM {s}.chunks WHERE chunks.journal = replaced.journal)
    """,
)
_DELETIONS = "SELECT name, deleted_at FROM {s}.deletions"
_BURY = """
INSERT INTO {s}.deletions VALUES (%b, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET deleted_at = excluded.deleted_at
"""
_NOTE_DELETION = """
INSERT INTO {s}.deletions VALUES (%b, %s)
ON CONFLICT (name) DO UPDATE SET deleted_at = greatest(deletions.deleted_at, excluded.deleted_at)
"""
_SET_WRITTEN_AT = """
UPDATE {s}.chunks SET written_at = %s WHERE (journal, start) = (
    SELECT journal, max(start) FROM {s}.chunks
    WHERE journal = (SELECT id FROM {s}.journals WHERE name = %s) GROUP BY journal
)
"""
