"""Taking threads over from another checkpointer, each checkpoint as it is there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_nanomem.errors import MigrationError
from langchain_nanomem.migration_source import source_of
from langchain_nanomem.thread_copy import ThreadCopy, reading

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from langgraph.checkpoint.base import BaseCheckpointSaver

    from langchain_nanomem.checkpoint import NanomemSaver
    from langchain_nanomem.migration_source import Wait
    from langchain_nanomem.thread_copy import Progress


class Imported(NamedTuple):
    """What an import did."""

    threads: int
    """How many threads are there now as they are in the source."""
    checkpoints: int
    """How many of their checkpoints it wrote."""
    unchanged: int
    """How many were there already."""


def import_checkpoints(
    source: BaseCheckpointSaver[Any],
    target: NanomemSaver,
    *,
    thread_ids: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Copy threads of another checkpointer, and make sure that each checkpoint is the same.

    All namespaces are copied, with parents, metadata, versions, values and pending writes, so
    that time travel works and an interrupt that waits is resumed. Every checkpoint is read
    back from the journal and compared in all its parts and their types. One is held in memory
    at a time, whatever the length of a thread. Values are read with the serializer of
    `source` and written with that of `target`; nothing is changed in `source`. What the
    redaction of `target` takes out of sessions is missing in the copy, and only that.

    Stopped at any point, it goes on when it is called again: what is there already is
    compared and kept, what the source has more is added. What stands in a thread of the same
    name and is not in the source is never changed. Have no graph run on these threads
    meanwhile. A thread that was deleted in `target` comes back.

    Args:
        source: Any saver with synchronous methods.
        target: Where the threads are to be.
        thread_ids: Only these; all by default.
        progress: Called after each checkpoint with the thread's id, how many of its
            checkpoints are there now, and of how many.

    Returns:
        What was done.

    Raises:
        TypeError: `thread_ids` is a single string.
        MigrationError: A thread is not in the source, a checkpoint of it can't be read, or
            can't be stored as it is, or another thread of its name is there. The message
            names the thread and the checkpoint. The other threads were copied; of one that
            failed nothing is there, unless it was before.
        OSError: It could not be written; what was copied is safe, call it again.
    """
    return _import(source, target, thread_ids, progress)


async def aimport_checkpoints(
    source: BaseCheckpointSaver[Any],
    target: NanomemSaver,
    *,
    thread_ids: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Imported:
    """The same with the asynchronous methods of `source`; `progress` is called in a thread.

    `SqliteSaver` and `PostgresSaver` have none: use `import_checkpoints`. When it is cancelled
    it stops at the next checkpoint.
    """
    waiting = _Waiting(asyncio.get_running_loop())
    try:
        return await asyncio.to_thread(_import, source, target, thread_ids, progress, waiting)
    finally:
        waiting.is_over = True


class _Waiting:
    """Waits in a thread for what runs in the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.is_over = False

    def __call__(self, method: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        if self.is_over:
            raise asyncio.CancelledError
        return asyncio.run_coroutine_threadsafe(_called(method, *arguments), self._loop).result()


async def _called(method: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    return await method(*arguments)


def _import(
    saver: BaseCheckpointSaver[Any],
    target: NanomemSaver,
    thread_ids: Sequence[str] | None,
    progress: Progress | None,
    wait: Wait | None = None,
) -> Imported:
    if isinstance(thread_ids, str):
        raise TypeError("thread_ids must be a sequence of thread ids, not one string")
    with reading("the source"):
        source = source_of(saver, wait)
        wanted = source.threads() if thread_ids is None else list(dict.fromkeys(thread_ids))
    done = Imported(0, 0, 0)
    failures: list[MigrationError] = []
    for thread_id in wanted:
        try:
            written, kept = ThreadCopy(source, target, thread_id).run(progress)
            done = Imported(done.threads + 1, done.checkpoints + written, done.unchanged + kept)
        except MigrationError as error:
            failures.append(error)
        target.sessions.forget()  # its journal was read whole; there may be many threads
    if failures:
        raise _all_of(failures, done)
    return done


def _all_of(failures: list[MigrationError], done: Imported) -> MigrationError:
    if len(failures) == 1 and not done.threads:
        return failures[0]
    reasons = "\n".join(f"- {error}" for error in failures)
    error = MigrationError(
        f"{len(failures)} threads could not be taken over; {done.threads} are there.\n{reasons}"
    )
    error.__cause__ = failures[0]
    return error
