"""``nanomem db``: the tables in a PostgreSQL database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_nanomem.terminal import run

if TYPE_CHECKING:
    from langchain_nanomem.postgres_journal import PostgresJournal

database = typer.Typer(
    help="The tables in a PostgreSQL database.", no_args_is_help=True, rich_markup_mode=None
)
_Url = Annotated[str, typer.Argument(help="The URL postgresql://... of the database.")]
Schema = Annotated[
    str | None, typer.Option("--schema", help="The schema of the database; nanomem by default.")
]
"""The option of whatever may be given a database."""


@database.command("upgrade")
def upgrade(url: _Url, *, schema: Schema = None) -> None:
    """Make the tables, or bring them up to date; also while programs use them."""
    run(lambda: _upgrade(url, schema))


def _upgrade(url: str, schema: str | None) -> None:
    with _database(url, schema) as journal:
        before = journal.version()
        journal.prepare()
        after = journal.version()
    change = f"it was {before or 'not there'}" if after != before else "nothing was to be done"
    typer.echo(f"{journal.place}: version {after}; {change}.")


@database.command("status")
def status(url: _Url, *, schema: Schema = None) -> None:
    """Say of which version the tables are, and what is in them.

    Exit code 1 means that they are not there, or not up to date.
    """
    run(lambda: _status(url, schema))


def _status(url: str, schema: str | None) -> None:
    with _database(url, schema) as journal:
        if not journal.is_there():
            raise FileNotFoundError(f"{journal.place}: there are no tables")
        infos = journal.list()
        size = sum(info.size_bytes for info in infos)
        typer.echo(
            f"{journal.place}: version {journal.version()}, which is the newest; "
            f"{len(infos)} sessions, {size:,} bytes"
            f"{'; isolated by scope' if journal.is_isolated() else ''}."
        )


@database.command("isolate")
def isolate(
    url: _Url,
    *,
    schema: Schema = None,
    off: Annotated[bool, typer.Option("--off", help="Turn it off again.")] = False,
) -> None:
    """Have the database keep the scopes apart, with row-level security.

    Programs then need isolation="scope"; stop those without it before. It takes the owner of the
    tables.
    """
    run(lambda: _isolate(url, schema, is_on=not off))


def _isolate(url: str, schema: str | None, *, is_on: bool) -> None:
    with _database(url, schema) as journal:
        journal.isolate(is_on=is_on)
        state = "isolated by scope" if is_on else "not isolated"
        typer.echo(f"{journal.place}: the tables are {state}.")


def _database(url: str, schema: str | None) -> PostgresJournal:
    from langchain_nanomem.postgres_journal import PostgresJournal  # noqa: PLC0415 - an extra

    options: dict[str, Any] = {} if schema is None else {"schema": schema}
    return PostgresJournal(url, isolation="all", **options)
