"""The command as a person runs it, and a small graph whose threads it is given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

import langchain_nanomem

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph

COMMAND = [sys.executable, "-c", "from langchain_nanomem.cli import main; main()"]


def nanomem(*arguments: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    """What `nanomem` prints with these arguments, in 80 columns, and how it ends."""
    settings = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", **environment}
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=settings,
        timeout=240,
        check=False,
    )


def imported(source: Any, *arguments: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    """What `nanomem import-checkpoints` does with this source, in one line a thread."""
    return nanomem("import-checkpoints", source, *arguments, **{"COLUMNS": "200", **environment})


def python(code: str, *arguments: Any) -> str:
    """What a Python process prints that runs this code, with the tests' modules at hand.

    No proxy gets between it and a server on this machine.
    """
    root = Path(langchain_nanomem.__file__).parent.parent
    proxies = {"http_proxy", "https_proxy", "all_proxy", "openai_proxy", "openai_api_base"}
    env = {name: value for name, value in os.environ.items() if name.lower() not in proxies}
    paths = os.pathsep.join(map(str, (root, root / "tests")))
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=env | {"PYTHONPATH": paths, "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def greeter(saver: BaseCheckpointSaver[Any]) -> CompiledStateGraph[Any]:
    """A graph that greets, and asks before it says good-bye."""

    def reply(state: dict[str, Any]) -> dict[str, Any]:
        if state["messages"][-1].content == "bye":
            return {"messages": [("ai", interrupt("Leave?"))]}
        return {"messages": [("ai", "hello")]}

    builder = StateGraph(MessagesState).add_node("reply", reply).add_edge(START, "reply")
    return builder.compile(checkpointer=saver)
