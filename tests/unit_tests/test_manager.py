"""Sessions, made and kept."""

from __future__ import annotations

import gc
import json
import logging
import os
import threading
import weakref
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_nanomem.errors import (
    CorruptRecordError,
    ScopeError,
    SessionNotFoundError,
    UnsupportedFormatError,
)
from langchain_nanomem.file_journal import FileJournal
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Again = Callable[[], SessionManager]

pytestmark = pytest.mark.back_ends("files", "postgres")
ON_FILES = pytest.mark.back_ends("files")

KEY = "telegram:42"


def path_of(manager: SessionManager, key: str = KEY) -> Path:
    assert isinstance(manager.journal, FileJournal)
    return manager.journal.path(key)


def lines_of(manager: SessionManager, key: str = KEY) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path_of(manager, key).read_bytes().splitlines()]


def texts(session: Session) -> list[Any]:
    return [message["content"] for message in session.messages]


def saved(manager: SessionManager, *words: str, key: str = KEY) -> Session:
    session = manager.get_or_create(key)
    for word in words:
        session.add_message("user", word)
    manager.save(session)
    return session


# --- saving -----------------------------------------------------------------


def test_a_new_session_is_on_disk_once_it_is_saved(manager: SessionManager, again: Again):
    """cases/sessions.md 1: until then there is nothing; saved empty, it exists."""
    session = manager.get_or_create(KEY)
    assert (session.key, session.messages, session.last_consolidated) == (KEY, [], 0)
    assert manager.list_sessions() == []
    manager.save(session)
    assert [found["key"] for found in again().list_sessions()] == [KEY]


@ON_FILES
def test_what_a_file_holds(manager: SessionManager):
    """cases/sessions.md 12: metadata with the key, a line a message, no temporary file."""
    session = saved(manager, "a", "b")
    session.add_message("assistant", "c", tool_calls=[{"id": "1"}], custom={"x": [1]})
    session.last_consolidated = 2
    session.metadata["language"] = "de"
    manager.save(session)
    lines = lines_of(manager)
    heads = [line for line in lines if line.get("_type") == "metadata"]
    spoken = [line for line in lines if "_type" not in line]
    assert all(head["key"] == KEY for head in heads)
    assert heads[-1]["last_consolidated"] == 2
    assert heads[-1]["metadata"] == {"language": "de"}
    assert [line["content"] for line in spoken] == ["a", "b", "c"]
    assert spoken[2]["custom"] == {"x": [1]}
    assert [*path_of(manager).parent.iterdir()] == [path_of(manager)]


def test_what_was_put_straight_into_the_messages_is_saved(manager: SessionManager, again: Again):
    """cases/sessions.md 12: as the original does it; the caller's dictionaries stay as they are."""
    session = manager.get_or_create(KEY)
    mine = {"role": "user", "content": "a"}
    session.messages.append(mine)
    session.messages.extend([{"role": "assistant", "content": "b"}])
    manager.save(session)
    assert mine == {"role": "user", "content": "a"}
    assert session.messages[0] is mine
    assert again().get_or_create(KEY).messages == [mine, {"role": "assistant", "content": "b"}]


@ON_FILES
def test_five_saves_in_a_row(manager: SessionManager, again: Again):
    """cases/sessions.md 12: five messages, in order; a save of nothing writes nothing."""
    for word in "abcde":
        saved(manager, word)
    size = path_of(manager).stat().st_size
    manager.save(manager.get_or_create(KEY))
    assert path_of(manager).stat().st_size == size
    assert texts(again().get_or_create(KEY)) == list("abcde")


def test_two_thousand_messages_come_back(manager: SessionManager, again: Again):
    """cases/sessions.md 12: 2,001 of 2,001."""
    saved(manager, *map(str, range(2001)))
    assert texts(again().get_or_create(KEY)) == [str(i) for i in range(2001)]


def change_text(messages: list[dict[str, Any]]) -> None:
    messages[0]["content"] = "changed"


def remove_first(messages: list[dict[str, Any]]) -> None:
    del messages[0]


def remove_last(messages: list[dict[str, Any]]) -> None:
    messages.pop()


def swap(messages: list[dict[str, Any]]) -> None:
    messages[0], messages[1] = messages[1], messages[0]


def insert(messages: list[dict[str, Any]]) -> None:
    messages.insert(0, {"role": "system", "content": "new"})


def add_field(messages: list[dict[str, Any]]) -> None:
    messages[1]["extra"] = 1


def empty(messages: list[dict[str, Any]]) -> None:
    messages.clear()


def replace_all(messages: list[dict[str, Any]]) -> None:
    messages[:] = [{"role": "user", "content": "x"}] * 5


@ON_FILES
@pytest.mark.parametrize(
    "edit",
    [change_text, remove_first, remove_last, swap, insert, add_field, empty, replace_all],
)
def test_an_older_message_changed_or_removed_is_refused(
    manager: SessionManager, again: Again, edit: Callable[[list[dict[str, Any]]], None]
):
    """cases/sessions.md 12: ValueError, nothing written, new messages neither."""
    session = saved(manager, "a", "b")
    before = path_of(manager).read_bytes()
    edit(session.messages)
    session.messages.append({"role": "user", "content": "new"})
    with pytest.raises(
        ValueError, match=r"message \d of session 'telegram:42' was changed or removed"
    ):
        manager.save(session)
    assert path_of(manager).read_bytes() == before
    assert texts(again().get_or_create(KEY)) == ["a", "b"]
    manager.invalidate(KEY)
    assert texts(manager.get_or_create(KEY)) == ["a", "b"]


