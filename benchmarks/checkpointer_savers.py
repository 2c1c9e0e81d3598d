"""The checkpointers that are measured, each under its name, and the floor below them all."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import checkpointer_postgres as postgres
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.memory import InMemorySaver
from typing_extensions import override

from langchain_nanomem import FileJournal, NanomemSaver, SessionManager

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from langchain_core.runnables import RunnableConfig

    from langchain_nanomem.file_journal import Fsync

OURS = "nanomem"
IN_POSTGRES = "nanomem-postgres"
FLOOR = "floor"
Checkpointer = BaseCheckpointSaver[Any]


class FloorSaver(BaseCheckpointSaver[int]):
    """Keeps the live objects and writes nothing: what a turn costs is LangGraph's own."""

    def __init__(self) -> None:
        super().__init__()
        self._latest: dict[str, CheckpointTuple] = {}

    @override
    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        latest = self._latest.get(config["configurable"]["thread_id"])
        if latest is None:
            return None
        values = latest.checkpoint["channel_values"]
        # a channel may go on with the list it is given
        own = {name: [*v] if isinstance(v, list) else v for name, v in values.items()}
        return latest._replace(checkpoint={**latest.checkpoint, "channel_values": own})

    @override
    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread_id = config["configurable"]["thread_id"]
        place: RunnableConfig = {
            "configurable": {
                "thread_id": thread_id,
                "checkpoint_ns": config["configurable"].get("checkpoint_ns", ""),
                "checkpoint_id": checkpoint["id"],
            }
        }
        self._latest[thread_id] = CheckpointTuple(place, checkpoint, metadata, None, [])
        return place

    @override
    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Nothing: no run of this benchmark is resumed in the middle of a step."""

    @override
    def get_next_version(self, current: int | None, channel: None) -> int:
        return (current or 0) + 1


@dataclass(frozen=True)
class Saver:
    """One checkpointer as it is measured."""

    title: str
    open: Callable[[Path, AbstractEventLoop], AbstractContextManager[Checkpointer]]
    """Opens it in a directory; the event loop is for those that need one."""
    stored_bytes: Callable[[Path, Checkpointer], int]
    """What it keeps there, once it is closed."""
    discard: Callable[[Path], None] = lambda _: None
    """Removes what it keeps outside the directory."""
    is_async: bool = False
    """Driven by `ainvoke` and the other async methods."""
    has_delta: bool = False
    """The messages are a `DeltaChannel`."""
    is_read: bool = True
    """False for the floor: it has no history to read or to delete."""
    is_durable: bool = True
    """It can be opened again."""
    needs: str = "langgraph"
    """The module of its package."""


def file_bytes(place: Path, _: Checkpointer | None = None) -> int:
    """The size of all files in a directory."""
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def _memory_bytes(_: Path, saver: Checkpointer) -> int:
    """The serialized values that an `InMemorySaver` holds."""
    assert isinstance(saver, InMemorySaver)
    checkpoints = [
        c for thread in saver.storage.values() for ns in thread.values() for c in ns.items()
    ]
    written = [write for writes in saver.writes.values() for write in writes.values()]
    return (
        sum(len(blob) for _, blob in saver.blobs.values())
        + sum(len(kept[0][1]) + len(kept[1][1]) for _, kept in checkpoints)
        + sum(len(write[2][1]) for write in written)
    )


@contextmanager
def _open_floor(_: Path, __: AbstractEventLoop) -> Iterator[Checkpointer]:
    yield FloorSaver()


@contextmanager
def _open_memory(_: Path, __: AbstractEventLoop) -> Iterator[Checkpointer]:
    yield InMemorySaver()


@contextmanager
def _open_ours(
    place: Path, _: AbstractEventLoop, *, fsync: Fsync = "put"
) -> Iterator[Checkpointer]:
    yield NanomemSaver(SessionManager(FileJournal(place, fsync=fsync)))


@contextmanager
def _open_sqlite(place: Path, _: AbstractEventLoop) -> Iterator[Checkpointer]:
    from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 - optional

    with SqliteSaver.from_conn_string(str(place / "checkpoints.sqlite")) as saver:
        yield saver


@contextmanager
def _open_async_sqlite(place: Path, loop: AbstractEventLoop) -> Iterator[Checkpointer]:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # noqa: PLC0415 - optional

    opened = AsyncSqliteSaver.from_conn_string(str(place / "checkpoints.sqlite"))
    saver = loop.run_until_complete(opened.__aenter__())
    try:
        yield saver
    finally:
        loop.run_until_complete(opened.__aexit__(None, None, None))


_ours = Saver("NanomemSaver", _open_ours, file_bytes)
_memory = Saver("InMemorySaver", _open_memory, _memory_bytes, is_durable=False)
_sqlite = Saver("SqliteSaver", _open_sqlite, file_bytes, needs="langgraph.checkpoint.sqlite")
_async_sqlite = replace(_sqlite, title="AsyncSqliteSaver", open=_open_async_sqlite, is_async=True)
_postgres = Saver(
    "PostgresSaver",
    postgres.open_saver,
    postgres.stored_bytes,
    postgres.discard,
    needs="langgraph.checkpoint.postgres",
)


_ours_in_postgres = Saver(
    "NanomemSaver in PostgreSQL",
    postgres.open_ours,
    postgres.stored_bytes,
    postgres.discard,
    needs="psycopg_pool",
)


def _with_delta(name: str, saver: Saver) -> dict[str, Saver]:
    delta = replace(saver, title=f"{saver.title} + DeltaChannel", has_delta=True)
    return {name: saver, f"{name}+delta": delta}


SAVERS = {
    FLOOR: Saver("floor", _open_floor, lambda *_: 0, is_read=False, is_durable=False),
    **_with_delta(OURS, _ours),
    "nanomem-async": replace(_ours, title="NanomemSaver, async", is_async=True),
    "nanomem-record": replace(
        _ours, title="NanomemSaver, fsync=record", open=partial(_open_ours, fsync="record")
    ),
    "nanomem-none": replace(
        _ours, title="NanomemSaver, fsync=none", open=partial(_open_ours, fsync="none")
    ),
    IN_POSTGRES: _ours_in_postgres,
    **_with_delta("memory", _memory),
    **_with_delta("sqlite", _sqlite),
    **_with_delta("async-sqlite", _async_sqlite),
    **_with_delta("postgres", _postgres),
}
"""Every checkpointer by its name. Ours differ from the first in what their names say."""


def default_savers() -> list[str]:
    """The names of those measured when none are chosen: PostgreSQL where it is given."""
    optional = {name for name in SAVERS if name.startswith(OURS) and name != OURS}
    if not os.environ.get(postgres.URL):
        optional |= {"postgres", "postgres+delta"}
    return [name for name in SAVERS if name not in optional]


def is_peer(name: str) -> bool:
    """Whether it is another's: neither ours nor the floor."""
    return name != FLOOR and not name.startswith(OURS)


def lacking(names: list[str]) -> str | None:
    """What must be installed or set before these can be measured; None if nothing."""
    for name in names:
        if not _is_installed(SAVERS[name].needs):
            package = SAVERS[name].needs.replace(".", "-").replace("_", "-")
            return f"{name} needs {package}: install it, or choose others with --savers"
        if "postgres" in name and not os.environ.get(postgres.URL):
            return f"{name} needs a database: name one in {postgres.URL}"
    return None


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
