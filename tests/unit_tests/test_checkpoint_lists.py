"""Lists that are cut, mixed and grown, put and read without a graph: exact, whoever holds what."""

from __future__ import annotations

import os
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from twin import Twin

CONFIG = {"configurable": {"thread_id": "lists", "checkpoint_ns": ""}}
EXAMPLES = int(os.environ.get("NANOMEM_EXACTNESS_PROGRAMS", "30"))


class Lists:
    """One thread with lists of several kinds, which operations change."""

    def __init__(self, workspace):
        self.twin = Twin(workspace)
        self.versions = {}
        self.place = CONFIG
        self.made = 0
        self.kept = []

    def new(self, channel, count):
        """New elements of the kind that a channel holds."""
        self.made += count
        numbers = range(self.made - count, self.made)
        kinds = {
            "messages": lambda n: (HumanMessage, AIMessage)[n % 2](f"{n}", id=f"{n}"),
            "unnamed": lambda n: HumanMessage(f"{n % 3}"),
            "log": lambda n: {"n": n, "of": [n % 4, {"deep": n}]},
            "mixed": lambda n: [n, f"{n} text", float(n % 2), (n,), HumanMessage("m"), -0.0][n % 6],
        }
        return list(map(kinds[channel], numbers))

    def values(self):
        found = self.twin.get_tuple(CONFIG)
        return found.checkpoint["channel_values"] if found else {}

    def put(self, values):
        for channel in values:
            self.versions[channel] = self.twin.get_next_version(self.versions.get(channel), None)
        checkpoint = {**empty_checkpoint(), "id": str(uuid6())}
        checkpoint |= {"channel_values": values, "channel_versions": dict(self.versions)}
        new = {channel: self.versions[channel] for channel in values}
        self.place = self.twin.put(self.place, checkpoint, {"source": "loop", "step": 1}, new)

    def do(self, operation, channel, k):
        """One operation on a channel; the checkpoint after it is put."""
        if operation == "restart":
            self.twin.restart()
        elif operation == "spoil":
            for kept in self.kept:
                kept.additional_kwargs["spoiled"] = kept.content = f"spoiled {k}"
        elif operation == "write":
            self.twin.put_writes(self.place, [(channel, self.new(channel, k))], f"task {k}")
        else:
            values = self.values()
            kept = [one for one in values.get("messages", []) if not int(one.id) % (k + 2)]
            values[channel] = self.changed(operation, values.get(channel, []), channel, k)
            self.put({channel: values[channel]})
            self.kept = kept

    def changed(self, operation, old, channel, k):
        return {
            "grow": lambda: old + self.new(channel, 40 * k),
            "in front": lambda: self.new(channel, k) + old,
            "every second": lambda: old[k % 2 :: 2],
            "without the first": lambda: old[k:],
            "without some": lambda: [one for n, one in enumerate(old) if n % (k + 2)],
            "doubled": lambda: old[: 9 * k] + old,
            "turned": lambda: old[::-1],
            "moved": lambda: old[k:] + old[:k],
            "of another": lambda: old + self.values().get("messages", [])[:k],
            "put between": lambda: [
                one for n, part in enumerate(old) for one in (part, *self.new(channel, n % 5 == k))
            ],
        }[operation]()


operations = st.tuples(
    st.sampled_from(["grow", "grow", "in front", "every second", "without the first", "doubled",
                     "without some", "turned", "moved", "of another", "put between", "restart",
                     "spoil", "write"]),
    st.sampled_from(["messages", "messages", "unnamed", "log", "mixed"]),
    st.integers(0, 6),
)  # fmt: skip


@settings(deadline=None, max_examples=EXAMPLES)
@given(st.lists(operations, max_size=14))
def test_lists_come_back_however_they_were_changed(program):
    """cases/checkpointer.md 10, 11: thousands of gaps, repetitions, restarts, results kept."""
    with tempfile.TemporaryDirectory() as workspace:
        lists = Lists(workspace)
        lists.put({channel: lists.new(channel, 30) for channel in ("messages", "log", "mixed")})
        for operation in program:
            lists.do(*operation)
        assert lists.twin.assert_all_same() >= 1
