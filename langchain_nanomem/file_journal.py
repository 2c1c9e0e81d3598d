"""Journals as files, one record a line."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import logging
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from typing_extensions import override

from langchain_nanomem.connection_urls import check_no_address
from langchain_nanomem.errors import CorruptRecordError
from langchain_nanomem.file_reader import FileReader, Written, position_at, sound_end
from langchain_nanomem.files import (
    LockDirectory,
    file_stem,
    make_directory,
    open_file,
    read_at,
    read_bytes,
    replace_file,
    sync_directory,
    temporary_of,
    write_all,
)
from langchain_nanomem.journal import (
    ORIGIN,
    Journal,
    JournalInfo,
    JournalReader,
    Journals,
    JournalState,
    Position,
    Record,
    ReplacedError,
    deletion_name,
)
from langchain_nanomem.journal_lines import frame, load_line
from langchain_nanomem.search_places import forget_session
from langchain_nanomem.session import utc_now
from langchain_nanomem.session_archive import SessionArchive
from langchain_nanomem.session_files import SessionFiles, states_in
from langchain_nanomem.values import dump_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

logger = logging.getLogger(__name__)

Fsync = Literal["record", "put", "none"]


class Damage(NamedTuple):
    """What a damaged journal still holds."""

    good: list[Record]
    """The records that can be read, in order."""
    bad: list[tuple[int, bytes]]
    """The number (from 1) and the bytes of each line that can't. A torn end counts as one."""


