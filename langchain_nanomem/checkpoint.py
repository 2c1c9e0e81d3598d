"""A LangGraph checkpointer over the same journals that hold the sessions."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime, timedelta
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from typing_extensions import override

from langchain_nanomem.checkpoint_record import written
from langchain_nanomem.delta_history import delta_history
from langchain_nanomem.element_writer import ElementWriter
from langchain_nanomem.elements import Elements
from langchain_nanomem.overtaking import repeated
from langchain_nanomem.removal import RemovingSaver, run_mark
from langchain_nanomem.scopes import asks_off_the_record
from langchain_nanomem.session import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import DeltaChannelHistory
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.numbering import Encoded
    from langchain_nanomem.records import SessionRecords
    from langchain_nanomem.remains import Place
    from langchain_nanomem.working_set import Channel

PendingWrites = list[PendingWrite]
_UUID6_EPOCH = datetime(1582, 10, 15, tzinfo=UTC)


class NanomemSaver(RemovingSaver):
    """Keeps a graph's checkpoints in the session of its thread: ``thread_id`` is the key.

    Each message is stored once, however many checkpoints contain it, and is the session's
    own message line. Every method works in both colours; no context manager, no set-up.

    Args:
        sessions: Where the sessions are kept.
        serde: LangGraph's own serializer by default. With any other, `EncryptedSerializer`
            above all, nothing is written but what it makes of each value, message text too.
    """

    def __init__(
        self, sessions: SessionManager, *, serde: SerializerProtocol | None = None
    ) -> None:
        super().__init__(sessions, serde=serde)
        self._dropped: set[str] = set()  # shared with the shallow copies that LangGraph makes
        if serde is not None:
            sessions.elements = Elements(self.serde, sessions.elements.redact)
            sessions.forget()  # what was read before was made by another one

    # --- reading ---

    @override
    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        key, namespace = _thread(config), _namespace(config)
        with self.sessions.reading(key) as records:
            checkpoint_id = get_checkpoint_id(config) or records.newest.get(namespace, "")
            records.working_for(self.serde).begin(namespace)
            return self._tuple(records, namespace, checkpoint_id, self._elements.hand_out)

    @override
    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        places = self._places(config, get_checkpoint_id(before) if before else None)
        found = (one for place in places if (one := self._found(*place, filter)) is not None)
        yield from islice(found, None if limit is None else max(0, limit))

    def _places(
        self, config: RunnableConfig | None, end: str | None
    ) -> Iterable[tuple[str, str, str]]:
        """Key, namespace and id of the checkpoints meant, newest first."""
        if config is None:
            keys, namespace, only = [info.key for info in self.sessions.journal.list()], None, None
        else:
            configurable = config["configurable"]
            keys = [_thread(config)]
            namespace, only = configurable.get("checkpoint_ns"), configurable.get("checkpoint_id")
        places: list[tuple[str, str, str]] = []
        for key in keys:
            with self.sessions.reading(key) as records:
                spaces = [ns for ns in records.checkpoints if namespace in {None, ns}]
                places += [(key, ns, one) for ns in spaces for one in records.checkpoints[ns]]
        if only or end:
            places = [p for p in places if (not only or p[2] == only) and (not end or p[2] < end)]
        return sorted(places, key=itemgetter(2), reverse=True)

    def _found(
        self, key: str, namespace: str, checkpoint_id: str, wanted: dict[str, Any] | None
    ) -> CheckpointTuple | None:
        with self.sessions.reading(key) as records:
            if checkpoint_id not in records.checkpoints.get(namespace, ()):
                return None
            if wanted and not self._has(records, (namespace, checkpoint_id), wanted):
                return None
            return self._tuple(records, namespace, checkpoint_id, self._elements.decode_channel)

    def _has(self, records: SessionRecords, place: Place, wanted: dict[str, Any]) -> bool:
        metadata = self._metadata(records, place)
        written = self._elements.clean_fields(wanted, TOLD)
        return all(
            metadata.get(name) == value or metadata.get(shown) == clean
            for (name, value), (shown, clean) in zip(wanted.items(), written.items(), strict=True)
        )

    def _tuple(
        self,
        records: SessionRecords,
        namespace: str,
        checkpoint_id: str,
        value_of: Callable[[Channel, Encoded, SessionRecords], Any],
    ) -> CheckpointTuple | None:
        if checkpoint_id not in records.checkpoints.get(namespace, ()):
            return None
        record = records.checkpoint(namespace, checkpoint_id)
        decode = self._elements.decode
        checkpoint: Checkpoint = decode(record["checkpoint"], records)
        versions = dict(record["versions"])
        values = {
            channel: value_of((namespace, channel), encoded, records)
            for channel, version in versions.items()
            if (encoded := records.value(namespace, channel, version)) is not None
        }
        checkpoint |= {"id": record["id"], "channel_versions": versions, "channel_values": values}
        if "seen" in record:
            seen = {node: dict(versions) for node, versions in record["seen"].items()}
            checkpoint |= {"versions_seen": seen}
        parent = record["parent"]
        return CheckpointTuple(
            config=config_of(records.key, namespace, checkpoint_id),
            checkpoint=checkpoint,
            metadata=decode(record["metadata"], records),
            parent_config=config_of(records.key, namespace, parent) if parent else None,
            pending_writes=self._pending(records, namespace, checkpoint_id),
        )

    def _pending(
        self, records: SessionRecords, namespace: str, checkpoint_id: str
    ) -> PendingWrites:
        return [
            (task, channel, self._elements.decode(encoded, records))
            for task, channel, encoded, _ in records.writes_of(namespace, checkpoint_id)
        ]

    @override
    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        key, namespace = _thread(config), _namespace(config)
        with self.sessions.reading(key) as records:
            checkpoint_id = get_checkpoint_id(config) or records.newest.get(namespace, "")
            return delta_history(self._elements, records, (namespace, checkpoint_id), channels)

    # --- writing ---

    @override
    @repeated
    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
        *,
        restore: bool = False,
    ) -> RunnableConfig:
        """Add a checkpoint. One that is late, of a thread that was deleted since, is dropped.

        With ``off_the_record`` in its config nothing of the thread is searched any more.

        Args:
            config: Its thread and namespace; its ``checkpoint_id`` is that of the parent.
            checkpoint: The checkpoint.
            metadata: What is told of it.
            new_versions: The channels whose values are new in it, with their versions.
            restore: Whether it is put back on purpose, and never late.

        Returns:
            The config of the checkpoint.
        """
        key, namespace = _thread(config), _namespace(config)
        parent = get_checkpoint_id(config)
        with self.sessions.attempting(key) as records:
            around = (metadata.get("parents") or {}).values()
            if not restore and self._is_late(records, checkpoint["id"], parent, *around):
                self._dropped.add(checkpoint["id"])
                self._take_back(records, (namespace, checkpoint["id"]))
            else:
                if asks_off_the_record(config):
                    self.sessions.keep_off_the_record(key)
                writer = ElementWriter(self._elements, records)
                apart = self._apart(checkpoint)
                rest = {n: v for n, v in checkpoint.items() if n not in apart}
                record = {
                    "_type": "checkpoint",
                    "ns": namespace,
                    "id": checkpoint["id"],
                    "parent": parent,
                    "checkpoint": writer.encode_told(rest, TOLD),
                    "metadata": writer.encode_told(
                        dict(get_checkpoint_metadata(config, metadata)), TOLD
                    ),
                    "versions": dict(checkpoint["channel_versions"]),
                    "values": _kept_values(records, namespace, checkpoint)
                    | _encode_values(writer, namespace, checkpoint, new_versions),
                }
                if "versions_seen" in apart:
                    record["seen"] = checkpoint["versions_seen"]
                self.sessions.commit(records, [*writer.new, written(record)])
                records.working_for(self.serde).settle(namespace)
                writer.written()
        return config_of(key, namespace, checkpoint["id"])

    @override
    @repeated
    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        key, namespace = _thread(config), _namespace(config)
        checkpoint_id = config["configurable"]["checkpoint_id"]
        around = (config["configurable"].get("checkpoint_map") or {}).values()
        with self.sessions.attempting(key) as records:
            if self._is_late(records, checkpoint_id, *around):
                return
            known = records.writes_at(namespace, checkpoint_id)
            in_turn = self._is_in_turn(records, namespace, checkpoint_id)
            writer = ElementWriter(self._elements, records, in_turn=in_turn)
            new = [
                [index, channel, writer.encode_write(namespace, channel, value)]
                for place, (channel, value) in enumerate(writes)
                if (index := WRITES_IDX_MAP.get(channel, place)) < 0
                or (task_id, index) not in known
            ]
            if new:
                record = {
                    "_type": "writes",
                    "ns": namespace,
                    "id": checkpoint_id,
                    "task": task_id,
                    "path": task_path,
                    "writes": new,
                }
                if run := run_of(config):
                    record["run"] = run_mark(run)
                self.sessions.commit(records, [*writer.new, record], durable=False)
                writer.written()

    def _is_in_turn(self, records: SessionRecords, namespace: str, checkpoint_id: str) -> bool:
        """Whether what is said at a checkpoint comes after all that was said before it.

        LangGraph puts checkpoints in the background, and on a busy machine what a task wrote
        can come before the checkpoint at which it ran, which has what was said before.
        """
        return bool(namespace) or checkpoint_id in records.checkpoints.get("", {})

    def _is_late(self, records: SessionRecords, *checkpoint_ids: str | None) -> bool:
        """Whether one of these was made before its thread was deleted, or follows such a one.

        A run that goes on meanwhile must not bring its thread back: it stays deleted. What is
        there was copied or put back since, however old it is.
        """
        deleted_at = self.sessions.journal.deleted_at(records.key)
        if deleted_at is None or deleted_at > utc_now():
            return False  # a clock that was ahead must not have new checkpoints dropped for long
        there = records.checkpoints.values()
        gone = [one for one in checkpoint_ids if not any(one in ids for ids in there)]
        moments = [_moment(checkpoint_id) for checkpoint_id in gone if checkpoint_id]
        return not self._dropped.isdisjoint(gone) or any(
            moment is not None and moment <= deleted_at for moment in moments
        )

    def _apart(self, checkpoint: Checkpoint) -> frozenset[str]:
        """What of a checkpoint is told outside of it; names of nodes only if they may be read."""
        seen = checkpoint.get("versions_seen")
        is_plain_seen = isinstance(seen, dict) and all(type(one) is dict for one in seen.values())
        readable = self._elements.readable and is_plain_seen
        return STORED_APART | {"versions_seen"} if readable else STORED_APART

    # --- the rest of the contract ---

    @override
    def get_next_version(self, current: str | None, channel: None) -> str:
        """The version after `current`: text that sorts as the stock savers' versions do."""
        number = 0 if current is None else int(str(current).split(".")[0])
        return f"{number + 1:032}.{random.random():016}"  # noqa: S311 - it need only differ


