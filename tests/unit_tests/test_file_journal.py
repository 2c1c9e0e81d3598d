"""Journals as files."""

from __future__ import annotations

import json
import logging
import os
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journal_records import contents, said

from langchain_nanomem import file_journal
from langchain_nanomem.errors import CorruptRecordError
from langchain_nanomem.file_journal import FileJournal
from langchain_nanomem.files import file_stem
from langchain_nanomem.journal import ORIGIN, Position, ReplacedError
from langchain_nanomem.journal_lines import frame, is_torn, sound_length

KEY = "cli:test"
HEAD = {"_type": "metadata", "key": KEY}


@pytest.fixture
def journal(tmp_path: Path) -> FileJournal:
    return FileJournal(tmp_path)


def is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


# --- appending and reading --------------------------------------------------


def test_records_come_back_in_order(journal: FileJournal):
    """What was appended is read, in order, and from the end of an earlier reading on."""
    assert journal.read(KEY) == ([], ORIGIN)
    end = journal.append(KEY, [HEAD, *said("a", "b")])
    assert journal.read(KEY) == ([HEAD, *said("a", "b")], end)
    assert journal.read(KEY, end) == ([], end)
    later = journal.append(KEY, said("c"), expected_end=end)
    assert journal.read(KEY, end) == (said("c"), later)


def test_what_was_just_written_is_forgotten_with_its_journal(journal: FileJournal):
    """Under a lock what was just appended is not read again, unless it was replaced meanwhile."""
    end = journal.append(KEY, [HEAD])
    with journal.lock(KEY):
        later = journal.append(KEY, said("a", "b"), expected_end=end)
        assert journal.read(KEY, end) == (said("a", "b"), later)
        journal.rewrite(KEY, [HEAD])
        with pytest.raises(ReplacedError):
            journal.read(KEY, end)


def test_what_another_wrote_behind_it_is_read(journal: FileJournal, tmp_path: Path):
    """When the lock was let go, all that stands behind an end is read, whoever wrote it."""
    end = journal.append(KEY, [HEAD])
    with journal.lock(KEY):
        journal.append(KEY, said("a"), expected_end=end)
    FileJournal(tmp_path).append(KEY, said("b"))
    assert journal.read(KEY, end)[0] == said("a", "b")


def test_reading_creates_no_session(journal: FileJournal, tmp_path: Path):
    """A journal begins to exist with its first record."""
    journal.read(KEY)
    assert journal.list() == []
    assert not (tmp_path / "sessions").exists()


def test_an_append_on_another_end_is_refused(journal: FileJournal):
    """Compare and set: where someone else appended meanwhile, nothing is written."""
    end = journal.append(KEY, [HEAD])
    journal.append(KEY, said("other"))
    with pytest.raises(ReplacedError):
        journal.append(KEY, said("mine"), expected_end=end)
    with pytest.raises(ReplacedError):
        journal.append(KEY, said("mine"), expected_end=ORIGIN)
    assert contents(journal.read(KEY)[0]) == ["other"]


def test_a_record_that_cannot_be_stored_leaves_nothing(journal: FileJournal, tmp_path: Path):
    """cases/sessions.md 22: one bad record of three, and none of them is written."""
    with pytest.raises(ValueError, match=r"^x: an object"):
        journal.append(KEY, [HEAD, {"x": object()}, *said("a")])
    assert not (tmp_path / "sessions").exists()


def test_the_file_is_plain_lines(journal: FileJournal):
    """UTF-8 JSON lines with LF: grep, jq and a person can read it."""
    journal.append(KEY, [HEAD, *said("ä\n\u2028", "b")])
    lines = journal.path(KEY).read_bytes().split(b"\n")
    assert lines.pop() == b""
    assert len(lines) == 3
    assert [json.loads(line)["content"] for line in lines[1:]] == ["ä\n\u2028", "b"]
    assert "ä".encode() in lines[1]


def test_modes(journal: FileJournal, tmp_path: Path):
    """Files are for the owner alone: 0600, in directories of 0700."""
    journal.append(KEY, [HEAD])
    journal.delete("cli:other")
    journal.append("cli:gone", [HEAD | {"key": "cli:gone"}])
    journal.delete("cli:gone")
    for directory, _, names in os.walk(tmp_path):
        for name in names:
            assert stat.S_IMODE((Path(directory) / name).stat().st_mode) == 0o600
        if directory != str(tmp_path):
            assert stat.S_IMODE(Path(directory).stat().st_mode) == 0o700


