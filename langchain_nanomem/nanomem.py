"""One object that wires everything together for one workspace."""

from __future__ import annotations

import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self
from weakref import WeakValueDictionary

from langchain_core.runnables.base import coerce_to_runnable

from langchain_nanomem.chain import MemoryChain
from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.consolidation import MemoryConsolidator
from langchain_nanomem.erasure import Erased, erase_scope, erase_session
from langchain_nanomem.errors import ScopeError
from langchain_nanomem.history import NanomemChatMessageHistory
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.memory import MemoryStore
from langchain_nanomem.memory_journal import MemoryJournal
from langchain_nanomem.model_facts import bound_tools
from langchain_nanomem.node import create_memory_node
from langchain_nanomem.pre_model_hook import create_pre_model_hook
from langchain_nanomem.prompt import MemoryPrompt
from langchain_nanomem.retention import Retained, Retention, apply_retention
from langchain_nanomem.search_vectors import DEFAULT_WEIGHT, meaning_of
from langchain_nanomem.store import NanomemStore
from langchain_nanomem.store_memory import BaseStoreBackend
from langchain_nanomem.tools import create_search_memory_tool
from langchain_nanomem.workspaces import beside, open_workspace
from langchain_nanomem.writing_tools import create_forget_tool, create_remember_tool

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from datetime import datetime

    from langchain_core.embeddings import Embeddings
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import SystemMessage
    from langchain_core.runnables import Runnable
    from langchain_core.runnables.base import RunnableLike
    from langchain_core.tools import BaseTool
    from langgraph.store.base import BaseStore

    from langchain_nanomem.journal import Journal
    from langchain_nanomem.middleware import NanomemMiddleware
    from langchain_nanomem.postgres_database import Pool
    from langchain_nanomem.postgres_isolation import Isolation
    from langchain_nanomem.redaction import Redaction
    from langchain_nanomem.scopes import Scope, ScopeRule


