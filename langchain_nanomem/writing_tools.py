"""Tools with which an agent writes, corrects and forgets facts of its memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from langchain_core.runnables import RunnableConfig  # noqa: TC002 - the tool's schema is read from it
from langchain_core.tools import BaseTool, StructuredTool

from langchain_nanomem.errors import RedactionError
from langchain_nanomem.memory_lines import lines_about, with_fact, with_line
from langchain_nanomem.memory_outline import bare, unmarked
from langchain_nanomem.scoped_memory import ScopedMemory
from langchain_nanomem.session import utc_now
from langchain_nanomem.tokens import TokenCounter

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.memory import MemoryStore
    from langchain_nanomem.scopes import Scope

REMEMBER_TOOL, FORGET_TOOL = "remember", "forget"
_MAX_CHARACTERS = 500
_MAX_TOKENS = 4_000
_SHOWN_LINES = 8
_DATED = re.compile(r"\b\d{4}-\d\d(?:-\d\d)?\b")


def create_remember_tool(  # noqa: PLR0913 - options with a default
    memory: MemoryStore | Callable[[Scope], MemoryStore],
    sessions: SessionManager,
    *,
    scope_of: Callable[[RunnableConfig], Scope] | None = None,
    max_memory_tokens: int = _MAX_TOKENS,
    token_counter: TokenCounter | None = None,
    now: Callable[[], datetime] | None = None,
) -> BaseTool:
    """A tool, ``remember``, with which the agent puts a fact into MEMORY.md, or corrects one.

    A fact is one line of at most 500 characters: line breaks become spaces, so that it can be
    neither a heading nor a fence, and it is marked with the day it was noted on. It goes through
    the redaction; what that blocks is refused. It is written as a person's edit is: atomically,
    the version before is archived, and a consolidation under way takes it up. In a prompt it is
    reference data like the rest of the memory, whatever it says.

    The tool answers in a sentence where nothing is written: the fact is known, too long or
    blocked, the memory is full, the line to correct is not there or not the only one, or the
    conversation is off the record.

    Args:
        memory: The memory, or a function from a scope to its memory.
        sessions: Where the sessions are kept.
        scope_of: Whose memory a run uses; by default what the session in the config is bound
            to, else the memory's own.
        max_memory_tokens: What MEMORY.md may have; a fact that would make it longer is refused.
        token_counter: Counts that; by default `TokenCounter()`.
        now: What time it is; by default the clock's, in UTC.

    Raises:
        ValueError: `max_memory_tokens` is below 1.
    """
    if max_memory_tokens < 1:
        raise ValueError(f"max_memory_tokens must be 1 or more, not {max_memory_tokens}")
    whose = ScopedMemory(memory, sessions, scope_of)
    notes = _Notes(max_memory_tokens, token_counter or TokenCounter(), now or utc_now)

    def remember(fact: str, config: RunnableConfig, replaces: str = "") -> str:  # noqa: D417 - the model sees no config
        """Put a lasting fact into the memory of all conversations, or correct one.

        Args:
            fact: One sentence, with names and absolute dates; a #tag may follow.
            replaces: The line of the memory that it takes the place of.
        """
        if whose.is_off_the_record(config):
            return "Nothing is remembered: this conversation is off the record."
        return _refusing(lambda: notes.put(whose.store(config), fact, replaces))

    return StructuredTool.from_function(remember, name=REMEMBER_TOOL, parse_docstring=True)


def create_forget_tool(
    memory: MemoryStore | Callable[[Scope], MemoryStore],
    sessions: SessionManager,
    *,
    scope_of: Callable[[RunnableConfig], Scope] | None = None,
) -> BaseTool:
    """A tool, ``forget``, with which the agent takes a fact out of MEMORY.md.

    One line goes at a time; where several are meant, they are named and none goes. What was said
    stays in the session, the log, and the archived version, from which a person can bring it
    back: to remove all traces, see `Nanomem.erase`.

    Args:
        memory: The memory, or a function from a scope to its memory.
        sessions: Where the sessions are kept.
        scope_of: Whose memory a run uses; see `create_remember_tool`.
    """
    whose = ScopedMemory(memory, sessions, scope_of)

    def forget(fact: str, config: RunnableConfig) -> str:  # noqa: D417 - the model sees no config
        """Take a fact out of the memory of all conversations.

        Args:
            fact: The line of the memory, or words that only it has.
        """
        return _refusing(lambda: _take_out(whose.store(config), fact))

    return StructuredTool.from_function(forget, name=FORGET_TOOL, parse_docstring=True)


class _Change(NamedTuple):
    """What a memory is to be, if it is to change, and what the model is told."""

    text: str | None
    told: str


class _Notes:
    """Puts facts into a memory.

    Args:
        max_tokens: What it may have.
        counter: Counts it.
        now: What time it is.
    """

    def __init__(self, max_tokens: int, counter: TokenCounter, now: Callable[[], datetime]) -> None:
        self._max_tokens = max_tokens
        self._counter = counter
        self._now = now

    def put(self, store: MemoryStore, fact: str, replaces: str) -> str:
        """Put a fact in, and say what was done."""
        line = unmarked(" ".join(store.cleaned(" ".join(fact.split())).split()))
        if not line:
            return "Nothing is remembered: the fact is empty."
        if len(line) > _MAX_CHARACTERS:
            return (
                f"Nothing is remembered: the fact has {len(line)} characters, and may have "
                f"{_MAX_CHARACTERS}. Say it in a sentence."
            )
        noted = "" if _DATED.search(line) else f"({self._now():%Y-%m-%d})"
        dated = f"{line} {noted}".rstrip()
        if (cleaned := store.cleaned(dated)) != dated:  # the day has completed something
            line, noted = cleaned, ""
        return _changed(store, lambda text: self._with(text, line, noted, replaces))

    def _with(self, text: str, fact: str, noted: str, replaces: str) -> _Change:
        line = f"{fact} {noted}".rstrip()
        if replaces.strip():
            change = _at_the_line(text, replaces, line, f"Corrected: {line}")
        else:
            change = _Change(with_fact(text, fact, noted), f"Remembered: {line}")
            if change.text is None:
                return _Change(None, "The memory says that already.")
        if change.text is None:
            return change
        tokens = self._counter.count_text(change.text)
        if tokens > max(self._max_tokens, self._counter.count_text(text)):
            return _Change(
                None,
                f"Nothing is remembered: the memory is full ({tokens} of {self._max_tokens} "
                "tokens). Correct a line in place of adding one, or forget one first.",
            )
        return change


def _take_out(store: MemoryStore, fact: str) -> str:
    return _changed(store, lambda text: _at_the_line(text, fact, None, "Forgotten"))


def _at_the_line(text: str, meant: str, line: str | None, done: str) -> _Change:
    """The change of the one line that is meant; or why there is none."""
    places, lines = lines_about(text, meant), text.split("\n")
    if len(places) == 1:
        old = bare(lines[places[0]])
        return _Change(with_line(text, places[0], line), f"{done} (it was: {old})")
    if not places:
        return _Change(None, f"Nothing is changed: no line of the memory says {meant!r}.")
    named = "\n".join(f"- {bare(lines[place])}" for place in places[:_SHOWN_LINES])
    return _Change(
        None, f"Nothing is changed: {len(places)} lines say that. Give one of them whole:\n{named}"
    )


def _changed(store: MemoryStore, change: Callable[[str], _Change]) -> str:
    """Change the memory as it is now, whoever changes it meanwhile.

    The line that is put in was looked at; what a person wrote elsewhere is no reason to refuse it.
    """
    while True:
        current = store.read_version()
        made = change(current.text)
        if made.text is None or store.replace_long_term(
            made.text, expected_version=current.version, is_cleaned=True
        ):
            return made.told


def _refusing(work: Callable[[], str]) -> str:
    """What was done; where the redaction refuses it, why."""
    try:
        return work()
    except RedactionError as error:
        return f"Nothing is remembered: {error}"
