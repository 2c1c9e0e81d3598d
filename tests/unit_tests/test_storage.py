"""Storage grows with what is new: what was said is written once, whatever refers to it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.file_journal import FileJournal
from langchain_nanomem.manager import SessionManager

THREAD = {"configurable": {"thread_id": "chat:1"}}


@dataclass
class Report:
    text: str


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]
    report: Any


@pytest.fixture(params=["sync", "async", "exit"])
def durability(request):
    return request.param


def graph_of(workspace, answer):
    builder = StateGraph(State)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=NanomemSaver(SessionManager(workspace)))


def lines_of(workspace):
    content = FileJournal(workspace).path("chat:1").read_text()
    return [json.loads(line) for line in content.splitlines()]


def text_of(workspace):
    return FileJournal(workspace).path("chat:1").read_text()


def test_a_message_without_an_id_is_written_once(tmp_path, durability):
    """What a user says is written before LangGraph gives it an id; that is added, not it again."""
    graph = graph_of(tmp_path, lambda _: {"messages": [AIMessage("an answer")]})
    for turn in range(3):
        given = {"messages": [HumanMessage(f"question {turn} " * 9)]}
        state = graph.invoke(given, THREAD, durability=durability)
    for turn in range(3):
        assert text_of(tmp_path).count(f"question {turn} " * 9) == 1
    assert text_of(tmp_path).count("an answer") == 3
    again = graph_of(tmp_path, lambda _: {}).get_state(THREAD)
    assert again.values["messages"] == state["messages"]
    session = SessionManager(tmp_path).get_or_create("chat:1")
    assert [m["id"] for m in session.messages] == [m.id for m in state["messages"]]


def test_the_same_words_twice_are_two_lines(tmp_path, durability):
    """Two who say hello have said two things, in the state, the session and the file."""
    graph = graph_of(tmp_path, lambda _: {"messages": [AIMessage("hello")]})
    for _ in range(3):
        state = graph.invoke({"messages": [HumanMessage("hello")]}, THREAD, durability=durability)
    assert len({m.id for m in state["messages"]}) == 6
    shown = [line for line in lines_of(tmp_path) if "_type" not in line]
    assert [(m["role"], m["content"]) for m in shown] == [
        ("user", "hello"),
        ("assistant", "hello"),
    ] * 3
    manager = SessionManager(tmp_path)
    assert (
        NanomemSaver(manager).get_tuple(THREAD).checkpoint["channel_values"]["messages"]
        == (state["messages"])
    )
    assert [m["id"] for m in manager.get_or_create("chat:1").messages] == [
        m.id for m in state["messages"]
    ]


def test_the_id_of_a_message_is_kept_by_pruning(tmp_path):
    """What stays after pruning has all that its messages are made of."""
    graph = graph_of(tmp_path, lambda _: {"messages": [AIMessage("an answer")]})
    for turn in range(3):
        state = graph.invoke({"messages": [HumanMessage(f"{turn}")]}, THREAD)
    graph.checkpointer.prune(["chat:1"])
    for saver in (graph.checkpointer, NanomemSaver(SessionManager(tmp_path))):
        values = saver.get_tuple(THREAD).checkpoint["channel_values"]
        assert values["messages"] == state["messages"]


@pytest.mark.parametrize("value", ["x" * 3000, {"a": ["x" * 3000]}, Report("x" * 3000)])
def test_a_large_value_is_written_once(tmp_path, durability, value):
    """As what a task wrote, and as what its channel holds since; also if it is written again."""
    graph = graph_of(tmp_path, lambda _: {"report": value})
    for turn in range(3):
        given = {"messages": [HumanMessage(f"{turn}", id=f"{turn}")]}
        graph.invoke(given, THREAD, durability=durability)
    size = len(text_of(tmp_path))
    assert size < 14_000
    found = NanomemSaver(SessionManager(tmp_path)).get_tuple(THREAD)
    assert found.checkpoint["channel_values"]["report"] == value


def test_messages_as_dictionaries_are_written_as_they_came_and_as_messages(tmp_path):
    """A graph's input in OpenAI's form is one element, and its message one line."""
    graph = graph_of(tmp_path, lambda _: {"messages": [AIMessage("an answer")]})
    words = "what is said " * 30
    graph.invoke({"messages": [{"role": "user", "content": words}]}, THREAD, durability="sync")
    assert text_of(tmp_path).count(words) == 2
    shown = [line["content"] for line in lines_of(tmp_path) if "_type" not in line]
    assert shown == [words, "an answer"]


def test_bytes_a_turn_stay_the_same(tmp_path):
    """Turn 150 costs what turn 20 costs: no checkpoint repeats what is there."""
    graph = graph_of(tmp_path, lambda s: {"messages": [AIMessage(f"{len(s['messages']):04}" * 99)]})
    sizes = []
    for turn in range(150):
        graph.invoke({"messages": [HumanMessage(f"{turn:04}" * 99)]}, THREAD)
        sizes.append(len(text_of(tmp_path)))
    early, late = (sizes[39] - sizes[19]) / 20, (sizes[149] - sizes[129]) / 20
    assert late < early * 1.05
    assert late < 3800
