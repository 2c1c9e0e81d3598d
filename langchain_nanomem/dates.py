# ruff: noqa: RUF001, RUF002 - the punctuation of Chinese is meant where it stands
"""Relative dates made absolute, by a small set of rules for English and Chinese.

A word such as "yesterday" loses its meaning once it stands in a log that is read months later.
Each rule names a phrase and the day, week, weekend, month or year it means. What no rule covers,
and what has two readings, stays as it is: a wrong date is worse than none.

==========================  =====================================================================
said on Friday 2026-05-08
==========================  =====================================================================
yesterday, last night       ``(2026-05-07)``; likewise today, tonight, this morning, tomorrow
the day before yesterday    ``(2026-05-06)``; the day after tomorrow ``(2026-05-10)``
three days ago, in 2 days   the day: ``(2026-05-05)``, ``(2026-05-10)``
a week ago                  ``(around 2026-05-01)``; months ``(around 2026-02)``, years
                            ``(around 2024)``, a year ago ``(around 2025-05)``
last Friday                 ``(2026-05-01)``: the latest one before that day; next Friday
                            ``(2026-05-15)``: the first one after it
this Friday                 ``(2026-05-08)``: the one of its week, Monday to Sunday; on a Sunday
                            it has two readings
Monday of last week         ``(2026-04-27)``
last week, next week        ``(week of 2026-04-27)``: its Monday; ``(week of 2026-05-11)``
last weekend                ``(weekend of 2026-05-02)``: its Saturday
last month, next year       ``(2026-04)``, ``(2027)``
last June, next June        ``(2025-06)``, ``(2026-06)``: never the month it is
the week before last        ``(week of 2026-04-20)``
昨天, 前天, 明天            ``（2026-05-07）``, ``（2026-05-06）``, ``（2026-05-09）``
上周五, 下周一              the day in the week before or after: ``（2026-05-01）``
上周, 上周末                ``（2026-04-27 当周）``, ``（2026-05-02 周末）``
三天前, 两周前, 三个月前    ``（2026-05-05）``, ``（约 2026-04-24）``, ``（约 2026-02）``
上个月, 去年                ``（2026-04）``, ``（2025）``
==========================  =====================================================================
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    _Resolve = Callable[["_Said"], "_When | None"]

_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_SATURDAY, _SUNDAY = 5, 6
_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_QUOTES = "\"'“”‘’「」"
_CONTEXT_CHARS = 120  # how far back the tense of a clause is looked for
_ANNOTATED_CONTEXT_CHARS = 10 * _CONTEXT_CHARS  # what that may be once all of it is resolved
_CHINESE = re.compile("[\u4e00-\u9fff]")
_CLAUSE_END = re.compile("[.!?;\n。！？；]")
_ANNOTATION = re.compile(
    r" ?[(（](?:(?:around|week of|weekend of|约) )?\d{4}(?:-\d\d){0,2}(?: 当周| 周末)?[)）]"
)


class _When(NamedTuple):
    """What a phrase means: a day, or the week, weekend, month or year that starts with it."""

    unit: str
    day: date
    is_exact: bool = True


class _Said(NamedTuple):
    """A phrase, where it was found, and the day it was said."""

    phrase: re.Match[str]
    found: re.Match[str]
    today: date

    @property
    def context(self) -> str:
        """What stood before the phrase in its clause, as it was before it was resolved."""
        start = self.found.start()
        before = self.found.string[max(0, start - _ANNOTATED_CONTEXT_CHARS) : start]
        return _CLAUSE_END.split(_ANNOTATION.sub("", before)[-_CONTEXT_CHARS:])[-1]

    def words(self, group: int) -> str:
        """The words of a group in lower case, with single spaces; "" where it is absent."""
        return " ".join((self.phrase[group] or "").lower().split())


def render_date(moment: datetime) -> str:
    """The day of `moment`, in its own time zone, with the weekday: ``2026-05-08 Fri``."""
    return f"{moment.date().isoformat()} {_WEEKDAYS[moment.weekday()]}"


def resolve_relative_dates(text: str, said_at: datetime) -> str:
    """`text` with the absolute date put behind each relative one.

    "I met her yesterday" becomes "I met her yesterday (2026-05-07)". Nothing else is changed or
    removed, and text that was resolved before comes back as it is. Code in backticks, URLs, and
    words inside identifiers or alone in quotes are not touched. The rules are listed in this
    module's docstring.

    Args:
        text: English or Chinese, or a mix; other languages pass through.
        said_at: When it was said. Its own date counts, in its own time zone.
    """
    today = said_at.date()
    return _ANY.sub(lambda match: match[0] + _annotation(match, today), text)


def relative_dates(text: str, said_at: datetime) -> dict[str, str]:
    """The relative dates in a text, as they stand there, each with what it means.

    It is what `resolve_relative_dates` puts behind them: ``{"yesterday": "2026-05-07"}``.
    """
    found = ((match[0], _annotation(match, said_at.date())) for match in _ANY.finditer(text))
    return {phrase: note.strip(" ()（）") for phrase, note in found if note}


def _annotation(match: re.Match[str], today: date) -> str:
    """What is put behind a phrase; "" where nothing is to be."""
    if match.lastgroup is None or _ANNOTATION.match(match.string, match.end()):
        return ""
    when = None if _is_quoted_word(match) else _resolve(match, today)
    return "" if when is None else _render(when, match[0])


def _is_quoted_word(match: re.Match[str]) -> bool:
    before = match.string[max(0, match.start() - 1) : match.start()]
    after = match.string[match.end() : match.end() + 1]
    return bool(before and after) and before in _QUOTES and after in _QUOTES


def _resolve(match: re.Match[str], today: date) -> _When | None:
    pattern, rule = _RULES[int(str(match.lastgroup)[1:])]
    phrase = pattern.fullmatch(match[0])
    if phrase is None:  # pragma: no cover - it is the pattern that found it
        return None
    try:
        return rule(_Said(phrase, match, today))
    except (OverflowError, ValueError):  # no such number, or outside the years 1 to 9999
        return None


def _render(when: _When, phrase: str) -> str:
    stated = when.day.isoformat()[: {"month": 7, "year": 4}.get(when.unit, 10)]
    if not _CHINESE.search(phrase):
        span = {"week": "week of ", "weekend": "weekend of "}.get(when.unit, "")
        return f" ({span if when.is_exact else 'around '}{stated})"
    span = {"week": " 当周", "weekend": " 周末"}.get(when.unit, "")
    return f"（{'' if when.is_exact else '约 '}{stated}{span}）"


def _shift(unit: str, count: int, today: date) -> _When:
    """The `unit` that lies `count` of them after the one of `today`; before it if negative."""
    if unit == "day":
        return _When(unit, today + timedelta(days=count))
    if unit in {"week", "weekend"}:
        first = _SATURDAY if unit == "weekend" else 0
        return _When(unit, today + timedelta(days=first - today.weekday(), weeks=count))
    months = today.year * 12 + today.month - 1 + count * (12 if unit == "year" else 1)
    return _When(unit, date(months // 12, months % 12 + 1, 1))


def _distance(unit: str, count: int, today: date) -> _When:
    """What is `count` units away from `today`, as exact as people mean it."""
    if unit in {"day", "weekend"}:
        return _shift(unit, count, today)
    if unit == "week":
        return _When("day", today + timedelta(weeks=count), is_exact=False)
    if unit == "year" and abs(count) == 1:
        unit, count = "month", 12 * count
    return _shift(unit, count, today)._replace(is_exact=False)


_RULES: list[tuple[re.Pattern[str], _Resolve]] = []
_FLAGS = re.ASCII | re.IGNORECASE


def _rule(pattern: str) -> Callable[[_Resolve], _Resolve]:
    """Resolve by the function what matches; of two that match at one place the first wins."""

    def register(resolve: _Resolve) -> _Resolve:
        _RULES.append((re.compile(pattern, _FLAGS), resolve))
        return resolve

    return register


_S = r"(?:[ \t]{1,3}|[ \t]?\n[ \t]?)"
_ONES = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9,
}  # fmt: skip
_TEENS = {
    "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15,
    "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19,
}  # fmt: skip
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70}
_NUMBERS = _ONES | _TEENS | _TENS | {"a": 1, "an": 1, "couple": 2}
_NUMBER = (
    rf"(?:(?<!,)\d{{1,4}}|(?:{'|'.join(_TENS)})(?:[ -](?:{'|'.join(_ONES)}))?"
    rf"|{'|'.join(_ONES | _TEENS)})"
)
_AMOUNT = rf"(?:{_NUMBER}|an?{_S}couple(?:{_S}of)?|an?)"
_APPROXIMATELY = rf"((?:about|around|roughly|almost|nearly|over|more{_S}than){_S})?"
_UNIT = "(day|weekend|week|fortnight|month|year|decade)s?"
_FROM_NOW = rf"from{_S}(?:now|today)"
_WEEKDAY = r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|mon|tues?|wed|thurs?|thu|fri|sat|sun)"
_DAY_PART = rf"(?:{_S}(?:morning|afternoon|evening|night))?(?:['’]s)?"
_ABBREVIATION_CHARS = 5
_OFFSETS = {
    "last": -1, "past": -1, "this past": -1, "this last": -1, "this": 0, "next": 1, "coming": 1,
    "this coming": 1, "today": 0, "tonight": 0, "yesterday": -1, "tomorrow": 1,
    "before yesterday": -2, "before last": -2, "after tomorrow": 2, "after next": 2,
}  # fmt: skip
# "the last week" is the seven days up to now, "the next week" counts from another day, "her last
# week" is one of hers, "every last Friday" is many.
_OTHER_READING = re.compile(
    r"\b(?:the|my|your|his|her|our|their|its|every|each)\s+$", re.IGNORECASE
)
_LARGER_AMOUNT = re.compile(
    r"\b(?:hundred|thousand|million|years?|months?|weeks?)[\s,]+(?:and\s+)?$", re.IGNORECASE
)
# "I read it in two days" is a duration, "I'll be back in two days" a date.
_PAST = re.compile(
    r"\b(?:\w+ed|was|were|did|had|has|have|took|made|got|went|won|read|wrote|ran|built|done|lost)\b",
    re.IGNORECASE,
)
_FUTURE = re.compile(r"(?:\bwill|['’]ll|\bgoing to|\bgonna|\bplan\w*|\bdue)\b", re.IGNORECASE)


@_rule(
    rf"(?:the{_S})?(day|night|week|weekend|month|year){_S}"
    rf"(before{_S}yesterday|before{_S}last|after{_S}tomorrow|after{_S}next){_DAY_PART}"
)
def _two_away(said: _Said) -> _When:
    """The day before yesterday, the week after next."""
    unit = said.words(1)
    return _shift("day" if unit == "night" else unit, _OFFSETS[said.words(2)], said.today)


@_rule(
    rf"(yesterday|today|tomorrow|tonight|last(?={_S}night)|this(?={_S}(?:mor|aft|eve)))"
    rf"(?:['’]s)?{_DAY_PART}"
)
def _day(said: _Said) -> _When | None:
    """Yesterday, today's, last night, this morning, tomorrow evening."""
    if said.words(1) == "last" and _OTHER_READING.search(said.context):
        return None
    return _shift("day", _OFFSETS[said.words(1)], said.today)


