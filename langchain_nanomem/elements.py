"""The values of a graph's channels as records: each message and each list element once."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, RemoveMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langchain_nanomem.codec import decode, encode, said_at, stamped
from langchain_nanomem.errors import NanomemError
from langchain_nanomem.records import (
    MESSAGES,
    Encoded,
    SessionRecords,
    copy_record,
    digest,
    members,
)
from langchain_nanomem.values import dump_record, from_json, is_plain, to_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langgraph.checkpoint.serde.base import SerializerProtocol

    from langchain_nanomem.journal import Record

_RUN_LENGTH = 16
"""How many ranges, or runs, one run stands for."""
_MAX_DEPTH = 32
_OBJECT = b'{"__nanomem__":"object"'
_SMALL_BYTES = 256
"""A list whose JSON is no longer than this is stored as it is; its elements would cost more."""


class Elements:
    """Turns channel values into records and back, with one serializer.

    With LangGraph's own serializer what can be read as JSON is written as JSON. Any other
    one, such as one that encrypts, gets to see every value, and nothing is written but what
    it makes of it.

    Args:
        serde: The serializer; LangGraph's own by default.
    """

    def __init__(self, serde: SerializerProtocol | None = None) -> None:
        self.serde = serde or BaseCheckpointSaver.serde
        self.readable = type(self.serde) is JsonPlusSerializer
        self.own_objects = self.serde is not BaseCheckpointSaver.serde
        """Whether the serializer is to see all objects, since it may allow only some."""

    # --- reading: always fresh objects, that the caller may change ---

    def decode(self, encoded: Encoded, records: SessionRecords) -> Any:
        """The value that was encoded.

        Raises:
            NanomemError: An element of it is missing from the journal.
        """
        if "json" in encoded:
            return from_json(to_json(encoded["json"]))
        if "list" in encoded:
            numbers = members(encoded["list"], records.elements)
            return [self._element(records, number) for number in numbers]
        if "dict" in encoded:
            return {name: self.decode(item, records) for name, item in encoded["dict"].items()}
        if "ref" in encoded:
            return self._element(records, encoded["ref"])
        if "snapshot" in encoded:
            return _DeltaSnapshot(self.decode(encoded["snapshot"], records))
        return self._loads(encoded["serde"])

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
        element = records.elements.get(number)
        if element is None:
            raise NanomemError(
                f"session {records.key!r}: record number {number} is missing from its file, but a "
                "checkpoint contains it; a line was removed. Put it back, or go on from an older "
                "checkpoint."
            )
        if "_type" not in element:
            return decode(copy_record(element))
        if "message" in element:
            return decode(copy_record(element["message"]))
        return self.decode(element, records)

    def _loads(self, typed: list[str]) -> Any:
        return self.serde.loads_typed((typed[0], base64.b64decode(typed[1])))

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
        """`value` as the serializer makes it."""
        kind, content = self.serde.dumps_typed(value)
        return {"serde": [kind, base64.b64encode(content).decode()]}

    def fingerprint(self, value: Any) -> bytes:
        """A short name for the content of a value, the same whenever it is encrypted."""
        serde = self.serde.serde if isinstance(self.serde, EncryptedSerializer) else self.serde
        kind, content = serde.dumps_typed(value)
        return hashlib.blake2b(kind.encode() + b"\0" + content, digest_size=16).digest()


class ElementWriter:
    """Encodes values for one append to one session; `new` are the elements it needs written."""

    new: list[Record]

    def __init__(self, elements: Elements, records: SessionRecords) -> None:
        self.new = []
        self._elements = elements
        self._records = records
        self._added: dict[bytes, int] = {}

    def encode_channel(self, channel: str, value: Any, *, conversation: bool) -> Encoded:
        """The value of a channel, encoded.

        Raises:
            ValueError: It can't be serialized; names the channel, and the part of the value.
        """
        try:
            return self.encode(value, conversation=conversation)
        except Exception as error:
            raise ValueError(
                f"the value of the channel {channel!r} cannot be stored: "
                f"{self._elements.culprit(value, channel)} cannot be serialized ({error}). "
                "Nothing was written; the thread is as it was."
            ) from error

    def encode(self, value: Any, *, conversation: bool = False) -> Encoded:
        """`value` as a checkpoint or a write refers to it.

        Args:
            value: Any value that the serializer takes.
            conversation: Whether messages in it belong to the session's own conversation, and
                are to stand in the file as message lines.
        """
        kind = type(value)
        if kind is list and self._worth_sharing(value, conversation):
            return {"list": self._runs(_spans([self._number(v, conversation) for v in value]))}
        if isinstance(value, BaseMessage):
            return {"ref": self._number(value, conversation)}
        if kind is _DeltaSnapshot:
            return {"snapshot": self.encode(value.value, conversation=conversation)}
        if not self._elements.readable:
            return self._elements.dumps(value)
        if kind is dict and any(map(_holds_messages, value.values())) and _named(value):
            return {"dict": self._items(value, conversation)}
        return {"json": value} if is_plain(value) else self._elements.dumps(value)

    def _items(self, value: dict[str, Any], conversation: bool) -> dict[str, Encoded]:  # noqa: FBT001 - passed through
        """The items of a graph's input, or of the like; its messages are the conversation."""
        return {
            name: self.encode(item, conversation=conversation and name == MESSAGES)
            for name, item in value.items()
        }

    def _runs(self, spans: list[Any]) -> list[Any]:
        """`spans` shortened: a run stands for every `_RUN_LENGTH` of them but the last ones.

        Without it, a list beside which other elements are written would take one more span
        at each turn in each of its checkpoints.
        """
        whole = (len(spans) - 1) // _RUN_LENGTH * _RUN_LENGTH
        if whole <= 0:
            return spans
        groups = [spans[start : start + _RUN_LENGTH] for start in range(0, whole, _RUN_LENGTH)]
        return [*self._runs([self._run(group) for group in groups]), *spans[whole:]]

    def _run(self, spans: list[Any]) -> int:
        run = {"_type": "element", "list": spans}
        name = digest(run)
        known = self._added.get(name, self._records.element_digests.get(name))
        return self._add(name, run) if known is None else known

    def _worth_sharing(self, value: list[Any], conversation: bool) -> bool:  # noqa: FBT001 - passed through
        if conversation or not self._elements.readable:
            return bool(value)
        return not is_plain(value) or len(to_json(value)) > _SMALL_BYTES

    def _number(self, value: Any, conversation: bool) -> int:  # noqa: FBT001 - passed through
        """The number of the element that is `value`; a new one is added where there is none."""
        if not self._elements.readable:
            return self._opaque_number(value, conversation)
        element = self._readable_element(value, conversation)
        name = digest(element)
        known = self._added.get(name, self._records.message_digests.get(name))
        if known is None and "_type" in element:
            known = self._records.element_digests.get(name)
        return self._add(name, element) if known is None else known

    def _readable_element(self, value: Any, conversation: bool) -> Record:  # noqa: FBT001
        if not isinstance(value, BaseMessage):
            plain = is_plain(value)
            return {
                "_type": "element",
                **({"json": value} if plain else self._elements.dumps(value)),
            }
        try:
            record = encode(value)
            foreign = _OBJECT in dump_record(record) and self._elements.own_objects
        except ValueError:  # a class or an artifact that only the serializer can store
            foreign = True
        if foreign:
            return self._opaque_element(value, conversation)
        if conversation and _has_its_place(value):
            return record
        return {"_type": "element", "message": record}

    def _opaque_element(self, value: Any, conversation: bool) -> Record:  # noqa: FBT001 - passed through
        encoded = self._elements.dumps(value)
        if not (conversation and _has_its_place(value)):
            return {"_type": "element", **encoded}
        stamp = said_at(value.additional_kwargs)
        return {"_type": "message", "timestamp": stamp, "id": value.id, **encoded}

    def _opaque_number(self, value: Any, conversation: bool) -> int:  # noqa: FBT001 - passed through
        kind = "message" if conversation and _has_its_place(value) else "element"
        name = kind.encode() + self._elements.fingerprint(value)
        known = self._added.get(name, self._opaque_digests().get(name))
        if known is not None:
            return known
        return self._add(name, self._opaque_element(value, conversation))

    def _opaque_digests(self) -> dict[bytes, int]:
        known = self._records.opaque_digests
        for number in range(self._records.opaque_end, self._records.next_number):
            element = self._records.elements.get(number, {})
            if "serde" in element:
                value = self._elements.decode(element, self._records)
                name = element["_type"].encode() + self._elements.fingerprint(value)
                known[name] = number
        self._records.opaque_end = self._records.next_number
        return known

    def _add(self, name: bytes, element: Record) -> int:
        number = self._added[name] = self._records.next_number + len(self.new)
        line = element if "_type" in element else stamped(element)
        self.new.append({**line, "_n": number})
        return number


def _has_its_place(value: Any) -> bool:
    """Whether it is a message that stays: one without an id is to be written again with it."""
    return (
        isinstance(value, BaseMessage)
        and value.id is not None
        and not isinstance(value, RemoveMessage)
    )


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


def _named(value: dict[Any, Any]) -> bool:
    return all(type(name) is str for name in value)


def _holds_messages(value: Any) -> bool:
    items = value if type(value) is list else [value]
    return any(isinstance(item, BaseMessage) for item in items)


def _spans(numbers: list[int]) -> list[list[int]]:
    """Runs of numbers that follow each other, each as its start and its end."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number:
            spans[-1][1] += 1
        else:
            spans.append([number, number + 1])
    return spans
