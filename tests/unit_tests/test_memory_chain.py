"""A chain with memory: what is new goes in, all of it is kept, in both colours and streamed."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableGenerator, RunnableLambda
from langgraph.graph import START, StateGraph
from scripted import COUNTER, FREE, LONG, ScriptedChatModel

from langchain_nanomem import MemoryState, Nanomem, ScopeError
from langchain_nanomem.memory import fence_memory

pytestmark = pytest.mark.back_ends("files", "postgres", colour="async")

KEY = "cli:user"
RUN: Any = {"configurable": {"session_id": KEY}}


@pytest.fixture
def mem(workspace, model):
    return Nanomem(
        workspace, model=model, context_window_tokens=1_000, system_prompt="Be kind.", **FREE
    )


@pytest.fixture(params=["invoke", "stream"])
def ask(request, colour):
    """Asks a chain, in one colour; gives all parts of what came."""

    async def ask(chain, given, run=RUN):
        if request.param == "invoke":
            done = chain.invoke(given, run) if colour == "sync" else chain.ainvoke(given, run)
            return [done if colour == "sync" else await done]
        if colour == "sync":
            return list(chain.stream(given, run))
        return [part async for part in chain.astream(given, run)]

    return ask


def said(mem, key=KEY):
    return [m.content for m in mem.history(key).messages]


async def test_a_long_conversation_stays_in_the_window(mem, model, chat, ask):
    """cases/consolidation.md 8, 31: each prompt fits, ends in the question; all is in the session.

    Each message goes into memory once.
    """
    chain = mem.wrap(chat)
    for n in range(15):
        (answer,) = await ask(chain, f"q{n}{LONG}")
        assert answer.content == f"a{n}{LONG}"
    assert said(mem) == [f"{who}{n}{LONG}" for n in range(15) for who in "qa"]
    assert [prompt[-1].content for prompt in chat.prompts] == [f"q{n}{LONG}" for n in range(15)]
    assert all(prompt[0].content.startswith("Be kind.") for prompt in chat.prompts)
    assert all(COUNTER(prompt) <= 1_000 for prompt in chat.prompts)
    assert 2 < model.calls < 12
    pointer = mem.sessions.get_or_create(KEY).last_consolidated
    with mem.sessions.reading(KEY) as records:
        ends = [(one["start"], one["end"]) for one in records.consolidations]
    assert [0, *(end for _, end in ends)] == [*(start for start, _ in ends), pointer]


async def test_a_new_process_knows(mem, workspace, model, chat, ask):
    """What was said before a restart stands in the prompt after it."""
    await ask(mem.wrap(chat), "I'm Ada.")
    mem.memory.write_long_term("- likes tea")
    again = Nanomem(workspace, model=model, context_window_tokens=1_000, **FREE)
    await ask(again.wrap(chat), "Who am I?")
    assert chat.prompts[-1][0].content == fence_memory("- likes tea")
    assert [m.content for m in chat.prompts[-1][1:]] == ["I'm Ada.", f"a0{LONG}", "Who am I?"]


GIVEN = {
    "a text": ("hi", ["hi"]),
    "a message": (HumanMessage("hi"), ["hi"]),
    "several": ([HumanMessage("hi"), ("user", "you")], ["hi", "you"]),
    "a prompt value": (ChatPromptTemplate([("user", "hi {name}")]).invoke({"name": "A"}), ["hi A"]),
}


@pytest.mark.parametrize("given", GIVEN)
async def test_what_is_new_in_any_form(mem, chat, ask, given):
    """A text, a message, several, what a prompt template gives."""
    what, expected = GIVEN[given]
    await ask(mem.wrap(chat), what)
    assert said(mem) == [*expected, f"a0{LONG}"]


async def test_a_tool_loop_by_hand(mem, ask):
    """A call is recorded, and its result is given as what is new."""
    call = {"name": "look", "args": {"q": "x"}, "id": "c1", "type": "tool_call"}
    chain = mem.wrap(ScriptedChatModel(replies=[AIMessage("", tool_calls=[call]), "done"]))
    await ask(chain, "go")
    await ask(chain, ToolMessage("found", tool_call_id="c1"))
    messages = mem.history(KEY).messages
    assert [m.type for m in messages] == ["human", "ai", "tool", "ai"]
    assert messages[1].tool_calls == [call]


OUTPUTS = {
    "a text": (StrOutputParser(), ["a0"]),
    "messages": (RunnableLambda(lambda m: [m, AIMessage("and more")]), ["a0", "and more"]),
    "nothing": (RunnableLambda(lambda _: None), []),
}


@pytest.mark.parametrize("output", OUTPUTS)
async def test_what_the_chain_gives_in_any_form(mem, ask, output):
    """A text becomes an answer, several messages are several, None is nothing."""
    behind, expected = OUTPUTS[output]
    await ask(mem.wrap(ScriptedChatModel(replies=["a0"]) | behind), "hi")
    assert said(mem) == ["hi", *expected]


async def test_an_output_that_is_no_message(mem, chat, ask):
    """An error that says where else it belongs; the question is kept."""
    with pytest.raises(ValueError, match=r"dict.*memory\.wrap\(chain\) \| parser"):
        await ask(mem.wrap(chat | RunnableLambda(lambda m: {"answer": m})), "hi")
    assert said(mem) == ["hi"]


@pytest.mark.parametrize("given", [{"input": "hi"}, 5, None])
async def test_an_input_that_is_no_message(mem, chat, ask, given):
    """An error that says what is taken; nothing was written, nobody was asked."""
    with pytest.raises(ValueError, match="a text, a message"):
        await ask(mem.wrap(chat), given)
    assert (said(mem), chat.calls) == ([], 0)


async def test_the_question_is_kept_when_the_model_fails(mem, ask):
    """The model's error comes through; the next turn sees the question that had no answer."""
    model = ScriptedChatModel(replies=[RuntimeError("down"), "up"])
    with pytest.raises(RuntimeError, match="down"):
        await ask(mem.wrap(model), "first")
    await ask(mem.wrap(model), "second")
    assert said(mem) == ["first", "second", "up"]


