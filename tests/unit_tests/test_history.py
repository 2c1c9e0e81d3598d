"""LangChain's chat history over a session."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.tool import invalid_tool_call, tool_call
from langgraph.graph import START, MessagesState, StateGraph
from scripted import ScriptedChatModel, save_memory

from langchain_nanomem import Nanomem, NanomemChatMessageHistory, SessionManager

pytestmark = pytest.mark.back_ends("files", "postgres")
ON_FILES = pytest.mark.back_ends("files")


@pytest.fixture
def sessions(workspace):
    return SessionManager(workspace)


@pytest.fixture
def history(sessions):
    return NanomemChatMessageHistory("cli:user", sessions)


@pytest.fixture(params=["sync", "async"])
def colour(request):
    """Calls a method of a history in one of the two colours."""

    async def call(history, name, *args):
        if request.param == "sync":
            return getattr(history, name)(*args)
        return await getattr(history, f"a{name}")(*args)

    return call


def path_of(sessions):
    return Path(sessions.list_sessions()[0]["path"])


def lines(sessions):
    return [json.loads(line) for line in path_of(sessions).read_text().splitlines()]


EVERYTHING = [
    HumanMessage("hi", name="Ada", id="h1", additional_kwargs={"x": {"y": [1, None]}}),
    HumanMessage(
        [
            {"type": "text", "text": "what is this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            {"type": "audio", "base64": "AAAA", "mime_type": "audio/wav"},
            {"type": "file", "base64": "AAAA", "mime_type": "application/pdf"},
        ]
    ),
    AIMessage(
        "calling",
        tool_calls=[tool_call(name="f", args={"a": 1}, id="c1")],
        invalid_tool_calls=[invalid_tool_call(name="g", args="{oops", id="c2", error="bad")],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"model": "m", "finish_reason": "tool_calls"},
        id="run-1",
    ),
    ToolMessage("r", tool_call_id="c1", artifact={"rows": [[1, 2]]}, status="error", name="f"),
    SystemMessage("rules"),
    ChatMessage("hm", role="critic"),
    FunctionMessage("f", name="f"),
    AIMessage([{"type": "reasoning", "reasoning": "because"}, {"type": "text", "text": "so"}]),
]


async def test_messages_come_back_equal(history, sessions, colour):
    """cases/sessions.md 28: every kind of message and block, type included, also from the disk."""
    await colour(history, "add_messages", EVERYTHING)
    again = NanomemChatMessageHistory("cli:user", SessionManager(sessions.journal))
    for read in (history, again):
        assert read.messages == EVERYTHING
        assert [type(m) for m in read.messages] == [type(m) for m in EVERYTHING]
    assert await history.aget_messages() == EVERYTHING


async def test_adding_messages_is_one_append(history, sessions, colour, monkeypatch):
    """cases/sessions.md 25: add_messages writes once, whatever the number of messages."""
    appends = []
    append = sessions.journal.append
    monkeypatch.setattr(
        sessions.journal, "append", lambda *a, **k: (appends.append(a), append(*a, **k))[1]
    )
    await colour(history, "add_messages", [HumanMessage(str(n)) for n in range(500)])
    assert len(appends) == 1
    await colour(history, "add_messages", [])
    assert len(appends) == 1
    assert len(history.messages) == 500


@ON_FILES
def test_a_late_append_costs_what_an_early_one_did(history, sessions):
    """cases/sessions.md 25: an append writes its own lines only, and takes about the same time."""
    sizes, times = [], []
    history.add_messages([HumanMessage("x" * 50) for _ in range(10)])
    path = path_of(sessions)
    for count in (0, 9_980):
        history.add_messages([HumanMessage("x" * 50) for _ in range(count)])
        before, began = path.stat().st_size, time.perf_counter()
        for _ in range(10):
            history.add_messages([HumanMessage("x" * 50)])
        times.append(time.perf_counter() - began)
        sizes.append(path.stat().st_size - before)
    assert sizes[1] < sizes[0] * 1.1
    assert times[1] < times[0] * 5 + 0.2


async def test_the_log_does_not_shrink_when_the_pointer_moves(tmp_path, colour):
    """cases/sessions.md 26: .messages is the full log, also once it was consolidated."""
    mem = Nanomem(tmp_path, model=ScriptedChatModel(replies=[save_memory()]))
    history = mem.history("s")
    said = [m for n in range(5) for m in (HumanMessage(f"q{n}"), AIMessage(f"a{n}"))]
    await colour(history, "add_messages", said)
    session = mem.sessions.get_or_create("s")
    assert mem.consolidator.compact(session)
    assert session.last_consolidated == 8
    assert history.messages == said
    await colour(history, "add_messages", [HumanMessage("more")])
    assert [m.content for m in history.messages] == [m.content for m in said] + ["more"]
    assert mem.sessions.get_or_create("s").last_consolidated == 8


async def test_a_message_whose_id_is_there_is_skipped(history, colour):
    """cases/sessions.md 26: adding an equal message of the same id again does nothing."""
    first = [HumanMessage("hi", id="1"), AIMessage("yes", id="2")]
    await colour(history, "add_messages", first)
    await colour(history, "add_messages", [*first, HumanMessage("new", id="3")])
    twice = HumanMessage("twice", id="4")
    await colour(history, "add_messages", [twice, twice])
    assert [m.id for m in history.messages] == ["1", "2", "3", "4"]


async def test_another_message_of_the_same_id_is_an_error(history, colour):
    """cases/sessions.md 26: one that differs is a ValueError, and nothing is written."""
    await colour(history, "add_messages", [HumanMessage("hi", id="1")])
    changed = [HumanMessage("new", id="2"), HumanMessage("changed", id="1")]
    with pytest.raises(ValueError, match="'1'"):
        await colour(history, "add_messages", changed)
    with pytest.raises(ValueError, match="'5'"):
        await colour(history, "add_messages", [HumanMessage("a", id="5"), AIMessage("a", id="5")])
    assert history.messages == [HumanMessage("hi", id="1")]


def test_messages_without_ids_may_be_equal(history):
    """Saying the same thing twice is two messages."""
    history.add_user_message("ok")
    history.add_user_message("ok")
    history.add_ai_message("ok")
    assert [(m.type, m.content) for m in history.messages] == [
        ("human", "ok"),
        ("human", "ok"),
        ("ai", "ok"),
    ]


async def test_a_removal_is_an_error(history, colour):
    """A RemoveMessage has no place in a history, and nothing beside it is written."""
    with pytest.raises(ValueError, match="RemoveMessage"):
        await colour(history, "add_messages", [HumanMessage("a"), RemoveMessage("1")])
    assert history.messages == []


def test_what_is_handed_out_may_be_changed(history):
    """Changing a message, or the list, changes nothing of what is kept."""
    history.add_messages([HumanMessage("a", additional_kwargs={"x": {"y": 1}})])
    given = history.messages
    given[0].additional_kwargs["x"]["y"] = 2
    given[0].content = "b"
    given.clear()
    assert history.messages == [HumanMessage("a", additional_kwargs={"x": {"y": 1}})]


def test_threads_lose_nothing(history, sessions):
    """cases/sessions.md 27: 4 threads of 50 adds each give 200 messages."""
    other = NanomemChatMessageHistory("cli:user", SessionManager(sessions.journal))

    def add(worker):
        for n in range(50):
            (history if worker % 2 else other).add_user_message(f"{worker}-{n}")

    threads = [threading.Thread(target=add, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = [m.content for m in history.messages]
    assert sorted(said) == sorted(f"{w}-{n}" for w in range(4) for n in range(50))
    for worker in range(4):
        assert [c for c in said if c.startswith(f"{worker}-")] == [
            f"{worker}-{n}" for n in range(50)
        ]
    assert other.messages == history.messages


async def test_both_colours_on_one_object(history):
    """cases/sessions.md 29: sync and async calls mix, many of them at once."""
    history.add_user_message("1")
    await history.aadd_messages([AIMessage("2")])
    history.add_messages([HumanMessage("3")])
    assert [m.content for m in await history.aget_messages()] == ["1", "2", "3"]
    await asyncio.gather(*(history.aadd_messages([HumanMessage(f"x{n}")]) for n in range(20)))
    assert len(history.messages) == 23
    await history.aclear()
    assert history.messages == []


@ON_FILES
async def test_an_empty_file_is_an_empty_history(history, sessions, colour):
    """cases/sessions.md 27: a file of no bytes does not crash, and takes messages."""
    history.add_user_message("x")
    path = path_of(sessions)
    path.write_bytes(b"")
    assert history.messages == []
    await colour(history, "add_messages", [HumanMessage("y")])
    assert [m.content for m in history.messages] == ["y"]


async def test_clear_removes_the_text_from_the_disk(tmp_path, colour):
    """cases/sessions.md 30: no file of the workspace has it any more, the session goes on."""
    mem = Nanomem(tmp_path)
    history = mem.history("s")
    await colour(history, "add_messages", [HumanMessage("my secret phrase")])
    mem.sessions.get_or_create("s").add_message("user", "unsaved")
    await colour(history, "clear")
    assert history.messages == []
    assert not any(b"secret phrase" in p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    await colour(history, "add_messages", [HumanMessage("new")])
    assert [m.content for m in history.messages] == ["new"]
    assert mem.history("s").messages == history.messages


async def test_clear_removes_the_checkpoints_of_the_thread(tmp_path, colour):
    """cases/sessions.md 30: what a graph's checkpoints hold of the text goes with it."""
    mem = Nanomem(tmp_path)
    graph = StateGraph(MessagesState)
    graph.add_node("n", lambda _: {"messages": [AIMessage("the answer")]})
    graph.add_edge(START, "n")
    compiled = graph.compile(checkpointer=mem.checkpointer)
    config = {"configurable": {"thread_id": "t"}}
    compiled.invoke({"messages": [HumanMessage("my secret phrase")]}, config)
    await colour(mem.history("t"), "clear")
    assert mem.checkpointer.get_tuple(config) is None
    assert mem.history("t").messages == []
    text = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert b"secret phrase" not in text
    assert b"the answer" not in text


