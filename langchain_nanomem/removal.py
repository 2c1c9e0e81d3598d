"""The part of the checkpointer that removes checkpoints and copies threads."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from langchain_nanomem.checkpoint_async import ThreadedSaver
from langchain_nanomem.elements import Elements
from langchain_nanomem.overtaking import OvertakenError, repeated
from langchain_nanomem.pruning import Kept, kept_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from langgraph.checkpoint.serde.base import SerializerProtocol

    from langchain_nanomem.journal import Record
    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.records import SessionRecords
    from langchain_nanomem.remains import Place


class RemovingSaver(ThreadedSaver):
    """Removes checkpoints from the sessions of their threads, and copies threads.

    Each thread is rewritten at once or not at all, and others notice. What a checkpoint that
    stays is rebuilt from, such as the writes to a delta channel since its last snapshot, stays
    with it, though the checkpoints that had it are gone.
    """

    sessions: SessionManager
    """Where the sessions are kept."""

    def __init__(
        self, sessions: SessionManager, *, serde: SerializerProtocol | None = None
    ) -> None:
        super().__init__(serde=serde)
        self.sessions = sessions

    @override
    def delete_thread(self, thread_id: str) -> None:
        self.sessions.delete(str(thread_id))

    @override
    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints of these runs, what they wrote, and messages only they had.

        A thread whose newest run is removed is what it was before that run, a pending interrupt
        included. Later checkpoints keep their values.

        Args:
            run_ids: What the runs were given as ``run_id`` in the metadata of their config.

        Raises:
            TypeError: `run_ids` is a single string.
        """
        if isinstance(run_ids, str):
            raise TypeError("run_ids must be a sequence of run ids, not one string")
        runs = frozenset(map(run_mark, run_ids))
        for info in self.sessions.journal.list() if runs else ():
            self._delete_runs(info.key, runs)

    @repeated
    def _delete_runs(self, key: str, runs: frozenset[str]) -> None:
        with self.sessions.writing(key) as records:
            kept = {p for p in all_places(records) if self._run_at(records, p) not in runs}
            self._keep(records, Kept(kept, kept | early_writes(records), runs))

    def _run_at(self, records: SessionRecords, place: Place) -> str | None:
        run = self._metadata(records, place).get("run_id")
        return run_mark(run) if isinstance(run, str) else None

    @override
    @repeated
    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread whole, as it is at one moment; each goes on by itself.

        Args:
            source_thread_id: The thread; where there is none, nothing is done.
            target_thread_id: A thread that does not exist yet.

        Raises:
            ValueError: The target exists. Nothing was written.
        """
        source, target = str(source_thread_id), str(target_thread_id)
        copied, _ = self.sessions.journal.read(source)
        if not copied:
            return
        with self.sessions.writing(target) as records:
            if records.exists:
                raise ValueError(
                    f"thread {target!r} exists already; delete it first, or copy to another"
                )
            rest = [record for record in copied if record.get("_type") != "metadata"]
            headers = [record for record in copied if record.get("_type") == "metadata"]
            header: Record = {}
            for record in headers:
                header |= record
            header = {name: v for name, v in header.items() if name not in {"uid", "key"}}
            self.sessions.commit(records, [*rest, self.sessions.header(records) | header])

    @override
    def prune(
        self,
        thread_ids: Sequence[str],
        *,
        strategy: str = "keep_latest",
        keep_last: int | None = None,
    ) -> None:
        """Remove checkpoints that are no longer needed, and give their space back.

        What the session shows stays: the newest state's messages, what was trimmed from it, and
        those from before the graph. Messages go that are in no checkpoint any more, since they
        were edited or removed from the state. Pending writes, interrupts too, stay with their
        checkpoint. A parent stays named, though it be gone.

        Args:
            thread_ids: The threads; missing ones are passed over.
            strategy: "keep_latest": keep the newest checkpoint of each namespace. "delete":
                remove the threads whole.
            keep_last: How many checkpoints of each namespace to keep instead of one, at least 1.
                Subgraphs' calls stay with the root checkpoint that they started from; of a
                subgraph with a memory of its own stays what each kept root checkpoint found.

        Raises:
            TypeError: `thread_ids` is a single string, or `keep_last` is no integer.
            ValueError: The strategy is another; `keep_last` is below 1, or is given with
                "delete". Nothing was removed.
        """
        if isinstance(thread_ids, str):
            raise TypeError("thread_ids must be a sequence of thread ids, not one string")
        count = checked_count(strategy, keep_last)
        for thread_id in map(str, thread_ids):
            if strategy == "delete":
                self.delete_thread(thread_id)
            else:
                self._keep_last(thread_id, count)

    @override
    async def aprune(
        self,
        thread_ids: Sequence[str],
        *,
        strategy: str = "keep_latest",
        keep_last: int | None = None,
    ) -> None:
        await asyncio.to_thread(self.prune, thread_ids, strategy=strategy, keep_last=keep_last)

    @repeated
    def _keep_last(self, key: str, count: int) -> None:
        with self.sessions.writing(key) as records:
            kept = set(self._newest(records, count))
            self._keep(records, Kept(kept, kept | early_writes(records)))

    def _newest(self, records: SessionRecords, count: int) -> Iterator[Place]:
        """The newest checkpoints of each namespace, and what older root checkpoints go with."""
        roots = sorted(records.checkpoints.get("", ()))[-count:]
        for namespace, found in records.checkpoints.items():
            ids = sorted(found)
            if not namespace:
                needed = set(roots)
            elif ":" not in namespace:
                needed = {*ids[-count:], *_found_by(roots[:-1], ids)}
            elif not roots or self._root_of(records, (namespace, ids[-1]), roots[-1]) in roots:
                needed = set(ids[-count:])
            else:
                needed = set()
            yield from ((namespace, checkpoint_id) for checkpoint_id in needed)

    def _root_of(self, records: SessionRecords, place: Place, newest: str) -> str:
        """The root checkpoint that a subgraph's call started from; the newest if it is not told."""
        parents = self._metadata(records, place).get("parents") or {}
        root: str = parents.get("", newest)
        return root

    def _take_back(self, records: SessionRecords, late: Place) -> None:
        """Remove the writes that overtook a late checkpoint, as if they had come after it."""
        if late not in records.written_at:
            return
        self._keep(records, Kept(all_places(records), set(records.written_at) - {late}))
        told = records.header.get("scope") or records.header.get("metadata")
        if not (told or records.elements or records.checkpoints or records.written_at):
            with contextlib.suppress(OvertakenError):  # another has begun it anew meanwhile
                self.sessions.delete(records.key)

    def _keep(self, records: SessionRecords, kept: Kept) -> None:
        """Rewrite the journal, if anything goes."""
        raw, _ = self.sessions.journal.read(records.key)
        if is_less(records, raw, kept):
            self.sessions.rewrite(records, kept_records(records, raw, kept))

    def _metadata(self, records: SessionRecords, place: Place) -> dict[str, Any]:
        encoded = records.checkpoint(*place)["metadata"]
        metadata: dict[str, Any] = self._elements.decode(encoded, records)
        return metadata

    @property
    def _elements(self) -> Elements:
        return Elements(self.serde, self.sessions.elements.redact)


