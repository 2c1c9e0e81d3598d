"""Files whose last records an interrupted process, or a power loss, has cut anywhere."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import pytest
from checkpoint_graph import at, call, extended, made, told_of
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, StateGraph

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.file_journal import FileJournal
from langchain_nanomem.manager import SessionManager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CALLS = [{"name": "look", "args": {"for": ["tea", 1.5, None]}, "id": "c", "type": "tool_call"}]
MESSAGES = {
    "plain": [HumanMessage("Hi.", id="h"), AIMessage("Hello.", id="a")],
    "tools": [
        AIMessage("", id="a", tool_calls=CALLS),
        ToolMessage("tea", tool_call_id="c", id="t", artifact=(b"\x00", {"k": 1})),
    ],
    "non-ASCII": [HumanMessage("Zoë → 😀\u2028\x00\ud800", id="ü"), AIMessage("ß" * 30, id="a")],
    "encrypted": [HumanMessage("secret", id="h"), AIMessage("no one knows", id="a")],
}
LONG = [HumanMessage("word " * 14_000, id="long")]
"""So long that a workspace may keep more of a session than its own file."""
KINDS = [*MESSAGES, "delta", "long"]
LAST = 3
"""How many of the last records are cut."""


def serializer(kind: str) -> EncryptedSerializer | None:
    key = b"0123456789abcdef"
    return EncryptedSerializer.from_pycryptodome_aes(key=key) if kind == "encrypted" else None


def reopened(workspace: Path, kind: str) -> NanomemSaver:
    """A saver as another process would have it; that it waits for no disk makes no difference."""
    journal = FileJournal(workspace, fsync="none")
    return NanomemSaver(SessionManager(journal), serde=serializer(kind))


def newest(workspace: Path, kind: str) -> Any:
    """What a new process is told of the thread's newest checkpoint."""
    found = reopened(workspace, kind).get_tuple(at("a"))
    return told_of(found) if found else None


def shown(workspace: Path, kind: str) -> list[Any]:
    """All that a new process is told of the thread, newest first, and of its session."""
    saver = reopened(workspace, kind)
    session = saver.sessions.get_or_create("a").messages
    return [told_of(found) for found in saver.list(at("a"))] + [session]


class Noting(NanomemSaver):
    """Notes after each call how long the file is; one call at a time."""

    sizes: list[int]

    def put(self, config, checkpoint, metadata, new_versions):
        with self.noting():
            return super().put(config, checkpoint, metadata, new_versions)

    def put_writes(self, config, writes, task_id, task_path=""):
        with self.noting():
            super().put_writes(config, writes, task_id, task_path)

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        journal = self.sessions.journal
        with journal.lock("a"):
            yield
            self.sizes.append(journal.path("a").stat().st_size)


def fill(workspace: Path, kind: str) -> list[int]:
    """Put a thread there; how long its file was after each call."""
    saver = Noting(SessionManager(workspace), serde=serializer(kind))
    saver.sizes = []
    if kind == "delta":
        build_small(saver).invoke({"log": ["ü"]}, at("a"), durability="sync")
        return saver.sizes
    messages, config = MESSAGES.get(kind, [*LONG, *MESSAGES["plain"]]), at("a")
    for number in range(3):
        checkpoint = made(str(number), messages=messages[:number], log=[number])
        config = saver.put(config, checkpoint, {"step": number}, checkpoint["channel_versions"])
        saver.put_writes(config, [("messages", messages[number:])], f"task {number}", "path")
    return saver.sizes


class SmallState(TypedDict):
    log: Annotated[list[str], DeltaChannel(extended, snapshot_frequency=2)]


def build_small(saver: NanomemSaver) -> Any:
    """A graph of two nodes and of few bytes, whose state is rebuilt from its writes."""
    builder = StateGraph(SmallState)
    builder.add_node("a", lambda _: {"log": ["a→"]})
    builder.add_node("b", lambda state: {"log": [f"b{len(state['log'])}"]})
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    return builder.compile(checkpointer=saver)


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    return request.param


class Cuts:
    """A thread's file, cut in its last records."""

    def __init__(self, workspace: Path, kind: str) -> None:
        self.sizes = fill(workspace, kind)
        self.path = FileJournal(workspace).path("a")
        self.content = self.path.read_bytes()
        assert len(self.content) == self.sizes[-1]

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.sizes[-1], self.sizes[-LAST - 1] - 1, -1))

    def cut(self, end: int, zeros: int = 0) -> None:
        """Have the file end there, or in so many zeros behind it."""
        with self.path.open("r+b") as file:  # emptying it first is slow on some disks
            file.write(self.content[:end] + bytes(zeros))
            file.truncate()

    def states(self, show: Callable[[], Any]) -> dict[int, Any]:
        """What is shown after each of the last calls, by the length of the file."""
        found = {}
        for size in self.sizes[-LAST - 1 :]:
            self.cut(size)
            found[size] = show()
        return found

    def expected(self, states: dict[int, Any], end: int) -> list[Any]:
        """What may be shown of so much of it: whole records; a line end needn't be there."""
        return [states[max(size for size in states if size <= end)], states.get(end + 1)]


@pytest.mark.parametrize("zeros", [0, 70])
def test_a_cut_at_every_byte(tmp_path, kind, zeros):
    """cases/checkpointer.md 16: all up to a record is there; so with zeros from a power loss."""
    cuts = Cuts(tmp_path, kind)
    states = cuts.states(lambda: newest(tmp_path, kind))
    for end in cuts:
        cuts.cut(end, zeros)
        assert newest(tmp_path, kind) in cuts.expected(states, end)


async def test_a_thread_goes_on_after_a_cut(tmp_path, kind, colour):
    """cases/checkpointer.md 15, 16: no put without the writes before it; a new one follows it."""
    cuts = Cuts(tmp_path, kind)
    states = cuts.states(lambda: shown(tmp_path, kind))
    new = made("9" * 36, messages=[HumanMessage("on", id="on")])
    for end, zeros in zip(list(cuts)[::11], itertools.cycle([0, 1, 5000])):
        cuts.cut(end, zeros)
        left = shown(tmp_path, kind)
        assert left in cuts.expected(states, end)
        config, saver = at("a", "", left[0]["id"]), reopened(tmp_path, kind)
        config = await call(colour, saver, "put", config, new, {"step": 9}, new["channel_versions"])
        await call(colour, saver, "put_writes", config, [("messages", ["more"])], "t")
        now = shown(tmp_path, kind)
        assert now[1:-1] == left[:-1]
        assert (now[0]["id"], now[0]["parent"]) == (new["id"], left[0]["id"])
        assert [write[:2] for write in now[0]["writes"]] == [("t", "messages")]


async def test_a_graph_goes_on_after_a_cut(tmp_path, colour):
    """cases/checkpointer.md 16: what was broken off is run again, to the same end."""
    cuts = Cuts(tmp_path, "delta")
    for end in list(cuts)[::11]:
        cuts.cut(end)
        graph = build_small(reopened(tmp_path, "delta"))
        await call(colour, graph, "invoke", None, at("a"))
        assert (await call(colour, graph, "get_state", at("a"))).values["log"] == ["ü", "a→", "b2"]
