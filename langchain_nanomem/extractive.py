# ruff: noqa: RUF001 - the punctuation of Chinese is meant where it stands
"""The summary that needs no model: the sentences that say the most in the fewest tokens.

Sentences are picked greedily. What counts is the content words a sentence adds to those already
picked, per token, times its cues: names, numbers, dates, first person, titles in quotes and what
was done make a sentence worth more; questions, exclamations, what is said of the listener, and
what is no prose make it worth less. Chinese, Japanese and Korean count by pairs of characters.
"""

from __future__ import annotations

import heapq
import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from langchain_nanomem.dates import render_date, resolve_relative_dates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime


@dataclass(frozen=True)
class Utterance:
    """What one speaker said at one time."""

    speaker: str
    """Who said it; "" for nobody in particular."""
    text: str
    """What was said, as it was said."""
    said_at: datetime | None = None
    """When it was said, in the time zone whose days count; None where that is not known."""


def summarize_extractively(
    utterances: Sequence[Utterance],
    *,
    max_tokens: int = 140,
    count_tokens: Callable[[str], int] | None = None,
) -> str:
    """The most telling sentences of `utterances`, in their order; no model, no network.

    A line for each run of one speaker, led by ``Speaker: ``. The day stands once, before its
    first sentence (``2023-05-08 Mon Speaker: ...``), and each relative date is followed by the
    absolute one. Code blocks are left out, line breaks in a sentence become spaces. The same
    utterances give the same text.

    Args:
        utterances: Oldest first.
        max_tokens: The most the result has, by `count_tokens`. Where no sentence is as short as
            that, the best one is cut and ends in an ellipsis.
        count_tokens: The tokens of a text; None estimates them from words and characters.

    Returns:
        "" when no sentence has a content word, or `max_tokens` leaves no room for any. It can be
        encoded as UTF-8, whatever the utterances hold.
    """
    count = count_tokens or _estimate_tokens
    sentences = list(_sentences_of(utterances, max_tokens))
    picked = _pick(sentences, max_tokens, count)
    while picked and count(_render(picked)) > max_tokens:
        picked.pop()
    return _render(picked) if picked else _cut_best(sentences, max_tokens, count)


