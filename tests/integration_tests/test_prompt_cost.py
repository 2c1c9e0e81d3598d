"""The benchmark of prompts' cost: its accounts are right. No time is looked at."""

from __future__ import annotations

import json
import sys

import prompt_cost
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from prompt_cost_approaches import APPROACHES, SYSTEM, Setting
from prompt_cost_conversations import Exchange, Talk, agent_log, dialogues
from prompt_cost_models import COUNTER, asked
from prompt_cost_report import targets, totals
from prompt_cost_run import measure

NAMES = [one.name for one in APPROACHES if not one.needs]
TEXT = "the river runs past the old mill and nobody minds it at all, year after year. " * 4


def talk(turns):
    exchanges = [
        Exchange(f"Question {n:02}: {TEXT}", [AIMessage(f"Answer {n:02}: {TEXT}")])
        for n in range(turns)
    ]
    facts = [(f"fact {n} of the river", f"Question {n:02}:") for n in range(turns)]
    return Talk("rivers", exchanges, facts, [f"Answer {n:02}: {TEXT}" for n in range(turns)])


@pytest.fixture(scope="module")
def measured():
    """A conversation that is several windows long, through each approach of this installation."""
    told, setting = talk(40), Setting(2_400, 0.5)
    return {
        one.name: measure(one, told, Setting(setting.window_tokens, one.usual))
        for one in APPROACHES
        if not one.needs
    }


def test_what_two_prompts_begin_with_is_cached():
    """Whole messages, and of the first other one what it begins with."""
    first = asked([SystemMessage("You are Ada."), HumanMessage("One")], [])
    longer = asked([SystemMessage("You are Ada."), HumanMessage("One"), AIMessage("Two")], [])
    other = asked([SystemMessage("You are Bob."), HumanMessage("One")], [])
    assert longer.cached_after(first) == first.tokens
    assert other.cached_after(first) == COUNTER.count_text("system: You are ")
    assert first.cached_after(None) == 0
    assert longer.tokens == COUNTER(
        [SystemMessage("You are Ada."), HumanMessage("One"), AIMessage("Two")]
    )


def test_everything_is_read_once(measured):
    """Without a memory each prompt begins with the last one: nothing is read anew."""
    run = measured["everything"]
    assert run.uncached < run.said + 40 * 12 + COUNTER.count_text(SYSTEM) + 50
    assert (run.summary_calls, run.systems) == (0, 1)
    assert run.over_window > 0
    assert run.cost(1) == run.cost(5) == run.uncached + 0.1 * (run.prompts - run.uncached)


def test_what_is_trimmed_is_shown_to_nobody(measured):
    """And the prompt is read anew at each turn."""
    run = measured["trim_messages"]
    assert (run.shown_share, run.summary_calls, run.over_window) == (0, 0, 0)
    assert run.uncached > 5 * run.said
    assert run.evidence_reachable == run.evidence_verbatim < run.evidence


@pytest.mark.parametrize("name", [name for name in NAMES if "ours" in name])
def test_ours_shows_all_and_finds_all(measured, name):
    """Nothing goes unseen, the question is always there, every turn can be found again."""
    run = measured[name]
    assert (run.shown_share, run.lost_question, run.over_window) == (1, 0, 0)
    assert run.evidence_reachable == run.evidence == 40
    assert run.largest <= Setting(2_400, 0.5).budget_tokens
    assert (run.systems > 1, run.systems_changed) == (True, 0)
    assert 0 < run.verbatim < run.largest


def test_a_question_behind_the_conversation_is_mostly_cached(measured):
    """With the prompt reused, and not without."""
    usual = measured["ours, fixed"]
    assert usual.summary_cached < usual.summary_input / 20  # a few words of JSON
    reused = measured["ours, fixed, prompt reused"]
    assert reused.summary_cached > reused.summary_input / 5  # the window is small
    assert reused.cost(1) < measured["ours, fixed"].cost(1)


def test_targets_tell_what_does_not_hold(measured):
    """A target fails where its figure is over its limit."""
    found = {target.what: target for target in targets(totals(measured.values()))}
    assert found["2,400 ours, fixed: evicted and never shown ≤ 0"].holds
    measured["ours, fixed"].shown_share, kept = 0.5, measured["ours, fixed"].shown_share
    found = {target.what: target for target in targets(totals(measured.values()))}
    assert not found["2,400 ours, fixed: evicted and never shown ≤ 0"].holds
    measured["ours, fixed"].shown_share = kept


def test_the_agents_log_is_the_same_each_time():
    """It has rounds of two calls at once, and results of many lengths."""
    first, again = agent_log(20), agent_log(20)
    assert [one.results for one in first.exchanges] == [one.results for one in again.exchanges]
    sizes = [len(text) for one in first.exchanges for text in one.results.values()]
    assert max(sizes) > 5 * min(sizes)
    calls = [reply.tool_calls for one in first.exchanges for reply in one.replies]
    assert {len(some) for some in calls} == {0, 1, 2}


def test_a_dialogue_is_read_as_turns(tmp_path):
    """Turns of one speaker are merged; facts and evidence keep the words they are from."""
    said = [("A", "Hi."), ("A", "I moved."), ("B", "Where to?"), ("A", "Berlin.")]
    turns = [
        {"speaker": who, "dia_id": f"D1:{n}", "text": text} for n, (who, text) in enumerate(said, 1)
    ]
    raw = {
        "sample_id": "x",
        "conversation": {"speaker_a": "A", "speaker_b": "B", "session_1": turns},
        "observation": {"session_1_observation": {"A": [["A moved to Berlin.", "D1:4"]]}},
        "qa": [{"question": "Where?", "evidence": ["D1:4", "D9:9"]}],
    }
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([raw]))
    (one,) = dialogues(path)
    assert [exchange.question for exchange in one.exchanges] == ["Hi.\nI moved.", "Berlin."]
    assert one.exchanges[0].replies[0].content == "Where to?"
    assert (one.facts, one.evidence) == ([("A moved to Berlin.", "Berlin.")], ["Berlin."])


def test_the_script_writes_tables_and_a_figure(tmp_path, monkeypatch, capsys):
    """And reads them again, without running anything."""
    monkeypatch.delenv("NANOMEM_LOCOMO", raising=False)
    run = ["prompt_cost.py", "--windows", "8000", "--approaches", "everything", "--processes", "1"]
    monkeypatch.setattr(sys, "argv", [*run, "--results", str(tmp_path / "r")])
    prompt_cost.main()
    assert "NANOMEM_LOCOMO names no file" in capsys.readouterr().out
    written = {path.name for path in (tmp_path / "r").iterdir()}
    assert written == {"prompt-cost.json", "prompt-cost.md", "prompt-cost.png"}
    assert (tmp_path / "r" / "prompt-cost.png").read_bytes().startswith(b"\x89PNG")
    table = (tmp_path / "r" / "prompt-cost.md").read_text()
    assert "An agent's log, a window of 8,000 tokens" in table
    monkeypatch.setattr(sys, "argv", ["prompt_cost.py", "--report", str(tmp_path / "r")])
    prompt_cost.main()
    assert (tmp_path / "r" / "prompt-cost.md").read_text() == table
