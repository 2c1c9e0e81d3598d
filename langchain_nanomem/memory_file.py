"""MEMORY.md: read with its version, replaced atomically, its earlier versions kept.

A replacement is first staged beside the file, then what it replaces is archived, then the staged
file is renamed over the old one. So a change that is archived and no longer staged was made, and
whatever crashes in between, that can be told exactly.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote

from langchain_nanomem import files
from langchain_nanomem.history_log import decode
from langchain_nanomem.memory_versions import (
    ArchivedVersion,
    MemoryVersion,
    beyond_limits,
    version_of,
)

if TYPE_CHECKING:
    from pathlib import Path

_ARCHIVED_NAME = re.compile(
    r"MEMORY-(?P<time>[0-9]{8}T[0-9]{6}\.[0-9]{6}Z)-(?P<version>[0-9a-f]{32})"
    r"(?:-(?P<change>.+))?\.md"
)
_TIME_FORMAT = "%Y%m%dT%H%M%S.%fZ"
_NOT_UTF8 = (
    "Save the file as UTF-8, or bring an earlier version back with restore_long_term, which "
    "keeps the damaged one in the archive."
)


class MemoryFile:
    """One MEMORY.md and its archive. Whoever writes holds the lock of the scope.

    Args:
        path: The file; its archive is the directory ``archive`` beside it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.archive_path = path.with_name("archive")

    def content(self) -> bytes | None:
        """The bytes of the file; None when it is missing.

        Raises:
            OSError: It can't be read, or is a symbolic link.
        """
        try:
            return files.read_bytes(self.path)
        except FileNotFoundError:
            return None

    def current(self) -> MemoryVersion:
        """The text of the file and its version.

        Raises:
            CorruptRecordError: The file is not UTF-8.
            OSError: It can't be read, or is a symbolic link.
        """
        content = self.content()
        text = "" if content is None else decode(self.path, content, _NOT_UTF8)
        return MemoryVersion(text, version_of(content))

    def versions(self) -> list[ArchivedVersion]:
        """The archived versions, newest first."""
        try:
            names = sorted((path.name for path in self.archive_path.iterdir()), reverse=True)
        except FileNotFoundError:
            return []
        matches = filter(None, map(_ARCHIVED_NAME.fullmatch, names))
        return [kept for match in matches if (kept := self._archived(match))]

    def prune(self, keep: int | None, older_than: datetime | None) -> list[ArchivedVersion]:
        """Remove archived versions; see `MemoryStore.prune_versions`."""
        goes = beyond_limits(self.versions(), keep, older_than)
        for version in goes:
            version.path.unlink(missing_ok=True)
        return goes

    def is_made(self, change: str) -> bool:
        """Whether the change of this stem was made, now or before."""
        return bool(self._archived_by(change)) and not self._staged_path(change).exists()

    def replace(self, content: bytes, base: bytes | None, change: str | None = None) -> bool:
        """Put `content` in place of `base`, which is archived; False when a person was faster.

        A change that is made already must not be made again.

        Raises:
            OSError: It could not be written; the file is as it was.
        """
        for stale in self._archived_by(change) if change else ():  # of an attempt that crashed
            stale.unlink()
        files.make_directory(self.archive_path)
        staged = self._staged_path(change)
        kept = self._archive_path(datetime.now(UTC), version_of(base or b""), change)
        files.replace_file(staged, content)
        try:
            if base is not None or change:
                files.replace_file(kept, base or b"")
            if self.content() == base:
                staged.replace(self.path)
        finally:
            is_replaced = not _withdraw(staged, kept)
        files.sync_directory(self.path.parent)
        return is_replaced

    def put_version(self, version: ArchivedVersion, content: bytes) -> None:
        """Put an archived version of another memory here; one that is there stays as it is."""
        path = self._archive_path(version.archived_at, version.version, version.change)
        if not path.exists():
            files.make_directory(self.archive_path)
            files.replace_file(path, content)

    def settle(self, content: bytes) -> None:
        """Put `content` in place of what the file holds, and archive nothing."""
        files.make_directory(self.path.parent)
        files.replace_file(self.path, content)

    def _archived(self, match: re.Match[str]) -> ArchivedVersion | None:
        try:
            archived_at = datetime.strptime(match["time"], _TIME_FORMAT).replace(tzinfo=UTC)
        except ValueError:  # renamed by a person
            return None
        change_id = None if match["change"] is None else unquote(match["change"])
        path = self.archive_path / match[0]
        return ArchivedVersion(
            match["version"], archived_at, str(path), change_id, change=match["change"]
        )

    def _archived_by(self, change: str) -> list[Path]:
        def is_its(path: Path) -> bool:
            match = _ARCHIVED_NAME.fullmatch(path.name)
            return match is not None and match["change"] == change

        return [kept.path for kept in self.versions() if is_its(kept.path)]

    def _staged_path(self, change: str | None) -> Path:
        return self.path.with_name(f".MEMORY.md.{change or '+'}.pending")  # no stem is a plus

    def _archive_path(self, at: datetime, version: str, change: str | None) -> Path:
        parts = [f"{at:{_TIME_FORMAT}}", version, *([change] if change else [])]
        return self.archive_path / f"MEMORY-{'-'.join(parts)}.md"


def _withdraw(staged: Path, kept: Path) -> bool:
    """Take a replacement back that was not committed; False when it was.

    The archived file goes first: without the staged one it would count as made.
    """
    if not staged.exists():
        return False
    kept.unlink(missing_ok=True)
    staged.unlink()
    return True


__all__ = ["MemoryFile"]
