"""Python values as lines of JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import enum
import json
import math
import uuid
from collections import OrderedDict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langchain_nanomem.values import (
    TAG,
    StoredObject,
    dump_record,
    dump_value,
    from_json,
    is_plain,
    load_record,
    pack,
    to_json,
    unpack,
)

SERDE = JsonPlusSerializer()
texts = st.text(st.characters(), max_size=12)  # lone surrogates and NUL among them
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
hashables = scalars | st.binary(max_size=6) | st.tuples(scalars, scalars)
values = st.recursive(
    hashables,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(texts | st.just(TAG), inner, max_size=4)
        | st.dictionaries(hashables, inner, max_size=3)
        | st.tuples(inner, inner)
        | st.frozensets(hashables, max_size=3)
        | st.sets(hashables, max_size=3)
        | st.binary(max_size=6).map(bytearray)
    ),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same classes all through."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return (
            len(one) == len(other)
            and all(map(same, one.values(), other.values()))
            and all(map(same, one, other))
        )
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@given(st.dictionaries(texts | st.just(TAG), values, max_size=4))
def test_a_record_comes_back_equal_and_of_the_same_types(record: dict[str, Any]):
    """cases/sessions.md 24: surrogates, NUL, bytes, tuples, sets, any number: all come back."""
    line = dump_record(record)
    assert b"\n" not in line
    json.loads(line)  # any other program can read it too
    assert same(load_record(line, SERDE), record)


@given(values)
def test_plain_values_are_written_as_they_are(value: Any):
    """What is plain JSON stands in the file as JSON, what is not is tagged."""
    assert (pack(value, "") == value and TAG not in str(pack(value, ""))) or not is_plain(value)
    if is_plain(value):
        assert from_json(to_json(value)) == value
    assert same(unpack(pack(value, ""), SERDE), value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0])
def test_special_numbers_come_back(value: float):
    """NaN, the infinities and minus zero are kept, though JSON has none of the first."""
    again = load_record(dump_record({"x": value}))["x"]
    assert repr(again) == repr(value)


@dataclasses.dataclass
class Point:
    x: int


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        Text("a"),
        OrderedDict(b=1, a=2),
        dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
        dt.date(2026, 1, 2),
        uuid.UUID(int=5),
        Decimal("1.10"),
        Path("/a/b"),
        "\u2028\x00\ud83d",
        [(), [], {}, set(), frozenset(), b""],
        {1: {2: (3,)}},
    ],
)
def test_values_beyond_json_come_back_equal(value: Any):
    """cases/sessions.md 24: objects that the serializer knows come back equal."""
    assert load_record(dump_record({"x": value}), SERDE)["x"] == value


@pytest.mark.parametrize(
    "value", [object(), lambda: 0, iter([]), ValueError("a"), memoryview(b"a"), type("L", (), {})()]
)
def test_what_cannot_come_back_is_refused_by_name(value: Any):
    """cases/sessions.md 22, 24: a clear error at write time that names the field."""
    with pytest.raises(ValueError, match=r"^a\.b\[1\]\.c: an object of type "):
        dump_record({"a": {"b": [0, {"c": value}]}})


def test_an_object_that_refuses_to_be_compared_is_refused():
    """cases/sessions.md 24: an object whose equality can't be told is an error at write time."""

    class Stubborn(list[int]):
        pass

    class Array:
        def __eq__(self, other: object) -> Any:
            raise ValueError("ambiguous")

        __hash__ = None  # type: ignore[assignment]  # as of any class with its own equality

    with pytest.raises(ValueError, match=r"^artifact: "):
        dump_record({"artifact": Array()})
    assert load_record(dump_record({"artifact": Stubborn([1])}), SERDE) == {"artifact": [1]}


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_has_a_limit_that_is_told_at_write_time():
    """cases/sessions.md 22, 24: too deep, or endless, is a ValueError that names the field."""
    assert load_record(dump_record({"x": nested(200)})) == {"x": nested(200)}
    endless: dict[str, Any] = {}
    endless["me"] = endless
    for value in (nested(100_000), endless):
        with pytest.raises(ValueError, match=r"^x: nested too deeply"):
            dump_record({"role": "user", "x": value})
    with pytest.raises(ValueError, match=r"^me: nested too deeply|^the value: nested"):
        dump_record(endless)
    with pytest.raises(ValueError, match=r"^calls: nested too deeply"):
        dump_value(nested(100_000), "calls")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"5",
        b'"text"',
        b"{",
        b"{'a': 1}",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1} x',
        b'{"a": "\xff"}',
        b"\xff\xfe{}",
        b"{" + b'"a":{' * 5000,
        b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"x":{"__nanomem__":"nonsense","value":1}}',
        b'{"x":{"__nanomem__":["list"],"value":1}}',
        b'{"x":{"__nanomem__":"bytes","value":"%"}}',
        b'{"x":{"__nanomem__":"bytes"}}',
        b'{"x":{"__nanomem__":"int","value":"a"}}',
        b'{"x":{"__nanomem__":"dict","value":[[[],1]]}}',
        b'{"x":{"__nanomem__":"object","type":"msgpack","value":"wQ=="}}',
        b'{"x":{"__nanomem__":"object","type":"pickle","value":"gAQu"}}',
        b'{"x":{"__nanomem__":"object","type":"json","value":"ew=="}}',
        b'{"__nanomem__":"tuple","value":[1]}',
    ],
)
def test_a_line_that_is_no_record_is_a_value_error(line: bytes):
    """cases/sessions.md 13: whatever stands in a file, reading it fails in one way only."""
    with pytest.raises(ValueError, match=r"."):
        load_record(line)


