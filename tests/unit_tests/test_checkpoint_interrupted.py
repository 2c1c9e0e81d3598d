"""A call that breaks off leaves nothing at hand that isn't in the file."""

from __future__ import annotations

import contextlib
import random

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from langchain_nanomem import manager as manager_module
from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.file_journal import FileJournal
from langchain_nanomem.records import SessionRecords

CONFIG = {"configurable": {"thread_id": "chat:1", "checkpoint_ns": ""}}


class Unstorable:
    """What no serializer takes."""

    def __reduce__(self):
        raise TypeError("not to be stored")


def put(saver, **values):
    """A checkpoint with these values, all new; its config."""
    checkpoint = {**empty_checkpoint(), "id": str(uuid6())}
    versions = {channel: saver.get_next_version(None, None) for channel in values}
    checkpoint |= {"channel_values": values, "channel_versions": versions}
    return saver.put(CONFIG, checkpoint, {"source": "loop", "step": 1, "parents": {}}, versions)


def said(count):
    return [HumanMessage(f"{n} {'x' * 300}", id=f"{n}") for n in range(count)]


def failing(monkeypatch, cls, name, error, *, after):
    """Has a method fail once, when it was called `after` times, after it did its work."""
    real, calls = getattr(cls, name), iter(range(after + 1))

    def method(*args, **options):
        answer = real(*args, **options)
        if next(calls, None) == after:
            raise error
        return answer

    monkeypatch.setattr(cls, name, method)


@pytest.mark.parametrize("after", range(3))
def test_a_key_pressed_while_it_is_folded_loses_nothing(manager, again, monkeypatch, after):
    """KeyboardInterrupt after a put reached the file: it counts, and nothing is numbered twice."""
    saver = NanomemSaver(manager)
    put(saver, messages=said(1))
    failing(monkeypatch, SessionRecords, "_fold_element", KeyboardInterrupt(), after=after)
    with pytest.raises(KeyboardInterrupt):
        put(saver, messages=said(4))
    last = put(saver, messages=said(6))
    for one in (saver, NanomemSaver(again())):
        shown = [found.checkpoint["channel_values"]["messages"] for found in one.list(CONFIG)]
        assert shown == [said(6), said(4), said(1)]
        assert one.get_tuple(last).checkpoint["channel_values"]["messages"] == said(6)


@pytest.mark.parametrize("seed", range(12))
def test_failures_at_random_leave_what_a_new_process_reads(manager, again, monkeypatch, seed):
    """Puts and writes that fail anywhere, before or after the file has them; then it goes on."""
    chance = random.Random(seed)
    saver = NanomemSaver(manager)
    errors = (OSError(28, "No space left on device"), KeyboardInterrupt(), MemoryError())
    places = [
        (FileJournal, "append"),
        (manager_module.Elements, "dumps"),
        (SessionRecords, "_fold_element"),
        (SessionRecords, "read_on"),
        (manager_module.ElementWriter, "_add"),
        (manager_module.ElementWriter, "_list"),
    ]
    shown = {}
    messages, notes = [], []
    for turn in range(30):
        messages = [*messages[chance.randrange(2) :], *said(turn + 1)[-2:], AIMessage(f"{turn}")]
        notes = [*notes, {"turn": turn, "text": "y" * 99}]
        values = {"messages": messages, "notes": notes, "last": Unstorable()}
        if chance.random() < 0.5:
            values.pop("last")
        with monkeypatch.context() as patch:
            if chance.random() < 0.6:
                cls, name = chance.choice(places)
                failing(patch, cls, name, chance.choice(errors), after=chance.randrange(4))
            with contextlib.suppress(OSError, ValueError, KeyboardInterrupt, MemoryError):
                place = put(saver, **values)
                shown[place["configurable"]["checkpoint_id"]] = (list(messages), list(notes))
                saver.put_writes(place, [("messages", messages[-1:]), ("notes", notes)], "t")
    assert shown
    for one in (saver, NanomemSaver(again())):
        found_now = {}
        for found in one.list(CONFIG):
            values = found.checkpoint["channel_values"]
            found_now[found.checkpoint["id"]] = (values["messages"], values["notes"])
        assert {name: found_now.get(name) for name in shown} == shown
