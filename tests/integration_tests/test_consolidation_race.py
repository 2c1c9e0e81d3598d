"""Several workers consolidate the same sessions at once: each range gets one entry."""

from __future__ import annotations

import collections
import re

import pytest
import warm
from langchain_core.messages import HumanMessage
from stores import workspace_at

from langchain_nanomem.manager import SessionManager
from langchain_nanomem.memory import MemoryStore

pytestmark = pytest.mark.back_ends("files", "postgres")

ROUNDS = 40
MESSAGES = 9

WORKER = """
import sys, time
from scripted import ScriptedChatModel, consolidator_of, save_memory
from stores import workspace_at

class Slow(ScriptedChatModel):
    def _generate(self, *args, **options):
        time.sleep(0.02)
        return super()._generate(*args, **options)

name = sys.argv[2]
replies = [save_memory(f"{name} wrote {n}", f"- {name} knew {n}") for n in range(999)]
journal = workspace_at(sys.argv[1]).journal
model = Slow(replies=replies)
consolidator = consolidator_of(sys.argv[1], journal=journal, model=model, window=400)
print("ready", flush=True)
for line in sys.stdin:
    session = consolidator.sessions.get_or_create(line.strip())
    print(len(consolidator.compact(session)), model.calls, flush=True)
"""


@pytest.fixture
def start(address):
    """Starts workers, which consolidate the session whose key they are told."""
    started = []

    def start(name, code=WORKER):
        process = warm.Process(code, [address, name])
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def tell(process, key):
    process.stdin.write(f"{key}\n")
    process.stdin.flush()


def begin(sessions, key):
    sessions.append_messages(key, [HumanMessage(f"{key} {n}") for n in range(MESSAGES)])


def ranges_of(store):
    """The ranges that are logged of each session, in their order."""
    found = collections.defaultdict(list)
    for entry in store.history_entries():
        key, start, end = re.fullmatch(r"(.*) (\d+)-(\d+)", entry.source).groups()
        found[key].append((int(start), int(end)))
    return {key: sorted(ranges) for key, ranges in found.items()}


def test_one_entry_a_range(address, start):
    """Two workers at the same session at the same moment, again and again: one is faster."""
    place = workspace_at(address)
    sessions, store = SessionManager(place.journal), MemoryStore(place.memory)
    workers = [start("a"), start("b")]
    done = 0
    for number in range(ROUNDS):
        key = f"c:{number}"
        begin(sessions, key)
        for worker in workers:
            tell(worker, key)
        told = [[*map(int, worker.stdout.readline().split())] for worker in workers]
        done += sum(count for count, _ in told)
    expected = {f"c:{number}": [(0, MESSAGES - 1)] for number in range(ROUNDS)}
    assert ranges_of(store) == expected
    assert done == ROUNDS
    assert sum(calls for _, calls in told) > ROUNDS, "each was alone all the time"
    assert {sessions.get_or_create(key).last_consolidated for key in expected} == {MESSAGES - 1}
    changes = [version.change_id for version in store.versions()]
    assert len(changes) == len(set(changes)) == ROUNDS
    place.close()


DIES = """
import os
from langchain_nanomem.{module} import {owner}
real = {owner}.{method}
def dying(*args, **options):
    if {before}:
        os._exit(9)
    real(*args, **options)
    os._exit(9)
{owner}.{method} = dying
"""
DYING = {
    "asked": "import os\nimport scripted\n"
    "scripted.ScriptedChatModel._generate = lambda *_, **__: os._exit(9)\n",
    "answered": DIES.format(module="applying", owner="Applier", method="apply", before=True),
    "logged": DIES.format(
        module="memory", owner="MemoryStore", method="append_history", before=False
    ),
    "remembered": DIES.format(
        module="memory", owner="MemoryStore", method="replace_long_term", before=False
    ),
}


@pytest.mark.parametrize("moment", ["asked", "answered", "logged", "remembered"])
def test_a_worker_that_dies_holds_nothing_up(address, start, moment):
    """Killed with a session under way: the next worker does it at once, and once."""
    place = workspace_at(address)
    sessions, store = SessionManager(place.journal), MemoryStore(place.memory)
    dying = start("a", f"{DYING[moment]}\n{WORKER}")
    begin(sessions, "c:0")
    tell(dying, "c:0")
    assert dying.wait() == 9
    other = start("b")
    tell(other, "c:0")
    assert other.stdout.readline()
    assert ranges_of(store) == {"c:0": [(0, MESSAGES - 1)]}
    assert sessions.get_or_create("c:0").last_consolidated == MESSAGES - 1
    who = "b" if moment == "asked" else "a"
    assert store.read_long_term() == f"- {who} knew 0"
    assert [version.read_text() for version in store.versions()] == [""]
    place.close()
