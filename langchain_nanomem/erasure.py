"""All traces of a user, or of a session, removed, and looked for afterwards."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field, replace
from pathlib import Path  # noqa: TC003 - the annotations of a public dataclass can be resolved
from typing import TYPE_CHECKING, NamedTuple

from langchain_nanomem.errors import NanomemError
from langchain_nanomem.history_log import session_of
from langchain_nanomem.samples import Samples
from langchain_nanomem.scope_names import scope_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from langchain_nanomem.history_log import HistoryEntry
    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.memory import MemoryStore
    from langchain_nanomem.memory_backend import MemoryBackend, ScopeMemory
    from langchain_nanomem.scopes import Scope

logger = logging.getLogger(__name__)

_MOST_PATHS = 3


@dataclass(frozen=True)
class Erased:
    """What an erasure removed. It is false where there was nothing."""

    whose: str
    """What was asked for, in words."""
    sessions: list[str] = field(default_factory=list)
    """The sessions that were removed, with their checkpoints."""
    archived: list[str] = field(default_factory=list)
    """The archived sessions that were removed."""
    files: list[Path] = field(default_factory=list)
    """The files of the memory that were removed: facts, versions, log."""
    rows: int = 0
    """The rows of the memory in a database that were removed: facts, versions, log entries."""
    log_entries: int = 0
    """The entries that were taken out of a log that stays."""
    unreadable: list[str] = field(default_factory=list)
    """Sessions, files of the archive and logs that can't be read, so that nobody can tell whose
    they are, or what is in them: they stay."""
    remains: list[str] = field(default_factory=list)
    """Places in which something of it is found afterwards: paths of files; or what it is in a
    database, in words. Others may have said the same; in an archive, which is compressed, nothing
    is looked for."""
    notes: list[str] = field(default_factory=list)
    """What could not be told apart, or looked for, and what else is to be known."""

    def __bool__(self) -> bool:
        memory = self.files or self.rows or self.log_entries
        return bool(self.sessions or self.archived or memory)

    def __str__(self) -> str:
        removed = (
            f"Removed of {self.whose}: {len(self.sessions)} sessions, {len(self.archived)} "
            f"archived ones, {self._memory} of memory, {self.log_entries} log entries."
        )
        nothing = f"Nothing is known of {self.whose}: nothing was removed."
        lines = [removed if self else nothing, *self.notes]
        if self.unreadable:
            lines.append(f"Not readable, so nobody can tell whose: {', '.join(self.unreadable)}.")
        if self.remains:
            lines.append(f"Still found in: {', '.join(self.remains)}.")
        return "\n".join(lines)

    @property
    def _memory(self) -> str:
        return f"{self.rows} rows" if self.rows else f"{len(self.files)} files"


class _Found(NamedTuple):
    """What is to go of the sessions in one place."""

    sessions: SessionManager
    present: list[str]
    archived: list[str]

    @property
    def keys(self) -> list[str]:
        """All of them."""
        return [*self.present, *self.archived]

    def delete(self) -> None:
        """Delete each, whatever becomes of the others."""
        with contextlib.ExitStack() as steps:
            for key in self.keys:
                steps.callback(self.sessions.delete, key)

    def forget(self) -> None:
        """Remove what still names them."""
        for key in self.keys:
            self.sessions.journal.forget(key)


def erase_scope(places: Sequence[SessionManager], store: MemoryStore, whose: str) -> Erased:
    """Remove everything of a scope: sessions, checkpoints, archive, memory, index.

    The sessions go first: a consolidation under way finds its own gone, and writes nothing.

    Args:
        places: The sessions: first those that the memory is of, then those that nobody keeps.
        store: The memory of the scope.
        whose: Whose it is, in words.

    Raises:
        OSError: Something could not be removed; the rest was.
    """
    done = Erased(whose)
    found = [_of_scope(one, store.scope, done.unreadable) for one in places]
    samples = _samples_of(found, done)
    samples.add_memory(store)
    logs = _Logs(_telling_of(found[0].keys, samples.entry_ids), done.unreadable)
    is_alone = store.backend.journal.scope is not None
    before = [] if is_alone else [store.backend.of(())]  # where they logged as anybody's
    done = replace(done, rows=store.backend.of(store.scope).rows())
    with contextlib.ExitStack() as steps:  # from the last one on, whatever one of them raises
        for one in found:
            steps.callback(one.forget)
        steps.callback(lambda: done.files.extend(store.erase()))
        steps.callback(logs.clean, before)
        for one in found:
            steps.callback(one.delete)
    done.notes.extend(_notes_on_facts(logs.cleaned))
    return _reported(done, found, logs, samples, store.backend)


def erase_session(places: Sequence[SessionManager], backend: MemoryBackend, key: str) -> Erased:
    """Remove a session: its messages, checkpoints, archive, index, and its entries in the logs.

    All logs are looked through: whose the session was before nobody can tell where it is
    damaged or gone already, or where another had its name before.

    Args:
        places: The sessions: first those that the memory is of, then those that nobody keeps.
        backend: Where the memory is kept.
        key: The session.

    Raises:
        OSError: Something could not be removed; the rest was, and the same call goes on with it.
    """
    done = Erased(f"session {key!r}")
    scope = scope_of(places[0], key)
    found = [_of_key(one, key) for one in places]
    samples = _samples_of(found, done)
    logs = _Logs(_telling_of([key], samples.entry_ids), done.unreadable)
    with contextlib.ExitStack() as steps:
        steps.callback(places[0].journal.forget, key)  # also where it was deleted before
        steps.callback(lambda: logs.clean(backend.all()))
        for one in found:
            steps.callback(one.delete)
    if found[0].keys and scope is None:
        done.notes.append("It was damaged, so that nobody can tell whose memory has facts from it.")
    done.notes.extend(_notes(backend, scope, logs))
    return _reported(done, found, logs, samples, backend)


class _Logs:
    """Entries that are taken out of logs.

    Args:
        is_meant: Tells which.
        unreadable: Takes the logs that can't be read.
    """

    def __init__(self, is_meant: Callable[[HistoryEntry], bool], unreadable: list[str]) -> None:
        self._is_meant = is_meant
        self._unreadable = unreadable
        self.entries: list[HistoryEntry] = []
        """What was taken out."""
        self.cleaned: list[ScopeMemory] = []
        """Where it was taken out."""

    def clean(self, scopes: Iterable[ScopeMemory]) -> None:
        """Take them out of the logs of scopes.

        Raises:
            OSError: One could not be written; all others were.
        """
        with contextlib.ExitStack() as steps:
            for one in scopes:
                steps.callback(self._clean, one)

    def _clean(self, one: ScopeMemory) -> None:
        try:
            is_in_it = one.matching(self._is_meant)
        except OSError as error:
            logger.warning("nobody can tell what is in a log: %s", error)
            self._unreadable.append(one.log_place)
            return
        if is_in_it:
            self.entries += one.forget(self._is_meant)
            self.cleaned.append(one)


def _telling_of(keys: Collection[str], ids: Collection[str]) -> Callable[[HistoryEntry], bool]:
    """Whether an entry is of these sessions; one that names none, whether it has one of the ids."""

    def is_meant(entry: HistoryEntry) -> bool:
        named = session_of(entry.source)
        return named in keys if named else entry.entry_id in ids

    return is_meant


def _notes(backend: MemoryBackend, scope: Scope | None, logs: _Logs) -> list[str]:
    """What is left to look for in the memory of a session, or in all where its scope is unknown."""
    cleaned = {one.name for one in logs.cleaned}
    if scope is None:
        facts, entries = logs.cleaned, [*backend.all()]
    else:
        names = cleaned | {scope_name(scope)}
        facts = entries = [one for one in backend.all() if one.name in names]
    return [*_notes_on_facts(facts), *_notes_on_unnamed(entries)]


def _notes_on_facts(scopes: Iterable[ScopeMemory]) -> list[str]:
    return [
        f"{one.facts_place} and its versions don't say which session a fact is from: look there "
        "for what is to go, too."
        for one in scopes
        if one.has_facts()
    ]


def _notes_on_unnamed(scopes: Iterable[ScopeMemory]) -> list[str]:
    """Where entries are that name no session."""
    count, paths = 0, list[str]()
    for one in scopes:
        with contextlib.suppress(OSError):  # it is named as one that can't be read
            if found := one.matching(lambda entry: not session_of(entry.source)):
                count += len(found)
                paths.append(one.log_place)
    more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
    where = ", ".join(paths[:_MOST_PATHS]) + more
    told = f"{count} log entries name no session; look there for what is to go, too: {where}."
    return [told] if count else []


def _samples_of(found: Iterable[_Found], done: Erased) -> Samples:
    samples = Samples(done.notes)
    for one in found:
        samples.add_sessions(one.sessions, one.present, one.archived)
    return samples


def _reported(
    done: Erased, found: Iterable[_Found], logs: _Logs, samples: Samples, backend: MemoryBackend
) -> Erased:
    """The report, after a look at what is left."""
    samples.add_entries(logs.entries)
    done.remains.extend(samples.found_in(backend))
    done.sessions.extend(dict.fromkeys(key for one in found for key in one.present))
    done.archived.extend(key for one in found for key in one.archived)
    return replace(done, log_entries=len(logs.entries))


def _of_scope(sessions: SessionManager, scope: Scope, unreadable: list[str]) -> _Found:
    """What is there of a scope."""
    present, damaged = _sessions_of(sessions, scope)
    archived, damaged_archives = _archived_of(sessions, scope)
    unreadable += [*damaged, *damaged_archives]
    return _Found(sessions, present, archived)


def _of_key(sessions: SessionManager, key: str) -> _Found:
    """What is there of a session; whatever can't be looked at is there, too."""
    archive = sessions.journal.archive
    try:
        is_present = sessions.journal.info(key) is not None
    except OSError:
        is_present = True
    is_archived = archive is not None and archive.holds(key)
    return _Found(sessions, [key] if is_present else [], [key] if is_archived else [])