@given(st.binary(max_size=60))
def test_garbage_is_a_value_error_or_a_record(line: bytes):
    """cases/sessions.md 13: random bytes are refused, never anything but a ValueError."""
    with contextlib.suppress(ValueError):
        assert isinstance(load_record(line), dict)


def test_objects_are_made_only_by_a_serializer_that_is_given():
    """cases/checkpointer.md 21: reading a line constructs nothing, and writes it as it was."""
    line = dump_record({"x": [Point(1)], "y": dt.date(2026, 1, 2)})
    inert = load_record(line)
    assert isinstance(inert["x"][0], StoredObject)
    assert dump_record(inert) == line
    assert load_record(line, SERDE) == {"x": [Point(1)], "y": dt.date(2026, 1, 2)}
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    assert load_record(line, strict) == {"x": [{"x": 1}], "y": dt.date(2026, 1, 2)}


@pytest.mark.parametrize("kind", ["pickle", "json", "null", "bytes", "msgpack+aes"])
@pytest.mark.parametrize("serde", [None, JsonPlusSerializer(pickle_fallback=True)])
def test_an_object_of_another_kind_is_refused(kind: str, serde: JsonPlusSerializer | None):
    """cases/checkpointer.md 21: only what is written is read; a pickle never, whoever allows it."""
    line = f'{{"x":{{"__nanomem__":"object","type":"{kind}","value":"gAQu"}}}}'
    with pytest.raises(ValueError, match="'object' cannot be read"):
        load_record(line.encode(), serde)


def test_equal_sets_make_one_line():
    """The order in which a set was filled does not change how it is written."""
    numbers = [2**20 * n for n in range(40)]
    backwards = numbers[::-1]
    assert dump_record({"x": set(numbers)}) == dump_record({"x": set(backwards)})
    assert dump_record({"x": {"a", 1, None}}) == dump_record({"x": {None, "a", 1}})


def test_ten_megabytes_come_back():
    """cases/sessions.md 24: 10 MB in one message."""
    record = {"content": "é\n" * 4_000_000}
    assert load_record(dump_record(record)) == record
