"""Copying a workspace between files and PostgreSQL, in either direction."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, NamedTuple

from langchain_nanomem.errors import CopyError, NanomemError
from langchain_nanomem.memory_copy import MemoryCopy
from langchain_nanomem.session_copy import SessionCopy
from langchain_nanomem.workspaces import open_workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_nanomem.journal import Archive, ArchivedSession, JournalInfo
    from langchain_nanomem.memory_backend import MemoryBackend, ScopeMemory
    from langchain_nanomem.workspaces import Source, Workspace

    Progress = Callable[[str, int, int], None]
    """Takes what was copied last, how many sessions and memories were, and of how many."""
    Step = tuple[str, Callable[[], "Copied"]]
    """The name of what it copies, and what does."""


class Copied(NamedTuple):
    """What of the source is in the target now, as it is in the source."""

    sessions: int = 0
    """Sessions, those that were put away included."""
    archived: int = 0
    """Those of them that the source has put away."""
    records: int = 0
    """Records that were written: messages, checkpoints, writes and whatever else."""
    unchanged: int = 0
    """Records that were there already."""
    memories: int = 0
    """Scopes with facts or a log."""
    versions: int = 0
    """Earlier versions of facts."""
    entries: int = 0
    """Entries of logs."""
    deletions: int = 0
    """Notes of sessions that were deleted."""

    def plus(self, other: Copied) -> Copied:
        """Both together."""
        return Copied(*map(sum, zip(self, other, strict=True)))


def copy_workspace(
    source: Source,
    target: Source,
    *,
    source_schema: str | None = None,
    target_schema: str | None = None,
    progress: Progress | None = None,
) -> Copied:
    """Copy all sessions and memories of a workspace into another one, and compare them.

    Sessions come with their checkpoints, pending writes and pointers, each record as it is and
    in its order, so that an interrupt that waits is resumed there; with when they were last
    written, put away and deleted. Memories come with facts, earlier versions and changes, and
    the log. Each is read back and compared. No redaction takes anything out. What is derived,
    such as search indexes, is made anew where it is needed. Where the target has no archive,
    sessions that were put away are as any others.

    The source is only read (files of nanobot get the names that they get wherever they are
    read), and the target may have other sessions and memories. Stopped at any
    point, it goes on when it is called again, also with what has been added to the source since:
    what is there is compared and kept. Nothing is overwritten. Have no agent work on the target
    meanwhile; if one works on the source, call it once more when it has ended.

    Args:
        source: A directory; a URL ``postgresql://…``; a `FileJournal` or `PostgresJournal`; or a
            `psycopg_pool.ConnectionPool`.
        target: Another of these.
        source_schema: The schema of the source's tables, where a URL or a pool is given.
        target_schema: That of the target's.
        progress: Called after each session and memory with its name, how many there are now, and
            of how many.

    Returns:
        What is in the target now.

    Raises:
        FileNotFoundError: The source is not there.
        UnsupportedFormatError: A database is of another version.
        CopyError: Something else is in the target, or something can't be read or written as it
            is; the message names each. All else was copied.
        OSError: It could not be read or written; what was copied is safe, call it again.
        ValueError: An argument is nothing of the kind.
    """
    origin = open_workspace(source, source_schema)
    try:
        if not origin.journal.is_there():
            raise FileNotFoundError(f"{origin.place}: there is no workspace")
        destination = open_workspace(target, target_schema)
        try:
            return _copied(origin, destination, progress)
        finally:
            destination.close()
    finally:
        origin.close()


async def acopy_workspace(
    source: Source,
    target: Source,
    *,
    source_schema: str | None = None,
    target_schema: str | None = None,
    progress: Progress | None = None,
) -> Copied:
    """The same in a thread, in which `progress` is called, too; cancelled, it still ends there."""
    return await asyncio.to_thread(
        copy_workspace,
        source,
        target,
        source_schema=source_schema,
        target_schema=target_schema,
        progress=progress,
    )


def _copied(source: Workspace, target: Workspace, progress: Progress | None) -> Copied:
    failures: list[NanomemError] = []
    sessions = SessionCopy(source.journal, target.journal)
    steps = [
        *_live(source, sessions),
        *_archived(source, sessions, failures),
        *_memories(source.memory, target.memory),
    ]
    done = Copied()
    for number, (name, step) in enumerate(steps, start=1):
        try:
            done = done.plus(step())
        except OSError:  # also of a database: what comes next would fail as well
            raise
        except NanomemError as error:
            failures.append(error)
        if progress is not None:
            progress(name, number, len(steps))
    done = done._replace(deletions=sessions.deletions())
    if failures:
        raise _all_of(failures, done)
    return done


def _live(source: Workspace, sessions: SessionCopy) -> Iterator[Step]:
    for info in source.journal.list():
        yield info.key, functools.partial(_copy_live, sessions, info)


def _copy_live(sessions: SessionCopy, info: JournalInfo) -> Copied:
    counts = sessions.live(info)
    if counts is None:
        return Copied()
    return Copied(sessions=1, records=counts.written, unchanged=counts.unchanged)


def _archived(
    source: Workspace, sessions: SessionCopy, failures: list[NanomemError]
) -> Iterator[Step]:
    archive = source.journal.archive
    if archive is None:
        return
    for name in sorted(archive.states()):
        try:
            one = archive.session(name)
        except FileNotFoundError:  # brought back meanwhile
            continue
        except NanomemError as error:
            failures.append(error)
            continue
        yield one.key, functools.partial(_copy_archived, sessions, one, archive)


def _copy_archived(sessions: SessionCopy, one: ArchivedSession, archive: Archive) -> Copied:
    counts = sessions.archived(one, archive)
    return Copied(sessions=1, archived=1, records=counts.written, unchanged=counts.unchanged)


def _memories(source: MemoryBackend, target: MemoryBackend) -> Iterator[Step]:
    for memory in source.all():
        yield (
            memory.name or "memory",
            functools.partial(_copy_memory, memory, target.named(memory.name)),
        )


def _copy_memory(source: ScopeMemory, target: ScopeMemory) -> Copied:
    kept = MemoryCopy(source, target).run()
    return Copied(memories=int(any(kept)), versions=kept.versions, entries=kept.entries)


def _all_of(failures: list[NanomemError], done: Copied) -> CopyError:
    reasons = "\n".join(f"- {error}" for error in failures)
    error = CopyError(
        f"{len(failures)} could not be copied; {done.sessions} sessions and {done.memories} "
        f"memories are there.\n{reasons}"
    )
    error.__cause__ = failures[0]
    return error
