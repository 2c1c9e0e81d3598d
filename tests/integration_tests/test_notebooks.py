"""The notebooks run from top to bottom, offline."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

PLACE = Path(__file__).parents[2] / "notebooks"
VARYING = re.compile(
    r"\d{4}-\d\d-\d\d( \w+day)?( \d\d:\d\d)?|\s*[\d.]+ ([kM]B|bytes)|MEMORY-\S+|id=\"\w+\""
)
NOTEBOOKS = sorted(PLACE.glob("*.ipynb"))


def outputs(notebook) -> list[str]:
    """What each cell printed."""
    return [
        "".join(
            output["text"]
            for output in cell.outputs
            if output.output_type == "stream" and output["name"] == "stdout"
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def steady(texts: list[str]) -> list[str]:
    """The same without what is another in each run: dates, sizes on the disk, ids."""
    return [VARYING.sub("#", text) for text in texts]


def kinds(notebook) -> list[list[str]]:
    """What each cell shows beside what it printed: tables, pictures."""
    return [
        [kind for output in cell.outputs for kind in output.get("data", {})]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_and_says_what_is_stored_in_it(path, tmp_path):
    """Each cell runs, prints what its stored output has, and shows the same kinds of things."""
    done = Path(shutil.copy(path, tmp_path))
    # A process of its own: Jupyter warns of its own internals, and warnings are errors here.
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "OPENAI_API_KEY": ""}
    command = [sys.executable, str(PLACE / "run.py"), str(done)]
    subprocess.run(command, check=True, env=environment, capture_output=True, timeout=240)
    stored, made = nbformat.read(path, as_version=4), nbformat.read(done, as_version=4)
    assert steady(outputs(made)) == steady(outputs(stored))
    assert kinds(made) == kinds(stored)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_stored_for_everybody(path):
    """No place of a machine, warning, error or time of execution is in it; it runs in its order."""
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/(tmp|home|root)/|Traceback|Warning", text)
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all(not cell.metadata for cell in cells)
    assert "stderr" not in {output.get("name") for cell in cells for output in cell.outputs}


def test_the_quickstart_shows_that_a_new_chat_knows(tmp_path):
    """The stored quickstart shows consolidations, the restart, and the memory in a new chat."""
    text = "\n".join(outputs(nbformat.read(NOTEBOOKS[0], as_version=4)))
    assert "-> 8 messages" in text
    assert "16 messages, 12 of them in memory" in text
    assert text.count("allergic to nuts") >= 3
