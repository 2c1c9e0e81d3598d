"""How large a prompt is, and what would go out of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage

from langchain_nanomem.fitting import shorten_results
from langchain_nanomem.window import Window, is_user, message_shape, pick_boundary, with_memory

if TYPE_CHECKING:
    from langchain_nanomem.conversation import Conversation
    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.memory_view import MemoryView
    from langchain_nanomem.planning import Planner
    from langchain_nanomem.scopes import Scope
    from langchain_nanomem.tokens import TokenCounter

_STAMP_TOKENS = 16
"""About what date, weekday and speaker take in front of a message that is consolidated."""
Count = Callable[[Sequence[BaseMessage]], int]
Tools = Sequence[Any]
SystemPrompt = str | SystemMessage | None


class Around(NamedTuple):
    """What else stands in a prompt."""

    system_prompt: SystemPrompt = None
    """Without the memory."""
    tools: Tools = ()


class PromptMeter:
    """Counts prompts.

    Args:
        counter: Counts messages.
        texts: Counts texts and tools.
        memory: What stands at the end of the system prompt.
        sessions: Where the conversations are.
        max_tool_result_tokens: A tool result that was answered is shown with so many at most.
    """

    def __init__(
        self,
        counter: Count,
        texts: TokenCounter,
        memory: MemoryView,
        sessions: SessionManager,
        max_tool_result_tokens: int | None,
    ) -> None:
        self.counter = counter
        self.texts = texts
        self.memory = memory
        self._sessions = sessions
        self._max_result = max_tool_result_tokens
        self._unsure: set[str] = set()

    def note_sent(self, key: str, *, is_busy: bool) -> None:
        """Note that a prompt of a session is sent, while that is being consolidated or not.

        What the provider tells of one that was sent meanwhile says nothing of the next.
        """
        (self._unsure.add if is_busy else self._unsure.discard)(key)

    def window(self, conversation: Conversation) -> Window:
        """The live window as it is shown."""
        window = conversation.window
        return Window(window.kept, self._shown(window.live))

    def estimate(self, conversation: Conversation, around: Around) -> int:
        """The tokens of the whole prompt.

        It is never less than what the provider told of the last call and what came since, where
        nothing was consolidated in between.
        """
        block = self.memory.block(conversation.scope)
        system = with_memory((), around.system_prompt, block)
        shown = self.window(conversation).messages
        counted = self.counter([*system, *shown]) + self.count_tools(around.tools)
        return max(counted, self._told(conversation, shown))

    def count_tools(self, tools: Tools) -> int:
        """The tokens of the tools' schemas."""
        return self.texts.count_tools(tools) if tools else 0

    def memory_tokens(self, scope: Scope) -> int:
        """The tokens of the memory block; 0 for none."""
        block = self.memory.block(scope)
        return self.texts.count_text(block) if block else 0

    def boundary(self, conversation: Conversation, tokens_to_remove: int) -> tuple[int, int] | None:
        """Where the range to consolidate ends, and its tokens; None where there is none."""
        start, window = conversation.last_consolidated, conversation.consolidatable
        shapes = [message_shape(message) for message in window]
        shown = self._shown(list(window))
        found = pick_boundary(shapes, 0, tokens_to_remove, lambda i: self.counter([shown[i]]))
        return None if found is None else (start + found[0], found[1])

    def removed(self, messages: list[BaseMessage]) -> int:
        """The tokens of messages that leave the window."""
        return sum(self.counter([message]) for message in self._shown(messages))

    def _shown(self, messages: list[BaseMessage]) -> list[BaseMessage]:
        if self._max_result is None:
            return messages
        return shorten_results(messages, self._max_result, self.texts.count_text)

    def _told(self, conversation: Conversation, shown: list[BaseMessage]) -> int:
        """What the provider's own count says; 0 where it says nothing of the prompt now."""
        places = (i for i in reversed(range(len(shown))) if isinstance(shown[i], AIMessage))
        place = next(places, 0)
        usage = getattr(shown[place], "usage_metadata", None) if shown else None
        if not usage or not self._is_since_consolidation(conversation, shown[place]):
            return 0
        return int(usage["input_tokens"]) + self.counter(shown[place:])

    def _is_since_consolidation(self, conversation: Conversation, answer: BaseMessage) -> bool:
        if conversation.key in self._unsure:
            return False
        with self._sessions.reading(conversation.key) as records:
            number = records.message_ids.get(answer.id or "")
            address = records.elements.addresses.get(-1 if number is None else number)
            last = records.consolidated_at[-1:]
            return address is not None and not (last and last[0] > address)


class MeasuredSituation:
    """What a prompt is made of, counted when it is asked for; see `policy.Situation`.

    Args:
        meter: Counts.
        conversation: The session.
        around: What else stands in the prompt.
        budget_tokens: What the prompt may take.
        planner: Knows what a consolidation of its own asks, and reads.
        room_behind: The tokens of the prompt behind which a consolidation can ask; None where
            it asks in a prompt of its own.
    """

    def __init__(  # noqa: PLR0913 - it is put together at one place
        self,
        meter: PromptMeter,
        conversation: Conversation,
        around: Around,
        *,
        budget_tokens: int,
        planner: Planner,
        room_behind: int | None,
    ) -> None:
        self.budget_tokens = budget_tokens
        self.reuses_prompt = room_behind is not None
        self._room_behind = room_behind
        self._meter, self._conversation, self._around = meter, conversation, around
        self._planner = planner

    @cached_property
    def fixed_tokens(self) -> int:
        """System prompt, tools, and the system messages of the conversation."""
        system = with_memory(self._system, self._around.system_prompt, "")
        return self._meter.counter(system) + self._meter.count_tools(self._around.tools)

    @cached_property
    def memory_tokens(self) -> int:
        """The memory block."""
        return self._meter.memory_tokens(self._conversation.scope)

    @cached_property
    def live_tokens(self) -> int:
        """The live window."""
        return self._meter.counter(self._live)

    @cached_property
    def live_calls(self) -> int:
        """In how many model calls the live window grew."""
        return sum(isinstance(message, AIMessage) for message in self._live)

    @cached_property
    def live_turns(self) -> int:
        """The user messages in it."""
        return sum(map(is_user, self._live))

    @cached_property
    def question_tokens(self) -> int:
        """What a consolidation asks, beside the memory and the conversation."""
        return self._planner.question_tokens()

    @cached_property
    def range_tokens(self) -> int:
        """How much of the conversation, about, one call of the consolidating model can read."""
        if self._room_behind is not None:
            around = self.fixed_tokens + self.memory_tokens
            return max(self._room_behind - around, 0)
        most = self._planner.most_shown_tokens - self.memory_tokens
        stamped = self.live_tokens + _STAMP_TOKENS * len(self._live)
        return max(most, 0) * self.live_tokens // max(stamped, 1)

    @cached_property
    def _shown(self) -> list[BaseMessage]:
        return self._meter.window(self._conversation).messages

    @cached_property
    def _system(self) -> list[BaseMessage]:
        return [message for message in self._shown if message.type == "system"]

    @cached_property
    def _live(self) -> list[BaseMessage]:
        return [message for message in self._shown if message.type != "system"]
