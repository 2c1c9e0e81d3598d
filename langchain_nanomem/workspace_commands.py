"""Commands on the whole of a workspace: ``stats``, ``prune``, ``erase``."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import timedelta
from typing import Annotated

import typer

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.erasure import erase_scope, erase_session
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.memory import MemoryStore
from langchain_nanomem.printing import columns, emit, harmless, size
from langchain_nanomem.retention import Retained, Retention, apply_retention
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
from langchain_nanomem.workspace_stats import WorkspaceStats, stats_of


@examples("nanomem stats", "nanomem stats --json | jq .tokens_saved")
def stats(*, workspace: Place = WORKSPACE, schema: Schema = None, as_json: AsJson = False) -> None:
    """Count what there is, and what memory took and saved.

    "not sent" is about what all prompts together were shorter by, since old turns were in memory;
    "saved" is that less what the consolidations read and wrote, in tokens, all at one price.
    """

    def act() -> None:
        with opened_to_read(workspace, schema) as place, progress() as shown:
            found = stats_of(place, shown)
        if as_json:
            emit(asdict(found) | {"tokens_saved": found.tokens_saved})
        else:
            typer.echo(columns(_figures(found)))

    run(act)


def _figures(found: WorkspaceStats) -> list[tuple[str, str]]:
    rows = [
        ("workspace", harmless(found.place)),
        ("sessions", f"{found.sessions:,} ({size(found.session_bytes)})"),
        ("archived", f"{found.archived:,} ({size(found.archived_bytes)})"),
        ("messages", f"{found.messages:,} ({found.message_tokens:,} tokens)"),
        ("memories", f"{found.memories:,} ({size(found.memory_bytes)} of facts)"),
        ("earlier versions", f"{found.versions:,}"),
        ("log entries", f"{found.log_entries:,}"),
        ("consolidations", f"{found.consolidations:,} ({found.raw:,} raw)"),
        ("failed", f"{found.failures:,}"),
        ("model calls", f"{found.calls:,} ({found.seconds:,.1f} s)"),
        ("tokens read", f"{found.input_tokens:,}"),
        ("tokens written", f"{found.output_tokens:,}"),
        ("tokens not sent", f"about {found.tokens_not_sent:,}"),
        ("tokens saved", f"about {found.tokens_saved:,}"),
    ]
    return rows + [("can't be read", harmless(one)) for one in found.unreadable]


@examples(
    "nanomem prune --max-age 90",
    "nanomem prune --max-age 365 --delete --yes",
    "nanomem prune --keep-checkpoints 20 --max-versions 50",
)
def prune(  # noqa: PLR0913 - its options
    *,
    workspace: Place = WORKSPACE,
    schema: Schema = None,
    max_age: Annotated[
        float | None, typer.Option(metavar="DAYS", min=0, help="Sessions older than that go.")
    ] = None,
    max_sessions: Annotated[
        int | None, typer.Option(min=0, help="So many of the newest sessions stay.")
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option(min=0, help="So many bytes of the newest sessions stay.")
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete them; else they are archived.")
    ] = False,
    max_archive_age: Annotated[
        float | None,
        typer.Option(metavar="DAYS", min=0, help="Sessions archived longer are deleted."),
    ] = None,
    history_years: Annotated[
        int | None, typer.Option(min=0, help="Log entries of earlier years go to a file a year.")
    ] = None,
    max_versions: Annotated[
        int | None, typer.Option(min=0, help="So many versions of each MEMORY.md stay.")
    ] = None,
    keep_checkpoints: Annotated[
        int | None, typer.Option(min=1, help="So many of a thread's newest checkpoints stay.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Put old sessions away, or delete them; thin out checkpoints.

    An archived session is searched as before, and comes back when it is used.
    """
    rule = Retention(
        max_age=_days(max_age),
        max_sessions=max_sessions,
        max_bytes=max_bytes,
        action="delete" if delete else "archive",
        max_archive_age=_days(max_archive_age),
        history_years=history_years,
        max_versions=max_versions,
    )
    if rule == replace(Retention(), action=rule.action) and keep_checkpoints is None:
        raise typer.BadParameter("say what is to go, such as --max-age 90; see --help")
    run(lambda: _prune((workspace, schema), rule, keep_checkpoints, yes=yes, as_json=as_json))


