"""The values of a graph's channels as records: each message and each list element once."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langchain_nanomem.codec import decode, encode
from langchain_nanomem.collector import paused
from langchain_nanomem.errors import NanomemError
from langchain_nanomem.folded import POINTER
from langchain_nanomem.images import image_of, image_of_record
from langchain_nanomem.numbering import MESSAGE_TYPES, Encoded, digest
from langchain_nanomem.redacted_records import redacted_fields, redacted_value
from langchain_nanomem.values import copy_record, dump_record, from_json, to_json
from langchain_nanomem.working_set import LiveNumbers

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from langgraph.checkpoint.serde.base import SerializerProtocol

    from langchain_nanomem.images import Image
    from langchain_nanomem.journal import Record
    from langchain_nanomem.records import SessionRecords
    from langchain_nanomem.working_set import Channel

_MAX_DEPTH = 32


class Elements:
    """Turns channel values into records and back, with one serializer.

    With LangGraph's own serializer what can be read as JSON is written as JSON. Any other
    one, such as one that encrypts, gets to see every value, and nothing is written but what
    it makes of it.

    Args:
        serde: The serializer; LangGraph's own by default.
        redact: What the texts of values go through before the serializer gets to see them;
            None: they are written as they are.
    """

    def __init__(
        self,
        serde: SerializerProtocol | None = None,
        redact: Callable[[str], str] | None = None,
    ) -> None:
        self.redact = redact
        self.serde = serde or BaseCheckpointSaver.serde
        self.readable = type(self.serde) is JsonPlusSerializer
        self.own_objects = self.serde is not BaseCheckpointSaver.serde
        """Whether the serializer is to see all objects, since it may allow only some."""

    def clean(self, value: Any, name: str = "") -> Any:
        """`value` as it may be written; `name` is what it stands behind, if that may tell."""
        return value if self.redact is None else redacted_value(value, self.redact, name)

    def clean_channel(self, channel: str, value: Any) -> Any:
        """The value of a channel as it may be written; that of the pointer is a message's id."""
        return value if channel == POINTER else self.clean(value, channel)

    def clean_fields(self, fields: Mapping[str, Any], kept: Container[str]) -> dict[str, Any]:
        """Fields as they may be written; those of the names `kept` stay."""
        if self.redact is None:
            return dict(fields)
        return redacted_fields(fields, self.redact, kept)

    # --- reading: always fresh objects, that the caller may change ---

    def decode(self, encoded: Encoded, records: SessionRecords) -> Any:
        """The value that was encoded.

        Raises:
            NanomemError: An element of it is missing from the journal.
        """
        if "json" in encoded:
            return from_json(to_json(encoded["json"]))
        if "list" in encoded:
            numbers = records.members(encoded["list"])
            return self._made(numbers, records)
        if "dict" in encoded:
            return {name: self.decode(item, records) for name, item in encoded["dict"].items()}
        if "ref" in encoded:
            return self._element(records, encoded["ref"])
        if "snapshot" in encoded:
            return _DeltaSnapshot(self.decode(encoded["snapshot"], records))
        return self._loads(encoded["serde"])

    def decode_channel(self, channel: Channel, encoded: Encoded, records: SessionRecords) -> Any:
        """The value of a channel for one who only looks at it."""
        del channel
        return self.decode(encoded, records)

    def hand_out(self, channel: Channel, encoded: Encoded, records: SessionRecords) -> Any:
        """The value of a channel for a program that goes on from it.

        Raises:
            NanomemError: An element of it is missing from the journal.
        """
        if "snapshot" in encoded:
            return _DeltaSnapshot(self.hand_out(channel, encoded["snapshot"], records))
        if "list" not in encoded:
            return self.decode(encoded, records)
        live = records.working_for(self.serde).numbers_of(channel, encoded["list"])
        if live is None:
            numbers = records.members(encoded["list"])
            live = LiveNumbers(numbers, records.ranges(encoded["list"]))
        with paused():
            images = self._images(live.numbers, records)
            return records.working_for(self.serde).hand_out(
                channel, live, images, lambda number: self._element(records, number)
            )

    def _made(self, numbers: list[int], records: SessionRecords) -> list[Any]:
        """New elements of these numbers."""
        with paused():
            images = self._images(numbers, records)
            return [
                image.fresh() if image else self._element(records, number)
                for number, image in zip(numbers, images, strict=True)
            ]

    def _images(self, numbers: list[int], records: SessionRecords) -> list[Image | None]:
        known = records.working_for(self.serde).images
        if missing := list(set(numbers).difference(known)):
            for number, element in zip(missing, records.elements.read(missing), strict=True):
                known[number] = self._image_of(number, element, records)
        return list(map(known.__getitem__, numbers))

    def image(self, number: int, records: SessionRecords) -> Image | None:
        """The image of an element as it was written; None if it has none."""
        known = records.working_for(self.serde).images
        if number not in known:
            known[number] = self._image_of(number, records.elements.get(number), records)
        return known[number]

    def _image_of(
        self, number: int, element: Record | None, records: SessionRecords
    ) -> Image | None:
        if element is None or element.get("_type") == "missing":
            raise _missing(number, records)
        if "_type" not in element:
            return image_of_record(element)
        if "message" in element:
            return image_of_record(element["message"])
        return image_of(self.decode(element, records))

    def name(self, number: int, records: SessionRecords) -> bytes:
        """The short name of an element, by its kind and content."""
        element = self._record(records, number)
        kind = b"message" if element.get("_type") in MESSAGE_TYPES else b"element"
        if self.readable:
            return kind + digest(element)
        return kind + self.fingerprint(self.decode(element, records))

    def _record(self, records: SessionRecords, number: int) -> Record:
        element = records.elements.get(number)
        if element is None or element.get("_type") == "missing":
            raise _missing(number, records)
        return element

    def message_record(self, element: Record) -> Record:
        """The readable record of an element that is a message, to be looked at only."""
        if "_type" not in element:
            return element
        if "message" in element:
            return dict(element["message"])
        value = self._loads(element["serde"]) if "serde" in element else element.get("json")
        if isinstance(value, BaseMessage):
            stamp = {"timestamp": element["timestamp"]} if "timestamp" in element else {}
            return _shown(value) | stamp
        if isinstance(value, dict) and "role" in value:
            return dict(value)
        return {"role": "unknown", "content": value}

    def _element(self, records: SessionRecords, number: int) -> Any:
        image = records.working_for(self.serde).images.get(number)
        if image is not None:
            return image.fresh()
        element = self._record(records, number)
        if "_type" not in element:
            return decode(copy_record(element))
        if "message" in element:
            return decode(copy_record(element["message"]))
        return self.decode(element, records)

    def _loads(self, typed: list[str]) -> Any:
        kind, content = typed
        if _is_pickled(kind):
            raise NanomemError(
                "a record holds a pickled value, which this package never writes: its file was "
                "tampered with. Nothing of it was carried out."
            )
        return self.serde.loads_typed((kind, base64.b64decode(content)))

    def line(self, record: Record) -> Record:
        """What stands in the file for a message's record: itself, unless it is not to be read."""
        if self.readable:
            return record
        named: Record = {name: record[name] for name in ("timestamp", "id") if name in record}
        return {"_type": "message", **named, **self.dumps(record)}

    def culprit(self, value: Any, where: str, depth: int = 0) -> str:
        """Where the part of `value` stands that can't be serialized, and what it is."""
        for name, part in _parts(value) if depth < _MAX_DEPTH else ():
            try:
                self.dumps(part)
            except Exception:  # noqa: BLE001 - whatever a serializer raises
                return self.culprit(part, f"{where}.{name}", depth + 1)
        return f"{where!r}, an object of type {type(value).__module__}.{type(value).__qualname__},"

    def dumps(self, value: Any) -> Encoded:
        """`value` as the serializer makes it.

        Raises:
            ValueError: It would have to be pickled. What reads a pickle carries out whatever
                stands in it.
        """
        kind, content = self.serde.dumps_typed(value)
        if _is_pickled(kind):
            raise ValueError("it would have to be pickled, and pickles are never stored")
        return {"serde": [kind, base64.b64encode(content).decode()]}

    def fingerprint(self, value: Any) -> bytes:
        """A short name for the content of a value, the same whenever it is encrypted."""
        serde = self.serde.serde if isinstance(self.serde, EncryptedSerializer) else self.serde
        kind, content = serde.dumps_typed(value)
        return hashlib.blake2b(kind.encode() + b"\0" + content, digest_size=16).digest()


def _missing(number: int, records: SessionRecords) -> NanomemError:
    return NanomemError(
        f"session {records.key!r}: record number {number} is missing from its file, but a "
        "checkpoint contains it; a line was removed. Put it back, or go on from an older "
        "checkpoint."
    )


def _is_pickled(kind: str) -> bool:
    return kind.partition("+")[0] == "pickle"  # an encrypting serializer adds its cipher's name


def _shown(message: BaseMessage) -> Record:
    """The record of any message, to be looked at: what can't be stored is only named."""
    try:
        record = encode(message)
    except ValueError:
        record = {"role": message.type, "content": message.content, "id": message.id}
    return {
        name: value if _storable(value) else f"<{type(value).__qualname__}>"
        for name, value in record.items()
    }


def _storable(value: Any) -> bool:
    try:
        return bool(dump_record({"value": value}))
    except ValueError:
        return False


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, (list, tuple, set, frozenset)):
        return enumerate(value)
    return getattr(value, "__dict__", {}).items()
