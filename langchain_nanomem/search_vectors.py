"""What is near by meaning: the vectors of a scope's passages, where an embedder is given.

They are kept in the scope's index, and made at the search, for passages that have none: the newest
first, a bounded number at a time. An embedder that fails fails no search.
"""

from __future__ import annotations

import heapq
import json
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_nanomem.search_nearness import nearest_first, packed
from langchain_nanomem.search_tables import DamagedIndexError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.embeddings import Embeddings

    from langchain_nanomem.search_ranking import Passages
    from langchain_nanomem.search_tables import PassageRow, SearchRows, SearchTables

logger = logging.getLogger(__name__)

Look = Callable[[Callable[["SearchRows", "Passages"], Any]], Any]
"""Looks at an index as it is now, at one moment; nothing is written meanwhile."""
Write = Callable[[Callable[["SearchRows"], None]], None]
"""Writes into an index that was prepared."""

DEFAULT_WEIGHT = 0.3
_MOST_AT_ONCE = 2_000
"""So many passages are embedded in a search at most."""
_MOST_SECONDS = 10.0
"""After so long no further batch is begun in a search."""
_BATCH = 100
_MOST_CHARACTERS = 4_000
"""So much of a passage is embedded: models have a limit."""
_PAUSE_SECONDS = 60.0
"""So long an embedder that failed is left alone."""


class Meaning(NamedTuple):
    """That a search ranks by meaning too."""

    embedder: Embeddings
    weight: float
    """What a rank by meaning counts beside one by words."""


def meaning_of(embedder: Embeddings | None, weight: float) -> Meaning | None:
    """What an embedder is used for; None without one.

    Raises:
        ValueError: The weight is not above 0.
    """
    if not 0 < weight < math.inf:
        raise ValueError(f"embedder_weight must be above 0, not {weight}")
    return None if embedder is None else Meaning(embedder, weight)


