"""Which sessions belong to whose memory: kept on the disk, since asking each of them is slow.

Where the journal itself can tell, nothing is kept.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from typing import TYPE_CHECKING

from langchain_nanomem.errors import NanomemError
from langchain_nanomem.journal import Bound
from langchain_nanomem.search_file import SearchFile
from langchain_nanomem.search_places import bound_in, put_bound
from langchain_nanomem.session_archive import archived_name, is_archived

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from langchain_nanomem.journal import JournalState
    from langchain_nanomem.manager import SessionManager

logger = logging.getLogger(__name__)


class SessionScopes:
    """The scopes of all sessions of a workspace.

    Args:
        path: Where they are kept; None: in memory alone.
        sessions: The sessions.
    """

    def __init__(self, path: Path | None, sessions: SessionManager) -> None:
        self._file = SearchFile(path)
        self._sessions = sessions
        self._known: dict[str, Bound] = {}

    def of_scope(self, scope: tuple[str, ...]) -> dict[str, Bound]:
        """The sessions of a scope as they are now, by the names of their journals."""
        told = self._sessions.journal.sessions_of(scope)
        return self._of_scope(scope) if told is None else told

    def _of_scope(self, scope: tuple[str, ...]) -> dict[str, Bound]:
        states = self._states()
        if states.keys() - self._known.keys():
            self._load()
        to_ask = [name for name, state in states.items() if self._is_unclear(name, state)]
        found = {name: bound for name in to_ask if (bound := self._read(name, states[name]))}
        self._keep(found)
        return {
            name: bound._replace(state=states[name])
            for name, bound in self._known.items()
            if bound.scope == scope and name in states
        }

    def _states(self) -> dict[str, JournalState]:
        """The state of each session. What is put away or brought back meanwhile is not missed."""
        journal = self._sessions.journal
        archive = journal.archive
        if archive is None:
            return journal.states()
        before, states, after = archive.states(), journal.states(), archive.states()
        moved = set(map(archived_name, states))  # or a crash left both
        return states | {n: s for n, s in (before | after).items() if n not in moved}

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _is_unclear(self, name: str, state: JournalState) -> bool:
        """Whether a session is to be asked whose it is: it is bound for good, once it is."""
        bound = self._known.get(name)
        if bound is None or state.replaces(bound.state):
            return True
        return bound.scope == () and bound.state != state

    def _load(self) -> None:
        with _without_file(), self._file.opened() as connection:
            self._known |= bound_in(connection)

    def _read(self, name: str, state: JournalState) -> Bound | None:
        """Ask a session. None: it can't be read."""
        if is_archived(name):
            return self._read_archived(name, state)
        key = self._sessions.journal.key_of(name)
        if key is None:
            return None
        try:
            with self._sessions.reading(key) as records:
                return Bound(key, records.scope or (), state)
        except (NanomemError, OSError) as error:
            logger.warning("session %r is not searched: %s", key, error)
            return None

    def _read_archived(self, name: str, state: JournalState) -> Bound | None:
        archive = self._sessions.journal.archive
        try:
            kept = None if archive is None else archive.session(name)
        except (NanomemError, OSError) as error:
            logger.warning("the archived session %r is not searched: %s", name, error)
            return None
        return None if kept is None else Bound(kept.key, kept.scope, state)

    def _keep(self, found: dict[str, Bound]) -> None:
        changed = {name: bound for name, bound in found.items() if self._known.get(name) != bound}
        self._known |= found
        if not changed:
            return
        with _without_file(), self._file.writing() as connection:
            put_bound(connection, changed)


@contextlib.contextmanager
def _without_file() -> Iterator[None]:
    """Go on where the file can't be used: each session is asked then."""
    try:
        yield
    except sqlite3.Error as error:
        logger.debug("whose each session is is not kept: %s", error)
