"""Journals in memory alone: nothing of them is ever on a disk."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from typing_extensions import override

from langchain_nanomem.journal import (
    ORIGIN,
    Address,
    Entry,
    Journal,
    JournalInfo,
    JournalReader,
    Position,
    Record,
    ReplacedError,
    deletion_name,
)
from langchain_nanomem.journal_lines import frame, load_line
from langchain_nanomem.session import utc_now

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime


class Content(NamedTuple):
    """The bytes of a journal."""

    lines: bytes
    identity: bytes
    """Another one for one that took its place."""


NOTHING = Content(b"", b"")


class BytesReader(JournalReader):
    """The records in bytes that are at hand.

    Args:
        content: Gives them as they are now.
        name: What they are called in errors.
    """

    def __init__(self, content: Callable[[], Content], name: str) -> None:
        self._get = content
        self._name = Path(name)
        self._content = content()

    @override
    def renew(self) -> None:
        self._content = self._get()

    @override
    def read(self, start: Position = ORIGIN) -> tuple[list[Entry], Position]:
        lines, identity = now = self._get()
        if start != ORIGIN and (start.mark != identity or start.offset > len(lines)):
            raise ReplacedError(str(self._name))
        self._content = now
        end = Position(len(lines), identity) if lines else ORIGIN
        return list(self._entries(start.offset)), end

    def _entries(self, offset: int) -> Iterator[Entry]:
        for line in self._content.lines[offset:].split(b"\n"):
            if line.strip():
                yield Entry((offset, len(line)), self._record(offset, line))
            offset += len(line) + 1

    @override
    def load(self, addresses: Sequence[Address]) -> list[Record]:
        lines = self._content.lines
        return [self._record(start, lines[start : start + size]) for start, size in addresses]

    def _record(self, offset: int, line: bytes) -> Record:
        number = lambda: self._content.lines.count(b"\n", 0, offset) + 1  # noqa: E731
        return load_line(line, self._name, number, self.objects)


@dataclass
class _Held:
    content: Content = NOTHING
    updated_at: datetime = field(default_factory=utc_now)
    lock: Any = field(default_factory=threading.RLock)


class MemoryJournal(Journal):
    """Journals that end with the process, for what is not to be kept."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._deleted: dict[bytes, datetime] = {}
        self._guard = threading.Lock()
        self._count = 0

    def __repr__(self) -> str:
        return "MemoryJournal()"

    @override
    def append(
        self,
        key: str,
        records: Sequence[Record],
        *,
        expected_end: Position | None = None,
        durable: bool = True,
    ) -> Position:
        added = frame(records)
        with self.lock(key):
            lines, identity = self._of(key).content
            if expected_end not in {None, _end(Content(lines, identity))}:
                raise ReplacedError(key)
            return self._put(key, lines + added, identity or self._new_identity())

    @override
    def open(self, key: str) -> AbstractContextManager[JournalReader]:
        return contextlib.nullcontext(BytesReader(lambda: self._of(key).content, key))

    @override
    def rewrite(self, key: str, records: Sequence[Record], *, erase: bool = False) -> Position:
        lines = b"".join(frame([record]) for record in records)
        with self.lock(key):
            if erase:
                self._deleted[deletion_name(key)] = utc_now()
            return self._put(key, lines, self._new_identity())

    @override
    def delete(self, key: str) -> bool:
        with self.lock(key):
            held = self._of(key)
            if not held.content.lines:
                return False
            held.content, self._deleted[deletion_name(key)] = NOTHING, utc_now()
            return True

    @override
    def deleted_at(self, key: str) -> datetime | None:
        return self._deleted.get(deletion_name(key))

    @override
    def deletions(self) -> dict[bytes, datetime]:
        return dict(self._deleted)

    @override
    def note_deletion(self, name: bytes, at: datetime) -> None:
        self._deleted[name] = max(at, self._deleted.get(name, at))

    @override
    def set_updated_at(self, key: str, at: datetime) -> None:
        with self.lock(key):
            self._of(key).updated_at = at

    @override
    def list(self) -> builtins.list[JournalInfo]:
        held = [(key, self._held[key]) for key in sorted(self._held)]
        return [
            JournalInfo(
                key, self.read(key)[0][0], one.updated_at, len(one.content.lines), "in memory"
            )
            for key, one in held
            if one.content.lines
        ]

    @override
    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        with self._of(key).lock:
            yield

    def _of(self, key: str) -> _Held:
        with self._guard:
            return self._held.setdefault(key, _Held())

    def _put(self, key: str, lines: bytes, identity: bytes) -> Position:
        held = self._of(key)
        held.content, held.updated_at = Content(lines, identity), utc_now()
        return _end(held.content)

    def _new_identity(self) -> bytes:
        with self._guard:
            self._count += 1
            return b"%d" % self._count


def _end(content: Content) -> Position:
    return Position(len(content.lines), content.identity) if content.lines else ORIGIN
