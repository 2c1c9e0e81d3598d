"""A session as a person looks at it: what was said, how far it is in memory, what it took."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_nanomem.errors import SessionNotFoundError
from langchain_nanomem.rendering import content_text
from langchain_nanomem.session import call_name, parse_timestamp, tool_calls_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from datetime import datetime

    from langchain_nanomem.journal import Record
    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.records import SessionRecords


class SessionView(NamedTuple):
    """A session at one moment; nothing of it changes afterwards."""

    key: str
    scope: tuple[str, ...]
    """Whose memory it belongs to; () the workspace's."""
    created_at: datetime | None
    """In UTC; None where it is not known."""
    updated_at: datetime | None
    """When it was last written; None of an archived one where nobody noted it."""
    archived_at: datetime | None
    """When it was put away; None where it is not."""
    place: str
    """Where it lies, for people."""
    size_bytes: int
    checkpoints: int
    """How many checkpoints a graph has here, those of its subgraphs too."""
    is_off_the_record: bool
    consolidated: int
    """How many of the first messages are in memory."""
    messages: list[Record]
    """What was said, oldest first, on the newest branch."""
    spent: dict[str, float]
    """What its consolidations took: the fields of `Account` that are not 0."""


class _About(NamedTuple):
    """What is known of a session's file or rows."""

    place: str
    size_bytes: int
    updated_at: datetime | None
    archived_at: datetime | None


def view_session(sessions: SessionManager, key: str) -> SessionView:
    """The session as it is now. One that is put away is read where it is, and stays so.

    Raises:
        SessionNotFoundError: There is none.
        CorruptRecordError: It is damaged.
        OSError: It can't be read.
    """
    with reading(sessions, key) as (records, about):
        view = records.view()
        return SessionView(
            key=key,
            scope=records.scope or (),
            created_at=records.moment("created_at"),
            updated_at=about.updated_at,
            archived_at=about.archived_at,
            place=about.place,
            size_bytes=about.size_bytes,
            checkpoints=sum(map(len, records.checkpoints.values())),
            is_off_the_record=records.is_off_the_record,
            consolidated=records.pointer(view),
            messages=[{**one} for one in records.messages(view)],
            spent=dict(records.spent),
        )


@contextmanager
def reading(sessions: SessionManager, key: str) -> Iterator[tuple[SessionRecords, _About]]:
    """The records of a session, in the archive or not, and what is known of it.

    Raises:
        SessionNotFoundError: There is none.
    """
    archive = sessions.journal.archive
    block: AbstractContextManager[SessionRecords]
    if archive is not None and (kept := archive.find(key)) is not None:
        about = _About(str(kept.path), kept.size_bytes, kept.updated_at, kept.archived_at)
        block = sessions.reading_archived(key)
    elif (info := sessions.journal.info(key)) is not None:
        about = _About(info.place, info.size_bytes, info.updated_at, None)
        block = sessions.reading(key)
    else:
        raise SessionNotFoundError(f"there is no session {key!r}")
    with block as records:
        yield records, about


def words_of(record: Record) -> str:
    """What a message says: its text, and marks for pictures and files in it."""
    return content_text(record.get("content"))


def calls_of(record: Record) -> Iterator[tuple[str, Any]]:
    """The tools that a message calls, with the arguments of each."""
    for call in tool_calls_of(record):
        function = call.get("function")
        told = function if isinstance(function, dict) else call
        yield call_name(call) or "a tool", told.get("args", told.get("arguments"))


def said_at(record: Record) -> datetime | None:
    """When a message was said, in UTC; None where it does not tell."""
    return parse_timestamp(record.get("timestamp"))
