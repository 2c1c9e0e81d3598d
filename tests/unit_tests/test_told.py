"""What a consolidation tells: a graph's stream, a hook, the provider's cache, the model."""

from __future__ import annotations

import json

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.graph import START, StateGraph
from scripted import COUNTER, FREE, LONG, ScriptedChatModel, save_memory, session_of, shown

from langchain_nanomem import MemoryState, Nanomem
from langchain_nanomem.window import with_memory

pytestmark = pytest.mark.back_ends("files", "postgres", colour="async")

CONFIG = {"configurable": {"thread_id": "t"}}
SECRET = "- the cat is called Mitsou"
MARK = {"type": "ephemeral"}


def graph_of(kind, memory, chat):
    if kind == "agent":
        middleware = [memory.middleware()]
        return create_agent(chat, middleware=middleware, checkpointer=memory.checkpointer)
    graph = StateGraph(MemoryState)
    graph.add_node("memory", memory.node(chat))
    graph.add_edge(START, "memory")
    return graph.compile(checkpointer=memory.checkpointer)


async def streamed(colour, graph, text, mode):
    given = {"messages": [HumanMessage(text)]}
    if colour == "async":
        return [part async for part in graph.astream(given, CONFIG, stream_mode=mode)]
    return list(graph.stream(given, CONFIG, stream_mode=mode))


@pytest.mark.parametrize("kind", ["node", "agent"])
async def test_a_graphs_stream_tells_of_it_in_numbers(workspace, kind, colour, chat):
    """One custom event for each, with the prompt's tokens before and after, and no word of it."""
    model = ScriptedChatModel(replies=[save_memory("They spoke of Mitsou.", SECRET)])
    told = []
    memory = Nanomem(
        workspace, model=model, on_consolidated=told.append, context_window_tokens=900, **FREE
    )
    graph = graph_of(kind, memory, chat)
    events = [
        event
        for number in range(9)
        for event in await streamed(colour, graph, f"q{number}{LONG}", "custom")
    ]
    assert len(events) == len(told) > 0
    for event, one in zip(events, told, strict=True):
        assert event == {
            "type": "nanomem_consolidation",
            "id": one.id,
            "kind": "model",
            "messages": one.end - one.start,
            "tokens_before": one.tokens_before,
            "tokens_after": one.tokens_after,
        }
        assert event["tokens_before"] > event["tokens_after"] > 0
    assert events[0]["tokens_before"] >= 900
    assert "Mitsou" not in json.dumps(events)


def test_outside_of_a_graph_nothing_is_streamed(make, run):
    """And nothing fails."""
    assert len(run(make(), session_of(make(), "UAU"))) == 1


# --- the provider's cache ---


def test_marks_stand_before_and_behind_the_memory():
    """So that a changed memory leaves the system prompt in the cache."""
    (message,) = with_memory((), "You are Ada.", "<memory/>", MARK)
    assert message.content == [
        {"type": "text", "text": "You are Ada.", "cache_control": MARK},
        {"type": "text", "text": "<memory/>", "cache_control": MARK},
    ]


def test_without_memory_there_is_one_mark():
    """And none where there is nothing to cache."""
    (message,) = with_memory((), "You are Ada.", "", MARK)
    assert message.content == [{"type": "text", "text": "You are Ada.", "cache_control": MARK}]
    assert with_memory((), None, "", MARK) == []
    (message,) = with_memory((), None, "<memory/>", MARK)
    assert message.content == [{"type": "text", "text": "<memory/>", "cache_control": MARK}]


def test_a_mark_of_ones_own_stays():
    """Blocks that have one are left as they are; only the last message is marked."""
    own = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    first, last = with_memory([SystemMessage([own])], "You are Ada.", "<memory/>", MARK)
    assert first.content == "You are Ada."
    assert last.content == [own, {"type": "text", "text": "<memory/>", "cache_control": MARK}]


@pytest.mark.parametrize("kind", ["node", "agent"])
def test_it_is_asked_for_once(workspace, kind, chat):
    """An option of `Nanomem` for all places; the count of tokens is that of the words."""
    memory = Nanomem(
        workspace,
        model=ScriptedChatModel(replies=[save_memory()]),
        system_prompt="You are Ada.",
        cache_control=MARK,
        **FREE,
    )
    memory.memory.write_long_term(SECRET)
    graph_of(kind, memory, chat).invoke({"messages": [HumanMessage("q")]}, CONFIG)
    memory.wrap(chat).invoke("q", {"configurable": {"session_id": "s"}})
    for prompt in chat.prompts:
        assert prompt[0].content[-1]["cache_control"] == MARK
        assert SECRET in prompt[0].content[-1]["text"]
    plain = with_memory((), "You are Ada.", "<memory/>")
    marked = with_memory((), "You are Ada.", "<memory/>", MARK)
    assert abs(COUNTER(marked) - COUNTER(plain)) <= 2


# --- what the model is told of the memory's size ---


def test_the_model_is_told_how_long_the_memory_may_be(make, run):
    """A tenth of the budget, but 200 at least and 4,000 at most; or what was said."""
    for window, options, told in [
        (200, {}, 200),
        (40_000, {"consolidation_ratio": 0.001}, 4_000),
        (200, {"max_memory_tokens": 333}, 333),
    ]:
        consolidator = make(window=window, **options)
        session = session_of(consolidator, "UAU", key=f"c:{told}")
        run(consolidator, session, how="compact")
        assert f"memory_update: at most {told} tokens." in shown(consolidator.model)[0]


def test_a_memory_that_is_too_long_is_to_be_shortened(make, run):
    """The model is told how long it is."""
    consolidator = make(window=2_000, max_memory_tokens=50)
    consolidator.memory.write_long_term("- a fact of the user\n" * 30)
    run(consolidator, session_of(consolidator, "UAU"), how="compact")
    assert "merge, and leave out what matters least" in shown(consolidator.model)[0]
