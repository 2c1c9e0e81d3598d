"""How much of what is asked later a summary without a model keeps, beside simpler ones.

Needs the conversations of LoCoMo (CC BY-NC 4.0, not part of this project) as one JSON file:

    NANOMEM_LOCOMO=locomo.json python benchmarks/extractive.py

Without it the script says so and ends. What it prints is the share of answer-bearing sentences
kept and of exact days found; it is no score of answered questions.

An answer-bearing sentence is, in a turn that a question of the categories 1 to 4 names as its
evidence, the first one with the most content words of the gold answer, and at least one. Relative
dates are resolved for every method alike before sentences are compared. The weights of the
extractive summary were chosen on the "tuned" half of the conversations; "held out" is the other.
"""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import time
from collections import defaultdict
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_nanomem import extractive
from langchain_nanomem.dates import render_date, resolve_relative_dates
from langchain_nanomem.extractive import Utterance, summarize_extractively
from langchain_nanomem.tokens import TokenCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_TOKENS = 140
RANDOM_RUNS = 10
EVIDENCE_CATEGORIES = (1, 2, 3, 4)
DATE_CATEGORY = 2
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTH = f"(?P<month>{'|'.join(MONTHS)})"
DAY = rf"(?:(?P<day>\d{{1,2}}) {MONTH},? (?P<year>\d{{4}}))"
DAY_US = DAY.replace(rf"(?P<day>\d{{1,2}}) {MONTH},?", rf"{MONTH} (?P<day>\d{{1,2}}),")
counter = TokenCounter()


class Session(NamedTuple):
    """One dated session: its utterances and, by place, the sentences that answers stand in."""

    utterances: list[Utterance]
    answers: set[tuple[int, str]]


class DatedAnswer(NamedTuple):
    """A question whose answer is one day, and the utterances that hold the evidence."""

    day: str
    evidence: list[Utterance]


def parse_time(stated: str) -> datetime:
    """The time from LoCoMo's form, such as ``1:56 pm on 8 May, 2023``."""
    clock, day = stated.split(" on ")
    number, month, year = day.replace(",", "").split()
    hour, minute = (int(part) for part in clock.split()[0].split(":"))
    hour = hour % 12 + (12 if clock.endswith("pm") else 0)
    return datetime(int(year), MONTHS.index(month) + 1, int(number), hour, minute)  # noqa: DTZ001 - the speakers' own, unnamed zone


def turns_of(conversation: dict[str, Any]) -> dict[str, tuple[str, Utterance]]:
    """Each turn by its id: the session it is in, and what was said."""
    turns = {}
    for name, spoken in conversation.items():
        if re.fullmatch(r"session_\d+", name):
            said_at = parse_time(conversation[f"{name}_date_time"])
            for turn in spoken:
                utterance = Utterance(turn["speaker"], turn["text"], said_at)
                turns[turn["dia_id"]] = name, utterance
    return turns


def sentences_of(utterance: Utterance) -> list[str]:
    """The sentences of an utterance as every method here sees them."""
    return extractive._split(utterance.text, utterance.said_at)  # noqa: SLF001 - measured from inside


def words_of(text: str) -> set[str]:
    """Content words, with months in words so that 2023-07-02 meets "2 July 2023"."""

    def spell(match: re.Match[str]) -> str:
        month = MONTHS[int(match[2]) - 1] if match[2] else ""
        return f"{match[0]} {match[1]} {month} {int(match[3]) if match[3] else ''}"

    spelled = re.sub(r"\b(\d{4})-(0[1-9]|1[0-2])(?:-(\d\d))?\b", spell, text)
    return {word for word, _ in extractive._content_words(spelled, frozenset())}  # noqa: SLF001 - measured from inside


def sessions_of(sample: dict[str, Any]) -> list[Session]:
    """The sessions of one conversation that hold the answer to a question."""
    turns = turns_of(sample["conversation"])
    sessions: dict[str, Session] = defaultdict(lambda: Session([], set()))
    places = {}
    for turn_id, (name, utterance) in turns.items():
        places[turn_id] = len(sessions[name].utterances)
        sessions[name].utterances.append(utterance)
    for question in sample["qa"]:
        if question["category"] not in EVIDENCE_CATEGORIES:
            continue
        for turn_id in turns.keys() & set(question["evidence"]):
            name, utterance = turns[turn_id]
            sentence = answer_bearing(utterance, words_of(str(question["answer"])))
            if sentence:
                sessions[name].answers.add((places[turn_id], sentence))
    return [session for session in sessions.values() if session.answers]


