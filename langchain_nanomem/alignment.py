"""Where a session's messages stand in a list of messages that need not have ids. Pure."""

from __future__ import annotations

import hashlib
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from langchain_nanomem.codec import decode
from langchain_nanomem.session import record_shape
from langchain_nanomem.window import leading_system, message_shape

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_nanomem.journal import Record

_MADE = "nanomem-"
_ID = attrgetter("id")
_EXCHANGE = 2


class Alignment(NamedTuple):
    """How a list of messages follows a session."""

    offset: int
    """The place in the list where the session's first message stands; negative where the list
    begins later."""
    end: int
    """Behind the last message of the list that is the session's too."""
    is_whole: bool
    """Whether the session has no more messages than those."""


def align(
    messages: Sequence[BaseMessage], records: Sequence[Record], pointer: int
) -> Alignment | None:
    """How `messages` follow a session: behind what a prompt template puts in front of them.

    The list may lack old messages of the session. It may also go another way than the session
    does, where it does so behind the `pointer`.

    Returns:
        None where the list does not follow the session.
    """
    if not records:
        lead = leading_system(messages)
        return Alignment(lead, lead, is_whole=True)
    for offset in _offsets(len(messages), len(records)):
        end = offset + len(records)
        if _matching(messages, records, offset) == end:
            return Alignment(offset, end, is_whole=True)
    end = _matching(messages, records, 0)
    return Alignment(0, end, is_whole=False) if end and end >= pointer else None


def _offsets(messages: int, records: int) -> Iterator[int]:
    """Where so many records can all stand, or the last of them at the start."""
    yield from range(messages - records + 1)
    yield from range(min(-1, messages - records), -records, -1)


def _matching(messages: Sequence[BaseMessage], records: Sequence[Record], offset: int) -> int:
    """Behind the last of the messages in a row that are the records'."""
    place = max(offset, 0)
    while place < min(len(messages), offset + len(records)):
        if not _is_same(messages[place], records[place - offset]):
            break
        place += 1
    return place


def _is_same(message: BaseMessage, record: Record) -> bool:
    """Whether they say the same; ids and what a provider told beside it make no difference."""
    if record_shape(record).role != message_shape(message).role:
        return False
    if isinstance(record.get("content"), str) and not record.get("tool_calls"):
        return record["content"] == message.content and not getattr(message, "tool_calls", ())
    return _said(decode(record)) == _said(message)


def ids_of(messages: Sequence[BaseMessage]) -> list[str | None]:
    """Their ids, in order; fast, since a long conversation is looked at in every turn."""
    return list(map(_ID, messages))


def named(messages: list[BaseMessage]) -> list[BaseMessage]:
    """`messages`, those without an id with one made of themselves and of all before them.

    So each has the same one in every turn. System messages get none: a prompt template puts
    them there.
    """
    if all(message.id or message.type == "system" for message in messages):
        return messages
    path, result = hashlib.blake2b(digest_size=16), []
    for message in messages:
        if message.type != "system":
            path.update(repr(message.id or _said(message)).encode("utf-8", "surrogatepass"))
        made = message.id is None and message.type != "system"
        copied = {"id": f"{_MADE}{path.hexdigest()}"}
        result.append(message.model_copy(update=copied) if made else message)
    return result


def recognized(
    messages: list[BaseMessage], records: Sequence[Record], known_ids: Container[str | None]
) -> list[BaseMessage]:
    """`messages`, new ones that stand in a session at the same places with their ids from there.

    So a program that makes its messages anew for every run, of a database say, has the same
    ones each time, whatever new ids a graph gives them. One whose id is known is itself,
    whatever else was said in the same words.
    """
    same = _matching(messages, records, 0)
    if same < _EXCHANGE:  # another conversation may well begin with the same greeting
        return messages
    ids = [record.get("id") for record in records[:same]]
    return [
        message.model_copy(update={"id": old}) if old and message.id not in known_ids else message
        for message, old in zip(messages, [*ids, *repeat(None, len(messages) - same)], strict=True)
    ]


def unnamed(messages: list[BaseMessage]) -> list[BaseMessage]:
    """The messages as they were before `named`."""
    return [
        message.model_copy(update={"id": None}) if (message.id or "").startswith(_MADE) else message
        for message in messages
    ]


def _said(message: BaseMessage) -> tuple[object, ...]:
    calls = getattr(message, "tool_calls", None)
    return message.type, message.content, calls, getattr(message, "tool_call_id", None)
