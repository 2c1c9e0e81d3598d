"""MEMORY.md and HISTORY.md of one scope. No model is ever called from here."""

from __future__ import annotations

import contextlib
import uuid
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from langchain_nanomem import history_log
from langchain_nanomem.errors import CorruptRecordError, NanomemError
from langchain_nanomem.fences import MEMORY_TAG, fence_memory
from langchain_nanomem.history_log import HistoryEntry, encode
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.memory_lines import shown_with
from langchain_nanomem.memory_versions import (
    ArchivedVersion,
    MemoryVersion,
    change_stem,
    version_of,
)
from langchain_nanomem.scope_names import checked_scope
from langchain_nanomem.search_index import Kind, SearchHit, SearchIndex, shared_index
from langchain_nanomem.search_query import Query
from langchain_nanomem.search_vectors import DEFAULT_WEIGHT, meaning_of
from langchain_nanomem.search_weights import WEIGHTS, Weights
from langchain_nanomem.workspaces import memory_backend

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from datetime import datetime

    from langchain_core.embeddings import Embeddings

    from langchain_nanomem.journal import Journal
    from langchain_nanomem.memory_backend import MemoryBackend
    from langchain_nanomem.redaction import Redaction

_ALTERED = "To have it as it is now, pass its text to write_long_term."


