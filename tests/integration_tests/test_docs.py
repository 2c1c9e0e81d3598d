"""The documentation: its code runs as it stands, and it has every public name."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import examples
import psycopg
import pytest

import langchain_nanomem

DOCS = examples.ROOT / "docs"
PAGES = {
    str(path.relative_to(DOCS)): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
    if path.parent.name != "decisions"
}
WITH_CODE = [name for name, page in PAGES.items() if examples.examples(page)]
MOST_COLUMNS = 88
LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=[\"']?(https?:[^\"' >]+)")


@pytest.mark.usefixtures("openai_answers", "another_checkpointer")
@pytest.mark.parametrize("name", WITH_CODE)
def test_the_examples_of_a_page_run(name, make_database):
    """Its code runs in one go and prints what it says; its commands are there."""
    database = make_database() if "DATABASE_URL" in PAGES[name] else None
    names: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for example in examples.examples(PAGES[name]):
        if example.language == "python":
            printed = examples.run(example.code, names, f"{name}: {example.title}")
        elif example.language == "text":
            assert example.code == printed, f"{name}: {example.title}"
        elif example.language == "sql":
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute(example.code)
        elif example.language == "ini":
            assert configparser.ConfigParser().read_string(example.code) is None
        elif example.language:  # without one it is a picture made of letters
            assert example.language == "sh", f"{name}: {example.title}: no test runs this"
            for words in examples.commands(example.code):
                examples.check_command(words)


def test_the_code_of_a_page_is_seen_whole():
    """No line is so long that a reader has to scroll sideways."""
    codes = [one.code for page in PAGES.values() for one in examples.examples(page)]
    lines = [line for code in codes for line in code.splitlines()]
    assert [line for line in lines if len(line) > MOST_COLUMNS] == []


def test_every_public_name_is_in_the_reference():
    """Each once, and nothing else."""
    reference = "".join(page for name, page in PAGES.items() if name.startswith("reference/"))
    told = re.findall(r"^::: langchain_nanomem\.(\w+)$", reference, re.MULTILINE)
    assert sorted(told) == langchain_nanomem.__all__


def test_the_site_is_built_without_a_warning_and_asks_no_other_host(tmp_path):
    """`make docs`: strict; a page loads nothing from elsewhere; the changelog is in it."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir"]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [*command, tmp_path],
        cwd=examples.ROOT,
        env=quiet,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = [path.read_text(encoding="utf-8") for path in Path(tmp_path).rglob("*.html")]
    assert [url for page in pages for url in LOADED.findall(page)] == []
    assert "Unreleased" in (tmp_path / "changelog.html").read_text(encoding="utf-8")
