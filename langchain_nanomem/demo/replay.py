"""One day of a conversation, played through a real graph, in a process of its own.

``python -m langchain_nanomem.demo.replay`` prints an event a line, as JSON.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from typing_extensions import override

from langchain_nanomem.demo import DemoConversation, DemoTurn, load_conversation
from langchain_nanomem.demo.locomo import load_locomo
from langchain_nanomem.nanomem import Nanomem
from langchain_nanomem.node import MemoryState
from langchain_nanomem.values import to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_core.runnables import RunnableConfig
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.types import StateSnapshot

    from langchain_nanomem.consolidation import Consolidation

THREAD = "demo"
SYSTEM_PROMPT = "You are a friendly, exact assistant. You remember what the user told you."
REPLAY = "replay"
"""The model that gives the conversation's own answers."""

Event = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """How a conversation is played."""

    workspace: str
    """The directory that keeps everything."""
    window: int
    """The model's window in tokens."""
    model: str = REPLAY
    """The chat model, as ``provider:name``; or `REPLAY`."""
    data: str | None = None
    """A LoCoMo file; None: the demo's own conversation."""
    number: int = 0
    """Which conversation of the file."""

    def conversation(self) -> DemoConversation:
        """What is played."""
        return load_locomo(self.data)[self.number] if self.data else load_conversation()


class ReplayModel(BaseChatModel):
    """Says what is written for it, message by message."""

    script: list[AIMessage] = []  # noqa: RUF012 - pydantic gives each its own
    """What is left to say."""

    @property
    @override
    def _llm_type(self) -> str:
        return REPLAY

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.script.pop(0))])


@dataclass
class Meter(BaseCallbackHandler):
    """Counts what models are sent."""

    count: Callable[[list[BaseMessage]], int]
    prompts: list[int] = field(default_factory=list)
    """The tokens of each prompt of the conversation."""
    for_memory: int = 0
    """The tokens that consolidating models were sent."""

    @override
    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], **kwargs: Any
    ) -> None:
        tokens = sum(map(self.count, messages))
        if "nanomem" in (kwargs.get("tags") or ()):
            self.for_memory += tokens
        else:
            self.prompts.append(tokens)


def open_memory(settings: Settings, **options: Any) -> Nanomem:
    """The workspace, with the model that consolidates."""
    if "model" not in options:
        replayed = settings.model == REPLAY
        options["model"] = "extractive" if replayed else load_model(settings.model)
    return Nanomem(
        settings.workspace,
        context_window_tokens=settings.window,
        system_prompt=SYSTEM_PROMPT,
        **options,
    )


def load_model(name: str) -> BaseChatModel:
    """A chat model by ``provider:name``; only OpenAI's are known here.

    Raises:
        ValueError: The provider is another, or its package is not installed.
    """
    provider, _, model = name.partition(":")
    if provider != "openai" or not model:
        raise ValueError(f"--model must be openai:NAME, not {name!r}")
    try:
        from langchain_openai import ChatOpenAI  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ValueError('install it first: pip install "langchain-nanomem[openai]"') from error
    return ChatOpenAI(model=model)


