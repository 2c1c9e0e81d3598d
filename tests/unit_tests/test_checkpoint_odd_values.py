"""What programs set in place that no such message can have, and values that only look equal."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass

import pytest
from langchain_core.messages import AIMessage, ChatMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from twin import assert_same_tuples

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.manager import SessionManager

pytestmark = pytest.mark.back_ends("files", "postgres")

CONFIG = {"configurable": {"thread_id": "chat", "checkpoint_ns": ""}}
LONG = "x" * 300
# Pydantic warns when LangGraph's serializer takes such a message to pieces.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")


class Both:
    """Puts to both savers, and compares what they give."""

    def __init__(self, workspace):
        self.workspace = workspace
        self.savers = [NanomemSaver(SessionManager(workspace)), InMemorySaver()]
        self.versions = {}
        self.places = []

    def put(self, checkpoint_id=None, **values):
        ours = self.savers[0]
        for channel in values:
            self.versions[channel] = ours.get_next_version(self.versions.get(channel), None)
        checkpoint = {**empty_checkpoint(), "id": checkpoint_id or str(uuid6())}
        checkpoint |= {"channel_values": values, "channel_versions": dict(self.versions)}
        new = {channel: self.versions[channel] for channel in values}
        for saver in self.savers:
            place = saver.put(CONFIG, checkpoint, {"source": "loop", "step": 1}, new)
        self.places.append(place)

    def compare(self):
        """Every checkpoint, in this process and in a new one."""
        for saver in (self.savers[0], NanomemSaver(SessionManager(self.workspace))):
            for place in self.places:
                assert_same_tuples(saver.get_tuple(place), self.savers[1].get_tuple(place))


@pytest.fixture
def both(workspace):
    return Both(workspace)


def ai():
    return AIMessage(LONG, id="1")


def tool():
    return ToolMessage(LONG, tool_call_id="c", id="1")


def chat():
    return ChatMessage(LONG, role="r", id="1")


CALL = {"name": "n", "args": {"z": 1, "a": 2}, "id": "1", "type": "tool_call"}
ODD = [
    (ai, "content", None),
    (ai, "content", 5),
    (ai, "content", {"a": 1}),
    (ai, "content", [None]),
    (ai, "content", b"x"),
    (ai, "content", ("a",)),
    (ai, "tool_calls", None),
    (ai, "tool_calls", [{**CALL, "name": None}]),
    (ai, "tool_calls", [{**CALL, "name": ""}]),
    (ai, "tool_calls", [dict(reversed(CALL.items()))]),
    (ai, "tool_calls", [{"name": "n", "args": "text", "id": "1"}]),
    (ai, "tool_calls", [CALL, "no call"]),
    (ai, "tool_calls", [CALL, {}]),
    (ai, "tool_calls", "no calls"),
    (ai, "invalid_tool_calls", None),
    (ai, "invalid_tool_calls", 5),
    (ai, "additional_kwargs", None),
    (ai, "additional_kwargs", []),
    (ai, "additional_kwargs", [1]),
    (ai, "additional_kwargs", {"__nanomem__": "tuple", "value": [1]}),
    (ai, "additional_kwargs", {1: 2}),
    (ai, "additional_kwargs", {"x": float("nan")}),
    (ai, "response_metadata", None),
    (ai, "usage_metadata", {}),
    (ai, "type", "other"),
    (ai, "type", None),
    (ai, "id", ""),
    (ai, "id", None),
    (ai, "id", [1]),
    (ai, "name", 5),
    (ai, "further", {"a": [1]}),
    (tool, "status", None),
    (tool, "status", "odd"),
    (tool, "tool_call_id", None),
    (tool, "artifact", b"a"),
    (tool, "artifact", False),
    (chat, "role", None),
    (chat, "role", 5),
    (chat, "role", ""),
    (chat, "role", "developer"),
]


@pytest.mark.parametrize("channel", ["messages", "notes"])
@pytest.mark.parametrize(
    ("make", "field", "value"), ODD, ids=[f"{m.__name__}.{f}={v!r}" for m, f, v in ODD]
)
def test_a_field_set_to_anything_comes_back_as_with_the_stock_saver(
    both, channel, make, field, value
):
    """cases/checkpointer.md 10, 12: before the message was first put, and after."""
    message = make()
    setattr(message, field, value)
    both.put(**{channel: [message]})
    message = make()
    both.put(**{channel: [message, HumanMessage("other")]})
    setattr(message, field, value)
    both.put(**{channel: [message, HumanMessage("other")]})
    both.put(**{channel: message})
    both.compare()


def test_a_removed_field_comes_back_as_with_the_stock_saver(both):
    """cases/checkpointer.md 12: a message that lacks a field of its class."""
    message = ai()
    del message.name
    both.put(messages=[message])
    both.compare()


@pytest.mark.parametrize("values", [(0.0, -0.0), (1, True), (1, 1.0), ("1", 1), (None, False)])
def test_values_that_compare_equal_are_told_apart_in_a_list(both, values):
    """cases/checkpointer.md 10: elements that are neither messages nor containers too."""
    for value in (*values, *values):
        both.put(notes=[value, LONG, value])
        both.put(notes=[LONG, value, [value], {"v": value}])
        both.put(notes=[LONG, value, [value], {"v": value}, "more"])
    both.compare()


def test_a_checkpoint_that_is_put_again_keeps_what_it_brought(both):
    """A second put of one id, with other values, with fewer and with none."""
    both.put(notes=[LONG], messages=[HumanMessage("1")], count=1)
    first = both.places[0]["configurable"]["checkpoint_id"]
    both.put(first, count=2)
    both.put(first)
    both.put(count=3)
    both.put(first, further=["again", LONG])
    both.compare()
    assert both.savers[0].get_tuple(both.places[0]).checkpoint["channel_values"]["messages"]


@dataclass
class Point:
    x: int


def test_savers_with_other_serializers_see_their_own(workspace):
    """cases/checkpointer.md 6, 21: what one may not read is no less there for another."""
    manager = SessionManager(workspace)
    strict = NanomemSaver(manager, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    free = NanomemSaver(manager, serde=JsonPlusSerializer(allowed_msgpack_modules=True))
    checkpoint = {**empty_checkpoint(), "id": str(uuid6())}
    points = [Point(1), Point(2), LONG]
    checkpoint |= {"channel_values": {"points": points}, "channel_versions": {"points": "1"}}
    place = free.put(CONFIG, checkpoint, {"source": "loop", "step": 1}, {"points": "1"})
    for _ in range(2):
        for saver, shown in ((strict, [{"x": 1}, {"x": 2}, LONG]), (free, points)):
            assert saver.get_tuple(place).checkpoint["channel_values"]["points"] == shown
            assert next(saver.list(CONFIG)).checkpoint["channel_values"]["points"] == shown


def test_a_list_that_grows_while_it_is_put_breaks_nothing(workspace):
    """Under durability "async" the next node runs meanwhile: no error, and all can be read."""
    saver = NanomemSaver(SessionManager(workspace))
    message = HumanMessage("x", id="x", additional_kwargs={"d": {}})
    messages, notes = [message], [{"n": {}} for _ in range(30)]
    stopped = threading.Event()

    def go_on():
        turn = 0
        while not stopped.is_set():
            turn += 1
            message.additional_kwargs["d"][f"{turn % 50}"] = turn
            message.additional_kwargs["d"].pop(f"{turn * 7 % 50}", None)
            notes[turn % 30]["n"][f"{turn % 20}"] = [turn]
            notes[turn % 30]["n"].pop(f"{turn * 3 % 20}", None)
            messages.append(HumanMessage(f"{turn}", id=f"{turn}"))
            del messages[60:]

    thread = threading.Thread(target=go_on)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for turn in range(150):
            versions = {"messages": f"{turn}", "notes": f"{turn}", "one": f"{turn}"}
            values = {"messages": messages, "notes": notes, "one": message.additional_kwargs}
            checkpoint = {**empty_checkpoint(), "id": str(uuid6())}
            checkpoint |= {"channel_values": values, "channel_versions": versions}
            saver.put(CONFIG, checkpoint, {"source": "loop", "step": turn}, versions)
    finally:
        stopped.set()
        thread.join()
        sys.setswitchinterval(interval)
    again = NanomemSaver(SessionManager(workspace))
    assert len(list(saver.list(CONFIG))) == len(list(again.list(CONFIG))) == 150