def test_an_edit_deep_inside_a_message_is_noticed(manager: SessionManager):
    """cases/sessions.md 12: also in a nested block of a message that was read from the disk."""
    session = manager.get_or_create(KEY)
    session.add_message("user", [{"type": "text", "text": "a"}])
    manager.save(session)
    manager.invalidate(KEY)
    session = manager.get_or_create(KEY)
    session.messages[0]["content"][0]["text"] = "b"
    with pytest.raises(ValueError, match="message 0"):
        manager.save(session)


@pytest.mark.parametrize(
    "value",
    [float("nan"), [float("inf"), float("nan")], (1, 2), {1, 2}, b"x", {1: 2}, 2**80, "\ud800"],
)
def test_odd_values_are_not_taken_for_edits(manager: SessionManager, value: Any):
    """cases/sessions.md 12, 24: a message with a NaN, a tuple or bytes is saved, and added to."""
    session = saved(manager, "a")
    session.messages.append({"role": "tool", "content": "x", "artifact": value})
    manager.save(session)
    session.add_message("user", "b")
    manager.save(session)
    manager.invalidate(KEY)
    session = manager.get_or_create(KEY)
    assert repr(session.messages[1]["artifact"]) == repr(value)
    session.add_message("user", "c")
    manager.save(session)
    assert texts(session) == ["a", "x", "b", "c"]


@ON_FILES
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"role": "user", "content": object()}, "content: an object"),
        ({"role": "user", "content": "x", "a": {"b": [object()]}}, r"a\.b\[0\]: an object"),
        ({"role": "user", "content": "x", "_type": "metadata"}, "'_type' is reserved"),
        ({"role": "user", "content": "x", "_n": 0}, "'_n' is reserved"),
        ({"role": "user", "content": "x", "_more": True}, "'_more' is reserved"),
        ("just text", "no dictionary"),
        (None, "no dictionary"),
    ],
)
def test_a_message_that_cannot_be_stored_is_named(
    manager: SessionManager, again: Again, bad: Any, said: str
):
    """cases/sessions.md 22: the error names message and field; nothing is half-written."""
    session = saved(manager, "a")
    before = path_of(manager).read_bytes()
    session.add_message("user", "b")
    session.messages.append(bad)
    with pytest.raises(ValueError, match=f"message 1 of those new in session '{KEY}'.*{said}"):
        manager.save(session)
    assert path_of(manager).read_bytes() == before
    session.messages[-1] = {"role": "user", "content": "c"}
    manager.save(session)
    assert texts(again().get_or_create(KEY)) == ["a", "b", "c"]


@pytest.mark.parametrize("metadata", [{"x": object()}, ["x"], None, "x"])
def test_metadata_that_cannot_be_stored_is_refused(
    manager: SessionManager, again: Again, metadata: Any
):
    """cases/sessions.md 22: a ValueError, the session on disk stays readable."""
    session = saved(manager, "a")
    session.metadata = metadata
    with pytest.raises(ValueError, match=r"x: an object|metadata of session"):
        manager.save(session)
    assert again().get_or_create(KEY).metadata == {}


def test_metadata_comes_back(manager: SessionManager, again: Again):
    """What the program keeps with the session: changed in place, emptied, and seen by others."""
    session = saved(manager, "a")
    session.metadata["tags"] = ["x"]
    manager.save(session)
    session.metadata["tags"].append("y")
    manager.save(session)
    assert again().get_or_create(KEY).metadata == {"tags": ["x", "y"]}
    session.metadata.clear()
    manager.save(session)
    assert again().get_or_create(KEY).metadata == {}


@ON_FILES
@pytest.mark.parametrize("pointer", [-1, 3, "1", None, 0.5, True])
def test_a_pointer_that_is_none_is_refused_at_saving(manager: SessionManager, pointer: Any):
    """cases/sessions.md 11: what would have to be ignored when read is not written."""
    session = saved(manager, "a", "b")
    before = path_of(manager).read_bytes()
    session.last_consolidated = pointer
    with pytest.raises(ValueError, match="last_consolidated"):
        manager.save(session)
    assert path_of(manager).read_bytes() == before


@ON_FILES
@pytest.mark.parametrize("pointer", [999, -5, "999", None, 0.5, True])
def test_a_damaged_pointer_in_a_file_is_zero(
    manager: SessionManager, pointer: Any, caplog: pytest.LogCaptureFixture
):
    """cases/sessions.md 11: with a warning, and all of the history is visible; saving works."""
    path_of(manager).parent.mkdir(parents=True)
    head = {"_type": "metadata", "key": KEY, "last_consolidated": pointer}
    spoken = [{"role": "user", "content": str(i)} for i in range(10)]
    path_of(manager).write_text("".join(json.dumps(line) + "\n" for line in [head, *spoken]))
    with caplog.at_level(logging.WARNING):
        session = manager.get_or_create(KEY)
    assert session.last_consolidated == 0
    assert len(session.get_history()) == 10
    assert KEY in caplog.text
    session.add_message("user", "10")
    session.last_consolidated = 4
    manager.save(session)
    manager.invalidate(KEY)
    assert manager.get_or_create(KEY).last_consolidated == 4
    assert len(manager.get_or_create(KEY).get_history()) == 7


