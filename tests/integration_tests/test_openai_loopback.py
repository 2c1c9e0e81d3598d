"""The real ChatOpenAI against a server on this machine that answers well, badly, or not at all."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from memory_graph import (
    AGENT,
    KEY,
    MEMORY,
    PADDING,
    SYSTEM,
    THREAD,
    Chat,
    build_graph,
    chat_model,
    config_of,
    look_up,
    session_lines,
)
from openai import BadRequestError
from openai_server import USAGE, OpenAIServer, Reply, Scripted, pieces, refused, save_memory
from werkzeug import Response

from langchain_nanomem import MemoryState, Nanomem, SessionManager

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

pytestmark = pytest.mark.usefixtures("plain_environment")
WINDOW_TOKENS, BUDGET_TOKENS = 2_400, 2_000
ANSWER = f"Here is what I know. {PADDING}"
HTML = "<!DOCTYPE html><html><body>502 Bad Gateway</body></html>"
MOST_TURNS = 20


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        server.script(AGENT, ANSWER)
        server.script(MEMORY, save_memory())
        yield server
        assert server.illegal == []


@pytest.fixture(params=["sync", "async"])
def open_chat(
    request: pytest.FixtureRequest, server: OpenAIServer, tmp_path: Path
) -> Callable[..., Chat]:
    """Opens the workspace anew, in both colours."""

    def open_it(agent_options: dict[str, Any] | None = None, **memory_options: Any) -> Chat:
        memory = Nanomem(
            tmp_path,
            model=chat_model(server.url, MEMORY, **memory_options),
            context_window_tokens=WINDOW_TOKENS,
            max_completion_tokens=WINDOW_TOKENS - BUDGET_TOKENS,
            safety_margin_tokens=0,
            system_prompt=SYSTEM,
        )
        agent = chat_model(server.url, AGENT, **(agent_options or {}))
        return Chat(memory, build_graph(memory, agent), request.param)

    return open_it


@pytest.fixture
def chat(open_chat: Callable[..., Chat]) -> Chat:
    return open_chat()


async def talk_until_asked(chat: Chat, server: OpenAIServer) -> list[dict[str, Any]]:
    """Turns until the memory's model is asked; returns the requests of that turn."""
    before = len(server.requests[MEMORY])
    for _ in range(MOST_TURNS):
        number = sum(message.type == "human" for message in _state(chat))
        answer = await chat.turn(f"Question {number}? {PADDING}")
        assert answer.content == ANSWER
        if len(server.requests[MEMORY]) > before:
            return server.requests[MEMORY][before:]
    pytest.fail("no consolidation was due")


def _state(chat: Chat) -> list[Any]:
    return chat.graph.get_state(config_of()).values.get("messages", [])


def _history(chat: Chat) -> str:
    path = chat.memory.memory.history_path
    return path.read_text("utf-8") if path.exists() else ""


# --- how it is asked ---------------------------------------------------------


async def test_forced_call(chat: Chat, server: OpenAIServer) -> None:
    """The request forces `save_memory` and carries its schema; the call's texts are memory."""
    server.script(MEMORY, save_memory("They spoke of rivers.", "- likes rivers"))
    [body] = await talk_until_asked(chat, server)
    assert body["tool_choice"] == {"type": "function", "function": {"name": "save_memory"}}
    [schema] = body["tools"]
    assert schema["function"]["name"] == "save_memory"
    assert schema["function"]["parameters"]["required"] == ["history_entry", "memory_update"]
    assert f"Question 0? {PADDING.strip()}" in body["messages"][-1]["content"]
    assert "They spoke of rivers." in _history(chat)
    assert chat.memory.memory.read_long_term().strip() == "- likes rivers"
    assert 0 < chat.pointer() < len(chat.state())


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_forcing_refused(chat: Chat, server: OpenAIServer, status: int) -> None:
    """cases/consolidation.md 14: where the provider refuses forcing, "auto" is tried once."""
    server.script(MEMORY, refused(status, "tool_choice is not supported"), save_memory())
    forced, free = await talk_until_asked(chat, server)
    assert "tool_choice" in forced
    assert free.get("tool_choice", "auto") == "auto"
    assert free["tools"] == forced["tools"]
    assert free["messages"] == forced["messages"]
    assert chat.pointer() > 0


