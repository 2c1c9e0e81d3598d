"""Journals as files, one record a line."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import unquote

from typing_extensions import override

from langchain_nanomem.errors import CorruptRecordError
from langchain_nanomem.files import (
    LockDirectory,
    file_stem,
    make_directory,
    open_file,
    read_at,
    read_bytes,
    replace_file,
    sync_directory,
    write_all,
)
from langchain_nanomem.journal import (
    ORIGIN,
    Journal,
    JournalInfo,
    Journals,
    Position,
    Reading,
    Record,
    ReplacedError,
)
from langchain_nanomem.session import utc_now
from langchain_nanomem.values import dump_record, from_json, load_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

logger = logging.getLogger(__name__)

Fsync = Literal["record", "put", "none"]


class Damage(NamedTuple):
    """What a damaged journal still holds."""

    good: list[Record]
    """The records that can be read, in order."""
    bad: list[tuple[int, bytes]]
    """The number (from 1) and the bytes of each line that can't. A torn end counts as one."""


# --- lines ------------------------------------------------------------------

# A line that ends so is followed by another of the same append. It is what makes several
# lines one: where the last of them is missing, none of them counts.
_MORE = b',"_more":true}'
_MARK_BYTES = 48
_BOM = b"\xef\xbb\xbf"
_FIRST = b'{"_type":"metadata"'


def frame(records: Sequence[Record]) -> bytes:
    """The lines of one append.

    A metadata record at the end stands for itself: the records before it are complete
    without it.
    """
    lines = [dump_record(record) for record in records]
    last = max((i for i, r in enumerate(records) if r.get("_type") != "metadata"), default=-1)
    joined = [line[:-1] + _MORE if i < last else line for i, line in enumerate(lines)]
    return b"".join(line + b"\n" for line in joined)


def sound_length(content: bytes) -> int:
    """The length of `content` without what an interrupted append left at its end.

    A last line that only lacks its line end, as editors leave it, is sound.
    """
    length = content.rfind(b"\n") + 1
    if _is_record(content[length:]):
        length = len(content)
    while content.endswith((_MORE, _MORE + b"\n"), 0, length):
        length = content.rfind(b"\n", 0, length - 1) + 1
    return length


def _is_record(line: bytes) -> bool:
    try:
        return isinstance(from_json(line.removeprefix(_BOM)), dict)
    except ValueError:
        return False


def is_torn(rest: bytes, *, is_whole_file: bool) -> bool:
    """Whether what follows the sound lines is what an interrupted append leaves.

    That is the beginning of a record, perhaps with the zeros that some file systems fill in
    after a power loss. A whole file must begin as journals do, with a metadata record: what
    can't be read must not pass for empty.
    """
    head = b"".join(rest.rstrip(b"\0")[:1024].split())[: len(_FIRST)]
    start = _FIRST if is_whole_file else _FIRST[:2]
    return head.startswith(start) or start.startswith(head)


# --- files ------------------------------------------------------------------


