"""Memory in `langchain.agents.create_agent`: a middleware. Needs the extra ``langchain``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from langchain_core.messages import BaseMessage, SystemMessage
from langgraph.config import get_config
from langgraph.types import Command
from typing_extensions import override

from langchain_nanomem.folded import POINTER
from langchain_nanomem.node import newer, state_update
from langchain_nanomem.prompt import MemoryPrompt

try:
    from langchain.agents.middleware.types import (
        AgentMiddleware,
        AgentState,
        ExtendedModelResponse,
        ModelRequest,
        ModelResponse,
        PrivateStateAttr,
    )
except ImportError as error:
    raise ImportError(
        "NanomemMiddleware needs langchain: pip install 'langchain-nanomem[langchain]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from langgraph.runtime import Runtime

    from langchain_nanomem.consolidation import MemoryConsolidator
    from langchain_nanomem.conversation import Conversation

Request = ModelRequest[Any]
Response = ModelResponse[Any]
Extended = ExtendedModelResponse[Any]


class MemoryAgentState(AgentState[Any]):
    """An agent's state, and the pointer of this branch of the conversation."""

    last_consolidated_id: NotRequired[Annotated[str | None, newer, PrivateStateAttr]]
    """The id of the last message that is in memory; None or missing where none is."""


class NanomemMiddleware(AgentMiddleware[MemoryAgentState, Any, Any]):
    """Keeps an agent's prompts within the window, and shows it its memory.

    Before each model call it consolidates if the prompt (system prompt, memory, tools, live
    window) is at or over the budget. The model is sent the system prompt with the memory at its
    end, and the live window; the state's messages are not changed, and nothing of the memory
    gets into state, checkpoints or streams. Where the provider refuses a prompt as too long,
    half of it is consolidated, and the model is called once more.

    What the agent's other middlewares have made of the request by then is what counts: put it
    last in the list to have it see what the model is sent. The config names the session, by its
    ``thread_id``.

    Args:
        consolidator: What keeps the window small, and knows the memory.
        cache_control: The mark of a provider that wants one; see `MemoryPrompt`.
        trim_state: Whether messages that are in memory are removed from the agent's state too;
            see `create_memory_node`.
    """

    state_schema = MemoryAgentState

    def __init__(
        self,
        consolidator: MemoryConsolidator,
        *,
        cache_control: Mapping[str, Any] | None = None,
        trim_state: bool = False,
    ) -> None:
        super().__init__()
        self.consolidator = consolidator
        self.cache_control = cache_control
        self.trim_state = trim_state

    @override
    def wrap_model_call(
        self, request: Request, handler: Callable[[Request], Response]
    ) -> Response | Extended:
        prompt = self._prompt(request)
        conversation = prompt.conversation(_given(request), get_config())
        response = prompt.answer(conversation, lambda sent: handler(_sending(request, sent)))
        return self._answered(prompt, conversation, response)

    @override
    async def awrap_model_call(
        self, request: Request, handler: Callable[[Request], Awaitable[Response]]
    ) -> Response | Extended:
        prompt, config = self._prompt(request), get_config()
        conversation = await asyncio.to_thread(prompt.conversation, _given(request), config)
        call = lambda sent: handler(_sending(request, sent))  # noqa: E731
        response = await prompt.aanswer(conversation, call)
        return await asyncio.to_thread(self._answered, prompt, conversation, response)

    @override
    def after_agent(self, state: MemoryAgentState, runtime: Runtime[Any]) -> None:
        """Where no checkpointer of ours does, what was said last is recorded."""
        MemoryPrompt(self.consolidator).conversation(state, get_config())

    @override
    async def aafter_agent(self, state: MemoryAgentState, runtime: Runtime[Any]) -> None:
        await asyncio.to_thread(self.after_agent, state, runtime)

    def _answered(
        self, prompt: MemoryPrompt, conversation: Conversation, response: Response
    ) -> Response | Extended:
        """The response, with what is new in the agent's state if anything is."""
        prompt.defer(conversation, response.result)
        update = state_update(conversation, self.consolidator, trim_state=self.trim_state)
        if not update:
            return response
        return ExtendedModelResponse(model_response=response, command=Command(update=update))

    def _prompt(self, request: Request) -> MemoryPrompt:
        return MemoryPrompt(
            self.consolidator.for_model(request.model),
            system_prompt=request.system_message,
            tools=request.tools,
            cache_control=self.cache_control,
        )


def _given(request: Request) -> dict[str, Any]:
    """The conversation of a request as a state: its messages, and the pointer of its branch."""
    state: Any = request.state
    return {"messages": request.messages, POINTER: state.get(POINTER)}


def _sending(request: Request, messages: list[BaseMessage]) -> Request:
    """The request with a prompt's messages: the first one, of the system, stands apart there."""
    first = messages[0] if messages and isinstance(messages[0], SystemMessage) else None
    rest: list[Any] = messages[1:] if first else messages
    return request.override(system_message=first, messages=rest)
