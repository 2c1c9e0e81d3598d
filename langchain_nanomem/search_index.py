"""The search over all that was said and logged in one scope. It is never the source of truth."""

from __future__ import annotations

import logging
import sqlite3
import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeVar

from langchain_nanomem import search_file as on_disk
from langchain_nanomem.errors import NanomemError
from langchain_nanomem.history_log import session_of
from langchain_nanomem.search_nearness import fused
from langchain_nanomem.search_places import LOG, search_path, sessions_path
from langchain_nanomem.search_postings import Postings
from langchain_nanomem.search_ranking import (
    Passages,
    Ranked,
    looked_at,
    rank_entries,
    rank_messages,
)
from langchain_nanomem.search_scopes import SessionScopes
from langchain_nanomem.search_sources import Cleaner, HistoryText, Last, Log, LogStates, SessionText
from langchain_nanomem.search_vectors import Near, Vectors
from langchain_nanomem.search_weights import WEIGHTS
from langchain_nanomem.session_archive import is_archived

if TYPE_CHECKING:
    from collections import OrderedDict
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from langchain_nanomem.journal import JournalState
    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.records import SessionRecords
    from langchain_nanomem.redaction import Redaction
    from langchain_nanomem.search_file import PassageRow, Source
    from langchain_nanomem.search_query import Query
    from langchain_nanomem.search_vectors import Meaning
    from langchain_nanomem.search_weights import Weights

logger = logging.getLogger(__name__)

T = TypeVar("T")
Kind = Literal["said", "logged"]
_MOST_OPEN = 32
_MOST_TRIES = 5
_LIKELY_QUOTED = 48
_AT_ONCE = 256
_MEMORY_ONLY = frozenset(
    {
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
    }
)


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


