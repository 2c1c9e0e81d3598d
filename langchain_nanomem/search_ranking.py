"""Which passages match best: BM25 over a passage and what stands around it, and its episode.

A short message often doesn't say what it is about: the one before it does. So a passage counts
the terms of its neighbours too, less than its own, and most where the one before it ends in a
question. To that comes how well its whole episode matches, together with the entries of the event
log that tell of it. The weights were found on six long dialogues (`benchmarks/recall.py` measures
them); around them the figures hardly change.

BM25: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from langchain_nanomem.history_log import session_of
from langchain_nanomem.search_cues import QUESTION
from langchain_nanomem.search_weights import WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from langchain_nanomem.search_query import Query
    from langchain_nanomem.search_tables import PassageRow
    from langchain_nanomem.search_weights import Weights

Episode = tuple[int, int]
"""A source, and the place in it where the episode begins."""

_LIKELY = 4
_LEAST_LIKELY = 64
"""So many are looked at for cues, or so many times what is needed: a cue is no factor of 4."""


class Ranked(NamedTuple):
    """A passage, and how well it matches: 1 for the best of its kind, more with cues."""

    score: float
    row: PassageRow


class Passages:
    """All passages of a scope, as the ranking needs them; new ones are added at the end.

    Args:
        weights: What counts how much.
    """

    def __init__(self, weights: Weights = WEIGHTS) -> None:
        self.weights = weights
        self.rows: dict[int, PassageRow] = {}
        self.last_id = 0
        self._places: dict[int, dict[int, int]] = defaultdict(dict)
        self._starts: dict[int, list[int]] = defaultdict(list)
        self._sizes: dict[Episode, int] = defaultdict(int)
        self._length = self._asking = self._said = 0
        self.entry_ids: set[int] = set()
        """The entries of the event log."""
        self._entries_length = 0
        self.around: dict[int, tuple[tuple[int, float], ...]] = {}
        """What `counted_in` has told."""
        self.damped: dict[int, float] = {}
        """What `damping` has told."""
        self.episode_of: dict[int, Episode] = {}
        """The episode of each message."""
        self._told: dict[int, list[Episode]] = {}

    def add(self, rows: Iterable[PassageRow], log_source: int | None) -> None:
        """Take in rows; those of `log_source` are entries of the event log."""
        for row in rows:
            self.rows[row.id] = row
            self.last_id = row.id
            if row.source == log_source:
                self.entry_ids.add(row.id)
                self._entries_length += row.length
            else:
                self._add_message(row)

    def _add_message(self, row: PassageRow) -> None:
        self._places[row.source][row.place] = row.id
        starts = self._starts[row.source]
        if not starts or starts[-1] != row.episode:
            starts.append(row.episode)
        episode = self.episode_of[row.id] = row.source, row.episode
        self._sizes[episode] += row.length
        if row.length:
            self._said += 1
            self._length += row.length
            self._asking += bool(row.traits & QUESTION)
        self._forget_before(row)
        self._told.clear()

    def _forget_before(self, row: PassageRow) -> None:
        """What was reckoned of the passages that have this one behind them, and of the mean."""
        for place in (row.place - 1, row.place - 2):
            self.around.pop(self._places[row.source].get(place, 0), None)
        self.damped.clear()

    # --- what is known of each ---

    def neighbour(self, row: PassageRow, distance: int) -> PassageRow | None:
        """The message so many places behind one (before it: below 0); None where there is none."""
        passage_id = self._places[row.source].get(row.place + distance)
        return None if passage_id is None else self.rows[passage_id]

    def _in_episode(self, row: PassageRow, distance: int) -> PassageRow | None:
        other = self.neighbour(row, distance)
        return other if other is not None and other.episode == row.episode else None

    def counted_in(self, passage_id: int) -> tuple[tuple[int, float], ...]:
        """The passages that count a message's terms, each with its weight."""
        found, row = self.around.get(passage_id), self.rows[passage_id]
        if found is None:
            own = self.weights
            after = own.before + (own.asked_before if row.traits & QUESTION else 0)
            weights = ((1, after), (2, own.two_before), (-1, own.after), (-2, own.two_after))
            others = ((self._in_episode(row, distance), weight) for distance, weight in weights)
            found = ((row.id, 1.0), *((one.id, weight) for one, weight in others if one))
            self.around[row.id] = found
        return found

    def damping(self, row: PassageRow) -> float:
        """BM25's share of a passage's length, its neighbours' terms by their weight included."""
        damping = self.damped.get(row.id)
        if damping is None:
            k1, b = self.weights.k1, self.weights.b
            relative = self._wide_length(row) / self._mean_wide_length
            damping = self.damped[row.id] = k1 * (1 - b + b * relative)
        return damping

    def _wide_length(self, row: PassageRow) -> float:
        own = self.weights
        weights = ((-2, own.two_before), (1, own.after), (2, own.two_after))
        others = ((self._in_episode(row, distance), weight) for distance, weight in weights)
        length = row.length + sum(one.length * weight for one, weight in others if one)
        if before := self._in_episode(row, -1):
            asked = own.asked_before if before.traits & QUESTION else 0
            length += before.length * (own.before + asked)
        return length

    @property
    def _mean_wide_length(self) -> float:
        """About the mean of them."""
        own = self.weights
        asked = own.asked_before * self._asking / max(self._said, 1)
        around = 1 + own.before + own.two_before + own.after + own.two_after + asked
        return max(around * self._length / max(self._said, 1), 1.0)

    @property
    def said(self) -> int:
        """The number of messages that have any words."""
        return self._said

    @property
    def mean_entry_length(self) -> float:
        """The mean of the terms of the event log's entries."""
        return max(self._entries_length / max(len(self.entry_ids), 1), 1.0)

    @property
    def episodes(self) -> Mapping[Episode, int]:
        """The number of terms in each."""
        return self._sizes

    @property
    def mean_episode_size(self) -> float:
        """The mean of them."""
        return max(self._length / max(len(self._sizes), 1), 1.0)

    def told_by(self, entry: PassageRow, labels: Mapping[str, int]) -> list[Episode]:
        """The episodes that an entry tells of.

        Args:
            entry: The entry.
            labels: The source of each session, by its key.
        """
        found = self._told.get(entry.id)
        if found is None:
            found = self._told[entry.id] = list(self._episodes_of(entry.about, labels))
        return found

    def _episodes_of(self, about: str, labels: Mapping[str, int]) -> Iterable[Episode]:
        key, _, places = about.rpartition(" ")
        start, _, end = places.partition("-")
        if key not in labels or not (start.isdigit() and end.isdigit()):
            return
        source = labels[key]
        starts = self._starts[source]
        first = max(bisect_right(starts, int(start)) - 1, 0)
        for episode in starts[first:]:
            if episode >= int(end):
                return
            yield source, episode


