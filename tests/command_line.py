"""The command in this process, on a workspace of files or of a database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from langchain_nanomem.cli import app

if TYPE_CHECKING:
    from click.testing import Result

    from langchain_nanomem.journal import Journal


class CommandLine:
    """Runs `nanomem` with the options that name a workspace."""

    def __init__(self, workspace: Path | Journal, url: str | None) -> None:
        is_files = isinstance(workspace, Path)
        named = [str(workspace)] if is_files else [url, "--schema", workspace.schema.name]
        self._where = ["--workspace", *named]

    def __call__(self, *arguments: Any, answer: str | None = None) -> Result:
        """What it prints, and how it ends."""
        given = [*map(str, arguments), *self._where]
        return CliRunner().invoke(app, given, input=answer, env={"COLUMNS": "100"})

    def json(self, *arguments: Any) -> Any:
        """What it prints as JSON, and that it went well."""
        done = self(*arguments, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)
