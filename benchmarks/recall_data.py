"""Six months-long dialogues as sessions with a memory, and the questions about them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from scripted_summaries import RecordedSummary

from langchain_nanomem import Nanomem

if TYPE_CHECKING:
    from pathlib import Path

    from langchain_nanomem import MemoryStore

ADVERSARIAL = 5
"""The category of questions that the dialogue does not answer."""
_SESSION = re.compile(r"session_(\d+)")
_TIME = "%I:%M %p on %d %B, %Y"


@dataclass(frozen=True)
class Question:
    """A question, and the turns that hold its evidence."""

    text: str
    answer: str
    category: int
    evidence: frozenset[int]
    """The places of the turns in the dialogue."""


@dataclass(frozen=True)
class Day:
    """What was said at one go, and the summary that comes with the data."""

    at: datetime
    messages: list[BaseMessage]
    summary: str
    facts: list[str]


@dataclass(frozen=True)
class Dialogue:
    """One dialogue."""

    name: str
    days: list[Day]
    questions: list[Question]

    @property
    def texts(self) -> list[str]:
        """Each turn as it is ingested."""
        return [str(message.content) for day in self.days for message in day.messages]

    def ingest(self, workspace: Path, scope: tuple[str, ...] = ()) -> MemoryStore:
        """Have it said in a session of this scope, and consolidated day by day."""
        model = RecordedSummary()
        memory = Nanomem(workspace, model=model)
        memory.sessions.bind_scope(self.name, scope)
        for day in self.days:
            memory.history(self.name).add_messages(day.messages)
            model.entry, model.facts = day.summary, [*model.facts, *day.facts]
            memory.consolidator.compact(memory.sessions.get_or_create(self.name))
        return memory.memory_for(scope)


def load(path: Path, *, named: bool = True) -> list[Dialogue]:
    """The dialogues of a file in LoCoMo's form.

    Args:
        path: The file.
        named: Whether a message has the name of its speaker as a field too.
    """
    return [_dialogue(raw, named=named) for raw in json.loads(path.read_text(encoding="utf-8"))]


def _dialogue(raw: dict[str, Any], *, named: bool) -> Dialogue:
    said = raw["conversation"]
    numbers = sorted(int(found[1]) for name in said if (found := _SESSION.fullmatch(name)))
    places: dict[str, int] = {}
    days = []
    for number in numbers:
        name = f"session_{number}"
        turns = said[name]
        places |= {turn["dia_id"]: len(places) + n for n, turn in enumerate(turns)}
        date = said[f"{name}_date_time"]
        at = datetime.strptime(date, _TIME).replace(tzinfo=UTC)
        observed = raw["observation"].get(f"{name}_observation", {})
        days.append(
            Day(
                at,
                [_message(turn, date, at, said["speaker_a"], named=named) for turn in turns],
                raw["session_summary"].get(f"{name}_summary", ""),
                [fact for facts in observed.values() for fact, *_ in facts],
            )
        )
    return Dialogue(raw["sample_id"], days, list(_questions(raw, places)))


def _message(
    turn: dict[str, Any], date: str, at: datetime, user: str, *, named: bool
) -> BaseMessage:
    photo = f" [shares photo: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
    kind = HumanMessage if turn["speaker"] == user else AIMessage
    return kind(
        f"[{date}] {turn['speaker']}: {turn['text']}{photo}",
        name=turn["speaker"] if named else None,
        additional_kwargs={"timestamp": at.isoformat()},
    )


def _questions(raw: dict[str, Any], places: dict[str, int]) -> Any:
    for one in raw["qa"]:
        evidence = frozenset(places[name] for name in one["evidence"] if name in places)
        if evidence:
            answer = str(one.get("answer", one.get("adversarial_answer", "")))
            yield Question(one["question"], answer, one["category"], evidence)