def all_places(records: SessionRecords) -> set[Place]:
    """All checkpoints of a thread."""
    return {(ns, checkpoint_id) for ns, ids in records.checkpoints.items() for checkpoint_id in ids}


def is_less(records: SessionRecords, raw: Iterable[Record], kept: Kept) -> bool:
    """Whether anything of a thread goes."""
    if kept.checkpoints != all_places(records):
        return True
    if any(records.node(*place) is None for place in records.written_at.keys() - kept.writes):
        return True
    return any(record.get("run") in kept.but_runs for record in raw)


def early_writes(records: SessionRecords) -> set[Place]:
    """The checkpoints that have writes already, and are still to be put by a run that goes on."""
    newest_root = records.newest.get("", "")
    return {
        (namespace, checkpoint_id)
        for namespace, checkpoint_id in records.written_at
        if checkpoint_id > records.newest.get(namespace, newest_root)
    }


def run_mark(run_id: str) -> str:
    """What stands in a record of writes for the run that wrote them; nothing is told by it."""
    return hashlib.blake2b(run_id.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def checked_count(strategy: str, keep_last: int | None) -> int:
    """How many checkpoints to keep.

    Raises:
        TypeError: `keep_last` is no integer.
        ValueError: The strategy is another, or `keep_last` does not go with it or is below 1.
    """
    if strategy not in {"keep_latest", "delete"}:
        raise ValueError(f'strategy must be "keep_latest" or "delete", not {strategy!r}')
    if keep_last is None:
        return 1
    if type(keep_last) is not int:
        raise TypeError(f"keep_last must be a whole number of checkpoints, not {keep_last!r}")
    if strategy == "delete":
        raise ValueError('keep_last keeps checkpoints, and the strategy "delete" keeps none')
    if keep_last < 1:
        raise ValueError(
            f"keep_last must be 1 or more, not {keep_last}; the strategy that keeps none is "
            '"delete"'
        )
    return keep_last


def _found_by(roots: Iterable[str], ids: list[str]) -> Iterator[str]:
    """Of a subgraph's own checkpoints, the newest before each of these root checkpoints."""
    places = (bisect_left(ids, root) for root in roots)
    return (ids[place - 1] for place in places if place)
