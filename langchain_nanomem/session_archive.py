"""Sessions that are put away: compressed, searchable, and brought back when they are used."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from langchain_nanomem.errors import CorruptRecordError
from langchain_nanomem.files import file_stem, make_directory, read_bytes, replace_file
from langchain_nanomem.journal import Archive, ArchivedSession
from langchain_nanomem.memory_journal import BytesReader, Content
from langchain_nanomem.session import parse_timestamp, utc_now
from langchain_nanomem.session_files import states_in

if TYPE_CHECKING:
    from pathlib import Path

    from langchain_nanomem.journal import JournalState

_ENDING = ".jsonl.gz"
_PREFIX = "+archive/"
"""What the names of archived sessions begin with, beside those of others."""
_REMEDY = "Restore it from a backup, or delete it."


class SessionArchive(Archive):
    """The files ``archive/<name of the key>.jsonl.gz``.

    Each is a line that says what it is, and then the lines of the session's file as they were.
    Whoever writes holds the session's lock.

    Args:
        directory: Where they are.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._directory = os.path.join(directory, "")  # noqa: PTH118 - its end

    @override
    def holds(self, key: str) -> bool:
        return os.path.exists(f"{self._directory}{file_stem(key)}{_ENDING}")  # noqa: PTH110 - often

    def put(self, key: str, lines: bytes, scope: tuple[str, ...]) -> Path:
        """Put the lines of a session's file away.

        Raises:
            OSError: It could not be written; nothing was.
        """
        head = {"_type": "archived", "v": 1, "key": key, "scope": scope}
        head["archived_at"] = utc_now().isoformat()
        path = self._path(key)
        make_directory(path.parent)
        replace_file(path, gzip.compress(json.dumps(head).encode() + b"\n" + lines, mtime=0))
        return path

    def lines(self, key: str) -> bytes:
        """The lines of a session's file, as they were.

        Raises:
            FileNotFoundError: It is not put away.
            CorruptRecordError: The file is damaged.
        """
        return _unpacked(self._path(key)).partition(b"\n")[2]

    def remove(self, key: str) -> bool:
        """Remove a session that was put away; False where there is none."""
        try:
            self._path(key).unlink()
        except FileNotFoundError:
            return False
        return True

    @override
    def sessions(self) -> list[ArchivedSession]:
        found = []
        for name in self.states():
            with contextlib.suppress(OSError, CorruptRecordError):
                found.append(self.session(name))
        return sorted(found)

    @override
    def session(self, name: str) -> ArchivedSession:
        path = self.directory / f"{name.removeprefix(_PREFIX)}{_ENDING}"
        head = _head(path)
        return ArchivedSession(
            head["key"],
            tuple(head["scope"]),
            parse_timestamp(head["archived_at"]) or datetime.fromtimestamp(0, UTC),
            path.stat().st_size,
            path,
        )

    @override
    def states(self) -> dict[str, JournalState]:
        states = states_in(self.directory, _ENDING)
        return {_PREFIX + stem: state for stem, state in states.items()}

    @override
    def reader(self, key: str) -> BytesReader:
        content = Content(self.lines(key), b"archive")
        return BytesReader(lambda: content, str(self._path(key)))

    def name(self, key: str) -> str:
        """The name of a session in `states`."""
        return _PREFIX + file_stem(key)

    def _path(self, key: str) -> Path:
        return self.directory / f"{file_stem(key)}{_ENDING}"


def is_archived(name: str) -> bool:
    """Whether a name is one of `SessionArchive.states`."""
    return name.startswith(_PREFIX)


def _unpacked(path: Path) -> bytes:
    content = read_bytes(path)
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise CorruptRecordError(path, 1, f"it can't be unpacked ({error})", _REMEDY) from error


def _head(path: Path) -> dict[str, Any]:
    try:
        with gzip.open(path) as file:
            head: dict[str, Any] = json.loads(file.readline())
    except FileNotFoundError:
        raise
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise CorruptRecordError(path, 1, f"it can't be unpacked ({error})", _REMEDY) from error
    return head
