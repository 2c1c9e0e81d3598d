# ruff: noqa: RUF001 - the punctuation of Chinese is meant where it stands
from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_nanomem.dates import render_date, resolve_relative_dates

FRIDAY = datetime(2026, 5, 8, 12, tzinfo=UTC)
ANNOTATION = re.compile(r" ?[(（](?:[a-z 约]+)?\d{4}(?:-\d\d){0,2}(?: 当周| 周末)?[)）]")


def resolved(text, said_at=FRIDAY):
    return resolve_relative_dates(text, said_at)


@pytest.mark.parametrize(
    ("phrase", "date"),
    [
        ("yesterday", "2026-05-07"),
        ("Yesterday's", "2026-05-07"),
        ("yesterday evening", "2026-05-07"),
        ("today", "2026-05-08"),
        ("tonight", "2026-05-08"),
        ("this morning", "2026-05-08"),
        ("last night", "2026-05-07"),
        ("tomorrow", "2026-05-09"),
        ("tomorrow morning's", "2026-05-09"),
        ("the day before yesterday", "2026-05-06"),
        ("the day after tomorrow", "2026-05-10"),
        ("the night before last", "2026-05-06"),
        ("a day ago", "2026-05-07"),
        ("three days ago", "2026-05-05"),
        ("12 days ago", "2026-04-26"),
        ("twenty-one days ago", "2026-04-17"),
        ("about three days ago", "around 2026-05-05"),
        ("a couple of days ago", "around 2026-05-06"),
        ("a week ago", "around 2026-05-01"),
        ("two weeks ago", "around 2026-04-24"),
        ("a fortnight ago", "around 2026-04-24"),
        ("two weekends ago", "weekend of 2026-04-25"),
        ("a month ago", "around 2026-04"),
        ("five months ago", "around 2025-12"),
        ("a year ago", "around 2025-05"),
        ("ten years ago", "around 2016"),
        ("two decades ago", "around 2006"),
        ("in two days", "2026-05-10"),
        ("in 3 weeks", "around 2026-05-29"),
        ("in a month's time", "around 2026-06"),
        ("two weeks from now", "around 2026-05-22"),
        ("last week", "week of 2026-04-27"),
        ("the end of last week", "week of 2026-04-27"),
        ("this week", "week of 2026-05-04"),
        ("next week", "week of 2026-05-11"),
        ("the week before last", "week of 2026-04-20"),
        ("the week after next", "week of 2026-05-18"),
        ("last weekend", "weekend of 2026-05-02"),
        ("this past weekend", "weekend of 2026-05-02"),
        ("this weekend", "weekend of 2026-05-09"),
        ("last month", "2026-04"),
        ("next month", "2026-06"),
        ("this year", "2026"),
        ("last year", "2025"),
        ("next year", "2027"),
        ("last June", "2025-06"),
        ("next June", "2026-06"),
        ("last May", "2025-05"),
        ("next May", "2027-05"),
        ("LAST\nWEEK", "week of 2026-04-27"),
    ],
)
def test_english_phrase_is_followed_by_its_date(phrase, date):
    """Each English phrase is followed by what it means on Friday 2026-05-08, and kept."""
    assert resolved(f"So, {phrase} was on.") == f"So, {phrase} ({date}) was on."


@pytest.mark.parametrize(
    ("phrase", "said_on", "date"),
    [
        ("last Friday", "2026-05-08", "2026-05-01"),
        ("last Friday", "2026-05-09", "2026-05-08"),
        ("last Fri", "2026-05-04", "2026-05-01"),
        ("last Tues", "2026-05-08", "2026-05-05"),
        ("this past Friday", "2026-05-10", "2026-05-08"),
        ("this Friday", "2026-05-04", "2026-05-08"),
        ("this Friday", "2026-05-09", "2026-05-08"),
        ("next Friday", "2026-05-08", "2026-05-15"),
        ("next Friday", "2026-05-04", "2026-05-08"),
        ("this coming Monday", "2026-05-08", "2026-05-11"),
        ("Friday of last week", "2026-05-09", "2026-05-01"),
        ("Monday next week", "2026-05-10", "2026-05-11"),
        ("this Sunday", "2026-05-10", "2026-05-10"),
    ],
)
def test_weekday_is_the_nearest_on_its_side(phrase, said_on, date):
    """A last or next weekday is the nearest other day, "this" one is in its Monday-first week."""
    said_at = datetime.fromisoformat(said_on)
    assert resolved(phrase, said_at) == f"{phrase} ({date})"


