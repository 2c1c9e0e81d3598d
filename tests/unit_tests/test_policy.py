"""From where to where a conversation is consolidated, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import LONG, save_memory, session_of

from langchain_nanomem import CostAwarePolicy
from langchain_nanomem.policy import FixedRatioPolicy, Thresholds


@dataclass(frozen=True)
class Prompt:
    """A situation, told in numbers."""

    budget_tokens: int = 100_000
    fixed_tokens: int = 300
    memory_tokens: int = 400
    live_tokens: int = 3_000
    live_calls: int = 30
    live_turns: int = 30
    question_tokens: int = 500
    range_tokens: int = 1_000_000
    reuses_prompt: bool = False


PROMPT = Prompt()
SITUATIONS = st.builds(
    Prompt,
    budget_tokens=st.integers(1, 200_000),
    fixed_tokens=st.integers(0, 10_000),
    memory_tokens=st.integers(0, 10_000),
    live_tokens=st.integers(0, 200_000),
    live_calls=st.integers(0, 1_000),
    live_turns=st.integers(0, 1_000),
    question_tokens=st.integers(0, 2_000),
    range_tokens=st.integers(0, 100_000),
    reuses_prompt=st.booleans(),
)
POLICIES = st.builds(
    CostAwarePolicy,
    keep_tokens=st.integers(0, 10_000),
    mean_tokens=st.integers(0, 50_000),
    input_price=st.floats(0.01, 100),
    cached_input_price=st.floats(0, 100),
    output_price=st.floats(0, 100),
)


def bill(policy, situation, kept, distance, turns=5_000):
    """What a call costs on average, counted one call after the other."""
    growth = situation.live_tokens / situation.live_calls
    around = situation.fixed_tokens + situation.memory_tokens
    live, cost = float(kept), 0.0
    for _ in range(turns):
        cached, live = around + live, live + growth
        cost += policy.cached_input_price * cached + policy.input_price * growth
        if live >= kept + distance:
            asked = situation.question_tokens + situation.memory_tokens + live - kept
            cost += policy.input_price * asked
            cost += policy.output_price * (150 + situation.memory_tokens)
            once_more = situation.memory_tokens + kept
            cost += (policy.input_price - policy.cached_input_price) * once_more
            live = float(kept)
    return cost / turns


def distance_of(thresholds):
    return thresholds.trigger_tokens - thresholds.target_tokens


def test_the_fixed_one_begins_at_the_budget():
    """And goes down to its share of it."""
    assert FixedRatioPolicy(0.25).thresholds(PROMPT)[:2] == (100_000, 25_000)


@given(SITUATIONS, POLICIES)
def test_thresholds_are_in_order(situation, policy):
    """Whatever the numbers: 0 <= target <= trigger <= budget, and a reason."""
    chosen = policy.thresholds(situation)
    assert 0 <= chosen.target_tokens <= chosen.trigger_tokens <= situation.budget_tokens
    assert chosen.reason


@pytest.mark.parametrize("growth", [20, 100, 700])
@pytest.mark.parametrize("output_price", [1.0, 5.0])
def test_no_other_distance_costs_less(growth, output_price):
    """Counted call by call, thrice or a third of the distance is dearer than the one chosen."""
    policy = CostAwarePolicy(keep_tokens=300, output_price=output_price)
    situation = replace(PROMPT, live_tokens=growth * PROMPT.live_calls)
    best = distance_of(policy.thresholds(situation))
    chosen = bill(policy, situation, 300, best)
    for other in (best / 3, best / 2, best * 2, best * 3):
        assert chosen < bill(policy, situation, 300, other)


def test_the_cheapest_distance_in_numbers():
    """400 and 500 are read, 150 and 400 written at 5, 400 and 400 read again at 0.9 more."""
    price = 900 + 5 * 550 + 0.9 * 800
    distance = distance_of(CostAwarePolicy(keep_tokens=400).thresholds(PROMPT))
    assert distance == int((2 * 100 * price / 0.1) ** 0.5)


def test_it_never_runs_at_every_turn():
    """Two turns lie between consolidations at least, whatever the cache costs."""
    policy = CostAwarePolicy(cached_input_price=1_000)
    assert distance_of(policy.thresholds(PROMPT)) == 200


def test_a_fast_conversation_goes_further():
    """The distance grows with the root of the growth."""
    policy = CostAwarePolicy()
    slow, fast = (
        distance_of(policy.thresholds(replace(PROMPT, live_tokens=tokens)))
        for tokens in (3_000, 12_000)
    )
    assert fast == pytest.approx(2 * slow, rel=0.01)


def test_a_cheap_question_is_asked_more_often():
    """Where the prompt is read from the cache, a consolidation costs less."""
    policy, long = CostAwarePolicy(), replace(PROMPT, memory_tokens=3_000)
    cheap = policy.thresholds(replace(long, reuses_prompt=True))
    assert distance_of(cheap) < distance_of(policy.thresholds(long))


def test_a_range_is_one_call():
    """No more goes than the consolidating model reads at once, up to two turns more with it."""
    small = replace(PROMPT, range_tokens=900)
    assert distance_of(CostAwarePolicy().thresholds(small)) == 900 - 900 // 5


def test_what_is_to_be_kept_is_kept():
    """Beside system prompt and memory so many tokens are left, and up to a turn more."""
    target = CostAwarePolicy(keep_tokens=1_000).thresholds(PROMPT).target_tokens
    assert target - 700 == 1_100


@given(st.integers(0, 90_000))
def test_more_on_average_can_be_bought(mean):
    """The middle of the saw is as high as asked for, within the budget."""
    chosen = CostAwarePolicy(keep_tokens=200, mean_tokens=mean).thresholds(PROMPT)
    middle = (chosen.trigger_tokens + chosen.target_tokens) / 2 - 700
    assert middle >= min(mean, 99_300 - 2 * 100) - 2
    assert chosen.trigger_tokens <= PROMPT.budget_tokens


def test_without_a_price_for_the_cache_the_window_is_filled():
    """Nothing speaks for less."""
    assert CostAwarePolicy(cached_input_price=0).thresholds(PROMPT).trigger_tokens == 100_000


def test_it_says_why():
    """Growth and distances are in the reason."""
    reason = CostAwarePolicy().thresholds(PROMPT).reason
    assert "100 tokens a call" in reason
    assert "cost least" in reason


@pytest.mark.parametrize(
    "wrong", ["keep_tokens", "mean_tokens", "input_price", "cached_input_price", "output_price"]
)
def test_negative_numbers_are_refused(wrong):
    """The error names the one."""
    with pytest.raises(ValueError, match=f"^{wrong} must not be -1"):
        CostAwarePolicy(**{wrong: -1})


def test_a_price_of_nothing_is_refused():
    """Prices are relative to that of input."""
    with pytest.raises(ValueError, match=r"^input_price must not be 0"):
        CostAwarePolicy(input_price=0)


def test_a_consolidator_goes_by_it(make, run):
    """It begins at the policy's trigger, far below the budget, ends at its target, and tells."""
    policy = CostAwarePolicy(keep_tokens=200, output_price=0.01)
    consolidator = make(window=100_000, policy=policy)
    session = session_of(consolidator, "UA" * 4 + "U")
    before = consolidator.thresholds(session)
    assert run(consolidator, session) == []
    assert before.trigger_tokens < 3_000
    session = session_of(consolidator, "AU" * 14)
    (told,) = run(consolidator, session)
    assert told.tokens_before == 3_700
    assert "cost-aware" in told.reason
    assert told.tokens_after <= consolidator.thresholds(session).target_tokens + 200
    assert consolidator.estimate_prompt_tokens(session) == told.tokens_after