def test_times_are_utc(manager: SessionManager, again: Again):
    """Creation and change come back aware, in UTC, also where a program set one without a zone."""
    session = saved(manager, "a")
    created = session.created_at
    session.updated_at = datetime.now()  # noqa: DTZ005 - as the original's programs do it
    manager.save(session)
    reread = again().get_or_create(KEY)
    assert reread.created_at == created
    assert reread.updated_at.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - reread.updated_at) < timedelta(minutes=1)


# --- one object, many holders -----------------------------------------------


def test_the_same_object_for_all(manager: SessionManager):
    """cases/sessions.md 18: twice the same key is the same object."""
    assert manager.get_or_create(KEY) is manager.get_or_create(KEY)
    assert manager.get_or_create(KEY) is not manager.get_or_create("telegram:43")


@pytest.mark.parametrize("size", [0, 1, 3])
def test_eviction_does_not_part_holders(workspace: Path, size: int):
    """cases/sessions.md 18: also after the bounded cache let it go while somebody holds it."""
    manager = SessionManager(workspace, max_cached_sessions=size)
    held = manager.get_or_create(KEY)
    held.add_message("user", "a")
    for i in range(10):
        saved(manager, "x", key=f"cli:{i}")
    assert manager.get_or_create(KEY) is held
    manager.save(held)
    assert texts(manager.get_or_create("cli:3")) == ["x"]


def test_the_cache_is_bounded(workspace: Path):
    """cases/sessions.md 18: what nobody holds does not stay in memory for ever."""
    manager = SessionManager(workspace, max_cached_sessions=2)
    first = weakref.ref(manager.get_or_create("cli:0"))
    for i in range(1, 4):
        manager.get_or_create(f"cli:{i}")
    gc.collect()
    assert first() is None


def test_threads_get_the_same_object(manager: SessionManager):
    """cases/sessions.md 18: also when they ask at the same moment."""
    barrier, found = threading.Barrier(8), []

    def ask() -> None:
        barrier.wait()
        found.append(manager.get_or_create(KEY))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(session) for session in found}) == 1


def test_invalidating_reads_anew(manager: SessionManager):
    """cases/sessions.md 18: the next one is another object, read from the disk."""
    held = saved(manager, "a")
    held.add_message("user", "not saved")
    manager.invalidate(KEY)
    manager.invalidate("cli:never")
    fresh = manager.get_or_create(KEY)
    assert fresh is not held
    assert texts(fresh) == ["a"]


def test_an_invalidated_object_does_not_come_back(manager: SessionManager):
    """cases/sessions.md 18: it can be saved, but the one that others hold stays the one."""
    old = saved(manager, "a")
    manager.invalidate(KEY)
    new = manager.get_or_create(KEY)
    old.add_message("user", "b")
    manager.save(old)
    assert manager.get_or_create(KEY) is new
    assert texts(new) == ["a", "b"]


def test_two_managers_share_a_session(manager: SessionManager, again: Again):
    """cases/sessions.md 19: what either saved is in both, in the order of saving, once."""
    other = again()
    one, two = manager.get_or_create(KEY), other.get_or_create(KEY)
    for i in range(50):
        one.add_message("user", f"one {i}")
        two.add_message("user", f"two {i}")
        manager.save(one)
        other.save(two)
    manager.get_or_create(KEY)
    assert texts(one) == texts(two)
    assert texts(one) == [f"{who} {i}" for i in range(50) for who in ("one", "two")]


