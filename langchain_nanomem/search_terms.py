"""Texts as the terms that the search compares: words by their stems, other scripts by pairs."""

from __future__ import annotations

import re
import threading
import unicodedata
from functools import lru_cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import snowballstemmer

if TYPE_CHECKING:
    from collections.abc import Iterator

TERMS_VERSION = 1
"""Another number for other terms: an index with another one is built anew."""

UNSPACED = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\uac00-\ud7af\U00020000-\U0003ffff"
)
"""Han, Kana, Hangul, Thai, Lao, Burmese, Khmer: text without spaces, or with joined particles."""
_DATE = re.compile(r"(?<!\d)(\d{4})-(\d{2})(?:-(\d{2}))?(?!\d)")
_WORD = re.compile(rf"[{UNSPACED}]+|[A-Za-z][+#]+(?!\w)|[^\W_{UNSPACED}]+")
_UNSPACED_RUN = re.compile(rf"[{UNSPACED}]")
_POSSESSIVE = re.compile(r"['\u2019][sS]\b")
_HUMP = re.compile(r"[a-z\d](?=[A-Z])|[A-Z](?=[A-Z][a-z])")
_SIGNS = str.maketrans({"+": "plus", "#": "sharp"})
_MAX_TERM = 64
_STEMMER = snowballstemmer.stemmer("english")
_STEMMING = threading.Lock()
"""It keeps the word that it works on."""
_LATIN_END = "\u0250"
_IRREGULAR = """
be am are been being is was were|become became|begin began begun|bite bit bitten|break broke broken
bring brought|build built|buy bought|catch caught|child children|choose chose chosen|come came
deal dealt|dig dug|do did does done|draw drew drawn|drink drank drunk|drive drove driven
eat ate eaten|fall fell fallen|feed fed|feel felt|fight fought|find found|fly flew flown
foot feet|forget forgot forgotten|forgive forgave forgiven|freeze froze frozen|get got gotten
give gave given|go goes gone went|good best better|grow grew grown|hang hung|have had has
hear heard|hide hid hidden|hold held|keep kept|know knew known|lead led|leave left|lend lent
lie lay lain|life lives|light lit|lose lost|make made|man men|mean meant|meet met|mouse mice
pay paid|person people|ride rode ridden|ring rang rung|rise rose risen|run ran|say said
see saw seen|seek sought|sell sold|send sent|shake shook shaken|shine shone|shoot shot
show shown|sing sang sung|sink sank sunk|sit sat|sleep slept|speak spoke spoken|spend spent
stand stood|steal stole stolen|stick stuck|strike struck|swear swore sworn|swim swam swum
take took taken|teach taught|tear tore torn|tell told|think thought|throw threw thrown
tooth teeth|understand understood|wake woke woken|wear wore worn|wife wives|win won|woman women
write wrote written
"""
_LEMMAS = {
    form: forms.split()[0]
    for forms in _IRREGULAR.replace("\n", "|").split("|")
    for form in forms.split()
}
MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_COMMON_WORDS = """
a about an and are as at be been but by can could did do does for from had has have he her him
his how i if in into is it its me my of on or our she should so than that the their them then
there these they this those to us was we were what when where which who whom whose why will
with would you your
"""
_COMMON = frozenset(_COMMON_WORDS.split())
"""English words that say nothing of what is asked for."""


def terms_of(text: str) -> list[str]:
    """The terms of a text, in order. A date such as ``2026-05-08`` is one, and so is its month."""
    dates = chain.from_iterable(_date_terms(*found.groups()) for found in _DATE.finditer(text))
    return [*_terms(_DATE.sub(" ", text)), *dates]


def query_terms(text: str) -> set[str]:
    """The terms of what is searched for, without words that say nothing, unless all are such.

    One that ends in ``*`` stands for all that begin so.
    """
    dates = {"".join(filter(None, found.groups())) for found in _DATE.finditer(text)}
    words = _words(_DATE.sub(" ", text))
    telling = [word for word in words if word.casefold() not in _COMMON]
    return dates.union(*map(_asked_terms, telling or ([] if dates else words)))


def _terms(text: str) -> Iterator[str]:
    for word in _words(text):
        yield from _word_terms(word)
        if _HUMP.search(word):
            yield from map(_stem, _HUMP.sub(r"\g<0> ", word).casefold().split())


def _asked_terms(word: str) -> tuple[str, ...]:
    terms = _word_terms(word)
    if not _UNSPACED_RUN.match(word):
        return terms
    return terms[:-1] or (f"{word}*",)


def _words(text: str) -> list[str]:
    return _WORD.findall(_POSSESSIVE.sub("", unicodedata.normalize("NFKC", text)))


@lru_cache(maxsize=65_536)
def _word_terms(word: str) -> tuple[str, ...]:
    if _UNSPACED_RUN.match(word):
        return (*map("".join, pairwise(word)), word[-1])
    return (_stem(word.translate(_SIGNS).casefold()),)


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    """What words of one stem share. English is known; other words are folded alone."""
    if word[0] < _LATIN_END and not word.isascii():
        bare = unicodedata.normalize("NFKD", word)
        word = "".join(c for c in bare if not unicodedata.combining(c))
    word = word[:_MAX_TERM]
    lemma = _LEMMAS.get(word, word)
    if not lemma.isascii():
        return lemma
    with _STEMMING:
        return str(_STEMMER.stemWord(lemma))


def _date_terms(year: str, month: str, day: str | None) -> Iterator[str]:
    yield year
    yield f"{year}{month}"
    if day:
        yield f"{year}{month}{day}"
    if 1 <= int(month) <= len(MONTHS):
        yield _stem(MONTHS[int(month) - 1])
