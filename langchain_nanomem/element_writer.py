"""Encoding a graph's values for one append: what is there already is only referred to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.messages import BaseMessage, RemoveMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langchain_nanomem.codec import encode_fields, is_whole, said_at, stamped
from langchain_nanomem.folded import POINTER
from langchain_nanomem.images import image_of
from langchain_nanomem.live_lists import LiveList
from langchain_nanomem.numbering import MESSAGE_TYPES, Encoded, digest
from langchain_nanomem.ranges import Ranges
from langchain_nanomem.records import MESSAGES, SessionRecords
from langchain_nanomem.redacted_records import free_name
from langchain_nanomem.values import dump_record, is_plain, to_json
from langchain_nanomem.working_set import Channel, Seen, keys_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from langchain_nanomem.elements import Elements
    from langchain_nanomem.images import Image
    from langchain_nanomem.journal import Record

_OBJECT = b'{"__nanomem__":"object"'
_SMALL_BYTES = 256
"""A list whose JSON is no longer than this is stored as it is; its elements would cost more."""
_CONVERSATION = frozenset({MESSAGES, "__start__"})
_NOWHERE: Channel = ("", "")


class Numbered(NamedTuple):
    """An element and its number."""

    number: int
    image: Image | None


class ElementWriter:
    """Encodes values for one append to one session; `new` are the elements it needs written.

    Call `written` when they are.

    Args:
        elements: How they are written.
        records: The session.
        in_turn: Whether all that was said before is in the file. If not, the messages are there
            early, and get their turn from the next value that has them.
    """

    new: list[Record]

    def __init__(
        self, elements: Elements, records: SessionRecords, *, in_turn: bool = True
    ) -> None:
        self.new = []
        self._in_turn = in_turn
        self._elements = elements
        self._records = records
        self._working = records.working_for(elements.serde)
        self._lists: dict[Channel, LiveList] = {}
        self._names: dict[bytes, int] = {}
        self._runs: dict[tuple[Any, ...], int] = {}
        self._here: dict[Any, Seen] = {}
        self._unnamed: dict[bytes, list[int]] = {}
        self._claimed: set[int] = set()
        self._early: set[int] = set()
        self._base_named: LiveList | None = None

    def written(self) -> None:
        """Note that everything was written: it may be referred to from now on."""
        for channel, one in self._lists.items():
            self._working.put(channel, one)
        for seen in self._here.values():
            self._working.see(seen)
        for name, number in self._names.items():
            self._working.name(name, number)
        self._working.runs |= self._runs
        self._working.claim(self._unnamed, self._claimed)
        self._working.early |= self._early
        self._working.early -= self._claimed

    def encode_channel(self, namespace: str, channel: str, value: Any) -> Encoded:
        """The value that a channel has from now on, encoded.

        Raises:
            ValueError: It can't be serialized; names the channel, and the part of the value.
        """
        return self._encode(namespace, channel, value, (namespace, channel))

    def encode_write(self, namespace: str, channel: str, value: Any) -> Encoded:
        """What a task has written to a channel, encoded.

        Raises:
            ValueError: It can't be serialized; names the channel, and the part of the value.
        """
        return self._encode(namespace, channel, value, _NOWHERE)

    def _encode(self, namespace: str, channel: str, value: Any, place: Channel) -> Encoded:
        conversation = namespace == "" and channel in _CONVERSATION
        try:
            if not self._is_parted(value, conversation, place):
                value = self._elements.clean_channel(channel, value)
            encoded = self._encoded(value, conversation, place)
            return {"ref": self._shared(value, encoded)} if _is_large(encoded) else encoded
        except Exception as error:
            raise ValueError(
                f"the value of the channel {channel!r} cannot be stored: "
                f"{self._elements.culprit(value, channel)} cannot be serialized ({error}). "
                "Nothing was written; the thread is as it was."
            ) from error

    def encode(
        self, value: Any, *, conversation: bool = False, channel: Channel = _NOWHERE
    ) -> Encoded:
        """`value` as a checkpoint or a write refers to it.

        Args:
            value: Any value that the serializer takes.
            conversation: Whether messages in it belong to the session's own conversation, and
                are to stand in the file as message lines.
            channel: Whose value it is, where it is one's.
        """
        if not self._is_parted(value, conversation, channel):
            value = self._elements.clean(value)
        return self._encoded(value, conversation, channel)

    def encode_told(self, fields: dict[str, Any], kept: Container[str]) -> Encoded:
        """What is told of a checkpoint; what LangGraph says by the names `kept` stays."""
        return self._encoded(self._elements.clean_fields(fields, kept), False, _NOWHERE)  # noqa: FBT003

    def _is_parted(self, value: Any, conversation: bool, channel: Channel) -> bool:  # noqa: FBT001 - passed through
        """Whether each part of a value is to be cleaned by itself, and found as it was before."""
        kind = type(value)
        if self._elements.redact is None or isinstance(value, BaseMessage):
            return True
        if kind is _DeltaSnapshot:
            return True
        if kind is list:
            return self._worth_sharing(value, conversation, channel)
        is_dict = kind is dict and self._elements.readable
        return is_dict and _is_input(value, conversation=conversation)

    def _encoded(self, value: Any, conversation: bool, channel: Channel) -> Encoded:  # noqa: FBT001 - passed through
        kind = type(value)
        if kind is list and self._worth_sharing(value, conversation, channel):
            return {"list": self._list(value, conversation, channel)}
        if isinstance(value, BaseMessage):
            return {"ref": self._number(value, conversation).number}
        if kind is _DeltaSnapshot:
            inner = self.encode(value.value, conversation=conversation, channel=channel)
            return {"snapshot": inner}
        if not self._elements.readable:
            return self._elements.dumps(value)
        if kind is dict and _is_input(value, conversation=conversation):
            return {"dict": self._items(value, conversation)}
        return {"json": value} if is_plain(value) else self._elements.dumps(value)

    def _shared(self, value: Any, encoded: Encoded) -> int:
        """The number of a value that is no list, and is stored once: as written and as put."""
        image = image_of(value) if "json" in encoded else None
        if image is not None:
            return self._store(value, image, line=False)
        element = {"_type": "element", **encoded}
        readable = self._elements.readable
        name = digest(element) if readable else self._elements.fingerprint(value)
        return self._by_name(b"element" + name, lambda: element)

    def _items(self, value: dict[str, Any], conversation: bool) -> dict[str, Encoded]:  # noqa: FBT001 - passed through
        """The items of a graph's input, or of the like; its messages are the conversation."""
        items: dict[str, Encoded] = {}
        for name, item in value.items():
            said = conversation and name == MESSAGES
            parted = self._is_parted(item, said, _NOWHERE)
            told = {name: None if parted else item}
            ((shown, clean),) = self._elements.clean_fields(told, {POINTER}).items()
            encoded = self._encoded(item if parted else clean, said, _NOWHERE)
            items[free_name(shown, items)] = encoded
        return items

    # --- lists ---

    def _worth_sharing(self, value: list[Any], conversation: bool, channel: Channel) -> bool:  # noqa: FBT001
        if conversation or not self._elements.readable:
            return bool(value)
        if value and self._working.holds(channel):
            return True
        return not is_plain(value) or len(to_json(value)) > _SMALL_BYTES

    def _list(self, value: list[Any], conversation: bool, channel: Channel) -> list[Any]:  # noqa: FBT001
        """The ranges and runs of a list's numbers."""
        value = value.copy()  # the program may go on with its own meanwhile
        base = self._working.like(channel, value, anywhere=not conversation)
        parts = base.parts_of(value) if base else []
        numbers = [number for a, b in parts for number in base.numbers[a:b]] if base else []
        images = [image for a, b in parts for image in base.images[a:b]] if base else []
        for place, image in enumerate(images) if base and base.loose else ():
            if image is None:
                numbers[place] = self._number(value[place], conversation, base).number
        rest = None if base and parts == [(0, len(base.objects))] else base
        for element in value[len(numbers) :]:
            number, image = self._number(element, conversation, rest)
            numbers.append(number)
            images.append(image)
        one = LiveList(value, numbers, images, base=base, parts=parts)
        one.ranges = self._ranges(base, numbers)
        if channel[1]:
            self._lists[channel] = one
        return one.ranges.written()

    def _ranges(self, base: LiveList | None, numbers: list[int]) -> Ranges:
        """`numbers` as ranges; as those of `base` and a little more, where they are."""
        count = len(base.numbers) if base and base.ranges else 0
        if base and base.ranges and count <= len(numbers) and base.numbers == numbers[:count]:
            ranges = base.ranges.copy()
        else:
            ranges, count = Ranges(), 0
        ranges.extend(numbers[count:], self._run)
        return ranges

    def _run(self, spans: list[Any]) -> int:
        key = tuple(span if isinstance(span, int) else tuple(span) for span in spans)
        known = self._runs.get(key, self._working.runs.get(key))
        if known is None:
            known = self._runs[key] = self._add({"_type": "element", "list": spans})
        return known

    # --- elements ---

    def _number(
        self,
        value: Any,
        conversation: bool,  # noqa: FBT001 - passed through
        base: LiveList | None = None,
    ) -> Numbered:
        """The number of the element that is `value`; a new one is added where there is none."""
        image = image_of(value)
        line = conversation and self._is_line(value)
        if image is None:
            number = self._loose(self._elements.clean(value), line, base)
            return Numbered(self._in_its_turn(number, value) if line else number, None)
        found = self._at_hand(value, image, line, base)
        number = self._of_clean(value, image, line) if found is None else found
        if line:
            number = self._in_its_turn(number, value)
        if number != found:
            self._see(Seen(value, image, number))
        return Numbered(number, image)

    def _in_its_turn(self, number: int, message: BaseMessage) -> int:
        """The number of a message line; a new one, where it was there before its turn."""
        if not self._in_turn:
            if number >= self._records.next_number:
                self._early.add(number)
            return number
        is_early = number in self._working.early and number not in self._claimed
        return number if message.id is None or not is_early else self._named_now(number, message.id)

    def _of_clean(self, value: Any, image: Image, line: bool) -> int:  # noqa: FBT001 - passed through
        """The number of an element as it may be written: what is in the file is so, too."""
        clean = self._elements.clean(value)
        written = image if clean is value else image_of(clean)
        if written is None:  # pragma: no cover - what is plain stays plain
            return self._loose(clean, line, None)
        number = self._known(clean, written, line)
        return self._store(clean, written, line) if number is None else number

    def _is_line(self, value: Any) -> bool:
        """Whether it is a message that stands in a line, if it is of the conversation.

        Where the line can't be read it must have its id, which can't be added later.
        """
        if not isinstance(value, BaseMessage) or isinstance(value, RemoveMessage):
            return False
        return self._elements.readable or value.id is not None

    def _at_hand(self, value: Any, image: Image, line: bool, base: LiveList | None) -> int | None:  # noqa: FBT001
        """The number of an element that the program has still, and that stands where it has to."""
        for seen in self._seen_before(value):
            if (not line or self._stands_in_line(seen.number)) and seen.image.equals(image):
                return seen.number
        return None if base is None else base.find(value, image)

    def _known(self, value: Any, image: Image, line: bool) -> int | None:  # noqa: FBT001
        """The number of an element that is in the file already, as it is written."""
        number = self._number_of_id(getattr(value, "id", None))
        stored = None if number is None else self._elements.image(number, self._records)
        if stored and stored.equals(image):
            return number
        return self._named(value.id, image) if line and self._elements.readable else None

    def _number_of_id(self, message_id: Any) -> int | None:
        return self._records.message_ids.get(message_id) if type(message_id) is str else None

    def _named(self, message_id: str | None, image: Image) -> int | None:
        """The number of a message that was written before it was given its id; None of others."""
        name = _without_id(image).name()
        waiting = (*self._working.unnamed.get(name, ()), *self._unnamed.get(name, ()))
        number = next((one for one in waiting if one not in self._claimed), None)
        if number is None or message_id is None:
            return None
        return self._named_now(number, message_id)

    def _named_now(self, number: int, message_id: str) -> int:
        self._claimed.add(number)
        return self._add({"_type": "message", "of": number, "id": message_id})

    def _seen_before(self, value: Any) -> list[Seen]:
        here = [self._here[key] for key in keys_of(value) if key in self._here]
        return [*here, *self._working.seen(value)]

    def _see(self, seen: Seen) -> None:
        for key in keys_of(seen.element):
            self._here[key] = seen

    def _stands_in_line(self, number: int) -> bool:
        place = number - self._records.next_number
        element = self.new[place] if place >= 0 else self._records.elements[number]
        return element.get("_type") in MESSAGE_TYPES

    def _element(self, value: Any, image: Image, line: bool) -> Record:  # noqa: FBT001 - passed through
        if not self._elements.readable:
            return self._opaque(value, line)
        if not isinstance(value, BaseMessage):
            return {"_type": "element", "json": image.content}
        record = _readable(image.cls, image.content, {})
        if record is None:
            return self._opaque(value, line and value.id is not None)
        return record if line else {"_type": "element", "message": record}

    def _store(self, value: Any, image: Image, line: bool) -> int:  # noqa: FBT001 - passed through
        """The number of an element that is not at hand: that of an equal one, or a new one.

        What two people say in the same words is said twice, and stands in two lines.
        """
        if line:
            element = self._element(value, image, line)
            number = self._add(element)
            if value.id is None and "role" in element:
                self._unnamed.setdefault(image.name(), []).append(number)
            return number
        return self._by_name(image.name(), lambda: self._element(value, image, line))

    def _loose(self, value: Any, line: bool, base: LiveList | None) -> int:  # noqa: FBT001
        """The number of an element that has no image: it is told by how it is written."""
        element = self._loose_element(value, line) if self._elements.readable else {}
        self._name_loose(base)
        kind = b"message" if line else b"element"
        if not self._elements.readable:
            name = kind + self._elements.fingerprint(value)
            return self._by_name(name, lambda: self._opaque(value, line))
        name = kind + digest(element)
        known = self._number_of_id(element.get("id"))
        if known is not None and self._elements.name(known, self._records) == name:
            return known
        return self._by_name(name, lambda: element)

    def _name_loose(self, base: LiveList | None) -> None:
        """Have the elements without an image found by their names, all of them at once."""
        if base is None or base is self._base_named:
            return
        self._base_named = base
        for number in base.loose_numbers():
            if number not in self._working.named:
                self._working.name(self._elements.name(number, self._records), number)

    def _loose_element(self, value: Any, line: bool) -> Record:  # noqa: FBT001 - passed through
        if not isinstance(value, BaseMessage):
            return {"_type": "element", **self._elements.dumps(value)}
        record = _readable(type(value), value.__dict__, value.__pydantic_extra__ or {})
        try:
            has_objects = record is None or _OBJECT in dump_record(record)
        except ValueError:  # an artifact that only the serializer can store
            record = None
        if record is None or (has_objects and self._elements.own_objects):
            return self._opaque(value, line and value.id is not None)
        return record if line else {"_type": "element", "message": record}

    def _opaque(self, value: Any, line: bool) -> Record:  # noqa: FBT001 - passed through
        encoded = self._elements.dumps(value)
        if not line:
            return {"_type": "element", **encoded}
        stamp = said_at(value.additional_kwargs)
        return {"_type": "message", "timestamp": stamp, "id": value.id, **encoded}

    def _by_name(self, name: bytes, element: Callable[[], Record]) -> int:
        number = self._names.get(name, self._working.names.get(name))
        if number is None:
            number = self._names[name] = self._add(element())
        return number

    def _add(self, element: Record) -> int:
        number = self._records.next_number + len(self.new)
        line = element if "_type" in element else stamped(element)
        self.new.append({**line, "_n": number})
        return number


