"""Several processes on one workspace, and processes that are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import langchain_nanomem
from langchain_nanomem.manager import SessionManager

KEY = "telegram:42"

forking = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system can't fork")

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

# Forks a process for each line it is given, for starting Python anew takes most of a second.
# Two messages a save, so that a save torn in between would show.
SAVE = """
import os, sys
from langchain_nanomem.manager import SessionManager

def save():
    manager = SessionManager(sys.argv[1])
    session = manager.get_or_create("telegram:42")
    os.write(1, b"ready %d\\n" % os.getpid())
    count = len(session.messages) // 2
    while True:
        session.add_message("user", f"question {count}", padding="x" * 5000)
        session.add_message("assistant", f"answer {count}", padding="y" * 5000)
        session.last_consolidated = 2 * count
        manager.save(session)
        os.write(1, b"%d\\n" % count)
        count += 1

for _ in sys.stdin:
    child = os.fork()
    if child == 0:
        save()
    os.waitpid(child, 0)
    os.write(1, b"killed\\n")
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
    contents = [
        message["content"] for message in SessionManager(tmp_path).get_or_create(KEY).messages
    ]
    for name in ("one", "two"):
        own = [content for content in contents if content.startswith(name)]
        assert own == [f"{name} {i}" for i in range(500)]
    assert caplog.records == []  # nothing that was being written was taken for torn


def kill_a_saver(forker: subprocess.Popen[str], after_seconds: float) -> list[int]:
    """Let a process save for so long and kill it; what it acknowledged."""
    go_on(forker)
    ready, pid = line_of(forker).split()
    assert ready == "ready"
    time.sleep(after_seconds)
    os.kill(int(pid), signal.SIGKILL)
    return [int(line) for line in iter(lambda: line_of(forker), "killed")]


@forking
def test_a_killed_process_loses_nothing_acknowledged(tmp_path: Path):
    """cases/sessions.md 20: after 25 kills at any moment all that was acknowledged is there."""
    chance = random.Random(20)
    forker = start(SAVE, tmp_path)
    turns = 0
    for _ in range(25):
        acknowledged = kill_a_saver(forker, chance.uniform(0.0, 0.06))
        known = max([turns, *(number + 1 for number in acknowledged)])
        session = SessionManager(tmp_path).get_or_create(KEY)
        contents = [message["content"] for message in session.messages]
        turns = len(contents) // 2
        assert contents == [f"{w} {i}" for i in range(turns) for w in ("question", "answer")]
        assert known <= turns <= known + 1
        assert session.last_consolidated in range(0, max(1, 2 * turns), 2)
    forker.communicate()
    assert turns > 25
    content = next((tmp_path / "sessions").iterdir()).read_bytes()
    assert all(isinstance(json.loads(line), dict) for line in content.split(b"\n")[:-1])


@forking
def test_a_kill_while_another_process_saves(tmp_path: Path):
    """cases/sessions.md 19, 20: the lock of a killed process does not stop the other one."""
    forker = start(SAVE, tmp_path)
    survivor = start(APPEND, tmp_path, "one", 60)
    assert line_of(survivor) == "ready"
    go_on(survivor)
    acknowledged = [number for _ in range(4) for number in kill_a_saver(forker, 0.03)]
    forker.communicate()
    assert line_of(survivor) == "saved"
    go_on(survivor)
    total, distinct = map(int, line_of(survivor).split())
    survivor.communicate()
    assert total >= 60 + 2 * len(acknowledged)
    assert distinct >= 60


def test_processes_adopt_one_old_file(tmp_path: Path):
    """cases/sessions.md 19, 23: two that open an old file at once both have all of it."""
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
    contents = [
        message["content"] for message in SessionManager(tmp_path).get_or_create(KEY).messages
    ]
    assert contents[0] == "old"
    assert len(contents) == 11
