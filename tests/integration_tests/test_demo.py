"""The demo and the command, as a person runs them."""

from __future__ import annotations

import json

import pytest
from commands import nanomem

from langchain_nanomem import MemoryStore, SessionManager
from langchain_nanomem.demo import load_conversation
from langchain_nanomem.demo.replay import THREAD, Settings, play_day


def locomo_file(path):
    """A small conversation of two days in the form of LoCoMo."""
    talk = {"speaker_a": "Ann", "speaker_b": "Ben"}
    for number in (1, 2):
        talk[f"session_{number}_date_time"] = f"1:56 pm on {number} May, 2023"
        talk[f"session_{number}"] = [
            {"speaker": name, "text": f"Day {number}, {name} says {word} about the harbour."}
            for word in ("one", "two", "three")
            for name in ("Ann", "Ben")
        ]
    qa = [{"question": "What does Ann talk of?", "answer": "harbour", "category": 4}]
    path.write_text(json.dumps([{"sample_id": "c1", "conversation": talk, "qa": qa}]))
    return path


def test_the_demo_shows_days_consolidations_and_what_is_known(tmp_path):
    """`nanomem demo` plays each day, consolidates, and shows what is known, in 80 columns."""
    done = nanomem("demo", "--keep", tmp_path / "kept")
    assert done.returncode == 0, done.stderr
    days = len(load_conversation().days)
    assert done.stdout.count("a new process") == days
    assert done.stdout.count("consolidated") >= 5
    assert "extractive" in done.stdout
    assert "A brand-new chat is asked" in done.stdout
    assert "tokens sent" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    session = SessionManager(tmp_path / "kept").get_or_create(THREAD)
    said = [m["content"] for m in session.messages if m["role"] == "user"]
    assert said == [turn.user for day in load_conversation().days for turn in day.turns]
    assert 0 < session.last_consolidated < len(session.messages)
    assert MemoryStore(tmp_path / "kept").history_entries()


def test_the_demo_replays_a_locomo_file(tmp_path):
    """`nanomem demo --data` plays a conversation in LoCoMo's form in place of its own."""
    done = nanomem("demo", "--data", locomo_file(tmp_path / "talk.json"), "--keep", tmp_path / "k")
    assert done.returncode == 0, done.stderr
    assert "c1: Ann and Ben" in done.stdout
    assert "✔ What does Ann talk of?" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--model", "nobody:x"], "openai:NAME"),
        (["--data", "/nowhere.json"], "nowhere.json"),
        (["--window", "-5"], "context_window_tokens"),
    ],
)
def test_the_demo_says_what_is_wrong(arguments, says, tmp_path):
    """Wrong options end with one line that says what, and exit code 1."""
    done = nanomem("demo", "--keep", tmp_path, *arguments)
    assert done.returncode == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_day_that_was_interrupted_goes_on(tmp_path):
    """A day played again after its process ended in the middle plays only what is left of it."""
    settings = Settings(str(tmp_path), 4_000)
    events = play_day(settings, 0)
    played = [next(events)["event"] for _ in range(5)]
    events.close()
    rest = [event["event"] for event in play_day(settings, 0)]
    turns = len(load_conversation().days[0].turns)
    assert (played + rest).count("turn") == turns
    session = SessionManager(tmp_path).get_or_create(THREAD)
    assert sum(m["role"] == "user" for m in session.messages) == turns


def test_doctor_finds_and_mends_a_damaged_session(tmp_path):
    """cases/sessions.md 13: the repair command keeps the good records and the damaged file."""
    manager = SessionManager(tmp_path)
    for key in ("good", "bad"):
        session = manager.get_or_create(key)
        session.add_message("user", "before")
        session.add_message("assistant", "after")
        manager.save(session)
    path = tmp_path / "sessions" / "bad.jsonl"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], b"no record", *lines[2:]]))
    found = nanomem("doctor", "--workspace", tmp_path)
    assert found.returncode == 1
    assert "bad: 1 lines that can't be read (line 3)" in found.stdout
    mended = nanomem("doctor", "--repair", NANOMEM_WORKSPACE=str(tmp_path))
    assert mended.returncode == 0
    assert "damaged-" in mended.stdout
    kept = SessionManager(tmp_path).get_or_create("bad").messages
    assert [message["content"] for message in kept] == ["before", "after"]
    assert nanomem("doctor", "--workspace", tmp_path).returncode == 0


def test_doctor_goes_on_where_a_name_is_cut(tmp_path):
    """Who it is a later record tells, and it is mended; else it is named, and keeps no other."""
    manager = SessionManager(tmp_path)
    for key in ("a" * 300, "b" * 300, "c"):
        session = manager.get_or_create(key)
        session.add_message("user", "before")
        manager.save(session)
    path = manager.journal.path("a" * 300)
    path.write_bytes(b"no record\n" + path.read_bytes().split(b"\n")[1] + b"\n")
    told = manager.journal.path("b" * 300)
    told.write_bytes(b"no record\n" + told.read_bytes())
    mended = nanomem("doctor", "--repair", "--workspace", tmp_path)
    assert mended.returncode == 1
    assert f"{path}: nobody can tell which session it is" in mended.stdout
    assert "3 sessions" in mended.stdout
    kept = SessionManager(tmp_path).get_or_create("b" * 300).messages
    assert [message["content"] for message in kept] == ["before"]
