"""Crashes at each place, and several consolidators of one workspace at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scripted import consolidate_in, consolidator_of, save_memory, talk
from stores import edit_memory

from langchain_nanomem.manager import SessionManager
from langchain_nanomem.memory import MemoryStore
from langchain_nanomem.rounds import Rounds
from langchain_nanomem.workspaces import open_workspace

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_nanomem.consolidation import Consolidation, MemoryConsolidator
    from langchain_nanomem.journal import Journal

pytestmark = pytest.mark.back_ends("files", "postgres")

KEY = "cli:user"
TESTS = Path(__file__).parents[1]


def opened(place: Path | Journal, *replies: Any) -> MemoryConsolidator:
    """A consolidator as a new process has it; by default its model must not be asked."""
    replies = replies or (AssertionError("the model was asked again"),)
    return consolidator_of(place, *replies, journal=place)


@pytest.fixture(params=["sync", "async"])
def run(request) -> Callable[..., list[Consolidation]]:
    """Consolidates in one colour."""
    return consolidate_in(request.param)


def store_of(place):
    return MemoryStore(open_workspace(place).memory)


def texts(place):
    return [entry.text for entry in store_of(place).history_entries()]


def journal_of(path):
    return next((path / "sessions").glob("*.jsonl"))


def kinds(place):
    records, _ = open_workspace(place).journal.read(KEY)
    found = [record.get("_type", "") for record in records]
    return [kind for kind in found if "consolidat" in kind]


class Crash(BaseException):
    """As if the process ended here."""


def crash_at(monkeypatch, target, name, *, after):
    """Make a function end the process, before or after it has done its work."""
    real = getattr(target, name)

    def crash(*args, **options):
        if after:
            real(*args, **options)
        raise Crash

    monkeypatch.setattr(target, name, crash)


MOMENTS = [
    (SessionManager, "commit", True),
    (MemoryStore, "append_history", False),
    (MemoryStore, "append_history", True),
    (MemoryStore, "replace_long_term", False),
    (MemoryStore, "replace_long_term", True),
    (Rounds, "_told", False),
]
MOMENT_IDS = [f"{'after' if after else 'before'} {name}" for _, name, after in MOMENTS]


def crashed(place, monkeypatch, run, moment):
    """A workspace in which a consolidation ended at some moment."""
    consolidator = opened(place, save_memory("moved to Berlin", "- old\n- lives in Berlin"))
    consolidator.memory.write_long_term("- old")
    session = talk(consolidator.sessions.get_or_create(KEY), "UAU")
    consolidator.sessions.save(session)
    with monkeypatch.context() as patch:
        crash_at(patch, moment[0], moment[1], after=moment[2])
        with pytest.raises(Crash):
            run(consolidator, session)
    assert consolidator.model.calls == 1


@pytest.mark.parametrize("moment", MOMENTS, ids=MOMENT_IDS)
def test_a_crash_is_finished_once_without_the_model(workspace, monkeypatch, run, moment):
    """cases/consolidation.md 30: from the answer's record on, a restart finishes it: one entry."""
    crashed(workspace, monkeypatch, run, moment)
    for _ in range(2):
        consolidator = opened(workspace)
        session = consolidator.sessions.get_or_create(KEY)
        assert run(consolidator, session) == []
        assert consolidator.model.calls == 0
        assert session.last_consolidated == 2
        assert texts(workspace) == ["moved to Berlin"]
        assert consolidator.memory.read_long_term() == "- old\n- lives in Berlin"
    assert kinds(workspace) == ["consolidation", "consolidated"]
    assert [kept.read_text() for kept in store_of(workspace).versions()] == ["- old"]


def test_a_crash_before_the_answer_s_record_asks_the_model_again(workspace, monkeypatch, run):
    """cases/consolidation.md 30: what was not recorded has not happened."""
    crashed(workspace, monkeypatch, run, (SessionManager, "commit", False))
    assert texts(workspace) == []
    consolidator = opened(workspace, save_memory("asked again", "- again"))
    assert len(run(consolidator, consolidator.sessions.get_or_create(KEY))) == 1
    assert texts(workspace) == ["asked again"]


@pytest.mark.parametrize("moment", MOMENTS, ids=MOMENT_IDS)
def test_an_edit_between_crash_and_restart_stays(workspace, monkeypatch, run, moment):
    """cases/consolidation.md 26: the person's lines are there, what they removed is not."""
    crashed(workspace, monkeypatch, run, moment)
    store = store_of(workspace)
    edit_memory(store, store.read_long_term().replace("- old", "- by hand"))
    consolidator = opened(workspace)
    run(consolidator, consolidator.sessions.get_or_create(KEY))
    memory = consolidator.memory.read_long_term()
    assert sorted(memory.splitlines()) == ["- by hand", "- lives in Berlin"]
    assert consolidator.model.calls == 0