def test_threads_of_two_managers_lose_nothing(manager: SessionManager, again: Again):
    """cases/sessions.md 19: four threads, each its own manager: 100 messages, each once."""

    def work(own: SessionManager, name: str) -> None:
        for i in range(25):
            session = own.get_or_create(KEY)
            session.add_message("user", f"{name}{i}")
            own.save(session)

    threads = [threading.Thread(target=work, args=[again(), name]) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = texts(manager.get_or_create(KEY))
    assert sorted(found) == sorted(f"{name}{i}" for name in "abcd" for i in range(25))


def test_unsaved_messages_are_not_lost_to_others(manager: SessionManager, again: Again):
    """cases/sessions.md 19: asking again while something is unsaved leaves it where it is."""
    mine = saved(manager, "a")
    mine.add_message("user", "mine")
    saved(again(), "other")
    assert texts(manager.get_or_create(KEY)) == ["a", "mine"]
    manager.save(mine)
    assert texts(mine) == ["a", "other", "mine"]


def test_a_pointer_counts_no_message_of_others(manager: SessionManager, again: Again):
    """cases/sessions.md 11, 19: what another wrote meanwhile is not hidden by my pointer."""
    mine = saved(manager, "a", "b")
    mine.add_message("user", "c")
    mine.last_consolidated = 3
    saved(again(), "other")
    manager.save(mine)
    assert mine.last_consolidated == 2
    assert [m["content"] for m in mine.get_history()] == ["other", "c"]


def test_others_pointer_and_metadata_stay(manager: SessionManager, again: Again):
    """cases/sessions.md 19: saving a message does not undo what another changed."""
    mine = saved(manager, "a", "b")
    mine.add_message("user", "c")
    other = again()
    theirs = other.get_or_create(KEY)
    theirs.last_consolidated = 2
    theirs.metadata["x"] = 1
    other.save(theirs)
    manager.save(mine)
    assert (mine.last_consolidated, mine.metadata) == (2, {"x": 1})
    assert again().get_or_create(KEY).last_consolidated == 2


@ON_FILES
def test_a_reader_and_a_writer_never_wait_for_each_other(manager: SessionManager):
    """cases/sessions.md 13, 19: with a torn end in the file, threads go on all the same."""
    saved(manager, "a")
    with path_of(manager).open("ab") as file:
        file.write(b'{"role":"us')
    may_read, reading = threading.Event(), threading.Event()
    refresh = manager.journal.read

    def slow_read(key: str, *args: Any) -> Any:
        if threading.current_thread().name == "reader" and not reading.is_set():
            reading.set()
            may_read.wait(5)
        return refresh(key, *args)

    manager.journal.read = slow_read  # type: ignore[method-assign]  # to hold the reader just there
    reader = threading.Thread(target=manager.get_or_create, args=[KEY], name="reader", daemon=True)
    writer = threading.Thread(target=saved, args=[manager, "b"], daemon=True)
    writer_in = threading.Thread(target=_write_in, args=[manager, may_read, reading], daemon=True)
    for thread in (reader, writer_in, writer):
        thread.start()
    for thread in (reader, writer_in, writer):
        thread.join(10)
        assert not thread.is_alive()
    assert sorted(texts(manager.get_or_create(KEY))) == ["a", "b", "c"]


def _write_in(manager: SessionManager, may_read: threading.Event, reading: threading.Event) -> None:
    """Take the session's lock while the reader is on its way, then write."""
    reading.wait(5)
    with manager.journal.lock(KEY):
        may_read.set()
        session = manager.get_or_create(KEY)
        session.messages.append({"role": "user", "content": "c"})
        manager.save(session)


# --- damage -----------------------------------------------------------------


@ON_FILES
def test_a_truncated_file_goes_on(manager: SessionManager, again: Again, caplog):
    """cases/sessions.md 13: all before the torn line survives, new messages are accepted."""
    saved(manager, "a", "b")
    path = path_of(manager)
    path.write_bytes(path.read_bytes() + b'{"role": "user", "content": "to')
    with caplog.at_level(logging.WARNING):
        session = again().get_or_create(KEY)
    assert texts(session) == ["a", "b"]
    assert str(path) in caplog.text
    saved(manager, "c")
    assert texts(again().get_or_create(KEY)) == ["a", "b", "c"]


@ON_FILES
def test_a_save_torn_at_any_byte_is_the_previous_or_the_new_state(
    manager: SessionManager, again: Again
):
    """cases/sessions.md 20: never less than before, never a part of the new messages."""
    saved(manager, "a")
    before = path_of(manager).read_bytes()
    saved(manager, "b", "c")
    whole = path_of(manager).read_bytes()
    for size in range(len(before), len(whole) + 1):
        path_of(manager).write_bytes(whole[:size])
        session = again().get_or_create(KEY)
        assert texts(session) in (["a"], ["a", "b", "c"])
    assert texts(session) == ["a", "b", "c"]


@ON_FILES
def test_a_first_save_torn_at_any_byte_is_nothing_or_all(manager: SessionManager, again: Again):
    """cases/sessions.md 20: also where there was no session before."""
    saved(manager, "a", "b")
    whole = path_of(manager).read_bytes()
    for size in range(len(whole) + 1):
        path_of(manager).write_bytes(whole[:size])
        assert texts(saved(again())) in ([], ["a", "b"])


@ON_FILES
def test_garbage_is_loud_and_stays(manager: SessionManager, again: Again):
    """cases/sessions.md 13: reading and saving fail with path and line; the file is untouched."""
    session = saved(manager, "a", "b")
    path = path_of(manager)
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = b"".join([*lines[:2], b"%% garbage %%\n", *lines[2:]])
    path.write_bytes(damaged)
    session.add_message("user", "c")
    for touch in (lambda: again().get_or_create(KEY), lambda: manager.save(session)):
        with pytest.raises(CorruptRecordError) as caught:
            touch()
        assert (caught.value.path, caught.value.line_number) == (path, 3)
    assert path.read_bytes() == damaged
    assert isinstance(manager.journal, FileJournal)
    manager.journal.repair(KEY)
    assert texts(again().get_or_create(KEY)) == ["a", "b"]
    manager.save(session)
    assert texts(again().get_or_create(KEY)) == ["a", "b", "c"]


@ON_FILES
@pytest.mark.parametrize("garbage", [b"garbage", b"garbage\n", b"\0\1\2", b"{]\n{]\n", b'{"a'])
def test_a_file_of_garbage_is_not_written_over(manager: SessionManager, garbage: bytes):
    """cases/sessions.md 13: an error, not an empty session that the next save replaces it with."""
    path_of(manager).parent.mkdir(parents=True)
    path_of(manager).write_bytes(garbage)
    with pytest.raises(CorruptRecordError):
        manager.get_or_create(KEY)
    stranger = Session(KEY)
    stranger.add_message("user", "a")
    with pytest.raises(CorruptRecordError):
        manager.save(stranger)
    assert path_of(manager).read_bytes() == garbage
    assert [found["key"] for found in manager.list_sessions()] == [KEY]


@ON_FILES
def test_a_zero_byte_file_is_an_empty_session(manager: SessionManager, again: Again):
    """cases/sessions.md 13: it is a session like any other."""
    path_of(manager).parent.mkdir(parents=True)
    path_of(manager).touch()
    assert manager.get_or_create(KEY).messages == []
    saved(manager, "a")
    assert texts(again().get_or_create(KEY)) == ["a"]


@ON_FILES
def test_a_mended_file_is_read_anew(manager: SessionManager):
    """cases/sessions.md 13: after an error nothing half-read is left in memory."""
    saved(manager, "a", "b")
    good = path_of(manager).read_bytes()
    path_of(manager).write_bytes(good + b'{"_type":"metadata","v":99}\n')
    for _ in range(2):
        with pytest.raises(UnsupportedFormatError):
            manager.get_or_create(KEY)
    path_of(manager).write_bytes(good)
    manager.invalidate(KEY)
    assert texts(manager.get_or_create(KEY)) == ["a", "b"]


@ON_FILES
@pytest.mark.parametrize("version", [2, 99, "2", None, 1.5])
def test_a_newer_format_is_refused(manager: SessionManager, version: Any):
    """A file of a newer version is neither misread nor written to; the error says what to do."""
    path_of(manager).parent.mkdir(parents=True)
    head = {"_type": "metadata", "key": KEY, "v": version}
    path_of(manager).write_text(json.dumps(head) + "\n")
    before = path_of(manager).read_bytes()
    with pytest.raises(UnsupportedFormatError, match="Upgrade"):
        manager.get_or_create(KEY)
    with pytest.raises(UnsupportedFormatError):
        manager.save(Session(KEY))
    assert path_of(manager).read_bytes() == before
    assert [found["key"] for found in manager.list_sessions()] == [KEY]


@ON_FILES
def test_unknown_records_are_left_alone(manager: SessionManager, again: Again):
    """A record of a kind that this version doesn't know is neither a message nor an error."""
    saved(manager, "a")
    with path_of(manager).open("ab") as file:
        file.write(b'{"_type":"from the future","x":1}\n')
    saved(manager, "b")
    assert texts(again().get_or_create(KEY)) == ["a", "b"]


@ON_FILES
def test_a_line_copied_by_hand_is_a_message_of_its_own(manager: SessionManager, again: Again):
    """A person may copy a line and change its text: neither of the two is lost."""
    saved(manager, "a", "b")
    path = path_of(manager)
    (line,) = [row for row in path.read_bytes().splitlines() if b'"content":"a"' in row]
    with path.open("ab") as file:
        file.write(line.replace(b'"a"', b'"copied"').replace(b',"_more":true', b"") + b"\n")
    assert texts(again().get_or_create(KEY)) == ["a", "b", "copied"]


@ON_FILES
def test_a_line_deleted_by_hand_is_noticed(manager: SessionManager):
    """What a person took out of the file is no longer in a session that nobody changed."""
    held = saved(manager, "a", "b", "c")
    path = path_of(manager)
    rows = [row for row in path.read_bytes().splitlines(keepends=True) if b'"b"' not in row]
    path.write_bytes(b"".join(rows))
    assert manager.get_or_create(KEY) is held
    assert texts(held) == ["a", "c"]


@ON_FILES
def test_a_session_behind_the_file_is_told_so(manager: SessionManager):
    """Unsaved messages on lines that a person deleted meanwhile: a clear error, nothing written."""
    held = saved(manager, "a", "b", "c")
    held.add_message("user", "d")
    path = path_of(manager)
    rows = [row for row in path.read_bytes().splitlines(keepends=True) if b'"c"' not in row]
    path.write_bytes(b"".join(rows))
    before = path.read_bytes()
    with pytest.raises(ValueError, match="was changed or removed"):
        manager.save(held)
    assert path.read_bytes() == before


# --- the system says no -----------------------------------------------------


@ON_FILES
def test_permission_denied_is_raised(manager: SessionManager, again: Again, deny_open):
    """cases/sessions.md 14: never an empty session, cached or not."""
    session = saved(manager, "a")
    session.add_message("user", "b")
    other = again()
    deny_open(".jsonl")
    with pytest.raises(PermissionError):
        manager.get_or_create(KEY)
    with pytest.raises(PermissionError):
        other.get_or_create(KEY)
    with pytest.raises(PermissionError):
        manager.save(session)
    assert texts(session) == ["a", "b"]


@ON_FILES
@pytest.mark.parametrize("free_bytes", [0, 1, 30, 150, 300])
def test_a_full_disk_and_a_retry(manager: SessionManager, again: Again, disk_full, free_bytes: int):
    """cases/sessions.md 21: an error, the earlier messages readable, a retry writes each once."""
    session = saved(manager, "a")
    session.add_message("user", "b")
    session.add_message("user", "c" * 300)
    for _ in range(2):
        disk_full(free_bytes)
        with pytest.raises(OSError, match="No space"):
            manager.save(session)
        assert texts(again().get_or_create(KEY)) == ["a"]
        assert manager.get_or_create(KEY) is session
    disk_full(10**6)
    manager.save(session)
    assert texts(again().get_or_create(KEY)) == ["a", "b", "c" * 300] == texts(session)


def test_what_is_written_is_acknowledged(manager: SessionManager, again: Again, monkeypatch):
    """cases/sessions.md 21: once written, nothing makes a save fail: a retry is no double."""
    session = saved(manager, "a")
    session.add_message("user", "b")
    append = manager.journal.append

    def append_then_no_reading(*args: Any, **kwargs: Any) -> Any:
        end = append(*args, **kwargs)

        def no_more_files(*_: Any) -> Any:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(manager.journal, "read", no_more_files)
        return end

    monkeypatch.setattr(manager.journal, "append", append_then_no_reading)
    manager.save(session)
    assert texts(again().get_or_create(KEY)) == ["a", "b"]


@ON_FILES
def test_a_full_disk_at_the_first_save(manager: SessionManager, again: Again, disk_full):
    """cases/sessions.md 21: also where there was no file yet."""
    session = manager.get_or_create(KEY)
    session.add_message("user", "a")
    disk_full(50)
    with pytest.raises(OSError, match="No space"):
        manager.save(session)
    disk_full(10**6)
    manager.save(session)
    assert texts(again().get_or_create(KEY)) == ["a"]


def test_a_link_is_refused(manager: SessionManager, tmp_path: Path):
    """cases/sessions.md 16: in place of a session file it is neither read nor written through."""
    saved(manager, "a")
    outside = tmp_path / "outside.jsonl"
    path_of(manager).rename(outside)
    path_of(manager).symlink_to(outside)
    before = outside.read_bytes()
    stranger = Session(KEY)
    stranger.add_message("user", "b")
    for touch in (lambda: manager.get_or_create(KEY), lambda: manager.save(stranger)):
        with pytest.raises(OSError, match="symbolic link"):
            touch()
    assert outside.read_bytes() == before
    assert manager.list_sessions() == []


# --- names ------------------------------------------------------------------


@ON_FILES
def test_alike_keys_are_five_sessions(manager: SessionManager, again: Again):
    """cases/sessions.md 15: five files, five histories, listed exactly."""
    keys = ["telegram:a_b", "telegram:a:b", "telegram/a:b", "telegram_a:b", "Telegram:a_b"]
    for key in keys:
        saved(manager, f"only {key}", key=key)
    fresh = again()
    for key in keys:
        assert texts(fresh.get_or_create(key)) == [f"only {key}"]
    assert sorted(found["key"] for found in fresh.list_sessions()) == sorted(keys)
    names = [path.name for path in path_of(manager).parent.iterdir()]
    assert len({name.casefold() for name in names}) == 5


@pytest.mark.parametrize("key", ["", None, 7, "a\ud800"])
def test_what_is_no_key_is_a_value_error(manager: SessionManager, key: Any):
    """cases/sessions.md 15: for getting, saving and deleting."""
    for touch in (
        lambda: manager.get_or_create(key),
        lambda: manager.save(Session(key)),
        lambda: manager.delete(key),
    ):
        with pytest.raises(ValueError, match="key"):
            touch()


@ON_FILES
def test_a_listing(manager: SessionManager):
    """The one last written comes first; with times, size and place."""
    assert manager.list_sessions() == []
    for key in ("cli:user_name", "cli:b", "cli:c"):
        saved(manager, "a", key=key)
    os.utime(path_of(manager, "cli:b"), (2**31, 2**31))
    listed = manager.list_sessions()
    assert listed[0]["key"] == "cli:b"
    (found,) = [entry for entry in listed if entry["key"] == "cli:user_name"]
    assert found["path"] == str(path_of(manager, "cli:user_name"))
    assert found["size_bytes"] == path_of(manager, "cli:user_name").stat().st_size
    assert found["created_at"] == manager.get_or_create("cli:user_name").created_at
    assert found["updated_at"].utcoffset() == timedelta(0)


# --- deleting and clearing --------------------------------------------------


@ON_FILES
def test_deleting_removes_file_and_object(manager: SessionManager, again: Again):
    """cases/sessions.md 17: the next session of the key is a new, empty one."""
    old = saved(manager, "a")
    assert manager.delete(KEY) is True
    assert not path_of(manager).exists()
    assert manager.list_sessions() == []
    assert manager.delete(KEY) is False
    fresh = manager.get_or_create(KEY)
    assert fresh is not old
    assert fresh.messages == []
    assert again().journal.deleted_at(KEY) is not None


@pytest.mark.parametrize("recreated", [True, False])
@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_stale_object_does_not_bring_a_session_back(
    manager: SessionManager,
    again: Again,
    recreated: bool,  # noqa: FBT001 - a parameter
    elsewhere: bool,  # noqa: FBT001 - a parameter
):
    """cases/sessions.md 17: saving it is an error, whoever deleted it, and made it anew."""
    stale = saved(manager, "a")
    other = again() if elsewhere else manager
    other.delete(KEY)
    if recreated:
        saved(other, "new")
    stale.add_message("user", "b")
    with pytest.raises(SessionNotFoundError, match="get_or_create"):
        manager.save(stale)
    if recreated:
        assert texts(again().get_or_create(KEY)) == ["new"]
    else:
        assert again().list_sessions() == []


def test_deleting_what_is_not_there_harms_nobody(manager: SessionManager, again: Again):
    """cases/sessions.md 17: False, and a session that was never saved can still be."""
    session = manager.get_or_create(KEY)
    session.add_message("user", "a")
    assert manager.delete(KEY) is False
    manager.save(session)
    assert texts(again().get_or_create(KEY)) == ["a"]


def test_a_deletion_elsewhere_is_noticed(manager: SessionManager, again: Again):
    """cases/sessions.md 17: a session that nobody changed is empty at the next look, and usable."""
    held = saved(manager, "a")
    again().delete(KEY)
    assert manager.get_or_create(KEY) is held
    assert held.messages == []
    saved(manager, "b")
    assert texts(again().get_or_create(KEY)) == ["b"]


@ON_FILES
def test_clearing_removes_the_text_from_the_disk(manager: SessionManager, again: Again):
    """cases/sessions.md 30: after clear and save no file holds it; the session goes on."""
    session = saved(manager, "secret")
    manager.bind_scope(KEY, ("user", "u1"))
    session = manager.get_or_create(KEY)
    session.metadata["language"] = "de"
    manager.save(session)
    session.clear()
    session.add_message("user", "new")
    manager.save(session)
    files = [p for p in path_of(manager).parent.parent.rglob("*") if p.is_file()]
    assert not any(b"secret" in p.read_bytes() for p in files)
    fresh = again().get_or_create(KEY)
    assert (texts(fresh), fresh.last_consolidated) == (["new"], 0)
    assert (fresh.metadata, fresh.scope) == ({"language": "de"}, ("user", "u1"))
    session.add_message("user", "more")
    manager.save(session)
    assert texts(again().get_or_create(KEY)) == ["new", "more"]


@ON_FILES
@pytest.mark.parametrize("free_bytes", range(0, 700, 50))
def test_clearing_on_a_full_disk(manager: SessionManager, again: Again, disk_full, free_bytes: int):
    """cases/sessions.md 21, 30: the old session or an empty one, bound as before; a retry works."""
    manager.bind_scope(KEY, ("user", "u1"))
    session = saved(manager, "a" * 300, "b")
    session.clear()
    session.add_message("user", "c" * 300)
    session.metadata["x"] = 1
    disk_full(free_bytes)
    with pytest.raises(OSError, match="No space"):
        manager.save(session)
    found = again().get_or_create(KEY)
    assert texts(found) in ([], ["a" * 300, "b"])
    assert found.scope == ("user", "u1")
    assert texts(manager.get_or_create(KEY)) == ["c" * 300]
    disk_full(10**6)
    manager.save(session)
    found = again().get_or_create(KEY)
    assert (texts(found), found.metadata, found.scope) == (["c" * 300], {"x": 1}, ("user", "u1"))


@ON_FILES
def test_clearing_counts_as_a_deletion(manager: SessionManager, again: Again):
    """cases/sessions.md 17, 30: others' objects of before can't be saved; repaired copies go."""
    mine, theirs, other = saved(manager, "secret"), again(), again()
    stale = other.get_or_create(KEY)
    stale.add_message("user", "stale")
    with path_of(manager).open("ab") as file:
        file.write(b"garbage\n")
    assert isinstance(theirs.journal, FileJournal)
    theirs.journal.repair(KEY)
    mine.clear()
    manager.save(mine)
    with pytest.raises(SessionNotFoundError):
        other.save(stale)
    assert theirs.journal.deleted_at(KEY) is not None
    assert texts(theirs.get_or_create(KEY)) == []
    files = [p for p in path_of(manager).parent.parent.rglob("*") if p.is_file()]
    assert not any(b"secret" in p.read_bytes() for p in files)


def test_a_session_of_ones_own_making(manager: SessionManager, again: Again):
    """A Session that did not come from get_or_create is saved only where there is none yet."""
    own = Session(KEY)
    own.add_message("user", "a")
    manager.save(own)
    assert manager.get_or_create(KEY) is own
    with pytest.raises(ValueError, match="get_or_create"):
        again().save(Session(KEY))
    assert texts(again().get_or_create(KEY)) == ["a"]


# --- files of the original --------------------------------------------------


@ON_FILES
def test_a_nanobot_file_opens_as_it_is(manager: SessionManager, again: Again):
    """cases/sessions.md 23: metadata first, naive times, arguments as text; then it goes on."""
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"p": "."}'}}
    spoken = [
        {"role": "user", "content": "hi", "timestamp": "2026-01-02T03:04:05.678"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call],
            "timestamp": "2026-01-02T03:04:06",
        },
        {
            "role": "tool",
            "tool_call_id": "c1",
            "name": "ls",
            "content": "a",
            "timestamp": "2026-01-02",
        },
        {"role": "assistant", "content": "done", "tools_used": ["ls"], "timestamp": "2026-01-02"},
    ]
    head = {
        "_type": "metadata",
        "key": KEY,
        "created_at": "2026-01-02T03:04:05",
        "updated_at": "2026-01-02T03:05:00",
        "metadata": {"a": 1},
        "last_consolidated": 1,
    }
    old = path_of(manager).parent / "telegram_42.jsonl"
    old.parent.mkdir(parents=True)
    old.write_text("".join(json.dumps(line) + "\n" for line in [head, *spoken]))
    session = manager.get_or_create(KEY)
    assert session.messages == spoken
    assert (session.metadata, session.last_consolidated) == ({"a": 1}, 1)
    assert session.created_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert session.updated_at == datetime(2026, 1, 2, 3, 5, tzinfo=UTC)
    assert [m["role"] for m in session.get_history()] == ["assistant", "tool", "assistant"]
    session.add_message("user", "more")
    manager.save(session)
    fresh = again().get_or_create(KEY)
    assert fresh.messages[:4] == spoken
    assert texts(fresh)[4:] == ["more"]
    assert fresh.created_at == session.created_at


