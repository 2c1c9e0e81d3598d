"""Memory around a chain, without anything that LangChain has deprecated."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    HumanMessage,
    convert_to_messages,
    message_chunk_to_message,
)
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from typing_extensions import override

from langchain_nanomem.conversation import Conversation, of_session
from langchain_nanomem.scopes import session_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from langchain_nanomem.prompt import MemoryPrompt

_END = object()


class MemoryChain(Runnable[Any, Any]):
    """A chain with a memory: it is given what is new, and sees the whole conversation.

    The input, a text, a message, or several, is appended to the session, and stays there
    whatever becomes of the turn. The chain is given the messages for a model: system prompt,
    memory, live window. What it gives, a message, a text, or a list of messages, is appended
    too; what it streams as one message, also where its consumer goes away in the middle. What
    can't be written is raised. Turns of a session wait for each other, in this process.

    The config names the session: ``session_id``, or ``thread_id``; ``off_the_record`` in it keeps
    the session out of memory, log and search, for good.

    Args:
        prompt: Makes the messages for a model.
        bound: The chain, from messages to an answer.
    """

    def __init__(self, prompt: MemoryPrompt, bound: Runnable[Any, Any]) -> None:
        self.prompt = prompt
        self.bound = bound
        self._turns = prompt.consolidator.sessions.turns

    @override
    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """The chain's output for what is new.

        Raises:
            ValueError: The config names no session, the session is a graph's thread, or the
                input is no message; or the output is none, and is not recorded.
            ScopeError: It is not clear whose memory is meant, or it is another's.
            ConsolidationError: It is due and there is no model for it.
            OSError: The session could not be written.
        """
        config = ensure_config(config)
        key = session_key(config)
        with self._turns.turn(key), self._turns.inside(key):
            conversation = self._begun(input, config)
            call = partial(self.bound.invoke, config=config, **kwargs)
            output = self.prompt.answer(conversation, call)
            self._record(key, output)
            return output

    @override
    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """`invoke`, without blocking the event loop."""
        config = ensure_config(config)
        key = session_key(config)
        async with self._turns.aturn(key):
            with self._turns.inside(key):
                conversation = await asyncio.to_thread(self._begun, input, config)
                call = partial(self.bound.ainvoke, config=config, **kwargs)
                output = await self.prompt.aanswer(conversation, call)
                await asyncio.to_thread(self._record, key, output)
                return output

    @override
    def stream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        """The parts of the chain's output, which are recorded whole at the end."""
        config = ensure_config(config)
        key = session_key(config)
        with self._turns.turn(key):
            conversation, whole = self._begun(input, config), None
            parts = self._parts(conversation, partial(self.bound.stream, config=config, **kwargs))
            try:
                while True:
                    with self._turns.inside(key):
                        part = next(parts, _END)
                    if part is _END:
                        break
                    whole = _added(whole, part)
                    yield part
            except GeneratorExit:
                self._record(key, whole)
                raise
            self._record(key, whole)

    @override
    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """`stream`, without blocking the event loop."""
        config = ensure_config(config)
        key = session_key(config)
        async with self._turns.aturn(key):
            conversation = await asyncio.to_thread(self._begun, input, config)
            stream, whole = partial(self.bound.astream, config=config, **kwargs), None
            parts = self._aparts(conversation, stream)
            try:
                while True:
                    with self._turns.inside(key):
                        part = await anext(parts, _END)
                    if part is _END:
                        break
                    whole = _added(whole, part)
                    yield part
            except GeneratorExit:
                await asyncio.to_thread(self._record, key, whole)
                raise
            await asyncio.to_thread(self._record, key, whole)

    # --- its steps ---

    def _begun(self, given: Any, config: RunnableConfig) -> Conversation:
        """The session as a conversation, with what is new at its end."""
        sessions, new = self.prompt.consolidator.sessions, _asked(given)
        key = self.prompt.bound_session(config)
        sessions.append_messages(key, new)
        return of_session(sessions.get_or_create(key))

    def _parts(
        self, conversation: Conversation, stream: Callable[[list[BaseMessage]], Iterator[Any]]
    ) -> Iterator[Any]:
        """What the chain streams; one that is refused before its first part is begun again."""
        self.prompt.consolidate(conversation)
        begun = False
        try:
            for part in stream(self.prompt.build(conversation)):
                begun = True
                yield part
        except ContextOverflowError as error:
            if begun:
                raise
            self.prompt.relieve(conversation, error)
        else:
            return
        yield from stream(self.prompt.build(conversation))

    async def _aparts(
        self, conversation: Conversation, stream: Callable[[list[BaseMessage]], AsyncIterator[Any]]
    ) -> AsyncIterator[Any]:
        await self.prompt.aconsolidate(conversation)
        begun = False
        try:
            async for part in stream(await asyncio.to_thread(self.prompt.build, conversation)):
                begun = True
                yield part
        except ContextOverflowError as error:
            if begun:
                raise
            await self.prompt.arelieve(conversation, error)
        else:
            return
        async for part in stream(await asyncio.to_thread(self.prompt.build, conversation)):
            yield part

    def _record(self, key: str, output: Any) -> None:
        sessions = self.prompt.consolidator.sessions
        if output is not None:
            sessions.append_messages(key, _said(output))
            self.prompt.defer(of_session(sessions.get_or_create(key)))


def _asked(given: Any) -> list[BaseMessage]:
    """What is new, as messages.

    Raises:
        ValueError: It is no message.
    """
    if isinstance(given, str):
        return [HumanMessage(given)]
    if isinstance(given, PromptValue):
        return given.to_messages()
    if isinstance(given, BaseMessage):
        return [given]
    if isinstance(given, Sequence):
        return convert_to_messages(given)
    raise ValueError(
        f"the input is a text, a message, or a list of messages, not {type(given).__name__}: it "
        "is what is new in the conversation"
    )


def _said(output: Any) -> list[BaseMessage]:
    """What the chain gave, as messages.

    Raises:
        ValueError: It is no message.
    """
    if isinstance(output, str):
        return [AIMessage(output)]
    if isinstance(output, BaseMessageChunk):
        return [message_chunk_to_message(output)]
    if isinstance(output, BaseMessage):
        return [output]
    if isinstance(output, list) and all(isinstance(one, BaseMessage) for one in output):
        return output
    raise ValueError(
        f"the chain gave a {type(output).__name__}, which is not recorded: it must give a message, "
        "a text, or a list of messages. Put what makes something else of it behind the memory: "
        "memory.wrap(chain) | parser"
    )


def _added(whole: Any, part: Any) -> Any:
    """Streamed parts put together; what can't be added takes the place of what was before."""
    if whole is None:
        return part
    try:
        return whole + part
    except TypeError:
        return part
