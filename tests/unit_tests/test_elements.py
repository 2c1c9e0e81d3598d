"""Values of channels as records: each element once, and back as it was."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from pydantic import BaseModel

from langchain_nanomem.element_writer import ElementWriter
from langchain_nanomem.elements import Elements
from langchain_nanomem.errors import NanomemError
from langchain_nanomem.journal import ORIGIN, Entry, JournalReader, Position
from langchain_nanomem.numbering import members, numbers_in
from langchain_nanomem.records import SessionRecords
from langchain_nanomem.values import dump_record, load_record


class Mirror:
    """A cipher for tests that never makes the same of a text twice."""

    count = 0

    def encrypt(self, plaintext):
        Mirror.count += 1
        return "mirror", Mirror.count.to_bytes(4, "big") + plaintext[::-1]

    def decrypt(self, ciphername, ciphertext):
        assert ciphername == "mirror"
        return ciphertext[:3:-1]


def encrypting():
    return Elements(EncryptedSerializer(Mirror()))


class Lines(JournalReader):
    """Lines in memory, read as a file's are."""

    def __init__(self):
        self.lines = []

    def read(self, start=ORIGIN):
        entries = [
            Entry((n, 0), load_record(line, self.objects))
            for n, line in enumerate(self.lines)
            if line
        ]
        return entries[start.offset :], Position(len(self.lines), b"")

    def load(self, addresses):
        return [load_record(self.lines[n], self.objects) for n, _ in addresses]

    def renew(self):
        raise NotImplementedError


class Book:
    """Encodes values into records that are folded as a file's would be."""

    def __init__(self, elements=None, lines=()):
        self.elements = elements or Elements()
        self.reader = Lines()
        self.reader.objects = self.elements.serde
        self.reader.lines += lines
        self.lines = self.reader.lines
        self.open()

    def open(self):
        self.records = SessionRecords("key", self.elements.message_record)
        with self.records.attached(self.reader):
            self.records.fold(*self.records.read_on())

    def write(self, value, **options):
        with self.records.attached(self.reader):
            writer = ElementWriter(self.elements, self.records)
            line = dump_record(writer.encode(value, **options))
            encoded = load_record(line, self.elements.serde)
            self.lines += [dump_record(record) for record in writer.new]
            self.records.fold(*self.records.read_on())
            writer.written()
            return encoded

    def read(self, encoded):
        with self.records.attached(self.reader):
            return self.elements.decode(encoded, self.records)

    def cut(self, number):
        """As if a person had removed the line of an element."""
        place = next(n for n, ln in enumerate(self.lines) if ln and load_record(ln)["_n"] == number)
        self.lines[place] = b""
        self.open()


@pytest.fixture(params=[Elements, encrypting], ids=["readable", "encrypted"])
def book(request):
    return Book(request.param())


@dataclass
class Point:
    x: Any


class Model(BaseModel):
    tags: list[str]


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3) | st.just("__nanomem__"), inner, max_size=3)
    ),
    max_leaves=8,
)
foreign = st.one_of(
    st.binary(max_size=4),
    st.builds(Point, plain),
    st.builds(Model, tags=st.lists(st.text(max_size=3))),
    st.dictionaries(st.integers(0, 9), plain, max_size=2),
    st.sets(st.integers(0, 9)),
)
said = st.builds(
    lambda cls, content, message_id, extra: cls(content, id=message_id, additional_kwargs=extra),
    st.sampled_from([HumanMessage, AIMessage]),
    st.text(max_size=5),
    st.none() | st.sampled_from(["a", "b"]),
    st.dictionaries(st.text(max_size=3), plain, max_size=2),
)
items = st.one_of(plain, foreign, said)
values = st.one_of(
    items, st.lists(items, max_size=30), st.dictionaries(st.text(max_size=3), st.lists(items))
)


def stock(value):
    """What the serializer alone makes of a value."""
    serde = JsonPlusSerializer()
    return serde.loads_typed(serde.dumps_typed(value))


@settings(max_examples=150)
@given(st.lists(st.tuples(values, st.booleans()), max_size=5), st.booleans())
def test_values_come_back_as_the_serializer_gives_them(drawn, encrypted):
    """cases/checkpointer.md 10, 12: any values, one after the other, each as it was."""
    book = Book(encrypting() if encrypted else Elements())
    encoded = [(book.write(value, conversation=flag), value) for value, flag in drawn]
    for one, value in encoded:
        # LangGraph's serializer replaces what is no Unicode; none is drawn here.
        assert repr(book.read(one)) == repr(stock(value))
        assert book.read(one) == stock(value)