def answer_bearing(utterance: Utterance, answer: set[str]) -> str | None:
    """The first sentence with the most of the answer's words; None where none has one."""
    sentences = sentences_of(utterance)
    best = max(sentences, key=lambda s: len(words_of(s) & answer), default="")
    return best if words_of(best) & answer else None


class Budget:
    """Takes sentences while they fit, at the same cost as ours: a day, and a lead a run."""

    def __init__(self, session: Session) -> None:
        self.left = MAX_TOKENS - counter.count_text(render_date(_said_at(session)) + " ")
        self.speaker = ""

    def take(self, speaker: str, sentence: str) -> bool:
        """True if `sentence` still fits."""
        lead = f"\n{speaker}: " if speaker != self.speaker else ""
        cost = counter.count_text(f"{lead or ' '}{sentence}")
        if cost > self.left:
            return False
        self.left, self.speaker = self.left - cost, speaker
        return True


def _said_at(session: Session) -> datetime:
    said_at = session.utterances[0].said_at
    assert said_at is not None
    return said_at


def placed_sentences(session: Session) -> list[tuple[int, str, str]]:
    """Place of the utterance, speaker and sentence, in order."""
    return [
        (place, utterance.speaker, sentence)
        for place, utterance in enumerate(session.utterances)
        for sentence in sentences_of(utterance)
    ]


def fill(session: Session, candidates: Iterable[tuple[int, str, str]]) -> set[str]:
    """The sentences of `candidates`, in their order, up to the first that does not fit."""
    budget, kept = Budget(session), set()
    for _, speaker, sentence in candidates:
        if not budget.take(speaker, sentence):
            break
        kept.add(sentence)
    return kept


def summary_of(session: Session) -> str:
    """The extractive summary within the budget."""
    return summarize_extractively(
        session.utterances, max_tokens=MAX_TOKENS, count_tokens=counter.count_text
    )


def ours(session: Session) -> set[str]:
    """The sentences that the extractive summary keeps, each as a whole."""
    summary = f" {summary_of(session)} ".replace("\n", " ")
    return {s for _, _, s in placed_sentences(session) if f" {s} " in summary}


def lede(session: Session) -> set[str]:
    """The session's beginning."""
    return fill(session, placed_sentences(session))


def first_of_each_turn(session: Session) -> set[str]:
    """The first sentence of every turn, from the beginning."""
    first: dict[int, tuple[int, str, str]] = {}
    for candidate in placed_sentences(session):
        first.setdefault(candidate[0], candidate)
    return fill(session, first.values())


def at_random(session: Session, seed: int) -> set[str]:
    """Sentences in an order that `seed` gives."""
    candidates = placed_sentences(session)
    random.Random(seed).shuffle(candidates)
    return fill(session, candidates)


def lsa(session: Session) -> set[str]:
    """What sumy's LSA ranks first."""
    from sumy.models.dom import ObjectDocumentModel, Paragraph, Sentence  # noqa: PLC0415 - optional
    from sumy.nlp.stemmers import Stemmer  # noqa: PLC0415 - optional
    from sumy.summarizers.lsa import LsaSummarizer  # noqa: PLC0415 - optional
    from sumy.utils import get_stop_words  # noqa: PLC0415 - optional

    class Words:
        def to_words(self, text: str) -> list[str]:
            return re.findall(r"[^\W\d_]+", text)

    placed = placed_sentences(session)
    document = ObjectDocumentModel([Paragraph([Sentence(s, Words()) for _, _, s in placed])])
    summarizer = LsaSummarizer(Stemmer("english"))
    summarizer.stop_words = get_stop_words("english")
    best: list[tuple[int, str, str]] = []
    for number in range(1, len(placed) + 1):
        chosen = {str(sentence) for sentence in summarizer(document, number)}
        candidates = [candidate for candidate in placed if candidate[2] in chosen]
        if len(fill(session, candidates)) < len({c[2] for c in candidates}):
            break
        best = candidates
    return {sentence for _, _, sentence in best}


def share_kept(sessions: list[Session], summarize: Callable[[Session], set[str]]) -> float:
    """The share of answer-bearing sentences that `summarize` keeps."""
    kept = total = 0
    for session in sessions:
        summary = summarize(session)
        kept += sum(sentence in summary for _, sentence in session.answers)
        total += len(session.answers)
    return kept / total


