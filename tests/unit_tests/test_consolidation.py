"""When it consolidates, what, how far, and what is in the files afterwards."""

from __future__ import annotations

import asyncio
import logging
from itertools import count as counting
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool

from langchain_nanomem.codec import decode
from langchain_nanomem.consolidation import Consolidation, MemoryConsolidator
from langchain_nanomem.errors import ConsolidationError, ScopeError
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.memory import MemoryStore
from langchain_nanomem.tokens import TokenCounter
from langchain_nanomem.window import live_window
from scripted import ScriptedChatModel, flat_tokens, save_memory, talk

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "cli:user"
EXACT = {"max_completion_tokens": 0, "safety_margin_tokens": 0}


@pytest.fixture
def make(tmp_path) -> Callable[..., MemoryConsolidator]:
    """Makes a consolidator of one workspace, whose messages count 100 tokens each."""

    def make(*replies: Any, window: int = 200, **options: Any) -> MemoryConsolidator:
        model = options.pop("model", ScriptedChatModel(replies=list(replies) or [save_memory()]))
        options = EXACT | {"token_counter": flat_tokens} | options
        return MemoryConsolidator(
            SessionManager(tmp_path),
            MemoryStore(tmp_path),
            model,
            context_window_tokens=window,
            **options,
        )

    return make


@pytest.fixture(params=["sync", "async"])
def run(request) -> Callable[..., list[Consolidation]]:
    """Consolidates, or compacts, in one colour."""

    def run(consolidator, session, *, how="maybe_consolidate_by_tokens", **options):
        if request.param == "sync":
            return getattr(consolidator, how)(session, **options)
        return asyncio.run(getattr(consolidator, f"a{how}")(session, **options))

    return run


def session_of(consolidator, letters="", key=KEY):
    return talk(consolidator.sessions.get_or_create(key), letters)


def ranges(done):
    return [(one.start, one.end) for one in done]


def shown(model):
    """The text of each question that the model was asked."""
    return [prompt[1].content for prompt in model.prompts]


# --- when ---


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
    """cases/consolidation.md 4, 5: counted by the consolidator's own counter, from the pointer on."""
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
    fresh = SessionManager(consolidator.sessions.journal.workspace).get_or_create(KEY)
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


# --- ranges larger than the model's window ---


def facts(consolidator):
    """77 messages with 40 facts: 38 turns and a last question."""
    session = session_of(consolidator)
    for i in range(38):
        more = f" and fact-{38 + i}-here" if i < 2 else ""
        session.add_message("user", f"Please note fact-{i}-here{more}. " + "Some more words. " * 6)
        session.add_message("assistant", f"Noted number {i}. " + "It was a pleasure. " * 6)
    session.add_message("user", "What do you know?")
    return session


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
    assert all(counter(prompt) <= consolidator.budget_tokens for prompt in consolidator.model.prompts)


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
    """Invariant 6: ranges follow one another from 0; each message was shown, or is in HISTORY raw."""
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


# --- the model ---


def test_without_a_model_what_is_due_raises(make, run):
    """model=None: clear at the first use, silent before that; the messages are saved."""
    consolidator = make(model=None)
    session = session_of(consolidator, "U")
    assert run(consolidator, session) == []
    talk(session, "AU")
    for how in ("maybe_consolidate_by_tokens", "compact"):
        with pytest.raises(ConsolidationError, match="there is no model"):
            run(consolidator, session, how=how)
    fresh = SessionManager(consolidator.sessions.journal.workspace).get_or_create(KEY)
    assert len(fresh.messages) == 3


def test_extractive_needs_no_model(make, run):
    """A deterministic summary, marked as such, of what was said; MEMORY.md stays."""
    consolidator = make(model="extractive")
    consolidator.memory.write_long_term("- likes tea")
    session = session_of(consolidator)
    session.add_message("user", "My sister Ada moved to Berlin on 2026-05-02.")
    talk(session, "AU")
    (told,) = run(consolidator, session)
    assert told.kind == "extractive"
    assert told.history_entry.startswith("[EXTRACTIVE] ")
    assert "Ada moved to Berlin" in told.history_entry
    assert consolidator.memory.read_long_term() == "- likes tea"
    assert session.last_consolidated == 2


