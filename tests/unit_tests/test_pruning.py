"""Removing checkpoints: what stays is what it was, and what nobody needs is gone.

Graphs write to `Both`: to a `NanomemSaver`, from which they read and checkpoints are removed,
and to an `InMemorySaver` that keeps all, with which the states that stay are compared.
"""

from __future__ import annotations

import operator
import os
import tempfile
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import EmptyInputError
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, _messages_delta_reducer, add_messages
from langgraph.types import Command, Overwrite, Send, interrupt

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.file_journal import FileJournal
from langchain_nanomem.manager import SessionManager

PROGRAMS = int(os.environ.get("NANOMEM_PRUNING_PROGRAMS", "25"))
THREAD = {"configurable": {"thread_id": "chat:1"}}


class Both(BaseCheckpointSaver):
    """Writes to both savers, and reads from the one that checkpoints are removed from."""

    def __init__(self, workspace):
        super().__init__()
        self.workspace, self.all = workspace, InMemorySaver()
        self.restart()

    def restart(self):
        """Go on as a new process would."""
        self.ours = NanomemSaver(SessionManager(self.workspace))

    def get_next_version(self, current, channel):
        return self.ours.get_next_version(current, channel)

    def get_tuple(self, config):
        return self.ours.get_tuple(config)

    def list(self, config, **options):
        return self.ours.list(config, **options)

    def get_delta_channel_history(self, *, config, channels):
        return self.ours.get_delta_channel_history(config=config, channels=channels)

    def put(self, config, checkpoint, metadata, new_versions):
        self.all.put(config, checkpoint, metadata, new_versions)
        return self.ours.put(config, checkpoint, metadata, new_versions)

    def put_writes(self, config, writes, task_id, task_path=""):
        self.all.put_writes(config, writes, task_id, task_path)
        self.ours.put_writes(config, writes, task_id, task_path)

    async def aget_tuple(self, config):
        return await self.ours.aget_tuple(config)

    async def alist(self, config, **options):
        async for found in self.ours.alist(config, **options):
            yield found

    async def aget_delta_channel_history(self, *, config, channels):
        return await self.ours.aget_delta_channel_history(config=config, channels=channels)

    async def aput(self, config, checkpoint, metadata, new_versions):
        self.all.put(config, checkpoint, metadata, new_versions)
        return await self.ours.aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config, writes, task_id, task_path=""):
        self.all.put_writes(config, writes, task_id, task_path)
        await self.ours.aput_writes(config, writes, task_id, task_path)


def extend(value, writes):
    return [*value, *(item for write in writes for item in write)]


class DeltaState(TypedDict, total=False):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer, snapshot_frequency=4)]
    log: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=3)]
    rare: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=50)]
    board: list[Any]
    notes: Annotated[list[Any], operator.add]


class PlainState(TypedDict, total=False):
    messages: Annotated[list[Any], add_messages]
    log: Annotated[list[Any], operator.add]
    rare: Annotated[list[Any], operator.add]
    board: list[Any]
    notes: Annotated[list[Any], operator.add]


