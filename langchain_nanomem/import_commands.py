"""``nanomem import`` and ``nanomem copy``: what others, or other places, have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.connection_urls import is_url
from langchain_nanomem.history_import import import_histories, is_history
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.migration import import_checkpoints
from langchain_nanomem.open_saver import open_saver
from langchain_nanomem.printing import emit
from langchain_nanomem.terminal import opened, progress, run
from langchain_nanomem.terminal_options import WORKSPACE, AsJson, Place, Schema, examples
from langchain_nanomem.workspace_copy import Copied, copy_workspace

if TYPE_CHECKING:
    from langchain_nanomem.workspaces import Workspace

_Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A file of SqliteSaver; the URL postgresql://... of PostgresSaver; a directory of "
        "nanobot; a file, or a directory of files, of LangChain's FileChatMessageHistory.",
    ),
]
_Threads = Annotated[
    list[str] | None,
    typer.Option("--thread", help="Only this thread of a checkpointer; may be repeated."),
]
_Place = Annotated[str, typer.Argument(help="A directory, or a URL postgresql://...")]


@examples(
    "nanomem import checkpoints.sqlite --workspace ./workspace",
    "nanomem import ~/.nanobot/workspace",
    "nanomem import ./chat_histories",
)
def import_source(
    source: _Source,
    *,
    workspace: Place = WORKSPACE,
    schema: Schema = None,
    thread: _Threads = None,
    as_json: AsJson = False,
) -> None:
    """Copy what other checkpointers and histories have.

    SOURCE is only read. When it was stopped, the same command goes on. Where the state of a
    graph has classes of your own, run it where they can be imported (PYTHONPATH). A session of
    a chat history is named as its file.
    """
    where = (workspace, schema)

    def act() -> None:
        path = Path(source).expanduser()
        histories = [] if is_url(source) else _histories(path)
        if thread and (histories or _is_nanobot(path)):
            raise ValueError("--thread is for a checkpointer")
        if histories:
            _import_histories(histories, where, as_json=as_json)
        elif not is_url(source) and _is_nanobot(path):
            _copy((str(path), None), where, as_json=as_json)
        else:
            text = source if is_url(source) else str(path)
            _import_checkpoints(text, where, thread or None, as_json=as_json)

    run(act)


def _is_nanobot(path: Path) -> bool:
    return (path / "sessions").is_dir() or (path / "memory").is_dir()


def _histories(path: Path) -> list[Path]:
    """The history files at a path, if there are nothing but these."""
    if path.is_dir() and not _is_nanobot(path):
        found = sorted(path.glob("*.json"))
    else:
        found = [path] if path.suffix == ".json" and path.is_file() else []
    return found if all(map(is_history, found)) else []


def _import_histories(paths: list[Path], where: tuple[str, str | None], *, as_json: bool) -> None:
    with opened(*where) as place, progress() as shown:
        messages = import_histories(paths, SessionManager(place.journal), shown)
    if as_json:
        emit({"sessions": len(paths), "messages": messages, "place": place.place})
    else:
        typer.echo(f"{len(paths)} sessions with {messages} messages are in {place.place}.")


def _import_checkpoints(
    source: str, where: tuple[str, str | None], threads: list[str] | None, *, as_json: bool
) -> None:
    with open_saver(source) as saver, opened(*where) as place, progress() as shown:
        target = NanomemSaver(SessionManager(place.journal))
        done = import_checkpoints(saver, target, thread_ids=threads, progress=shown)
    if not done.threads:
        raise ValueError("nothing to import: there are no threads in it")
    if as_json:
        emit(done._asdict() | {"place": place.place})
    else:
        typer.echo(
            f"{done.threads} threads are in {place.place}, and every checkpoint is the same: "
            f"{done.checkpoints} written, {done.unchanged} were there."
        )


@examples(
    "nanomem copy ./workspace postgresql://ada@localhost/agents",
    "nanomem copy postgresql://ada@localhost/agents ./backup",
)
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
    as_json: AsJson = False,
) -> None:
    """Copy everything between files and PostgreSQL.

    That is all sessions, checkpoints and memories; every record is compared. SOURCE is only read,
    and nothing in TARGET is overwritten. When it was stopped, or SOURCE has grown, the same
    command goes on.
    """
    run(lambda: _copy((source, source_schema), (target, target_schema), as_json=as_json))


def _copy(source: tuple[str, str | None], target: tuple[str, str | None], *, as_json: bool) -> None:
    with opened(*source) as origin, opened(*target) as place, progress() as shown:
        done = copy_workspace(origin.journal, place.journal, progress=shown)
    if not done.sessions + done.memories + done.deletions:
        raise ValueError("nothing to copy: there are no sessions and no memory in it")
    if as_json:
        emit(done._asdict() | {"place": place.place})
    else:
        _tell_copied(done, place)


def _tell_copied(done: Copied, place: Workspace) -> None:
    typer.echo(
        f"{done.sessions} sessions are in {place.place}, and every record is the same: "
        f"{done.records} written, {done.unchanged} were there.\n"
        f"{done.memories} memories are, with {done.versions} earlier versions and {done.entries} "
        f"log entries; {done.deletions} deletions are noted."
    )
    if done.archived and place.journal.archive is None:
        typer.echo(f"{done.archived} sessions were archived; there is no archive in a database.")