def _days(number: float | None) -> timedelta | None:
    return None if number is None else timedelta(days=number)


def _prune(
    source: tuple[str, str | None],
    rule: Retention,
    keep_checkpoints: int | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    with opened_to_read(*source) as place:
        if what := _for_good(rule, keep_checkpoints):
            confirm(f"Delete for good in {place.place}: {what}?", yes=yes)
        manager = SessionManager(place.journal)
        done = apply_retention(rule, manager, place.memory)
        thinned = [] if keep_checkpoints is None else _thin(manager, keep_checkpoints)
    if as_json:
        emit(asdict(done) | {"thinned": thinned})
    else:
        _tell(done, thinned)
    if done.skipped or done.skipped_memories:
        raise typer.Exit(1)


def _for_good(rule: Retention, keep_checkpoints: int | None) -> str:
    """What can't be had back."""
    parts = [
        (rule.action == "delete" and rule.limits_sessions, "old sessions"),
        (rule.max_archive_age is not None, "old archived sessions"),
        (rule.max_versions is not None, "old versions of MEMORY.md"),
        (keep_checkpoints is not None, "old checkpoints"),
    ]
    return ", ".join(name for is_meant, name in parts if is_meant)


def _thin(manager: SessionManager, keep: int) -> list[str]:
    """Prune the checkpoints of all threads, and give their keys."""
    threads = [info.key for info in manager.journal.list() if _is_thread(manager, info.key)]
    NanomemSaver(manager).prune(threads, keep_last=keep)
    return threads


def _is_thread(manager: SessionManager, key: str) -> bool:
    with manager.reading(key) as records:
        return records.is_thread


def _tell(done: Retained, thinned: list[str]) -> None:
    rows = [
        ("archived", len(done.archived)),
        ("deleted", len(done.deleted)),
        ("checkpoints thinned", len(thinned)),
        ("log entries moved", done.rolled_entries),
        ("versions removed", done.removed_versions),
    ]
    typer.echo(columns([(name, f"{number:,}") for name, number in rows]))
    for one in (*done.skipped, *done.skipped_memories):
        typer.echo(f"left where it is, for it can't be read: {harmless(one)}")


@examples("nanomem erase --user 42", "nanomem erase --session cli:ada --yes")
def erase(  # noqa: PLR0913 - its options
    *,
    workspace: Place = WORKSPACE,
    schema: Schema = None,
    user: User = None,
    scope: ScopeParts = None,
    session: Annotated[str | None, typer.Option(help="A session, and its log entries.")] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove all traces of a user, a scope or a session.

    It tells what was removed, and what could not be.     Exit code 1 means that nothing was known.
    """
    whose = scope_given(user, scope)
    if (whose is None) == (session is None):
        raise typer.BadParameter("give one of --user, --scope and --session")
    run(lambda: _erase((workspace, schema), whose, session, yes=yes, as_json=as_json))


def _erase(
    source: tuple[str, str | None],
    whose: tuple[str, ...] | None,
    session: str | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    named = f"session {session!r}" if whose is None else f"scope {' / '.join(whose)!r}"
    with opened_to_read(*source) as place:
        confirm(f"Remove all traces of {harmless(named)} from {place.place}?", yes=yes)
        places = [SessionManager(place.journal)]
        if session is not None:
            done = erase_session(places, place.memory, session)
        else:
            done = erase_scope(places, MemoryStore(place.memory, scope=whose or ()), named)
    if as_json:
        emit(done)
    else:
        typer.echo(harmless(str(done)))
    if not done:
        raise typer.Exit(1)
