"""Values and checkpoints are the same only in all their parts and types."""

from __future__ import annotations

import dataclasses
import re
from collections import deque
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from uuid import UUID

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_nanomem.exactness import first_difference


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Point:
    x: float
    y: object = None


class Plain:
    def __init__(self, **parts):
        self.__dict__.update(parts)


@pytest.mark.parametrize(
    ("one", "other", "where"),
    [
        (1, True, ""),
        (1, 1.0, ""),
        (0.0, -0.0, ""),
        ([1, 2], [1], ""),
        ([1], (1,), ""),
        ([0, [1]], [0, [True]], ".1.0"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, ""),
        ({"a": 1}, {"a": 1, "b": 2}, ".b"),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ".a.b"),
        ({1: "a"}, {True: "a"}, ""),
        ({1, 2}, {1, 3}, ""),
        ({1}, {True}, ""),
        (Point(1.0, [1]), Point(1.0, [2]), ".y.0"),
        (Colour.RED, Colour.BLUE, ""),
        (Decimal("1.0"), Decimal("1.00"), ".1.0"),
        (deque([1], 3), deque([1], 4), ".1.1"),
        (re.compile("a"), re.compile("b"), ""),
        (Plain(a=1), Plain(a=2), ".2.a"),
        (HumanMessage("a", id="1"), HumanMessage("b", id="1"), ".content"),
        (HumanMessage("a"), AIMessage("a"), ""),
        (HumanMessage("a", extra=1), HumanMessage("a", extra=1.0), ".0.extra"),
    ],
)
def test_a_difference_is_found_where_it_is(one, other, where):
    """Values that differ in a part, a type or an order are told apart, and where."""
    found = first_difference(one, other)
    assert found is not None
    assert found.startswith(where)


@pytest.mark.parametrize(
    "make",
    [
        lambda: {"a": [1, 2.5, None, b"x", "y", True]},
        lambda: float("nan"),
        lambda: {1, "a", frozenset({2})},
        lambda: Point(1.0, Point(2.0)),
        lambda: [Colour.RED, Decimal("1.0"), UUID(int=1), PurePosixPath("/a/b"), deque([1], 3)],
        lambda: datetime(2026, 5, 8, tzinfo=UTC),
        lambda: re.compile("a", re.IGNORECASE),
        lambda: Plain(a=Plain(b=[1])),
        lambda: AIMessage("a", id="1", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "2"}]),
        lambda: (len, Colour, lambda: None)[:2],
    ],
)
def test_the_same_value_made_twice_is_the_same(make):
    """Equal parts of equal types make no difference, whatever they are."""
    assert first_difference(make(), make()) is None
