"""Threads whose run was killed between a tool call and its result: cases/checkpointer.md 23."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import InvalidUpdateError
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.prebuilt import create_react_agent, tools_condition
from langgraph.types import Command, interrupt
from scripted import ScriptedChatModel

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.repair import (
    aanswer_interrupted_calls,
    answer_interrupted_calls,
    unanswered,
    with_results,
)
from langchain_nanomem.session import INTERRUPTED
from langchain_nanomem.window import live_window

pytestmark = pytest.mark.back_ends("files", "postgres", colour="async")

THREAD = {"configurable": {"thread_id": "chat:1"}}


@pytest.fixture(params=["sync", "async"])
def repair(request):
    """Repairs a thread in one colour."""

    async def repairing(graph, config=THREAD, **options):
        if request.param == "sync":
            return answer_interrupted_calls(graph, config, **options)
        return await aanswer_interrupted_calls(graph, config, **options)

    return repairing


@pytest.fixture
def saver(workspace):
    return NanomemSaver(SessionManager(workspace))


class Added(TypedDict):
    messages: Annotated[list[Any], add_messages]


class Delta(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer, snapshot_frequency=3)]


class Whole(TypedDict):
    messages: list[Any]


STATES = pytest.mark.parametrize("state", [Added, Delta, Whole])


def calling(*ids, **fields):
    calls = [{"name": "look", "args": {}, "id": one, "type": "tool_call"} for one in ids]
    return AIMessage("", tool_calls=calls, **fields)


def assert_legal(messages):
    """What a strict provider demands: behind each call, and nowhere else, exactly its results."""
    waiting = []
    for message in messages:
        if isinstance(message, ToolMessage):
            waiting.remove(message.tool_call_id)
        else:
            assert not waiting, f"no results of {waiting}"
            calls = getattr(message, "tool_calls", [])
            waiting = [call["id"] for call in calls]
    assert not waiting, f"no results of {waiting}"


class Agent:
    """A model that refuses what a strict provider refuses, and a tool that may be killed."""

    def __init__(self, saver, state=Added, within=lambda _: "seen", ids=("a", "b")):
        self.within, self.whole, self.ids = within, state is Whole, ids
        builder = StateGraph(state)
        builder.add_node("model", self.model)
        builder.add_node("tools", self.tools)
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", tools_condition)
        builder.add_edge("tools", "model")
        self.graph = builder.compile(checkpointer=saver)

    def update(self, state, new):
        return {"messages": [*state["messages"], *new] if self.whole else new}

    def model(self, state):
        assert_legal(state["messages"])
        if state["messages"][-1].content == "look":
            turn = f"{len(state['messages'])}"
            return self.update(state, [calling(*(turn + one for one in self.ids), id=f"ai{turn}")])
        return self.update(state, [AIMessage("done", id=f"ai{len(state['messages'])}")])

    def tools(self, state):
        calls = state["messages"][-1].tool_calls
        results = [
            ToolMessage(self.within(c), tool_call_id=c["id"], id=f"r{c['id']}") for c in calls
        ]
        return self.update(state, results)

    def say(self, text):
        before = self.messages() if self.whole else []
        new = HumanMessage(text, id=f"h{len(self.messages())}")
        return self.graph.invoke({"messages": [*before, new]}, THREAD)

    def messages(self):
        return list(self.graph.get_state(THREAD).values.get("messages") or [])


def killed(_):
    raise KeyboardInterrupt


def killed_agent(saver, state=Added):
    """An agent whose run was killed in its tools."""
    agent = Agent(saver, state, killed)
    with pytest.raises(KeyboardInterrupt):
        agent.say("look")
    agent.within = lambda _: "seen"
    return agent


def shown(messages):
    return [m.id if not isinstance(m, ToolMessage) else m.tool_call_id for m in messages]


@STATES
async def test_while_the_tools_may_still_answer_nothing_is_done(saver, repair, state):
    """cases/checkpointer.md 23: a killed run is taken up again, and its own results come."""
    agent = killed_agent(saver, state)
    before = agent.graph.get_state(THREAD)
    assert before.next == ("tools",)
    assert await repair(agent.graph) == []
    assert agent.graph.get_state(THREAD) == before
    agent.graph.invoke(None, THREAD)
    assert [m.content for m in agent.messages()] == ["look", "", "seen", "seen", "done"]


@STATES
async def test_tasks_can_be_abandoned(saver, repair, state):
    """A run that is not to be taken up gets its results, and the next turn goes through."""
    agent = killed_agent(saver, state)
    results = await repair(agent.graph, abandon_tasks=True)
    assert [(m.tool_call_id, m.content, m.status) for m in results] == [
        ("1a", INTERRUPTED, "error"), ("1b", INTERRUPTED, "error"),
    ]  # fmt: skip
    assert [m.name for m in results] == ["look", "look"]
    assert agent.graph.get_state(THREAD).next == ()
    assert agent.messages() == [*agent.messages()[:2], *results]
    assert await repair(agent.graph, abandon_tasks=True) == []
    agent.say("and now")
    assert agent.messages()[-1].content == "done"
    assert_legal(agent.messages())


@STATES
async def test_a_turn_that_failed_behind_the_calls_is_mended(saver, repair, state):
    """cases/checkpointer.md 23: results go behind their calls, not to the end; the turn goes on."""
    agent = killed_agent(saver, state)
    with pytest.raises(AssertionError, match="no results of"):
        agent.say("and now")
    assert agent.graph.get_state(THREAD).next == ("model",)
    results = await repair(agent.graph)
    assert len(results) == 2
    assert shown(agent.messages()) == ["h0", "ai1", "1a", "1b", "h2"]
    assert agent.messages()[2:4] == results
    assert agent.graph.get_state(THREAD).next == ("model",)
    agent.graph.invoke(None, THREAD)
    assert agent.messages()[-1].content == "done"
    assert_legal(agent.messages())
    assert await repair(agent.graph) == []


@STATES
async def test_nothing_is_done_while_an_interrupt_is_pending(saver, repair, state):
    """cases/checkpointer.md 23: what waits for an answer is left alone, whatever is allowed."""
    agent = Agent(saver, state, lambda call: interrupt({"may I": call["id"]}), ids=("a",))
    agent.say("look")
    before = agent.graph.get_state(THREAD)
    assert before.interrupts
    for options in ({}, {"abandon_tasks": True}):
        assert await repair(agent.graph, **options) == []
    assert agent.graph.get_state(THREAD) == before
    agent.graph.invoke(Command(resume="yes"), THREAD)
    assert [m.content for m in agent.messages()] == ["look", "", "yes", "done"]


@STATES
async def test_calls_behind_an_interrupt_wait_too(saver, repair, state):
    """cases/checkpointer.md 23: while anything asks, old calls without results wait as well."""
    builder = StateGraph(state)
    builder.add_node("ask", lambda _: {"messages": [interrupt("may I?")]})
    builder.add_edge(START, "ask")
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"messages": [calling("a", id="ai"), HumanMessage("go on", id="h")]}, THREAD)
    assert await repair(graph, abandon_tasks=True) == []
    graph.invoke(Command(resume=HumanMessage("yes", id="y")), THREAD)
    expected = 0 if state is Whole else 1
    assert len(await repair(graph)) == expected


async def test_where_nothing_is_missing_nothing_is_done(saver, repair):
    """No new checkpoint of a thread that is whole, empty or not there."""
    agent = Agent(saver)
    assert await repair(agent.graph) == []
    agent.say("look")
    count = len(list(saver.list(THREAD)))
    assert await repair(agent.graph) == []
    assert len(list(saver.list(THREAD))) == count


@STATES
async def test_results_that_are_there_stay(saver, repair, state):
    """Of several calls, those without a result get one; the others keep theirs."""
    agent = Agent(saver, state)
    start = [
        HumanMessage("q", id="q"),
        calling("a", "b", "c", id="ai"),
        ToolMessage("seen", tool_call_id="b", id="rb"),
    ]
    agent.graph.update_state(THREAD, {"messages": start}, as_node="model")
    assert [m.tool_call_id for m in await repair(agent.graph)] == ["a", "c"]
    assert shown(agent.messages()) == ["q", "ai", "b", "a", "c"]
    assert agent.messages()[2].content == "seen"


async def test_calls_that_no_prompt_would_show_are_answered_too(saver, repair):
    """A call that can't be parsed, or of an answer marked as an error, is sent by a plain graph."""
    agent = Agent(saver)
    invalid = {"name": "x", "args": "{", "id": "bad", "error": "e", "type": "invalid_tool_call"}
    failed = calling("a", id="ai", response_metadata={"finish_reason": "error"})
    start = [failed, HumanMessage("q", id="q"), AIMessage("", invalid_tool_calls=[invalid], id="i")]
    agent.graph.update_state(THREAD, {"messages": start}, as_node="model")
    assert [m.tool_call_id for m in await repair(agent.graph)] == ["a", "bad"]
    assert shown(agent.messages()) == ["ai", "a", "q", "i", "bad"]


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
@pytest.mark.parametrize("stock", [False, True])
async def test_any_graph_and_saver_will_do(saver, repair, stock):
    """LangGraph's own agent, which refuses such a thread itself, goes on after the repair."""

    def look() -> str:
        """Look."""
        raise KeyboardInterrupt

    model = ScriptedChatModel(replies=[calling("c", id="ai"), AIMessage("done", id="done")])
    graph = create_react_agent(model, [look], checkpointer=InMemorySaver() if stock else saver)
    with pytest.raises(KeyboardInterrupt):
        graph.invoke({"messages": [("user", "look")]}, THREAD)
    with pytest.raises(ValueError, match="do not have a corresponding ToolMessage"):
        graph.invoke({"messages": [("user", "and now?")]}, THREAD)
    (result,) = await repair(graph)
    assert result.tool_call_id == "c"
    done = graph.invoke(None, THREAD)
    assert_legal(done["messages"])
    assert done["messages"][-1].content == "done"