class Nanomem:
    """Sessions, memory, checkpoints and consolidation of one workspace.

    Args:
        workspace: A directory, which is created at the first write. Or a PostgreSQL database, for
            programs on many machines (extra ``postgres``): a URL
            ``postgresql://user:password@host:port/database``; a `PostgresJournal`, which has more
            options; or a `psycopg_pool.ConnectionPool`. What is given open stays open.
        model: What consolidates: a chat model; "extractive" for summaries made without one,
            marked as such; or None: then a consolidation that is due raises.
        scope: Whose memory a run uses: "workspace" (one for all), "user" (one for each
            ``user_id``), or a function from the config to a tuple of names. None: the
            workspace's, as long as no config has a user_id.
        context_window_tokens: The window of the model that converses. None: what LangChain knows
            of it, where `node` or the middleware is given one that it knows; else of `model`;
            else 65,536.
        system_prompt: Stands in front of the memory, in `prompt` and in `node`.
        redaction: What must not be in the memory, the log and the search index, and, where its
            ``sessions`` says so, in the sessions: see `Redaction`.
        embedder: Ranks by meaning too what is searched: see `MemoryStore`.
        embedder_weight: What that counts beside the ranking by words.
        schema: The schema of the database that the tables are in; "nanomem" by default.
        isolation: "scope": the database itself keeps the scopes apart, and this object has the
            sessions and the memory of the workspace's own; `isolated` gives those of another.
            "all": of any, for maintenance. See `PostgresJournal`.
        base_store: A LangGraph store that the memory is kept in, in place of the workspace; the
            sessions stay there. See `BaseStoreBackend` for what that holds.
        options: More of `MemoryConsolidator`.

    Raises:
        ImportError: A database is given, and the extra is missing.
        ValueError: An argument is out of range, or the URL can't be read.
    """

    sessions: SessionManager
    """The sessions."""
    consolidator: MemoryConsolidator
    """What keeps prompts within the window."""

    def __init__(  # noqa: PLR0913 - options with a default
        self,
        workspace: str | os.PathLike[str] | Journal | Pool,
        *,
        model: BaseChatModel | Literal["extractive"] | None = None,
        scope: ScopeRule = None,
        context_window_tokens: int | None = None,
        system_prompt: str | SystemMessage | None = None,
        redaction: Redaction | None = None,
        embedder: Embeddings | None = None,
        embedder_weight: float = DEFAULT_WEIGHT,
        schema: str | None = None,
        isolation: Isolation = None,
        base_store: BaseStore | None = None,
        **options: Any,
    ) -> None:
        self._workspace = open_workspace(workspace, schema, isolation)
        if base_store is not None:
            if self._workspace.journal.scope is not None:
                raise ValueError("isolation is for a memory in the database, not in base_store")
            memory = BaseStoreBackend(base_store, self._workspace.memory)
            self._workspace = self._workspace._replace(memory=memory)
        self._has_scope_rule = scope is not None
        self._system_prompt = system_prompt
        meaning_of(embedder, embedder_weight)
        self._embedding: Any = {"embedder": embedder, "embedder_weight": embedder_weight}
        self.sessions = SessionManager(self._workspace.journal, redaction=redaction)
        self._remembered = self.sessions
        self._private: WeakValueDictionary[int, SessionManager] = WeakValueDictionary()
        self.consolidator = MemoryConsolidator(
            self.sessions,
            self.memory_for,
            model,
            scope=scope,
            context_window_tokens=context_window_tokens,
            **options,
        )

    def __repr__(self) -> str:
        return f"Nanomem({self.sessions.journal!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, timeout_seconds: float | None = 10.0) -> bool:
        """Wait for deferred consolidations, and let go of what is cached.

        All that was acknowledged is on the disk anyway. What is not done in time is done at a
        later turn. Connections that it made to a database are closed; a later use makes new ones.

        Args:
            timeout_seconds: How long to wait at most; None: as long as it takes; 0: not at all.

        Returns:
            Whether nothing is left to be done.
        """
        is_done = self.consolidator.close(timeout_seconds)
        self.sessions.forget()
        self._workspace.close()
        return is_done

    def off_the_record(self) -> Nanomem:
        """The same, for conversations of which nothing is kept at all.

        Its sessions and checkpoints are in memory, and end with the object. Prompts show the
        memory, and the tools search what was said on the record; nothing is written. For one
        that is kept, and only never remembered, see `SessionManager.keep_off_the_record`.
        """
        other = copy.copy(self)
        other.__dict__.pop("checkpointer", None)
        other.sessions = SessionManager(
            MemoryJournal(), redaction=self.sessions.redaction, off_the_record=True
        )
        self._private[id(other.sessions)] = other.sessions
        other.consolidator = self.consolidator.for_sessions(other.sessions)
        return other

    def isolated(self, scope: Scope) -> Nanomem:
        """The same for one scope alone, over the same connections; needs ``isolation="scope"``.

        Its sessions, checkpointer, memory, search and tools see and write what belongs to that
        scope and nothing else: the database refuses the rest, whatever is asked. What a run's
        config says of its user has to agree. Make one for whoever is served, and keep it as long.

        Raises:
            ValueError: This is not isolated, or the scope is none.
        """
        journal: Any = self._workspace.journal
        if not hasattr(journal, "isolated"):
            raise ValueError(f"a database keeps scopes apart, and {journal!r} is none")
        other = copy.copy(self)
        other.__dict__.pop("checkpointer", None)
        other._workspace = beside(journal.isolated(scope))  # noqa: SLF001 - it is one of us
        other._remembered = other.sessions = SessionManager(  # noqa: SLF001
            other._workspace.journal,  # noqa: SLF001
            redaction=self.sessions.redaction,
        )
        other._private = WeakValueDictionary()  # noqa: SLF001
        other.consolidator = self.consolidator.for_scope(
            tuple(scope), other.sessions, other.memory_for
        )
        return other

    def erase(
        self,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        scope: Scope | None = None,
    ) -> Erased:
        """Remove all traces of a user, of a session, or of a scope.

        Of a user or a scope that is: its sessions with their checkpoints, archived ones too;
        MEMORY.md, its versions, the log; the search index. Of a session: the session, archived
        or not, and its entries in the log and the index; which facts in MEMORY.md come from it
        nobody can tell, and the report says so.

        It makes no difference whether it is asked of this object or of one that is off the
        record: what is kept goes, and what is said in such conversations in this process.

        What is damaged is no hindrance: the very session that is asked for goes, readable or
        not; of a user goes all that can be told to be theirs, and the report names the rest.

        It is safe while the agent runs: a consolidation under way writes nothing afterwards. A
        turn that begins later makes new files.

        Args:
            user_id: The user, where each has a memory of their own.
            session_id: The session.
            scope: The scope, such as ``("user", "42")``.

        Returns:
            What was removed. False, and says so, where nothing was known.

        Raises:
            ValueError: Not exactly one of the three is given, or the scope is the workspace's.
            ScopeError: All users share one memory, so that it can't be told apart.
            OSError: Something could not be removed; the rest was.
        """
        given = [one for one in (user_id, session_id, scope) if one is not None]
        if len(given) != 1:
            raise ValueError("give one of user_id, session_id and scope")
        if session_id is not None:
            return erase_session(self._places(), self._workspace.memory, session_id)
        whose = f"scope {scope!r}" if user_id is None else f"user {user_id!r}"
        if scope is None:
            config: Any = {"configurable": {"user_id": user_id}}
            scope = self.consolidator.scope_of(config)
        if not scope:
            raise ScopeError(
                "all users of this workspace share one memory, so that what is one user's can't "
                "be told apart: erase their sessions, one by one, with session_id=..."
            )
        return erase_scope(self._places(), self.memory_for(tuple(scope)), whose)

    def _places(self) -> list[SessionManager]:
        """Wherever sessions are: those that are remembered, then those that are not kept."""
        private = [one for ref in self._private.valuerefs() if (one := ref()) is not None]
        return [self._remembered, *private]

    def apply_retention(self, rule: Retention, *, now: datetime | None = None) -> Retained:
        """Put away or delete what is older or more than is to be kept: see `Retention`.

        It is safe while the agent runs; call it as often as you like. What can't be read or
        written keeps nothing else: the report names it. What is said off the record in an object
        that keeps nothing ends with that, and doesn't count.

        Args:
            rule: What is kept.
            now: What time it is, aware; by default the clock's.

        Returns:
            What was done.

        Raises:
            ValueError: Sessions are to be archived, and a database has no archive.
            OSError: The sessions can't be listed.
        """
        return apply_retention(rule, self._remembered, self._workspace.memory, now)

    @property
    def memory(self) -> MemoryStore:
        """The memory of the workspace's own scope; of the one scope where it has only that."""
        return self.memory_for(self._workspace.journal.scope or ())

    def memory_for(self, scope: Scope) -> MemoryStore:
        """The memory of a scope, such as ``("user", "42")``."""
        backend, sessions = self._workspace.memory, self._remembered
        return MemoryStore(backend, scope, sessions=sessions, **self._embedding)

    @cached_property
    def checkpointer(self) -> NanomemSaver:
        """For ``graph.compile(checkpointer=...)``."""
        return NanomemSaver(self.sessions)

    @property
    def store(self) -> NanomemStore:
        """For ``graph.compile(store=...)``: the facts and the log, see `NanomemStore`.

        Where a ``scope`` was chosen, a run finds the memory of its own scope in it and no other.
        """
        return NanomemStore(
            self.memory_for,
            self.sessions,
            scope_of=self.consolidator.scope_of if self._has_scope_rule else None,
            max_memory_tokens=self.consolidator.max_memory_tokens,
        )

    @property
    def prompt(self) -> MemoryPrompt:
        """For a chain (``memory.prompt | model``), or a model node of your own."""
        return self._prompt_for(None)

    def _prompt_for(self, model: Any) -> MemoryPrompt:
        return MemoryPrompt(
            self.consolidator.for_model(model),
            system_prompt=self._system_prompt,
            tools=bound_tools(model),
        )

    def wrap(self, chain: RunnableLike[Any, Any]) -> MemoryChain:
        """A chain with this memory, for what is new in a conversation: see `MemoryChain`.

        Args:
            chain: A model, or anything from messages to an answer.
        """
        bound: Runnable[Any, Any] = coerce_to_runnable(chain)
        return MemoryChain(self._prompt_for(bound), bound)

    def history(self, session_id: str) -> NanomemChatMessageHistory:
        """For ``RunnableWithMessageHistory(memory.prompt | model, memory.history)``."""
        return NanomemChatMessageHistory(session_id, self.sessions)

    def node(
        self, model: Runnable[Any, Any] | None = None, *, trim_state: bool = False
    ) -> Runnable[Any, dict[str, Any]]:
        """For ``StateGraph.add_node``: see `create_memory_node`."""
        return create_memory_node(
            self.consolidator,
            model=model,
            system_prompt=self._system_prompt,
            trim_state=trim_state,
        )

    def middleware(self, *, trim_state: bool = False) -> NanomemMiddleware:
        """For ``create_agent(middleware=[...])``: see `NanomemMiddleware`.

        Raises:
            ImportError: The extra ``langchain`` is not installed.
        """
        from langchain_nanomem.middleware import NanomemMiddleware  # noqa: PLC0415 - an extra

        return NanomemMiddleware(self.consolidator, trim_state=trim_state)

    def pre_model_hook(
        self, tools: Sequence[Any] = (), *, trim_state: bool = False
    ) -> Runnable[Any, dict[str, Any]]:
        """For ``create_react_agent(pre_model_hook=...)``: see `create_pre_model_hook`.

        Args:
            tools: The agent's tools; they count.
            trim_state: See `create_memory_node`.
        """
        return create_pre_model_hook(
            self.consolidator,
            system_prompt=self._system_prompt,
            tools=tools,
            trim_state=trim_state,
        )

    def tools(self, *, writing: bool = False) -> list[BaseTool]:
        """For the agent: a tool that searches its past.

        Args:
            writing: Whether there are also the tools that put a fact into the memory and take
                one out; see `create_remember_tool` and `create_forget_tool`.
        """
        memory, sessions, scope_of = self.memory_for, self.sessions, self.consolidator.scope_of
        search = create_search_memory_tool(memory, sessions, scope_of=scope_of)
        if not writing:
            return [search]
        most = self.consolidator.max_memory_tokens
        return [
            search,
            create_remember_tool(memory, sessions, scope_of=scope_of, max_memory_tokens=most),
            create_forget_tool(memory, sessions, scope_of=scope_of),
        ]