def _amount(said: _Said, sign: int) -> _When:
    words = said.words(2).replace("-", " ").removesuffix(" of").split()
    numbers = words[-1:] if "couple" in words else words
    count = sum(int(word) if word.isdigit() else _NUMBERS[word] for word in numbers)
    unit, factor = {"fortnight": ("week", 2), "decade": ("year", 10)}.get(
        said.words(3), (said.words(3), 1)
    )
    when = _distance(unit, sign * factor * count, said.today)
    return when._replace(is_exact=when.is_exact and not said.phrase[1] and "couple" not in words)


@_rule(rf"{_APPROXIMATELY}({_AMOUNT}){_S}{_UNIT}{_S}(ago|{_FROM_NOW})")
def _ago(said: _Said) -> _When | None:
    """Three days ago, about a year ago, two weeks from now."""
    if _LARGER_AMOUNT.search(said.context):
        return None
    return _amount(said, -1 if said.words(4) == "ago" else 1)


@_rule(rf"{_AMOUNT}(?:{_S}?[-–]{_S}?|{_S}(?:or|to){_S}){_NUMBER}{_S}{_UNIT}{_S}(?:ago|{_FROM_NOW})")
def _between(_said: _Said) -> None:
    """Two or three days ago: no one date."""


@_rule(rf"in{_S}{_APPROXIMATELY}({_AMOUNT}){_S}{_UNIT}(?:['’]s?{_S}time)?")
def _in(said: _Said) -> _When | None:
    """In two days, in a month's time."""
    is_idiom = said.words(3) == "day" and said.words(2) in {"a", "one"}
    if is_idiom or (_PAST.search(said.context) and not _FUTURE.search(said.context)):
        return None
    return _amount(said, 1)


