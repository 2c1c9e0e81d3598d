"""What a delta channel is rebuilt from: a value of an ancestor, and what was written since."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langgraph.checkpoint.base import DeltaChannelHistory

    from langchain_nanomem.elements import Elements
    from langchain_nanomem.journal import Record
    from langchain_nanomem.records import SessionRecords


def delta_history(
    elements: Elements, records: SessionRecords, place: tuple[str, str], channels: Sequence[str]
) -> dict[str, DeltaChannelHistory]:
    """Each channel's writes, oldest first, since the nearest ancestor that has a value, and that.

    What was written at the checkpoint itself is yet to come, and left out.
    """
    histories: dict[str, DeltaChannelHistory] = {channel: {"writes": []} for channel in channels}
    missing = set(channels)
    namespace = place[0]
    for ancestor in _ancestors(records, *place):
        for task_id, channel, encoded, _ in reversed(records.writes_of(namespace, ancestor["id"])):
            if channel in missing:
                write = (task_id, channel, elements.decode(encoded, records))
                histories[channel]["writes"].append(write)
        for channel in sorted(missing):
            stored = records.value(namespace, channel, ancestor["versions"].get(channel))
            if stored is not None:
                seed = elements.hand_out((namespace, channel), stored, records)
                histories[channel]["seed"] = seed
                missing.discard(channel)
        if not missing:
            break
    for history in histories.values():
        history["writes"].reverse()
    return histories


def _ancestors(records: SessionRecords, namespace: str, checkpoint_id: str) -> Iterator[Record]:
    """The checkpoints before one, the nearest first; by their parents, as forks go apart."""
    node = records.node(namespace, checkpoint_id)
    while node is not None and (node := records.node(namespace, node["parent"])) is not None:
        yield node
