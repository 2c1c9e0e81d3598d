"""One measurement of a checkpointer in PostgreSQL: one long thread, or many from many processes.

    python benchmarks/postgres_run.py '{"kind": "long", "saver": "postgres", ...}'

prints what was measured as JSON; the fields are those of `Task`. The database is the one that
NANOMEM_POSTGRES_URL names.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import checkpointer_run
from checkpointer_postgres import wal_counted
from checkpointer_savers import SAVERS, Checkpointer, Saver
from checkpointer_workloads import WORKLOADS, Author, build_graph

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Iterable

_GO = "go"
_CHAT = WORKLOADS["chat"]


@dataclass(frozen=True)
class Task:
    """What is to be measured."""

    kind: Literal["long", "many", "share"]
    """One thread; many from several processes; the share of one of those."""
    saver: str
    turns: int
    """Of each thread."""
    place: str
    """An empty directory, whose name becomes the schema's."""
    threads: int = 1
    processes: int = 1
    first: int = 0
    """The number of a share's first thread; the next is as many further as there are processes."""


@dataclass(frozen=True)
class Long:
    """What one thread took. Times are in ms."""

    payload_bytes: int
    total_ms: float
    first_ms: float
    last_ms: float
    get_tuple_ms: float
    cold_open_ms: float
    stored_bytes: int
    wal_bytes: int


@dataclass(frozen=True)
class Many:
    """What many threads took. Times are in ms."""

    turns_a_second: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    errors: int
    stored_bytes: int
    wal_bytes: int


class LongRun(checkpointer_run.Run):
    """The chat of the other benchmark, with what its turns write to the server's log counted."""

    wal_bytes = 0

    def _played(self, saver: Checkpointer) -> list[float]:
        with wal_counted() as counted:
            turn_ms = super()._played(saver)
        (self.wal_bytes,) = counted
        return turn_ms


def measure_long(task: Task) -> Long:
    """One thread of so many turns, with all that it said read again."""
    run = LongRun(checkpointer_run.Task("chat", task.saver, task.turns, "async", task.place))
    measured = asdict(run.measure()) | {"wal_bytes": run.wal_bytes}
    return Long(**{name: measured[name] for name in Long.__annotations__})


def measure_many(task: Task) -> Many:
    """So many threads, shared out among processes that begin at once."""
    saver, place = SAVERS[task.saver], Path(task.place)
    try:
        with _opened(saver, place) as opened:  # makes the tables
            with wal_counted() as counted:
                seconds, shares = _shared_out(task)
            _check(task, opened)
            stored = saver.stored_bytes(place, opened)
    finally:
        saver.discard(place)
    turn_ms = [one for share in shares for one in share["turn_ms"]]
    cuts = statistics.quantiles(turn_ms, n=100, method="inclusive")
    return Many(
        turns_a_second=len(turn_ms) / seconds,
        p50_ms=cuts[49],
        p95_ms=cuts[94],
        p99_ms=cuts[98],
        errors=sum(share["errors"] for share in shares),
        stored_bytes=stored,
        wal_bytes=counted[0],
    )


def _opened(saver: Saver, place: Path) -> contextlib.AbstractContextManager[Checkpointer]:
    return saver.open(place, asyncio.new_event_loop())


def _shared_out(task: Task) -> tuple[float, list[dict[str, Any]]]:
    """The seconds from the first turn to the last, and what each process has measured."""
    shares = [_started(replace(task, kind="share", first=n)) for n in range(task.processes)]
    for one in shares:
        assert one.stdout is not None
        one.stdout.readline()  # it has loaded and opened everything
    start = time.perf_counter()
    told = [_told(one) for one in _released(shares)]
    return max(one["ended"] for one in told) - start, told


def _started(task: Task) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, json.dumps(asdict(task))]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _released(shares: Iterable[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    for one in (released := list(shares)):
        assert one.stdin is not None
        one.stdin.write(f"{_GO}\n")
        one.stdin.flush()
    return released


def _told(share: subprocess.Popen[str]) -> dict[str, Any]:
    said, _ = share.communicate()
    assert share.returncode == 0, f"a process failed: {share.returncode}"
    told: dict[str, Any] = json.loads(said)
    return told


def play_share(task: Task) -> dict[str, Any]:
    """The turns of one process's threads, a turn of each after the other."""
    turn_ms, errors = [], 0
    with _opened(SAVERS[task.saver], Path(task.place)) as saver:
        author = Author()
        graph: Any = _graph(author, task).compile(checkpointer=saver)
        mine = range(task.first, task.threads, task.processes)
        graph.invoke(_CHAT.turn(author, 0), _config(f"warm-up {task.first}"))
        print("ready", flush=True)
        sys.stdin.readline()
        for turn in range(task.turns):
            for thread in mine:
                said, start = _CHAT.turn(author, turn), time.perf_counter()
                try:
                    graph.invoke(said, _config(str(thread)), durability="async")
                except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                    print(repr(error), file=sys.stderr)
                    errors += 1
                turn_ms.append(1_000 * (time.perf_counter() - start))
        ended = time.perf_counter()  # CLOCK_MONOTONIC: the same for all processes
    return {"turn_ms": turn_ms, "errors": errors, "ended": ended}


def _check(task: Task, saver: Checkpointer) -> None:
    """See that each thread has all that was said in it."""
    graph: Any = _graph(Author(), task).compile(checkpointer=saver)
    for thread in range(task.threads):
        found = len(graph.get_state(_config(str(thread))).values.get("messages", ()))
        assert found == 2 * task.turns, f"{task.saver}: thread {thread} has {found} messages"


def _graph(author: Author, task: Task) -> Any:
    return build_graph(_CHAT, author, has_delta=SAVERS[task.saver].has_delta)


def _config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


_KINDS = {
    "long": lambda task: asdict(measure_long(task)),
    "many": lambda task: asdict(measure_many(task)),
    "share": play_share,
}

if __name__ == "__main__":
    _task = Task(**json.loads(sys.argv[1]))
    print(json.dumps(_KINDS[_task.kind](_task)))