def _weekday(name: str) -> int | None:
    """0 for Monday; None for what is another word, such as "sat" in small letters."""
    is_word = len(name) <= _ABBREVIATION_CHARS and name.islower()
    return None if is_word else _WEEKDAYS.index(name[:3].capitalize())


@_rule(rf"({_WEEKDAY}){_S}(?:of{_S})?(last|this|next){_S}week")
def _weekday_of_week(said: _Said) -> _When | None:
    """Friday of last week."""
    number = _weekday(said.phrase[1])
    week = _shift("week", _OFFSETS[said.words(2)], said.today).day
    return None if number is None else _shift("day", number, week)


@_rule(
    rf"(last|next|coming|this(?:{_S}(?:past|coming|last))?){_S}"
    rf"(weekend|week|month|year|{'|'.join(_MONTHS)}|{_WEEKDAY})(?:['’]s)?(?!{_S}of\b)"
)
def _beside(said: _Said) -> _When | None:
    """Last week, this Friday, next month, this past weekend, last June."""
    offset, what = _OFFSETS[said.words(1)], said.words(2)
    if offset and _OTHER_READING.search(said.context):
        return None
    if what in _MONTHS:
        return _beside_month(offset, _MONTHS.index(what) + 1, said.today)
    if what in {"week", "weekend", "month", "year"}:
        return _shift(what, offset, said.today)
    return _beside_weekday(offset, _weekday(said.phrase[2]), said.today)


