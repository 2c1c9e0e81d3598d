"""``nanomem search``: where something was said or logged."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_nanomem.manager import SessionManager
from langchain_nanomem.memory import MemoryStore
from langchain_nanomem.printing import emit, harmless, moment
from langchain_nanomem.terminal import opened_to_read, run
from langchain_nanomem.terminal_options import (
    WORKSPACE,
    AsJson,
    Place,
    Schema,
    ScopeParts,
    User,
    examples,
    moment_given,
    scope_given,
)

if TYPE_CHECKING:
    from langchain_nanomem.search_index import SearchHit


class Kind(StrEnum):
    """What is searched."""

    SAID = "said"
    LOGGED = "logged"


_SHOWN_CHARACTERS = 600


@examples(
    'nanomem search "where did we sail"',
    "nanomem search invoice --since 2026-05-01 --session cli:ada --around 2",
    "nanomem search '\"net 30\"' --json | jq -r '.[].session_id'",
)
def search(  # noqa: PLR0913 - its options
    query: Annotated[str, typer.Argument(metavar="QUERY", help='Words, and "phrases in quotes".')],
    *,
    workspace: Place = WORKSPACE,
    schema: Schema = None,
    user: User = None,
    scope: ScopeParts = None,
    limit: Annotated[int, typer.Option(help="So many hits at most.", min=1)] = 10,
    session: Annotated[str | None, typer.Option(help="Only of this session.")] = None,
    since: Annotated[str | None, typer.Option(help="Only of this date or later.")] = None,
    until: Annotated[str | None, typer.Option(help="Only of before this date.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only with this tag; repeatable.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only what was said, or logged.")] = None,
    around: Annotated[int, typer.Option(help="So many messages around each hit.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Search what was said and logged, the best first.

    It is the search that the agent's tool has.
    """
    asked: dict[str, Any] = {
        "limit": limit,
        "session_id": session,
        "since": moment_given(since, "--since"),
        "until": moment_given(until, "--until"),
        "tags": tuple(tag or ()),
        "kinds": [kind.value] if kind else [one.value for one in Kind],
        "neighbours": around,
    }
    whose = scope_given(user, scope) or ()

    def act() -> None:
        with opened_to_read(workspace, schema) as place:
            store = MemoryStore(place.memory, scope=whose, sessions=SessionManager(place.journal))
            hits = store.search_history(query, **asked)
        if as_json:
            emit(hits)
        else:
            _tell(hits)

    run(act)


def _tell(hits: list[SearchHit]) -> None:
    if not hits:
        typer.echo("Nothing is found.", err=True)
    for hit in hits:
        where = f"{hit.session_id} #{hit.position}" if hit.position is not None else hit.source
        head = f"{moment(hit.at)}  {harmless(where or 'a note')}  {hit.kind}  {hit.score:.2f}"
        typer.secho(head, bold=True)
        for one in (*hit.before, hit, *hit.after):
            who = f"{one.speaker}: " if one.speaker else ""
            typer.secho(harmless(who + one.text, _SHOWN_CHARACTERS), dim=one is not hit)
        typer.echo()
