"""Conversations in the form of the LoCoMo data set, to replay in place of the demo's own.

https://github.com/snap-research/locomo: dialogues of two people over months. The first
speaker is taken as the user, the second as the assistant.
"""

from __future__ import annotations

import datetime as dt
import re
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from langchain_nanomem.demo import DemoConversation, DemoDay, DemoQuestion, DemoTurn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

_TIME = "%I:%M %p on %d %B, %Y"
_QUESTIONS = 6
_SINGLE_FACT = 4
"""The category of questions that one turn answers."""


def load_locomo(path: str | PathLike[str]) -> list[DemoConversation]:
    """The conversations of a file, in its order.

    Raises:
        OSError: It can't be read.
        ValueError: It is not in the form of LoCoMo.
    """
    try:
        return [_conversation(raw) for raw in orjson.loads(Path(path).read_bytes())]
    except (KeyError, TypeError, AttributeError, orjson.JSONDecodeError) as error:
        raise ValueError(f"{path} is no file in the form of LoCoMo ({error!r})") from error


def _conversation(raw: dict[str, Any]) -> DemoConversation:
    talk = raw["conversation"]
    numbers = sorted(
        int(found[1]) for name in talk if (found := re.fullmatch(r"session_(\d+)", name))
    )
    days = tuple(_day(talk, number) for number in numbers if talk[f"session_{number}"])
    return DemoConversation(
        title=f"{raw['sample_id']}: {talk['speaker_a']} and {talk['speaker_b']}",
        user=talk["speaker_a"],
        days=days,
        questions=tuple(_questions(raw["qa"])),
    )


def _questions(raw: list[dict[str, Any]]) -> Iterator[DemoQuestion]:
    asked = [qa for qa in raw if qa.get("category") == _SINGLE_FACT and "answer" in qa]
    for qa in asked[:_QUESTIONS]:
        yield DemoQuestion(qa["question"], (str(qa["answer"]),))


def _day(talk: dict[str, Any], number: int) -> DemoDay:
    """One session: utterances of one speaker in a row are one message; the user begins."""
    text = talk[f"session_{number}_date_time"]
    started = dt.datetime.strptime(text, _TIME).replace(tzinfo=dt.UTC)
    runs = [
        (speaker == talk["speaker_a"], "\n".join(map(_said, turns)))
        for speaker, turns in groupby(talk[f"session_{number}"], lambda turn: turn["speaker"])
    ]
    if not runs[0][0]:
        runs.insert(0, (True, "(comes in)"))
    if runs[-1][0]:
        runs.append((False, "(nods)"))
    pairs = zip(runs[::2], runs[1::2], strict=True)
    turns = tuple(
        DemoTurn(started + dt.timedelta(minutes=place), user[1], (), answer[1])
        for place, (user, answer) in enumerate(pairs)
    )
    return DemoDay(started.date(), f"session-{number}", turns)


def _said(turn: dict[str, Any]) -> str:
    caption = turn.get("blip_caption")
    return f"{turn['text']} [shares photo: {caption}]" if caption else str(turn["text"])