# --- torn ends --------------------------------------------------------------


def test_an_append_torn_at_any_byte_counts_not_at_all(journal: FileJournal):
    """cases/sessions.md 13, 20: wherever an append of several stops, none of it counts."""
    journal.append(KEY, [HEAD, *said("a")])
    before = journal.path(KEY).read_bytes()
    journal.append(KEY, said("b", "c", "d"))
    whole = journal.path(KEY).read_bytes()
    for size in range(len(before), len(whole) + 1):
        journal.path(KEY).write_bytes(whole[:size])
        records, end = journal.read(KEY)
        complete = size >= len(whole) - 1  # only the line end is missing
        assert contents(records) == (["a", "b", "c", "d"] if complete else ["a"])
        journal.append(KEY, said("e"), expected_end=end)
        assert contents(journal.read(KEY)[0]) == [*contents(records), "e"]
        assert b"\n\n" not in journal.path(KEY).read_bytes()


def test_a_first_append_torn_at_any_byte_is_nothing(journal: FileJournal):
    """cases/sessions.md 13, 20: a journal whose very first append was torn is a new one."""
    journal.append(KEY, [HEAD, *said("a")])
    whole = journal.path(KEY).read_bytes()
    for size in range(len(whole) - 1):
        journal.path(KEY).write_bytes(whole[:size])
        assert journal.read(KEY) == ([], ORIGIN)
        journal.append(KEY, [HEAD, *said("b")], expected_end=ORIGIN)
        assert contents(journal.read(KEY)[0]) == ["b"]


def test_messages_are_complete_without_the_metadata_behind_them(journal: FileJournal):
    """cases/sessions.md 20: torn in the metadata record at the end, the messages are all there."""
    journal.append(KEY, [HEAD])
    before = len(journal.path(KEY).read_bytes())
    journal.append(KEY, [*said("a", "b"), HEAD])
    whole = journal.path(KEY).read_bytes()
    seen = set()
    for size in range(before, len(whole) + 1):
        journal.path(KEY).write_bytes(whole[:size])
        seen.add(tuple(contents(journal.read(KEY)[0])))
    assert seen == {(), ("a", "b")}


def test_zeros_after_a_power_loss_are_torn(journal: FileJournal):
    """cases/sessions.md 13: what some file systems leave of an unfinished append is cut off."""
    journal.append(KEY, [HEAD, *said("a")])
    for left in (b"\0" * 3000, b'{"role":"us' + b"\0" * 100, b"{", b"{ "):
        with journal.path(KEY).open("ab") as file:
            file.write(left)
        assert contents(journal.read(KEY)[0]) == ["a"]
        journal.append(KEY, [HEAD])
    assert contents(journal.read(KEY)[0]) == ["a"]


def test_a_torn_end_is_told(journal: FileJournal, caplog: pytest.LogCaptureFixture):
    """cases/sessions.md 13: a warning names the file and how much was left out, or cut off."""
    journal.append(KEY, [HEAD])
    with journal.path(KEY).open("ab") as file:
        file.write(b'{"role"')
    with caplog.at_level(logging.WARNING):
        journal.read(KEY)
        journal.append(KEY, said("a"))
    assert [record.getMessage() for record in caplog.records] == [
        f"{journal.path(KEY)}: the last 7 bytes are a torn record; left out",
        f"{journal.path(KEY)}: the last 7 bytes are a torn record; cut off",
    ]