def _readable(
    cls: type[BaseMessage], fields: dict[str, Any], extra: dict[str, Any]
) -> Record | None:
    """The record of a message that is this message again; None where only the serializer can."""
    try:
        record = encode_fields(cls, fields, extra)
        return record if is_whole(record, fields) else None
    except (TypeError, ValueError):  # another's class, or what its fields can't have
        return None


def _is_large(encoded: Encoded) -> bool:
    """Whether a value is worth an element of its own, if it is written twice."""
    value = encoded.get("json", encoded.get("serde"))
    if value is None or isinstance(value, (bool, int, float)):
        return False
    if isinstance(value, str):
        return len(value) > _SMALL_BYTES
    return len(to_json(value)) > _SMALL_BYTES


def _without_id(image: Image) -> Image:
    return image._replace(content={**image.content, "id": None})


def _is_input(value: dict[Any, Any], *, conversation: bool) -> bool:
    """Whether it is what a graph is given, or the like: with messages that will come again."""
    if not all(type(name) is str for name in value):
        return False
    has_messages = conversation and type(value.get(MESSAGES)) is list
    return has_messages or any(map(_holds_messages, value.values()))


def _holds_messages(value: Any) -> bool:
    items = value if type(value) is list else [value]
    return any(isinstance(item, BaseMessage) for item in items)
