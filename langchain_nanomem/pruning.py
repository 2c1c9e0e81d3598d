"""What of a thread's journal is still needed when some of its checkpoints go."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from langchain_nanomem.checkpoint_record import written
from langchain_nanomem.records import (
    ELEMENT_TYPES,
    MESSAGE_TYPES,
    SessionRecords,
    number_of,
    own_numbers,
    references,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from langchain_nanomem.journal import Record

Place = tuple[str, str]
"""Namespace and id of a checkpoint."""


class Kept(NamedTuple):
    """What stays."""

    checkpoints: set[Place]
    writes: set[Place]
    """The checkpoints whose writes stay."""
    only_referred: bool = False
    """Whether message lines go too that only removed checkpoints contained."""


def ancestry(
    records: SessionRecords, namespace: str, checkpoint_id: str, channels: set[str]
) -> Iterator[Place]:
    """The ancestors whose writes are needed to rebuild `channels` at a checkpoint.

    A delta channel has no value of its own with a checkpoint: it is the value of the nearest
    ancestor that has one, and all that was written since.
    """
    open_channels = _without_value(records, namespace, checkpoint_id, channels)
    parent = records.checkpoint(namespace, checkpoint_id)["parent"]
    while open_channels and parent in records.checkpoints[namespace]:
        yield namespace, parent
        open_channels = _without_value(records, namespace, parent, open_channels)
        parent = records.checkpoint(namespace, parent)["parent"]


def is_over(records: SessionRecords, namespace: str, parents: dict[str, str]) -> bool:
    """Whether a namespace is that of a subgraph's call from an older root checkpoint.

    Args:
        records: The thread's records.
        namespace: Where it names a call, it holds the task's id behind a colon.
        parents: What the newest checkpoint in it says of the graphs around it.
    """
    newest = records.newest.get("")
    return newest is not None and ":" in namespace and parents.get("", newest) != newest


def _without_value(
    records: SessionRecords, namespace: str, checkpoint_id: str, channels: set[str]
) -> set[str]:
    versions = records.checkpoint(namespace, checkpoint_id)["versions"]
    return {
        channel
        for channel in channels
        if records.value(namespace, channel, versions.get(channel)) is None
    }


def kept_records(records: SessionRecords, raw: Iterable[Record], kept: Kept) -> list[Record]:
    """The records of `raw`, the whole journal, that stay.

    Args:
        records: The same journal, folded.
        raw: Its records as they were read, with their numbers.
        kept: What stays.
    """
    raw = _numbered(raw)
    checkpoints = _with_their_values(records, kept.checkpoints)
    needed = _referred(records, checkpoints.values(), kept.writes)
    before = set(records.before_graph or ())
    lost = _ever_referred(records) - needed - before if kept.only_referred else set()
    _note_before(raw, checkpoints, sorted(before))
    stays = _Filter(checkpoints, kept, needed, lost)
    return [record for old in raw if (record := stays.filtered(old)) is not None]


def _referred(
    records: SessionRecords, checkpoints: Iterable[Record], writes: Iterable[Place]
) -> set[int]:
    """The numbers of the elements that these checkpoints and writes are made of."""
    encoded = [value for record in checkpoints for _, value in record["values"].values()]
    for place in writes:
        encoded += [value for _, _, value, _ in records.writes_at(*place).values()]
    found = {number for value in encoded for number in references(value, records.elements)}
    return found | records.named_before(found)


def _ever_referred(records: SessionRecords) -> set[int]:
    spaces = records.checkpoints.items()
    every = (records.checkpoint(ns, checkpoint_id) for ns, ids in spaces for checkpoint_id in ids)
    return _referred(records, every, records.written_at)


def _numbered(raw: Iterable[Record]) -> list[Record]:
    """The records with the numbers that they have as long as none is taken away."""
    raw = list(raw)
    numbered: list[Record] = []
    taken: set[int] = set()
    carried = own_numbers(raw)
    following = 0
    for record in raw:
        if record.get("_type") in ELEMENT_TYPES:
            number = number_of(record, taken, carried, following)
            taken.add(number)
            following = max(following, number + 1)
            numbered.append({**record, "_n": number})
        else:
            numbered.append(record)
    return numbered


def _note_before(raw: list[Record], kept: dict[Place, Record], before: list[int]) -> None:
    """Have the first root checkpoint that stays tell what was there before any.

    It could not be told any more: messages of removed checkpoints look the same.
    """
    places = [(r["ns"], r["id"]) for r in raw if r.get("_type") == "checkpoint" and r["ns"] == ""]
    if first := next((place for place in places if place in kept), None):
        kept[first] = {**kept[first], "before": [[number, number + 1] for number in before]}


class _Filter(NamedTuple):
    checkpoints: dict[Place, Record]
    kept: Kept
    needed: set[int]
    lost: set[int]

    def filtered(self, record: Record) -> Record | None:
        kind = record.get("_type")
        if kind == "checkpoint":
            kept = self.checkpoints.get((record["ns"], record["id"]))
            return None if kept is None else written(kept)
        if kind == "writes":
            return record if (record["ns"], record["id"]) in self.kept.writes else None
        if kind == "element":
            return record if record["_n"] in self.needed else None
        if kind in MESSAGE_TYPES:
            return None if record["_n"] in self.lost else record
        return record


def _with_their_values(records: SessionRecords, places: set[Place]) -> dict[Place, Record]:
    """The checkpoint records, each with the values that no kept one before it brings."""
    brought: set[tuple[str, str, object]] = set()
    found: dict[Place, Record] = {}
    for namespace, checkpoint_id in sorted(places, key=lambda place: place[1]):
        record = records.checkpoint(namespace, checkpoint_id)
        values = {}
        for channel, version in record["versions"].items():
            place = (namespace, channel, version)
            if place not in brought and (stored := records.stored(*place)) is not None:
                brought.add(place)
                values[channel] = (version, stored)
        found[namespace, checkpoint_id] = {**record, "values": values}
    return found
