"""Memory in `create_agent`: the middleware, under each saver, beside others, in both colours."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    PIIMiddleware,
    TodoListMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from scripted import COUNTER, FREE, LONG, ScriptedChatModel, consolidated, recorded
from stores import bytes_in, edit_memory

from langchain_nanomem import Nanomem, NanomemMiddleware, ScopeError
from langchain_nanomem.memory import fence_memory

pytestmark = pytest.mark.back_ends("files", "postgres", colour="async")

RUN: Any = {"configurable": {"thread_id": "t"}}
POINTER = "last_consolidated_id"


@tool
def look(q: str) -> str:
    """Look it up."""
    return f"found {q}"


def called(*places, text=""):
    """A call of the tool for each place."""
    calls = [{"name": "look", "args": {"q": f"{p}{LONG}"}, "id": f"call {p}"} for p in places]
    return AIMessage(text, tool_calls=calls)


@pytest.fixture
def mem(workspace, model):
    return Nanomem(workspace, model=model, context_window_tokens=1_000, **FREE)


@pytest.fixture(params=["nanomem", "memory", "none"])
def saver(request, mem):
    return {"nanomem": mem.checkpointer, "memory": InMemorySaver(), "none": None}[request.param]


class Talk:
    """A conversation with an agent; without a saver the program itself carries the state on."""

    def __init__(self, agent, call):
        self.agent, self._call = agent, call
        self.state: dict[str, Any] = {"messages": []}

    async def say(self, *messages, run=RUN):
        sent: Any = {"messages": list(messages)}
        if self.agent.checkpointer is None:
            sent = {**self.state, "messages": [*self.state["messages"], *messages]}
        return await self.send(sent, run)

    async def send(self, sent, run=RUN):
        self.state = await self._call(self.agent, "invoke", sent, run)
        return self.state

    async def turns(self, count, start=0):
        for n in range(start, start + count):
            await self.say(HumanMessage(f"q{n}{LONG}"))
        return self.state


@pytest.fixture
def talk_with(mem, call):
    """Begins a conversation with an agent."""

    def begin(chat, saver=None, *middleware, system_prompt="Be kind.", tools=(look,)):
        agent = create_agent(
            chat,
            list(tools),
            system_prompt=system_prompt,
            middleware=[*middleware, mem.middleware()],
            checkpointer=saver,
        )
        return Talk(agent, call)

    return begin


# --- a whole conversation ---------------------------------------------------


async def test_a_long_conversation_stays_in_the_window(talk_with, mem, model, chat, saver):
    """cases/consolidation.md 8, 31, 36: each prompt fits, ends in the question, repeats its prefix.

    Each message goes into memory once and is in the journal whole, and the state has all.
    """
    state = await talk_with(chat, saver).turns(15)
    questions = [f"q{n}{LONG}" for n in range(15)]
    assert [m.content for m in state["messages"] if m.type == "human"] == questions
    assert len(state["messages"]) == 30
    assert [prompt[-1].content for prompt in chat.prompts] == questions
    assert all(prompt[0].content.startswith("Be kind.") for prompt in chat.prompts)
    tools = mem.consolidator.count_tools([look])
    assert all(COUNTER(prompt) + tools <= 1_000 for prompt in chat.prompts)
    changed = sum(
        prompt[: len(before)] != before for before, prompt in itertools.pairwise(chat.prompts)
    )
    assert changed <= model.calls
    assert 2 < model.calls < 12
    gone = [message_id for ids in consolidated(mem) for message_id in ids]
    assert gone == [m.id for m in state["messages"]][: len(gone)]
    assert recorded(mem) == {m.id: m.content for m in state["messages"]}
    assert len(mem.memory.history_entries()) == model.calls == len(consolidated(mem))


async def test_the_pointer_is_kept_in_the_agents_state_alone(talk_with, mem, chat):
    """It is in the checkpoint for the branch to go on from, and in no result."""
    talk = talk_with(chat, mem.checkpointer)
    state = await talk.turns(8)
    assert POINTER not in state
    kept = talk.agent.get_state(RUN).values[POINTER]
    assert kept == consolidated(mem)[-1][-1]


async def test_the_memory_is_in_no_result_stream_or_checkpoint(mem, model, chat):
    """cases/consolidation.md 33: nothing but the model's prompt has it."""
    mem.memory.write_long_term("- sEcret")
    agent = create_agent(chat, middleware=[mem.middleware()], checkpointer=mem.checkpointer)
    modes = ["values", "updates", "messages", "custom", "checkpoints", "tasks", "debug"]
    seen = [
        repr(part)
        for n in range(6)
        for part in agent.stream({"messages": [("user", f"q{n}{LONG}")]}, RUN, stream_mode=modes)
    ]
    assert model.calls
    assert len(seen) > 30
    assert [part for part in seen if "sEcret" in part or "facts of" in part] == []
    kept = [repr(found) for found in mem.checkpointer.list(RUN)]
    assert [found for found in kept if "sEcret" in found or "facts of" in found] == []
    assert "sEcret" in chat.prompts[0][0].content


