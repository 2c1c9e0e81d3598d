"""A session's records as folded up to some point, kept so that opening it is quick.

It tells where each record lies, and never what it says. It is derived: where it is missing,
damaged, or of another file, the journal is read from its start.
"""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING, Any

from langchain_nanomem.checkpoint_record import as_key
from langchain_nanomem.journal import Position
from langchain_nanomem.values import from_json, pack, to_json, unpack

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langgraph.checkpoint.serde.base import SerializerProtocol

    from langchain_nanomem.journal import Address
    from langchain_nanomem.records import SessionRecords

_VERSION = 3
_Columns = list[list[Any]]


def dump_index(records: SessionRecords) -> bytes:
    """The index of what was folded so far."""
    spaces = {
        namespace: [list(found), _columns(found.values()), _brought(records, namespace)]
        for namespace, found in records.checkpoints.items()
    }
    remains = {
        namespace: [list(found), _columns(found.values())]
        for namespace, found in records.ancestors.items()
    }
    return to_json(
        {
            "v": _VERSION,
            "end": [records.end.offset, records.end.mark.hex()],
            "header": pack(records.header, ""),
            "next": records.next_number,
            "given": list(records.given_numbers),
            "elements": [list(records.elements), _columns(records.elements.addresses.values())],
            "lines": list(records.line_numbers),
            "ids": [list(records.message_ids), list(records.message_ids.values())],
            "named": [list(records.named), list(records.named.values())],
            "ancestors": remains,
            "checkpoints": spaces,
            "writes": _writes(records),
            **records.small_state(),
        }
    )


def _columns(addresses: Iterable[Address]) -> _Columns:
    return [list(column) for column in zip(*addresses, strict=True)]


def _brought(records: SessionRecords, namespace: str) -> list[list[Any]]:
    """Versions, and the places in the namespace of the checkpoints that brought them."""
    known = [*records.checkpoints[namespace], *records.ancestors.get(namespace, ())]
    places = {name: place for place, name in enumerate(known)}
    pairs = [
        (list(version) if isinstance(version, tuple) else version, places[checkpoint_id])
        for version, ids in records.brought.get(namespace, {}).items()
        for checkpoint_id in ids
    ]
    return [[version for version, _ in pairs], [place for _, place in pairs]]


def _writes(records: SessionRecords) -> list[list[Any]]:
    """Namespaces, checkpoints, offsets and sizes of all writes, in their order."""
    rows = [(*place, *at) for place, found in records.written_at.items() for at in found]
    return [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]


def restore_index(records: SessionRecords, content: bytes, objects: SerializerProtocol) -> None:
    """Take up what an index says, if it is one of this version; the journal may refuse its end.

    Args:
        records: What takes it up; empty so far.
        content: What `dump_index` gave.
        objects: Makes the objects in it again.

    Raises:
        Exception: It is no such index, and `records` is half filled.
    """
    index = from_json(content)
    if index["v"] != _VERSION:
        return
    offset, mark = index["end"]
    records.end = Position(offset, bytes.fromhex(mark))
    records.indexed_until = offset
    _restore_elements(records, index)
    for namespace, (ids, columns) in index["ancestors"].items():
        records.ancestors[namespace] = dict(zip(ids, _addresses(columns, offset), strict=True))
    for namespace, (ids, columns, brought_by) in index["checkpoints"].items():
        places = _addresses(columns, offset)
        records.checkpoints[namespace] = dict(zip(ids, places, strict=True))
        records.newest[namespace] = max(ids)
        bringing = [*ids, *records.ancestors.get(namespace, ())]
        brought = records.brought[namespace] = {}
        for version, place in zip(*brought_by, strict=True):
            brought.setdefault(as_key(version), []).append(bringing[place])
    namespaces, ids, *columns = index["writes"]
    for *place, address in zip(namespaces, ids, _addresses(columns, offset), strict=True):
        records.written_at.setdefault(tuple(place), []).append(address)
    records.header = dict(unpack(index["header"], objects))
    records.restore_small_state(index)


def _restore_elements(records: SessionRecords, index: dict[str, Any]) -> None:
    numbers, columns = index["elements"]
    following = index["next"]
    if {int, *map(type, numbers)} != {int} or not following > max(numbers, default=-1):
        raise ValueError("its numbers are none, or the next one is taken")
    records.next_number = following
    places = _addresses(columns, records.end.offset)
    records.elements.addresses.update(zip(numbers, places, strict=True))
    records.given_numbers.update(index["given"])
    records.line_numbers.update(dict.fromkeys(index["lines"]))
    records.message_ids.update(zip(*index["ids"], strict=True))
    records.named.update(zip(*index["named"], strict=True))


def _addresses(columns: _Columns, end: int) -> list[Address]:
    """The addresses, all of them before `end`."""
    offsets, sizes = columns or ([], [])
    if not offsets and not sizes:
        return []
    if {*map(type, offsets), *map(type, sizes)} != {int} or min(map(min, columns)) < 0:
        raise ValueError("its addresses are no places in a file")
    if max(map(add, offsets, sizes)) > end:
        raise ValueError("its addresses are beyond its end")
    return list(zip(offsets, sizes, strict=True))
