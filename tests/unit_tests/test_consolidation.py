"""When it consolidates, how far, and what is in the files afterwards."""

from __future__ import annotations

from itertools import count as counting

import pytest
from scripted import (
    KEY,
    ranges,
    save_memory,
    session_of,
    shown,
    talk,
)

from langchain_nanomem.codec import decode
from langchain_nanomem.consolidation import Consolidation
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.window import live_window

pytestmark = pytest.mark.back_ends("files", "postgres")

# --- when, and how far ---


@pytest.mark.parametrize(
    ("letters", "window", "is_called"), [("U", 200, False), ("UAUAUAUAUA", 200, True)]
)
def test_it_starts_at_the_budget(make, run, letters, window, is_called):
    """cases/consolidation.md 1: 100 tokens in a window of 200: no call; 1,000: called."""
    consolidator = make(window=window)
    done = run(consolidator, session_of(consolidator, letters))
    assert bool(done) is is_called
    assert bool(consolidator.model.calls) is is_called


@pytest.mark.parametrize(("window", "is_called"), [(501, False), (500, True), (499, True)])
def test_an_estimate_equal_to_the_budget_starts_it(make, run, window, is_called):
    """cases/consolidation.md 1: at the budget it is called, one token below it is not."""
    consolidator = make(window=window)
    assert bool(run(consolidator, session_of(consolidator, "UAUAU"))) is is_called


def test_the_range_goes_up_to_the_last_user_turn(make, run):
    """cases/consolidation.md 2: u1 a1 u2 a2 u3, far over: the range is u1 to a2."""
    consolidator = make(token_counter=lambda messages: 120 * len(messages))
    session = session_of(consolidator, "UAUAU")
    assert ranges(run(consolidator, session)) == [(0, 4)]
    assert session.last_consolidated == 4
    (question,) = shown(consolidator.model)
    assert all(said in question for said in ("u0", "a1", "u2", "a3"))
    assert "u4" not in question


def test_it_goes_on_until_the_target(make, run):
    """cases/consolidation.md 3: estimates 500, 300, 80 in a window of 200 are two rounds."""
    estimates = iter([500, 300, 80])

    def counter(messages):
        return next(estimates) if messages[0].type == "system" else 100

    consolidator = make(token_counter=counter)
    session = session_of(consolidator, "UAUAUAU")
    assert ranges(run(consolidator, session, system_prompt="rules")) == [(0, 4), (4, 6)]
    assert session.last_consolidated == 6
    assert next(estimates, None) is None


def test_the_distance_between_trigger_and_target_is_kept(make, run):
    """It goes down to the ratio of the budget, no further, and then waits for the trigger."""
    consolidator = make(window=1_000, consolidation_ratio=0.6)
    session = session_of(consolidator, "UA" * 5)
    assert ranges(run(consolidator, session)) == [(0, 4)]
    talk(session, "UA")
    assert run(consolidator, session) == []
    talk(session, "UA")
    assert ranges(run(consolidator, session)) == [(4, 8)]


def test_a_long_tool_turn_is_consolidated(make, run):
    """cases/consolidation.md 5: a first turn of eighty rounds goes when another follows it."""
    consolidator = make(window=2_000, max_completion_tokens=0, token_counter=None)
    session = session_of(consolidator, "U" + "CT" * 80 + "U")
    done = run(consolidator, session)
    assert done[0].start == 0
    assert session.last_consolidated == done[-1].end
    assert consolidator.estimate_prompt_tokens(session) <= consolidator.target_tokens


def test_one_endless_tool_loop_never_gets_stuck(make, run):
    """cases/consolidation.md 5, 8: it shrinks between rounds, and the user's message stays."""
    consolidator = make(window=1_000, token_counter=None)
    session = session_of(consolidator, "U")
    for _ in range(80):
        talk(session, "CT")
        run(consolidator, session)
        assert consolidator.estimate_prompt_tokens(session) < consolidator.budget_tokens
    window = live_window([decode(m) for m in session.messages], session.last_consolidated)
    assert [message.content for message in window.kept] == ["u0"]
    assert consolidator.model.calls >= 2
    assert session.messages[session.last_consolidated]["role"] == "assistant"