async def test_tools_refused(chat: Chat, server: OpenAIServer) -> None:
    """Where the provider refuses tools altogether, JSON is asked for, without any."""
    no_tools = refused(400, "this model takes no tools")
    plain = json.dumps({"history_entry": "As JSON.", "memory_update": "- as JSON"})
    server.script(MEMORY, no_tools, no_tools, plain)
    *_, last = await talk_until_asked(chat, server)
    assert "tools" not in last
    assert "history_entry" in last["messages"][-1]["content"]
    assert "As JSON." in _history(chat)


@pytest.mark.parametrize("frame", ["{}", "Sure! Here it is:\n```json\n{}\n```\nAnything else?"])
async def test_json_in_text(chat: Chat, server: OpenAIServer, frame: str) -> None:
    """A model that ignores the tool and writes its JSON as text is understood at once."""
    written = json.dumps({"history_entry": "As text.", "memory_update": "- as text"})
    server.script(MEMORY, frame.replace("{}", written))
    assert len(await talk_until_asked(chat, server)) == 1
    assert "As text." in _history(chat)
    assert chat.memory.memory.read_long_term().strip() == "- as text"


async def test_two_calls_at_once(chat: Chat, server: OpenAIServer) -> None:
    """Of several calls in one answer the first of `save_memory` counts."""
    other = ("call_0", "search", "{}")
    first, second = (save_memory(f"{name} entry").calls[0][1:] for name in ("First", "Second"))
    server.script(MEMORY, Reply(calls=(other, ("call_1", *first), ("call_2", *second))))
    await talk_until_asked(chat, server)
    assert "First entry" in _history(chat)
    assert "Second entry" not in _history(chat)


# --- how it fails ------------------------------------------------------------

CUT_CALL = (("call_save", "save_memory", '{"history_entry": "They spo'),)
FAILURES: dict[str, tuple[Scripted, int]] = {
    "plain text": ("I am happy to help you with your memory!", 3),
    "blank entry": (save_memory("  "), 1),
    "cut off": (Reply(calls=CUT_CALL, finish_reason="length"), 1),
    "cut off, but whole JSON": (Reply(save_memory().calls[0][2], finish_reason="length"), 1),
    "filtered": (Reply("I", finish_reason="content_filter"), 1),
    "server error": (refused(500, "overloaded"), 1),
    "rate limit": (refused(429, "slow down"), 1),
    "wrong key": (refused(401, f"Incorrect API key provided: {KEY}"), 1),
    "HTML page, 200": (Response(HTML, 200, content_type="text/html"), 3),
    "HTML page, 502": (Response(HTML, 502, content_type="text/html"), 1),
    "HTML as answer": (HTML, 1),
    "context refused": (refused(400, "too long", "context_length_exceeded"), 3),
}


@pytest.mark.parametrize("kind", FAILURES)
async def test_failures(chat: Chat, server: OpenAIServer, kind: str) -> None:
    """cases/consolidation.md 14, 16, 17, 18: two failures move nothing, the third keeps all raw."""
    reply, requests = FAILURES[kind]
    server.script(MEMORY, reply)
    for _ in range(2):
        assert len(await talk_until_asked(chat, server)) == requests
        assert chat.pointer() == 0
        assert not _history(chat)
    await talk_until_asked(chat, server)
    _assert_raw(chat)
    server.script(MEMORY, save_memory("A good entry."))
    await talk_until_asked(chat, server)
    assert "A good entry." in _history(chat)
    _assert_sound(chat, server)


