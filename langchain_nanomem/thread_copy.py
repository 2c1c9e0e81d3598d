"""Copying one thread of another checkpointer, so that it is the same in every checkpoint."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import WRITES_IDX_MAP

from langchain_nanomem.checkpoint import STORED_APART, TOLD, NanomemSaver
from langchain_nanomem.errors import MigrationError, NanomemError
from langchain_nanomem.exactness import are_among, checkpoint_difference, parent_of
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.migration_source import Place, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple, PendingWrite

    from langchain_nanomem.elements import Elements
    from langchain_nanomem.migration_source import Source

    Progress = Callable[[str, int, int], None]
    """Takes the thread's id, how many of its checkpoints are there now, and of how many."""


class ThreadCopy:
    """Copies one thread from a source into a `NanomemSaver`, checkpoint by checkpoint.

    Args:
        source: Where it is.
        target: Where it is to be.
        thread_id: Its id as the source has it; in the target it is the text of that.
    """

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

    def run(self, progress: Progress | None) -> tuple[int, int]:
        """Copy it. What can't be copied whole is not there afterwards, if it was not before.

        Returns:
            How many checkpoints were written, and how many were there.

        Raises:
            MigrationError: The source can't give it, or it can't be stored as it is.
        """
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
        with reading(self._where()):
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
        with reading(self._where(place)):
            found = self._found(place)
        stored = self._stored.get_tuple(place.config(self._key)) if is_there else None
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
        return _as_written(found, self._target.sessions.elements)

    def _put(self, place: Place, found: CheckpointTuple) -> None:
        parent = parent_of(found)
        config = place._replace(checkpoint_id=parent or "").config(self._key)
        if parent is None:
            del config["configurable"]["checkpoint_id"]
        new = {c: v for n, c, v in _versions(place, found) if (n, c, v) not in self._known}
        with self._writing(place):
            self._target.put(config, found.checkpoint, found.metadata, new, restore=True)

    def _put_writes(self, place: Place, found: CheckpointTuple) -> None:
        config = place.config(self._key)
        with reading(self._where(place)):
            known = self._source.task_paths(self._id, place) if found.pending_writes else {}
        for task_id, path, writes in _by_task(found.pending_writes or (), known):
            for special in (True, False):
                some = [write for write in writes if (write[0] in WRITES_IDX_MAP) == special]
                if some:
                    with self._writing(place):
                        self._target.put_writes(config, some, task_id, path)

    def _check(self, place: Place, found: CheckpointTuple) -> None:
        stored = self._stored.get_tuple(place.config(self._key))
        if stored is None:
            raise self._error("it is not there after it was written", place)
        if different := checkpoint_difference(stored, found):
            in_place = any(
                different.startswith(f"channel_values.{channel}")
                for _, channel, _ in self._known.intersection(_versions(place, found))
            )
            why = _IN_PLACE if in_place else ""
            raise self._error(f"{different} cannot be stored as it is{why}", place)

    @contextlib.contextmanager
    def _writing(self, place: Place) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise self._error(str(error), place) from error

    def _error(self, what: str, place: Place | None = None) -> MigrationError:
        return MigrationError(f"{self._where(place)}: {what}")

    def _where(self, place: Place | None = None) -> str:
        where = f"thread {self._key!r}"
        if place is not None:
            where += f", checkpoint {place.checkpoint_id}"
            where += f" of the namespace {place.namespace!r}" if place.namespace else ""
        return where


_FIELDS = {"id", "channel_values", "channel_versions"}
_IN_PLACE = (
    ": it was changed in place, without a new version of its channel, and NanomemSaver keeps one "
    "value for each version"
)
_LEFT = "That thread was left as it is; delete it first, if it is to be replaced"


@contextlib.contextmanager
def reading(where: str) -> Iterator[None]:
    """Say where it was, of whatever a saver raises: as a `MigrationError`."""
    try:
        yield
    except Exception as error:
        told = isinstance(error, (NanomemError, ValueError))
        reason = str(error) if told else f"it cannot be read ({type(error).__name__}: {error})"
        raise MigrationError(f"{where}: {reason}") from error


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


def _as_written(found: CheckpointTuple, elements: Elements) -> CheckpointTuple:
    """A checkpoint without what the target's redaction takes out of it."""
    if elements.redact is None:
        return found
    values = found.checkpoint["channel_values"]
    clean: Any = elements.clean_fields(found.checkpoint, TOLD | STORED_APART)
    clean["channel_values"] = {
        name: elements.clean_channel(name, value) for name, value in values.items()
    }
    writes = [
        (task, name, elements.clean_channel(name, value))
        for task, name, value in found.pending_writes or ()
    ]
    metadata: Any = elements.clean_fields(found.metadata, TOLD)
    return found._replace(checkpoint=clean, metadata=metadata, pending_writes=writes)
