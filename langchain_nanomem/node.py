"""Memory in a graph: a node, and the state it works on."""

from __future__ import annotations

import asyncio
import uuid
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.graph import MessagesState

from langchain_nanomem.folded import POINTER
from langchain_nanomem.model_facts import bound_tools
from langchain_nanomem.prompt import MemoryPrompt

if TYPE_CHECKING:
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
    trim_state: bool = False,
) -> Runnable[Any, dict[str, Any]]:
    """A node for `StateGraph.add_node`, for both `invoke` and `ainvoke`.

    With a model it consolidates where the prompt is at or over the budget, calls the model
    with system prompt, memory and live window, and returns the answer. Without one it only
    consolidates: put it before a model node of your own that uses `MemoryPrompt`, or after it.
    With a consolidator that defers, both return at once, and nobody waits.

    The state's messages are not changed, but for `trim_state`. The pointer is kept in the state
    where that has the field of `MemoryState`; else it is found again in the session's records.

    Args:
        consolidator: What keeps the window small, and knows the memory.
        model: A chat model, with its tools bound if it has any.
        system_prompt: Stands in front of the memory.
        trim_state: Whether messages that are in memory are removed from the state too, which
            keeps a long thread as fast as a new one. They stay in the session, and a search
            finds them. The state must have the field of `MemoryState`, and in a step one node
            alone may do so.
    """
    prompt = MemoryPrompt(
        consolidator.for_model(model),
        system_prompt=system_prompt,
        tools=bound_tools(model),
    )
    node = _MemoryNode(prompt, model, trim_state=trim_state)
    return RunnableLambda(node.invoke, node.ainvoke, name="memory")


class _MemoryNode:
    def __init__(
        self, prompt: MemoryPrompt, model: Runnable[Any, Any] | None, *, trim_state: bool
    ) -> None:
        self._prompt = prompt
        self._model = model
        self._trim_state = trim_state

    def invoke(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        conversation = self._prompt.conversation(state, config)
        if self._model is None:
            if not self._prompt.defer(conversation):
                self._prompt.consolidate(conversation)
            return self._update(conversation)
        answer = self._prompt.answer(conversation, partial(self._model.invoke, config=config))
        return self._answered(conversation, answer)

    async def ainvoke(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        conversation = await asyncio.to_thread(self._prompt.conversation, state, config)
        if self._model is None:
            if not await asyncio.to_thread(self._prompt.defer, conversation):
                await self._prompt.aconsolidate(conversation)
            return await asyncio.to_thread(self._update, conversation)
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
        self._prompt.defer(conversation, [message])
        update = self._update(conversation)
        return {**update, "messages": [*update.get("messages", ()), message]}

    def _update(self, conversation: Conversation) -> dict[str, Any]:
        return state_update(conversation, self._prompt.consolidator, trim_state=self._trim_state)


def state_update(
    conversation: Conversation, consolidator: MemoryConsolidator, *, trim_state: bool
) -> dict[str, Any]:
    """The update of a graph's state: the pointer, and what is trimmed, if anything is.

    What is trimmed is noted in the session before, which goes on to show it.
    """
    trimmed = conversation.trimmable_ids if trim_state else []
    if trimmed:
        consolidator.sessions.note_trimmed(conversation.key, trimmed)
    removed = [RemoveMessage(id=one) for one in trimmed]
    update = {"messages": removed, POINTER: conversation.pointer_id}
    return {name: value for name, value in update.items() if value}
