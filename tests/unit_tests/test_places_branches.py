"""Branches of a graph's and an agent's conversation: time travel, forks, edits, removals."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from places import InAgent, InGraph, Place
from scripted import COUNTER, FREE, LONG, consolidated, recorded

from langchain_nanomem import MemoryState, Nanomem
from langchain_nanomem.memory import fence_memory

pytestmark = pytest.mark.back_ends("files", "postgres", colour="async")

POINTER = "last_consolidated_id"


def added(state: list[Any], writes: list[Any]) -> list[Any]:
    """The messages after several updates."""
    for write in writes:
        state = add_messages(state, write)
    return state


class DeltaState(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(added, snapshot_frequency=5)]
    last_consolidated_id: str | None


class InDeltaGraph(InGraph):
    """A graph whose messages are in a delta channel."""

    def build(self):
        graph = StateGraph(DeltaState).add_node("model", self.memory.node(self.bound))
        return graph.add_edge(START, "model").compile(checkpointer=self.saver)


KINDS = {"graph": InGraph, "agent": InAgent, "delta": InDeltaGraph}


@pytest.fixture
def mem(workspace, model):
    return Nanomem(workspace, model=model, context_window_tokens=1_000, **FREE)


@pytest.fixture(params=["nanomem", "memory"])
def saver(request, mem):
    return mem.checkpointer if request.param == "nanomem" else InMemorySaver()


@pytest.fixture(params=KINDS)
def place(request, mem, chat, colour, saver):
    return KINDS[request.param](mem, chat, colour, checkpointer=saver)


async def talk(place, texts, config=None, **options):
    """Turns, the first from a checkpoint; the state after them."""
    for text in texts:
        given = place.given([f"{text}{LONG}"])
        await place.call("invoke", given, config or place.run, **options)
        config = None
    return await now(place)


async def now(place):
    return (await place.call("get_state", place.run)).values


async def history(place):
    """The state behind each turn, by the number of its messages."""
    found = await place.call("get_state_history", place.run)
    return {len(s.values.get("messages", ())): s for s in reversed(found) if not s.next}


def ids_of(state):
    return [message.id for message in state["messages"]]


def gone(mem):
    return [message_id for part in consolidated(mem) for message_id in part]


def live(place):
    """What the last prompt showed of the conversation."""
    return [message.content for message in place.model.prompts[-1] if message.type != "system"]


# --- done when 6 ------------------------------------------------------------


@pytest.mark.parametrize("durability", ["sync", "exit"])
async def test_a_fork_from_before_a_consolidation(place, mem, model, chat, durability):
    """The fork sees its own window, HISTORY has nothing twice, the main branch is unharmed."""
    main = await talk(place, [f"q{n}" for n in range(3)], durability=durability)
    before = (await history(place))[6].config
    assert model.calls == 0
    main = await talk(place, [f"q{n}" for n in range(3, 9)], durability=durability)
    ids, in_memory, calls = ids_of(main), gone(mem), model.calls
    assert in_memory == ids[: len(in_memory)]
    assert main[POINTER] == in_memory[-1]
    end = (await place.call("get_state", place.run)).config

    fork = await talk(place, ["fork"], before, durability=durability)
    assert ids_of(fork)[:6] == ids[:6]
    assert model.calls == calls, "what is in memory is skipped without a model call"
    covered = min(6, len(in_memory))
    assert live(place) == [*(m.content for m in fork["messages"][covered:6]), f"fork{LONG}"]
    assert fork[POINTER] == ids[covered - 1]

    fork = await talk(place, [f"f{n}" for n in range(8)], durability=durability)
    assert model.calls > calls, "the fork goes into memory too"
    everything = gone(mem)
    assert len(everything) == len(set(everything)), "nothing goes in twice"
    own = ids_of(fork)
    pointer = own.index(fork[POINTER]) + 1
    assert pointer > 6
    assert set(own[:pointer]) <= set(everything)
    assert not set(own[pointer:]) & set(everything)
    entries = [entry.text for entry in mem.memory.history_entries()]
    assert len(entries) == len(set(entries)) == len(consolidated(mem)) == model.calls

    back = (await place.call("get_state", end)).values
    assert (ids_of(back), back[POINTER]) == (ids, main[POINTER])
    on = await talk(place, ["on"], end, durability=durability)
    assert ids_of(on)[: len(ids)] == ids
    assert live(place)[-1] == f"on{LONG}"
    assert live(place)[:-1] == [m.content for m in on["messages"][ids.index(on[POINTER]) + 1 : -2]]
    assert all(COUNTER(prompt) <= 1_000 for prompt in chat.prompts)
    shown = "\n".join(prompt[-1].content.split("<conversation>")[1] for prompt in model.prompts)
    for message_id in gone(mem):
        assert shown.count(recorded(mem)[message_id]) == 1


# --- edits ------------------------------------------------------------------


async def test_an_edit_by_id(place, mem, model):
    """A live message that was edited is in the prompt and in memory as it is now, and only so."""
    state = await talk(place, ["q0", "q1"])
    edited = HumanMessage(f"edited{LONG}", id=ids_of(state)[2])
    await place.call("update_state", place.run, {"messages": [edited]})
    await talk(place, ["now"])
    assert edited.content in live(place)
    assert f"q1{LONG}" not in live(place)
    await talk(place, [f"r{n}" for n in range(6)])
    shown = "\n".join(prompt[-1].content for prompt in model.prompts)
    assert edited.content in shown
    assert f"q1{LONG}" not in shown
    with mem.sessions.reading("t") as records:
        lines = [records.message(number)["content"] for number in records.line_numbers]
    assert edited.content in lines, "what went into memory is in the journal whole"


async def test_the_pointers_message_is_removed(place, mem, model):
    """It heals: nothing raises, nothing that is in memory comes back or goes in again."""
    state = await talk(place, [f"q{n}" for n in range(7)])
    calls = model.calls
    await place.call("update_state", place.run, {"messages": [RemoveMessage(state[POINTER])]})
    healed = await talk(place, ["now"])
    assert ids_of(healed).index(healed[POINTER]) + 1 == sum(i in gone(mem) for i in ids_of(healed))
    assert not [m for m in place.model.prompts[-1] if m.id in gone(mem)]
    assert model.calls - calls <= 1
    assert len(gone(mem)) == len(set(gone(mem)))


async def test_an_unknown_pointer(place, mem, chat):
    """A pointer that names no message of the branch is passed over."""
    await talk(place, ["q0"])
    await place.call("update_state", place.run, {POINTER: "nobody"})
    await talk(place, ["q1"])
    assert live(place) == [f"q0{LONG}", f"a0{LONG}", f"q1{LONG}"]


async def test_all_messages_are_removed(place, mem):
    """The thread begins anew with what is said next, and with the memory."""
    await talk(place, [f"q{n}" for n in range(7)])
    remove = {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES)]}
    await place.call("update_state", place.run, remove)
    await talk(place, ["hello"])
    assert live(place) == [f"hello{LONG}"]
    memory = mem.memory.read_long_term()
    assert fence_memory(memory) in place.model.prompts[-1][0].content
    state = await talk(place, [f"r{n}" for n in range(8)])
    assert state[POINTER] in ids_of(state)
    assert len(gone(mem)) == len(set(gone(mem)))


# --- where a graph stands in another ----------------------------------------


class Parents(TypedDict):
    """A parent's state, without the pointer."""

    messages: Annotated[list[AnyMessage], add_messages]


