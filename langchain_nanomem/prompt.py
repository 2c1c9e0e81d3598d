"""Memory and live window as the messages that a model is sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import BaseMessage, SystemMessage, convert_to_messages
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from typing_extensions import override

from langchain_nanomem.alignment import ids_of, named, recognized, unnamed
from langchain_nanomem.conversation import Conversation, of_messages
from langchain_nanomem.errors import ConsolidationError
from langchain_nanomem.fitting import fit, least
from langchain_nanomem.folded import POINTER
from langchain_nanomem.scopes import asks_off_the_record, session_key
from langchain_nanomem.window import Window, leading_system, with_memory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from langchain_nanomem.consolidation import Consolidation, MemoryConsolidator
    from langchain_nanomem.fitting import Count

Answer = TypeVar("Answer")


class _Given(NamedTuple):
    """What a prompt is to be made of."""

    messages: list[BaseMessage]
    pointer_id: str | None
    writer: Literal["prompt", "chain", "program"]
    """Who records what is new: we, as for a graph; `RunnableWithMessageHistory`; or whoever
    keeps the chat history of the chain."""


class MemoryPrompt(Runnable[Any, list[BaseMessage]]):
    """A runnable from a conversation to the messages that a model is sent.

    They are the system prompt with the memory at its end, and the live window. Where the
    prompt is at or over the budget it consolidates first. Use it in a chain
    (``prompt | model``) or in a model node of your own
    (``model.invoke(prompt.invoke(state, config))``). Nothing of the memory gets into the state.
    Under another checkpointer than `NanomemSaver` an answer is in the session from the next
    turn on, since only then it is seen here.

    The input is a graph's state (anything with ``messages``), a list of messages, a prompt
    value, or a text. The config names the session: ``thread_id``, or ``session_id`` in a chain.
    With ``off_the_record`` in its ``configurable`` nothing of that session gets into memory, log
    and search, from now on and for good.

    Args:
        consolidator: What keeps the window small, and knows the memory.
        system_prompt: Stands in front.
        tools: What the model is given; they count.
    """

    def __init__(
        self,
        consolidator: MemoryConsolidator,
        *,
        system_prompt: str | SystemMessage | None = None,
        tools: Sequence[Any] = (),
    ) -> None:
        self.consolidator = consolidator
        self.system_prompt = system_prompt
        self.tools = tools

    @override
    def invoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> list[BaseMessage]:
        """The messages to send.

        Raises:
            ValueError: The config names no session, or the input is no conversation.
            ScopeError: It is not clear whose memory is meant, or it is another's.
            ConsolidationError: It is due and there is no model for it.
        """
        conversation = self.conversation(input, ensure_config(config))
        self.consolidate(conversation)
        return self.build(conversation)

    @override
    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> list[BaseMessage]:
        """`invoke`, without blocking the event loop."""
        conversation = await asyncio.to_thread(self.conversation, input, ensure_config(config))
        await self.aconsolidate(conversation)
        return await asyncio.to_thread(self.build, conversation)

    # --- around a model call, for the memory node, the middleware and the chain ---

    def answer(
        self, conversation: Conversation, model: Callable[[list[BaseMessage]], Answer]
    ) -> Answer:
        """Consolidate where it is due, and call a model with the prompt.

        Where the provider refuses the prompt as too long, half of it is consolidated, and the
        model is called once more.

        Args:
            conversation: The conversation; its pointer moves with what is consolidated.
            model: Called with the messages to send.

        Returns:
            What the model gave.

        Raises:
            ContextOverflowError: The provider refused it, and nothing can be consolidated.
        """
        self.consolidate(conversation)
        try:
            return model(self.build(conversation))
        except ContextOverflowError as error:
            self.relieve(conversation, error)
        return model(self.build(conversation))

    async def aanswer(
        self, conversation: Conversation, model: Callable[[list[BaseMessage]], Awaitable[Answer]]
    ) -> Answer:
        """`answer`, without blocking the event loop."""
        await self.aconsolidate(conversation)
        try:
            return await model(await asyncio.to_thread(self.build, conversation))
        except ContextOverflowError as error:
            await self.arelieve(conversation, error)
        return await model(await asyncio.to_thread(self.build, conversation))

    # --- its steps ---

    def conversation(self, given: Any, config: RunnableConfig) -> Conversation:
        """The conversation that is given, with its pointer; its new messages are recorded."""
        parts, sessions = _read(given, config), self.consolidator.sessions
        key, messages = self.bound_session(config), parts.messages
        if parts.writer == "prompt":
            messages = self._recorded(key, messages)
        with sessions.reading(key) as records:
            later = parts.writer == "chain"
            return of_messages(records, messages, parts.pointer_id, is_recorded_later=later)

    def bound_session(self, config: RunnableConfig) -> str:
        """The session of a run: bound to whose memory it uses, and off the record if it says so.

        Raises:
            ValueError: The config names no session.
            ScopeError: It is not clear whose memory is meant, or it is another's.
        """
        key, sessions = session_key(config), self.consolidator.sessions
        sessions.bind_scope(key, self.consolidator.scope_of(config))
        if asks_off_the_record(config):
            sessions.keep_off_the_record(key)
        return key

    def _recorded(self, key: str, given: list[BaseMessage]) -> list[BaseMessage]:
        """The messages with ids; new ones are recorded where no checkpointer of ours does it."""
        sessions, messages, ids = self.consolidator.sessions, given, ids_of(given)
        if not all(ids):
            messages = named(given)
            ids = ids_of(messages)
        with sessions.reading(key) as records:
            new = [] if records.is_thread else records.unknown(ids)
            if not new:
                return messages
            if new[0] < len(records.line_numbers):  # else it is behind all that was said
                view = records.view()[: len(messages)]
                shown = records.messages(view)
                messages = recognized(messages, shown, records.message_ids)
                new = records.unknown(ids_of(messages))
        if unknown := [messages[place] for place in new if messages[place].id]:
            sessions.record_messages(key, unknown)
        return messages

    def consolidate(self, conversation: Conversation) -> None:
        """Consolidate if it is due."""
        self.consolidator.maybe_consolidate_by_tokens(conversation, **self._rest)

    async def aconsolidate(self, conversation: Conversation) -> None:
        """`consolidate`, with the model called asynchronously."""
        await self.consolidator.amaybe_consolidate_by_tokens(conversation, **self._rest)

    def defer(self, conversation: Conversation, answers: Sequence[BaseMessage] = ()) -> bool:
        """Consolidate behind the answer if it is nearly due, and if that is how it is to be done.

        Args:
            conversation: What the model was asked.
            answers: What it said.

        Returns:
            Whether that is how it is to be done.
        """
        if self.consolidator.deferred:
            messages = [*conversation.messages, *answers]
            self.consolidator.defer(replace(conversation, messages=messages), **self._rest)
        return self.consolidator.deferred

    def relieve(self, conversation: Conversation, refused: ContextOverflowError) -> None:
        """Consolidate half of a prompt that the provider refused.

        Raises:
            ContextOverflowError: `refused`, where that can't be done.
        """
        with _raising(refused):
            _checked(self.consolidator.relieve(conversation, **self._rest), refused)

    async def arelieve(self, conversation: Conversation, refused: ContextOverflowError) -> None:
        """`relieve`, with the model called asynchronously."""
        with _raising(refused):
            _checked(await self.consolidator.arelieve(conversation, **self._rest), refused)

    @property
    def _rest(self) -> dict[str, Any]:
        """What else stands in the prompt."""
        return {"system_prompt": self.system_prompt, "tools": self.tools}

    def build(self, conversation: Conversation) -> list[BaseMessage]:
        """The messages to send. Where they can't all fit, the oldest turns are left out."""
        count = self.consolidator.counter
        given, window = _parted(self.consolidator.window_of(conversation))
        room = self.consolidator.budget_tokens - self.consolidator.count_tools(self.tools)
        shown = least(window)

        def fits(block: str) -> bool:
            return count([*with_memory(given, self.system_prompt, block), *shown]) <= room

        block = self.consolidator.memory_block(conversation.scope, fits)
        system = with_memory(given, self.system_prompt, block, self.consolidator.cache_control)
        self.consolidator.note_sent(conversation.key)
        fitted = _fitted(system, window, room, count)
        has_room = lambda some: count(some) <= room  # noqa: E731
        return unnamed(self.consolidator.recall.shown(fitted, conversation.scope, has_room))


