"""One file of records, held open for reading."""

from __future__ import annotations

import functools
import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from typing_extensions import override

from langchain_nanomem.errors import CorruptRecordError
from langchain_nanomem.files import open_file, read_at
from langchain_nanomem.journal import (
    ORIGIN,
    Address,
    Entry,
    JournalReader,
    Position,
    Record,
    ReplacedError,
)
from langchain_nanomem.journal_lines import (
    REMEDY,
    TAIL_BYTES,
    ends_clean,
    is_torn,
    load_line,
    load_lines,
    sound_length,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

logger = logging.getLogger(__name__)

_MARK_BYTES = 48
_GAP_BYTES = 16_384
"""What is rather read along than left out by a second call."""


class Written(NamedTuple):
    """What was appended last, while nobody else could write."""

    start: Position
    content: bytes
    end: Position


class FileReader(JournalReader):
    """The lines of a file as records.

    Args:
        path: The file; it may be missing.
        is_abandoned: Given a descriptor and a size: whether nobody is writing what stands
            behind the last whole line.
        written: What need not be read, since it was just written; None where there is nothing.
    """

    def __init__(
        self,
        path: Path,
        is_abandoned: Callable[[int, int], bool],
        written: Callable[[], Written | None] = lambda: None,
    ) -> None:
        self._path = path
        self._is_abandoned = is_abandoned
        self._written = written
        self._fd: int | None = None
        self._open()

    def _open(self) -> None:
        try:
            self._fd = open_file(self._path, os.O_RDONLY)
        except FileNotFoundError:
            self._fd = None

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    @override
    def renew(self) -> None:
        self.close()
        self._open()

    @override
    def read(self, start: Position = ORIGIN) -> tuple[list[Entry], Position]:
        if self._fd is None:
            self._open()
        if self._fd is None:
            if start == ORIGIN:
                return [], ORIGIN
            raise ReplacedError(str(self._path))
        written = self._written()
        if written is not None and written.start == start:
            return list(self._entries(start.offset, written.content)), written.end
        return self._read(self._fd, start)

    def _read(self, fd: int, start: Position) -> tuple[list[Entry], Position]:
        if start != ORIGIN and position_at(fd, start.offset) != start:
            raise ReplacedError(str(self._path))
        content = read_at(fd, start.offset)
        if not content and start != ORIGIN:
            return [], start
        length = _sound_length(fd, self._path, start.offset, content)
        torn = len(content) - length
        if torn and self._is_abandoned(fd, start.offset + len(content)):
            logger.warning("%s: the last %d bytes are a torn record; left out", self._path, torn)
        entries = list(self._entries(start.offset, content[:length]))
        return entries, position_at(fd, start.offset + length)

    def _entries(self, offset: int, content: bytes) -> Iterator[Entry]:
        """The records of the sound `content` that stands at `offset`."""
        lines, places = list[bytes](), list[Address]()
        for line in content.split(b"\n"):
            if line.strip():
                lines.append(line)
                places.append((offset, len(line)))
            offset += len(line) + 1
        return map(Entry, places, self._records(lines, places))

    @override
    def load(self, addresses: Sequence[Address]) -> list[Record]:
        found: dict[Address, Record] = {}
        for group in _near_each_other(sorted(set(addresses))):
            start, last = group[0][0], group[-1]
            content = b"" if self._fd is None else read_at(self._fd, start, sum(last) - start)
            lines = [content[at - start : at - start + size] for at, size in group]
            found.update(zip(group, self._records(lines, group), strict=True))
        return [found[address] for address in addresses]

    def _records(self, lines: list[bytes], group: list[Address]) -> Sequence[Record]:
        try:
            return load_lines(lines, self.objects)
        except ValueError:  # one by one, to tell which
            return list(map(self._record, lines, group))

    def _record(self, line: bytes, address: Address) -> Record:
        fd = self._fd
        number = functools.partial(_line_number, fd, address[0]) if fd else int
        return load_line(line, self._path, number, self.objects)


def _near_each_other(addresses: list[Address]) -> Iterator[list[Address]]:
    """The addresses, which are sorted, in groups of those that are best read at once."""
    group: list[Address] = []
    for address in addresses:
        if group and address[0] > sum(group[-1]) + _GAP_BYTES:
            yield group
            group = []
        group.append(address)
    if group:
        yield group


def position_at(fd: int, offset: int) -> Position:
    """With the file's identity: a rewritten file may well end as the old one did."""
    if not offset:
        return ORIGIN
    start = max(0, offset - _MARK_BYTES)
    identity = b"%x:" % os.fstat(fd).st_ino
    return Position(offset, identity + read_at(fd, start, offset - start))


def _line_number(fd: int, offset: int) -> int:
    return read_at(fd, 0, offset).count(b"\n") + 1


def sound_end(fd: int, path: Path) -> int:
    """Where the sound part of a file ends.

    Raises:
        CorruptRecordError: What is behind it is no torn record but something foreign.
    """
    size = os.fstat(fd).st_size
    if ends_clean(read_at(fd, max(0, size - TAIL_BYTES))):
        return size
    return _sound_length(fd, path, 0, read_at(fd, 0))


def _sound_length(fd: int, path: Path, offset: int, content: bytes) -> int:
    """The length of the sound part of `content`, which stands at `offset` to the file's end."""
    length = sound_length(content)
    end = offset + length
    if not is_torn(content[length:], is_whole_file=not end):
        number = _line_number(fd, end)
        raise CorruptRecordError(path, number, "what stands at the end is no record", REMEDY)
    return length