async def test_clear_keeps_who_the_session_belongs_to(tmp_path, colour):
    """A cleared session stays bound to its scope, and keeps what the program keeps with it."""
    mem = Nanomem(tmp_path)
    mem.sessions.bind_scope("s", ("user", "a"))
    await colour(mem.history("s"), "add_messages", [HumanMessage("x")])
    await colour(mem.history("s"), "clear")
    with mem.sessions.reading("s") as records:
        assert records.scope == ("user", "a")


async def test_a_graphs_thread_is_read_but_not_written(tmp_path, colour):
    """A history of a thread shows the newest checkpoint; adding names update_state."""
    mem = Nanomem(tmp_path)
    graph = StateGraph(MessagesState)
    graph.add_node("n", lambda _: {"messages": [AIMessage("answer", id="a")]})
    graph.add_edge(START, "n")
    compiled = graph.compile(checkpointer=mem.checkpointer)
    config = {"configurable": {"thread_id": "t"}}
    compiled.invoke({"messages": [HumanMessage("question", id="q")]}, config)
    history = mem.history("t")
    assert history.messages == [HumanMessage("question", id="q"), AIMessage("answer", id="a")]
    with pytest.raises(ValueError, match="update_state"):
        await colour(history, "add_messages", [HumanMessage("x")])
    compiled.update_state(config, {"messages": [RemoveMessage("q")]})
    assert history.messages == [AIMessage("answer", id="a")]


