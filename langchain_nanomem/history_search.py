"""Plain search in the history log: words and phrases, nothing else has a meaning."""

from __future__ import annotations

import itertools
import re
import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langchain_nanomem.history_log import HistoryEntry

_TERM = re.compile(r'"([^"]+)"|(\S+)')
_SENTENCE_END = re.compile(r"(?<=\w)[,.;:!?\u2026\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f]+\Z")
_BEFORE_ALL = datetime.min.replace(tzinfo=UTC)


def search_entries(entries: Iterable[HistoryEntry], query: str, limit: int) -> list[HistoryEntry]:
    """The entries that match `query`, best first: see `MemoryStore.search_history`."""
    phrases, words = _terms(query)
    ranked = []
    for position, entry in enumerate(entries):
        counts = _count_terms(entry, phrases, words)
        if counts:
            when = entry.at or _BEFORE_ALL
            ranked.append((len(counts), sum(counts), when, position, entry))
    ranked.sort(key=lambda rank: rank[:4], reverse=True)
    return [rank[-1] for rank in itertools.islice(ranked, limit)]


def _terms(query: str) -> tuple[set[str], set[str]]:
    """The distinct phrases and words of a query, as they are compared."""
    found = _TERM.findall(query)
    phrases = {_fold(phrase) for phrase, _word in found}
    words = {_fold(_SENTENCE_END.sub("", word.strip('"')) or word) for _phrase, word in found}
    return phrases - {""}, words - phrases - {""}


def _count_terms(entry: HistoryEntry, phrases: set[str], words: set[str]) -> list[int]:
    """How often each term that occurs does; empty when none does, or a phrase is missing."""
    text = _fold(f"{entry.stamp} {entry.text}")
    if not all(phrase in text for phrase in phrases):
        return []
    return [count for term in (*phrases, *words) if (count := text.count(term))]


def _fold(text: str) -> str:
    """What is compared: case, width and runs of white space make no difference."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split())
