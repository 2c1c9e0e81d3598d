"""With `sessions=True` nothing sensitive is in a graph's file, in whatever form it came."""

from __future__ import annotations

import dataclasses
import re
import threading
import uuid
from collections import defaultdict, deque, namedtuple
from enum import Enum
from typing import Annotated, Any, TypedDict

import pytest
from checkpoint_graph import extended
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.types import Command, Overwrite, Send, interrupt
from leaks import EVERYWHERE, RULES, SECRETS, TOLD, leaks, lines_of, written
from pydantic import SecretStr

from langchain_nanomem import NanomemSaver, Redaction, SessionManager, import_checkpoints

CONFIG = {"configurable": {"thread_id": "t"}}
PASSWORD = "hunter" + "22"
Pair = namedtuple("Pair", "key value")  # noqa: PYI024 - the serializer knows these too


@dataclasses.dataclass(frozen=True)
class Note:
    """What a program may have in its state."""

    password: str
    parts: tuple[str, ...] = (TOLD,)


class Kind(Enum):
    """Its members are no texts of anyone's."""

    PASSWORD = "a1b2c3d4e5"


class State(MessagesState):
    """Messages, and something else."""

    notes: Annotated[Any, lambda _, new: new]


VALUES = {
    "text": TOLD,
    "long text": TOLD * 9,
    "dict": {"a": {TOLD: [TOLD, (TOLD, 1)]}},
    "large dict": {"a": {TOLD: [TOLD, (TOLD, 1)]}, "b": "x" * 999},
    "named": {"password": PASSWORD},
    "list": [{"role": "user", "content": TOLD}],
    "short list": [SECRETS["mail"]],
    "long list": [TOLD, {"password": PASSWORD}, *range(99)],
    "mixed list": [TOLD, AIMessage(TOLD), (TOLD,)],
    "tuple": ("user", TOLD),
    "named tuple": Pair(TOLD, TOLD),
    "keys": [{1: TOLD, ("a", TOLD): 1}],
    "defaults": defaultdict(list, {TOLD: [TOLD]}),
    "kind": [re.RegexFlag.I, {"password": Kind.PASSWORD}, Kind.PASSWORD],
    "beside an object": [uuid.UUID(int=1), TOLD],
    "set": {TOLD, "other"},
    "deque": deque([TOLD], 3),
    "message": AIMessage(TOLD, additional_kwargs={TOLD: TOLD}, artifact={"a": Note(PASSWORD)}),
    "messages by name": {SECRETS["mail"]: HumanMessage(TOLD), "password": PASSWORD},
    "dataclass": Note(PASSWORD),
    "document": Document(TOLD, metadata={TOLD: TOLD}),
    "documents": [Document(TOLD, metadata={"password": PASSWORD})],
    "secret": SecretStr(TOLD),
}
SAID = {
    "dicts": [{"role": "user", "content": TOLD}],
    "tuples": [("user", TOLD)],
    "texts": [TOLD],
    "text": TOLD,
    "a dict": {"role": "user", "content": TOLD},
    "a tuple": ("user", TOLD),
    "a message": HumanMessage(TOLD),
    "messages": [HumanMessage(TOLD), HumanMessage([{"type": "text", "text": TOLD}])],
    "mixed": [HumanMessage(TOLD), ("user", TOLD), {"role": "user", "content": TOLD}],
}


def graph_of(path, *nodes, redaction=EVERYWHERE):
    graph = StateGraph(State)
    for before, node in zip((START, *nodes), nodes, strict=False):
        graph.add_node(node.__name__, node)
        graph.add_edge(before if before is START else before.__name__, node.__name__)
    return graph.compile(checkpointer=NanomemSaver(SessionManager(path, redaction=redaction)))


def answer(state):
    return {"messages": [AIMessage(TOLD)]}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
async def test_what_a_graph_is_told(tmp_path, call, said):
    """Its input is written without secrets, in all forms of messages; the graph gets it whole."""
    graph = graph_of(tmp_path, answer)
    state = await call(graph, "invoke", {"messages": said}, CONFIG)
    assert leaks(str(state["messages"][0].content)) == list(SECRETS)
    assert leaks(written(tmp_path)) == []
    stored = graph_of(tmp_path, answer).get_state(CONFIG).values["messages"]
    assert "my aws is [secret]" in str(stored[0].content)
    assert len(stored) == len(state["messages"])


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
async def test_what_a_state_holds(tmp_path, call, value):
    """Inputs, updates, writes, resumed answers, interrupts and what nodes are sent have none."""

    def ask(state):
        interrupt(value)
        return {"notes": value, "messages": [AIMessage("a")]}

    def spread(state):
        return Command(update={"notes": value}, goto=Send("take", value))

    def take(given):
        return {"notes": Overwrite(value)}

    graph = StateGraph(State)
    for node in (ask, spread, take):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "spread")
    saver = NanomemSaver(SessionManager(tmp_path, redaction=EVERYWHERE))
    compiled = graph.compile(checkpointer=saver)
    await call(compiled, "invoke", {"messages": ["hello"], "notes": value}, CONFIG)
    await call(compiled, "invoke", Command(resume=value), CONFIG)
    await call(compiled, "update_state", CONFIG, {"notes": value}, "take")
    assert leaks(written(tmp_path), PASSWORD) == []
    assert compiled.get_state(CONFIG).values.keys() == {"messages", "notes"}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_otherwise_all_is_stored_as_it_is(tmp_path, value):
    """Without `sessions=True` every value comes back as it does without redaction."""
    stored = []
    for name, redaction in (("without", None), ("with", RULES)):
        graph = graph_of(tmp_path / name, answer, redaction=redaction)
        graph.invoke({"messages": [HumanMessage(TOLD, id="1")], "notes": value}, CONFIG)
        values = graph_of(tmp_path / name, answer, redaction=redaction).get_state(CONFIG).values
        assert values["messages"][0] == HumanMessage(TOLD, id="1")
        stored.append(values["notes"])
    assert stored[0] == stored[1]