@pytest.mark.parametrize(
    ("phrase", "said_on", "date"),
    [
        ("yesterday", "2024-03-01", "2024-02-29"),
        ("yesterday", "2026-01-01", "2025-12-31"),
        ("tomorrow", "2023-02-28", "2023-03-01"),
        ("last month", "2026-01-31", "2025-12"),
        ("next month", "2026-12-31", "2027-01"),
        ("a month ago", "2024-03-31", "around 2024-02"),
        ("a year ago", "2024-02-29", "around 2023-02"),
        ("last year", "2024-02-29", "2023"),
        ("last week", "2026-01-01", "week of 2025-12-22"),
        ("this week", "2026-01-01", "week of 2025-12-29"),
        ("last December", "2026-01-01", "2025-12"),
        ("next January", "2026-01-01", "2027-01"),
        ("last weekend", "2026-05-10", "weekend of 2026-05-02"),
    ],
)
def test_borders_of_month_year_and_leap_day(phrase, said_on, date):
    """Counting crosses the ends of months, years and February as the calendar does."""
    assert resolved(phrase, datetime.fromisoformat(said_on)) == f"{phrase} ({date})"


@pytest.mark.parametrize(
    ("phrase", "date"),
    [
        ("昨天", "2026-05-07"),
        ("昨晚", "2026-05-07"),
        ("前天", "2026-05-06"),
        ("大前天", "2026-05-05"),
        ("今天下午", "2026-05-08"),
        ("明天", "2026-05-09"),
        ("后天", "2026-05-10"),
        ("上周五", "2026-05-01"),
        ("这周五", "2026-05-08"),
        ("下周一", "2026-05-11"),
        ("上个星期天", "2026-05-03"),
        ("上周", "2026-04-27 当周"),
        ("上上周", "2026-04-20 当周"),
        ("上周末", "2026-05-02 周末"),
        ("三天前", "2026-05-05"),
        ("十天以前", "2026-04-28"),
        ("二十三天前", "2026-04-15"),
        ("10天前", "2026-04-28"),
        ("两周前", "约 2026-04-24"),
        ("三个星期后", "约 2026-05-29"),
        ("两个月前", "约 2026-03"),
        ("半年前", "约 2025-11"),
        ("一年前", "约 2025-05"),
        ("五年前", "约 2021"),
        ("上个月", "2026-04"),
        ("下个月", "2026-06"),
        ("本月", "2026-05"),
        ("去年", "2025"),
        ("前年", "2024"),
        ("明年", "2027"),
        ("兩天前", "2026-05-06"),
        ("上週五", "2026-05-01"),
    ],
)
def test_chinese_phrase_is_followed_by_its_date(phrase, date):
    """Each Chinese phrase, simplified or traditional, is followed by what it means."""
    assert resolved(f"我{phrase}去。") == f"我{phrase}（{date}）去。"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It began on 2026-05-07, at 10:30.",
        "a few days ago",
        "two or three days ago",
        "2-3 weeks ago",
        "two and a half years ago",
        "1,000 years ago",
        "2.5 years ago",
        "9000 years ago",
        "three hundred years ago",
        "two years and three months ago",
        "It happened in the last week.",
        "Her last week at work.",
        "the last Friday of the month",
        "the last night of the trip",
        "I read it in two days.",
        "I could do that in a day",
        "this may be",
        "he last sat there",
        "on Friday",
        "last summer",
        "get_yesterday() and date.today()",
        "see `last week` and ```\nyesterday\n```",
        "https://example.com/today/last-week",
        '{"range": "yesterday"}',
        "$today /tomorrow yesterday_total todays",
        "目前天气不错，如今年轻人",
        "几天前",
        "两三天前",
        "2020年前",
        "半天前",
        "半个月前",
        "他走了三天后",
        "三天前往",
        "laſt week",
    ],
)
def test_what_has_no_one_date_stays(text):
    """What is vague, means something else, is code or is beyond the calendar stays as it is."""
    assert resolved(text) == text


def test_this_weekday_on_a_sunday_stays():
    """On a Sunday "this Friday" can be past or to come, so it is left alone."""
    assert resolved("this Friday", datetime(2026, 5, 10, tzinfo=UTC)) == "this Friday"


