"""Tools with which an agent searches its own past."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.runnables import RunnableConfig  # noqa: TC002 - the tool's schema is read from it
from langchain_core.tools import BaseTool, StructuredTool

from langchain_nanomem.errors import ScopeError
from langchain_nanomem.memory import MemoryStore
from langchain_nanomem.rendering import render_moment
from langchain_nanomem.scopes import Scope, session_key
from langchain_nanomem.search_sources import SEARCH_TOOL
from langchain_nanomem.tokens import TokenCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.search_index import SearchHit

_MAX_QUERY_CHARACTERS = 500
_HIT_CHARACTERS = 600
_LEAD_CHARACTERS = 120
_MAX_HITS = 20
_MAX_TOKENS = 2_000
_LOG_SHARE = 0.4


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
    past = _Past(memory, sessions, scope_of, max_tokens, token_counter or TokenCounter())

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
        memory: The memory, or a function from a scope to its memory.
        sessions: Where the sessions are kept.
        scope_of: Whose memory a run uses; None: what its session is bound to.
        max_tokens: How long a result may be.
        counter: Counts it.
    """

    def __init__(
        self,
        memory: MemoryStore | Callable[[Scope], MemoryStore],
        sessions: SessionManager,
        scope_of: Callable[[RunnableConfig], Scope] | None,
        max_tokens: int,
        counter: TokenCounter,
    ) -> None:
        self._memory = memory
        self._sessions = sessions
        self._scope_of = scope_of or self._bound_scope
        self._max_tokens = max_tokens
        self._counter = counter

    def search(self, query: str, config: RunnableConfig, limit: int) -> str:
        """What is found, as a text for a model; a sentence that says so where nothing is."""
        store = self._store(self._scope_of(config))
        logged = store.search_history(query, limit=limit, kinds=["logged"])
        said = store.search_history(query, limit=limit, kinds=["said"])
        found = passages_text(query, logged, said, self._max_tokens, self._counter)
        return found or f"Nothing that was said or logged contains {query!r}."

    def _store(self, scope: Scope) -> MemoryStore:
        store = self._memory if isinstance(self._memory, MemoryStore) else self._memory(scope)
        if store.scope != scope:
            raise ScopeError(
                f"this tool searches the memory of the scope {store.scope!r} alone; the run "
                f"belongs to {scope!r}"
            )
        return MemoryStore(
            store.workspace, scope, sessions=self._sessions, redaction=store.redaction
        )

    def _bound_scope(self, config: RunnableConfig) -> Scope:
        own: Scope = getattr(self._memory, "scope", ())
        try:
            key = session_key(config)
        except ValueError:  # it is called outside of any session
            return own
        with self._sessions.reading(key) as records:
            return own if records.scope is None else records.scope


def passages_text(
    query: str,
    logged: Sequence[SearchHit],
    said: Sequence[SearchHit],
    max_tokens: int,
    counter: TokenCounter,
) -> str:
    """Hits as a text for a model, within `max_tokens`; "" where there are none."""
    of_log = _within(
        ["From the event log:", *(_line(hit, query) for hit in logged)],
        int(max_tokens * _LOG_SHARE) if said else max_tokens,
        counter,
    )
    room = max_tokens - (counter.count_text(of_log) + 1 if of_log else 0)
    of_said = _within(["What was said:", *(_line(hit, query) for hit in said)], room, counter)
    return "\n\n".join(part for part in (of_log, of_said) if part)


def _within(lines: list[str], max_tokens: int, counter: TokenCounter) -> str:
    """A heading and the lines under it that there is room for, one at least; "" without any."""
    sizes = [counter.count_text(line) + 1 for line in lines]
    kept = [*lines[:2]]
    used = sum(sizes[:2])
    for line, size in zip(lines[2:], sizes[2:], strict=True):
        if used + size <= max_tokens:
            kept.append(line)
            used += size
    return "\n".join(kept) if len(lines) > 1 else ""


def _line(hit: SearchHit, query: str) -> str:
    text = _excerpt(hit.text, query)
    if hit.kind == "logged":
        return f"[{render_moment(hit.at)}] {text}"
    return f"[{render_moment(hit.at)}] {hit.speaker}: {text} (session {hit.session_id})"


def _excerpt(text: str, query: str) -> str:
    """A text, or the part of a long one where the longest words of a query are."""
    if len(text) <= _HIT_CHARACTERS:
        return text
    folded = text.casefold()
    words = sorted(set(query.casefold().replace('"', " ").split()), key=len, reverse=True)
    at = next((place for word in words if (place := folded.find(word)) >= 0), 0)
    start = max(min(at - _LEAD_CHARACTERS, len(text) - _HIT_CHARACTERS), 0)
    part = text[start : start + _HIT_CHARACTERS]
    lead = "... " if start else ""
    return f"{lead}{part} ..." if start + _HIT_CHARACTERS < len(text) else f"{lead}{part}"
