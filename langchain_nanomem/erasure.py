"""All traces of a user, or of a session, removed, and looked for afterwards."""

from __future__ import annotations

import contextlib
import json
import logging
from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003 - the annotations of a public dataclass can be resolved
from typing import TYPE_CHECKING

from langchain_nanomem.codec import decode
from langchain_nanomem.errors import NanomemError
from langchain_nanomem.rendering import render_words
from langchain_nanomem.scope_names import known_scopes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.memory import MemoryStore
    from langchain_nanomem.records import SessionRecords
    from langchain_nanomem.scopes import Scope

logger = logging.getLogger(__name__)

_LEAST_CHARACTERS = 24
"""What is shorter others may well have said, too."""
_MOST_SAMPLES = 500


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
    log_entries: int = 0
    """The entries that were taken out of a log that stays."""
    unreadable: list[str] = field(default_factory=list)
    """Sessions and files of the archive that can't be read, so that nobody can tell whose they
    are: they stay."""
    remains: list[Path] = field(default_factory=list)
    """Files in which something of it is found afterwards. Others may have said the same; in an
    archive, which is compressed, nothing is looked for."""
    notes: list[str] = field(default_factory=list)
    """What could not be told apart, or looked for, and what else is to be known."""

    def __bool__(self) -> bool:
        return bool(self.sessions or self.archived or self.files or self.log_entries)

    def __str__(self) -> str:
        removed = (
            f"Removed of {self.whose}: {len(self.sessions)} sessions, {len(self.archived)} "
            f"archived ones, {len(self.files)} files of memory, {self.log_entries} log entries."
        )
        nothing = f"Nothing is known of {self.whose}: nothing was removed."
        lines = [removed if self else nothing, *self.notes]
        if self.unreadable:
            lines.append(f"Not readable, so nobody can tell whose: {', '.join(self.unreadable)}.")
        if self.remains:
            lines.append(f"Still found in: {', '.join(map(str, self.remains))}.")
        return "\n".join(lines)


def erase_scope(sessions: SessionManager, store: MemoryStore, whose: str) -> Erased:
    """Remove everything of a scope: sessions, checkpoints, archive, memory, index.

    The sessions go first: a consolidation under way finds its own gone, and writes nothing.

    Args:
        sessions: The sessions.
        store: The memory of the scope.
        whose: Whose it is, in words.

    Raises:
        OSError: Something could not be removed; the rest was.
    """
    keys, unreadable = _sessions_of(sessions, store.scope)
    archived, damaged = _archived_of(sessions, store.scope)
    samples = _Samples()
    samples.add_memory(store)
    samples.add_sessions(sessions, keys, archived)
    files: list[Path] = []
    with contextlib.ExitStack() as steps:  # from the last one on, whatever one of them raises
        for key in (*keys, *archived):
            steps.callback(sessions.journal.forget, key)
        steps.callback(lambda: files.extend(store.erase()))
        for key in (*keys, *archived):
            steps.callback(sessions.delete, key)
    remains = samples.found_in(store.workspace)
    unreadable += damaged
    return Erased(whose, keys, archived, files, 0, unreadable, remains, samples.notes)


def erase_session(
    sessions: SessionManager, memory_for: Callable[[Scope], MemoryStore], key: str
) -> Erased:
    """Remove a session: its messages, checkpoints, archive, index, and its entries in the log.

    It may be damaged: then the logs of all scopes are looked through, as where it is gone
    already.

    Args:
        sessions: The sessions.
        memory_for: The memory of a scope.
        key: The session.

    Raises:
        OSError: Something could not be removed; the same call goes on with the rest.
    """
    archive, samples = sessions.journal.archive, _Samples()
    archived = [key] if archive is not None and archive.holds(key) else []
    listed = [one["key"] for one in sessions.list_sessions() if one["key"] == key]
    scope = _scope_of(sessions, key)
    samples.add_sessions(sessions, listed, archived)
    is_removed = sessions.delete(key)
    present = [key] if listed or (is_removed and not archived) else []
    if is_removed:
        sessions.journal.forget(key)
    entries, notes = _forget_logged(memory_for, scope, key, is_known=is_removed)
    remains = samples.found_in(memory_for(()).workspace)
    notes = [*samples.notes, *notes]
    return Erased(f"session {key!r}", present, archived, [], entries, [], remains, notes)


