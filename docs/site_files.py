"""Has the site show what lies elsewhere: changelog, results, decisions, the command's options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from mkdocs.structure.files import File

from langchain_nanomem.cli import app

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

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


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the options where the page of the command has a mark; give wide tables their room."""
    del config, files
    if page.file.src_uri.startswith("results/"):
        page.meta["hide"] = ["toc"]
    return markdown.replace("<!-- options -->", "\n\n".join(_options(typer.main.get_command(app))))


def _options(command: Any, name: str = "nanomem") -> Iterator[str]:
    """A table of the options of each command below this one."""
    if hasattr(command, "commands"):
        for below, one in command.commands.items():
            if not one.hidden:
                yield from _options(one, f"{name} {below}")
        return
    yield f"### {name}\n\n{command.get_short_help_str(200)}\n"
    rows = [_row(parameter) for parameter in command.params]
    yield "\n".join(["| option | what it is |", "|---|---|", *rows])


def _row(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    name = ", ".join(parameter.opts) if is_option else (parameter.metavar or parameter.name).upper()
    text = (parameter.help or "").replace("|", "\\|")
    return f"| `{name}` | {text} |"
