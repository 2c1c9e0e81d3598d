"""Plain search in the history log: words and phrases, nothing else has a meaning."""

from __future__ import annotations

import itertools
import re
import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langchain_nanomem.history_log import HistoryEntry

_TERM = re.compile(r'"([^"]+)"|(\S+)')
_SENTENCE_END = re.compile(r"(?<=\w)[,.;:!?\u2026\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f]+\Z")
_DATE = re.compile(r"\[?[0-9]{4}-[0-9]{2}")
_BEFORE_ALL = datetime.min.replace(tzinfo=UTC)


def search_entries(entries: Iterable[HistoryEntry], query: str, limit: int) -> list[HistoryEntry]:
    """The entries that match `query`, best first: see `MemoryStore.search_history`."""
    terms = parse_query(query)
    ranked = []
    for position, entry in enumerate(entries):
        text = _fold(entry.text)
        counts = _count_terms(text, f"{entry.stamp} {text}", terms)
        if counts:
            when = entry.at or _BEFORE_ALL
            ranked.append((len(counts), sum(counts), when, position, entry))
    ranked.sort(key=lambda rank: rank[:4], reverse=True)
    return [rank[-1] for rank in itertools.islice(ranked, limit)]


def rank_text(text: str, terms: list[_Term]) -> tuple[int, int] | None:
    """How well a text matches: the number of distinct terms in it, and how often they occur.

    None where none does, or a phrase is missing.
    """
    folded = _fold(text)
    counts = _count_terms(folded, folded, terms)
    return (len(counts), sum(counts)) if counts else None


class _Term(NamedTuple):
    """A distinct word or phrase of a query, as it is compared."""

    text: str
    is_phrase: bool
    is_date: bool


def parse_query(query: str) -> list[_Term]:
    """The terms of a query, the phrases first."""
    found = _TERM.findall(query)
    phrases = {_fold(phrase) for phrase, _word in found} - {""}
    words = {_fold(_SENTENCE_END.sub("", word.strip('"')) or word) for _phrase, word in found}
    return [
        _Term(text, text in phrases, _DATE.match(text) is not None)
        for text in (*phrases, *(words - phrases - {""}))
    ]


def _count_terms(text: str, dated: str, terms: list[_Term]) -> list[int]:
    """How often each term that occurs does; empty when none does, or a phrase is missing."""
    counts = []
    for term in terms:
        count = (dated if term.is_date else text).count(term.text)
        if count:
            counts.append(count)
        elif term.is_phrase:
            return []
    return counts


def _fold(text: str) -> str:
    """What is compared: case, width and runs of white space make no difference."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split())


__all__ = ["parse_query", "rank_text", "search_entries"]
