"""A person edits a thread's file: its checkpoints stay what they were, or an error says so."""

from __future__ import annotations

import hashlib
import json

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.elements import Elements
from langchain_nanomem.errors import NanomemError
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.records import SessionRecords
from langchain_nanomem.records_index import restore_index

CONFIG = {"configurable": {"thread_id": "chat", "checkpoint_ns": ""}}
TURNS = 120


def said(number):
    return HumanMessage(f"{number:04} {'x' * (600 + number % 2 * 50)}", id=f"{number}")


def put(saver, messages):
    checkpoint = {**empty_checkpoint(), "id": str(uuid6())}
    versions = {"messages": saver.get_next_version(None, None)}
    checkpoint |= {"channel_values": {"messages": messages}, "channel_versions": versions}
    return saver.put(CONFIG, checkpoint, {"source": "loop", "step": 1, "parents": {}}, versions)


class Thread:
    """A thread that is long enough for an index, and its file."""

    def __init__(self, workspace):
        self.workspace = workspace
        self.journal = workspace / "sessions" / "chat.jsonl"
        self.index = workspace / ".index" / "chat.json"
        self.saver = self.new_process()
        self.messages = []
        for number in range(TURNS):
            self.messages.append(said(number))
            self.last = put(self.saver, list(self.messages))
        self.all = self.shown(self.saver)
        assert self.index.exists()

    def new_process(self):
        return NanomemSaver(SessionManager(self.workspace))

    def shown(self, saver):
        return [found.checkpoint["channel_values"]["messages"] for found in saver.list(CONFIG)]

    def go_on(self, saver):
        """One more checkpoint; then all of them as a new process reads them."""
        more = [*saver.get_tuple(CONFIG).checkpoint["channel_values"]["messages"], said(TURNS)]
        put(saver, more)
        assert more == [*self.messages, said(TURNS)]
        assert self.shown(self.new_process()) == [more, *self.all]

    def edit(self, change):
        """Write it in place, as many editors do: it is the same file afterwards."""
        lines = self.journal.read_bytes().splitlines(keepends=True)
        change(lines)
        with self.journal.open("r+b") as file:
            file.write(b"".join(lines))
            file.truncate()

    def line_of(self, lines, number):
        """The place of a message's line."""
        return next(n for n, line in enumerate(lines) if f'"{number:04} '.encode() in line)


@pytest.fixture
def thread(tmp_path):
    return Thread(tmp_path)


BY_HAND = b'{"role":"user","content":"by hand"}\n'
HARMLESS = {
    "a line put between": lambda lines: lines.insert(9, BY_HAND),
    "lines put between": lambda lines: lines.__setitem__(slice(9, 9), [BY_HAND, BY_HAND]),
    "a line doubled": lambda lines: lines.insert(9, lines[7]),
    "all lines doubled": lambda lines: lines.__setitem__(slice(9, 9), lines[1:9]),
    "a line added": lambda lines: lines.append(BY_HAND),
    "no end of the last line": lambda lines: lines.__setitem__(-1, lines[-1].rstrip()),
    "empty lines": lambda lines: lines.__setitem__(slice(9, 9), [b"\n", b"  \n"]),
    "other ends of lines": lambda lines: lines.__setitem__(
        slice(None), [line.replace(b"\n", b"\r\n") for line in lines]
    ),
    "a mark in front": lambda lines: lines.insert(0, b"\xef\xbb\xbf"),
}


@pytest.mark.parametrize("has_read", [True, False], ids=["it was open", "it is opened"])
@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
def test_what_is_added_by_hand_moves_nothing(thread, change, has_read):
    """Each checkpoint is made of the lines it was made of, whatever was put between them."""
    thread.edit(change)
    saver = thread.saver if has_read else thread.new_process()
    assert thread.shown(saver) == thread.all
    thread.go_on(saver)


def test_a_checkpoint_may_hold_what_was_put_between(thread):
    """A line of a person's is a message like others, to this process and to those after it."""
    thread.edit(lambda lines: lines.insert(9, BY_HAND.replace(b"}", b',"id":"own"}')))
    for _ in range(3):
        saver = thread.new_process()
        put(saver, [*thread.messages, HumanMessage("by hand", id="own")])
    shown = thread.shown(thread.new_process())
    assert shown[0] == [*thread.messages, HumanMessage("by hand", id="own")]
    assert shown[3:] == thread.all
    saver.prune(["chat"])
    assert thread.shown(thread.new_process()) == shown[:1]


