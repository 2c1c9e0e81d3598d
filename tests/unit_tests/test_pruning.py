"""Removing checkpoints: what stays is what it was, and what nobody needs is gone.

Graphs write to `Both`: to a `NanomemSaver`, from which they read and checkpoints are removed,
and to an `InMemorySaver` that keeps all, with which the states that stay are compared.
"""

from __future__ import annotations

import asyncio
import operator
import os
import tempfile
import threading
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import EmptyInputError
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, _messages_delta_reducer, add_messages
from langgraph.types import Command, Overwrite, Send, interrupt

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.file_journal import FileJournal
from langchain_nanomem.manager import SessionManager

pytestmark = pytest.mark.back_ends("files", "postgres")

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
            roots = ids(self.saver.ours)
            self.saver.ours.prune(["chat:1"], keep_last=k % 4 + 1)
            assert ids(self.saver.ours) == roots[: k % 4 + 1]
        elif kind == "restart":
            self.saver.restart()
        elif past := list(self.graph.get_state_history(THREAD)):
            old = past[k % len(past)].config
            if kind == "fork":
                edit = {"messages": [HumanMessage("forked", id="m1")], "log": ["forked"]}
                old = self.graph.update_state(self.of_this_run(old), edit, as_node="act")
            self.invoke(None, old)


def ids(saver, namespace=""):
    config = {"configurable": {"thread_id": "chat:1", "checkpoint_ns": namespace}}
    return [found.checkpoint["id"] for found in saver.list(config)]


def is_root(config):
    return config["configurable"]["checkpoint_ns"] == ""


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
        if is_root(one.config):
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
    """cases/checkpointer.md 2: any runs may go, wherever: the others keep their values."""
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
        run.run(("turn", ["board"], 0))
    for name in ("run 2", "run 3"):
        run.saver.ours.delete_for_runs([name])
    assert run.saver.ours.get_tuple(THREAD).pending_writes == []
    run.run(("turn", ["board"], 0))
    run.saver.restart()
    after = run.graph.get_state(THREAD).values["messages"]
    assert [m.id for m in after] == ["m1", "m4"]
    assert "text 2" not in FileJournal(tmp_path).path("chat:1").read_text()


# --- the rules one by one ---------------------------------------------------


STATES = pytest.mark.parametrize("state", [DeltaState, PlainState])
DURABILITIES = pytest.mark.parametrize("durability", ["sync", "async", "exit"])


def file_of(workspace):
    return FileJournal(workspace).path("chat:1")


def talk(workspace, turns, state=DeltaState, durability="sync", actions=("say",)):
    run = Program(Both(workspace), state, durability)
    for _ in range(turns):
        run.run(("turn", list(actions), 0))
    return run


@STATES
@DURABILITIES
@pytest.mark.parametrize("count", [1, 2, 5, 1000])
async def test_as_many_stay_as_were_asked_for(call, workspace, state, durability, count):
    """cases/checkpointer.md 2, 19: the newest, no ancestor beside them, each with its state."""
    run = talk(workspace, 7, state, durability, ["say", "rare", "fan"])
    before = ids(run.saver.ours)
    await call(run.saver.ours, "prune", ["chat:1"], keep_last=count)
    for _ in range(2):
        assert ids(run.saver.ours) == before[:count]
        assert_kept_states_are_the_same(run)
        run.saver.restart()


