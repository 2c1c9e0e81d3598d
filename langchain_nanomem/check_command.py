"""``nanomem doctor``: what is damaged, and what can be mended."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from langchain_nanomem.errors import CorruptRecordError, NanomemError
from langchain_nanomem.file_journal import FileJournal
from langchain_nanomem.printing import emit, harmless
from langchain_nanomem.terminal import check_is_there, opened, progress, run
from langchain_nanomem.terminal_options import WORKSPACE, AsJson, Place, Schema, examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_nanomem.journal import Journal
    from langchain_nanomem.memory_backend import ScopeMemory
    from langchain_nanomem.workspaces import Workspace

_MOST_LINES = 10


@dataclass(frozen=True)
class _Checked:
    """What was looked at, and what was found."""

    place: str
    sessions: int = 0
    memories: int = 0
    damaged: list[str] = field(default_factory=list)
    """What can't be read, each in a sentence."""
    repaired: list[str] = field(default_factory=list)
    """What was mended, each in a sentence."""


@examples("nanomem doctor", "nanomem doctor --repair", "nanomem doctor --json | jq .damaged")
def doctor(
    *,
    workspace: Place = WORKSPACE,
    schema: Schema = None,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Keep the good records; put the damaged file aside."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look for what is damaged, and mend it with --repair.

    --repair is for session files; of a database and of memories damage is told.

    Exit code 1 means that damage was found and not mended.
    """

    def act() -> None:
        with opened(workspace, schema) as place, progress() as shown:
            found = _checked(place, shown, repair=repair)
        if as_json:
            emit(asdict(found))
        else:
            _tell(found)
        if found.damaged:
            raise typer.Exit(1)

    run(act)


def _tell(found: _Checked) -> None:
    for line in (*found.damaged, *found.repaired):
        typer.echo(harmless(line))
    typer.echo(
        f"{found.sessions} sessions in {found.place} looked at, and {found.memories} memories."
    )


def _checked(place: Workspace, shown: Callable[[str, int, int], None], *, repair: bool) -> _Checked:
    """Look at everything.

    Raises:
        ValueError: A database was to be repaired.
        FileNotFoundError: There is no such database.
    """
    journal = place.journal
    if not isinstance(journal, FileJournal):
        if repair:
            raise ValueError("--repair is for files; a database is restored from its own backup")
        check_is_there(place)
    infos, memories = journal.list(), list(place.memory.all())
    found = _Checked(place.place, len(infos), len(memories))
    for number, info in enumerate(infos):
        shown(info.key, number, len(infos))
        if journal.is_nameless(info):
            found.damaged.append(f"{info.place}: nobody can tell which session it is")
        elif isinstance(journal, FileJournal):
            _check_file(journal, info.key, found, repair=repair)
        else:
            _check_rows(journal, info.key, found)
    for memory in memories:
        _check_memory(memory, found)
    return found


def _check_file(journal: FileJournal, key: str, found: _Checked, *, repair: bool) -> None:
    damage = journal.read_damaged(key)
    if not damage.bad:
        return
    lines = ", ".join(str(number) for number, _ in damage.bad[:_MOST_LINES])
    told = f"{key}: {len(damage.bad)} lines that can't be read (line {lines})"
    if not repair:
        found.damaged.append(told)
        return
    aside = journal.repair(key)
    found.repaired.append(f"{told}\n  kept {len(damage.good)} records; the damaged file is {aside}")


def _check_rows(journal: Journal, key: str, found: _Checked) -> None:
    try:
        journal.read(key)
    except CorruptRecordError as error:
        found.damaged.append(f"{key}: {error}")


def _check_memory(memory: ScopeMemory, found: _Checked) -> None:
    for read in (memory.current, memory.versions, memory.entries):
        try:
            read()
        except (NanomemError, OSError) as error:
            found.damaged.append(f"{memory.place}: {error}")
