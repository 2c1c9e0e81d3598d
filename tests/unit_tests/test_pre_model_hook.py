"""Memory in the prebuilt agent: the hook before its model, in both colours."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import create_react_agent
from scripted import COUNTER, FREE, LONG, ScriptedChatModel, consolidated, recorded
from stores import edit_memory

from langchain_nanomem import Nanomem, ReactMemoryState, create_pre_model_hook
from langchain_nanomem.memory import MEMORY_TAG, fence_memory

pytestmark = pytest.mark.back_ends("files", "postgres", colour="async")

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
RUN: Any = {"configurable": {"thread_id": "t"}}
POINTER = "last_consolidated_id"
SENT = "llm_input_messages"


@tool
def look(q: str) -> str:
    """Look it up."""
    return f"found {q}"


@pytest.fixture
def mem(workspace, model):
    return Nanomem(
        workspace, model=model, context_window_tokens=1_000, system_prompt="Be kind.", **FREE
    )


@pytest.fixture(params=["nanomem", "memory"])
def saver(request, mem):
    return mem.checkpointer if request.param == "nanomem" else InMemorySaver()


def agent_of(mem, chat, saver, tools=(look,), *, trim_state=False, **options):
    return create_react_agent(
        chat,
        list(tools),
        pre_model_hook=mem.pre_model_hook(tools, trim_state=trim_state),
        checkpointer=saver,
        **{"state_schema": ReactMemoryState, **options},
    )


@pytest.fixture
def turns(call):
    """Asks an agent so many questions."""

    async def turns(agent, count, start=0):
        for n in range(start, start + count):
            state = await call(agent, "invoke", {"messages": [HumanMessage(f"q{n}{LONG}")]}, RUN)
        return state

    return turns


async def test_a_long_conversation_stays_in_the_window(mem, model, chat, saver, turns):
    """cases/consolidation.md 8, 31, 36: each prompt fits, ends in the question, repeats its prefix.

    Each message goes into memory once, and the state has all.
    """
    state = await turns(agent_of(mem, chat, saver), 15)
    said = [f"{who}{n}{LONG}" for n in range(15) for who in "qa"]
    assert [m.content for m in state["messages"]] == said
    assert [prompt[-1].content for prompt in chat.prompts] == [f"q{n}{LONG}" for n in range(15)]
    assert all(prompt[0].content.startswith("Be kind.") for prompt in chat.prompts)
    tools = mem.consolidator.count_tools([look])
    assert all(COUNTER(prompt) + tools <= 1_000 for prompt in chat.prompts)
    changed = sum(p[: len(before)] != before for before, p in itertools.pairwise(chat.prompts))
    assert changed <= model.calls
    assert 2 < model.calls < 12
    gone = [message_id for ids in consolidated(mem) for message_id in ids]
    assert gone == [m.id for m in state["messages"]][: len(gone)]
    assert state[POINTER] == gone[-1]
    assert len(mem.memory.history_entries()) == model.calls


async def test_the_memory_is_in_what_the_model_is_sent_alone(mem, model, chat, turns):
    """cases/consolidation.md 33: it is never consolidated, and never in messages or session."""
    mem.memory.write_long_term("- sEcret")
    chat.replies = [
        *(f"a{n}{LONG}" for n in range(6)),
        AIMessage("", tool_calls=[{"name": "look", "args": {"q": LONG}, "id": "c1"}]),
        *(f"b{n}{LONG}" for n in range(6)),
    ]
    agent = agent_of(mem, chat, mem.checkpointer)
    state = await turns(agent, 12)
    assert model.calls > 2
    kept = mem.checkpointer.get_tuple(RUN).checkpoint["channel_values"][SENT]
    assert MEMORY_TAG in kept[0].content, "LangGraph keeps what the hook returns"
    blocks = [snapshot.values.get("messages", ()) for snapshot in agent.get_state_history(RUN)]
    assert len(blocks) > 24
    assert all(MEMORY_TAG not in m.text for messages in blocks for m in messages)
    assert all(m.type != "system" for messages in blocks for m in messages)
    assert MEMORY_TAG not in str(mem.history("t").messages)
    assert recorded(mem) == {m.id: m.content for m in state["messages"]}
    for prompt in model.prompts:
        assert MEMORY_TAG not in prompt[-1].content.split("<conversation>")[1]


async def test_what_is_streamed_of_the_memory(mem, chat, call):
    """Of the messages mode the hook's own node alone has it; the result has none of it."""
    mem.memory.write_long_term("- sEcret")
    agent = agent_of(mem, chat, mem.checkpointer)
    given = {"messages": [HumanMessage("hi")]}
    parts = await call(agent, "stream", given, RUN, stream_mode="messages")
    having = {about["langgraph_node"] for message, about in parts if "sEcret" in message.text}
    assert having == {"pre_model_hook"}
    assert [m.text for m, about in parts if about["langgraph_node"] == "agent"] == [f"a0{LONG}"]
    assert "sEcret" not in repr(await call(agent, "invoke", given, RUN))


