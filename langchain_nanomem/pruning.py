"""What of a thread's journal is still needed when some of its checkpoints go."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from langchain_nanomem.checkpoint_record import written
from langchain_nanomem.numbering import (
    ELEMENT_TYPES,
    MESSAGE_TYPES,
    Encoded,
    number_of,
    numbers_in,
    own_numbers,
)
from langchain_nanomem.remains import Needs, Place, needs_of, remains_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from langchain_nanomem.journal import Record
    from langchain_nanomem.records import SessionRecords


class Kept(NamedTuple):
    """What stays."""

    checkpoints: set[Place]
    writes: set[Place]
    """The checkpoints whose writes stay, also such as are still to be put."""
    but_runs: frozenset[str] = frozenset()
    """The marks of the runs whose writes go all the same."""


def kept_records(records: SessionRecords, raw: Iterable[Record], kept: Kept) -> list[Record]:
    """The records of `raw`, the whole journal, that stay.

    What kept checkpoints are rebuilt from stays too; message lines go that only removed
    checkpoints contained.

    Args:
        records: The same journal, folded.
        raw: Its records as they were read, with their numbers.
        kept: What stays.
    """
    raw = _numbered(raw)
    needs = needs_of(records, kept.checkpoints)
    places = {place: records.checkpoint(*place) for place in kept.checkpoints}
    places |= remains_of(records, kept.checkpoints, needs)
    _give_values(records, places)
    _note_before(records, raw, places)
    stays = _Filter(places, kept, needs)
    found = [record for old in raw if (record := stays.filtered(old)) is not None]
    return _without_lost(records, raw, found)


def _without_lost(records: SessionRecords, raw: list[Record], found: list[Record]) -> list[Record]:
    """`found` without the elements that nothing in it refers to any more."""
    needed = _referred(records, found) | _trimmed(records, found)
    lost = _referred(records, raw) - needed - set(records.before_graph or ())

    def stays(record: Record) -> bool:
        kind = record.get("_type")
        if kind in MESSAGE_TYPES:
            return record["_n"] not in lost
        return kind != "element" or record["_n"] in needed

    return [record for record in found if stays(record)]


def _trimmed(records: SessionRecords, found: Iterable[Record]) -> set[int]:
    """The numbers of what was trimmed from the state of these checkpoints: it is in the session."""
    if not records.trimmed_ids:
        return set()
    roots = [r for r in found if r.get("_type") == "checkpoint" and r["ns"] == ""]
    ids = records.in_memory_at(records.checkpoint("", root["id"]) for root in roots)
    kept = [one for one in ids if one in records.trimmed_ids]
    numbers = {records.message_ids[one] for one in kept if one in records.message_ids}
    return numbers | records.named_before(numbers)


def _referred(records: SessionRecords, found: Iterable[Record]) -> set[int]:
    """The numbers of the elements that these checkpoints and writes are made of."""
    encoded = (value for record in found for value in _encoded_in(record))
    numbers = numbers_in(encoded, records.elements)
    return numbers | records.named_before(numbers)


def _encoded_in(record: Record) -> Iterator[Encoded]:
    kind = record.get("_type")
    if kind == "writes":
        yield from (value for _, _, value in record["writes"])
    if kind == "checkpoint":
        yield from (record["checkpoint"], record["metadata"])
    if kind in {"checkpoint", "ancestor"}:
        for value in record["values"].values():
            yield value if isinstance(value, dict) else value[1]


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


def _note_before(records: SessionRecords, raw: list[Record], kept: dict[Place, Record]) -> None:
    """Have the first root checkpoint that stays tell what was there before any.

    It could not be told any more: messages of removed checkpoints look the same.
    """
    places = [(r["ns"], r["id"]) for r in raw if r.get("_type") == "checkpoint" and r["ns"] == ""]
    first = next((p for p in places if p in kept and kept[p]["_type"] == "checkpoint"), None)
    if first is not None:
        before = sorted(records.before_graph or ())
        kept[first] = {**kept[first], "before": [[number, number + 1] for number in before]}


def _give_values(records: SessionRecords, kept: dict[Place, Record]) -> None:
    """Have each of them bring the values of its versions that none before it brings."""
    brought: set[tuple[str, str, object]] = set()
    for place in sorted(kept, key=lambda place: place[1]):
        record = kept[place]
        values = {}
        for channel, version in record["versions"].items():
            value = (place[0], channel, version)
            if value not in brought and (stored := records.stored(*value)) is not None:
                brought.add(value)
                values[channel] = (version, stored)
        kept[place] = {**record, "values": values}


class _Filter(NamedTuple):
    places: dict[Place, Record]
    """The records of kept checkpoints, and of what remains of removed ones."""
    kept: Kept
    needs: Needs

    def filtered(self, record: Record) -> Record | None:
        kind = record.get("_type")
        if kind in {"checkpoint", "ancestor"}:
            kept = self.places.get((record["ns"], record["id"]))
            return None if kept is None else written(kept)
        return self._writes(record) if kind == "writes" else record

    def _writes(self, record: Record) -> Record | None:
        place = (record["ns"], record["id"])
        gone = "gone" in record or record.get("run") in self.kept.but_runs
        if place in self.kept.writes and not gone:
            return record
        if place not in self.places:
            return None
        needed = self.needs.get(place, ())
        writes = [write for write in record["writes"] if write[1] in needed]
        # who needs them may go later than they did
        return {**record, "writes": writes, "gone": True} if writes else None
