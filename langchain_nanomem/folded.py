"""The records of one session, folded in their order into what is known of them.

A record without ``_type`` is a message. Messages, and other values of which a checkpoint's
list is made, are *elements*: each carries its number ``_n``, is stored once, and is referred
to by it, so that a checkpoint of a thousand messages is one range of numbers. Where it takes
many ranges, an element of its own, a *run*, stands for the first of them.

=====================  ==================================================================
``metadata``           key, creation, pointer, scope, the program's own; the last one wins
``message``            a message of the conversation that only the serializer can read
``element``            an element that is no message of the conversation itself, or a run
``checkpoint``         a checkpoint of a graph, with the channel values new in it
``ancestor``           what remains of a removed checkpoint: later ones are rebuilt from it
``writes``             what a task of a graph wrote, before the next checkpoint
``consolidation``      a model's answer: what is to go into memory, for which messages
``consolidated``       that it is there; moves the pointer
``consolidation_failed``  that a model gave no usable answer
``trimmed``            messages that leave a graph's state, since they are in memory
=====================  ==================================================================
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import writes_sort_key

from langchain_nanomem.checkpoint_record import shortened_key, understood, versions_brought
from langchain_nanomem.errors import (
    CorruptRecordError,
    NanomemError,
    UnsupportedFormatError,
)
from langchain_nanomem.journal import ORIGIN, Address, Entry, JournalReader, Position, Record
from langchain_nanomem.numbering import (
    ELEMENT_TYPES,
    Encoded,
    members,
    number_of,
    numbers_in,
    own_number,
    own_numbers,
)
from langchain_nanomem.shelf import Shelf
from langchain_nanomem.values import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

FORMAT_VERSION = 1
POINTER = "last_consolidated_id"
"""The field of a graph's state that holds the pointer of its branch."""
_NODES = frozenset({"checkpoint", "ancestor"})
_MALFORMED = (AttributeError, LookupError, TypeError, ValueError)
"""What reading a record raises that is not as it was written."""
_MAX_ELEMENTS = 65_536
_MAX_CHECKPOINTS = 512
"""How many records of one session are kept at most once they were read."""
_COUNTED = {"consolidated": "consolidations", "consolidation_failed": "failures"}
"""What a record of such a type is one more of."""
Write = tuple[str, str, Encoded, str]
"""Task id, channel, encoded value, task path."""


