"""The threads of any saver, one checkpoint at a time.

Of the savers that LangGraph has, what there is can be told without reading a value; any other
one has to tell it with `list`, which reads everything once more.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from langgraph.checkpoint.memory import InMemorySaver
from typing_extensions import override

from langchain_nanomem.checkpoint import config_of
from langchain_nanomem.stored_classes import with_all_classes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

    Wait = Callable[..., Any]
    """Calls a method, with its arguments, in the event loop of the saver; gives its result."""
    Rows = Callable[[str, Sequence[Any]], Iterable[Sequence[Any]]]
    """Gives the rows of a query."""


class Place(NamedTuple):
    """Where a checkpoint stands in its thread. Places sort by age."""

    checkpoint_id: str
    namespace: str

    def config(self, thread_id: Any) -> RunnableConfig:
        """The config that means this one checkpoint."""
        return config_of(thread_id, self.namespace, self.checkpoint_id)


def place_of(found: CheckpointTuple) -> Place:
    """Where a checkpoint stands."""
    configurable = found.config["configurable"]
    return Place(configurable["checkpoint_id"], configurable.get("checkpoint_ns") or "")


def source_of(saver: BaseCheckpointSaver[Any], wait: Wait | None = None) -> Source:
    """The threads of `saver`; where `wait` is given, by its asynchronous methods."""
    if isinstance(saver, InMemorySaver):
        return MemorySource(saver)
    for module, name, is_async, make in _WITH_TABLES:
        kind = getattr(sys.modules.get(module), name, None)
        if kind and isinstance(saver, kind) and is_async == (wait is not None):
            return make(saver, wait)
    return Source(saver, wait)


class Source:
    """The threads of a saver of which nothing more is known."""

    def __init__(self, saver: BaseCheckpointSaver[Any], wait: Wait | None = None) -> None:
        self._saver: Any = with_all_classes(saver)
        self._wait = wait
        self._listed: dict[Any, list[Place]] = {}

    def threads(self) -> list[Any]:
        """The ids of all threads, as the saver has them."""
        for found in self._all(None):
            thread_id = found.config["configurable"]["thread_id"]
            self._listed.setdefault(thread_id, []).append(place_of(found))
        return list(self._listed)

    def places(self, thread_id: Any) -> list[Place]:
        """Where the checkpoints of a thread stand, of all namespaces, in any order."""
        listed = self._listed.pop(thread_id, None)
        config: RunnableConfig = {"configurable": {"thread_id": thread_id}}
        return [place_of(found) for found in self._all(config)] if listed is None else listed

    def get(self, thread_id: Any, place: Place) -> CheckpointTuple | None:
        """A checkpoint; None where it has gone meanwhile."""
        config = place.config(thread_id)
        found: CheckpointTuple | None = (
            self._wait(self._saver.aget_tuple, config)
            if self._wait
            else self._saver.get_tuple(config)
        )
        return found

    def task_paths(self, thread_id: Any, place: Place) -> dict[str, str]:  # noqa: ARG002 - others know
        """The paths of the tasks that wrote at a checkpoint, by their ids, as far as known."""
        return {}

    def _all(self, config: RunnableConfig | None) -> Iterable[CheckpointTuple]:
        if self._wait is None:
            yield from self._saver.list(config)
            return
        found = self._saver.alist(config)
        while (checkpoint := self._wait(anext, found, None)) is not None:
            yield checkpoint


class MemorySource(Source):
    """The threads of an `InMemorySaver`."""

    @override
    def threads(self) -> list[Any]:
        return list(self._saver.storage)

    @override
    def places(self, thread_id: Any) -> list[Place]:
        spaces = self._saver.storage.get(thread_id, {})
        return [Place(id_, namespace) for namespace, found in spaces.items() for id_ in found]

    @override
    def task_paths(self, thread_id: Any, place: Place) -> dict[str, str]:
        written = self._saver.writes.get((thread_id, place.namespace, place.checkpoint_id), {})
        return {task_id: path for task_id, _, _, path in written.values()}


class Tables(NamedTuple):
    """How LangGraph's tables are in a database."""

    mark: str
    """What stands for a parameter there."""
    writes: str
    """The table of the writes."""
    has_paths: bool
    """Whether it has the paths of the tasks."""


