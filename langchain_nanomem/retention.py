"""How long things are kept: sessions, the log, versions of the memory."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from langchain_nanomem.errors import NanomemError
from langchain_nanomem.session import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_nanomem.journal import JournalInfo
    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.memory_backend import MemoryBackend, ScopeMemory

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Retention:
    """What is kept, and for how long. A limit of None is none.

    Sessions count from when they were last written to. Those beyond a limit, the oldest first,
    are put into the archive, or deleted; one that is written to meanwhile is not. In a database
    there is no archive: they can only be deleted.

    Raises:
        ValueError: A limit is negative, or `action` is unknown.
    """

    max_age: timedelta | None = None
    """Sessions that were not written to for so long go."""
    max_sessions: int | None = None
    """So many of the newest stay at most."""
    max_bytes: int | None = None
    """So many bytes of the newest stay at most."""
    action: Literal["archive", "delete"] = "archive"
    """An archived session is searched, and comes back when it is used; a deleted one is gone,
    with what of it no consolidation has put into memory."""
    max_archive_age: timedelta | None = None
    """Archived sessions are deleted so long after they were archived."""
    history_years: int | None = None
    """Log entries of this year and so many before it stay in HISTORY.md; earlier ones are moved
    to a file for each year, where they are searched as before. A database has no need of it."""
    max_versions: int | None = None
    """So many archived versions of each MEMORY.md stay at most."""
    max_version_age: timedelta | None = None
    """Versions that were archived longer ago go."""

    def __post_init__(self) -> None:
        if self.action not in {"archive", "delete"}:
            raise ValueError(f'action must be "archive" or "delete", not {self.action!r}')
        for name in self.__dataclass_fields__:
            value: Any = getattr(self, name)
            least: Any = timedelta() if isinstance(value, timedelta) else 0
            if not isinstance(value, (str, type(None))) and value < least:
                raise ValueError(f"{name} must not be negative, and is {value}")

    @property
    def limits_sessions(self) -> bool:
        """Whether there is a limit for sessions."""
        limits = (self.max_age, self.max_sessions, self.max_bytes)
        return any(limit is not None for limit in limits)


@dataclass(frozen=True)
class Retained:
    """What a retention did."""

    archived: list[str] = field(default_factory=list)
    """The sessions that were put away."""
    deleted: list[str] = field(default_factory=list)
    """The sessions that were deleted, and archived ones that were."""
    skipped: list[str] = field(default_factory=list)
    """The sessions that were due and could not be read or removed; they are where they were. Of one
    whose key nobody can tell it is the file."""
    rolled_entries: int = 0
    """Log entries that were moved to files of earlier years."""
    removed_versions: int = 0
    """Archived versions of MEMORY.md that were removed."""
    skipped_memories: list[str] = field(default_factory=list)
    """The memories of which the log could not be read or written, or a version not be removed: of
    files their directories."""


def apply_retention(
    rule: Retention, sessions: SessionManager, backend: MemoryBackend, now: datetime | None = None
) -> Retained:
    """Do what a retention asks for; see `Nanomem.apply_retention`."""
    now = now or utc_now()
    if rule.limits_sessions and rule.action == "archive" and sessions.journal.archive is None:
        raise ValueError(
            f'{sessions.journal!r} keeps no archive; give action="delete" to have sessions beyond '
            "a limit deleted"
        )
    done = Retained()
    for info in _due(rule, sessions, now):
        _remove(rule, sessions, info, done)
    _clear_archive(rule, sessions, now, done)
    rolled, removed = 0, 0
    for one in backend.all():
        rolled += _tried(done, one, lambda memory: _roll(rule, memory, now))
        removed += _tried(done, one, lambda memory: _prune(rule, memory, now))
    return replace(done, rolled_entries=rolled, removed_versions=removed)


def _tried(done: Retained, memory: ScopeMemory, work: Callable[[ScopeMemory], int]) -> int:
    """What the work gives; 0 where it fails, which is noted and keeps nothing else."""
    try:
        return work(memory)
    except (NanomemError, OSError) as error:
        logger.warning("%s: the memory is kept as it is: %s", memory.place, error)
        if memory.place not in done.skipped_memories:
            done.skipped_memories.append(memory.place)
        return 0


def _roll(rule: Retention, memory: ScopeMemory, now: datetime) -> int:
    years = rule.history_years
    return 0 if years is None else memory.roll(now.year - years)


def _prune(rule: Retention, memory: ScopeMemory, now: datetime) -> int:
    older = None if rule.max_version_age is None else now - rule.max_version_age
    if older is None and rule.max_versions is None:
        return 0
    return len(memory.prune(rule.max_versions, older))


def _due(rule: Retention, sessions: SessionManager, now: datetime) -> list[JournalInfo]:
    """The sessions beyond a limit, the oldest first."""
    count, size = 0, 0
    due: list[JournalInfo] = []
    newest_first = sorted(sessions.journal.list(), key=lambda one: one.updated_at, reverse=True)
    for one in newest_first:
        count, size = count + 1, size + one.size_bytes
        is_old = rule.max_age is not None and now - one.updated_at > rule.max_age
        is_many = rule.max_sessions is not None and count > rule.max_sessions
        is_much = rule.max_bytes is not None and size > rule.max_bytes
        if is_old or is_many or is_much:
            due.append(one)
    return due[::-1]


def _remove(rule: Retention, sessions: SessionManager, info: JournalInfo, done: Retained) -> None:
    """Put a session away, or delete it; not one that nobody can read, or that is used just now."""
    key, remove, removed = info.key, sessions.archive, done.archived
    if rule.action == "delete":
        remove, removed = sessions.delete, done.deleted
    try:
        if sessions.journal.is_nameless(info):
            logger.warning("%s is kept: nobody can tell which session it is", info.place)
            done.skipped.append(info.place)
            return
        with sessions.journal.lock(key):
            if sessions.journal.info(key) == info and remove(key):
                removed.append(key)
    except (NanomemError, OSError) as error:
        logger.warning("session %r is kept: %s", key, error)
        done.skipped.append(key)


def _clear_archive(
    rule: Retention, sessions: SessionManager, now: datetime, done: Retained
) -> None:
    archive = sessions.journal.archive
    if rule.max_archive_age is None or archive is None:
        return
    due = [one for one in archive.sessions() if now - one.archived_at > rule.max_archive_age]
    for one in due:
        key = one.key
        try:
            with sessions.journal.lock(key):  # it may have come back and gone again
                if archive.find(key) == one and sessions.delete_archived(key):
                    done.deleted.append(key)
        except (NanomemError, OSError) as error:
            logger.warning("the archived session %r is kept: %s", key, error)
            done.skipped.append(key)
