"""Copying the sessions of one back end into another, record by record."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from langchain_nanomem.errors import CopyError
from langchain_nanomem.journal import ReplacedError, deletion_name
from langchain_nanomem.values import dump_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from langchain_nanomem.journal import (
        Archive,
        ArchivedSession,
        Journal,
        JournalInfo,
        Position,
        Record,
    )

_BATCH_BYTES = 16 * 2**20
"""About how much is written at once. A session that is no longer is there whole or not at all."""


class Counts(NamedTuple):
    """How many records of a session were copied."""

    written: int = 0
    """Those that were not there."""
    unchanged: int = 0
    """Those that were there already."""


class SessionCopy:
    """Copies sessions from one journal into another.

    Args:
        source: It is only read.
        target: Where they are to be.
    """

    def __init__(self, source: Journal, target: Journal) -> None:
        self._source, self._target = source, target

    def live(self, info: JournalInfo) -> Counts | None:
        """Copy a session that was listed; None where it is gone.

        One that is whole in the target's archive stays there.

        Raises:
            CopyError: Another one is there, or nobody can tell which session it is.
            CorruptRecordError: It is damaged.
            OSError: It can't be read or written.
        """
        records, _ = self._source.read(info.key)
        if not records:
            if self._source.is_nameless(info):
                raise CopyError(f"{info.place}: nobody can tell which session it is")
            return None
        with self._writing(info.key):
            if self._is_away(info.key, records):
                return Counts(unchanged=len(records))
            counts = self._complete(info.key, records)
            self._date(info.key, info.updated_at)
        return counts

    def archived(self, one: ArchivedSession, archive: Archive) -> Counts:
        """Copy a session that was put away. Where there is no archive it is as any other.

        Args:
            one: The session.
            archive: The source's, which has it.

        Raises:
            CopyError: Another one is there, or the source has another one in use.
            CorruptRecordError: It is damaged.
            OSError: It can't be read or written.
        """
        if self._source.info(one.key) is not None:
            raise CopyError(
                f"session {one.key!r}: the source has one in its archive, and another in use. "
                "Delete one of them there"
            )
        records = _archived(archive, one.key)
        with self._writing(one.key):
            if self._is_away(one.key, records):
                return Counts(unchanged=len(records))
            counts = self._complete(one.key, records)
            self._date(one.key, one.updated_at or one.archived_at)
            if self._target.archive is not None:
                self._target.put_away(one.key, one.scope, one.archived_at)
        return counts

    def deletions(self) -> int:
        """Note the deletions of the source, but of sessions that only the target has.

        Returns:
            How many are noted there now.

        Raises:
            OSError: They can't be read or written.
        """
        only_there = _names(self._target) - _names(self._source)
        noted = {
            name: at for name, at in self._source.deletions().items() if name not in only_there
        }
        known = self._target.deletions()
        for name, at in noted.items():
            if name not in known or known[name] < at:
                self._target.note_deletion(name, at)
        return len(noted)

    # --- one session ---

    @contextlib.contextmanager
    def _writing(self, key: str) -> Iterator[None]:
        """Hold the session in the target."""
        try:
            with self._target.lock(key):
                yield
        except ReplacedError:
            raise CopyError(
                f"session {key!r}: another wrote to it in the target meanwhile. Have no agent "
                "work on it while it is copied"
            ) from None

    def _is_away(self, key: str, records: Sequence[Record]) -> bool:
        """Whether these records are in the target's archive, all of them.

        Raises:
            CopyError: Others are.
        """
        archive = self._target.archive
        if archive is None or not archive.holds(key):
            return False
        return not _missing(key, _archived(archive, key), records)

    def _complete(self, key: str, records: Sequence[Record]) -> Counts:
        """Have these records in the target, and see that they are the same there.

        What `_is_away` found to be a beginning of them is brought back.
        """
        self._target.bring_back(key)
        there, end = self._target.read(key)
        missing = _missing(key, there, records)
        if missing:
            self._write(key, missing, end if there else None)
            if _missing(key, self._target.read(key)[0], records):
                raise CopyError(f"session {key!r}: not all of it is there after it was written")
        return Counts(len(missing), len(there))

    def _write(self, key: str, records: Sequence[Record], end: Position | None) -> None:
        for batch in _batches(records):
            if end is None:  # what is put in place whole needs no marks of an append
                end = self._target.rewrite(key, batch)
            else:
                end = self._target.append(key, batch, expected_end=end)

    def _date(self, key: str, at: datetime) -> None:
        """Have it be as old as it is in the source, for it may be put away by its age."""
        info = self._target.info(key)
        if info is not None and info.updated_at != at:
            self._target.set_updated_at(key, at)


def _archived(archive: Archive, key: str) -> list[Record]:
    return [entry.record for entry in archive.reader(key).read()[0]]


def _missing(key: str, there: Sequence[Record], records: Sequence[Record]) -> Sequence[Record]:
    """What of the records is not there.

    Raises:
        CopyError: What is there is no beginning of them.
    """
    for number, (one, other) in enumerate(zip(there, records, strict=False), start=1):
        if _line(one) != _line(other):
            raise CopyError(
                f"session {key!r}: the target has another one, which differs in record {number}. "
                f"{_LEFT}"
            )
    if len(there) > len(records):
        raise CopyError(
            f"session {key!r}: the target has {len(there)} records of it, the source only "
            f"{len(records)}; it went on there. {_LEFT}"
        )
    return records[len(there) :]


_LEFT = "It was left as it is; delete it there first, if it is to be replaced"


def _line(record: Record) -> bytes:
    """A record as it is written: values that are equal may be of other types."""
    return dump_record(record)


def _batches(records: Sequence[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(_line(record))
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _names(journal: Journal) -> set[bytes]:
    """All sessions of a journal, as `deletion_name` names them."""
    keys = [info.key for info in journal.list()]
    if journal.archive is not None:
        keys += [one.key for one in journal.archive.sessions()]
    return set(map(deletion_name, keys))
