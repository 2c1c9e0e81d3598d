"""A conversation as the consolidator sees it: a session's, or a branch of a graph's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

from langchain_nanomem.alignment import align, ids_of
from langchain_nanomem.codec import decode
from langchain_nanomem.session import Session, parse_timestamp, valid_pointer
from langchain_nanomem.window import Window, leading_system, live_window

if TYPE_CHECKING:
    from datetime import datetime

    from langchain_core.messages import BaseMessage

    from langchain_nanomem.journal import Record
    from langchain_nanomem.records import Mark, SessionRecords

logger = logging.getLogger(__name__)


@dataclass
class Conversation:
    """Messages in their order, and how many of the leading ones are in memory."""

    key: str
    """The session in whose journal they are."""
    messages: Sequence[BaseMessage]
    """All of them, oldest first."""
    last_consolidated: int
    """The number of leading messages that are in memory."""
    said_at: Callable[[int], datetime | None]
    """When the message at a place was said, in UTC."""
    scope: tuple[str, ...] = ()
    """Whose memory it is."""
    uid: str | None = None
    """What tells the session's journal from a later one of the same key, if that is known."""
    session: Session | None = None
    """The session that this is, where it is no branch of a graph's."""
    by_ids: bool = True
    """Whether its messages are known by their ids; else by their places in the session."""
    offset: int = 0
    """How many messages stand in front that the session does not have, of a prompt template.

    They are always shown. Below 0 it is the session that has so many in front.
    """
    last_id: str | None = None
    """The id of the message that went into memory last, of this branch. It may stand before all
    of them, where they were trimmed."""
    limit: int | None = None
    """Behind the last message that may go into memory; None: all may."""

    _window: tuple[int, Window] | None = field(default=None, init=False, repr=False, compare=False)
    """The window, and the pointer that it is of."""

    @property
    def window(self) -> Window:
        """What a prompt shows of it."""
        if self._window is None or self._window[0] != self.last_consolidated:
            self._window = (self.last_consolidated, self._live_window())
        return self._window[1]

    def _live_window(self) -> Window:
        messages, pointer = self.messages, self.last_consolidated
        if isinstance(messages, _Decoded):
            messages, pointer = messages.shown(pointer)
        return live_window(messages, pointer, template=max(0, self.offset))

    @property
    def consolidatable(self) -> Sequence[BaseMessage]:
        """The messages behind the pointer that may go into memory, and the one behind them."""
        end = None if self.limit is None else self.limit + 1
        return self.messages[self.last_consolidated : end]

    @property
    def marks(self) -> Iterator[Mark]:
        """What tells of each message whether it is in memory."""
        return ((message.id, message.type == "system") for message in self.messages)

    def advance(self, records: SessionRecords, record: Record) -> None:
        """Move the pointer behind the range of a consolidation, if that is on this branch."""
        start, end = record["start"] + self.offset, record["end"] + self.offset
        if record["ids"]:
            covered = records.covered(self.marks)
            self.last_consolidated = max(self.last_consolidated, covered)
            self.last_id = records.latest(self.last_id, self._id_before_pointer)
        elif start == self.last_consolidated:
            self.last_consolidated = end

    @property
    def trimmable_ids(self) -> list[str]:
        """The ids of the messages that no prompt shows any more, oldest first."""
        pinned = {id(message) for message in self.window.kept}
        leading = self.messages[: self.last_consolidated]
        return [m.id for m in leading if m.id and m.type != "system" and id(m) not in pinned]

    @property
    def pointer_id(self) -> str | None:
        """The id that a graph's state has as its pointer; None where nothing is in memory."""
        return self.last_id or self._id_before_pointer

    @property
    def _id_before_pointer(self) -> str | None:
        before = (self.messages[i] for i in reversed(range(self.last_consolidated)))
        return next((message.id for message in before if message.type != "system"), None)


_SYSTEM = frozenset({"system", "developer"})


