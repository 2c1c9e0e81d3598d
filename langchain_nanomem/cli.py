"""The ``nanomem`` command."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

try:
    import typer
    from rich.console import Console
except ImportError:  # pragma: no cover - depends on what is installed
    sys.exit('nanomem needs its extra: pip install "langchain-nanomem[cli]"')

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.database_commands import Schema, database
from langchain_nanomem.demo.replay import REPLAY, Settings
from langchain_nanomem.demo.show import show_demo
from langchain_nanomem.errors import CorruptRecordError
from langchain_nanomem.file_journal import FileJournal
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.migration import import_checkpoints
from langchain_nanomem.open_saver import open_saver
from langchain_nanomem.terminal import Discreet, check_is_there, opened, progress, run
from langchain_nanomem.workspace_copy import copy_workspace

if TYPE_CHECKING:
    from langchain_nanomem.workspaces import Workspace

app = typer.Typer(
    cls=Discreet,
    help="Memory for LangChain and LangGraph agents, in plain files.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_show_locals=False,  # a URL may be among them
)
app.add_typer(database, name="db")
_Workspace = Annotated[
    str,
    typer.Option(
        "--workspace",
        envvar="NANOMEM_WORKSPACE",
        help="The directory of the sessions, or the URL postgresql://... of a database.",
    ),
]
_Place = Annotated[str, typer.Argument(help="A directory, or a URL postgresql://...")]


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
        str | None, typer.Option(help="A directory for the files, which stay to be looked at.")
    ] = None,
    window: Annotated[int, typer.Option(help="The model's window in tokens.")] = 4_000,
) -> None:
    """Play a conversation of several days, each in a new process, and show what is remembered."""
    if keep and "://" in keep:
        raise typer.BadParameter("the demonstration shows files: give --keep a directory")
    source = str(data) if data else None
    with tempfile.TemporaryDirectory(prefix="nanomem-demo-") as scratch:
        settings = Settings(keep or scratch, window, model, source, number)
        run(lambda: show_demo(settings, Console()))


@app.command()
def doctor(
    *,
    workspace: _Workspace = ".nanomem",
    schema: Schema = None,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Keep the good records; put the damaged file aside."),
    ] = False,
) -> None:
    """Look for damaged sessions; with --repair, mend their files and say what was done.

    Exit code 1 means that damage was found and not mended.
    """
    damaged = False

    def check() -> None:
        nonlocal damaged
        with opened(workspace, schema) as place:
            journal = place.journal
            if isinstance(journal, FileJournal):
                damaged = _check_files(journal, repair=repair)
            else:
                damaged = _check_database(place, repair=repair)
            typer.echo(f"{len(journal.list())} sessions in {place.place} looked at.")

    run(check)
    if damaged:
        raise typer.Exit(1)


def _check_files(journal: FileJournal, *, repair: bool) -> bool:
    """Look at all session files; True if one is damaged and was left so."""
    damaged = False
    for info in journal.list():
        if journal.is_nameless(info):
            typer.echo(f"{info.place}: nobody can tell which session it is")
            damaged = True
        else:
            damaged |= _check(journal, info.key, repair=repair)
    return damaged


def _check_database(workspace: Workspace, *, repair: bool) -> bool:
    """Read all sessions of a database; True if one is damaged."""
    if repair:
        raise ValueError("--repair is for files; a database is restored from its own backup")
    damaged = False
    check_is_there(workspace)
    for info in workspace.journal.list():
        try:
            workspace.journal.read(info.key)
        except CorruptRecordError as error:
            typer.echo(f"{info.key}: {error}")
            damaged = True
    return damaged


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
    workspace: _Workspace = ".nanomem",
    schema: Schema = None,
    thread: Annotated[
        list[str] | None, typer.Option("--thread", help="Only this thread; may be repeated.")
    ] = None,
) -> None:
    """Copy the threads of another checkpointer, and compare every checkpoint.

    SOURCE is only read. When it was stopped, the same command goes on. Where the state of the
    graph has classes of your own, run it where they can be imported (PYTHONPATH).
    """
    run(lambda: _import(source, workspace, schema, thread or None))


def _import(source: str, workspace: str, schema: str | None, threads: list[str] | None) -> None:
    with open_saver(source) as saver, opened(workspace, schema) as place, progress() as shown:
        target = NanomemSaver(SessionManager(place.journal))
        done = import_checkpoints(saver, target, thread_ids=threads, progress=shown)
    if not done.threads:
        raise ValueError("nothing to import: there are no threads in it")
    typer.echo(
        f"{done.threads} threads are in {place.place}, and every checkpoint is the same: "
        f"{done.checkpoints} written, {done.unchanged} were there."
    )


@app.command("copy")
def copy(
    source: _Place,
    target: _Place,
    *,
    source_schema: Annotated[
        str | None, typer.Option(help="The schema of SOURCE, if it is a database.")
    ] = None,
    target_schema: Annotated[
        str | None, typer.Option(help="The schema of TARGET, if it is a database.")
    ] = None,
) -> None:
    """Copy all sessions and memories between files and PostgreSQL, and compare every record.

    SOURCE is only read, and nothing in TARGET is overwritten. When it was stopped, or SOURCE has
    grown, the same command goes on.
    """
    run(lambda: _copy((source, source_schema), (target, target_schema)))


def _copy(source: tuple[str, str | None], target: tuple[str, str | None]) -> None:
    with opened(*source) as origin, opened(*target) as place, progress() as shown:
        done = copy_workspace(origin.journal, place.journal, progress=shown)
    if not done.sessions + done.memories + done.deletions:
        raise ValueError("nothing to copy: there are no sessions and no memory in it")
    typer.echo(
        f"{done.sessions} sessions are in {place.place}, and every record is the same: "
        f"{done.records} written, {done.unchanged} were there.\n"
        f"{done.memories} memories are, with {done.versions} earlier versions and {done.entries} "
        f"log entries; {done.deletions} deletions are noted."
    )
    if done.archived and place.journal.archive is None:
        typer.echo(f"{done.archived} sessions were archived; there is no archive in a database.")


def main() -> None:
    """The entry point of the command."""
    app()


if __name__ == "__main__":
    main()
