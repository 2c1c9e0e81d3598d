"""Consolidation behind the answer: nobody waits, nothing is lost, nothing is done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, StateGraph
from scripted import FREE, LONG, ScriptedChatModel, consolidator_of, save_memory, session_of, texts

from langchain_nanomem import MemoryState, Nanomem, NanomemMiddleware, SessionManager
from langchain_nanomem.deferred import DeferredWork

pytestmark = pytest.mark.back_ends("files", "postgres")

CONFIG = {"configurable": {"thread_id": "t"}}


class Gated(ScriptedChatModel):
    """Consolidates once it may."""

    gate: threading.Event
    begun: threading.Event

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.begun.set()
        assert self.gate.wait(60)
        return super()._generate(messages, stop, run_manager, **kwargs)


@pytest.fixture
def slow():
    replies = [save_memory(f"entry {number}", f"- facts {number}") for number in range(9)]
    model = Gated(replies=replies, gate=threading.Event(), begun=threading.Event())
    yield model
    model.gate.set()


@pytest.fixture
def memory(workspace, slow):
    memory = Nanomem(
        workspace,
        model=slow,
        deferred=True,
        **(FREE | {"context_window_tokens": 800, "safety_margin_tokens": 0}),
    )
    yield memory
    slow.gate.set()
    memory.close()


@pytest.fixture(params=["node", "after", "agent", "chain"])
def turn(request, memory, chat, call):
    """A turn in each place: gives the answer's text."""
    if request.param == "chain":
        chain = memory.wrap(chat)

        async def say(text):
            return (await call(chain, "invoke", text, CONFIG)).content

        return say
    graph = graph_of(request.param, memory, chat)

    async def say(text):
        state = await call(graph, "invoke", {"messages": [HumanMessage(text)]}, CONFIG)
        return state["messages"][-1].content

    return say


def graph_of(kind, memory, chat):
    if kind == "agent":
        middleware = [NanomemMiddleware(memory.consolidator)]
        return create_agent(chat, middleware=middleware, checkpointer=memory.checkpointer)
    graph = StateGraph(MemoryState)
    if kind == "node":
        graph.add_node("memory", memory.node(chat))
        graph.add_edge(START, "memory")
    else:

        def reply(state, config):
            return {"messages": chat.invoke(memory.prompt.invoke(state, config))}

        graph.add_node("chat", reply)
        graph.add_node("memory", memory.node())
        graph.add_edge(START, "chat")
        graph.add_edge("chat", "memory")
    return graph.compile(checkpointer=memory.checkpointer)


async def test_no_turn_waits_for_it(turn, memory, slow, chat):
    """The answers come while the model still thinks; what does not fit meanwhile is left out.

    Once it is done, the next turn's prompt has the memory and the shorter window.
    """
    for number in range(8):
        assert (await turn(f"q{number}{LONG}")).startswith(f"a{number}")
        assert chat.prompts[-1][-1].content == f"q{number}{LONG}"
        assert memory.consolidator.counter(chat.prompts[-1]) <= 800
    assert slow.begun.is_set()
    assert texts(memory) == []
    assert "left out" in chat.prompts[-1][0].content
    slow.gate.set()
    assert memory.close(60)
    await turn(f"q8{LONG}")
    assert "facts" in chat.prompts[-1][0].content
    assert memory.close(60)
    sources = [entry.source for entry in memory.memory.history_entries()]
    assert len(sources) == len(set(sources)) == slow.calls >= 1


async def test_what_comes_meanwhile_stays_unconsolidated(turn, memory, slow):
    """cases/consolidation.md 10: the range is what was planned; newer messages are live."""
    asked = 0
    while not slow.begun.wait(0.2):
        await turn(f"q{asked}{LONG}")
        asked += 1
    await turn(f"late{LONG}")
    slow.gate.set()
    assert memory.close(60)
    session = memory.sessions.get_or_create("t")
    live = [message["content"] for message in session.messages[session.last_consolidated :]]
    assert f"late{LONG}" in live
    assert len(session.messages) == 2 * (asked + 1)
    assert all("late" not in prompt[1].content for prompt in slow.prompts)


async def test_it_begins_a_turn_ahead(turn, memory, slow, chat):
    """So that the next turn finds it done: no prompt is ever consolidated inline or cut."""
    slow.gate.set()
    for number in range(8):
        await turn(f"q{number}{LONG}")
        assert memory.close(60)
        assert "left out" not in str(chat.prompts[-1][0].content)
    assert slow.calls >= 2


async def test_the_limit_holds_inline(turn, memory, slow, chat):
    """One huge message that nobody could foresee: then it is consolidated first."""
    slow.gate.set()
    await turn(f"q0{LONG}")
    assert slow.calls == 0
    await turn("huge" + LONG * 7)
    assert "facts 0" in chat.prompts[-1][0].content
    assert memory.consolidator.counter(chat.prompts[-1]) <= 800


def test_a_session_is_worked_on_once(workspace, slow):
    """cases/consolidation.md 11: what is asked for meanwhile is not begun, nor queued."""
    consolidator = consolidator_of(workspace, model=slow, deferred=True)
    session = session_of(consolidator, "UAU")
    assert consolidator.defer(session) is True
    assert slow.begun.wait(60)
    assert consolidator.defer(session) is False
    assert consolidator.maybe_consolidate_by_tokens(session) == []
    assert consolidator.is_busy(session.key)
    slow.gate.set()
    assert consolidator.close(60)
    assert texts(consolidator) == ["entry 0"]


