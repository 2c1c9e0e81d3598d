"""Memory in parallel branches, in `Send`, and in the functional API."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import Send
from places import MODES
from scripted import COUNTER, FREE, LONG, ScriptedChatModel, consolidated, recorded

from langchain_nanomem import MemoryState, Nanomem
from langchain_nanomem.memory import MEMORY_TAG

pytestmark = pytest.mark.back_ends("files", "postgres", colour="async")

RUN: Any = {"configurable": {"thread_id": "t"}}


@pytest.fixture
def mem(workspace, model):
    return Nanomem(workspace, model=model, context_window_tokens=1_000, **FREE)


@pytest.fixture(params=["nanomem", "memory"])
def saver(request, mem):
    return mem.checkpointer if request.param == "nanomem" else InMemorySaver()


@pytest.fixture
def chat():
    """Answers each question with words of its own."""
    return ScriptedChatModel(replies=[lambda prompt: f"to {prompt[-1].content}"])


def assert_each_once(mem, chat):
    """No message is consolidated twice, each of them is recorded, and each prompt fits."""
    gone = [message_id for part in consolidated(mem) for message_id in part]
    assert len(gone) == len(set(gone)) > 4
    assert set(gone) <= recorded(mem).keys()
    entries = [entry.text for entry in mem.memory.history_entries()]
    assert len(entries) == len(set(entries)) == len(consolidated(mem)) > 1
    assert all(COUNTER(prompt) <= 1_000 for prompt in chat.prompts)


async def test_two_memory_nodes_at_once(mem, chat, call, saver):
    """Both see the question, both answers are in the state; no range goes in twice."""
    graph = StateGraph(MemoryState)
    for name in ("left", "right"):
        graph.add_node(name, mem.node(chat))
        graph.add_edge(START, name)
    compiled = graph.compile(checkpointer=saver)
    for n in range(9):
        given = {"messages": [HumanMessage(f"q{n}{LONG}")]}
        state = await call(compiled, "invoke", given, RUN)
        assert [prompt[-1].content for prompt in chat.prompts[-2:]] == [f"q{n}{LONG}"] * 2
    assert [m.content[:5] for m in state["messages"][-3:]] == ["q8 wo", "to q8", "to q8"]
    assert len(state["messages"]) == 27
    assert state["last_consolidated_id"] in {m.id for m in state["messages"]}
    assert_each_once(mem, chat)


async def test_sent_to_in_parallel(mem, chat, call, saver):
    """Each branch of a `Send` has a question of its own behind the shared conversation."""

    def parts(state):
        return [
            Send("answer", {"messages": [*state["messages"], HumanMessage(f"part {name}")]})
            for name in "xyz"
        ]

    graph = StateGraph(MemoryState).add_node("answer", mem.node(chat))
    graph.add_conditional_edges(START, parts, ["answer"])
    compiled = graph.compile(checkpointer=saver)
    for n in range(16):
        given = {"messages": [HumanMessage(f"q{n}{LONG}")]}
        state = await call(compiled, "invoke", given, RUN)
        asked = [prompt[-1].content for prompt in chat.prompts[-3:]]
        assert sorted(asked) == ["part x", "part y", "part z"]
        assert all(f"q{n}{LONG}" in [m.content for m in p] for p in chat.prompts[-3:])
    assert len(state["messages"]) == 16 * 4
    assert_each_once(mem, chat)


async def test_a_session_for_each_sent_part(mem, chat, call, saver):
    """A node may name another session for each part: their conversations stay apart."""

    class Parts(TypedDict):
        names: list[str]
        answers: Annotated[list[str], operator.add]

    def ask(part):
        run = {"configurable": {"session_id": part["name"]}}
        return {"answers": [mem.wrap(chat).invoke(f"{part['name']}{LONG}", run).content]}

    graph = StateGraph(Parts).add_node("ask", ask)
    send = lambda state: [Send("ask", {"name": name}) for name in state["names"]]  # noqa: E731
    compiled = graph.add_conditional_edges(START, send, ["ask"]).compile(checkpointer=saver)
    for _ in range(6):
        state = await call(compiled, "invoke", {"names": ["x", "y"]}, RUN)
    assert sorted(state["answers"]) == sorted(f"to {name}{LONG}" for name in "xy" for _ in range(6))
    for name in "xy":
        said = [m.content for m in mem.history(name).messages]
        assert said == [f"{name}{LONG}", f"to {name}{LONG}"] * 6
        assert mem.sessions.get_or_create(name).last_consolidated > 0


async def test_a_prompt_in_a_task(mem, chat, call, colour, saver):
    """In `@entrypoint` the prompt works within a `@task`, with messages that have no ids."""
    chain = mem.prompt | chat

    @task
    def answer(messages):
        return chain.invoke(messages).content

    @task
    async def aanswer(messages):
        return (await chain.ainvoke(messages)).content

    @entrypoint(checkpointer=saver)
    def talk(question: str, *, previous: Any = None):
        messages = [*(previous or []), HumanMessage(question)]
        return [*messages, AIMessage(answer(messages).result())]

    @entrypoint(checkpointer=saver)
    async def atalk(question: str, *, previous: Any = None):
        messages = [*(previous or []), HumanMessage(question)]
        return [*messages, AIMessage(await aanswer(messages))]

    runnable = talk if colour == "sync" else atalk
    for n in range(9):
        messages = await call(runnable, "invoke", f"q{n}{LONG}", RUN)
        assert chat.prompts[-1][-1].content == f"q{n}{LONG}"
    said = [text for n in range(9) for text in (f"q{n}{LONG}", f"to q{n}{LONG}")]
    assert [m.content for m in messages] == said
    gone = [recorded(mem)[i] for part in consolidated(mem) for i in part]
    assert gone == said[: len(gone)]
    assert_each_once(mem, chat)


async def test_a_node_in_an_entrypoint(mem, chat, call, colour, saver):
    """The memory node can be called within `@entrypoint`; no stream mode shows the memory."""
    node = mem.node(chat)

    @entrypoint(checkpointer=saver)
    def talk(question: str, *, previous: Any = None):
        state = previous or {"messages": []}
        before = [*state["messages"], HumanMessage(question, id=question[:3])]
        made = node.invoke({**state, "messages": before})
        return {**state, **made, "messages": [*before, *made["messages"]]}

    @entrypoint(checkpointer=saver)
    async def atalk(question: str, *, previous: Any = None):
        state = previous or {"messages": []}
        before = [*state["messages"], HumanMessage(question, id=question[:3])]
        made = await node.ainvoke({**state, "messages": before})
        return {**state, **made, "messages": [*before, *made["messages"]]}

    runnable = talk if colour == "sync" else atalk
    mem.memory.write_long_term("- sEcret")
    seen = set()
    for n in range(9):
        for mode, part in await call(runnable, "stream", f"q{n}{LONG}", RUN, stream_mode=MODES):
            seen.add(mode)
            assert "sEcret" not in repr(part)
            assert MEMORY_TAG not in repr(part)
    assert seen == set(MODES)
    state = (await call(runnable, "get_state", RUN)).values
    assert [m.content for m in state["messages"][::2]] == [f"q{n}{LONG}" for n in range(9)]
    assert state["last_consolidated_id"] == consolidated(mem)[-1][-1]
    assert_each_once(mem, chat)
