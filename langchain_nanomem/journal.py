"""The narrow waist: an append-only list of records for each key.

A back end implements `Journal` and nothing else, and has sessions, chat history,
checkpoints and consolidation.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from langgraph.checkpoint.serde.base import SerializerProtocol


Record = dict[str, Any]


class Position(NamedTuple):
    """How far a journal was read, and what stood there, so that a replacement is noticed."""

    offset: int
    mark: bytes


ORIGIN = Position(0, b"")
Reading = tuple[list[Record], Position]
Address = tuple[int, int]
"""Where a record lies in its journal. What the numbers mean is the back end's own matter."""


class Entry(NamedTuple):
    """A record, and where it lies."""

    address: Address
    record: Record


class JournalInfo(NamedTuple):
    """What a listing tells of a journal."""

    key: str
    first_record: Record
    updated_at: datetime
    """When it was last written, in UTC."""
    size_bytes: int
    place: str
    """Where it lies, for people."""


Journals = list[JournalInfo]


class JournalState(NamedTuple):
    """What changes whenever a journal is written to."""

    identity: int
    """Another one for one that took its place."""
    size_bytes: int
    changed: int
    """When, in whatever unit."""

    def replaces(self, earlier: JournalState) -> bool:
        """Whether it is another journal than the earlier one, as far as this tells."""
        return self.identity != earlier.identity or self.size_bytes < earlier.size_bytes


class Bound(NamedTuple):
    """A session, and whose it is."""

    key: str
    scope: tuple[str, ...]
    state: JournalState


class ReplacedError(Exception):
    """The journal is no longer the one that the position was taken of. Read it anew."""


def deletion_name(key: str) -> bytes:
    """What names a key in the notes of deletions, and tells it to nobody."""
    return hashlib.sha256(key.encode()).digest()[:20]


class JournalReader(ABC):
    """One journal, held open: it stays what it is even if another takes its place meanwhile."""

    objects: SerializerProtocol | None = None
    """What makes the objects in its records again; without it they stay as they are written."""

    @abstractmethod
    def read(self, start: Position = ORIGIN) -> tuple[list[Entry], Position]:
        """The records behind `start`, oldest first, and the end. A missing journal is empty.

        Raises:
            ReplacedError: `start` is no position of this journal.
            CorruptRecordError: A record can't be read.
        """

    @abstractmethod
    def load(self, addresses: Sequence[Address]) -> list[Record]:
        """The records at these addresses, which `read` has given.

        Raises:
            CorruptRecordError: There is none.
        """

    @abstractmethod
    def renew(self) -> None:
        """Go over to the journal that has the key now."""


class ArchivedSession(NamedTuple):
    """A session that was put away."""

    key: str
    scope: tuple[str, ...]
    """Whose memory it belongs to."""
    archived_at: datetime
    """When, in UTC."""
    size_bytes: int
    """Compressed."""
    path: Path
    """Where it lies."""
    updated_at: datetime | None = None
    """When it was last written before it was put away, in UTC, if that is known."""


class Archive(ABC):
    """Where journals are put away, to be read and to be brought back."""

    @abstractmethod
    def holds(self, key: str) -> bool:
        """Whether the journal of a key is put away."""

    @abstractmethod
    def sessions(self) -> list[ArchivedSession]:
        """All that can be read, in the order of their keys; of others a warning tells."""

    def find(self, key: str) -> ArchivedSession | None:
        """What is known of the session of a key; None where it is not put away.

        Raises:
            OSError: It can't be read.
            CorruptRecordError: It is damaged.
        """
        return next((one for one in self.sessions() if one.key == key), None)

    @abstractmethod
    def states(self) -> dict[str, JournalState]:
        """The state of each, by a name that no journal has which is not put away."""

    @abstractmethod
    def session(self, name: str) -> ArchivedSession:
        """What is known of one, by its name in `states`.

        Raises:
            OSError: It can't be read, or is gone.
            CorruptRecordError: It is damaged.
        """

    @abstractmethod
    def reader(self, key: str) -> JournalReader:
        """The records of one.

        Raises:
            FileNotFoundError: It is not put away.
            CorruptRecordError: It is damaged.
        """