async def test_memory_changed_on_disk_is_seen_in_the_next_turn(talk_with, mem, chat, saver):
    """cases/consolidation.md 32: it stands at the end of the system prompt, as it is now."""
    mem.memory.write_long_term("- likes tea")
    talk = talk_with(chat, saver)
    await talk.say(HumanMessage("hi"))
    edit_memory(mem.memory, "- likes coffee\n")
    await talk.say(HumanMessage("hi again"))
    assert [prompt[0].content for prompt in chat.prompts] == [
        f"Be kind.\n\n{fence_memory(memory)}" for memory in ("- likes tea", "- likes coffee\n")
    ]


async def test_without_a_system_prompt(talk_with, mem, chat, saver):
    """The memory alone is the system message; where there is none, there is no such message."""
    talk = talk_with(chat, saver, system_prompt=None)
    await talk.say(HumanMessage("hi"))
    mem.memory.write_long_term("- likes tea")
    await talk.say(HumanMessage("hi again"))
    first, second = chat.prompts
    assert [message.type for message in first] == ["human"]
    assert second[0] == SystemMessage(fence_memory("- likes tea"))


async def test_a_failing_model_never_stops_a_turn(talk_with, mem, chat, model, saver):
    """cases/consolidation.md 17, 18: all turns are answered; what goes raw is whole."""
    model.replies = [RuntimeError("down")]
    state = await talk_with(chat, saver).turns(12)
    assert chat.calls == 12
    raw = "\n".join(entry.text for entry in mem.memory.history_entries())
    gone = {message_id for ids in consolidated(mem) for message_id in ids}
    assert gone
    assert all(m.content in raw for m in state["messages"] if m.id in gone)


async def test_scope_errors_come_before_any_model_call(workspace, call, saver, chat, model):
    """cases/consolidation.md 35: unclear, or another user's session: nobody is asked."""
    mem = Nanomem(workspace, model=model, scope="user")
    agent = create_agent(chat, middleware=[mem.middleware()], checkpointer=saver)
    talk = Talk(agent, call)
    with pytest.raises(ScopeError):
        await talk.say(HumanMessage("hi"))
    run = {"configurable": {"thread_id": "u", "user_id": "a"}}
    await talk.say(HumanMessage("mine"), run=run)
    with pytest.raises(ScopeError):
        await talk.say(HumanMessage("x"), run={"configurable": {"thread_id": "u", "user_id": "b"}})
    assert (chat.calls, model.calls) == (1, 0)


async def test_a_run_without_a_thread_is_refused(talk_with, chat):
    """The error says how a session is named."""
    with pytest.raises(ValueError, match="thread_id"):
        await talk_with(chat).say(HumanMessage("hi"), run={})
    assert chat.calls == 0


# --- tools, and other middlewares -------------------------------------------


async def test_a_long_loop_of_tools_stays_in_the_window(talk_with, mem, model, saver):
    """cases/consolidation.md 5, 7, 8: rounds go into memory whole, the question stays."""
    loop = [called(f"{n}a", f"{n}b") for n in range(12)]
    chat = ScriptedChatModel(replies=[*loop, "done"])
    state = await talk_with(chat, saver).say(HumanMessage("Find all."))
    assert state["messages"][-1].content == "done"
    assert len(state["messages"]) == 2 + 3 * 12
    assert model.calls > 1
    for prompt in chat.prompts:
        assert "Find all." in [message.content for message in prompt]
        asked = [c["id"] for m in prompt if m.type == "ai" for c in m.tool_calls]
        assert asked == [m.tool_call_id for m in prompt if m.type == "tool"]


async def test_a_person_in_the_loop(talk_with, mem, open_memory, model):
    """A call that waits is approved after a restart; the turns before went into memory."""
    replies = [*(f"a{n}{LONG}" for n in range(6)), called("x"), "done"]
    ask = HumanInTheLoopMiddleware(interrupt_on={"look": True})
    talk = talk_with(ScriptedChatModel(replies=replies), mem.checkpointer, ask)
    await talk.turns(6)
    waiting = await talk.say(HumanMessage("Look it up."))
    assert waiting["__interrupt__"]
    again = open_memory(model=model, **FREE)
    talk.agent = create_agent(
        ScriptedChatModel(replies=["done"]),
        [look],
        middleware=[ask, again.middleware()],
        checkpointer=again.checkpointer,
    )
    state = await talk.send(Command(resume={"decisions": [{"type": "approve"}]}))
    assert [m.type for m in state["messages"][-3:]] == ["ai", "tool", "ai"]
    assert recorded(again)[state["messages"][-2].id] == f"found x{LONG}"
    assert consolidated(again)