def test_a_plan_is_a_date_where_a_past_form_stands_too():
    """A time to come is a date where the clause speaks of the future."""
    text = "I've packed and will be back in two days (2026-05-10)."
    assert resolved(ANNOTATION.sub("", text)) == text


def test_yesterday_is_the_day_before():
    """cases/consolidation.md 28: "yesterday" said on 2026-05-08 is 2026-05-07."""
    assert resolved("I moved yesterday.") == "I moved yesterday (2026-05-07)."


def test_the_day_is_that_of_the_time_zone_given():
    """The date of `said_at` counts in its own time zone."""
    assert resolved("today", datetime.fromisoformat("2026-05-09T01:00+08:00")) == (
        "today (2026-05-09)"
    )


def test_each_of_several_phrases_is_resolved():
    """Phrases of both languages in one text are each resolved."""
    assert resolved("Yesterday昨天, then two days ago") == (
        "Yesterday (2026-05-07)昨天（2026-05-07）, then two days ago (2026-05-06)"
    )


@pytest.mark.parametrize(
    ("day", "shown"), [("2026-05-08", "2026-05-08 Fri"), ("0099-12-31", "0099-12-31 Thu")]
)
def test_render_date_shows_day_and_weekday(day, shown):
    """cases/consolidation.md 28: a date is shown with its weekday, whatever the locale."""
    assert render_date(datetime.fromisoformat(day)) == shown


@pytest.mark.parametrize("said_at", [datetime.min, datetime.max])  # noqa: DTZ901 - any zone will do
def test_the_ends_of_the_calendar_raise_nothing(said_at):
    """What would lie outside the years 1 to 9999 stays as it is."""
    phrases = [
        "yesterday",
        "tomorrow",
        "last week",
        "next week",
        "last year",
        "next year",
        "上周五",
    ]
    for phrase in phrases:
        assert resolved(phrase, said_at).startswith(phrase)
    outside = "yesterday" if said_at.year == 1 else "tomorrow"
    assert resolved(outside, said_at) == outside


WORDS = st.sampled_from(
    [
        "yesterday",
        "last",
        "next",
        "this",
        "week",
        "weekend",
        "Friday",
        "month",
        "the",
        "day",
        "before",
        "after",
        "tomorrow",
        "two",
        "3",
        "days",
        "years",
        "ago",
        "in",
        "a",
        "couple",
        "of",
        "or",
        "I",
        "went",
        "will",
        ".",
        ",",
        "\n",
        "`",
        '"',
        "(2026-05-07)",
        "evening",
        "昨天",
        "上周",
        "五",
        "三",
        "天",
        "前",
        "个月",
        "去年",
        "了",
        "后",
        "（2025）",
        "first",
        "night",
        "June",
        "about",
        "'s",
        "-",
    ]
)
TEXTS = st.one_of(
    st.text(),
    st.lists(WORDS, max_size=30).map(" ".join),
    st.lists(WORDS, max_size=30).map("".join),
)
DAYS = st.datetimes(min_value=datetime(1000, 1, 1))  # noqa: DTZ001 - as hypothesis asks


@given(text=TEXTS, said_at=DAYS)
@settings(max_examples=500)
def test_resolving_twice_is_resolving_once(text, said_at):
    """Text that was resolved before comes back as it is."""
    once = resolve_relative_dates(text, said_at)
    assert resolve_relative_dates(once, said_at) == once


@given(text=TEXTS, said_at=DAYS)
@settings(max_examples=500)
def test_only_annotations_are_added(text, said_at):
    """Nothing of the text is changed or removed: without annotations it is the same."""
    shown = resolve_relative_dates(text, said_at)
    assert ANNOTATION.sub("", shown) == ANNOTATION.sub("", text)
    assert len(shown) >= len(text)


def test_a_long_past_keeps_its_tense_when_resolved_again():
    """Annotations do not push a past form out of the sight of "in two days"."""
    text = "I moved " + "昨天" * 50 + " and read it in two days"
    once = resolved(text)
    assert once.endswith("in two days")
    assert resolved(once) == once


@given(days=st.integers(0, 3000))
def test_days_ago_counts_back_exactly(days):
    """N days ago is the day N days earlier."""
    said_at = FRIDAY + timedelta(days=days)
    assert resolved(f"{days} days ago", said_at) == f"{days} days ago (2026-05-08)"