async def test_what_is_told_of_a_run(tmp_path, call):
    """The settings that LangGraph notes with each checkpoint have no secrets; they still filter."""
    graph = graph_of(tmp_path, answer)
    told = {"api_key": PASSWORD, "mail": SECRETS["mail"], "kind": "web"}
    config = {"configurable": {"thread_id": "t"} | told, "metadata": {"note": TOLD}}
    await call(graph, "invoke", {"messages": ["hello"]}, config)
    assert leaks(written(tmp_path), PASSWORD) == []
    for one in ({"mail": SECRETS["mail"]}, {"kind": "web"}, {"api_key": PASSWORD}):
        assert len(list(graph.checkpointer.list(CONFIG, filter=one))) == 3
    assert not list(graph.checkpointer.list(CONFIG, filter={"mail": "other@" + "example.org"}))


async def test_what_a_node_raises(tmp_path, call):
    """The error that LangGraph notes of a node has no secrets."""

    def fail(state):
        raise RuntimeError(TOLD)

    graph = graph_of(tmp_path, fail)
    with pytest.raises(RuntimeError):
        await call(graph, "invoke", {"messages": ["hello"]}, CONFIG)
    assert "RuntimeError" in str(graph.checkpointer.get_tuple(CONFIG).pending_writes)
    assert leaks(written(tmp_path)) == []


async def test_ids_that_look_sensitive_stay(tmp_path, call):
    """What LangGraph goes by is no text of anyone's: a run is resumed whatever is redacted."""

    def ask(state):
        return {"notes": interrupt("1234567")}

    digits = Redaction({}, {"digits": r"[0-9a-f]{4,}"}, sessions=True)
    graph = graph_of(tmp_path, ask, redaction=digits)
    await call(graph, "invoke", {"messages": [HumanMessage("12345", id="12345")]}, CONFIG)
    again = graph_of(tmp_path, ask, redaction=digits)
    (waiting,) = again.get_state(CONFIG).interrupts
    assert waiting.value == "[digits]"
    state = await call(again, "invoke", Command(resume={waiting.id: "98765"}), CONFIG)
    assert [one.id for one in state["messages"]] == ["12345"]
    assert state["notes"] == "98765"
    assert len(list(again.checkpointer.list(CONFIG))) == 3


async def test_a_channels_name_may_tell_what_it_holds(tmp_path, call):
    """A text is looked at with the name of its channel, in the input and in the state."""

    class Told(TypedDict):
        password: str
        last_consolidated_id: str

    graph = StateGraph(Told)
    graph.add_node("pass", lambda _: {"password": PASSWORD, "last_consolidated_id": "4711 " * 3})
    graph.add_edge(START, "pass")
    rules = Redaction({"secret": "mask"}, {"digits": r"\d{4}"}, sessions=True)
    saver = NanomemSaver(SessionManager(tmp_path, redaction=rules))
    compiled = graph.compile(checkpointer=saver)
    await call(compiled, "invoke", {"password": PASSWORD}, CONFIG)
    assert leaks(written(tmp_path), PASSWORD) == []
    values = compiled.get_state(CONFIG).values
    assert values == {"password": "[secret]", "last_consolidated_id": "4711 " * 3}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_threads_of_another_saver_are_redacted(tmp_path, said):
    """What is imported is there without secrets, all else of it the same, and once."""
    source = InMemorySaver()
    graph = StateGraph(State)
    graph.add_node("ask", lambda _: {"notes": interrupt(TOLD)})
    graph.add_edge(START, "ask")
    config = CONFIG | {"metadata": {"mail": SECRETS["mail"]}}
    graph.compile(checkpointer=source).invoke({"messages": said, "notes": {TOLD: 1}}, config)
    target = NanomemSaver(SessionManager(tmp_path, redaction=EVERYWHERE))
    assert import_checkpoints(source, target) == (1, 2, 0)
    assert leaks(written(tmp_path)) == []
    assert import_checkpoints(source, target) == (1, 0, 2)
    compiled = graph.compile(checkpointer=target)
    assert "my aws is [secret]" in str(compiled.get_state(CONFIG).interrupts[0].value)
    compiled.invoke(Command(resume="yes"), CONFIG)
    assert compiled.get_state(CONFIG).values["notes"] == "yes"


