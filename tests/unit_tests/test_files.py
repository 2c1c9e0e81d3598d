"""Names, modes, atomic replacement, locks."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_nanomem import files

LOOKALIKES = [
    "telegram:a_b",
    "telegram:a:b",
    "telegram/a:b",
    "telegram_a:b",
    "Telegram:a_b",
    "telegram%3aa_b",
    "TELEGRAM:A_B",
    "telegram:a_b ",
    "telegram:a_b.",
    "telegram:a_b.jsonl",
    "../a",
    "..",
    ".",
    ".hidden",
    "../../etc/passwd",
    "/etc/passwd",
    "C:\\Windows\\con",
    "con",
    "CON",
    "con.txt",
    "%63on",
    "com1",
    "lpt9.log",
    "nul",
    "a\0b",
    "a\nb",
    "é",
    "e\u0301",
    "🦞",
    "x" * 300,
    "x" * 301,
    "X" * 300,
    "é" * 300,
    "~",
    "-",
    "_",
]
DEVICES = {"con", "prn", "aux", "nul", "com1", "lpt1", "com0", "lpt9"}
keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


def test_lookalikes_have_names_of_their_own():
    """cases/sessions.md 15: keys that look alike never share a name, whatever the disk folds."""
    folded = {unicodedata.normalize("NFC", files.file_stem(key)).casefold() for key in LOOKALIKES}
    assert len(folded) == len(LOOKALIKES)


@given(keys, keys)
def test_names_are_injective_also_where_case_does_not_count(one: str, other: str):
    """cases/sessions.md 15: two keys have one name only if they are one key."""
    same = files.file_stem(one).casefold() == files.file_stem(other).casefold()
    assert same == (one == other)


@given(keys | st.sampled_from(LOOKALIKES), st.integers(1, 12))
def test_names_stay_inside_the_root(key: str, times: int):
    """cases/sessions.md 15: any key makes one short, plain, visible name in its directory."""
    stem = files.file_stem(key * times)
    root = Path("/base/sessions")
    assert (root / f"{stem}.jsonl").resolve().parent == root
    assert set(stem) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-.%~")
    assert len(stem) <= 200
    assert not stem.startswith(".")
    assert stem.split(".")[0] not in DEVICES


def test_a_plain_key_is_its_own_name():
    """A person finds a session by its name."""
    assert files.file_stem("user_1-a.b") == "user_1-a.b"
    assert files.file_stem("telegram:42") == "telegram%3a42"


@pytest.mark.parametrize("key", ["", None, 7, b"a", "a\ud800"])
def test_what_is_no_key_is_refused(key: object):
    """cases/sessions.md 15: a key that can't name a file is a clear ValueError."""
    with pytest.raises(ValueError, match="key"):
        files.file_stem(key)  # type: ignore[arg-type]  # the point of the test


def test_directories_are_the_owners_alone(tmp_path: Path):
    """Directories are made with mode 0700, parents too; an existing one is left as it is."""
    tmp_path.chmod(0o755)
    files.make_directory(tmp_path / "a" / "b")
    files.make_directory(tmp_path / "a" / "b")
    assert [stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "a", tmp_path / "a" / "b")] == [
        0o700,
        0o700,
    ]
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_directory_may_be_made_by_many_at_once(tmp_path: Path):
    """Threads that need the same directory at the same moment all get it."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(8)

    def make() -> None:
        barrier.wait()
        try:
            files.make_directory(tmp_path / "a" / "b" / "c")
        except BaseException as error:  # noqa: BLE001 - what a thread raises is the finding
            errors.append(error)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_file_of_the_directorys_name_is_no_directory(tmp_path: Path):
    """Where a file is in the way, that is an error."""
    (tmp_path / "a").write_text("x")
    with pytest.raises(OSError, match="a"):
        files.make_directory(tmp_path / "a" / "b")


def test_replaced_files_are_the_owners_alone(tmp_path: Path):
    """Files are made with mode 0600, and nothing else is left behind."""
    path = tmp_path / "a"
    files.replace_file(path, b"one")
    files.replace_file(path, b"two")
    assert files.read_bytes(path) == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("free_bytes", [0, 1, 7])
def test_a_failed_replacement_changes_nothing(tmp_path: Path, disk_full, free_bytes: int):
    """cases/sessions.md 21: on a full disk the old file stays, and no temporary one."""
    path = tmp_path / "a"
    files.replace_file(path, b"one")
    disk_full(free_bytes)
    with pytest.raises(OSError, match="No space"):
        files.replace_file(path, b"something longer")
    assert path.read_bytes() == b"one"
    assert [*tmp_path.iterdir()] == [path]


def test_a_killed_replacement_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Ctrl-C in the middle leaves the old file and no temporary one."""
    path = tmp_path / "a"
    files.replace_file(path, b"one")

    def interrupted(_fd: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.replace_file(path, b"two")
    assert path.read_bytes() == b"one"
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("target", ["outside", "nowhere"])
def test_symbolic_links_are_refused(tmp_path: Path, target: str):
    """cases/sessions.md 16: a link is neither read nor written, nor is what it points to."""
    (tmp_path / "outside").write_text("secret")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / target)
    with pytest.raises(OSError, match="symbolic link"):
        files.read_bytes(link)
    with pytest.raises(OSError, match="symbolic link"):
        files.replace_file(link, b"x")
    with pytest.raises(OSError, match="symbolic link"):
        files.open_file(link, os.O_WRONLY | os.O_CREAT)
    assert (tmp_path / "outside").read_text() == "secret"
    assert not (tmp_path / "nowhere").exists()


