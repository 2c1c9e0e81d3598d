"""`trim_state=True`: what is in memory leaves the state, and stays in the session."""

from __future__ import annotations

import pytest
from langchain.agents import create_agent
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from scripted import FREE, LONG, ScriptedChatModel, consolidated, recorded

from langchain_nanomem import MemoryState, Nanomem, SessionManager

pytestmark = pytest.mark.back_ends("files", "postgres", colour="async")

CONFIG = {"configurable": {"thread_id": "t"}}


def opened(path, model, **options):
    return Nanomem(path, model=model, **({"context_window_tokens": 500} | FREE | options))


@pytest.fixture
def memory(workspace, model):
    return opened(workspace, model)


def node_graph(memory, chat, saver, state=MemoryState):
    graph = StateGraph(state)
    graph.add_node("chat", memory.node(chat, trim_state=True))
    graph.add_edge(START, "chat")
    return graph.compile(checkpointer=saver)


def own_graph(memory, chat, saver, state=MemoryState):
    """A node without a model, behind an own model node."""
    graph = StateGraph(state)
    graph.add_node(
        "chat", lambda s, config: {"messages": chat.invoke(memory.prompt.invoke(s, config))}
    )
    graph.add_node("memory", memory.node(trim_state=True))
    graph.add_edge(START, "chat")
    graph.add_edge("chat", "memory")
    return graph.compile(checkpointer=saver)


def agent_graph(memory, chat, saver):
    return create_agent(chat, middleware=[memory.middleware(trim_state=True)], checkpointer=saver)


GRAPHS = {"node": node_graph, "own": own_graph, "agent": agent_graph}


@pytest.fixture(params=GRAPHS)
def make_graph(request):
    return GRAPHS[request.param]


async def talk(call, graph, numbers, config=CONFIG, **options):
    for number in numbers:
        new = HumanMessage(f"q{number}{LONG}", id=f"q{number}")
        state = await call(graph, "invoke", {"messages": [new]}, config, **options)
    return state["messages"]


def words(messages):
    """The first word of each message or record."""
    contents = (m["content"] if isinstance(m, dict) else m.content for m in messages)
    return [content.split()[0] for content in contents]


def said(count):
    return [word for n in range(count) for word in (f"q{n}", f"a{n}")]


def session_of(memory, key="t"):
    return SessionManager(memory.memory.backend.journal).get_or_create(key)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_the_state_stays_short_and_the_session_whole(
    memory, make_graph, chat, call, durability
):
    """Every turn is in the session, once, in order, with the pointer where the memory ends."""
    graph = make_graph(memory, chat, memory.checkpointer)
    state = await talk(call, graph, range(12), durability=durability)
    assert len(state) <= 6
    assert words(state) == said(12)[-len(state) :]
    for one in (session_of(memory), memory.sessions.get_or_create("t")):
        assert words(one.messages) == said(12)
        assert words(one.messages[one.last_consolidated :]) == words(state)[-len(state) :]
    assert words(memory.history("t").messages) == said(12)
    assert set(recorded(memory)) >= {f"q{n}" for n in range(12)}


async def test_prompts_are_the_same_as_without(elsewhere, make_graph, model, chat, call):
    """Trimming is about the state alone: each prompt is what it would have been."""
    prompts = []
    for trims in (True, False):
        memory = opened(elsewhere(), model.model_copy(deep=True))
        chatting = chat.model_copy(deep=True)
        if trims:
            graph = make_graph(memory, chatting, memory.checkpointer)
        elif make_graph is agent_graph:
            graph = create_agent(
                chatting, middleware=[memory.middleware()], checkpointer=memory.checkpointer
            )
        else:
            graph = StateGraph(MemoryState).add_node("chat", memory.node(chatting))
            graph = graph.add_edge(START, "chat").compile(checkpointer=memory.checkpointer)
        await talk(call, graph, range(8))
        prompts.append([words(prompt) for prompt in chatting.prompts])
    if make_graph is not own_graph:  # which consolidates behind the answer
        assert prompts[0] == prompts[1]
    assert all(prompt[-1] == f"q{n}" for n, prompt in enumerate(prompts[0]))


@pytest.mark.parametrize("saver", ["memory", "none"])
async def test_under_other_checkpointers(memory, make_graph, chat, call, saver):
    """The state is short there too, and the session has every turn."""
    graph = make_graph(memory, chat, InMemorySaver() if saver == "memory" else None)
    state = []
    for number in range(10):
        new = HumanMessage(f"q{number}{LONG}", id=f"q{number}")
        given = [new] if saver == "memory" else [*state, new]
        state = (await call(graph, "invoke", {"messages": given}, CONFIG))["messages"]
        assert len(state) <= 6
    assert words(state) == said(10)[-len(state) :]
    shown = words(session_of(memory).messages)
    if make_graph is own_graph:  # the last answer is recorded when it is seen again
        shown = [*shown, *said(10)[len(shown) :]]
    assert shown == said(10)


