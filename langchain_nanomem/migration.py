"""Taking threads over from another checkpointer, each checkpoint as it is there."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from langgraph.checkpoint.base import WRITES_IDX_MAP

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.errors import MigrationError, NanomemError
from langchain_nanomem.exactness import are_among, checkpoint_difference, parent_of
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.migration_source import Place, Source, config_of, place_of, source_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, PendingWrite

    Progress = Callable[[str, int, int], None]
    """Takes the thread's id, how many of its checkpoints are there now, and of how many."""


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
    `source` and written with that of `target`; nothing is changed in `source`.

    Stopped at any point, it goes on when it is called again: what is there already is
    compared and kept, what the source has more is added. What stands in a thread of the same
    name and is not in the source is never changed. Have no graph run on these threads
    meanwhile. A thread that was deleted in `target` comes back.

    Args:
        source: Any saver with synchronous methods.
        target: Where the threads are to be.
        thread_ids: Only these; all by default.
        progress: Called after each checkpoint.

    Returns:
        What was done.

    Raises:
        TypeError: `thread_ids` is a single string.
        MigrationError: A thread is not in the source, a checkpoint of it can't be read, or
            can't be stored as it is, or another thread of its name is there. The message
            names the thread and the checkpoint. The other threads were copied.
        OSError: It could not be written; what was copied is safe, call it again.
    """
    return _import(source_of(source), target, thread_ids, progress)


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
        return await asyncio.to_thread(
            lambda: _import(source_of(source, waiting), target, thread_ids, progress)
        )
    finally:
        waiting.is_over = True


class _Waiting:
    """Waits in a thread for what runs in the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.is_over = False

    def __call__(self, awaitable: Awaitable[Any]) -> Any:
        if self.is_over:
            raise asyncio.CancelledError
        return asyncio.run_coroutine_threadsafe(_awaited(awaitable), self._loop).result()


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _import(
    source: Source,
    target: NanomemSaver,
    thread_ids: Sequence[str] | None,
    progress: Progress | None,
) -> Imported:
    if isinstance(thread_ids, str):
        raise TypeError("thread_ids must be a sequence of thread ids, not one string")
    done = Imported(0, 0, 0)
    failures: list[MigrationError] = []
    for thread_id in source.threads() if thread_ids is None else dict.fromkeys(thread_ids):
        try:
            written, kept = _Thread(source, target, thread_id).copy(progress)
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


