"""The search over all that was said and logged in one scope. It is never the source of truth."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from langchain_nanomem.history_log import session_of
from langchain_nanomem.search_nearness import fused
from langchain_nanomem.search_news import News
from langchain_nanomem.search_places import LOG
from langchain_nanomem.search_postings import Postings
from langchain_nanomem.search_ranking import (
    Passages,
    Ranked,
    looked_at,
    rank_entries,
    rank_messages,
)
from langchain_nanomem.search_vectors import Near, Vectors
from langchain_nanomem.search_weights import WEIGHTS

if TYPE_CHECKING:
    from collections import OrderedDict
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.redaction import Redaction
    from langchain_nanomem.search_query import Query
    from langchain_nanomem.search_scopes import SessionScopes
    from langchain_nanomem.search_sources import Log
    from langchain_nanomem.search_tables import PassageRow, SearchRows, SearchTables
    from langchain_nanomem.search_vectors import Meaning
    from langchain_nanomem.search_weights import Weights

T = TypeVar("T")
Kind = Literal["said", "logged"]
_MOST_OPEN = 32
_LIKELY_QUOTED = 48
_AT_ONCE = 256


@dataclass(frozen=True)
class SearchHit:
    """A passage that was found: a message, or an entry of the event log."""

    text: str
    """What was said, or the entry."""
    kind: Kind
    """Whether it was said in a session, or logged at a consolidation."""
    score: float
    """How well it matches: about 1 for the best of its kind. Comparable within one search."""
    at: datetime | None
    """When, in UTC; None where that is not known."""
    session_id: str | None
    """The session; of an entry the one that it tells of, None where it names none."""
    position: int | None
    """The place of the message in its session, from 0. None for an entry."""
    speaker: str
    """Who said it: a name, or ``user``, ``assistant``, ``tool``. "" for an entry."""
    source: str | None = None
    """What an entry tells of, such as ``cli:user 0-24``; None for a message."""
    before: tuple[SearchHit, ...] = ()
    """The messages before it, as many as were asked for."""
    after: tuple[SearchHit, ...] = ()
    """The messages behind it."""

    def _repr_html_(self) -> str:
        from langchain_nanomem.display import hit_html  # noqa: PLC0415 - for notebooks alone

        place = "" if self.position is None else f"message {self.position}"
        where = self.source or " ".join(filter(None, [self.session_id, place]))
        around = [*self.before, self, *self.after]
        passages = [(one.speaker, one.text, one is self) for one in around]
        return hit_html(self.kind, where, self.score, self.at, passages)


class _Asked(NamedTuple):
    """What a search is to give."""

    query: Query
    limit: int
    kinds: frozenset[Kind]
    around: int
    near: Near | None


class SearchIndex:
    """Finds what was said and logged in one scope.

    Before each search it reads what is new. Deleted or damaged, it is built anew.

    Args:
        tables: What it is kept in.
        scopes: Tells which sessions the scope has.
        scope: Whose memory is searched; nothing of another scope is in the index.
        sessions: The sessions.
        history: The event log.
        redaction: What must not be in it; None: everything may.
        weights: What counts how much.
    """

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        tables: SearchTables,
        scopes: SessionScopes,
        scope: tuple[str, ...],
        sessions: SessionManager,
        history: Log,
        *,
        redaction: Redaction | None = None,
        weights: Weights = WEIGHTS,
    ) -> None:
        self._news = News(tables, scopes, scope, sessions, history, redaction=redaction)
        self._tables = tables
        self._scopes = scopes
        self._guard = threading.RLock()
        self._weights = weights
        self._passages = Passages(weights)
        self._postings = Postings()
        self._vectors: Vectors | None = None
        self._generation: Hashable = None
        self._labels: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def search(
        self,
        query: Query,
        limit: int,
        *,
        kinds: Iterable[Kind] = ("said", "logged"),
        around: int = 0,
        meaning: Meaning | None = None,
    ) -> list[SearchHit]:
        """What matches, best first; of equals the newest.

        Args:
            query: What is asked.
            limit: How many at most.
            kinds: What is wanted.
            around: How many messages before and behind each are given with it.
            meaning: Ranks by meaning too.

        Raises:
            OSError: A file can't be read.
            DatabaseError: Someone else has kept the index for a minute, or it can't be used.
        """
        near = None
        if meaning is not None and limit and query.asked:
            vectors = self._vectors_of(meaning)
            vector = vectors.of_query(query.asked, self._up_to_date, self._written)
            near = None if vector is None else Near(vectors, vector, meaning.weight)
        asked = _Asked(query, limit, frozenset(kinds), around, near)
        return self._up_to_date(lambda kept, _: self._found(kept, asked))

    def _vectors_of(self, meaning: Meaning) -> Vectors:
        with self._guard:
            if self._vectors is None or self._vectors.embedder is not meaning.embedder:
                self._vectors = Vectors(meaning.embedder)
            return self._vectors

    def _up_to_date(self, work: Callable[[SearchRows, Passages], T]) -> T:
        """Look at the index as all is now, while nobody else in this process uses it."""
        return self._recovering(lambda: self._with_news(work))

    def _written(self, work: Callable[[SearchRows], None]) -> None:
        """Write something into the index, all or nothing."""

        def write() -> None:
            self._prepare()
            with self._tables.writing() as rows:
                work(rows)

        self._recovering(write)

    def _recovering(self, work: Callable[[], T]) -> T:
        with self._guard:
            return self._tables.persist(work)

    def _with_news(self, work: Callable[[SearchRows, Passages], T]) -> T:
        found = self._news.look()
        with self._tables.reading() as kept:
            if found.is_in(kept.sources()) and self._is_prepared(kept):
                return work(self._loaded(kept), self._passages)
        self._news.read(found)
        self._prepare()
        with self._tables.reading() as kept:
            return work(self._loaded(kept), self._passages)

    def _is_prepared(self, kept: SearchRows) -> bool:
        return self._vectors is None or self._vectors.are_in(kept)

    def _prepare(self) -> None:
        if self._vectors is not None:
            self._vectors.prepare(self._tables)

    def erase(self) -> None:
        """Remove the index."""
        with self._guard:
            self._tables.remove()
            self._generation = None

    def close(self) -> None:
        """Let go of what is open."""
        with self._guard:
            self._tables.close()
            self._scopes.close()

    # --- searching ---

    def _found(self, kept: SearchRows, asked: _Asked) -> list[SearchHit]:
        query, limit = asked.query, asked.limit
        if not limit or not query.asked:
            return []
        ranked: list[Ranked] = []
        for kind, some in self._ranked(kept, asked):
            ranked += self._fused(kept, asked, kind, some)
        if len(asked.kinds) > 1:
            ranked.sort(key=lambda one: one.score, reverse=True)
        texts = _Texts(kept)
        ranked = _quotes_first(texts, query, ranked)
        best = list(_first(texts, query, ranked, limit))
        hits = [self._as_hit(one.row, text, one.score) for one, text in best]
        return self._with_neighbours(kept, hits, [one.row for one, _ in best], asked.around)

    def _ranked(self, kept: SearchRows, asked: _Asked) -> Iterator[tuple[Kind, list[Ranked]]]:
        query = asked.query
        terms = self._postings.of_query(kept, query)
        if "said" in asked.kinds:
            most = len(self._passages.rows) if query.needs_text else asked.limit
            yield "said", rank_messages(self._passages, terms, self._labels, query, most)
        if "logged" in asked.kinds:
            yield "logged", rank_entries(self._passages, terms, query)

    def _fused(
        self, kept: SearchRows, asked: _Asked, kind: Kind, ranked: list[Ranked]
    ) -> list[Ranked]:
        """A ranking by words together with the one by meaning, both of what is wanted alone."""
        query, near = asked.query, asked.near
        if near is None:
            return ranked
        rows = near.vectors.nearest(kept, self._passages, near.vector)
        wanted: Iterator[PassageRow] = (row for row in rows if self._is_wanted(row, kind, query))
        if query.needs_text:
            wanted = _accepted(kept, query, wanted)
            ids = {row.id for row in _accepted(kept, query, (one.row for one in ranked))}
            ranked = [one for one in ranked if one.row.id in ids]
        return fused(ranked, islice(wanted, looked_at(asked.limit)), near.weight)

    def _is_wanted(self, row: PassageRow, kind: Kind, query: Query) -> bool:
        is_entry = row.id in self._passages.entry_ids
        is_kind = is_entry if kind == "logged" else bool(not is_entry and row.speaker)
        return is_kind and query.is_within(row.at) and query.is_of(self._session_of(row) or "")

    def _session_of(self, row: PassageRow) -> str | None:
        if row.id in self._passages.entry_ids:
            return session_of(row.about) or None
        return self._names[row.source]

    def _with_neighbours(
        self, kept: SearchRows, hits: list[SearchHit], rows: list[PassageRow], around: int
    ) -> list[SearchHit]:
        """Hits with the messages before and behind them."""
        if not around:
            return hits
        before = [self._neighbours(row, range(-around, 0)) for row in rows]
        after = [self._neighbours(row, range(1, around + 1)) for row in rows]
        texts = kept.texts_of([one.id for some in (*before, *after) for one in some])

        def as_hits(some: list[PassageRow]) -> tuple[SearchHit, ...]:
            return tuple(self._as_hit(one, texts[one.id], 0.0) for one in some)

        found = zip(hits, map(as_hits, before), map(as_hits, after), strict=True)
        return [replace(hit, before=earlier, after=later) for hit, earlier, later in found]

    def _neighbours(self, row: PassageRow, distances: range) -> list[PassageRow]:
        if row.id in self._passages.entry_ids:
            return []
        found = (self._passages.neighbour(row, distance) for distance in distances)
        return [one for one in found if one is not None and one.speaker]

    def _as_hit(self, row: PassageRow, text: str, score: float) -> SearchHit:
        is_entry = row.id in self._passages.entry_ids
        return SearchHit(
            text=text,
            kind="logged" if is_entry else "said",
            score=score,
            at=None if row.at is None else datetime.fromtimestamp(row.at, UTC),
            session_id=self._session_of(row),
            position=None if is_entry else row.place,
            speaker=row.speaker,
            source=(row.about or None) if is_entry else None,
        )

    def _loaded(self, kept: SearchRows) -> SearchRows:
        """The same, when what the ranking needs of it is taken over into memory."""
        generation = kept.generation()
        if self._generation != generation:
            self._passages, self._postings = Passages(self._weights), Postings()
            self._generation = generation
        known = kept.sources()
        self._labels = {one.label: one.id for one in known.values() if one.name != LOG}
        self._names = {number: label for label, number in self._labels.items()}
        log = known.get(LOG)
        self._postings.catch_up(kept, self._passages.last_id)
        new = kept.rows_behind(self._passages.last_id)
        self._passages.add(new, None if log is None else log.id)
        return kept


class _Texts:
    """The texts of what was ranked, each asked for once."""

    def __init__(self, kept: SearchRows) -> None:
        self._kept = kept
        self._known: dict[int, str] = {}

    def of(self, ranked: Iterable[Ranked]) -> Mapping[int, str]:
        """Those of these, by id; there may be others with them."""
        missing = [one.row.id for one in ranked if one.row.id not in self._known]
        if missing:
            self._known |= self._kept.texts_of(missing)
        return self._known


def _accepted(kept: SearchRows, query: Query, rows: Iterable[PassageRow]) -> Iterator[PassageRow]:
    """Those whose text has what the query insists on."""
    left = iter(rows)
    while some := list(islice(left, _AT_ONCE)):
        texts = kept.texts_of([row.id for row in some])
        yield from (row for row in some if query.accepts(texts[row.id], row.at))


def _quotes_first(texts: _Texts, query: Query, ranked: list[Ranked]) -> list[Ranked]:
    """Those of the best first that the query quotes."""
    if not query.may_quote:
        return ranked
    likely = ranked[:_LIKELY_QUOTED]
    of_likely = texts.of(likely)
    quoted = [one for one in likely if query.is_quoted_in(of_likely[one.row.id])]
    if not quoted:
        return ranked
    top = ranked[0].score
    ids = {one.row.id for one in quoted}
    rest = (one for one in ranked if one.row.id not in ids)
    return [*(one._replace(score=top + one.score) for one in quoted), *rest]


def _first(
    texts: _Texts, query: Query, ranked: list[Ranked], limit: int
) -> Iterator[tuple[Ranked, str]]:
    """The first ones whose text has what the query insists on."""
    step = max(limit, _AT_ONCE) if query.needs_text else limit
    for start in range(0, len(ranked), step):
        some = ranked[start : start + step]
        of_some = texts.of(some)
        for one in some:
            text = of_some[one.row.id]
            if query.accepts(text, one.row.at):
                yield one, text
                limit -= 1
                if not limit:
                    return


_OPENING = threading.Lock()


def shared_index(
    sessions: SessionManager, name: tuple[str, ...], make: Callable[[], SearchIndex]
) -> SearchIndex:
    """The index of this name: one for all who use the same sessions, as long as it is in use."""
    with _OPENING:
        known: OrderedDict[tuple[str, ...], SearchIndex] = sessions.derived
        known[name] = index = known.pop(name, None) or make()
        while len(known) > _MOST_OPEN:
            known.popitem(last=False)[1].close()
        return index