class Vectors:
    """The vectors that one embedder made of a scope's passages.

    No lock is held while it is asked.

    Args:
        embedder: Makes them.
    """

    def __init__(self, embedder: Embeddings) -> None:
        self.embedder = embedder
        self._size = 0
        self._asked: tuple[str, bytes] = "", b""
        self._pauses: dict[str, float] = {}
        self._has_warned = False
        self._claimed: set[int] = set()
        self._failures: Counter[int] = Counter()
        self._begin(None)

    def _begin(self, passages: Passages | None) -> None:
        self._passages = passages
        self._last_passage = self._last_vector = 0
        self._waiting: set[int] = set()
        self._ids: dict[int, None] = {}
        self._packed = bytearray()

    def of_query(self, text: str, look: Look, write: Write) -> bytes | None:
        """The vector of a query; None where there is none. Passages without one are embedded.

        Args:
            text: The query.
            look: Reaches the index.
            write: Reaches it to write.
        """
        known, vector = self._asked
        if known != text or not vector:
            vector = self._made("query", lambda: [self.embedder.embed_query(text)], 1)[0]
        if not vector:
            return None
        self._asked = text, vector
        self._embed_waiting(look, write)
        return vector

    def nearest(self, rows: SearchRows, passages: Passages, vector: bytes) -> Iterator[PassageRow]:
        """All passages that are near to a vector, best first; of equals the newest."""
        self._catch_up(rows, passages)
        for passage_id in nearest_first(self._packed, vector, list(self._ids)):
            if passage_id in passages.rows:
                yield passages.rows[passage_id]

    # --- embedding ---

    def are_in(self, rows: SearchRows) -> bool:
        """Whether tables hold vectors of this embedder, as soon as there are any."""
        return not self._size or rows.embedder() == self._name

    def prepare(self, tables: SearchTables) -> None:
        """Have tables hold vectors of this embedder, and of no other."""
        with tables.opened() as rows:
            if self.are_in(rows):
                return
        with tables.writing() as rows:
            gone = rows.begin_vectors(self._name)
        if gone is not None:
            self._begin(None)
        if gone:
            logger.info("%s: %d vectors of another embedder are thrown away", tables.place, gone)

    def _embed_waiting(self, look: Look, write: Write) -> None:
        end, left = time.monotonic() + _MOST_SECONDS, _MOST_AT_ONCE
        while left > 0 and time.monotonic() < end and not self._is_pausing("passages"):
            batch: dict[int, str] = look(self._claim)
            if not batch:
                return
            try:
                self._embed(batch, write)
            finally:
                self._claimed -= batch.keys()
            left -= len(batch)

    def _embed(self, batch: dict[int, str], write: Write) -> None:
        texts = [text[:_MOST_CHARACTERS] for text in batch.values()]
        vectors = self._made("passages", lambda: self.embedder.embed_documents(texts), len(batch))
        if all(vectors):
            made = list(zip(batch, batch.values(), vectors, strict=True))
            write(lambda rows: self._keep(rows, made))
        else:
            self._failures.update(batch.keys())

    def _claim(self, rows: SearchRows, passages: Passages) -> dict[int, str]:
        """The passages to be embedded next, which nobody else embeds meanwhile.

        Those that failed come last, and alone: one of them may be what the embedder can't take.
        """
        self._catch_up(rows, passages)
        known, failures = passages.rows, self._failures
        free = self._waiting - self._claimed
        if not free:
            return {}
        best = heapq.nlargest(_BATCH, free, key=lambda i: (-failures[i], known[i].at or 0.0, i))
        batch = best[:1] if failures[best[0]] else [i for i in best if not failures[i]]
        self._claimed.update(batch)
        texts = rows.texts_of(batch)
        return {i: texts[i] for i in batch}

    def _made(
        self, what: str, make: Callable[[], Sequence[Sequence[float]]], count: int
    ) -> list[bytes]:
        """What an embedder makes, packed; empty ones where it fails."""
        if not self._is_pausing(what):
            try:
                vectors = [packed(vector) for vector in make()]
                self._size = self._size or len(vectors[0])
                if self._size and [len(one) for one in vectors] == [self._size] * count:
                    return vectors
                raise ValueError("it gave vectors of another number or dimension")  # noqa: TRY301
            except Exception as error:  # noqa: BLE001 - an embedder may raise anything
                self._tell(what, error)
        return [b""] * count

    def _is_pausing(self, what: str) -> bool:
        return time.monotonic() < self._pauses.get(what, 0.0)

    def _tell(self, what: str, error: Exception) -> None:
        self._pauses[what] = time.monotonic() + _PAUSE_SECONDS
        level = logging.DEBUG if self._has_warned else logging.WARNING
        self._has_warned = True
        logger.log(level, "the %s can't be embedded, words alone are ranked: %s", what, error)

    # --- the tables ---

    def _catch_up(self, rows: SearchRows, passages: Passages) -> None:
        """Know what is kept; where another embedder took it over just now, that is nothing."""
        if self._passages is not passages:
            self._begin(passages)
        if rows.embedder() == self._name:
            for one in rows.vectors_behind(self._last_vector):
                self._add(*one)
        for row in reversed(passages.rows.values()):
            if row.id <= self._last_passage:
                break
            if row.length and row.id not in self._ids:
                self._waiting.add(row.id)
        self._last_passage = passages.last_id

    def _add(self, number: int, passage: int, vector: bytes) -> None:
        if len(vector) != self._size:
            raise DamagedIndexError(f"passage {passage} has a vector of {len(vector)} bytes")
        self._last_vector = number
        self._waiting.discard(passage)
        if passage not in self._ids:
            self._ids[passage] = None
            self._packed += vector

    def _keep(self, rows: SearchRows, made: list[tuple[int, str, bytes]]) -> None:
        """Put vectors to their passages, as far as those are what was embedded."""
        if rows.embedder() == self._name:
            rows.add_vectors(made)

    @property
    def _name(self) -> str:
        """Tells an embedder from another one: what one made is compared with nothing else."""
        inner = getattr(self.embedder, "underlying_embeddings", self.embedder)
        models = (getattr(inner, name, None) for name in ("model", "model_name", "model_id"))
        model = next((one for one in models if isinstance(one, str)), "")
        kind = type(inner)
        return json.dumps([f"{kind.__module__}.{kind.__qualname__}", model, self._size // 4])


class Near(NamedTuple):
    """What a query is compared with, and its own vector."""

    vectors: Vectors
    vector: bytes
    weight: float
