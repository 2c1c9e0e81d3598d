"""A consolidation that is asked behind the conversation, as it stands in the provider's cache."""

from __future__ import annotations

import json

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph
from scripted import (
    COUNTER,
    FREE,
    LONG,
    ScriptedChatModel,
    save_memory,
    session_of,
    texts,
)

from langchain_nanomem import CostAwarePolicy, MemoryState, Nanomem
from langchain_nanomem.policy import Thresholds

pytestmark = pytest.mark.back_ends("files", "postgres", colour="async")

CONFIG = {"configurable": {"thread_id": "t"}}
ENTRY, UPDATE = "They spoke of Mitsou.", "- the cat is called Mitsou"


def answer(entry=ENTRY, update=UPDATE):
    return json.dumps({"history_entry": entry, "memory_update": update})


@tool
def look(place: str) -> str:
    """Look at a place."""
    return f"nothing at {place}"


def opened(path, *replies, **options):
    model = ScriptedChatModel(replies=list(replies) or [answer()])
    settings = {"context_window_tokens": 3_000, "system_prompt": "You are Ada."} | FREE
    return Nanomem(path, model=model, reuse_prompt=True, **(settings | options)), model


def due(memory):
    """A session of nine long messages, six of which are to go."""
    session = session_of(memory, "UAUAUAUAU")
    for message in session.messages:
        message["content"] += LONG * 4
    return session


def graph_of(kind, memory, chat):
    if kind == "agent":
        return create_agent(
            chat,
            [look],
            system_prompt="You are Ada.",
            middleware=[memory.middleware()],
            checkpointer=memory.checkpointer,
        )
    graph = StateGraph(MemoryState)
    graph.add_node("memory", memory.node(chat))
    graph.add_edge(START, "memory")
    return graph.compile(checkpointer=memory.checkpointer)


@pytest.mark.parametrize("kind", ["node", "agent"])
async def test_what_is_sent_is_a_prefix_of_the_last_prompt(workspace, kind, chat, call):
    """The same messages, with the same tools; only the question at the end is new."""
    memory, model = opened(workspace, context_window_tokens=1_500)
    graph = graph_of(kind, memory, chat)
    for number in range(16):
        await call(graph, "invoke", {"messages": [HumanMessage(f"q{number}{LONG}")]}, CONFIG)
        if model.calls:
            break
    sent, prompts = model.prompts[0], chat.prompts
    before = [(m.type, m.content) for m in prompts[-2]]
    asked = [(m.type, m.content) for m in sent[:-1]]
    assert len(asked) > 3
    assert asked == before[: len(asked)]
    assert asked[-1][0] == "ai"
    if kind == "agent":
        assert model.options[0]["tools"] == [look]
    assert texts(memory)[0] == ENTRY
    assert UPDATE in prompts[-1][0].content


def test_the_question_tells_dates_and_limit(workspace, run):
    """cases/consolidation.md 28: date and weekday of each message, by days; in plain JSON."""
    memory, model = opened(workspace)
    session = due(memory)
    session.messages[2]["timestamp"] = "2026-05-09T08:00:00+00:00"
    session.messages[3]["timestamp"] = "2026-05-09T08:01:00+00:00"
    session.messages[2]["content"] += " I saw her yesterday, and last Friday."
    run(memory.consolidator, session, how="maybe_consolidate_by_tokens", system_prompt="You are A.")
    question = model.prompts[0][-1].content
    assert "2026-05-08 Friday: from 'u0 word word" in question
    assert "2026-05-09 Saturday: from 'u2 word word" in question
    assert "on; 'yesterday' is 2026-05-08; 'last Friday' is 2026-05-08\n" in question
    assert "memory_update: at most 300 tokens." in question
    assert question.endswith('{"history_entry": "...", "memory_update": "..."}')
    assert [m.content[:2] for m in model.prompts[0][1:-1]] == [
        "u0",
        "a1",
        "u2",
        "a3",
        "u4",
        "a5",
    ]


@pytest.mark.parametrize(
    "reply",
    ["I like cats.", AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "1"}])],
)
def test_another_answer_is_asked_for_in_the_usual_way(workspace, run, reply):
    """It goes on with the conversation, or calls a tool: then the usual question is asked."""
    memory, model = opened(workspace, reply, save_memory("usual", "- fact"))
    session = due(memory)
    (told,) = run(memory.consolidator, session, system_prompt="You are Ada.")
    assert (told.history_entry, told.spent.calls) == ("usual", 2)
    assert "<conversation>" in model.prompts[1][1].content


