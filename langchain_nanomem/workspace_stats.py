"""How much a workspace holds, and what its consolidations took and saved."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_nanomem.consolidation import Account
from langchain_nanomem.errors import NanomemError
from langchain_nanomem.folded import spent_in
from langchain_nanomem.session_view import words_of
from langchain_nanomem.tokens import TokenCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langchain_nanomem.journal import Record
    from langchain_nanomem.memory_backend import ScopeMemory
    from langchain_nanomem.workspaces import Workspace

_ACCOUNT = frozenset(field.name for field in fields(Account))


@dataclass(frozen=True)
class WorkspaceStats(Account):
    """Figures of a workspace, and what all its sessions took together.

    Of sessions that are archived only number and size are known.
    """

    place: str = ""
    """Where it is, for people."""
    sessions: int = 0
    session_bytes: int = 0
    archived: int = 0
    archived_bytes: int = 0
    messages: int = 0
    """In sessions that are not archived, those of all branches of a graph."""
    message_tokens: int = 0
    memories: int = 0
    """Scopes that have facts or a log."""
    memory_bytes: int = 0
    """Of all facts, without their earlier versions."""
    versions: int = 0
    """Earlier versions of the facts."""
    log_entries: int = 0
    tokens_not_sent: int = 0
    """About what all prompts together were shorter by: for each answer what was in memory then."""
    unreadable: list[str] = field(default_factory=list)
    """The sessions and memories that can't be read; nothing of them is counted."""

    @property
    def tokens_saved(self) -> int:
        """What was not sent, less what the consolidations read and wrote."""
        return self.tokens_not_sent - self.input_tokens - self.output_tokens


class MemorySize(NamedTuple):
    """How much a memory holds. Nothing of a memory that is not there."""

    facts_bytes: int
    """Without their earlier versions."""
    versions: int
    log_entries: int


def size_of(memory: ScopeMemory) -> MemorySize:
    """How much a memory holds.

    Raises:
        CorruptRecordError: Facts or log are no text.
        OSError: They can't be read.
    """
    facts = memory.current().text.encode()
    return MemorySize(len(facts), len(memory.versions()), len(memory.entries()))


def stats_of(
    workspace: Workspace, progress: Callable[[str, int, int], None] = lambda *_: None
) -> WorkspaceStats:
    """Read everything, and count.

    Args:
        workspace: What is counted.
        progress: Told what is read, how many were before it, and of how many.

    Raises:
        OSError: The sessions can't be listed.
    """
    numbers: Counter[str] = Counter()
    unreadable = list[str]()
    _count_sessions(workspace, numbers, unreadable, progress)
    _count_memories(workspace, numbers, unreadable)
    return WorkspaceStats(place=workspace.place, **numbers, unreadable=unreadable)


def _count_sessions(
    workspace: Workspace,
    numbers: Counter[str],
    unreadable: list[str],
    progress: Callable[[str, int, int], None],
) -> None:
    infos, counter = workspace.journal.list(), TokenCounter()
    for place, info in enumerate(infos):
        progress(info.key, place, len(infos))
        numbers.update(sessions=1, session_bytes=info.size_bytes)
        try:
            records, _ = workspace.journal.read(info.key)
        except (NanomemError, OSError):
            unreadable.append(info.key)
            continue
        numbers.update(count_records(records, counter.count_text))
    archive = workspace.journal.archive
    kept = [] if archive is None else archive.sessions()
    numbers.update(archived=len(kept), archived_bytes=sum(one.size_bytes for one in kept))


def count_records(records: Iterable[Record], count_text: Callable[[str], int]) -> Counter[str]:
    """What the records of one session tell, in the order in which they were written.

    Args:
        records: All of them.
        count_text: Counts the tokens of a text.
    """
    numbers: Counter[str] = Counter()
    sums, kept_out = [0], 0
    for record in records:
        kind = record.get("_type")
        if kind is not None:
            numbers.update(_taken(record))
            if kind == "consolidated":
                kept_out = sums[min(record["last_consolidated"], len(sums) - 1)]
        elif "role" in record:
            sums.append(sums[-1] + count_text(words_of(record)))
            numbers["tokens_not_sent"] += kept_out if record["role"] == "assistant" else 0
    numbers.update(messages=len(sums) - 1, message_tokens=sums[-1])
    return numbers


def _taken(record: Record) -> dict[str, Any]:
    return {name: number for name, number in spent_in(record).items() if name in _ACCOUNT}


def _count_memories(workspace: Workspace, numbers: Counter[str], unreadable: list[str]) -> None:
    for memory in workspace.memory.all():
        try:
            found = size_of(memory)
        except (NanomemError, OSError):
            unreadable.append(memory.place)
            continue
        numbers.update(
            memories=bool(found.facts_bytes or found.log_entries),
            memory_bytes=found.facts_bytes,
            versions=found.versions,
            log_entries=found.log_entries,
        )
