"""The examples in Markdown pages: found, and run as they stand."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import tomllib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from openai_server import Reply, save_memory

from langchain_nanomem.cli import app

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
_FENCED = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_PIPES = {"|", "&&", ";", "||"}


@dataclass(frozen=True)
class Example:
    """A block of code in a page."""

    title: str
    """The heading above it."""
    language: str
    code: str


def examples(page: str) -> list[Example]:
    """The blocks of code of a page, in their order."""
    return [
        Example(_heading(page[: found.start()]), found[2], _without_margin(found[3], found[1]))
        for found in _FENCED.finditer(page)
    ]


def _heading(above: str) -> str:
    outside = _FENCED.sub("", above)
    return ["", *re.findall(r"^##? (.*)$", outside, re.MULTILINE)][-1]


def _without_margin(code: str, margin: str) -> str:
    return re.sub(f"^{margin}", "", code, flags=re.MULTILINE)


def run(code: str, names: dict[str, Any], place: str) -> str:
    """Run Python code with these names, and give what it prints."""
    printed = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
        warnings.filterwarnings("ignore", ".*deprecated", category=DeprecationWarning)
        exec(compile(code, place, "exec"), names)
    return printed.getvalue()


def answer(body: dict[str, Any]) -> Reply:
    """What a model might: it saves a memory where it has to, and knows what its prompt says."""
    offered = [tool["function"]["name"] for tool in body.get("tools", [])]
    if "save_memory" in offered:
        return save_memory("Ada said that she sails in Kiel on Sundays.", "- Ada sails in Kiel.")
    system = [m["content"] for m in body["messages"] if m["role"] in {"system", "developer"}]
    return Reply("You sail in Kiel." if "Ada sails in Kiel" in str(system) else "Hello, Ada.")


def commands(script: str) -> Iterator[list[str]]:
    """The commands of a shell script, each in its words."""
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word not in _PIPES:
                words.append(word)
            elif words:
                yield words
                words = []


def check_command(words: list[str]) -> None:
    """See that a command is one that there is, with the options that it has."""
    name, *arguments = words
    check = {"nanomem": _check_nanomem, "pip": _check_pip, "make": _check_make}.get(name)
    if check is not None:
        check(arguments)
    else:
        assert name in {"export", "grep", "cat", "jq", "less", "ls", "python", "psql", "crontab"}


def _check_nanomem(arguments: list[str]) -> None:
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        if arguments[0].startswith("-"):
            assert arguments[0] in {name for one in command.params for name in one.opts}
            return
        assert arguments[0] in command.commands, arguments
        name, *arguments = arguments
        command = command.commands[name]
    with command.make_context("nanomem", arguments) as context:
        assert context.command is command


def _check_pip(arguments: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extras in re.findall(r"langchain-nanomem\[(.*?)\]", " ".join(arguments)):
        assert {*extras.split(",")} <= {*project["optional-dependencies"]}


def _check_make(arguments: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = [word for word in arguments if "=" not in word]
    assert all(re.search(f"^{target}:", makefile, re.MULTILINE) for target in targets)
