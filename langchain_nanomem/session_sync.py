"""A session and the records of its journal, brought together."""

from __future__ import annotations

import secrets
from datetime import UTC
from typing import TYPE_CHECKING, NamedTuple

from langchain_nanomem.folded import FORMAT_VERSION
from langchain_nanomem.session import Session, utc_now
from langchain_nanomem.values import copy_record, dump_record

if TYPE_CHECKING:
    from datetime import datetime

    from langchain_nanomem.journal import Record
    from langchain_nanomem.records import SessionRecords


class Origin(NamedTuple):
    """What the journal held when a session was last read or written."""

    existed: bool
    uid: str | None
    view: list[int]
    pointer: int
    metadata: bytes
    updated_at: datetime


DELETED = Origin(True, "deleted", [], 0, b"", utc_now())  # noqa: FBT003 - a record of fields


def is_same(origin: Origin, records: SessionRecords) -> bool:
    """Whether the journal is still the one that `origin` was noted of."""
    return records.exists and origin.uid in {None, records.uid}


def metadata_record(records: SessionRecords, updated_at: datetime) -> Record:
    """The metadata record that says what holds now."""
    header = records.header
    created_at = records.moment("created_at") or updated_at
    return {
        "_type": "metadata",
        "v": FORMAT_VERSION,
        "key": records.key,
        "uid": header.get("uid") or secrets.token_hex(4),
        "created_at": created_at.isoformat(),
        "updated_at": updated_at.astimezone(UTC).isoformat(),
        "last_consolidated": records.pointer(records.view()),
    }


def changed_metadata(session: Session, records: SessionRecords) -> Record:
    """The metadata record with what was changed in `session` since it was read or written."""
    origin = session._origin
    header = metadata_record(records, session.updated_at)
    if not records.exists:
        header["created_at"] = session.created_at.astimezone(UTC).isoformat()
    if session.last_consolidated != (origin.pointer if origin else 0):
        header["last_consolidated"] = _checked_pointer(session, records)
    if dump_record(session.metadata) != (origin.metadata if origin else b"{}"):
        if not isinstance(session.metadata, dict):
            raise ValueError(
                f"metadata of session {session.key!r} must be a dictionary, not "
                f"{session.metadata!r:.80}. Nothing was written."
            )
        header["metadata"] = session.metadata
    if session.scope is not None:
        header["scope"] = list(session.scope)
    return {**records.header, **header}


def _checked_pointer(session: Session, records: SessionRecords) -> int:
    pointer, count = session.last_consolidated, len(session.messages)
    if type(pointer) is not int or not 0 <= pointer <= count:
        raise ValueError(
            f"last_consolidated of session {session.key!r} must be a number of its {count} "
            f"messages, not {pointer!r}. Nothing was written."
        )
    if pointer > session._saved < len(records.view()):
        return session._saved  # what others wrote comes before the new ones: it is in no memory
    return pointer


def begin_anew(session: Session, records: SessionRecords) -> None:
    """Note that what `session` was before it was cleared is erased."""
    session._cleared = False
    if session._origin is not None:
        session._origin = session._origin._replace(uid=records.uid, view=[], pointer=0)


def check_unchanged(session: Session, records: SessionRecords) -> None:
    """Refuse a session in which what was saved is not as it was saved.

    Raises:
        ValueError: A message was changed or removed.
    """
    origin = session._origin
    saved = session._saved
    numbers = origin.view[:saved] if origin else []
    known = records.messages([number for number in numbers if number in records.elements])
    if session.messages[:saved] == known:
        return
    for place, number in enumerate(numbers):
        if (
            place >= len(session.messages)
            or number not in records.elements
            or _differ(session.messages[place], records.message(number))
        ):
            raise ValueError(
                f"message {place} of session {session.key!r} was changed or removed after it was "
                "saved: messages are only ever appended. Nothing was written; invalidate() the "
                "session to get it back, or clear() it to start anew."
            )


def _differ(record: Record, saved: Record) -> bool:
    """Whether two records do; NaN differs from itself, but not as it is written."""
    return record != saved and dump_record(record) != dump_record(saved)


def _note(session: Session, records: SessionRecords, view: list[int]) -> None:
    session.created_at = records.moment("created_at") or session.created_at
    session.updated_at = records.moment("updated_at") or session.updated_at
    session.last_consolidated = records.pointer(view)
    session.scope = records.scope
    session._saved = len(view)
    session._origin = Origin(
        records.exists,
        records.uid,
        view,
        session.last_consolidated,
        dump_record(session.metadata),
        session.updated_at,
    )


def load(session: Session, records: SessionRecords) -> None:
    """Fill `session` with what the journal holds."""
    view = records.view()
    session.messages[:] = list(map(copy_record, records.messages(view)))
    session.metadata = _program_metadata(records)
    _note(session, records, view)


def _program_metadata(records: SessionRecords) -> Record:
    """What the program keeps with the session; {} where another one wrote no dictionary."""
    kept = records.header.get("metadata")
    return copy_record(kept) if isinstance(kept, dict) else {}


def catch_up(session: Session, records: SessionRecords) -> None:
    """Take in what others wrote, into a session in which nothing was changed meanwhile."""
    origin = session._origin
    unchanged = (
        len(session.messages) == session._saved
        and session.last_consolidated == origin.pointer
        and dump_record(session.metadata) == origin.metadata
    )
    if unchanged and not session._cleared:
        if origin.existed and is_same(origin, records):
            merge(session, records, 0)
        else:
            load(session, records)


def merge(session: Session, records: SessionRecords, own: int) -> None:
    """Note that `own` messages at the end were written, and take in those of others before."""
    view = records.view()
    saved = session._saved
    known = session._origin.view[:saved] if session._origin else []
    if view[:saved] != known:  # a graph went on from another branch
        load(session, records)
        return
    others = list(map(copy_record, records.messages(view[saved : len(view) - own])))
    session.messages[saved:saved] = others
    if "metadata" in records.header:
        session.metadata = _program_metadata(records)
    _note(session, records, view)
