"""``nanomem db``: the tables in a PostgreSQL database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_nanomem.printing import emit
from langchain_nanomem.terminal import run
from langchain_nanomem.terminal_options import WORKSPACE, AsJson, Place, Schema, examples

if TYPE_CHECKING:
    from langchain_nanomem.postgres_journal import PostgresJournal

database = typer.Typer(
    help="The tables in a PostgreSQL database.", no_args_is_help=True, rich_markup_mode=None
)
_Url = Annotated[
    str | None, typer.Argument(help="The URL postgresql://... of the database.", show_default=False)
]


@database.command("upgrade")
@examples("nanomem db upgrade postgresql://ada@localhost/agents")
def upgrade(
    url: _Url = None,
    *,
    workspace: Place = WORKSPACE,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Make the tables, or bring them up to date; also while programs use them."""
    run(lambda: _upgrade(url or workspace, schema, as_json=as_json))


def _upgrade(url: str, schema: str | None, *, as_json: bool) -> None:
    with _database(url, schema) as journal:
        before = journal.version()
        journal.prepare()
        after = journal.version()
    if as_json:
        emit({"place": journal.place, "before": before, "version": after})
        return
    change = f"it was {before or 'not there'}" if after != before else "nothing was to be done"
    typer.echo(f"{journal.place}: version {after}; {change}.")


@database.command("status")
@examples("nanomem db status postgresql://ada@localhost/agents")
def status(
    url: _Url = None,
    *,
    workspace: Place = WORKSPACE,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Say of which version the tables are, and what is in them.

    Exit code 1 means that they are not there, or not up to date.
    """
    run(lambda: _status(url or workspace, schema, as_json=as_json))


def _status(url: str, schema: str | None, *, as_json: bool) -> None:
    with _database(url, schema) as journal:
        if not journal.is_there():
            raise FileNotFoundError(f"{journal.place}: there are no tables")
        infos = journal.list()
        size = sum(info.size_bytes for info in infos)
        version, is_isolated = journal.version(), journal.is_isolated()
    if as_json:
        found = {"version": version, "sessions": len(infos), "bytes": size}
        emit({"place": journal.place, **found, "isolated": is_isolated})
        return
    typer.echo(
        f"{journal.place}: version {version}, which is the newest; {len(infos)} sessions, "
        f"{size:,} bytes{'; isolated by scope' if is_isolated else ''}."
    )


@database.command("isolate")
@examples("nanomem db isolate postgresql://ada@localhost/agents")
def isolate(
    url: _Url = None,
    *,
    workspace: Place = WORKSPACE,
    schema: Schema = None,
    off: Annotated[bool, typer.Option("--off", help="Turn it off again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Have the database keep the scopes apart, with row-level security.

    Programs then need isolation="scope"; stop those without it before. It takes the owner of the
    tables.
    """
    run(lambda: _isolate(url or workspace, schema, is_on=not off, as_json=as_json))


def _isolate(url: str, schema: str | None, *, is_on: bool, as_json: bool) -> None:
    with _database(url, schema) as journal:
        journal.isolate(is_on=is_on)
    if as_json:
        emit({"place": journal.place, "isolated": is_on})
    else:
        state = "isolated by scope" if is_on else "not isolated"
        typer.echo(f"{journal.place}: the tables are {state}.")


def _database(url: str, schema: str | None) -> PostgresJournal:
    from langchain_nanomem.postgres_journal import PostgresJournal  # noqa: PLC0415 - an extra

    options: dict[str, Any] = {} if schema is None else {"schema": schema}
    return PostgresJournal(url, isolation="all", **options)