def looked_at(most: int) -> int:
    """How many of a ranking are looked at where so many are needed."""
    return max(_LEAST_LIKELY, _LIKELY * most)


def rank_messages(
    passages: Passages,
    terms: Sequence[Mapping[int, int]],
    labels: Mapping[str, int],
    query: Query,
    most: int,
) -> list[Ranked]:
    """The messages that match, best first; of equals the newest.

    Args:
        passages: All of the scope.
        terms: Where each term of the query is.
        labels: The source of each session, by its key.
        query: What is wanted.
        most: How many are needed at most.
    """
    logged = passages.entry_ids
    said = [_without(one, logged) for one in terms]
    scores = _wide_scores(passages, said)
    if query.is_narrow:
        wanted = {source for label, source in labels.items() if query.is_of(label)}
        scores = {i: n for i, n in scores.items() if _is_wanted(passages.rows[i], wanted, query)}
    if not scores:
        return []
    told = [_among(one, logged) for one in terms]
    with_episodes = _with_episodes(passages, scores, _episode_scores(passages, said, told, labels))
    likely = heapq.nlargest(looked_at(most), with_episodes)
    return sorted((_cued(passages, score, i, query) for score, i in likely), key=best_first)


def _without(occurrences: Mapping[int, int], ids: set[int]) -> Mapping[int, int]:
    return {i: n for i, n in occurrences.items() if i not in ids} if ids else occurrences


def _among(occurrences: Mapping[int, int], ids: set[int]) -> Mapping[int, int]:
    return {i: occurrences[i] for i in occurrences.keys() & ids}


