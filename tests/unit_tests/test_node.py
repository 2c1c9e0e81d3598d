"""Memory in a graph: the node, under each saver, over forks, edits and removals."""

from __future__ import annotations

import operator
import threading
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel
from scripted import FREE, LONG, ScriptedChatModel, consolidated, recorded, save_memory
from stores import edit_memory

from langchain_nanomem import (
    MemoryPrompt,
    MemoryState,
    Nanomem,
    ScopeError,
    create_memory_node,
)
from langchain_nanomem.memory import fence_memory
from langchain_nanomem.session import legal_view
from langchain_nanomem.window import message_shape

pytestmark = pytest.mark.back_ends("files", "postgres", colour="async")

RUN = {"configurable": {"thread_id": "t"}}
SAVERS = ["nanomem", "memory", "none"]
POINTER = "last_consolidated_id"


class Talk:
    """A conversation with a graph, under any saver, in either colour."""

    def __init__(self, graph, colour, saver, **options):
        self.graph, self.colour, self.saver, self.options = graph, colour, saver, options
        self.state: dict[str, Any] = {"messages": []}

    async def say(self, *messages, run=RUN):
        """One turn; without a saver the program itself carries the state on."""
        sent = {"messages": list(messages)}
        if self.saver == "none":
            sent = {**self.state, "messages": [*self.state["messages"], *messages]}
        if self.colour == "sync":
            self.state = self.graph.invoke(sent, run, **self.options)
        else:
            self.state = await self.graph.ainvoke(sent, run, **self.options)
        return self.state

    async def turns(self, count, start=0):
        for n in range(start, start + count):
            await self.say(HumanMessage(f"q{n}{LONG}"))
        return self.state


@pytest.fixture(params=["sync", "async"])
def colour(request):
    return request.param


@pytest.fixture(params=SAVERS)
def saver(request):
    return request.param


@pytest.fixture
def mem(workspace, model):
    return Nanomem(workspace, model=model, context_window_tokens=1_000, **FREE)


def saver_of(mem, name):
    return {"nanomem": mem.checkpointer, "memory": InMemorySaver(), "none": None}[name]


def graph_of(mem, node, saver, state: Any = MemoryState, after=None):
    graph = StateGraph(state)
    graph.add_node("model", node)
    graph.add_edge(START, "model")
    if after is not None:
        graph.add_node("after", after)
        graph.add_edge("model", "after")
    return graph.compile(checkpointer=saver)


@pytest.fixture
def talk_in(mem, chat, saver, colour):
    """Begins a conversation with a graph of this state whose model node is the memory node."""

    def talk_in(state):
        graph = graph_of(mem, mem.node(chat), saver_of(mem, saver), state)
        return Talk(graph, colour, saver)

    return talk_in


@pytest.fixture
def talk(talk_in):
    return talk_in(MemoryState)


def is_legal(messages):
    shapes = [message_shape(message) for message in messages]
    return legal_view(shapes) == list(range(len(shapes)))


# --- a whole conversation ---


async def test_a_long_conversation_stays_in_the_window(talk, mem, model, chat):
    """cases/consolidation.md 8, 31: each prompt fits, ends in the question, repeats its prefix.

    Each message goes into memory once and is in the journal whole, and the state has all.
    """
    state = await talk.turns(15)
    questions = [f"q{n}{LONG}" for n in range(15)]
    assert [m.content for m in state["messages"] if m.type == "human"] == questions
    assert len(state["messages"]) == 30
    count, budget = mem.consolidator.counter, mem.consolidator.budget_tokens
    assert all(count(prompt) <= budget for prompt in chat.prompts)
    assert [prompt[-1].content for prompt in chat.prompts] == questions
    assert all(is_legal(prompt) for prompt in chat.prompts)
    changed = sum(
        prompt[: len(before)] != before
        for before, prompt in zip(chat.prompts, chat.prompts[1:], strict=False)
    )
    assert changed <= model.calls
    assert 2 < model.calls < 10
    gone = [message_id for ids in consolidated(mem) for message_id in ids]
    assert gone == [m.id for m in state["messages"]][: len(gone)]
    assert state[POINTER] == gone[-1]
    said = {m.id: m.content for m in state["messages"]}
    assert recorded(mem) == said
    assert len(mem.memory.history_entries()) == model.calls == len(consolidated(mem))


