"""One conversation through one approach, and what that cost."""

from __future__ import annotations

import re
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prompt_cost_approaches import (
    CONFIG,
    MEMORY_SHARE,
    Approach,
    Parts,
    Setting,
    conversation_tools,
    opened,
    question,
    scratch,
)
from prompt_cost_models import COUNTER, Asked, Replaying, Summarizing, as_said

if TYPE_CHECKING:
    from prompt_cost_conversations import Talk

CACHED_PRICE = 0.1
_ASKED_WORDS = 12
_PASSAGE_CHARACTERS = 400


def priced(cached: int, uncached: int, written: int, output_price: float) -> float:
    """What tokens cost, in uncached tokens of input."""
    return uncached + CACHED_PRICE * cached + output_price * written


@dataclass
class Measured:
    """What one run took. Tokens, unless its name says otherwise."""

    approach: str
    talk: str
    window: int
    knob: float
    said: int
    prompts: int
    uncached: int
    summary_calls: int
    summary_input: int
    summary_cached: int
    """Of their input, what is in the provider's cache: a prefix of the agent's last prompt."""
    summary_output: int
    largest: int
    over_window: int
    """Prompts that are over the window, though the last user message alone is not."""
    lost_question: int
    """Prompts without the user's last message."""
    shown_share: float
    """Of the texts that left the prompt, those that a summariser was shown."""
    verbatim: float
    """The mean of the conversation's own words in a prompt."""
    evidence: int
    evidence_verbatim: int
    evidence_reachable: int
    systems: int
    """Different system prompts, tools included."""
    systems_changed: int
    """Prompts whose system part is not that of the prompt before, with no summary in between."""
    turn_ms: float

    def cost(self, output_price: float) -> float:
        """In uncached tokens of input."""
        cached = self.prompts - self.uncached + self.summary_cached
        uncached = self.uncached + self.summary_input - self.summary_cached
        return priced(cached, uncached, self.summary_output, output_price)

    def as_json(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)


def measure(approach: Approach, talk: Talk, setting: Setting) -> Measured:
    """Run a conversation through an approach."""
    with scratch() as place:
        replies = [reply for one in talk.exchanges for reply in one.replies]
        agent = Replaying(replies=replies)
        most = setting.budget_tokens // MEMORY_SHARE
        parts = Parts(
            agent,
            Summarizing(facts=talk.facts, most_tokens=most, agent=agent),
            conversation_tools(talk),
            setting,
            Path(place),
        )
        graph = approach.build(parts)
        asked_for, times = [], []
        for exchange in talk.exchanges:
            before, begun = len(parts.agent.prompts), time.perf_counter() - parts.own_seconds
            graph.invoke({"messages": [question(exchange.question)]}, CONFIG)
            times.append(time.perf_counter() - parts.own_seconds - begun)
            asked_for += [exchange.question] * (len(parts.agent.prompts) - before)
        last = parts.agent.prompts[-1].text
        gone = [text for text in talk.evidence if text not in last]
        reachable = _searched(parts, gone) if approach.keeps_all else 0
        return _measured(approach, talk, parts, Course(asked_for, times, reachable))


@dataclass
class Course:
    """What happened in a run."""

    questions: list[str]
    """For each prompt, what the user had said."""
    seconds: list[float]
    """What each turn took."""
    found: int
    """The evidence that is not in the last prompt, and that a tool finds."""


def _measured(approach: Approach, talk: Talk, parts: Parts, course: Course) -> Measured:
    prompts, window = parts.agent.prompts, parts.setting.window_tokens
    summaries = parts.summarizer.prompts
    verbatim = _Verbatim(talk.said)
    shown = as_said("\n".join(prompt.text for prompt in summaries))
    last = prompts[-1].text
    evicted = [text for text in talk.said if not verbatim.holds(last, text)]
    evicted.remove(talk.exchanges[-1].replies[-1].content)  # it has not been in a prompt yet
    over = [
        prompt.tokens > window and COUNTER.count_text(one) < window
        for prompt, one in zip(prompts, course.questions, strict=True)
    ]
    seen = [text for text in talk.evidence if text in last]
    return Measured(
        approach=approach.name,
        talk=talk.name,
        window=window,
        knob=parts.setting.knob,
        said=sum(map(COUNTER.count_text, talk.said)),
        prompts=sum(prompt.tokens for prompt in prompts),
        uncached=_uncached(prompts),
        summary_calls=len(summaries),
        summary_input=sum(prompt.tokens for prompt in summaries),
        summary_cached=parts.summarizer.cached_tokens,
        summary_output=parts.summarizer.written_tokens,
        largest=max(prompt.tokens for prompt in prompts),
        over_window=sum(over),
        lost_question=sum(
            one not in prompt.text for prompt, one in zip(prompts, course.questions, strict=True)
        ),
        shown_share=sum(verbatim.holds(shown, text) for text in evicted) / max(len(evicted), 1),
        verbatim=sum(map(verbatim.tokens, prompts)) / len(prompts),
        evidence=len(talk.evidence),
        evidence_verbatim=len(seen),
        evidence_reachable=len(seen) + course.found,
        systems=len({prompt.system for prompt in prompts}),
        systems_changed=_unexplained(prompts, set(parts.summarizer.before)),
        turn_ms=1_000 * sorted(course.seconds)[len(course.seconds) // 2],
    )


def _uncached(prompts: list[Asked]) -> int:
    before: Asked | None = None
    total = 0
    for prompt in prompts:
        total += prompt.tokens - prompt.cached_after(before)
        before = prompt
    return total


class _Verbatim:
    """Finds the conversation's own words in prompts."""

    def __init__(self, said: list[str]) -> None:
        self._tokens = {text: COUNTER.count_text(text) for text in said}

    def holds(self, prompt: str, text: str) -> bool:
        """Whether a text is in a prompt; of a long one, its head and its tail."""
        return text in prompt or (text[:80] in prompt and text[-80:] in prompt)

    def tokens(self, prompt: Asked) -> int:
        """The words in a prompt that were said, each part once."""
        parts = (part.partition(": ")[2] for part, _ in prompt)
        return sum(self._tokens.get(self._said(part), 0) for part in parts)

    def _said(self, part: str) -> str:
        return part.partition('[{"name"')[0] if part not in self._tokens else part


def _unexplained(prompts: list[Asked], summarized_before: set[int]) -> int:
    """The prompts whose system part changed without a summary."""
    pairs = enumerate(pairwise(prompts), 1)
    return sum(
        old.system != new.system and number not in summarized_before for number, (old, new) in pairs
    )


def _searched(parts: Parts, texts: list[str]) -> int:
    """How many of the texts our search tool gives, when asked for the words they begin with."""
    (tool,) = opened(parts).tools()
    found = 0
    for text in texts:
        words = re.findall(r"\w+", text)[:_ASKED_WORDS]
        found += _head(text) in tool.invoke({"query": " ".join(words)}, CONFIG)
    return found


def _head(text: str) -> str:
    """As much of a text as a passage shows of it."""
    return text[:_PASSAGE_CHARACTERS]