async def test_what_another_middleware_hides_is_not_recorded(
    talk_with, mem, workspace, chat, saver
):
    """PII is redacted on its way into the state, and is then nowhere in the workspace."""
    hide = PIIMiddleware("email", strategy="redact", apply_to_output=True)
    chat.replies = ["Write to ann@example.org", "Bye"]
    talk = talk_with(chat, saver, hide)
    await talk.say(HumanMessage("I am bob@example.org"))
    await talk.say(HumanMessage("Thanks"))
    assert "[REDACTED_EMAIL]" in " ".join(recorded(mem).values())
    if saver is not mem.checkpointer:  # its checkpoints have what the program put, as any saver's
        assert not any(b"@example.org" in content for content in bytes_in(workspace).values())


async def test_beside_other_middlewares(talk_with, mem, chat, saver):
    """What others add to the system prompt stands in front of the memory; retried tools work."""

    @tool
    def shaky(q: str) -> str:
        """Fail once."""
        tries.append(q)
        if len(tries) == 1:
            raise OSError("try again")
        return "worked"

    tries: list[str] = []
    chat.replies = [
        AIMessage("", tool_calls=[{"name": "shaky", "args": {"q": "x"}, "id": "c"}]),
        "done",
    ]
    mem.consolidator.budget_tokens = 100_000  # what is added to the prompt alone is over 1,000
    mem.memory.write_long_term("- likes tea")
    others = [TodoListMiddleware(), ToolRetryMiddleware(initial_delay=0, jitter=False)]
    talk = talk_with(chat, saver, *others, tools=[shaky])
    state = await talk.say(HumanMessage("go"))
    assert [m.content for m in state["messages"][-2:]] == ["worked", "done"]
    for prompt in chat.prompts:
        parts = prompt[0].text.split(fence_memory("- likes tea"))
        assert len(parts) == 2
        assert "write_todos" in parts[0]
        assert parts[1] == ""


async def test_what_an_inner_middleware_changes_is_sent(talk_with, mem, chat, saver):
    """The middleware is one of many: an inner one has the last word on the request."""

    class Shout(AgentMiddleware):
        def wrap_model_call(self, request, handler):
            return handler(request.override(system_message=SystemMessage("LOUD")))

        async def awrap_model_call(self, request, handler):
            return await handler(request.override(system_message=SystemMessage("LOUD")))

    agent = create_agent(chat, middleware=[mem.middleware(), Shout()], checkpointer=saver)
    talk = Talk(agent, talk_with(chat)._call)
    await talk.say(HumanMessage("hi"))
    assert chat.prompts[0][0].content == "LOUD"


# --- a prompt that the provider refuses -------------------------------------


def refusing(most, *, after=0):
    """A model that refuses prompts of more messages than that."""

    def reply(messages):
        if len(messages) > most:
            raise ContextOverflowError("too long")
        return f"answer{LONG}"

    return ScriptedChatModel(replies=[reply])


async def test_a_refused_prompt_is_halved_and_sent_again(mem, call, model, saver):
    """Where the provider's window is smaller than was said, one consolidation makes it fit."""
    mem.consolidator.budget_tokens, mem.consolidator.target_tokens = 100_000, 50_000
    chat = refusing(8)
    talk = Talk(create_agent(chat, middleware=[mem.middleware()], checkpointer=saver), call)
    state = await talk.turns(8)
    assert len(state["messages"]) == 16
    assert len(consolidated(mem)) == model.calls > 0
    assert chat.calls == 8 + model.calls
    assert [p[-1].content for p in chat.prompts][-1] == f"q7{LONG}"


async def test_a_refused_prompt_that_can_not_be_halved(mem, call, model, saver):
    """The provider's own error comes through, and nothing has moved."""
    talk = Talk(create_agent(refusing(0), middleware=[mem.middleware()], checkpointer=saver), call)
    with pytest.raises(ContextOverflowError):
        await talk.say(HumanMessage("hi"))
    assert (model.calls, consolidated(mem)) == (0, [])


async def test_a_refused_prompt_and_a_failing_model(mem, call, model, saver):
    """Where the consolidation fails too, the provider's error comes through, with the cause."""
    mem.consolidator.budget_tokens, mem.consolidator.target_tokens = 100_000, 50_000
    model.replies = [RuntimeError("down")]
    talk = Talk(create_agent(refusing(4), middleware=[mem.middleware()], checkpointer=saver), call)
    await talk.turns(2)
    with pytest.raises(ContextOverflowError) as refused:
        await talk.turns(1)
    assert "down" in str(refused.value.__cause__)
    assert consolidated(mem) == []


def test_the_name_is_the_classes(mem):
    """An agent refuses two middlewares of one name; ours is named once."""
    assert isinstance(mem.middleware(), NanomemMiddleware)
    assert mem.middleware().name == "NanomemMiddleware"