async def test_write_errors_are_raised(mem, chat, ask, disk_full, tmp_path):
    """A full disk is no answer that was silently not recorded."""
    await ask(mem.wrap(chat), "first")
    full = RunnableLambda(lambda messages: disk_full(0) or AIMessage(f"late {len(messages)}"))
    with pytest.raises(OSError, match="space"):
        await ask(mem.wrap(full), "second")
    disk_full(10**9)
    assert said(mem) == ["first", f"a0{LONG}", "second"]


async def test_a_graphs_thread_is_refused(mem, chat, ask):
    """A session belongs to a graph or to a chain."""
    graph = StateGraph(MemoryState).add_node("m", mem.node(chat)).add_edge(START, "m")
    graph.compile(checkpointer=mem.checkpointer).invoke(
        {"messages": [("user", "hi")]}, {"configurable": {"thread_id": KEY}}
    )
    with pytest.raises(ValueError, match="update_state"):
        await ask(mem.wrap(chat), "hi")


async def test_scopes(workspace, chat, ask):
    """cases/consolidation.md 35: unclear, or another user's session: nobody is asked."""
    mem = Nanomem(workspace, model="extractive", scope="user")
    with pytest.raises(ScopeError):
        await ask(mem.wrap(chat), "hi")
    await ask(mem.wrap(chat), "hi", {"configurable": {"session_id": "s", "user_id": "a"}})
    with pytest.raises(ScopeError):
        await ask(mem.wrap(chat), "hi", {"configurable": {"session_id": "s", "user_id": "b"}})
    assert chat.calls == 1


async def test_a_config_without_a_session(mem, chat, ask):
    """The error says how a session is named."""
    with pytest.raises(ValueError, match="session_id"):
        await ask(mem.wrap(chat), "hi", {})


async def test_with_a_template(mem, chat, ask):
    """A template behind the memory is given the messages as any placeholder is."""
    template = ChatPromptTemplate([MessagesPlaceholder("messages"), ("system", "Rhyme.")])
    chain = mem.wrap((lambda messages: {"messages": messages}) | template | chat)
    await ask(chain, "one")
    await ask(chain, "two")
    assert [m.content for m in chat.prompts[1]] == ["Be kind.", "one", f"a0{LONG}", "two", "Rhyme."]
    assert said(mem) == ["one", f"a0{LONG}", "two", f"a1{LONG}"]


async def test_a_refused_prompt_is_halved_and_sent_again(mem, model, ask):
    """Where the provider's window is smaller than was said, one consolidation makes it fit."""
    mem.consolidator.budget_tokens, mem.consolidator.target_tokens = 100_000, 50_000

    def reply(messages):
        if len(messages) > 8:
            raise ContextOverflowError("too long")
        return f"answer{LONG}"

    chain = mem.wrap(ScriptedChatModel(replies=[reply]))
    for n in range(8):
        await ask(chain, f"q{n}{LONG}")
    assert len(said(mem)) == 16
    assert model.calls > 0


# --- streams ----------------------------------------------------------------


def words():
    """A model that streams word by word."""
    return GenericFakeChatModel(messages=iter([AIMessage("a b c d e f") for _ in range(9)]))


async def test_chunks_are_stored_as_one_message(mem, colour):
    """As a message, and not as a chunk; the parts come as they are made."""
    chain = mem.wrap(words())
    if colour == "sync":
        parts = list(chain.stream("hi", RUN))
    else:
        parts = [part async for part in chain.astream("hi", RUN)]
    assert len(parts) > 5
    assert all(isinstance(part, AIMessageChunk) for part in parts)
    (_, answer) = mem.history(KEY).messages
    assert (type(answer), answer.content) == (AIMessage, "a b c d e f")


