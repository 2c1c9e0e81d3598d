"""The narrow waist of the memory: the facts and the log of each scope.

A back end implements `MemoryBackend` and `ScopeMemory` and nothing else, and has all that
`MemoryStore`, consolidation, search, erasure and retention do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from langchain_nanomem.errors import NanomemError
from langchain_nanomem.scope_names import scope_name
from langchain_nanomem.search_index import SearchIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from langchain_nanomem.history_log import HistoryEntry
    from langchain_nanomem.journal import Journal
    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.memory_versions import ArchivedVersion, MemoryVersion
    from langchain_nanomem.redaction import Redaction
    from langchain_nanomem.search_scopes import SessionScopes
    from langchain_nanomem.search_sources import LogStates
    from langchain_nanomem.search_tables import SearchTables
    from langchain_nanomem.search_weights import Weights

    Noting = Callable[[str], AbstractContextManager[None]]


class ScopeMemory(ABC):
    """The facts and the log of one scope.

    Each change is atomic, serialised with the others of the scope, also those of other
    processes, and safe when the call returns. The facts are text; a back end that people can
    write into may hold what is none.
    """

    name: str
    """The scope's `scope_name`; "" of the workspace's own."""
    place: str
    """Where all of it is, for people."""
    facts_place: str
    """Where the facts are, for people."""
    log_place: str
    """Where the log is, for people."""

    # --- facts ---

    @abstractmethod
    def current(self) -> MemoryVersion:
        """The facts and their version.

        Raises:
            CorruptRecordError: They are no text.
            OSError: They can't be read.
        """

    @abstractmethod
    def put(self, content: bytes) -> None:
        """Make `content` the facts, whatever they are; what they were is archived.

        Raises:
            OSError: It could not be written; they are as they were.
        """

    @abstractmethod
    def replace(self, content: bytes, expected_version: str, change: str | None) -> bool:
        """Put `content` in place of the expected version, which is archived.

        Args:
            content: The new facts.
            expected_version: What they must still be; "" where there are none.
            change: The `change_stem` of its cause, by which `is_made` finds it. A change that is
                made is not made again.

        Returns:
            True when it is made, now or before; False when the facts are of another version.

        Raises:
            CorruptRecordError: They are no text; they were not replaced.
            OSError: It could not be written; they are as they were.
        """

    @abstractmethod
    def is_made(self, change: str) -> bool:
        """Whether the change of this stem was made, whatever crashed."""

    @abstractmethod
    def versions(self) -> list[ArchivedVersion]:
        """The archived versions, newest first; their texts are not read yet."""

    @abstractmethod
    def prune(self, keep: int | None, older_than: datetime | None) -> list[ArchivedVersion]:
        """Remove archived versions, and give them; see `MemoryStore.prune_versions`."""

    def put_version(self, version: ArchivedVersion, content: bytes) -> None:
        """Put an archived version of another memory here, as it is there; once.

        Args:
            version: Its hash, its time and its change, which is made then here too.
            content: The text.

        Raises:
            NotImplementedError: Nothing is copied into such a memory.
            OSError: It could not be written; it is not there.
        """
        del version, content
        raise self._not_copied()

    def settle(self, content: bytes, expected_version: str) -> bool:
        """Put `content` in place of the expected version, which is not archived.

        Args:
            content: The new facts.
            expected_version: What they must still be; "" where there are none.

        Returns:
            False when the facts are of another version.

        Raises:
            NotImplementedError: Nothing is copied into such a memory.
            OSError: It could not be written; they are as they were.
        """
        del content, expected_version
        raise self._not_copied()

    def _not_copied(self) -> NotImplementedError:
        return NotImplementedError(f"{self.place}: nothing is copied into such a memory")

    def has_facts(self) -> bool:
        """Whether there are facts, or were."""
        try:
            return bool(self.current().text.strip() or self.versions())
        except (NanomemError, OSError):  # whatever is in it, nobody has looked
            return True

    # --- the log ---

    @abstractmethod
    def append(self, entry: HistoryEntry) -> None:
        """Append an entry that has an id; once for its id, whoever else appends it.

        Raises:
            OSError: It could not be written; the log is as it was.
        """

    def extend(self, entries: Sequence[HistoryEntry]) -> None:
        """Append entries as they are, also such without an id or a time; all of them or none.

        Raises:
            NotImplementedError: Nothing is copied into such a memory.
            OSError: It could not be written; the log is as it was.
        """
        del entries
        raise self._not_copied()

    @abstractmethod
    def contains(self, entry_id: str) -> bool:
        """Whether the log has the entry of this id, whole."""

    @abstractmethod
    def entries(self) -> list[HistoryEntry]:
        """All entries, oldest first.

        Raises:
            CorruptRecordError: The log is no text.
            OSError: It can't be read.
        """

    @abstractmethod
    def matching(self, is_meant: Callable[[HistoryEntry], bool]) -> list[HistoryEntry]:
        """Those of the entries that are meant; also where some of the log is no text.

        Raises:
            OSError: It can't be read.
        """

    @abstractmethod
    def forget(self, is_meant: Callable[[HistoryEntry], bool]) -> list[HistoryEntry]:
        """Take entries out of the log and out of what is kept of it for the search; give them.

        Raises:
            OSError: It could not be read or written.
        """

    @abstractmethod
    def log_states(self) -> LogStates:
        """What changes whenever the log does; it is false for an empty one."""

    def roll(self, before_year: int) -> int:
        """Move the entries of earlier years to where they are apart; gives their number.

        A back end that reads no longer where a log is long has no need to: it moves none.

        Raises:
            CorruptRecordError: The log is no text; nothing was moved.
            OSError: It could not be written; nothing is lost.
        """
        del before_year
        return 0

    # --- all of it ---

    @abstractmethod
    def erase(self) -> list[Path]:
        """Remove all of it. Gives the files that were removed; none in a database.

        Raises:
            OSError: Something could not be removed; all else was.
        """

    def rows(self) -> int:
        """How many rows there are of it in a database; 0 where it is in files."""
        return 0

    def forget_name(self) -> None:  # noqa: B027 - a back end may have nothing of the kind
        """Remove what still names the scope after its erasure, such as its lock."""

    @property
    def memory_path(self) -> Path:
        """The file of the facts."""
        raise AttributeError(f"a memory in a database has no path: {self.place}")

    @property
    def history_path(self) -> Path:
        """The file of the log."""
        raise AttributeError(f"a memory in a database has no path: {self.place}")


class MemoryBackend(ABC):
    """Where the memories of all scopes are kept, beside the sessions."""

    def of(self, scope: tuple[str, ...]) -> ScopeMemory:
        """The memory of a scope. Nothing is created before the first write."""
        return self.named(scope_name(scope))

    @abstractmethod
    def named(self, name: str) -> ScopeMemory:
        """The memory of the scope with this `scope_name`."""

    @abstractmethod
    def all(self) -> Iterator[ScopeMemory]:
        """All memories that there are, first the workspace's own, which always is."""

    @property
    @abstractmethod
    def journal(self) -> Journal:
        """The sessions that are beside it."""

    @property
    def workspace(self) -> Path:
        """The directory of all of it."""
        raise AttributeError(f"{self!r} is no directory")

    def index(
        self,
        scope: tuple[str, ...],
        sessions: SessionManager,
        redaction: Redaction | None,
        weights: Weights,
    ) -> SearchIndex:
        """A search index over what was said in sessions and logged in a scope.

        Args:
            scope: Whose.
            sessions: The sessions.
            redaction: What must not be in it; None: everything may.
            weights: What counts how much.
        """
        tables, bound = self.search_places(scope, sessions)
        log = self.of(scope)
        return SearchIndex(
            tables, bound, scope, sessions, log, redaction=redaction, weights=weights
        )

    @abstractmethod
    def search_places(
        self, scope: tuple[str, ...], sessions: SessionManager
    ) -> tuple[SearchTables, SessionScopes]:
        """What the search index of a scope is kept in, and what tells which sessions it has."""

    @abstractmethod
    def holding(self, samples: Collection[bytes], noting: Noting) -> list[str]:
        """The places, for people, that hold one of these texts: sessions, memories, indexes.

        Args:
            samples: The texts; at least one.
            noting: A block that goes on, with a note, where a place can't be read.
        """
