"""What is in the tables of a search index in PostgreSQL."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from typing_extensions import override

from langchain_nanomem.search_tables import Passage, PassageRow, SearchRows, Source, VectorRow
from langchain_nanomem.search_terms import TERMS_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from langchain_nanomem.postgres_database import Answers, Query
    from langchain_nanomem.postgres_schema import Schema
    from langchain_nanomem.search_tables import Occurrences

_AT_ONCE = 1_000
"""So many passages are put in with a statement."""


class _Head(NamedTuple):
    """What an index is like. Without it there is no index yet: its own number is 0."""

    id: int = 0
    removals: int = 0
    last_passage: int = 0
    last_vector: int = 0
    embedder: bytes | None = None


class PostgresRows(SearchRows):
    """What is in the index of a scope.

    Args:
        statements: What is asked.
        ask: Gives the answers.
        first: What is asked before all else.
    """

    def __init__(
        self, statements: SearchStatements, ask: Callable[..., Answers], *first: Query
    ) -> None:
        self._statements = statements
        self._first = first
        self._ask = ask
        self._removed = 0

    @cached_property
    def _known(self) -> tuple[_Head, dict[str, Source]]:
        asked = (*self._first, self._statements.head(), self._statements.sources())
        *_, heads, sources = self._ask(*asked)
        head = _Head(*heads[0]) if heads else _Head()
        return head, {row[1]: _source(row) for row in sources}

    @cached_property
    def _head(self) -> _Head:
        return self._known[0]

    def begin(self) -> None:
        """Make the index, if it is not there. The lock is held."""
        if not self._head.id:
            *_, ((number,),) = self._ask(*self._statements.begin())
            self._head = self._head._replace(id=number)

    def end(self) -> Query:
        """What is to be asked last, after things were changed."""
        head = self._head
        return self._statements.end(head, self._removed)

    @override
    def generation(self) -> Hashable:
        return self._head.id, self._head.removals

    # --- sources ---

    @override
    def sources(self) -> dict[str, Source]:
        return self._known[1]

    @override
    def put_source(self, source: Source, journal: int | None = None) -> int | None:
        if journal is not None:
            (is_there,) = self._ask(self._statements.keep_journal(source.name, journal))
            if not is_there:
                return None
        (((number,),),) = self._ask(self._statements.put_source(self._head.id, source))
        self._known[1][source.name] = source._replace(id=number)
        return int(number)

    @override
    def last_of(self, source: int) -> tuple[int, int, float | None]:
        (rows,) = self._ask(self._statements.last_of(source))
        return rows[0] if rows else (-1, 0, None)

    # --- passages ---

    @override
    def add_passages(self, source: int, added: Iterable[Passage]) -> None:
        passages = list(added)
        for start in range(0, len(passages), _AT_ONCE):
            some = passages[start : start + _AT_ONCE]
            self._ask(*self._statements.add(self._head, source, some))
            last = self._head.last_passage + len(some)
            self._head = self._head._replace(last_passage=last)

    @override
    def remove_passages(self, source: int) -> None:
        (((gone,),),) = self._ask(self._statements.remove_passages(source))
        self._removed += bool(gone)

    @override
    def rows_behind(self, last_id: int) -> list[PassageRow]:
        if last_id >= self._head.last_passage:
            return []
        (rows,) = self._ask(self._statements.rows_behind(self._head.id, last_id))
        return [
            PassageRow._make((*row, bytes(speaker).decode(), bytes(about).decode()))
            for *row, speaker, about in rows
        ]

    @override
    def texts_of(self, ids: Sequence[int]) -> dict[int, str]:
        if not ids:
            return {}
        (rows,) = self._ask(self._statements.texts_of(self._head.id, ids))
        return {passage: bytes(text).decode() for passage, text in rows}

    @override
    def passages_with(self, part: str) -> Occurrences:
        (rows,) = self._ask(self._statements.passages_with(self._head.id, part))
        return Counter(passage for (passage,) in rows)

    # --- terms ---

    @override
    def terms_behind(self, last_id: int) -> list[tuple[int, Sequence[str]]]:
        if last_id >= self._head.last_passage:
            return []
        (rows,) = self._ask(self._statements.terms_behind(self._head.id, last_id))
        begin = len(_prefix(self._head.id))
        return [
            (passage, [bytes(term)[begin:].decode() for term in terms]) for passage, terms in rows
        ]

    @override
    def occurrences(self, terms: Sequence[str]) -> dict[str, Occurrences]:
        found = self._ask(*(self._statements.occurrences(self._head.id, term) for term in terms))
        return {term: Counter(dict(rows)) for term, rows in zip(terms, found, strict=True)}

    @override
    def vocabulary(self) -> set[str]:
        (rows,) = self._ask(self._statements.vocabulary(self._head.id))
        begin = len(_prefix(self._head.id))
        return {bytes(term)[begin:].decode() for (term,) in rows}

    # --- vectors ---

    @override
    def embedder(self) -> str | None:
        name = self._head.embedder
        return None if name is None else bytes(name).decode()

    @override
    def begin_vectors(self, embedder: str) -> int | None:
        if self.embedder() == embedder:
            return None
        (((gone,),),) = self._ask(self._statements.remove_vectors(self._head.id))
        self._head = self._head._replace(embedder=embedder.encode())
        return int(gone)

    @override
    def vectors_behind(self, last_id: int) -> list[VectorRow]:
        if last_id >= self._head.last_vector:
            return []
        (rows,) = self._ask(self._statements.vectors_behind(self._head.id, last_id))
        return [VectorRow(number, passage, bytes(vector)) for number, passage, vector in rows]

    @override
    def add_vectors(self, made: Sequence[tuple[int, str, bytes]]) -> None:
        self._ask(self._statements.add_vectors(self._head, made))
        last = self._head.last_vector + len(made)
        self._head = self._head._replace(last_vector=last)


def _source(row: tuple[int, str, bytes, bytes, int, int]) -> Source:
    number, name, label, version, size, mark = row
    return Source(number, name, bytes(label).decode(), bytes(version).decode(), size, mark)


def _prefix(search: int) -> bytes:
    """What stands before each term of an index: no term has a space in it."""
    return b"%d " % search


class SearchStatements:
    """The statements, for the index of one scope.

    Args:
        schema: Where the tables are.
        scope: The name of the scope.
        is_isolated: Whether policies hold: then the inverted index is of no use, for what it
            compares by might tell of rows that are not to be seen.
    """

    def __init__(self, schema: Schema, scope: str, *, is_isolated: bool = False) -> None:
        self._scope = scope
        self._occurrences = "occurrences_among_own" if is_isolated else "occurrences"
        self._lock = schema.lock_number(f"+search+{scope}")  # no journal's name has a plus
        self._made = {name: schema.statement(text) for name, text in _STATEMENTS.items()}

    def _of(self, name: str, *values: object) -> Query:
        return self._made[name], values

    # --- the index ---

    def by_index(self) -> Query:
        """Has no table be read through: that would take as long as all scopes are large."""
        return self._of("by_index")

    def lock(self) -> Query:
        """Waits until nobody else writes to it, and keeps others out until the transaction ends."""
        return self._of("lock", self._lock)

    def head(self) -> Query:
        """Gives what `_Head` has, if it is there."""
        return self._of("head", self._scope, TERMS_VERSION)

    def begin(self) -> list[Query]:
        """Make it, in place of those of earlier versions; the last one gives its number."""
        return [
            self._of("remove_older", self._scope, TERMS_VERSION),
            self._of("begin", self._scope, TERMS_VERSION),
        ]

    def end(self, head: _Head, removed: int) -> Query:
        """Note what is new of it."""
        values = (removed, head.last_passage, head.last_vector, head.embedder)
        return self._of("end", *values, head.id)

    def remove(self) -> list[Query]:
        """Remove it, and those of other versions."""
        return [self.lock(), self._of("remove", self._scope)]

    def forget(self, name: str) -> list[Query]:
        """Remove a source, with its passages."""
        values = (name, self._scope, TERMS_VERSION)
        return [self.lock(), self._of("note_removal", *values), self._of("forget", *values)]

    # --- what is in it ---

    def sources(self) -> Query:
        """Gives what `Source` has."""
        return self._of("sources", self._scope, TERMS_VERSION)

    def keep_journal(self, name: str, journal: int) -> Query:
        """Gives a row where a journal is there, and has it stay until the transaction ends."""
        return self._of("keep_journal", name, journal)

    def put_source(self, search: int, source: Source) -> Query:
        """Gives its id."""
        texts = source.label.encode(), source.version.encode()
        return self._of("put_source", search, source.name, *texts, source.size, source.mark)

    def last_of(self, source: int) -> Query:
        """Gives place, episode and time of a source's last passage."""
        return self._of("last_of", source)

    def add(self, head: _Head, source: int, passages: Sequence[Passage]) -> list[Query]:
        """Add passages."""
        ids = [head.last_passage + number for number in range(1, len(passages) + 1)]
        columns = (
            ids,
            [one.place for one in passages],
            [one.episode for one in passages],
            [len(one.terms) for one in passages],
            [one.traits for one in passages],
            [one.at for one in passages],
            [one.speaker.encode() for one in passages],
            [one.about.encode() for one in passages],
        )
        texts = [one.text.encode() for one in passages]
        terms = [_terms_literal(_prefix(head.id), one) for one in passages]
        return [
            self._of("add_passages", head.id, source, *columns),
            self._of("add_texts", head.id, ids, texts, terms),
        ]

    def remove_passages(self, source: int) -> Query:
        """Remove those of a source; gives their number."""
        return self._of("remove_passages", source)

    def rows_behind(self, search: int, last_id: int) -> Query:
        """Gives what `PassageRow` has."""
        return self._of("rows_behind", search, last_id)

    def texts_of(self, search: int, ids: Sequence[int]) -> Query:
        """Gives id and text of each."""
        return self._of("texts_of", search, list(ids))

    def passages_with(self, search: int, part: str) -> Query:
        """Gives the id of each passage that has a text in it."""
        return self._of("passages_with", search, part.encode())

    def terms_behind(self, search: int, last_id: int) -> Query:
        """Gives id and terms of each passage behind one."""
        return self._of("terms_behind", search, last_id)

    def occurrences(self, search: int, term: str) -> Query:
        """Gives the id of each passage that has a term, and how often."""
        key = _prefix(search) + term.encode()
        return self._of(self._occurrences, key, key, search)

    def vocabulary(self, search: int) -> Query:
        """Gives each term once."""
        return self._of("vocabulary", search)

    # --- vectors ---

    def remove_vectors(self, search: int) -> Query:
        """Remove all; gives their number."""
        return self._of("remove_vectors", search)

    def vectors_behind(self, search: int, last_id: int) -> Query:
        """Gives what `VectorRow` has."""
        return self._of("vectors_behind", search, last_id)

    def add_vectors(self, head: _Head, made: Sequence[tuple[int, str, bytes]]) -> Query:
        """Add vectors to the passages that still have these texts, and no vector."""
        ids, texts, vectors = zip(*made, strict=True)
        encoded = [text.encode() for text in texts]
        return self._of("add_vectors", head.last_vector, list(ids), encoded, list(vectors), head.id)


