"""Copying the memory of a scope from one back end into another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_nanomem.errors import CopyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_nanomem.history_log import HistoryEntry
    from langchain_nanomem.memory_backend import ScopeMemory
    from langchain_nanomem.memory_versions import ArchivedVersion


class Kept(NamedTuple):
    """What of a scope is in the target as it is in the source."""

    facts: int
    """1, or 0 where there are none."""
    versions: int
    """Earlier versions of them."""
    entries: int
    """Entries of the log."""


class MemoryCopy:
    """Copies facts, earlier versions and log of one scope.

    Args:
        source: It is only read.
        target: Where they are to be.
    """

    def __init__(self, source: ScopeMemory, target: ScopeMemory) -> None:
        self._source, self._target = source, target

    def run(self) -> Kept:
        """Copy what the target lacks, and see that all is the same there.

        Raises:
            CopyError: The target has other facts, or another log.
            CorruptRecordError: Something is damaged.
            OSError: It can't be read or written.
        """
        versions = self._made()
        has_facts = self._copy_facts(versions)
        self._copy_versions(versions)
        return Kept(int(has_facts), len(versions), self._copy_log())

    def _made(self) -> list[ArchivedVersion]:
        """The archived versions, newest first.

        One that is kept for a change which was never made is none: with it, the change would
        count as made.
        """
        return [
            version
            for version in self._source.versions()
            if version.change is None or self._source.is_made(version.change)
        ]

    def _copy_facts(self, versions: Sequence[ArchivedVersion]) -> bool:
        facts, there = self._source.current(), self._target.current()
        earlier = {"", *(version.version for version in versions)}
        if there.version != facts.version:
            is_earlier = facts.version and there.version in earlier
            if not is_earlier or not self._target.settle(facts.text.encode(), there.version):
                raise self._differs(self._target.facts_place, "facts")
            if self._target.current() != facts:
                raise CopyError(f"{self._target.facts_place}: not the same after it was written")
        return bool(facts.version)

    def _copy_versions(self, versions: Sequence[ArchivedVersion]) -> None:
        known = self._known()
        for version in reversed(versions):
            if _identity(version) not in known:
                self._target.put_version(version, version.read_bytes())
        known = self._known()
        for version in versions:
            there = known.get(_identity(version))
            if there is None or there.read_bytes() != version.read_bytes():
                raise self._differs(version.place, "earlier facts")

    def _known(self) -> dict[tuple[Any, ...], ArchivedVersion]:
        return {_identity(version): version for version in self._target.versions()}

    def _copy_log(self) -> int:
        wanted = self._source.entries()
        missing = self._missing(wanted)
        if missing:
            self._target.extend(missing)
            if self._missing(wanted):
                raise CopyError(f"{self._target.log_place}: not all is there after it was written")
        return len(wanted)

    def _missing(self, wanted: Sequence[HistoryEntry]) -> Sequence[HistoryEntry]:
        there = self._target.entries()
        if list(map(_told, there)) != list(map(_told, wanted[: len(there)])):
            raise self._differs(self._target.log_place, "entries")
        return wanted[len(there) :]

    def _differs(self, place: str, what: str) -> CopyError:
        return CopyError(
            f"{place}: the target has other {what} than the source. They were left as they are; "
            "erase that memory there first, if it is to be replaced"
        )


def _identity(version: ArchivedVersion) -> tuple[Any, ...]:
    return version.archived_at, version.version, version.change


def _told(entry: HistoryEntry) -> tuple[Any, ...]:
    """All of an entry but where it stands."""
    return entry.at, entry.text, entry.entry_id, entry.source
