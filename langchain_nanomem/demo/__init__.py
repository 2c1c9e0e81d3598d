"""A conversation of several days with an assistant, to replay and to measure memory with."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class DemoToolCall:
    """One call of a tool, with what the tool gave back."""

    name: str
    """The tool's name, e.g. ``weather``."""
    args: dict[str, Any]
    """The arguments by name."""
    result: str
    """The tool's output as text."""


@dataclass(frozen=True)
class DemoTurn:
    """What the user said, what the assistant looked up, and what it answered."""

    at: dt.datetime
    """When the user said it: aware, in UTC."""
    user: str
    """The user's words."""
    rounds: tuple[tuple[DemoToolCall, ...], ...]
    """Rounds of tool calls in order; the calls of one round run in parallel. Mostly empty."""
    assistant: str
    """The final answer, after all rounds."""


@dataclass(frozen=True)
class DemoDay:
    """The turns of one calendar day, in the order of time."""

    date: dt.date
    """The day, in UTC."""
    label: str
    """A short name of the day, usable as part of a session id."""
    turns: tuple[DemoTurn, ...]
    """At least one turn, earliest first."""


@dataclass(frozen=True)
class DemoQuestion:
    """A question for a new chat, which only memory of the earlier days can answer."""

    question: str
    """The question in the user's words."""
    answer_words: tuple[str, ...]
    """Strings that a right answer contains, all of them, in the conversation's spelling."""


@dataclass(frozen=True)
class DemoConversation:
    """The whole conversation of one user with the assistant."""

    title: str
    """What it is about, in a few words."""
    user: str
    """The user's first name."""
    days: tuple[DemoDay, ...]
    """Earliest first; days without a word are left out."""
    questions: tuple[DemoQuestion, ...]
    """What to ask after the last day."""


def load_conversation() -> DemoConversation:
    """The demo conversation, read anew from the package's own file at every call."""
    raw = orjson.loads(resources.files(__name__).joinpath("conversation.json").read_bytes())
    return DemoConversation(
        title=raw["title"],
        user=raw["user"],
        days=tuple(_day(day) for day in raw["days"]),
        questions=tuple(_question(question) for question in raw["closing"]["questions"]),
    )


def _day(raw: Mapping[str, Any]) -> DemoDay:
    date = dt.date.fromisoformat(raw["date"])
    return DemoDay(date, raw["session"], tuple(_turn(date, turn) for turn in raw["turns"]))


def _turn(date: dt.date, raw: Mapping[str, Any]) -> DemoTurn:
    return DemoTurn(
        at=dt.datetime.combine(date, dt.time.fromisoformat(raw["at"]), tzinfo=dt.UTC),
        user=raw["user"],
        rounds=tuple(
            tuple(_tool_call(call) for call in step["tool_calls"]) for step in raw.get("steps", ())
        ),
        assistant=raw["assistant"],
    )


def _tool_call(raw: Mapping[str, Any]) -> DemoToolCall:
    return DemoToolCall(raw["name"], raw["args"], raw["result"])


def _question(raw: Mapping[str, Any]) -> DemoQuestion:
    return DemoQuestion(raw["question"], tuple(raw["answer_words"]))


__all__ = [
    "DemoConversation",
    "DemoDay",
    "DemoQuestion",
    "DemoToolCall",
    "DemoTurn",
    "load_conversation",
]
