"""Starts and kills the processes of `checkpoint_worker`, and knows what they told."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkpoint_graph import at, build, told_of

import langchain_nanomem
from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.manager import SessionManager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Event = dict[str, Any]
Place = tuple[str, str, str]
"""Thread, namespace and id of a checkpoint."""

_SCRIPT = (
    "import disk_calls; disk_calls.watch(); import checkpoint_worker; checkpoint_worker.main()"
)
_PATIENCE_SECONDS = 120


class Forker:
    """A process that has everything loaded and forks the workers."""

    def __init__(self) -> None:
        roots = [Path(__file__).parent, Path(langchain_nanomem.__file__).parents[1]]
        path = os.pathsep.join([*map(str, roots), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            bufsize=0,
        )
        self._unread = b""
        self._until("warm")

    def close(self) -> None:
        self._process.communicate()

    def run(self, *jobs: Event) -> list[Event]:
        """Let processes do these jobs to their end; what they told."""
        self._start(jobs)
        return _checked(self._until("ended"))

    def kill(self, *jobs: Event, after_seconds: list[float]) -> list[Event]:
        """Let processes do these jobs, kill each so long after all began; what they told."""
        self._start(jobs)
        told: list[Event] = []
        pids = []
        while len(pids) < len(jobs):
            told += [self._next()]
            pids += [told[-1]["by"]] if told[-1]["event"] == "ready" else []
        began = time.monotonic()
        for seconds, pid in sorted(zip(after_seconds, pids, strict=True)):
            told += self._told_before(began + seconds)
            with contextlib.suppress(ProcessLookupError):  # it failed, which `_checked` tells
                os.kill(pid, signal.SIGKILL)
        return _checked(told + self._until("ended"))

    def _start(self, jobs: tuple[Event, ...]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(jobs, default=str).encode() + b"\n")

    def _until(self, event: str) -> list[Event]:
        told: list[Event] = []
        while (one := self._next())["event"] != event:
            told += [one]
        return told

    def _told_before(self, deadline: float) -> Iterator[Event]:
        while (event := self._event_before(deadline)) is not None:
            yield event

    def _next(self) -> Event:
        event = self._event_before(time.monotonic() + _PATIENCE_SECONDS)
        assert event is not None, "the workers hang"
        return event

    def _event_before(self, deadline: float) -> Event | None:
        assert self._process.stdout is not None
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                return None
            more = os.read(self._process.stdout.fileno(), 1 << 16)
            assert more, "the workers' parent ended"
            self._unread += more
        line, self._unread = self._unread.split(b"\n", 1)
        event: Event = json.loads(line)
        return event


def _checked(told: list[Event]) -> list[Event]:
    """What was told, if no process failed by itself."""
    assert not [event for event in told if event["event"] == "failed"]
    return told


class Told:
    """What processes told of their puts and writes, in the order in which they told it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.begun: dict[Place, Event] = {}
        """The puts that were called, by what they put."""
        self.done: dict[Place, Event] = {}
        """Those of them that returned."""
        self.writes: defaultdict[Place, defaultdict[tuple[str, int, str], set[str]]]
        """What was written at a checkpoint: task, place and channel, and what it may be."""
        self.writes = defaultdict(lambda: defaultdict(set))
        self.writes_done: dict[tuple[Place, str, int, str], Event] = {}

    def hear(self, events: list[Event]) -> None:
        for event in events:
            place = _place(event)
            if event["event"] == "put":
                self.begun[place] = event
            elif event["event"] == "put done":
                self.done[place] = event
            for index, channel, value in event.get("writes", ()):
                self.writes[place][event["task"], index, channel].add(value)
                if event["event"] == "writes done":
                    self.writes_done[place, event["task"], index, channel] = event
        self.events += events

    def forget_writes(self, may_be_gone: Callable[[Event], bool]) -> None:
        """Forget the acknowledged writes of such events."""
        kept = {key: event for key, event in self.writes_done.items() if not may_be_gone(event)}
        self.writes_done = kept

    def ids(self, thread: str, places: dict[Place, Event]) -> list[str]:
        """The ids of a thread's root checkpoints among these, in their order."""
        return sorted(i for t, namespace, i in places if (t, namespace) == (thread, ""))


def _place(event: Event) -> Place:
    return (event.get("thread", ""), event.get("ns", ""), event.get("id", ""))


def reopened(workspace: Path) -> NanomemSaver:
    """A saver as another process would have it."""
    return NanomemSaver(SessionManager(workspace))


def assert_equal(found: dict[str, Any], told: Told, place: Place) -> None:
    """A checkpoint that was read is the one that was put, with the writes acknowledged at it."""
    assert place in told.begun, f"nobody put {place}"
    assert found["state"] == told.begun[place]["state"], f"changed: {told.begun[place]}"
    for task, index, channel in told.writes.get(place, ()):
        there = {fp for t, c, fp in found["writes"] if (t, c) == (task, channel)}
        if (place, task, index, channel) in told.writes_done:
            assert there & told.writes[place][task, index, channel], f"lost: {task} {channel}"


def assert_whole(saver: NanomemSaver, told: Told, thread: str) -> list[str]:
    """Whatever is there of a thread was put so, with its writes; the ids, oldest first."""
    found = [told_of(checkpoint) for checkpoint in saver.list(at(thread))]
    for checkpoint in found:
        assert_equal(checkpoint, told, (thread, checkpoint["ns"], checkpoint["id"]))
    return [checkpoint["id"] for checkpoint in found][::-1]


def assert_kept(saver: NanomemSaver, told: Told, thread: str) -> None:
    """All that was acknowledged of a thread is there, as it was put."""
    lost = set(told.ids(thread, told.done)) - set(assert_whole(saver, told, thread))
    assert not lost


def assert_newest(saver: NanomemSaver, told: Told, thread: str) -> None:
    """The newest checkpoint is the last acknowledged one, or one that was being put."""
    last = max(told.ids(thread, told.done), default="")
    being_put = [i for i in told.ids(thread, told.begun) if i > last]
    killed = [told.begun[thread, "", i]["by"] for i in being_put]
    assert len(killed) == len(set(killed)), "a process puts one checkpoint of a thread at a time"
    found = saver.get_tuple(at(thread))
    assert (found.config["configurable"]["checkpoint_id"] if found else "") in {last, *being_put}


def assert_goes_together(saver: NanomemSaver, thread: str) -> None:
    """The state is whole: what its list and its delta channel hold, by values and by writes."""
    values = build(saver).get_state(at(thread)).values
    assert values.get("log", []) == values.get("delta", [])


def assert_readable(workspace: Path) -> None:
    """Each line of each file is a record; the last one may be torn."""
    for path in (workspace / "sessions").glob("*.jsonl"):
        for line in path.read_bytes().split(b"\n")[:-1]:
            assert isinstance(json.loads(line), dict)
