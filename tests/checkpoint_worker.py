"""Processes that work on threads until they are killed; `checkpoint_forker` starts them.

A line of standard input is a list of jobs, one for each process; a line of standard output
tells what one of them did. Each is forked, for starting Python anew takes most of a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from checkpoint_graph import at, build, fingerprint, made, question, state_of
from disk_calls import Death, Syncs, hook_in, real_write
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP, get_checkpoint_metadata
from langgraph.checkpoint.base.id import uuid6
from langgraph.errors import EmptyInputError

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.file_journal import FileJournal
from langchain_nanomem.manager import SessionManager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Job = dict[str, Any]


def tell(event: str, **more: Any) -> None:
    """Write a line, in one call and short enough for a pipe: it is there whole or not at all."""
    line = json.dumps({"event": event, "by": os.getpid(), **more}).encode() + b"\n"
    assert len(line) <= 4096, line
    real_write(1, line)


@contextlib.contextmanager
def telling(event: str, told: dict[str, Any]) -> Iterator[None]:
    """Tell of a call when it begins and when it has returned."""
    tell(event, **told)
    yield
    tell(f"{event} done", **told)


class TellingSaver(NanomemSaver):
    """Tells of each put and each put_writes."""

    def put(self, config, checkpoint, metadata, new_versions):
        with telling("put", _of_put(config, checkpoint, metadata)):
            return super().put(config, checkpoint, metadata, new_versions)

    async def aput(self, config, checkpoint, metadata, new_versions):
        with telling("put", _of_put(config, checkpoint, metadata)):
            return await super().aput(config, checkpoint, metadata, new_versions)

    def put_writes(self, config, writes, task_id, task_path=""):
        with telling("writes", _of_writes(config, writes, task_id)):
            super().put_writes(config, writes, task_id, task_path)

    async def aput_writes(self, config, writes, task_id, task_path=""):
        with telling("writes", _of_writes(config, writes, task_id)):
            await super().aput_writes(config, writes, task_id, task_path)


def _place(config: dict[str, Any]) -> dict[str, Any]:
    found = config["configurable"]
    return {"thread": found["thread_id"], "ns": found.get("checkpoint_ns", "")}


def _of_put(config: Any, checkpoint: Any, metadata: Any) -> dict[str, Any]:
    metadata = get_checkpoint_metadata(config, metadata)
    told = {"run": metadata.get("run_id"), "state": state_of(checkpoint, metadata)}
    return {**_place(config), "id": checkpoint["id"], **told}


def _of_writes(config: Any, writes: Any, task_id: str) -> dict[str, Any]:
    found = [
        (WRITES_IDX_MAP.get(channel, place), channel, fingerprint(value))
        for place, (channel, value) in enumerate(writes)
    ]
    checkpoint_id = config["configurable"]["checkpoint_id"]
    run = (config.get("metadata") or {}).get("run_id")
    told = {"id": checkpoint_id, "run": run, "task": task_id, "writes": found}
    return {**_place(config), **told}


# --- jobs -------------------------------------------------------------------


def talk(job: Job, saver: NanomemSaver) -> None:
    """Turns of the graph on each of the threads at once; first what a killed turn left."""
    if job["colour"] == "async":
        asyncio.run(_talk_on_all(job, saver))
        return
    with ThreadPoolExecutor(len(job["threads"])) as pool:
        for _ in pool.map(partial(_talk_on, job, saver), job["threads"]):
            pass


async def _talk_on_all(job: Job, saver: NanomemSaver) -> None:
    graph = build(saver)

    async def talk_on(thread: str) -> None:
        state = await graph.aget_state(at(thread))
        for given, config in _turns(job, thread, unfinished=bool(state.next)):
            with contextlib.suppress(EmptyInputError):  # what was unfinished was deleted
                await graph.ainvoke(given, config, durability=job["durability"])

    await asyncio.gather(*map(talk_on, job["threads"]))


def _talk_on(job: Job, saver: NanomemSaver, thread: str) -> None:
    graph = build(saver)
    for given, config in _turns(job, thread, unfinished=bool(graph.get_state(at(thread)).next)):
        with contextlib.suppress(EmptyInputError):  # what was unfinished was deleted
            graph.invoke(given, config, durability=job["durability"])


def _turns(job: Job, thread: str, *, unfinished: bool) -> Iterator[tuple[Any, Any]]:
    """Input and config of each turn; None for that of one that was broken off."""
    turns = job.get("turns")
    for number in range(turns) if turns else itertools.count():
        turn = f"{thread} {os.getpid()} {number}"
        tell("turn", thread=thread, turn=turn)
        given = None if unfinished and number == 0 and not turns else question(turn)
        yield given, at(thread) | {"metadata": {"run_id": turn}}


def repeat(job: Job, saver: NanomemSaver) -> None:
    """The same operation again and again, with breaks."""
    while True:
        change(job, saver)
        time.sleep(random.uniform(0.0, 0.02))


def change(job: Job, saver: NanomemSaver) -> None:
    """One operation; a job that names a step dies there, or finishes if there are fewer."""
    operation = OPERATIONS[job["operation"]]
    if "step" in job:
        hook_in(Death(job["step"], job["how"]))
    operation(saver, job)


def _copy(saver: NanomemSaver, job: Job) -> None:
    saver.delete_thread("copy")
    tell("copy")
    saver.copy_thread(job["thread"], "copy")


def _delete_a_run(saver: NanomemSaver, job: Job) -> None:
    """Delete one of the runs that are over, if there are any."""
    found = saver.list(at(job["thread"]))
    runs = list(dict.fromkeys(checkpoint.metadata["run_id"] for checkpoint in found))
    if len(runs) > 2:
        run = random.choice(runs[2:])
        tell("delete run", run=run)
        saver.delete_for_runs([run])
        tell("delete run done", run=run)


def _delete(saver: NanomemSaver, job: Job) -> None:
    tell("delete")
    saver.delete_thread(job["thread"])
    tell("delete done")


def _begin(saver: NanomemSaver, job: Job) -> None:
    """A thread whose first writes reach the saver before their checkpoint."""
    checkpoint = made("0", plain=1)
    saver.put_writes(at("fresh", "", "0"), [("plain", 2)], "early")
    saver.put(at("fresh"), checkpoint, {"step": 0}, checkpoint["channel_versions"])


def _put(saver: NanomemSaver, job: Job) -> None:
    messages = [HumanMessage("old 0", id="old 0"), HumanMessage("ë" * 60_000, id="new")]
    checkpoint = made("9", messages=messages, plain={"k": ["v" * 300]})
    meta = {"source": "loop", "step": 9, "parents": {}, "run_id": "r9"}
    saver.put(at(job["thread"], "", "2"), checkpoint, meta, checkpoint["channel_versions"])


def _put_writes(saver: NanomemSaver, job: Job) -> None:
    writes = [("messages", [HumanMessage("written", id="w")]), ("plain", {"k": ["w" * 300]})]
    saver.put_writes(at(job["thread"], "", "2"), writes, "task 9")


def _go_on(saver: NanomemSaver, job: Job) -> None:
    """What a run does that has read the checkpoint of this id, and is still there."""
    config = at(job["thread"], "", job["id"])
    for _ in range(2):
        saver.put_writes(config, [("plain", "late")], "late")
        checkpoint = made(str(uuid6(clock_seq=-1)), plain="late")
        config = saver.put(config, checkpoint, {"step": 9}, checkpoint["channel_versions"])


def _fork(saver: NanomemSaver, job: Job) -> None:
    """Begin a process while a thread is locked, and leave it behind."""
    with saver.sessions.journal.lock(job["thread"]):
        child = os.fork()
        if not child:
            time.sleep(60)
            os._exit(0)
    tell("forked", child=child)


def _append(saver: NanomemSaver, job: Job) -> None:
    session = saver.sessions.get_or_create("session")
    session.add_message("user", "one more", timestamp="2026-05-08T13:00:00+00:00")
    saver.sessions.save(session)


def _clear(saver: NanomemSaver, job: Job) -> None:
    session = saver.sessions.get_or_create(job["thread"])
    session.clear()
    saver.sessions.save(session)


OPERATIONS: dict[str, Callable[[NanomemSaver, Job], None]] = {
    "append": _append,
    "begin": _begin,
    "clear": _clear,
    "copy": _copy,
    "copy once": lambda saver, job: saver.copy_thread(job["thread"], "copy"),
    "delete": _delete,
    "delete a run": _delete_a_run,
    "delete runs": lambda saver, job: saver.delete_for_runs(job.get("runs", ["r1"])),
    "fork": _fork,
    "go on": _go_on,
    "prune": lambda saver, job: saver.prune([job["thread"]]),
    "put": _put,
    "put_writes": _put_writes,
}
JOBS: dict[str, Callable[[Job, NanomemSaver], None]] = {
    "talk": talk,
    "repeat": repeat,
    "change": change,
}


# --- processes --------------------------------------------------------------


def work(job: Job) -> None:
    tell("ready", job=job["kind"])
    if job.get("syncs"):
        hook_in(Syncs(lambda inode, size: tell("synced", inode=inode, size=size)))
    journal = FileJournal(job["workspace"], fsync=job.get("fsync", "put"))
    JOBS[job["kind"]](job, job.get("saver") or TellingSaver(SessionManager(journal)))
    tell("finished")


def with_savers(jobs: list[Job]) -> list[Job]:
    """Jobs that are to share a saver that was in use before they are forked, with that saver."""
    if not jobs[0].get("share"):
        return jobs
    saver = TellingSaver(SessionManager(jobs[0]["workspace"]))
    for thread in jobs[0]["threads"]:
        saver.get_tuple(at(thread))
    return [{**job, "saver": saver} for job in jobs]


def fork(job: Job) -> int:
    child = os.fork()
    if child:
        return child
    try:
        work(job)
    except BaseException:  # noqa: BLE001 - the test is to fail by it, whatever it is
        traceback.print_exc()
        tell("failed", error=traceback.format_exc()[-2000:])
    finally:
        os._exit(0)


def warm_up() -> None:
    """Have all that is loaded late loaded once."""
    with tempfile.TemporaryDirectory() as workspace:
        for colour in ("sync", "async"):
            job = {"colour": colour, "durability": "sync", "threads": ["a"], "turns": 1}
            talk(job, TellingSaver(SessionManager(workspace)))


def main() -> None:
    warm_up()
    tell("warm")
    for line in sys.stdin:
        for child in [fork(job) for job in with_savers(json.loads(line))]:
            os.waitpid(child, 0)
        tell("ended")
