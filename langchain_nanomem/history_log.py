"""HISTORY.md: its format, its reading and its appending.

::

    [2026-05-08 10:11] The user moved to Berlin.
    She starts at the new office on 2026-06-01.
    <!-- nanomem id="c-41" source="cli:user 0-24" -->

    [2026-05-09 08:00] Written by a person: no comment line is needed.

An entry starts at a line that begins with a stamp (UTC) and ends at its comment line, or else
before the next stamp. Other text is a person's note: an entry without a time. A note that
consists of Markdown headings only is none. Inside an entry, a line that would read as a stamp
or as a comment is indented by one space.
"""

from __future__ import annotations

import codecs
import contextlib
import html
import logging
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from langchain_nanomem import files
from langchain_nanomem.errors import CorruptRecordError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

logger = logging.getLogger(__name__)

_STAMP = re.compile(
    r"\[(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
    r" (?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})\]"
)
_STAMP_LENGTH = len("[2026-05-08 10:11]")
_COMMENT = re.compile(r'<!-- nanomem id="(?P<id>[^"]*)"(?: source="(?P<source>[^"]*)")? -->\s*')
_COMMENT_END = re.compile(rb'(?: source="[^"\n]*")? -->[ \t\r]*(?:\n|\Z)')
_LAST_COMMENT = re.compile(rb"(?:\A|\n)<!-- nanomem [^\n]*-->[ \t\r]*\n\s*\Z")
_RANGE = re.compile(r" [0-9]+-[0-9]+\Z")
_READS_AS_MARK = re.compile(rf" *(?:{_STAMP.pattern}|<!-- nanomem)")
_HEADING_OR_BLANK = re.compile(r"#{1,6}\s.*|\s*")
_sync_data = getattr(os, "fdatasync", os.fsync)  # only Linux has the cheaper one


@dataclass(frozen=True)
class HistoryEntry:
    """One entry of HISTORY.md."""

    at: datetime | None
    """When it happened, to the minute (aware, UTC). None for a person's note without a stamp."""
    text: str
    """The text without stamp and comment; lines end in LF."""
    entry_id: str | None
    """The id it was appended under. None for what a person wrote."""
    source: str | None
    """What it tells of, as given to the append, such as ``cli:user 0-24``."""
    line_number: int
    """The line of HISTORY.md where it starts, counted from 1."""

    @property
    def stamp(self) -> str:
        """Its time as HISTORY.md has it, such as ``[2026-05-08 10:11]``; "" when `at` is None."""
        if self.at is None:
            return ""
        return f"[{self.at.replace(tzinfo=None).isoformat(' ', 'minutes')}]"


def new_entry(text: str, at: datetime | None, entry_id: str, source: str | None) -> HistoryEntry:
    """The entry as it will be read back: newlines made LF, the ends stripped, a stamp taken off.

    A text that begins with a stamp that is a date keeps that time, whatever `at` says. An `at`
    of None means now.

    Raises:
        ValueError: The text or the id is blank or not valid Unicode, or `at` is naive.
    """
    encode(text, "entry")
    encode(entry_id, "entry_id")
    if source is not None:
        encode(source, "source")
    if not entry_id.strip():
        raise ValueError("entry_id is blank; give another one, or None to have one made")
    given = _to_utc_minute(at)
    stamped, body = _take_stamp(_with_lf(text).strip())
    body = body.strip()
    if not body:
        raise ValueError("a history entry needs a text: this one is blank")
    return HistoryEntry(stamped or given, body, entry_id, source, 1)


def format_entry(entry: HistoryEntry) -> str:
    """The lines of an entry, ready to be appended."""
    first, *others = entry.text.split("\n")
    begin = f"{entry.stamp} {first}" if entry.at else _indented(first)
    return "\n".join([begin, *map(_indented, others), *_comment_of(entry), ""])


def _indented(line: str) -> str:
    return f" {line}" if _READS_AS_MARK.match(line) else line