async def test_memory_changed_on_disk_is_seen_in_the_next_turn(mem, chat, saver, turns):
    """cases/consolidation.md 32: what the last checkpoint holds of it is not used again."""
    agent = agent_of(mem, chat, saver)
    for n, memory in enumerate(("- likes tea", "- likes coffee\n")):
        edit_memory(mem.memory, memory)
        await turns(agent, 1, start=n)
        assert chat.prompts[-1][0].content == f"Be kind.\n\n{fence_memory(memory)}"


async def test_a_restart_goes_on_where_it_was(mem, open_memory, model, chat, turns):
    """cases/consolidation.md 12: another process has the pointer; nothing goes in twice."""
    await turns(agent_of(mem, chat, mem.checkpointer), 8)
    calls = model.calls
    again = open_memory(model=model, context_window_tokens=1_000, **FREE)
    agent = agent_of(again, chat, again.checkpointer)
    pointer = agent.get_state(RUN).values[POINTER]
    assert pointer == consolidated(again)[-1][-1]
    chat.replies = ["short"]
    await turns(agent, 1, start=8)
    assert model.calls - calls <= 1
    ids = [message_id for part in consolidated(again) for message_id in part]
    assert len(ids) == len(set(ids))


async def test_a_failing_model_never_stops_a_turn(mem, chat, model, saver, turns):
    """cases/consolidation.md 17, 18: all turns are answered; what goes raw is whole."""
    model.replies = [RuntimeError("down")]
    state = await turns(agent_of(mem, chat, saver), 12)
    assert chat.calls == 12
    raw = "\n".join(entry.text for entry in mem.memory.history_entries())
    gone = {message_id for ids in consolidated(mem) for message_id in ids}
    assert gone
    assert all(m.content in raw for m in state["messages"] if m.id in gone)


async def test_without_the_pointer_in_the_state(mem, chat, model, saver, turns):
    """With the agent's own state the pointer is found in the records: nothing goes in twice."""
    state = await turns(agent_of(mem, chat, saver, state_schema=None), 12)
    assert POINTER not in state
    ids = [message_id for part in consolidated(mem) for message_id in part]
    assert len(ids) == len(set(ids)) > 6
    assert model.calls == len(mem.memory.history_entries())


async def test_a_long_loop_of_tools_stays_in_the_window(mem, model, call, saver):
    """cases/consolidation.md 5, 7, 8: rounds go into memory whole, the question stays."""
    loop = [
        AIMessage(
            "",
            tool_calls=[
                {"name": "look", "args": {"q": f"{n}{end}{LONG}"}, "id": f"c{n}{end}"}
                for end in "xy"
            ],
        )
        for n in range(10)
    ]
    chat = ScriptedChatModel(replies=[*loop, "done"])
    run = RUN | {"recursion_limit": 99}
    agent = agent_of(mem, chat, saver)
    state = await call(agent, "invoke", {"messages": [HumanMessage("Find all.")]}, run)
    assert state["messages"][-1].content == "done"
    assert len(state["messages"]) == 2 + 3 * 10
    assert model.calls > 1
    for prompt in chat.prompts:
        assert "Find all." in [message.content for message in prompt]
        asked = [c["id"] for m in prompt if m.type == "ai" for c in m.tool_calls]
        assert asked == [m.tool_call_id for m in prompt if m.type == "tool"]


async def test_trimmed_state(mem, chat, model, turns):
    """What is in memory leaves the agent's state; the session has it still."""
    state = await turns(agent_of(mem, chat, mem.checkpointer, trim_state=True), 12)
    said = [f"{who}{n}{LONG}" for n in range(12) for who in "qa"]
    assert [m.content for m in mem.history("t").messages] == said
    assert [m.content for m in state["messages"]] == said[-len(state["messages"]) :]
    assert len(state["messages"]) < 12
    assert [prompt[-1].content for prompt in chat.prompts] == said[::2]
    assert model.calls == len(consolidated(mem)) > 2


async def test_a_hook_apart_from_nanomem(mem, chat, turns):
    """It may be created apart from Nanomem, with its own system prompt."""
    hook = create_pre_model_hook(mem.consolidator, system_prompt="You are Bob.")
    agent = create_react_agent(chat, [], pre_model_hook=hook, state_schema=ReactMemoryState)
    await turns(agent, 1)
    assert chat.prompts[0][0] == SystemMessage("You are Bob.")


async def test_a_run_without_a_thread_is_refused(mem, chat, call):
    """The error says how a session is named; nobody is asked."""
    agent = agent_of(mem, chat, None)
    with pytest.raises(ValueError, match="thread_id"):
        await call(agent, "invoke", {"messages": [HumanMessage("hi")]}, {})
    assert chat.calls == 0
