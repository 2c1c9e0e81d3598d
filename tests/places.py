"""Where users meet the memory, behind one interface: a graph, an agent, a chain."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import checkpoint_graph
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, BaseMessageChunk, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langchain_nanomem import MemoryState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.runnables import Runnable
    from langchain_core.tools import BaseTool

    from langchain_nanomem import Nanomem

KEY = "t"
MODES = ["values", "updates", "messages", "custom", "checkpoints", "tasks", "debug"]


class Place(ABC):
    """A conversation at one of them, in one colour.

    Args:
        memory: The memory.
        model: Answers; the tools are bound here.
        colour: "sync" or "async".
        tools: The tools of the agent.
        options: More for what is built: ``trim_state``, the ``checkpointer``, the ``middleware``
            of an agent.
    """

    def __init__(
        self,
        memory: Nanomem,
        model: Any,
        colour: str,
        *,
        tools: Sequence[BaseTool] = (),
        **options: Any,
    ) -> None:
        self.memory, self.colour, self.tools = memory, colour, list(tools)
        self.model, self.options = model, options
        self.run: dict[str, Any] = {"configurable": {"thread_id": KEY}, "recursion_limit": 200}
        self.runnable = self.build()

    @abstractmethod
    def build(self) -> Any:
        """What is called."""

    @abstractmethod
    async def turn(self, *said: Any) -> BaseMessage:
        """One turn with all its tools; the answer."""

    @abstractmethod
    async def stream(self, *said: Any) -> list[str]:
        """One turn with all its tools, streamed: the pieces of what the model said in it."""

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        """What a method of it gives in this place's colour."""
        return await checkpoint_graph.call(self.colour, self.runnable, method, *args, **options)

    @property
    def bound(self) -> Runnable[Any, Any]:
        """The model with the tools, if there are any."""
        bound: Runnable[Any, Any] = self.model.bind_tools(self.tools) if self.tools else self.model
        return bound

    def said(self, key: str = KEY) -> list[BaseMessage]:
        """The messages of the session."""
        return self.memory.history(key).messages

    @property
    def pointer(self) -> int:
        """How many leading messages of the session are in memory."""
        return self.memory.sessions.get_or_create(KEY).last_consolidated

    def ranges(self) -> list[tuple[int, int]]:
        """The ranges that went into memory, by the places of their messages in the session."""
        with self.memory.sessions.reading(KEY) as records:
            return [(record["start"], record["end"]) for record in records.consolidations]


class _InGraph(Place):
    def given(self, said: Sequence[Any]) -> dict[str, Any]:
        return {"messages": [HumanMessage(one) if isinstance(one, str) else one for one in said]}

    async def turn(self, *said: Any) -> BaseMessage:
        state = await self.call("invoke", self.given(said), self.run)
        answer: BaseMessage = state["messages"][-1]
        return answer

    async def stream(self, *said: Any) -> list[str]:
        parts = await self.call("stream", self.given(said), self.run, stream_mode="messages")
        return [m.text for m, _ in parts if isinstance(m, (AIMessage, BaseMessageChunk)) and m.text]

    @property
    def is_trimmed(self) -> bool:
        return bool(self.options.get("trim_state"))

    @property
    def saver(self) -> Any:
        return self.options.get("checkpointer", self.memory.checkpointer)


class InGraph(_InGraph):
    """A `StateGraph` whose model node is the memory node."""

    def build(self) -> Any:
        graph = StateGraph(MemoryState)
        graph.add_node("model", self.memory.node(self.bound, trim_state=self.is_trimmed))
        graph.add_edge(START, "model")
        if self.tools:
            graph.add_node("tools", ToolNode(self.tools))
            graph.add_conditional_edges("model", tools_condition)
            graph.add_edge("tools", "model")
        return graph.compile(checkpointer=self.saver)


class InAgent(_InGraph):
    """An agent of `create_agent`, with other middlewares in front of ours."""

    def build(self) -> Any:
        others = self.options.get("middleware", [])
        ours = self.memory.middleware(trim_state=self.is_trimmed)
        return create_agent(
            self.model,
            self.tools,
            system_prompt=self.memory.prompt.system_prompt,
            middleware=[*others, ours],
            checkpointer=self.saver,
        )


class InChain(Place):
    """`Nanomem.wrap` around a model; the tools are run by hand."""

    def build(self) -> Any:
        return self.memory.wrap(self.bound)

    async def turn(self, *said: Any) -> BaseMessage:
        answer: BaseMessage = await self.call("invoke", list(said), self.run)
        while calls := getattr(answer, "tool_calls", ()):
            answer = await self.call("invoke", self._results(calls), self.run)
        return answer

    async def stream(self, *said: Any) -> list[str]:
        pieces, given = [], list(said)
        while given:
            parts = await self.call("stream", given, self.run)
            pieces += [part.text for part in parts if part.text]
            given = self._results(self.said()[-1].tool_calls)  # type: ignore[attr-defined]  # an answer
        return pieces

    def _results(self, calls: Sequence[Any]) -> list[BaseMessage]:
        named = {tool.name: tool for tool in self.tools}
        return [named[call["name"]].invoke({**call, "type": "tool_call"}) for call in calls]


PLACES: dict[str, type[Place]] = {"graph": InGraph, "agent": InAgent, "chain": InChain}


def at_once(place: Place, texts: Sequence[Sequence[str]]) -> list[BaseException]:
    """Several threads, each with its turns one after the other; what they failed with."""

    async def talk(mine: Sequence[str]) -> None:
        for text in mine:
            await place.turn(text)

    async def all_of_them() -> list[Any]:
        threads = [asyncio.to_thread(asyncio.run, talk(mine)) for mine in texts]
        return await asyncio.gather(*threads, return_exceptions=True)

    return [error for error in asyncio.run(all_of_them()) if error is not None]
