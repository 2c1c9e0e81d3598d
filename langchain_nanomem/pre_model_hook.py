"""Memory in `langgraph.prebuilt.create_react_agent`: a hook before its model."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NotRequired

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.managed import RemainingSteps  # noqa: TC002 - LangGraph reads the annotation

from langchain_nanomem.node import MemoryState, state_update
from langchain_nanomem.prompt import MemoryPrompt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import SystemMessage

    from langchain_nanomem.consolidation import MemoryConsolidator
    from langchain_nanomem.conversation import Conversation

INPUT = "llm_input_messages"
"""The field of the agent's state in which a hook leaves what the model is to be sent."""


class ReactMemoryState(MemoryState):
    """`MemoryState`, and what the prebuilt agent wants of its state."""

    remaining_steps: NotRequired[RemainingSteps]
    """How many steps the run may still take; LangGraph fills it in."""


def create_pre_model_hook(
    consolidator: MemoryConsolidator,
    *,
    system_prompt: str | SystemMessage | None = None,
    tools: Sequence[Any] = (),
    trim_state: bool = False,
) -> Runnable[Any, dict[str, Any]]:
    """A hook for ``create_react_agent(pre_model_hook=..., state_schema=ReactMemoryState)``.

    Before each model call it consolidates if the prompt is at or over the budget, and has the
    model sent the system prompt with the memory at its end, and the live window. The state's
    messages are not changed, but for `trim_state`.

    LangGraph stores and streams what a hook returns. So here the memory does get into the
    agent's checkpoints, its pending writes and its streams, in the field
    ``llm_input_messages``; with ``stream_mode="messages"`` as a system message of the node
    ``pre_model_hook``, which whoever shows the stream has to leave out. It never gets into
    ``messages``, the session, the result, or the memory itself. Where that won't do, use
    `NanomemMiddleware` with `langchain.agents.create_agent`, or `create_memory_node`. Nor is a
    prompt sent again here that the provider refuses as too long.

    A state schema of your own needs the fields of `ReactMemoryState`. Without the pointer the
    agent runs as well; it is then found again in the session's records.

    Args:
        consolidator: What keeps the window small, and knows the memory.
        system_prompt: Stands in front of the memory. Give it here, and no ``prompt`` to the
            agent: that would stand in front uncounted.
        tools: The agent's tools; they count.
        trim_state: Whether messages that are in memory are removed from the agent's state too;
            see `create_memory_node`.

    Returns:
        A runnable, for both `invoke` and `ainvoke`, from a state to its update.
    """
    hook = _Hook(
        MemoryPrompt(consolidator, system_prompt=system_prompt, tools=tools),
        trim_state=trim_state,
    )
    return RunnableLambda(hook.invoke, hook.ainvoke, name="memory")


class _Hook:
    def __init__(self, prompt: MemoryPrompt, *, trim_state: bool) -> None:
        self._prompt = prompt
        self._trim_state = trim_state

    def invoke(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        conversation = self._prompt.conversation(state, config)
        self._prompt.consolidate(conversation)
        return self._update(conversation)

    async def ainvoke(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        conversation = await asyncio.to_thread(self._prompt.conversation, state, config)
        await self._prompt.aconsolidate(conversation)
        return await asyncio.to_thread(self._update, conversation)

    def _update(self, conversation: Conversation) -> dict[str, Any]:
        """What goes into the state. A deferred consolidation runs while the model answers."""
        sent = self._prompt.build(conversation)
        self._prompt.defer(conversation)
        update = state_update(conversation, self._prompt.consolidator, trim_state=self._trim_state)
        return {INPUT: sent, **update}
