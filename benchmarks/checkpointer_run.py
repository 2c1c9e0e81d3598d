"""One workload on one checkpointer, in a process of its own: plays it, reads it, checks it.

    python benchmarks/checkpointer_run.py '{"workload": "chat", "saver": "sqlite", ...}'

prints the measurement as JSON; the fields are those of `Task`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import resource
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from checkpointer_results import Measurement
from checkpointer_savers import SAVERS, Checkpointer
from checkpointer_workloads import WORKLOADS, Author, State, build_graph, size_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

THREAD = "benchmark"
_CONFIG = {"configurable": {"thread_id": THREAD}}
_PLACE = {"configurable": {"thread_id": THREAD, "checkpoint_ns": ""}}
_READS = 15
_LISTS = 5
_LISTED = 10
_LEAST_TURNS = 5

Durability = Literal["sync", "async", "exit"]


@dataclass(frozen=True)
class Task:
    """What is to be measured."""

    workload: str
    saver: str
    turns: int
    durability: Durability
    place: str
    """An empty directory."""


class Run:
    """Plays the turns, in one colour, and times what is asked of the checkpointer."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.workload, self.saver = WORKLOADS[task.workload], SAVERS[task.saver]
        self.author = Author()
        self.state: State = {}
        """After the last turn."""
        self._loop = asyncio.new_event_loop()
        self._place = Path(task.place)

    def measure(self) -> Measurement:
        """Everything, in order; what was opened is closed again.

        Raises:
            AssertionError: A state is not what was put.
        """
        with contextlib.closing(self._loop):
            try:
                return self._measured()
            finally:
                self.saver.discard(self._place)

    def _measured(self) -> Measurement:
        with self._opened() as saver:
            turn_ms = self._played(saver)
            reads = self._read(saver) if self.saver.is_read else {}
        stored_bytes = self.saver.stored_bytes(self._place, saver)
        if self.saver.is_durable:
            reads |= self._reopened()
        elif self.saver.is_read:
            reads["delete_ms"] = self._deleted(saver)
        ends = max(_LEAST_TURNS, self.task.turns // 20)
        return Measurement(
            payload_bytes=self.author.payload_bytes,
            total_ms=sum(turn_ms),
            # the first turn pays for what is imported and compiled once
            first_ms=statistics.median(turn_ms[1 : 1 + ends]),
            last_ms=statistics.median(turn_ms[-ends:]),
            stored_bytes=stored_bytes,
            peak_rss_bytes=_peak_rss_bytes(),
            **reads,
        )

    def _opened(self) -> AbstractContextManager[Checkpointer]:
        return self.saver.open(self._place, self._loop)

    def _call(self, owner: Any, name: str, *args: Any, **options: Any) -> Any:
        """The method's result, by its asynchronous twin where the checkpointer is that."""
        if not self.saver.is_async:
            return getattr(owner, name)(*args, **options)
        return self._loop.run_until_complete(getattr(owner, f"a{name}")(*args, **options))

    def _played(self, saver: Checkpointer) -> list[float]:
        """The time of each turn."""
        graph = self._graph(saver)
        durability, turn_ms = self.task.durability, []
        for turn in range(self.task.turns):
            said = self.workload.turn(self.author, turn)
            start = time.perf_counter()
            self.state = self._call(graph, "invoke", said, _CONFIG, durability=durability)
            turn_ms.append(_ms_since(start))
        found, expected = size_of(self.workload, self.state), self.workload.size(self.task.turns)
        assert found == expected, f"{self.task}: {found} in the state, and not {expected}"
        return turn_ms

    def _graph(self, saver: Checkpointer) -> Any:
        graph = build_graph(self.workload, self.author, has_delta=self.saver.has_delta)
        return graph.compile(checkpointer=saver)

    def _read(self, saver: Checkpointer) -> dict[str, Any]:
        self._check_state(saver)
        graph = self._graph(saver)
        return {
            "get_tuple_ms": _median_ms(lambda: self._get_tuple(saver), _READS),
            "get_state_ms": _median_ms(lambda: self._call(graph, "get_state", _CONFIG), _READS),
            "list_ms": _median_ms(lambda: self._listed(saver), _LISTS),
        }

    def _get_tuple(self, saver: Checkpointer) -> None:
        found = self._call(saver, "get_tuple", _PLACE)
        assert found is not None, f"{self.task}: the thread is gone"

    def _listed(self, saver: Checkpointer) -> None:
        if self.saver.is_async:
            found = self._loop.run_until_complete(_collected(saver))
        else:
            found = list(saver.list(_PLACE, limit=_LISTED))  # type: ignore[arg-type]  # a plain dict
        # with durability "exit" a turn has one checkpoint
        expected = min(_LISTED, self.task.turns)
        assert len(found) >= expected, f"{self.task}: {len(found)} checkpoints were listed"

    def _check_state(self, saver: Checkpointer) -> None:
        """Compare what is read with the state that the last turn gave."""
        read = self._call(self._graph(saver), "get_state", _CONFIG).values
        assert read == self.state, f"{self.task}: the state is not what was put"

    def _reopened(self) -> dict[str, Any]:
        start = time.perf_counter()
        with self._opened() as saver:
            self._get_tuple(saver)
            cold_open_ms = _ms_since(start)
            self._check_state(saver)
            delete_ms = self._deleted(saver)
        left_bytes = self.saver.stored_bytes(self._place, saver)
        return {"cold_open_ms": cold_open_ms, "delete_ms": delete_ms, "left_bytes": left_bytes}

    def _deleted(self, saver: Checkpointer) -> float:
        start = time.perf_counter()
        self._call(saver, "delete_thread", THREAD)
        delete_ms = _ms_since(start)
        assert self._call(saver, "get_tuple", _PLACE) is None, f"{self.task}: not deleted"
        return delete_ms


async def _collected(saver: Checkpointer) -> list[Any]:
    return [found async for found in saver.alist(_PLACE, limit=_LISTED)]  # type: ignore[arg-type]  # a plain dict


def _ms_since(start: float) -> float:
    return 1_000 * (time.perf_counter() - start)


def _median_ms(call: Callable[[], None], times: int) -> float:
    """The median time of a call; each begins with nothing left to collect."""
    took = []
    for _ in range(times):
        gc.collect()
        start = time.perf_counter()
        call()
        took.append(_ms_since(start))
    return statistics.median(took)


def _peak_rss_bytes() -> int:
    """The most memory that this process had."""
    status = Path("/proc/self/status")
    if status.exists():
        # getrusage would count what the parent had before exec
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1_024 * int(peak.split()[1])
    peak_rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak_rss if sys.platform == "darwin" else 1_024 * peak_rss


if __name__ == "__main__":
    print(json.dumps(asdict(Run(Task(**json.loads(sys.argv[1]))).measure())))