@ON_FILES
@pytest.mark.parametrize("metadata", [None, [], "x", 7])
def test_metadata_of_another_shape_breaks_nothing(
    manager: SessionManager, again: Again, metadata: Any
):
    """cases/sessions.md 23: what another program kept there stays in the file as it is."""
    path_of(manager).parent.mkdir(parents=True)
    head = {"_type": "metadata", "key": KEY, "metadata": metadata}
    path_of(manager).write_text(json.dumps(head) + "\n")
    assert manager.get_or_create(KEY).metadata == {}
    saved(manager, "a")
    assert lines_of(manager)[-1]["metadata"] == metadata
    assert texts(again().get_or_create(KEY)) == ["a"]


@ON_FILES
def test_metadata_may_come_anywhere(manager: SessionManager):
    """A file that has no metadata, or has it last, is a session; the last one wins."""
    path_of(manager).parent.mkdir(parents=True)
    path_of(manager).write_text('{"role":"user","content":"a"}\n{"role":"user","content":"b"}\n')
    assert texts(manager.get_or_create(KEY)) == ["a", "b"]
    for pointer in (2, 1):
        with path_of(manager).open("a") as file:
            file.write(f'{{"_type":"metadata","last_consolidated":{pointer}}}\n')
    assert manager.get_or_create(KEY).last_consolidated == 1
    assert [found["key"] for found in manager.list_sessions()] == [KEY]