async def test_system_messages_and_the_turn_that_goes_on_stay(workspace, model, call):
    """One endless turn of tools: its question stays in the state, pinned; no round is parted."""
    memory = opened(workspace, model)
    calls = [
        AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": f"c{n}"}], id=f"call{n}")
        for n in range(8)
    ]
    chat = ScriptedChatModel(replies=[*calls, AIMessage("done", id="done"), AIMessage("more")])
    graph = StateGraph(MemoryState)
    graph.add_node("chat", memory.node(chat, trim_state=True))
    graph.add_node(
        "look",
        lambda s: {
            "messages": ToolMessage(f"r{LONG}", tool_call_id=s["messages"][-1].tool_calls[0]["id"])
        },
    )
    graph.add_edge(START, "chat")
    graph.add_conditional_edges(
        "chat", lambda s: "look" if s["messages"][-1].tool_calls else "__end__"
    )
    graph.add_edge("look", "chat")
    compiled = graph.compile(checkpointer=memory.checkpointer)
    given = [SystemMessage("rules", id="rules"), HumanMessage("question", id="q")]
    state = await call(compiled, "invoke", {"messages": given}, CONFIG | {"recursion_limit": 60})
    kept = state["messages"]
    assert [message.id for message in kept[:2]] == ["rules", "q"]
    assert 2 < len(kept) < 15
    assert kept[2].type == "ai"
    assert all(prompt[1].content == "question" for prompt in chat.prompts)
    shown = session_of(memory).messages
    assert [m["id"] for m in shown if m["role"] != "tool"] == [
        "rules",
        "q",
        *(f"call{n}" for n in range(8)),
        "done",
    ]
    assert [m["tool_call_id"] for m in shown if m["role"] == "tool"] == [f"c{n}" for n in range(8)]
    await call(compiled, "invoke", {"messages": [HumanMessage("next" + LONG * 3)]}, CONFIG)
    assert len(session_of(memory).messages) == len(shown) + 2


async def test_messages_without_ids_are_trimmed_too(memory, make_graph, chat, call):
    """LangGraph gives them ids before the node sees them."""
    graph = make_graph(memory, chat, memory.checkpointer)
    for number in range(8):
        state = await call(graph, "invoke", {"messages": [("user", f"q{number}{LONG}")]}, CONFIG)
    assert len(state["messages"]) <= 6
    assert words(session_of(memory).messages) == said(8)


# --- branches ---


async def test_a_fork_shows_its_own_past(memory, make_graph, chat, call):
    """Time travel to before a trim: the session shows that branch, and then what it goes on to."""
    graph = make_graph(memory, chat, memory.checkpointer)
    await talk(call, graph, range(10))
    past = [state async for state in graph.aget_state_history(CONFIG)]
    old = next(s for s in past if words(s.values.get("messages", []))[-1:] == ["a3"] and not s.next)
    state = await talk(call, graph, [77], old.config)
    assert words(state)[-2] == "q77"
    shown = words(session_of(memory).messages)
    assert shown[:8] == said(4)
    assert shown[8:] == ["q77", "a10"]
    await talk(call, graph, range(80, 86))
    shown = words(session_of(memory).messages)
    assert shown[:9] == [*said(4), "q77"]
    assert shown[8::2] == ["q77", *(f"q{n}" for n in range(80, 86))]
    once = [one for ids in consolidated(memory) for one in ids]
    assert len(once) == len(set(once))


async def test_the_first_branch_is_unharmed(memory, make_graph, chat, call):
    """Its newest state is as it was, and going on from there shows its own past again."""
    graph = make_graph(memory, chat, memory.checkpointer)
    await talk(call, graph, range(8))
    main = await call(graph, "get_state", CONFIG)
    past = [state async for state in graph.aget_state_history(CONFIG)]
    old = next(s for s in past if words(s.values.get("messages", []))[-1:] == ["a2"] and not s.next)
    await talk(call, graph, [50], old.config)
    await talk(call, graph, [51, 52])
    again = await call(graph, "get_state", main.config)
    assert again.values["messages"] == main.values["messages"]
    await talk(call, graph, [8], main.config)
    shown = words(session_of(memory).messages)
    assert shown[:16] == said(8)
    assert shown[16] == "q8"


async def test_what_a_person_removes_is_not_shown(memory, make_graph, chat, call):
    """Only what trimming has removed is: not a message that someone took out by hand."""
    graph = make_graph(memory, chat, memory.checkpointer)
    state = await talk(call, graph, range(5))
    gone = state[-2].id
    await call(graph, "update_state", CONFIG, {"messages": [RemoveMessage(id=gone)]})
    await talk(call, graph, range(5, 9))
    shown = words(session_of(memory).messages)
    assert shown == [word for word in said(9) if word != gone]


