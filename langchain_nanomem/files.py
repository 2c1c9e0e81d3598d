"""Plain files, used safely: names, modes, atomic replacement, locks between processes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import portalocker
from portalocker import AlreadyLocked, LockException, LockFlags

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700

_READABLE = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-.")
_MAX_NAME_BYTES = 200  # leaves room for an ending below the 255 of common file systems
# Names that Windows gives to devices, whatever their ending:
# https://learn.microsoft.com/windows/win32/fileio/naming-a-file
_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))]
)
_RECENT_LOCKS = 64
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_OPEN_FLAGS = _NOFOLLOW | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_SYMBOLIC_LINK = (
    "{path} is a symbolic link: refused, since it could lead out of the workspace. Replace it by "
    "the file itself."
)


@lru_cache(maxsize=1024)
def file_stem(key: str) -> str:
    """A readable file name for `key`; distinct keys never share one, on any common disk.

    Lower-case letters, digits, ``_``, ``-`` and ``.`` stand for themselves, every other
    byte of the UTF-8 text becomes ``%xx``. Case is part of the key, so a capital letter is
    encoded too. A long name is cut and ends in a hash of the whole key.

    Raises:
        ValueError: `key` is empty, no string, or not encodable as UTF-8.
    """
    if not isinstance(key, str) or not key:
        raise ValueError(f"a key must be a string that is not empty, not {key!r}")
    try:
        raw = key.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"the key {key!r} is not valid Unicode; use another key") from None
    stem = "".join(chr(b) if chr(b) in _READABLE else f"%{b:02x}" for b in raw)
    if stem[0] == "." or stem.split(".", 1)[0] in _DEVICES:
        stem = f"%{ord(stem[0]):02x}{stem[1:]}"
    if len(stem) > _MAX_NAME_BYTES:
        stem = f"{stem[:120]}~{hashlib.sha256(raw).hexdigest()[:40]}"
    return stem


def make_directory(path: Path) -> None:
    """Create `path` and its parents, readable by the owner alone; an existing one is kept."""
    if path.is_dir():
        return
    missing = [path, *path.parents]
    for directory in reversed([p for p in missing if not p.exists()]):
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=DIRECTORY_MODE)
            sync_directory(directory.parent)


def sync_directory(path: Path) -> None:
    """Make a creation, renaming or deletion in `path` survive a power loss, where possible."""
    if os.name == "nt":  # pragma: no cover - directories can't be synced there
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_file(path: Path, flags: int) -> int:
    """A file descriptor of `path`, which must not be a symbolic link.

    Raises:
        OSError: It can't be opened, or is a symbolic link.
    """
    if not _NOFOLLOW and path.is_symlink():
        raise OSError(_SYMBOLIC_LINK.format(path=path))
    try:
        return os.open(path, flags | _OPEN_FLAGS, FILE_MODE)
    except OSError as error:
        if path.is_symlink():
            raise OSError(_SYMBOLIC_LINK.format(path=path)) from error
        raise


def read_bytes(path: Path) -> bytes:
    """The whole content of `path`.

    Raises:
        OSError: It is missing, can't be read, or is a symbolic link.
    """
    fd = open_file(path, os.O_RDONLY)
    try:
        with os.fdopen(fd, "rb", closefd=False) as file:  # a directory opens, then raises here
            return file.read()
    except OSError as error:  # it names the descriptor
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(fd)


def read_at(fd: int, offset: int, length: int = -1) -> bytes:
    """`length` bytes from `offset` on, fewer at the end of the file; by default all to its end."""
    if length < 0:
        length = max(0, os.fstat(fd).st_size - offset)
    content = _pread(fd, length, offset)
    while len(content) < length and (
        more := _pread(fd, length - len(content), offset + len(content))
    ):
        content += more
    return content


def _seek_and_read(fd: int, length: int, offset: int) -> bytes:
    os.lseek(fd, offset, os.SEEK_SET)
    return os.read(fd, length)


_pread = getattr(os, "pread", _seek_and_read)


def write_all(fd: int, content: bytes) -> None:
    """Write all of `content` at the descriptor's position, in as few calls as the system allows."""
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def temporary_of(path: Path) -> Path:
    """Where what is to replace `path` is written."""
    return path.with_name(f".{path.name}.tmp")


