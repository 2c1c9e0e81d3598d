"""What sessions and the event log have, and the search index of their scope has not: it is read."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from langchain_nanomem.errors import DatabaseError, NanomemError
from langchain_nanomem.search_places import LOG
from langchain_nanomem.search_sources import Cleaner, HistoryText, Last, SessionText
from langchain_nanomem.search_tables import Source
from langchain_nanomem.session_archive import is_archived

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from langchain_nanomem.journal import Bound, JournalState
    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.records import SessionRecords
    from langchain_nanomem.redaction import Redaction
    from langchain_nanomem.search_scopes import SessionScopes
    from langchain_nanomem.search_sources import Log, LogStates
    from langchain_nanomem.search_tables import SearchTables

logger = logging.getLogger(__name__)

_MOST_TRIES = 5


class Found(NamedTuple):
    """What there is, by the names of sources."""

    sessions: dict[str, Bound]
    versions: dict[str, str]
    """Of the sessions and of the event log."""

    def is_in(self, sources: Mapping[str, Source]) -> bool:
        """Whether an index that has these sources has all of it, and nothing else."""
        return self.versions == _versions(sources)


class News:
    """Brings into an index what its scope has new.

    Args:
        tables: What the index is kept in.
        scopes: Tells which sessions the scope has.
        scope: Whose memory it is.
        sessions: The sessions.
        history: The event log.
        redaction: What must not be in the index; None: everything may.
    """

    def __init__(  # noqa: PLR0913 - where all comes from
        self,
        tables: SearchTables,
        scopes: SessionScopes,
        scope: tuple[str, ...],
        sessions: SessionManager,
        history: Log,
        *,
        redaction: Redaction | None,
    ) -> None:
        self._tables = tables
        self._scopes = scopes
        self._scope = scope
        self._sessions = sessions
        self._history = history
        self._cleaner = Cleaner(redaction)

    def look(self) -> Found:
        """What there is now."""
        sessions = self._scopes.of_scope(self._scope)
        versions = {name: self._told(bound.state) for name, bound in sessions.items()}
        return Found(sessions, versions | {LOG: self._told(self._history.log_states())})

    def read(self, found: Found) -> None:
        """Take out what is gone, and put in what is new."""
        with self._tables.opened() as kept:
            known = _versions(kept.sources())
        for name in known.keys() - found.versions.keys():
            self._tables.forget_source(name)
        for name, bound in found.sessions.items():
            version = found.versions[name]
            if known.get(name) != version:
                self._read_session(name, bound, version)
        if known[LOG] != found.versions[LOG]:
            self._bring_in(
                _new_source(LOG, ""),
                found.versions[LOG],
                lambda: HistoryText(self._history.entries(), self._cleaner),
            )

    def _read_session(self, name: str, bound: Bound, state: str) -> None:
        new = _new_source(name, bound.key)
        journal = None if is_archived(name) else bound.state.identity
        try:
            with self._opened(name, bound.key) as records:
                if (records.scope or ()) == self._scope:
                    self._bring_in(new, state, lambda: SessionText(records, self._cleaner), journal)
        except DatabaseError:  # that is no damage: it has to be read yet
            raise
        except (NanomemError, OSError) as error:
            logger.warning("session %r is not searched: %s", bound.key, error)
            with self._tables.writing() as kept:
                known = kept.sources().get(name, new)
                kept.put_source(known._replace(version=state), journal)

    def _bring_in(
        self,
        fresh: Source,
        state: str,
        read: Callable[[], SessionText | HistoryText],
        journal: int | None = None,
    ) -> None:
        """Put in what a source has new. What is read is read before the tables are locked."""
        text = read()
        for _ in range(_MOST_TRIES):
            with self._tables.opened() as kept:
                before = kept.sources().get(fresh.name)
                known = before or fresh
                last = kept.last_of(known.id)
            is_same = known.size <= text.count and text.mark(known.size) == known.mark
            added = list(text.passages(Last(*last) if is_same else Last()))
            new = known._replace(version=state, size=text.count, mark=text.mark(text.count))
            with self._tables.writing() as kept:
                if kept.sources().get(fresh.name) != before:
                    continue  # another process was faster
                source = kept.put_source(new, journal)
                if source is None:
                    return
                if not is_same:
                    kept.remove_passages(source)
                kept.add_passages(source, added)
                break
        if fresh.name != LOG and self._is_gone(fresh.name):
            self._tables.forget_source(fresh.name)  # it was deleted meanwhile

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


def _versions(sources: Mapping[str, Source]) -> dict[str, str]:
    return {LOG: "", **{name: one.version for name, one in sources.items()}}


def _new_source(name: str, label: str) -> Source:
    return Source(0, name, label, "", 0, 0)
