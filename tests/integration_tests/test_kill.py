"""Processes that are killed while their graphs run, and what a power loss would leave of them.

``NANOMEM_KILLS`` says how many kills there are in all; the default takes a few seconds.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import pytest
from checkpoint_forker import (
    Forker,
    Told,
    assert_goes_together,
    assert_kept,
    assert_newest,
    assert_readable,
    assert_whole,
    reopened,
)
from checkpoint_graph import at, told_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from checkpoint_forker import Event

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system can't fork")

KILLS = int(os.environ.get("NANOMEM_KILLS", "100"))
ROWS = 26
"""How many tests share the kills."""
ROUNDS_OF_A_WORKSPACE = 20


def talking(colour: str, durability: str = "async", *, threads: str = "a", **more: Any) -> Event:
    """The job of running a graph on these threads at once."""
    talk = {"kind": "talk", "colour": colour, "durability": durability}
    return {**talk, "threads": list(threads), **more}


def killed(
    forker: Forker, tmp_path: Path, *jobs: Event
) -> Iterator[tuple[Path, Told, list[Event]]]:
    """Rounds in which processes do these jobs and are killed: workspace, all told, new of it."""
    chance = random.Random(15)
    for number in range(max(4, -(-KILLS // ROWS // len(jobs)))):
        if number % ROUNDS_OF_A_WORKSPACE == 0:
            workspace, told = tmp_path / f"from {number}", Told()
        here = [{**job, "workspace": workspace} for job in jobs]
        events = forker.kill(*here, after_seconds=[chance.uniform(0.0, 0.1) for _ in jobs])
        told.hear(events)
        assert_readable(workspace)
        yield workspace, told, events


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_killed_graph(forker, tmp_path, colour, durability):
    """cases/checkpointer.md 15: all acknowledged is there; the newest is the last or being put."""
    for workspace, told, _ in killed(forker, tmp_path, talking(colour, durability)):
        saver = reopened(workspace)
        assert_newest(saver, told, "a")
        assert_kept(saver, told, "a")
        assert_goes_together(saver, "a")


def test_two_killed_graphs_on_one_thread(forker, tmp_path, colour):
    """cases/checkpointer.md 15, 17: neither kill loses what either process acknowledged."""
    jobs = talking(colour), talking(colour)
    for workspace, told, _ in killed(forker, tmp_path, *jobs):
        saver = reopened(workspace)
        assert_newest(saver, told, "a")
        assert_kept(saver, told, "a")


def test_two_killed_graphs_on_several_threads(forker, tmp_path, colour):
    """cases/checkpointer.md 15, 17: the same where each runs three threads at once, one shared."""
    jobs = talking(colour, threads="abc"), talking(colour, threads="cde")
    for workspace, told, _ in killed(forker, tmp_path, *jobs):
        saver = reopened(workspace)
        for thread in "abcde":
            assert_newest(saver, told, thread)
            assert_kept(saver, told, thread)
            if thread != "c":  # of two runs on one thread, each replays what the other wrote
                assert_goes_together(saver, thread)


@pytest.mark.parametrize("fsync", ["none", "record"])
def test_a_kill_under_each_sync_policy(forker, tmp_path, colour, fsync):
    """cases/checkpointer.md 15: a kill takes nothing, whatever a power loss might take."""
    for workspace, told, _ in killed(forker, tmp_path, talking(colour, fsync=fsync)):
        saver = reopened(workspace)
        assert_newest(saver, told, "a")
        assert_kept(saver, told, "a")


# --- power losses -----------------------------------------------------------


@pytest.mark.parametrize("fsync", ["put", "record"])
def test_a_power_loss(forker, tmp_path, colour, fsync):
    """cases/checkpointer.md 15: no put is durable before what reached the saver before it."""
    for workspace, told, _ in killed(forker, tmp_path, talking(colour, fsync=fsync, syncs=True)):
        lose_power(workspace, told)
        if fsync == "put":
            forget_what_may_be_lost(told)
        saver = reopened(workspace)
        assert_kept(saver, told, "a")
        assert_goes_together(saver, "a")


def test_a_power_loss_right_after_a_threads_first_put(forker, tmp_path):
    """cases/checkpointer.md 15: a file that began with writes is as durable as any other."""
    told = Told()
    job = {"kind": "change", "operation": "begin", "workspace": tmp_path, "syncs": True}
    told.hear(forker.run(job))
    lose_power(tmp_path, told)
    assert_kept(reopened(tmp_path), told, "fresh")


def lose_power(workspace: Path, told: Told) -> None:
    """Have the journals end where they were last synced; or hold zeros from there on.

    What lies beside them may be newer than they are, for the system writes when it likes.
    """
    synced = {e["inode"]: e["size"] for e in told.events if e["event"] == "synced"}
    for path in (workspace / "sessions").glob("*.jsonl"):
        size = path.stat().st_size
        if path.parent.stat().st_ino not in synced:
            path.unlink()
            continue
        os.truncate(path, synced.get(path.stat().st_ino, 0))
        if path.stat().st_size and len(told.events) % 2:
            os.truncate(path, size)


def forget_what_may_be_lost(told: Told) -> None:
    """Forget the acknowledged writes after which no put was acknowledged."""
    done = [event["id"] for event in told.events if event["event"] == "put done"]
    begins = [i for i, e in enumerate(told.events) if e["event"] == "put" and e["id"] in done[-1:]]
    later = told.events[min(begins, default=0) :]
    told.forget_writes(lambda event: event in later)


# --- kills while another process rewrites or deletes ------------------------


def test_kills_while_another_prunes(forker, tmp_path, colour):
    """cases/checkpointer.md 15, 19: the newest and all put since the last pruning are there."""
    jobs = talking(colour), repeating("prune")
    for workspace, told, _ in killed(forker, tmp_path, *jobs):
        saver = reopened(workspace)
        assert_newest(saver, told, "a")
        there = assert_whole(saver, told, "a")
        known = sorted({*told.ids("a", told.done), *there})
        assert there == known[len(known) - len(there) :]
        assert_goes_together(saver, "a")


def test_kills_while_another_copies(forker, tmp_path, colour):
    """cases/checkpointer.md 15, 20: the copy is whole or not there, and the thread unharmed."""
    for workspace, told, _ in killed(forker, tmp_path, talking(colour), repeating("copy")):
        saver = reopened(workspace)
        assert_newest(saver, told, "a")
        assert_kept(saver, told, "a")
        copied = [told_of(checkpoint) for checkpoint in saver.list(at("copy"))]
        for checkpoint in copied:
            assert checkpoint["state"] == told.begun["a", "", checkpoint["id"]]["state"]
        there = assert_whole(saver, told, "a")
        assert [checkpoint["id"] for checkpoint in copied][::-1] == there[: len(copied)]
        assert_goes_together(saver, "copy")


def test_kills_while_another_deletes_runs(forker, tmp_path, colour):
    """cases/checkpointer.md 15: a deleted run is gone whole, every other one is there whole."""
    for workspace, told, _ in killed(forker, tmp_path, talking(colour), repeating("delete a run")):
        saver = reopened(workspace)
        assert_newest(saver, told, "a")
        begun = {e["run"] for e in told.events if e["event"] == "delete run"}
        told.forget_writes(lambda event, begun=begun: event["run"] in begun)
        there = set(assert_whole(saver, told, "a"))
        gone = {e["run"] for e in told.events if e["event"] == "delete run done"}
        for run in {put["run"] for put in told.done.values()}:
            ids = {id_ for (_, _, id_), put in told.done.items() if put["run"] == run}
            assert not ids & there if run in gone else ids <= there or run in begun
            assert ids <= there or not ids & there


def test_kills_while_another_deletes_the_thread(forker, tmp_path, colour):
    """cases/checkpointer.md 15, 18: what was there before a deletion is gone, a later turn not."""
    for workspace, told, _ in killed(forker, tmp_path, talking(colour), repeating("delete")):
        saver = reopened(workspace)
        there = set(assert_whole(saver, told, "a"))
        assert not there & put_before_the_last_deletion(told.events)
        assert put_in_turns_since_any_deletion(told.events) <= there


def put_before_the_last_deletion(events: list[Event]) -> set[str]:
    """The ids acknowledged before a deletion that returned."""
    names = [event["event"] for event in events]
    if "delete done" not in names:
        return set()
    returned = len(names) - 1 - names[::-1].index("delete done")
    called = max(i for i in range(returned) if names[i] == "delete")
    return {event["id"] for event in events[:called] if event["event"] == "put done"}


def put_in_turns_since_any_deletion(events: list[Event]) -> set[str]:
    """The ids acknowledged in turns that began after the last deletion, called or returned."""
    deletions = ("delete", "delete done")
    last = max((i for i, e in enumerate(events) if e["event"] in deletions), default=-1)
    since = events[last + 1 :]
    if last >= 0 and events[last]["event"] == "delete":  # it may still have come at any time
        return set()
    turns = {event["turn"] for event in since if event["event"] == "turn"}
    return {e["id"] for e in since if e["event"] == "put done" and e["run"] in turns}


def repeating(operation: str) -> Event:
    """The job of doing the same to the thread again and again."""
    return {"kind": "repeat", "operation": operation, "thread": "a"}
