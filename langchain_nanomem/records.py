"""What the records of one session mean, and how new ones are made.

A record without ``_type`` is a message. Messages, and other values of which a checkpoint's
list is made, are *elements*: each carries its number ``_n``, is stored once, and is referred
to by it, so that a checkpoint of a thousand messages is one range of numbers. Where it takes
many ranges, an element of its own, a *run*, stands for the first of them.

=====================  ==================================================================
``metadata``           key, creation, pointer, scope, the program's own; the last one wins
``message``            a message of the conversation that only the serializer can read
``element``            an element that is no message of the conversation itself, or a run
``checkpoint``         a checkpoint of a graph, with the channel values new in it
``writes``             what a task of a graph wrote, before the next checkpoint
``consolidation``      a model's answer: what is to go into memory, for which messages
``consolidated``       that it is there; moves the pointer
``consolidation_failed``  that a model gave no usable answer
=====================  ==================================================================
"""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import writes_sort_key

from langchain_nanomem.errors import UnsupportedFormatError
from langchain_nanomem.journal import ORIGIN, Position, Record
from langchain_nanomem.session import parse_timestamp, valid_pointer
from langchain_nanomem.values import dump_record, load_record
from langchain_nanomem.working_set import WorkingSet

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator
    from datetime import datetime

FORMAT_VERSION = 1
MESSAGES = "messages"
"""The channel that holds a graph's conversation."""
_ALL_MESSAGES = "__remove_all__"
"""The id by which LangGraph's `RemoveMessage` means all of them."""
MESSAGE_TYPES = frozenset({None, "message"})
"""The types of records that are messages of the session's own conversation."""
ELEMENT_TYPES = MESSAGE_TYPES | {"element"}
_OURS = frozenset({"_type", "_n", "_more"})

Encoded = dict[str, Any]
Mark = tuple[Any, bool]
"""The id of a message, and whether it is a system message."""
Numbered = dict[int, Record]
"""Elements by their numbers."""
Write = tuple[str, str, Encoded, str]
"""Task id, channel, encoded value, task path."""


def copy_record(record: Record) -> Record:
    """A record equal to `record` that shares nothing with it."""
    return load_record(dump_record(record))


def digest(record: Record) -> bytes:
    """A short name for the content of an element; its number and time don't count."""
    content = {name: v for name, v in record.items() if name != "timestamp" and name not in _OURS}
    return hashlib.blake2b(dump_record(content), digest_size=16).digest()


def number_of(record: Record, taken: Container[int], following: int) -> int:
    """The number of an element; `following` if a person or another program wrote, or copied, it."""
    number = record.get("_n")
    return number if type(number) is int and number not in taken else following


def members(spans: Iterable[Any], elements: Numbered) -> Iterator[int]:
    """The numbers of a list's elements, in their order; of a run that is missing, its own."""
    for span in spans:
        if not isinstance(span, int):
            yield from range(*span)
        elif span in elements:
            yield from members(elements[span]["list"], elements)
        else:
            yield span


def references(encoded: Any, elements: Numbered) -> Iterator[int]:
    """The numbers of all elements that an encoded value refers to, runs included."""
    if "list" in encoded:
        for span in encoded["list"]:
            if isinstance(span, int):
                yield span
                yield from references(elements.get(span, {}), elements)
            else:
                yield from range(*span)
    elif "ref" in encoded:
        yield encoded["ref"]
    elif "dict" in encoded:
        for item in encoded["dict"].values():
            yield from references(item, elements)
    elif "snapshot" in encoded:
        yield from references(encoded["snapshot"], elements)


