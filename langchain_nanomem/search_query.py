"""What is asked of a search, read once."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from typing import NamedTuple

from langchain_nanomem.rendering import valid_unicode
from langchain_nanomem.search_cues import Cues
from langchain_nanomem.search_terms import query_terms

_PHRASE = re.compile(r'"([^"]+)"')
_TAG = re.compile(r"(?<![\w#/&=?%])#([^\W\d][\w/-]*)")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://(?:\([!-'*-~]*\)|[!#-'*-;=?-~])+", re.IGNORECASE)
_COLOUR = re.compile(r"[0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8}")
_WORD = re.compile(r"[^\W_]+")
_LEAST_QUOTED = 4
_MAX_CHARACTERS = 2_000


class Query(NamedTuple):
    """Words, phrases and cues of a query, and which passages are wanted at all."""

    asked: str
    """Its text."""
    words: tuple[str, ...]
    """Its words, as they stand."""
    terms: tuple[str, ...]
    phrases: tuple[str, ...]
    cues: Cues
    since: float | None
    until: float | None
    session_id: str | None
    tags: frozenset[str]

    @classmethod
    def of(
        cls,
        text: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        session_id: str | None = None,
        tags: tuple[str, ...] = (),
    ) -> Query:
        """The query that is meant. No character but the double quote has another meaning."""
        text = valid_unicode(text[:_MAX_CHARACTERS])
        phrases = (folded(phrase) for phrase in _PHRASE.findall(text))
        return cls(
            text.strip(),
            _words(text),
            tuple(sorted(query_terms(text))),
            tuple(phrase for phrase in phrases if phrase),
            Cues.of(text),
            _seconds(since),
            _seconds(until),
            session_id,
            frozenset(tag.removeprefix("#").casefold() for tag in tags),
        )

    @property
    def is_narrow(self) -> bool:
        """Whether it asks for a session or a time."""
        return (self.session_id, self.since, self.until) != (None, None, None)

    @property
    def needs_text(self) -> bool:
        """Whether a passage's text tells if it is wanted: see `accepts`."""
        return bool(self.phrases or self.tags)

    def is_of(self, session_id: str) -> bool:
        """Whether a session is wanted."""
        return self.session_id in {None, session_id}

    def is_within(self, at: float | None) -> bool:
        """Whether a moment is wanted; what has none is wanted where no time is asked for."""
        if at is None:
            return self.since is None and self.until is None
        is_late_enough = self.since is None or at >= self.since
        return is_late_enough and (self.until is None or at < self.until)

    @property
    def may_quote(self) -> bool:
        """Whether it is long enough to be a quote."""
        return len(self.words) >= _LEAST_QUOTED

    def is_quoted_in(self, text: str) -> bool:
        """Whether a text has the words of the query as they stand, whatever is between them."""
        if max(self.words, key=len) not in text.casefold():
            return False
        return f" {' '.join(self.words)} " in f" {' '.join(_words(text))} "

    def accepts(self, text: str, at: float | None) -> bool:
        """Whether a text has all phrases and tags that are asked for."""
        if self.tags and not self.tags <= tags_in(text):
            return False
        if not self.phrases:
            return True
        whole = f"{folded(text)} {_stamp(at)}"
        return all(phrase in whole for phrase in self.phrases)


def tags_in(text: str) -> set[str]:
    """The tags that a text has, such as ``#project``.

    A heading is none, nor ``C#``, a part of a URL, or a colour: ``#ff0000``, ``#fff``.
    """
    tags = {tag.casefold() for tag in _TAG.findall(_URL.sub(" ", text))}
    return {tag for tag in tags if not _is_colour(tag)}


def _is_colour(tag: str) -> bool:
    """Whether it is a colour in hexadecimal; words of those letters, such as "facade", are not."""
    if not _COLOUR.fullmatch(tag):
        return False
    return any(map(str.isdigit, tag)) or len(set(tag)) <= len(tag) // 3


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(folded(text)))


def folded(text: str) -> str:
    """What phrases are compared by: case, width and runs of white space make no difference."""
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(text.split())


def _seconds(moment: datetime | None) -> float | None:
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone: give an aware datetime")
    return moment.timestamp()


def _stamp(at: float | None) -> str:
    return "" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"