@pytest.mark.parametrize("moment", MOMENTS[:4], ids=MOMENT_IDS[:4])
def test_a_memory_deleted_between_crash_and_restart(tmp_path, monkeypatch, run, moment):
    """cases/consolidation.md 26: a person may remove the file; only what is new comes back."""
    crashed(tmp_path, monkeypatch, run, moment)
    MemoryStore(tmp_path).memory_path.unlink()
    consolidator = opened(tmp_path)
    run(consolidator, consolidator.sessions.get_or_create(KEY))
    assert consolidator.memory.read_long_term() == "- lives in Berlin"


@pytest.mark.parametrize("moment", MOMENTS, ids=MOMENT_IDS)
def test_messages_that_came_after_the_crash_stay_unconsolidated(
    workspace, monkeypatch, run, moment
):
    """cases/consolidation.md 10, 30: the range is finished as it was planned, no more."""
    crashed(workspace, monkeypatch, run, moment)
    consolidator = opened(workspace)
    session = talk(consolidator.sessions.get_or_create(KEY), "A")
    run(consolidator, session)
    assert session.last_consolidated == 2
    assert [message["content"] for message in session.messages] == ["u0", "a1", "u2", "a3"]
    assert session.messages == opened(workspace).sessions.get_or_create(KEY).messages


def test_a_torn_record_of_the_answer_is_no_answer(tmp_path, monkeypatch, run):
    """cases/consolidation.md 30: half a line is cut off; the model is asked again."""
    crashed(tmp_path, monkeypatch, run, MOMENTS[0])
    content = journal_of(tmp_path).read_bytes()
    journal_of(tmp_path).write_bytes(content[:-20])
    consolidator = opened(tmp_path, save_memory("asked again", "- again"))
    assert len(run(consolidator, consolidator.sessions.get_or_create(KEY))) == 1
    assert texts(tmp_path) == ["asked again"]


def test_the_pointer_is_where_it_was(workspace, run):
    """cases/consolidation.md 12: after the cache is dropped, and in another manager."""
    consolidator = opened(workspace, save_memory())
    session = talk(consolidator.sessions.get_or_create(KEY), "UAUA")
    run(consolidator, session)
    del session
    consolidator.sessions.invalidate(KEY)
    assert consolidator.sessions.get_or_create(KEY).last_consolidated == 2
    assert opened(workspace).sessions.get_or_create(KEY).last_consolidated == 2
    again = opened(workspace, AssertionError("nothing is due"))
    assert run(again, talk(again.sessions.get_or_create("cli:other"), "U")) == []


# --- at once ---


def test_a_message_that_arrives_meanwhile_stays(workspace, run):
    """cases/consolidation.md 10: deferred use; the older object does not overwrite the newer."""
    consolidator = opened(workspace)
    session = talk(consolidator.sessions.get_or_create(KEY), "UAUA")
    other = opened(workspace)

    def reply(_messages):
        newer = talk(other.sessions.get_or_create(KEY), "UA")
        newer.metadata["mood"] = "good"
        other.sessions.save(newer)
        return save_memory()

    consolidator.model.replies[:] = [reply]
    assert [(one.start, one.end) for one in run(consolidator, session)] == [(0, 2)]
    talk(session, "U")
    session.messages[-1]["content"] = "last"
    consolidator.sessions.save(session)
    for sessions in (consolidator.sessions, opened(workspace).sessions):
        seen = sessions.get_or_create(KEY)
        said = [message["content"] for message in seen.messages]
        assert said == ["u0", "a1", "u2", "a3", "u4", "a5", "last"]
        assert (seen.last_consolidated, seen.metadata) == (2, {"mood": "good"})


def test_a_message_added_to_the_same_object_meanwhile_stays(workspace, run):
    """cases/consolidation.md 10: also unsaved ones of the live object."""
    consolidator = opened(workspace)
    session = talk(consolidator.sessions.get_or_create(KEY), "UAU")

    def reply(_messages):
        talk(session, "A")
        return save_memory()

    consolidator.model.replies[:] = [reply]
    assert [(one.start, one.end) for one in run(consolidator, session)] == [(0, 2)]
    assert (len(session.messages), session.last_consolidated) == (4, 2)
    consolidator.sessions.save(session)
    seen = opened(workspace).sessions.get_or_create(KEY)
    assert (len(seen.messages), seen.last_consolidated) == (4, 2)


def meeting(count):
    """Replies that wait for one another, so that all models think at the same time."""
    barrier = threading.Barrier(count)

    def reply(_messages):
        barrier.wait(20)
        return save_memory("entry", "- fact")

    return reply


def test_two_consolidators_at_once_leave_one_entry(workspace, run):
    """cases/consolidation.md 11: two objects, both models answer; one of them wins."""
    together = meeting(2)
    both = [opened(workspace, together) for _ in range(2)]
    talk(session := both[0].sessions.get_or_create(KEY), "UAU")
    both[0].sessions.save(session)
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda c: run(c, c.sessions.get_or_create(KEY)), both))
    assert sorted(map(len, done)) == [0, 1]
    assert texts(workspace) == ["entry"]
    assert kinds(workspace) == ["consolidation", "consolidated"]
    for consolidator in both:
        assert consolidator.sessions.get_or_create(KEY).last_consolidated == 2