def _terms_literal(prefix: bytes, passage: Passage) -> str:
    """The terms of a passage as PostgreSQL writes an array of bytes."""
    keys = (prefix + term.encode() for term in (*passage.terms, *passage.dates))
    return "{" + ",".join(rf"\\x{key.hex()}" for key in keys) + "}"


_INDEX = "search = (SELECT id FROM {s}.searches WHERE scope = %s AND format = %s)"
_STATEMENTS = {
    "by_index": "SET LOCAL enable_seqscan = off",
    "lock": "SELECT pg_advisory_xact_lock(%s)",
    "head": """
        SELECT id, removals, last_passage, last_vector, embedder FROM {s}.searches
        WHERE scope = %s AND format = %s
    """,
    "remove_older": "DELETE FROM {s}.searches WHERE scope = %s AND format < %s",
    "begin": "INSERT INTO {s}.searches (scope, format) VALUES (%s, %s) RETURNING id",
    "end": """
        UPDATE {s}.searches SET removals = removals + %s, last_passage = %s, last_vector = %s,
            embedder = %b WHERE id = %s
    """,
    "remove": "DELETE FROM {s}.searches WHERE scope = %s",
    "note_removal": """
        UPDATE {s}.searches SET removals = removals + 1 WHERE id IN (
            SELECT search FROM {s}.search_sources WHERE name = %s AND _INDEX
        )
    """,
    "forget": "DELETE FROM {s}.search_sources WHERE name = %s AND _INDEX",
    "sources": "SELECT id, name, label, version, size, mark FROM {s}.search_sources WHERE _INDEX",
    "keep_journal": "SELECT 1 FROM {s}.journals WHERE name = %s AND id = %s FOR KEY SHARE",
    "put_source": """
        INSERT INTO {s}.search_sources (search, name, label, version, size, mark)
        VALUES (%s, %s, %b, %b, %s, %s)
        ON CONFLICT (search, name) DO UPDATE
        SET version = excluded.version, size = excluded.size, mark = excluded.mark
        RETURNING id
    """,
    "last_of": """
        SELECT place, episode, at FROM {s}.search_passages
        WHERE source = %s ORDER BY place DESC LIMIT 1
    """,
    "add_passages": """
        INSERT INTO {s}.search_passages
            (search, source, id, place, episode, length, traits, at, speaker, about)
        SELECT %s, %s, new.* FROM unnest(
            %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
            %s::double precision[], %b::bytea[], %b::bytea[]
        ) AS new
    """,
    "add_texts": """
        INSERT INTO {s}.search_texts (search, id, text, terms)
        SELECT %s, new.id, new.text, new.terms::bytea[]
        FROM unnest(%s::bigint[], %b::bytea[], %s::text[]) AS new (id, text, terms)
    """,
    "remove_passages": """
        WITH gone AS (DELETE FROM {s}.search_passages WHERE source = %s RETURNING 1)
        SELECT count(*) FROM gone
    """,
    "rows_behind": """
        SELECT id, source, place, episode, length, traits, at, speaker, about
        FROM {s}.search_passages WHERE search = %s AND id > %s ORDER BY id
    """,
    "texts_of": "SELECT id, text FROM {s}.search_texts WHERE search = %s AND id = ANY (%s)",
    "passages_with": """
        SELECT id FROM {s}.search_texts WHERE search = %s AND position(%b::bytea IN text) > 0
    """,
    "terms_behind": "SELECT id, terms FROM {s}.search_texts WHERE search = %s AND id > %s",
    "occurrences": """
        SELECT id, cardinality(array_positions(terms, %b)) FROM {s}.search_texts
        WHERE terms @> ARRAY[%b::bytea] AND search + 0 = %s
    """,
    "occurrences_among_own": """
        SELECT id, cardinality(array_positions(terms, %b)) FROM {s}.search_texts
        WHERE terms @> ARRAY[%b::bytea] AND search = %s
    """,
    "vocabulary": """
        SELECT DISTINCT term FROM {s}.search_texts, unnest(terms) AS term WHERE search = %s
    """,
    "remove_vectors": """
        WITH gone AS (DELETE FROM {s}.search_vectors WHERE search = %s RETURNING 1)
        SELECT count(*) FROM gone
    """,
    "vectors_behind": """
        SELECT id, passage, vector FROM {s}.search_vectors
        WHERE search = %s AND id > %s ORDER BY id
    """,
    "add_vectors": """
        INSERT INTO {s}.search_vectors (search, id, passage, vector)
        SELECT search, %s + number, id, new.vector
        FROM unnest(%s::bigint[], %b::bytea[], %b::bytea[])
            WITH ORDINALITY AS new (passage, text, vector, number)
        JOIN {s}.search_texts ON id = passage AND search_texts.text = new.text
        WHERE search = %s
        ON CONFLICT (search, passage) DO NOTHING
    """,
}
_STATEMENTS = {name: text.replace("_INDEX", _INDEX) for name, text in _STATEMENTS.items()}