def test_extractive_of_tools_alone_says_so(make, run):
    """A range in which nobody said anything still gets an entry."""
    consolidator = make(model="extractive")
    session = session_of(consolidator, "UCTU")
    for message in session.messages[:2]:
        message["content"] = "?"
    (told,) = run(consolidator, session)
    assert told.history_entry.startswith("[EXTRACTIVE] ")


def test_own_instructions_replace_the_built_in_ones(make, run):
    """cases/consolidation.md 23: braces and percents in them are no template."""
    own = "Keep {everything} 100%s"
    consolidator = make(prompt=own)
    session = session_of(consolidator, "UAU")
    session.messages[0]["content"] = "a {brace} and %d {0}"
    assert run(consolidator, session)
    assert consolidator.model.prompts[0][0] == SystemMessage(own)
    assert "a {brace} and %d {0}" in shown(consolidator.model)[0]


def test_an_own_prompt_function_makes_the_messages(make, run):
    """cases/consolidation.md 23: it is given memory and conversation, as texts."""
    consolidator = make(
        prompt=lambda memory, conversation: [HumanMessage(f"{memory}|{conversation}")]
    )
    consolidator.memory.write_long_term("- likes {tea}")
    assert run(consolidator, session_of(consolidator, "UAU"))
    (prompt,) = consolidator.model.prompts[0]
    assert prompt.content.startswith("- likes {tea}|[2026-05-08 Friday 13:00] user: u0\n")


def test_each_consolidation_is_told(make, run):
    """on_consolidated gets what the call returns, in its order."""
    told: list[Consolidation] = []
    consolidator = make(
        window=1_000, token_counter=None, max_rounds=3, on_consolidated=told.append
    )
    done = run(consolidator, facts(consolidator))
    assert len(done) > 1
    assert told == done


def test_an_error_in_the_hook_is_logged(make, run, caplog):
    """The consolidation has happened, whatever the hook does."""

    def hook(_consolidation):
        raise RuntimeError("in the hook")

    consolidator = make(on_consolidated=hook)
    session = session_of(consolidator, "UAU")
    assert run(consolidator, session)
    assert session.last_consolidated == 2
    assert "on_consolidated failed" in caplog.text
    assert "in the hook" in caplog.text


# --- counting ---


def test_all_that_is_sent_is_counted(make):
    """cases/consolidation.md 38: system prompt, memory, tools and window."""

    @tool
    def look(place: str) -> str:
        """Look at a place."""
        return place

    consolidator = make(token_counter=None)
    session = session_of(consolidator, "UA")
    counter = TokenCounter()
    bare = counter([HumanMessage("u0"), AIMessage("a1")])
    estimate = consolidator.estimate_prompt_tokens
    assert estimate(session) == bare
    prompt = "Be brief."
    assert estimate(session, system_prompt=prompt) == bare + counter([SystemMessage(prompt)])
    assert estimate(session, tools=[look]) == bare + counter.count_tools([look])
    consolidator.memory.write_long_term("- likes tea")
    block = SystemMessage(f"Be brief.\n\n{consolidator.memory.get_memory_context()}")
    assert estimate(session, system_prompt=SystemMessage(prompt)) == bare + counter([block])


def test_what_is_consolidated_is_not_counted(make, run):
    """The estimate is of the live window."""
    consolidator = make(save_memory("entry", ""), window=300)
    session = session_of(consolidator, "UAUA")
    assert consolidator.estimate_prompt_tokens(session) == 400
    run(consolidator, session)
    assert consolidator.estimate_prompt_tokens(session) == 200