async def test_one_that_is_kept_is_the_latest(call, tmp_path):
    """keep_last=1 leaves, to the byte, what keep_latest leaves."""
    run = talk(tmp_path, 3, actions=["say", "sub", "remembering"])
    content = file_of(tmp_path).read_bytes()
    await call(run.saver.ours, "prune", ["chat:1"], keep_last=1)
    first = file_of(tmp_path).read_bytes()
    file_of(tmp_path).write_bytes(content)
    run.saver.restart()
    await call(run.saver.ours, "prune", ["chat:1"])
    assert file_of(tmp_path).read_bytes() == first


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"keep_last": 0}, ValueError, "keep_last must be 1 or more, not 0"),
        ({"keep_last": -3}, ValueError, "keep_last must be 1 or more, not -3"),
        ({"keep_last": True}, TypeError, "keep_last must be a whole number .* not True"),
        ({"keep_last": 1.0}, TypeError, "keep_last must be a whole number .* not 1.0"),
        ({"keep_last": "2"}, TypeError, "keep_last must be a whole number .* not '2'"),
        ({"keep_last": 2, "strategy": "delete"}, ValueError, '"delete" keeps none'),
        ({"keep_last": 2, "strategy": "odd"}, ValueError, "strategy must be"),
    ],
)
async def test_a_wrong_number_is_refused(call, tmp_path, options, error, says):
    """cases/checkpointer.md 19: what can't be meant is an error that says so; nothing goes."""
    run = talk(tmp_path, 2)
    before = file_of(tmp_path).read_bytes()
    with pytest.raises(error, match=says):
        await call(run.saver.ours, "prune", ["chat:1"], **options)
    assert file_of(tmp_path).read_bytes() == before


async def test_run_ids_are_no_single_text(call, workspace):
    """A text is a sequence of letters, and never meant as run ids."""
    run = talk(workspace, 1)
    with pytest.raises(TypeError, match="run_ids must be a sequence"):
        await call(run.saver.ours, "delete_for_runs", "run 1")
    assert len(ids(run.saver.ours)) > 1


async def test_where_nothing_goes_nothing_is_written(call, tmp_path):
    """A thread of which all is kept stays the file that it is."""
    run = talk(tmp_path, 3)
    before = file_of(tmp_path).stat()
    await call(run.saver.ours, "prune", ["chat:1", "none"], keep_last=100)
    await call(run.saver.ours, "delete_for_runs", ["another"])
    after = file_of(tmp_path).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@STATES
@DURABILITIES
@pytest.mark.parametrize("action", ["ask", "sub"])
async def test_a_pending_interrupt_is_resumed_after_pruning(
    call, workspace, state, durability, action
):
    """cases/checkpointer.md 19: what is asked, within a subgraph too, can still be answered."""
    run = talk(workspace, 3, state, durability)
    run.count += 1  # an odd number of messages is what the subgraph asks about
    run.run(("turn", [action], 0))
    before = await call(run.graph, "get_state", THREAD, subgraphs=True)
    assert len(before.interrupts) == 1
    await call(run.saver.ours, "prune", ["chat:1"], keep_last=2)
    run.saver.restart()
    after = await call(run.graph, "get_state", THREAD, subgraphs=True)
    assert (after.values, after.next, after.interrupts) == (
        before.values, before.next, before.interrupts,
    )  # fmt: skip
    done = await call(run.graph, "invoke", Command(resume="yes"), THREAD, durability=durability)
    assert done["notes"][-1] in {"yes", "nothing"}
    assert "yes" in done["notes"]


async def test_time_travel_works_among_what_is_left(call, workspace):
    """cases/checkpointer.md 14, 19: kept checkpoints can be replayed and forked as before."""
    run = talk(workspace, 5, actions=["say", "remembering", "sub"])
    await call(run.saver.ours, "prune", ["chat:1"], keep_last=9)
    run.saver.restart()
    for config in [found.config for found in run.saver.ours.list(THREAD)]:
        if not is_root(config):
            continue
        assert state_of(run.graph, config) == state_of(run.reference, config)
        run.actions, run.at = [], 0
        values = (await call(run.graph, "get_state", config)).values
        await call(run.graph, "update_state", config, {"log": ["fork"]}, as_node="act")
        assert (await call(run.graph, "get_state", THREAD)).values["log"] == [
            *(values.get("log") or []), "fork",
        ]  # fmt: skip
    assert_kept_states_are_the_same(run)


async def test_a_subgraph_that_remembers_is_kept_as_each_root_found_it(call, workspace):
    """cases/checkpointer.md 14: what an older kept root checkpoint needs of a subgraph stays."""
    run = talk(workspace, 6, PlainState, actions=["remembering"])
    roots = sorted(ids(run.saver.ours))[-5:]
    found = sorted(ids(run.saver.ours, "remembering"))
    needed = {max(one for one in found if one < root) for root in roots[:-1]} | set(found[-5:])
    await call(run.saver.ours, "prune", ["chat:1"], keep_last=5)
    assert set(ids(run.saver.ours, "remembering")) == needed