class FoldedRecords:
    """What was folded: where each record lies, and whatever else is small.

    Not thread-safe by itself: hold `guard` while you read it, the journal's lock while you
    fold more into it, and ask for records only while it is `attached` to the journal.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.guard = threading.RLock()
        self._reader: JournalReader | None = None
        self.is_misled = False
        """Whether a record was not where it was said to be: an index is not to be trusted."""
        self.reset()

    def reset(self) -> None:
        """Forget everything; the journal is to be read anew."""
        self.end: Position = ORIGIN
        self.indexed_until = 0
        """How much of the journal an index was made of."""
        self.header: Record = {}
        self.elements: Shelf = Shelf(self._load_elements, _MAX_ELEMENTS)
        self.line_numbers: dict[int, None] = {}
        """The numbers of the message lines, in their order; of one that was given its id or its
        turn only after it had been written, the number that it has since."""
        self.named: dict[int, int] = {}
        """Of messages that were given their id or their turn after they had been written: the
        number that each had before."""
        self.message_ids: dict[str, int] = {}
        self.next_number = 0
        self.given_numbers: set[int] = set()
        """The numbers of the elements that don't carry theirs."""
        self.checkpoints: dict[str, dict[str, Address]] = {}
        """Where each namespace's checkpoints lie, by their ids."""
        self.ancestors: dict[str, dict[str, Address]] = {}
        """The same of what remains of removed ones."""
        self._checkpoints: dict[Address, Record] = {}
        self.newest: dict[str, str] = {}
        """The greatest checkpoint id in each namespace."""
        self.brought: dict[str, dict[Any, list[str]]] = {}
        """In each namespace, by their shortened versions, the checkpoints that brought values."""
        self.written_at: dict[tuple[str, str], list[Address]] = {}
        """Where the writes of each checkpoint lie."""
        self._writes: dict[tuple[str, str], dict[tuple[str, int], Write]] = {}
        self.before_graph: tuple[int, ...] | None = None
        """Messages that were there before the first checkpoint and are in none."""
        self.consolidated_at: list[Address] = []
        """Where the consolidations lie that are in memory."""
        self.consolidated_ids: dict[str, int] = {}
        """The ids of the messages that are in memory, each with its place among them."""
        self.trimmed_ids: dict[str, None] = {}
        """The ids of the messages that were taken out of a graph's state since they are in
        memory, in that order."""
        self.has_pointers = False
        """Whether the graph's state has a pointer."""
        self._carried: Container[int] = ()
        self.unfinished: Record | None = None
        self._unfinished_at: Address = (0, 0)
        self.failures = 0
        self.spent: dict[str, Any] = {}
        """What all consolidations took: numbers by their names."""
        self._pointer: Any = 0

    @contextlib.contextmanager
    def attached(self, reader: JournalReader) -> Iterator[None]:
        """Records can be asked for until the block ends."""
        self._reader = reader
        try:
            yield
        finally:
            self._reader = None

    @property
    def is_attached(self) -> bool:
        """Whether records can be asked for."""
        return self._reader is not None

    def read_on(self) -> tuple[list[Entry], Position]:
        """What follows in the journal, to be folded.

        Raises:
            ReplacedError: It is another journal by now.
            CorruptRecordError: A record can't be read.
        """
        return self._attached_reader().read(self.end)

    def renew(self) -> None:
        """Go over to the journal that took the place of the one that was read."""
        self._attached_reader().renew()

    def _attached_reader(self) -> JournalReader:
        if self._reader is None:
            raise RuntimeError("the records are read only inside of `attached`")
        return self._reader

    def load(self, addresses: Sequence[Address], kinds: Container[Any]) -> list[Record]:
        """The records at these addresses, as they are written.

        Raises:
            NanomemError: One is not there, or of another kind.
        """
        if not addresses:
            return []
        try:
            records = self._attached_reader().load(addresses)
        except CorruptRecordError as error:
            raise self._stale("a record") from error
        if any(record.get("_type") not in kinds for record in records):
            raise self._stale("a record")
        return records

    def _load_elements(self, numbers: Sequence[int], addresses: Sequence[Address]) -> list[Record]:
        records = self.load(addresses, ELEMENT_TYPES)
        for number, record in zip(numbers, records, strict=True):
            if own_number(record) != number and number not in self.given_numbers:
                raise self._stale(f"element {number}")
        if wholes := {one["of"] for one in records if _is_named_later(one)}:
            self.elements.prefetch(wholes)
        return [self._as_element(record) for record in records]

    def _as_element(self, record: Record) -> Record:
        record.pop("_n", None)
        if _is_named_later(record):
            whole = self.elements.get(record["of"])
            return {**whole, "id": record["id"]} if whole else {"_type": "missing"}
        return record

    def checkpoint(self, namespace: str, checkpoint_id: str) -> Record:
        """The record of a checkpoint, to be looked at only."""
        return self._node((namespace, checkpoint_id), self.checkpoints[namespace][checkpoint_id])

    def node(self, namespace: str, checkpoint_id: str | None) -> Record | None:
        """The record of a checkpoint, or of what remains of it, to be looked at only."""
        for places in (self.checkpoints, self.ancestors):
            address = places.get(namespace, {}).get(checkpoint_id or "")
            if address is not None:
                return self._node((namespace, checkpoint_id or ""), address)
        return None

    def _node(self, place: tuple[str, str], address: Address) -> Record:
        record = self._checkpoints.get(address)
        if record is None:
            (record,) = self.load([address], _NODES)
            if (record["ns"], record["id"]) != place:
                raise self._stale(f"checkpoint {place[1]}")
            while len(self._checkpoints) >= _MAX_CHECKPOINTS:
                del self._checkpoints[next(iter(self._checkpoints))]
            try:
                record = self._checkpoints[address] = understood(record)
            except _MALFORMED as error:
                raise self._malformed(record, address) from error
        return record

    def _stale(self, what: str) -> NanomemError:
        """The error where a record is not where it was; the next try will find it."""
        self.reset()
        self.is_misled = True
        return NanomemError(
            f"session {self.key!r}: {what} is not where it was in its file, which was changed in "
            "place by something else. Nothing was written; it is read anew by the next call."
        )

    # --- folding ---

    def fold(self, entries: Iterable[Entry], end: Position) -> None:
        """Take in the records that follow those folded so far.

        Raises:
            NanomemError: One of them is not made as it was written.
        """
        entries = list(entries)
        written = (entry.record for entry in entries)
        self._carried = own_numbers(written, self.next_number - 1)
        for address, record in entries:
            try:
                self._fold_one(record, address)
            except _MALFORMED as error:
                raise self._malformed(record, address) from error
        self.end = end

    def _fold_one(self, record: Record, address: Address) -> None:
        kind = record.get("_type")
        if kind is None:
            self._fold_message(record, address)
        elif fold := getattr(self, f"_fold_{kind}", None):
            fold(record, address)

    def _malformed(self, record: Record, address: Address) -> NanomemError:
        return NanomemError(
            f"session {self.key!r}: the record of type {record.get('_type')!r} at byte "
            f"{address[0]} of its file lacks what belongs to one, or has something else there. "
            "Nothing was changed. Mend its line with an editor, or remove it."
        )

    def _fold_message(self, record: Record, address: Address) -> None:
        number = self._fold_element(record, address)
        if record.get("_type") == "message" and "of" in record:
            self.named[number] = record["of"]
            self.line_numbers.pop(record["of"], None)
        self.line_numbers[number] = None
        if isinstance(record.get("id"), str):
            self.message_ids[record["id"]] = number

    def _fold_element(self, record: Record, address: Address) -> int:
        number = number_of(record, self.elements, self._carried, self.next_number)
        if own_number(record) != number:
            self.given_numbers.add(number)
        self.elements.put(number, address, self._as_element(record))
        self.next_number = max(self.next_number, number + 1)
        return number

    def _fold_metadata(self, record: Record, _: Address) -> None:
        version = record.get("v", FORMAT_VERSION)
        if not isinstance(version, int) or version > FORMAT_VERSION:
            raise UnsupportedFormatError(
                f"session {self.key!r} was written in format {version!r}; this version of "
                f"langchain-nanomem reads up to {FORMAT_VERSION}. Upgrade langchain-nanomem."
            )
        self.header |= record
        if "last_consolidated" in record:
            self._pointer = record["last_consolidated"]

    def _fold_checkpoint(self, record: Record, address: Address) -> None:
        namespace, checkpoint_id = record["ns"], record["id"]
        if namespace == "" and self.before_graph is None:
            self.before_graph = self._before(understood(record))
        self.checkpoints.setdefault(namespace, {})[checkpoint_id] = address
        self.newest[namespace] = max(checkpoint_id, self.newest.get(namespace, ""))
        self.has_pointers |= namespace == "" and POINTER in record["values"]
        self._note_brought(record)

    def _fold_ancestor(self, record: Record, address: Address) -> None:
        self.ancestors.setdefault(record["ns"], {})[record["id"]] = address
        self._note_brought(record)

    def _note_brought(self, record: Record) -> None:
        brought = self.brought.setdefault(record["ns"], {})
        for version in versions_brought(record):
            brought.setdefault(version, []).append(record["id"])

    def _before(self, first: Record) -> tuple[int, ...]:
        """What stood before the first checkpoint; one of a rewritten journal says it itself."""
        if "before" in first:
            return tuple(members(first["before"], self.elements))
        encoded = [value for _, value in first["values"].values()]
        for place in self.written_at:
            encoded += [value for _, _, value, _ in self.writes_of(*place)]
        for namespace, ids in self.checkpoints.items():
            for one in ids:
                values = self.checkpoint(namespace, one)["values"].values()
                encoded += [value for _, value in values]
        referred = numbers_in(encoded, self.elements)
        return tuple(number for number in self.line_numbers if number not in referred)

    def _fold_writes(self, record: Record, address: Address) -> None:
        place = (record["ns"], record["id"])
        self.written_at.setdefault(place, []).append(address)
        if place in self._writes or len(self.written_at[place]) == 1:
            self._add_writes(place, record)

    def _add_writes(self, place: tuple[str, str], record: Record) -> None:
        """Of two writes at one place the first stays; a special one (below 0) is replaced."""
        if place not in self._writes and len(self._writes) >= _MAX_CHECKPOINTS:
            del self._writes[next(iter(self._writes))]
        kept = self._writes.setdefault(place, {})
        for index, channel, encoded in record["writes"]:
            at = (record["task"], index)
            if index < 0 or at not in kept:
                kept[at] = (record["task"], channel, encoded, record["path"])

    def _fold_consolidation(self, record: Record, address: Address) -> None:
        self.unfinished = record
        self._unfinished_at = address
        self._add_spent(record)

    def _fold_consolidated(self, record: Record, _: Address) -> None:
        if self.unfinished is not None and self.unfinished["id"] == record["id"]:
            self.consolidated_at.append(self._unfinished_at)
            for message_id in filter(None, self.unfinished["ids"]):
                self.consolidated_ids.setdefault(message_id, len(self.consolidated_ids))
            self.unfinished = None
            self._add_spent(record)
        self._pointer = record["last_consolidated"]
        self.failures = 0

    def _fold_trimmed(self, record: Record, _: Address) -> None:
        self.trimmed_ids.update(dict.fromkeys(record["ids"]))

    def _fold_consolidation_failed(self, record: Record, _: Address) -> None:
        self.failures = record["count"]
        self._add_spent(record)

    def _add_spent(self, record: Record) -> None:
        for name, number in spent_in(record).items():
            self.spent[name] = self.spent.get(name, 0) + number

    def small_state(self) -> dict[str, Any]:
        """What an index keeps beside the addresses."""
        before = self.before_graph
        return {
            "before": None if before is None else list(before),
            "consolidated": [list(self.consolidated_at), list(self.consolidated_ids)],
            "unfinished": [pack(self.unfinished, ""), self._unfinished_at],
            "failures": self.failures,
            "spent": self.spent,
            "trimmed": list(self.trimmed_ids),
            "pointers": self.has_pointers,
            "pointer": self._pointer,
        }

    def restore_small_state(self, kept: dict[str, Any]) -> None:
        """Take up what `small_state` gave."""
        self.before_graph = None if kept["before"] is None else tuple(kept["before"])
        addresses, ids = kept["consolidated"]
        self.consolidated_at = [(offset, size) for offset, size in addresses]
        self.consolidated_ids = {message_id: place for place, message_id in enumerate(ids)}
        unfinished, (offset, size) = kept["unfinished"]
        self.unfinished = unpack(unfinished)
        self._unfinished_at = (offset, size)
        self.failures, self._pointer = kept["failures"], kept["pointer"]
        self.spent, self.has_pointers = dict(kept["spent"]), kept["pointers"]
        self.trimmed_ids = dict.fromkeys(kept["trimmed"])

    # --- what was written ---

    def value(self, namespace: str, channel: str, version: Any) -> Encoded | None:
        """What a channel holds at one of its versions; None for nothing."""
        encoded = self.stored(namespace, channel, version)
        return None if encoded is None or "empty" in encoded else encoded

    def stored(self, namespace: str, channel: str, version: Any) -> Encoded | None:
        """The same, also where it is stored that there is nothing; None where nothing is stored."""
        for checkpoint_id in self.brought.get(namespace, {}).get(shortened_key(version), ()):
            node = self.node(namespace, checkpoint_id) or {"values": {}}
            stored, encoded = node["values"].get(channel, (None, None))
            if encoded is not None and stored == version:
                found: Encoded = encoded
                return found
        return None

    def writes_of(self, namespace: str, checkpoint_id: str) -> list[Write]:
        """What was written at a checkpoint, in the order in which LangGraph applies it."""
        stored = self.writes_at(namespace, checkpoint_id)
        order = sorted(stored, key=lambda place: writes_sort_key(stored[place][3], *place))
        return [stored[place] for place in order]

    def writes_at(self, namespace: str, checkpoint_id: str) -> dict[tuple[str, int], Write]:
        """What was written at a checkpoint, by task id and index; to be looked at only."""
        place = (namespace, checkpoint_id)
        if place not in self._writes:
            records = self.load(self.written_at.get(place, ()), {"writes"})
            if any((record["ns"], record["id"]) != place for record in records):
                raise self._stale(f"what was written at {place[1]}")
            for record in records:
                self._add_writes(place, record)
        return self._writes.get(place, {})


def spent_in(record: Record) -> dict[str, Any]:
    """What a record adds to the account of its session, by the names that `Account` has."""
    kind = record.get("_type")
    is_raw = kind == "consolidation" and record.get("kind") == "raw"
    counted = "raw" if is_raw else _COUNTED.get(str(kind))
    return {**(record.get("spent") or {}), **({counted: 1} if counted else {})}


def _is_named_later(record: Record) -> bool:
    """Whether a record is the id of a message that was written before it had one."""
    return "of" in record and record.get("_type") == "message"