async def test_what_goes_into_memory_was_shown_whole_and_dated(talk, model):
    """cases/consolidation.md 20, 28: each consolidated message stood in one prompt, with a day."""
    state = await talk.turns(10)
    shown = "\n".join(prompt[-1].content.split("<conversation>")[1] for prompt in model.prompts)
    pointer = [m.id for m in state["messages"]].index(state[POINTER]) + 1
    for message in state["messages"][:pointer]:
        assert shown.count(message.content) == 1
    assert "no date" not in shown
    assert "<long_term_memory>" not in shown


async def test_memory_changed_on_disk_is_seen_in_the_next_turn(talk, mem, chat):
    """cases/consolidation.md 32: a checkpointed thread does not keep a stale memory."""
    mem.memory.write_long_term("- likes tea")
    await talk.say(HumanMessage("hi"))
    edit_memory(mem.memory, "- likes coffee\n")
    await talk.say(HumanMessage("hi again"))
    assert [prompt[0].content for prompt in chat.prompts] == [
        fence_memory("- likes tea"),
        fence_memory("- likes coffee\n"),
    ]


async def test_a_failing_model_never_stops_a_turn(talk, mem, chat, model):
    """cases/consolidation.md 17, 18: all turns are answered; what goes raw is whole."""
    model.replies = [RuntimeError("down")]
    state = await talk.turns(14)
    assert chat.calls == 14
    assert all(mem.consolidator.counter(prompt) <= 1_000 for prompt in chat.prompts)
    raw = "\n".join(entry.text for entry in mem.memory.history_entries())
    gone = {message_id for ids in consolidated(mem) for message_id in ids}
    assert gone
    assert all(m.content in raw for m in state["messages"] if m.id in gone)
    assert mem.memory.read_long_term() == ""


async def test_the_systems_message_in_the_state_is_kept(talk, mem, chat, model):
    """cases/consolidation.md 36: it stands in every prompt and in no consolidation."""
    await talk.say(SystemMessage("be kind", id="s"), HumanMessage("hi"))
    await talk.turns(12)
    assert all(prompt[0].content.startswith("be kind") for prompt in chat.prompts)
    assert all("be kind" not in prompt[-1].content for prompt in model.prompts)
    assert model.calls > 1


async def test_scope_errors_come_before_any_model_call(workspace, colour, saver, chat, model):
    """cases/consolidation.md 35: unclear, or another user's session: nobody is asked."""
    mem = Nanomem(workspace, model=model, scope="user")
    talk = Talk(graph_of(mem, mem.node(chat), saver_of(mem, saver)), colour, saver)
    with pytest.raises(ScopeError):
        await talk.say(HumanMessage("hi"))
    run = {"configurable": {"thread_id": "u", "user_id": "a"}}
    await talk.say(HumanMessage("mine"), run=run)
    with pytest.raises(ScopeError):
        await talk.say(HumanMessage("x"), run={"configurable": {"thread_id": "u", "user_id": "b"}})
    assert (chat.calls, model.calls) == (1, 0)


# --- durability and restarts ---


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_every_durability_gives_the_same(mem, chat, model, colour, durability):
    """The node under NanomemSaver works in each durability; the journal has each message once."""
    graph = graph_of(mem, mem.node(chat), mem.checkpointer)
    state = await Talk(graph, colour, "nanomem", durability=durability).turns(12)
    assert recorded(mem) == {m.id: m.content for m in state["messages"]}
    with mem.sessions.reading("t") as records:
        assert len(records.line_numbers) == 24
        assert records.unfinished is None
    assert mem.sessions.get_or_create("t").last_consolidated == sum(map(len, consolidated(mem)))
    assert model.calls == len(consolidated(mem)) > 1


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_what_was_consolidated_survives_a_run_that_dies(mem, open_memory, model, durability):
    """No consolidated message is lost, also where the run ends before its first checkpoint."""
    rounds = [
        AIMessage("", tool_calls=[{"name": "look", "args": {"q": f"{n}{LONG}"}, "id": f"c{n}"}])
        for n in range(12)
    ]
    loop = agent(mem, ScriptedChatModel(replies=[*rounds, RuntimeError("power cut")]))
    with pytest.raises(RuntimeError, match="power cut"):
        loop.invoke({"messages": [HumanMessage("go")]}, RUN, durability=durability)
    again = open_memory()
    gone = [message_id for ids in consolidated(again) for message_id in ids]
    assert model.calls > 0
    assert set(gone) <= recorded(again).keys()


