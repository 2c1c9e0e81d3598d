"""A consolidation asked behind the conversation itself, as it stands in the provider's cache.

The prompt that the agent's model was sent last begins with the system prompt, the memory, and
the range that is to go into memory. Sent again up to there, with the question at its end, it is
read at the price of cached input.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, HumanMessage

from langchain_nanomem.answers import DEFAULT_INSTRUCTIONS, JSON_FORM, ask_behind
from langchain_nanomem.dates import relative_dates
from langchain_nanomem.memory import fence_memory
from langchain_nanomem.memory_outline import unkeyed
from langchain_nanomem.rendering import content_text, render_day
from langchain_nanomem.window import with_memory

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from langchain_core.language_models import BaseChatModel

    from langchain_nanomem.answers import Answer, Prompt
    from langchain_nanomem.conversation import Conversation
    from langchain_nanomem.memory_versions import MemoryVersion
    from langchain_nanomem.meter import Around, PromptMeter
    from langchain_nanomem.model_calls import Call, Reply
    from langchain_nanomem.planning import Plan, Planner

_FIRST_WORDS = 40
_DATES_TOKENS = 100
"""What the days of a range take, about."""
_INTRODUCTION = """\
This is no message of the user; it comes from the program. The conversation above, up to here, \
is about to leave your context window. The current memory is the one in the system prompt."""
_QUESTION = """\
Don't go on with the conversation, and call no tool. Write down what is to be remembered, in the \
language of the conversation:

history_entry: one paragraph for the event log, made to be found again by text search. Say what \
happened, what was asked, decided, done and found out, with names, numbers, paths and places as \
they were said, and every date as an absolute one ("yesterday", said on 2026-05-08, is 2026-05-07).

memory_update: the whole memory after this, as Markdown. Keep every fact that is still true, add \
the lasting ones that are new, correct those that have changed (the newer wins, with its date), \
and state each only once. What a search of the memory gave is not new. Leave out small talk. \
If nothing lasting was said, give the current memory unchanged."""


class InPlace:
    """Makes such plans, and asks.

    Args:
        planner: Makes the others, and knows how long a memory may become.
        meter: Knows how the prompt shows a window.
        prompt: Instructions of one's own, in place of the built-in ones.
        most_tokens: What the model takes, question included.
        cache_control: The mark that the prompt has of what is to be cached.
    """

    def __init__(
        self,
        planner: Planner,
        meter: PromptMeter,
        prompt: Prompt,
        most_tokens: int,
        cache_control: Mapping[str, Any] | None,
    ) -> None:
        self._planner = planner
        self._meter = meter
        own = isinstance(prompt, str) and prompt != DEFAULT_INSTRUCTIONS
        self._instructions = str(prompt) if own else _QUESTION
        self._most = most_tokens
        self._cache_control = cache_control

    def plan(
        self, conversation: Conversation, boundary: int, memory: MemoryVersion, around: Around
    ) -> Plan | None:
        """All of what lies before `boundary`.

        None where it does not fit, or the prompt does not have all of the memory.
        """
        block = self._meter.memory.block(conversation.scope)
        if block != fence_memory(unkeyed(memory.text)):
            return None
        before = replace(conversation, messages=list(conversation.messages[:boundary]))
        shown = self._meter.window(before).messages
        plan = self._planner.raw(conversation, boundary, memory)
        system = with_memory((), around.system_prompt, block, self._cache_control)
        sent = [*system, *shown, self._question(plan)]
        tokens = self._meter.counter(sent) + self._meter.count_tools(around.tools)
        return plan._replace(sent=sent, tools=around.tools) if tokens <= self._most else None

    @property
    def room_tokens(self) -> int:
        """What the prompt in front of the question may have, about."""
        parts = (_INTRODUCTION, self._instructions, self._planner.limit_text(""), JSON_FORM)
        asked = self._meter.counter([HumanMessage("\n\n".join(parts))])
        return self._most - asked - _DATES_TOKENS

    def ask(self, model: BaseChatModel, plan: Plan) -> Generator[Call, Reply, Answer | None]:
        """Ask; None where the model gave no such answer, and is to be asked in the usual way."""
        return ask_behind(model, plan.sent, plan.tools, self._planner.limits.most_characters)

    def _question(self, plan: Plan) -> BaseMessage:
        dates = "\n".join(_dates(plan))
        limit = self._planner.limit_text(plan.memory.text)
        parts = (_INTRODUCTION, self._instructions, dates, limit, JSON_FORM)
        return HumanMessage("\n\n".join(parts))


def _dates(plan: Plan) -> Iterator[str]:
    """A line for each day: from which message on it was that day, and what it calls other days."""
    yield "When it was said:"
    said = ((plan.conversation.said_at(i), m) for i, m in enumerate(plan.messages, plan.start))
    for day, some in groupby(said, key=lambda one: render_day(one[0])):
        messages = [(moment, content_text(message.content)) for moment, message in some]
        first = " ".join(messages[0][1].split())[:_FIRST_WORDS]
        named: dict[str, str] = {}
        for moment, text in messages:
            named |= relative_dates(text, moment) if moment else {}
        told = "".join(f"; {phrase!r} is {meant}" for phrase, meant in named.items())
        yield f"{day}: from {first!r} on{told}"