def test_a_tail_alone_over_the_trigger_is_not_tried_again(make, run):
    """cases/consolidation.md 6: with nothing new to consolidate there is no model call."""
    consolidator = make(token_counter=lambda messages: 500 * len(messages))
    session = session_of(consolidator, "UAU")
    assert ranges(run(consolidator, session)) == [(0, 2)]
    for _ in range(3):
        assert run(consolidator, session) == []
    assert consolidator.model.calls == 1


def test_a_large_last_message_stays(make, run):
    """cases/consolidation.md 8: a user message that alone is over the budget is no range."""
    consolidator = make(token_counter=None, window=1_000)
    session = session_of(consolidator, "UA")
    session.add_message("user", "please " * 5_000)
    run(consolidator, session)
    assert session.last_consolidated == 2
    assert session.get_history()[-1]["content"] == "please " * 5_000


def test_the_system_message_stays_and_is_not_shown(make, run):
    """cases/consolidation.md 36: the model is not told it, the window has it still."""
    consolidator = make()
    session = session_of(consolidator, "SUAUA")
    assert ranges(run(consolidator, session)) == [(0, 3)]
    assert "s0" not in shown(consolidator.model)[0]
    records = session.messages
    assert records[0] == {**records[0], "role": "system", "content": "s0"}


def test_system_messages_alone_are_never_a_range(make, run):
    """cases/consolidation.md 36: in front of an over-long turn too, no call shows nothing."""
    consolidator = make(window=1_000, token_counter=None)
    session = session_of(consolidator, "S")
    session.add_message("user", "x " * 4_000)
    talk(session, "AU")
    done = run(consolidator, session)
    assert done[0].start == 0
    assert done[0].end > 1
    assert all("user:" in text or "assistant:" in text for text in shown(consolidator.model))


def test_only_a_system_message_and_a_turn_is_nothing_to_do(make, run):
    """cases/consolidation.md 36: what would remove nothing is no reason for a model call."""
    consolidator = make(token_counter=lambda messages: 500 * len(messages))
    assert run(consolidator, session_of(consolidator, "SU")) == []
    assert consolidator.model.calls == 0


# --- boundaries through the consolidator ---


@pytest.mark.parametrize(
    ("letters", "pointer", "tokens", "expected"),
    [
        ("UAUAU", 0, 100, (2, 200)),
        ("UAUAU", 0, 300, (4, 400)),
        ("UAUAU", 0, 9_999, (4, 400)),
        ("UAAA", 0, 100, None),
        ("AAU", 0, 50, (2, 200)),
        ("U", 0, 100, None),
        ("UAUA", 2, 100, None),
        ("UUU", 0, 100, (1, 100)),
        ("UAUAU", 0, 0, None),
        ("UAUAU", 2, 50, (4, 200)),
        ("UCTCTCT", 0, 250, (3, 300)),
        ("UCTCTCT", 3, 9_999, (5, 200)),
    ],
)
def test_the_boundary_of_a_session(make, letters, pointer, tokens, expected):
    """cases/consolidation.md 4, 5: counted by the consolidator's counter, from the pointer on."""
    consolidator = make()
    session = session_of(consolidator, letters)
    session.last_consolidated = pointer
    assert consolidator.pick_consolidation_boundary(session, tokens) == expected


# --- what is written ---


def test_what_a_consolidation_leaves_behind(make, run):
    """One dated entry that names its range, the new memory, the pointer, and what is told."""
    consolidator = make(save_memory("They moved.", "- lives in Berlin"))
    session = session_of(consolidator, "UAU")
    (told,) = run(consolidator, session)
    (entry,) = consolidator.memory.history_entries()
    assert (entry.text, entry.stamp) == ("They moved.", "[2026-05-08 13:01]")
    assert (entry.entry_id, entry.source) == (told.id, f"{KEY} 0-2")
    assert consolidator.memory.read_long_term() == "- lives in Berlin"
    assert told == Consolidation(told.id, KEY, 0, 2, "model", "They moved.", 200)
    assert [version.change_id for version in consolidator.memory.versions()] == [told.id]


