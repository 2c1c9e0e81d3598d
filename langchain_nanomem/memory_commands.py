"""``nanomem memory``: what is remembered."""

from __future__ import annotations

import difflib
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_nanomem.errors import NanomemError
from langchain_nanomem.memory import MemoryStore
from langchain_nanomem.printing import columns, emit, harmless, moment, one_line, size
from langchain_nanomem.scope_names import scope_in
from langchain_nanomem.terminal import opened_to_read, run
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
from langchain_nanomem.workspace_stats import MemorySize, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_nanomem.memory_backend import ScopeMemory
    from langchain_nanomem.memory_versions import ArchivedVersion
    from langchain_nanomem.workspaces import Workspace

memory = typer.Typer(
    help="What is remembered: facts, their versions, the log.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_Version = Annotated[
    str,
    typer.Argument(metavar="VERSION", help="As `memory history` has it; its beginning will do."),
]
_SCOPES = ("SCOPE", "FACTS", "VERSIONS", "LOG ENTRIES", "WHERE")
_VERSIONS = ("REPLACED (UTC)", "SIZE", "VERSION", "BY")
_DIFF_COLORS = {"+": typer.colors.GREEN, "-": typer.colors.RED, "@": typer.colors.CYAN}
_SHORT = 12
_CAUSE_CHARACTERS = 40


def _on(
    where: tuple[str, str | None],
    whose: tuple[str | None, list[str] | None],
    action: Callable[[MemoryStore], None],
) -> None:
    """Run an action on the memory that the options name."""
    scope = scope_given(*whose) or ()

    def act() -> None:
        with opened_to_read(*where) as place:
            _check_is_known(place, scope)
            action(MemoryStore(place.memory, scope=scope))

    run(act)


def _check_is_known(place: Workspace, scope: tuple[str, ...]) -> None:
    """See that the memory is there, rather than make one of a wrong name.

    Raises:
        FileNotFoundError: It is not.
    """
    if scope and not any(size_of(place.memory.of(scope))):
        raise FileNotFoundError(
            f"{place.place}: there is no memory of {' / '.join(scope)!r}; "
            "`nanomem memory list` tells which there are"
        )


@memory.command("list")
@examples("nanomem memory list", "nanomem memory list --json")
def list_memories(
    *, workspace: Place = WORKSPACE, schema: Schema = None, as_json: AsJson = False
) -> None:
    """List the memories: the workspace's own, and those of users and other scopes."""

    def act() -> None:
        with opened_to_read(workspace, schema) as place:
            rows = [_summary(one) for one in place.memory.all()]
        if as_json:
            emit(rows)
        else:
            typer.echo(columns([_SCOPES, *map(_cells, rows)], numbers=frozenset({1, 2, 3})))
        for problem in filter(None, (row["problem"] for row in rows)):
            typer.echo(harmless(problem), err=True)

    run(act)