class MemoryStore:
    """The long-term memory (MEMORY.md) and the history log (HISTORY.md) of one scope.

    Both are files that people may read and edit at any time. All writing of one scope is
    serialised between threads and processes; every change is on the disk when the call returns.
    What is read is always what the disk holds now. Nothing is created before the first write.

    Args:
        workspace: The directory that holds all of an agent's memory. Or a `PostgresJournal`: the
            memory is beside its sessions; or another `MemoryBackend`.
        scope: Whose memory it is, such as ``("user", "42")``. Empty for the workspace's own.
            Distinct scopes never share a file.
        sessions: The sessions that are searched; by default those of the workspace.
        redaction: What must not be written, neither here nor into the search index; by default
            that of `sessions`. Where it blocks something, nothing is written, and that raises
            `RedactionError`.
        embedder: Ranks what is searched by meaning too. What it makes of this scope's passages
            is kept in the index; another model's is thrown away, so one workspace has one.
        embedder_weight: What a rank by meaning counts beside one by words, which counts 1.

    Raises:
        ValueError: `scope` is a string, or a part of it is no string, empty or not Unicode; the
            weight is not above 0.
    """

    def __init__(  # noqa: PLR0913 - options with a default
        self,
        workspace: str | os.PathLike[str] | Journal | MemoryBackend,
        scope: Sequence[str] = (),
        *,
        sessions: SessionManager | None = None,
        redaction: Redaction | None = None,
        embedder: Embeddings | None = None,
        embedder_weight: float = DEFAULT_WEIGHT,
    ) -> None:
        self.backend = memory_backend(workspace)
        self._given = sessions
        self.redaction = redaction or (None if sessions is None else sessions.redaction)
        self._meaning = meaning_of(embedder, embedder_weight)
        self.scope = checked_scope(scope)
        self._kept = self.backend.of(self.scope)
        self.place = self._kept.place

    def over(self, sessions: SessionManager) -> MemoryStore:
        """The same memory, whose search covers these sessions; off the record none is covered."""
        if sessions is self._given or sessions.off_the_record:
            return self
        other = MemoryStore(self.backend, self.scope, sessions=sessions, redaction=self.redaction)
        other._meaning = self._meaning
        return other

    def __repr__(self) -> str:
        return f"MemoryStore({self.place!r}, scope={self.scope!r})"

    def _repr_html_(self) -> str:
        from langchain_nanomem import display  # noqa: PLC0415 - for notebooks alone

        try:
            entries = [(entry.stamp, entry.text) for entry in self.history_entries()]
            facts, versions = self.read_long_term(), self.versions()
        except (NanomemError, OSError) as error:
            return display.unreadable_html("Memory", " ".join(self.scope), error)
        return display.memory_html(self.scope, facts, entries, len(versions))

    @property
    def workspace(self) -> Path:
        """The directory that holds all of an agent's memory.

        Raises:
            AttributeError: It is in a database.
        """
        return self.backend.workspace

    @property
    def memory_path(self) -> Path:
        """The file of the facts.

        Raises:
            AttributeError: They are in a database.
        """
        return self._kept.memory_path

    @property
    def history_path(self) -> Path:
        """The file of the log.

        Raises:
            AttributeError: It is in a database.
        """
        return self._kept.history_path

    def read_long_term(self) -> str:
        """The text of MEMORY.md; "" when it is missing.

        Raises:
            CorruptRecordError: The file is not UTF-8.
            OSError: It can't be read, or is a symbolic link.
        """
        return self.read_version().text

    def read_version(self) -> MemoryVersion:
        """The text of MEMORY.md together with its version, for `replace_long_term`.

        Raises:
            CorruptRecordError: The file is not UTF-8.
            OSError: It can't be read, or is a symbolic link.
        """
        return self._kept.current()

    def write_long_term(self, text: str) -> None:
        """Put `text` in place of MEMORY.md, atomically. What it held is archived first.

        Writing the text that is there already changes nothing.

        Raises:
            ValueError: `text` is no string or holds a lone surrogate.
            RedactionError: It has something that must not be written.
            CorruptRecordError: The present file is not UTF-8; it was not overwritten.
            OSError: It could not be written; the file is as it was.
        """
        text = self.cleaned(text)
        content = encode(text, "text")
        if self.read_version().text != text:
            self._kept.put(content)

    def replace_long_term(
        self,
        text: str,
        *,
        expected_version: str,
        change_id: str | None = None,
        is_cleaned: bool = False,
    ) -> bool:
        """Put `text` in place of MEMORY.md if that is still the expected version.

        Atomic, also between processes; the replaced text is archived first. A change that
        `has_change` knows already is not made again.

        Args:
            text: The whole new text.
            expected_version: The version the text was made from; "" for a missing file.
            change_id: The cause of the change, by which `has_change` finds it.
            is_cleaned: Whether what is new in it went through `cleaned`; the rest, which a
                person may have written, then stays as it is.

        Returns:
            True when the change is made (now or before), False when the file has another
            version; then nothing was written.

        Raises:
            ValueError: `text` or `change_id` is no string, holds a lone surrogate, or the id
                is empty.
            RedactionError: It has something that must not be written.
            CorruptRecordError: The present file is not UTF-8; it was not overwritten.
            OSError: It could not be written; the file is as it was.
        """
        text = text if is_cleaned else self.cleaned(text)
        content = encode(text, "text")
        change = None if change_id is None else change_stem(change_id)
        return self._kept.replace(content, expected_version, change)

    def has_change(self, change_id: str) -> bool:
        """Whether `replace_long_term` made the change of this id, here or in another process.

        Exact whatever crashed: the change counts from the moment MEMORY.md has its text.

        Raises:
            ValueError: `change_id` is empty, no string or not Unicode.
            OSError: The archive can't be read.
        """
        return self._kept.is_made(change_stem(change_id))

    def versions(self) -> list[ArchivedVersion]:
        """The archived versions of MEMORY.md, newest first; their texts are not read yet.

        A change that created MEMORY.md under an id archived an empty text.

        Raises:
            OSError: The archive can't be read.
        """
        return self._kept.versions()

    def restore_long_term(self, version: str) -> None:
        """Bring an archived version back as MEMORY.md; the present one is archived first.

        The present file may be damaged: it is archived as it is.

        Raises:
            ValueError: No such version is archived.
            CorruptRecordError: The archived file is not UTF-8 or was altered since.
            OSError: It could not be read or written; MEMORY.md is as it was.
        """
        found = next((kept for kept in self.versions() if kept.version == version), None)
        if found is None:
            raise ValueError(f"no version {version!r} is archived; see versions()")
        text = found.read_text()
        if version_of(encode(text, "text")) != version:
            raise CorruptRecordError(Path(found.place), 1, "it was altered since", _ALTERED)
        self._kept.put(encode(self.cleaned(text), "text"))

    def append_history(
        self,
        entry: str,
        *,
        at: datetime | None = None,
        entry_id: str | None = None,
        source: str | None = None,
    ) -> str:
        """Append a dated entry to HISTORY.md, exactly once for its id.

        It is one write, flushed to the disk. Works for a file that is not UTF-8 too: what is
        there is never rewritten, except that the torn start of this same entry, or a character
        cut by a crash, is cut off.

        Args:
            entry: The text. Its ends are stripped, its newlines become LF. When it begins with
                a stamp ``[YYYY-MM-DD HH:MM]``, that is its time.
            at: When it happened, an aware datetime; None means now.
            entry_id: An id under which it is appended only once, also between processes; None
                means a new one.
            source: What it tells of, such as ``cli:user 0-24``.

        Returns:
            The id of the entry.

        Raises:
            ValueError: The text or the id is blank, something holds a lone surrogate, or `at`
                is naive.
            OSError: It could not be written; the file has its previous length.
        """
        entry_id = uuid.uuid4().hex if entry_id is None else entry_id
        made = history_log.new_entry(self.cleaned(entry), at, entry_id, source)
        self._kept.append(made)
        return entry_id

    def has_history_entry(self, entry_id: str) -> bool:
        """Whether HISTORY.md holds the entry of this id, whole; or a file of an earlier year.

        Raises:
            OSError: The file can't be read.
        """
        return self._kept.contains(entry_id)

    def history_entries(self) -> list[HistoryEntry]:
        """The entries of HISTORY.md in the order of the file, which is oldest first.

        Those that were rolled into files of earlier years come before them. In a database the
        order is that in which they were appended.

        Raises:
            CorruptRecordError: The file is not UTF-8.
            OSError: It can't be read, or is a symbolic link.
        """
        return self._kept.entries()

    def roll_history(self, before_year: int) -> int:
        """Move the entries of earlier years from HISTORY.md to HISTORY-2025.md and the like.

        They are read and searched as before. What has no time stays. A database, which doesn't
        read more where there is more, moves nothing.

        Returns:
            How many entries were moved.

        Raises:
            CorruptRecordError: A file is not UTF-8; nothing was moved.
            OSError: It could not be written; nothing is lost.
        """
        return self._kept.roll(before_year)

    def forget_session(self, session_id: str) -> int:
        """Take the entries out of the log that tell of a session, and give their number.

        Facts in MEMORY.md don't say which session they come from, and stay. What is not UTF-8
        stays as it is.

        Raises:
            OSError: It could not be read or written.
        """
        is_meant = lambda entry: history_log.session_of(entry.source) == session_id  # noqa: E731
        return len(self._kept.forget(is_meant))

    def prune_versions(
        self, *, keep: int | None = None, older_than: datetime | None = None
    ) -> list[ArchivedVersion]:
        """Remove archived versions of MEMORY.md, the oldest first.

        One by which an unfinished change of the last day is known stays in any case.

        Args:
            keep: How many of the newest stay at most; None: any number.
            older_than: Those archived before this moment go, an aware datetime; None: none do.

        Returns:
            What was removed.

        Raises:
            ValueError: `keep` is negative, or `older_than` has no zone.
            OSError: One could not be removed.
        """
        if keep is not None and keep < 0:
            raise ValueError(f"keep must be 0 or more, not {keep}")
        if older_than is not None and older_than.tzinfo is None:
            raise ValueError(f"older_than must be an aware datetime, not {older_than!r}")
        return self._kept.prune(keep, older_than)

    def erase(self) -> list[Path]:
        """Remove all that is kept of this scope's memory: facts, versions, log, search index.

        The sessions stay; see `Nanomem.erase` for them.

        Returns:
            The files that were removed; none in a database.

        Raises:
            OSError: One could not be removed; the others were.
        """
        with contextlib.ExitStack() as steps:
            steps.callback(self._kept.forget_name)
            steps.callback(self._index.erase)  # behind the lock, which a search may wait for
            return self._kept.erase()

    def search_history(  # noqa: PLR0913 - what can be asked for, by name
        self,
        query: str,
        *,
        limit: int = 10,
        since: datetime | None = None,
        until: datetime | None = None,
        session_id: str | None = None,
        tags: Sequence[str] = (),
        kinds: Sequence[Kind] = ("said", "logged"),
        neighbours: int = 0,
    ) -> list[SearchHit]:
        """What was said in this scope's sessions, and logged of them, that matches best.

        Words match by their stems, whatever their case ("went" finds "go"), in text without
        spaces wherever they stand. Messages match by what stands around them too. Where no word
        is found, the words that contain one are. A date such as ``2026-05-08`` or ``2026-05``
        finds what is of that day or month. What has the whole query in it, word by word, comes
        first, if that is four words or more. A ``"phrase in double quotes"`` must occur as it
        stands. No character has another meaning. The ranking also knows what an English
        question asks for: when, how many, a month, a speaker by name.

        What was said or logged before the call is found, whoever wrote it. The index that is
        used, in ``.search`` or in the sessions' own database, is built anew where it is damaged
        or gone.

        With an embedder what is near by meaning is found too, among what is asked for, and both
        rankings are fused. The first search embeds the 2,000 newest passages at most, for ten
        seconds or little more; each later one what is new, and as many of the others. Where the
        embedder fails, words alone count, with one warning.

        Args:
            query: Words and phrases. A blank one finds nothing.
            limit: The greatest number of hits; 0 gives none.
            since: Only what is of this moment or later; what has no time is left out then.
            until: Only what is of an earlier moment.
            session_id: Only what was said in this session, or is logged of it.
            tags: Only what has all of these tags, such as ``project`` for ``#project``.
            kinds: Whether to search what was "said", what was "logged", or both.
            neighbours: How many messages before and behind each message are given with it.

        Returns:
            The best first; of equals the newest.

        Raises:
            ValueError: `limit` or `neighbours` is negative, or a time has no zone.
            CorruptRecordError: HISTORY.md is not UTF-8.
            OSError: It can't be read, or is a symbolic link.
        """
        if limit < 0 or neighbours < 0:
            raise ValueError(
                f"limit and neighbours must be 0 or more, not {limit} and {neighbours}"
            )
        asked = Query.of(query, since=since, until=until, session_id=session_id, tags=tuple(tags))
        return self._index.search(
            asked, limit, kinds=kinds, around=neighbours, meaning=self._meaning
        )

    @property
    def _index(self) -> SearchIndex:
        name = "" if self.redaction is None else self.redaction.fingerprint()
        return shared_index(self._sessions, (name, *self.scope), self._new_index)

    def _new_index(self, weights: Weights = WEIGHTS) -> SearchIndex:
        return self.backend.index(self.scope, self._sessions, self.redaction, weights)

    @cached_property
    def _sessions(self) -> SessionManager:
        return SessionManager(self.backend.journal) if self._given is None else self._given

    def get_memory_context(self, tags: Sequence[str] | None = None) -> str:
        """MEMORY.md as one fenced block for a system prompt; "" when it is missing or blank.

        Byte-identical as long as MEMORY.md is. See `fence_memory`.

        Args:
            tags: Such as ``project`` for ``#project``: of the lines that have tags only those
                with one of these are in it, and those under a heading with one. None: all are.

        Raises:
            CorruptRecordError: The file is not UTF-8.
            OSError: It can't be read, or is a symbolic link.
        """
        return fence_memory(shown_with(self.read_long_term(), tags))

    def withheld(self, text: str) -> str:
        """`text` as it may be written, with what is blocked left out and marked."""
        return text if self.redaction is None else self.redaction.withhold(text)

    def cleaned(self, text: str) -> str:
        """`text` as it may be written, without what the redaction takes out.

        Raises:
            RedactionError: It has something that must not be written.
        """
        is_text = isinstance(text, str)  # what is none is refused further on, by its name
        return text if self.redaction is None or not is_text else self.redaction.apply(text)


__all__ = [
    "MEMORY_TAG",
    "ArchivedVersion",
    "HistoryEntry",
    "MemoryStore",
    "MemoryVersion",
    "fence_memory",
]
