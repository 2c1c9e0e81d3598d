"""A disk that is full, and has room again: a small one of its own, or a limit for each file."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from checkpoint_forker import assert_goes_together, assert_readable, reopened
from checkpoint_graph import at, build, call, made, question, told_of
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base.id import uuid6

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

resource = pytest.importorskip("resource", reason="this system limits no file's size")

PAGE = 4096
TEXT = "ü" * 15_000
"""Larger than what is left of a page that is begun."""


class SmallDisk:
    """A file system of its own, in memory."""

    def __init__(self, path: Path) -> None:
        self.workspace = path / "workspace"
        self._path = path
        self._ballast = path / "ballast"

    def leave(self, free_bytes: int, _: Path | None = None) -> None:
        """Have no more room than this."""
        with self._ballast.open("ab", buffering=0) as ballast, contextlib.suppress(OSError):
            while True:
                ballast.write(bytes(PAGE))
        os.truncate(self._ballast, self._ballast.stat().st_size - free_bytes // PAGE * PAGE)

    def clear(self) -> None:
        self._ballast.unlink(missing_ok=True)


class LimitedFiles:
    """Files that may not grow beyond a limit."""

    def __init__(self, path: Path) -> None:
        self.workspace = path / "workspace"
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def leave(self, free_bytes: int, file: Path | None = None) -> None:
        """Let `file` grow by no more than this, a new one to no more than this."""
        size = free_bytes + (file.stat().st_size if file else 0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, self._limits[1]))

    def clear(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)


@pytest.fixture(params=["small disk", "limited files"])
def disk(request, tmp_path) -> Iterator[SmallDisk | LimitedFiles]:
    if request.param == "limited files":
        disk: SmallDisk | LimitedFiles = LimitedFiles(tmp_path)
        yield disk
        disk.clear()
        return
    if sys.platform != "linux":
        pytest.skip("only Linux has a file system in memory")
    options = ["-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(tmp_path)]
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        yield SmallDisk(tmp_path)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def fill(workspace: Path) -> Any:
    """A thread of three checkpoints of two runs, and a session; the config of the last one."""
    saver = reopened(workspace)
    config = at("a")
    for number in range(3):
        messages = [HumanMessage(f"{n}{TEXT}", id=str(n)) for n in range(number + 1)]
        checkpoint = made(str(number), messages=messages, plain=number)
        meta = {"source": "loop", "step": number, "parents": {}, "run_id": f"r{number // 2}"}
        config = saver.put(config, checkpoint, meta, checkpoint["channel_versions"])
        saver.put_writes(config, [("plain", number)], f"task {number}")
    session = saver.sessions.get_or_create("session")
    session.add_message("user", TEXT)
    saver.sessions.save(session)
    return config


def shown(saver: Any) -> Any:
    """All that a saver tells of all threads, and of the sessions."""
    sessions = [saver.sessions.get_or_create(key).messages for key in ("a", "session", "copy")]
    return [told_of(found) for found in saver.list(None)], sessions


def assert_unchanged(before: Any, saver: Any, workspace: Path) -> None:
    """The same is there, for this saver and for a new process, and no piece of more."""
    assert shown(saver) == before
    assert shown(reopened(workspace)) == before
    assert_readable(workspace)
    assert not list(workspace.rglob("*.tmp"))


@pytest.mark.parametrize("free_bytes", [0, 1, PAGE, 5 * PAGE])
@pytest.mark.parametrize("method", ["put", "put_writes"])
async def test_a_call_that_does_not_fit(disk, colour, method, free_bytes):
    """Invariant 3: an error, nothing lost, no half record; with room again the same call works."""
    config = fill(disk.workspace)
    saver = reopened(disk.workspace)
    before = shown(saver)
    new = made("9", messages=[HumanMessage("new" + TEXT, id="new")])
    arguments = {
        "put": (config, new, {"step": 9}, new["channel_versions"]),
        "put_writes": (config, [("messages", [HumanMessage("new" + TEXT, id="new")])], "new"),
    }[method]
    for _ in range(2):
        disk.leave(free_bytes, saver.sessions.journal.path("a"))
        with pytest.raises(OSError, match=r"space|large"):
            await call(colour, saver, method, *arguments)
        assert_unchanged(before, saver, disk.workspace)
        disk.clear()
        assert_unchanged(before, saver, disk.workspace)
    await call(colour, saver, method, *arguments)
    found = reopened(disk.workspace).get_tuple(at("a"))
    assert found.checkpoint == new if method == "put" else len(found.pending_writes) == 2
    assert_readable(disk.workspace)


@pytest.mark.parametrize("free_bytes", [0, PAGE])
async def test_a_first_put_that_does_not_fit(disk, colour, free_bytes):
    """Invariant 3: a thread that could not begin is not there, and can begin with room again."""
    saver = reopened(disk.workspace)
    new = made("9", messages=[HumanMessage(TEXT, id="new")])
    arguments = (at("a"), new, {"step": 9}, new["channel_versions"])
    disk.leave(free_bytes)
    with pytest.raises(OSError, match=r"space|large"):
        await call(colour, saver, "put", *arguments)
    for reader in (saver, reopened(disk.workspace)):
        assert reader.get_tuple(at("a")) is None
    disk.clear()
    await call(colour, saver, "put", *arguments)
    assert reopened(disk.workspace).get_tuple(at("a")).checkpoint == new


@pytest.mark.parametrize("free_bytes", [0, 2 * PAGE])
@pytest.mark.parametrize(
    ("call_of", "left"),
    [
        (("prune", ["a"]), 1),
        (("delete_for_runs", ["r0"]), 1),
        (("copy_thread", "a", "copy"), 6),
    ],
)
async def test_a_rewrite_that_does_not_fit(disk, colour, call_of, left, free_bytes):
    """cases/checkpointer.md 19, 20: the old file stays, nothing is left behind; later it works."""
    fill(disk.workspace)
    saver = reopened(disk.workspace)
    before = shown(saver)
    disk.leave(free_bytes)
    with pytest.raises(OSError, match=r"space|large"):
        await call(colour, saver, *call_of)
    assert_unchanged(before, saver, disk.workspace)
    disk.clear()
    await call(colour, saver, *call_of)
    assert len(shown(reopened(disk.workspace))[0]) == left
    assert_readable(disk.workspace)


async def test_a_deletion_on_a_full_disk(disk, colour):
    """cases/checkpointer.md 18: a full disk is no reason to keep a thread; it goes whole."""
    fill(disk.workspace)
    saver = reopened(disk.workspace)
    before = shown(saver)
    disk.leave(0)
    if isinstance(disk, SmallDisk):
        await call(colour, saver, "delete_thread", "a")
    else:
        with pytest.raises(OSError, match="large"):
            await call(colour, saver, "delete_thread", "a")
        assert_unchanged(before, saver, disk.workspace)
    disk.clear()
    assert await call(colour, reopened(disk.workspace), "delete_thread", "a") is None
    assert shown(saver)[0] == shown(reopened(disk.workspace))[0] == []


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_graph_on_a_full_disk(disk, colour, durability):
    """Invariant 3: the run fails, and what was acknowledged resumes once there is room."""
    saver = reopened(disk.workspace)
    graph = build(saver)
    await call(colour, graph, "invoke", question("first", TEXT), at("a"), durability=durability)
    before = graph.get_state(at("a")).values
    for free_bytes in (0, PAGE, 10 * PAGE):
        disk.leave(free_bytes, saver.sessions.journal.path("a"))
        with pytest.raises(OSError, match=r"space|large"):
            await talk(colour, graph, durability)
        disk.clear()
        assert_readable(disk.workspace)
        assert_goes_together(reopened(disk.workspace), "a")
        if graph.get_state(at("a")).next:
            await call(colour, graph, "invoke", None, at("a"), durability=durability)
        values = graph.get_state(at("a")).values
        assert values["messages"][: len(before["messages"])] == before["messages"]
        assert_goes_together(reopened(disk.workspace), "a")
    after = await call(colour, graph, "invoke", question("on"), at("a"), durability=durability)
    assert after == build(reopened(disk.workspace)).get_state(at("a")).values


async def talk(colour: str, graph: Any, durability: str) -> None:
    """More turns than any of the disks has room for."""
    for _ in range(40):
        given = question(str(uuid6()), TEXT)
        await call(colour, graph, "invoke", given, at("a"), durability=durability)


@pytest.fixture
def only_journals(monkeypatch) -> Any:
    """Has every write fail but those into a session's own file."""

    def begin(workspace: Path) -> None:
        inodes = {path.stat().st_ino for path in (workspace / "sessions").glob("*.jsonl")}
        write = os.write

        def write_journals(fd: int, content: bytes) -> int:
            if os.fstat(fd).st_ino not in inodes:
                raise OSError(28, "No space left on device")
            return write(fd, content)

        def refuse(*_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "write", write_journals)
        monkeypatch.setattr(os, "replace", refuse)
        monkeypatch.setattr(os, "rename", refuse)

    return begin


async def test_what_lies_beside_the_journal_may_fail(tmp_path, colour, only_journals):
    """Invariant 3: a put needs nothing but the session's own file; nor does reading it."""
    config = fill(tmp_path)
    saver = reopened(tmp_path)
    only_journals(tmp_path)
    for number in range(3, 60):
        new = made(f"{number:02}", messages=[HumanMessage(f"{number}", id=f"{number}")])
        meta = {"step": number}
        config = await call(colour, saver, "put", config, new, meta, new["channel_versions"])
        await call(colour, saver, "put_writes", config, [("plain", number)], "t")
    for reader in (saver, reopened(tmp_path)):
        found = await call(colour, reader, "get_tuple", config)
        assert found.checkpoint == new
        assert found.pending_writes == [("t", "plain", 59)]
        assert len(await call(colour, reader, "list", at("a"))) == 60