def test_a_link_that_comes_in_between_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """cases/sessions.md 16: also one that appears after the check."""
    (tmp_path / "outside").write_text("secret")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "outside")
    monkeypatch.setattr(Path, "is_symlink", lambda _self: False)
    with pytest.raises(OSError, match="link"):
        files.read_bytes(link)


@given(st.binary(max_size=300), st.integers(0, 320), st.integers(-1, 320))
def test_reading_at_a_place_is_slicing(content: bytes, offset: int, length: int):
    """`read_at` gives what the slice gives, and does not disturb who appends."""
    fd = os.memfd_create("x") if hasattr(os, "memfd_create") else os.open(os.devnull, os.O_RDWR)
    try:
        os.write(fd, content)
        end = None if length < 0 else offset + length
        assert files.read_at(fd, offset, length) == content[offset:end]
    finally:
        os.close(fd)


def test_writing_goes_on_after_a_short_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A write that the system cuts short is continued until all is written."""
    real = os.write
    monkeypatch.setattr(files.os, "write", lambda fd, content: real(fd, bytes(content)[:3]))
    fd = files.open_file(tmp_path / "a", os.O_WRONLY | os.O_CREAT)
    files.write_all(fd, b"0123456789")
    os.close(fd)
    assert (tmp_path / "a").read_bytes() == b"0123456789"


def test_a_lock_excludes_other_threads_and_holders(tmp_path: Path):
    """A lock is held by one thread only, and through any number of lock directories."""
    count = 0

    def work(locks: files.LockDirectory) -> None:
        nonlocal count
        for _ in range(25):
            with locks.hold("a"), locks.hold("a"):  # a thread may enter again
                before = count
                threading.Event().wait(0.0001)
                count = before + 1

    shared = files.LockDirectory(tmp_path / "locks")
    other = files.LockDirectory(tmp_path / "locks")
    threads = [threading.Thread(target=work, args=[locks]) for locks in (shared, shared, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count == 75


def test_whether_a_lock_is_held_can_be_asked_without_waiting(tmp_path: Path):
    """It is held for all others, threads and lock directories, but not for the holder itself."""
    mine, other = files.LockDirectory(tmp_path / "locks"), files.LockDirectory(tmp_path / "locks")
    answers: list[bool] = []

    def ask() -> None:
        answers.extend([mine.is_held("a"), other.is_held("a")])

    with mine.hold("a"):
        assert not mine.is_held("a")
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    ask()
    assert answers == [True, True, False, False]


FORK = """
import os, sys, time
from pathlib import Path
from langchain_nanomem.files import LockDirectory

with LockDirectory(Path(sys.argv[1])).hold("a"):
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
print(child, flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system can't fork")
def test_a_forked_process_keeps_no_lock(tmp_path: Path):
    """cases/checkpointer.md 17: one that began while a lock was held stops nobody afterwards."""
    command = [sys.executable, "-c", FORK, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())  # type: ignore[union-attr]  # it is a pipe
        try:
            assert not files.LockDirectory(tmp_path).is_held("a")
        finally:
            os.kill(child, signal.SIGKILL)


def test_lock_files_are_the_owners_alone(tmp_path: Path):
    """Lock files have mode 0600 in a directory of mode 0700."""
    with files.LockDirectory(tmp_path / "locks").hold("a"):
        pass
    assert stat.S_IMODE((tmp_path / "locks").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "locks" / "a.lock").stat().st_mode) == 0o600
