"""The ``nanomem`` command."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

try:
    import typer
    from rich.console import Console
except ImportError:  # pragma: no cover - depends on what is installed
    sys.exit('nanomem needs its extra: pip install "langchain-nanomem[cli]"')

from langchain_nanomem.check_command import doctor
from langchain_nanomem.database_commands import database
from langchain_nanomem.demo.replay import REPLAY, Settings
from langchain_nanomem.demo.show import show_demo
from langchain_nanomem.import_commands import copy, import_source
from langchain_nanomem.memory_commands import memory
from langchain_nanomem.search_command import search
from langchain_nanomem.session_commands import sessions
from langchain_nanomem.terminal import Discreet, run
from langchain_nanomem.terminal_options import examples
from langchain_nanomem.workspace_commands import erase, prune, stats

app = typer.Typer(
    cls=Discreet,
    help="Memory for LangChain and LangGraph agents, in plain files.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_show_locals=False,  # a URL may be among them
)
app.add_typer(sessions, name="sessions")
app.add_typer(memory, name="memory")
app.add_typer(database, name="db")


@app.callback()
def _root() -> None:
    """Memory for LangChain and LangGraph agents, in plain files."""


@app.command()
@examples("nanomem demo", "nanomem demo --keep ./demo && nanomem stats --workspace ./demo")
def demo(
    model: Annotated[
        str, typer.Option(help="openai:NAME answers and consolidates; needs OPENAI_API_KEY.")
    ] = REPLAY,
    data: Annotated[
        Path | None, typer.Option(help="A LoCoMo file to replay in place of the demo's own.")
    ] = None,
    number: Annotated[int, typer.Option(help="Which conversation of that file, from 0.")] = 0,
    keep: Annotated[
        str | None, typer.Option(help="A directory for the files, which stay to be looked at.")
    ] = None,
    window: Annotated[int, typer.Option(help="The model's window in tokens.")] = 4_000,
) -> None:
    """Play a conversation of days, and show what is remembered.

    Each day is a new process.
    """
    if keep and "://" in keep:
        raise typer.BadParameter("the demonstration shows files: give --keep a directory")
    source = str(data) if data else None
    with tempfile.TemporaryDirectory(prefix="nanomem-demo-") as scratch:
        settings = Settings(keep or scratch, window, model, source, number)
        run(lambda: show_demo(settings, Console()))


app.command()(doctor)
app.command()(search)
app.command()(stats)
app.command()(prune)
app.command()(erase)
app.command("import")(import_source)
app.command("import-checkpoints", hidden=True)(import_source)  # its earlier name
app.command()(copy)


def main() -> None:
    """The entry point of the command."""
    app()


if __name__ == "__main__":
    main()
