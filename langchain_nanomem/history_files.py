"""HISTORY.md, and the files of earlier years that it was rolled into."""

from __future__ import annotations

import re
from datetime import MAXYEAR
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from langchain_nanomem import files, history_log
from langchain_nanomem.history_log import (
    HistoryEntry,
    format_entry,
    parse_entries,
    read_or_empty,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_ROLLED = re.compile(r"HISTORY-(\d{4})\.md")
_AS_IT_IS = "surrogateescape"
"""What is not UTF-8 becomes half characters, which are written as the bytes they were."""


class _Piece(NamedTuple):
    """An entry, and its lines as they stand in the file."""

    entry: HistoryEntry
    lines: str

    @property
    def year(self) -> int:
        """When it happened; without a time in the year that never ends."""
        return self.entry.at.year if self.entry.at else MAXYEAR


class HistoryFiles:
    """The event log of one scope: HISTORY.md, and beside it HISTORY-2025.md and the like.

    Whoever writes holds the lock of the scope.

    Args:
        path: HISTORY.md.
        locked: Holds the lock.
    """

    def __init__(self, path: Path, locked: Callable[[], AbstractContextManager[None]]) -> None:
        self.path = path
        self._locked = locked

    def rolled(self) -> list[Path]:
        """The files of earlier years, oldest first."""
        try:
            names = sorted(one.name for one in self.path.parent.iterdir())
        except FileNotFoundError:
            return []
        return [self.path.with_name(name) for name in names if _ROLLED.fullmatch(name)]

    def entries(self) -> list[HistoryEntry]:
        """All entries, those of earlier years first.

        Raises:
            CorruptRecordError: A file is not UTF-8.
            OSError: One can't be read, or is a symbolic link.
        """
        content = read_or_empty(self.path)
        if not history_log.is_whole(content):  # an append may be under way
            with self._locked():
                content = read_or_empty(self.path)
        current = history_log.read_entries(self.path, content)
        earlier = [
            entry
            for path in self.rolled()
            for entry in history_log.read_entries(path, read_or_empty(path))
        ]
        if not earlier:
            return current
        known = set(map(_identity, earlier))  # a crash may have left some in both
        return [*earlier, *(entry for entry in current if _identity(entry) not in known)]

    def append(self, entry: HistoryEntry) -> None:
        """Append an entry, once for its id.

        Raises:
            OSError: It could not be written; the file has its previous length.
        """
        with self._locked():
            if self.rolled() and self.contains(entry.entry_id or ""):
                return
            files.make_directory(self.path.parent)
            history_log.append_entry(self.path, entry)

    def extend(self, entries: Sequence[HistoryEntry]) -> None:
        """Append entries as they are; all of them or none.

        Raises:
            OSError: It could not be written; the file is as it was.
        """
        with self._locked():
            files.make_directory(self.path.parent)
            content = read_or_empty(self.path).decode("utf-8", _AS_IT_IS)
            _replace(self.path, [content, *map(format_entry, entries)])

    def contains(self, entry_id: str) -> bool:
        """Whether one of the files holds the entry of this id, whole."""
        paths = [self.path, *reversed(self.rolled())]
        return any(history_log.contains_id(read_or_empty(path), entry_id) for path in paths)

    def states(self) -> tuple[tuple[str, int, int, int], ...]:
        """What changes whenever one of the files does: name, inode, size and time of each."""
        found = []
        for path in self._paths():
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue
            found.append((path.name, stat.st_ino, stat.st_size, stat.st_mtime_ns))
        return tuple(found)

    def roll(self, before_year: int) -> int:
        """Move the entries of earlier years into a file for each; gives their number.

        What has no time stays. A crash in between leaves an entry in both files, where it counts
        once, and the next call takes it out.

        Raises:
            CorruptRecordError: A file is not UTF-8; nothing was moved.
            OSError: One could not be written; each entry is where it was, or in both places.
        """
        with self._locked():
            head, pieces = _pieces(self.path)
            goes: dict[int, list[_Piece]] = {}
            for one in pieces:
                if one.year < before_year:
                    goes.setdefault(one.year, []).append(one)
            for year, some in sorted(goes.items()):
                self._add(year, some)
            if goes:
                kept = [one.lines for one in pieces if one.year >= before_year]
                _replace(self.path, [head, *kept])
        return sum(map(len, goes.values()))

    def matching(self, is_meant: Callable[[HistoryEntry], bool]) -> list[HistoryEntry]:
        """Those of the entries that are meant; also where a file is not UTF-8.

        Raises:
            OSError: A file can't be read, or is a symbolic link.
        """
        pieces = (one for path in self._paths() for one in _pieces(path, _AS_IT_IS)[1])
        return [one.entry for one in pieces if is_meant(one.entry)]

    def without(self, is_meant: Callable[[HistoryEntry], bool]) -> list[HistoryEntry]:
        """Take out the entries that are meant, and give them.

        What is not UTF-8 stays as it is.

        Raises:
            OSError: A file could not be read or written.
        """
        removed = list[HistoryEntry]()
        with self._locked():
            for path in self._paths():
                head, pieces = _pieces(path, _AS_IT_IS)
                goes = [one.entry for one in pieces if is_meant(one.entry)]
                if goes:
                    kept = (one.lines for one in pieces if not is_meant(one.entry))
                    _replace(path, [head, *kept])
                    removed += goes
        return removed

    def _paths(self) -> list[Path]:
        return [*self.rolled(), self.path]

    def _add(self, year: int, pieces: Sequence[_Piece]) -> None:
        path = self.path.with_name(f"HISTORY-{year:04}.md")
        head, before = _pieces(path)
        known = {one.lines.strip() for one in before}
        added = [one.lines for one in pieces if one.lines.strip() not in known]
        _replace(path, [head, *(one.lines for one in before), *added])


def _pieces(path: Path, errors: str = "") -> tuple[str, list[_Piece]]:
    """What stands before the first entry of a file, and each entry with its lines.

    Args:
        path: The file.
        errors: What becomes of bytes that are not UTF-8; by default they raise.

    Raises:
        CorruptRecordError: It is not UTF-8.
        OSError: It can't be read.
    """
    content = read_or_empty(path)
    text = content.decode("utf-8", errors or "ignore")
    found = parse_entries(text) if errors else history_log.read_entries(path, content)
    entries, lines = list(found), _LINE.findall(text)
    starts = [entry.line_number - 1 for entry in entries]
    head = "".join(lines[: starts[0]]) if starts else "".join(lines)
    spans = pairwise([*starts, len(lines)])
    texts = ["".join(lines[start:end]) for start, end in spans]
    return head, [_Piece(*one) for one in zip(entries, texts, strict=True)]


def _replace(path: Path, parts: Iterable[str]) -> None:
    files.replace_file(path, _joined(parts).encode("utf-8", _AS_IT_IS))


def _joined(parts: Iterable[str]) -> str:
    """Parts of a log, each on lines of its own, with a blank line between them."""
    return "\n".join(part.rstrip() + "\n" for part in parts if part.strip())


def _identity(entry: HistoryEntry) -> tuple[str, ...]:
    return (entry.entry_id,) if entry.entry_id else (entry.stamp, entry.text)
