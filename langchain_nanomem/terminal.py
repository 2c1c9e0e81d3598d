"""What the commands share: places that are opened, progress that is shown, errors that are told."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from typer.core import TyperGroup
from typing_extensions import override

from langchain_nanomem.connection_urls import is_url
from langchain_nanomem.demo.show import DemoError
from langchain_nanomem.errors import NanomemError
from langchain_nanomem.workspaces import open_workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_nanomem.workspaces import Workspace


class Discreet(TyperGroup):
    """Commands that tell of wrong usage without the URLs that were given."""

    @override
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:  # where click's own are to be found differs between versions
            if isinstance(message := getattr(error, "message", None), str):
                error.message = _URL.sub("://***", message)  # type: ignore[attr-defined] # they have it
            raise


_URL = re.compile(r"://[^\s']*")


@contextlib.contextmanager
def opened(source: str, schema: str | None) -> Iterator[Workspace]:
    """The workspace of a directory or a URL, all scopes; what was opened for it is closed."""
    workspace = open_workspace(source, schema, "all" if is_url(source) else None)
    try:
        yield workspace
    finally:
        workspace.close()


@contextlib.contextmanager
def opened_to_read(source: str, schema: str | None) -> Iterator[Workspace]:
    """The same, of a workspace that is there.

    Raises:
        FileNotFoundError: It is not.
    """
    with opened(source, schema) as workspace:
        check_is_there(workspace)
        yield workspace


def check_is_there(workspace: Workspace) -> None:
    """See that there is something to be read, before it would be made.

    Raises:
        FileNotFoundError: There is not.
    """
    if not workspace.journal.is_there():
        raise FileNotFoundError(
            f"{workspace.place}: there is no workspace; say where with --workspace DIR_OR_URL"
        )


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """What shows, on a terminal, the name of what is done, how much is, and of how much."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bars:
        bar = bars.add_task("", total=None)
        yield lambda name, number, of: bars.update(
            bar, description=name, completed=number, total=of
        )


def run(action: Callable[[], None]) -> None:
    """Run, and end with one line instead of a traceback where a person can mend it."""
    try:
        action()
    except (DemoError, NanomemError, OSError, ValueError, ImportError) as error:
        typer.echo(f"nanomem: {error}", err=True)
        raise typer.Exit(1) from error
