"""What a search index is kept in: the tables of one scope. All of it can be made anew."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence
    from contextlib import AbstractContextManager

T = TypeVar("T")
Occurrences = Counter[int]
"""The ids of the passages that have a term, each with how often."""


class Source(NamedTuple):
    """What was read of a session, or of the event log."""

    id: int
    name: str
    label: str
    """The session's key; "" for the event log."""
    version: str
    size: int
    """The number of its passages."""
    mark: int
    """Tells whether they are still what it begins with."""


class Passage(NamedTuple):
    """A message, or an entry of the event log, as it is searched."""

    place: int
    """Where it stands in its source."""
    episode: int
    """Where the run of messages begins that it is in."""
    traits: int
    at: float | None
    """When it was said, in seconds since 1970."""
    speaker: str
    """Who said it; "" for what nobody said."""
    text: str
    about: str
    """What an entry tells of: ``key start-end``; "" for a message."""
    terms: list[str]
    """They have no spaces in them."""
    dates: list[str]
    """The terms of when it was said, which do not make it longer."""


class PassageRow(NamedTuple):
    """A passage as the ranking needs it."""

    id: int
    source: int
    place: int
    episode: int
    length: int
    traits: int
    at: float | None
    speaker: str
    about: str


class VectorRow(NamedTuple):
    """The vector of a passage."""

    id: int
    passage: int
    vector: bytes


class DamagedIndexError(Exception):
    """What the tables hold can't be right. Raised within `SearchTables.persist`."""


class SearchRows(ABC):
    """What is in the tables, within a block of `SearchTables`. Ids grow, and are never reused."""

    @abstractmethod
    def generation(self) -> Hashable:
        """Another one where something was removed: what was read before may be gone."""

    # --- sources ---

    @abstractmethod
    def sources(self) -> dict[str, Source]:
        """What was read, by name."""

    @abstractmethod
    def put_source(self, source: Source, journal: int | None = None) -> int | None:
        """Note what was read. Gives the id.

        Args:
            source: An id of 0 is a new one.
            journal: The identity of the journal that it was read of; None: of none.

        Returns:
            None where that journal is gone, as far as that can be told here; nothing is noted.
        """

    @abstractmethod
    def last_of(self, source: int) -> tuple[int, int, float | None]:
        """Place, episode and time of a source's last passage; (-1, 0, None) without any."""

    # --- passages ---

    @abstractmethod
    def add_passages(self, source: int, added: Iterable[Passage]) -> None:
        """Put passages behind those that a source has."""

    @abstractmethod
    def remove_passages(self, source: int) -> None:
        """Remove those of a source, with their vectors."""

    @abstractmethod
    def rows_behind(self, last_id: int) -> list[PassageRow]:
        """The passages added after one, in the order of their ids."""

    @abstractmethod
    def texts_of(self, ids: Sequence[int]) -> dict[int, str]:
        """The texts of passages."""

    @abstractmethod
    def passages_with(self, part: str) -> Occurrences:
        """The passages whose text has a text in it."""

    # --- terms ---

    @abstractmethod
    def terms_behind(self, last_id: int) -> list[tuple[int, Sequence[str]]]:
        """The terms of the passages added after one."""

    @abstractmethod
    def occurrences(self, terms: Sequence[str]) -> dict[str, Occurrences]:
        """Where each of these terms is."""

    @abstractmethod
    def vocabulary(self) -> set[str]:
        """All terms. This takes as long as there are passages."""

    # --- vectors ---

    @abstractmethod
    def embedder(self) -> str | None:
        """Who made the vectors; None where there is no place for any."""

    @abstractmethod
    def begin_vectors(self, embedder: str) -> int | None:
        """Have it hold the vectors of this embedder, and of no other.

        Returns:
            How many of another's were removed; None where it holds those of this one already.
        """

    @abstractmethod
    def vectors_behind(self, last_id: int) -> list[VectorRow]:
        """The vectors added after one, in the order of their ids."""

    @abstractmethod
    def add_vectors(self, made: Sequence[tuple[int, str, bytes]]) -> None:
        """Put vectors to passages, by id and text; to those that are gone, or have one, none."""


class SearchTables(ABC):
    """The index of one scope, and nothing of another's. Used by one thread at a time.

    What an operation raises is the back end's own; `persist` deals with it.
    """

    place: str
    """Where it is, for people."""

    @abstractmethod
    def persist(self, work: Callable[[], T]) -> T:
        """What `work` gives, which is begun anew where the tables broke meanwhile.

        What is damaged is thrown away before.

        Raises:
            DatabaseError: They can't be used.
        """

    @abstractmethod
    def opened(self) -> AbstractContextManager[SearchRows]:
        """What is in them; what is asked within a block of `reading` or `writing` is so there."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[SearchRows]:
        """The same, all of one moment, whoever writes meanwhile. Nothing is written in it."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[SearchRows]:
        """The same, to be changed: nobody else writes, all of it is kept or nothing."""

    @abstractmethod
    def forget_source(self, name: str) -> None:
        """Remove a source and its passages, so that nothing of them is left."""

    @abstractmethod
    def remove(self) -> None:
        """Remove all of it. What is written later begins anew."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is open; the next use opens it again."""
