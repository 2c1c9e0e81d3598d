"""When a conversation is consolidated, and how far down. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

_ENTRY_TOKENS = 150
"""About what an entry for HISTORY.md takes."""
_FIRST_MEMORY_TOKENS = 200
"""About what a memory takes that there is none of yet."""
_LEAST_TURNS = 2
"""The distance is never below so many turns: else it would run at every turn."""


class Situation(Protocol):
    """What a prompt is made of now. Each is counted when it is asked for."""

    @property
    def budget_tokens(self) -> int:
        """The largest prompt."""
        ...

    @property
    def fixed_tokens(self) -> int:
        """System prompt, tools, and the system messages of the conversation."""
        ...

    @property
    def memory_tokens(self) -> int:
        """The memory block."""
        ...

    @property
    def live_tokens(self) -> int:
        """The live window."""
        ...

    @property
    def live_calls(self) -> int:
        """In how many model calls the live window grew: the answers in it."""
        ...

    @property
    def live_turns(self) -> int:
        """The user messages in the live window."""
        ...

    @property
    def question_tokens(self) -> int:
        """What a consolidation asks, beside the memory and the conversation."""
        ...

    @property
    def reuses_prompt(self) -> bool:
        """Whether a consolidation reads the prompt as it stands in the provider's cache."""
        ...

    @property
    def range_tokens(self) -> int:
        """How much of the conversation, about, one call of the consolidating model can read."""
        ...


class Thresholds(NamedTuple):
    """When it begins, and where it ends."""

    trigger_tokens: int
    """A prompt of so many tokens, or more, is consolidated. At most the budget."""
    target_tokens: int
    """What a consolidation brings it down to, if it can. At most the trigger."""
    reason: str
    """Why these, in a sentence for people."""


class ConsolidationPolicy(Protocol):
    """Says when a conversation is consolidated, and how far down."""

    def thresholds(self, situation: Situation) -> Thresholds:
        """The thresholds for a prompt as it is now. Asked before each model call."""
        ...


@dataclass(frozen=True)
class FixedRatioPolicy:
    """Begins at the budget, and goes down to a share of it. The default.

    Raises:
        ValueError: The ratio is not in (0, 1].
    """

    ratio: float = 0.5
    """The share of the budget that is left."""

    def __post_init__(self) -> None:
        if not 0 < self.ratio <= 1:
            raise ValueError(f"consolidation_ratio must be in (0, 1], not {self.ratio}")

    def thresholds(self, situation: Situation) -> Thresholds:
        """The budget, and the share of it."""
        budget = situation.budget_tokens
        target = int(budget * self.ratio)
        return Thresholds(budget, target, f"fixed: {self.ratio:g} of the budget of {budget}")


@dataclass(frozen=True)
class CostAwarePolicy:
    """Picks the thresholds that cost least, from how fast the conversation grows.

    A long window is paid for at every call, at the price of cached input. A consolidation is
    paid for once: the question and the memory are read, an answer is written, and what then
    stands behind the changed memory is read again without the cache. With a growth of g tokens
    a call, K the price of a consolidation, and c that of a cached token, the cheapest distance
    between target and trigger is √(2·g·K / c): the rule for the lot size of a warehouse
    (F. W. Harris, 1913). As few tokens are kept as allowed: each is paid for at every call, and
    once more at every consolidation.

    Prices are relative to each other, in any unit. The defaults are what most providers take.

    Raises:
        ValueError: A number is negative, or `input_price` is 0.
    """

    keep_tokens: int = 400
    """How many tokens of the conversation stay verbatim at least, where its turns are even."""
    mean_tokens: int = 0
    """How many of them stand verbatim in a prompt on average, at least. 0: as is cheapest.

    Verbatim text beyond that is bought at the least price, as far as the budget goes."""
    input_price: float = 1.0
    """Of an input token that the provider has not cached."""
    cached_input_price: float = 0.1
    """Of an input token that it has."""
    output_price: float = 5.0
    """Of an output token."""

    def __post_init__(self) -> None:
        numbers = vars(self)
        negative = [name for name, number in numbers.items() if not number >= 0]
        if negative or not self.input_price:
            name = (negative or ["input_price"])[0]
            raise ValueError(f"{name} must not be {numbers[name]}")

    def thresholds(self, situation: Situation) -> Thresholds:
        """The cheapest ones that the budget allows."""
        around = situation.fixed_tokens + situation.memory_tokens
        room = max(situation.budget_tokens - around, 0)
        growth = situation.live_tokens / max(situation.live_calls, 1)
        turn = situation.live_tokens / max(situation.live_turns, 1)
        best = self._cheapest_distance(situation, growth)
        # A turn over the trigger goes too, and what goes ends with a turn.
        ahead = min(2 * turn, situation.range_tokens / 5)
        once = max(situation.range_tokens - ahead, 0)
        kept, distance = self._within(room, min(best, once), turn)
        trigger = min(around + kept + distance, situation.budget_tokens)
        reason = (
            f"cost-aware: at {growth:.0f} tokens a call, {best:.0f} tokens between consolidations "
            f"cost least; {distance} of the {room} that there is room for, and {kept} are kept"
        )
        return Thresholds(trigger, min(around + kept, trigger), reason)

    def _cheapest_distance(self, situation: Situation, growth: float) -> float:
        """The tokens from target to trigger that cost least; endless where the cache is free."""
        memory = situation.memory_tokens or _FIRST_MEMORY_TOKENS
        asked = self.input_price * situation.question_tokens
        if situation.reuses_prompt:
            read = situation.fixed_tokens + situation.memory_tokens
            asked += self.cached_input_price * read
        else:
            asked += self.input_price * situation.memory_tokens
        answered = self.output_price * (_ENTRY_TOKENS + memory)
        once_more = max(self.input_price - self.cached_input_price, 0) * (memory + self.keep_tokens)
        if not self.cached_input_price:
            return math.inf
        return math.sqrt(2 * growth * (asked + answered + once_more) / self.cached_input_price)

    def _within(self, room: int, best: float, turn: float) -> tuple[int, int]:
        """The live tokens that are kept, and the distance above them, within `room`.

        What goes ends with a turn, so up to a turn more than is asked for goes.
        """
        keep, mean = min(self.keep_tokens + turn, room), self.mean_tokens + turn / 2
        distance = min(max(best, 2 * (mean - keep)), room - keep)
        if self.mean_tokens and keep + distance / 2 < mean:  # only a shorter saw is so high
            distance = 2 * (room - mean)
        distance = int(min(max(distance, _LEAST_TURNS * turn), room))
        return int(max(keep, min(mean - distance / 2, room - distance))), distance
