"""Encoding a graph's values for one append: what is there already is only referred to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, RemoveMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langchain_nanomem.codec import encode, said_at, stamped
from langchain_nanomem.records import MESSAGES, Encoded, SessionRecords, digest
from langchain_nanomem.values import dump_record, is_plain, to_json

if TYPE_CHECKING:
    from langchain_nanomem.elements import Elements
    from langchain_nanomem.journal import Record

_RUN_LENGTH = 16
"""How many ranges, or runs, one run stands for."""
_OBJECT = b'{"__nanomem__":"object"'
_SMALL_BYTES = 256
"""A list whose JSON is no longer than this is stored as it is; its elements would cost more."""


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
