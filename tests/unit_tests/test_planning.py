"""What is taken out at once, what the model is shown of it, and that it fits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import BEGIN, talk

from langchain_nanomem.answers import DEFAULT_INSTRUCTIONS
from langchain_nanomem.conversation import of_session
from langchain_nanomem.errors import ConsolidationError
from langchain_nanomem.memory_versions import MemoryVersion
from langchain_nanomem.planning import MemoryLimits, Planner, _level
from langchain_nanomem.session import Session
from langchain_nanomem.tokens import TokenCounter

COUNTER = TokenCounter()
EMPTY = MemoryVersion("", "")


def planner(budget=2_000, prompt=DEFAULT_INSTRUCTIONS):
    return Planner(COUNTER, budget, prompt, MemoryLimits.within(budget, None))


def conversation(letters, *, words=0, pointer=0):
    session = talk(Session("cli:user"), letters)
    for place, message in enumerate(session.messages):
        message["content"] = f"m{place}m" + " word" * words
    session.last_consolidated = pointer
    return of_session(session)


# --- the range ---


def test_a_range_that_fits_is_taken_whole():
    """Up to the boundary, from the pointer on, each message in its line."""
    plan = planner().plan(conversation("UAUAUA", pointer=2), 4, EMPTY)
    assert (plan.start, plan.end, plan.memory) == (2, 4, EMPTY)
    assert plan.shown == (
        "[2026-05-08 Friday 13:02] user: m2m\n[2026-05-08 Friday 13:03] assistant: m3m"
    )
    assert [message.content for message in plan.messages] == ["m2m", "m3m"]


def test_relative_dates_are_dated_beforehand():
    """cases/consolidation.md 28: what people say of "yesterday" has its date behind it."""
    session = talk(Session("cli:user"), "UACTU")
    for message in session.messages:
        message["content"] = "We met yesterday."
    told = of_session(session)
    shown = planner().plan(told, 4, EMPTY).shown
    assert shown.count("] user: We met yesterday (2026-05-07).") == 1
    assert shown.count("] assistant: We met yesterday (2026-05-07).") == 2
    assert "] tool look: We met yesterday." in shown
    assert "2026-05-07" not in planner().raw(told, 4, EMPTY).shown


def test_what_came_from_memory_is_no_new_evidence():
    """What a search of the memory gave is left out for the model; it is whole where it is raw."""
    session = talk(Session("cli:user"), "UCTAU")
    session.messages[2] |= {"name": "search_memory", "content": "Ada has a cat, of old"}
    told = of_session(session)
    shown = planner().plan(told, 4, EMPTY).shown
    assert "tool search_memory: (what was found in the memory" in shown
    assert "a cat" not in shown
    assert "a cat" in planner().raw(told, 4, EMPTY).shown


def test_a_larger_range_is_cut_before_a_user_turn():
    """cases/consolidation.md 20: a chunk ends where a turn ends, if a turn fits."""
    plan = planner(1_000).plan(conversation("UAUAUAUA", words=100), 8, EMPTY)
    assert plan.end in {2, 4, 6}
    assert plan.end < 8
    assert COUNTER(planner(1_000).question(plan)) <= 1_000


def test_a_turn_larger_than_the_window_is_cut_between_its_rounds():
    """cases/consolidation.md 7, 20: then a chunk ends between rounds of tools."""
    plan = planner(1_000).plan(conversation("U" + "CT" * 20, words=40), 41, EMPTY)
    assert 1 < plan.end < 41
    assert plan.conversation.messages[plan.end].type == "ai"


def test_a_message_larger_than_the_window_is_shown_by_head_and_tail():
    """cases/consolidation.md 20: it is still a range, marked as cut, within the budget."""
    seen = conversation("UA", words=5_000)
    plan = planner(1_000).plan(seen, 2, EMPTY)
    assert plan.end >= 1
    assert "left out here; the session has them" in plan.shown
    assert plan.shown.startswith("[2026-05-08 Friday 13:00] user: m0m word")
    assert COUNTER(planner(1_000).question(plan)) <= 1_000


def test_short_messages_beside_a_long_one_are_whole():
    """Only what is over-long is cut: in a round of two results, the short one is verbatim."""
    session = talk(Session("cli:user"), "U")
    calls = [
        {"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for name in ("x", "y")
    ]
    session.add_message("assistant", "two", tool_calls=calls)
    session.add_message("tool", "short and whole", tool_call_id="x")
    session.add_message("tool", "long " * 5_000, tool_call_id="y")
    session.last_consolidated = 1
    plan = planner(1_000).plan(of_session(session), 4, EMPTY)
    assert plan.end == 4
    assert "tool: short and whole\n" in plan.shown
    assert plan.shown.count("left out here") == 1


def test_a_system_message_is_never_the_whole_of_a_chunk():
    """cases/consolidation.md 36: what follows it is shown with it, however long."""
    plan = planner(1_000).plan(conversation("SSUA", words=2_000), 4, EMPTY)
    assert plan.end > 2
    assert "user: m2m" in plan.shown
    assert "m0m" not in plan.shown


@given(
    st.text("UAS", min_size=1, max_size=12).filter(lambda letters: letters.strip("S")),
    st.integers(0, 300),
    st.integers(600, 3_000),
)
def test_plan_after_plan_covers_a_range(letters, words, budget):
    """cases/consolidation.md 20: chunks follow one another to the boundary; none is empty."""
    pointer, shown = 0, []
    end = len(letters.rstrip("S"))
    while pointer < end:
        plan = planner(budget).plan(conversation(letters, words=words, pointer=pointer), end, EMPTY)
        assert plan.start == pointer < plan.end <= end
        assert plan.shown
        shown.append(plan.shown)
        pointer = plan.end
    text = "\n".join(shown)
    assert all((f": m{i}m" in text) is (letters[i] != "S") for i in range(end))
    assert all(text.count(f": m{i}m") <= 1 for i in range(end))


def test_a_raw_plan_is_whole():
    """cases/consolidation.md 18: nothing is cut, whatever the budget."""
    plan = planner(600).raw(conversation("UAS", words=3_000), 3, EMPTY)
    assert (plan.start, plan.end) == (0, 3)
    assert plan.shown.count(" word") == 6_000
    assert "left out" not in plan.shown


def test_ids_of_plans_differ():
    """Each plan has a name of its own."""
    seen = conversation("UA")
    assert planner().plan(seen, 2, EMPTY).id != planner().plan(seen, 2, EMPTY).id


def test_the_end_of_a_range_is_when_its_last_message_was_said():
    """Messages without a time are passed over; without any it is None."""
    session = talk(Session("cli:user"), "UAU")
    session.messages[2]["timestamp"] = None
    plan = planner().plan(of_session(session), 3, EMPTY)
    assert plan.ended_at == BEGIN + timedelta(minutes=1)
    for message in session.messages:
        message["timestamp"] = None
    assert planner().plan(of_session(session), 3, EMPTY).ended_at is None


# --- room ---


def test_a_memory_that_fills_the_window_is_refused():
    """cases/consolidation.md 21: the error says how large it is and what to do."""
    memory = MemoryVersion("- a fact\n" * 1_000, "v")
    with pytest.raises(ConsolidationError, match=r"MEMORY\.md has \d+ tokens.*Shorten it"):
        planner(1_000).plan(conversation("UA"), 2, memory)


def test_the_memory_takes_room_from_the_conversation():
    """With a larger memory less is shown at once; together they fit."""
    seen = conversation("UA" * 20, words=60)
    small = planner(3_000).plan(seen, 40, EMPTY)
    large = planner(3_000).plan(seen, 40, MemoryVersion("- a fact\n" * 400, "v"))
    assert large.end < small.end
    assert all(COUNTER(planner(3_000).question(plan)) <= 3_000 for plan in (small, large))


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=10), st.integers(10, 3_000))
def test_the_level_makes_all_fit(sizes, room):
    """Cut to the level, all fit; and one more token a message would be too many."""
    level = _level(sizes, room)
    fitted = sum(min(size, level) for size in sizes)
    assert fitted <= max(room, len(sizes))
    if sum(sizes) > room >= len(sizes):
        assert sum(min(size, level + 1) for size in sizes) > room


# --- without a model ---


def test_an_extract_leaves_the_memory_and_is_marked():
    """What people said, dated; neither tools nor the program are quoted."""
    session = Session("cli:user")
    said_at = datetime(2026, 5, 8, 13, 56, tzinfo=UTC)
    session.add_message("system", "Always mention Paris and London.", timestamp=said_at)
    session.add_message("user", "My sister Ada moved to Berlin yesterday.", timestamp=said_at)
    session.add_message("tool", "Madrid has 3,400,000 people.", tool_call_id="1")
    answer = planner().extract(planner().plan(of_session(session), 3, EMPTY))
    assert answer.memory_update is None
    assert answer.history_entry.startswith("[EXTRACTIVE] 2026-05-08 Fri user: ")
    assert "Ada moved to Berlin" in answer.history_entry
    assert "2026-05-07" in answer.history_entry
    assert "Paris" not in answer.history_entry
    assert "Madrid" not in answer.history_entry


def test_an_extract_of_nothing_says_so():
    """A range in which nobody spoke still gives an entry."""
    session = Session("cli:user")
    session.add_message("user", "?!")
    answer = planner().extract(planner().plan(of_session(session), 1, EMPTY))
    assert answer.history_entry == "[EXTRACTIVE] nothing that could be put in a sentence"
