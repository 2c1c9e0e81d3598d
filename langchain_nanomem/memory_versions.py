"""Versions of MEMORY.md: the present one, and those that were replaced."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from langchain_nanomem import files
from langchain_nanomem.history_log import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MAX_CHANGE_LENGTH = 100
_UNFINISHED_AT_MOST = timedelta(days=1)
"""What a crash left unfinished is finished at the session's next turn; so long it is waited for."""


@dataclass(frozen=True)
class MemoryVersion:
    """MEMORY.md as it was at one moment."""

    text: str
    """The whole text; empty for a missing file."""
    version: str
    """A hash of the content: equal for equal content, empty for a missing file."""


@dataclass(frozen=True)
class ArchivedVersion:
    """An earlier MEMORY.md, kept when it was replaced."""

    version: str
    """The hash of its content, as in `MemoryVersion`."""
    archived_at: datetime
    """When it was replaced (aware, UTC)."""
    place: str
    """Where it is kept, for people; of a file its path."""
    change_id: str | None
    """What it was replaced by, as given to `MemoryStore.replace_long_term`. A very long id is
    cut here and ends in a hash."""
    load: Callable[[], bytes] | None = field(default=None, repr=False, compare=False)
    """Reads its content; None where it is a file."""
    change: str | None = field(default=None, repr=False, compare=False)
    """The `change_stem` of its cause; None where there is none."""

    @property
    def path(self) -> Path:
        """The file where it is kept.

        Raises:
            AttributeError: It is kept in a database.
        """
        if self.load is not None:
            raise AttributeError(f"an earlier memory in a database has no path: {self.place}")
        return Path(self.place)

    def read_text(self) -> str:
        """The whole text, as it is kept now.

        Raises:
            CorruptRecordError: It was archived as it was, and that is not UTF-8.
            OSError: It can't be read.
        """
        return decode(Path(self.place), self.read_bytes(), "Open it with another encoding.")

    def read_bytes(self) -> bytes:
        """What is kept, as it is.

        Raises:
            OSError: It can't be read.
        """
        return files.read_bytes(self.path) if self.load is None else self.load()


def beyond_limits(
    versions: Sequence[ArchivedVersion], keep: int | None, older_than: datetime | None
) -> list[ArchivedVersion]:
    """Those of the archived versions that go; see `MemoryStore.prune_versions`.

    Args:
        versions: All, newest first.
        keep: How many of the newest stay at most.
        older_than: Those archived before this moment go.
    """
    kept = versions if keep is None else versions[:keep]
    certain = datetime.now(UTC) - _UNFINISHED_AT_MOST
    return [
        version
        for version in versions
        if version not in kept or (older_than and version.archived_at < older_than)
        if version.change_id is None or version.archived_at < certain
    ]


def version_of(content: bytes | None) -> str:
    """The version of a memory with this content; "" for a missing one."""
    return "" if content is None else hashlib.sha256(content).hexdigest()[:32]


def change_stem(change_id: str) -> str:
    """What stands for a change in names. A long id is cut and ends in a hash of the whole.

    Raises:
        ValueError: It is empty, no string or not Unicode.
    """
    stem = files.file_stem(change_id)
    if len(stem) > _MAX_CHANGE_LENGTH:
        stem = f"{stem[:50]}~{hashlib.sha256(change_id.encode()).hexdigest()[:40]}"
    return stem


__all__ = ["ArchivedVersion", "MemoryVersion", "beyond_limits", "change_stem", "version_of"]