async def test_a_subgraphs_calls_go_with_their_root(call, workspace):
    """cases/checkpointer.md 19: of the calls, those stay that kept root checkpoints began."""
    run = talk(workspace, 6, actions=["sub"])
    await call(run.saver.ours, "prune", ["chat:1"], keep_last=5)
    roots = ids(run.saver.ours)
    within = [f for f in run.saver.ours.list(THREAD) if f.config["configurable"]["checkpoint_ns"]]
    assert within
    assert {found.metadata["parents"][""] for found in within} <= set(roots)
    assert len(list(run.saver.all.list(THREAD))) > 2 * (len(roots) + len(within))


async def test_messages_that_are_in_no_checkpoint_any_more_go(call, tmp_path):
    """cases/checkpointer.md 19: what was edited or removed goes from the disk, the rest stays."""
    sessions = SessionManager(tmp_path)
    session = sessions.get_or_create("chat:1")
    session.add_message("user", "before the graph")
    sessions.save(session)
    run = talk(tmp_path, 4, PlainState)
    removed = [RemoveMessage("m1"), HumanMessage("edited", id="m3")]
    await call(run.graph, "update_state", THREAD, {"messages": removed}, as_node="act")
    shown = SessionManager(tmp_path).get_or_create("chat:1").messages
    await call(run.saver.ours, "prune", ["chat:1"])
    texts = file_of(tmp_path).read_text()
    assert [text in texts for text in ('text 1"', 'text 2"', 'text 3"', "edited", "before")] == [
        False, True, False, True, True,
    ]  # fmt: skip
    assert SessionManager(tmp_path).get_or_create("chat:1").messages == shown
    assert [message["content"] for message in shown[:2]] == ["before the graph", "text 2"]


@STATES
async def test_space_returns(call, tmp_path, state):
    """cases/checkpointer.md 19: after pruning a file is about as large as its newest state."""
    run = talk(tmp_path, 30, state, actions=["board", "say"])
    before = file_of(tmp_path).stat().st_size
    await call(run.saver.ours, "prune", ["chat:1"])
    after = file_of(tmp_path).stat().st_size
    assert after < before / 2
    content = sum(len(str(value)) for value in run.graph.get_state(THREAD).values.values())
    assert after < 2 * content


async def test_what_is_rarely_written_leaves_no_chain(call, tmp_path):
    """Ancestors of which nothing is needed are not told of, however far the needed one is."""
    run = talk(tmp_path, 1, actions=["rare"])
    for _ in range(25):
        run.run(("turn", ["say"], 0))
    await call(run.saver.ours, "prune", ["chat:1"])
    lines = file_of(tmp_path).read_text().splitlines()
    assert len([line for line in lines if '"_type":"ancestor"' in line]) < 8
    assert run.graph.get_state(THREAD).values["rare"]
    assert_kept_states_are_the_same(run)


async def test_other_processes_notice(call, workspace):
    """cases/checkpointer.md 17: who holds the thread open reads what another has pruned."""
    run = talk(workspace, 4)
    other = NanomemSaver(SessionManager(workspace))
    assert len(list(other.list(THREAD))) > 2
    await call(run.saver.ours, "prune", ["chat:1"], keep_last=2)
    assert ids(other) == ids(run.saver.ours)
    await call(run.saver.ours, "delete_for_runs", ["run 4"])
    assert ids(other) == ids(run.saver.ours) == []
    assert list(other.sessions.get_or_create("chat:1").messages) == []


