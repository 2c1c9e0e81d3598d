"""What holds now of one session: its messages, its pointer, what is at hand of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from langchain_nanomem.folded import POINTER, FoldedRecords
from langchain_nanomem.journal import ORIGIN, Record
from langchain_nanomem.numbering import Encoded, members
from langchain_nanomem.ranges import Ranges
from langchain_nanomem.session import parse_timestamp, valid_pointer
from langchain_nanomem.working_set import WorkingSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

MESSAGES = "messages"
"""The channel that holds a graph's conversation."""
_ALL_MESSAGES = "__remove_all__"
"""The id by which LangGraph's `RemoveMessage` means all of them."""
Mark = tuple[Any, bool]
"""The id of a message, and whether it is a system message."""
_MAX_SERIALIZERS = 2
"""For how many serializers something is kept at hand at once."""


class SessionRecords(FoldedRecords):
    """The records of one session, and what holds now.

    Args:
        key: The session's key.
        message_record: Makes the record of a message from the element that it is stored as.
    """

    def __init__(self, key: str, message_record: Callable[[Record], Record]) -> None:
        self._message_record = message_record
        super().__init__(key)

    @override
    def reset(self) -> None:
        super().reset()
        self._working: list[tuple[object, WorkingSet]] = []

    def working_for(self, serde: object) -> WorkingSet:
        """What is kept at hand for those who use this serializer: another makes other objects."""
        for known, working in self._working:
            if known is serde:
                return working
        working = WorkingSet()
        self._working = [(serde, working), *self._working][:_MAX_SERIALIZERS]
        return working

    @property
    def weight(self) -> int:
        """About how many elements are kept in memory."""
        return self.elements.weight + sum(working.weight for _, working in self._working)

    # --- what holds now ---

    @property
    def consolidations(self) -> list[Record]:
        """The consolidations that are in memory, oldest first."""
        return self.load(self.consolidated_at, {"consolidation"})

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

    @property
    def is_off_the_record(self) -> bool:
        """Whether nothing of the session is to get into memory, log and search."""
        return bool(self.header.get("off_the_record"))

    def moment(self, name: str) -> datetime | None:
        """``created_at`` or ``updated_at``."""
        return parse_timestamp(self.header.get(name))

    def members(self, spans: Sequence[Any]) -> list[int]:
        """The numbers of a list's elements, in their order."""
        return list(members(spans, self.elements))

    def ranges(self, spans: Sequence[Any]) -> Ranges | None:
        """How a list is written, to be extended; None where that is not to be done."""
        return Ranges.of(spans, lambda run: (self.elements.get(run) or {}).get("list"))

    def message(self, number: int) -> Record:
        """The record of a message, to be looked at only."""
        return self._message_record(self.elements[number])

    def named_before(self, numbers: Iterable[int]) -> set[int]:
        """The numbers under which some of these messages were written before they had an id."""
        return {self.named[number] for number in numbers if number in self.named}

    def messages(self, numbers: Sequence[int]) -> list[Record]:
        """The records of messages, to be looked at only."""
        self.elements.prefetch(numbers)
        return list(map(self.message, numbers))

    def view(self) -> list[int]:
        """The numbers of the session's messages, oldest first.

        Of a graph's thread: what was there before it, and the newest checkpoint's messages.
        """
        root = self.checkpoints.get("")
        if not root:
            return list(self.line_numbers)
        checkpoint = self.checkpoint("", self.newest[""])
        newest = self._messages_of(checkpoint)
        if self.trimmed_ids:
            newest = self._with_trimmed(newest, self.in_memory_at([checkpoint]))
        shown = set(newest)
        return [*(n for n in self.before_graph or () if n not in shown), *newest]

    def in_memory_at(self, checkpoints: Iterable[Record]) -> list[str]:
        """The ids of what is in memory at these checkpoints, where a graph's state is trimmed.

        Of one checkpoint they are in the order in which they were said. Some may be in its state
        still.
        """
        if not self.has_pointers:  # another state than ours: it can't say which branch it is
            return list(self.trimmed_ids)
        versions = (one["versions"].get(POINTER) for one in checkpoints)
        values = {(self.value("", POINTER, one) or {}).get("json") for one in versions}
        ranges = self.consolidations
        owner = {one: n for n in reversed(range(len(ranges))) for one in ranges[n]["ids"] if one}
        branches = (reversed(list(_ranges_to(pointer, ranges, owner))) for pointer in values)
        return list(dict.fromkeys(one for branch in branches for ids in branch for one in ids))

    def _with_trimmed(self, newest: list[int], in_memory: list[str]) -> list[int]:
        """The messages of a state, and those that were trimmed from it where they stood."""
        shown = set(newest)
        numbers = [
            number
            for one in in_memory
            if (number := self.message_ids.get(one)) is not None
            and (one in self.trimmed_ids or number in shown)
        ]
        in_place = set(numbers)
        rest = [number for number in newest if number not in in_place]
        lead = next((i for i, n in enumerate(rest) if not self._is_system(n)), len(rest))
        return [*rest[:lead], *numbers, *rest[lead:]]

    def _is_system(self, number: int) -> bool:
        return bool(self.message(number).get("role") == "system")

    def _messages_of(self, checkpoint: Record) -> list[int]:
        """The numbers of a root checkpoint's messages.

        A delta channel keeps no value with most checkpoints: its messages are those of the
        nearest ancestor with a value, and what was written since.
        """
        since: list[str] = []
        at: Record | None = checkpoint
        while at and MESSAGES in at["versions"] and self._value_at(at) is None:
            since += [at["parent"]]
            at = self.node("", at["parent"])
        numbers = self._messages_in(self._value_at(at) if at else None)
        return self._written(numbers, reversed(since)) if since else numbers

    def _value_at(self, checkpoint: Record) -> Encoded | None:
        """What the messages' channel holds there itself; None for nothing."""
        return self.value("", MESSAGES, checkpoint["versions"].get(MESSAGES))

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

    def pointer(self, view: list[int]) -> int:
        """The number of leading messages of `view` that are in memory."""
        if self.is_thread:
            return self.covered(self.marks(view))
        return valid_pointer(self._pointer, len(view), self.key)

    def marks(self, view: list[int]) -> Iterator[Mark]:
        """What tells of each message of `view` whether it is in memory."""
        records = self.messages(view)
        return ((record.get("id"), record.get("role") == "system") for record in records)

    def covered(self, marks: Iterable[Mark], also: Iterable[Any] = ()) -> int:
        """How many leading ones of these messages were consolidated, on whatever branch.

        Args:
            marks: Of the messages, in order. A system message counts if one behind it does.
            also: More ids that count as consolidated.
        """
        known, more = self.consolidated_ids, frozenset(also)
        covered = 0
        for place, (message_id, is_system) in enumerate(marks, start=1):
            if message_id in known or message_id in more:
                covered = place
            elif not is_system:
                break
        return covered

    def unknown(self, message_ids: Sequence[str | None]) -> list[int]:
        """The places of the ids that no message of the session has."""
        missing = set(message_ids).difference(self.message_ids)
        if not missing:
            return []
        return [place for place, one in enumerate(message_ids) if one in missing]

    def all_consolidated(self, message_ids: Iterable[str | None]) -> bool:
        """Whether all of these messages are in memory."""
        return not set(message_ids).difference(self.consolidated_ids)

    def latest(self, *message_ids: str | None) -> str | None:
        """The one of these messages that went into memory last; None where none did."""
        known = [one for one in message_ids if one in self.consolidated_ids]
        return max(known, key=self.consolidated_ids.__getitem__, default=None)


def _last_id(consolidation: Record) -> str | None:
    return next(filter(None, reversed(consolidation["ids"])), None)


def _ranges_to(
    pointer: str | None, ranges: list[Record], owner: dict[str, int]
) -> Iterator[list[str]]:
    """The ids of the consolidated ranges that end at a pointer, and before it, newest first.

    Args:
        pointer: The id that the newest of them ends with.
        ranges: All consolidations, oldest first.
        owner: The place in `ranges` of the first one that has an id.
    """
    last = len(ranges)
    while pointer in owner and owner[pointer] < last:
        last = owner[pointer]
        ids = ranges[last]["ids"]
        yield list(filter(None, ids[: ids.index(pointer) + 1]))
        pointer = ranges[last].get("base", _last_id(ranges[last - 1]) if last else None)