def _with_episodes(
    passages: Passages, scores: Mapping[int, float], episodes: Mapping[Episode, float]
) -> Iterator[tuple[float, int]]:
    """Each passage that was said, with the score of its episode in its own."""
    rows, episode_of = passages.rows, passages.episode_of
    weight = passages.weights.episode
    own = 1 / ((max(scores.values()) or 1.0) * (1 + weight))
    best_episode = max(episodes.values(), default=0.0) or 1.0
    shared = weight / (best_episode * (1 + weight))
    for passage_id, score in scores.items():
        if rows[passage_id].speaker:
            of_episode = episodes.get(episode_of[passage_id], 0.0)
            yield score * own + of_episode * shared, passage_id


def _is_wanted(row: PassageRow, sources: set[int], query: Query) -> bool:
    return row.source in sources and query.is_within(row.at)


def _cued(passages: Passages, score: float, passage_id: int, query: Query) -> Ranked:
    row = passages.rows[passage_id]
    factor = query.cues.factor(passages.weights, row.traits, row.at, row.speaker)
    return Ranked(score * factor, row)


def rank_entries(
    passages: Passages, terms: Sequence[Mapping[int, int]], query: Query
) -> list[Ranked]:
    """The entries of the event log that match, best first; of equals the newest."""
    rows, mean, logged = passages.rows, passages.mean_entry_length, passages.entry_ids
    own, scores = passages.weights, defaultdict[int, float](float)
    for occurrences in terms:
        found = _among(occurrences, logged)
        weight = _idf(len(found), len(logged))
        for passage_id, count in found.items():
            length = rows[passage_id].length
            scores[passage_id] += weight * _saturated(count, length / mean, own.k1, own.b)
    best = max(scores.values(), default=1.0) or 1.0
    found_rows = (
        _cued(passages, score / best, i, query)
        for i, score in scores.items()
        if query.is_of(session_of(rows[i].about)) and query.is_within(rows[i].at)
    )
    return sorted(found_rows, key=best_first)


def _wide_scores(passages: Passages, terms: Sequence[Mapping[int, int]]) -> dict[int, float]:
    rows, damped = passages.rows, passages.damped
    scores: dict[int, float] = defaultdict(float)
    for occurrences in terms:
        idf = _idf(len(occurrences), passages.said) * (passages.weights.k1 + 1)
        for passage_id, count in _widened(passages, occurrences).items():
            damping = damped.get(passage_id) or passages.damping(rows[passage_id])
            scores[passage_id] += idf * count / (count + damping)
    return scores


def _widened(passages: Passages, occurrences: Mapping[int, int]) -> Mapping[int, float]:
    """What each passage counts of a term, its neighbours' by their weight."""
    around = passages.around
    wide: dict[int, float] = {}
    for passage_id, count in occurrences.items():
        for other, weight in around.get(passage_id) or passages.counted_in(passage_id):
            wide[other] = wide.get(other, 0.0) + weight * count
    return wide


def _episode_scores(
    passages: Passages,
    said: Sequence[Mapping[int, int]],
    told: Sequence[Mapping[int, int]],
    labels: Mapping[str, int],
) -> dict[Episode, float]:
    sizes, mean = passages.episodes, passages.mean_episode_size
    own, scores = passages.weights, defaultdict[Episode, float](float)
    for in_messages, in_entries in zip(said, told, strict=True):
        counts = _by_episode(passages, in_messages, in_entries, labels)
        weight = _idf(len(counts), len(sizes))
        for episode, count in counts.items():
            relative = sizes[episode] / mean
            scores[episode] += weight * _saturated(count, relative, own.episode_k1, own.episode_b)
    return scores


def _by_episode(
    passages: Passages, said: Mapping[int, int], told: Mapping[int, int], labels: Mapping[str, int]
) -> dict[Episode, float]:
    counts: dict[Episode, float] = defaultdict(float)
    episode_of = passages.episode_of
    for passage_id, count in said.items():
        counts[episode_of[passage_id]] += count
    for passage_id, count in told.items():
        for episode in passages.told_by(passages.rows[passage_id], labels):
            counts[episode] += passages.weights.told * count
    return counts


def _idf(found: int, count: int) -> float:
    return math.log(1 + max(count - found + 0.5, 0.0) / (found + 0.5))


def _saturated(count: float, relative_length: float, k1: float, b: float) -> float:
    return count * (k1 + 1) / (count + k1 * (1 - b + b * relative_length))


def best_first(one: Ranked) -> tuple[float, float, int]:
    """A key to sort by: the best first, of equals the newest."""
    return -round(one.score, 9), -(one.row.at or 0.0), -one.row.id
