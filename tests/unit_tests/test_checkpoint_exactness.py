"""Each checkpoint comes back as it was put: `NanomemSaver` beside `InMemorySaver`, call by call.

Programs are random; a graph runs them with a `Twin`, and in the end all checkpoints are compared
once more, in this process and as a new one would read them.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import operator
import os
import random
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, _messages_delta_reducer, add_messages
from langgraph.types import Command, Overwrite, Send, interrupt
from pydantic import BaseModel, Field
from twin import Mirror, Twin

pytestmark = pytest.mark.back_ends("files", "postgres")

PROGRAMS = int(os.environ.get("NANOMEM_EXACTNESS_PROGRAMS", "100"))
CONFIG = {"configurable": {"thread_id": "twin:1"}}
# Pydantic warns when LangGraph's serializer takes a spoiled message to pieces.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")


# --- graphs that run programs ----------------------------------------------


class Profile(BaseModel):
    """A state of pydantic's kind, with a message and nesting in it."""

    name: str = "nobody"
    tags: list[str] = Field(default_factory=list)
    last: HumanMessage | None = None
    inner: dict[str, Any] = Field(default_factory=dict)


@dataclasses.dataclass
class Preferences:
    """A state of the standard library's kind."""

    tone: str = "plain"
    weights: dict[str, float] = dataclasses.field(default_factory=dict)
    seen: list[int] = dataclasses.field(default_factory=list)


class State(TypedDict, total=False):
    messages: Annotated[list[BaseMessage], add_messages]
    board: list[Any]
    log: Annotated[list[dict[str, Any]], operator.add]
    votes: Annotated[list[Any], operator.add]
    profile: Profile
    preferences: Preferences
    count: int


class SubState(TypedDict, total=False):
    messages: Annotated[list[BaseMessage], add_messages]
    log: Annotated[list[dict[str, Any]], operator.add]
    private: list[BaseMessage]


ROUTED = ("branches", "fan", "subgraph")
"""Actions that are other nodes, not something the node does."""


def pick(items, k):
    return items[k % len(items)] if items else None


# --- what programs keep of results -----------------------------------------


def exchanged(message):
    """A message's dictionary, and the equal one that was put in its place."""
    old = message.additional_kwargs
    message.additional_kwargs = copy.deepcopy(old)
    return old, message.additional_kwargs


def some(found, name):
    """One part of a message that has it, of those that a program was given."""
    return next((part for one in found if (part := getattr(one, name, None))), found)


KEEP = [
    lambda found: found,
    lambda found: found[0],
    lambda found: found[-1].__dict__,
    lambda found: found[0].additional_kwargs,
    lambda found: some(found, "tool_calls"),
    lambda found: some(found, "content") or found,
    lambda found: [copy.copy(one) for one in found],
    lambda found: found[-1].model_copy(),
    lambda found: [exchanged(one) for one in found],
    iter,
    lambda found: deque(found[1:], maxlen=2),
    lambda found: functools.partial(list, found[:1]),
    lambda found: (one for one in found),
    lambda found: [one.__pydantic_extra__ for one in found],
    lambda found: weakref.ref(found[0]),
    lambda found: [found.pop(), *found],
]


def spoil(kept, depth=0):
    """Change everything that can be changed in what was kept."""
    if callable(kept):  # a weak reference, or what makes a list
        kept = kept()
    if isinstance(kept, BaseMessage):
        kept.content = "spoiled"
        kept = kept.__dict__
    parts = kept.values() if isinstance(kept, dict) else kept
    is_whole = isinstance(kept, (dict, list, deque, tuple, Iterator))
    for part in list(parts) if is_whole else ():
        spoil(part, depth + 1)
    if isinstance(kept, dict) and "content" not in kept and len(kept) < 20:
        kept[f"spoiled {len(kept)}"] = [depth]
    elif isinstance(kept, (list, deque)) and len(kept) < 20:
        kept.append("spoiled")