class _Decoded(Sequence[Any]):
    """The messages of records, made when they are looked at."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self._records = records

    def shown(self, pointer: int) -> tuple[_Decoded, int]:
        """The same without what is hidden anyway, and the pointer in it.

        Of the messages in memory that is all but system messages and the last user message:
        making the rest of a long session at each turn would cost more than its window.
        """
        before, after = self._records[:pointer], self._records[pointer:]
        users = (i for i in reversed(range(pointer)) if before[i].get("role") == "user")
        owner = next(users, None)
        kept = [r for i, r in enumerate(before) if i == owner or r.get("role") in _SYSTEM]
        return _Decoded([*kept, *after]), len(kept)

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, place: int) -> BaseMessage: ...
    @overload
    def __getitem__(self, place: slice) -> list[BaseMessage]: ...
    def __getitem__(self, place: int | slice) -> BaseMessage | list[BaseMessage]:
        if isinstance(place, slice):
            return [decode(record) for record in self._records[place]]
        return decode(self._records[place])


def of_session(session: Session) -> Conversation:
    """The conversation of a session, as it is now."""
    records = list(session.messages)
    return Conversation(
        key=session.key,
        messages=_Decoded(records),
        last_consolidated=valid_pointer(session.last_consolidated, len(records), session.key),
        said_at=lambda place: parse_timestamp(records[place].get("timestamp")),
        scope=session.scope or (),
        uid=session.uid,
        session=session,
        by_ids=all(record.get("id") for record in records),
    )


def of_messages(
    records: SessionRecords,
    messages: Sequence[BaseMessage],
    pointer_id: str | None,
    *,
    is_recorded_later: bool = False,
) -> Conversation:
    """The conversation of a list of messages: a graph's state, or what a chain is given.

    Args:
        records: Of the session that they belong to.
        messages: The messages.
        pointer_id: The id of the last message of this branch that is in memory, if known.
            Where it is unknown or gone, the records tell.
        is_recorded_later: Whether the caller itself appends to the session what it has not
            yet, once the model has answered. Until then that can't go into memory.
    """
    ids = ids_of(messages)
    by_ids = all(ids) or all(message.id or message.type == "system" for message in messages)
    conversation = Conversation(
        records.key, messages, 0, _no_time, records.scope or (), records.uid, by_ids=by_ids
    )
    if pointer_id is not None and pointer_id in ids:
        known = ids.index(pointer_id) + 1
        conversation.last_consolidated = _covered(conversation, records, ids, known)
    elif by_ids and not is_recorded_later and (records.consolidated_ids or records.is_thread):
        conversation.last_consolidated = records.covered(conversation.marks)
    else:
        _align(conversation, records, is_recorded_later=is_recorded_later)
    if conversation.by_ids and not is_recorded_later:
        conversation.limit = _first_known(conversation, records)
        trimmed = pointer_id if pointer_id in records.trimmed_ids else None
        conversation.last_id = records.latest(trimmed, conversation.pointer_id)
    conversation.said_at = _times(conversation, records)
    return conversation


def _covered(
    conversation: Conversation, records: SessionRecords, ids: list[str | None], known: int
) -> int:
    """How many leading messages are in memory, of which the pointer tells so many.

    Those are looked at all at once, since there may be very many.
    """
    lead = leading_system(conversation.messages)
    if not records.all_consolidated(ids[lead:known]):
        return max(known, records.covered(conversation.marks))
    behind = conversation.messages[known:]
    return known + records.covered((one.id, one.type == "system") for one in behind)


def _align(conversation: Conversation, records: SessionRecords, *, is_recorded_later: bool) -> None:
    """Set the pointer of messages that follow those of the session one by one."""
    view = records.view()
    pointer = records.pointer(view)
    shown = records.messages(view)
    found = align(conversation.messages, shown, pointer)
    if found is not None and pointer:
        conversation.last_consolidated = max(0, found.offset + pointer)
    if conversation.by_ids and not is_recorded_later:
        return
    if found is None or found.offset + pointer < 0:
        conversation.limit = 0
        if len(conversation.messages) > 1:
            logger.warning(_NOT_FOLLOWING, records.key)
        return
    conversation.offset = found.offset
    conversation.last_consolidated = max(0, found.offset + pointer)
    if is_recorded_later or not found.is_whole or records.is_thread:
        conversation.limit = found.end


def _first_known(conversation: Conversation, records: SessionRecords) -> int | None:
    """The first message behind the pointer that is in memory: what was put in before it is not."""
    start = conversation.last_consolidated
    places = enumerate(conversation.messages[start:], start)
    return next((p for p, m in places if m.id in records.consolidated_ids), None)


def _times(conversation: Conversation, records: SessionRecords) -> Callable[[int], datetime | None]:
    """When each message from the pointer on was said: what itself tells, else the record of it."""
    start, messages = conversation.last_consolidated, conversation.messages
    view = records.view() if not conversation.by_ids else []
    numbers = {
        place: records.message_ids.get(message.id)
        if message.id
        else _at(view, place - conversation.offset)
        for place, message in enumerate(messages[start:], start)
    }
    stamps = {
        place: records.message(number).get("timestamp")
        for place, number in numbers.items()
        if number is not None
    }
    return lambda place: told_time(messages[place]) or parse_timestamp(stamps.get(place))


def _at(view: list[int], place: int) -> int | None:
    return view[place] if 0 <= place < len(view) else None


_NOT_FOLLOWING = (
    "session %r: the messages given are not those of the session, or some between its memory and "
    "them are missing, so they can't go into memory. Give the session's own messages "
    "(memory.history(session_id).messages) and the new ones, or messages with ids and a thread_id."
)


def _no_time(_place: int) -> None:
    return None


def told_time(message: BaseMessage) -> datetime | None:
    """The time that a message itself tells, as ``additional_kwargs["timestamp"]``."""
    return parse_timestamp(message.additional_kwargs.get("timestamp"))
