"""A session's records as folded up to some point, kept so that opening it is quick.

It tells where each record lies, and never what it says. It is derived: where it is missing,
damaged, or of another file, the journal is read from its start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_nanomem.journal import Position
from langchain_nanomem.values import from_json, pack, to_json, unpack

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from langchain_nanomem.journal import Address
    from langchain_nanomem.records import SessionRecords

_VERSION = 1
_Columns = list[list[Any]]


def dump_index(records: SessionRecords) -> bytes:
    """The index of what was folded so far."""
    spaces = {
        namespace: [list(found), _columns(found.values()), _brought(records, namespace)]
        for namespace, found in records.checkpoints.items()
    }
    return to_json(
        {
            "v": _VERSION,
            "end": [records.end.offset, records.end.mark.hex()],
            "header": pack(records.header, ""),
            "next": records.next_number,
            "elements": [list(records.elements), _columns(records.elements.addresses.values())],
            "lines": list(records.line_numbers),
            "ids": [list(records.message_ids), list(records.message_ids.values())],
            "named": [list(records.named), list(records.named.values())],
            "checkpoints": spaces,
            "writes": _writes(records),
            **records.small_state(),
        }
    )


def _columns(addresses: Iterable[Address]) -> _Columns:
    return [list(column) for column in zip(*addresses, strict=True)]


def _brought(records: SessionRecords, namespace: str) -> list[list[Any]]:
    """Versions, and the places in the namespace of the checkpoints that brought them."""
    places = {name: place for place, name in enumerate(records.checkpoints[namespace])}
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


def restore_index(records: SessionRecords, content: bytes) -> None:
    """Take up what an index says, if it is one of this version; the journal may refuse its end."""
    index = from_json(content)
    if index["v"] != _VERSION:
        return
    numbers, columns = index["elements"]
    records.elements.addresses.update(zip(numbers, _addresses(columns), strict=True))
    records.line_numbers.update(dict.fromkeys(index["lines"]))
    records.message_ids.update(zip(*index["ids"], strict=True))
    records.named.update(zip(*index["named"], strict=True))
    for namespace, (ids, columns, brought_by) in index["checkpoints"].items():
        records.checkpoints[namespace] = dict(zip(ids, _addresses(columns), strict=True))
        records.newest[namespace] = max(ids)
        brought = records.brought[namespace] = {}
        for version, place in zip(*brought_by, strict=True):
            key = tuple(version) if isinstance(version, list) else version
            brought.setdefault(key, []).append(ids[place])
    for namespace, checkpoint_id, *address in zip(*index["writes"], strict=True):
        records.written_at.setdefault((namespace, checkpoint_id), []).append(tuple(address))
    records.header, records.next_number = unpack(index["header"]), index["next"]
    records.restore_small_state(index)
    offset, mark = index["end"]
    records.end = Position(offset, bytes.fromhex(mark))
    records.indexed_until = offset


def _addresses(columns: _Columns) -> Iterator[Address]:
    return zip(*columns, strict=True)