async def test_a_consumer_that_goes_away(mem, colour):
    """What it was given by then is kept, and the next turn may begin."""
    chain = mem.wrap(words())
    if colour == "sync":
        stream = chain.stream("hi", RUN)
        given = [next(stream), next(stream), next(stream)]
        stream.close()
    else:
        astream = chain.astream("hi", RUN)
        given = [await anext(astream), await anext(astream), await anext(astream)]
        await astream.aclose()
    assert said(mem) == ["hi", "".join(part.content for part in given)]
    await asyncio.wait_for(chain.ainvoke("on", RUN), 20)
    assert len(said(mem)) == 4


async def test_a_stream_that_breaks(mem, colour):
    """Half an answer that ended in an error is none; the question is kept."""

    def broken(_):
        yield AIMessageChunk("half")
        raise RuntimeError("cut off")

    async def abroken(given):
        async for _ in given:
            for part in broken(None):
                yield part

    chain = mem.wrap(RunnableGenerator(broken, abroken))

    async def consume():
        if colour == "sync":
            return list(chain.stream("hi", RUN))
        return [part async for part in chain.astream("hi", RUN)]

    with pytest.raises(RuntimeError, match="cut off"):
        await consume()
    assert said(mem) == ["hi"]


# --- turns at once ----------------------------------------------------------


def slow(asked):
    """A model that takes its time, and notes when it begins and ends."""

    def reply(messages):
        asked.append(("begin", messages[-1].content))
        time.sleep(0.02)
        asked.append(("end", messages[-1].content))
        return f"to {messages[-1].content}"

    return ScriptedChatModel(replies=[reply])


def in_turn(mem, asked, count):
    pairs = list(zip(asked[::2], asked[1::2], strict=True))
    assert all((b[0], e[0]) == ("begin", "end") and b[1] == e[1] for b, e in pairs)
    assert len(pairs) == count
    messages = said(mem)
    assert messages[1::2] == [f"to {one}" for one in messages[::2]]


def test_turns_of_several_threads_come_one_by_one(mem):
    """Each question stands before its answer, through whichever chain it was asked."""
    asked: list[Any] = []
    model = slow(asked)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: mem.wrap(model).invoke(f"q{n}", RUN), range(16)))
    in_turn(mem, asked, 16)


async def test_turns_of_several_tasks_come_one_by_one(mem):
    """In the order in which they began; streams and calls alike."""
    asked: list[Any] = []
    chain = mem.wrap(slow(asked))

    async def streamed(n):
        return [part async for part in chain.astream(f"q{n}", RUN)]

    turns = [streamed(n) if n % 2 else chain.ainvoke(f"q{n}", RUN) for n in range(10)]
    await asyncio.gather(*turns)
    in_turn(mem, asked, 10)
    assert said(mem)[::2] == [f"q{n}" for n in range(10)]


async def test_a_turn_that_was_given_up_holds_nobody_up(mem):
    """One that is cancelled as it waits lets the next one in, in its turn, and asks nobody."""
    entered, leave = threading.Event(), threading.Event()

    def reply(messages):
        entered.set()
        leave.wait(20)
        return f"to {messages[-1].content}"

    chain = mem.wrap(ScriptedChatModel(replies=[reply]))
    first = asyncio.create_task(chain.ainvoke("first", RUN))
    await asyncio.to_thread(entered.wait, 20)
    waiting = asyncio.create_task(chain.ainvoke("given up", RUN))
    third = asyncio.create_task(chain.ainvoke("third", RUN))
    await asyncio.sleep(0.05)
    waiting.cancel()
    await asyncio.sleep(0.05)
    assert not third.done()
    leave.set()
    await asyncio.wait_for(asyncio.gather(first, third), 20)
    assert said(mem) == ["first", "to first", "third", "to third"]


async def test_a_turn_within_a_turn(mem, ask):
    """A chain that asks the same session again waits for nobody: it is in its own turn."""
    inner = mem.wrap(ScriptedChatModel(replies=["inner"]))
    outer = mem.wrap(
        RunnableLambda(
            lambda _: AIMessage(f"outer, {inner.invoke('aside', RUN).content}"),
        )
    )
    await asyncio.wait_for(ask(outer, "hi"), 20)
    assert said(mem) == ["hi", "aside", "inner", "outer, inner"]


def test_other_sessions_wait_for_nobody(mem):
    """Two sessions are asked at once."""
    both = threading.Barrier(2, timeout=20)
    model = ScriptedChatModel(replies=[lambda _: str(both.wait())])
    with ThreadPoolExecutor(2) as pool:
        runs = [{"configurable": {"session_id": name}} for name in "ab"]
        done = list(pool.map(lambda run: mem.wrap(model).invoke("hi", run).content, runs))
    assert sorted(done) == ["0", "1"]