async def test_a_restart_goes_on_where_it_was(workspace, model, chat, colour):
    """cases/consolidation.md 12: another process on the directory has state, pointer, memory."""
    states = []
    for start in (0, 8):
        mem = Nanomem(workspace, model=model, context_window_tokens=1_000, **FREE)
        talk = Talk(graph_of(mem, mem.node(chat), mem.checkpointer), colour, "nanomem")
        if start:
            assert talk.graph.get_state(RUN).values == states[0]
        calls = model.calls
        await talk.say(HumanMessage("first" if start else f"q{LONG}"))
        assert model.calls == calls, "no consolidation is made again"
        states.append(await talk.turns(7, start) if not start else talk.state)
    assert chat.prompts[-1][0].content == fence_memory(f"- facts of {model.calls - 1}")


async def test_a_stateless_thread_begins_anew_but_remembers(workspace, model, chat, colour):
    """After a restart without a saver the messages are new ones, memory and journal go on."""
    for _ in range(2):
        mem = Nanomem(workspace, model=model, context_window_tokens=1_000, **FREE)
        talk = Talk(graph_of(mem, mem.node(chat), InMemorySaver()), colour, "memory")
        state = await talk.turns(8)
        assert chat.prompts[-1][-1].content == f"q7{LONG}"
    assert len(recorded(mem)) == 32
    ids = [message_id for part in consolidated(mem) for message_id in part]
    assert len(ids) == len(set(ids))
    assert state[POINTER] in ids


# --- branches ---


def branch_points(graph, run=RUN):
    return {len(s.values.get("messages", ())): s for s in reversed([*graph.get_state_history(run)])}


@pytest.mark.parametrize("name", ["nanomem", "memory"])
async def test_time_travel_sees_the_window_of_its_branch(mem, chat, model, colour, name):
    """Going back before a consolidation shows what was live there, and skips what is in memory."""
    talk = Talk(graph_of(mem, mem.node(chat), saver_of(mem, name)), colour, name)
    state = await talk.turns(12)
    ids = [m.id for m in state["messages"]]
    gone = sum(map(len, consolidated(mem)))
    back = branch_points(talk.graph)[6]
    calls = model.calls
    result = await talk.say(HumanMessage("other way"), run=back.config)
    assert [m.id for m in result["messages"]][:6] == ids[:6]
    assert model.calls == calls, "what is in memory is skipped without a model call"
    assert [m.content for m in chat.prompts[-1]][-1] == "other way"
    assert len(chat.prompts[-1]) == 2, "all before it is in memory already"
    assert result[POINTER] == ids[5]
    forward = await talk.say(HumanMessage("on"), run=branch_points(talk.graph)[24].config)
    assert [m.id for m in forward["messages"]][:24] == ids
    old = next(
        s
        for s in reversed([*talk.graph.get_state_history(RUN)])
        if s.values.get(POINTER) and len(s.values["messages"]) % 2 == 0
    )
    assert old.values[POINTER] != state[POINTER]
    between = await talk.say(HumanMessage("from between"), run=old.config)
    assert between[POINTER] == ids[min(gone, len(old.values["messages"])) - 1]
    assert forward[POINTER] == ids[gone - 1]


@pytest.mark.parametrize("name", ["nanomem", "memory"])
async def test_each_branch_has_its_own_pointer(mem, chat, colour, name):
    """Of two branches each consolidates what it alone has; shared messages go in once."""
    talk = Talk(graph_of(mem, mem.node(chat), saver_of(mem, name)), colour, name)
    await talk.turns(3)
    fork = branch_points(talk.graph)[6].config
    await talk.turns(9, start=3)
    left = talk.graph.get_state(RUN)
    await talk.say(HumanMessage(f"fork{LONG}"), run=fork)
    right = await talk.turns(9, start=50)
    ids = [message_id for part in consolidated(mem) for message_id in part]
    assert len(ids) == len(set(ids)), "nothing goes into memory twice"
    for values in (left.values, right):
        own = [m.id for m in values["messages"]]
        pointer = own.index(values[POINTER]) + 1
        assert pointer > 6
        assert set(own[:pointer]) <= set(ids)
        assert not set(own[pointer:]) & set(ids)


