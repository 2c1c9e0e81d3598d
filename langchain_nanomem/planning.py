"""What is taken out of a window at once, and what the model is shown of it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_nanomem.answers import (
    MAX_MEMORY_CHARACTERS,
    SAVE_MEMORY,
    Answer,
    Prompt,
    ask,
    build_prompt,
)
from langchain_nanomem.dates import resolve_relative_dates
from langchain_nanomem.errors import ConsolidationError
from langchain_nanomem.extractive import Utterance, summarize_extractively
from langchain_nanomem.memory_budget import DEFAULT_REWRITE_INSTRUCTIONS, fitted, told
from langchain_nanomem.rendering import content_text, render_message, shorten, speaker_of
from langchain_nanomem.search_query import tags_in
from langchain_nanomem.search_sources import SEARCH_TOOL
from langchain_nanomem.window import cuts, message_shape

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from datetime import datetime

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage

    from langchain_nanomem.conversation import Conversation
    from langchain_nanomem.memory_versions import MemoryVersion
    from langchain_nanomem.model_calls import Call, Reply
    from langchain_nanomem.tokens import TokenCounter

_LEAST_ROOM_TOKENS = 400
_LEAST_MEMORY_CHARACTERS = 4_000
_MEMORY_SHARE = 10
_TOLD_TOKENS = range(200, 4_000)
_EXTRACT_SHARE = 6
_FROM_MEMORY = "(what was found in the memory; it is nothing new)"
_PEOPLE = frozenset({"human", "ai"})
_EXTRACT_TOKENS = range(140, 1_000)


class Plan(NamedTuple):
    """A range of messages that is to go into memory."""

    id: str
    conversation: Conversation
    start: int
    end: int
    shown: str
    """The text of it that the model is shown."""
    memory: MemoryVersion
    """The memory that it is shown, and that its answer is to replace."""
    sent: list[BaseMessage] = []  # noqa: RUF012 - a field of a tuple
    """What the model is sent, where that is the conversation itself; see `in_place`."""
    tools: Sequence[Any] = ()
    """With which tools."""

    @property
    def messages(self) -> list[BaseMessage]:
        """The messages of the range."""
        return list(self.conversation.messages[self.start : self.end])

    @property
    def ended_at(self) -> datetime | None:
        """When the last message of the range was said; None if no message tells."""
        places = range(self.end - 1, self.start - 1, -1)
        return next((time for i in places if (time := self.conversation.said_at(i))), None)


class MemoryLimits(NamedTuple):
    """How long a memory may become."""

    told_tokens: int
    """What the model is told, and what is kept."""
    most_characters: int
    """What of its answer is kept at most."""

    @classmethod
    def within(cls, budget_tokens: int, told_tokens: int | None) -> MemoryLimits:
        """Those for prompts of this size; None: what the model is told is a share of it."""
        if told_tokens is None:
            share = budget_tokens // _MEMORY_SHARE
            told_tokens = min(max(share, _TOLD_TOKENS.start), _TOLD_TOKENS.stop)
        most = min(max(budget_tokens * 5 // 2, _LEAST_MEMORY_CHARACTERS), MAX_MEMORY_CHARACTERS)
        return cls(told_tokens, most)


class Planner:
    """Makes plans that fit into the model's window.

    Args:
        counter: Counts what the model is shown.
        budget_tokens: The largest prompt that it takes.
        prompt: How it is asked.
        limits: How long a memory may become.
        rewrite_prompt: How it is asked for a shorter memory.
    """

    def __init__(
        self,
        counter: TokenCounter,
        budget_tokens: int,
        prompt: Prompt,
        limits: MemoryLimits,
        rewrite_prompt: str = DEFAULT_REWRITE_INSTRUCTIONS,
    ) -> None:
        self._counter = counter
        self._budget = budget_tokens
        self._prompt = prompt
        self.limits = limits
        self._rewrite_prompt = rewrite_prompt

    def plan(self, conversation: Conversation, boundary: int, memory: MemoryVersion) -> Plan:
        """As much of what lies before `boundary` as can be shown at once.

        Where not even the first round of it fits, its longest messages are shown by their
        heads and tails.

        Raises:
            ConsolidationError: The memory alone fills the model's window.
        """
        room = self._room_tokens(memory.text)
        start, count = conversation.last_consolidated, self._counter.count_text
        rendered = _rendered(conversation, start, boundary)
        sizes = {place: count(text) + 1 for place, text in rendered.items()}
        end = self._fitting_end(conversation, boundary, sizes, room)
        texts = {place: text for place, text in rendered.items() if place < end}
        if sum(sizes[place] for place in texts) > room:
            limit = _level([sizes[place] for place in texts], room)
            texts = {place: shorten(text, limit - 1, count) for place, text in texts.items()}
        shown = "\n".join(texts.values())
        return Plan(_new_id(), conversation, start, end, shown, memory)

    def raw(self, conversation: Conversation, boundary: int, memory: MemoryVersion) -> Plan:
        """All of what lies before `boundary`, whole."""
        start = conversation.last_consolidated
        whole = _rendered(conversation, start, boundary, for_model=False)
        return Plan(_new_id(), conversation, start, boundary, "\n".join(whole.values()), memory)

    def question(self, plan: Plan) -> list[BaseMessage]:
        """What the model is asked."""
        return self._asking(plan.memory.text, plan.shown)

    def question_tokens(self, memory: str = "") -> int:
        """The tokens of a question about this memory, without a conversation."""
        asked = self._counter(self._asking(memory, ""))
        return asked + self._counter.count_tools([SAVE_MEMORY])

    @property
    def most_shown_tokens(self) -> int:
        """The tokens of memory and conversation that a question has room for."""
        return self._budget - self.question_tokens()

    def _asking(self, memory: str, shown: str) -> list[BaseMessage]:
        return build_prompt(self._prompt, memory, shown, limit=self.limit_text(memory))

    def limit_text(self, memory: str) -> str:
        """What a model is told of how long the memory may be, given the current one."""
        tokens, most = self._counter.count_text(memory), self.limits.told_tokens
        limit = f"memory_update: at most {most} tokens."
        if tags_in(memory):
            limit += " Keep the #tags of facts."
        if tokens > most:
            limit += f" The current memory has {tokens}: merge, and leave out what matters least."
        return limit

    def ask(self, model: BaseChatModel, plan: Plan) -> Generator[Call, Reply, Answer]:
        """Ask a model; see `answers.ask`. A memory that would fill its window is cut."""
        return ask(model, self.question(plan), self.limits.most_characters)

    def fitted(self, model: BaseChatModel, answer: Answer) -> Generator[Call, Reply, Answer]:
        """An answer whose memory is within its budget; what had to leave is in its entry."""
        update, most = answer.memory_update, self.limits.told_tokens
        if update is None:
            return answer
        kept = yield from fitted(
            model, update, most, self._counter.count_text, self._rewrite_prompt
        )
        return Answer(answer.history_entry + told(kept.left), kept.text)

    def extract(self, plan: Plan) -> Answer:
        """An answer made without a model: the sentences that say most. The memory stays."""
        said_at, count = plan.conversation.said_at, self._counter.count_text
        utterances = [
            Utterance(speaker_of(message), content_text(message.content), said_at(place))
            for place, message in enumerate(plan.messages, plan.start)
            if message_shape(message).role not in {"system", "tool", "function"}
        ]
        share = count(plan.shown) // _EXTRACT_SHARE
        most = min(max(share, _EXTRACT_TOKENS.start), _EXTRACT_TOKENS.stop)
        text = summarize_extractively(utterances, max_tokens=most, count_tokens=count)
        return Answer(f"[EXTRACTIVE] {text or 'nothing that could be put in a sentence'}", None)

    def _room_tokens(self, memory: str) -> int:
        room = self._budget - self.question_tokens(memory)
        memory_tokens = self._counter.count_text(memory)
        if room < _LEAST_ROOM_TOKENS and memory_tokens > self._budget // 2:
            raise ConsolidationError(
                f"MEMORY.md has {memory_tokens} tokens, which leaves no room in a prompt of "
                f"{self._budget}. Shorten it, or use a model with a larger window."
            )
        return max(room, _LEAST_ROOM_TOKENS)

    def _fitting_end(
        self, conversation: Conversation, boundary: int, sizes: dict[int, int], room: int
    ) -> int:
        """The last user turn that fits; with none, the last place that parts no round."""
        start = conversation.last_consolidated
        shapes = [message_shape(m) for m in conversation.messages[start:boundary]]
        turn = end = start
        used = 0
        for place in (start + cut for cut in cuts(shapes, 0, boundary - start)):
            size = sum(sizes.get(i, 0) for i in range(end, place))
            if used and used + size > room:
                break
            end, used = place, used + size
            if used and (place == boundary or shapes[place - start].role == "user"):
                turn = place
        return turn if turn > start else end


def _new_id() -> str:
    return uuid.uuid4().hex[:16]


def _rendered(
    conversation: Conversation, start: int, end: int, *, for_model: bool = True
) -> dict[int, str]:
    """The text of each message by its place. System messages are the program's, not said.

    Args:
        conversation: Whose messages.
        start: The first one.
        end: Behind the last one.
        for_model: Whether a model is shown it: then what people say of "yesterday" gets its date
            put behind it, and what came from the memory is left out, since it is in it already.
    """
    shown = _as_evidence if for_model else render_message
    return {
        place: shown(message, conversation.said_at(place))
        for place, message in enumerate(conversation.messages[start:end], start)
        if message.type != "system"
    }


def _as_evidence(message: BaseMessage, said_at: datetime | None) -> str:
    if message.type == "tool" and message.name == SEARCH_TOOL:
        message = message.model_copy(update={"content": _FROM_MEMORY})
    text = render_message(message, said_at)
    if said_at is None or message.type not in _PEOPLE:
        return text
    return resolve_relative_dates(text, said_at)


def _level(sizes: list[int], room: int) -> int:
    """The largest size to which the larger ones are cut so that all fit into `room`."""
    for left, size in zip(range(len(sizes), 0, -1), sorted(sizes), strict=True):
        if size * left > room:
            return max(room // left, 1)
        room -= size
    return max(sizes, default=1)
