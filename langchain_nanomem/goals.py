"""What a consolidation is for: how large a prompt is, and how much of it is to go."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from typing_extensions import override

if TYPE_CHECKING:
    from langchain_nanomem.policy import Thresholds

Measure = Callable[[], int]
EVERYTHING_TOKENS = 2**62


class Goal:
    """How far a conversation is to be consolidated.

    Args:
        estimate: Counts the prompt as it is now.
    """

    reason = ""
    """Why, in a sentence for people."""

    def __init__(self, estimate: Measure) -> None:
        self._estimate = estimate
        self.tokens = 0
        """The prompt when it was counted last."""

    def excess(self, *, begun: bool) -> int:
        """How many tokens are to go, now that it has begun or not; below 1: none."""
        self.tokens = self._estimate()
        return self._excess_begun() if begun else self._excess_first()

    def _excess_first(self) -> int:
        raise NotImplementedError

    def _excess_begun(self) -> int:
        raise NotImplementedError


class WithinThresholds(Goal):
    """Begins at the trigger, ends at the target.

    Args:
        estimate: Counts the prompt as it is now.
        thresholds: Tells trigger and target; asked once.
        memory_tokens: Counts the memory in the prompt. What it grows by meanwhile does not
            count then: to make room for that too may take one more consolidation, of a turn.
            None: it counts.
    """

    def __init__(
        self,
        estimate: Measure,
        thresholds: Callable[[], Thresholds],
        memory_tokens: Measure | None,
    ) -> None:
        super().__init__(estimate)
        self._thresholds = thresholds
        self._memory = memory_tokens or int
        self._target = self._memory_first = 0

    @override
    def _excess_first(self) -> int:
        trigger, self._target, why = self._thresholds()
        self.reason = f"{self.tokens} tokens; from {trigger} on it goes to {self._target}: {why}"
        if self.tokens < trigger:
            return 0
        self._memory_first = self._memory()
        return self.tokens - self._target

    @override
    def _excess_begun(self) -> int:
        grown = max(self._memory() - self._memory_first, 0)
        return self.tokens - grown - self._target


class Halved(Goal):
    """Takes out half at least, in one round: the provider has refused the prompt.

    Args:
        estimate: Counts the prompt as it is now.
        target_tokens: Tells what it would be brought down to, were it too large by our count.
    """

    reason = "the provider refused the prompt as too long"

    def __init__(self, estimate: Measure, target_tokens: Measure) -> None:
        super().__init__(estimate)
        self._target = target_tokens

    @override
    def _excess_first(self) -> int:
        return max(self.tokens - self._target(), (self.tokens + 1) // 2)

    @override
    def _excess_begun(self) -> int:
        return 0


class AllButTheLast(Goal):
    """Takes out all that lies before the last boundary that there is at the beginning.

    Args:
        estimate: Counts the prompt as it is now.
        pointer: The number of messages in memory now.
        last_boundary: Where the last range would end now.
    """

    reason = "asked for"

    def __init__(self, estimate: Measure, pointer: Measure, last_boundary: Measure) -> None:
        super().__init__(estimate)
        self._pointer = pointer
        self._last = last_boundary
        self._end = 0

    @override
    def _excess_first(self) -> int:
        self._end = self._last()
        return self._excess_begun()

    @override
    def _excess_begun(self) -> int:
        return EVERYTHING_TOKENS if self._pointer() < self._end else 0
