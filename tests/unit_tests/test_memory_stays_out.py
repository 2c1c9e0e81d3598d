"""cases/consolidation.md 33: memory is in the prompt, and in nothing that is kept or streamed."""

from __future__ import annotations

import asyncio

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables.history import RunnableWithMessageHistory
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt
from scripted import ScriptedChatModel, save_memory
from within import texts_within

from langchain_nanomem import MemoryState, Nanomem, TokenCounter

pytestmark = pytest.mark.back_ends("files", "postgres")

LONG = " word" * 90
COUNTER = TokenCounter()  # one for all: it takes a while to load
FREE = {
    "max_completion_tokens": 0,
    "safety_margin_tokens": 0,
    "context_window_tokens": 1_000,
    "token_counter": COUNTER,
}
RUN = {"configurable": {"thread_id": "t"}}
BEFORE, AFTER, ENTRY = "zebra-by-hand", "giraffe-of-model", "okapi-in-the-log"
SECRETS = (BEFORE, AFTER, ENTRY, "long_term_memory", "reference data, not instructions")
MODES = ["values", "updates", "messages", "custom", "debug", "tasks", "checkpoints"]


@tool
def look(q: str) -> str:
    """Look something up."""
    return f"found {q}"


@pytest.fixture
def model():
    return ScriptedChatModel(replies=[save_memory(f"{ENTRY} {n}", f"- {AFTER}") for n in range(9)])


@pytest.fixture
def chat():
    call = {"name": "look", "args": {"q": LONG}, "id": "c1"}
    replies = [f"a{n}{LONG}" for n in range(5)]
    return ScriptedChatModel(replies=[*replies, AIMessage("", tool_calls=[call]), f"end{LONG}"])


@pytest.fixture
def mem(workspace, model):
    mem = Nanomem(workspace, model=model, system_prompt="You are Ada.", **FREE)
    mem.memory.write_long_term(f"- {BEFORE}")
    return mem


@pytest.fixture(params=["node", "own", "before"])
def graph_of(request, mem, chat):
    """The three ways to build a graph, all with tools."""

    def build(saver):
        bound = chat.bind_tools([look])
        graph = StateGraph(MemoryState)

        def own(state, config):
            return {"messages": [bound.invoke(mem.prompt.invoke(state, config), config)]}

        graph.add_node("model", mem.node(bound) if request.param == "node" else own)
        graph.add_node("tools", ToolNode([look]))
        if request.param == "before":
            graph.add_node("memory", mem.node())
            graph.add_edge(START, "memory")
            graph.add_edge("memory", "model")
        else:
            graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        return graph.compile(checkpointer=saver)

    return build


def found_in(value):
    return texts_within(value, *SECRETS)


def test_what_is_looked_for_is_found_wherever_it_is():
    """In a tool's arguments, in a field, in a key, and beside what can't be pickled."""
    call = {"name": "look", "args": {"where": [BEFORE]}, "id": "1"}
    deep = ({"messages": [AIMessage("", tool_calls=[call])]}, ToolMessage(AFTER, tool_call_id="1"))
    assert found_in(deep) == [BEFORE, AFTER]
    assert found_in([lambda: 0, {ENTRY: 1}]) == [ENTRY]
    assert found_in((HumanMessage("nothing"), None)) == []


def journal_records(mem):
    for info in mem.sessions.list_sessions():
        yield from mem.sessions.journal.read(info["key"])[0]


def assert_kept_nowhere(mem, chat, model):
    """No record but the consolidation's own, no session, no history and no summary has it."""
    kinds = {record.get("_type") for record in journal_records(mem) if found_in(str(record))}
    assert kinds <= {"consolidation"}
    for info in mem.sessions.list_sessions():
        assert found_in(mem.history(info["key"]).messages) == []
        assert found_in(mem.sessions.get_or_create(info["key"]).messages) == []
    assert model.calls > 0, "there was something to keep out"
    for prompt in model.prompts:
        conversation = prompt[-1].content.split("<conversation>")[1]
        assert found_in(conversation) == []
        assert "You are Ada" not in conversation
    assert all(found_in(prompt[0].content) for prompt in chat.prompts), "the model did see it"
    assert any(AFTER in prompt[0].content for prompt in chat.prompts)


@pytest.fixture
def kept_nowhere(mem, chat, model):
    return lambda: assert_kept_nowhere(mem, chat, model)


def inputs():
    return [{"messages": [HumanMessage(f"q{n}{LONG}")]} for n in range(6)]


@pytest.mark.parametrize("is_async", [False, True])
async def test_in_no_stream_mode(graph_of, mem, chat, model, is_async):
    """No stream mode, nor all at once, with or without subgraphs, shows a word of it."""
    graph = graph_of(mem.checkpointer)
    seen = set()
    for number, given in enumerate(inputs()):
        options = {"stream_mode": MODES, "subgraphs": number % 2 == 1}
        if is_async:
            parts = [part async for part in graph.astream(given, RUN, **options)]
        else:
            parts = list(graph.stream(given, RUN, **options))
        for part in parts:
            seen.add(part[-2])
            assert found_in(part) == []
    assert seen == set(MODES)
    assert_kept_nowhere(mem, chat, model)


@pytest.mark.parametrize("mode", MODES)
def test_in_no_single_stream_mode(graph_of, mem, chat, model, mode):
    """Each stream mode alone is free of it."""
    graph = graph_of(InMemorySaver())
    for given in inputs():
        for part in graph.stream(given, RUN, stream_mode=mode):
            assert found_in(part) == []
    assert_kept_nowhere(mem, chat, model)


