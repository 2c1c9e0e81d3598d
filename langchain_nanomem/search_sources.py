"""What is searched: the messages of sessions, and the entries of the event log, as passages."""

from __future__ import annotations

import zlib
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from langchain_nanomem.codec import decode
from langchain_nanomem.rendering import render_words, speaker_of, valid_unicode
from langchain_nanomem.search_cues import traits_of
from langchain_nanomem.search_tables import Passage
from langchain_nanomem.search_terms import terms_of
from langchain_nanomem.session import parse_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from langchain_core.messages import BaseMessage

    from langchain_nanomem.history_log import HistoryEntry
    from langchain_nanomem.records import SessionRecords
    from langchain_nanomem.redaction import Redaction

SEARCH_TOOL = "search_memory"
LogStates = tuple[Any, ...]
_PAUSE_SECONDS = 3 * 60 * 60
"""After so long a pause another episode begins."""
_MOST_MESSAGES = 60
"""So many messages are an episode at most, however fast they came."""
_MOST_CHARACTERS = 50_000
"""So much of a message is searched."""


class Last(NamedTuple):
    """The last passage that is known of a session."""

    place: int = -1
    episode: int = 0
    at: float | None = None


class Log(Protocol):
    """An event log, to be read."""

    def entries(self) -> list[HistoryEntry]:
        """All entries, oldest first."""

    def log_states(self) -> LogStates:
        """What changes whenever the log does; it is false for an empty one."""


class Cleaner:
    """Takes out what must not be in the index.

    Args:
        redaction: What that is; None: nothing.
    """

    def __init__(self, redaction: Redaction | None) -> None:
        self.clean = str if redaction is None else redaction.withhold
        self.mark = 0 if redaction is None else zlib.crc32(redaction.fingerprint().encode())
        """Tells it from another one: what that one has let in is read anew."""


class SessionText:
    """The messages of a session as they are now.

    Args:
        records: The session, held still.
        cleaner: Takes out what must not be in the index.
    """

    def __init__(self, records: SessionRecords, cleaner: Cleaner) -> None:
        self._records = records
        self._cleaner = cleaner
        self._numbers = [] if records.is_off_the_record else records.view()
        self._journal = (records.uid or "").encode()

    @property
    def count(self) -> int:
        """How many messages there are."""
        return len(self._numbers)

    def mark(self, count: int) -> int:
        """Tells the first `count` messages from any others."""
        numbers = array("q", self._numbers[:count]).tobytes()
        return zlib.crc32(numbers, zlib.crc32(self._journal, self._cleaner.mark))

    def passages(self, last: Last) -> Iterator[Passage]:
        """Those behind the last one that is known."""
        records = self._records.messages(self._numbers[last.place + 1 :])
        for place, record in enumerate(records, last.place + 1):
            passage = _message_passage(record, place, last, self._cleaner)
            last = Last(place, passage.episode, passage.at or last.at)
            yield passage


class HistoryText:
    """The entries of an event log as they are now.

    Args:
        entries: The entries, oldest first.
        cleaner: Takes out what must not be in the index: people write into the log, too.
    """

    def __init__(self, entries: Sequence[HistoryEntry], cleaner: Cleaner) -> None:
        self._entries = entries
        self._cleaner = cleaner

    @property
    def count(self) -> int:
        """How many entries there are."""
        return len(self._entries)

    def mark(self, count: int) -> int:
        """Tells the first `count` entries from any others."""
        mark = self._cleaner.mark
        for entry in self._entries[:count]:
            told = f"{entry.stamp}\0{entry.entry_id}\0{entry.source}\0{entry.text}\0"
            mark = zlib.crc32(told.encode("utf-8", "replace"), mark)
        return mark

    def passages(self, last: Last) -> Iterator[Passage]:
        """Those behind the last one that is known."""
        for place, entry in enumerate(self._entries[last.place + 1 :], last.place + 1):
            text = self._cleaner.clean(entry.text)
            terms, dates = terms_of(text), _date_terms(entry.at)
            at = None if entry.at is None else entry.at.timestamp()
            yield Passage(place, place, 0, at, "", text, entry.source or "", terms, dates)


def _message_passage(record: dict[str, Any], place: int, last: Last, cleaner: Cleaner) -> Passage:
    said_at = parse_timestamp(record.get("timestamp"))
    at = None if said_at is None else said_at.timestamp()
    message = _without_searches(decode(record))
    text = "" if message is None else cleaner.clean(valid_unicode(render_words(message)))
    if message is None or message.type == "system" or not text.strip():
        return Passage(place, _episode(place, at, last), 0, at, "", "", "", [], [])
    speaker = cleaner.clean(valid_unicode(speaker_of(message)))
    name = cleaner.clean(valid_unicode(message.name or ""))
    text = text[:_MOST_CHARACTERS]
    terms = [*terms_of(name), *terms_of(text)]
    episode, traits = _episode(place, at, last), traits_of(text)
    return Passage(place, episode, traits, at, speaker, text, "", terms, _date_terms(said_at))


def _date_terms(moment: datetime | None) -> list[str]:
    return [] if moment is None else terms_of(f"{moment:%Y-%m-%d}")


def _episode(place: int, at: float | None, last: Last) -> int:
    """Where the episode begins that a message is in."""
    has_paused = at is not None and last.at is not None and at - last.at > _PAUSE_SECONDS
    if place == 0 or has_paused or place - last.episode >= _MOST_MESSAGES:
        return place
    return last.episode


def _without_searches(message: BaseMessage) -> BaseMessage | None:
    """`message` without what the search was asked: that has each word searched for in it."""
    calls = getattr(message, "tool_calls", ())
    others = [call for call in calls if call["name"] != SEARCH_TOOL]
    if len(others) < len(calls):
        message = message.model_copy(update={"tool_calls": others})
    return None if message.type == "tool" and message.name == SEARCH_TOOL else message
