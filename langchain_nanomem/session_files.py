"""Where the files of sessions lie, and whose they are."""

from __future__ import annotations

import contextlib
import os
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote

from langchain_nanomem.errors import CorruptRecordError
from langchain_nanomem.files import file_stem, open_file
from langchain_nanomem.journal import JournalInfo, JournalState
from langchain_nanomem.journal_lines import load_line
from langchain_nanomem.values import load_record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from langchain_nanomem.journal import Record

_ENDING = ".jsonl"
_CUT_STEM = re.compile(r".{120}~[0-9a-f]{40}")
_MAX_STEM_BYTES = 240
"""What a file system takes beside the ending; a longer name can be no file's."""


class SessionFiles:
    """The files of one directory, each named after its session's key.

    Files of nanobot, whose names are less exact, get the name of their key when they are
    first asked for.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._adopted: dict[str, Path] = {}

    def path(self, key: str) -> Path:
        """The file of `key`, whether it exists or not."""
        if known := self._adopted.get(key):
            return known
        path = self.directory / f"{file_stem(key)}{_ENDING}"
        self._yield_place(key, path)
        if not path.exists():
            return self._adopt_legacy(key, path)
        self._adopted[key] = path
        return path

    def removed(self, key: str) -> None:
        """Note that the file of `key` is gone."""
        self._adopted.pop(key, None)

    def infos(self) -> list[JournalInfo]:
        """What can be told of each file without reading all of it, in the order of the keys."""
        found = []
        for path in self._paths():
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                if path.is_file() and not path.is_symlink():
                    found.append(_info(path))
        return sorted(found, key=lambda info: info.key)

    def info(self, key: str) -> JournalInfo | None:
        """What can be told of the file of `key` alone; None where there is none."""
        with contextlib.suppress(FileNotFoundError):
            return _info(self.path(key))
        return None

    def states(self) -> dict[str, JournalState]:
        """The state of each file, by its name without the ending."""
        return states_in(self.directory, _ENDING)

    def key_of(self, stem: str) -> str | None:
        """The key of a file that `states` has named; None where it is gone."""
        with contextlib.suppress(FileNotFoundError):
            return _info(self.directory / f"{stem}{_ENDING}").key
        return None

    def _paths(self) -> Iterator[Path]:
        try:
            paths = [*self.directory.iterdir()]  # glob would take what it can't read for empty
        except FileNotFoundError:
            return
        for path in paths:
            if path.suffix == _ENDING and not path.name.startswith("."):
                yield path

    def _yield_place(self, key: str, path: Path) -> None:
        """Move a file of nanobot away whose name is, by its key, that of another session."""
        owner = _owner(path)
        if owner in {None, key}:
            return
        own = self.directory / f"{file_stem(str(owner))}{_ENDING}"
        if own.exists():
            raise OSError(
                f"{path} and {own} both say that they are the session {owner!r}. "
                "Move one of them away."
            )
        with contextlib.suppress(FileNotFoundError):  # another process did the same
            path.rename(own)

    def _adopt_legacy(self, key: str, path: Path) -> Path:
        """Give a file of nanobot, whose names are less exact, the name of its key."""
        legacy = self.directory / f"{_legacy_stem(key)}{_ENDING}"
        if legacy == path or _owner(legacy) != key:
            return path
        try:
            return legacy.rename(path)
        except FileNotFoundError:  # another process did the same
            return path
        except OSError:  # a read-only place: it is read where it lies
            return legacy


def states_in(directory: Path, ending: str) -> dict[str, JournalState]:
    """The state of each regular file of a directory with this ending, by its name without it.

    There are none where there is no directory. Files that are hidden, or gone meanwhile, are
    left out.
    """
    try:
        with os.scandir(directory) as found:
            return {
                entry.name.removesuffix(ending): JournalState(
                    stat.st_ino, stat.st_size, stat.st_mtime_ns
                )
                for entry in found
                if entry.name.endswith(ending) and not entry.name.startswith(".")
                if (stat := _stat(entry)) is not None
            }
    except FileNotFoundError:
        return {}


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    """That of a regular file; None for anything else, and for one that is gone."""
    try:
        return entry.stat() if entry.is_file(follow_symlinks=False) else None
    except FileNotFoundError:
        return None


def _info(path: Path) -> JournalInfo:
    stat = path.lstat()
    first: Record = {}
    with contextlib.suppress(PermissionError):  # the others are to be listed all the same
        first = _first_record(path)
    moment = datetime.fromtimestamp(stat.st_mtime, UTC)
    key = _named_key(first, path) or _key_within(path) or unquote(path.stem)
    return JournalInfo(key, first, moment, stat.st_size, str(path))


def _first_record(path: Path) -> Record:
    """The first record, or {} where it can't be read; listing must not fail for one file."""
    with os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
        line = file.readline()
    try:
        return load_line(line, path, lambda: 1)
    except CorruptRecordError:
        return {}


def _key_within(path: Path) -> str | None:
    """The key of a damaged file whose name is cut: a later record may tell it, and is checked."""
    if not _CUT_STEM.fullmatch(path.stem):
        return None
    with (
        contextlib.suppress(PermissionError),
        os.fdopen(open_file(path, os.O_RDONLY), "rb") as file,
    ):
        for line in file:
            with contextlib.suppress(ValueError):
                record = load_record(line)
                key = record.get("key") if record.get("_type") == "metadata" else None
                if isinstance(key, str) and key and file_stem(key) == path.stem:
                    return key
    return None


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
    stem = re.sub(r'[<>:"/\\|?*\0]', "_", key)
    return stem if len(stem.encode()) <= _MAX_STEM_BYTES else "_"
