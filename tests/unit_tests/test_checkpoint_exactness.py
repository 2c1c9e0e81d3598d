"""Each checkpoint comes back as it was put: `NanomemSaver` beside `InMemorySaver`, call by call.

`Twin` forwards every call of a graph to both savers and compares what they answer. Programs
are random; a graph runs them, and in the end all checkpoints are compared once more, in this
process and as a new one would read them.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
import os
import random
import tempfile
import threading
from itertools import zip_longest
from typing import Annotated, Any, TypedDict

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.types import Command, Overwrite, Send, interrupt
from pydantic import BaseModel, Field

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.manager import SessionManager

PROGRAMS = int(os.environ.get("NANOMEM_EXACTNESS_PROGRAMS", "100"))
CONFIG = {"configurable": {"thread_id": "twin:1"}}


# --- comparing --------------------------------------------------------------


def parts_of(value, where=""):
    """Every part of a value, however deep: where it stands, its class, and itself if it is one."""
    if isinstance(value, BaseModel):
        parts = {**value.__dict__, **(value.__pydantic_extra__ or {})}
    elif dataclasses.is_dataclass(value):
        parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif isinstance(value, (list, tuple)):
        parts = dict(enumerate(value))
    else:
        parts = value
    if not isinstance(parts, dict):
        return [(where, type(value), value)]
    found = [(where, type(value), list(parts))]
    for name, part in parts.items():
        found += parts_of(part, f"{where}.{name}")
    return found


def assert_same(ours, stock, what):
    """Two values are equal, in the types of all their parts and in the order of their keys."""
    different = [
        pair for pair in zip_longest(parts_of(ours, what), parts_of(stock, what)) if len(set(map(repr, pair))) > 1
    ]
    assert not different, "\n".join(f"ours  {one}\nstock {other}" for one, other in different[:5])


def place(config):
    if config is None:
        return None
    configurable = config["configurable"]
    return tuple(configurable.get(name) for name in ("thread_id", "checkpoint_ns", "checkpoint_id"))


def assert_same_tuples(ours, stock):
    """Two answers of `get_tuple` are the same in every part."""
    assert (ours is None) == (stock is None)
    if stock is not None:
        assert place(ours.config) == place(stock.config)
        assert place(ours.parent_config) == place(stock.parent_config)
        assert_same(
            dict(sorted(ours.checkpoint.items())), dict(sorted(stock.checkpoint.items())), "checkpoint"
        )
        assert_same(ours.metadata, stock.metadata, "metadata")
        assert_same(ours.pending_writes, stock.pending_writes, "writes")


def by_place(found):
    """Checkpoints by namespace, each newest first: in what order namespaces come is free."""
    spaces: dict[str, list[Any]] = {}
    for checkpoint in found:
        spaces.setdefault(checkpoint.config["configurable"]["checkpoint_ns"], []).append(checkpoint)
    return spaces


def assert_same_lists(ours, stock):
    ours, stock = by_place(ours), by_place(stock)
    assert ours.keys() == stock.keys()
    for namespace, found in stock.items():
        assert len(ours[namespace]) == len(found)
        for one, other in zip(ours[namespace], found, strict=True):
            assert_same_tuples(one, other)


def _held_still(checkpoint, metadata):
    """The checkpoint itself; of an input's, whose put LangGraph doesn't wait for, a copy."""
    return copy.deepcopy(checkpoint) if metadata["source"] == "input" else checkpoint


class Twin(BaseCheckpointSaver):
    """Forwards each call to both savers, and compares what they answer."""

    def __init__(self, sessions):
        super().__init__()
        self.ours = NanomemSaver(sessions)
        self.stock = InMemorySaver()
        self.compared = 0
        self._one_call = threading.RLock()

    def get_next_version(self, current, channel):
        return self.ours.get_next_version(current, channel)

    def get_tuple(self, config):
        with self._one_call:
            ours = self.ours.get_tuple(config)
            assert_same_tuples(ours, self.stock.get_tuple(config))
            self.compared += 1
            return ours

    def list(self, config, **options):
        with self._one_call:
            ours = list(self.ours.list(config, **options))
            if options.get("limit") is None:
                assert_same_lists(ours, list(self.stock.list(config, **options)))
            return iter(ours)

    def put(self, config, checkpoint, metadata, new_versions):
        with self._one_call:
            checkpoint = _held_still(checkpoint, metadata)
            answer = self.ours.put(config, checkpoint, metadata, new_versions)
            assert answer == self.stock.put(config, checkpoint, metadata, new_versions)
            return answer

    def put_writes(self, config, writes, task_id, task_path=""):
        # Writes are put beside the next node, which may edit them: both get one state of them.
        with self._one_call:
            writes = copy.deepcopy(writes)
            self.ours.put_writes(config, writes, task_id, task_path)
            self.stock.put_writes(config, writes, task_id, task_path)

    def delete_thread(self, thread_id):
        with self._one_call:
            self.ours.delete_thread(thread_id)
            self.stock.delete_thread(thread_id)

    def get_delta_channel_history(self, *, config, channels):
        with self._one_call:
            ours = self.ours.get_delta_channel_history(config=config, channels=channels)
            stock = self.stock.get_delta_channel_history(config=config, channels=channels)
            assert_same(ours, stock, "history")
            return ours

    async def aget_tuple(self, config):
        ours = await self.ours.aget_tuple(config)
        assert_same_tuples(ours, await self.stock.aget_tuple(config))
        self.compared += 1
        return ours

    async def alist(self, config, **options):
        ours = [found async for found in self.ours.alist(config, **options)]
        if options.get("limit") is None:
            assert_same_lists(ours, list(self.stock.list(config, **options)))
        for found in ours:
            yield found

    async def aput(self, config, checkpoint, metadata, new_versions):
        checkpoint = _held_still(checkpoint, metadata)
        answer = await self.ours.aput(config, checkpoint, metadata, new_versions)
        assert answer == self.stock.put(config, checkpoint, metadata, new_versions)
        return answer

    async def aput_writes(self, config, writes, task_id, task_path=""):
        self.put_writes(config, writes, task_id, task_path)

    def assert_all_same(self, workspace):
        """All checkpoints, one by one and listed, here and as a new process reads them."""
        stock = list(self.stock.list(None))
        for saver in (self.ours, NanomemSaver(SessionManager(workspace))):
            assert_same_lists(list(saver.list(None)), stock)
            for found in stock:
                assert_same_tuples(saver.get_tuple(found.config), found)
        return len(stock)


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


class Program:
    """A graph whose node does the next action of a list at each of its steps."""

    def __init__(self, saver, seed=0):
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
            return [Send("worker", {"n": n, "note": self.message("note")}) for n in range(k % 3 + 1)]
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
        calls = [{"name": "look", "args": {"at": [1, {"x": None}]}, "id": "c1", "type": "tool_call"}]
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
            if isinstance(found, AIMessage) and found.tool_calls:
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

    # turns

    def run(self, order, config=CONFIG):
        """One turn; where the graph asks something, it is answered."""
        kind, value, k = order
        if kind == "turn":
            self.actions, self.at = value, 0
            self.invoke({"messages": [HumanMessage(f"turn {k}"), self.message("with it")]}, config)
        elif kind == "again":
            self.invoke(None, config)
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
    {name.removeprefix("do_") for name in dir(Program) if name.startswith("do_")}
    | set(ROUTED)
)
numbers = st.integers(0, 9)
actions = st.lists(st.tuples(st.sampled_from(ACTIONS), numbers), max_size=6)
turns = st.tuples(st.just("turn"), actions, numbers)
orders = st.one_of(
    turns, turns, st.tuples(st.just("again"), st.just([]), numbers),
    st.tuples(st.just("fork"), actions, numbers),
)  # fmt: skip
programs = st.tuples(turns, st.lists(orders, max_size=4)).map(lambda drawn: [drawn[0], *drawn[1]])
every_action = [("turn", [(name, k)], k) for k, name in enumerate(ACTIONS)]


@settings(
    max_examples=PROGRAMS,
    deadline=None,
    derandomize="NANOMEM_EXACTNESS_PROGRAMS" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(programs, st.integers(0, 999))
@example(every_action, 1)
@example([("turn", [(name, 3) for name in ACTIONS], 1), ("fork", [("say", 1)], 4)], 2)
def test_random_programs_leave_what_the_stock_saver_keeps(program, seed):
    """cases/checkpointer.md 10, 14: each checkpoint of a random program equals InMemorySaver's."""
    with tempfile.TemporaryDirectory() as workspace:
        twin = Twin(SessionManager(workspace))
        run = Program(twin, seed)
        for order in program:
            run.run(order)
        twin.assert_all_same(workspace)
