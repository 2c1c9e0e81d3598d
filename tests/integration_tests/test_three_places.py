"""A graph, an agent and a chain with the real ChatOpenAI: streams, consolidations, a restart."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

import pytest
from commands import python
from langchain_core.messages import convert_to_messages
from memory_graph import AGENT, MEMORY, PADDING, SYSTEM, look_up, place_of, session_lines
from openai_server import OpenAIServer, Reply, pieces, save_memory
from places import PLACES, InChain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from places import Place

pytestmark = pytest.mark.usefixtures("plain_environment")
BUDGET_TOKENS = 2_000
FACT, ENTRY = "okapi-in-memory", "giraffe-in-the-log"
SECRETS = (FACT, ENTRY, "long_term_memory")
MODES = ["messages", "updates", "values"]
TALK = """
import asyncio, sys
from langgraph.types import Command
from memory_graph import look_up, place_of

url, workspace, name, colour, *texts = sys.argv[1:]

async def talk():
    place = place_of(url, workspace, name, colour, tools=[look_up] if name == "agent" else [])
    for text in texts:
        if text == "resume":
            decisions = {"decisions": [{"type": "approve"}]}
            await place.call("invoke", Command(resume=decisions), place.run)
        else:
            await place.turn(text)
    place.memory.close()

asyncio.run(talk())
"""


@pytest.fixture
def asked() -> list[tuple[dict[str, Any], int]]:
    """Each request to the agent's model, and how often the memory's had been asked by then."""
    return []


@pytest.fixture
def server(asked: list[Any]) -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:

        def answers(body: dict[str, Any]) -> Reply:
            asked.append((body, len(server.requests[MEMORY])))
            return _answers(body)

        numbers = itertools.count()
        server.script(AGENT, answers)
        server.script(
            MEMORY, lambda _: save_memory(f"{ENTRY} {next(numbers)}", f"- {FACT} {next(numbers)}")
        )
        yield server
        assert server.illegal == []


def _answers(body: dict[str, Any]) -> Reply:
    last = body["messages"][-1]
    if last["role"] == "tool":
        return Reply("Found it.")
    if last["content"].startswith("Look up"):
        return Reply(calls=((f"call {last['content']}", "look_up", '{"place": "Oslo"}'),))
    return Reply(_answer_to(last["content"]))


def _question(number: int) -> str:
    return f"Question {number}? {PADDING}{PADDING}"


def _answer_to(question: str) -> str:
    number = question.removeprefix("Question ").split("?")[0]
    return f"Answer {number} in a few words, for each of them is a chunk of the stream."


def _secrets_in(value: Any) -> list[str]:
    return [secret for secret in SECRETS if secret in f"{value!r}"]


async def _streamed(place: Place, text: str) -> list[str]:
    """The pieces of an answer; no part of the stream has a word of the memory."""
    if isinstance(place, InChain):
        found = await place.stream(text)
        assert _secrets_in(found) == []
        return found
    given = {"messages": [("user", text)]}
    parts = await place.call("stream", given, place.run, stream_mode=MODES)
    assert {mode for mode, _ in parts} == set(MODES)
    assert [part for part in parts if _secrets_in(part)] == []
    told = [part[0] for mode, part in parts if mode == "messages"]
    return [message.text for message in told if message.type == "AIMessageChunk" and message.text]


@pytest.mark.parametrize("name", PLACES)
async def test_a_conversation_over_a_restart(
    server: OpenAIServer, asked: list[Any], tmp_path: Path, name: str, colour: str
) -> None:
    """cases/consolidation.md 8, 12, 31, 33: streamed, then in another process, then streamed again.

    Each request has its question verbatim, is within the budget, and repeats its system prompt
    byte for byte between consolidations; all is in the session once and in order.
    """
    place = place_of(server.url, tmp_path, name, colour)
    for number in range(8):
        text = _question(number)
        assert await _streamed(place, text) == [p for p in pieces(_answer_to(text)) if p]
    place.memory.close()
    python(TALK, server.url, tmp_path, name, colour, *map(_question, range(8, 13)))
    again = place_of(server.url, tmp_path, name, colour)
    for number in range(13, 16):
        assert "".join(await _streamed(again, _question(number))) == _answer_to(_question(number))
    assert [body["messages"][-1]["content"] for body, _ in asked] == [*map(_question, range(16))]
    assert [bool(body.get("stream")) for body, _ in asked] == [
        number not in range(8, 13) for number in range(16)
    ]
    _assert_prompts(again, asked)
    lines = [line["content"] for line in session_lines(tmp_path)]
    assert lines == [said for n in range(16) for said in (_question(n), _answer_to(_question(n)))]
    _assert_each_range_once(again, server)
    _assert_nothing_kept(again)


def _assert_prompts(place: Place, asked: list[tuple[dict[str, Any], int]]) -> None:
    """Each request is within the budget; its system prompt changes with a consolidation alone."""
    consolidator, systems = place.memory.consolidator, dict[int, set[str]]()
    for body, consolidations in asked:
        tools = consolidator.count_tools(body.get("tools") or ())
        assert consolidator.counter(convert_to_messages(body["messages"])) + tools <= BUDGET_TOKENS
        system, *others = body["messages"]
        assert "system" not in {message["role"] for message in others}
        systems.setdefault(consolidations, set()).add(system["content"])
    assert all(len(texts) == 1 for texts in systems.values())
    assert systems.pop(0) == {SYSTEM}
    assert len(systems) > 1
    for (text,) in systems.values():
        assert re.fullmatch(
            rf"{SYSTEM}\n\n<long_term_memory>.*{FACT} \d+\n</long_term_memory>", text, re.DOTALL
        )
    assert text == f"{SYSTEM}\n\n{place.memory.memory.get_memory_context()}"


def _assert_each_range_once(place: Place, server: OpenAIServer) -> None:
    ends = [0, *(end for _, end in place.ranges())]
    assert ends == [*(start for start, _ in place.ranges()), place.pointer]
    entries = [entry.text for entry in place.memory.memory.history_entries()]
    assert len(entries) == len(set(entries)) == len(place.ranges()) == len(server.requests[MEMORY])


def _assert_nothing_kept(place: Place) -> None:
    """No message, checkpoint or pending write has a word of the memory."""
    assert _secrets_in(place.said()) == []
    kept = list(place.memory.checkpointer.list(None))
    assert bool(kept) != isinstance(place, InChain)
    assert [found for found in kept if _secrets_in(found)] == []


async def test_a_person_is_asked_and_answers_after_a_restart(
    server: OpenAIServer, asked: list[Any], tmp_path: Path, colour: str
) -> None:
    """An agent stops before a tool; another process goes on with it: nothing is lost or doubled."""
    place = place_of(server.url, tmp_path, "agent", colour, tools=[look_up])
    for number in range(7):
        await _streamed(place, _question(number))
    assert server.requests[MEMORY]
    given = place.call("stream", {"messages": [("user", "Look up Oslo.")]}, place.run)
    assert "__interrupt__" in str(await given)
    _assert_nothing_kept(place)
    place.memory.close()
    texts = ["resume", *map(_question, range(7, 12))]
    python(TALK, server.url, tmp_path, "agent", colour, *texts)
    again = place_of(server.url, tmp_path, "agent", colour, tools=[look_up])
    resumed = asked[8][0]["messages"]
    assert [message["role"] for message in resumed[-3:]] == ["user", "assistant", "tool"]
    assert resumed[-3]["content"] == "Look up Oslo."
    assert resumed[-1]["content"] == f"Oslo: {PADDING}"
    _assert_prompts(again, asked)
    expected = [s for n in range(7) for s in (_question(n), _answer_to(_question(n)))]
    expected += ["Look up Oslo.", "", f"Oslo: {PADDING}", "Found it."]
    expected += [s for n in range(7, 12) for s in (_question(n), _answer_to(_question(n)))]
    assert [line["content"] or "" for line in session_lines(tmp_path)] == expected
    assert [message.content for message in again.said()] == expected
    _assert_each_range_once(again, server)
    _assert_nothing_kept(again)
    assert again.runnable.get_state(again.run).next == ()
