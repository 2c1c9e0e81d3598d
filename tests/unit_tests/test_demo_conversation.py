from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import FrozenInstanceError, fields, is_dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from langchain_nanomem import demo
from langchain_nanomem.demo import (
    DemoConversation,
    DemoDay,
    DemoQuestion,
    DemoToolCall,
    DemoTurn,
    load_conversation,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

PARAMETERS = {
    "weather": {"city", "date"},
    "search_notes": {"query"},
    "create_reminder": {"text", "when"},
    "convert_currency": {"amount", "from", "to"},
    "read_file": {"path"},
}


@pytest.fixture(scope="module")
def conversation() -> DemoConversation:
    return load_conversation()


@pytest.fixture(scope="module")
def turns(conversation: DemoConversation) -> list[DemoTurn]:
    return [turn for day in conversation.days for turn in day.turns]


def calls(turns: list[DemoTurn]) -> Iterator[DemoToolCall]:
    return (call for turn in turns for calls in turn.rounds for call in calls)


def text_of(day: DemoDay) -> str:
    words = [part for turn in day.turns for part in (turn.user, turn.assistant)]
    return "\n".join([*words, *(call.result for call in calls(list(day.turns)))])


def test_every_value_has_the_declared_type(
    conversation: DemoConversation, turns: list[DemoTurn]
) -> None:
    """The loader gives tuples of the declared classes down to the single call."""
    assert isinstance(conversation, DemoConversation)
    assert all(isinstance(day, DemoDay) for day in conversation.days)
    assert all(isinstance(turn, DemoTurn) for turn in turns)
    assert all(isinstance(call, DemoToolCall) for call in calls(turns))
    assert all(isinstance(call.args, dict) for call in calls(turns))
    assert all(isinstance(question, DemoQuestion) for question in conversation.questions)
    assert all(isinstance(turn.rounds, tuple) for turn in turns)
    assert all(isinstance(calls, tuple) for turn in turns for calls in turn.rounds)


def test_strings_are_never_empty(conversation: DemoConversation, turns: list[DemoTurn]) -> None:
    """Title, user, words, labels, questions and tool results all say something."""
    strings = [conversation.title, conversation.user]
    strings += [text for turn in turns for text in (turn.user, turn.assistant)]
    strings += [text for call in calls(turns) for text in (call.name, call.result)]
    strings += [day.label for day in conversation.days]
    strings += [question.question for question in conversation.questions]
    assert all(isinstance(text, str) and text.strip() == text != "" for text in strings)


def test_what_is_loaded_cannot_be_changed(conversation: DemoConversation) -> None:
    """Setting a field of the conversation raises."""
    with pytest.raises(FrozenInstanceError):
        conversation.title = "another"


def test_two_loads_are_equal_and_share_nothing_mutable(conversation: DemoConversation) -> None:
    """Each load reads the file anew, so a changed argument dict doesn't reach the next load."""
    again = load_conversation()
    assert again == conversation
    changed = next(calls([turn for day in again.days for turn in day.turns]))
    changed.args["city"] = "elsewhere"
    assert load_conversation() == conversation != again


def test_days_ascend_over_seven_days_with_a_saturday(conversation: DemoConversation) -> None:
    """Seven or more days between 2 and 19 March 2026, no Sunday, with a Saturday."""
    dates = [day.date for day in conversation.days]
    assert len(dates) >= 7
    assert all(earlier < later for earlier, later in pairwise(dates))
    assert (dates[0], dates[-1]) == (dt.date(2026, 3, 2), dt.date(2026, 3, 19))
    weekdays = {date.isoweekday() for date in dates}
    assert 6 in weekdays
    assert 7 not in weekdays


def test_labels_are_distinct_and_name_their_weekday(conversation: DemoConversation) -> None:
    """A day's label starts with its weekday and is usable in a session id."""
    labels = [day.label for day in conversation.days]
    assert len(set(labels)) == len(labels)
    for day in conversation.days:
        assert day.label.startswith(f"{day.date:%A}".lower())
        assert re.fullmatch(r"[a-z-]+", day.label)


def test_times_ascend_within_their_day_in_utc(conversation: DemoConversation) -> None:
    """Every turn lies on its day, later than the one before, aware and in UTC."""
    for day in conversation.days:
        times = [turn.at for turn in day.turns]
        assert all(earlier < later for earlier, later in pairwise(times))
        assert all(time.tzinfo is dt.UTC and time.date() == day.date for time in times)


def test_it_is_long_enough_to_outlive_a_context(
    conversation: DemoConversation, turns: list[DemoTurn]
) -> None:
    """At least 140 turns and 50,000 characters."""
    assert len(turns) >= 140
    assert sum(len(text_of(day)) for day in conversation.days) >= 50_000


def test_turns_have_the_length_of_real_ones(turns: list[DemoTurn]) -> None:
    """On average 15 to 60 words are said by the user, 30 to 110 by the assistant."""
    user = sum(len(turn.user.split()) for turn in turns) / len(turns)
    assistant = sum(len(turn.assistant.split()) for turn in turns) / len(turns)
    assert 15 <= user <= 60
    assert 30 <= assistant <= 110


def test_no_words_are_said_twice(turns: list[DemoTurn]) -> None:
    """Neither a question nor an answer is repeated."""
    assert len({turn.user for turn in turns}) == len(turns)
    assert len({turn.assistant for turn in turns}) == len(turns)


def test_tools_are_called_often_and_sometimes_in_parallel(turns: list[DemoTurn]) -> None:
    """At least 18 turns call a tool, some two at once, some with a result of over 1,000 chars."""
    rounds = [calls for turn in turns for calls in turn.rounds]
    assert sum(bool(turn.rounds) for turn in turns) >= 18
    assert all(rounds)
    assert sum(len(calls) > 1 for calls in rounds) >= 3
    assert sum(len(call.result) > 1_000 for call in calls(turns)) >= 3


def test_tools_are_called_with_their_parameters(turns: list[DemoTurn]) -> None:
    """Exactly the five known tools occur, each always with all of its parameters."""
    assert {call.name for call in calls(turns)} == set(PARAMETERS)
    assert all(set(call.args) == PARAMETERS[call.name] for call in calls(turns))


def test_dates_in_arguments_can_be_read(turns: list[DemoTurn]) -> None:
    """Weather is asked for a date, a reminder is for a later time, which is stated in ISO form."""
    for turn in turns:
        for call in calls([turn]):
            if call.name == "weather":
                assert dt.date.fromisoformat(call.args["date"]) >= turn.at.date()
            if call.name == "create_reminder":
                assert dt.datetime.fromisoformat(call.args["when"]).date() > turn.at.date()


def test_named_weekdays_fit_their_dates(conversation: DemoConversation) -> None:
    """A weekday said next to a date of spring 2026, as in "Saturday 20 June", is the right one."""
    pattern = re.compile(r"\b(\w+day) (\d{1,2}) (March|April|May|June|October)\b")
    found = [match for day in conversation.days for match in pattern.finditer(text_of(day))]
    assert len(found) > 80
    wrong = {
        match[0]
        for match in found
        if f"{dt.datetime.strptime(f'{match[2]} {match[3]} 2026Z', '%d %B %Y%z'):%A}" != match[1]
    }
    assert wrong == set()


def test_amounts_are_converted_right(turns: list[DemoTurn]) -> None:
    """A converted amount is the amount times the stated rate, to the cent."""
    conversions = [call for call in calls(turns) if call.name == "convert_currency"]
    assert len(conversions) >= 3
    for call in conversions:
        result = json.loads(call.result)
        assert {key: result[key] for key in call.args} == call.args
        assert result["result"] == pytest.approx(result["amount"] * result["rate"], abs=0.005)


def test_other_languages_occur(turns: list[DemoTurn]) -> None:
    """One exchange is in Chinese and one in French, question and answer."""
    chinese = re.compile(r"[\u4e00-\u9fff]{5}")
    assert any(chinese.search(turn.user) and chinese.search(turn.assistant) for turn in turns)
    assert any("préavis" in turn.user and "préavis" in turn.assistant for turn in turns)


def test_answers_were_said_before_the_last_day(conversation: DemoConversation) -> None:
    """Every answer word stands in the words or tool results of a day before the last."""
    earlier = "\n".join(text_of(day) for day in conversation.days[:-1])
    words = [word for question in conversation.questions for word in question.answer_words]
    assert len(conversation.questions) == 6
    assert all(question.answer_words for question in conversation.questions)
    assert [word for word in words if word not in earlier] == []


def test_answers_lie_on_different_days(conversation: DemoConversation) -> None:
    """The answers are first given on at least four different days."""
    first = {
        next(day.date for day in conversation.days if word in text_of(day))
        for question in conversation.questions
        for word in question.answer_words
    }
    assert len(first) >= 4


def test_a_question_does_not_hold_its_answer(conversation: DemoConversation) -> None:
    """No answer word can be read off the question itself."""
    for question in conversation.questions:
        assert not any(word.lower() in question.question.lower() for word in question.answer_words)


def test_a_day_starts_with_what_only_memory_knows(conversation: DemoConversation) -> None:
    """The first question of Monday 16 March was answered on Friday 6 March and isn't hinted at."""
    days = {day.date: day for day in conversation.days}
    first = days[dt.date(2026, 3, 16)].turns[0]
    assert "biscuit tin" in first.assistant
    assert "biscuit" not in first.user
    assert "biscuit tin" in text_of(days[dt.date(2026, 3, 6)])


def test_exports_are_sorted_and_complete() -> None:
    """``__all__`` is sorted and names every public dataclass and the loader."""
    assert sorted(demo.__all__) == list(demo.__all__)
    public = {name for name, value in vars(demo).items() if name.startswith("Demo")}
    assert {*public, "load_conversation"} == set(demo.__all__)
    assert all(is_dataclass(getattr(demo, name)) and fields(getattr(demo, name)) for name in public)
