"""Operations that die at each of their system calls: all of them or nothing is there."""

from __future__ import annotations

import itertools
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from checkpoint_forker import reopened
from checkpoint_graph import at, made, told_of
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base.id import uuid6

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from checkpoint_forker import Forker

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system can't fork")

THREADS = ("a", "copy", "session")
SECRET = "sEcret"
LONG = SECRET * 5000
"""Four of them are so long that a workspace may keep more of a session than its own file."""
HOWS = ("before", "half", "after")
OPERATIONS = (
    "append",
    "clear",
    "copy once",
    "delete",
    "delete runs",
    "prune",
    "put",
    "put_writes",
)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace of a thread with two runs and pending writes, and a session."""
    workspace = tmp_path_factory.mktemp("old")
    saver = reopened(workspace)
    config, messages = at("a"), []
    for number in range(4):
        messages = [*messages, HumanMessage(f"{LONG} {number}", id=f"old {number}")]
        checkpoint = made(str(number), messages=messages, plain=number)
        meta = {"source": "loop", "step": number, "parents": {}, "run_id": f"r{number // 2}"}
        config = saver.put(config, checkpoint, meta, checkpoint["channel_versions"])
        saver.put_writes(config, [("plain", f"{SECRET} {number}")], f"task {number}")
    session = saver.sessions.get_or_create("session")
    session.add_message("user", SECRET, timestamp="2026-05-08T13:00:00+00:00")
    saver.sessions.save(session)
    return workspace


def state_of(workspace: Path) -> dict[str, Any]:
    """All that can be read of each thread."""
    saver = reopened(workspace)
    return {
        thread: (
            [told_of(found) for found in saver.list(at(thread))],
            [message["content"] for message in saver.sessions.get_or_create(thread).messages],
            saver.sessions.get_or_create(thread).metadata,
        )
        for thread in THREADS
    }


def deaths(
    forker: Forker, old: Path, tmp_path: Path, operation: str, hows: tuple[str, ...] = HOWS
) -> Iterator[Path]:
    """Copies of the old workspace in which the operation died, at each of its calls in turn."""
    for how in hows:
        for step in itertools.count():
            workspace = tmp_path / f"{how} {step}"
            shutil.copytree(old, workspace)
            job = job_of(operation, workspace) | {"step": step, "how": how}
            if forker.run(job)[-1]["event"] == "finished":
                break
            yield workspace


def job_of(operation: str, workspace: Path) -> dict[str, Any]:
    return {"kind": "change", "operation": operation, "workspace": workspace, "thread": "a"}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_that_dies_anywhere(forker, old, tmp_path, operation):
    """cases/checkpointer.md 15, 19, 20: it is done whole or not at all, and can be done again."""
    shutil.copytree(old, tmp_path / "new")
    forker.run(job_of(operation, tmp_path / "new"))
    before, after = state_of(old), state_of(tmp_path / "new")
    assert before != after
    for workspace in deaths(forker, old, tmp_path, operation):
        found = state_of(workspace)
        assert found in (before, after)
        if found != after:
            forker.run(job_of(operation, workspace))
            assert state_of(workspace) == after
        assert_goes_on(workspace)


def assert_goes_on(workspace: Path) -> None:
    """A new checkpoint and its writes are kept, whatever is left there."""
    checkpoint = made(str(uuid6(clock_seq=-1)), messages=[HumanMessage("on", id="on")])
    saver = reopened(workspace)
    config = saver.put(at("a"), checkpoint, {"step": 9}, checkpoint["channel_versions"])
    saver.put_writes(config, [("messages", ["more"])], "t")
    found = reopened(workspace).get_tuple(config)
    assert found.checkpoint == checkpoint
    assert found.pending_writes == [("t", "messages", ["more"])]


def test_a_late_run_after_a_deletion_that_died(forker, tmp_path):
    """cases/checkpointer.md 18: once the thread is gone, it is known when that was."""
    saver = reopened(tmp_path / "old")
    first, second = (made(str(uuid6(clock_seq=-1)), plain=number) for number in range(2))
    config = saver.put(at("a"), first, {"step": 0}, first["channel_versions"])
    for workspace in deaths(forker, tmp_path / "old", tmp_path, "delete"):
        saver = reopened(workspace)
        gone = saver.get_tuple(at("a")) is None
        saver.put(config, second, {"step": 1}, second["channel_versions"])
        assert (reopened(workspace).get_tuple(at("a")) is None) == gone


@pytest.mark.parametrize("operation", ["prune", "delete runs"])
def test_what_a_killed_rewrite_leaves_goes_with_the_thread(forker, old, tmp_path, operation):
    """cases/sessions.md 17: after a deletion no file has the text, though a rewrite was killed."""
    for workspace in deaths(forker, old, tmp_path, operation):
        saver = reopened(workspace)
        for thread in THREADS:
            saver.delete_thread(thread)
        contents = [path.read_bytes() for path in workspace.rglob("*") if path.is_file()]
        assert not [content for content in contents if SECRET.encode() in content]


def test_killed_rewrites_keep_no_space(forker, old, tmp_path):
    """cases/checkpointer.md 19: the next rewrite gives back what killed ones have taken."""
    for workspace in deaths(forker, old, tmp_path, "prune", ("before",)):
        forker.run(job_of("prune", workspace))
        whole = tmp_path / "whole"
        if not whole.exists():
            shutil.copytree(old, whole)
            forker.run(job_of("prune", whole))
        assert names_of(workspace) == names_of(whole)


def names_of(workspace: Path) -> list[Path]:
    return sorted(path.relative_to(workspace) for path in workspace.rglob("*"))
