"""The model and its prompt, counting, arguments, scopes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from scripted import (
    KEY,
    facts,
    save_memory,
    session_of,
    shown,
    talk,
)

from langchain_nanomem.errors import (
    ConsolidationError,
    ScopeError,
)
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.memory import MemoryStore
from langchain_nanomem.tokens import TokenCounter

if TYPE_CHECKING:
    from langchain_nanomem.consolidation import Consolidation

pytestmark = pytest.mark.back_ends("files", "postgres")


# --- the model and its prompt ---


def test_without_a_model_what_is_due_raises(make, run):
    """model=None: clear at the first use, silent before that; the messages are saved."""
    consolidator = make(model=None)
    session = session_of(consolidator, "U")
    assert run(consolidator, session) == []
    talk(session, "AU")
    for how in ("maybe_consolidate_by_tokens", "compact"):
        with pytest.raises(ConsolidationError, match="there is no model"):
            run(consolidator, session, how=how)
    fresh = SessionManager(consolidator.sessions.journal).get_or_create(KEY)
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


@pytest.mark.parametrize(
    "form",
    [HumanMessage, lambda text: ("user", text), lambda text: {"role": "user", "content": text}],
)
def test_an_own_prompt_function_makes_the_messages(make, run, form):
    """cases/consolidation.md 23: it is given memory and conversation, as texts."""
    consolidator = make(prompt=lambda memory, conversation: [form(f"{memory}|{conversation}")])
    consolidator.memory.write_long_term("- likes {tea}")
    assert run(consolidator, session_of(consolidator, "UAU"))
    (prompt,) = consolidator.model.prompts[0]
    assert prompt.content.startswith("- likes {tea}|[2026-05-08 Friday 13:00] user: u0\n")


def test_each_consolidation_is_told(make, run):
    """on_consolidated gets what the call returns, in its order."""
    told: list[Consolidation] = []
    consolidator = make(window=1_000, token_counter=None, max_rounds=3, on_consolidated=told.append)
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
    with pytest.raises(ValueError, match=r"must|nothing is left"):
        make(window=window, **options)


def test_the_budget_is_the_window_less_answer_and_margin(make):
    """What is kept free, by default in proportion to the window."""
    assert (
        make(window=1_000, max_completion_tokens=100, safety_margin_tokens=50).budget_tokens == 850
    )
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