def _sessions_of(sessions: SessionManager, scope: Scope) -> tuple[list[str], list[str]]:
    """The sessions of a scope, and those of which nobody can tell."""
    found, unreadable = [], []
    for one in sessions.journal.list():
        if sessions.journal.is_nameless(one):
            unreadable.append(one.place)
            continue
        try:
            with sessions.reading(one.key) as records:
                if (records.scope or ()) == scope:
                    found.append(one.key)
        except (NanomemError, OSError) as error:
            logger.warning("session %r: nobody can tell whose it is: %s", one.key, error)
            unreadable.append(one.key)
    return found, unreadable


def _archived_of(sessions: SessionManager, scope: Scope) -> tuple[list[str], list[str]]:
    """The archived sessions of a scope, and the files of which nobody can tell."""
    found, unreadable = list[str](), list[str]()
    archive = sessions.journal.archive
    if archive is None:
        return found, unreadable
    for name in sorted(archive.states()):
        try:
            kept = archive.session(name)
        except FileNotFoundError:  # brought back meanwhile
            continue
        except (NanomemError, OSError) as error:
            logger.warning("%s: nobody can tell whose it is: %s", name, error)
            unreadable.append(name.removeprefix("+"))
        else:
            found += [kept.key] if kept.scope == scope else []
    return found, unreadable


def scope_of(sessions: SessionManager, key: str) -> Scope | None:
    """Whose a session is; None where there is none, or nobody can tell, of which it warns."""
    archive = sessions.journal.archive
    try:
        if archive is not None and (kept := archive.find(key)) is not None:
            return kept.scope
        with sessions.reading(key) as records:
            return (records.scope or ()) if records.exists else None
    except (NanomemError, OSError) as error:
        logger.warning("session %r: nobody can tell whose it is: %s", key, error)
        return None
