"""Tools with which an agent searches its own past."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import RunnableConfig  # noqa: TC002 - the tool's schema is read from it
from langchain_core.tools import BaseTool, StructuredTool

from langchain_nanomem.codec import decode
from langchain_nanomem.errors import NanomemError, ScopeError
from langchain_nanomem.history_search import parse_query, rank_text
from langchain_nanomem.memory import MemoryStore
from langchain_nanomem.rendering import render_message, render_moment
from langchain_nanomem.scopes import Scope, session_key
from langchain_nanomem.session import parse_timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.messages import BaseMessage

    from langchain_nanomem.manager import SessionManager

logger = logging.getLogger(__name__)

_NAME = "search_memory"
_MAX_QUERY_CHARACTERS = 500
_HIT_CHARACTERS = 600
_MAX_HITS = 20


def create_search_memory_tool(
    memory: MemoryStore | Callable[[Scope], MemoryStore],
    sessions: SessionManager,
    *,
    scope_of: Callable[[RunnableConfig], Scope] | None = None,
) -> BaseTool:
    """A tool, ``search_memory``, that searches the event log and the sessions of one scope.

    It finds words, not meanings: summaries first, then what was said, word for word. Nothing
    of another scope is searched, nor are earlier searches. A session that can't be read is
    left out, with a warning.

    Args:
        memory: The memory, or a function from a scope to its memory.
        sessions: Where the sessions are kept.
        scope_of: Whose memory a run uses; by default what the session in the config is bound
            to, else the memory's own. A `ScopeError` of it, or of a memory that is another's,
            comes out of the tool.
    """
    past = _Past(memory, sessions, scope_of)

    def search_memory(query: str, config: RunnableConfig, limit: int = 5) -> str:  # noqa: D417 - the model sees no config
        """Search all earlier conversations.

        Args:
            query: Words that were said, or "a phrase".
            limit: Passages to give, at most 20.
        """
        return past.search(query[:_MAX_QUERY_CHARACTERS], config, min(max(limit, 1), _MAX_HITS))

    return StructuredTool.from_function(search_memory, name=_NAME, parse_docstring=True)


class _Past:
    def __init__(
        self,
        memory: MemoryStore | Callable[[Scope], MemoryStore],
        sessions: SessionManager,
        scope_of: Callable[[RunnableConfig], Scope] | None,
    ) -> None:
        self._memory = memory
        self._sessions = sessions
        self._scope_of = scope_of or self._bound_scope

    def search(self, query: str, config: RunnableConfig, limit: int) -> str:
        scope = self._scope_of(config)
        entries = [
            f"[{render_moment(entry.at)}] {_clipped(entry.text)}"
            for entry in self._store(scope).search_history(query, limit=limit)
        ]
        said = self._said(query, scope, limit)
        parts = [("From the event log", entries), ("What was said", said)]
        found = [f"{title}:\n" + "\n".join(lines) for title, lines in parts if lines]
        return "\n\n".join(found) or f"Nothing that was said or logged contains {query!r}."

    def _store(self, scope: Scope) -> MemoryStore:
        if not isinstance(self._memory, MemoryStore):
            return self._memory(scope)
        if self._memory.scope != scope:
            raise ScopeError(
                f"this tool searches the memory of the scope {self._memory.scope!r} alone; the run "
                f"belongs to {scope!r}"
            )
        return self._memory

    def _bound_scope(self, config: RunnableConfig) -> Scope:
        own: Scope = getattr(self._memory, "scope", ())
        try:
            key = session_key(config)
        except ValueError:  # it is called outside of any session
            return own
        with self._sessions.reading(key) as records:
            return own if records.scope is None else records.scope

    def _said(self, query: str, scope: Scope, limit: int) -> list[str]:
        """The messages of the scope's sessions that match best, the newest of equals first."""
        hits: list[tuple[tuple[int, int], str, str]] = []
        terms = parse_query(query)
        for info in self._sessions.journal.list():
            for record in self._messages(info.key, scope):
                hits += [hit] if (hit := _hit(terms, record, info.key)) else []
        best = sorted(hits, key=lambda hit: (hit[0], hit[1]), reverse=True)
        return [text for _, _, text in best[:limit]]

    def _messages(self, key: str, scope: Scope) -> list[dict[str, Any]]:
        """Those of a session; none where it is another scope's."""
        try:
            with self._sessions.reading(key) as records:
                if (records.scope or ()) == scope:
                    return records.messages(records.view())
        except (NanomemError, OSError) as error:
            logger.warning("session %r is not searched: %s", key, error)
        return []


def _hit(terms: Any, record: dict[str, Any], key: str) -> tuple[tuple[int, int], str, str] | None:
    message = _without_searches(decode(record))
    if message is None:
        return None
    text = render_message(message, parse_timestamp(record.get("timestamp")))
    rank = rank_text(text, terms)
    stamp = str(record.get("timestamp") or "")
    return None if rank is None else (rank, stamp, f"{_clipped(text)} (session {key})")


def _without_searches(message: BaseMessage) -> BaseMessage | None:
    """`message` without what this tool was asked: that has each word searched for in it."""
    calls = getattr(message, "tool_calls", ())
    others = [call for call in calls if call["name"] != _NAME]
    if len(others) < len(calls):
        message = message.model_copy(update={"tool_calls": others})
    return None if message.type == "tool" and message.name == _NAME else message


def _clipped(text: str) -> str:
    return text if len(text) <= _HIT_CHARACTERS else f"{text[:_HIT_CHARACTERS]} ..."
