"""The index beside a journal: it makes opening quick, and is never the truth."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.errors import CorruptRecordError, NanomemError
from langchain_nanomem.manager import SessionManager

CONFIG = {"configurable": {"thread_id": "chat:1"}}
STEM = "chat%3a1"


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]
    notes: list[Any]


def graph_of(saver):
    builder = StateGraph(State)
    builder.add_node(
        "answer",
        lambda state: {"messages": [AIMessage("a" * 900)], "notes": [len(state["messages"])]},
    )
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


def run(workspace, turns):
    graph = graph_of(NanomemSaver(SessionManager(workspace)))
    for turn in range(turns):
        graph.invoke({"messages": [HumanMessage(f"{turn} " * 100)]}, CONFIG)


def everything(workspace):
    """All that a new process reads of the thread."""
    saver = NanomemSaver(SessionManager(workspace))
    session = saver.sessions.get_or_create("chat:1")
    return list(saver.list(CONFIG)), session.messages, session.last_consolidated


@pytest.fixture
def index(tmp_path):
    run(tmp_path, 40)
    return tmp_path / ".index" / f"{STEM}.json"


def test_a_long_journal_has_an_index(tmp_path, index):
    """It tells where records lie, says nothing of what they say, and only its owner reads it."""
    content = index.read_bytes()
    assert index.stat().st_mode & 0o777 == 0o600
    assert index.parent.stat().st_mode & 0o777 == 0o700
    assert b"a" * 40 not in content
    journal = tmp_path / "sessions" / f"{STEM}.jsonl"
    assert len(content) < journal.stat().st_size / 4


def test_a_short_journal_has_none(tmp_path):
    """Most sessions are short; they are read in no time."""
    run(tmp_path, 2)
    assert not (tmp_path / ".index").exists()


def test_what_is_read_through_it_is_what_is_there(tmp_path, index):
    """Every checkpoint and every message, with an index and without; the next write makes one."""
    through_it = everything(tmp_path)
    index.unlink()
    assert everything(tmp_path) == through_it
    assert not index.exists()
    run(tmp_path, 1)
    assert index.exists()
    assert everything(tmp_path)[0][3:] == through_it[0]


DAMAGE = {
    "empty": lambda _: b"",
    "cut": lambda content: content[:-100],
    "zeros": lambda content: bytes(len(content)),
    "one byte changed": lambda content: content[:200] + b"?" + content[201:],
    "something else": lambda _: b"not an index at all",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_one_is_passed_over(tmp_path, index, damage):
    """Whatever became of it, the journal is read from its start, and it is made anew."""
    sound = everything(tmp_path)
    index.write_bytes(damage(index.read_bytes()))
    assert everything(tmp_path) == sound
    run(tmp_path, 1)
    assert len(everything(tmp_path)[0]) == len(sound[0]) + 3


def test_one_of_another_journal_is_passed_over(tmp_path, index):
    """A journal that was put in place of the one it was made of is read from its start."""
    journal = tmp_path / "sessions" / f"{STEM}.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    aside = tmp_path / "aside"
    aside.write_bytes(b"".join(lines[:60]))
    aside.replace(journal)
    found = everything(tmp_path)[0]
    assert 0 < len(found) < 60
    index.unlink()
    assert everything(tmp_path)[0] == found


def test_an_older_one_serves_for_what_it_knows(tmp_path, index):
    """What was appended since is read behind it."""
    old = index.read_bytes()
    run(tmp_path, 40)
    new = everything(tmp_path)
    index.write_bytes(old)
    assert everything(tmp_path) == new


def test_it_goes_with_the_session(tmp_path, index):
    """Deleting, clearing and pruning leave nothing of it that tells of what is gone."""
    manager = SessionManager(tmp_path)
    manager.delete("chat:1")
    assert not index.exists()
    run(tmp_path, 40)
    saver = NanomemSaver(manager)
    ids = [found.config["configurable"]["checkpoint_id"] for found in saver.list(CONFIG)]
    saver.prune(["chat:1"])
    assert not index.exists() or ids[5].encode() not in index.read_bytes()
    assert len(everything(tmp_path)[0]) == 1


def test_a_read_only_place_is_read_without_one(tmp_path, index):
    """Where no index can be kept, reading works as it does with one."""
    sound = everything(tmp_path)
    index.unlink()
    index.parent.rmdir()
    index.parent.write_bytes(b"in the way")
    assert everything(tmp_path) == sound
    run(tmp_path, 1)
    assert len(everything(tmp_path)[0]) == len(sound[0]) + 3


def test_lines_that_moved_in_place_are_noticed(tmp_path, index):
    """A file damaged in place, of the same length and end: an error, the next names the line."""
    journal = tmp_path / "sessions" / f"{STEM}.jsonl"
    content = journal.read_bytes()
    first = content.index(b'{"role":"user"')
    moved = content[:first] + content[first + 1 : first + 40] + b"{" + content[first + 40 :]
    assert len(moved) == len(content)
    with journal.open("r+b") as file:
        file.write(moved)
    with pytest.raises(NanomemError, match="is not where it was in its file"):
        everything(tmp_path)
    with pytest.raises(CorruptRecordError, match="line"):
        everything(tmp_path)
    with journal.open("r+b") as file:
        file.write(content)
    assert everything(tmp_path)[0]


def test_it_grows_with_what_is_new(tmp_path, index):
    """It is small beside the journal, however long that is."""
    run(tmp_path, 120)
    journal = tmp_path / "sessions" / f"{STEM}.jsonl"
    assert index.stat().st_size < journal.stat().st_size / 5
    assert json.loads(index.read_bytes()[16:])["v"] == 3