class SearchIndex:
    """Finds what was said and logged in one scope.

    Before each search it reads what is new. It is kept in ``.search`` in the workspace: deleted
    or damaged, it is built anew.

    Args:
        workspace: The directory of the memory; None: it is kept in memory alone.
        scope: Whose memory is searched; nothing of another scope is in the index.
        sessions: The sessions.
        history: The event log.
        redaction: What must not be in it; None: everything may.
        weights: What counts how much.
    """

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        workspace: Path | None,
        scope: tuple[str, ...],
        sessions: SessionManager,
        history: Log,
        *,
        redaction: Redaction | None = None,
        weights: Weights = WEIGHTS,
    ) -> None:
        self.scope = scope
        self._sessions = sessions
        self._history = history
        self._cleaner = Cleaner(redaction)
        self._file = on_disk.SearchFile(workspace and search_path(workspace, scope))
        self._scopes = SessionScopes(workspace and sessions_path(workspace), sessions)
        self._guard = threading.RLock()
        self._weights = weights
        self._passages = Passages(weights)
        self._postings = Postings()
        self._vectors: Vectors | None = None
        self._loaded: object = None
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
            sqlite3.OperationalError: Someone else has kept the index for a minute.
        """
        near = None
        if meaning is not None and limit and query.asked:
            vectors = self._vectors_of(meaning)
            vector = vectors.of_query(query.asked, self._up_to_date, self._written)
            near = None if vector is None else Near(vectors, vector, meaning.weight)
        wanted = frozenset(kinds)
        return self._up_to_date(lambda *_: self._found(query, limit, wanted, around, near))

    def _vectors_of(self, meaning: Meaning) -> Vectors:
        with self._guard:
            if self._vectors is None or self._vectors.embedder is not meaning.embedder:
                self._vectors = Vectors(meaning.embedder)
            return self._vectors

    def _up_to_date(self, work: Callable[[on_disk.SearchFile, Passages], T]) -> T:
        """Look at the index as all is now, while nobody else in this process uses it."""
        return self._recovering(lambda: self._with_news(work))

    def _written(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Write something into the index, all or nothing."""

        def write() -> None:
            self._prepare()
            with self._file.writing() as connection:
                work(connection)

        self._recovering(write)

    def _recovering(self, work: Callable[[], T]) -> T:
        with self._guard:
            try:
                return work()
            except sqlite3.DatabaseError as error:
                self._recover(error)
                return work()

    def _with_news(self, work: Callable[[on_disk.SearchFile, Passages], T]) -> T:
        self._read_news()
        self._prepare()
        with self._file.reading() as connection:
            self._load(connection)
            return work(self._file, self._passages)

    def _prepare(self) -> None:
        if self._vectors is not None:
            self._vectors.prepare(self._file)

    def erase(self) -> None:
        """Remove the index."""
        with self._guard:
            self._file.remove()
            self._loaded = None

    def close(self) -> None:
        """Let go of the files."""
        with self._guard:
            self._file.close()
            self._scopes.close()

    def _recover(self, error: sqlite3.DatabaseError) -> None:
        """Make it possible to go on: without a disk, or with a new file."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            raise error
        if code in _MEMORY_ONLY:
            logger.warning("%s can't be written (%s): kept in memory", self._file.path, error)
            self._file.close()
            self._file = on_disk.SearchFile(None)
        else:
            logger.warning("%s is damaged (%s): it is built anew", self._file.path, error)
            self._file.remove()
        self._loaded = None

    # --- searching ---

    def _found(
        self, query: Query, limit: int, kinds: frozenset[Kind], around: int, near: Near | None
    ) -> list[SearchHit]:
        if not limit or not query.asked:
            return []
        with self._file.opened() as connection:
            ranked: list[Ranked] = []
            for kind, some in self._ranked(connection, query, limit, kinds):
                ranked += some if near is None else self._fused(query, limit, kind, some, near)
            if len(kinds) > 1:
                ranked.sort(key=lambda one: one.score, reverse=True)
            ranked = _quotes_first(connection, query, ranked)
            best = list(_first(connection, query, ranked, limit))
            return [self._hit(connection, one, text, around) for one, text in best]

    def _ranked(
        self, connection: sqlite3.Connection, query: Query, limit: int, kinds: frozenset[Kind]
    ) -> Iterator[tuple[Kind, list[Ranked]]]:
        terms = self._postings.of_query(connection, query)
        if "said" in kinds:
            most = len(self._passages.rows) if query.needs_text else limit
            yield "said", rank_messages(self._passages, terms, self._labels, query, most)
        if "logged" in kinds:
            yield "logged", rank_entries(self._passages, terms, query)

    def _fused(
        self, query: Query, limit: int, kind: Kind, ranked: list[Ranked], near: Near
    ) -> list[Ranked]:
        """A ranking by words together with the one by meaning, both of what is wanted alone."""
        rows = near.vectors.nearest(self._file, self._passages, near.vector)
        wanted: Iterator[PassageRow] = (row for row in rows if self._is_wanted(row, kind, query))
        if query.needs_text:
            wanted = self._accepted(query, wanted)
            ids = {row.id for row in self._accepted(query, (one.row for one in ranked))}
            ranked = [one for one in ranked if one.row.id in ids]
        return fused(ranked, islice(wanted, looked_at(limit)), near.weight)

    def _accepted(self, query: Query, rows: Iterable[PassageRow]) -> Iterator[PassageRow]:
        """Those whose text has what the query insists on."""
        left = iter(rows)
        while some := list(islice(left, _AT_ONCE)):
            with self._file.opened() as connection:
                texts = on_disk.texts_of(connection, [row.id for row in some])
            yield from (row for row in some if query.accepts(texts[row.id], row.at))

    def _is_wanted(self, row: PassageRow, kind: Kind, query: Query) -> bool:
        is_entry = row.id in self._passages.entry_ids
        is_kind = is_entry if kind == "logged" else bool(not is_entry and row.speaker)
        return is_kind and query.is_within(row.at) and query.is_of(self._session_of(row) or "")

    def _session_of(self, row: PassageRow) -> str | None:
        if row.id in self._passages.entry_ids:
            return session_of(row.about) or None
        return self._names[row.source]

    def _hit(
        self, connection: sqlite3.Connection, one: Ranked, text: str, around: int
    ) -> SearchHit:
        hit = self._as_hit(one.row, text, one.score)
        if not around or hit.kind == "logged":
            return hit
        before = self._neighbours(connection, one.row, range(-around, 0))
        after = self._neighbours(connection, one.row, range(1, around + 1))
        return replace(hit, before=before, after=after)

    def _neighbours(
        self, connection: sqlite3.Connection, row: PassageRow, distances: range
    ) -> tuple[SearchHit, ...]:
        found = (self._passages.neighbour(row, distance) for distance in distances)
        rows = [one for one in found if one is not None and one.speaker]
        texts = on_disk.texts_of(connection, [one.id for one in rows])
        return tuple(self._as_hit(one, texts[one.id], 0.0) for one in rows)

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

    def _load(self, connection: sqlite3.Connection) -> None:
        """Take over into memory what the ranking needs."""
        state = (connection, on_disk.removals_in(connection))
        if self._loaded != state:
            self._passages, self._postings, self._loaded = (
                Passages(self._weights),
                Postings(),
                state,
            )
        known = on_disk.sources_in(connection)
        self._labels = {one.label: one.id for one in known.values() if one.name != LOG}
        self._names = {number: label for label, number in self._labels.items()}
        log = known.get(LOG)
        self._postings.catch_up(connection, self._passages.last_id)
        new = on_disk.rows_behind(connection, self._passages.last_id)
        self._passages.add(new, None if log is None else log.id)

    # --- reading what is new ---

    def _read_news(self) -> None:
        found = self._scopes.of_scope(self.scope)
        with self._file.opened() as connection:
            known = on_disk.sources_in(connection)
        for name in known.keys() - found.keys() - {LOG}:
            self._remove(name)
        for name, bound in found.items():
            state = self._told(bound.state)
            if name not in known or known[name].version != state:
                self._read_session(name, bound.key, state)
        state = self._told(self._history.log_states())
        if state != (known[LOG].version if LOG in known else ""):
            self._bring_in(
                LOG, "", state, lambda: HistoryText(self._history.entries(), self._cleaner)
            )

    def _read_session(self, name: str, key: str, state: str) -> None:
        try:
            with self._opened(name, key) as records:
                if (records.scope or ()) != self.scope:
                    return
                self._bring_in(name, key, state, lambda: SessionText(records, self._cleaner))
        except (NanomemError, OSError) as error:
            logger.warning("session %r is not searched: %s", key, error)
            with self._file.writing() as connection:
                known = on_disk.sources_in(connection).get(name, _new_source(name, key))
                on_disk.put_source(connection, known._replace(version=state))

    def _bring_in(
        self, name: str, label: str, state: str, read: Callable[[], SessionText | HistoryText]
    ) -> None:
        """Put in what a source has new. What is read is read before the file is locked."""
        text = read()
        for _ in range(_MOST_TRIES):
            with self._file.opened() as connection:
                known = on_disk.sources_in(connection).get(name, _new_source(name, label))
                last = on_disk.last_of(connection, known.id)
            is_same = known.size <= text.count and text.mark(known.size) == known.mark
            added = list(text.passages(Last(*last) if is_same else Last()))
            new = known._replace(version=state, size=text.count, mark=text.mark(text.count))
            with self._file.writing() as connection:
                if on_disk.sources_in(connection).get(name, known) != known:
                    continue  # another process was faster
                source = on_disk.put_source(connection, new)
                if not is_same:
                    on_disk.remove_passages(connection, source)
                on_disk.add_passages(connection, source, added)
                break
        if name != LOG and self._is_gone(name):
            self._remove(name)  # it was deleted meanwhile

    def _opened(self, name: str, key: str) -> AbstractContextManager[SessionRecords]:
        if is_archived(name):
            return self._sessions.reading_archived(key)
        return self._sessions.reading(key)

    def _is_gone(self, name: str) -> bool:
        journal = self._sessions.journal
        if is_archived(name):
            return journal.archive is None or name not in journal.archive.states()
        return journal.key_of(name) is None

    def _told(self, state: JournalState | LogStates) -> str:
        """What a source is known by as long as neither it nor the redaction changes."""
        return repr((*state, self._cleaner.mark)) if state else ""

    def _remove(self, name: str) -> None:
        on_disk.forget_source(self._file, name)


def _new_source(name: str, label: str) -> Source:
    return on_disk.Source(0, name, label, "", 0, 0)


def _quotes_first(
    connection: sqlite3.Connection, query: Query, ranked: list[Ranked]
) -> list[Ranked]:
    """Those of the best first that the query quotes."""
    if not query.may_quote:
        return ranked
    likely = ranked[:_LIKELY_QUOTED]
    texts = on_disk.texts_of(connection, [one.row.id for one in likely])
    quoted = [one for one in likely if query.is_quoted_in(texts[one.row.id])]
    if not quoted:
        return ranked
    top = ranked[0].score
    ids = {one.row.id for one in quoted}
    rest = (one for one in ranked if one.row.id not in ids)
    return [*(one._replace(score=top + one.score) for one in quoted), *rest]


def _first(
    connection: sqlite3.Connection, query: Query, ranked: list[Ranked], limit: int
) -> Iterator[tuple[Ranked, str]]:
    """The first ones whose text has what the query insists on."""
    step = max(limit, _AT_ONCE) if query.needs_text else limit
    for start in range(0, len(ranked), step):
        some = ranked[start : start + step]
        texts = on_disk.texts_of(connection, [one.row.id for one in some])
        for one in some:
            if query.accepts(texts[one.row.id], one.row.at):
                yield one, texts[one.row.id]
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