@settings(max_examples=150)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=400))
def test_runs_stand_for_their_members(numbers):
    """However spans are gathered into runs, the same numbers come out in the same order."""
    book = Book()
    things = [f"{n} {'x' * 9}" for n in range(401)]
    for start in range(0, 401, 7):
        book.write([*things[start : start + 7], *["y" * 300]])
    encoded = book.write([things[n] for n in numbers] + ["z" * 300])
    assert book.read(encoded) == [things[n] for n in numbers] + ["z" * 300]
    assert len(encoded["list"]) <= 48
    found = list(members(encoded["list"], book.records.elements))
    assert set(found) <= numbers_in([encoded], book.records.elements)


def test_a_growing_list_keeps_its_runs(book):
    """What is appended to a list changes none of the runs before: a turn costs the same."""
    grown, sizes = [], []
    for n in range(400):
        grown.append(HumanMessage(f"{n}", id=f"{n}"))
        before = len(book.lines)
        encoded = book.write(grown)
        book.write([f"something else {n} {'x' * 300}"])
        assert len(book.lines) - before <= 4
        sizes.append(len(dump_record(encoded)))
    assert max(sizes) < 600
    assert book.read(encoded) == grown


def test_equal_elements_are_stored_once(book):
    """Equal messages and equal values share one element, across writes and within one."""
    message = AIMessage("x" * 500, id="1")
    log = {"n": 1, "text": "t" * 500}
    for _ in range(3):
        book.write([message, message.model_copy(deep=True), log, dict(log)])
    assert len(book.lines) == 2


@pytest.mark.parametrize("other", [True, 1.0, "1", None, [1], -1])
def test_values_that_only_compare_equal_are_not_taken_for_each_other(book, other):
    """cases/checkpointer.md 10: 1, True and 1.0 are equal in Python and are three values here."""
    long = "x" * 300
    first = book.write([{"n": 1, "text": long}, AIMessage("m", additional_kwargs={"n": 1})])
    second = book.write(
        [{"n": other, "text": long}, AIMessage("m", additional_kwargs={"n": other})]
    )
    assert repr(book.read(first)[0]["n"]) == "1"
    assert repr(book.read(second)[0]["n"]) == repr(other)
    assert repr(book.read(second)[1].additional_kwargs["n"]) == repr(other)


def test_what_is_read_is_never_shared(book):
    """cases/checkpointer.md 11: two reads have no part in common, nor has what was written."""
    message = AIMessage("m", id="1", additional_kwargs={"deep": {"er": [1]}})
    value = [message, message, {"deep": [{"text": "x" * 300}]}]
    encoded = book.write(value)
    message.additional_kwargs["deep"]["er"].append(2)
    value[2]["deep"].clear()
    one, other = book.read(encoded), book.read(encoded)
    assert one[0] is not other[0]
    one[0].additional_kwargs["deep"]["er"].append(3)
    one[2]["deep"][0]["text"] = "changed"
    assert one[1].additional_kwargs["deep"]["er"] == [1]
    assert other == book.read(encoded)
    assert other[2] == {"deep": [{"text": "x" * 300}]}


def test_the_conversation_is_made_of_lines():
    """A message that stays, in a list, by itself or in a graph's input, is a readable line."""
    book = Book()
    book.write([HumanMessage("1", id="1"), HumanMessage("no id")], conversation=True)
    book.write(AIMessage("2", id="2"), conversation=True)
    given = {"messages": [HumanMessage("3", id="3")], "notes": [HumanMessage("4", id="4")]}
    book.write(given, conversation=True)
    book.write([RemoveMessage("1")], conversation=True)
    book.write([HumanMessage("5", id="5")])
    lines = [json.loads(line) for line in book.lines]
    shown = [line for line in lines if "_type" not in line]
    assert [line["content"] for line in shown] == ["1", "no id", "2", "3"]
    assert [line["role"] for line in shown] == ["user", "user", "assistant", "user"]
    assert list(book.records.line_numbers) == [line["_n"] for line in shown]


def test_a_snapshot_shares_its_elements(book):
    """A delta channel's snapshot comes back as one, and its messages are those already there."""
    messages = [HumanMessage("x" * 400, id=f"{n}") for n in range(20)]
    book.write(messages)
    count = len(book.lines)
    encoded = book.write(_DeltaSnapshot(messages))
    assert len(book.lines) == count
    assert book.read(encoded) == _DeltaSnapshot(messages)
    assert type(book.read(encoded)) is _DeltaSnapshot
    assert book.read(book.write(_DeltaSnapshot({"a": {1, 2}}))) == _DeltaSnapshot({"a": {1, 2}})