class InSubgraph(InGraph):
    """A graph whose only node is another place; with a checkpointer of its own, or the parent's."""

    inner: type[Place]
    own: bool | None
    """As LangGraph takes it: None is the parent's, True one that is kept, False is none."""

    def build(self):
        inner = self.inner(self.memory, self.model, self.colour, checkpointer=self.own)
        graph = StateGraph(Parents).add_node("inner", inner.runnable).add_edge(START, "inner")
        return graph.compile(checkpointer=self.saver)


SUBGRAPHS = [
    type("Sub", (InSubgraph,), {"inner": inner, "own": own})
    for inner in (InGraph, InAgent)
    for own in (None, True, False)
]


@pytest.mark.parametrize("kind", SUBGRAPHS)
async def test_in_a_subgraph(mem, chat, colour, saver, kind):
    """With the parent's checkpointer or a kept one of its own, each message goes in once."""
    place = kind(mem, chat, colour, checkpointer=saver)
    state = await talk(place, [f"q{n}" for n in range(9)])
    questions = [m.content for m in state["messages"] if m.type == "human"]
    assert questions == [f"q{n}{LONG}" for n in range(9)]
    assert [prompt[-1].content for prompt in chat.prompts] == questions
    assert all(COUNTER(prompt) <= 1_000 for prompt in chat.prompts)
    assert gone(mem) == ids_of(state)[: len(gone(mem))]
    assert len(mem.memory.history_entries()) == len(consolidated(mem)) > 1
    assert set(gone(mem)) <= recorded(mem).keys()


async def test_agents_with_conversations_of_their_own(mem, model, chat, call, saver):
    """Two agents whose subgraphs are kept, under a graph with memory: none sees another's talk.

    All three conversations go into memory, each message once.
    """
    chat.replies = [lambda prompt: f"to {prompt[-1].content[:9]}{LONG}"]
    graph = StateGraph(MemoryState)
    graph.add_node("root", mem.node(chat))
    for name in "AB":
        agent = create_agent(
            chat, system_prompt=name, middleware=[mem.middleware()], checkpointer=True
        )

        def ask(state, name=name, agent=agent):
            asked = HumanMessage(f"{name} {state['messages'][0].content[:3]} {LONG}")
            answer = agent.invoke({"messages": [asked]})["messages"][-1]
            return {"messages": [AIMessage(f"{name} says {answer.content}")]}

        graph.add_node(name, ask)
    graph.add_edge(START, "root").add_edge("root", "A").add_edge("A", "B")
    compiled = graph.compile(checkpointer=saver)
    for n in range(9):
        given = {"messages": [HumanMessage(f"q{n}{LONG}")]}
        state = await call(compiled, "invoke", given, {"configurable": {"thread_id": "t"}})
    assert len(state["messages"]) == 36
    assert all(COUNTER(prompt) <= 1_000 for prompt in chat.prompts)
    for name, other in ("AB", "BA"):
        prompts = [p for p in chat.prompts if p[0].content.split("\n")[0] == name]
        assert len(prompts) == 9
        assert all(p[-1].content.startswith(f"{name} q0") for p in prompts)
        assert not [m for p in prompts for m in p[1:] if m.content.startswith((other, "q"))]
    assert len(gone(mem)) == len(set(gone(mem)))
    assert set(gone(mem)) <= recorded(mem).keys()
    own = ids_of(state)
    pointer = own.index(state[POINTER]) + 1
    assert set(own[:pointer]) <= set(gone(mem))
    assert not set(own[pointer:]) & set(gone(mem))
    assert len(set(gone(mem)) - set(own)) > 8, "the agents' own conversations"
    assert model.calls == len(mem.memory.history_entries()) == len(consolidated(mem))