@pytest.mark.parametrize("name", ["nanomem", "memory"])
async def test_an_edit_by_id_is_seen_and_recorded(mem, chat, model, colour, name):
    """update_state with the id of a live message changes the prompt; memory gets what holds."""
    talk = Talk(graph_of(mem, mem.node(chat), saver_of(mem, name)), colour, name)
    state = await talk.turns(2)
    edited = HumanMessage(f"edited{LONG}", id=state["messages"][2].id)
    talk.graph.update_state(RUN, {"messages": [edited]})
    await talk.say(HumanMessage("and now?"))
    assert edited.content in [m.content for m in chat.prompts[-1]]
    assert f"q1{LONG}" not in [m.content for m in chat.prompts[-1]]
    await talk.turns(8, start=2)
    shown = "\n".join(prompt[-1].content for prompt in model.prompts)
    assert edited.content in shown
    assert f"q1{LONG}" not in shown
    with mem.sessions.reading("t") as records:
        lines = [records.message(n)["content"] for n in records.line_numbers]
    assert edited.content in lines, "what went into memory is in the journal whole"


@pytest.mark.parametrize("name", ["nanomem", "memory"])
async def test_a_pointer_whose_message_is_gone_heals(mem, chat, model, colour, name):
    """Removing the message of the pointer neither raises nor brings consolidated ones back."""
    talk = Talk(graph_of(mem, mem.node(chat), saver_of(mem, name)), colour, name)
    state = await talk.turns(8)
    pointer = state[POINTER]
    calls = model.calls
    talk.graph.update_state(RUN, {"messages": [RemoveMessage(pointer)]})
    state = await talk.say(HumanMessage("and now?"))
    ids = [m.id for m in state["messages"]]
    gone = {message_id for part in consolidated(mem) for message_id in part}
    assert state[POINTER] != pointer
    assert ids.index(state[POINTER]) + 1 == sum(message_id in gone for message_id in ids)
    assert model.calls == calls
    assert not any(m.id in gone for m in chat.prompts[-1])


@pytest.mark.parametrize("name", ["nanomem", "memory"])
async def test_removing_all_begins_anew(mem, chat, colour, name):
    """After all messages were removed the thread has only what is new, and the memory."""
    talk = Talk(graph_of(mem, mem.node(chat), saver_of(mem, name)), colour, name)
    await talk.turns(8)
    talk.graph.update_state(RUN, {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES)]})
    await talk.say(HumanMessage("hello"))
    assert [m.content for m in chat.prompts[-1]][1:] == ["hello"]
    state = await talk.turns(8, start=20)
    assert state[POINTER] in {m.id for m in state["messages"]}


async def test_an_unknown_pointer_is_no_obstacle(mem, chat, colour):
    """A pointer that names no message of the state is passed over."""
    talk = Talk(graph_of(mem, mem.node(chat), None), colour, "none")
    talk.state = {"messages": [], POINTER: "nobody"}
    await talk.say(HumanMessage("hi"))
    assert [m.content for m in chat.prompts[-1]] == ["hi"]


async def test_messages_put_in_front_do_not_stop_it(mem, chat, model, colour):
    """What a program puts before consolidated messages, a summary say, goes into memory alone."""
    talk = Talk(graph_of(mem, mem.node(chat), None), colour, "none")
    state = await talk.turns(8)
    gone = {message_id for part in consolidated(mem) for message_id in part}
    assert gone
    front = [HumanMessage(f"summary{LONG * 2}", id="sum"), AIMessage(f"ok{LONG * 2}", id="ok")]
    talk.state = {"messages": [*front, *state["messages"]]}
    calls = model.calls
    state = await talk.say(HumanMessage("on"))
    assert model.calls == calls + 1
    assert consolidated(mem)[-1] == ["sum", "ok"]
    await talk.say(HumanMessage("on"))
    assert model.calls == calls + 1
    ids = [message_id for part in consolidated(mem) for message_id in part]
    assert len(ids) == len(set(ids))


# --- the node's two forms ---


async def test_before_a_model_node_of_ones_own(mem, chat, model, saver, colour):
    """Without a model the node consolidates only; the own node uses the prompt."""
    prompt = mem.prompt

    def call(state, config):
        return {"messages": [chat.invoke(prompt.invoke(state, config), config)]}

    async def acall(state, config):
        return {"messages": [await chat.ainvoke(await prompt.ainvoke(state, config), config)]}

    graph = graph_of(
        mem, mem.node(), saver_of(mem, saver), after=RunnableLambda(call, acall, name="own")
    )
    state = await Talk(graph, colour, saver).turns(14)
    assert all(mem.consolidator.counter(p) <= 1_000 for p in chat.prompts)
    assert [p[-1].content for p in chat.prompts] == [f"q{n}{LONG}" for n in range(14)]
    gone = [message_id for ids in consolidated(mem) for message_id in ids]
    assert state[POINTER] == gone[-1]
    assert gone == [m.id for m in state["messages"]][: len(gone)]
    assert set(gone) <= recorded(mem).keys()
    assert model.calls == len(consolidated(mem)) > 2


