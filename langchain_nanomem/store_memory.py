"""Memories in any LangGraph `BaseStore`, where a program may keep things nowhere else.

A `BaseStore` has neither locks nor compare-and-set, so this promises what can be had without:
see `BaseStoreBackend`.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
import uuid
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from langgraph.store.base import GetOp, validate_op_namespace
from typing_extensions import override

from langchain_nanomem.errors import CorruptRecordError
from langchain_nanomem.history_log import HistoryEntry
from langchain_nanomem.memory_backend import MemoryBackend, ScopeMemory
from langchain_nanomem.memory_versions import (
    ArchivedVersion,
    MemoryVersion,
    beyond_limits,
    change_stem,
    version_of,
)
from langchain_nanomem.search_places import forget_log
from langchain_nanomem.store_facts import StoreFacts
from langchain_nanomem.store_items import StoreItems, asked, lock_of
from langchain_nanomem.workspaces import memory_backend

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterator

    from langgraph.store.base import BaseStore

    from langchain_nanomem.journal import Journal
    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.memory_backend import Noting
    from langchain_nanomem.search_scopes import SessionScopes
    from langchain_nanomem.search_sources import LogStates
    from langchain_nanomem.search_tables import SearchTables
    from langchain_nanomem.store_facts import Archived, Facts

_STATE = "log"
_NUMBERS = itertools.count()
"""Tell what one program appended within one tick of a coarse clock."""
_MANY = 1_000
_REMEDY = "Something else wrote into this namespace: remove that item."


class ScopeItems(ScopeMemory):
    """Facts, versions and log of one scope as items of a store.

    Args:
        store: The store.
        namespace: Where those of all scopes are.
        name: The scope's `scope_name`.
        directory: Where search indexes are kept; None: in memory.
    """

    def __init__(
        self, store: BaseStore, namespace: tuple[str, ...], name: str, directory: Path | None
    ) -> None:
        self.name = name
        own = (*namespace, _label_of(name))
        self._lock, self._directory = lock_of(store), directory
        self._facts = StoreFacts(store, own)
        self._log = StoreItems(store, (*own, "log"))
        self._state = StoreItems(store, (*own, "state"))
        self.place = f"{type(store).__name__}, {'/'.join(own)}"
        self.facts_place, self.log_place = f"{self.place}/facts", f"{self.place}/log"

    # --- facts ---

    @override
    def current(self) -> MemoryVersion:
        return _version_of(self._read())

    def _read(self) -> Facts:
        try:
            return self._facts.read()
        except (KeyError, TypeError) as error:
            raise CorruptRecordError(
                Path(self.facts_place), 1, "an item is no change of ours", _REMEDY
            ) from error

    @override
    def put(self, content: bytes) -> None:
        text = content.decode()
        with self._lock:
            facts = self._read()
            if facts.text != text:
                self._facts.replace(facts, text, None)

    @override
    def replace(self, content: bytes, expected_version: str, change: str | None) -> bool:
        text = content.decode()
        with self._lock:
            facts = self._read()
            if change and self._facts.is_made(change):
                return True
            if _version_of(facts).version != expected_version:
                return False
            if change or facts.text != text:
                self._facts.replace(facts, text, change)
            return True

    @override
    def is_made(self, change: str) -> bool:
        return self._facts.is_made(change)

    @override
    def versions(self) -> list[ArchivedVersion]:
        return [self._version(key, one) for key, one in self._facts.versions().items()]

    def _version(self, key: str, one: Archived) -> ArchivedVersion:
        return ArchivedVersion(
            version_of(one.was.text.encode()),
            datetime.fromisoformat(one.at),
            f"{self.place}/versions/{key}",
            None if one.by is None else unquote(one.by),
            partial(self._content_of, key),
        )

    def _content_of(self, key: str) -> bytes:
        found = self._facts.version(key)
        if found is None:
            raise FileNotFoundError(f"{self.place}/versions/{key} is not there any more")
        return found.was.text.encode()

    @override
    def prune(self, keep: int | None, older_than: datetime | None) -> list[ArchivedVersion]:
        with self._lock:
            versions = self._facts.versions()
            shown = {key: self._version(key, one) for key, one in versions.items()}
            # a change is known by what it made, until that is pruned
            known = {
                key: dataclasses.replace(shown[key], change_id=one.was.change)
                for key, one in versions.items()
            }
            due = beyond_limits([*known.values()], keep, older_than)
            goes = [key for key, one in known.items() if one in due]
            self._facts.archive.remove(goes)
            return [shown[key] for key in goes]

    # --- the log ---

    @override
    def append(self, entry: HistoryEntry) -> None:
        key = change_stem(entry.entry_id or "")
        with self._lock:
            if self._log.get(key) is None:
                self._log.put(key, _value_of(entry))
            self._note_change()  # also of one whose append a crash cut short

    @override
    def contains(self, entry_id: str) -> bool:
        return self._log.get(change_stem(entry_id)) is not None

    @override
    def entries(self) -> list[HistoryEntry]:
        return [entry for _, entry in self._logged(is_strict=True)]

    @override
    def matching(self, is_meant: Callable[[HistoryEntry], bool]) -> list[HistoryEntry]:
        return [entry for _, entry in self._logged() if is_meant(entry)]

    @override
    def forget(self, is_meant: Callable[[HistoryEntry], bool]) -> list[HistoryEntry]:
        with self._lock:
            goes = [(key, entry) for key, entry in self._logged() if is_meant(entry)]
            if goes:
                self._log.remove(key for key, _ in goes)
                self._note_change()
        if goes and self._directory is not None:
            forget_log(self._directory, self.name)
        return [entry for _, entry in goes]

    @override
    def log_states(self) -> LogStates:
        state = self._state.get(_STATE)
        return () if state is None else (state.get("is"),)

    def _note_change(self) -> None:
        self._state.put(_STATE, {"is": uuid.uuid4().hex})

    def _logged(self, *, is_strict: bool = False) -> list[tuple[str, HistoryEntry]]:
        """The entries with their keys, in the order in which they were appended."""
        found: list[tuple[int, int, str, dict[str, Any]]] = []
        for key, value in self._log.all().items():
            if isinstance(value.get("appended"), int) and isinstance(value.get("text"), str):
                found.append((value["appended"], value.get("number", 0), key, value))
            elif is_strict:
                raise CorruptRecordError(
                    Path(f"{self.log_place}/{key}"), 1, "it is no entry of ours", _REMEDY
                )
        found.sort(key=lambda one: one[:3])
        in_order = enumerate(found, 1)
        return [(key, _entry_in(value, place)) for place, (_, _, key, value) in in_order]

    # --- all of it ---

    @override
    def erase(self) -> list[Path]:
        with self._lock:
            for items in (*self._kept, self._state):
                items.remove(items.all())
        return []

    @override
    def rows(self) -> int:
        return sum(len(items.all()) for items in self._kept)

    @property
    def _kept(self) -> tuple[StoreItems, ...]:
        return self._facts.archive, self._log, self._facts.present

    def holding(self, samples: Collection[bytes]) -> list[str]:
        """The places, for people, that hold one of these texts."""
        return [
            f"{'/'.join(items.namespace)}/{key}"
            for items in self._kept
            for key, value in items.all().items()
            if _holds(value, samples)
        ]


class BaseStoreBackend(MemoryBackend):
    """The memories in a LangGraph store: `InMemoryStore`, `PostgresStore`, or any other.

    The sessions stay where they are, and the search covers them as ever. Items neither expire nor
    are they embedded. An `AsyncPostgresStore` may be used from other threads than its loop's, as
    the async methods of this package do; on the loop itself it refuses.

    A store can neither lock nor compare and set. What holds all the same:

    * Between threads that use the same store object each change is atomic and compared with what
      it was made from, as it is with files.
    * Between programs nothing is lost. Who changes the facts at the same moment, from the same
      version, is told that it worked, as the other one is: the facts are then both changes, merged
      by lines, for every reader the same. A line that one took out is out; one that one put in is
      in; of a line that both worded anew both wordings are there.
    * An entry of the log is there once for its id, and a consolidation's change once, whoever
      writes it and however often.
    * Whatever crashes, a change is made or not; the next one completes what is archived of it.

    What does not: an erasure while another program writes into the same scope may leave what that
    one writes. A consolidation is none, as it ends with its session. The order of the log is by
    the clocks of those who wrote. All of it needs a store that gives back what was put as soon as
    the call returned, which replicas that lag behind don't.

    Args:
        store: The store. Where it needs a ``setup``, that was done.
        beside: Where the sessions are: a directory, a `FileJournal` or `PostgresJournal`, or the
            `MemoryBackend` that it has otherwise.
        namespace: Where the items are. Each scope has one label below it.

    Raises:
        ValueError: The namespace is empty, or the store would not take it.
    """

    def __init__(
        self,
        store: BaseStore,
        beside: str | os.PathLike[str] | Journal | MemoryBackend,
        *,
        namespace: tuple[str, ...] = ("nanomem",),
    ) -> None:
        if not namespace or namespace[0] == "langgraph":
            raise ValueError(
                f'namespace must be there, and not begin with "langgraph": {namespace}'
            )
        validate_op_namespace(GetOp(namespace, ""))
        self._store, self._namespace = store, tuple(namespace)
        self._beside = memory_backend(beside)

    def __repr__(self) -> str:
        return f"BaseStoreBackend({type(self._store).__name__}, {self._beside!r})"

    @property
    @override
    def journal(self) -> Journal:
        return self._beside.journal

    @property
    @override
    def workspace(self) -> Path:
        return self._beside.workspace

    @override
    def all(self) -> Iterator[ScopeItems]:
        depth = len(self._namespace)
        own = (one for one in self._spaces() if one[:depth] == self._namespace and one[depth:])
        names = {_name_in(one[depth]) for one in own if one[depth].startswith("+")}
        yield self.named("")
        yield from (self.named(name) for name in sorted(names - {""}))

    @override
    def search_places(
        self, scope: tuple[str, ...], sessions: SessionManager
    ) -> tuple[SearchTables, SessionScopes]:
        return self._beside.search_places(scope, sessions)

    @override
    def holding(self, samples: Collection[bytes], noting: Noting) -> list[str]:
        found = self._beside.holding(samples, noting)
        for one in self.all():
            with noting(one.place):
                found += one.holding(samples)
        return found

    @property
    def _directory(self) -> Path | None:
        return getattr(self._beside, "workspace", None)

    @override
    def named(self, name: str) -> ScopeItems:
        return ScopeItems(self._store, self._namespace, name, self._directory)

    def _spaces(self) -> Iterator[tuple[str, ...]]:
        store, prefix, depth = self._store, self._namespace, len(self._namespace) + 1
        offset = 0
        while True:
            list_them = partial(
                store.list_namespaces, prefix=prefix, max_depth=depth, limit=_MANY, offset=offset
            )
            found = asked(store, prefix, list_them)
            yield from found
            offset += len(found)
            if not found:
                return


def _version_of(facts: Facts) -> MemoryVersion:
    content = None if facts.text is None else facts.text.encode()
    return MemoryVersion(facts.text or "", version_of(content))


def _label_of(name: str) -> str:
    """A scope's name as a label, which has no dot; no name has an exclamation mark."""
    return "+" + name.replace(".", "!")


def _name_in(label: str) -> str:
    return label[1:].replace("!", ".")


def _value_of(entry: HistoryEntry) -> dict[str, Any]:
    return {
        "id": entry.entry_id,
        "at": None if entry.at is None else entry.at.isoformat(),
        "text": entry.text,
        "source": entry.source,
        "appended": time.time_ns(),
        "number": next(_NUMBERS),
    }


def _entry_in(value: dict[str, Any], number: int) -> HistoryEntry:
    at = value.get("at")
    moment = None if at is None else datetime.fromisoformat(at)
    return HistoryEntry(moment, value["text"], value.get("id"), value.get("source"), number)


def _holds(value: dict[str, Any], samples: Collection[bytes]) -> bool:
    texts = [one.encode() for one in value.values() if isinstance(one, str)]
    return any(sample in text for text in texts for sample in samples)