class _Thread:
    """One thread on its way."""

    def __init__(self, source: Source, target: NanomemSaver, thread_id: Any) -> None:
        self._source = source
        self._target = target
        self._id = thread_id
        self._key = str(thread_id)
        # A manager of its own has nothing in memory that was not read from the journal.
        manager = SessionManager(target.sessions.journal, max_cached_sessions=1)
        self._stored = NanomemSaver(manager, serde=target.serde)
        self._known: set[tuple[str, str, Any]] = set()
        """The channel versions that were passed by: namespace, channel, version."""

    def copy(self, progress: Progress | None) -> tuple[int, int]:
        """How many checkpoints were written, and how many were there."""
        places = sorted(self._places())
        there = self._there(set(places))
        is_new = not there and self._is_free()
        try:
            for number, place in enumerate(places, start=1):
                self._copy_checkpoint(place, is_there=place in there)
                if progress is not None:
                    progress(self._key, number, len(places))
        except MigrationError:
            if is_new:
                self._target.delete_thread(self._key)
            raise
        return len(places) - len(there), len(there)

    def _places(self) -> list[Place]:
        with self._reading():
            places = self._source.places(self._id)
        if not places:
            raise self._error("the source has no such thread")
        return places

    def _there(self, places: set[Place]) -> set[Place]:
        """The checkpoints in the target, if they can be a part of the source's."""
        try:
            there = {place_of(found) for found in self._stored.list(_thread(self._key))}
        except ValueError as error:  # a text that can be no session's key
            raise self._error(str(error)) from error
        if foreign := there - places:
            raise self._error(f"the target has it and the source has not. {_LEFT}", max(foreign))
        return there

    def _is_free(self) -> bool:
        """Whether nothing of the name is in the target, where no checkpoint is."""
        if self._stored.sessions.get_or_create(self._key).messages:
            raise self._error(f"the target has a session of this name without a graph. {_LEFT}")
        return not self._target.sessions.journal.read(self._key)[0]

    def _copy_checkpoint(self, place: Place, *, is_there: bool) -> None:
        with self._reading(place):
            found = self._found(place)
        stored = self._stored.get_tuple(config_of(self._key, place)) if is_there else None
        if stored is None:
            self._put(place, found)
        elif different := checkpoint_difference(stored, found, with_writes=False):
            raise self._error(f"{different} is another in the target. {_LEFT}", place)
        elif not are_among(stored.pending_writes, found.pending_writes):
            raise self._error(f"the target has other pending writes. {_LEFT}", place)
        if stored is None or checkpoint_difference(stored, found):
            self._put_writes(place, found)
            self._check(place, found)
        self._known.update(_versions(place, found))

    def _found(self, place: Place) -> CheckpointTuple:
        found = self._source.get(self._id, place)
        if found is None:
            raise ValueError("it has gone meanwhile")
        checkpoint: Any = found.checkpoint
        if not isinstance(checkpoint, dict) or not checkpoint.keys() >= _FIELDS:
            raise ValueError("it is no checkpoint of LangGraph")
        return found

    def _put(self, place: Place, found: CheckpointTuple) -> None:
        parent = parent_of(found)
        config = config_of(self._key, place._replace(checkpoint_id=parent or ""))
        if parent is None:
            del config["configurable"]["checkpoint_id"]
        new = {c: v for n, c, v in _versions(place, found) if (n, c, v) not in self._known}
        with self._writing(place):
            self._target.put(config, found.checkpoint, found.metadata, new, restore=True)

    def _put_writes(self, place: Place, found: CheckpointTuple) -> None:
        config = config_of(self._key, place)
        with self._reading(place):
            known = self._source.task_paths(self._id, place) if found.pending_writes else {}
        for task_id, path, writes in _by_task(found.pending_writes or (), known):
            for special in (True, False):
                some = [write for write in writes if (write[0] in WRITES_IDX_MAP) == special]
                if some:
                    with self._writing(place):
                        self._target.put_writes(config, some, task_id, path)

    def _check(self, place: Place, found: CheckpointTuple) -> None:
        stored = self._stored.get_tuple(config_of(self._key, place))
        if stored is None:
            raise self._error("it is not there after it was written", place)
        if different := checkpoint_difference(stored, found):
            raise self._error(f"{different} cannot be stored as it is", place)

    @contextlib.contextmanager
    def _reading(self, place: Place | None = None) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._error(f"the source cannot give it: {_told(error)}", place) from error

    @contextlib.contextmanager
    def _writing(self, place: Place) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise self._error(str(error), place) from error

    def _error(self, what: str, place: Place | None = None) -> MigrationError:
        where = f"thread {self._key!r}"
        if place is not None:
            where += f", checkpoint {place.checkpoint_id}"
            where += f" of the namespace {place.namespace!r}" if place.namespace else ""
        return MigrationError(f"{where}: {what}")


_FIELDS = {"id", "channel_values", "channel_versions"}
_LEFT = "That thread was left as it is; delete it first, if it is to be replaced"


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, (NanomemError, ValueError)) else repr(error)


def _thread(thread_id: Any) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id}}


def _versions(place: Place, found: CheckpointTuple) -> list[tuple[str, str, Any]]:
    versions = found.checkpoint["channel_versions"]
    return [(place.namespace, channel, version) for channel, version in versions.items()]


def _by_task(
    writes: Iterable[PendingWrite], known: dict[str, str]
) -> Iterator[tuple[str, str, list[tuple[str, Any]]]]:
    """The writes of each task, with a path that keeps the tasks in their order."""
    tasks: dict[str, list[tuple[str, Any]]] = {}
    for task_id, channel, value in writes:
        tasks.setdefault(task_id, []).append((channel, value))
    in_order = sorted(tasks, key=lambda task_id: (known.get(task_id, ""), task_id)) == list(tasks)
    for number, (task_id, written) in enumerate(tasks.items()):
        yield task_id, known.get(task_id, "") if in_order else f"{number:09}", written
