"""Memory in a graph: a node, and the state it works on."""

from __future__ import annotations

import asyncio
import uuid
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.graph import MessagesState

from langchain_nanomem.prompt import POINTER, MemoryPrompt
from langchain_nanomem.windows import inner_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import SystemMessage

    from langchain_nanomem.consolidation import MemoryConsolidator
    from langchain_nanomem.conversation import Conversation


def newer(old: str | None, new: str | None) -> str | None:
    """The pointer after an update of the state; a step that has none leaves it."""
    return old if new is None else new


class MemoryState(MessagesState):
    """`MessagesState`, and the pointer of this branch of the conversation."""

    last_consolidated_id: Annotated[str | None, newer]
    """The id of the last message that is in memory; None or missing where none is."""


def create_memory_node(
    consolidator: MemoryConsolidator,
    *,
    model: Runnable[Any, Any] | None = None,
    system_prompt: str | SystemMessage | None = None,
) -> Runnable[Any, dict[str, Any]]:
    """A node for `StateGraph.add_node`, for both `invoke` and `ainvoke`.

    With a model it consolidates where the prompt is at or over the budget, calls the model
    with system prompt, memory and live window, and returns the answer. Without one it only
    consolidates: put it before a model node of your own that uses `MemoryPrompt`, or after it,
    so that the user does not wait.

    The state's messages are not changed. The pointer is kept in the state where that has the
    field of `MemoryState`; else it is found again in the session's records.

    Args:
        consolidator: What keeps the window small, and knows the memory.
        model: A chat model, with its tools bound if it has any.
        system_prompt: Stands in front of the memory.
    """
    prompt = MemoryPrompt(consolidator, system_prompt=system_prompt, tools=_tools_of(model))
    node = _MemoryNode(prompt, model)
    return RunnableLambda(node.invoke, node.ainvoke, name="memory")


def _tools_of(model: Any) -> Sequence[Any]:
    """The tools bound to a model, also to one with fallbacks, or before a parser."""
    while model is not None:
        tools: Sequence[Any] = getattr(model, "kwargs", {}).get("tools") or ()
        if tools:
            return tools
        model = inner_model(model)
    return ()


class _MemoryNode:
    def __init__(self, prompt: MemoryPrompt, model: Runnable[Any, Any] | None) -> None:
        self._prompt = prompt
        self._model = model

    def invoke(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        conversation = self._prompt.conversation(state, config)
        if self._model is None:
            self._prompt.consolidate(conversation)
            return pointer_of(conversation)
        answer = self._prompt.answer(conversation, partial(self._model.invoke, config=config))
        return self._answered(conversation, answer)

    async def ainvoke(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        conversation = await asyncio.to_thread(self._prompt.conversation, state, config)
        if self._model is None:
            await self._prompt.aconsolidate(conversation)
            return pointer_of(conversation)
        call = partial(self._model.ainvoke, config=config)
        answer = await self._prompt.aanswer(conversation, call)
        return await asyncio.to_thread(self._answered, conversation, answer)

    def _answered(self, conversation: Conversation, answer: Any) -> dict[str, Any]:
        """The update of the state. Where no checkpointer of ours does, the answer is recorded."""
        message = answer if isinstance(answer, BaseMessage) else AIMessage(str(answer))
        if message.id is None:
            message = message.model_copy(update={"id": str(uuid.uuid4())})
        sessions = self._prompt.consolidator.sessions
        with sessions.reading(conversation.key) as records:
            own_writer = records.is_thread
        if not own_writer:
            sessions.record_messages(conversation.key, [message])
        return {"messages": [message], **pointer_of(conversation)}


def pointer_of(conversation: Conversation) -> dict[str, Any]:
    """The update of a graph's state with the pointer; {} where nothing is in memory."""
    end = conversation.last_consolidated
    return {POINTER: conversation.messages[end - 1].id} if end else {}