def _comment_of(entry: HistoryEntry) -> list[str]:
    """The line that tells what an entry is; none of one that a person wrote."""
    if entry.entry_id is None:
        return []
    source = "" if entry.source is None else f' source="{_quote(entry.source)}"'
    return [f'<!-- nanomem id="{_quote(entry.entry_id)}"{source} -->']


def session_of(source: str | None) -> str:
    """The session that an entry of such a source as ``cli:user 0-24`` tells of; "" for none.

    A source without a range names the session alone.
    """
    return _RANGE.sub("", source or "")


def parse_entries(text: str) -> Iterator[HistoryEntry]:
    """The entries of a history log, in the order of the file. A person's edits never raise."""
    at: datetime | None = None
    lines: list[str] = []
    start = 1
    for number, line in enumerate(_with_lf(text.removeprefix("\ufeff")).split("\n"), 1):
        stamped, rest = _take_stamp(line)
        comment = None if stamped else _COMMENT.fullmatch(line)
        if stamped:
            yield from _entry(at, lines, start)
            at, lines, start = stamped, [rest], number
        elif comment:
            yield from _entry(at, lines, start, comment)
            at, lines, start = None, [], number + 1
        elif lines or line.strip():
            start = start if lines else number
            lines.append(line[1:] if line[:1] == " " and _READS_AS_MARK.match(line) else line)
    yield from _entry(at, lines, start)


def _entry(
    at: datetime | None, lines: list[str], start: int, comment: re.Match[str] | None = None
) -> Iterator[HistoryEntry]:
    if at is None and all(_HEADING_OR_BLANK.fullmatch(line) for line in lines):
        return
    entry_id, source = comment.group("id", "source") if comment else (None, None)
    text = "\n".join(lines).strip()
    yield HistoryEntry(at, text, _unquote(entry_id), _unquote(source), start)


def read_entries(path: Path, content: bytes) -> list[HistoryEntry]:
    """The entries in the bytes of the file at `path`; a character that a crash cut is left out.

    Raises:
        CorruptRecordError: It is not UTF-8.
    """
    remedy = "Save the file as UTF-8; entries can be appended meanwhile."
    return list(parse_entries(decode(path, content[: _whole_length(content)], remedy)))


def is_whole(content: bytes) -> bool:
    """Whether a log ends in a complete entry of ours, so that no append can be under way."""
    return not content or _LAST_COMMENT.search(content, max(0, content.rfind(b"\n<"))) is not None


def contains_id(content: bytes, entry_id: str) -> bool:
    """Whether a log, readable or not, holds the entry called `entry_id`."""
    content = b"\n" + content
    start = f'\n<!-- nanomem id="{_quote(entry_id)}"'.encode()
    position = content.find(start)  # many times faster than a search by the whole pattern
    while position >= 0:
        if _COMMENT_END.match(content, position + len(start)):
            return True
        position = content.find(start, position + 1)
    return False


def append_entry(path: Path, entry: HistoryEntry) -> None:
    """Append `entry`, once for its id, in one write that is on the disk when this returns.

    What is left of an append of the same entry that a crash cut short is replaced. The caller
    holds the lock of the file.

    Raises:
        OSError: It could not be written; the file has its previous length.
    """
    content = read_or_empty(path)
    record = format_entry(entry).encode()
    fd = files.open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        if contains_id(content, entry.entry_id or ""):
            _sync_data(fd)  # whoever wrote it may have been killed before its own sync
            return
        keep = _kept_length(content, record)
        if keep < len(content):
            logger.warning("%s: cut off %d bytes of a torn entry", path, len(content) - keep)
            os.ftruncate(fd, keep)
        _write_or_restore(fd, _separator(content[:keep]) + record, keep)
    finally:
        os.close(fd)
    if not content:
        files.sync_directory(path.parent)


