"""Sessions that are put away: compressed, searchable, and brought back when they are used."""

from __future__ import annotations

import gzip
import json
import logging
import os
import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from langchain_nanomem.errors import CorruptRecordError
from langchain_nanomem.files import file_stem, make_directory, open_file, read_bytes, replace_file
from langchain_nanomem.journal import Archive, ArchivedSession
from langchain_nanomem.memory_journal import BytesReader, Content
from langchain_nanomem.session import parse_timestamp, utc_now
from langchain_nanomem.session_files import states_in

if TYPE_CHECKING:
    from pathlib import Path

    from langchain_nanomem.journal import JournalState

logger = logging.getLogger(__name__)

_ENDING = ".jsonl.gz"
_PREFIX = "+archive/"
"""What the names of archived sessions begin with, beside those of others."""
_GZIP = 16 + zlib.MAX_WBITS
"""By which zlib knows gzip's form: https://docs.python.org/3/library/zlib.html"""
_HEAD_STEP = 256
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

    def put(
        self,
        key: str,
        lines: bytes,
        scope: tuple[str, ...],
        written_ns: int,
        at: datetime | None = None,
    ) -> Path:
        """Put the lines of a session's file away.

        Args:
            key: The session.
            lines: The lines.
            scope: Whose memory it belongs to.
            written_ns: When the file was last written, in nanoseconds since 1970.
            at: When it was put away, in UTC; now by default.

        Raises:
            OSError: It could not be written; nothing was.
        """
        head: dict[str, Any] = {"_type": "archived", "v": 1, "key": key, "scope": scope}
        head |= {"archived_at": (at or utc_now()).isoformat(), "written_ns": written_ns}
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

    def written_ns(self, key: str) -> int | None:
        """When a session's file was last written before it was put away, if that is known."""
        told = _head(self._path(key)).get("written_ns")
        return told if isinstance(told, int) else None

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
            try:
                found.append(self.session(name))
            except FileNotFoundError:  # brought back meanwhile
                continue
            except (OSError, CorruptRecordError) as error:
                logger.warning("an archived session can't be read: %s", error)
        return sorted(found)

    @override
    def find(self, key: str) -> ArchivedSession | None:
        try:
            return self.session(self.name(key))
        except FileNotFoundError:
            return None

    @override
    def session(self, name: str) -> ArchivedSession:
        path = self.directory / f"{name.removeprefix(_PREFIX)}{_ENDING}"
        head = _head(path)
        at = parse_timestamp(head.get("archived_at")) or datetime.fromtimestamp(0, UTC)
        size, written_ns = path.stat().st_size, head.get("written_ns")
        written = _moment(written_ns) if isinstance(written_ns, int) else None
        return ArchivedSession(head["key"], tuple(head["scope"]), at, size, path, written)

    @override
    def states(self) -> dict[str, JournalState]:
        states = states_in(self.directory, _ENDING)
        return {archived_name(stem): state for stem, state in states.items()}

    @override
    def reader(self, key: str) -> BytesReader:
        content = Content(self.lines(key), b"archive")
        return BytesReader(lambda: content, str(self._path(key)))

    def name(self, key: str) -> str:
        """The name of a session in `states`."""
        return archived_name(file_stem(key))

    def _path(self, key: str) -> Path:
        return self.directory / f"{file_stem(key)}{_ENDING}"


def archived_name(name: str) -> str:
    """What a session is called in `SessionArchive.states` that has this name elsewhere."""
    return _PREFIX + name


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
    """The first line. It is read on its own, for it tells whose the rest is, damaged or not."""
    unpacker, line = zlib.decompressobj(wbits=_GZIP), b""
    try:
        with os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
            while b"\n" not in line and (part := file.read(_HEAD_STEP)):
                line += unpacker.decompress(part)
        head = json.loads(line.partition(b"\n")[0])
    except (zlib.error, ValueError) as error:
        raise CorruptRecordError(path, 1, f"it can't be unpacked ({error})", _REMEDY) from error
    if not _is_head(head):
        raise CorruptRecordError(path, 1, "it doesn't say which session it is", _REMEDY)
    return dict(head)


def _moment(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC)


def _is_head(head: Any) -> bool:
    if not isinstance(head, dict) or not isinstance(head.get("key"), str):
        return False
    scope = head.get("scope")
    return isinstance(scope, list) and all(isinstance(part, str) for part in scope)
