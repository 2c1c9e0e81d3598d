"""Tools with which an agent writes, corrects and forgets facts of its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.runnables import RunnableConfig  # noqa: TC002 - the tool's schema is read from it
from langchain_core.tools import BaseTool, StructuredTool

from langchain_nanomem.errors import RedactionError
from langchain_nanomem.memory_lines import lines_about, with_fact, with_line
from langchain_nanomem.memory_outline import bare, unkeyed
from langchain_nanomem.noting import (
    MAX_MEMORY_TOKENS,
    Change,
    Noting,
    UnfitFactError,
    changed,
)
from langchain_nanomem.scoped_memory import ScopedMemory

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.memory import MemoryStore
    from langchain_nanomem.scopes import Scope
    from langchain_nanomem.tokens import TokenCounter

REMEMBER_TOOL, FORGET_TOOL = "remember", "forget"
_SHOWN_LINES = 8


def create_remember_tool(  # noqa: PLR0913 - options with a default
    memory: MemoryStore | Callable[[Scope], MemoryStore],
    sessions: SessionManager,
    *,
    scope_of: Callable[[RunnableConfig], Scope] | None = None,
    max_memory_tokens: int = MAX_MEMORY_TOKENS,
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
    whose = ScopedMemory(memory, sessions, scope_of)
    noting = Noting(max_memory_tokens, token_counter, now)

    def remember(fact: str, config: RunnableConfig, replaces: str = "") -> str:  # noqa: D417 - the model sees no config
        """Put a lasting fact into the memory of all conversations, or correct one.

        Args:
            fact: One sentence, with names and absolute dates; a #tag may follow.
            replaces: The line of the memory that it takes the place of.
        """
        if whose.is_off_the_record(config):
            return "Nothing is remembered: this conversation is off the record."
        return _refusing(lambda: _put(noting, whose.store(config), fact, replaces))

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


def _put(noting: Noting, store: MemoryStore, text: str, replaces: str) -> str:
    """Put a fact in, and say what was done."""
    fact = noting.fact(store, text)

    def change(before: str) -> Change:
        if replaces.strip():
            made = _at_the_line(before, replaces, fact.line, f"Corrected: {fact.line}")
        elif (after := with_fact(before, fact.text, fact.noted)) is None:
            made = Change(None, "The memory says that already.")
        else:
            made = Change(after, f"Remembered: {fact.line}")
        if made.text is not None:
            noting.check_room(before, made.text)
        return made

    return changed(store, change)


def _take_out(store: MemoryStore, fact: str) -> str:
    return changed(store, lambda text: _at_the_line(text, fact, None, "Forgotten"))


def _at_the_line(text: str, meant: str, line: str | None, done: str) -> Change:
    """The change of the one line that is meant; or why there is none."""
    places, lines = lines_about(text, meant), text.split("\n")
    if len(places) == 1:
        old = bare(unkeyed(lines[places[0]]))
        return Change(with_line(text, places[0], line), f"{done} (it was: {old})")
    if not places:
        return Change(None, f"Nothing is changed: no line of the memory says {meant!r}.")
    named = "\n".join(f"- {bare(unkeyed(lines[place]))}" for place in places[:_SHOWN_LINES])
    return Change(
        None, f"Nothing is changed: {len(places)} lines say that. Give one of them whole:\n{named}"
    )


def _refusing(work: Callable[[], str]) -> str:
    """What was done; where nothing was, why."""
    try:
        return work()
    except UnfitFactError as error:
        return str(error)
    except RedactionError as error:
        return f"Nothing is remembered: {error}"