async def test_writes_that_come_before_their_checkpoint_stay(call, workspace):
    """cases/checkpointer.md 4, 19: a run that goes on while its thread is pruned loses nothing."""
    run = talk(workspace, 2)
    saver = run.saver.ours
    coming = empty_checkpoint()
    config = {"configurable": {"thread_id": "chat:1", "checkpoint_ns": "",
                               "checkpoint_id": coming["id"]}}  # fmt: skip
    await call(saver, "put_writes", config, [("board", [1])], "task")
    await call(saver, "prune", ["chat:1"])
    await call(saver, "delete_for_runs", ["run 1", "run 2"])
    await call(saver, "put", THREAD | {}, coming, {"source": "loop", "step": 9, "parents": {}}, {})
    assert (await call(saver, "get_tuple", config)).pending_writes == [("task", "board", [1])]


async def test_messages_in_metadata_stay(call, workspace):
    """What a kept checkpoint's metadata says stays too, a message in it included."""
    saver = NanomemSaver(SessionManager(workspace))
    told = {"source": "loop", "step": 1, "parents": {}, "note": HumanMessage("a note", id="n")}
    for _ in range(2):
        config = await call(saver, "put", THREAD, empty_checkpoint(), told, {})
    await call(saver, "prune", ["chat:1"])
    reader = NanomemSaver(SessionManager(workspace))
    assert (await call(reader, "get_tuple", config)).metadata["note"] == told["note"]


@STATES
@DURABILITIES
async def test_a_copy_is_whole_however_it_was_pruned(call, tmp_path, state, durability):
    """cases/checkpointer.md 2, 20: values, writes and ancestors are copied; each goes on alone."""
    run = talk(tmp_path, 5, state, durability, ["say", "rare", "sub"])
    saver = run.saver.ours
    await call(saver, "prune", ["chat:1"], keep_last=3)
    await call(saver, "copy_thread", "chat:1", "copy")
    copied = {"configurable": {"thread_id": "copy"}}
    original = [
        state_of(run.graph, found.config) for found in saver.list(THREAD) if is_root(found.config)
    ]
    for checkpoint_id, expected in zip(ids(saver), original, strict=True):
        config = {"configurable": {**copied["configurable"], "checkpoint_id": checkpoint_id}}
        assert state_of(run.graph, config) == expected
    run.actions, run.at = ["say"], 0
    await call(run.graph, "invoke", {"messages": [run.said(HumanMessage)]}, copied)
    await call(saver, "delete_thread", "chat:1")
    values = (await call(run.graph, "get_state", copied)).values
    assert values["messages"][:-2] == original[0][0]["messages"]
    with pytest.raises(ValueError, match="exists already"):
        await call(saver, "copy_thread", "copy", "copy")
    await call(saver, "copy_thread", "chat:1", "nothing to copy")
    assert not FileJournal(tmp_path).path("nothing to copy").exists()


def test_a_copy_beside_a_run_is_the_thread_at_one_moment(workspace):
    """cases/checkpointer.md 17, 20: copies made while a thread grows are whole."""
    run = talk(workspace, 2)
    done = threading.Event()

    def grow():
        for _ in range(15):
            run.run(("turn", ["say"], 0))
        done.set()

    growing = threading.Thread(target=grow)
    growing.start()
    saver, copies = NanomemSaver(SessionManager(workspace)), 0
    while not done.is_set() or copies < 2:
        saver.copy_thread("chat:1", f"copy {copies}")
        copies += 1
    growing.join()
    every = run.graph.get_state(THREAD).values["messages"]
    for number in range(copies):
        copied = {"configurable": {"thread_id": f"copy {number}"}}
        messages = run.graph.get_state(copied).values["messages"]
        assert messages == every[: len(messages)]
        assert len(messages) >= 4


async def test_a_thread_is_pruned_while_it_runs(call, workspace):
    """cases/checkpointer.md 17: pruning beside a running graph loses nothing of its states."""
    run = talk(workspace, 1)
    pruner = NanomemSaver(SessionManager(workspace))
    done = asyncio.Event()

    async def prune():
        while not done.is_set():
            await call(pruner, "prune", ["chat:1"], keep_last=2)
            await asyncio.sleep(0)

    pruning = asyncio.create_task(prune())
    for _ in range(10):
        await asyncio.to_thread(run.run, ("turn", ["say", "rare"], 0))
    done.set()
    await pruning
    assert_kept_states_are_the_same(run)
    assert len(run.graph.get_state(THREAD).values["messages"]) == 22
