"""The ``nanomem`` command."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

try:
    import typer
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
except ImportError:  # pragma: no cover - depends on what is installed
    sys.exit('nanomem needs its extra: pip install "langchain-nanomem[cli]"')

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.demo.replay import REPLAY, Settings
from langchain_nanomem.demo.show import DemoError, show_demo
from langchain_nanomem.errors import NanomemError
from langchain_nanomem.file_journal import FileJournal
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.migration import import_checkpoints
from langchain_nanomem.open_saver import open_saver

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(
    help="Memory for LangChain and LangGraph agents, in plain files.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
_Workspace = Annotated[
    Path,
    typer.Option("--workspace", envvar="NANOMEM_WORKSPACE", help="The directory of the sessions."),
]


@app.callback()
def _root() -> None:
    """Memory for LangChain and LangGraph agents, in plain files."""


@app.command()
def demo(
    model: Annotated[
        str, typer.Option(help="openai:NAME answers and consolidates; needs OPENAI_API_KEY.")
    ] = REPLAY,
    data: Annotated[
        Path | None, typer.Option(help="A LoCoMo file to replay in place of the demo's own.")
    ] = None,
    number: Annotated[int, typer.Option(help="Which conversation of that file, from 0.")] = 0,
    keep: Annotated[
        Path | None, typer.Option(help="A directory for the files, which stay to be looked at.")
    ] = None,
    window: Annotated[int, typer.Option(help="The model's window in tokens.")] = 4_000,
) -> None:
    """Play a conversation of several days, each in a new process, and show what is remembered."""
    source = str(data) if data else None
    with tempfile.TemporaryDirectory(prefix="nanomem-demo-") as scratch:
        settings = Settings(str(keep or scratch), window, model, source, number)
        _run(lambda: show_demo(settings, Console()))


@app.command()
def doctor(
    *,
    workspace: _Workspace = Path(".nanomem"),
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Keep the good records; put the damaged file aside."),
    ] = False,
) -> None:
    """Look for damaged session files; with --repair, mend them and say what was done.

    Exit code 1 means that damage was found and not mended.
    """
    damaged = False

    def check() -> None:
        nonlocal damaged
        journal = FileJournal(workspace)
        infos = journal.list()
        for info in infos:
            if journal.is_nameless(info):
                typer.echo(f"{info.place}: nobody can tell which session it is")
                damaged = True
            else:
                damaged |= _check(journal, info.key, repair=repair)
        typer.echo(f"{len(infos)} sessions in {workspace} looked at.")

    _run(check)
    if damaged:
        raise typer.Exit(1)


def _check(journal: FileJournal, key: str, *, repair: bool) -> bool:
    """Look at one session; True if it is damaged and was left so."""
    damage = journal.read_damaged(key)
    if not damage.bad:
        return False
    lines = ", ".join(str(number) for number, _ in damage.bad[:10])
    typer.echo(f"{key}: {len(damage.bad)} lines that can't be read (line {lines})")
    if not repair:
        return True
    aside = journal.repair(key)
    typer.echo(f"  kept {len(damage.good)} records; the damaged file is {aside}")
    return False


@app.command("import-checkpoints")
def import_threads(
    source: Annotated[
        str,
        typer.Argument(help="A file of SqliteSaver, or the URL postgresql://... of PostgresSaver."),
    ],
    *,
    workspace: _Workspace = Path(".nanomem"),
    thread: Annotated[
        list[str] | None, typer.Option("--thread", help="Only this thread; may be repeated.")
    ] = None,
) -> None:
    """Copy the threads of another checkpointer, and compare every checkpoint.

    SOURCE is only read. When it was stopped, the same command goes on. Where the state of the
    graph has classes of your own, run it where they can be imported (PYTHONPATH).
    """
    _run(lambda: _import(source, workspace, thread or None))


def _import(source: str, workspace: Path, threads: list[str] | None) -> None:
    with open_saver(source) as saver, _progress() as shown:
        bar = shown.add_task("", total=None)
        done = import_checkpoints(
            saver,
            NanomemSaver(SessionManager(workspace)),
            thread_ids=threads,
            progress=lambda thread_id, number, of: shown.update(
                bar, description=thread_id, completed=number, total=of
            ),
        )
    if not done.threads:
        raise ValueError("nothing to import: there are no threads in it")
    typer.echo(
        f"{done.threads} threads are in {workspace}, and every checkpoint is the same: "
        f"{done.checkpoints} written, {done.unchanged} were there."
    )


def _progress() -> Progress:
    """A bar for one thread after the other, on a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _run(action: Callable[[], None]) -> None:
    """Run, and end with one line instead of a traceback where a person can mend it."""
    try:
        action()
    except (DemoError, NanomemError, OSError, ValueError) as error:
        typer.echo(f"nanomem: {error}", err=True)
        raise typer.Exit(1) from error


def main() -> None:
    """The entry point of the command."""
    app()


if __name__ == "__main__":
    main()
