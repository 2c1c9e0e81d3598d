"""Threads that a killed run left behind with tool calls nobody answers any more."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.channels import LastValue
from langgraph.types import Overwrite

from langchain_nanomem.session import MissingResult, Shape, legal_view
from langchain_nanomem.window import message_shape, missing_result

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.pregel.protocol import PregelProtocol
    from langgraph.types import StateSnapshot

    Graph = PregelProtocol[Any, Any, Any, Any]


def answer_interrupted_calls(
    graph: Graph,
    config: RunnableConfig,
    *,
    messages_key: str = "messages",
    as_node: str | None = None,
    abandon_tasks: bool = False,
) -> list[ToolMessage]:
    """Give the tool calls of a killed run results that say so, that a strict provider goes on.

    Each result is put right behind its call, in one update of the graph's state. Nothing is
    done where no result is missing, while an interrupt is pending, and while tasks are pending
    that may still answer the calls: they do when the run is taken up again with ``None`` for
    its input. Call it while no run of the thread goes on.

    Args:
        graph: Any compiled graph with a checkpointer, of whatever kind.
        config: Its thread.
        messages_key: The channel of the state that holds the messages.
        as_node: The node that the update is said to come from; LangGraph's own guess by default.
        abandon_tasks: Whether pending tasks are given up that may still answer the calls.

    Returns:
        The results that were added, in their order; an empty list where nothing was done.

    Raises:
        TypeError: The channel holds something else than LangChain messages.
        langgraph.errors.InvalidUpdateError: LangGraph can't guess the node; nothing was done.
    """
    repair = _repair(graph, graph.get_state(config), messages_key, abandon_tasks=abandon_tasks)
    if repair.results:
        graph.update_state(config, repair.update, as_node)
    return repair.results


async def aanswer_interrupted_calls(
    graph: Graph,
    config: RunnableConfig,
    *,
    messages_key: str = "messages",
    as_node: str | None = None,
    abandon_tasks: bool = False,
) -> list[ToolMessage]:
    """Do what `answer_interrupted_calls` does, with the graph's asynchronous methods."""
    state = await graph.aget_state(config)
    repair = _repair(graph, state, messages_key, abandon_tasks=abandon_tasks)
    if repair.results:
        await graph.aupdate_state(config, repair.update, as_node)
    return repair.results


class _Repair(NamedTuple):
    results: list[ToolMessage]
    update: dict[str, Any]


_NOTHING = _Repair([], {})


def _repair(graph: Graph, state: StateSnapshot, key: str, *, abandon_tasks: bool) -> _Repair:
    messages = _messages_of(state, key)
    missing = unanswered(messages)
    if not missing or state.interrupts:
        return _NOTHING
    at_the_end = missing[0][0] == len(messages)
    if at_the_end and state.next and not abandon_tasks:
        return _NOTHING
    results = [result for _, result in missing]
    takes_all = isinstance(getattr(graph, "channels", {}).get(key), LastValue)
    if at_the_end and not takes_all:
        return _Repair(results, {key: results})
    whole = with_results(messages, missing)
    return _Repair(results, {key: whole if takes_all else Overwrite(whole)})


def _messages_of(state: StateSnapshot, key: str) -> list[BaseMessage]:
    values: Any = state.values
    messages = values.get(key) if isinstance(values, Mapping) else getattr(values, key, None)
    found = list(messages or ())
    for message in found:
        if not isinstance(message, BaseMessage):
            raise TypeError(
                f"the state's {key!r} holds {message!r:.80}, which is no LangChain message. Name "
                "the channel that holds the messages: messages_key=..."
            )
    return found


def unanswered(messages: list[BaseMessage]) -> list[tuple[int, ToolMessage]]:
    """The results that are missing, in their order, each with the place where it belongs."""
    # a provider is sent what a prompt would leave out, too: nothing is passed over
    shapes = [message_shape(message)._replace(replayable=True) for message in messages]
    found: list[tuple[int, ToolMessage]] = []
    caller = 0
    for place in legal_view(shapes):
        if isinstance(place, MissingResult):
            result = missing_result(place).model_copy(update={"id": str(uuid.uuid4())})
            found.append((_behind(shapes, caller), result))
        elif shapes[place].role != "tool":
            caller = place
    return found


def _behind(shapes: list[Shape], caller: int) -> int:
    """The place behind a message and the results that follow it."""
    rest = range(caller + 1, len(shapes))
    return next((place for place in rest if shapes[place].role != "tool"), len(shapes))


def with_results(
    messages: list[BaseMessage], missing: list[tuple[int, ToolMessage]]
) -> list[BaseMessage]:
    """All messages, with the results at their places."""
    whole = list(messages)
    for place, result in reversed(missing):
        whole.insert(place, result)
    return whole
