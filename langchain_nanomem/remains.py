"""What remains of checkpoints that go, because later ones are rebuilt from it.

A delta channel has no value of its own with most checkpoints: it is the value of the nearest
ancestor that has one, and all that was written since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langchain_nanomem.journal import Record
    from langchain_nanomem.records import SessionRecords

Place = tuple[str, str]
"""Namespace and id of a checkpoint."""
Needs = dict[Place, set[str]]
"""The channels whose values and writes at a checkpoint later ones are rebuilt from."""
_LANGGRAPHS_OWN = ("__", "branch:", "join:")
"""How channels begin that LangGraph makes for itself; those without a value are never rebuilt."""


def needs_of(records: SessionRecords, kept: Iterable[Place]) -> Needs:
    """What these checkpoints are rebuilt from, at each of their ancestors."""
    needs: Needs = {}
    waiting = [(place, _rebuilt(records, place)) for place in kept]
    while waiting:
        place, channels = waiting.pop()
        parent = _parent(records, place)
        if parent is not None and (new := channels - needs.get(parent, set())):
            needs.setdefault(parent, set()).update(new)
            waiting.append((parent, _without_value(records, parent, new)))
    return needs


def remains_of(records: SessionRecords, kept: set[Place], needs: Needs) -> dict[Place, Record]:
    """The records, still without values, that tell what remains of removed checkpoints.

    An ancestor of which nothing is needed is left out; those behind it follow directly.
    """
    useful = {place for place in needs.keys() - kept if _is_useful(records, place, needs[place])}
    linking = {parent for place in kept if (parent := _parent(records, place)) in needs} - kept
    found: dict[Place, Record] = {}
    for place in useful | linking:
        before = _nearest(records, place, useful | kept)
        if place in useful or before is not None:
            found[place] = _remaining(records, place, needs[place], before)
    return found


def _remaining(
    records: SessionRecords, place: Place, channels: set[str], parent: str | None
) -> Record:
    versions = _versions(records, place)
    return {
        "_type": "ancestor",
        "ns": place[0],
        "id": place[1],
        "parent": parent,
        "versions": {channel: versions[channel] for channel in sorted(channels & versions.keys())},
        "values": {},
    }


def _rebuilt(records: SessionRecords, place: Place) -> set[str]:
    """The channels that a checkpoint has without a value."""
    named = _versions(records, place)
    own = {channel for channel in named if not channel.startswith(_LANGGRAPHS_OWN)}
    return _without_value(records, place, own)


def _without_value(records: SessionRecords, place: Place, channels: set[str]) -> set[str]:
    versions, namespace = _versions(records, place), place[0]
    return {
        channel
        for channel in channels
        if channel not in versions or records.value(namespace, channel, versions[channel]) is None
    }


def _is_useful(records: SessionRecords, place: Place, channels: set[str]) -> bool:
    """Whether there is a value of one of these channels, or something was written to one."""
    if any(channel in channels for _, channel, _, _ in records.writes_at(*place).values()):
        return True
    return bool(channels - _without_value(records, place, channels))


def _nearest(records: SessionRecords, place: Place, wanted: set[Place]) -> str | None:
    """The id of the nearest ancestor that is one of those wanted."""
    parent = _parent(records, place)
    while parent is not None and parent not in wanted:
        parent = _parent(records, parent)
    return None if parent is None else parent[1]


def _parent(records: SessionRecords, place: Place) -> Place | None:
    node = records.node(*place)
    parent = None if node is None else (place[0], node["parent"])
    return parent if parent and records.node(*parent) is not None else None


def _versions(records: SessionRecords, place: Place) -> dict[str, object]:
    node = records.node(*place)
    return {} if node is None else node["versions"]
