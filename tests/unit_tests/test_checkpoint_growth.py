"""What a turn adds to a thread's file: what is new in it, however much there is already."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.manager import SessionManager

CONFIG = {"configurable": {"thread_id": "chat", "checkpoint_ns": ""}}


@dataclass
class Point:
    x: int


class Thread:
    """A thread whose channels are read and put again, turn by turn."""

    def __init__(self, workspace):
        self.workspace = workspace
        self.journal = workspace / "sessions" / "chat.jsonl"
        self.versions = {}
        self.restart()

    def restart(self):
        self.saver = NanomemSaver(SessionManager(self.workspace))

    def read(self):
        return self.saver.get_tuple(CONFIG).checkpoint["channel_values"]

    def put(self, **values):
        for channel in values:
            last = self.versions.get(channel)
            self.versions[channel] = self.saver.get_next_version(last, None)
        checkpoint = {**empty_checkpoint(), "id": str(uuid6())}
        checkpoint |= {"channel_values": values, "channel_versions": dict(self.versions)}
        new = {channel: self.versions[channel] for channel in values}
        self.saver.put(CONFIG, checkpoint, {"source": "loop", "step": 1}, new)

    def growth(self, turn, *, restart=False):
        """The bytes that each of four turns added; `turn` gives the new values for the old."""
        sizes = []
        for number in range(4):
            if restart:
                self.restart()
            before = self.journal.stat().st_size
            values = turn(self.read(), number)
            self.put(**values)
            assert self.read() == values
            sizes.append(self.journal.stat().st_size - before)
        self.restart()
        assert self.read() == values
        return sizes


@pytest.fixture
def thread(tmp_path):
    return Thread(tmp_path)


@pytest.mark.parametrize("restart", [False, True], ids=["one process", "a process a turn"])
def test_several_long_lists_grow_by_what_is_new(thread, restart):
    """Messages beside a log and a list of objects: none of them is written again."""
    thread.put(
        log=[{"n": n, "text": "abc"} for n in range(5000)],
        points=[Point(n) for n in range(600)],
        messages=[HumanMessage(f"{n}", id=f"{n}") for n in range(600)],
    )

    def turn(old, number):
        return {
            "log": [*old["log"], {"new": number}],
            "points": [*old["points"], Point(-number)],
            "messages": [*old["messages"], AIMessage(f"new {number}", id=f"new {number}")],
        }

    assert max(thread.growth(turn, restart=restart)) < 2000


def test_many_lists_grow_by_what_is_new(thread):
    """Thirty lists, and each of them is known again."""
    thread.put(**{f"list {n}": [f"{n} {m} text" for m in range(200)] for n in range(30)})

    def turn(old, number):
        return {name: [*value, f"new {number}"] for name, value in old.items()}

    assert max(thread.growth(turn)) < 8000


@pytest.mark.parametrize("count", [500, 5000])
def test_objects_that_only_the_serializer_takes_are_written_once(thread, count):
    """However many there are, and wherever in the list the new one stands."""
    thread.put(points=[Point(n) for n in range(count)])
    sizes = thread.growth(lambda old, number: {"points": [*old["points"], Point(-1 - number)]})
    assert max(sizes) < 800
    sizes = thread.growth(lambda old, _: {"points": [*old["points"][:-2], *old["points"][-1:]]})
    assert max(sizes) < 800


def test_a_list_full_of_gaps_is_written_anew_once(thread):
    """Every second message gone: the runs of what is left serve every process that comes."""
    thread.put(messages=[HumanMessage(f"{n}", id=f"{n}") for n in range(4000)])
    thread.put(messages=thread.read()["messages"][::2])

    def turn(old, number):
        return {"messages": [*old["messages"], HumanMessage(f"new {number}", id=f"new {number}")]}

    assert max(thread.growth(turn, restart=True)) < 1500
    assert len(thread.read()["messages"]) == 2004