async def test_another_channel_and_node_can_be_named(saver, repair):
    """The messages may stand anywhere in the state; what is no message is refused."""

    class Talk(TypedDict):
        talk: Annotated[list[Any], add_messages]
        messages: list[str]

    builder = StateGraph(Talk)
    builder.add_node("left", lambda _: {})
    builder.add_node("right", lambda _: {})
    builder.add_edge(START, "left")
    builder.add_edge(START, "right")
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"talk": [calling("a", id="ai")], "messages": ["text"]}, THREAD)
    with pytest.raises(TypeError, match=r"'messages' holds 'text', which is no LangChain message"):
        await repair(graph)
    with pytest.raises(InvalidUpdateError):  # two nodes were last
        await repair(graph, messages_key="talk")
    assert len(await repair(graph, messages_key="talk", as_node="left")) == 1
    assert len(graph.get_state(THREAD).values["talk"]) == 2


async def test_a_state_that_is_an_object_will_do(saver, repair):
    """A dataclass for a state is repaired as any other."""

    @dataclasses.dataclass
    class State:
        messages: Annotated[list[Any], add_messages] = dataclasses.field(default_factory=list)

    builder = StateGraph(State)
    builder.add_node("nothing", lambda _: {})
    builder.add_edge(START, "nothing")
    builder.add_edge("nothing", END)
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"messages": [calling("a", id="ai")]}, THREAD)
    assert len(await repair(graph)) == 1
    assert shown(graph.get_state(THREAD).values["messages"]) == ["ai", "a"]


