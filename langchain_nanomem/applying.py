"""An answer of a model, carried out: once, whatever crashes in between.

The answer is first a record in the session's journal. Then come HISTORY.md, MEMORY.md and the
pointer, each of which can tell that it was done. What a crash left unfinished is finished
before anything new is planned.
"""

from __future__ import annotations

import logging
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from langchain_nanomem.errors import DatabaseError, NanomemError
from langchain_nanomem.memory_lines import with_keys_of
from langchain_nanomem.memory_outline import unkeyed
from langchain_nanomem.merging import merge_lines
from langchain_nanomem.overtaking import OvertakenError, repeated
from langchain_nanomem.session import parse_timestamp, utc_now

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_nanomem.answers import Answer
    from langchain_nanomem.conversation import Conversation
    from langchain_nanomem.journal import Record
    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.memory import MemoryStore
    from langchain_nanomem.model_calls import Spent
    from langchain_nanomem.planning import Plan
    from langchain_nanomem.records import SessionRecords
    from langchain_nanomem.session import Session

logger = logging.getLogger(__name__)

_ERROR_CHARACTERS = 500


class Applier:
    """Carries answers out.

    Args:
        sessions: Where the sessions are kept.
        memory_for: The memory of a scope.
    """

    def __init__(
        self, sessions: SessionManager, memory_for: Callable[[tuple[str, ...]], MemoryStore]
    ) -> None:
        self._sessions = sessions
        self._memory_for = memory_for

    def save(self, session: Session) -> None:
        """Have all of a session in the journal."""
        self._sessions.save(session)

    def is_off_the_record(self, key: str) -> bool:
        """Whether nothing of a session is to get into memory."""
        return self._sessions.is_off_the_record(key)

    @repeated
    def commit(self, plan: Plan, kind: str, answer: Answer, spent: Spent) -> Record | None:
        """Put an answer into the journal, from where on it will be carried out.

        Args:
            plan: What it is an answer to.
            kind: Who wrote it.
            answer: The answer.
            spent: What the model calls took.

        Returns:
            Its record; None where the range was consolidated, cleared or deleted meanwhile, or
            the session put off the record, and the answer is void.
        """
        conversation = plan.conversation
        store, update = self._memory_for(conversation.scope), answer.memory_update
        record: Record = {
            "_type": "consolidation",
            "id": plan.id,
            "kind": kind,
            "ids": [message.id for message in plan.messages] if conversation.by_ids else [],
            "base": conversation.pointer_id if conversation.by_ids else None,
            "at": plan.ended_at and plan.ended_at.isoformat(),
            "history_entry": store.withheld(answer.history_entry),
            "memory_update": None if update is None else store.withheld(update),
            "memory_base": None if update is None else store.withheld(plan.memory.text),
            "spent": asdict(spent),
        }
        with self._sessions.writing(conversation.key) as records:
            if _is_gone(conversation, records) or records.unfinished:
                return None
            if records.is_off_the_record:
                return None
            start = _place_in_session(plan, records)
            record |= {"start": start, "end": start + plan.end - plan.start}
            if _is_moved(record, conversation, records):
                return None
            self._record_range(plan, records)
            self._sessions.commit(records, [record])
            return record

    def apply(self, conversation: Conversation, record: Record, *, strict: bool = False) -> bool:
        """Carry a committed answer out.

        Args:
            conversation: Where the pointer moves.
            record: The answer.
            strict: Whether to raise what keeps the memory from being written.

        Returns:
            False where the memory could not be written, and it is to be tried again; or where
            nothing of the session is to be remembered any more.
        """
        with self._sessions.writing(conversation.key):  # an erasure waits for all of it
            try:
                if not self._remember(conversation, record):
                    return False
            except (OSError, ValueError, NanomemError):
                if strict:
                    raise
                logger.exception("session %r: the memory could not be written", conversation.key)
                return False
            self._move_pointer(conversation, record)
            return True

    def _remember(self, conversation: Conversation, record: Record) -> bool:
        """Have an answer in log and facts; False where nothing of it is to be remembered."""
        store = self._memory_for(conversation.scope)
        for write in (partial(_log, store, conversation.key), partial(_update_memory, store)):
            while not (is_done := self._written(conversation, partial(write, record))):
                if is_done is None:
                    return False
        return True

    @repeated
    def _written(self, conversation: Conversation, write: Callable[[], bool]) -> bool | None:
        """What a write to the memory gives; None where nothing of the session is to be remembered.

        The session is looked at before each: where the back end lets others in whenever something
        was written, it may have been erased since.
        """
        with self._sessions.writing(conversation.key) as records:
            if not records.exists or conversation.uid not in {None, records.uid}:
                return None
            if records.is_off_the_record:
                return None
            try:
                return write()
            except DatabaseError as error:
                if error.may_be_written:  # it tells when it is done anew
                    raise OvertakenError(conversation.key) from error
                raise

    def _record_range(self, plan: Plan, records: SessionRecords) -> None:
        """Have all of the range in the journal: the window will not show it any more."""
        conversation = plan.conversation
        if conversation.session is not None:
            return  # it was saved before
        if conversation.by_ids:
            known = [message for message in plan.messages if message.id]
            self._sessions.record_messages(conversation.key, known)
        else:
            recorded = conversation.offset + len(records.view())
            missing = conversation.messages[recorded : plan.end]
            self._sessions.append_messages(conversation.key, missing)

    def settle(self, conversation: Conversation, *, strict: bool = False) -> bool:
        """Finish what a crash left unfinished, as `apply` does."""
        with self._sessions.reading(conversation.key) as records:
            unfinished = records.unfinished
        return unfinished is None or self.apply(conversation, unfinished, strict=strict)

    @repeated
    def count_failure(self, conversation: Conversation, error: Exception, spent: Spent) -> int:
        """Note that a consolidation failed, and return how many in a row now have.

        It is 0 for a session that was deleted meanwhile; that stays so.
        """
        key, withheld = conversation.key, self._memory_for(conversation.scope).withheld
        with self._sessions.writing(key) as records:
            if _is_gone(conversation, records):
                return 0
            count, cause = records.failures + 1, error.__cause__
            told = str(error) if cause is None else type(cause).__name__  # it may quote an API key
            noted = {
                "_type": "consolidation_failed",
                "count": count,
                "at": utc_now().isoformat(),
                "error": withheld(told)[:_ERROR_CHARACTERS],
                "spent": asdict(spent),
            }
            self._sessions.commit(records, [noted])
        shown = withheld(str(error))
        logger.warning("session %r: consolidation failed (%d in a row): %s", key, count, shown)
        return count

    @repeated
    def _move_pointer(self, conversation: Conversation, record: Record) -> None:
        with self._sessions.writing(conversation.key) as records:
            pending = records.unfinished
            if pending is not None and pending["id"] == record["id"]:
                moved = {"_type": "consolidated", "id": record["id"], "last_consolidated": 0}
                moved["last_consolidated"] = _pointer_after(record, records)
                self._sessions.commit(records, [moved])
            conversation.advance(records, record)
        if conversation.session is not None:
            self._sessions.note_pointer(conversation.session)


