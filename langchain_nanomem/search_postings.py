"""Where the terms are that were asked for lately: asked of the file once, then kept up to date."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

from langchain_nanomem import search_file as on_disk

if TYPE_CHECKING:
    import sqlite3

    from langchain_nanomem.search_query import Query

Occurrences = Counter[int]
"""The ids of the passages that have a term, each with how often."""

_MOST_KEPT = 1_000_000
"""So many passages are kept at most, those of all terms together."""
_MOST_LIKE = 64
_SHORTEST_PART = 3


class Postings:
    """The occurrences of terms."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Occurrences] = OrderedDict()
        self._kept = 0

    def catch_up(self, connection: sqlite3.Connection, last_id: int) -> None:
        """Take in the passages behind one."""
        if not self._known:
            return
        for passage_id, stems in on_disk.stems_behind(connection, last_id):
            for term, count in Counter(stems.split()).items():
                if term in self._known:
                    self._known[term][passage_id] = count
                    self._kept += 1

    def of_query(self, connection: sqlite3.Connection, query: Query) -> list[Occurrences]:
        """Where each term of a query is.

        Where none is anywhere, the terms count that have one of them in them. A query of signs
        alone is looked for as it stands.
        """
        if not query.terms:
            return [on_disk.passages_with(connection, query.asked)]
        found = [self._of_asked(connection, term) for term in query.terms]
        if any(found):
            return found
        longer = {
            one
            for term in query.terms
            if len(term) >= _SHORTEST_PART or not term.isascii()
            for one in on_disk.terms_with(connection, term.rstrip("*"), _MOST_LIKE)
        }
        return [self._of(connection, term) for term in sorted(longer)]

    def _of_asked(self, connection: sqlite3.Connection, term: str) -> Occurrences:
        if not term.endswith("*"):
            return self._of(connection, term)
        together: Occurrences = Counter()
        for one in on_disk.terms_from(connection, term[:-1], _MOST_LIKE):
            together.update(self._of(connection, one))
        return together

    def _of(self, connection: sqlite3.Connection, term: str) -> Occurrences:
        found = self._known.pop(term, None)
        if found is None:
            found = on_disk.occurrences(connection, term)
            self._kept += len(found)
        self._known[term] = found
        while self._kept > _MOST_KEPT and len(self._known) > 1:
            self._kept -= len(self._known.popitem(last=False)[1])
        return found
