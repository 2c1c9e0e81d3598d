"""Has the site show what lies elsewhere: changelog, benchmarks' results, a list of decisions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
_PARTS = ("-note", "-ideas")
"""What other results already hold."""


def shown() -> Iterator[tuple[str, Path]]:
    """The name that each of them has among the pages, and where it is."""
    yield "changelog.md", ROOT / "CHANGELOG.md"
    for path in sorted(RESULTS.iterdir()):
        if path.suffix in {".md", ".png"} and not path.stem.endswith(_PARTS):
            yield f"results/{path.name}", path


def decisions() -> str:
    """A page that lists the decisions."""
    pages = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    lines = [
        f"{number}. [{path.read_text(encoding='utf-8').splitlines()[0].lstrip('# ')}]({path.name})"
        for number, path in enumerate(pages, 1)
    ]
    head = "# Decisions\n\nWhat is hard to undo, why it is so, and what was rejected.\n\n"
    return head + "\n".join(lines) + "\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add them to the files of the site."""
    for name, path in shown():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    files.append(File.generated(config, "decisions/index.md", content=decisions()))
    return files
