"""The models of the benchmark: one replays the answers, one writes summaries from what is recorded.

Every summary is made by one rule, so that nobody is favoured. The text that stays in the prompt
(a summary, or MEMORY.md) has a tenth of the largest prompt; it is made of the facts that were
recorded for the messages shown, in this call or an earlier one, the latest ones. An entry for
HISTORY.md, which only we have written, has 120 tokens more.
"""

from __future__ import annotations

import html
import json
import re
import time
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field, PrivateAttr

from langchain_nanomem import TokenCounter

COUNTER = TokenCounter()
ENTRY_TOKENS = 120
_DATED = re.compile(r" \((?:(?:around|week of|weekend of) )?\d{4}(?:-\d\d){0,2}\)")


class Asked(list[tuple[str, int]]):
    """What a model was asked: its parts in order (tools, then messages), each with its tokens."""

    @property
    def tokens(self) -> int:
        """All of it."""
        return sum(tokens for _, tokens in self)

    @property
    def text(self) -> str:
        """All of it, as a text."""
        return "\n".join(text for text, _ in self)

    @property
    def system(self) -> str:
        """The part that no message of the conversation is in."""
        return "\n".join(text for text, _ in self if text.startswith(("system: ", "[{")))

    def cached_after(self, before: Asked | None) -> int:
        """The tokens of the longest common prefix with the prompt before."""
        cached = 0
        for (text, tokens), (old, _) in zip(self, before or (), strict=False):
            if text != old:
                return cached + COUNTER.count_text(_common(text, old))
            cached += tokens
        return cached


def as_said(text: str) -> str:
    """What a summariser was shown, as it was said: without the dates put behind relative ones."""
    return _DATED.sub("", html.unescape(text))


def _common(text: str, other: str) -> str:
    """What both begin with."""
    pairs = enumerate(zip(text, other, strict=False))
    end = next((i for i, (a, b) in pairs if a != b), min(len(text), len(other)))
    return text[:end]


def asked(messages: list[BaseMessage], tools: list[Any]) -> Asked:
    """The parts of a prompt."""
    parts = Asked()
    if tools:
        schemas = [convert_to_openai_tool(tool) for tool in tools]
        parts.append((json.dumps(schemas), COUNTER.count_tools(schemas)))
    for message in messages:
        calls = getattr(message, "tool_calls", None) or ""
        text = f"{message.type}: {_text(message.content)}{json.dumps(calls) if calls else ''}"
        parts.append((text, COUNTER.count_message(message)))
    return parts


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(b if isinstance(b, str) else str(b.get("text", b)) for b in content)


class Recording(BaseChatModel):
    """Keeps what it was asked."""

    prompts: list[Asked] = Field(default_factory=list)
    own_seconds: float = 0.0
    """What the keeping and counting took: no part of a turn."""

    @property
    def _llm_type(self) -> str:
        return "recording"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        """The model with tools, which are recorded with each prompt."""
        return self.bind(tools=list(tools))

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - the base class's form
        run_manager: Any = None,  # noqa: ARG002 - the base class's form
        **kwargs: Any,
    ) -> ChatResult:
        begun = time.perf_counter()
        self.prompts.append(asked(messages, kwargs.get("tools") or []))
        answer = self._answer(self.prompts[-1])
        self.own_seconds += time.perf_counter() - begun
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def _answer(self, prompt: Asked) -> AIMessage:
        raise NotImplementedError


class Replaying(Recording):
    """Says what the assistant said."""

    replies: list[AIMessage]
    _next: int = PrivateAttr(0)

    def _answer(self, prompt: Asked) -> AIMessage:  # noqa: ARG002 - it knows what to say
        reply = self.replies[self._next]
        self._next += 1
        return reply.model_copy(update={"id": f"answer-{self._next}"})


class Summarizing(Recording):
    """Writes what was recorded of what it is shown; see above for the rule."""

    facts: list[tuple[str, str]]
    most_tokens: int
    agent: Replaying
    written_tokens: int = 0
    cached_tokens: int = 0
    """What of the prompts the provider has cached of the agent's last prompt."""
    before: list[int] = Field(default_factory=list)
    """For each summary, the number of the agent's prompts before it."""
    _known: dict[str, None] = PrivateAttr(default_factory=dict)
    _saves: bool = PrivateAttr(default=False)

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """The model with tools; with `save_memory` forced it answers by calling that."""
        return self.bind(tools=list(tools), saves=kwargs.get("tool_choice") == "save_memory")

    def _generate(self, messages: Any, *args: Any, saves: bool = False, **kwargs: Any) -> Any:
        self._saves = saves
        return super()._generate(messages, *args, **kwargs)

    def _answer(self, prompt: Asked) -> AIMessage:
        self.cached_tokens += prompt.cached_after(self.agent.prompts[-1])
        self.before.append(len(self.agent.prompts))
        shown = as_said(prompt.text)
        for fact, source in self.facts:
            if source in shown:
                self._known.setdefault(fact)
        text = _cut("\n".join(f"- {fact}" for fact in reversed(self._known)), self.most_tokens)
        if not self._saves and "history_entry" not in prompt[-1][0]:
            self.written_tokens += COUNTER.count_text(text)
            return AIMessage(text)
        entry = _cut(" ".join(reversed(self._known)) or "They talked.", ENTRY_TOKENS)
        self.written_tokens += COUNTER.count_text(text) + COUNTER.count_text(entry)
        args = {"history_entry": entry, "memory_update": text}
        if not self._saves:
            return AIMessage(json.dumps(args))
        return AIMessage("", tool_calls=[{"name": "save_memory", "args": args, "id": "call"}])


def _cut(text: str, tokens: int) -> str:
    while COUNTER.count_text(text) > tokens:
        text = text[: min(len(text) - 1, len(text) * tokens // COUNTER.count_text(text))]
    return text or "-"