def test_a_failing_model_is_a_failure(workspace, run):
    """cases/consolidation.md 17: nothing moved, no second question."""
    memory, model = opened(workspace, TimeoutError("slow"))
    session = due(memory)
    assert run(memory.consolidator, session) == []
    assert (model.calls, session.last_consolidated) == (1, 0)


class Early:
    """Consolidates early."""

    def thresholds(self, situation):  # noqa: ARG002 - it does not look
        return Thresholds(300, 200, "early")


def test_a_memory_that_the_prompt_has_not_whole_is_asked_in_the_usual_way(workspace, run):
    """Else what the model does not see would be lost from MEMORY.md."""
    memory, model = opened(workspace, save_memory(), policy=Early())
    memory.memory.write_long_term("- a fact of the user\n" * 260)
    assert run(memory.consolidator, session_of(memory, "UAU"))
    assert "<conversation>" in model.prompts[0][1].content


def test_a_range_that_does_not_fit_is_asked_in_the_usual_way(workspace, run):
    """In pieces, each of which fits."""
    memory, model = opened(workspace, save_memory())
    session = due(memory)
    for message in session.messages:
        message["content"] += LONG * 2
    assert run(memory.consolidator, session, system_prompt="You are Ada.")
    assert "<conversation>" in model.prompts[0][1].content
    assert all(COUNTER(prompt) <= 3_000 for prompt in model.prompts)


def test_an_edit_meanwhile_is_asked_about_in_the_usual_way(workspace, run):
    """cases/consolidation.md 26: the person's line is there afterwards."""
    memory, model = opened(workspace)

    def edit(_messages):
        memory.memory.write_long_term("- by hand\n")
        return answer()

    model.replies = [edit, save_memory("merged", "- by hand\n- fact")]
    session = due(memory)
    (told,) = run(memory.consolidator, session, system_prompt="You are Ada.")
    assert told.history_entry == "merged"
    assert memory.memory.read_long_term() == "- by hand\n- fact"


def test_instructions_of_ones_own_stand_in_the_question(elsewhere, run):
    """cases/consolidation.md 23: a text does; a function asks in its own way."""
    memory, model = opened(elsewhere(), prompt="Keep {everything} 100%s")
    session = due(memory)
    run(memory.consolidator, session)
    assert "Keep {everything} 100%s" in model.prompts[0][-1].content
    memory, model = opened(
        elsewhere(), save_memory(), prompt=lambda memory, text: [HumanMessage(memory + text)]
    )
    session = due(memory)
    run(memory.consolidator, session)
    assert "This is no message" not in model.prompts[0][-1].content


async def test_a_long_conversation_is_kept_whole(workspace, chat, call):
    """With the cost-aware policy: each range once, and the question in no state or session."""
    memory, model = opened(
        workspace, policy=CostAwarePolicy(keep_tokens=100), context_window_tokens=1_500
    )
    graph = graph_of("node", memory, chat)
    for number in range(30):
        state = await call(
            graph, "invoke", {"messages": [HumanMessage(f"q{number}{LONG}")]}, CONFIG
        )
    assert model.calls > 2
    sources = [entry.source for entry in memory.memory.history_entries()]
    assert len(sources) == len(set(sources)) == model.calls
    said = [message.content.split()[0] for message in state["messages"]]
    assert said == [word for n in range(30) for word in (f"q{n}", f"a{n}")]
    assert all(COUNTER(prompt) <= 1_500 for prompt in chat.prompts)
    assert "no message of the user" not in str(memory.history("t").messages)


@pytest.mark.parametrize("window", [2_400, 2_800, 3_600])
async def test_the_cheapest_prompt_has_room_for_the_question(workspace, chat, call, window):
    """A cost-aware consolidation begins while its range and the question fit: one call each."""
    policy = CostAwarePolicy(keep_tokens=100, mean_tokens=500)
    memory, model = opened(workspace, context_window_tokens=window, policy=policy)
    graph = graph_of("node", memory, chat)
    for number in range(60):
        said = [HumanMessage(f"q{number}{LONG}")]
        await call(graph, "invoke", {"messages": said}, CONFIG)
    asked = [str(messages[-1].content) for messages in model.prompts]
    assert len(asked) > 3
    assert [text[:40] for text in asked if not text.startswith("This is no message of")] == []