STORED_APART = frozenset({"channel_values", "channel_versions", "id"})
TOLD = frozenset(
    {"v", "ts", "versions_seen", "updated_channels", "source", "step", "parents", "run_id"}
)
"""What LangGraph itself tells of a checkpoint; the rest is a program's own."""
_EMPTY: Encoded = {"empty": True}


def _thread(config: RunnableConfig) -> str:
    return str(config["configurable"]["thread_id"])


def _namespace(config: RunnableConfig) -> str:
    return str(config["configurable"].get("checkpoint_ns") or "")


def config_of(thread_id: Any, namespace: str, checkpoint_id: str) -> RunnableConfig:
    """The config that means this one checkpoint."""
    place = {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}
    return {"configurable": place}


def run_of(config: RunnableConfig) -> str | None:
    """The run that a config belongs to, as LangGraph notes it with a checkpoint; None if untold."""
    for told in (config.get("metadata"), config["configurable"]):
        run = (told or {}).get("run_id")
        if run is not None:
            return run if isinstance(run, str) else None
    return None


def _encode_values(
    writer: ElementWriter, namespace: str, checkpoint: Checkpoint, new_versions: ChannelVersions
) -> dict[str, list[Any]]:
    """Version and value of each channel that is new; one without a value is noted as empty."""
    values = checkpoint["channel_values"]
    return {
        channel: [
            version,
            writer.encode_channel(namespace, channel, values[channel])
            if channel in values
            else _EMPTY,
        ]
        for channel, version in new_versions.items()
    }


def _kept_values(
    records: SessionRecords, namespace: str, checkpoint: Checkpoint
) -> dict[str, tuple[Any, Encoded]]:
    """The values that a checkpoint brought which is put once more, perhaps without them."""
    if checkpoint["id"] not in records.checkpoints.get(namespace, ()):
        return {}
    values: dict[str, Any] = records.checkpoint(namespace, checkpoint["id"])["values"]
    return values


def _moment(checkpoint_id: str) -> datetime | None:
    """When a checkpoint was made, which its id (a UUID of version 6) tells; else None.

    The layout is that of RFC 9562, section 5.6: 60 bits count 100 ns since 1582-10-15.
    """
    try:
        parsed = uuid.UUID(checkpoint_id)
    except ValueError:
        return None
    if parsed.version != 6:  # noqa: PLR2004 - the version of the RFC
        return None
    ticks = (parsed.int >> 80) << 12 | (parsed.int >> 64) & 0x0FFF
    return _UUID6_EPOCH + timedelta(microseconds=ticks // 10)