@pytest.mark.parametrize("has_read", [True, False], ids=["it was open", "it is opened"])
@pytest.mark.parametrize("pair", [(20, 22), (20, 23)], ids=["of one length", "of two lengths"])
def test_lines_that_changed_places_are_never_taken_for_each_other(thread, pair, has_read):
    """In place, of the same length and end: an error once at most, and then it is as it was."""

    def swap(lines):
        one, other = (thread.line_of(lines, number) for number in pair)
        lines[one], lines[other] = lines[other], lines[one]

    saver = thread.saver if has_read else thread.new_process()
    thread.edit(swap)
    assert second_try(lambda: thread.shown(saver)) == thread.all
    assert second_try(lambda: thread.shown(thread.new_process())) == thread.all
    thread.go_on(saver)


def second_try(read):
    """What is read, if need be after an error that says that it will be there now."""
    try:
        return read()
    except NanomemError as error:
        told = str(error)
    assert "is not where it was in its file" in told
    return read()


MALFORMED = [
    {"_type": "checkpoint"},
    {"_type": "checkpoint", "ns": "", "id": 5, "versions": {}, "values": {}},
    {"_type": "checkpoint", "ns": "", "id": "zz", "versions": [], "values": {}},
    {"_type": "writes"},
    {"_type": "writes", "ns": "", "id": "x", "task": "t", "path": "", "writes": [5]},
    {"_type": "consolidated"},
]


@pytest.mark.parametrize("record", MALFORMED, ids=str)
def test_a_record_that_lacks_something_is_named(thread, record):
    """The error says of which type it is and where it stands; without it all is as it was."""
    size = thread.journal.stat().st_size
    thread.edit(lambda lines: lines.append(json.dumps(record).encode() + b"\n"))
    for saver in (thread.saver, thread.new_process()):
        with pytest.raises(NanomemError, match=f"{record['_type']}' at byte {size} of its file"):
            thread.shown(saver)
    thread.edit(lambda lines: lines.pop())
    assert thread.shown(thread.saver) == thread.all
    thread.go_on(thread.saver)


def named(content):
    """An index that looks whole, as none but a program writes it."""
    return hashlib.blake2b(content, digest_size=16).digest() + content


def test_a_sound_index_is_taken_up(thread):
    """One that nobody forged is: the file is not read from its start."""
    records = SessionRecords("chat", dict)
    restore_index(records, thread.index.read_bytes()[16:], Elements().serde)
    assert records.end.offset > 65_536


def column(name, place, column, value):
    """Makes one address of the elements another one."""

    def change(index):
        index[name][1][column][place] = value

    return change


FORGED = {
    "no object": lambda _: [],
    "no Unicode": lambda _: b"\xff\xfe",
    "nothing": lambda _: b"",
    "a place before the file": column("elements", 5, 0, -10),
    "a place far behind it": column("elements", 5, 0, 10**30),
    "an endless record": column("elements", 5, 1, 10**15),
    "the place of another record": column("elements", 5, 0, 3),
    "a place that is text": column("elements", 5, 0, "5"),
    "other numbers": lambda index: index["elements"][0].reverse(),
    "no numbers": lambda index: index["elements"][0].__setitem__(3, None),
    "fewer numbers": lambda index: index["elements"][0].pop(),
    "a next number that is taken": lambda index: index.update(next=0),
    "a next number that is text": lambda index: index.update(next="9"),
    "an end that is none": lambda index: index.update(end=[10**9, "00"]),
    "an end before the file": lambda index: index.update(end=[-5, "00"]),
    "an end at the start": lambda index: index.update(end=[0, ""]),
    "a mark that is none": lambda index: index.update(end=[5, "zz"]),
    "a header that is none": lambda index: index.update(header=5),
    "nothing but its version": lambda index: [index.pop(name) for name in [*index][1:]] and None,
    "another version": lambda index: index.update(v="1"),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_an_index_that_says_what_is_not_so_is_given_up(thread, forge):
    """What it says wrong is an error once at most; nothing wrong is ever read through it."""
    index = json.loads(thread.index.read_bytes()[16:])
    forged = forge(index)
    content = forged if isinstance(forged, bytes) else json.dumps(forged or index).encode()
    thread.index.write_bytes(named(content if forged != [] else b"[]"))
    assert second_try(lambda: thread.shown(thread.new_process())) == thread.all
    thread.go_on(thread.new_process())
