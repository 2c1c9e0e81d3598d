"""The notebooks run from top to bottom, offline."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))

# A process of its own: Jupyter's client warns of its own internals, and warnings are errors here.
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_and_says_what_is_stored_in_it(path, tmp_path):
    """Every cell runs without an error, and prints as many lines as its stored output has."""
    done = tmp_path / path.name
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", EXECUTE, str(path), str(done)]
    subprocess.run(command, check=True, env=environment, capture_output=True, timeout=240)
    stored, made = nbformat.read(path, as_version=4), nbformat.read(done, as_version=4)
    assert [text.count("\n") for text in outputs(made)] == [
        text.count("\n") for text in outputs(stored)
    ]


def test_the_quickstart_shows_that_a_new_chat_knows(tmp_path):
    """The stored quickstart shows consolidations, the restart, and the memory in a new chat."""
    text = "\n".join(outputs(nbformat.read(NOTEBOOKS[0], as_version=4)))
    assert "-> 8 messages" in text
    assert "16 messages, 12 of them in memory" in text
    assert text.count("allergic to nuts") >= 3
