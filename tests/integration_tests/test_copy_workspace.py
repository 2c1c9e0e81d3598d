"""Months of dialogue, copied from files into PostgreSQL and back: equal, and the graphs resume."""

from __future__ import annotations

import asyncio
import operator
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated, NamedTuple

import pytest
from checkpoint_graph import at, told_of
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

import langchain_nanomem
from langchain_nanomem import Nanomem, acopy_workspace, copy_workspace
from langchain_nanomem.demo import load_conversation
from langchain_nanomem.demo.locomo import load_locomo
from langchain_nanomem.values import dump_record
from langchain_nanomem.workspaces import open_workspace

QUESTION = "May I go?"
KILLS = 8
COPY = """
import sys
from langchain_nanomem import copy_workspace, session_copy

session_copy._BATCH_BYTES = 50_000  # so that a session is written in several parts
source, target = (place.split(" ") for place in sys.argv[1:])
tell = lambda *told: print(*told, flush=True)
places = {"source_schema": (source + [None])[1], "target_schema": (target + [None])[1]}
print("done", copy_workspace(source[0], target[0], progress=tell, **places), flush=True)
"""


class State(MessagesState):
    notes: Annotated[list[str], operator.add]


class Played(NamedTuple):
    workspace: Path
    turns: dict[str, int]
    """How many each thread has."""


def conversations():
    """Those of the LoCoMo file that the environment names; else the demonstration's own."""
    path = os.environ.get("NANOMEM_LOCOMO", "")
    return load_locomo(path)[:6] if Path(path).is_file() else [load_conversation()]


def memory_in(place, schema=None):
    return Nanomem(
        place, model="extractive", scope="user", context_window_tokens=6_000, schema=schema
    )


def graph_of(memory, answers=()):
    """A graph that answers what it is given, asks a person at the end, and notes each turn."""
    replies = iter(answers)

    def chat(state, config):
        memory.prompt.invoke(state, config)
        asked = state["messages"][-1].content == QUESTION
        return {"messages": [("ai", interrupt("Let go?") if asked else next(replies))]}

    def note(state):
        return {"notes": [str(len(state["messages"]))]}

    builder = StateGraph(State).add_node("chat", chat).add_node("note", note)
    builder.add_edge(START, "chat").add_edge(START, "note")
    return builder.compile(checkpointer=memory.checkpointer)


def of_user(thread):
    return {"configurable": {"thread_id": thread, "user_id": thread}}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """All conversations, in each of which an interrupt waits beside a pending write."""
    workspace = tmp_path_factory.mktemp("played") / "workspace"
    turns = {}
    with memory_in(workspace) as memory:
        for number, one in enumerate(conversations()):
            said = [turn for day in one.days for turn in day.turns]
            graph = graph_of(memory, [turn.assistant for turn in said])
            thread = f"Locomo:{number}"
            for turn in said:
                question = ("user", turn.user)
                graph.invoke({"messages": [question]}, of_user(thread), durability="exit")
            left = graph.invoke({"messages": [("user", QUESTION)]}, of_user(thread))
            assert left["__interrupt__"]
            turns[thread] = len(said) + 1
    return Played(workspace, turns)


@pytest.fixture
def database(databases):
    """A URL, and a schema of its own."""
    yield databases.url, databases.schema()
    databases.drop()


def kept_in(place, schema=None):
    """All that is kept in a place: each record of each session, each memory."""
    opened = open_workspace(place, schema)
    sessions = {
        info.key: ([*map(dump_record, opened.journal.read(info.key)[0])], info.updated_at)
        for info in opened.journal.list()
    }
    memories = {}
    for memory in opened.memory.all():
        versions = [(v.version, v.archived_at, v.change, v.read_bytes()) for v in memory.versions()]
        log = [(e.at, e.text, e.entry_id, e.source) for e in memory.entries()]
        memories[memory.name] = (memory.current(), versions, log)
    opened.close()
    return sessions, memories


def checkpoints_in(memory, threads):
    return [
        told_of(found)
        for thread in threads
        for found in memory.checkpointer.list(at(thread), limit=20)
    ]


@pytest.fixture
def copied(colour):
    """Copies in one colour."""
    if colour == "sync":
        return copy_workspace
    return lambda *places, **schemas: asyncio.run(acopy_workspace(*places, **schemas))


def resume(colour, memory, thread):
    graph, answer = graph_of(memory), Command(resume="go")
    if colour == "sync":
        return graph.invoke(answer, of_user(thread))
    return asyncio.run(graph.ainvoke(answer, of_user(thread)))


def test_a_workspace_comes_back_equal_and_its_graphs_resume(
    played, database, tmp_path, colour, copied
):
    """Files, database and files again: the same records, checkpoints and memories.

    In the database and in the last files each interrupt that waited is resumed, what was done
    beside it is not done again, and the conversation goes on.
    """
    (url, schema), back = database, tmp_path / "back"
    there = copied(played.workspace, url, target_schema=schema)
    assert there == copied(url, back, source_schema=schema)
    original = kept_in(played.workspace)
    assert kept_in(url, schema) == original
    assert kept_in(back) == original
    assert there.sessions == len(played.turns)
    assert there.records == sum(len(records) for records, _ in original[0].values())
    assert there.memories == len(played.turns)
    assert there.entries > 0
    with (
        memory_in(played.workspace) as first,
        memory_in(url, schema) as second,
        memory_in(back) as third,
    ):
        told = checkpoints_in(first, played.turns)
        assert any(found["writes"] for found in told)
        for memory in (second, third):
            assert checkpoints_in(memory, played.turns) == told
            for thread, turns in played.turns.items():
                state = resume(colour, memory, thread)
                assert [m.content for m in state["messages"][-2:]] == [QUESTION, "go"]
                assert len(state["messages"]) == 2 * turns
                assert len(state["notes"]) == turns
    assert kept_in(played.workspace) == original


def interrupted_copy(source, target, after_lines, after_seconds):
    """Copies in a process that is killed; whether that came before its end."""
    root = Path(langchain_nanomem.__file__).parent.parent
    process = subprocess.Popen(
        [sys.executable, "-c", COPY, source, target],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
    )
    for _ in range(after_lines):
        process.stdout.readline()
    try:
        process.wait(after_seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode in {0, -signal.SIGKILL}
    return process.returncode != 0


@pytest.mark.parametrize("direction", ["into the database", "out of it"])
def test_a_copy_that_is_killed_goes_on(played, database, tmp_path, direction):
    """After SIGKILLs at any moment the next call ends as if there had been none."""
    chance = random.Random(4)
    (url, schema), back = database, str(tmp_path / "back")
    source, target = str(played.workspace), f"{url} {schema}"
    if direction == "out of it":
        copy_workspace(source, url, target_schema=schema)
        source, target = target, back
    kills = [
        interrupted_copy(source, target, 1 + number // 2, chance.uniform(0, 0.05))
        for number in range(KILLS)
    ]
    assert sum(kills) >= KILLS // 2
    schemas = {"source_schema": schema} if target == back else {"target_schema": schema}
    done = copy_workspace(source.split()[0], target.split()[0], **schemas)
    assert done.unchanged > 0
    assert kept_in(*target.split()) == kept_in(played.workspace)