KILLED = """
import os, sys
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langchain_nanomem import NanomemSaver, SessionManager
from stores import workspace_at
calls = [{"name": "look", "args": {}, "id": "c", "type": "tool_call"}]
builder = StateGraph(MessagesState)
builder.add_node("model", lambda _: {"messages": [AIMessage("", tool_calls=calls)]})
builder.add_node("tools", lambda _: os._exit(9))
builder.add_edge(START, "model")
builder.add_edge("model", "tools")
sessions = SessionManager(workspace_at(sys.argv[1]).journal)
graph = builder.compile(checkpointer=NanomemSaver(sessions))
config = {"configurable": {"thread_id": "chat:1"}}
graph.invoke({"messages": [("user", "look")]}, config, durability="sync")
"""


async def test_a_killed_process_leaves_what_can_be_repaired(address, workspace, repair):
    """cases/checkpointer.md 15, 23: after a kill the next process repairs, and its turn passes."""
    path = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", KILLED, address]
    environment = {**os.environ, "PYTHONPATH": path}
    done = await asyncio.to_thread(subprocess.run, command, env=environment, check=False)
    assert done.returncode == 9
    agent = Agent(NanomemSaver(SessionManager(workspace)))
    assert len(await repair(agent.graph, abandon_tasks=True)) == 1
    agent.say("go on")
    assert [m.content for m in agent.messages()] == ["look", "", INTERRUPTED, "go on", "done"]
    history = SessionManager(workspace).get_or_create("chat:1").get_history()
    assert [m["content"] for m in history] == [m.content for m in agent.messages()]


ids = st.sampled_from("abcd")
conversations = st.lists(
    st.one_of(
        st.just(HumanMessage("q")), st.just(AIMessage("a")), st.just(SystemMessage("s")),
        st.lists(ids, unique=True, min_size=1, max_size=3).map(lambda drawn: calling(*drawn)),
        ids.map(lambda drawn: ToolMessage("r", tool_call_id=drawn)),
    ),
    max_size=9,
)  # fmt: skip


@given(conversations)
def test_what_was_repaired_lacks_nothing_and_lost_nothing(messages):
    """Any conversation: no message goes or moves, none is missing after, and the prompt agrees."""
    missing = unanswered(messages)
    whole = with_results(messages, missing)
    added = [result for _, result in missing]
    assert [m for m in whole if not any(m is one for one in added)] == messages
    assert unanswered(whole) == []
    assert answered(whole) == answered(messages)


def answered(messages):
    """The calls that have a result in a prompt."""
    return sorted(m.tool_call_id for m in live_window(messages, 0).live if m.type == "tool")
