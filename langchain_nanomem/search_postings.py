"""Where the terms are that were asked for lately: looked up once, then kept up to date."""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langchain_nanomem.search_query import Query
    from langchain_nanomem.search_tables import Occurrences, SearchRows

_MOST_KEPT = 1_000_000
"""So many passages are kept at most, those of all terms together."""
_MOST_LIKE = 64
_SHORTEST_PART = 3


class Postings:
    """The occurrences of terms."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Occurrences] = OrderedDict()
        self._kept = 0
        self._vocabulary: set[str] | None = None
        """All terms, as soon as they were needed."""

    def catch_up(self, rows: SearchRows, last_id: int) -> None:
        """Take in the passages behind one."""
        if not self._known and self._vocabulary is None:
            return
        for passage_id, terms in rows.terms_behind(last_id):
            if self._vocabulary is not None:
                self._vocabulary.update(terms)
            for term, count in Counter(terms).items():
                if term in self._known:
                    self._known[term][passage_id] = count
                    self._kept += 1

    def of_query(self, rows: SearchRows, query: Query) -> list[Occurrences]:
        """Where each term of a query is.

        Where none is anywhere, the terms count that have one of them in them. A query of signs
        alone is looked for as it stands.
        """
        if not query.terms:
            return [rows.passages_with(query.asked)]
        found = self._of_asked(rows, query.terms)
        if any(found):
            return found
        parts = (term.rstrip("*") for term in query.terms)
        longer = {
            one
            for part in parts
            if len(part) >= _SHORTEST_PART or not part.isascii()
            for one in _first(term for term in self._all(rows) if part in term)
        }
        return self._of(rows, sorted(longer))

    def _of_asked(self, rows: SearchRows, terms: Sequence[str]) -> list[Occurrences]:
        """Where each term is; one that ends in ``*`` stands for all that begin so."""
        asked = [self._from(rows, term[:-1]) if term.endswith("*") else [term] for term in terms]
        found = iter(self._of(rows, [term for some in asked for term in some]))
        return [_together([next(found) for _ in some]) for some in asked]

    def _from(self, rows: SearchRows, start: str) -> list[str]:
        return _first(term for term in self._all(rows) if term.startswith(start))

    def _all(self, rows: SearchRows) -> set[str]:
        if self._vocabulary is None:
            self._vocabulary = rows.vocabulary()
        return self._vocabulary

    def _of(self, rows: SearchRows, terms: Sequence[str]) -> list[Occurrences]:
        missing = [term for term in dict.fromkeys(terms) if term not in self._known]
        if missing:
            new = rows.occurrences(missing)
            self._known |= new
            self._kept += sum(map(len, new.values()))
        found = [self._known[term] for term in terms]
        for term in terms:
            self._known.move_to_end(term)
        while self._kept > _MOST_KEPT and len(self._known) > 1:
            self._kept -= len(self._known.popitem(last=False)[1])
        return found


def _first(terms: Iterator[str]) -> list[str]:
    return heapq.nsmallest(_MOST_LIKE, terms)


def _together(some: Sequence[Occurrences]) -> Occurrences:
    if len(some) == 1:
        return some[0]
    together: Occurrences = Counter()
    for one in some:
        together.update(one)
    return together
