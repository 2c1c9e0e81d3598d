"""Several processes on one workspace, and processes that are killed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import langchain_nanomem
from langchain_nanomem.manager import SessionManager

KEY = "telegram:42"

APPEND = """
import sys
from langchain_nanomem.manager import SessionManager

workspace, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
manager = SessionManager(workspace)
session = manager.get_or_create("telegram:42")
print("ready", flush=True)
sys.stdin.readline()
for i in range(count):
    session.add_message("user", f"{name} {i}", padding="x" * (i % 97) * 10)
    manager.save(session)
manager.get_or_create("telegram:42")
print("saved", flush=True)
sys.stdin.readline()
session = manager.get_or_create("telegram:42")
print(len(session.messages), len({m["content"] for m in session.messages}), flush=True)
"""

# Two messages a save, so that a save torn in between would show.
SAVE = """
import sys
from langchain_nanomem.manager import SessionManager

manager = SessionManager(sys.argv[1])
session = manager.get_or_create("telegram:42")
print("ready", flush=True)
count = len(session.messages) // 2
while True:
    session.add_message("user", f"question {count}", padding="x" * 5000)
    session.add_message("assistant", f"answer {count}", padding="y" * 5000)
    session.last_consolidated = 2 * count
    manager.save(session)
    print(count, flush=True)
    count += 1
"""


def start(script: str, *args: object) -> subprocess.Popen[str]:
    root = str(Path(langchain_nanomem.__file__).parent.parent)
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_two_processes_share_a_session(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """cases/sessions.md 19: 500 appends each make 1,000 messages, none torn, seen by both."""
    processes = [start(APPEND, tmp_path, name, 500) for name in ("one", "two")]
    assert [line_of(process) for process in processes] == ["ready"] * 2
    for process in processes:
        go_on(process)
    watcher = SessionManager(tmp_path)
    seen = 0
    while any(process.poll() is None for process in processes) and seen < 1000:
        now = len(watcher.get_or_create(KEY).messages)
        assert now >= seen
        seen = now
        time.sleep(0.02)
    assert [line_of(process) for process in processes] == ["saved"] * 2
    for process in processes:
        go_on(process)
    assert [line_of(process) for process in processes] == ["1000 1000"] * 2
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    contents = [message["content"] for message in SessionManager(tmp_path).get_or_create(KEY).messages]
    for name in ("one", "two"):
        own = [content for content in contents if content.startswith(name)]
        assert own == [f"{name} {i}" for i in range(500)]
    assert caplog.records == []  # nothing that was being written was taken for torn


def test_a_killed_process_loses_nothing_acknowledged(tmp_path: Path):
    """cases/sessions.md 20: after 25 kills at any moment all that was acknowledged is there."""
    chance = random.Random(20)
    acknowledged = -1
    for _ in range(25):
        process = start(SAVE, tmp_path)
        try:
            assert line_of(process) == "ready"
            time.sleep(chance.uniform(0.0, 0.06))
        finally:
            process.kill()
        said, _ = process.communicate()
        acknowledged = max([acknowledged, *map(int, said.split())])
        session = SessionManager(tmp_path).get_or_create(KEY)
        contents = [message["content"] for message in session.messages]
        turns = len(contents) // 2
        assert contents == [f"{w} {i}" for i in range(turns) for w in ("question", "answer")]
        assert acknowledged < turns <= acknowledged + 2
        assert session.last_consolidated in {0, 2 * (turns - 1), 2 * (turns - 2)}
    assert acknowledged > 25
    file = next((tmp_path / "sessions").iterdir())
    whole = file.read_bytes().split(b"\n")[:-1]
    assert all(isinstance(json.loads(line), dict) for line in whole)


def test_a_kill_while_another_process_saves(tmp_path: Path):
    """cases/sessions.md 19, 20: the lock of a killed process does not stop the other one."""
    victim = start(SAVE, tmp_path)
    survivor = start(APPEND, tmp_path, "one", 40)
    assert [line_of(victim), line_of(survivor)] == ["ready", "ready"]
    go_on(survivor)
    time.sleep(0.05)
    victim.kill()
    said, _ = victim.communicate()
    assert line_of(survivor) == "saved"
    go_on(survivor)
    total, distinct = map(int, line_of(survivor).split())
    survivor.communicate()
    assert total == distinct
    assert total >= 40 + 2 * len(said.split())


def test_processes_adopt_one_old_file(tmp_path: Path):
    """cases/sessions.md 19, 23: two that open a file of the original at once both have all of it."""
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    lines = [{"_type": "metadata", "key": KEY}, {"role": "user", "content": "old"}]
    (sessions / "telegram_42.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    processes = [start(APPEND, tmp_path, name, 5) for name in ("one", "two")]
    for process in processes:
        assert line_of(process) == "ready"
        go_on(process)
    assert [line_of(process) for process in processes] == ["saved"] * 2
    for process in processes:
        go_on(process)
    assert [line_of(process) for process in processes] == ["11 11"] * 2
    for process in processes:
        process.communicate()
    contents = [message["content"] for message in SessionManager(tmp_path).get_or_create(KEY).messages]
    assert contents[0] == "old"
    assert len(contents) == 11