async def test_timeout(open_chat: Callable[..., Chat], server: OpenAIServer) -> None:
    """A model that does not answer in time is a failure like any other."""
    chat = open_chat(timeout=0.3)
    server.script(MEMORY, server.hold)
    for _ in range(2):
        assert len(await talk_until_asked(chat, server)) == 1
        assert chat.pointer() == 0
    await talk_until_asked(chat, server)
    _assert_raw(chat)
    _assert_sound(chat, server)


def _assert_raw(chat: Chat) -> None:
    """All that left the window is in HISTORY.md, whole; the memory is as it was: missing."""
    pointer, history = chat.pointer(), _history(chat)
    assert pointer > 0
    assert history.count("[RAW]") == 1
    for message in chat.state()[:pointer]:
        assert message.content.strip() in history
    assert not chat.memory.memory.memory_path.exists()


def _assert_sound(chat: Chat, server: OpenAIServer) -> None:
    """No turn was lost, no prompt too long, no key or error text written anywhere."""
    state = chat.state()
    numbers = [m.content.split("?")[0] for m in state if m.type == "human"]
    assert numbers == [f"Question {n}" for n in range(len(numbers))]
    assert [m.content for m in state if m.type == "ai"] == [ANSWER] * len(numbers)
    bodies = server.requests[AGENT]
    assert max(map(chat.tokens, bodies)) <= BUDGET_TOKENS
    assert all(f"Question {n}?" in body["messages"][-1]["content"] for n, body in enumerate(bodies))
    assert any("left out" in body["messages"][0]["content"] for body in bodies)
    assert "Error code" not in _history(chat)
    _assert_no_key(Path(chat.memory.memory.workspace), server)


def _assert_no_key(workspace: Path, server: OpenAIServer) -> None:
    assert server.keys == {f"Bearer {KEY}"}
    files = [path for path in workspace.rglob("*") if path.is_file()]
    assert len(files) > 1
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []


async def test_refused_turn(chat: Chat, server: OpenAIServer) -> None:
    """The agent's own refused request is its caller's to see; the thread goes on after it."""
    server.script(AGENT, refused(400, "too long", "context_length_exceeded"), ANSWER)
    with pytest.raises(BadRequestError, match="too long"):
        await chat.turn("first")
    assert (await chat.turn("second")).content == ANSWER
    asked = server.requests[AGENT][-1]["messages"]
    assert [m["content"] for m in asked if m["role"] == "user"] == ["first", "second"]
    assert [m.content for m in chat.state()] == ["first", "second", ANSWER]


# --- streams -----------------------------------------------------------------


async def _streamed(chat: Chat, text: str) -> AsyncIterator[tuple[AIMessageChunk, dict[str, Any]]]:
    given: Any = {"messages": [("user", text)]}
    if chat.colour == "async":
        async for part in chat.graph.astream(given, config_of(), stream_mode="messages"):
            yield part
    else:
        for part in chat.graph.stream(given, config_of(), stream_mode="messages"):
            yield part


async def test_stream(chat: Chat, server: OpenAIServer) -> None:
    """A graph's stream has the answer's tokens as they come, and none of the consolidation's."""
    server.script(MEMORY, Reply("I save this.", calls=save_memory().calls))
    await talk_until_asked(chat, server)
    asked = len(server.requests[MEMORY])
    for number in range(MOST_TURNS):
        seen, waits = threading.Event(), list[bool]()
        pace = _wait_behind_the_third(seen, waits)
        server.script(AGENT, Reply(f"Answer {number}. {PADDING}", pace=pace))
        tokens = []
        async for chunk, metadata in _streamed(chat, f"Streamed {number}. {PADDING}"):
            assert metadata["langgraph_node"] == "memory"
            assert not chunk.tool_call_chunks
            tokens += [chunk.content] if chunk.content else []
            if tokens:
                seen.set()
        assert tokens == [piece for piece in pieces(f"Answer {number}. {PADDING}") if piece]
        assert waits
        assert all(waits)
        if len(server.requests[MEMORY]) > asked:
            return
    pytest.fail("no consolidation was due")