async def test_after_a_model_node_of_ones_own(mem, chat, model, saver, colour):
    """Deferred, it consolidates after the answer; the next turn finds a window that fits."""
    prompt = mem.prompt
    order: list[str] = []

    def call(state, config):
        shown = prompt.build(prompt.conversation(state, config))
        order.append("answer")
        return {"messages": [chat.invoke(shown, config)]}

    model.replies = [lambda _: (order.append("memory"), save_memory("e", "- f"))[1]]
    graph = graph_of(mem, call, saver_of(mem, saver), after=mem.node())
    state = await Talk(graph, colour, saver).turns(14)
    assert order.count("answer") == 14
    assert order.index("memory") > order.index("answer")
    assert all(mem.consolidator.counter(p) <= 1_000 for p in chat.prompts)
    gone = [message_id for ids in consolidated(mem) for message_id in ids]
    assert state[POINTER] == gone[-1]
    assert len(gone) == len(set(gone)) > 10


async def test_a_node_without_a_pointer_in_the_state(mem, chat, model, saver, colour):
    """In a plain MessagesState the pointer is found again in the records, deferred or not."""
    for node, after in [(mem.node(chat), None), (mem.node(chat), mem.node())]:
        graph = graph_of(mem, node, saver_of(mem, saver), MessagesState, after)
        talk = Talk(graph, colour, saver)
        run = {"configurable": {"thread_id": f"t{after is None}"}}
        for n in range(12):
            state = await talk.say(HumanMessage(f"q{n}{LONG}"), run=run)
        assert POINTER not in state
        ids = [i for part in consolidated(mem, run["configurable"]["thread_id"]) for i in part]
        assert len(ids) == len(set(ids)) > 6
        assert mem.consolidator.counter(chat.prompts[-1]) <= 1_000
    assert model.calls == len(mem.memory.history_entries())


async def test_streaming_models_and_any_runnable(mem, colour):
    """The model of the node may be a chain, and may give a text."""
    chat = ScriptedChatModel(replies=["an answer"])
    graph = graph_of(mem, mem.node(chat | StrOutputParser()), mem.checkpointer)
    state = await Talk(graph, colour, "nanomem").say(HumanMessage("hi"))
    assert [m.content for m in state["messages"]] == ["hi", "an answer"]
    assert isinstance(state["messages"][1], AIMessage)
    assert state["messages"][1].id


async def test_the_models_error_comes_through(mem, colour, saver):
    """The answering model's own error is the program's: it is neither hidden nor counted."""
    chat = ScriptedChatModel(replies=[RuntimeError("rate limit"), "ok"])
    talk = Talk(graph_of(mem, mem.node(chat), saver_of(mem, saver)), colour, saver)
    with pytest.raises(RuntimeError, match="rate limit"):
        await talk.say(HumanMessage("hi"))
    await talk.say(HumanMessage("hi again"))
    with mem.sessions.reading("t") as records:
        assert records.failures == 0


# --- tools ---


@tool
def look(q: str) -> str:
    """Look something up."""
    return f"found {q}"


