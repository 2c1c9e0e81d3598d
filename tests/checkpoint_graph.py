"""A graph that has a bit of everything, and names for what a saver keeps of it."""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
    from langgraph.graph.state import CompiledStateGraph

SIZES = (40, 300, 3000, 40_000)
"""Of the tools' results; the largest span pages, so that a kill may part them."""


def extended(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    """A delta channel's state with its writes behind it."""
    return [*state, *(item for write in writes for item in write)]


class State(MessagesState):
    log: Annotated[list[str], operator.add]
    delta: Annotated[list[str], DeltaChannel(extended, snapshot_frequency=5)]
    """The same as `log`: in the state of an undamaged thread both are equal."""


def build(saver: BaseCheckpointSaver[Any]) -> CompiledStateGraph[Any]:
    """A model that calls a tool, then the tool beside a node that only takes a note."""
    builder = StateGraph(State)
    builder.add_node("think", think)
    builder.add_node("look", look)
    builder.add_node("note", note)
    builder.add_edge(START, "think")
    builder.add_edge("think", "look")
    builder.add_edge("think", "note")
    return builder.compile(checkpointer=saver)


def think(state: dict[str, Any]) -> dict[str, Any]:
    turn = state["messages"][-1].id.removeprefix("q ")
    call = {"name": "look", "args": {"for": "ü" * 20}, "id": f"c {turn}", "type": "tool_call"}
    return noted(f"think {turn}") | {"messages": [AIMessage("", id=turn, tool_calls=[call])]}


def look(state: dict[str, Any]) -> dict[str, Any]:
    call = state["messages"][-1].tool_calls[0]["id"]
    text = "ß→" * SIZES[len(state["messages"]) // 3 % len(SIZES)]
    result = ToolMessage(text, tool_call_id=call, id=f"r {call}", artifact=(1, "a"))
    return noted(f"look {call}") | {"messages": [result]}


def note(state: dict[str, Any]) -> dict[str, Any]:
    return noted(f"note {state['messages'][-1].id}")


def noted(text: str) -> dict[str, Any]:
    return {"log": [text], "delta": [text]}


def question(turn: str, text: str = "") -> dict[str, Any]:
    """The input of a turn; `turn` names it, and is to be asked once a thread."""
    return {"messages": [HumanMessage(text or turn, id=f"q {turn}")]}


def at(thread: str, namespace: str = "", checkpoint_id: str | None = None) -> dict[str, Any]:
    found = {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}
    return {"configurable": {name: v for name, v in found.items() if v is not None}}


def made(checkpoint_id: str, **values: Any) -> dict[str, Any]:
    """A checkpoint that is the same whoever makes it; its id tells their version."""
    versions = dict.fromkeys(values, f"1.{checkpoint_id}")
    return {
        **empty_checkpoint(),
        "id": checkpoint_id,
        "ts": "2026-05-08T13:00:00+00:00",
        "channel_values": values,
        "channel_versions": versions,
    }


def fingerprint(*values: Any) -> str:
    """A short name for values: the same for equal ones of equal types, in every process."""
    text = json.dumps(values, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def state_of(checkpoint: Any, metadata: Any) -> str:
    """The fingerprint of a checkpoint; without the delta channel, of which only some hold a value.

    A saver gives it with later ones too, for they name the same version of it.
    """
    values = {n: v for n, v in checkpoint["channel_values"].items() if n != "delta"}
    return fingerprint({**checkpoint, "channel_values": values}, metadata)


def _plain(value: Any) -> Any:
    kind = type(value).__name__
    return [kind, value.model_dump()] if isinstance(value, BaseModel) else [kind, repr(value)]


def told_of(found: CheckpointTuple) -> dict[str, Any]:
    """All that a saver tells of a checkpoint, in short."""
    parent = found.parent_config
    return {
        "id": found.config["configurable"]["checkpoint_id"],
        "ns": found.config["configurable"]["checkpoint_ns"],
        "parent": parent["configurable"]["checkpoint_id"] if parent else None,
        "state": state_of(found.checkpoint, found.metadata),
        "writes": [
            (task, channel, fingerprint(value)) for task, channel, value in found.pending_writes
        ],
    }


async def call(colour: str, target: Any, method: str, *args: Any, **options: Any) -> Any:
    """What a method of a saver or a graph gives, in this colour; a list for an iterator."""
    if colour == "sync":
        found = getattr(target, method)(*args, **options)
        return list(found) if isinstance(found, Iterator) else found
    found = getattr(target, f"a{method}")(*args, **options)
    return [one async for one in found] if isinstance(found, AsyncIterator) else await found
