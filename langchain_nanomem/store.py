"""MEMORY.md and the event log as a LangGraph store, for graphs and tools that work with one."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from langgraph.config import get_config
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    PutOp,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)
from typing_extensions import override

from langchain_nanomem.errors import ScopeError
from langchain_nanomem.fact_items import fact_items
from langchain_nanomem.fact_search import ranked_facts
from langchain_nanomem.fact_writing import FactWriter
from langchain_nanomem.memory import MemoryStore
from langchain_nanomem.noting import MAX_MEMORY_TOKENS, Noting
from langchain_nanomem.scope_names import scope_in
from langchain_nanomem.scoped_memory import ScopedMemory
from langchain_nanomem.store_filter import is_asked, listed
from langchain_nanomem.store_spaces import Spaces
from langchain_nanomem.store_values import Given, Kept, entry_kept, entry_key, fact_kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from langchain_core.runnables import RunnableConfig
    from langgraph.store.base import Op, Result

    from langchain_nanomem.history_log import HistoryEntry
    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.scopes import Scope
    from langchain_nanomem.store_spaces import Space
    from langchain_nanomem.tokens import TokenCounter

    Ranking = Callable[[str], dict[str, float]]


class NanomemStore(BaseStore):
    """The memories as a LangGraph store: ``graph.compile(store=...)``.

    The namespace ``("memories", "user", "42")`` has the facts of the scope ``("user", "42")``, one
    item a line of MEMORY.md; ``("memories",)`` those of the workspace's own. ``("history", "user",
    "42")`` has the entries of the scope's log, to be read. In a label ``.``, ``%`` and NUL of a
    scope are written as ``%2e``, ``%25`` and ``%00``.

    A namespace is that of one scope, also in a search: nothing of a scope is found by the name of
    another, not even of one whose name begins the same way.

    The value of a fact is ``{"content", "tags", "section", "noted"}``: what the line says; its
    tags; the headings above it; the day behind it. A put has to have ``content`` and may have the
    others. It goes the way of the ``remember`` tool: one line of at most 500 characters, in which
    white space is one space and a mark of a list or heading in front is left out, through the
    redaction, into the section "Noted" or in place of the item of that key, with the day it is
    put on. What a line can't hold, such as other fields, is refused with a `ValueError`, and so is
    what there is no room for; nothing of that is written. Whoever changes the memory meanwhile
    loses nothing. All that one batch puts into a scope is one change.

    A key that is put stands behind the line as a comment, and in no prompt. It stays with the line
    as long as that says the same, whoever writes the memory anew. A line that was written by
    others has a key made of what it says, until it is put; so keys of the same words in several
    lines may move when one goes. Items are of the day behind them, or of 1970.

    A search by a ``query`` gives what matches, best first, by the words of the fact and of what it
    stands under; without one all facts in the order of the memory, log entries the newest first.

    Args:
        memory: The memory, or a function from a scope to its memory.
        sessions: Where the sessions are kept: what is off the record puts nothing.
        scope_of: Whose memory a run uses. In a run another scope than that is a `ScopeError`.
            None: any scope may be asked for.
        namespace: What the namespaces of facts begin with.
        content_field: What ``content`` is called, for tools that have another name for it.
        max_memory_tokens: What MEMORY.md may have; a put that would make it longer is refused.
        token_counter: Counts that; by default `TokenCounter()`.
        now: What time it is; by default the clock's, in UTC.

    Raises:
        ValueError: `max_memory_tokens` is below 1; the namespace or the field can't be used.
    """

    def __init__(  # noqa: PLR0913 - options with a default
        self,
        memory: MemoryStore | Callable[[Scope], MemoryStore],
        sessions: SessionManager,
        *,
        scope_of: Callable[[RunnableConfig], Scope] | None = None,
        namespace: tuple[str, ...] = ("memories",),
        content_field: str = "content",
        max_memory_tokens: int = MAX_MEMORY_TOKENS,
        token_counter: TokenCounter | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        if content_field in {"tags", "section", "noted", "at", "session_id", "source"}:
            raise ValueError(f"content_field can't be {content_field!r}, which is another field")
        self._memory, self._scope_of, self._field = memory, scope_of, content_field
        self._records = ScopedMemory(memory, sessions, None)
        self._sessions = sessions
        self._spaces = Spaces(namespace)
        self._writer = FactWriter(Noting(max_memory_tokens, token_counter, now))

    @override
    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Answer what is asked, as things are before; then write what is put.

        What is put into one scope is written whole or not at all, and of one key the last. Where
        it is refused, nothing of the batch is written into any scope that comes behind it.

        Raises:
            InvalidNamespaceError: A namespace is none, or none that can be written into.
            ValueError: A value or a filter can't be.
            RedactionError: A value has something that must not be written.
            ScopeError: A scope is another's than the run's.
            CorruptRecordError: A memory is no text.
            OSError: A memory can't be read or written.
        """
        asked = list(ops)
        for op in asked:
            validate_op_namespace(op)
        puts = self._puts(op for op in asked if isinstance(op, PutOp))
        results = [self._answer(op) for op in asked]
        for memory, items in puts:
            self._writer.write(memory, items)
        return results

    @override
    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The same, in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _answer(self, op: Op) -> Result:
        match op:
            case GetOp():
                return self._got(op)
            case SearchOp():
                return self._found(op)
            case ListNamespacesOp():
                return listed(self._namespaces(), op)
            case PutOp():
                return None
        raise ValueError(f"no operation of a store: {op!r}")

    # --- reading ---

    def _got(self, op: GetOp) -> Item | None:
        space = self._spaces.find(op.namespace)
        kept = None if space is None else self._read(space)[0].get(op.key)
        if kept is None:
            return None
        return Item(
            value=kept.value,
            key=op.key,
            namespace=op.namespace,
            created_at=kept.at,
            updated_at=kept.at,
        )

    def _found(self, op: SearchOp) -> list[SearchItem]:
        kept, ranked = self._read(self._spaces.must_find(op.namespace_prefix))
        scores: dict[str, float | None] = dict.fromkeys(kept)
        if op.query and op.query.strip():
            scores = {**ranked(op.query)}
        keys = [one for one in scores if one in kept and is_asked(kept[one].value, op.filter)]
        return [
            SearchItem(
                op.namespace_prefix, key, kept[key].value, kept[key].at, kept[key].at, scores[key]
            )
            for key in keys[op.offset : op.offset + op.limit]
        ]

    def _read(self, space: Space) -> tuple[dict[str, Kept], Ranking]:
        """The items of a space, and what ranks them for a query."""
        memory = self._memory_of(space.scope)
        if space.kind == "facts":
            items = fact_items(memory.read_long_term())
            facts = {key: fact_kept(item, self._field) for key, item in items.items()}
            return facts, partial(ranked_facts, items)
        entries = memory.history_entries()
        logged = {
            entry_key(entry): entry_kept(entry, memory.withheld(entry.text), self._field)
            for entry in reversed(entries)
        }
        return logged, partial(self._ranked_entries, memory, entries)

    def _ranked_entries(
        self, memory: MemoryStore, entries: list[HistoryEntry], query: str
    ) -> dict[str, float]:
        keys = {(entry.at, entry.source, memory.withheld(entry.text)): entry for entry in entries}
        hits = memory.over(self._sessions).search_history(
            query, limit=len(entries), kinds=["logged"]
        )
        found = ((keys.get((hit.at, hit.source, hit.text)), hit.score) for hit in hits)
        return {entry_key(entry): score for entry, score in found if entry is not None}

    def _namespaces(self) -> Iterator[tuple[str, ...]]:
        own = self._own_scope()
        memory = self._memory if isinstance(self._memory, MemoryStore) else self._memory(own or ())
        is_one = own is not None or isinstance(self._memory, MemoryStore)
        backend = memory.backend
        for one in [backend.of(memory.scope)] if is_one else backend.all():
            if (scope := memory.scope if is_one else scope_in(one.name)) is None:
                continue  # its name is cut, so that nobody can tell
            if one.has_facts():
                yield self._spaces.of("facts", scope)
            if one.log_states():
                yield self._spaces.of("log", scope)

    # --- writing ---

    def _puts(self, ops: Iterable[PutOp]) -> list[tuple[MemoryStore, dict[str, Given | None]]]:
        """What is put into each memory, by keys; None is to go."""
        puts: dict[Scope, dict[str, Given | None]] = {}
        for op in ops:
            space = self._spaces.must_find(op.namespace)
            if space.kind != "facts":
                raise InvalidNamespaceError(f"{op.namespace}: the log can only be read")
            if op.ttl is not None:
                raise NotImplementedError("facts don't expire: put them without ttl")
            given = None if op.value is None else Given.of(op.value, self._field)
            puts.setdefault(space.scope, {})[op.key] = given
        if puts and self._is_off_the_record():
            raise ScopeError("Nothing is remembered: this conversation is off the record.")
        return [(self._memory_of(scope), items) for scope, items in puts.items()]

    # --- whose it is ---

    def _memory_of(self, scope: Scope) -> MemoryStore:
        own = self._own_scope()
        if own is not None and own != scope:
            raise ScopeError(f"the run belongs to {own!r}, and asked for what is {scope!r}'s")
        memory = self._memory if isinstance(self._memory, MemoryStore) else self._memory(scope)
        if memory.scope != scope:
            raise ScopeError(
                f"this store has the memory of the scope {memory.scope!r} alone, not of {scope!r}"
            )
        return memory

    def _own_scope(self) -> Scope | None:
        """Whose memory the run uses that asks; None where any may be asked for."""
        config = _config()
        return None if config is None or self._scope_of is None else self._scope_of(config)

    def _is_off_the_record(self) -> bool:
        config = _config()
        return self._records.is_off_the_record({} if config is None else config)


def _config() -> RunnableConfig | None:
    """The config of the run that asks; None outside of any."""
    try:
        return get_config()
    except RuntimeError:
        return None