def test_the_seeds_session_and_the_history_are_one(tmp_path):
    """What Session has the history shows, and the other way round."""
    mem = Nanomem(tmp_path)
    session = mem.sessions.get_or_create("cli:user")
    session.add_message("user", "from the session")
    mem.sessions.save(session)
    mem.history("cli:user").add_ai_message("from the history")
    contents = ["from the session", "from the history"]
    assert [m.content for m in mem.history("cli:user").messages] == contents
    assert [m["content"] for m in mem.sessions.get_or_create("cli:user").messages] == contents


def test_a_message_that_can_not_be_stored_is_an_error(history):
    """A class of the program's own is a ValueError that says so; nothing is written."""

    class Own(HumanMessage):
        pass

    with pytest.raises(ValueError, match="cannot be stored"):
        history.add_messages([HumanMessage("a"), Own("b")])
    assert history.messages == []


@ON_FILES
def test_a_reader_of_the_file_sees_the_conversation(history, sessions):
    """`grep -v _type` shows a line a message, in OpenAI's form."""
    history.add_messages([HumanMessage("hi"), AIMessage("yes")])
    shown = [line for line in lines(sessions) if "_type" not in line]
    assert [(line["role"], line["content"]) for line in shown] == [
        ("user", "hi"),
        ("assistant", "yes"),
    ]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([HumanMessage, AIMessage]), st.text()), max_size=8))
def test_any_texts_come_back(tmp_path_factory, said):
    """cases/sessions.md 24: any Unicode text, lone surrogates included, comes back equal."""
    workspace = tmp_path_factory.mktemp("history")
    messages = [cls(text) for cls, text in said]
    NanomemChatMessageHistory("k", SessionManager(workspace)).add_messages(messages)
    assert NanomemChatMessageHistory("k", SessionManager(workspace)).messages == messages


def test_a_held_session_sees_at_once_that_it_was_cleared(workspace):
    """cases/sessions.md 30: an object that somebody holds does not keep the text either."""
    sessions = SessionManager(workspace)
    history = NanomemChatMessageHistory("cli:x", sessions)
    history.add_messages([HumanMessage("secret")])
    session = sessions.get_or_create("cli:x")
    history.clear()
    assert session.messages == []
    session.add_message("user", "new")
    sessions.save(session)
    assert [message.content for message in history.messages] == ["new"]
