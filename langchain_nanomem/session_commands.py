"""``nanomem sessions``: what was said."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_nanomem.erasure import scope_of
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.printing import columns, emit, harmless, moment, one_line, size
from langchain_nanomem.session_view import calls_of, said_at, view_session, words_of
from langchain_nanomem.terminal import opened_to_read, progress, run
from langchain_nanomem.terminal_options import (
    WORKSPACE,
    AsJson,
    Place,
    Schema,
    ScopeParts,
    User,
    Yes,
    confirm,
    examples,
    scope_given,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_nanomem.journal import Record
    from langchain_nanomem.session_view import SessionView
    from langchain_nanomem.workspaces import Workspace

sessions = typer.Typer(
    help="What was said: list, show, export and delete sessions.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_Key = Annotated[str, typer.Argument(metavar="KEY", help="The session's key: a thread's id.")]
_Keys = Annotated[list[str], typer.Argument(metavar="KEY...", help="The sessions' keys.")]


class Form(StrEnum):
    """How a session is written."""

    JSONL = "jsonl"
    MARKDOWN = "markdown"


_COLORS = {"user": typer.colors.CYAN, "assistant": typer.colors.GREEN}
_SHOWN_CHARACTERS = 2_000
_CALL_CHARACTERS = 200
_MOST_NAMED = 5


@sessions.command("list")
@examples(
    "nanomem sessions list --workspace ./workspace",
    "nanomem sessions list --user 42 --limit 20",
    "nanomem sessions list --json | jq -r '.[].key'",
)
def list_sessions(  # noqa: PLR0913 - its options
    *,
    workspace: Place = WORKSPACE,
    schema: Schema = None,
    user: User = None,
    scope: ScopeParts = None,
    archived: Annotated[bool, typer.Option("--archived", help="Those put away instead.")] = False,
    limit: Annotated[int, typer.Option(help="So many at most; 0: all.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """List the sessions, the one last written first."""
    whose = scope_given(user, scope)

    def act() -> None:
        with opened_to_read(workspace, schema) as place:
            manager = SessionManager(place.journal)
            found = _archived(manager, whose) if archived else _present(manager, whose)
            rows = found[: limit or None]
            if as_json:
                emit(rows)
            else:
                typer.echo(_table(rows) if rows else f"There are no sessions in {place.place}.")
            if left := len(found) - len(rows):
                typer.echo(f"and {left:,} more", err=True)

    run(act)


def _present(manager: SessionManager, whose: tuple[str, ...] | None) -> list[dict[str, Any]]:
    rows = manager.list_sessions()
    if whose is not None:
        rows = [row for row in rows if scope_of(manager, row["key"]) == whose]
    return [row | {"path": str(row["path"])} for row in rows]


def _archived(manager: SessionManager, whose: tuple[str, ...] | None) -> list[dict[str, Any]]:
    return [
        {
            "key": one.key,
            "archived_at": one.archived_at,
            "updated_at": one.updated_at,
            "size_bytes": one.size_bytes,
            "path": str(one.path),
        }
        for one in manager.list_archived()
        if whose is None or one.scope == whose
    ]


def _table(rows: list[dict[str, Any]]) -> str:
    head = ("LAST WRITTEN (UTC)", "SIZE", "KEY")
    cells = (
        (moment(row["updated_at"]), size(row["size_bytes"]), harmless(row["key"])) for row in rows
    )
    return columns([head, *cells], numbers=frozenset({1}))


@sessions.command("show")
@examples(
    "nanomem sessions show cli:ada --last 20",
    "nanomem sessions show cli:ada --json | jq '.messages | length'",
)
def show(  # noqa: PLR0913 - its options
    key: _Key,
    *,
    workspace: Place = WORKSPACE,
    schema: Schema = None,
    last: Annotated[int, typer.Option(help="Only so many last messages; 0: all.", min=0)] = 0,
    full: Annotated[bool, typer.Option("--full", help="Long messages whole.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a session: what was said, and how far it is in memory."""

    def act() -> None:
        with opened_to_read(workspace, schema) as place:
            view = view_session(SessionManager(place.journal), key)
        first = max(len(view.messages) - last, 0) if last else 0
        if as_json:
            emit(view._asdict() | {"first": first, "messages": view.messages[first:]})
        else:
            _tell(view, first, None if full else _SHOWN_CHARACTERS)

    run(act)


def _tell(view: SessionView, first: int, most: int | None) -> None:
    typer.echo(_about(view))
    for number, record in enumerate(view.messages[first:], start=first):
        if number == view.consolidated and number > first:
            _tell_seam("what is above is in memory; what is below is live")
        _tell_message(number, record, most)
    if view.consolidated == len(view.messages) > first:
        _tell_seam("all of it is in memory")