class Journal(ABC):
    """Append-only lists of records, one a key. All methods may be called from any thread."""

    archive: Archive | None = None
    """Where journals are put away; None where that can't be."""
    scope: tuple[str, ...] | None = None
    """Whose sessions alone are in it; None where they may be anyone's."""

    def is_there(self) -> bool:
        """Whether there is a place with journals, or for some. Makes nothing.

        Raises:
            UnsupportedFormatError: It has to be brought up to date before it can be read.
            OSError: It can't be told.
        """
        return True

    def put_away(self, key: str, scope: tuple[str, ...], at: datetime | None = None) -> bool:
        """Move a journal into the archive; False where there is none.

        Args:
            key: Whose journal.
            scope: Whose memory it belongs to.
            at: When it was put away, in UTC; now by default.

        Raises:
            NotImplementedError: There is no archive here.
            CorruptRecordError: It is damaged; it stays.
            OSError: It could not be written; it stays.
        """
        raise NotImplementedError(f"{self!r} keeps no archive")

    def bring_back(self, key: str) -> bool:
        """Move a journal out of the archive, as if it had never been there.

        Returns:
            False where it is not in it, or another journal of the key has begun since; then the
            archived one stays.

        Raises:
            CorruptRecordError: It is damaged; it stays.
            OSError: It could not be written; it stays.
        """
        del key
        return False

    def delete_archived(self, key: str) -> bool:
        """Remove a journal from the archive; False where it is not in it."""
        del key
        return False

    def forget(self, key: str) -> None:  # noqa: B027 - a back end may have nothing of the kind
        """Remove what still names the key of a journal that was deleted, such as its lock.

        When it was deleted stays known.
        """

    @abstractmethod
    def append(
        self,
        key: str,
        records: Sequence[Record],
        *,
        expected_end: Position | None = None,
        durable: bool = True,
    ) -> Position:
        """Put `records` at the end: all of them or, whatever happens, none.

        Args:
            key: Whose journal; it begins to exist with its first record.
            records: What to append, in order.
            expected_end: Append only if this is still the end.
            durable: Return only when a power loss can't take them back.

        Returns:
            The new end.

        Raises:
            ReplacedError: The end is another than `expected_end`; nothing was written.
            ValueError: A record can't be stored; nothing was written.
            OSError: It could not be written; the journal is as it was.
        """

    @abstractmethod
    def open(self, key: str) -> AbstractContextManager[JournalReader]:
        """The journal of `key`, to be read until the block ends."""

    def read(self, key: str, start: Position = ORIGIN) -> Reading:
        """The records behind `start`, oldest first, and the end. A missing journal is empty.

        Raises:
            ReplacedError: `start` is no position of this journal (any more).
            CorruptRecordError: A record can't be read.
        """
        with self.open(key) as reader:
            entries, end = reader.read(start)
            return [entry.record for entry in entries], end

    @abstractmethod
    def rewrite(self, key: str, records: Sequence[Record], *, erase: bool = False) -> Position:
        """Put `records` in place of all that the journal held; readers see the old or the new.

        Args:
            key: Whose journal.
            records: What is to be there, in order.
            erase: Note it as a deletion, and keep no copy of the old one anywhere.

        Raises:
            ReplacedError: Another wrote to it since it was read or written in the same lock.
            ValueError: A record can't be stored; the journal is as it was.
            OSError: It could not be written; the journal is as it was.
        """

    @abstractmethod
    def delete(self, key: str) -> bool:
        """Remove the journal and note when; False where there was none.

        Raises:
            ReplacedError: Another wrote to it since it was read or written in the same lock.
        """

    @abstractmethod
    def deleted_at(self, key: str) -> datetime | None:
        """When a journal of this key was last deleted, in UTC; None if never."""

    @abstractmethod
    def deletions(self) -> dict[bytes, datetime]:
        """When journals were last deleted, in UTC, by the `deletion_name` of their keys."""

    @abstractmethod
    def note_deletion(self, name: bytes, at: datetime) -> None:
        """Have `deleted_at` say this moment, unless it says a later one. Deletes nothing.

        Args:
            name: The `deletion_name` of the key.
            at: The moment, in UTC.
        """

    @abstractmethod
    def set_updated_at(self, key: str, at: datetime) -> None:
        """Have a journal's `updated_at` be this moment, in UTC, until it is written to again."""

    @abstractmethod
    def list(self) -> Journals:
        """All journals, in the order of their keys."""

    def info(self, key: str) -> JournalInfo | None:
        """What `list` tells of one journal; None where there is none."""
        return next((info for info in self.list() if info.key == key), None)

    def is_nameless(self, info: JournalInfo) -> bool:
        """Whether a journal that was listed is there, and nobody can tell its key.

        It is damaged; its key in the listing is none under which it is found.
        """
        return self.info(info.key) is None and any(one.place == info.place for one in self.list())

    def states(self) -> dict[str, JournalState]:
        """The state of each journal, by a short name of it."""
        return {
            info.key: JournalState(0, info.size_bytes, int(info.updated_at.timestamp() * 1e6))
            for info in self.list()
        }

    def key_of(self, name: str) -> str | None:
        """The key of a journal that `states` has named; None where it is gone."""
        return name

    def sessions_of(self, scope: tuple[str, ...]) -> dict[str, Bound] | None:
        """The sessions of a scope, by the names that `states` has.

        None: each has to be asked, for the journal can't tell.
        """
        del scope
        return None

    @abstractmethod
    def lock(self, key: str) -> AbstractContextManager[None]:
        """Exclude all others, in this process and elsewhere. A thread may enter it again.

        Others are kept out from when the journal is first read in the block until it is first
        written. A back end may let them in then; if one writes, what is written later in the
        block is refused with a `ReplacedError`, unless the journal was read since.
        """

    def attempt(self, key: str) -> AbstractContextManager[None]:
        """`lock` for who does everything in the block anew where an append is refused.

        A back end may keep nobody out before the journal is read from another place than it was
        last read to or appended to, and tell till then what it knew there. What is appended upon
        an end that is none any more is refused with a `ReplacedError`; then what others wrote is
        told.
        """
        return self.lock(key)

    def index(self, key: str) -> bytes | None:
        """What `keep_index` kept last, whole; None where there is nothing, or it is damaged."""
        del key
        return None

    def keep_index(self, key: str, content: bytes) -> None:  # noqa: B027 - a back end may do without
        """Keep what makes opening the journal quick. It is no part of it, and may be lost.

        It goes whenever the journal is rewritten or deleted. The caller holds the lock.

        Args:
            key: Whose journal.
            content: Any bytes; what was kept before is forgotten.
        """