class Program:
    """A graph whose node does the next action of a list at each of its steps."""

    def __init__(self, saver, state, durability):
        self.saver, self.durability = saver, durability
        self.actions, self.at, self.count, self.runs = [], 0, 0, 0
        self.graph = self.build(saver, state)
        self.reference = self.build(saver.all, state)

    def build(self, saver, state):
        sub = StateGraph(state)
        sub.add_node("think", lambda _: {"messages": [self.said()], "log": ["within"]})
        sub.add_node("ask", self.ask_within)
        sub.add_edge(START, "think")
        sub.add_edge("think", "ask")
        remembering = StateGraph(state)
        remembering.add_node("count", lambda s: {"log": [len(s.get("log") or [])]})
        remembering.add_edge(START, "count")
        remembering.add_edge("count", END)
        builder = StateGraph(state)
        builder.add_node("act", self.act)
        builder.add_node("worker", lambda task: {"notes": [task["n"]], "log": [task["n"]]})
        builder.add_node("sub", sub.compile())
        builder.add_node("remembering", remembering.compile(checkpointer=True))
        builder.add_edge(START, "act")
        builder.add_conditional_edges("act", self.route)
        for name in ("worker", "sub", "remembering"):
            builder.add_edge(name, "act")
        return builder.compile(checkpointer=saver)

    def said(self, cls=AIMessage):
        self.count += 1
        return cls(f"text {self.count}", id=f"m{self.count}")

    def act(self, state):
        name = self.actions[self.at] if self.at < len(self.actions) else "nothing"
        update = getattr(self, f"do_{name}", lambda _: {"notes": [name]})(state)
        self.at += name not in {"fan", "sub", "remembering"}
        return update

    def route(self, _):
        if self.at >= len(self.actions):
            return END
        name = self.actions[self.at]
        if name not in {"fan", "sub", "remembering"}:
            return "act"
        self.at += 1
        return [Send("worker", {"n": n}) for n in range(3)] if name == "fan" else name

    def ask_within(self, _):
        return {"notes": [interrupt("within")]} if self.count % 2 else {}

    def do_say(self, _):
        return {"messages": [self.said()], "log": [self.count]}

    def do_edit(self, state):
        found = (
            state["messages"][self.count % len(state["messages"])] if state["messages"] else None
        )
        return {"messages": [AIMessage("edited", id=found.id)] if found else [], "log": []}

    def do_remove(self, state):
        return {"messages": [RemoveMessage(m.id) for m in state["messages"][:1]]}

    def do_remove_all(self, _):
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), self.said()]}

    def do_overwrite(self, state):
        return {"log": Overwrite([*(state.get("log") or [])[-2:], "overwritten"])}

    def do_rare(self, _):
        return {"rare": [self.count]}

    def do_board(self, state):
        return {"board": [*(state.get("board") or []), {"n": self.count, "text": "x" * 300}]}

    def do_ask(self, _):
        return {"messages": [self.said()], "notes": [interrupt("may I?")]}

    def do_stop(self, _):
        if self.random_stop():
            raise RuntimeError("stopped")
        return {"log": ["went on"]}

    def random_stop(self):
        return self.count % 3 == 0

    # orders

    def of_this_run(self, config):
        return {**config, "metadata": {"run_id": f"run {self.runs}"}}

    def invoke(self, given, config=THREAD):
        config = self.of_this_run(config)
        try:
            return self.graph.invoke(given, config, durability=self.durability)
        except (RuntimeError, EmptyInputError):  # nothing was given before the first checkpoint
            return {}

    def run(self, order):
        kind, actions, k = order
        self.actions, self.at = actions, 0
        self.runs += 1
        if kind == "turn":
            self.invoke({"messages": [self.said(HumanMessage)]})
        elif kind == "resume":
            self.invoke(Command(resume="yes") if k % 2 else None)
        elif kind == "prune":
            self.saver.ours.prune(["chat:1"], keep_last=k % 4 + 1)
        elif kind == "restart":
            self.saver.restart()
        elif past := list(self.graph.get_state_history(THREAD)):
            old = past[k % len(past)].config
            if kind == "fork":
                edit = {"messages": [HumanMessage("forked", id="m1")], "log": ["forked"]}
                old = self.graph.update_state(self.of_this_run(old), edit, as_node="act")
            self.invoke(None, old)


def state_of(graph, config):
    """What a graph says of a checkpoint, but for what it says of tasks' own errors."""
    state = graph.get_state(config)
    tasks = [(task.id, task.name, task.interrupts, str(task.error)) for task in state.tasks]
    return state.values, state.next, tasks, state.metadata


def assert_kept_states_are_the_same(program, *, writes=True):
    """Each checkpoint that is there is what the saver that keeps all says of it."""
    found = list(program.saver.ours.list(THREAD))
    for one in found:
        original = program.saver.all.get_tuple(one.config)
        assert original.checkpoint["channel_versions"] == one.checkpoint["channel_versions"]
        assert original.checkpoint["channel_values"] == one.checkpoint["channel_values"]
        assert original.parent_config == one.parent_config
        assert original.metadata == one.metadata
        if writes:
            assert original.pending_writes == one.pending_writes
        if not one.config["configurable"]["checkpoint_ns"]:
            ours, stock = (state_of(g, one.config) for g in (program.graph, program.reference))
            assert ours[0] == stock[0]
            if writes:
                assert ours == stock
    return found