def test_close_waits_up_to_a_time(workspace, slow):
    """Then it says that something is left; what was not begun is dropped, and done later."""
    consolidator = consolidator_of(workspace, model=slow, deferred=True)
    for number in range(6):
        assert consolidator.defer(session_of(consolidator, "UAU", key=f"c:{number}"))
    assert consolidator.close(0.1) is False
    slow.gate.set()
    assert consolidator.close(60) is True
    begun = slow.calls
    assert 1 <= begun <= 4
    done = [
        consolidator.maybe_consolidate_by_tokens(session_of(consolidator, key=f"c:{number}"))
        for number in range(6)
    ]
    assert sum(map(len, done)) == 6 - begun
    assert len(texts(consolidator)) == 6


def test_an_error_in_it_is_logged(workspace, caplog):
    """Nobody waits who could be told; the worker goes on."""
    work = DeferredWork()

    def fail():
        raise OSError("the disk is gone")

    assert work.submit("a", fail)
    assert work.wait(60)
    assert "the disk is gone" in caplog.text
    done = threading.Event()
    assert work.submit("a", done.set)
    assert work.wait(60)
    assert done.is_set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_fork_has_its_own(slow):
    """What the parent works on is no business of the child's, which can work itself."""
    work = DeferredWork()
    work.submit("a", slow.gate.wait)
    pid = os.fork()
    if pid == 0:
        done = threading.Event()
        ok = work.submit("a", done.set) and work.wait(30) and done.is_set()
        os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0
    slow.gate.set()
    assert work.wait(60)


def test_it_is_in_the_callers_context(tmp_path):
    """The callbacks of the run that it comes from see it, by its name."""
    names = []

    class Names(BaseCallbackHandler):
        def on_chat_model_start(self, *_args, name=None, **_kwargs):
            names.append(name)

    memory = Nanomem(
        tmp_path,
        model=ScriptedChatModel(replies=[save_memory()]),
        deferred=True,
        context_window_tokens=200,
        **FREE,
    )
    graph = graph_of("node", memory, ScriptedChatModel(replies=["ok" + LONG]))
    for number in range(3):
        graph.invoke(
            {"messages": [HumanMessage(f"q{number} word word")]}, CONFIG | {"callbacks": [Names()]}
        )
        memory.close(60)
    assert "nanomem_consolidation" in names


# --- the end of the program ---

PROGRAM = """
import sys, threading, time
from langchain_core.messages import AIMessage
from scripted import ScriptedChatModel, consolidator_of, save_memory, session_of
from stores import workspace_at

class Slow(ScriptedChatModel):
    def _generate(self, *args, **kwargs):
        print("asked", flush=True)
        time.sleep(float(sys.argv[2]))
        return super()._generate(*args, **kwargs)

model = Slow(replies=[save_memory("too late")])
journal = workspace_at(sys.argv[1]).journal
consolidator = consolidator_of(sys.argv[1], journal=journal, model=model, deferred=True)
for number in range(int(sys.argv[3])):
    consolidator.defer(session_of(consolidator, "UAU", key=f"c:{number}"))
print("answered", flush=True)
if sys.argv[4] == "wait":
    sys.stdin.readline()
"""


def start(path, seconds, sessions, end):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path), str(seconds), str(sessions), end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        text=True,
    )


def test_killed_in_the_middle_it_is_done_once_at_the_next_start(make, address, workspace, run):
    """The pointer has not moved; the next turn does it, and nothing is there twice."""
    with start(address, 60, 1, "wait") as process:
        assert {process.stdout.readline() for _ in range(2)} == {"asked\n", "answered\n"}
        process.send_signal(signal.SIGKILL)
    consolidator = make(save_memory("once"))
    session = SessionManager(workspace).get_or_create("c:0")
    assert (session.last_consolidated, texts(consolidator)) == (0, [])
    session = consolidator.sessions.get_or_create("c:0")
    assert len(run(consolidator, session)) == 1
    assert run(consolidator, session) == []
    assert texts(consolidator) == ["once"]


def test_the_end_of_the_program_waits_for_nothing(make, address):
    """No model call is begun at interpreter exit, and one that runs is not waited for."""
    with start(address, 60, 9, "go") as process:
        output, _ = process.communicate(timeout=50)
    assert process.returncode == 0
    assert output.count("asked") <= 4
    assert texts(make()) == []


def test_leaving_the_context_waits(workspace, slow):
    """`with Nanomem(...)`: what is begun is done when the block has ended."""
    with Nanomem(workspace, model=slow, deferred=True, context_window_tokens=200, **FREE) as memory:
        session = memory.sessions.get_or_create("s")
        for text in ("q0" + LONG, "q1" + LONG, "q2"):
            session.add_message("user", text)
        assert memory.consolidator.defer(session)
        assert slow.begun.wait(60)
        threading.Timer(0.2, slow.gate.set).start()
    assert texts(memory) == ["entry 0"]


def test_the_answers_own_message_is_never_in_a_range(memory, slow):
    """It is the newest: the range ends before the last turn."""
    slow.gate.set()
    chat = ScriptedChatModel(replies=[AIMessage(f"a{n}{LONG}", id=f"a{n}") for n in range(9)])
    graph = graph_of("node", memory, chat)
    for number in range(6):
        graph.invoke({"messages": [HumanMessage(f"q{number}{LONG}", id=f"q{number}")]}, CONFIG)
        memory.close(60)
        with memory.sessions.reading("t") as records:
            assert f"a{number}" not in records.consolidated_ids
    assert slow.calls
