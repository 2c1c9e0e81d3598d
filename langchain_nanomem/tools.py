"""Tools with which an agent searches its own past."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.runnables import RunnableConfig  # noqa: TC002 - the tool's schema is read from it
from langchain_core.tools import BaseTool, StructuredTool

from langchain_nanomem.passages import found_text
from langchain_nanomem.scoped_memory import ScopedMemory
from langchain_nanomem.search_sources import SEARCH_TOOL
from langchain_nanomem.tokens import TokenCounter

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.memory import MemoryStore
    from langchain_nanomem.scopes import Scope

_MAX_QUERY_CHARACTERS = 500
_MAX_HITS = 20
_MAX_TOKENS = 2_000


def create_search_memory_tool(
    memory: MemoryStore | Callable[[Scope], MemoryStore],
    sessions: SessionManager,
    *,
    scope_of: Callable[[RunnableConfig], Scope] | None = None,
    max_tokens: int = _MAX_TOKENS,
    token_counter: TokenCounter | None = None,
) -> BaseTool:
    """A tool, ``search_memory``, that searches the event log and the sessions of one scope.

    It gives summaries first, then what was said, word for word, each with its date, weekday and
    session; best first, see `MemoryStore.search_history`. Nothing of another scope is searched,
    nor are earlier searches. A session that can't be read is left out, with a warning.

    Args:
        memory: The memory, or a function from a scope to its memory.
        sessions: Where the sessions are kept.
        scope_of: Whose memory a run uses; by default what the session in the config is bound
            to, else the memory's own. A `ScopeError` of it, or of a memory that is another's,
            comes out of the tool.
        max_tokens: How long a result may be; two fifths of it at most are summaries. One
            passage is given in any case.
        token_counter: Counts them; by default `TokenCounter()`.

    Raises:
        ValueError: `max_tokens` is below 1.
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be 1 or more, not {max_tokens}")
    whose = ScopedMemory(memory, sessions, scope_of)
    past = _Past(whose, max_tokens, token_counter or TokenCounter())

    def search_memory(query: str, config: RunnableConfig, limit: int = 5) -> str:  # noqa: D417 - the model sees no config
        """Search all earlier conversations.

        Args:
            query: Words that were said, or "a phrase".
            limit: Passages to give, at most 20.
        """
        return past.search(query[:_MAX_QUERY_CHARACTERS], config, min(max(limit, 1), _MAX_HITS))

    return StructuredTool.from_function(search_memory, name=SEARCH_TOOL, parse_docstring=True)


class _Past:
    """Searches the memory and the sessions of whoever a run belongs to.

    Args:
        memory: Whose memory.
        max_tokens: How long a result may be.
        counter: Counts it.
    """

    def __init__(self, memory: ScopedMemory, max_tokens: int, counter: TokenCounter) -> None:
        self._memory = memory
        self._max_tokens = max_tokens
        self._counter = counter

    def search(self, query: str, config: RunnableConfig, limit: int) -> str:
        """What is found, as a text for a model; a sentence that says so where nothing is."""
        store = self._memory.store(config)
        found = found_text(store, query, limit, self._max_tokens, self._counter)
        return found or f"Nothing that was said or logged contains {query!r}."