def test_what_another_is_just_writing_is_not_torn(
    journal: FileJournal, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """A reader neither waits for a writer nor warns of what it has written by half."""
    end = journal.append(KEY, [HEAD])
    with FileJournal(tmp_path).lock(KEY), caplog.at_level(logging.WARNING):
        with journal.path(KEY).open("ab") as file:
            file.write(b'{"role"')
        assert journal.read(KEY) == ([HEAD], end)
    assert caplog.records == []


def test_an_editors_last_line_needs_no_line_end(journal: FileJournal):
    """A record without a line end, as editors leave it, is read and appended to properly."""
    journal.append(KEY, [HEAD, *said("a")])
    path = journal.path(KEY)
    path.write_bytes(path.read_bytes() + b'{"role":"user","content":"by hand"}')
    records, end = journal.read(KEY)
    assert contents(records) == ["a", "by hand"]
    journal.append(KEY, said("b"), expected_end=end)
    assert contents(journal.read(KEY)[0]) == ["a", "by hand", "b"]
    assert contents(journal.read(KEY, end)[0]) == ["b"]


def test_editors_habits_are_no_damage(journal: FileJournal):
    """A byte order mark, CR LF and blank lines do not make a file unreadable."""
    journal.append(KEY, [HEAD, *said("a", "b")])
    path = journal.path(KEY)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n \n")
    assert contents(journal.read(KEY)[0]) == ["a", "b"]
    path.write_bytes(b'\xef\xbb\xbf{"role":"user","content":"only"}')
    assert contents(journal.read(KEY)[0]) == ["only"]


@given(st.lists(st.lists(st.text(max_size=5), min_size=1, max_size=4), max_size=4), st.data())
def test_a_cut_file_is_whole_appends(appends: list[list[str]], data: st.DataObject):
    """cases/sessions.md 20: any beginning of a file holds a whole number of appends."""
    pieces = [frame(said(*texts)) for texts in appends]
    whole = b"".join(pieces)
    size = data.draw(st.integers(0, len(whole)))
    ends = [0]
    for piece in pieces:
        ends.append(ends[-1] + len(piece))
    length = sound_length(whole[:size])
    assert length in ends or length + 1 in ends  # the line end of the last one may be missing
    assert max(end for end in ends if end <= size) <= length
    assert is_torn(whole[length:size], is_whole_file=False)


# --- damage -----------------------------------------------------------------


@pytest.mark.parametrize(
    "garbage", [b"not a record", b"[1]", b'{"a"', b"\xff\xfe", b"\0\0", b"null"]
)
def test_garbage_between_good_lines_is_loud(journal: FileJournal, garbage: bytes):
    """cases/sessions.md 13: an error with path and line; the file stays as it was."""
    journal.append(KEY, [HEAD, *said("a")])
    end = journal.append(KEY, said("b"))
    path = journal.path(KEY)
    damaged = path.read_bytes() + garbage + b"\n" + frame(said("c"))
    path.write_bytes(damaged)
    with pytest.raises(CorruptRecordError, match="nanomem doctor --repair") as whole:
        journal.read(KEY)
    with pytest.raises(CorruptRecordError) as rest:
        journal.read(KEY, end)
    for caught in (whole, rest):
        assert (caught.value.path, caught.value.line_number) == (path, 4)
        assert str(path) in str(caught.value)
        assert "line 4" in str(caught.value)
    assert path.read_bytes() == damaged


@pytest.mark.parametrize(
    "garbage",
    [
        b"complete garbage",
        b"complete\ngarbage\n",
        b"{not json",
        b"{{{{",
        b"[]",
        b"\x00\x01\x02\xff",
        b"\x00" * 100,
        b"\x89PNG\r\n\x1a\n\0\0",
        b'{"broken": ',
        b'{"role": "user", "content": "cut',
        b"\n\nx",
        b"<html>\n</html>\n",
    ],
)
def test_a_file_of_garbage_is_no_empty_journal(journal: FileJournal, garbage: bytes):
    """cases/sessions.md 13: unreadable is never empty: neither read, nor written over."""
    path = journal.path(KEY)
    path.parent.mkdir()
    path.write_bytes(garbage)
    with pytest.raises(CorruptRecordError):
        journal.read(KEY)
    with pytest.raises(CorruptRecordError):
        journal.append(KEY, [HEAD]) and journal.read(KEY)
    assert path.read_bytes().startswith(garbage.rstrip(b"\0"))


def test_garbage_at_the_end_is_not_cut_off(journal: FileJournal):
    """cases/sessions.md 13: what is no torn record of ours is not thrown away."""
    journal.append(KEY, [HEAD, *said("a")])
    path = journal.path(KEY)
    damaged = path.read_bytes() + b"my notes, typed by hand"
    path.write_bytes(damaged)
    for touch in (lambda: journal.read(KEY), lambda: journal.append(KEY, said("b"))):
        with pytest.raises(CorruptRecordError) as caught:
            touch()
        assert caught.value.line_number == 3
    assert path.read_bytes() == damaged


def test_an_empty_file_is_an_empty_journal(journal: FileJournal):
    """cases/sessions.md 13: zero bytes, or nothing but line ends, are no records."""
    path = journal.path(KEY)
    path.parent.mkdir()
    for content in (b"", b"\n", b" \n\n"):
        path.write_bytes(content)
        assert journal.read(KEY)[0] == []
    assert journal.append(KEY, [HEAD])
    assert journal.read(KEY)[0] == [HEAD]


def test_repair_keeps_the_good_and_the_damaged(journal: FileJournal):
    """cases/sessions.md 13: the good records are readable again, the damaged file is kept whole."""
    journal.append(KEY, [HEAD, *said("a", "b")])
    path = journal.path(KEY)
    damaged = path.read_bytes() + b"garbage\n" + frame(said("c")) + b'{"torn'
    path.write_bytes(damaged)
    found = journal.read_damaged(KEY)
    assert contents(found.good) == ["a", "b", "c"]
    assert found.bad == [(4, b"garbage"), (6, b'{"torn')]
    assert path.read_bytes() == damaged
    aside = journal.repair(KEY)
    assert aside is not None
    assert aside.read_bytes() == damaged
    assert stat.S_IMODE(aside.stat().st_mode) == 0o600
    assert contents(journal.read(KEY)[0]) == ["a", "b", "c"]
    assert [info.key for info in journal.list()] == [KEY]
    assert journal.repair(KEY) is None


def test_a_damaged_first_line_can_be_repaired(journal: FileJournal):
    """cases/sessions.md 13: without its own metadata the session is still the one of its key."""
    key = "cli:" + "x" * 300
    journal.append(key, [{"_type": "metadata", "key": key}, *said("a")])
    path = journal.path(key)
    path.write_bytes(b"garbage" + path.read_bytes())
    journal.repair(key)
    assert contents(FileJournal(journal.workspace).read(key)[0]) == ["a"]
    assert [info.key for info in journal.list()] == [key]


def test_deleting_removes_the_damaged_copy_too(journal: FileJournal, tmp_path: Path):
    """cases/sessions.md 17: after a delete no file holds the text any more."""
    journal.append(KEY, [HEAD, *said("secret")])
    with journal.path(KEY).open("ab") as file:
        file.write(b"garbage\n")
    journal.append("cli:test2", [HEAD | {"key": "cli:test2"}, *said("other")])
    journal.repair(KEY)
    assert journal.delete(KEY)
    texts = [p.read_text() for p in tmp_path.rglob("*") if p.is_file()]
    assert not any("secret" in text for text in texts)
    assert contents(journal.read("cli:test2")[0]) == ["other"]


# --- a full disk, permissions, links ----------------------------------------


@pytest.mark.parametrize("free_bytes", [0, 1, 40, 100])
@pytest.mark.parametrize("existing", [True, False])
def test_a_full_disk_loses_nothing(
    journal: FileJournal,
    disk_full,
    free_bytes: int,
    existing: bool,  # noqa: FBT001 - a parameter
):
    """cases/sessions.md 21: the append fails whole, the earlier records stay, a retry works."""
    if existing:
        journal.append(KEY, [HEAD, *said("a")])
    before = journal.read(KEY)
    disk_full(free_bytes)
    with pytest.raises(OSError, match="No space"):
        journal.append(KEY, [HEAD, *said("b", "c" * 200)])
    assert journal.read(KEY) == before
    disk_full(10_000)
    journal.append(KEY, [HEAD, *said("b")], expected_end=before[1])
    assert contents(journal.read(KEY)[0]) == [*contents(before[0]), "b"]


def test_a_failed_sync_takes_the_append_back(journal: FileJournal, monkeypatch: pytest.MonkeyPatch):
    """cases/sessions.md 21: what was not made durable was not written; a retry is no double."""
    end = journal.append(KEY, [HEAD])

    def fail(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(file_journal, "_fdatasync", fail)
        with pytest.raises(OSError, match="Input/output"):
            journal.append(KEY, said("a"))
    assert journal.read(KEY) == ([HEAD], end)


def test_a_failed_sync_of_the_directory_leaves_no_record(
    journal: FileJournal, monkeypatch: pytest.MonkeyPatch
):
    """cases/sessions.md 21: also where the new file's name can't be made durable."""

    def fail(_path: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(file_journal, "sync_directory", fail)
        with pytest.raises(OSError, match="Input/output"):
            journal.append(KEY, [HEAD, *said("a")])
    assert journal.read(KEY) == ([], ORIGIN)


def test_denied_is_not_empty(journal: FileJournal, deny_open):
    """cases/sessions.md 14: a file that can't be opened is an error, for reading and appending."""
    journal.append(KEY, [HEAD, *said("a")])
    deny_open(".jsonl")
    for other in (journal, FileJournal(journal.workspace)):
        with pytest.raises(PermissionError):
            other.read(KEY)
        with pytest.raises(PermissionError):
            other.append(KEY, said("b"))


def test_one_denied_file_does_not_hide_the_others(journal: FileJournal, deny_open):
    """cases/sessions.md 14, 15: a listing names all sessions, also one that can't be opened."""
    journal.append("cli:a", [{"_type": "metadata", "key": "cli:a"}])
    journal.append("cli:b", [{"_type": "metadata", "key": "cli:b"}])
    deny_open("%3aa.jsonl")
    assert [info.key for info in journal.list()] == ["cli:a", "cli:b"]


def test_a_listing_that_fails_is_not_empty(journal: FileJournal, monkeypatch: pytest.MonkeyPatch):
    """cases/sessions.md 14: sessions that can't be listed are an error, not none."""
    journal.append(KEY, [HEAD])

    def denied(_self: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", denied)
    with pytest.raises(PermissionError):
        journal.list()


def test_a_read_only_place_can_be_read(journal: FileJournal, tmp_path: Path, monkeypatch):
    """A workspace on a read-only disk is read, torn ends and legacy names included."""
    journal.append(KEY, [HEAD, *said("a")])
    with journal.path(KEY).open("ab") as file:
        file.write(b'{"torn')
    (tmp_path / "sessions" / "cli_old.jsonl").write_bytes(
        frame([{"_type": "metadata", "key": "cli:old"}, *said("old")])
    )
    real = os.open

    def read_only(path: str | Path, flags: int, *args: int, **kwargs: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(30, "Read-only file system", str(path))
        return real(path, flags, *args, **kwargs)

    def no_rename(self: Path, _target: Path) -> Path:
        raise OSError(30, "Read-only file system", str(self))

    monkeypatch.setattr(os, "open", read_only)
    monkeypatch.setattr(Path, "rename", no_rename)
    reader = FileJournal(tmp_path)
    assert contents(reader.read(KEY)[0]) == ["a"]
    assert contents(reader.read("cli:old")[0]) == ["old"]
    with pytest.raises(OSError, match="Read-only"):
        reader.append(KEY, said("b"))


@pytest.mark.parametrize("target", ["outside.jsonl", "nowhere.jsonl"])
def test_a_link_in_place_of_a_journal_is_refused(journal: FileJournal, tmp_path: Path, target: str):
    """cases/sessions.md 16: for reading, appending, rewriting, deleting; also a dangling one."""
    outside = tmp_path / "outside.jsonl"
    outside.write_bytes(frame([HEAD, *said("secret")]))
    before = outside.read_bytes()
    link = tmp_path / "sessions" / f"{file_stem(KEY)}.jsonl"
    link.parent.mkdir()
    link.symlink_to(tmp_path / target)
    for touch in (
        lambda: journal.read(KEY),
        lambda: journal.append(KEY, said("x")),
        lambda: journal.rewrite(KEY, said("x")),
        lambda: journal.delete(KEY),
        lambda: journal.repair(KEY),
    ):
        with pytest.raises(OSError, match="symbolic link"):
            touch()
    assert journal.list() == []
    assert outside.read_bytes() == before
    assert not (tmp_path / "nowhere.jsonl").exists()


def test_a_link_that_takes_the_place_later_is_refused(journal: FileJournal, tmp_path: Path):
    """cases/sessions.md 16: also after the journal was read once."""
    journal.append(KEY, [HEAD])
    path = journal.path(KEY)
    path.rename(tmp_path / "outside.jsonl")
    path.symlink_to(tmp_path / "outside.jsonl")
    with pytest.raises(OSError, match="symbolic link"):
        journal.read(KEY)
    with pytest.raises(OSError, match="symbolic link"):
        journal.append(KEY, said("x"))


def test_a_directory_of_a_journals_name_is_no_session(journal: FileJournal, tmp_path: Path):
    """What only looks like a session file is not listed, and can't be read."""
    (tmp_path / "sessions" / f"{file_stem(KEY)}.jsonl").mkdir(parents=True)
    (tmp_path / "sessions" / "notes.txt").write_text("x")
    (tmp_path / "sessions" / ".x.jsonl.1-2.tmp").write_text("x")
    assert journal.list() == []
    with pytest.raises(OSError, match="directory"):
        journal.read(KEY)


# --- rewriting and deleting -------------------------------------------------


def test_a_rewrite_is_noticed(journal: FileJournal):
    """Who has read the old file is told so, though the new one may be as long."""
    old = journal.append(KEY, [HEAD, *said("secret", "b" * 60)])
    end = FileJournal(journal.workspace).rewrite(KEY, [HEAD, *said("------", "b" * 60)])
    same_length = FileJournal(journal.workspace).rewrite(KEY, [HEAD, *said("++++++", "b" * 60)])
    assert end.offset == same_length.offset
    for position in (old, end):
        with pytest.raises(ReplacedError):
            journal.read(KEY, position)
    assert journal.read(KEY, same_length) == ([], same_length)
    assert contents(journal.read(KEY)[0]) == ["++++++", "b" * 60]


def test_erasing_is_noted_as_a_deletion(journal: FileJournal, tmp_path: Path):
    """cases/sessions.md 30: the new records are there, no copy of the old, and when it happened."""
    journal.append(KEY, [HEAD, *said("secret")])
    with journal.path(KEY).open("ab") as file:
        file.write(b"garbage\n")
    journal.repair(KEY)
    journal.rewrite(KEY, [HEAD, *said("kept")])
    assert journal.deleted_at(KEY) is None
    journal.rewrite(KEY, [HEAD], erase=True)
    assert journal.deleted_at(KEY) is not None
    assert journal.read(KEY)[0] == [HEAD]
    assert not any(b"secret" in p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())


def test_a_failed_rewrite_changes_nothing(journal: FileJournal, disk_full):
    """cases/sessions.md 21: readers see the old journal, and nothing is left behind."""
    journal.append(KEY, [HEAD, *said("a")])
    before = journal.read(KEY)
    disk_full(10)
    with pytest.raises(OSError, match="No space"):
        journal.rewrite(KEY, [HEAD, *said("b")])
    assert journal.read(KEY) == before
    assert [*journal.path(KEY).parent.iterdir()] == [journal.path(KEY)]


def test_a_file_cut_by_hand_is_noticed(journal: FileJournal):
    """A position behind the end of a file is no position of it."""
    end = journal.append(KEY, [HEAD, *said("a")])
    os.truncate(journal.path(KEY), len(frame([HEAD])))
    with pytest.raises(ReplacedError):
        journal.read(KEY, end)


def test_deletion_is_noted_and_noticed(journal: FileJournal):
    """cases/sessions.md 17: the file is gone, when is remembered; a missing one gives False."""
    assert journal.deleted_at(KEY) is None
    assert journal.delete(KEY) is False
    assert journal.deleted_at(KEY) is None
    end = journal.append(KEY, [HEAD])
    assert FileJournal(journal.workspace).delete(KEY) is True
    moment = FileJournal(journal.workspace).deleted_at(KEY)
    assert moment is not None
    assert moment.tzinfo is not None
    assert abs(datetime.now(UTC) - moment) < timedelta(minutes=1)
    with pytest.raises(ReplacedError):
        journal.read(KEY, end)
    with pytest.raises(ReplacedError):
        journal.append(KEY, said("x"), expected_end=end)
    assert journal.read(KEY) == ([], ORIGIN)
    assert contents(journal.read(KEY)[0]) == []


def test_a_tombstone_tells_no_key(journal: FileJournal, tmp_path: Path):
    """What remains of a deleted session is a hash of its key and a time."""
    journal.append("telegram:4711", [{"_type": "metadata", "key": "telegram:4711"}])
    journal.delete("telegram:4711")
    (tombstone,) = (tmp_path / ".deleted").iterdir()
    assert "4711" not in tombstone.name
    assert "4711" not in tombstone.read_text()


def test_a_new_journal_of_a_deleted_key_is_a_new_one(journal: FileJournal):
    """cases/sessions.md 17: what was read of the deleted one is not continued."""
    end = journal.append(KEY, [HEAD, *said("a")])
    journal.delete(KEY)
    journal.append(KEY, [HEAD, *said("b")])
    with pytest.raises(ReplacedError):
        journal.read(KEY, end)
    assert journal.deleted_at(KEY) is not None


# --- names ------------------------------------------------------------------

KEYS = [
    "telegram:a_b",
    "telegram:a:b",
    "telegram/a:b",
    "telegram_a:b",
    "Telegram:a_b",
    "telegram:a_B",
    "cli:user_name",
    "../../etc/passwd",
    "/etc/passwd",
    "con",
    "x" * 300,
    "x" * 301,
    "🦞:🦞",
    "a\0b",
    "a\nb",
    ".",
    "..",
    "~",
    "a%3ab",
]


def test_every_key_has_its_own_journal(journal: FileJournal, tmp_path: Path):
    """cases/sessions.md 15: as many histories as keys, inside the root, listed exactly."""
    for key in KEYS:
        journal.append(key, [{"_type": "metadata", "key": key}, *said(f"only {key}")])
    names = [path.name for path in (tmp_path / "sessions").iterdir()]
    assert len({name.casefold() for name in names}) == len(KEYS)
    for key in KEYS:
        assert contents(FileJournal(tmp_path).read(key)[0]) == [f"only {key}"]
        assert journal.path(key).resolve().parent == (tmp_path / "sessions").resolve()
    assert [info.key for info in journal.list()] == sorted(KEYS)


def test_a_key_is_listed_though_its_first_line_is_long(journal: FileJournal, tmp_path: Path):
    """cases/sessions.md 15: the size of what a program keeps with a session doesn't matter."""
    key = "cli:" + "x" * 300
    journal.append(key, [{"_type": "metadata", "metadata": {"a": "b" * 200_000}, "key": key}])
    assert [info.key for info in FileJournal(tmp_path).list()] == [key]


def test_a_listing_tells_what_there_is(journal: FileJournal):
    """A listing gives the first record, the size, the time of the last write, the place."""
    journal.append(KEY, [HEAD, *said("a")])
    (info,) = journal.list()
    assert info.first_record["key"] == KEY
    assert info.size_bytes == journal.path(KEY).stat().st_size
    assert info.place == str(journal.path(KEY))
    assert abs(datetime.now(UTC) - info.updated_at) < timedelta(minutes=1)


def legacy(workspace: Path, name: str, key: str | None, *texts: str) -> Path:
    """A file as nanobot wrote it."""
    head = {"_type": "metadata", "created_at": "2026-01-02T03:04:05", "metadata": {}}
    if key is not None:
        head["key"] = key
    path = workspace / "sessions" / name
    path.parent.mkdir(exist_ok=True)
    lines = [head, *({**record, "timestamp": "2026-01-02T03:04:05"} for record in said(*texts))]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("named", [True, False])
def test_a_nanobot_file_is_adopted(journal: FileJournal, tmp_path: Path, named: bool):  # noqa: FBT001 - a parameter
    """cases/sessions.md 23: it is found under its key, with or without a key in it, and listed."""
    key = "telegram:123_4"
    old = legacy(tmp_path, "telegram_123_4.jsonl", key if named else None, "a", "b")
    assert [info.key for info in journal.list()] == [key]
    assert contents(journal.read(key)[0]) == ["a", "b"]
    assert not old.exists()
    assert [info.key for info in journal.list()] == [key]
    journal.append(key, said("c"))
    assert contents(FileJournal(tmp_path).read(key)[0]) == ["a", "b", "c"]


def test_a_nanobot_file_is_no_one_elses(journal: FileJournal, tmp_path: Path):
    """cases/sessions.md 15, 23: the file of a:b is not that of a_b, though nanobot took it so."""
    legacy(tmp_path, "telegram_a_b.jsonl", "telegram:a_b", "mine")
    for key in ("telegram_a_b", "telegram:a:b", "telegram/a_b", "Telegram:a_b"):
        assert journal.read(key)[0] == []
        journal.append(key, [{"_type": "metadata", "key": key}, *said(key)])
    assert contents(journal.read("telegram:a_b")[0]) == ["mine"]
    assert contents(journal.read("telegram_a_b")[0]) == ["telegram_a_b"]


def test_a_nanobot_file_keeps_nobody_from_its_place(journal: FileJournal, tmp_path: Path):
    """cases/sessions.md 23: where a nanobot file has a session's name, both are kept."""
    legacy(tmp_path, "cli_user_name.jsonl", None, "mine")
    journal.append("cli_user_name", [{"_type": "metadata", "key": "cli_user_name"}, *said("other")])
    assert contents(journal.read("cli:user_name")[0]) == ["mine"]
    assert contents(journal.read("cli_user_name")[0]) == ["other"]
    assert [info.key for info in journal.list()] == ["cli:user_name", "cli_user_name"]


def test_a_name_of_ours_is_read_as_ours(journal: FileJournal, tmp_path: Path):
    """A file under our own name that names no key belongs to the key of its name."""
    legacy(tmp_path, "telegram%3a12.jsonl", None, "a")
    assert [info.key for info in journal.list()] == ["telegram:12"]
    assert contents(journal.read("telegram:12")[0]) == ["a"]


def test_two_files_of_one_session_are_not_mixed(journal: FileJournal, tmp_path: Path):
    """Where two files say that they are the same session, that is told, and nothing is changed."""
    legacy(tmp_path, "cli%3aa.jsonl", "cli:a", "one")
    copy = legacy(tmp_path, "cli%3ab.jsonl", "cli:a", "two")
    with pytest.raises(OSError, match="Move one of them away"):
        journal.read("cli:b")
    assert contents(journal.read("cli:a")[0]) == ["one"]
    assert copy.exists()


def test_a_link_under_a_legacy_name_is_refused(journal: FileJournal, tmp_path: Path):
    """cases/sessions.md 16, 23: a link is not followed for the sake of an old name either."""
    outside = tmp_path / "outside.jsonl"
    outside.write_bytes(frame([{"_type": "metadata", "key": "cli:a"}, *said("secret")]))
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "cli_a.jsonl").symlink_to(outside)
    with pytest.raises(OSError, match="symbolic link"):
        journal.read("cli:a")


def test_two_processes_may_adopt_at_once(journal: FileJournal, tmp_path: Path, monkeypatch):
    """cases/sessions.md 23: who comes second finds the file where the first one put it."""
    legacy(tmp_path, "cli_a.jsonl", "cli:a", "mine")
    real = Path.rename

    def first_someone_else(self: Path, target: Path) -> Path:
        real(self, target)
        return real(self, target)

    monkeypatch.setattr(Path, "rename", first_someone_else)
    assert contents(journal.read("cli:a")[0]) == ["mine"]


@pytest.mark.parametrize("key", ["", "a\ud800"])
def test_what_is_no_key_is_a_value_error(journal: FileJournal, key: str):
    """cases/sessions.md 15: for every method."""
    for touch in (journal.read, journal.delete, journal.lock, journal.repair):
        with pytest.raises(ValueError, match="key"):
            touch(key)


# --- syncing ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("fsync", "durable", "syncs"),
    [
        ("put", True, 1),
        ("put", False, 0),
        ("record", True, 1),
        ("record", False, 1),
        ("none", True, 0),
        ("none", False, 0),
    ],
)
def test_when_the_disk_is_asked(tmp_path: Path, monkeypatch, fsync: Any, durable: bool, syncs: int):  # noqa: FBT001 - a parameter
    """The sync policy decides which appends wait for the disk."""
    journal = FileJournal(tmp_path, fsync=fsync)
    journal.append(KEY, [HEAD])
    synced: list[int] = []
    monkeypatch.setattr(file_journal, "_fdatasync", synced.append)
    journal.append(KEY, said("a", "b"), durable=durable)
    assert len(synced) == syncs


def test_an_unknown_policy_is_refused(tmp_path: Path):
    """A misspelt policy is a ValueError that lists the right ones."""
    with pytest.raises(ValueError, match='"record", "put" or "none"'):
        FileJournal(tmp_path, fsync="always")  # type: ignore[arg-type]  # the point of the test


# --- threads ----------------------------------------------------------------


def test_threads_append_whole_records(journal: FileJournal):
    """cases/sessions.md 19: four threads of two journals of one place: none lost, none mixed."""
    journal.append(KEY, [HEAD])
    other = FileJournal(journal.workspace, fsync="none")

    def work(writer: FileJournal, name: str) -> None:
        for i in range(25):
            writer.append(KEY, said(f"{name}{i}", f"{name}{i}'"), durable=False)

    threads = [
        threading.Thread(target=work, args=[writer, name])
        for writer, name in [(journal, "a"), (journal, "b"), (other, "c"), (other, "d")]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = contents(journal.read(KEY)[0])
    assert len(found) == 200
    assert all(second == f"{first}'" for first, second in zip(found[::2], found[1::2], strict=True))
    for name in "abcd":
        own = [text for text in found[::2] if text.startswith(name)]
        assert own == [f"{name}{i}" for i in range(25)]


def test_a_journal_says_where_it_is(journal: FileJournal, tmp_path: Path):
    """Its representation names the workspace."""
    assert repr(journal) == f"FileJournal({str(tmp_path)!r})"
    assert isinstance(journal.append(KEY, [HEAD]), Position)
