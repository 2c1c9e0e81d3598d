"""What is released is what a user needs, and it works where nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import examples
import pytest

import langchain_nanomem

PACKAGE = examples.ROOT / "langchain_nanomem"
CODE = {".py", ".json", ".typed"}


def run(*command: Any, cwd: Path) -> str:
    """What a command prints that ends well, where no other packages or settings are at hand."""
    ours = ("PYTHON", "NANOMEM", "COV", "PYTEST", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment | {"COLUMNS": "80", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A directory with what `make build` makes."""
    directory = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", directory, examples.ROOT, cwd=directory)
    return directory


@pytest.fixture
def wheel(built) -> Path:
    (wheel,) = built.glob("*.whl")
    return wheel


def test_a_wheel_has_the_package_the_licence_and_nothing_else(wheel):
    """All modules, the mark of types and the demo's data; no tests, results or others' data."""
    ours = {
        path.relative_to(examples.ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.suffix in CODE
    }
    about = f"langchain_nanomem-{langchain_nanomem.__version__}.dist-info"
    parts = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    with zipfile.ZipFile(wheel) as archive:
        assert {*archive.namelist()} == ours | {f"{about}/{part}" for part in parts}
    assert {"langchain_nanomem/py.typed", "langchain_nanomem/demo/conversation.json"} <= ours


def test_the_wheel_runs_the_demo_in_a_clean_environment(wheel, tmp_path):
    """Installed from what pip brings, it plays all days, and `stats` tells of them."""
    run(sys.executable, "-m", "venv", "clean", cwd=tmp_path)
    programs = tmp_path / "clean" / ("Scripts" if os.name == "nt" else "bin")
    quiet = ("--quiet", "--disable-pip-version-check")
    run(programs / "pip", "install", *quiet, f"{wheel}[cli,offline]", cwd=tmp_path)
    where = "import langchain_nanomem as it; print(it.__version__, it.__file__)"
    version, place = run(programs / "python", "-c", where, cwd=tmp_path).split(maxsplit=1)
    assert version == langchain_nanomem.__version__
    assert Path(place.strip()).is_relative_to(tmp_path)
    shown = run(programs / "nanomem", "demo", "--keep", "kept", cwd=tmp_path)
    assert "From Lyon to Lisbon" in shown
    assert shown.count("consolidated") >= 7
    assert "sessions" in run(programs / "nanomem", "stats", "--workspace", "kept", cwd=tmp_path)
