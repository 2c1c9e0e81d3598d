"""The options that most commands have: where, whose, and in which form."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import typer

F = TypeVar("F", bound=Callable[..., Any])
WORKSPACE = ".nanomem"
"""Where a workspace is, if nobody says."""
Place = Annotated[
    str,
    typer.Option(
        "--workspace",
        envvar="NANOMEM_WORKSPACE",
        metavar="DIR_OR_URL",
        help="The directory of the sessions, or the URL postgresql://... of a database.",
    ),
]
Schema = Annotated[
    str | None, typer.Option("--schema", help="The schema of the database; nanomem by default.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
User = Annotated[
    str | None,
    typer.Option("--user", metavar="ID", help="The user's, where each has a memory of their own."),
]
ScopeParts = Annotated[
    list[str] | None,
    typer.Option("--scope", metavar="PART", help="A scope's; once for each part of its name."),
]


def scope_given(user: str | None, parts: list[str] | None) -> tuple[str, ...] | None:
    """Whose memory is meant; None where nobody is named.

    Raises:
        typer.BadParameter: Both are named.
    """
    if user is not None and parts:
        raise typer.BadParameter("give --user or --scope, not both")
    if user is not None:
        return ("user", user)
    return tuple(parts) if parts else None


def moment_given(text: str | None, name: str) -> datetime | None:
    """A date or a time in ISO form, in UTC where it has no zone.

    Raises:
        typer.BadParameter: It is none.
    """
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{name} {text!r} is no date such as 2026-05-08") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is deleted; ends the command where the answer is no.

    Where nobody can answer, nothing is deleted.
    """
    if not yes:
        typer.confirm(question, abort=True, err=True)


def examples(*lines: str) -> Callable[[F], F]:
    """Give a command's help these examples, each in a line of its own."""

    def told(command: F) -> F:
        shown = "".join(f"\n  {line}" for line in lines)
        command.__doc__ = f"{inspect.getdoc(command)}\n\n\b\nExamples:{shown}"
        return command

    return told
