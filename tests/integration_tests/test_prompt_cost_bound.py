"""The least that a policy could cost: its accounts are right."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage
from prompt_cost_approaches import Setting
from prompt_cost_bound import Policy, Size, points, policies
from prompt_cost_conversations import Exchange, Talk

EXCHANGES = [
    (Size(30, 20), Size(40, 25)),
    (Size(50, 45), Size(60, 55)),
    (Size(20, 15), Size(10, 5)),
]


@pytest.mark.parametrize("is_reusing", [True, False])
def test_each_token_is_paid_once_and_what_stays_again_behind_a_new_memory(is_reusing):
    """Three turns by hand: the last one is over 190 tokens, and keeps two of its five messages."""
    policy = Policy(begin=190, keep=120, memory=10, fixed=30, entry=7, is_reusing=is_reusing)
    paid = policy.run(EXCHANGES)
    read_for_summary = 30 + 200 if is_reusing else 30 + 40 + 50
    new = (30 + 30) + (40 + 50) + (10 + 60 + 20)
    again = (30 + 30) + 30
    assert paid.written == 10 + 7
    assert paid.uncached == new + (0 if is_reusing else read_for_summary)
    assert paid.cached == again + (read_for_summary if is_reusing else 0)
    assert (paid.words, paid.prompts) == (20 + (20 + 25 + 45) + (55 + 15), 3)
    assert paid.cost(5) == paid.uncached + 0.1 * paid.cached + 5 * 17


def test_whole_turns_go_and_the_question_of_a_summary_is_paid():
    """By hand: whole turns take more away, and what asks for a summary is read once, uncached."""
    policy = Policy(begin=190, keep=100, memory=10, fixed=30, entry=7, is_reusing=True)
    single, whole = policy.run(EXCHANGES), policy._replace(goes=2, asked=11).run(EXCHANGES)
    assert single.words - whole.words == 0
    assert whole.uncached == single.uncached + 11
    kept_half = policy._replace(keep=120)
    assert kept_half.run(EXCHANGES).words - kept_half._replace(goes=2).run(EXCHANGES).words == 55


def test_a_log_and_a_search_cost_more_than_none():
    """With the tool in each prompt and an entry for each summary, no policy gets cheaper."""
    text = "the river runs past the old mill and nobody minds it at all, year after year. " * 4
    turns = [Exchange(f"Question {n}: {text}", [AIMessage(text)]) for n in range(30)]
    setting, told = Setting(2_400, 0.5), [Talk("rivers", turns)]
    logged = points(told, policies(setting, with_log=True, is_reusing=True))
    bare = points(told, policies(setting, with_log=False, is_reusing=True))
    most = max(point.verbatim for point in logged)
    for words in range(0, int(most), 100):
        with_log, without = (
            min(point.costs for point in some if point.verbatim >= words) for some in (logged, bare)
        )
        assert without < with_log


def test_a_question_that_is_asked_apart_has_dates_and_is_asked_as_often_as_its_room_takes():
    """By hand: 130 tokens with dates take three questions of 50; the later ones read the memory."""
    exchanges = [
        (question._replace(told=45), answer._replace(told=40)) for question, answer in EXCHANGES
    ]
    policy = Policy(190, 120, memory=10, fixed=30, entry=7, is_reusing=False, asked=11, room=50)
    paid, free = policy.run(exchanges), policy._replace(asked=0, room=0).run(exchanges)
    assert paid.written == 3 * (10 + 7)
    assert paid.uncached - free.uncached == 3 * 11 + 2 * 10 + (45 + 40 + 45) - (30 + 40 + 50)
    assert (paid.cached, paid.words) == (free.cached, free.words)
