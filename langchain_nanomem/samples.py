"""Texts of what is removed, by which it is known again."""

from __future__ import annotations

import contextlib
import json
import logging
from typing import TYPE_CHECKING

from langchain_nanomem.codec import decode
from langchain_nanomem.errors import NanomemError
from langchain_nanomem.rendering import render_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from langchain_nanomem.history_log import HistoryEntry
    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.memory import MemoryStore
    from langchain_nanomem.memory_backend import MemoryBackend
    from langchain_nanomem.records import SessionRecords

logger = logging.getLogger(__name__)

_LEAST_CHARACTERS = 24
"""What is shorter others may well have said, too."""
_MOST_SAMPLES = 500


class Samples:
    """Texts of what is removed, and the ids of what was logged of it.

    Args:
        notes: Takes what could not be read, so that nothing of it is looked for.
    """

    def __init__(self, notes: list[str]) -> None:
        self._texts: set[str] = set()
        self._notes = notes
        self.entry_ids: set[str] = set()
        """Those of the entries that were logged of the sessions."""

    def add_memory(self, store: MemoryStore) -> None:
        """Take lines of a memory and its log."""
        with self._noting(f"the memory in {store.place}"):
            self._add(store.read_long_term())
        with self._noting(f"the log in {store.place}"):
            self.add_entries(store.history_entries())

    def add_entries(self, entries: Iterable[HistoryEntry]) -> None:
        """Take lines of entries of a log."""
        for entry in entries:
            self._add(entry.text)

    def add_sessions(
        self, sessions: SessionManager, keys: Sequence[str], archived: Sequence[str]
    ) -> None:
        """Take lines of what was said in sessions."""
        for key in keys:
            self._add_session(f"session {key!r}", sessions.reading(key))
        for key in archived:
            self._add_session(f"the archived session {key!r}", sessions.reading_archived(key))

    def _add_session(self, name: str, opened: AbstractContextManager[SessionRecords]) -> None:
        with self._noting(name), opened as records:
            consolidations = [*records.consolidations, records.unfinished or {}]
            self.entry_ids.update(one["id"] for one in consolidations if "id" in one)
            for record in records.messages(records.view()):
                self._add(render_words(decode(record)))

    @contextlib.contextmanager
    def _noting(self, name: str) -> Iterator[None]:
        """Go on without what can't be read, and note that."""
        try:
            yield
        except FileNotFoundError:  # gone, or brought back meanwhile
            return
        except (NanomemError, OSError) as error:
            logger.warning("%s: %s", name, error)
            self._notes.append(f"Could not be read, so nothing of it was looked for: {name}.")

    def _add(self, text: str) -> None:
        lines = (line.strip() for line in text.splitlines())
        self._texts.update(line for line in lines if len(line) >= _LEAST_CHARACTERS)

    def found_in(self, backend: MemoryBackend) -> list[str]:
        """The places that hold one of the texts; what can't be read is noted."""
        chosen = sorted(self._texts, key=len, reverse=True)[:_MOST_SAMPLES]
        samples = {form for text in chosen for form in _forms(text)}
        return backend.holding(samples, self._noting) if samples else []


def _forms(text: str) -> set[bytes]:
    """A text as it may stand in a file: as it is, in JSON, and in JSON within JSON."""
    forms, latest = {text}, {text}
    for _ in range(2):
        latest = {_escaped(one, is_ascii) for one in latest for is_ascii in (True, False)}
        forms |= latest
    return {form.encode("utf-8", "surrogatepass") for form in forms}


def _escaped(text: str, is_ascii: bool) -> str:  # noqa: FBT001 - of this module alone
    return json.dumps(text, ensure_ascii=is_ascii)[1:-1]