def _beside_month(offset: int, month: int, today: date) -> _When | None:
    if not offset:  # "this may be"
        return None
    is_of_this_year = (month - today.month) * offset > 0
    return _When("month", date(today.year + (0 if is_of_this_year else offset), month, 1))


def _beside_weekday(offset: int, number: int | None, today: date) -> _When | None:
    if number is None or (not offset and today.weekday() == _SUNDAY != number):
        return None
    days = number - today.weekday()
    return _shift("day", days if days * offset > 0 else days + 7 * offset, today)


_ZH_DIGITS = {char: n for n, char in enumerate("一二三四五六七八九", 1)} | {"两": 2, "兩": 2, "": 0}
_ZH_OFFSETS = {
    "大前": -3, "前": -2, "昨": -1, "去": -1, "今": 0, "明": 1, "后": 2, "後": 2, "大后": 3,
    "大後": 3, "上上": -2, "上": -1, "这": 0, "這": 0, "本": 0, "下": 1, "下下": 2,
}  # fmt: skip
_ZH_UNITS = {"天": "day", "周": "week", "週": "week", "期": "week", "拜": "week", "月": "month"}
_ZH_WEEK = "(?:[个個]?(?:星期|[礼禮]拜)|[周週])"
_ZH_WHICH = "(上上|上|[这這]|本|下下|下)"
# After a word that tells of something past, "three days later" counts from that.
_ZH_DONE = re.compile("[了过過]")