_POSTGRES = Tables("%s", "checkpoint_writes", has_paths=True)


class SqlSource(Source):
    """The threads of a saver that keeps them in LangGraph's own tables.

    Args:
        saver: The saver.
        wait: Where its asynchronous methods are to be used.
        rows: Runs a query in its database.
        tables: How they are there.
    """

    def __init__(
        self,
        saver: BaseCheckpointSaver[Any],
        wait: Wait | None,
        *,
        rows: Rows,
        tables: Tables,
    ) -> None:
        super().__init__(saver, wait)
        self._rows = rows
        mark, writes = tables.mark, tables.writes
        self._places = (
            "SELECT checkpoint_id, checkpoint_ns FROM checkpoints "  # noqa: S608 - a parameter's mark
            f"WHERE thread_id = {mark}"
        )
        path = "task_path" if tables.has_paths else "''"
        self._paths = (
            f"SELECT task_id, {path} FROM {writes} "  # noqa: S608 - names from this file
            f"WHERE thread_id = {mark} AND checkpoint_ns = {mark} AND checkpoint_id = {mark}"
        )

    @override
    def threads(self) -> list[Any]:
        return [row[0] for row in self._rows("SELECT DISTINCT thread_id FROM checkpoints", ())]

    @override
    def places(self, thread_id: Any) -> list[Place]:
        return [Place(*row) for row in self._rows(self._places, (str(thread_id),))]

    @override
    def task_paths(self, thread_id: Any, place: Place) -> dict[str, str]:
        at = (str(thread_id), place.namespace, place.checkpoint_id)
        return dict(tuple(row) for row in self._rows(self._paths, at))


_COLUMNS = "PRAGMA table_info(writes)"


def _sqlite(saver: Any, wait: Wait | None) -> Source:
    def rows(query: str, parameters: Sequence[Any]) -> Any:
        with saver.cursor(transaction=False) as cursor:
            return cursor.execute(query, parameters).fetchall()

    has_paths = _has_paths(rows(_COLUMNS, ()))
    return SqlSource(saver, wait, rows=rows, tables=Tables("?", "writes", has_paths))


def _async_sqlite(saver: Any, wait: Wait) -> Source:
    async def fetched(query: str, parameters: Sequence[Any]) -> Any:
        async with saver.lock, saver.conn.execute(query, parameters) as cursor:
            return await cursor.fetchall()

    wait(saver.setup)
    rows: Rows = lambda *query: wait(fetched, *query)  # noqa: E731
    has_paths = _has_paths(rows(_COLUMNS, ()))
    return SqlSource(saver, wait, rows=rows, tables=Tables("?", "writes", has_paths))


def _has_paths(columns: Iterable[Sequence[Any]]) -> bool:
    """Whether SQLite's table has them: files of the savers before 3.1 have not."""
    return any(name == "task_path" for _, name, *_ in columns)


def _postgres(saver: Any, wait: Wait | None) -> Source:
    def rows(query: str, parameters: Sequence[Any]) -> Any:
        with saver._cursor() as cursor:  # noqa: SLF001 - serves connections and pools alike
            cursor.execute(query, parameters)
            return [tuple(row.values()) for row in cursor]

    return SqlSource(saver, wait, rows=rows, tables=_POSTGRES)


def _async_postgres(saver: Any, wait: Wait) -> Source:
    async def fetched(query: str, parameters: Sequence[Any]) -> Any:
        async with saver._cursor() as cursor:  # noqa: SLF001 - serves connections and pools alike
            await cursor.execute(query, parameters)
            return [tuple(row.values()) for row in await cursor.fetchall()]

    rows: Rows = lambda *query: wait(fetched, *query)  # noqa: E731
    return SqlSource(saver, wait, rows=rows, tables=_POSTGRES)


_WITH_TABLES: tuple[tuple[str, str, bool, Callable[..., Source]], ...] = (
    ("langgraph.checkpoint.sqlite", "SqliteSaver", False, _sqlite),
    ("langgraph.checkpoint.sqlite.aio", "AsyncSqliteSaver", True, _async_sqlite),
    ("langgraph.checkpoint.postgres", "PostgresSaver", False, _postgres),
    ("langgraph.checkpoint.postgres.aio", "AsyncPostgresSaver", True, _async_postgres),
)
