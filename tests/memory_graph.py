"""A graph with memory whose models speak OpenAI's protocol, and what tests want to know of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import BaseMessage, convert_to_messages
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, StateGraph
from places import PLACES

from langchain_nanomem import MemoryState, Nanomem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from langchain_core.tools import BaseTool
    from langgraph.graph.state import CompiledStateGraph
    from places import Place

KEY = "sk-loopback-0b6f5d2c9a"
SYSTEM = "You are a friendly assistant."
AGENT, MEMORY = "agent", "memory"
"""The names under which the server knows the two models."""
THREAD = "cli:user"


PADDING = "river stone " * 70
"""What makes a message long."""


@tool
def look_up(place: str) -> str:
    """What is known of a place."""
    return f"{place}: {PADDING}"


def chat_model(url: str, name: str, **options: Any) -> ChatOpenAI:
    """A model of the server. It fails at once where it fails: the client does not try again."""
    return ChatOpenAI(
        **{"model": name, "base_url": url, "api_key": KEY, "max_retries": 0} | options
    )


def build_graph(memory: Nanomem, agent: Any) -> CompiledStateGraph[Any]:
    """The smallest graph: one memory node that is the model node as well."""
    graph = StateGraph(MemoryState)
    graph.add_node("memory", memory.node(agent))
    graph.add_edge(START, "memory")
    return graph.compile(checkpointer=memory.checkpointer)


def place_of(
    url: str, workspace: str | Path, name: str, colour: str, *, tools: Sequence[BaseTool] = ()
) -> Place:
    """A conversation in one of the three places, as a process has it that starts now.

    An agent asks a person before it calls a tool.
    """
    memory = Nanomem(
        workspace,
        model=chat_model(url, MEMORY),
        context_window_tokens=2_400,
        max_completion_tokens=400,
        safety_margin_tokens=0,
        system_prompt=SYSTEM,
    )
    asking = {tool.name: True for tool in tools}
    options = {"middleware": [HumanInTheLoopMiddleware(interrupt_on=asking)]} if asking else {}
    return PLACES[name](memory, chat_model(url, AGENT), colour, tools=tools, **options)


def config_of(thread: str = THREAD) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread}}


@dataclass
class Chat:
    """A conversation, in the colour that a test is run in."""

    memory: Nanomem
    graph: CompiledStateGraph[Any]
    colour: Literal["sync", "async"]

    async def turn(self, text: str, thread: str = THREAD) -> BaseMessage:
        """One turn; returns the last message of it."""
        given = {"messages": [("user", text)]}
        if self.colour == "async":
            state = await self.graph.ainvoke(given, config_of(thread))
        else:
            state = self.graph.invoke(given, config_of(thread))
        return state["messages"][-1]

    def state(self, thread: str = THREAD) -> list[BaseMessage]:
        """The messages in the newest checkpoint."""
        return self.graph.get_state(config_of(thread)).values["messages"]

    def pointer(self, thread: str = THREAD) -> int:
        """How many messages are in memory; state and session say the same."""
        in_session = self.memory.sessions.get_or_create(thread).last_consolidated
        pointer_id = self.graph.get_state(config_of(thread)).values.get("last_consolidated_id")
        ids = [message.id for message in self.state(thread)]
        assert in_session == (ids.index(pointer_id) + 1 if pointer_id else 0)
        return in_session

    def tokens(self, body: dict[str, Any]) -> int:
        """The tokens of a request."""
        counter = self.memory.consolidator.counter
        tools = self.memory.consolidator.count_tools(body.get("tools") or ())
        return counter(convert_to_messages(body["messages"])) + tools


def session_lines(workspace: Path) -> list[dict[str, Any]]:
    """The messages of all session files, as a person would read them."""
    paths = (workspace / "sessions").glob("*.jsonl")
    return [line for path in paths for line in message_lines(path) if "_type" not in line]


def message_lines(path: Path) -> list[dict[str, Any]]:
    """The message lines of a session's file, each in its turn and with its id."""
    return messages_in(map(json.loads, path.read_bytes().splitlines()))


def messages_in(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages of a session's records, each in its turn and with its id."""
    found: dict[int, dict[str, Any]] = {}
    for line in lines:
        if "of" in line:
            found[line["_n"]] = found.pop(line["of"]) | {"id": line["id"]}
        elif line.get("_type", "message") == "message":
            found[line.get("_n", -len(found) - 1)] = line
    return list(found.values())
