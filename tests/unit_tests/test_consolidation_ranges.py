"""Ranges larger than the model's window, and all of a session at once."""

from __future__ import annotations

from itertools import count as counting

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted import (
    KEY,
    ScriptedChatModel,
    facts,
    ranges,
    save_memory,
    session_of,
    shown,
    talk,
)

from langchain_nanomem.consolidation import MemoryConsolidator
from langchain_nanomem.errors import (
    ConsolidationError,
)
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.memory import MemoryStore
from langchain_nanomem.tokens import TokenCounter

pytestmark = pytest.mark.back_ends("files", "postgres")


@pytest.mark.parametrize("window", [1_000, 700, 4_000])
def test_every_message_of_a_large_range_is_shown_once(make, run, window):
    """cases/consolidation.md 20: 77 messages with 40 facts, in chunks; each shown, none twice."""
    consolidator = make(window=window, token_counter=None, max_rounds=100)
    session = facts(consolidator)
    assert len(session.messages) == 77
    done = run(consolidator, session, how="compact")
    assert len(done) > 1
    text = "\n".join(shown(consolidator.model))
    assert all(text.count(f"fact-{i}-here") == 1 for i in range(40))
    assert all(text.count(f"Noted number {i}.") == 1 for i in range(38))
    assert session.last_consolidated == 76
    assert "left out" not in text


def test_no_question_is_larger_than_the_budget(make, run):
    """cases/consolidation.md 20: each chunk fits the model's window with the memory beside it."""
    consolidator = make(window=1_500, token_counter=None, max_rounds=100)
    consolidator.memory.write_long_term("- a fact of the past\n" * 40)
    run(consolidator, facts(consolidator), how="compact")
    counter = TokenCounter()
    assert all(
        counter(prompt) <= consolidator.budget_tokens for prompt in consolidator.model.prompts
    )


def test_a_bounded_number_of_chunks_is_taken_at_once(make, run):
    """cases/consolidation.md 20: the rest is taken at later turns, nothing is skipped."""
    consolidator = make(window=1_000, token_counter=None, max_rounds=2)
    session = facts(consolidator)
    taken = []
    while done := run(consolidator, session):
        assert len(done) <= 2
        taken += ranges(done)
    assert len(taken) > 2
    assert [start for start, _ in taken] == [0, *(end for _, end in taken[:-1])]
    assert consolidator.estimate_prompt_tokens(session) < 1_000


def test_an_over_long_message_is_shown_by_head_and_tail(make, run):
    """cases/consolidation.md 20: marked as such, and whole in the session."""
    consolidator = make(window=2_000, token_counter=None)
    session = session_of(consolidator)
    session.add_message("user", "HEAD " + "word " * 20_000 + "TAIL")
    talk(session, "AU")
    assert run(consolidator, session)
    question = shown(consolidator.model)[0]
    assert "HEAD word" in question
    assert "word TAIL" in question
    assert "characters left out here; the session has them" in question
    assert TokenCounter()(consolidator.model.prompts[0]) <= 2_000
    assert len(session.messages[0]["content"]) > 100_000


def test_chunks_part_no_call_from_its_result(make, run):
    """cases/consolidation.md 7, 20: a turn of many rounds is cut between them."""
    consolidator = make(window=900, token_counter=None, max_rounds=100)
    session = session_of(consolidator, "U")
    for _ in range(30):
        talk(session, "CT")
        session.messages[-1]["content"] += " found something" * 10
    talk(session, "U")
    done = run(consolidator, session, how="compact")
    assert len(done) > 2
    assert all(session.messages[one.end]["role"] != "tool" for one in done)
    assert done[-1].end == 61


LETTERS = st.lists(st.sampled_from(["U", "UA", "UCTA", "UCTCTCT", "SU", "UAUA"]), max_size=8)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(parts=LETTERS, sizes=st.lists(st.integers(0, 150), min_size=1, max_size=5))
def test_chunks_and_raw_ranges_cover_each_message_once(tmp_path_factory, parts, sizes):
    """Invariant 6: ranges follow one another; each message was shown, or is in HISTORY raw."""
    path = tmp_path_factory.mktemp("cover")
    outcomes = counting()

    def reply(_messages):  # two failures in three, so that some ranges become raw
        return save_memory() if next(outcomes) % 3 == 0 else TimeoutError()

    model = ScriptedChatModel(replies=[reply])
    consolidator = MemoryConsolidator(
        SessionManager(path),
        MemoryStore(path),
        model,
        context_window_tokens=700,
        max_completion_tokens=0,
        safety_margin_tokens=0,
        max_failures=2,
    )
    session = talk(consolidator.sessions.get_or_create(KEY), "".join(parts))
    for place, message in enumerate(session.messages):
        message["content"] = f"m{place}m " + "word " * sizes[place % len(sizes)]
    done = []
    for _ in range(20):
        done += consolidator.maybe_consolidate_by_tokens(session)
    assert [one.start for one in done] == [0, *(one.end for one in done)][: len(done)]
    assert session.last_consolidated == (done[-1].end if done else 0)
    history = "\n".join(entry.text for entry in consolidator.memory.history_entries())
    answered = [p[1].content for i, p in enumerate(model.prompts) if i % 3 == 0]
    text = "\n".join([history, *answered])
    for place, message in enumerate(session.messages[: session.last_consolidated]):
        assert message["role"] == "system" or f"m{place}m" in text
    assert len(consolidator.memory.history_entries()) == len(done)


# --- compact ---


def test_compact_takes_all_but_the_last_turn(make, run):
    """Whatever the count: far below the budget, and not a message of the last turn."""
    consolidator = make(window=1_000_000)
    session = session_of(consolidator, "UAUCTAUCTA")
    assert ranges(run(consolidator, session, how="compact")) == [(0, 6)]
    assert consolidator.model.calls == 1
    assert run(consolidator, session, how="compact")[0].start == 6


def test_compact_of_one_turn_keeps_its_last_round(make, run):
    """One long loop of tools is compacted up to its last round."""
    consolidator = make(window=1_000_000)
    session = session_of(consolidator, "UCTCTCT")
    assert ranges(run(consolidator, session, how="compact")) == [(0, 5)]


def test_compact_of_nothing_does_nothing(make, run):
    """An empty session and one of a single turn stay as they are."""
    consolidator = make()
    assert run(consolidator, session_of(consolidator), how="compact") == []
    assert run(consolidator, session_of(consolidator, "UA"), how="compact") == []
    assert consolidator.model.calls == 0


def test_compact_raises_what_went_wrong(make, run):
    """A person who asks for it is told that it failed; nothing moved."""
    consolidator = make(TimeoutError("slow"))
    session = session_of(consolidator, "UAU")
    with pytest.raises(ConsolidationError, match="the model failed"):
        run(consolidator, session, how="compact")
    assert session.last_consolidated == 0