@pytest.mark.parametrize(
    "text", ["\ud800 lone", "nul \0", "line\u2028sep\u2029", "\r\n", "x" * 10**7]
)
def test_any_text_comes_back(manager: SessionManager, again: Again, text: str):
    """cases/sessions.md 24: lone surrogates, NUL, U+2028, 10 MB in one message."""
    saved(manager, "before", text, "after")
    assert texts(again().get_or_create(KEY)) == ["before", text, "after"]


# --- LangChain's messages and scopes ----------------------------------------


@ON_FILES
def test_messages_of_langchain_are_appended_once(manager: SessionManager, again: Again):
    """cases/sessions.md 26: an equal message of a known id is skipped, another one refused."""
    call = {"name": "f", "args": {}, "id": "c", "type": "tool_call"}
    spoken = [
        HumanMessage("hi", id="1"),
        AIMessage("", id="2", tool_calls=[call]),
        ToolMessage("x", tool_call_id="c", id="3", artifact={"set": {"a", "b", "c"}, "raw": b"\0"}),
    ]
    manager.append_messages(KEY, spoken)
    size = path_of(manager).stat().st_size
    for other in (manager, again()):
        other.append_messages(KEY, [*spoken, spoken[0]])
    assert path_of(manager).stat().st_size == size
    with pytest.raises(ValueError, match="another message of id '1'"):
        manager.append_messages(KEY, [HumanMessage("new", id="9"), HumanMessage("changed", id="1")])
    assert path_of(manager).stat().st_size == size
    manager.append_messages(KEY, [HumanMessage("hi"), HumanMessage("hi")])
    assert texts(manager.get_or_create(KEY)) == ["hi", "", "x", "hi", "hi"]


