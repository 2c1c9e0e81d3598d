"""One agent over many turns, a restart and a new thread: what it was told it still knows."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from commands import python
from langchain_core.messages import convert_to_messages
from memory_graph import AGENT, KEY, MEMORY, SYSTEM, THREAD, session_lines
from openai_server import OpenAIServer, save_memory

from langchain_nanomem import MemoryStore, TokenCounter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TURNS = 34
BUDGET_TOKENS = 900
PADDING = "The river runs past the old mill. " * 8
FACT = re.compile(r"My (\w+) is called (\w+)\.")
NAMES = {
    "cat": "Mitsou",
    "dog": "Bramble",
    "boat": "Halcyon",
    "sister": "Ottilie",
    "horse": "Sorrel",
    "street": "Lindenweg",
}
TALK = """
import asyncio, json, sys
from langchain_nanomem import Nanomem
from memory_graph import AGENT, MEMORY, SYSTEM, build_graph, chat_model, config_of

url, workspace, thread, colour, *texts = sys.argv[1:]
with Nanomem(
    workspace,
    model=chat_model(url, MEMORY),
    context_window_tokens=1_200,
    max_completion_tokens=300,
    safety_margin_tokens=0,
    system_prompt=SYSTEM,
) as memory:
    graph = build_graph(memory, chat_model(url, AGENT))
    for text in texts:
        given = {"messages": [("user", text)]}
        if colour == "sync":
            state = graph.invoke(given, config_of(thread))
        else:
            state = asyncio.run(graph.ainvoke(given, config_of(thread)))
    print(json.dumps([message.content for message in state["messages"]]))
"""


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        server.script(AGENT, _answers)
        server.script(MEMORY, _keeps_facts)
        yield server
        assert server.illegal == []


def _answers(body: dict[str, Any]) -> str:
    """An agent that knows what stands in its prompt, and nothing else."""
    question = re.match(r"What is my (\w+) called\?", body["messages"][-1]["content"])
    if question is None:
        return f"I see. {PADDING}"
    known = dict(FACT.findall(json.dumps(body["messages"])))
    return f"It is called {known.get(question[1], '... I do not know')}."


def _keeps_facts(body: dict[str, Any]) -> Any:
    """A memory that keeps each sentence of the form "My ... is called ..."."""
    found = {match[0]: None for match in FACT.finditer(body["messages"][-1]["content"])}
    return save_memory(
        f"They spoke of rivers. {' '.join(found)}", "\n".join(f"- {f}" for f in found)
    )


def _talk(
    server: OpenAIServer, workspace: Path, thread: str, colour: str, *texts: str
) -> list[str]:
    """Turns in a process of their own; returns what the state then has."""
    done = python(TALK, server.url, workspace, thread, colour, *texts)
    contents: list[str] = json.loads(done)
    return contents


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_restart(server: OpenAIServer, tmp_path: Path, colour: str) -> None:
    """A new process and a new thread know what was said long ago; the first thread is whole."""
    told = [f"My {thing} is called {name}. {PADDING}" for thing, name in NAMES.items()]
    said = [*told, *(f"Chat {number}. {PADDING}" for number in range(TURNS - len(told)))]
    contents = _talk(server, tmp_path, THREAD, colour, *said)
    assert contents == [text for pair in said for text in (pair, f"I see. {PADDING}")]
    assert [line["content"] for line in session_lines(tmp_path)] == contents

    before = len(server.requests[AGENT])
    questions = [f"What is my {thing} called?" for thing in NAMES]
    answers = _talk(server, tmp_path, "cli:another", colour, *questions)
    assert answers[1::2] == [f"It is called {name}." for name in NAMES.values()]
    memory = MemoryStore(tmp_path)
    for body in server.requests[AGENT][before:]:
        _assert_ends_with_memory(body, memory)
    _assert_old_thread_goes_on(server, tmp_path, colour, contents)
    _assert_bounds(server, tmp_path)


def _assert_ends_with_memory(body: dict[str, Any], memory: MemoryStore) -> None:
    """The system message is the prompt, then the fenced memory, and nothing after it."""
    system, *others = body["messages"]
    assert system["role"] == "system"
    assert system["content"].startswith(f"{SYSTEM}\n\n<")
    assert system["content"].endswith(memory.get_memory_context())
    assert re.search(rf"\n{re.escape(memory.read_long_term())}\n</\w+>$", system["content"])
    assert {message["role"] for message in others} <= {"user", "assistant"}
    assert "river" not in json.dumps(others)


def _assert_old_thread_goes_on(
    server: OpenAIServer, workspace: Path, colour: str, contents: list[str]
) -> None:
    """The pointer outlives the process: the next turn consolidates nothing again."""
    asked = len(server.requests[MEMORY])
    now = _talk(server, workspace, THREAD, colour, "What is my boat called?")
    assert now == [*contents, "What is my boat called?", "It is called Halcyon."]
    assert len(server.requests[MEMORY]) == asked
    assert len(server.requests[AGENT][-1]["messages"]) < len(contents) // 3


def _assert_bounds(server: OpenAIServer, workspace: Path) -> None:
    """No prompt was over the budget, and the key is in no file."""
    count = TokenCounter()
    sizes = [count(convert_to_messages(body["messages"])) for body in server.requests[AGENT]]
    assert len(sizes) > TURNS
    assert max(sizes) <= BUDGET_TOKENS
    assert server.requests[MEMORY]
    assert server.keys == {f"Bearer {KEY}"}
    files = [path for path in workspace.rglob("*") if path.is_file()]
    assert {"MEMORY.md", "HISTORY.md"} <= {path.name for path in files}
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
