"""What is near by meaning: the vectors of a scope's passages, where an embedder is given.

They are kept in the scope's index, and made at the search, for passages that have none: the newest
first, a bounded number at a time. An embedder that fails fails no search.
"""

from __future__ import annotations

import heapq
import json
import logging
import math
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_nanomem import search_file as on_disk
from langchain_nanomem.search_nearness import nearest_first, packed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.embeddings import Embeddings

    from langchain_nanomem.search_file import PassageRow, SearchFile
    from langchain_nanomem.search_ranking import Passages

logger = logging.getLogger(__name__)

Look = Callable[[Callable[["SearchFile", "Passages"], Any]], Any]
"""Looks at an index as it is now, at one moment; nothing is written meanwhile."""
Write = Callable[[Callable[[sqlite3.Connection], None]], None]
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
_TABLES = """
CREATE TABLE IF NOT EXISTS vectors(
    id INTEGER PRIMARY KEY AUTOINCREMENT, passage INTEGER NOT NULL UNIQUE, vector BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS embedder(name TEXT NOT NULL);
CREATE TRIGGER IF NOT EXISTS vector_goes AFTER DELETE ON passages
    BEGIN DELETE FROM vectors WHERE passage=old.id; END;
"""


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

    def nearest(self, file: SearchFile, passages: Passages, vector: bytes) -> Iterator[PassageRow]:
        """All passages that are near to a vector, best first; of equals the newest."""
        self._catch_up(file, passages)
        for passage_id in nearest_first(self._packed, vector, list(self._ids)):
            if passage_id in passages.rows:
                yield passages.rows[passage_id]

    # --- embedding ---

    def prepare(self, file: SearchFile) -> None:
        """Have a file hold vectors of this embedder, and of no other."""
        if not self._size:
            return
        with file.opened() as connection:
            if _has_tables(connection) and _maker_in(connection) == self._name:
                return
        with file.writing() as connection:
            for statement in _TABLES.split(";\n"):
                connection.execute(statement)
            if _maker_in(connection) == self._name:  # another process was faster
                return
            gone = connection.execute("DELETE FROM vectors").rowcount
            connection.execute("DELETE FROM embedder")
            connection.execute("INSERT INTO embedder VALUES (?)", (self._name,))
        self._begin(None)
        if gone:
            logger.info("%s: %d vectors of another embedder are thrown away", file.path, gone)

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
            write(lambda connection: self._keep(connection, made))
        else:
            self._failures.update(batch.keys())

    def _claim(self, file: SearchFile, passages: Passages) -> dict[int, str]:
        """The passages to be embedded next, which nobody else embeds meanwhile.

        Those that failed come last, and alone: one of them may be what the embedder can't take.
        """
        self._catch_up(file, passages)
        rows, failures = passages.rows, self._failures
        free = self._waiting - self._claimed
        if not free:
            return {}
        best = heapq.nlargest(_BATCH, free, key=lambda i: (-failures[i], rows[i].at or 0.0, i))
        batch = best[:1] if failures[best[0]] else [i for i in best if not failures[i]]
        self._claimed.update(batch)
        with file.opened() as connection:
            texts = on_disk.texts_of(connection, batch)
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

    # --- the file ---

    def _catch_up(self, file: SearchFile, passages: Passages) -> None:
        """Know what the file has; where another embedder took it over just now, that is nothing."""
        if self._passages is not passages:
            self._begin(passages)
        with file.opened() as connection:
            is_ours = _maker_in(connection) == self._name
            rows = _vectors_behind(connection, self._last_vector) if is_ours else []
        for number, passage, vector in rows:
            self._add(number, passage, vector)
        for row in reversed(passages.rows.values()):
            if row.id <= self._last_passage:
                break
            if row.length and row.id not in self._ids:
                self._waiting.add(row.id)
        self._last_passage = passages.last_id

    def _add(self, number: int, passage: int, vector: bytes) -> None:
        if len(vector) != self._size:
            raise sqlite3.DatabaseError(f"passage {passage} has a vector of {len(vector)} bytes")
        self._last_vector = number
        self._waiting.discard(passage)
        if passage not in self._ids:
            self._ids[passage] = None
            self._packed += vector

    def _keep(self, connection: sqlite3.Connection, made: list[tuple[int, str, bytes]]) -> None:
        """Put vectors to their passages, as far as those are what was embedded."""
        if _maker_in(connection) == self._name:
            connection.executemany(
                "INSERT OR IGNORE INTO vectors(passage, vector) "
                "SELECT id, ?3 FROM passages WHERE id=?1 AND text=?2",
                made,
            )

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


def _has_tables(connection: sqlite3.Connection) -> bool:
    rows = connection.execute("SELECT name FROM sqlite_master")
    return {("vectors",), ("embedder",)}.issubset(rows)


def _maker_in(connection: sqlite3.Connection) -> str | None:
    row = connection.execute("SELECT name FROM embedder").fetchone()
    return None if row is None else str(row[0])


def _vectors_behind(connection: sqlite3.Connection, number: int) -> list[tuple[int, int, bytes]]:
    rows = connection.execute(
        "SELECT id, passage, vector FROM vectors WHERE id>? ORDER BY id", (number,)
    )
    return rows.fetchall()
