"""The command as a person runs it, and a small graph whose threads it is given."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import warm
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

if TYPE_CHECKING:
    import subprocess

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph

COMMAND = "from langchain_nanomem.cli import main; main()"


def nanomem(*arguments: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    """What `nanomem` prints with these arguments, in 80 columns, and how it ends."""
    settings = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", **environment}
    return warm.run(COMMAND, *arguments, env=settings)


def imported(source: Any, *arguments: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    """What `nanomem import` does with this source, in one line a thread."""
    return nanomem("import", source, *arguments, **{"COLUMNS": "200", **environment})


def python(code: str, *arguments: Any) -> str:
    """What a Python process prints that runs this code, with the tests' modules at hand.

    No proxy gets between it and a server on this machine.
    """
    proxies = {"http_proxy", "https_proxy", "all_proxy", "openai_proxy", "openai_api_base"}
    env = {name: value for name, value in os.environ.items() if name.lower() not in proxies}
    done = warm.run(code, *arguments, env=env | {"NO_PROXY": "127.0.0.1"}, timeout=120)
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