class SessionRecords:
    """The records of one session, folded in their order into what holds now.

    Not thread-safe by itself: hold `guard` while you read it, the journal's lock while you
    fold more into it.
    """

    def __init__(self, key: str, message_record: Callable[[Record], Record]) -> None:
        self.key = key
        self._message_record = message_record
        self.guard = threading.RLock()
        self.reset()

    def reset(self) -> None:
        """Forget everything; the journal is to be read anew."""
        self.end: Position = ORIGIN
        self.working = WorkingSet()
        self.header: Record = {}
        self.elements: Numbered = {}
        self.line_numbers: dict[int, None] = {}
        """The numbers of the message lines, in their order; of one that was given its id only
        after it had been written, the number that it has since."""
        self.message_ids: dict[str, int] = {}
        self.next_number = 0
        self.checkpoints: dict[str, dict[str, Record]] = {}
        self.values: dict[tuple[str, str, Any], Encoded] = {}
        self.writes: dict[tuple[str, str], dict[tuple[str, int], Write]] = {}
        self.before_graph: tuple[int, ...] | None = None
        """Messages that were there before the first checkpoint and are in none."""
        self.consolidations: list[Record] = []
        self.consolidated_ids: set[str] = set()
        self.unfinished: Record | None = None
        self.failures = 0
        self._pointer: Any = 0
        self.referred: set[int] = set()
        """The numbers of all elements that a checkpoint or a write refers to."""

    # --- folding ---

    def fold(self, records: Iterable[Record], end: Position) -> None:
        """Take in the records that follow those folded so far."""
        for record in records:
            kind = record.get("_type")
            if kind is None:
                self._fold_message(record)
            elif fold := getattr(self, f"_fold_{kind}", None):
                fold(record)
        self.end = end

    def _fold_message(self, record: Record) -> None:
        if record.get("_type") == "message":
            self.line_numbers.pop(record.get("of", -1), None)
        number = self._number(record)
        self.line_numbers[number] = None
        if isinstance(record.get("id"), str):
            self.message_ids[record["id"]] = number

    def _fold_element(self, record: Record) -> None:
        self._number(record)

    def _number(self, record: Record) -> int:
        number = number_of(record, self.elements, self.next_number)
        record.pop("_n", None)
        if "of" in record and record.get("_type") == "message":
            record = self._named(record)
        self.elements[number] = record
        self.next_number = max(self.next_number, number + 1)
        return number

    def _named(self, record: Record) -> Record:
        """The message that was given its id only after it had been written."""
        whole = self.elements.get(record["of"], {"_type": "missing"})
        return {**whole, "id": record["id"]}

    def _fold_metadata(self, record: Record) -> None:
        version = record.get("v", FORMAT_VERSION)
        if not isinstance(version, int) or version > FORMAT_VERSION:
            raise UnsupportedFormatError(
                f"session {self.key!r} was written in format {version!r}; this version of "
                f"langchain-nanomem reads up to {FORMAT_VERSION}. Upgrade langchain-nanomem."
            )
        self.header |= record
        if "last_consolidated" in record:
            self._pointer = record["last_consolidated"]

    def _fold_checkpoint(self, record: Record) -> None:
        namespace = record["ns"]
        for channel, (version, encoded) in record["values"].items():
            self.values[namespace, channel, version] = encoded
            self.referred.update(references(encoded, self.elements))
        if namespace == "" and self.before_graph is None:
            self.before_graph = self._before(record)
        self.checkpoints.setdefault(namespace, {})[record["id"]] = record

    def _before(self, first: Record) -> tuple[int, ...]:
        """What stood before the first checkpoint; one of a rewritten journal says it itself."""
        if "before" in first:
            return tuple(members(first["before"], self.elements))
        return tuple(n for n in self.line_numbers if n not in self.referred)

    def _fold_writes(self, record: Record) -> None:
        """Of two writes at one place the first stays; a special one (below 0) is replaced."""
        kept = self.writes.setdefault((record["ns"], record["id"]), {})
        for index, channel, encoded in record["writes"]:
            place = (record["task"], index)
            if index < 0 or place not in kept:
                kept[place] = (record["task"], channel, encoded, record["path"])
                self.referred.update(references(encoded, self.elements))

    def _fold_consolidation(self, record: Record) -> None:
        self.unfinished = record

    def _fold_consolidated(self, record: Record) -> None:
        if self.unfinished is not None and self.unfinished["id"] == record["id"]:
            self.consolidations.append(self.unfinished)
            self.consolidated_ids.update(filter(None, self.unfinished["ids"]))
            self.unfinished = None
        self._pointer = record["last_consolidated"]
        self.failures = 0

    def _fold_consolidation_failed(self, record: Record) -> None:
        self.failures = record["count"]

    # --- what holds now ---

    @property
    def exists(self) -> bool:
        """Whether there is anything of the session in the journal."""
        return self.end != ORIGIN

    @property
    def uid(self) -> str | None:
        """What tells this journal from a later one of the same key."""
        return self.header.get("uid")

    @property
    def is_thread(self) -> bool:
        """Whether a graph keeps its checkpoints here."""
        return "" in self.checkpoints

    @property
    def scope(self) -> tuple[str, ...] | None:
        """Whose memory the session belongs to; None while no one said."""
        scope = self.header.get("scope")
        return None if scope is None else tuple(scope)

    def moment(self, name: str) -> datetime | None:
        """``created_at`` or ``updated_at``."""
        return parse_timestamp(self.header.get(name))

    def members(self, spans: Iterable[Any]) -> list[int]:
        """The numbers of a list's elements, in their order."""
        return list(members(spans, self.elements))

    def message(self, number: int) -> Record:
        """The record of a message, to be looked at only."""
        return self._message_record(self.elements[number])

    def view(self) -> list[int]:
        """The numbers of the session's messages, oldest first.

        Of a graph's thread: what was there before it, and the newest checkpoint's messages.
        """
        root = self.checkpoints.get("")
        if not root:
            return list(self.line_numbers)
        newest = self._messages_of(root[max(root)])
        shown = set(newest)
        return [*(n for n in self.before_graph or () if n not in shown), *newest]

    def _messages_of(self, checkpoint: Record) -> list[int]:
        """The numbers of a root checkpoint's messages.

        A delta channel keeps no value with most checkpoints: its messages are those of the
        nearest ancestor with a value, and what was written since.
        """
        since: list[str] = []
        at: Record | None = checkpoint
        while at and MESSAGES in at["versions"] and self._value_at(at) is None:
            since += [at["parent"]]
            at = self.checkpoints[""].get(at["parent"])
        numbers = self._messages_in(self._value_at(at) if at else None)
        return self._written(numbers, reversed(since)) if since else numbers

    def _value_at(self, checkpoint: Record) -> Encoded | None:
        """What the messages' channel holds there itself; None for nothing."""
        version = checkpoint["versions"].get(MESSAGES)
        encoded = self.values.get(("", MESSAGES, version))
        return None if encoded is None or "empty" in encoded else encoded

    def _messages_in(self, encoded: Encoded | None) -> list[int]:
        encoded = (encoded or {}).get("snapshot", encoded or {})
        if "ref" in encoded:
            return [encoded["ref"]]
        return list(members(encoded.get("list", ()), self.elements))

    def _written(self, numbers: list[int], checkpoint_ids: Iterable[str]) -> list[int]:
        """`numbers` after the writes of these checkpoints: by id, as LangGraph adds messages."""
        found = {self.message(n).get("id") or n: n for n in numbers}
        for checkpoint_id in checkpoint_ids:
            for _, channel, encoded, _ in self.writes_of("", checkpoint_id):
                for number in self._messages_in(encoded) if channel == MESSAGES else ():
                    record = self.message(number)
                    if record.get("id") == _ALL_MESSAGES:
                        found.clear()
                    elif record["role"] == "remove":
                        found.pop(record["id"], None)
                    else:
                        found[record.get("id") or number] = number
        return list(found.values())

    def writes_of(self, namespace: str, checkpoint_id: str) -> list[Write]:
        """What was written at a checkpoint, in the order in which LangGraph applies it."""
        stored = self.writes.get((namespace, checkpoint_id), {})
        order = sorted(stored, key=lambda place: writes_sort_key(stored[place][3], *place))
        return [stored[place] for place in order]

    def pointer(self, view: list[int]) -> int:
        """The number of leading messages of `view` that are in memory."""
        if self.is_thread:
            return self.covered(self.marks(view))
        return valid_pointer(self._pointer, len(view), self.key)

    def marks(self, view: list[int]) -> Iterator[Mark]:
        """What tells of each message of `view` whether it is in memory."""
        records = (self.message(number) for number in view)
        return ((record.get("id"), record.get("role") == "system") for record in records)

    def covered(self, marks: Iterable[Mark], also: Iterable[Any] = ()) -> int:
        """How many leading ones of these messages were consolidated, on whatever branch.

        Args:
            marks: Of the messages, in order. A system message counts if one behind it does.
            also: More ids that count as consolidated.
        """
        known = self.consolidated_ids.union(also)
        covered = 0
        for place, (message_id, is_system) in enumerate(marks, start=1):
            if message_id in known:
                covered = place
            elif not is_system:
                break
        return covered