class FileJournal(Journal):
    """Journals as files: ``sessions/<readable name of the key>.jsonl``, one record a line.

    Safe between threads and between processes of one machine, as far as its file system
    keeps locks. Files are readable by their owner alone.

    Args:
        workspace: The directory; it is created at the first write.
        fsync: What survives a power loss. "put" (the default): everything that a call which
            promises it has written, and with it all before. "record": every append.
            "none": what the system has written by itself. A killed process loses nothing in
            any case.
    """

    workspace: Path

    def __init__(self, workspace: str | os.PathLike[str], *, fsync: Fsync = "put") -> None:
        if fsync not in {"record", "put", "none"}:
            raise ValueError(f'fsync must be "record", "put" or "none", not {fsync!r}')
        self.workspace = Path(workspace)
        self._sessions = self.workspace / "sessions"
        self._tombstones = self.workspace / ".deleted"
        self._locks = LockDirectory(self.workspace / ".locks")
        self._fsync = fsync
        self._adopted: set[str] = set()

    def __repr__(self) -> str:
        return f"FileJournal({str(self.workspace)!r})"

    @override
    def lock(self, key: str) -> AbstractContextManager[None]:
        return self._locks.hold(file_stem(key))

    def path(self, key: str) -> Path:
        """The file of `key`, whether it exists or not."""
        path = self._sessions / f"{file_stem(key)}.jsonl"
        if key in self._adopted:
            return path
        self._yield_place(key, path)
        if not path.exists():
            return self._adopt_legacy(key, path)
        self._adopted.add(key)
        return path

    @override
    def append(
        self,
        key: str,
        records: Sequence[Record],
        *,
        expected_end: Position | None = None,
        durable: bool = True,
    ) -> Position:
        content = frame(records)
        sync = self._fsync == "record" or (durable and self._fsync == "put")
        with self.lock(key):
            path = self.path(key)
            make_directory(path.parent)
            created = not path.exists()
            with _opened(path, os.O_RDWR | os.O_CREAT | os.O_APPEND) as fd:
                if created and sync:
                    sync_directory(path.parent)
                end = _sound_end(fd, path)
                if expected_end not in {None, _position(fd, end)}:
                    raise ReplacedError(key)
                _append_bytes(fd, path, end, content, sync=sync)
                return _position(fd, os.fstat(fd).st_size)

    @override
    def read(self, key: str, start: Position = ORIGIN) -> Reading:
        path = self.path(key)
        try:
            with _opened(path, os.O_RDONLY) as fd:
                if start != ORIGIN and _position(fd, start.offset) != start:
                    raise ReplacedError(key)
                content = read_at(fd, start.offset)
                length = _sound_length(fd, path, start.offset, content)
                torn = len(content) - length
                if torn and self._is_abandoned(key, fd, start.offset + len(content)):
                    logger.warning("%s: the last %d bytes are a torn record; left out", path, torn)
                records = _records(fd, path, start.offset, content[:length])
                return records, _position(fd, start.offset + length)
        except FileNotFoundError:
            if start == ORIGIN:
                return [], ORIGIN
            raise ReplacedError(key) from None

    @override
    def rewrite(self, key: str, records: Sequence[Record], *, erase: bool = False) -> Position:
        content = b"".join(dump_record(record) + b"\n" for record in records)
        with self.lock(key):
            path = self.path(key)
            make_directory(path.parent)
            if erase:
                self._bury(key, path)
            replace_file(path, content)
            with _opened(path, os.O_RDONLY) as fd:
                return _position(fd, len(content))

    @override
    def delete(self, key: str) -> bool:
        with self.lock(key):
            path = self.path(key)
            if not path.exists() and not path.is_symlink():
                return False
            self._bury(key, path)
            path.unlink()
            self._adopted.discard(key)
            sync_directory(path.parent)
        return True

    @override
    def deleted_at(self, key: str) -> datetime | None:
        try:
            return datetime.fromisoformat(read_bytes(self._tombstone(key)).decode())
        except FileNotFoundError:
            return None

    @override
    def list(self) -> Journals:
        found: Journals = []
        for path in self._files():
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                if path.is_file() and not path.is_symlink():
                    found.append(_info(path))
        return sorted(found, key=lambda info: info.key)

    def read_damaged(self, key: str) -> Damage:
        """What can still be read of a journal, and what can't. Changes nothing."""
        path = self.path(key)
        damage = Damage([], [])
        for number, line in enumerate(read_bytes(path).split(b"\n"), start=1):
            try:
                if line.strip():
                    damage.good.append(load_line(line, path, lambda: 0))
            except CorruptRecordError:
                damage.bad.append((number, line))
        return damage

    def repair(self, key: str) -> Path | None:
        """Mend a damaged journal: keep the good records, and the whole damaged file aside.

        Returns:
            Where the damaged file is kept; None where nothing was wrong and nothing was done.
        """
        with self.lock(key):
            damage = self.read_damaged(key)
            if not damage.bad:
                return None
            path = self.path(key)
            content = read_bytes(path)
            digest = hashlib.sha256(content).hexdigest()[:8]
            aside = path.with_name(f"{path.name}.damaged-{digest}")
            replace_file(aside, content)
            header = {"_type": "metadata", "key": key}
            self.rewrite(key, [header, *damage.good])
            return aside

    def _bury(self, key: str, path: Path) -> None:
        """Note the deletion, and remove what repairing has put aside."""
        make_directory(self._tombstones)
        replace_file(self._tombstone(key), utc_now().isoformat().encode())
        for aside in path.parent.glob(f"{path.name}.damaged-*"):
            aside.unlink()

    def _tombstone(self, key: str) -> Path:
        return self._tombstones / hashlib.sha256(key.encode()).hexdigest()[:40]

    def _files(self) -> Iterator[Path]:
        try:
            paths = [*self._sessions.iterdir()]  # glob would take what it can't read for empty
        except FileNotFoundError:
            return
        for path in paths:
            if path.suffix == ".jsonl" and not path.name.startswith("."):
                yield path

    def _is_abandoned(self, key: str, fd: int, size: int) -> bool:
        """Whether nobody is writing what stands at the end of a file of `size` bytes.

        It never waits: who reads may hold what the one who writes is waiting for.
        """
        with contextlib.suppress(OSError):  # nobody locks in a read-only place, and none writes
            if self._locks.is_held(file_stem(key)):
                return False
        return os.fstat(fd).st_size == size

    def _yield_place(self, key: str, path: Path) -> None:
        """Move a file of nanobot away whose name is, by its key, that of another session."""
        owner = _owner(path)
        if owner in {None, key}:
            return
        own = self._sessions / f"{file_stem(str(owner))}.jsonl"
        if own.exists():
            raise OSError(
                f"{path} and {own} both say that they are the session {owner!r}. "
                "Move one of them away."
            )
        with contextlib.suppress(FileNotFoundError):  # another process did the same
            path.rename(own)

    def _adopt_legacy(self, key: str, path: Path) -> Path:
        """Give a file of nanobot, whose names are less exact, the name of its key."""
        legacy = self._sessions / f"{_legacy_stem(key)}.jsonl"
        if legacy == path or _owner(legacy) != key:
            return path
        try:
            return legacy.rename(path)
        except FileNotFoundError:  # another process did the same
            return path
        except OSError:  # a read-only place: it is read where it lies
            return legacy


