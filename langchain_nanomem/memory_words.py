"""Whether a line has words as they stand, and not a part of longer ones. Pure."""

from __future__ import annotations

import re
import unicodedata

from langchain_nanomem.search_terms import UNSPACED

_UNSPACED = re.compile(f"[{UNSPACED}]")
_PARTS = re.compile(r"[\s,;:!?()\"\u201c\u201d\u3001\u3002\uff0c]+")
_JOINED = re.compile(r"['\u2019](?!s\b)|[-\u2010\u2011]")
"""What joins words to one: "tea-time" and "can't" are, a possessive is none."""


def words_of(text: str) -> set[str]:
    """The words of a text, in any case; compounds are one."""
    words = (word.strip(".") for word in _PARTS.split(text.casefold()))
    return {word for word in words if any(map(str.isalnum, word))}


def has_words(text: str, words: str) -> bool:
    """Whether a text has these words, in a row, and beginning and ending as they do.

    In a script without spaces, where words can't be told apart, they may stand anywhere.
    """
    start = text.find(words)
    while words and start >= 0:
        if not _runs_on(text, start) and not _runs_on(text, start + len(words)):
            return True
        start = text.find(words, start + 1)
    return False


def _runs_on(text: str, place: int) -> bool:
    """Whether a word, a compound or a number has one part before a place and one behind it."""
    if not 0 < place < len(text):
        return False
    before, behind = text[place - 1], text[place]
    if _is_letter(before) and _is_letter(behind):
        return True
    if _is_letter(before):
        return _joins(text, place)
    return _is_letter(behind) and _joins(text, place - 1)


def _joins(text: str, place: int) -> bool:
    """Whether the sign at a place is between two parts of one word or number."""
    if not 0 < place < len(text) - 1:
        return False
    before, behind = text[place - 1], text[place + 1]
    if before.isdigit() and behind.isdigit() and text[place] in ".,:":
        return True
    is_joined = bool(_JOINED.match(text, place))
    return is_joined and _is_letter(before) and _is_letter(behind)


def _is_letter(character: str) -> bool:
    """Whether it is of a word in a script with spaces: a letter, a digit or a mark on one."""
    is_word = character == "_" or character.isalnum() or unicodedata.category(character)[0] == "M"
    return is_word and not _UNSPACED.match(character)