_NAME_BYTES = 16
_EPOCH = datetime.fromtimestamp(0, UTC)


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

    Raises:
        ValueError: `fsync` is another word, or the address of a database is given for a directory.
    """

    workspace: Path

    def __init__(self, workspace: str | os.PathLike[str], *, fsync: Fsync = "put") -> None:
        if fsync not in {"record", "put", "none"}:
            raise ValueError(f'fsync must be "record", "put" or "none", not {fsync!r}')
        check_no_address(workspace)
        self.workspace = Path(workspace)
        self._files = SessionFiles(self.workspace / "sessions")
        self._tombstones = self.workspace / ".deleted"
        self._locks = LockDirectory(self.workspace / ".locks")
        self._fsync = fsync
        self.archive: SessionArchive = SessionArchive(self.workspace / "archive")

    def __repr__(self) -> str:
        return f"FileJournal({str(self.workspace)!r})"

    @override
    def lock(self, key: str) -> AbstractContextManager[None]:
        return self._locks.hold(file_stem(key))

    def path(self, key: str) -> Path:
        """The file of `key`, whether it exists or not."""
        return self._files.path(key)

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
            with _opened_or_made(path, sync=self._fsync != "none") as fd:
                end = sound_end(fd, path)
                if expected_end not in {None, position_at(fd, end)}:
                    raise ReplacedError(key)
                _append_bytes(fd, path, end, content, sync=sync)
                new_end = position_at(fd, os.fstat(fd).st_size)
            is_whole = expected_end is not None and new_end.offset == end + len(content)
            written = Written(expected_end or ORIGIN, content, new_end) if is_whole else None
            self._locks.set_note(file_stem(key), written)
            return new_end

    @override
    @contextlib.contextmanager
    def open(self, key: str) -> Iterator[JournalReader]:
        reader = FileReader(
            self.path(key),
            functools.partial(self._is_abandoned, key),
            functools.partial(self._written, key),
        )
        try:
            yield reader
        finally:
            reader.close()

    @override
    def rewrite(self, key: str, records: Sequence[Record], *, erase: bool = False) -> Position:
        content = b"".join(dump_record(record) + b"\n" for record in records)
        with self.lock(key):
            path = self.path(key)
            make_directory(path.parent)
            self._locks.set_note(file_stem(key), None)
            if erase:
                self._bury(key, path)
            self._forget_index(key)
            replace_file(path, content)
            if erase:
                forget_session(self.workspace, path.stem)
            with _closing(open_file(path, os.O_RDONLY)) as fd:
                return position_at(fd, len(content))

    @override
    def is_there(self) -> bool:
        return self.workspace.is_dir()

    @override
    def put_away(self, key: str, scope: tuple[str, ...], at: datetime | None = None) -> bool:
        with self.lock(key):
            records, end = self.read(key)
            if not records:
                return False
            path = self.path(key)
            lines, written_ns = read_bytes(path)[: end.offset], path.stat().st_mtime_ns
            self.archive.put(key, lines, scope, written_ns, at)
            self._take_out(key, path)
        return True

    @override
    def bring_back(self, key: str) -> bool:
        with self.lock(key):
            path = self.path(key)
            if not self.archive.holds(key):
                return False
            if path.exists():
                self._drop_copy(key, path)
                return False
            make_directory(path.parent)
            replace_file(path, self.archive.lines(key))
            if (written_ns := self.archive.written_ns(key)) is not None:
                os.utime(path, ns=(written_ns, written_ns))  # to be read makes it no newer
            self.archive.remove(key)
        return True

    def _drop_copy(self, key: str, path: Path) -> None:
        """Take out of the archive what a crash has left there of a journal that is here."""
        with contextlib.suppress(CorruptRecordError):  # it is let alone, as one that differs is
            if read_bytes(path).startswith(self.archive.lines(key)):
                self.archive.remove(key)
                forget_session(self.workspace, self.archive.name(key))

    @override
    def delete(self, key: str) -> bool:
        with self.lock(key):
            was_archived = self.delete_archived(key)
            return self._delete(key) or was_archived

    @override
    def delete_archived(self, key: str) -> bool:
        with self.lock(key):
            if not self.archive.remove(key):
                return False
            self._bury(key, self.path(key))
            forget_session(self.workspace, self.archive.name(key))
        return True

    def _delete(self, key: str) -> bool:
        """`delete` of what is not in the archive. The caller holds the lock."""
        path = self.path(key)
        if not path.exists() and not path.is_symlink():
            return False
        try:
            self._bury(key, path)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            path.unlink()  # who deletes on a full disk wants room; the note takes of it
            self._bury(key, path)
        self._take_out(key, path)
        return True

    def _take_out(self, key: str, path: Path) -> None:
        """Remove the file of a journal, and what was made of it. The caller holds the lock."""
        self._locks.set_note(file_stem(key), None)
        self._forget_index(key)
        path.unlink(missing_ok=True)
        temporary_of(path).unlink(missing_ok=True)
        self._files.removed(key)
        sync_directory(path.parent)
        forget_session(self.workspace, path.stem)

    @override
    def forget(self, key: str) -> None:
        self._locks.remove(file_stem(key))

    @override
    def deleted_at(self, key: str) -> datetime | None:
        return self._deleted_at(deletion_name(key))

    def _deleted_at(self, name: bytes) -> datetime | None:
        try:
            return datetime.fromisoformat(read_bytes(self._tombstone(name)).decode())
        except FileNotFoundError:
            return None

    @override
    def deletions(self) -> dict[bytes, datetime]:
        names = [bytes.fromhex(stem) for stem in states_in(self._tombstones, "")]
        return {name: at for name in names if (at := self._deleted_at(name))}

    @override
    def note_deletion(self, name: bytes, at: datetime) -> None:
        known = self._deleted_at(name)
        if known is None or known < at:
            make_directory(self._tombstones)
            replace_file(self._tombstone(name), at.isoformat().encode())

    @override
    def set_updated_at(self, key: str, at: datetime) -> None:
        written_ns = (at - _EPOCH) // timedelta(microseconds=1) * 1000
        with self.lock(key):
            os.utime(self.path(key), ns=(written_ns, written_ns))

    @override
    def list(self) -> Journals:
        return self._files.infos()

    @override
    def info(self, key: str) -> JournalInfo | None:
        return self._files.info(key)

    @override
    def states(self) -> dict[str, JournalState]:
        return self._files.states()

    @override
    def key_of(self, name: str) -> str | None:
        return self._files.key_of(name)

    @override
    def index(self, key: str) -> bytes | None:
        try:
            content = read_bytes(self._index(key))
        except OSError:
            return None
        name, kept = content[:_NAME_BYTES], content[_NAME_BYTES:]
        return kept if name == _name_of(kept) else None

    @override
    def keep_index(self, key: str, content: bytes) -> None:
        path = self._index(key)
        try:
            make_directory(path.parent)
            replace_file(path, _name_of(content) + content, durable=False)
        except OSError as error:  # a full disk, or one that is only read
            logger.debug("%s: not kept (%s); the session takes longer to open", path, error)

    def _forget_index(self, key: str) -> None:
        path = self._index(key)
        for ours in (path, temporary_of(path)):
            if ours.is_file() or ours.is_symlink():  # whatever else stands there is not ours
                ours.unlink(missing_ok=True)

    def _index(self, key: str) -> Path:
        return self.workspace / ".index" / f"{file_stem(key)}.json"

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
        replace_file(self._tombstone(deletion_name(key)), utc_now().isoformat().encode())
        for aside in path.parent.glob(f"{path.name}.damaged-*"):
            aside.unlink()

    def _tombstone(self, name: bytes) -> Path:
        return self._tombstones / name.hex()

    def _written(self, key: str) -> Written | None:
        """What was appended last under the lock that is still held; nobody else wrote since."""
        note = self._locks.note(file_stem(key))
        return note if isinstance(note, Written) else None

    def _is_abandoned(self, key: str, fd: int, size: int) -> bool:
        """Whether nobody is writing what stands at the end of a file of `size` bytes.

        It never waits: who reads may hold what the one who writes is waiting for.
        """
        with contextlib.suppress(OSError):  # nobody locks in a read-only place, and none writes
            if self._locks.is_held(file_stem(key)):
                return False
        return os.fstat(fd).st_size == size


@contextlib.contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def _opened_or_made(path: Path, *, sync: bool) -> AbstractContextManager[int]:
    """A descriptor to append with; a new file is in its directory for good if `sync`."""
    try:
        fd = open_file(path, os.O_RDWR | os.O_APPEND)
    except FileNotFoundError:
        make_directory(path.parent)
        fd = open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        if sync:
            sync_directory(path.parent)
    return _closing(fd)


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


def _name_of(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_NAME_BYTES).digest()