def _summary(memory: ScopeMemory) -> dict[str, Any]:
    scope, problem = scope_in(memory.name), None
    sizes: dict[str, int | None] = dict.fromkeys(MemorySize._fields)
    try:
        sizes |= size_of(memory)._asdict()
    except (NanomemError, OSError) as error:
        problem = str(error)
    return {
        "scope": None if scope is None else list(scope),
        **sizes,
        "place": str(memory.place),
        "problem": problem,
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    scope = row["scope"]
    name = "(a name too long to be told)" if scope is None else " / ".join(scope)
    return (harmless(name or "(the workspace's)"), *_sizes(row), harmless(row["place"]))


def _sizes(row: dict[str, Any]) -> tuple[str, str, str]:
    if row["problem"] is not None:
        return ("unreadable", "", "")
    return (size(row["facts_bytes"]), str(row["versions"]), str(row["log_entries"]))


@memory.command("show")
@examples("nanomem memory show", "nanomem memory show --user 42")
def show(
    *,
    workspace: Place = WORKSPACE,
    schema: Schema = None,
    user: User = None,
    scope: ScopeParts = None,
    as_json: AsJson = False,
) -> None:
    """Show the facts."""

    def act(store: MemoryStore) -> None:
        now = store.read_version()
        if as_json:
            emit({"version": now.version, "text": now.text})
        elif now.text:
            typer.echo(harmless(now.text.rstrip("\n")))
        else:
            typer.echo("Nothing is remembered yet.", err=True)

    _on((workspace, schema), (user, scope), act)


@memory.command("edit")
@examples("nanomem memory edit", "nanomem memory edit --user 42 --file facts.md")
def edit(  # noqa: PLR0913 - its options
    *,
    workspace: Place = WORKSPACE,
    schema: Schema = None,
    user: User = None,
    scope: ScopeParts = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", allow_dash=True, help="Take the new text from here; - is standard input."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Edit the facts in your editor (VISUAL, EDITOR), or take them from a file.

    The text as it was is kept as a version. If it changed while you edited, nothing is written,
    and your text is printed, so that it is not lost.
    """

    def act(store: MemoryStore) -> None:
        before = store.read_version()
        text = _edited(before.text) if file is None else _text_of(file)
        if text != before.text:
            _replace(store, text, before.version)
        _tell_change(store, before.version, as_json=as_json)

    _on((workspace, schema), (user, scope), act)


def _edited(text: str) -> str:
    """What a person makes of a text in their editor.

    Raises:
        ValueError: The editor can't be run, or failed.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="nanomem-") as directory:
        path = Path(directory) / "MEMORY.md"
        path.write_text(text, encoding="utf-8")
        try:
            subprocess.run([*shlex.split(editor), str(path)], check=True)  # noqa: S603 - it is theirs
        except (OSError, subprocess.CalledProcessError) as error:
            raise ValueError(f"the editor failed, and nothing was written: {error}") from error
        return path.read_text(encoding="utf-8")


def _text_of(file: Path) -> str:
    return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")


def _replace(store: MemoryStore, text: str, expected_version: str) -> None:
    if not store.replace_long_term(text, expected_version=expected_version):
        typer.echo(harmless(text))
        raise ValueError("the facts changed meanwhile, and nothing was written: edit again")


def _tell_change(store: MemoryStore, before: str, *, as_json: bool) -> None:
    after = store.read_version().version
    if as_json:
        emit({"changed": after != before, "version": after, "before": before})
    else:
        typer.echo("Written." if after != before else "Nothing was changed.")


@memory.command("log")
@examples("nanomem memory log --last 10")
def log(  # noqa: PLR0913 - its options
    *,
    workspace: Place = WORKSPACE,
    schema: Schema = None,
    user: User = None,
    scope: ScopeParts = None,
    last: Annotated[int, typer.Option(help="Only so many last entries; 0: all.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Show the log of what happened, HISTORY.md."""

    def act(store: MemoryStore) -> None:
        entries = store.history_entries()[-last:]
        if as_json:
            emit(entries)
            return
        for entry in entries:
            typer.secho(f"{moment(entry.at)} {harmless(entry.source or '')}".rstrip(), bold=True)
            typer.echo(harmless(entry.text) + "\n")

    _on((workspace, schema), (user, scope), act)


@memory.command("history")
@examples(
    "nanomem memory history",
    "nanomem memory diff $(nanomem memory history --json | jq -r '.[0].version')",
)
def history(
    *,
    workspace: Place = WORKSPACE,
    schema: Schema = None,
    user: User = None,
    scope: ScopeParts = None,
    as_json: AsJson = False,
) -> None:
    """List the earlier versions of the facts, the newest first."""

    def act(store: MemoryStore) -> None:
        found = list(map(_as_dict, store.versions()))
        if as_json:
            emit(found)
        elif not found:
            typer.echo("There is no earlier version.", err=True)
        else:
            typer.echo(columns([_VERSIONS, *map(_version_cells, found)], numbers=frozenset({1})))

    _on((workspace, schema), (user, scope), act)


def _as_dict(version: ArchivedVersion) -> dict[str, Any]:
    return {
        "version": version.version,
        "archived_at": version.archived_at,
        "size_bytes": len(version.read_bytes()),
        "change_id": version.change_id,
        "place": str(version.place),
    }


def _version_cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        moment(row["archived_at"]),
        size(row["size_bytes"]),
        row["version"][:_SHORT],
        one_line(row["change_id"] or "a person or a tool", _CAUSE_CHARACTERS),
    )


@memory.command("diff")
@examples("nanomem memory diff 3fa2", "nanomem memory diff 3fa2 9c01")
def diff(  # noqa: PLR0913 - its options
    version: _Version,
    other: Annotated[
        str | None, typer.Argument(metavar="OTHER", help="The later one; what is now by default.")
    ] = None,
    *,
    workspace: Place = WORKSPACE,
    schema: Schema = None,
    user: User = None,
    scope: ScopeParts = None,
    as_json: AsJson = False,
) -> None:
    """Show what has changed in the facts since a version."""

    def act(store: MemoryStore) -> None:
        old, new = _named(store, version), _named(store, other)
        lines = list(_difference(old, new))
        if as_json:
            emit({"from": old[0], "to": new[0], "diff": lines})
            return
        for line in lines:
            typer.secho(harmless(line), fg=_DIFF_COLORS.get(line[:1]))

    _on((workspace, schema), (user, scope), act)


def _difference(old: tuple[str, str], new: tuple[str, str]) -> Iterator[str]:
    names = (old[0][:_SHORT], new[0][:_SHORT])
    return difflib.unified_diff(old[1].splitlines(), new[1].splitlines(), *names, lineterm="")


def _named(store: MemoryStore, version: str | None) -> tuple[str, str]:
    """A version's whole name and its text; None is the one that is now.

    Raises:
        ValueError: There is none of that name, or more than one.
    """
    now = store.read_version()
    if version is None or (version and now.version.startswith(version)):
        return now.version, now.text
    found = {one.version: one for one in store.versions() if one.version.startswith(version)}
    if len(found) != 1:
        raise ValueError(
            f"{len(found) or 'no'} versions begin with {version!r}; see `nanomem memory history`"
        )
    (one,) = found.values()
    return one.version, one.read_text()


@memory.command("restore")
@examples("nanomem memory restore 3fa2")
def restore(  # noqa: PLR0913 - its options
    version: _Version,
    *,
    workspace: Place = WORKSPACE,
    schema: Schema = None,
    user: User = None,
    scope: ScopeParts = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make an earlier version the facts again; those of now are kept as a version."""

    def act(store: MemoryStore) -> None:
        before, (name, _) = store.read_version().version, _named(store, version)
        if name != before:
            confirm(f"Put version {name[:_SHORT]} in place of the facts of now?", yes=yes)
            store.restore_long_term(name)
        _tell_change(store, before, as_json=as_json)

    _on((workspace, schema), (user, scope), act)