def test_a_policy_of_ones_own(make, run):
    """Anything with `thresholds` will do; it is asked with what the prompt is made of."""
    seen = []

    class Often:
        def thresholds(self, situation):
            seen.append((situation.live_tokens, situation.live_calls, situation.live_turns))
            return Thresholds(300, 100, "I say so")

    consolidator = make(window=10_000, policy=Often())
    (told,) = run(consolidator, session_of(consolidator, "UAU"))
    assert seen == [(300, 1, 2)]
    assert told.reason.endswith("I say so")
    assert (told.tokens_before, told.tokens_after) == (300, 100)


def test_a_memory_that_grows_asks_for_no_second_round(make, run):
    """What the first round has put into it does not count against the target."""
    long = save_memory("entry", "\n".join(f"- fact {n} of the user" for n in range(40)))
    consolidator = make(long, window=100_000, policy=Steep(), token_counter=None)
    session = session_of(consolidator, "UAUAUAU")
    for message in session.messages:
        message["content"] += LONG
    (told,) = run(consolidator, session)
    assert told.tokens_after > 400


class Steep:
    """From 600 to 400."""

    def thresholds(self, situation):  # noqa: ARG002 - it does not look
        return Thresholds(600, 400, "steep")


def test_deferred_it_begins_at_the_trigger_and_inline_at_the_budget(make):
    """Between the two nobody waits."""
    consolidator = make(window=100_000, policy=Steep(), deferred=True)
    session = session_of(consolidator, "UAUAUAU")
    assert consolidator.maybe_consolidate_by_tokens(session) == []
    assert consolidator.defer(session)
    assert consolidator.close(60)
    assert session.last_consolidated == 4