def agent(mem, chat, saver=None, **options):
    graph = StateGraph(MemoryState)
    graph.add_node("model", mem.node(chat.bind_tools([look]), **options))
    graph.add_node("tools", ToolNode([look]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver or mem.checkpointer)


def calls(*queries, number=0):
    made = [
        {"name": "look", "args": {"q": f"{q}{LONG}"}, "id": f"c{number}.{n}"}
        for n, q in enumerate(queries)
    ]
    return AIMessage("", tool_calls=made)


async def test_one_endless_tool_loop_stays_in_the_window(mem, model, colour):
    """cases/consolidation.md 5, 8: 25 rounds in one turn; the question is in every prompt."""
    rounds = [calls(str(n), number=n) for n in range(25)]
    chat = ScriptedChatModel(replies=[*rounds, "done"])
    question = HumanMessage("find it all", id="question")
    run = RUN | {"recursion_limit": 200}
    state = await Talk(agent(mem, chat), colour, "nanomem").say(question, run=run)
    assert state["messages"][-1].content == "done"
    assert len(state["messages"]) == 52
    for prompt in chat.prompts:
        assert question in prompt
        assert is_legal(prompt)
        tools = mem.consolidator.count_tools([look])
        assert mem.consolidator.counter(prompt) + tools <= 1_000
    assert model.calls > 3
    assert recorded(mem) == {m.id: m.content for m in state["messages"]}


async def test_parallel_calls_are_never_parted(mem, model, colour, saver):
    """cases/consolidation.md 7: with two calls a round each prompt is legal, and so is memory."""
    replies = [m for n in range(7) for m in (calls("x", "y", number=n), f"a{n}")]
    chat = ScriptedChatModel(replies=replies)
    compiled = agent(mem, chat, saver_of(mem, saver)) if saver != "none" else agent(mem, chat)
    talk = Talk(compiled, colour, "nanomem" if saver == "none" else saver)
    state = await talk.turns(7)
    assert all(is_legal(prompt) for prompt in chat.prompts)
    by_id = {m.id: m for m in state["messages"]}
    assert all(is_legal([by_id[i] for i in ids]) for ids in consolidated(mem))
    assert len(consolidated(mem)) > 2


@pytest.mark.parametrize("bind", ["plain", "config", "retry", "fallbacks", "parser"])
def test_the_tools_bound_to_the_model_count(mem, bind):
    """cases/consolidation.md 38: however the model is wrapped, its tools take their room."""
    bound = ScriptedChatModel(replies=["ok"]).bind_tools([look] * 9)
    model = {
        "plain": bound,
        "config": bound.with_config(tags=["x"]),
        "retry": bound.with_retry(),
        "fallbacks": bound.with_fallbacks([bound]),
        "parser": bound | RunnableLambda(lambda answer: answer),
    }
    graph = graph_of(mem, mem.node(model[bind]), None)
    window = mem.consolidator.budget_tokens - mem.consolidator.count_tools([look] * 9)
    messages = []
    while mem.consolidator.counter(messages) < window:
        messages += [HumanMessage("q" + LONG), AIMessage("a" + LONG)]
    assert mem.consolidator.counter(messages) < mem.consolidator.budget_tokens
    bare = graph_of(mem, mem.node(ScriptedChatModel(replies=["ok"])), None)
    for compiled, due in [(bare, False), (graph, True)]:
        compiled.invoke({"messages": [*messages, HumanMessage("q")]}, RUN)
        assert bool(consolidated(mem)) == due


async def test_a_killed_tool_call_gets_a_result_in_the_prompt_alone(mem, chat, colour):
    """cases/checkpointer.md 23: what a killed run left is completed in the view alone."""
    talk = Talk(graph_of(mem, mem.node(chat), mem.checkpointer), colour, "nanomem")
    state = await talk.say(HumanMessage("go"), calls("x"), HumanMessage("still there?"))
    assert [m.type for m in chat.prompts[0]] == ["human", "ai", "tool", "human"]
    assert [m.type for m in state["messages"]] == ["human", "ai", "human", "ai"]


# --- states of all kinds ---


class PydanticState(BaseModel):
    messages: Annotated[list[AnyMessage], add_messages]
    last_consolidated_id: str | None = None
    other: int = 1


@dataclass
class DataState:
    messages: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)
    last_consolidated_id: str | None = None


class PlainState(TypedDict):
    messages: Annotated[list[AnyMessage], operator.add]
    last_consolidated_id: str | None


@dataclass
class Bare:
    messages: Annotated[list[AnyMessage], operator.add] = field(default_factory=list)


@pytest.mark.parametrize("kind", [PydanticState, DataState, PlainState, Bare])
async def test_every_kind_of_state(mem, chat, model, talk_in, kind):
    """Pydantic, dataclass and plain lists: also where messages have no ids, each goes in once."""
    state = await talk_in(kind).turns(12)
    assert len(state["messages"]) == 24
    assert all(mem.consolidator.counter(prompt) <= 1_000 for prompt in chat.prompts)
    assert [p[-1].content for p in chat.prompts] == [f"q{n}{LONG}" for n in range(12)]
    ids = [message_id for part in consolidated(mem) for message_id in part]
    assert len(ids) == len(set(ids)) > 6
    shown = "\n".join(prompt[-1].content for prompt in model.prompts)
    gone = [m.content for m in state["messages"]][: len(ids)]
    assert all(shown.count(content) == 1 for content in gone)
    assert gone == [recorded(mem)[message_id] for message_id in ids]
    assert model.calls == len(mem.memory.history_entries()) > 2