def read_or_empty(path: Path) -> bytes:
    """The bytes of `path`, none where there is no such file.

    Raises:
        OSError: It exists and can't be read.
    """
    try:
        return files.read_bytes(path)
    except FileNotFoundError:
        return b""


def _write_or_restore(fd: int, content: bytes, length: int) -> None:
    try:
        files.write_all(fd, content)
        _sync_data(fd)
    except BaseException:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, length)
        raise


def _separator(content: bytes) -> bytes:
    """What is missing between `content` and a new entry: the end of its line, a blank line."""
    if not content or re.search(rb"\n\r?\n\Z", content[-3:]):
        return b""
    return b"\n" if content.endswith(b"\n") else b"\n\n"


def _kept_length(content: bytes, record: bytes) -> int:
    """Where `content` ends without a torn start of `record`, or a torn character."""
    for start in _line_starts(content, max(0, len(content) - len(record))):
        tail = len(content) - start
        stamp_fits = content.startswith(record[: min(tail, _STAMP_LENGTH)], start)
        if 0 < tail < len(record) and stamp_fits and record.startswith(content[start:]):
            return start
    return _whole_length(content)


def _line_starts(content: bytes, after: int) -> Iterator[int]:
    if after == 0:
        yield 0
    position = content.find(b"\n", max(0, after - 1)) + 1
    while position:
        yield position
        position = content.find(b"\n", position) + 1


def _whole_length(content: bytes) -> int:
    """The length without a last character that is incomplete, where all before it is UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(content)
    except UnicodeDecodeError:
        return len(content)
    return len(content) - len(decoder.getstate()[0])


def encode(text: str, name: str) -> bytes:
    """`text` as UTF-8.

    Raises:
        ValueError: It is no string, or holds half a character; it is called `name` there.
    """
    if not isinstance(text, str):
        raise ValueError(f"{name} must be a string, not {type(text).__name__}")  # noqa: TRY004 - wrong arguments are ValueError throughout this package
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} holds a lone surrogate, half a character, at position {error.start}; "
            "remove it before it is stored"
        ) from None


def decode(path: Path, content: bytes, remedy: str) -> str:
    """The text of the file at `path`.

    Raises:
        CorruptRecordError: It is not UTF-8. It names the line, and the `remedy`.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line_number = content.count(b"\n", 0, error.start) + 1
        raise CorruptRecordError(path, line_number, "the text is not UTF-8", remedy) from error


def _take_stamp(line: str) -> tuple[datetime | None, str]:
    match = _STAMP.match(line)
    if match is None:
        return None, line
    try:
        return datetime(*map(int, match.groups()), tzinfo=UTC), line[match.end() :]  # type: ignore[arg-type,misc] # mypy can't count the five groups
    except ValueError:  # looks like a stamp, but is no date
        return None, line


def _to_utc_minute(at: datetime | None) -> datetime:
    at = datetime.now(UTC) if at is None else at
    if at.tzinfo is None or at.utcoffset() is None:
        raise ValueError(f"at must be an aware datetime, not {at!r}; give it a time zone")
    try:
        return at.astimezone(UTC).replace(second=0, microsecond=0)
    except OverflowError:
        raise ValueError(f"at must be a time that UTC can express, not {at!r}") from None


def _with_lf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _quote(value: str) -> str:
    quoted = value.replace("&", "&amp;").replace('"', "&quot;")
    quoted = quoted.replace("\n", "&#10;").replace("\r", "&#13;")
    return re.sub("(?<=-)-", "&#45;", quoted)  # two hyphens would end the comment


def _unquote(value: str | None) -> str | None:
    return None if value is None else html.unescape(value)


__all__ = [
    "HistoryEntry",
    "append_entry",
    "contains_id",
    "decode",
    "encode",
    "format_entry",
    "is_whole",
    "new_entry",
    "parse_entries",
    "read_entries",
    "read_or_empty",
    "session_of",
]
