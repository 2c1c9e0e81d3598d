"""The command as a person runs it, and a small graph whose threads it is given."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

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


def greeter(saver: BaseCheckpointSaver[Any]) -> CompiledStateGraph[Any]:
    """A graph that greets, and asks before it says good-bye."""

    def reply(state: dict[str, Any]) -> dict[str, Any]:
        if state["messages"][-1].content == "bye":
            return {"messages": [("ai", interrupt("Leave?"))]}
        return {"messages": [("ai", "hello")]}

    builder = StateGraph(MessagesState).add_node("reply", reply).add_edge(START, "reply")
    return builder.compile(checkpointer=saver)
