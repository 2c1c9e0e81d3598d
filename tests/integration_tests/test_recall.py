"""The benchmark of recall: its figures are right. No time is looked at."""

from __future__ import annotations

import json
import sys

import pytest
import recall
from recall_data import load
from recall_methods import METHODS

TURNS = [
    ("Ann", "I adopted a dog called Rex in the spring."),
    ("Ben", "What colour is it?"),
    ("Ann", "Brown, and it sheds everywhere."),
    ("Ben", "My sister plays the cello in Vienna."),
]


@pytest.fixture
def data(tmp_path):
    """Two dialogues, each with a question about a turn, and one of no dialogue's."""
    talks = []
    for name in ("one", "two"):
        turns = [
            {"speaker": who, "dia_id": f"D1:{n}", "text": text}
            for n, (who, text) in enumerate(TURNS, 1)
        ]
        qa = [
            {"question": "Which dog?", "answer": "Rex", "evidence": ["D1:1"], "category": number}
            for number in (1, 2, 3, 4)
        ]
        qa.append({"question": "Who plays the cello?", "evidence": ["D1:4"], "category": 5})
        qa.append({"question": "Nowhere?", "answer": "x", "evidence": ["D9:9"], "category": 1})
        talk = {"speaker_a": "Ann", "session_1_date_time": "1:56 pm on 8 May, 2023"}
        talks.append(
            {
                "sample_id": name,
                "conversation": {**talk, "session_1": turns},
                "session_summary": {"session_1_summary": "Ann adopted a dog, Rex."},
                "observation": {"session_1_observation": {"Ann": [["Ann has a dog.", "D1:1"]]}},
                "qa": qa,
            }
        )
    path = tmp_path / "data.json"
    path.write_text(json.dumps(talks))
    return path


def test_a_dialogue_is_ingested_as_it_was_said(data, tmp_path):
    """Each turn with its date, speaker and time; consolidated with the recorded summary."""
    (one, _) = load(data)
    store = one.ingest(tmp_path / "memory")
    hit = store.search_history("adopted", limit=1, kinds=["said"])[0]
    assert hit.text == "[1:56 pm on 8 May, 2023] Ann: I adopted a dog called Rex in the spring."
    assert (hit.speaker, hit.at.isoformat()) == ("Ann", "2023-05-08T13:56:00+00:00")
    assert [entry.text for entry in store.history_entries()] == ["Ann adopted a dog, Rex."]
    assert len(one.questions) == 5  # what has no evidence is left out


def test_recall_is_the_share_of_the_evidence(data, tmp_path):
    """A method that finds the turn has all of it, one that finds another has none."""
    ready = [recall.Ready(one, one.ingest(tmp_path / one.name)) for one in load(data)]
    ours = next(method for method in METHODS if method.name == recall.OURS)
    row = recall.measured(ready, ours, "x")
    assert {key: value for key, value in row.recall.items() if key[1] == 5} == {
        (key, 5): 100 for key in ("all", 1, 2, 3, 4, 5)
    }
    blind = ours._replace(build=lambda *_: lambda _: [2])
    assert set(recall.measured(ready, blind, "x").recall.values()) == {0}


def test_prompts_tell_what_stands_in_them(data, tmp_path):
    """All of the answer's words in the whole dialogue; no evidence in another one's."""
    ready = [recall.Ready(one, one.ingest(tmp_path / one.name)) for one in load(data)]
    rows = {row.name: row for row in recall.prompted(ready)}
    assert rows["the whole dialogue"].evidence == rows["the whole dialogue"].words == 1
    assert rows["all summaries"].evidence == 0
    assert rows["turns, 500 tokens"].tokens <= 500
    assert rows["summaries and turns, 1750 tokens"].words == 1


def test_the_script_writes_a_page(data, tmp_path, monkeypatch, capsys):
    """Tables of turns and prompts, and the targets; without the data it says so."""
    monkeypatch.setenv("NANOMEM_LOCOMO", str(data))
    monkeypatch.setattr(recall, "METHODS", [m for m in METHODS if "embeddings" not in m.name])
    monkeypatch.setattr(sys, "argv", ["recall.py", "--check", "--results", str(tmp_path)])
    recall.main()
    page = (tmp_path / "recall.md").read_text()
    assert "| **ours** | 100.0 |" in page
    assert "six scopes in one workspace" in page
    assert "holds  ours @10: 100.0" in capsys.readouterr().out
    monkeypatch.delenv("NANOMEM_LOCOMO")
    recall.main()
    assert "NANOMEM_LOCOMO names no file" in capsys.readouterr().out