def test_references_name_what_a_value_needs():
    """Pruning relies on it: elements in lists, by themselves, in dictionaries and snapshots."""
    book = Book()
    message = HumanMessage("m", id="m")
    for value in ([message], message, {"a": [message], "b": 1}, _DeltaSnapshot([message])):
        encoded = book.write(value)
        assert list(numbers_in([encoded], book.records.elements)) == [0]
    for value in (1, [1], {"a": 1}, {1, 2}, []):
        assert list(numbers_in([book.write(value)], book.records.elements)) == []


def test_encrypted_values_are_known_again_by_another_process():
    """What a serializer never makes the same twice is known again by a process that read it."""
    book = Book(encrypting())
    value = [AIMessage("one", id="1"), {"n": 1}]
    encoded = book.write(value)
    count = len(book.lines)
    fresh = Book(encrypting(), book.lines)
    with fresh.records.attached(fresh.reader):
        given = fresh.elements.hand_out(("ns", "c"), encoded, fresh.records)
    assert given == value
    again = fresh.write(given, channel=("ns", "c"))
    assert again == encoded
    assert len(fresh.lines) == count
    assert fresh.read(again) == value
    assert not any(b"one" in line for line in book.lines)


def test_a_missing_element_is_named(book):
    """What a person cut out of the file is an error that says which record; never silence."""
    encoded = book.write([HumanMessage(f"{n}", id=f"{n}") for n in range(3)])
    book.cut(1)
    with pytest.raises(NanomemError, match="record number 1 is missing"):
        book.read(encoded)
    scattered = book.write([f"{n // 2 * (n % 2)} {'x' * 40}" for n in range(80)])
    run = next(item for item in scattered["list"] if isinstance(item, int))
    book.cut(run)
    with pytest.raises(NanomemError, match=f"record number {run} is missing"):
        book.read(scattered)


class Odd(HumanMessage):
    """A class that is not LangChain's."""


@pytest.mark.parametrize("own", [False, True])
def test_records_of_any_message_can_be_looked_at(own):
    """A session shows messages that only the serializer can store, what can't be shown by name."""
    book = Book(Elements(JsonPlusSerializer()) if own else Elements())
    messages = [
        Odd("odd", id="1"),
        ToolMessage("t", tool_call_id="c", id="2", artifact=Point(1)),
        HumanMessage("plain", id="3"),
        {"role": "user", "content": "a dictionary"},
        "text",
    ]
    encoded = book.write(messages, conversation=True)
    numbers = list(members(encoded["list"], book.records.elements))
    shown = [book.records.message(number) for number in numbers]
    assert [record["content"] for record in shown] == ["odd", "t", "plain", "a dictionary", "text"]
    assert [record["role"] for record in shown] == ["human", "tool", "user", "user", "unknown"]
    for record in shown:
        dump_record(record)
    assert len(book.records.line_numbers) == 3


def test_the_serializer_that_was_given_sees_every_object():
    """cases/checkpointer.md 21: an object in a message does not get past an allowlist."""
    strict = Book(Elements(JsonPlusSerializer(allowed_msgpack_modules=None)))
    message = ToolMessage("t", tool_call_id="c", id="2", artifact={"hidden": [Point(1)]})
    read = strict.read(strict.write([message], conversation=True))
    assert read[0].artifact == {"hidden": [{"x": 1}]}
    assert not any(b"__nanomem__" in line for line in strict.lines)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (threading.Lock(), "'c'"),
        ({"a": [1, {"b": threading.Lock()}]}, "'c.a.1.b'"),
        ([Point(Point(threading.Lock()))], "'c.0.x.x'"),
        (
            [HumanMessage("x", additional_kwargs={"k": threading.Lock()})],
            "'c.0.additional_kwargs.k'",
        ),
    ],
)
def test_what_cannot_be_stored_is_named(book, value, path):
    """cases/checkpointer.md 12: the channel, the path within its value, and the class."""
    writer = ElementWriter(book.elements, book.records)
    with pytest.raises(ValueError, match="channel 'c' cannot be stored") as error:
        writer.encode_channel("ns", "c", value)
    assert path in str(error.value)
    assert "_thread.lock" in str(error.value)


def test_a_value_that_holds_itself_is_refused(book):
    """cases/checkpointer.md 12: an endless value is an error at write time, and soon."""
    endless: list[Any] = ["x" * 300]
    endless.append(endless)
    writer = ElementWriter(book.elements, book.records)
    with pytest.raises(ValueError, match="channel 'c' cannot be stored"):
        writer.encode_channel("ns", "c", endless)