async def test_in_no_result(graph_of, mem, chat, model):
    """Neither the result of a run nor a message in it has it, whatever the colour."""
    graph = graph_of(mem.checkpointer)
    for number, given in enumerate(inputs()):
        run = graph.invoke if number % 2 else None
        result = run(given, RUN) if run else await graph.ainvoke(given, RUN)
        assert found_in(result) == []
        assert all(m.type in {"human", "ai", "tool"} for m in result["messages"])
    assert any(isinstance(m, ToolMessage) for m in result["messages"])
    assert_kept_nowhere(mem, chat, model)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("saver", ["nanomem", "memory"])
def test_in_no_checkpoint_and_no_pending_write(graph_of, mem, kept_nowhere, saver, durability):
    """No checkpoint, metadata, pending write or state snapshot of either saver has it."""
    checkpointer = mem.checkpointer if saver == "nanomem" else InMemorySaver()
    graph = graph_of(checkpointer)
    for given in inputs():
        graph.invoke(given, RUN, durability=durability)
    checkpoints = list(checkpointer.list(None))
    assert len(checkpoints) > 5
    assert all(found_in(checkpoint) == [] for checkpoint in checkpoints)
    snapshots = list(graph.get_state_history(RUN))
    assert all(found_in(snapshot) == [] for snapshot in snapshots)
    kept_nowhere()


def test_in_no_interrupted_run(mem, model):
    """The checkpoint and the pending writes of a run that waits for a person are free of it."""
    chat = ScriptedChatModel(replies=[f"a{n}{LONG}" for n in range(12)])
    graph = StateGraph(MemoryState)
    graph.add_node("model", mem.node(chat))
    graph.add_node("ask", lambda _: {"messages": [HumanMessage(interrupt("go on?"))]})
    graph.add_edge(START, "model")
    graph.add_edge(START, "ask")
    compiled = graph.compile(checkpointer=mem.checkpointer)
    for n in range(12):
        run = {"configurable": {"thread_id": "t"}}
        compiled.invoke({"messages": [HumanMessage(f"q{n}{LONG}")]}, run)
    found = mem.checkpointer.get_tuple(RUN)
    assert any(channel == "messages" for _, channel, _ in found.pending_writes)
    assert found_in(found) == []
    assert_kept_nowhere(mem, chat, model)


async def test_no_token_of_the_consolidating_model_is_streamed(open_memory):
    """With the same model for both, what it says to the memory is not shown to the user."""
    both = ScriptedChatModel(
        replies=[lambda m: save_memory(ENTRY, f"- {AFTER}") if "<conversation>" in str(m) else "a"]
    )
    mem = open_memory(model=both, **FREE)
    graph = StateGraph(MemoryState)
    graph.add_node("memory", mem.node(both))
    graph.add_edge(START, "memory")
    compiled = graph.compile(checkpointer=mem.checkpointer)
    shown = []
    for n, given in enumerate(inputs() * 2):
        run = {"configurable": {"thread_id": f"t{n % 2}"}}
        given["messages"].append(HumanMessage(LONG * 2))
        if n % 2:
            parts = list(compiled.stream(given, run, stream_mode="messages"))
        else:
            parts = [part async for part in compiled.astream(given, run, stream_mode="messages")]
        shown += parts
        assert found_in(parts) == []
        assert "save_memory" not in str(parts)
    assert {message.content for message, _ in shown if message.type != "human"} == {"a"}
    assert len(mem.memory.history_entries()) > 1


@pytest.mark.filterwarnings("ignore:.*RunnableWithMessageHistory:DeprecationWarning")
@pytest.mark.parametrize("is_async", [False, True])
async def test_in_no_saved_message_of_a_chain(mem, model, is_async):
    """A chain's history, its output and the session file are free of it."""
    chat = ScriptedChatModel(replies=[f"a{n}{LONG}" for n in range(9)])
    chain = RunnableWithMessageHistory(mem.prompt | chat, mem.history)
    run = {"configurable": {"session_id": "s"}}
    for n in range(8):
        question = f"q{n}{LONG}"
        answer = await chain.ainvoke(question, run) if is_async else chain.invoke(question, run)
        assert found_in(answer) == []
    assert len(mem.history("s").messages) == 16
    assert_kept_nowhere(mem, chat, model)


def test_a_prompt_that_is_asked_for_twice_holds_it_once(mem):
    """The prompt is made afresh: what was a prompt before is never taken for the conversation."""
    given = [HumanMessage("hi", id="1")]
    for _ in range(2):
        prompt = mem.prompt.invoke(given, RUN)
        assert prompt[0].content.count(BEFORE) == 1
    assert given == [HumanMessage("hi", id="1")]


def test_runs_at_once_keep_it_out_too(mem, model):
    """Many asynchronous runs at once leave no trace of it either."""
    chat = ScriptedChatModel(replies=[f"a{LONG}"])
    graph = StateGraph(MemoryState)
    graph.add_node("model", mem.node(chat))
    graph.add_edge(START, "model")
    compiled = graph.compile(checkpointer=mem.checkpointer)

    async def talk(key):
        for given in inputs():
            await compiled.ainvoke(given, {"configurable": {"thread_id": key}})

    async def all_of_them():
        await asyncio.gather(*(talk(f"t{n}") for n in range(4)))

    asyncio.run(all_of_them())
    assert_kept_nowhere(mem, chat, model)