class Program:
    """A graph whose node does the next action of a list at each of its steps."""

    def __init__(self, saver, seed=0):
        self.saver = saver
        self.kept: list[Any] = []
        self.actions: list[Any] = []
        self.at = 0
        self.random = random.Random(seed)
        self.graph = self._build(saver)

    def _build(self, saver):
        sub = StateGraph(SubState)
        sub.add_node("think", self.think)
        sub.add_node("ask", self.ask)
        sub.add_edge(START, "think")
        sub.add_edge("think", "ask")
        sub.add_edge("ask", END)
        builder = StateGraph(State)
        builder.add_node("act", self.act)
        builder.add_node("worker", self.worker)
        builder.add_node("left", lambda _: {"votes": [self.message("left")], "log": [{"by": "l"}]})
        builder.add_node("right", lambda _: {"votes": ["right"], "log": [{"by": "r", "n": [1, 2]}]})
        builder.add_node("sub", sub.compile())
        builder.add_edge(START, "act")
        builder.add_conditional_edges("act", self.route)
        for name in ("worker", "left", "right", "sub"):
            builder.add_edge(name, "act")
        return builder.compile(checkpointer=saver)

    # nodes

    def act(self, state):
        name, k = self.actions[self.at] if self.at < len(self.actions) else ("fan", 0)
        if name in ROUTED:
            return {"count": state.get("count", 0) + 1}
        update = getattr(self, f"do_{name}")(state, k)
        self.at += 1
        return update

    def route(self, _):
        if self.at >= len(self.actions):
            return END
        name, k = self.actions[self.at]
        if name in ROUTED:
            self.at += 1
        if name == "fan":
            return [
                Send("worker", {"n": n, "note": self.message("note")}) for n in range(k % 3 + 1)
            ]
        return {"branches": ["left", "right"], "subgraph": "sub"}.get(name, "act")

    def worker(self, task):
        return {"votes": [task["n"], task["note"]], "messages": [self.message("worker")]}

    def think(self, state):
        return {
            "private": [*state["messages"][-2:], self.message("thought")],
            "messages": [self.message("from within")],
        }

    def ask(self, state):
        state["private"][0].content = "edited within"
        if self.random.random() < 0.3:
            interrupt({"within": state["private"][-1]})
        return {"log": [{"asked": len(state["messages"])}]}

    # what is said

    def message(self, text):
        roll = self.random.randrange(7)
        known = {"id": f"m{self.random.randrange(10**9)}"} if roll % 2 else {}
        calls = [
            {"name": "look", "args": {"at": [1, {"x": None}]}, "id": "c1", "type": "tool_call"}
        ]
        return [
            lambda: HumanMessage(text, **known),
            lambda: AIMessage(text, additional_kwargs={"x": {"y": [1]}}, **known),
            lambda: AIMessage("", tool_calls=calls, usage_metadata=self.usage(), **known),
            lambda: ToolMessage(text, tool_call_id="c1", artifact={"raw": b"\x00\xff"}, **known),
            lambda: AIMessage([{"type": "text", "text": text}, "and more"], name="bot", **known),
            lambda: HumanMessage(text * 40, response_metadata={"a": 1.0, "b": True}, **known),
            lambda: AIMessage(text, invalid_tool_calls=[], additional_kwargs={"n": 1}, **known),
        ][roll]()

    @staticmethod
    def usage():
        return {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}

    # actions: what a node returns, after what it does to the state in place

    def do_say(self, _, k):
        return {"messages": [self.message(f"said {k}") for _ in range(k % 2 + 1)]}

    def do_same_again(self, state, k):
        found = pick(state["messages"], k)
        return {"messages": [found] if found else []}

    def do_edit_in_place(self, state, k):
        if (found := pick(state["messages"], k)) is not None:
            found.content = f"edited {k}"
            found.additional_kwargs.setdefault("x", {})["y"] = [k, True, 1.0]
            if isinstance(found, AIMessage) and isinstance(pick(found.tool_calls, 0), dict):
                found.tool_calls[0]["args"]["at"] = k
        return {"count": k}

    def do_edit_and_say(self, state, k):
        self.do_edit_in_place(state, k)
        return {"messages": [self.message("after an edit")]}

    def do_one_is_true(self, state, k):
        if (found := pick(state["messages"], k)) is not None:
            old = found.additional_kwargs.get("n", 1)
            found.additional_kwargs["n"] = {int: True, bool: 1.0, float: 1}[type(old)]
        return {"messages": [AIMessage("so be it", additional_kwargs={"n": 1})]}

    def do_edit_by_id(self, state, k):
        found = pick(state["messages"], k)
        return {"messages": [AIMessage(f"instead {k}", id=found.id)] if found else []}

    def do_remove(self, state, k):
        found = pick(state["messages"], k)
        return {"messages": [RemoveMessage(found.id)] if found else []}

    def do_remove_all(self, _, k):
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), self.message(f"anew {k}")]}

    def do_overwrite(self, state, k):
        return {"messages": Overwrite(state["messages"][k % 3 :])}

    def do_post(self, state, k):
        """A plain list: messages, text and numbers, in any order, the same ones again."""
        board = [*state.get("board", []), *state["messages"][-2:], f"post {k}", k, k % 2 == 0]
        self.random.shuffle(board)
        return {"board": board[:12]}

    def do_post_in_place(self, state, k):
        board = state.get("board") or []
        board += [self.message("posted"), (1, k), {"deep": [k]}]
        for item in board:
            if isinstance(item, dict):
                item["deep"].append(k)
        return {"board": board}

    def do_unpost(self, *_):
        return {"board": []}

    def do_log(self, _, k):
        return {"log": [{"k": k, "text": "x" * (k * 7), "nested": {"list": [1, 2.5, None]}}]}

    def do_log_in_place(self, state, k):
        if state.get("log"):
            pick(state["log"], k)["k"] = [k, "changed"]
        return {"log": []}

    def do_profile(self, state, k):
        profile = state.get("profile") or Profile()
        profile.tags.append(f"t{k}")
        profile.inner = {"message": self.message("inner"), "k": k}
        profile.last = HumanMessage(f"last {k}")
        return {"profile": profile}

    def do_preferences(self, state, k):
        preferences = state.get("preferences") or Preferences()
        preferences.weights[f"w{k}"] = k / 3
        preferences.seen.append(k)
        return {"preferences": preferences}

    def do_ask(self, _, k):
        answer = interrupt({"question": k, "shown": self.message("shown")})
        return {"messages": [HumanMessage(str(answer))]}

    def do_keep(self, state, k):
        """Keep a part of the state itself, for later."""
        found = list(state["messages"])
        self.kept.append(KEEP[k % 5](found) if found else state)
        return {"count": k}

    def do_spoil(self, *_):
        """Change what was kept in the node, as an edit in place: of this state or an older one."""
        self.spoil()
        return {"count": 0}

    def do_look(self, _, k):
        """Read the thread while it runs, and keep what was read."""
        self.look(k)
        return {"count": k}

    # beside the graph

    def look(self, k):
        """Get a checkpoint, and keep a part of it."""
        past = list(self.saver.list(CONFIG))
        config = pick(past, k // 4).config if past and k % 4 == 0 else CONFIG
        found = self.saver.get_tuple(config)
        values = found.checkpoint["channel_values"] if found else {}
        messages = values.get("messages") or [HumanMessage("nothing yet", id="0")]
        self.kept.append(KEEP[self.random.randrange(len(KEEP))](messages))
        self.kept.append(values.get("board") if k % 2 else values.get("log"))
        self.kept.append(found.pending_writes if found else None)
        self.kept = self.kept[-9:]

    def spoil(self):
        for kept in self.kept:
            spoil(kept)

    def busy(self, order, config):
        """A turn while another thread reads, keeps and spoils what it was given."""
        stopped = threading.Event()
        failed: list[BaseException] = []

        def read():
            try:
                while not stopped.wait(0.001):
                    found = self.saver.get_tuple(CONFIG)
                    spoil(found.checkpoint["channel_values"].get("messages") if found else None)
            except BaseException as error:  # noqa: BLE001 - it is raised by the test's own thread
                failed.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            self.run(("turn", order[1], order[2]), config)
        finally:
            stopped.set()
            reader.join()
        if failed:
            raise failed[0]

    # turns

    def run(self, order, config=CONFIG):
        """One turn; where the graph asks something, it is answered."""
        kind, value, k = order
        if kind == "turn":
            self.actions, self.at = value, 0
            self.invoke({"messages": [HumanMessage(f"turn {k}"), self.message("with it")]}, config)
        elif kind == "again":
            self.invoke(None, config)
        elif kind == "look":
            self.look(k)
        elif kind == "spoil":
            self.spoil()
        elif kind == "restart":
            self.saver.restart()
        elif kind == "busy":
            self.busy(order, config)
        else:
            self.fork(value, k)

    def invoke(self, given, config):
        for _ in range(12):
            answer = self.graph.invoke(given, config, durability="sync")
            if not answer.get("__interrupt__"):
                return
            self.graph.get_state(config, subgraphs=True)
            given = Command(resume="as you like")
            config = CONFIG

    def fork(self, actions, k):
        """Go on from an older checkpoint, with an edit."""
        past = list(self.graph.get_state_history(CONFIG))
        old = pick(past, k)
        if old is None:
            return
        messages = old.values.get("messages") or []
        changes = [
            {"messages": [HumanMessage("forked", id=messages[0].id if messages else "f")]},
            {"messages": [RemoveMessage(m.id) for m in messages[:1]]},
            {"board": ["forked", *messages]},
            {"log": [{"forked": k}]},
        ]
        config = self.graph.update_state(old.config, changes[k % len(changes)], as_node="act")
        self.actions, self.at = actions, 0
        self.invoke({"messages": [self.message("on the fork")]}, config)


ACTIONS = sorted(
    {name.removeprefix("do_") for name in dir(Program) if name.startswith("do_")} | set(ROUTED)
)
numbers = st.integers(0, 9)
actions = st.lists(st.tuples(st.sampled_from(ACTIONS), numbers), max_size=5)
turns = st.tuples(st.just("turn"), actions, numbers)
beside = st.tuples(
    st.sampled_from(["again", "look", "look", "spoil", "restart"]), st.just([]), numbers
)
orders = st.one_of(
    turns, turns, beside, beside, st.tuples(st.sampled_from(["fork", "busy"]), actions, numbers)
)  # fmt: skip
programs = st.tuples(turns, st.lists(orders, max_size=4)).map(lambda drawn: [drawn[0], *drawn[1]])
every_action = [("turn", [(name, k)], k) for k, name in enumerate(ACTIONS)]


common = settings(
    deadline=None,
    derandomize="NANOMEM_EXACTNESS_PROGRAMS" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def assert_exact(program, seed, **options):
    """Run a program with both savers, and compare all that they keep."""
    with tempfile.TemporaryDirectory() as workspace:
        twin = Twin(workspace, **options)
        run = Program(twin, seed)
        for order in program:
            run.run(order)
        assert twin.assert_all_same() >= 3


@settings(common, max_examples=PROGRAMS)
@given(programs, st.integers(0, 999))
@example(every_action, 1)
@example([("turn", [("keep", 0), ("spoil", 0), ("edit_and_say", 0)], 0)], 0)
@example([("turn", [(name, 3) for name in ACTIONS], 1), ("fork", [("say", 1)], 4)], 2)
def test_random_programs_leave_what_the_stock_saver_keeps(program, seed):
    """cases/checkpointer.md 10, 14: each checkpoint of a random program equals InMemorySaver's."""
    assert_exact(program, seed)


@settings(common, max_examples=max(1, PROGRAMS // 10))
@given(programs, st.integers(0, 999))
@example(every_action, 1)
def test_encrypted_programs_leave_what_the_stock_saver_keeps(program, seed):
    """cases/checkpointer.md 10, 21: the same where every value is encrypted."""
    assert_exact(program, seed, serde=EncryptedSerializer(Mirror()))


# --- what LangGraph can do, in both colours ---------------------------------


@pytest.fixture
def twin(workspace):
    return Twin(workspace)


async def past(graph):
    return [state async for state in graph.aget_state_history(CONFIG)]


def asking(saver):
    """A model that calls two tools at once, which both ask first; and a subgraph that counts."""
    counting = StateGraph(Counted)
    counting.add_node("count", lambda _: {"count": 1, "messages": [HumanMessage("counted")]})
    counting.add_edge(START, "count")
    remembered = counting.compile(checkpointer=True)

    async def count(state):
        del state
        return {"log": [{"count": (await remembered.ainvoke({"count": 1}))["count"]}]}

    def count_now(state):
        del state
        return {"log": [{"count": remembered.invoke({"count": 1})["count"]}]}

    def model(state):
        asked = state["messages"][-1].content
        calls = [
            {"name": "tool", "args": {"n": n}, "id": f"{asked}{n}", "type": "tool_call"}
            for n in range(2)
        ]
        return {"messages": [AIMessage("", tool_calls=calls, id=f"calls {asked}")]}

    def tool(call):
        answer = interrupt({"may I": call})
        return {"messages": [ToolMessage(f"{answer}", tool_call_id=call["id"], id=call["id"])]}

    builder = StateGraph(State)
    builder.add_node("model", model)
    builder.add_node("tool", tool)
    builder.add_node("count", RunnableLambda(count_now, count))
    builder.add_edge(START, "model")
    builder.add_conditional_edges(
        "model", lambda state: [Send("tool", c) for c in state["messages"][-1].tool_calls], ["tool"]
    )
    builder.add_edge("tool", "count")
    return builder.compile(checkpointer=saver)


class Counted(TypedDict):
    count: Annotated[int, operator.add]
    messages: Annotated[list[BaseMessage], add_messages]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_interrupts_resume_and_time_travel_are_as_with_the_stock_saver(
    twin, call, durability
):
    """cases/checkpointer.md 14: several pending tool calls, a restart, forks; each durability."""
    options = {"durability": durability}
    graph = asking(twin)
    first = await call(graph, "invoke", {"messages": [HumanMessage("a")]}, CONFIG, **options)
    assert len(first["__interrupt__"]) == 2
    # Which of two tools that run side by side asks first is a matter of chance.
    asked = sorted(first["__interrupt__"], key=lambda one: one.value["may I"]["id"])
    one, two = (interrupted.id for interrupted in asked)
    await call(graph, "invoke", Command(resume={one: "yes"}), CONFIG, **options)
    twin.restart()
    graph = asking(twin)
    state = await call(graph, "get_state", CONFIG, subgraphs=True)
    assert len(state.interrupts) == 1
    done = await call(graph, "invoke", Command(resume={two: "no"}), CONFIG, **options)
    assert [m.content for m in done["messages"][-2:]] == ["yes", "no"]
    assert done["log"] == [{"count": 2}]
    second = await call(graph, "invoke", {"messages": [HumanMessage("b")]}, CONFIG, **options)
    answers = {asked.id: "both" for asked in second["__interrupt__"]}
    done = await call(graph, "invoke", Command(resume=answers), CONFIG, **options)
    assert done["log"] == [{"count": 2}, {"count": 4}]
    old = [state for state in await past(graph) if state.next]
    for state in old[:3]:  # time travel: run on from an older checkpoint
        await call(graph, "invoke", None, state.config, **options)
        await call(graph, "get_state", CONFIG, subgraphs=True)
    edit = {"messages": [HumanMessage("edited", id=old[-1].values["messages"][0].id)]} if (
        old[-1].values.get("messages")
    ) else {"log": [{"edited": 1}]}  # fmt: skip
    forked = await call(graph, "update_state", old[-1].config, edit, as_node="count")
    await call(graph, "invoke", {"messages": [HumanMessage("c")]}, forked, **options)
    twin.assert_all_same()


async def test_edits_in_place_do_not_reach_older_checkpoints(twin, call):
    """cases/checkpointer.md 10: a node that edits old messages, 30 times over, nested and typed."""

    def edit(state):
        for place, message in enumerate(state["messages"]):
            nested = message.additional_kwargs.setdefault("x", {"y": []})
            nested["y"].append(len(state["messages"]))
            nested["flag"] = [1, True, 1.0][len(nested["y"]) % 3]
            if place % 2:
                message.content = [{"type": "text", "text": f"{len(nested['y'])}"}]
        return {"messages": [AIMessage(f"{len(state['messages'])}")]}

    builder = StateGraph(State)
    builder.add_node("edit", edit)
    builder.add_edge(START, "edit")
    graph = builder.compile(checkpointer=twin)
    for turn in range(12):
        given = {"messages": [HumanMessage(f"{turn}", id=f"h{turn}")]}
        await call(graph, "invoke", given, CONFIG, durability="sync")
    assert twin.assert_all_same() == 36


class DeltaState(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer, snapshot_frequency=3)]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_delta_channels_are_as_with_the_stock_saver(twin, call, durability):
    """cases/checkpointer.md 2, 14: histories of delta channels, forks and restarts included."""

    def build():
        builder = StateGraph(DeltaState)
        for name in ("left", "right"):
            text = f"{name} {{}}".format
            builder.add_node(
                name, lambda s, text=text: {"messages": [AIMessage(text(len(s["messages"])))]}
            )
            builder.add_edge(START, name)
        return builder.compile(checkpointer=twin)

    graph = build()
    for turn in range(5):
        given = {"messages": [HumanMessage(f"{turn}", id=f"h{turn}")]}
        await call(graph, "invoke", given, CONFIG, durability=durability)
        if turn == 2:
            twin.restart()
            graph = build()
    old = (await past(graph))[-3]
    edits = [HumanMessage("edited", id="h0"), RemoveMessage("h1")]
    config = await call(graph, "update_state", old.config, {"messages": edits[:1]}, as_node="left")
    await call(graph, "invoke", {"messages": [HumanMessage("f")]}, config, durability=durability)
    await call(graph, "update_state", CONFIG, {"messages": edits}, as_node="right")
    assert (await call(graph, "get_state", CONFIG)).values["messages"]
    await past(graph)
    twin.assert_all_same()


async def test_reordered_and_repeated_messages_come_back_so(twin, call):
    """cases/checkpointer.md 10: a plain list in any order, with one message many times."""
    message = AIMessage("one", id="1")
    boards = [
        [message, HumanMessage("two", id="2")],
        [HumanMessage("two", id="2"), message, message],
        [message] * 40,
        [*(HumanMessage(f"{n}", id=f"{n % 7}") for n in range(60)), message],
        [],
        [HumanMessage(f"{n}", id=f"{n % 7}") for n in reversed(range(60))],
    ]
    given = iter(boards)
    builder = StateGraph(State)
    builder.add_node("post", lambda _: {"board": next(given)})
    builder.add_edge(START, "post")
    graph = builder.compile(checkpointer=twin)
    for _ in boards:
        await call(graph, "invoke", {"count": 1}, CONFIG, durability="sync")
    shown = [state.values.get("board") for state in await past(graph) if not state.next]
    assert shown[::-1] == boards
    twin.assert_all_same()