async def test_messages_made_anew_for_every_run(mem, chat, model, colour):
    """A program that gives all messages as dictionaries, without a saver, has each go in once.

    LangGraph gives them new ids in every run; what they say, and where, tells which they are.
    """
    graph = graph_of(mem, mem.node(chat), None, MessagesState)
    rows: list[dict[str, str]] = []
    for n in range(14):
        rows.append({"role": "user", "content": f"q{n}{LONG}"})
        state = await Talk(graph, colour, "memory").say(*rows)
        rows.append({"role": "assistant", "content": state["messages"][-1].content})
    assert list(recorded(mem).values()) == [row["content"] for row in rows]
    ids = [message_id for part in consolidated(mem) for message_id in part]
    assert list(recorded(mem))[: len(ids)] == ids
    assert model.calls == len(consolidated(mem)) > 2
    other = [*rows[:3], {"role": "assistant", "content": "another answer"}]
    await Talk(graph, colour, "memory").say(*other, {"role": "user", "content": "and?"})
    assert [m.content for m in chat.prompts[-1]][-2:] == ["another answer", "and?"]
    assert {"another answer", "and?"} <= set(recorded(mem).values())


async def test_calls_made_anew_are_told_apart(mem, chat, colour):
    """Two calls without words at the same place are two messages where their arguments differ."""
    graph = graph_of(mem, mem.node(chat), None, MessagesState)
    for query in ("x", "y"):
        result = ToolMessage("found", tool_call_id="c0.0")
        await Talk(graph, colour, "memory").say(HumanMessage("go"), calls(query), result)
    with mem.sessions.reading("t") as records:
        calling = [records.message(n).get("tool_calls") for n in records.line_numbers]
    assert len([made for made in calling if made]) == 2


async def test_in_a_subgraph(mem, chat, model, colour, saver):
    """The memory node may stand in a subgraph that shares the state with its parent."""
    inner = StateGraph(MemoryState)
    inner.add_node("model", mem.node(chat))
    inner.add_edge(START, "model")
    graph = graph_of(mem, inner.compile(), saver_of(mem, saver))
    state = await Talk(graph, colour, saver).turns(10)
    gone = [message_id for part in consolidated(mem) for message_id in part]
    assert gone == [m.id for m in state["messages"]][: len(gone)]
    assert state[POINTER] == gone[-1]
    assert model.calls == len(consolidated(mem)) > 1
    assert set(gone) <= recorded(mem).keys()


async def test_under_another_key_of_the_state(mem, chat, model, colour, saver):
    """A node of one's own may keep its messages in any field; what went into memory is recorded."""

    class Chats(TypedDict):
        support: Annotated[list[AnyMessage], add_messages]

    def call(state, config):
        return {"support": [(mem.prompt | chat).invoke(state["support"], config)]}

    graph = graph_of(mem, call, saver_of(mem, saver), Chats)
    state: dict[str, Any] = {"support": []}
    for n in range(12):
        question = [HumanMessage(f"q{n}{LONG}")]
        sent = {"support": [*(state["support"] if saver == "none" else []), *question]}
        state = graph.invoke(sent, RUN) if colour == "sync" else await graph.ainvoke(sent, RUN)
    gone = [message_id for part in consolidated(mem) for message_id in part]
    assert gone == [m.id for m in state["support"]][: len(gone)]
    assert model.calls == len(consolidated(mem)) > 1
    assert set(gone) <= recorded(mem).keys()


async def test_in_the_functional_api(mem, chat, model, saver):
    """An entrypoint with a list of its own, without ids, has each message go in once."""

    @entrypoint(checkpointer=saver_of(mem, saver))
    def talk(given, *, previous=None, config: RunnableConfig):
        messages = [*(given.get("before") or previous or []), HumanMessage(given["question"])]
        answer = (mem.prompt | chat).invoke(messages, config)
        return [*messages, AIMessage(answer.content)]

    messages: list[Any] = []
    for n in range(12):
        before = messages if saver == "none" else None
        messages = talk.invoke({"question": f"q{n}{LONG}", "before": before}, RUN)
    assert len(messages) == 24
    assert all(mem.consolidator.counter(prompt) <= 1_000 for prompt in chat.prompts)
    gone = [recorded(mem)[message_id] for part in consolidated(mem) for message_id in part]
    assert gone == [m.content for m in messages][: len(gone)]
    assert model.calls == len(consolidated(mem)) > 1