def _estimate_tokens(text: str) -> int:
    """About how many tokens `text` has: a word has one for each seven letters, a sign one."""
    return sum(1 + (len(piece) - 1) // _LETTERS_PER_TOKEN for piece in _PIECE.findall(text))


class _Sentence(NamedTuple):
    position: int
    speaker: str
    day: str
    text: str
    words: tuple[tuple[str, float], ...]
    """Content words, each once, with their weights; in order, so that sums are the same."""
    worth: float
    """The product of the cues, per token."""

    def gain(self, covered: set[str]) -> float:
        return self.worth * sum(weight for word, weight in self.words if word not in covered)


_HAN, _HIRAGANA = "\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff", "\u3040-\u309f"
_CJK = rf"{_HAN}{_HIRAGANA}\u30a0-\u30ff\u31f0-\u31ff\uac00-\ud7af"
_LETTERS_PER_TOKEN = 7
_PIECE = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+|\S")
_WORD = re.compile(rf"\d{{4}}-\d\d(?:-\d\d)?|[{_CJK}]+|[^\W_{_CJK}]+(?:['’][^\W\d_{_CJK}]+)*")
_CODE_BLOCK = re.compile(r"```[\s\S]*?```|~~~[\s\S]*?~~~")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_LIST_MARK = re.compile(r"^(?:#{1,6}|[-*+>•]|\[[ xX]\])\s+")
_ABBREVIATIONS = ("Mr", "Mrs", "Ms", "Dr", "Prof", "St", "vs", "etc", "e.g", "i.e", "approx")
_NO_END = "".join(rf"(?<!\b{word}\.)" for word in map(re.escape, _ABBREVIATIONS))
_END = re.compile(
    rf"(?:(?<=[.!?…])|(?<=[.!?…][\"”’)\]])){_NO_END}(?<!\b[A-HJ-Z]\.)(?<!^\d\.)(?<!^\d\d\.)\s+"
    r"|(?:(?<=[。！？])|(?<=[。！？][”’」』）]))(?![。！？”’」』）\s])"
    r"|\n(?![ \t]{0,8}[a-z])",  # a line that goes on in small letters is the same sentence
    re.MULTILINE,
)

_FULL_WIDTH_ENDS = "。！？”’」』）"
_STOP_WORDS = frozenset(
    """
    a about above after again against all also am an and any are as at be because been before being
    below between both but by can cannot could did do does doing done down during each few for from
    further get gets getting go goes gonna got had has have having he her here hers herself him
    himself his how i if im in into is it its itself ive just me more most my myself no nor not now
    of off on once one only or other our ours ourselves out over own same she should so some such
    than that the their theirs them themselves then there these they this those through to too
    under until up us very was we were what when where which while who whom why will with would
    you your yours yourself yourselves
    """.split()  # noqa: SIM905 - a list of words reads best as text
)
# What talk is made of, whatever it is about.
_FILLER_WORDS = frozenset(
    """
    absolute agree amaz anyth appreciat awesome aw aww best bet btw bye cheer chat check cool
    congrat congratulation cute definite enjoy even ever everyone everyth exact excit fantastic
    feel fun gain glad good great guess guy haha happy hear hello help hey hi hope incredible
    inspir journey keep kind know late like little ll lol look lot love make mean much need new nice
    oh ok okay pic photo picture perfect please pretty proud real right say see share someone
    someth soon sound special stay still stuff super support sure take talk tell thank thing think
    time total tri true try wait want way well whoa wow yay yeah yep yes
    谢谢 你好 您好 哈哈 好的 再见 早安 晚安 不错 真的 可以 一下 没有 什么 怎么 我们 你们 他们
    """.split()  # noqa: SIM905 - a list of words reads best as text
)
_FILLER_WEIGHT = 0.1
_KANA_WEIGHT = 0.2
_PAIR_WEIGHT = 0.5  # a character is a token, a pair of them about a word
_DATE_WEIGHT = 0.5
_FUNCTION_CHARS = frozenset("的了吗呢吧啊呀哦嗯是就也都很在和与及着这那么们我你您他她它")
_TOKENS_OF_ANY = 4  # so that the shortest sentence is not the best
_TOKENS_POWER = 0.6
_LEAST_SHARE_OF_BEST = 0.05  # below it a sentence is not worth its place
_MAX_SPEAKER_CHARS = 40
_MAX_CHARS_PER_TOKEN = 8
_SHORTEST_NAME = 3
_LEAST_LETTERS_SHARE = 0.7

_NAMES_FACTOR, _MAX_NAMES = 1.3, 2
_NOT_PROSE_FACTOR = 0.3
_NAME = re.compile(r"(?<=[a-z,;:\"(] )(?!I\b)[A-Z]\w+|(?<=[\"(])(?!I\b)[A-Z]\w+")
_DAY_NAMES = (
    "(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|june|july|august"
    "|september|october|november|december"
)
_DATES = rf"\d{{4}}-\d\d|\b(?:19|20)\d\d\b|\b(?:{_DAY_NAMES})\b|\d\s*[年月日号]"
_NUMBERS = (
    r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|first|second|third|twice|once|hundred"
    r"|thousand|dozen)\b|[二三四五六七八九十百千万两]"
)
_DEEDS = (
    r"\b(?:[a-z]{3,}ed|was|were|had|did|went|got|made|took|met|bought|found|gave|saw|won|lost|began"
    r"|came|left|told|taught|thought|felt|wrote|read|ran|built|held|spent|kept|grew)\b"
)
_FACTORS = {
    _DATES: 1.3,
    _NUMBERS: 1.4,
    r"\b(?:i|my|we|our|me)\b|[我咱私僕俺나]": 1.5,
    _DEEDS: 1.2,
    r"[\"“《「『]": 1.6,
    r"\b(?:you|your|yours)\b|[你您]": 0.6,
    r"[?？][\"”’)）」]?$|[吗呢か][。.]?$": 0.45,
    r"[!！][\"”’)）」]?$": 0.8,
}
_CUES = tuple((re.compile(cue, re.IGNORECASE), factor) for cue, factor in _FACTORS.items())


def _sentences_of(utterances: Sequence[Utterance], max_tokens: int) -> Iterator[_Sentence]:
    nicknames = _nicknames(utterances)
    position = 0
    for utterance in utterances:
        said_at = utterance.said_at
        day = render_date(said_at) if said_at else ""
        speaker = _one_line(utterance.speaker)[:_MAX_SPEAKER_CHARS]
        for text in _split(utterance.text, said_at):
            short = _clip(text, _MAX_CHARS_PER_TOKEN * max(max_tokens, 1))
            words = _content_words(short, nicknames)
            if any(weight > _FILLER_WEIGHT for _, weight in words):
                yield _Sentence(position, speaker, day, short, words, _worth(short, nicknames))
                position += 1


def _split(text: str, said_at: datetime | None) -> list[str]:
    """The sentences of what was said, each on one line, with absolute dates."""
    prose = _CODE_BLOCK.sub("\n", _encodable(text))
    if said_at:
        prose = resolve_relative_dates(prose, said_at)
    lines = (_LIST_MARK.sub("", _one_line(part)) for part in _END.split(prose))
    return [line for line in lines if line]


def _encodable(text: str) -> str:
    """`text` with each lone surrogate replaced, so that it can be written as UTF-8."""
    return (
        text
        if text.isascii()
        else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


def _one_line(text: str) -> str:
    return " ".join(_CONTROL.sub(" ", _encodable(text)).split())


def _clip(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[:max_chars].rstrip() + "…"


def _nicknames(utterances: Sequence[Utterance]) -> frozenset[str]:
    """The speakers' names and their beginnings: to be called by name is no news."""
    names = {name[:_MAX_SPEAKER_CHARS].lower() for u in utterances for name in u.speaker.split()}
    return frozenset(name[:end] for name in names for end in range(_SHORTEST_NAME, len(name) + 1))


def _content_words(text: str, nicknames: frozenset[str]) -> tuple[tuple[str, float], ...]:
    weights: dict[str, float] = {}
    for token in _WORD.findall(text):
        if _is_cjk(token):
            weights.update(_pairs(token))
        elif not (token[0].isupper() and _bare(token) in nicknames):
            word, weight = _weigh(token)
            weights[word] = weight
    weights.pop("", None)
    return tuple(weights.items())


def _is_cjk(token: str) -> bool:
    return _CJK_CHAR.match(token) is not None


_CJK_CHAR = re.compile(f"[{_CJK}]")
_KANA_PAIR = re.compile(f"[{_HIRAGANA}]+")


def _pairs(run: str) -> Iterator[tuple[str, float]]:
    """The pairs of neighbouring characters; a character alone counts by itself."""
    for start in range(max(1, len(run) - 1)):
        pair = run[start : start + 2]
        if pair in _FILLER_WORDS or not _FUNCTION_CHARS.isdisjoint(pair):
            yield pair, _FILLER_WEIGHT
        else:
            yield pair, _KANA_WEIGHT if _KANA_PAIR.fullmatch(pair) else _PAIR_WEIGHT


def _bare(token: str) -> str:
    """The word in small letters, without what an apostrophe hangs on it."""
    word = token.lower().replace("’", "'")
    return word.removesuffix("n't") if word.endswith("n't") else word.split("'")[0]


@lru_cache(maxsize=4096)
def _weigh(token: str) -> tuple[str, float]:
    """The stem of a word and its weight; "" for a word that carries no content."""
    word = _bare(token)
    if word in _STOP_WORDS or (len(word) == 1 and word.isascii() and not word.isdigit()):
        return "", 0.0
    stem = _stem(word)
    if word in _FILLER_WORDS or stem in _FILLER_WORDS:
        return stem, _FILLER_WEIGHT
    return stem, _DATE_WEIGHT if word[:2].isdigit() else 1.0


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "ly", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_NAME:
            return word.removesuffix(ending)
    return word


def _worth(text: str, nicknames: frozenset[str]) -> float:
    names = sum(_bare(name) not in nicknames for name in _NAME.findall(text))
    worth: float = _NAMES_FACTOR ** min(names, _MAX_NAMES)
    for pattern, factor in _CUES:
        if pattern.search(text):
            worth *= factor
    if _letters_share(text) < _LEAST_LETTERS_SHARE:
        worth *= _NOT_PROSE_FACTOR
    return worth / math.pow(_estimate_tokens(text) + _TOKENS_OF_ANY, _TOKENS_POWER)


def _letters_share(text: str) -> float:
    signs = text.replace(" ", "")
    return sum(map(str.isalnum, signs)) / len(signs)


def _pick(
    sentences: list[_Sentence], max_tokens: int, count: Callable[[str], int]
) -> list[_Sentence]:
    """The sentences that fit into `max_tokens`, the best first.

    A gain only shrinks as words are covered, so one that is still the greatest after it was
    computed again is the greatest of all.
    """
    covered: set[str] = set()
    heap = [(-sentence.gain(covered), sentence.position) for sentence in sentences]
    heapq.heapify(heap)
    least = -heap[0][0] * _LEAST_SHARE_OF_BEST if heap else 0.0
    layout = _Layout(max_tokens, count)
    while heap and not layout.is_full:
        _, position = heapq.heappop(heap)
        sentence = sentences[position]
        gain = sentence.gain(covered)
        if gain <= least:
            continue
        if heap and gain < -heap[0][0]:
            heapq.heappush(heap, (-gain, position))
        elif layout.add(sentence):
            covered.update(word for word, _ in sentence.words)
    return layout.picked


class _Layout:
    """The sentences picked so far, the best first, and the tokens they take when rendered."""

    def __init__(self, max_tokens: int, count: Callable[[str], int]) -> None:
        self.picked: list[_Sentence] = []
        self._max_tokens = max_tokens
        self._count = count
        self._lead_tokens = lru_cache(maxsize=None)(count)
        self._text_tokens = 0

    @property
    def is_full(self) -> bool:
        return self._text_tokens + _TOKENS_OF_ANY > self._max_tokens

    def add(self, sentence: _Sentence) -> bool:
        """Take `sentence` in, if it fits."""
        tokens = self._text_tokens + self._count(" " + sentence.text)
        if tokens > self._max_tokens:
            return False
        leads = sum(self._lead_tokens(lead) for lead in _leads([*self.picked, sentence]) if lead)
        if tokens + leads > self._max_tokens:
            return False
        self.picked.append(sentence)
        self._text_tokens = tokens
        return True


def _leads(sentences: Sequence[_Sentence]) -> Iterator[str]:
    """What goes before each of `sentences`, by position: a new line with day and speaker, or ""."""
    day, speaker = "", None
    for sentence in sorted(sentences):
        is_new_day = sentence.day not in {"", day}
        if is_new_day or sentence.speaker != speaker:
            shown_day = f"{sentence.day} " if is_new_day else ""
            yield f"\n{shown_day}{sentence.speaker}{': ' if sentence.speaker else ''}"
        else:
            yield ""
        day, speaker = sentence.day or day, sentence.speaker


def _render(sentences: Sequence[_Sentence]) -> str:
    shown = ""
    for lead, sentence in zip(_leads(sentences), sorted(sentences), strict=True):
        shown += (lead or ("" if shown[-1] in _FULL_WIDTH_ENDS else " ")) + sentence.text
    return shown.strip()


def _cut_best(sentences: Sequence[_Sentence], max_tokens: int, count: Callable[[str], int]) -> str:
    """The best sentence, as much of it as fits; "" where nothing does."""
    if not sentences:
        return ""
    best = max(sentences, key=lambda sentence: (sentence.gain(set()), -sentence.position))
    low, high, fitting = 1, len(best.text), ""
    while low <= high:
        middle = (low + high) // 2
        cut = _render([best._replace(text=_clip(best.text, middle))])
        if count(cut) <= max_tokens:
            low, fitting = middle + 1, cut
        else:
            high = middle - 1
    return fitting