def _place_in_session(plan: Plan, records: SessionRecords) -> int:
    """Where the range begins in the session; a graph's trimmed state has less in front of it."""
    conversation = plan.conversation
    if conversation.by_ids and records.trimmed_ids:
        ids = [one.get("id") for one in records.messages(records.view())]
        known = (
            ids.index(message.id) - place
            for place, message in enumerate(plan.messages)
            if message.id in ids
        )
        return next(known, plan.start)
    return plan.start - conversation.offset


def _pointer_after(record: Record, records: SessionRecords) -> int:
    """The pointer of the session's own view, once the range of `record` is in memory."""
    view = records.view()
    pointer, start, end = records.pointer(view), record["start"], record["end"]
    ids = [record.get("id") for record in records.messages(view[start:end])]
    if not record["ids"] or (pointer == start and ids == record["ids"]):
        return int(end)
    return max(pointer, records.covered(records.marks(view), also=record["ids"]))


def _is_gone(conversation: Conversation, records: SessionRecords) -> bool:
    """Whether the session was deleted, or emptied, after the conversation was read."""
    session = conversation.session
    is_emptied = session is not None and len(session.messages) < len(conversation.messages)
    return is_emptied or conversation.uid not in {None, records.uid}


def _is_moved(record: Record, conversation: Conversation, records: SessionRecords) -> bool:
    """Whether someone else consolidated of the range meanwhile."""
    by_position = conversation.session is not None and not records.is_thread
    if by_position or not record["ids"]:
        return bool(records.pointer(records.view()) != record["start"])
    return not records.consolidated_ids.keys().isdisjoint(record["ids"])


def _log(store: MemoryStore, key: str, record: Record) -> bool:
    """Have the answer's entry in the log, once."""
    store.append_history(
        store.withheld(record["history_entry"]),  # the rules may be newer
        at=parse_timestamp(record["at"]),
        entry_id=record["id"],
        source=f"{key} {record['start']}-{record['end']}",
    )
    return True


def _update_memory(store: MemoryStore, record: Record) -> bool:
    """Replace the memory by the answer's; a person's edits meanwhile are merged into it.

    What a person wrote and what must not be written is merged as its mark, else it would keep
    any memory from being written.

    Returns:
        False where it was written to meanwhile, and nothing was done.
    """
    if record["memory_update"] is None or store.has_change(record["id"]):
        return True
    base, update = store.withheld(record["memory_base"]), store.withheld(record["memory_update"])
    current = store.read_version()
    text, shown = update, store.withheld(current.text)
    if shown != base:
        text = store.withheld(merge_lines(*map(unkeyed, (base, shown, update))))
    text = with_keys_of(shown, text)
    if text == shown:
        return True
    if not store.replace_long_term(text, expected_version=current.version, change_id=record["id"]):
        return False
    _warn_of_marks(store, current.text, shown)
    return True


def _warn_of_marks(store: MemoryStore, text: str, shown: str) -> None:
    """Tell a person whose lines are marks now, which they can have from the archive."""
    known = set(shown.split("\n"))
    if marked := sum(line not in known for line in text.split("\n")):
        logger.warning(
            "%s: %d lines had something that must not be written, and were withheld or redacted; "
            "the version before is archived",
            store.place,
            marked,
        )
