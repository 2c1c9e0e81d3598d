"""Run notebooks and store their outputs: ``python notebooks/run.py [FILE ...]``, all by default.

What differs from run to run is not stored: times of execution, the interpreter's version, the
text beside an output that is shown as HTML or as a picture.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
SHOWN = ("text/html", "image/png")


def run(path: Path) -> None:
    """Execute a notebook and write it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    )
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.outputs = joined([plain(output) for output in cell.outputs])
    nbformat.validate(notebook)
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


def plain(output: Any) -> Any:
    """An output without what differs from run to run."""
    shown = output.get("data", {})
    if any(kind in shown for kind in SHOWN):
        shown.pop("text/plain", None)
    output.pop("transient", None)
    return output


def joined(outputs: list[Any]) -> list[Any]:
    """Outputs in which what was printed in a row is one, however the kernel sent it."""
    kept: list[Any] = []
    for output in outputs:
        name = output.get("name")
        if name and kept and kept[-1].get("name") == name:
            kept[-1]["text"] += output["text"]
        else:
            kept.append(output)
    return kept


def main(files: list[str]) -> None:
    """Run those notebooks; all where none is named."""
    for path in map(Path, files or sorted(HERE.glob("*.ipynb"))):
        print(path.name, flush=True)  # noqa: T201 - it is a script
        run(path)


if __name__ == "__main__":
    main(sys.argv[1:])
