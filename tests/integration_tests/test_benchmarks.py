"""The benchmark of the checkpointers, as small as it gets; no time is looked at."""

from __future__ import annotations

import dataclasses
import gc
import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import checkpointers
import pytest
from checkpointer_results import Measurement, Results
from checkpointer_run import Run, Task
from checkpointer_savers import SAVERS
from checkpointer_targets import standing, targets_of
from checkpointer_workloads import WORKLOADS
from langgraph.checkpoint.memory import InMemorySaver

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "checkpointers.py"
PNG = b"\x89PNG"


class ForgetfulSaver(InMemorySaver):
    """Loses the last message of six."""

    def get_tuple(self, config):
        found = super().get_tuple(config)
        if found and len(found.checkpoint["channel_values"].get("messages", ())) == 6:
            found.checkpoint["channel_values"]["messages"].pop()
        return found


@contextmanager
def open_forgetful(_place, _loop):
    yield ForgetfulSaver()


@pytest.fixture
def measure(tmp_path):
    """Measures in this process; what the tests themselves hold is not looked at by collections."""
    gc.freeze()
    yield lambda workload, saver, turns: Run(
        Task(workload, saver, turns, "async", str(tmp_path))
    ).measure()
    gc.unfreeze()


@pytest.fixture
def benchmark(monkeypatch):
    """Runs the script in this process, with the options given."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
        checkpointers.main()

    return run


def results_of(ours, sqlite, *, turns=(1_000,)):
    """Results of the plain chat in which every measure of a checkpointer has one value."""
    results = Results("chat", {}, {})
    for saver, value in (("nanomem", ours), ("sqlite", sqlite)):
        for n in turns:
            results.add(saver, n, Measurement(**dict.fromkeys(Measurement.__annotations__, value)))
    return results


def test_a_run_writes_tables_and_a_figure(tmp_path):
    """Each size has a row for each checkpointer; peers stop where told; no path is named."""
    (tmp_path / "checkpointers-chat-note.md").write_text("Why it is so.\n")
    chosen = ["--workloads", "chat", "--turns", "3", "5", "--peer-turns", "3", "--repeats", "1"]
    command = [sys.executable, str(SCRIPT), *chosen, "--savers", "nanomem", "memory"]
    done = subprocess.run(
        [*command, "--results", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "| what | target | measured (rounds) | holds |" in done.stdout
    text = (tmp_path / "checkpointers.md").read_text(encoding="utf-8")
    three, five = text.split("### N = 3 turns")[1].split("### N = 5 turns")
    assert "\n| NanomemSaver |" in three
    assert "\n| InMemorySaver |" in three
    assert "\n| NanomemSaver |" in five
    assert "InMemorySaver" not in five
    assert "NanomemSaver ÷" in three
    for what in ("Machine", "Kernel", "Python", "Packages: langchain-nanomem "):
        assert f"- {what}" in text
    assert "Why it is so." in text
    assert str(tmp_path) not in text
    assert "(checkpointers-chat.png)" in text
    assert (tmp_path / "checkpointers-chat.png").read_bytes().startswith(PNG)


def test_tables_and_figures_can_be_written_anew(tmp_path, benchmark):
    """`--report` writes them from the measurements that were kept, without measuring."""
    results_of(1.5, 2, turns=(50, 1_000)).save(tmp_path)
    benchmark("--report", "--results", tmp_path)
    text = (tmp_path / "checkpointers.md").read_text(encoding="utf-8")
    assert "| total time ÷ SqliteSaver | ≤ 0.2 | 0.75 (0.75 … 0.75) | **no** |" in text
    assert (tmp_path / "checkpointers-chat.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_workload_plays_and_is_checked(workload, measure):
    """Each workload ends with the state it must, reads as it was put, and can be deleted."""
    measured = measure(workload, "nanomem", 12)
    assert measured.stored_bytes > measured.payload_bytes > measured.left_bytes
    assert None not in dataclasses.astuple(measured)


@pytest.mark.parametrize(
    "saver", ["nanomem+delta", "nanomem-async", "memory", "sqlite", "async-sqlite+delta"]
)
def test_every_kind_of_checkpointer_is_measured(saver, measure):
    """Sync and async, with and without delta channels, durable or not: each is read in full."""
    measured = measure("chat", saver, 12)
    assert measured.stored_bytes > measured.payload_bytes
    assert None not in {measured.get_tuple_ms, measured.list_ms, measured.delete_ms}
    assert (measured.cold_open_ms is None) == (saver == "memory")


def test_a_checkpointer_that_loses_a_message_fails(measure, monkeypatch):
    """A run on a checkpointer that does not give back what was put is no measurement."""
    forgetful = dataclasses.replace(SAVERS["memory"], open=open_forgetful)
    monkeypatch.setitem(SAVERS, "forgetful", forgetful)
    with pytest.raises(AssertionError, match="not what was put"):
        measure("chat", "forgetful", 3)


def test_the_floor_writes_nothing(measure, tmp_path):
    """The floor gives each turn what it needs, writes nothing, and is not read."""
    measured = measure("trim", "floor", 12)
    assert measured.stored_bytes == 0
    assert measured.get_tuple_ms is None
    assert list(tmp_path.iterdir()) == []


def test_targets_say_whether_they_are_held():
    """A ratio at its limit holds, one above does not, and what was not measured says so."""
    held = {row[0]: row[2:] for row in targets_of(results_of(0.2, 1)).rows}
    assert held["total time ÷ SqliteSaver"] == ("0.2 (0.2 … 0.2)", "yes")
    assert held["delete ÷ SqliteSaver"] == ("0.2 (0.2 … 0.2)", "**no**")
    assert held["total time ÷ InMemorySaver"] == ("not measured", "-")


def test_bytes_a_turn_are_held_against_those_at_the_targets_size():
    """Bytes a turn that are more than a tenth off at another size miss their target."""
    verdicts = targets_of(results_of(4_000_000, 1, turns=(950, 1_000)))
    assert verdicts.turns == 1_000
    assert verdicts.rows[-1][2:] == ("+5.3 % at 950", "yes")
    verdicts = targets_of(results_of(4_000_000, 1, turns=(800, 1_000)))
    assert verdicts.rows[-1][2:] == ("+25.0 % at 800", "**no**")


def test_who_is_before_ours_is_named():
    """The tables say who needs less time or fewer bytes than ours, and by how much."""
    assert standing(results_of(2, 3))[0] == "First in total time at N = 1,000: NanomemSaver."
    assert "SqliteSaver (0.75 of it)" in standing(results_of(4, 3))[1]
    assert standing(Results("chat", {}, {})) == []


def test_measurements_are_kept_as_they_are(tmp_path):
    """What is saved is what is loaded, with the numbers of turns as numbers."""
    results = results_of(1.5, 2)
    results.save(tmp_path)
    assert Results.load(tmp_path, "chat") == results
    assert Results.load(tmp_path, "tools") is None
    assert json.loads((tmp_path / "checkpointers-chat.json").read_text())["workload"] == "chat"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--turns", "1"], "must be 2 or more, not '1'"),
        (["--repeats", "0"], "must be 1 or more, not '0'"),
        (["--savers", "nothing"], "invalid choice: 'nothing'"),
        (["--savers", "postgres"], "postgres needs"),
    ],
)
def test_wrong_options_are_said(arguments, says, benchmark, monkeypatch, capsys):
    """An option that can't be is refused before anything is measured."""
    monkeypatch.delenv("NANOMEM_POSTGRES_URL", raising=False)
    with pytest.raises(SystemExit, match="2"):
        benchmark(*arguments)
    assert says in capsys.readouterr().err
