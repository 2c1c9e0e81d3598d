"""How a single fact gets into MEMORY.md: one line, cleaned, dated, if there is room for it.

It is written as a person's edit is: atomically, whoever changes the memory meanwhile.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from langchain_nanomem.memory_outline import unkeyed, unmarked
from langchain_nanomem.session import utc_now
from langchain_nanomem.tokens import TokenCounter

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from langchain_nanomem.memory import MemoryStore

MAX_MEMORY_TOKENS = 4_000
_MAX_CHARACTERS = 500
_DATED = re.compile(r"\b\d{4}-\d\d(?:-\d\d)?\b")


class UnfitFactError(ValueError):
    """A fact that can't be noted; its text says why, in a sentence for a model."""


class Fact(NamedTuple):
    """A fact as it may be noted."""

    text: str
    noted: str
    """When it was noted, such as ``(2026-05-08)``; "" where it has a date of its own."""

    @property
    def line(self) -> str:
        """Both."""
        return f"{self.text} {self.noted}".rstrip()


class Change(NamedTuple):
    """What a memory is to be, if it is to change, and what is told of it."""

    text: str | None
    told: str


class Noting:
    """Makes facts ready to be put into a memory.

    Args:
        max_tokens: What the memory may have.
        counter: Counts it; None: a `TokenCounter`.
        now: What time it is; None: the clock's.

    Raises:
        ValueError: `max_tokens` is below 1.
    """

    def __init__(
        self,
        max_tokens: int,
        counter: TokenCounter | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        if max_tokens < 1:
            raise ValueError(f"max_memory_tokens must be 1 or more, not {max_tokens}")
        self._max_tokens = max_tokens
        self._counter = counter or TokenCounter()
        self._now = now or utc_now

    def fact(self, store: MemoryStore, text: str) -> Fact:
        """A text as a fact of a memory.

        Raises:
            UnfitFactError: It is blank or too long.
            RedactionError: It has something that must not be written.
        """
        line = unmarked(" ".join(store.cleaned(" ".join(text.split())).split()))
        if not line:
            raise UnfitFactError("Nothing is remembered: the fact is empty.")
        if len(line) > _MAX_CHARACTERS:
            raise UnfitFactError(
                f"Nothing is remembered: the fact has {len(line)} characters, and may have "
                f"{_MAX_CHARACTERS}. Say it in a sentence."
            )
        made = Fact(line, "" if _DATED.search(line) else f"({self._now():%Y-%m-%d})")
        cleaned = store.cleaned(made.line)  # the day may have completed something
        return made if cleaned == made.line else Fact(cleaned, "")

    def check_room(self, before: str, after: str) -> None:
        """See that a memory has room for what it is to be.

        Raises:
            UnfitFactError: It has not, and is to be longer than it was.
        """
        tokens, before_it = (self._counter.count_text(unkeyed(text)) for text in (after, before))
        if tokens > max(self._max_tokens, before_it):
            raise UnfitFactError(
                f"Nothing is remembered: the memory is full ({tokens} of {self._max_tokens} "
                "tokens). Correct a line in place of adding one, or forget one first."
            )


def changed(store: MemoryStore, change: Callable[[str], Change]) -> str:
    """Change a memory as it is now, whoever changes it meanwhile; gives what is told.

    The line that is put in was looked at; what a person wrote elsewhere is no reason to refuse it.
    """
    while True:
        current = store.read_version()
        made = change(current.text)
        if made.text is None or store.replace_long_term(
            made.text, expected_version=current.version, is_cleaned=True
        ):
            return made.told
