"""The facts of a memory, ranked for a query as the log is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_nanomem.history_log import HistoryEntry
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.memory_journal import MemoryJournal
from langchain_nanomem.search_file_tables import FileTables
from langchain_nanomem.search_index import SearchIndex
from langchain_nanomem.search_query import Query
from langchain_nanomem.search_scopes import SessionScopes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_nanomem.fact_items import FactItem
    from langchain_nanomem.search_sources import LogStates


def ranked_facts(items: Mapping[str, FactItem], query: str) -> dict[str, float]:
    """The keys of the facts that match, best first, each with its score.

    A fact has the words of what it stands under, too. The index is made for the one search, of
    what is there now: a memory is a few hundred lines at most.

    Args:
        items: The facts by their keys.
        query: As in `MemoryStore.search_history`.
    """
    sessions, log = SessionManager(MemoryJournal()), _Facts(items)
    index = SearchIndex(FileTables(None), SessionScopes(None, sessions), (), sessions, log)
    try:
        hits = index.search(Query.of(query), len(items), kinds=["logged"])
    finally:
        index.close()
    return {hit.source: hit.score for hit in hits if hit.source is not None}


class _Facts:
    """Facts, as a log for the search."""

    def __init__(self, items: Mapping[str, FactItem]) -> None:
        self._items = items

    def entries(self) -> list[HistoryEntry]:
        """The facts; each tells of its key."""
        return [
            HistoryEntry(None, f"{item.section}\n{item.content}", None, key, item.place)
            for key, item in self._items.items()
        ]

    def log_states(self) -> LogStates:
        """Something, as there is one search."""
        return (len(self._items),)