def load_line(line: bytes, path: Path, line_number: Callable[[], int]) -> Record:
    """The record of a line of `path`, without the mark of an append of several.

    Args:
        line: The line, without its end.
        path: For the error.
        line_number: Called for the number of the line, only where it is needed.

    Raises:
        CorruptRecordError: The line is no record.
    """
    try:
        record = load_record(line.removeprefix(_BOM))
    except ValueError as error:
        reason = f"not a record that can be read ({error})"
        raise CorruptRecordError(path, line_number(), reason, _REMEDY) from error
    record.pop("_more", None)
    return record


_REMEDY = (
    "`nanomem doctor --repair` keeps the good records and puts the damaged file aside; or mend "
    "the line with an editor."
)


def _info(path: Path) -> JournalInfo:
    stat = path.lstat()
    first: Record = {}
    with contextlib.suppress(PermissionError):  # the others are to be listed all the same
        first = _first_record(path)
    moment = datetime.fromtimestamp(stat.st_mtime, UTC)
    key = _named_key(first, path) or unquote(path.stem)
    return JournalInfo(key, first, moment, stat.st_size, str(path))


def _first_record(path: Path) -> Record:
    """The first record, or {} where it can't be read; listing must not fail for one file."""
    with _opened(path, os.O_RDONLY) as fd, os.fdopen(fd, "rb", closefd=False) as file:
        line = file.readline()
    try:
        return load_record(line.removeprefix(_BOM))
    except ValueError:
        return {}


def _owner(path: Path) -> str | None:
    """The key that a file itself names; None where it is missing or names none."""
    try:
        return _named_key(_first_record(path), path)
    except FileNotFoundError:
        return None


def _named_key(first: Record, path: Path) -> str | None:
    if first.get("_type") != "metadata":
        return None
    if isinstance(key := first.get("key"), str) and key:
        return key
    key = unquote(path.stem)
    if key != path.stem and file_stem(key) == path.stem:
        return key  # a name of ours
    # nanobot's first versions wrote no key; this is how it made one of the file's name
    return path.stem.replace("_", ":", 1)


def _legacy_stem(key: str) -> str:
    return re.sub(r'[<>:"/\\|?*\0]', "_", key)[:200] or "_"


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    fd = open_file(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


def _append_bytes(fd: int, path: Path, end: int, content: bytes, *, sync: bool) -> None:
    """Append, after cutting off a torn end; what could not be written whole is taken back."""
    size = os.fstat(fd).st_size
    if size > end:
        logger.warning("%s: the last %d bytes are a torn record; cut off", path, size - end)
        os.ftruncate(fd, end)
    if end and read_at(fd, end - 1, 1) != b"\n":
        content = b"\n" + content
    try:
        write_all(fd, content)
        if sync:
            _fdatasync(fd)
    except BaseException:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, end)
        raise


_fdatasync = getattr(os, "fdatasync", os.fsync)


def _records(fd: int, path: Path, offset: int, content: bytes) -> list[Record]:
    """The records of the sound `content` that stands at `offset`."""
    return [
        load_line(line, path, lambda i=i: _line_number(fd, offset) + i)  # type: ignore[misc]  # i is bound early
        for i, line in enumerate(content.split(b"\n"))
        if line.strip()
    ]


def _position(fd: int, offset: int) -> Position:
    """With the file's identity: a rewritten file may well end as the old one did."""
    if not offset:
        return ORIGIN
    start = max(0, offset - _MARK_BYTES)
    identity = b"%x:" % os.fstat(fd).st_ino
    return Position(offset, identity + read_at(fd, start, offset - start))


def _line_number(fd: int, offset: int) -> int:
    return read_at(fd, 0, offset).count(b"\n") + 1


def _ends_clean(fd: int) -> bool:
    size = os.fstat(fd).st_size
    tail = read_at(fd, max(0, size - len(_MORE) - 1))
    return not tail or (tail.endswith(b"\n") and tail != _MORE + b"\n")


def _sound_end(fd: int, path: Path) -> int:
    """Where the sound part of a file ends.

    Raises:
        CorruptRecordError: What is behind it is no torn record but something foreign.
    """
    if _ends_clean(fd):
        return os.fstat(fd).st_size
    return _sound_length(fd, path, 0, read_at(fd, 0))


def _sound_length(fd: int, path: Path, offset: int, content: bytes) -> int:
    """The length of the sound part of `content`, which stands at `offset` to the file's end."""
    length = sound_length(content)
    end = offset + length
    if not is_torn(content[length:], is_whole_file=not end):
        number = _line_number(fd, end)
        raise CorruptRecordError(path, number, "what stands at the end is no record", _REMEDY)
    return length