def _wait_behind_the_third(seen: threading.Event, waits: list[bool]) -> Callable[[int], object]:
    """Holds the rest of an answer back until its beginning was seen; notes whether it was."""
    return lambda sent: sent > 2 and waits.append(seen.wait(10))


@pytest.mark.parametrize("streaming", [False, True])
async def test_usage(
    open_chat: Callable[..., Chat], server: OpenAIServer, tmp_path: Path, *, streaming: bool
) -> None:
    """The provider's usage is in the session's file, and comes back from it."""
    chat = open_chat({"streaming": streaming, "stream_usage": True})
    answer = await chat.turn("How much was it?")
    assert isinstance(answer, AIMessage)
    usage = answer.usage_metadata
    assert usage is not None
    assert usage["input_tokens"] == USAGE["prompt_tokens"]
    assert bool(server.requests[AGENT][0].get("stream")) is streaming
    [line] = [line for line in session_lines(tmp_path) if line["role"] == "assistant"]
    assert line["usage_metadata"] == usage
    fresh = Nanomem(tmp_path, model="extractive")
    [_, read] = fresh.history(THREAD).messages
    assert read == answer
    assert SessionManager(tmp_path).get_or_create(THREAD).messages[1]["content"] == ANSWER


# --- tools -------------------------------------------------------------------


async def test_parallel_tools(open_chat: Callable[..., Chat], server: OpenAIServer) -> None:
    """cases/consolidation.md 7: parallel calls and their results are never parted.

    The server refuses every request in which one stands without the other.
    """
    chat = open_chat()
    agent = chat_model(server.url, AGENT).bind_tools([look_up])
    graph = StateGraph(MemoryState)
    graph.add_node("memory", chat.memory.node(agent))
    graph.add_node("tools", ToolNode([look_up]))
    graph.add_edge(START, "memory")
    graph.add_conditional_edges("memory", tools_condition)
    graph.add_edge("tools", "memory")
    chat.graph = graph.compile(checkpointer=chat.memory.checkpointer)
    server.script(AGENT, _looks_up)
    for number in range(6):
        assert (await chat.turn(f"Compare {number}.")).content == "Compared."
    state = chat.state()
    assert [m.content for m in state if isinstance(m, HumanMessage)] == [
        f"Compare {number}." for number in range(6)
    ]
    assert sum(isinstance(m, ToolMessage) for m in state) == 12
    assert chat.pointer() > 0
    assert max(map(chat.tokens, server.requests[AGENT])) <= BUDGET_TOKENS
    assert all("look_up" in str(body["tools"]) for body in server.requests[AGENT])


def _looks_up(body: dict[str, Any]) -> Scripted:
    """Two calls for each question, then an answer."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return "Compared."
    number = last["content"].split()[1]
    places = [("a", '{"place": "Oslo"}'), ("b", '{"place": "Rome"}')]
    return Reply(calls=tuple((f"call_{number}{end}", "look_up", args) for end, args in places))


async def test_smaller_window(
    open_chat: Callable[..., Chat], server: OpenAIServer, tmp_path: Path
) -> None:
    """A thread that outgrew a model with a smaller window goes in parts; no request is too long.

    Nor are those with which it is asked, their tool's schema counted.
    """
    large = Nanomem(tmp_path, model="extractive", context_window_tokens=100_000)
    graph = build_graph(large, chat_model(server.url, AGENT))
    server.script(AGENT, "Yes.")
    for number in range(60):
        graph.invoke({"messages": [("user", f"Question {number}? {PADDING[:200]}")]}, config_of())
    chat = open_chat()
    await chat.turn("And now?")
    requests = server.requests[MEMORY]
    assert len(requests) > 1
    assert max(map(chat.tokens, [*requests, server.requests[AGENT][-1]])) <= BUDGET_TOKENS
    shown = "".join(body["messages"][-1]["content"] for body in requests)
    gone = [m.content for m in chat.state()[: chat.pointer()] if m.type == "human"]
    assert [text.split("?")[0] for text in gone if text.strip() not in shown] == []