@contextlib.contextmanager
def _raising(refused: ContextOverflowError) -> Iterator[None]:
    """Raise the provider's own error where a consolidation fails: it is what the caller knows."""
    try:
        yield
    except ConsolidationError as error:
        raise refused from error


def _checked(done: list[Consolidation], refused: ContextOverflowError) -> None:
    if not done:
        raise refused


def _parted(window: Window) -> tuple[list[BaseMessage], Window]:
    """The system messages that a window begins with, and the rest of it."""
    shown = window.messages
    lead = leading_system(shown)
    rest = Window(window.kept[lead:], window.live[max(0, lead - len(window.kept)) :])
    return shown[:lead], rest


def _fitted(
    system: list[BaseMessage], window: Window, room: int, count: Count
) -> list[BaseMessage]:
    """All of it, or what there is room for, with a mark that says so if there is room for that."""
    room -= count(system)
    fitted = fit(window, room, count)
    if not fitted.left_out:
        return [*system, *fitted.messages]
    room -= count([SystemMessage(_mark(len(window.live)))])
    fewer = fit(window, room, count)
    if count(fewer.messages) > room:
        return [*system, *fitted.messages]
    return [*with_memory(system, None, _mark(fewer.left_out)), *fewer.messages]


def _mark(left_out: int) -> str:
    return (
        f"[{left_out} older messages of this conversation do not fit here and are left out; they "
        "are kept in the session]"
    )


def _read(given: Any, config: RunnableConfig) -> _Given:
    writer = _writer(config.get("configurable") or {})
    if isinstance(given, PromptValue):
        return _Given(given.to_messages(), None, writer)
    if isinstance(given, str) or (
        isinstance(given, (Sequence, BaseMessage)) and not hasattr(given, "messages")
    ):
        messages = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
        return _Given(_converted(messages), None, writer)
    messages = _field(given, "messages")
    if messages is None:
        raise ValueError(
            "the input is no conversation: give a state with 'messages', a list of messages, a "
            f"prompt value or a text, not {type(given).__name__}"
        )
    return _Given(_converted(messages), _field(given, POINTER), writer)


def _converted(messages: Any) -> list[BaseMessage]:
    """Anything that LangChain takes for messages as messages; those that are some, as they are."""
    kinds = set(map(type, messages)) if isinstance(messages, list) else {object}
    if all(issubclass(kind, BaseMessage) for kind in kinds):
        return list(messages)
    return convert_to_messages(messages)


def _writer(configurable: Mapping[str, Any]) -> Literal["prompt", "chain", "program"]:
    if "message_history" in configurable:
        return "chain"
    in_graph = configurable.get("thread_id") is not None or "checkpoint_ns" in configurable
    return "prompt" if in_graph else "program"


def _field(state: Any, name: str) -> Any:
    return state.get(name) if isinstance(state, Mapping) else getattr(state, name, None)