def exact_day(answer: str) -> str | None:
    """The day an answer names, as ISO date: "7 May 2023", "The Friday before 15 July 2023"."""
    match = re.search(DAY, answer) or re.search(DAY_US, answer)
    if match is None:
        return None
    day = datetime(int(match["year"]), MONTHS.index(match["month"]) + 1, int(match["day"]))  # noqa: DTZ001 - a day
    lead, trail = answer[: match.start()].strip().lower(), answer[match.end() :].strip(" .")
    if trail or not lead:
        return None if trail else day.date().isoformat()
    weekday = re.fullmatch(rf"(?:the )?({'|'.join(WEEKDAYS)}) (before|after)", lead)
    if weekday is None:
        return None
    days = (WEEKDAYS.index(weekday[1]) - day.weekday()) % 7 or 7
    return (day + timedelta(days=days - 7 if weekday[2] == "before" else days)).date().isoformat()


def dated_answers(sample: dict[str, Any]) -> list[DatedAnswer]:
    """The questions of one conversation that are answered by an exact day."""
    turns = turns_of(sample["conversation"])
    answers = []
    for question in sample["qa"]:
        day = exact_day(str(question["answer"])) if question["category"] == DATE_CATEGORY else None
        evidence = [turns[turn][1] for turn in question["evidence"] if turn in turns]
        if day and evidence:
            answers.append(DatedAnswer(day, evidence))
    return answers


def share_of_days(answers: list[DatedAnswer], *, is_resolved: bool) -> float:
    """The share of exact days that stand in the evidence, under the day it was said on."""

    def shown(utterance: Utterance) -> str:
        assert utterance.said_at is not None
        text = utterance.text
        if is_resolved:
            text = resolve_relative_dates(text, utterance.said_at)
        return f"{render_date(utterance.said_at)} {utterance.speaker}: {text}"

    return statistics.mean(
        any(answer.day in shown(utterance) for utterance in answer.evidence) for answer in answers
    )


def seconds_a_session(sessions: list[Session]) -> float:
    """The median time of one summary."""
    times = []
    for session in sessions:
        start = time.perf_counter()
        summary_of(session)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def print_row(name: str, shares: Iterable[float]) -> None:
    """One line of the table, in percent."""
    print(f"{name:<34}" + "".join(f"{100 * share:>10.0f} %" for share in shares))


def run(samples: list[dict[str, Any]]) -> None:
    """Print the tables for both halves and all."""
    parts = {"tuned": samples[0::2], "held out": samples[1::2], "all": samples}
    sessions = [[s for sample in part for s in sessions_of(sample)] for part in parts.values()]
    answers = [[a for sample in part for a in dated_answers(sample)] for part in parts.values()]
    kind = "exact" if counter.exact else "estimated"
    print(f"{len(samples)} conversations, {len(sessions[-1])} sessions, {MAX_TOKENS} tokens each")
    print(f"({kind} count). Share of the answer-bearing sentences kept")
    print("(as defined at the head of this script: compare the rows, not other publications):\n")
    print(f"{'':<34}" + "".join(f"{name:>12}" for name in parts))
    print_row("extractive (ours)", (share_kept(part, ours) for part in sessions))
    print_row("lede", (share_kept(part, lede) for part in sessions))
    print_row("first sentence of each turn", (share_kept(p, first_of_each_turn) for p in sessions))
    print_row(
        f"random (mean of {RANDOM_RUNS})",
        (
            statistics.mean(
                share_kept(part, lambda session, seed=seed: at_random(session, seed))
                for seed in range(RANDOM_RUNS)
            )
            for part in sessions
        ),
    )
    if find_spec("sumy"):
        print_row("sumy LSA", (share_kept(part, lsa) for part in sessions))
    else:
        print(f"{'sumy LSA':<34}{'not installed':>14}")
    print(f"{'sentences':<34}" + "".join(f"{sum(len(s.answers) for s in p):>12}" for p in sessions))
    print(
        "\nShare of dated answers whose exact day stands in the evidence, its own day included:\n"
    )
    print_row("relative dates resolved", (share_of_days(p, is_resolved=True) for p in answers))
    print_row("as it was said", (share_of_days(p, is_resolved=False) for p in answers))
    print(f"{'answers':<34}" + "".join(f"{len(part):>12}" for part in answers))
    print(f"\nMedian time a session: {1000 * seconds_a_session(sessions[-1]):.1f} ms")


def main() -> None:
    """Run on the file that NANOMEM_LOCOMO names, or say that there is none."""
    path = os.environ.get("NANOMEM_LOCOMO")
    if not path or not Path(path).is_file():
        print("Skipped: set NANOMEM_LOCOMO to a JSON file of LoCoMo's conversations.")
        return
    run(json.loads(Path(path).read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