def test_the_model_sees_memory_and_dated_messages(make, run):
    """cases/consolidation.md 28: each message carries its date and weekday."""
    consolidator = make()
    consolidator.memory.write_long_term("- likes tea")
    run(consolidator, session_of(consolidator, "UCTU"))
    (question,) = shown(consolidator.model)
    assert "<current_memory>\n- likes tea\n</current_memory>" in question
    assert "[2026-05-08 Friday 13:00] user: u0" in question
    assert "[2026-05-08 Friday 13:01] assistant: c1\n(calls look with {})" in question
    assert "[2026-05-08 Friday 13:02] tool look: t2" in question


def test_nothing_is_written_where_nothing_is_due(make, run, tmp_path):
    """cases/consolidation.md 24: no memory file comes to be."""
    consolidator = make()
    run(consolidator, session_of(consolidator, "U"))
    assert not (tmp_path / "memory").exists()


@pytest.mark.parametrize("update", ["", None, " \n", "(nothing)"])
def test_a_blank_update_never_wipes_the_memory(make, run, update):
    """cases/consolidation.md 15: the entry is written, MEMORY.md stays."""
    consolidator = make(save_memory("entry", update))
    consolidator.memory.write_long_term("- likes tea")
    assert run(consolidator, session_of(consolidator, "UAU"))
    assert consolidator.memory.read_long_term() == "- likes tea"
    assert consolidator.memory.versions() == []


def test_the_memory_does_not_grow_by_repeating_itself(make, run):
    """cases/consolidation.md 29: it is replaced, and each earlier version can be restored."""
    numbers = counting(1)
    consolidator = make(lambda _: save_memory("entry", f"- fact {next(numbers)}"))
    session = session_of(consolidator, "U")
    for _ in range(3):
        talk(session, "AU")
        run(consolidator, session)
    assert consolidator.memory.read_long_term() == "- fact 3"
    kept = [version.read_text() for version in consolidator.memory.versions()]
    assert kept == ["- fact 2", "- fact 1", ""]
    consolidator.memory.restore_long_term(consolidator.memory.versions()[0].version)
    assert consolidator.memory.read_long_term() == "- fact 2"


def test_an_unchanged_memory_is_not_written_again(make, run):
    """cases/consolidation.md 29: the same text makes no new version."""
    consolidator = make(save_memory("entry", "- likes tea"))
    consolidator.memory.write_long_term("- likes tea")
    assert run(consolidator, session_of(consolidator, "UAU"))
    assert consolidator.memory.versions() == []


def test_messages_are_never_touched(make, run):
    """Consolidation moves the pointer; the session keeps each message as it was."""
    consolidator = make()
    session = session_of(consolidator, "SUCTAUA")
    before = [dict(message) for message in session.messages]
    assert run(consolidator, session)
    assert session.messages == before
    fresh = SessionManager(consolidator.sessions.journal).get_or_create(KEY)
    assert (fresh.messages, fresh.last_consolidated) == (before, session.last_consolidated)


def test_an_image_leaves_a_mark_and_stays_in_the_session(make, run):
    """cases/consolidation.md 41: the model sees the mark, the session has the block."""
    consolidator = make()
    session = session_of(consolidator)
    block = {"type": "image", "base64": "A" * 40_000, "mime_type": "image/png"}
    session.add_message("user", [{"type": "text", "text": "my cat"}, block])
    talk(session, "AU")
    run(consolidator, session)
    assert "my cat\n[image: image/png, 30 kB]" in shown(consolidator.model)[0]
    assert session.messages[0]["content"][1] == block