def replace_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Put `content` in place of what `path` held: readers see the old or the new, never a mix.

    The caller keeps everyone else from replacing it at the same time. What a process that was
    killed meanwhile has left is used up by the next one.

    Args:
        path: The file; it needn't exist.
        content: All that it is to hold.
        durable: Return only when a power loss can't take it back. Without, one may leave
            anything there.

    Raises:
        OSError: It could not be written; `path` is as it was, nothing else is left behind.
    """
    if path.is_symlink():
        raise OSError(f"{path} is a symbolic link: refused. Replace it by the file itself.")
    temporary = temporary_of(path)
    try:
        fd = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(fd, content)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        sync_directory(path.parent)


class LockDirectory:
    """Locks by name, between threads and between processes, as empty files in one directory.

    The files stay: removing a lock file while another process waits for it would give
    the same lock to two holders.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._threads: WeakValueDictionary[str, _NamedLock] = WeakValueDictionary()
        self._recent: deque[_NamedLock] = deque(maxlen=_RECENT_LOCKS)
        """Kept so that they need not be made anew for each hold."""

    @contextlib.contextmanager
    def hold(self, stem: str) -> Iterator[None]:
        """Hold the lock called `stem` (a file stem). A thread may hold it more than once."""
        lock = self._named(stem)
        with lock.thread:
            if lock.is_held:
                yield
                return
            fd = lock.acquire()
            lock.is_held = True
            try:
                yield
            finally:
                lock.is_held, lock.note = False, None
                lock.release(fd)

    def remove(self, stem: str) -> None:
        """Remove a lock's file, for its name says whose it is. Whoever waits makes another."""
        with self.hold(stem), contextlib.suppress(OSError):
            self._named(stem).path.unlink()

    def is_held(self, stem: str) -> bool:
        """Whether another thread or process holds the lock called `stem`. Never waits.

        Raises:
            OSError: It can't be told, for there is no locking here.
        """
        lock = self._named(stem)
        if not lock.thread.acquire(blocking=False):
            return True
        try:
            if not lock.is_held:
                lock.release(lock.acquire(LockFlags.EXCLUSIVE | LockFlags.NON_BLOCKING))
        except AlreadyLocked:
            return True
        else:
            return False
        finally:
            lock.thread.release()

    def set_note(self, stem: str, note: object) -> None:
        """Note something of what the lock called `stem` guards. Its holder alone may do so."""
        self._named(stem).note = note

    def note(self, stem: str) -> object:
        """What its holder has noted; None where nobody holds it, or nothing is noted."""
        return self._named(stem).note

    def _named(self, stem: str) -> _NamedLock:
        with self._guard:
            lock = self._threads.get(stem)
            if lock is None:
                lock = self._threads[stem] = _NamedLock(self._path / f"{stem}.lock")
                self._recent.append(lock)
            return lock


class _NamedLock:
    """A lock for the threads of this process around one for the processes of this machine."""

    def __init__(self, path: Path) -> None:
        self.thread = threading.RLock()
        self.is_held = False
        """Whether the thread that holds `thread` holds the file's lock too."""
        self.note: object = None
        """What holds as long as it is held."""
        self.path = path

    def acquire(self, flags: LockFlags = LockFlags.EXCLUSIVE) -> int:
        """A descriptor that holds the file's lock; give it to `release`.

        Raises:
            AlreadyLocked: Another holds it, and `flags` say not to wait.
            OSError: There is no locking here.
        """
        while True:
            fd = self._open()
            try:
                portalocker.lock(fd, flags)
                if os.fstat(fd).st_nlink:
                    return fd
            except BaseException as error:
                os.close(fd)
                if isinstance(error, LockException) and not isinstance(error, AlreadyLocked):
                    raise OSError(f"{self.path} cannot be locked: {error}") from error
                raise
            self.release(fd)  # someone removed the file meanwhile: others lock another one

    @staticmethod
    def release(fd: int) -> None:
        """Let go of the lock, and of its descriptor.

        Closing alone would not do: a process that was forked meanwhile has the descriptor too.
        """
        try:
            portalocker.unlock(fd)
        finally:
            os.close(fd)

    def _open(self) -> int:
        try:
            return open_file(self.path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:
            make_directory(self.path.parent)
            return open_file(self.path, os.O_RDWR | os.O_CREAT)


__all__ = [
    "LockDirectory",
    "file_stem",
    "make_directory",
    "open_file",
    "read_at",
    "read_bytes",
    "replace_file",
    "sync_directory",
    "temporary_of",
    "write_all",
]