async def test_the_config_may_be_left_out_in_a_node(mem, chat, colour):
    """In a node the prompt finds the run's config by itself, as runnables do."""
    graph = graph_of(
        mem,
        lambda state: {"messages": [chat.invoke(mem.prompt.invoke(state))]},
        mem.checkpointer,
        MessagesState,
    )
    await Talk(graph, colour, "nanomem").say(HumanMessage("hi"))
    assert chat.prompts == [[HumanMessage("hi", id=chat.prompts[0][0].id)]]


async def test_a_session_id_will_do_without_a_saver(mem, chat, model, colour):
    """Without a checkpointer a graph's session may be named as a chain's is."""
    talk = Talk(graph_of(mem, mem.node(chat), None), colour, "none")
    for n in range(14):
        state = await talk.say(
            HumanMessage(f"q{n}{LONG}"), run={"configurable": {"session_id": "s"}}
        )
    assert all(mem.consolidator.counter(prompt) <= 1_000 for prompt in chat.prompts)
    assert model.calls == len(mem.memory.history_entries()) > 2
    said = [m.content for m in state["messages"]]
    assert list(recorded(mem, "s").values())[: len(said)] == said


async def test_a_template_in_front_in_a_node_of_ones_own(mem, chat, model, colour, saver):
    """cases/consolidation.md 36: a system message put in front at each call is no conversation."""
    number = iter(range(99))

    def call(state, config):
        shown = [SystemMessage(f"it is {next(number)} o'clock"), *state["messages"]]
        return {"messages": [(mem.prompt | chat).invoke(shown, config)]}

    state = await Talk(graph_of(mem, call, saver_of(mem, saver)), colour, saver).turns(14)
    assert [p[0].content.split("\n")[0] for p in chat.prompts] == [
        f"it is {n} o'clock" for n in range(14)
    ]
    assert all("o'clock" not in prompt[-1].content for prompt in model.prompts)
    ids = [message_id for part in consolidated(mem) for message_id in part if message_id]
    assert ids == [m.id for m in state["messages"]][: len(ids)]
    assert model.calls == len(mem.memory.history_entries()) > 2
    assert "o'clock" not in str(recorded(mem))


async def test_a_node_apart_from_nanomem(mem, chat, colour):
    """A node may be created apart from Nanomem, with its own system prompt."""
    node = create_memory_node(mem.consolidator, model=chat, system_prompt="You are Bob.")
    await Talk(graph_of(mem, node, None), colour, "none").say(HumanMessage("hi"))
    assert chat.prompts[0][0] == SystemMessage("You are Bob.")
    other = MemoryPrompt(mem.consolidator, system_prompt="You are Eve.")
    assert other.invoke("hi", RUN)[0] == SystemMessage("You are Eve.")


# --- at once ---


@pytest.mark.parametrize("name", ["nanomem", "memory"])
def test_several_runs_on_one_thread_at_once(mem, chat, model, name):
    """cases/consolidation.md 11: whatever runs meet on a thread, no range goes in twice."""
    graph = graph_of(mem, mem.node(chat), saver_of(mem, name))
    for n in range(5):
        graph.invoke({"messages": [HumanMessage(f"q{n}{LONG}")]}, RUN)
    errors = []

    def run(worker):
        try:
            for n in range(4):
                graph.invoke({"messages": [HumanMessage(f"w{worker}.{n}{LONG}")]}, RUN)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not happen
            errors.append(error)

    workers = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []
    ids = [message_id for part in consolidated(mem) for message_id in part]
    assert len(ids) == len(set(ids))
    assert set(ids) <= recorded(mem).keys()
    assert len(mem.memory.history_entries()) == len(consolidated(mem))
    assert all(mem.consolidator.counter(prompt) <= 1_000 for prompt in chat.prompts)
    graph.invoke({"messages": [HumanMessage("still works")]}, RUN)
    assert chat.prompts[-1][-1].content == "still works"


def test_a_tool_message_of_the_state_is_shown_to_memory_as_one(mem, model):
    """The consolidating model is told which tool was called with what, and what came of it."""
    chat = ScriptedChatModel(replies=[calls("x"), "ok", f"b{LONG}", f"c{LONG}", f"d{LONG}"])
    talk = agent(mem, chat)
    for n in range(5):
        talk.invoke({"messages": [HumanMessage(f"q{n}{LONG}")]}, RUN)
    shown = model.prompts[0][-1].content
    assert "(calls look with " in shown
    assert "tool look: found x" in shown
    assert isinstance(talk.get_state(RUN).values["messages"][2], ToolMessage)
