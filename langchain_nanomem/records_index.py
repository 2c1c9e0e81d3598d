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

    from langgraph.checkpoint.serde.base import SerializerProtocol

    from langchain_nanomem.journal import Address
    from langchain_nanomem.records import SessionRecords

_VERSION = 2
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
            "elements": [list(records.elements), _columns(records.elements.addresses.values())],
            "lines": list(records.line_numbers),
            "ids": [list(records.message_ids), list(records.message_ids.values())],
            "named": [list(records.named), list(records.named.values())],
            "ancestors": remains,
            "checkpoints": spaces,
            "writes": [[*place, _columns(at)] for place, at in records.written_at.items()],
            **records.small_state(),
        }
    )


def _columns(addresses: Iterable[Address]) -> _Columns:
    return [list(column) for column in zip(*addresses, strict=True)]


def _brought(records: SessionRecords, namespace: str) -> list[list[Any]]:
    """Each version, with the places in the namespace of the checkpoints that brought it."""
    ids = [*records.checkpoints[namespace], *records.ancestors.get(namespace, ())]
    places = {name: place for place, name in enumerate(ids)}
    found = records.brought.get(namespace, {}).items()
    return [
        [list(version) if isinstance(version, tuple) else version, *map(places.__getitem__, ids)]
        for version, ids in found
    ]


def restore_index(records: SessionRecords, content: bytes, objects: SerializerProtocol) -> None:
    """Take up what an index says, if it is one of this version; the journal may refuse its end.

    Args:
        records: What takes it up; empty so far.
        content: What `dump_index` gave.
        objects: Makes the objects in it again.
    """
    index = from_json(content)
    if index["v"] != _VERSION:
        return
    numbers, columns = index["elements"]
    records.elements.addresses.update(zip(numbers, _addresses(columns), strict=True))
    records.line_numbers.update(dict.fromkeys(index["lines"]))
    records.message_ids.update(zip(*index["ids"], strict=True))
    records.named.update(zip(*index["named"], strict=True))
    for namespace, (ids, columns) in index["ancestors"].items():
        records.ancestors[namespace] = dict(zip(ids, _addresses(columns), strict=True))
    for namespace, (ids, columns, brought) in index["checkpoints"].items():
        records.checkpoints[namespace] = dict(zip(ids, _addresses(columns), strict=True))
        records.newest[namespace] = max(ids)
        bringing = [*ids, *records.ancestors.get(namespace, ())]
        records.brought[namespace] = {
            tuple(version) if isinstance(version, list) else version: [bringing[n] for n in places]
            for version, *places in brought
        }
    for namespace, checkpoint_id, columns in index["writes"]:
        records.written_at[namespace, checkpoint_id] = list(_addresses(columns))
    records.header, records.next_number = unpack(index["header"], objects), index["next"]
    records.restore_small_state(index)
    offset, mark = index["end"]
    records.end = Position(offset, bytes.fromhex(mark))
    records.indexed_until = offset


def _addresses(columns: _Columns) -> Iterator[Address]:
    return zip(*columns, strict=True)