def _about(view: SessionView) -> str:
    whose = " / ".join(view.scope) or "the workspace's"
    told = [
        ("session", view.key),
        ("memory", "none: it is off the record" if view.is_off_the_record else whose),
        ("created", moment(view.created_at)),
        ("last written", moment(view.updated_at)),
        ("messages", f"{len(view.messages):,}, {view.consolidated:,} of them in memory"),
        ("checkpoints", f"{view.checkpoints:,}"),
        ("kept", f"{view.place} ({size(view.size_bytes)})"),
    ]
    if view.archived_at:
        told.append(("archived", moment(view.archived_at)))
    return columns([(name, harmless(value)) for name, value in told])


def _tell_seam(what: str) -> None:
    typer.secho(f"\n── {what} ──", fg=typer.colors.YELLOW)


def _tell_message(number: int, record: Record, most: int | None) -> None:
    role = str(record.get("role"))
    who = harmless(str(record.get("name") or role))
    typer.secho(f"\n#{number} {moment(said_at(record))} {who}", fg=_COLORS.get(role), bold=True)
    if words := words_of(record):
        typer.echo(harmless(words, most))
    for name, arguments in calls_of(record):
        typer.secho(one_line(f"→ {name} {_as_text(arguments)}", _CALL_CHARACTERS), dim=True)


def _as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)


@sessions.command("export")
@examples(
    "nanomem sessions export cli:ada --output ada.jsonl",
    "nanomem sessions export cli:ada --format markdown | less",
)
def export(
    keys: _Keys,
    *,
    workspace: Place = WORKSPACE,
    schema: Schema = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A new file; the terminal by default.")
    ] = None,
    form: Annotated[
        Form, typer.Option("--format", help="One message a line as JSON, or a text for people.")
    ] = Form.JSONL,
) -> None:
    """Write sessions to a file, or to the terminal.

    A file that is there is not overwritten. A line of jsonl is a message as the session has it,
    with the session's key.
    """

    def act() -> None:
        with opened_to_read(workspace, schema) as place, progress() as shown:
            parts = _exported(place, keys, form, shown)
            if output is None:
                for part in parts:
                    typer.echo(part, nl=False)
            else:
                _write_new(output, list(parts))  # a session that is not there leaves no file
        if output is not None:
            typer.echo(f"{len(keys)} sessions written to {output}.", err=True)

    run(act)


def _write_new(path: Path, parts: list[str]) -> None:
    with path.open("x", encoding="utf-8") as file:
        file.writelines(parts)


def _exported(
    place: Workspace, keys: list[str], form: Form, shown: Callable[[str, int, int], None]
) -> Iterator[str]:
    manager = SessionManager(place.journal)
    for number, key in enumerate(keys):
        shown(key, number, len(keys))
        view = view_session(manager, key)
        if form is Form.MARKDOWN:
            yield "\n".join(_as_markdown(view)) + "\n"
        else:
            lines = (
                json.dumps({"session": key, **record}, default=str) for record in view.messages
            )
            yield "".join(f"{line}\n" for line in lines)


def _as_markdown(view: SessionView) -> Iterator[str]:
    yield f"# {harmless(view.key)}\n"
    for number, record in enumerate(view.messages):
        if number == view.consolidated and number:
            yield "---\n"
        who = harmless(str(record.get("name") or record.get("role")))
        yield f"**{who}** {moment(said_at(record))}\n"
        if words := words_of(record):
            yield f"{harmless(words)}\n"
        for name, arguments in calls_of(record):
            yield f"`→ {harmless(name)} {harmless(_as_text(arguments))}`\n"


@sessions.command("delete")
@examples(
    "nanomem sessions delete cli:ada",
    "nanomem sessions delete cli:ada cli:bob --yes",
)
def delete(
    keys: _Keys,
    *,
    workspace: Place = WORKSPACE,
    schema: Schema = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete sessions; their facts and log stay.

    Archived ones go too, and checkpoints. To remove what is remembered of a session as well, use
    `nanomem erase --session KEY`. Exit code 1 means that there was none of a key.
    """

    def act() -> None:
        with opened_to_read(workspace, schema) as place:
            named = ", ".join(map(harmless, keys[:_MOST_NAMED]))
            more = " …" if len(keys) > _MOST_NAMED else ""
            confirm(f"Delete of {place.place} for good: {named}{more}?", yes=yes)
            manager = SessionManager(place.journal)
            done = {key: manager.delete(key) for key in keys}
        _tell_deleted(done, as_json=as_json)

    run(act)


def _tell_deleted(done: dict[str, bool], *, as_json: bool) -> None:
    if as_json:
        emit([{"key": key, "deleted": was_there} for key, was_there in done.items()])
    else:
        for key, was_there in done.items():
            typer.echo(f"{harmless(key)}: {'deleted' if was_there else 'there was none'}")
    if not all(done.values()):
        raise typer.Exit(1)
