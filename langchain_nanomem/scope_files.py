"""Memories in the directory of a workspace: MEMORY.md, HISTORY.md and what belongs to them.

The name of a scope's directory is enough to find them. From one whose name is cut nobody can
tell the scope, and nobody needs to.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from typing_extensions import override

from langchain_nanomem.file_journal import FileJournal
from langchain_nanomem.files import LockDirectory
from langchain_nanomem.history_files import HistoryFiles
from langchain_nanomem.memory_backend import MemoryBackend, ScopeMemory
from langchain_nanomem.memory_file import MemoryFile
from langchain_nanomem.memory_versions import version_of
from langchain_nanomem.scope_names import scope_names
from langchain_nanomem.search_file_tables import FileTables
from langchain_nanomem.search_places import forget_log, search_path, sessions_path
from langchain_nanomem.search_scopes import SessionScopes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from langchain_nanomem.history_log import HistoryEntry
    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.memory_backend import Noting
    from langchain_nanomem.memory_versions import ArchivedVersion, MemoryVersion
    from langchain_nanomem.search_sources import LogStates

_OWN_FILES = (
    *("MEMORY.md", "HISTORY.md", "HISTORY-[0-9]*.md", ".MEMORY.md.*", ".HISTORY*"),
    *("archive/MEMORY-*.md", "archive/.MEMORY-*"),
)
"""What is written into the directory of a scope, and nothing else that lies there."""


class ScopeFiles(ScopeMemory):
    """MEMORY.md, HISTORY.md and what belongs to them, of one scope.

    Args:
        workspace: The directory of the memory.
        name: The scope's `scope_name`.
    """

    directory: Path
    """Where they are."""
    lock_stem: str
    """The name of the lock, which is no session's."""

    def __init__(self, workspace: Path, name: str) -> None:
        self.name = name
        self._workspace = workspace
        self.directory = workspace / "memory"
        if name:
            self.directory = self.directory / "scopes" / name
        self._memory = MemoryFile(self.directory / "MEMORY.md")
        self.history = HistoryFiles(self.directory / "HISTORY.md", self._locked)
        self.place = str(self.directory)
        self.facts_place, self.log_place = str(self._memory.path), str(self.history.path)
        self._locks = LockDirectory(workspace / ".locks")
        self.lock_stem = f"+memory+{name}" if name else "+memory"  # no file stem has a plus

    @property
    @override
    def memory_path(self) -> Path:
        return self._memory.path

    @property
    @override
    def history_path(self) -> Path:
        return self.history.path

    def _locked(self) -> AbstractContextManager[None]:
        return self._locks.hold(self.lock_stem)

    # --- facts ---

    @override
    def current(self) -> MemoryVersion:
        return self._memory.current()

    @override
    def put(self, content: bytes) -> None:
        with self._locked():
            while (base := self._memory.content()) != content:  # a person may save meanwhile
                if self._memory.replace(content, base):
                    return

    @override
    def replace(self, content: bytes, expected_version: str, change: str | None) -> bool:
        with self._locked():
            current = self._memory.current()
            if change and self._memory.is_made(change):
                return True
            if current.version != expected_version:
                return False
            base = current.text.encode() if current.version else None
            if not change and base == content:
                return True
            return self._memory.replace(content, base, change)

    @override
    def is_made(self, change: str) -> bool:
        if not self._memory.is_made(change):
            return False
        with self._locked():  # it may have been about to be taken back
            return self._memory.is_made(change)

    @override
    def versions(self) -> list[ArchivedVersion]:
        return self._memory.versions()

    @override
    def prune(self, keep: int | None, older_than: datetime | None) -> list[ArchivedVersion]:
        with self._locked():
            return self._memory.prune(keep, older_than)

    @override
    def put_version(self, version: ArchivedVersion, content: bytes) -> None:
        with self._locked():
            self._memory.put_version(version, content)

    @override
    def settle(self, content: bytes, expected_version: str) -> bool:
        with self._locked():
            if version_of(self._memory.content()) != expected_version:
                return False
            self._memory.settle(content)
            return True

    # --- the log ---

    @override
    def append(self, entry: HistoryEntry) -> None:
        self.history.append(entry)

    @override
    def extend(self, entries: Sequence[HistoryEntry]) -> None:
        self.history.extend(entries)

    @override
    def contains(self, entry_id: str) -> bool:
        return self.history.contains(entry_id)

    @override
    def entries(self) -> list[HistoryEntry]:
        return self.history.entries()

    @override
    def matching(self, is_meant: Callable[[HistoryEntry], bool]) -> list[HistoryEntry]:
        return self.history.matching(is_meant)

    @override
    def forget(self, is_meant: Callable[[HistoryEntry], bool]) -> list[HistoryEntry]:
        removed = self.history.without(is_meant)
        if removed:
            forget_log(self._workspace, self.name)
        return removed

    @override
    def log_states(self) -> LogStates:
        return self.history.states()

    @override
    def roll(self, before_year: int) -> int:
        return self.history.roll(before_year)

    # --- all of it ---

    @override
    def erase(self) -> list[Path]:
        with self._locked(), contextlib.ExitStack() as steps:  # from the last one on
            steps.callback(self._remove_directories)
            found = [path for path in self._own() if path.is_file() or path.is_symlink()]
            for path in reversed(found):
                steps.callback(path.unlink)
        return found

    @override
    def forget_name(self) -> None:
        self._locks.remove(self.lock_stem)

    def _remove_directories(self) -> None:
        for directory in (self.directory / "archive", self.directory):
            with contextlib.suppress(OSError):  # a person's own files are in it
                directory.rmdir()

    def _own(self) -> list[Path]:
        return [path for form in _OWN_FILES for path in sorted(self.directory.glob(form))]


class DirectoryMemory(MemoryBackend):
    """The memories in a directory.

    Args:
        workspace: The directory.
    """

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    def __repr__(self) -> str:
        return f"DirectoryMemory({str(self._workspace)!r})"

    @property
    @override
    def workspace(self) -> Path:
        return self._workspace

    @property
    @override
    def journal(self) -> FileJournal:
        return FileJournal(self._workspace)

    @override
    def named(self, name: str) -> ScopeFiles:
        return ScopeFiles(self._workspace, name)

    @override
    def all(self) -> Iterator[ScopeFiles]:
        for name in scope_names(self._workspace):
            yield self.named(name)

    @override
    def search_places(
        self, scope: tuple[str, ...], sessions: SessionManager
    ) -> tuple[FileTables, SessionScopes]:
        tables = FileTables(search_path(self._workspace, scope))
        return tables, SessionScopes(sessions_path(self._workspace), sessions)

    @override
    def holding(self, samples: Collection[bytes], noting: Noting) -> list[str]:
        found = []
        for path in sorted(self._workspace.rglob("*")):
            if path.is_file() and not path.is_symlink():
                with noting(str(path)):
                    content = path.read_bytes()
                    if any(sample in content for sample in samples):
                        found.append(str(path))
        return found
