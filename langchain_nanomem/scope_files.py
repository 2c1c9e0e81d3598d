"""The files of a scope's memory. The name of their directory is enough to find them.

From a directory whose name is cut nobody can tell the scope, and nobody needs to.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from langchain_nanomem.errors import NanomemError
from langchain_nanomem.files import LockDirectory
from langchain_nanomem.history_files import HistoryFiles
from langchain_nanomem.memory_file import MemoryFile
from langchain_nanomem.scope_names import scope_names
from langchain_nanomem.search_places import forget_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from langchain_nanomem.history_log import HistoryEntry
    from langchain_nanomem.memory_file import ArchivedVersion

_OWN_FILES = (
    *("MEMORY.md", "HISTORY.md", "HISTORY-[0-9]*.md", ".MEMORY.md.*", ".HISTORY*"),
    *("archive/MEMORY-*.md", "archive/.MEMORY-*"),
)
"""What is written into the directory of a scope, and nothing else that lies there."""


class ScopeFiles:
    """MEMORY.md, HISTORY.md and what belongs to them, of one scope.

    Args:
        workspace: The directory of the memory.
        name: The scope's `scope_name`.
    """

    directory: Path
    """Where they are."""
    lock_stem: str
    """The name of the lock, which is no session's."""
    memory: MemoryFile
    """MEMORY.md and its earlier versions. Whoever writes holds the lock."""
    history: HistoryFiles
    """The log, which takes the lock by itself."""

    def __init__(self, workspace: Path, name: str) -> None:
        self.name = name
        self._workspace = workspace
        self.directory = workspace / "memory"
        if name:
            self.directory = self.directory / "scopes" / name
        self.memory = MemoryFile(self.directory / "MEMORY.md")
        self.history = HistoryFiles(self.directory / "HISTORY.md", self.locked)
        self._locks = LockDirectory(workspace / ".locks")
        self.lock_stem = f"+memory+{name}" if name else "+memory"  # no file stem has a plus

    def locked(self) -> AbstractContextManager[None]:
        """Hold the lock of the scope."""
        return self._locks.hold(self.lock_stem)

    def prune(self, keep: int | None, older_than: datetime | None) -> list[ArchivedVersion]:
        """Remove archived versions; see `MemoryStore.prune_versions`."""
        with self.locked():
            return self.memory.prune(keep, older_than)

    def forget(self, is_meant: Callable[[HistoryEntry], bool]) -> list[HistoryEntry]:
        """Take entries out of the log and out of the search index, and give them.

        Raises:
            OSError: A file could not be read or written.
        """
        removed = self.history.without(is_meant)
        if removed:
            forget_log(self._workspace, self.name)
        return removed

    def has_facts(self) -> bool:
        """Whether there may be anything in MEMORY.md, or was."""
        try:
            return bool(self.memory.current().text.strip() or self.memory.versions())
        except (NanomemError, OSError):  # whatever is in it, nobody has looked
            return True

    def erase(self) -> list[Path]:
        """Remove the files and their directory, and give those that were there.

        Raises:
            OSError: One could not be removed; the others were.
        """
        with self.locked(), contextlib.ExitStack() as steps:  # from the last one on
            steps.callback(self._remove_directories)
            found = [path for path in self._own() if path.is_file() or path.is_symlink()]
            for path in reversed(found):
                steps.callback(path.unlink)
        return found

    def remove_lock(self) -> None:
        """Remove the file of the lock, whose name says whose it is."""
        self._locks.remove(self.lock_stem)

    def _remove_directories(self) -> None:
        for directory in (self.directory / "archive", self.directory):
            with contextlib.suppress(OSError):  # a person's own files are in it
                directory.rmdir()

    def _own(self) -> list[Path]:
        return [path for form in _OWN_FILES for path in sorted(self.directory.glob(form))]


def scope_files(workspace: Path) -> Iterator[ScopeFiles]:
    """The files of all memories of a workspace, first of its own."""
    for name in scope_names(workspace):
        yield ScopeFiles(workspace, name)
