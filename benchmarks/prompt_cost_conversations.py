"""What is said: six long dialogues, and the log of an agent that uses its tools a lot."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage

if TYPE_CHECKING:
    from pathlib import Path

_SESSION = re.compile(r"session_(\d+)")
_WORDS = (
    *("the", "service", "reads", "its", "queue", "and", "writes", "rows", "to", "ledger", "before"),
    *("it", "answers", "while", "cache", "keeps", "prices", "by", "region", "worker", "retries"),
    *("a", "payment", "that", "timed", "out", "until", "operator", "closes", "incident", "or"),
    *("deadline", "of", "customer", "has", "passed"),
)


@dataclass
class Exchange:
    """A question, and what the assistant does until it has answered."""

    question: str
    replies: list[AIMessage]
    results: dict[str, str] = field(default_factory=dict)
    """What the tools give, by the ids of their calls."""


@dataclass
class Talk:
    """A whole conversation."""

    name: str
    exchanges: list[Exchange]
    facts: list[tuple[str, str]] = field(default_factory=list)
    """What was recorded as worth remembering, each with the words that it was taken from."""
    evidence: list[str] = field(default_factory=list)
    """The words that answer later questions."""

    @property
    def said(self) -> list[str]:
        """Every text of the conversation, once each: questions, answers, results of tools."""
        found: dict[str, None] = {}
        for exchange in self.exchanges:
            texts = [exchange.question, *(str(reply.content) for reply in exchange.replies)]
            found |= dict.fromkeys(filter(None, [*texts, *exchange.results.values()]))
        return list(found)


def dialogues(path: Path) -> list[Talk]:
    """The dialogues of a LoCoMo file: speaker A is the user, B the assistant."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    return [_dialogue(one) for one in raw]


def _dialogue(raw: dict[str, Any]) -> Talk:
    said = raw["conversation"]
    numbers = sorted(int(found[1]) for name in said if (found := _SESSION.fullmatch(name)))
    turns = [turn for number in numbers for turn in said[f"session_{number}"]]
    texts = {turn["dia_id"]: turn["text"] for turn in turns}
    merged: list[tuple[str, str]] = []
    for turn in turns:
        if merged and merged[-1][0] == turn["speaker"]:
            merged[-1] = (turn["speaker"], f"{merged[-1][1]}\n{turn['text']}")
        else:
            merged.append((turn["speaker"], turn["text"]))
    if merged[0][0] != said["speaker_a"]:
        merged.insert(0, (said["speaker_a"], "Hello!"))
    if len(merged) % 2:
        merged.append((said["speaker_b"], "I see."))
    pairs = zip(merged[::2], merged[1::2], strict=True)
    return Talk(
        raw["sample_id"],
        [Exchange(question, [AIMessage(answer)]) for (_, question), (_, answer) in pairs],
        list(_facts(raw, texts)),
        list(_evidence(raw, texts)),
    )


def _facts(raw: dict[str, Any], texts: dict[str, str]) -> Any:
    for observed in raw["observation"].values():
        for facts in observed.values():
            for fact, source in facts:
                first = source[0] if isinstance(source, list) else source.split(",")[0]
                if first in texts:
                    yield fact, texts[first]


def _evidence(raw: dict[str, Any], texts: dict[str, str]) -> Any:
    names = dict.fromkeys(name for question in raw["qa"] for name in question["evidence"])
    return (texts[name] for name in names if name in texts)


def agent_log(turns: int = 80, *, largest: int = 1_200) -> Talk:
    """An agent at work: one to four rounds of tools a turn, some with two calls at once.

    Args:
        turns: The user's turns.
        largest: The tokens, about, of the largest result.
    """
    chance = random.Random(7)
    talk = Talk("tools", [])
    for number in range(turns):
        question = f"Ticket {number}: {_prose(chance, 18)}?"
        exchange = Exchange(question, [])
        for step in range(chance.choice([0, 1, 1, 2, 4])):
            _add_round(exchange, chance, f"{number}-{step}", largest)
        finding = f"Ticket {number} is done: {_prose(chance, 45)}."
        exchange.replies.append(AIMessage(finding))
        talk.exchanges.append(exchange)
        talk.facts.append((finding[:120], finding))
        talk.evidence.append(finding)
    return talk


def _add_round(exchange: Exchange, chance: random.Random, name: str, largest: int) -> None:
    calls = []
    for part in range(chance.choice([1, 1, 2])):
        call_id = f"call-{name}-{part}"
        tool = chance.choice(["read_file", "search", "run"])
        calls.append({"name": tool, "args": {"target": _prose(chance, 3)}, "id": call_id})
        size = int(min(50 * chance.paretovariate(0.8), largest))
        exchange.results[call_id] = f"{call_id}: {_prose(chance, size)}"
    exchange.replies.append(AIMessage("", tool_calls=calls))


def _prose(chance: random.Random, words: int) -> str:
    return " ".join(chance.choice(_WORDS) for _ in range(words))
