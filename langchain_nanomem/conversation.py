"""A conversation as the consolidator sees it: a session's, or a branch of a graph's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from langchain_nanomem.codec import decode
from langchain_nanomem.session import Session, parse_timestamp, valid_pointer
from langchain_nanomem.window import leading_system

if TYPE_CHECKING:
    from datetime import datetime

    from langchain_core.messages import BaseMessage

    from langchain_nanomem.journal import Record
    from langchain_nanomem.records import Mark, SessionRecords


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
    session: Session | None = None
    """The session that this is, where it is no branch of a graph's."""
    by_ids: bool = True
    """Whether its messages are known by their ids; else by their places in the session."""
    offset: int = 0
    """How many messages stand in front that the session does not have, of a prompt template."""

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
        elif start == self.last_consolidated:
            self.last_consolidated = end


class _Decoded(Sequence[Any]):
    """The messages of records, made when they are looked at."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self._records = records

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
    """The conversation of a session."""
    records = session.messages
    return Conversation(
        key=session.key,
        messages=_Decoded(records),
        last_consolidated=valid_pointer(session.last_consolidated, len(records), session.key),
        said_at=lambda place: parse_timestamp(records[place].get("timestamp")),
        scope=session.scope or (),
        session=session,
        by_ids=all(record.get("id") for record in records),
    )


def of_messages(
    records: SessionRecords, messages: Sequence[BaseMessage], pointer_id: str | None
) -> Conversation:
    """The conversation of a list of messages: a graph's state, or what a chain is given.

    Args:
        records: Of the session that they belong to.
        messages: The messages.
        pointer_id: The id of the last message of this branch that is in memory, if known.
            Where it is unknown or gone, the records tell.
    """
    ids = [message.id for message in messages]
    conversation = Conversation(
        records.key, messages, 0, _no_time, records.scope or (), by_ids=all(ids)
    )
    if pointer_id is not None and pointer_id in ids:
        known = ids.index(pointer_id) + 1
        conversation.last_consolidated = max(known, records.covered(conversation.marks))
    elif conversation.by_ids and (records.consolidated_ids or records.is_thread):
        conversation.last_consolidated = records.covered(conversation.marks)
    else:
        _align(conversation, records)
    times = _recorded_times(records, ids[conversation.last_consolidated :])
    conversation.said_at = lambda i: told_time(messages[i]) or times.get(messages[i].id or "")
    return conversation


def _align(conversation: Conversation, records: SessionRecords) -> None:
    """Set the pointer of messages without ids, which follow those of the session one by one."""
    view = records.view()
    pointer = records.pointer(view)
    own = leading_system([decode(records.message(number)) for number in view[:1]])
    conversation.offset = max(0, leading_system(conversation.messages) - own)
    place = conversation.offset + pointer
    if pointer and place <= len(conversation.messages):
        last = decode(records.message(view[pointer - 1]))
        if conversation.messages[place - 1].content == last.content:
            conversation.last_consolidated = place


def _recorded_times(
    records: SessionRecords, message_ids: Sequence[str | None]
) -> dict[str, datetime | None]:
    return {
        message_id: parse_timestamp(records.message(number).get("timestamp"))
        for message_id in message_ids
        if message_id is not None and (number := records.message_ids.get(message_id)) is not None
    }


def _no_time(_place: int) -> None:
    return None


def told_time(message: BaseMessage) -> datetime | None:
    """The time that a message itself tells, as ``additional_kwargs["timestamp"]``."""
    return parse_timestamp(message.additional_kwargs.get("timestamp"))