ACTIONS = [
    "say", "say", "edit", "remove", "remove_all", "overwrite", "rare", "board", "ask", "fan", "sub",
    "remembering", "stop",
]  # fmt: skip
numbers = st.integers(0, 11)
actions = st.lists(st.sampled_from(ACTIONS), max_size=5)
orders = st.tuples(
    st.sampled_from(["turn", "turn", "resume", "prune", "fork", "replay", "restart"]),
    actions,
    numbers,
)
programs = st.lists(orders, min_size=1, max_size=7).map(
    lambda drawn: [("turn", ["say", "rare"], 0), *drawn, ("prune", [], 2), ("turn", ["say"], 0)]
)
common = settings(
    deadline=None,
    max_examples=PROGRAMS,
    derandomize="NANOMEM_PRUNING_PROGRAMS" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@settings(common)
@given(
    programs,
    st.sampled_from([DeltaState, PlainState]),
    st.sampled_from(["sync", "async", "exit"]),
)
@example([("turn", [action], 0) for action in ACTIONS] + [("prune", [], 1)], DeltaState, "sync")
@example([("turn", [action], 0) for action in ACTIONS] + [("prune", [], 1)], DeltaState, "exit")
def test_what_stays_after_pruning_is_what_it_was(program, state, durability):
    """cases/checkpointer.md 2, 19: random programs, pruned at random points, go on as before."""
    with tempfile.TemporaryDirectory() as workspace:
        run = Program(Both(workspace), state, durability)
        for order in program:
            run.run(order)
            if order[0] == "prune":
                assert_kept_states_are_the_same(run)
        run.saver.restart()
        assert_kept_states_are_the_same(run)


runs = st.lists(
    st.tuples(
        st.sampled_from(["turn", "turn", "resume", "fork", "replay", "restart"]), actions, numbers
    ),
    min_size=1,
    max_size=6,
).map(lambda drawn: [("turn", ["say", "rare"], 0), *drawn])


@settings(common)
@given(
    runs,
    st.sets(st.integers(1, 7), min_size=1),
    st.sampled_from([DeltaState, PlainState]),
    st.sampled_from(["sync", "async", "exit"]),
)
def test_what_stays_after_runs_are_removed_has_its_values(program, gone, state, durability):
    """cases/checkpointer.md 2: any runs may go, from the middle too; later ones keep theirs."""
    with tempfile.TemporaryDirectory() as workspace:
        run = Program(Both(workspace), state, durability)
        for order in program:
            run.run(order)
        names = {f"run {n}" for n in gone}
        kept = [
            found.config
            for found in run.saver.ours.list(THREAD)
            if found.metadata.get("run_id") not in names
        ]
        run.saver.ours.delete_for_runs(sorted(names))
        run.saver.restart()
        found = assert_kept_states_are_the_same(run, writes=False)
        assert [one.config for one in found] == kept
        run.saver.ours.prune(["chat:1"], keep_last=2)
        assert_kept_states_are_the_same(run, writes=False)


@settings(common)
@given(
    runs,
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([DeltaState, PlainState]),
    st.sampled_from(["sync", "async", "exit"]),
)
def test_without_its_last_runs_a_thread_is_what_it_was_before(
    program, count, at_once, state, durability
):
    """Taking runs back leaves nothing of them: writes, resumes, errors; and the thread goes on."""
    with tempfile.TemporaryDirectory() as workspace:
        run = Program(Both(workspace), state, durability)
        before = []
        for order in program:
            run.run(order)
            before.append(state_of(run.graph, THREAD))
        count = min(count, len(program) - 1)
        last = [f"run {len(program) - n}" for n in range(count)]
        if at_once:
            run.saver.ours.delete_for_runs(last)
        for name in reversed(last):
            run.saver.ours.delete_for_runs([name])
        run.saver.restart()
        values, *rest = state_of(run.graph, THREAD)
        assert (values, *rest) == before[-1 - count]
        new = [f"m{run.count + 1}", f"m{run.count + 2}"]
        run.run(("turn", ["say"], 0))
        run.saver.restart()
        after = run.graph.get_state(THREAD).values["messages"]
        assert [m.id for m in after] == [m.id for m in values.get("messages") or []] + new


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_runs_that_are_removed_one_by_one_leave_nothing(tmp_path, durability):
    """What stayed of a run only since a later one was rebuilt from it goes with that one."""
    run = Program(Both(tmp_path), DeltaState, durability)
    for _ in range(3):
        run.run(("turn", ["say"], 0))
    for name in ("run 2", "run 3"):
        run.saver.ours.delete_for_runs([name])
    assert run.saver.ours.get_tuple(THREAD).pending_writes == []
    run.run(("turn", ["say"], 0))
    run.saver.restart()
    after = run.graph.get_state(THREAD).values["messages"]
    assert [m.id for m in after] == ["m1", "m2", "m7", "m8"]
    assert "text 3" not in FileJournal(tmp_path).path("chat:1").read_text()