async def test_what_a_person_removed_from_memory_too_is_not_shown(memory, chat, call):
    """It was in memory and in the state, and was taken out by hand before anything was trimmed."""
    graph = StateGraph(MemoryState)
    graph.add_node("chat", memory.node(chat))
    whole = graph.add_edge(START, "chat").compile(checkpointer=memory.checkpointer)
    await talk(call, whole, range(6))
    assert "q1" in [one for ids in consolidated(memory) for one in ids]
    await call(whole, "update_state", CONFIG, {"messages": [RemoveMessage(id="q1")]})
    await talk(call, node_graph(memory, chat, memory.checkpointer), range(6, 9))
    assert words(session_of(memory).messages) == [word for word in said(9) if word != "q1"]


async def test_a_state_that_lost_its_pointer_heals(memory, chat, call):
    """`MessagesState` has no field for it: the session is whole, nothing is summarised twice."""
    graph = node_graph(memory, chat, memory.checkpointer, MessagesState)
    await talk(call, graph, range(10))
    assert words(session_of(memory).messages) == said(10)
    sources = [entry.source for entry in memory.memory.history_entries()]
    assert len(sources) == len(set(sources))


# --- what else touches the journal ---


async def test_pruning_and_copying_keep_it(memory, make_graph, chat, call):
    """The session is what it was, on the disk too; the thread goes on."""
    graph = make_graph(memory, chat, memory.checkpointer)
    await talk(call, graph, range(9))
    before = words(session_of(memory).messages)
    memory.checkpointer.copy_thread("t", "copy")
    for key in ("t", "copy"):
        memory.checkpointer.prune([key])
        assert words(session_of(memory, key).messages) == before == said(9)
        config = {"configurable": {"thread_id": key}}
        await talk(call, graph, [9], config)
        assert words(session_of(memory, key).messages)[:18] == before


async def test_pruning_drops_what_only_another_branch_trimmed(memory, chat, call):
    """Of an abandoned branch nothing stays, whether it was trimmed or not."""
    graph = node_graph(memory, chat, memory.checkpointer)
    await talk(call, graph, range(3))
    start = await call(graph, "get_state", CONFIG)
    await talk(call, graph, range(90, 98))
    await talk(call, graph, [3], start.config)
    await talk(call, graph, [4, 5])
    memory.checkpointer.prune(["t"])
    kept = {content.split()[0] for content in recorded(memory).values()}
    assert not any(word.startswith("q9") for word in kept)
    assert {"q0", "q1", "q2", "q3", "q4", "q5"} <= kept


async def test_a_new_process_reads_it_from_the_index(memory, chat, call):
    """What was trimmed is in the index beside the journal, too."""
    graph = node_graph(memory, chat, memory.checkpointer)
    await talk(call, graph, range(60))
    assert memory.sessions.journal.index("t")
    fresh = SessionManager(memory.memory.backend.journal)
    assert words(fresh.get_or_create("t").messages)[::2] == [f"q{n}" for n in range(60)]


async def test_a_crash_before_the_checkpoint_does_no_harm(memory, chat, call, monkeypatch):
    """It is noted as trimmed, and still in the state: shown once, trimmed by the next turn."""
    graph = node_graph(memory, chat, memory.checkpointer)
    await talk(call, graph, range(3))

    real = SessionManager.note_trimmed

    def crash(*arguments):
        real(*arguments)
        raise RuntimeError("the process ends here")

    monkeypatch.setattr(SessionManager, "note_trimmed", crash)
    with pytest.raises(RuntimeError, match="ends here"):
        await talk(call, graph, range(3, 9))
    monkeypatch.setattr(SessionManager, "note_trimmed", real)
    shown = words(session_of(memory).messages)
    assert shown[::2] == [f"q{n}" for n in range(len(shown) // 2 + 1)]
    state = await call(graph, "invoke", None, CONFIG)
    assert len(state["messages"]) <= 6
    after = words(session_of(memory).messages)
    assert (after[: len(shown)], len(after)) == (shown, len(shown) + 1)


async def test_search_finds_what_was_trimmed(memory, chat, call):
    """The tool looks into the whole session."""
    graph = node_graph(memory, chat, memory.checkpointer)
    await call(graph, "invoke", {"messages": [("user", "The cat is Mitsou." + LONG)]}, CONFIG)
    state = await talk(call, graph, range(8))
    assert "Mitsou" not in str(state)
    (tool,) = memory.tools()
    assert "Mitsou" in tool.invoke({"query": "Mitsou"}, CONFIG)


async def test_an_edit_of_what_is_live_is_shown_as_edited(memory, chat, call):
    """Beside the trimmed prefix an edit by id is what it always is."""
    graph = node_graph(memory, chat, memory.checkpointer)
    state = await talk(call, graph, range(6))
    edited = HumanMessage("edited", id=state[-2].id)
    await call(graph, "update_state", CONFIG, {"messages": [edited]})
    assert words(session_of(memory).messages) == [*said(5), "edited", "a5"]
