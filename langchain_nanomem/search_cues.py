"""What a text or a question says of itself beyond its words: English cues, by a fixed list.

Each is a factor on the rank of a passage. In another language none is found, and the rest of
the ranking stands alone.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from langchain_nanomem.search_terms import MONTHS

if TYPE_CHECKING:
    from langchain_nanomem.search_weights import Weights

QUESTION = 1
"""A trait of a passage: it ends in a question, in whatever language."""
TIME = 2
"""It has words that tell when."""
NUMBER = 4
"""It has numbers, as figures or as words."""

_QUESTION_ENDS = ("?", "\uff1f", "\u061f", "\u037e")
_TIME = re.compile(
    r"\b(?:yesterday|today|tomorrow|tonight|last|next|ago|since|weekends?|weeks?|months?|years?|"
    rf"(?:mon|tues|wednes|thurs|fri|satur|sun)days?|{'|'.join(MONTHS)}|(?:19|20)\d\d)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozens?|once|twice|"
    r"both|couple|several|hundreds?|thousands?)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]+")
_ASKS_WHEN = re.compile(r"\b(?:when|(?:what|which) (?:year|month|day|date))\b", re.IGNORECASE)
_ASKS_NUMBER = re.compile(r"\bhow (?:many|much|often|old)\b", re.IGNORECASE)
_NAMED_MONTH = re.compile(rf"\b(?:{'|'.join(MONTHS)})\b", re.IGNORECASE)


def traits_of(text: str) -> int:
    """What a passage has, each trait a bit."""
    found = QUESTION if text.rstrip().endswith(_QUESTION_ENDS) else 0
    found |= TIME if _TIME.search(text) else 0
    return found | (NUMBER if _NUMBER.search(text) else 0)


class Cues(NamedTuple):
    """What a question asks for."""

    asks_when: bool
    asks_number: bool
    months: frozenset[int]
    folded: str

    @classmethod
    def of(cls, query: str) -> Cues:
        """Those of a query."""
        months = {MONTHS.index(name.casefold()) + 1 for name in _NAMED_MONTH.findall(query)}
        return cls(
            _ASKS_WHEN.search(query) is not None,
            _ASKS_NUMBER.search(query) is not None,
            frozenset(months),
            f" {' '.join(_WORD.findall(query.casefold()))} ",
        )

    def factor(self, weights: Weights, traits: int, at: float | None, speaker: str) -> float:
        """What the rank of a passage is multiplied with.

        Args:
            weights: What each cue counts.
            traits: Those of the passage.
            at: When it was said, in seconds since 1970.
            speaker: Who said it.
        """
        factor = weights.question if traits & QUESTION else 1.0
        if self.asks_when and traits & TIME:
            factor *= weights.time
        if self.asks_number and traits & NUMBER:
            factor *= weights.number
        if self.months and at is not None and _month(at) in self.months:
            factor *= weights.month
        is_named = speaker and f" {speaker.casefold()} " in self.folded
        return factor * weights.speaker if is_named else factor


def _month(at: float) -> int:
    return datetime.fromtimestamp(at, UTC).month
