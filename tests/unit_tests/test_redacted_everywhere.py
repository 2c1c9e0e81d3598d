"""Redacted sessions beside all else that a session can be: trimmed, encrypted, archived, shared."""

from __future__ import annotations

from pathlib import Path

import pytest
import warm
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, MessagesState, StateGraph
from leaks import EVERYWHERE, TOLD, leaks, lines_of, written
from scripted import FREE, LONG, ScriptedChatModel, save_memory

from langchain_nanomem import MemoryState, Nanomem, NanomemSaver, SessionManager

pytestmark = pytest.mark.back_ends("files", "postgres")

CONFIG = {"configurable": {"thread_id": "t"}}


class Open:
    """A cipher through which one can look."""

    def encrypt(self, plain):
        return "open", plain

    def decrypt(self, _, content):
        return content


def graph_of(saver):
    graph = StateGraph(MessagesState)
    graph.add_node("answer", lambda _: {"messages": [AIMessage(TOLD)]})
    graph.add_edge(START, "answer")
    return graph.compile(checkpointer=saver)


async def test_a_trimmed_state(workspace, call):
    """What leaves the state stays in the session, once, also where others go on with it."""
    replies = [save_memory(TOLD, f"- {TOLD}") for _ in range(9)]
    model = ScriptedChatModel(replies=replies)
    chat = ScriptedChatModel(replies=[f"a{n} {TOLD}" for n in range(8)])
    for turn in range(8):
        if turn in {0, 5}:
            memory = Nanomem(
                workspace, model=model, redaction=EVERYWHERE, context_window_tokens=900, **FREE
            )
            graph = StateGraph(MemoryState)
            graph.add_node("chat", memory.node(chat, trim_state=True))
            graph.add_edge(START, "chat")
            compiled = graph.compile(checkpointer=memory.checkpointer)
        said = [HumanMessage(f"q{turn} {TOLD}{LONG}", id=f"q{turn}")]
        state = await call(compiled, "invoke", {"messages": said}, CONFIG)
    kept = memory.sessions.get_or_create("t").messages
    expected = [f"{who}{turn}" for turn in range(8) for who in "qa"]
    assert [one["content"].split()[0] for one in kept] == expected
    assert len(state["messages"]) < len(kept) == len(lines_of(workspace))
    assert leaks(written(workspace)) == []


async def test_an_encrypting_serializer(workspace, call):
    """It gets to see nothing sensitive either, and each message once."""
    for said in ([HumanMessage(TOLD)], [("user", TOLD)], TOLD):
        sessions = SessionManager(workspace, redaction=EVERYWHERE)
        graph = graph_of(NanomemSaver(sessions, serde=EncryptedSerializer(Open())))
        await call(graph, "invoke", {"messages": said}, CONFIG)
    stored = graph.get_state(CONFIG).values["messages"]
    assert [one.id for one in stored] == lines_of(workspace)
    assert "my aws is [secret]" in stored[0].content
    assert leaks(written(workspace)) == []


async def test_an_archived_session(tmp_path, call):
    """The archive has no secrets, and a thread that comes back goes on."""
    memory = Nanomem(tmp_path, redaction=EVERYWHERE)
    graph = graph_of(memory.checkpointer)
    await call(graph, "invoke", {"messages": [("user", TOLD)]}, CONFIG)
    memory.sessions.archive("t")
    assert memory.memory.search_history("aws")
    assert leaks(written(tmp_path)) == []
    await call(graph, "invoke", {"messages": [("user", TOLD)]}, CONFIG)
    memory.checkpointer.copy_thread("t", "u")
    assert len(graph.get_state(CONFIG).values["messages"]) == len(lines_of(tmp_path)) == 4
    assert leaks(written(tmp_path)) == []


def test_several_processes(workspace, address, tmp_path):
    """Processes that go on with one thread at once write no secret, and no message twice."""
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from stores import workspace_at\n"
        "from test_redacted_everywhere import *\n"
        "for _ in range(3):\n"
        "    journal = workspace_at(sys.argv[1]).journal\n"
        "    saver = NanomemSaver(SessionManager(journal, redaction=EVERYWHERE))\n"
        "    graph_of(saver).invoke({'messages': [('user', TOLD), HumanMessage(TOLD)]}, CONFIG)"
    )
    here = Path(__file__).parent
    running = [warm.Process(code, [address, here, here.parent]) for _ in range(3)]
    assert [process.communicate() for process in running] == [("", "")] * 3
    ids = lines_of(workspace)
    assert len(ids) == len(set(ids)) == 3 * 9
    assert leaks(written(workspace)) == []
