"""The benchmark in PostgreSQL, as small as it gets; no time is looked at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from checkpointer_savers import IN_POSTGRES, SAVERS
from postgres_report import CONTESTANTS, PEER, Results, verdicts

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "postgres.py"


def test_a_run_writes_the_tables(tmp_path, databases):
    """Both workloads play on all checkpointers, are checked, and leave no schema behind."""
    sizes = ["--turns", "6", "--threads", "3", "--thread-turns", "3", "--processes", "2"]
    command = [sys.executable, str(SCRIPT), *sizes, "--repeats", "1", "--url", databases.url]
    done = subprocess.run(
        [*command, "--results", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "postgres.md").read_text(encoding="utf-8")
    long, many = text.split("## One thread of 6 turns")[1].split("## 3 threads of 3 turns")
    for part in (long, many):
        for saver in CONTESTANTS:
            assert f"\n| {SAVERS[saver].title} |" in part
    assert "| errors | 0 | 0 | yes |" in text
    assert str(tmp_path) not in text
    assert not databases.ask(
        "SELECT nspname FROM pg_namespace WHERE nspname LIKE %s", "nanomem_bench%"
    )


def results_of(ours, peer):
    """Results in which every measure of a checkpointer has one value."""
    measures = ("total_ms", "stored_bytes", "last_ms", "turns_a_second", "p99_ms", "errors")
    results = Results({}, {"long": "Long", "many": "Many"}, {})
    for kind in ("long", "many"):
        results.add(kind, IN_POSTGRES, dict.fromkeys(measures, ours))
        results.add(kind, PEER, dict.fromkeys(measures, peer))
    return results


def test_targets_say_whether_they_are_held():
    """A ratio at its limit holds, one beyond does not; of throughput the larger is the better."""
    held = {one.what: one.holds for one in verdicts(results_of(0.35, 1))}
    assert held["total time ÷ PostgresSaver"]
    assert not held["a last turn ÷ PostgresSaver"]
    assert not held["throughput ÷ PostgresSaver"]
    assert not held["errors"]
    held = {one.what: one.holds for one in verdicts(results_of(2, 1))}
    assert held["throughput ÷ PostgresSaver"]
    assert not held["total time ÷ PostgresSaver"]


def test_what_was_not_measured_is_no_target():
    """Without the other checkpointer, or without a workload, nothing is said of it."""
    results = results_of(1, 1)
    del results.rounds["many"], results.rounds["long"][PEER]
    assert verdicts(results) == []