async def test_a_delta_channel(tmp_path, call):
    """Its writes and snapshots have no secrets, and each message is written once."""

    class Delta(TypedDict):
        messages: Annotated[list, DeltaChannel(_messages_delta_reducer, snapshot_frequency=3)]
        notes: Annotated[list, DeltaChannel(extended, snapshot_frequency=3)]

    for _ in range(4):
        told = {"messages": [HumanMessage(TOLD)], "notes": [SECRETS["mail"]]}
        graph = StateGraph(Delta)
        graph.add_node("answer", answer)
        graph.add_edge(START, "answer")
        saver = NanomemSaver(SessionManager(tmp_path, redaction=EVERYWHERE))
        compiled = graph.compile(checkpointer=saver)
        await call(compiled, "invoke", told, CONFIG)
    stored = compiled.get_state(CONFIG).values["messages"]
    assert sorted(one.id for one in stored) == sorted(lines_of(tmp_path))
    assert leaks(written(tmp_path)) == []


def test_different_texts_of_one_mark_stay_apart(tmp_path):
    """Names that are redacted to the same stay two."""

    class Told(TypedDict):
        by_mail: dict[str, int]

    redaction = Redaction({"email": "redact"}, sessions=True)
    graph = StateGraph(Told)
    graph.add_node("pass", lambda _: {})
    graph.add_edge(START, "pass")
    saver = NanomemSaver(SessionManager(tmp_path, redaction=redaction))
    compiled = graph.compile(checkpointer=saver)
    compiled.invoke({"by_mail": {"a@" + "b.com": 1, "c@" + "d.com": 2}}, CONFIG)
    stored = compiled.get_state(CONFIG).values["by_mail"]
    assert stored == {"[REDACTED_EMAIL]": 1, "[REDACTED_EMAIL] (2)": 2}


def put(saver, config, messages, step):
    checkpoint = empty_checkpoint() | {
        "channel_values": {"messages": messages},
        "channel_versions": {"messages": step},
    }
    metadata = {"source": "loop", "step": step, "parents": {}}
    return saver.put(config, checkpoint, metadata, {"messages": step})


@pytest.mark.parametrize("extra", [{}, {"artifact": (TOLD, 1)}], ids=["plain", "tagged"])
def test_a_message_is_written_once_by_savers_opened_again(tmp_path, extra):
    """A program that has its messages whole and puts them by another saver adds no line."""
    messages = [HumanMessage(TOLD, id="1"), ToolMessage(TOLD, tool_call_id="c", id="2", **extra)]
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    first = NanomemSaver(SessionManager(tmp_path, redaction=EVERYWHERE))
    for step, saver in enumerate(
        [first, NanomemSaver(SessionManager(tmp_path, redaction=EVERYWHERE)), first], start=1
    ):
        config = put(saver, config, messages, step)
        messages = [*messages, HumanMessage(TOLD, id=f"of step {step}")]
        saver.put_writes(config, [("messages", messages[-1:])], f"task {step}")
    assert lines_of(tmp_path) == ["1", "2", "of step 1", "of step 2", "of step 3"]
    assert leaks(written(tmp_path)) == []


async def test_a_message_is_written_once_while_others_read(tmp_path, call):
    """Readers, of this saver and of another, make a running graph write nothing twice."""
    other = graph_of(tmp_path, answer)

    def look(state):
        for one in (graph, other):
            messages = one.get_state(CONFIG).values.get("messages", ())
            assert leaks(str(messages)) == []
        return {"messages": [AIMessage(TOLD)]}

    def last(state):
        return look(state)

    graph = graph_of(tmp_path, look, answer, last)
    for _ in range(3):
        state = await call(graph, "invoke", {"messages": [("user", TOLD)]}, CONFIG)
    assert lines_of(tmp_path) == [one.id for one in state["messages"]]


def test_a_message_is_written_once_under_load(tmp_path):
    """Threads that run, and threads that read meanwhile, write each message's line once."""
    graphs = [graph_of(tmp_path, answer) for _ in range(2)]
    over = threading.Event()

    def read(graph):
        while not over.is_set():
            graph.get_state(CONFIG)

    readers = [threading.Thread(target=read, args=(graph,)) for graph in graphs]
    for reader in readers:
        reader.start()
    for turn in range(6):
        graphs[turn % 2].invoke({"messages": [{"role": "user", "content": TOLD}]}, CONFIG)
    over.set()
    for reader in readers:
        reader.join()
    stored = graphs[0].get_state(CONFIG).values["messages"]
    assert lines_of(tmp_path) == [one.id for one in stored]
    assert len(stored) == 12
