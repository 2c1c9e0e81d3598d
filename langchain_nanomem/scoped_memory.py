"""The memory of whoever a run belongs to, for tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_nanomem.errors import ScopeError
from langchain_nanomem.memory import MemoryStore
from langchain_nanomem.scopes import asks_off_the_record, session_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.runnables import RunnableConfig

    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.scopes import Scope


class ScopedMemory:
    """Finds the memory that a run uses.

    Args:
        memory: The memory, or a function from a scope to its memory.
        sessions: Where the sessions are kept.
        scope_of: Whose memory a run uses; None: what its session is bound to, else the memory's
            own.
    """

    def __init__(
        self,
        memory: MemoryStore | Callable[[Scope], MemoryStore],
        sessions: SessionManager,
        scope_of: Callable[[RunnableConfig], Scope] | None,
    ) -> None:
        self._memory = memory
        self._sessions = sessions
        self._scope_of = scope_of or self._bound_scope

    def store(self, config: RunnableConfig) -> MemoryStore:
        """The memory of a run, which searches these sessions.

        Raises:
            ScopeError: It is not clear whose memory is meant, or it is another's.
        """
        scope = self._scope_of(config)
        store = self._memory if isinstance(self._memory, MemoryStore) else self._memory(scope)
        if store.scope != scope:
            raise ScopeError(
                f"this tool has the memory of the scope {store.scope!r} alone; the run belongs to "
                f"{scope!r}"
            )
        return store.over(self._sessions)

    def is_off_the_record(self, config: RunnableConfig) -> bool:
        """Whether nothing of the session of a run is to be remembered."""
        if asks_off_the_record(config):
            return True
        try:
            return self._sessions.is_off_the_record(session_key(config))
        except ValueError:  # it is called outside of any session
            return self._sessions.off_the_record

    def _bound_scope(self, config: RunnableConfig) -> Scope:
        own: Scope = getattr(self._memory, "scope", ())
        try:
            key = session_key(config)
        except ValueError:  # it is called outside of any session
            return own
        with self._sessions.reading(key) as records:
            return own if records.scope is None else records.scope