def build_graph(memory: Nanomem, model: Any, tools: Any) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Model, memory and tools: the graph that a user would write."""
    graph = StateGraph(MemoryState)
    graph.add_node("chat", memory.node(model))
    graph.add_node("tools", tools)
    graph.add_edge(START, "chat")
    graph.add_conditional_edges("chat", tools_condition)
    graph.add_edge("tools", "chat")
    return graph.compile(checkpointer=memory.checkpointer)


def play_day(settings: Settings, day: int, **options: Any) -> Iterator[Event]:
    """Play one day; a day that was interrupted goes on where it stopped.

    Args:
        settings: How it is played.
        day: Which day, from 0.
        options: More of `Nanomem`, such as the model that consolidates.

    Yields:
        ``turn`` after each turn, ``consolidation`` for each, ``day`` at the end.
    """
    conversation = settings.conversation()
    pending: list[Event] = []
    options = {"on_consolidated": lambda done: pending.append(_told(done)), **options}
    memory = open_memory(settings, **options)
    meter = Meter(memory.consolidator.counter)
    config: RunnableConfig = {"configurable": {"thread_id": THREAD}, "callbacks": [meter]}
    model = ReplayModel() if settings.model == REPLAY else load_model(settings.model)
    if isinstance(model, ReplayModel):
        graph = build_graph(memory, model, _ReplayTools(conversation.days[day].turns))
    else:
        graph = build_graph(memory, model.bind_tools(memory.tools()), ToolNode(memory.tools()))
    before = sum(len(earlier.turns) for earlier in conversation.days[:day])
    for place, turn in enumerate(conversation.days[day].turns):
        if _is_done(graph.get_state(config), before + place):
            continue
        sent = len(meter.prompts)
        state = _play_turn(graph, config, turn, before + place, model)
        yield from pending
        pending.clear()
        yield {
            "event": "turn",
            "number": before + place + 1,
            "user": turn.user,
            "prompts": meter.prompts[sent:],
            "everything": _everything(state["messages"], meter.count),
        }
    yield {"event": "day", "for_memory": meter.for_memory}
    memory.close()


def _is_done(state: StateSnapshot, place: int) -> bool:
    """Whether the turn at this place was played to its end, in whatever process.

    A turn in which a process was killed has tasks left, though the messages that these have
    written are in the state's values already. While its very first task is left, not even the
    user's message is.
    """
    asked = len(_users(state))
    if state.tasks and START not in state.next:
        return place < asked - 1
    return place < asked


def _users(state: StateSnapshot) -> list[int]:
    messages = state.values.get("messages", [])
    return [place for place, message in enumerate(messages) if message.type == "human"]


def _play_turn(graph: Any, config: RunnableConfig, turn: DemoTurn, place: int, model: Any) -> Any:
    """One turn; where a process was killed in it, the rest of it."""
    state = graph.get_state(config)
    script = list(_script(turn))
    question = HumanMessage(turn.user, additional_kwargs={"timestamp": turn.at.isoformat()})
    given: Any = {"messages": [question]}
    if state.tasks:
        begun = _users(state)[place:]
        messages = state.values["messages"][begun[0] :] if begun else []
        said = sum(message.type == "ai" for message in messages)
        script, given = script[said:], None
    if isinstance(model, ReplayModel):
        model.script = script
    return graph.invoke(given, config)


def _script(turn: DemoTurn) -> Iterator[AIMessage]:
    """What the assistant says in a turn: its tool calls, round by round, then its answer."""
    told = {"timestamp": turn.at.isoformat()}
    for number, calls in enumerate(turn.rounds):
        yield AIMessage(
            "",
            tool_calls=[
                {"name": call.name, "args": call.args, "id": _call_id(turn, number, place)}
                for place, call in enumerate(calls)
            ],
            additional_kwargs=told,
        )
    yield AIMessage(turn.assistant, additional_kwargs=told)


def _call_id(turn: DemoTurn, number: int, place: int) -> str:
    return f"call_{turn.at:%Y%m%d%H%M}_{number}_{place}"


class _ReplayTools:
    """Gives the results that the tools gave at the time."""

    __name__ = "tools"

    def __init__(self, turns: tuple[DemoTurn, ...]) -> None:
        self._results = {
            _call_id(turn, number, place): call.result
            for turn in turns
            for number, calls in enumerate(turn.rounds)
            for place, call in enumerate(calls)
        }

    def __call__(self, state: MemoryState) -> dict[str, list[ToolMessage]]:
        answer = state["messages"][-1]
        calls = answer.tool_calls if isinstance(answer, AIMessage) else []
        return {
            "messages": [
                ToolMessage(self._results[str(c["id"])], tool_call_id=c["id"], name=c["name"])
                for c in calls
            ]
        }


def _everything(messages: list[BaseMessage], count: Any) -> list[int]:
    """What the prompts of the last turn would have been with the whole conversation in them."""
    start = max(i for i, message in enumerate(messages) if message.type == "human")
    calls = [i for i in range(start, len(messages)) if messages[i].type == "ai"]
    return [count(messages[:place]) for place in calls]


def _told(done: Consolidation) -> Event:
    return {
        "event": "consolidation",
        "kind": done.kind,
        "start": done.start,
        "end": done.end,
        "removed_tokens": done.removed_tokens,
        "history_entry": done.history_entry,
    }


def main(arguments: list[str] | None = None) -> int:
    """Play one day and print its events."""
    parser = argparse.ArgumentParser(prog="python -m langchain_nanomem.demo.replay")
    parser.add_argument("--workspace", required=True)
    parser.add_argument("--day", type=int, required=True)
    parser.add_argument("--window", type=int, required=True)
    parser.add_argument("--model", default=REPLAY)
    parser.add_argument("--data")
    parser.add_argument("--number", type=int, default=0)
    given = parser.parse_args(arguments)
    settings = Settings(given.workspace, given.window, given.model, given.data, given.number)
    for event in play_day(settings, given.day):
        sys.stdout.buffer.write(to_json(event) + b"\n")
        sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
