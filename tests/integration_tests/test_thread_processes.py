"""Several processes on the threads of one workspace, none of them killed."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
from checkpoint_forker import (
    Told,
    assert_goes_together,
    assert_kept,
    assert_newest,
    assert_readable,
    reopened,
)
from checkpoint_graph import at, build, call, made, question, told_of
from langgraph.checkpoint.base.id import uuid6

if TYPE_CHECKING:
    from pathlib import Path

    from langchain_nanomem.checkpoint import NanomemSaver

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system can't fork")


def shown(saver: NanomemSaver, thread: str = "a") -> Any:
    """All that a saver tells of a thread, and of its session."""
    session = saver.sessions.get_or_create(thread).messages
    return [told_of(found) for found in saver.list(at(thread))], session


def change(workspace: Path, operation: str, **more: Any) -> dict[str, Any]:
    """The job of one operation, in another process."""
    return {"kind": "change", "operation": operation, "workspace": workspace, "thread": "a", **more}


@pytest.mark.parametrize("threads", ["a", "abcdefgh"])
@pytest.mark.parametrize("processes", [1, 2])
def test_processes_lose_nothing(forker, tmp_path, colour, processes, threads):
    """cases/checkpointer.md 17: on one thread, or eight at once on eight: all records are there."""
    turns = 24 // len(threads)
    job = {"kind": "talk", "workspace": tmp_path, "colour": colour, "durability": "async"}
    told = Told()
    told.hear(forker.run(*[job | {"threads": list(threads), "turns": turns}] * processes))
    names = [event["event"] for event in told.events]
    assert names.count("finished") == processes
    assert names.count("turn") == processes * len(threads) * turns
    assert set(told.done) == set(told.begun)
    saver = reopened(tmp_path)
    for thread in threads:
        assert_newest(saver, told, thread)
        assert_kept(saver, told, thread)
        if processes == 1:  # of two runs on one thread, each replays what the other wrote
            assert_goes_together(saver, thread)
    assert_readable(tmp_path)


@pytest.mark.parametrize("operation", ["prune", "delete", "delete a run", "clear", "go on"])
async def test_a_process_notices_what_another_did(forker, tmp_path, colour, operation):
    """cases/checkpointer.md 17: a saver that has the thread in memory shows it as it is now."""
    saver = reopened(tmp_path)
    graph = build(saver)
    for turn in range(4):
        config = at("a") | {"metadata": {"run_id": str(turn)}}
        await call(colour, graph, "invoke", question(str(turn)), config)
    before = shown(saver)
    forker.run(change(tmp_path, operation, id=before[0][0]["id"]))
    found = await call(colour, saver, "get_tuple", at("a"))
    now = shown(reopened(tmp_path))
    assert now != before
    assert (told_of(found) if found else None) == next(iter(now[0]), None)
    assert shown(saver) == now
    await call(colour, graph, "invoke", question("on"), at("a"))
    assert shown(saver) == shown(reopened(tmp_path))
    assert [old for old in now[0] if old not in shown(saver)[0]] == []


def test_forked_processes_may_share_a_saver(forker, tmp_path, colour):
    """cases/checkpointer.md 17: one that has the threads in memory already, as servers fork."""
    job = {"kind": "talk", "workspace": tmp_path, "colour": colour, "durability": "async"}
    told = Told()
    for share in (False, True, True):
        jobs = [job | {"threads": ["a", "b"], "turns": 3, "share": share}] * 2
        told.hear(forker.run(*jobs))
        for thread in "ab":
            assert_newest(reopened(tmp_path), told, thread)
            assert_kept(reopened(tmp_path), told, thread)


def test_a_forked_process_keeps_no_lock(forker, tmp_path):
    """cases/checkpointer.md 17: one begun while a thread was written stops nobody from it."""
    (child,) = [e["child"] for e in forker.run(change(tmp_path, "fork")) if e["event"] == "forked"]
    checkpoint = made("1", plain=1)
    put = threading.Thread(
        target=reopened(tmp_path).put,
        args=(at("a"), checkpoint, {"step": 1}, checkpoint["channel_versions"]),
    )
    put.start()
    put.join(5)
    waits = put.is_alive()
    os.kill(child, signal.SIGKILL)
    put.join()
    assert not waits


async def test_a_list_goes_on_while_another_process_prunes(forker, tmp_path, colour):
    """cases/checkpointer.md 9, 17: what is left of an open list is what is still there."""
    saver = reopened(tmp_path)
    await call(colour, build(saver), "invoke", question("q"), at("a"))
    expected = [told_of(found) for found in saver.list(at("a"))]
    if colour == "sync":
        left = saver.list(at("a"))
        first = next(left)
        forker.run(change(tmp_path, "prune"))
        rest = list(left)
    else:
        left = saver.alist(at("a"))
        first = await anext(left)
        forker.run(change(tmp_path, "prune"))
        rest = [found async for found in left]
    assert told_of(first) == expected[0]
    assert [told_of(found) for found in rest if told_of(found) not in expected] == []


async def test_a_thread_put_anew_by_another_process(forker, tmp_path, colour):
    """cases/checkpointer.md 17: deleted and begun anew meanwhile: nothing of the old is shown."""
    saver = reopened(tmp_path)
    graph = build(saver)
    await call(colour, graph, "invoke", question("old"), at("a"))
    talk = {"kind": "talk", "colour": colour, "durability": "sync", "threads": ["a"], "turns": 1}
    forker.run(change(tmp_path, "delete"))
    forker.run(talk | {"workspace": tmp_path})
    state = await call(colour, graph, "get_state", at("a"))
    assert len(state.values["log"]) == 3
    assert "old" not in state.values["messages"][0].content
    assert shown(saver) == shown(reopened(tmp_path))


async def test_a_late_put_after_another_process_has_deleted(forker, tmp_path, colour):
    """cases/checkpointer.md 18: neither put nor put_writes of an older run brings it back."""
    saver = reopened(tmp_path)
    first = made(str(uuid6(clock_seq=-1)), plain="old")
    config = await call(
        colour, saver, "put", at("a"), first, {"step": 0}, first["channel_versions"]
    )
    forker.run(change(tmp_path, "delete"))
    for _ in range(2):
        await call(colour, saver, "put_writes", config, [("plain", "late")], "late")
        new = made(str(uuid6(clock_seq=-1)), plain="late")
        config = await call(colour, saver, "put", config, new, {"step": 1}, new["channel_versions"])
    assert await call(colour, saver, "get_tuple", at("a")) is None
    assert shown(reopened(tmp_path)) == ([], [])
    assert list((tmp_path / "sessions").iterdir()) == []


async def test_another_process_is_late(forker, tmp_path, colour):
    """cases/checkpointer.md 18: the same where the other process goes on and this one deletes."""
    saver = reopened(tmp_path)
    first = made(str(uuid6(clock_seq=-1)), plain="old")
    await call(colour, saver, "put", at("a"), first, {"step": 0}, first["channel_versions"])
    await call(colour, saver, "delete_thread", "a")
    forker.run(change(tmp_path, "go on", id=first["id"]))
    assert await call(colour, saver, "get_tuple", at("a")) is None
    assert list((tmp_path / "sessions").iterdir()) == []
    await call(colour, build(saver), "invoke", question("new"), at("a"))
    assert_goes_together(reopened(tmp_path), "a")
    assert len(build(saver).get_state(at("a")).values["messages"]) == 3