def test_a_given_counter_is_used_as_it_is(make, run):
    """cases/consolidation.md 39: it gets lists of messages and decides alone."""
    seen = []

    def counter(messages):
        seen.append(list(messages))
        return 0

    consolidator = make(window=1, token_counter=counter)
    session = session_of(consolidator, "UAU" * 50)
    assert run(consolidator, session, system_prompt="rules") == []
    assert [message.content for message in seen[0][:3]] == ["rules", "u0", "a1"]
    assert len(seen[0]) == 151


def test_ten_thousand_messages_are_counted_once(make, monkeypatch):
    """cases/consolidation.md 40: a later check encodes only what is new."""
    consolidator = make(window=10_000_000, token_counter=None)
    session = session_of(consolidator, "UA" * 5_000)
    assert consolidator.maybe_consolidate_by_tokens(session) == []
    encoded = []
    counter = consolidator.counter
    measure = counter._loaded()
    monkeypatch.setattr(counter, "_measure", lambda text: encoded.append(text) or measure(text))
    talk(session, "UA")
    assert consolidator.maybe_consolidate_by_tokens(session) == []
    assert encoded == ["u10000", "a10001"]


# --- arguments ---


@pytest.mark.parametrize(
    ("window", "options"),
    [
        (0, {}),
        (-5, {}),
        (100, {"max_completion_tokens": 100}),
        (100, {"max_completion_tokens": 50, "safety_margin_tokens": 50}),
        (100, {"max_completion_tokens": -1}),
        (100, {"safety_margin_tokens": -1}),
        (100, {"consolidation_ratio": 0}),
        (100, {"consolidation_ratio": 1.01}),
        (100, {"consolidation_ratio": float("nan")}),
        (100, {"max_failures": 0}),
        (100, {"max_rounds": 0}),
        (100, {"model": "gpt"}),
    ],
)
def test_wrong_arguments_are_refused_at_construction(make, window, options):
    """cases/consolidation.md 9: a budget of 0 or less, and other numbers out of range."""
    with pytest.raises(ValueError, match="must|nothing is left"):
        make(window=window, **options)


def test_the_budget_is_the_window_less_answer_and_margin(make):
    """What is kept free, by default in proportion to the window."""
    assert make(window=1_000, max_completion_tokens=100, safety_margin_tokens=50).budget_tokens == 850
    defaults = {"max_completion_tokens": None, "safety_margin_tokens": None}
    assert make(window=128_000, **defaults).budget_tokens == 128_000 - 4_096 - 1_024
    small = make(window=3_200, **defaults, consolidation_ratio=0.25)
    assert small.budget_tokens == 3_200 - 800 - 100
    assert small.target_tokens == 575


# --- whose memory ---


def test_each_scope_has_its_own_memory(make, run, tmp_path):
    """cases/consolidation.md 35: a function from scope to memory keeps users apart."""
    consolidator = make()
    consolidator.memory = lambda scope: MemoryStore(tmp_path, scope)
    for user in ("ada", "bob"):
        consolidator.sessions.bind_scope(f"chat:{user}", ("user", user))
        consolidator.model.replies[:] = [save_memory(f"of {user}", f"- is {user}")]
        assert run(consolidator, session_of(consolidator, "UAU", key=f"chat:{user}"))
    for user in ("ada", "bob"):
        store = MemoryStore(tmp_path, ("user", user))
        assert store.read_long_term() == f"- is {user}"
        assert [entry.text for entry in store.history_entries()] == [f"of {user}"]
    assert not (tmp_path / "memory" / "MEMORY.md").exists()


def test_another_scope_s_memory_is_refused_before_the_model_is_asked(make, run):
    """cases/consolidation.md 35: one memory for all, and a session of somebody's own."""
    consolidator = make()
    consolidator.sessions.bind_scope(KEY, ("user", "ada"))
    with pytest.raises(ScopeError, match="ada"):
        run(consolidator, session_of(consolidator, "UAU"))
    assert consolidator.model.calls == 0


def test_logs_are_quiet_when_all_is_well(make, run, caplog):
    """A consolidation that succeeds warns of nothing."""
    consolidator = make()
    with caplog.at_level(logging.WARNING):
        assert run(consolidator, session_of(consolidator, "UAU"))
    assert caplog.records == []