def _forget_logged(
    memory_for: Callable[[Scope], MemoryStore], scope: Scope | None, key: str, *, is_known: bool
) -> tuple[int, list[str]]:
    """Take the entries of a session out of the log, or out of all; their number, and notes."""
    scopes = known_scopes(memory_for(()).workspace) if scope is None else [scope]
    count, notes = 0, []
    for store in map(memory_for, scopes):
        found = store.forget_session(key)
        count += found
        if (found or (is_known and scope is not None)) and _has_facts(store):
            notes.append(
                f"{store.memory_path} and its versions don't say which session a fact is from: "
                "look there for what is to go, too."
            )
    if is_known and scope is None:
        notes.append("It was damaged, so that nobody can tell whose memory has facts from it.")
    return count, notes


def _sessions_of(sessions: SessionManager, scope: Scope) -> tuple[list[str], list[str]]:
    """The sessions of a scope, and those of which nobody can tell."""
    found, unreadable = [], []
    for one in sessions.list_sessions():
        try:
            with sessions.reading(one["key"]) as records:
                if (records.scope or ()) == scope:
                    found.append(one["key"])
        except (NanomemError, OSError) as error:
            logger.warning("session %r: nobody can tell whose it is: %s", one["key"], error)
            unreadable.append(one["key"])
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


def _scope_of(sessions: SessionManager, key: str) -> Scope | None:
    """Whose a session is; None where there is none, or nobody can tell."""
    archive = sessions.journal.archive
    try:
        if archive is not None and (kept := archive.find(key)) is not None:
            return kept.scope
        with sessions.reading(key) as records:
            return (records.scope or ()) if records.exists else None
    except (NanomemError, OSError) as error:
        logger.warning("session %r: nobody can tell whose it is: %s", key, error)
        return None


def _has_facts(store: MemoryStore) -> bool:
    try:
        return bool(store.read_long_term().strip())
    except (NanomemError, OSError):  # whatever is in it, nobody has looked
        return True


class _Samples:
    """Texts of what is removed, by which it is known again."""

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self.notes: list[str] = []
        """What could not be read, so that nothing of it is looked for."""

    def add_memory(self, store: MemoryStore) -> None:
        """Take lines of a memory and its log."""
        with self._noting(f"the memory in {store.memory_path.parent}"):
            self._add(store.read_long_term())
        with self._noting(f"the log in {store.memory_path.parent}"):
            for entry in store.history_entries():
                self._add(entry.text)

    def add_sessions(
        self, sessions: SessionManager, keys: Sequence[str], archived: Sequence[str]
    ) -> None:
        """Take lines of what was said in sessions."""
        for key in keys:
            self._add_session(f"session {key!r}", sessions.reading(key))
        for key in archived:
            self._add_session(f"the archived session {key!r}", sessions.reading_archived(key))

    def _add_session(self, name: str, opened: AbstractContextManager[SessionRecords]) -> None:
        with self._noting(name), opened as records:
            for record in records.messages(records.view()):
                self._add(render_words(decode(record)))

    @contextlib.contextmanager
    def _noting(self, name: str) -> Iterator[None]:
        """Go on without what can't be read, and note that."""
        try:
            yield
        except FileNotFoundError:  # gone, or brought back meanwhile
            return
        except (NanomemError, OSError) as error:
            logger.warning("%s: %s", name, error)
            self.notes.append(f"Could not be read, so nothing of it was looked for: {name}.")

    def _add(self, text: str) -> None:
        lines = (line.strip() for line in text.splitlines())
        self._texts.update(line for line in lines if len(line) >= _LEAST_CHARACTERS)

    def found_in(self, workspace: Path) -> list[Path]:
        """The files of a workspace that hold one of the texts; what can't be read is noted."""
        chosen = sorted(self._texts, key=len, reverse=True)[:_MOST_SAMPLES]
        samples = {form for text in chosen for form in _forms(text)}
        found = []
        for path in sorted(workspace.rglob("*")) if samples else ():
            if path.is_file() and not path.is_symlink():
                with self._noting(str(path)):
                    content = path.read_bytes()
                    if any(sample in content for sample in samples):
                        found.append(path)
        return found


def _forms(text: str) -> set[bytes]:
    """A text as it may stand in a file: as it is, in JSON, and in JSON within JSON."""
    forms, latest = {text}, {text}
    for _ in range(2):
        latest = {_escaped(one, is_ascii) for one in latest for is_ascii in (True, False)}
        forms |= latest
    return {form.encode("utf-8", "surrogatepass") for form in forms}


def _escaped(text: str, is_ascii: bool) -> str:  # noqa: FBT001 - of this module alone
    return json.dumps(text, ensure_ascii=is_ascii)[1:-1]