@_rule(
    "(?<![目以之今最])(大?[前后後](?=天)|[昨今明](?=[天日晚晨早夜]))[天日晚晨早夜]"
    "(?![气氣性])(?:早上|上午|中午|下午|傍晚|晚上|夜里|凌晨)?"
)
def _zh_day(said: _Said) -> _When:
    """昨天, 今晚, 大后天."""
    return _shift("day", _ZH_OFFSETS[said.phrase[1]], said.today)


@_rule("(?<![目以之今])(大?前|[去今明后後本])年(?![轻輕级級龄齡])")
def _zh_year(said: _Said) -> _When:
    """去年, 前年."""
    return _shift("year", _ZH_OFFSETS[said.phrase[1]], said.today)


@_rule(f"{_ZH_WHICH}[个個]?月(?![球亮饼餅])")
def _zh_month(said: _Said) -> _When:
    """上个月, 本月."""
    return _shift("month", _ZH_OFFSETS[said.phrase[1]], said.today)


@_rule(f"{_ZH_WHICH}{_ZH_WEEK}([一二三四五六](?![个個天次起直些])|日(?!本)|天(?![气氣])|末)?")
def _zh_week(said: _Said) -> _When:
    """上周五, 下周, 这个星期天, 上周末."""
    offset, weekday = _ZH_OFFSETS[said.phrase[1]], said.phrase[2]
    if weekday in {None, "末"}:
        return _shift("weekend" if weekday else "week", offset, said.today)
    days = _ZH_DIGITS.get(weekday, 7) - 1
    return _shift("day", days, _shift("week", offset, said.today).day)


def _zh_count(amount: str) -> int:
    """A number up to 99; ValueError for what is none, such as 两三."""
    if amount.isascii():
        return int(amount)
    tens, ten, ones = amount.rpartition("十")
    if tens not in _ZH_DIGITS or ones not in _ZH_DIGITS:
        raise ValueError(amount)
    return (10 * (_ZH_DIGITS[tens] or 1) if ten else 0) + _ZH_DIGITS[ones]


@_rule(
    r"(?<![0-9.第百千万几幾数數])([0-9]{1,3}|[一二两兩三四五六七八九十]{1,3}|半)"
    f"(天|{_ZH_WEEK}|[个個]月|年)(?:[以之])?(前|[后後])(?![往后後面景途台進进所])"
)
def _zh_distance(said: _Said) -> _When | None:
    """三天前, 两个月后, 半年前."""
    sign, unit = (-1 if said.phrase[3] == "前" else 1), _ZH_UNITS.get(said.phrase[2][-1], "year")
    if sign > 0 and _ZH_DONE.search(said.context):
        return None
    if said.phrase[1] == "半":
        return _distance("month", 6 * sign, said.today) if unit == "year" else None
    return _distance(unit, sign * _zh_count(said.phrase[1]), said.today)


_CODE = r"```[\s\S]*?```|`[^`\n]*`|https?://[^\s<>\"'，。]+"
_WORD_BEFORE = r"(?<![0-9A-Za-zÀ-ɏ_.$@#/\\-])"
_WORD_AFTER = r"(?![0-9A-Za-zÀ-ɏ_(\[{$/\\=]|[-.:'’][0-9A-Za-z])"
_ANY = re.compile(
    rf"{_CODE}|(?:{_WORD_BEFORE}(?=[0-9A-Za-z])|(?=[\u4e00-\u9fff]))(?:"
    + "|".join(f"(?P<r{n}>{pattern.pattern})" for n, (pattern, _) in enumerate(_RULES))
    + rf")(?:(?<=[\u4e00-\u9fff])|{_WORD_AFTER})",
    _FLAGS,
)