def test_a_bad_message_in_a_row_is_refused_whole(manager: SessionManager):
    """cases/sessions.md 22, 25: one append: all of the messages, or none."""
    bad = ToolMessage("x", tool_call_id="c", artifact=object())
    with pytest.raises(ValueError, match=r"message 1 of those new.*artifact"):
        manager.append_messages(KEY, [HumanMessage("a"), bad])
    assert manager.list_sessions() == []


def test_a_session_is_bound_for_good(manager: SessionManager, again: Again):
    """Another user on a session is a ScopeError; the same one may come back any time."""
    manager.bind_scope(KEY, ("user", "a"))
    saved(manager, "x")
    again().bind_scope(KEY, ("user", "a"))
    for other in [("user", "b"), (), ("user",)]:
        with pytest.raises(ScopeError, match="user/a"):
            again().bind_scope(KEY, other)
    assert again().get_or_create(KEY).scope == ("user", "a")


@pytest.mark.parametrize("key", ["\U0001f600" * 200, "\u00e9" * 300, "x" * 3_000])
def test_a_key_too_long_for_a_file_name_has_a_file(workspace: Path, key: str):
    """cases/sessions.md 15: however many bytes a key has, its session is kept and listed."""
    sessions = SessionManager(workspace)
    session = sessions.get_or_create(key)
    session.add_message("user", "hello")
    sessions.save(session)
    assert [info["key"] for info in SessionManager(workspace).list_sessions()] == [key]
    assert len(SessionManager(workspace).get_or_create(key).messages) == 1


def test_sessions_with_many_messages_are_not_kept_for_long(workspace):
    """What is kept in memory is bounded by messages too, not only by the number of sessions."""
    manager = SessionManager(workspace, max_cached_messages=100)
    for number in range(10):
        session = manager.get_or_create(f"chat:{number}")
        for n in range(30):
            session.add_message("user", f"{n}")
        manager.save(session)
    for _ in range(64):
        manager.get_or_create("chat:9")
    kept = [records.weight for records, _ in manager._recent.values()]
    assert 30 <= sum(kept) <= 130
    assert len(manager.get_or_create("chat:0").messages) == 30
