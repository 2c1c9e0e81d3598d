"""The values of a graph's channels as records: each message and each list element once."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langchain_nanomem.codec import decode, encode, stamped
from langchain_nanomem.errors import NanomemError
from langchain_nanomem.records import Encoded, SessionRecords, copy_record, digest
from langchain_nanomem.values import dump_record, from_json, is_plain, to_json

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from langchain_nanomem.journal import Record

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
        self.serde = serde or JsonPlusSerializer()
        self.readable = type(self.serde) is JsonPlusSerializer

    # --- reading: always fresh objects, that the caller may change ---

    def decode(self, encoded: Encoded, records: SessionRecords) -> Any:
        """The value that was encoded.

        Raises:
            NanomemError: An element of it is missing from the journal.
        """
        if "json" in encoded:
            return from_json(to_json(encoded["json"]))
        if "list" in encoded:
            spans = encoded["list"]
            return [self._element(records, n) for start, end in spans for n in range(start, end)]
        if "dict" in encoded:
            return {name: self.decode(item, records) for name, item in encoded["dict"].items()}
        if "ref" in encoded:
            return self._element(records, encoded["ref"])
        return self._loads(encoded["serde"])

    def message_record(self, element: Record) -> Record:
        """The readable record of an element that is a message, to be looked at only."""
        if "_type" not in element:
            return element
        if "message" in element:
            return dict(element["message"])
        value = self._loads(element["serde"]) if "serde" in element else element.get("json")
        if isinstance(value, BaseMessage):
            return {**encode(value), "timestamp": element.get("timestamp")}
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

    def encode(self, value: Any, *, conversation: bool = False) -> Encoded:
        """`value` as a checkpoint or a write refers to it.

        Args:
            value: Any value that the serializer takes.
            conversation: Whether messages in it belong to the session's own conversation, and
                are to stand in the file as message lines.
        """
        kind = type(value)
        if kind is list and self._worth_sharing(value):
            return {"list": _spans([self._number(item, conversation) for item in value])}
        if not self._elements.readable:
            return self._elements.dumps(value)
        if isinstance(value, BaseMessage):
            return {"ref": self._number(value, conversation)}
        if kind is dict and any(map(_holds_messages, value.values())) and _named(value):
            encode_item = self.encode
            return {
                "dict": {n: encode_item(v, conversation=conversation) for n, v in value.items()}
            }
        return {"json": value} if is_plain(value) else self._elements.dumps(value)

    def _worth_sharing(self, value: list[Any]) -> bool:
        if not self._elements.readable:
            return bool(value)
        return not is_plain(value) or len(to_json(value)) > _SMALL_BYTES

    def _number(self, value: Any, conversation: bool) -> int:  # noqa: FBT001 - passed through
        """The number of the element that is `value`; a new one is added where there is none."""
        if not self._elements.readable:
            return self._opaque_number(value)
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
            dump_record(record)
        except ValueError:  # a class or an artifact that only the serializer can store
            return {"_type": "element", **self._elements.dumps(value)}
        # A message without an id is about to get one, and to be written again with it.
        if conversation and record["role"] != "remove" and record.get("id") is not None:
            return record
        return {"_type": "element", "message": record}

    def _opaque_number(self, value: Any) -> int:
        name = self._elements.fingerprint(value)
        known = self._added.get(name, self._opaque_digests().get(name))
        if known is not None:
            return known
        return self._add(name, {"_type": "element", **self._elements.dumps(value)})

    def _opaque_digests(self) -> dict[bytes, int]:
        known = self._records.opaque_digests
        for number in range(self._records.opaque_end, self._records.next_number):
            element = self._records.elements.get(number, {})
            if "serde" in element:
                value = self._elements.decode(element, self._records)
                known[self._elements.fingerprint(value)] = number
        self._records.opaque_end = self._records.next_number
        return known

    def _add(self, name: bytes, element: Record) -> int:
        number = self._added[name] = self._records.next_number + len(self.new)
        line = element if "_type" in element else stamped(element)
        self.new.append({**line, "_n": number})
        return number


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
