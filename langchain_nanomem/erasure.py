"""All traces of a user, or of a session, removed, and looked for afterwards."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003 - the annotations of a public dataclass can be resolved
from typing import TYPE_CHECKING

from langchain_nanomem.codec import decode
from langchain_nanomem.errors import NanomemError
from langchain_nanomem.rendering import render_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.memory import MemoryStore
    from langchain_nanomem.records import SessionRecords
    from langchain_nanomem.scopes import Scope

logger = logging.getLogger(__name__)

_LEAST_CHARACTERS = 24
"""What is shorter others may well have said, too."""
_MOST_SAMPLES = 500


@dataclass(frozen=True)
class Erased:
    """What an erasure removed. It is false where there was nothing."""

    whose: str
    """What was asked for, in words."""
    sessions: list[str] = field(default_factory=list)
    """The sessions that were removed, with their checkpoints."""
    archived: list[str] = field(default_factory=list)
    """The archived sessions that were removed."""
    files: list[Path] = field(default_factory=list)
    """The files of the memory that were removed: facts, versions, log."""
    log_entries: int = 0
    """The entries that were taken out of a log that stays."""
    unreadable: list[str] = field(default_factory=list)
    """Sessions that can't be read, so that nobody can tell whose they are: they stay."""
    remains: list[Path] = field(default_factory=list)
    """Files in which something of it is found afterwards. Others may have said the same; in an
    archive, which is compressed, nothing is looked for."""
    notes: list[str] = field(default_factory=list)
    """What could not be told apart, and what else is to be known."""

    def __bool__(self) -> bool:
        return bool(self.sessions or self.archived or self.files or self.log_entries)

    def __str__(self) -> str:
        if not self:
            return f"Nothing is known of {self.whose}: nothing was removed."
        removed = (
            f"Removed of {self.whose}: {len(self.sessions)} sessions, {len(self.archived)} "
            f"archived ones, {len(self.files)} files of memory, {self.log_entries} log entries."
        )
        lines = [removed, *self.notes]
        if self.unreadable:
            lines.append(f"Not readable, so nobody can tell whose: {', '.join(self.unreadable)}.")
        if self.remains:
            lines.append(f"Still found in: {', '.join(map(str, self.remains))}.")
        return "\n".join(lines)


def erase_scope(sessions: SessionManager, store: MemoryStore, whose: str) -> Erased:
    """Remove everything of a scope: sessions, checkpoints, archive, memory, index.

    The sessions go first: a consolidation under way finds its own gone, and writes nothing.

    Args:
        sessions: The sessions.
        store: The memory of the scope.
        whose: Whose it is, in words.

    Raises:
        OSError: Something could not be removed; the same call goes on with the rest.
    """
    keys, unreadable = _sessions_of(sessions, store.scope)
    archived = [one.key for one in sessions.list_archived() if one.scope == store.scope]
    samples = [*_memory_samples(store), *_samples(sessions, keys, archived)]
    for key in keys:
        sessions.delete(key)
    for key in archived:
        sessions.delete_archived(key)
    files = store.erase()
    for key in (*keys, *archived):
        sessions.journal.forget(key)
    remains = _found_again(store.workspace, samples)
    return Erased(whose, keys, archived, files, 0, unreadable, remains)


def erase_session(sessions: SessionManager, store: MemoryStore, key: str) -> Erased:
    """Remove a session: its messages, checkpoints, archive, index, and its entries in the log.

    Args:
        sessions: The sessions.
        store: The memory of its scope.
        key: The session.

    Raises:
        CorruptRecordError: The log is not UTF-8; the session is removed.
        OSError: Something could not be removed; the same call goes on with the rest.
    """
    is_archived = any(one.key == key for one in sessions.list_archived())
    present = [one["key"] for one in sessions.list_sessions() if one["key"] == key]
    archived = [key] if is_archived else []
    samples = list(_samples(sessions, present, archived))
    if present or archived:
        sessions.delete(key)
        sessions.journal.forget(key)
    entries = store.forget_session(key)
    notes = []
    if (present or archived or entries) and store.read_long_term().strip():
        notes.append(
            f"{store.memory_path} and its versions don't say which session a fact is from: look "
            "there for what is to go, too."
        )
    remains = _found_again(store.workspace, samples)
    return Erased(f"session {key!r}", present, archived, [], entries, [], remains, notes)


def _sessions_of(sessions: SessionManager, scope: Scope) -> tuple[list[str], list[str]]:
    """The sessions of a scope, and those of which nobody can tell."""
    found, unreadable = [], []
    for one in sessions.list_sessions():
        try:
            with sessions.reading(one["key"]) as records:
                if (records.scope or ()) == scope:
                    found.append(one["key"])
        except (NanomemError, OSError) as error:
            logger.warning("session %r: nobody can tell whose it is: %s", one["key"], error)
            unreadable.append(one["key"])
    return found, unreadable


def _samples(
    sessions: SessionManager, keys: Sequence[str], archived: Sequence[str]
) -> Iterator[str]:
    """Texts of sessions, by which they are known again."""
    for key in keys:
        with sessions.reading(key) as records:
            yield from _texts(records)
    for key in archived:
        with sessions.reading_archived(key) as records:
            yield from _texts(records)


def _texts(records: SessionRecords) -> Iterator[str]:
    for record in records.messages(records.view()):
        yield from render_words(decode(record)).splitlines()


def _memory_samples(store: MemoryStore) -> Iterator[str]:
    """Lines of the memory and the log, by which they are known again."""
    try:
        yield from store.read_long_term().splitlines()
        for entry in store.history_entries():
            yield from entry.text.splitlines()
    except NanomemError as error:
        logger.warning("%s", error)


def _found_again(workspace: Path, texts: Sequence[str]) -> list[Path]:
    """The files of a workspace that hold one of the texts."""
    telling = {text.strip() for text in texts if len(text.strip()) >= _LEAST_CHARACTERS}
    samples = [text.encode() for text in sorted(telling, key=len, reverse=True)[:_MOST_SAMPLES]]
    found = []
    for path in sorted(workspace.rglob("*")) if samples else ():
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            if any(sample in content for sample in samples):
                found.append(path)
    return found
