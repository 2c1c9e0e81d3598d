"""The memory as it stands in a prompt."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from langchain_nanomem.errors import NanomemError, ScopeError
from langchain_nanomem.memory import MemoryStore, fence_memory
from langchain_nanomem.memory_lines import shown_with

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_nanomem.scopes import Scope

logger = logging.getLogger(__name__)

_REST = "[The rest of the memory does not fit here.]"


class MemoryView:
    """The memories of all scopes, as prompts show them.

    Args:
        memory: Gives the memory, or a function from a scope to its memory.
        budget_tokens: The largest prompt; half of it is the most that a memory takes.
        count_text: Counts a text.
        tags: Of the lines that have tags only those with one of these are shown; None: all.
    """

    def __init__(
        self,
        memory: Callable[[], MemoryStore | Callable[[Scope], MemoryStore]],
        budget_tokens: int,
        count_text: Callable[[str], int],
        tags: Sequence[str] | None = None,
    ) -> None:
        self._tags = tags
        self._memory = memory
        self._most = budget_tokens // 2
        self._count = count_text

    def store(self, scope: Scope) -> MemoryStore:
        """The memory of a scope.

        Raises:
            ScopeError: There is one memory, and it is another scope's.
        """
        memory = self._memory()
        if not isinstance(memory, MemoryStore):
            return memory(scope)
        if scope not in {(), memory.scope}:
            raise ScopeError(
                f"this consolidator has the memory of the scope {memory.scope!r} alone; the "
                f"session belongs to {scope!r}"
            )
        return memory

    def block(self, scope: Scope, fits: Callable[[str], bool] | None = None) -> str:
        """The fenced memory; "" where there is none, or, with a warning, it can't be read.

        Args:
            scope: Whose memory.
            fits: Tells of a block whether there is room for it beside what else must be there;
                the memory is shortened until there is. None: always.
        """
        try:
            memory = self.store(scope).read_long_term()
            text = self._bounded(shown_with(memory, self._tags))
            return fence_memory(text) if fits is None else _fitting_block(text, fits)
        except (OSError, NanomemError) as error:
            if isinstance(error, ScopeError):
                raise
            logger.warning("the memory is left out of the prompt: %s", error)
            return ""

    def _bounded(self, memory: str) -> str:
        """As many lines of the memory, from its start, as half the budget holds."""
        if self._count(memory) <= self._most:
            return memory
        logger.warning("MEMORY.md is larger than half the budget; only its start is in the prompt")
        return _start_of(memory, self._most, self._count) + _REST


def _fitting_block(memory: str, fits: Callable[[str], bool]) -> str:
    """The block of as many lines of the memory as there is room for; "" with no room at all."""
    block = fence_memory(memory)
    if block and not fits(block):
        logger.warning("what was said last leaves no room for all of the memory in the prompt")
    while block and not fits(block):
        memory = memory[: memory.rfind("\n", 0, len(memory) * 4 // 5) + 1]
        block = fence_memory(memory + _REST) if memory else ""
    return block


def _start_of(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """As many lines of it, from its start, as have no more tokens than that."""
    while text and (tokens := count(text)) > max_tokens:
        share = min(max(max_tokens, 0) / tokens, 0.95)
        text = text[: text.rfind("\n", 0, int(len(text) * share)) + 1]
    return text
