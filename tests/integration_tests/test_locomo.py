"""Months of real dialogue through a real graph, killed and resumed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "locomo_replay.py"


@pytest.mark.skipif(
    not Path(os.environ.get("NANOMEM_LOCOMO", "")).is_file(),
    reason="NANOMEM_LOCOMO names no LoCoMo file (CC BY-NC; not part of this project)",
)
def test_a_conversation_killed_in_the_middle_comes_back_whole():
    """After SIGKILL and a restart every turn is there, equal, once, and no prompt was too large."""
    command = [sys.executable, str(SCRIPT), "--number", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    assert "Every turn came back equal" in done.stdout