def test_two_threads_of_one_consolidator_make_one_call(workspace, run):
    """cases/consolidation.md 11: the second goes on with the window as it is, without waiting."""
    consolidator = opened(workspace)
    session = talk(consolidator.sessions.get_or_create(KEY), "UAU")
    second = []

    def reply(_messages):
        second.append(ThreadPoolExecutor(1).submit(run, consolidator, session).result(20))
        return save_memory()

    consolidator.model.replies[:] = [reply]
    assert len(run(consolidator, session)) == 1
    assert second == [[]]
    assert consolidator.model.calls == 1
    assert texts(workspace) == ["entry"]


def test_other_sessions_go_on_meanwhile(workspace, run):
    """Locks never span a model call: others save, consolidate and edit while one thinks."""
    consolidator = opened(workspace)
    session = talk(consolidator.sessions.get_or_create(KEY), "UAU")
    other = talk(consolidator.sessions.get_or_create("cli:other"), "UAU")

    def reply(_messages):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(consolidator.sessions.save, talk(session, "A")).result(20)
            assert len(pool.submit(run, consolidator, other).result(20)) == 1
        return save_memory("slow", "- fact\n- slow")

    after = save_memory("slow", "- fast\n- slow")
    consolidator.model.replies[:] = [reply, save_memory("fast", "- fast"), after]
    assert len(run(consolidator, session)) == 1
    assert sorted(texts(workspace)) == ["fast", "slow"]
    assert consolidator.memory.read_long_term() == "- fast\n- slow"
    assert consolidator.model.calls == 3


def test_many_sessions_share_one_memory(workspace, run):
    """Eight sessions at once: each entry once, and each fact in MEMORY.md."""

    def reply(messages):
        question = messages[1].content
        known = question.split("<current_memory>\n")[1].split("\n</current_memory>")[0]
        own = question.split("user: of ")[1].split()[0]
        lines = [] if known == "(empty)" else known.splitlines()
        return save_memory(f"entry {own}", "\n".join([*lines, f"- {own}"]))

    consolidator = opened(workspace, reply)

    def one(number):
        session = talk(consolidator.sessions.get_or_create(f"cli:{number}"), "UAU")
        session.messages[0]["content"] = f"of s{number} now"
        return run(consolidator, session)

    with ThreadPoolExecutor(8) as pool:
        assert all(len(done) == 1 for done in pool.map(one, range(8)))
    assert sorted(texts(workspace)) == [f"entry s{number}" for number in range(8)]
    lines = consolidator.memory.read_long_term().splitlines()
    assert sorted(lines) == [f"- s{number}" for number in range(8)]


# --- real processes ---

KILLED = """
import json, os, signal, sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from scripted import consolidator_of, save_memory, talk

from langchain_nanomem.tokens import TokenCounter

TokenCounter().count_text("so that no child has to load the vocabulary")

def kill_at(number):
    calls = 0
    def counted(name):
        real = getattr(os, name)
        def call(*args, **options):
            nonlocal calls
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)
        setattr(os, name, call)
    for name in ("write", "replace", "rename", "unlink", "fsync", "fdatasync", "ftruncate"):
        counted(name)

def consolidate(path, number):
    def reply(_messages):
        kill_at(number)
        return save_memory("moved to Berlin", "- old\\n- lives in Berlin")

    consolidator = consolidator_of(path, reply)
    consolidator.memory.write_long_term("- old")
    session = talk(consolidator.sessions.get_or_create("cli:user"), "UAU")
    consolidator.sessions.save(session)
    consolidator.maybe_consolidate_by_tokens(session)

for number in range(1, 60):
    path = Path(sys.argv[2], str(number))
    child = os.fork()
    if child == 0:
        consolidate(path, number)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(number, status, flush=True)
    if status == 0:
        break
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_process_is_finished_by_the_next(tmp_path):
    """cases/consolidation.md 30: SIGKILL at each write, sync and rename of a real process."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", KILLED, str(TESTS), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=TESTS.parent,
    )
    assert done.returncode == 0, done.stderr
    outcomes = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(outcomes) > 8
    assert {status for _, status in outcomes[:-1]} == {-signal.SIGKILL}
    assert outcomes[-1][1] == 0
    asked = 0
    for number, _ in outcomes:
        path = tmp_path / str(number)
        consolidator = opened(path, save_memory("moved to Berlin", "- old\n- lives in Berlin"))
        session = consolidator.sessions.get_or_create(KEY)
        consolidator.maybe_consolidate_by_tokens(session)
        asked += consolidator.model.calls
        assert texts(path) == ["moved to Berlin"]
        assert consolidator.memory.read_long_term() == "- old\n- lives in Berlin"
        assert session.last_consolidated == 2
        assert kinds(path) == ["consolidation", "consolidated"]
    assert asked <= 2  # only until the answer's record is on the disk
