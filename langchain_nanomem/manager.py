"""Sessions, made and kept: the factory and the repository of `Session`."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from langchain_nanomem.codec import encode, stamped
from langchain_nanomem.collector import paused
from langchain_nanomem.element_writer import ElementWriter
from langchain_nanomem.elements import Elements
from langchain_nanomem.errors import DatabaseError, ScopeError, SessionNotFoundError
from langchain_nanomem.file_journal import FileJournal
from langchain_nanomem.journal import ArchivedSession, Journal, Record, ReplacedError
from langchain_nanomem.numbering import digest
from langchain_nanomem.overtaking import OvertakenError, repeated
from langchain_nanomem.records import SessionRecords
from langchain_nanomem.records_index import dump_index, restore_index
from langchain_nanomem.redacted_records import redacted_record
from langchain_nanomem.session import Session, parse_timestamp, utc_now
from langchain_nanomem.session_sync import (
    DELETED,
    begin_anew,
    catch_up,
    changed_metadata,
    check_unchanged,
    is_same,
    load,
    merge,
    metadata_record,
)
from langchain_nanomem.turns import Turns
from langchain_nanomem.values import dump_record

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_nanomem.redaction import Redaction

_MIN_INDEXED = 65_536
"""How far a journal has to reach beyond its index, at least, before another one is made."""
_USES_BETWEEN_WEIGHINGS = 64
_RESERVED = ("_type", "_n", "_more")


class SessionManager:
    """Makes sessions, and keeps them in a journal.

    Safe between threads, between managers, and, as far as the journal is, between processes.

    Args:
        workspace: A directory, or a `Journal`.
        redaction: What must not be in what is made of the sessions (memory, log, index); and,
            where its ``sessions`` says so, not in what is written of them from now on: see
            `Redaction`.
        off_the_record: Whether nothing of any of these sessions gets into memory, log and
            search; see `keep_off_the_record` for one of them.
        max_cached_sessions: How many sessions are kept in memory though nobody holds them.
        max_cached_messages: About how many messages these may have together. The session used
            last is kept however long it is.
    """

    journal: Journal
    """Where everything is kept."""
    elements: Elements
    """How a graph's values are written; `NanomemSaver` sets it when it has a serializer."""
    turns: Turns
    """Has turns of a session come one after the other, where a chain asks for that."""
    derived: OrderedDict[tuple[str, ...], Any]
    """What others keep at hand of a scope's sessions; it has a `close`, which `forget` calls."""

    def __init__(
        self,
        workspace: str | os.PathLike[str] | Journal,
        *,
        redaction: Redaction | None = None,
        off_the_record: bool = False,
        max_cached_sessions: int = 64,
        max_cached_messages: int = 200_000,
    ) -> None:
        self.journal = workspace if isinstance(workspace, Journal) else FileJournal(workspace)
        self.redaction = redaction
        self.off_the_record = off_the_record
        redact = redaction.withhold if redaction and redaction.sessions else None
        self.elements = Elements(redact=redact)
        self.turns = Turns()
        self.derived = OrderedDict()
        self._max_cached = max_cached_sessions
        self._max_weight = max_cached_messages
        self._uses = 0
        self._guard = threading.RLock()
        self._live: WeakValueDictionary[str, Session] = WeakValueDictionary()
        self._recent: OrderedDict[str, tuple[SessionRecords, Session | None]] = OrderedDict()

    # --- sessions ---

    def get_or_create(self, key: str) -> Session:
        """The session of `key`: the same object for as long as anyone holds it.

        What others appended meanwhile is in it. A new one is on disk only once it is saved.

        Raises:
            ValueError: `key` can't name a session.
            CorruptRecordError: Its file is damaged; it was left as it is.
            OSError: Its file can't be read. It is never taken for an empty one.
        """
        with self.reading(key) as records, self._guard:
            session = self._live.get(key)
            if session is None:
                session = self._live[key] = Session(key)
                load(session, records)
            elif session._origin is not None:
                catch_up(session, records)
            self._recent[key] = (records, session)
            return session

    @repeated
    def save(self, session: Session) -> None:
        """Append what is new in `session`: messages, pointer, metadata.

        The messages are appended all or not at all. Where the process is killed between them
        and the rest, they are there with the pointer and the metadata as they were before.
        What others appended meanwhile comes before them, in `session` too.

        Raises:
            ValueError: An older message was changed or removed, a message can't be stored,
                or the session is a graph's thread. Nothing was written.
            SessionNotFoundError: The session was deleted meanwhile.
            OSError: It could not be written; the earlier messages are safe, save again. Of a
                `DatabaseError` that `may_be_written`, invalidate the session first, and look.
        """
        with self.writing(session.key) as records:
            self._check_same(session, records)
            if session._cleared:
                self.erase(session.key)
                begin_anew(session, records)
            check_unchanged(session, records)
            self._redact_new(session)
            fresh = session.messages[session._saved :]
            if fresh and records.is_thread:
                raise ValueError(_BELONGS_TO_GRAPH.format(key=session.key))
            lines = self._message_lines(records, fresh)
            metadata = changed_metadata(session, records)
            if lines or metadata != records.header:
                self.commit(records, [*lines, metadata])
            merge(session, records, len(fresh))
        with self._guard:
            self._live.setdefault(session.key, session)

    def invalidate(self, key: str) -> None:
        """Forget what is cached of `key`; the next `get_or_create` reads it from the disk."""
        with self._guard:
            self._recent.pop(key, None)
            self._live.pop(key, None)

    def forget(self) -> None:
        """Forget all that is cached and that nobody holds."""
        with self._guard:
            self._recent.clear()
            derived = [*self.derived.values()]
        for one in derived:
            one.close()

    def list_sessions(self) -> list[dict[str, Any]]:
        """All sessions, the one last written first.

        Each as a dictionary: ``key``; ``created_at`` and ``updated_at``, aware datetimes in
        UTC (``created_at`` None where it is not known); ``size_bytes``; ``path``.
        """
        infos = sorted(self.journal.list(), key=lambda info: info.updated_at, reverse=True)
        return [
            {
                "key": info.key,
                "created_at": parse_timestamp(info.first_record.get("created_at")),
                "updated_at": info.updated_at,
                "size_bytes": info.size_bytes,
                "path": info.place,
            }
            for info in infos
        ]

    def archive(self, key: str) -> bool:
        """Put a session away, compressed; False where there is none, or it is put away already.

        It is searched as before, and comes back, with its checkpoints and all, when it is used
        again: also when an object of it that is still held is saved.

        Raises:
            NotImplementedError: The journal keeps no archive.
            CorruptRecordError: It is damaged; it was left as it is.
            OSError: It could not be written; it is where it was.
        """
        with self.journal.lock(key):
            with self._opened(key) as records:  # `reading` would bring it back
                if not records.exists:
                    return False
                scope = records.scope or ()
            is_away = self.journal.put_away(key, scope)
            with self._guard:
                self._recent.pop(key, None)
            return is_away

    def restore(self, key: str) -> bool:
        """Bring a session back that was put away; False where there is none."""
        return self.journal.bring_back(key)

    def delete_archived(self, key: str) -> bool:
        """Remove a session that is put away; False where there is none.

        An object of it that is still held can't be saved any more.
        """
        return self._gone(key, lambda: self.journal.delete_archived(key))

    def list_archived(self) -> list[ArchivedSession]:
        """The sessions that are put away, in the order of their keys."""
        return [] if self.journal.archive is None else self.journal.archive.sessions()

    def delete(self, key: str) -> bool:
        """Remove the session and all that is known of it; False where there was none.

        One that is put away goes, too.

        An object of it that is still held can't be saved any more.
        """
        return self._gone(key, lambda: self.journal.delete(key))

    def _gone(self, key: str, remove: Callable[[], bool]) -> bool:
        """Have a session deleted, and who holds an object of it know that."""
        with self.journal.lock(key), self._guard:
            try:
                is_gone = remove()
            except ReplacedError as error:
                raise OvertakenError(key) from error
            session = self._live.get(key)
            self.invalidate(key)
            if is_gone and session is not None:
                session._origin = DELETED
            return is_gone

    # --- for chat history, graphs and consolidation ---

    @contextlib.contextmanager
    def reading(self, key: str) -> Iterator[SessionRecords]:
        """The records of `key` as they are now, held still until the block ends.

        A session that is put away is brought back first.
        """
        archive, is_away = self.journal.archive, True
        while is_away:
            if archive is not None and archive.holds(key):
                self.journal.bring_back(key)  # before the guard: it takes the lock
            with self._opened(key) as records:
                is_away = not records.exists and archive is not None and archive.holds(key)
                if not is_away:
                    yield records

    @contextlib.contextmanager
    def _opened(self, key: str) -> Iterator[SessionRecords]:
        records = self._cached(key)
        with records.guard, contextlib.ExitStack() as stack:
            if not records.is_attached:
                reader = stack.enter_context(self.journal.open(key))
                reader.objects = self.elements.serde
                stack.enter_context(records.attached(reader))
            try:
                self._refresh(records)
                yield records
            finally:
                self._forget_misleading_index(records)

    @contextlib.contextmanager
    def reading_archived(self, key: str) -> Iterator[SessionRecords]:
        """The records of a session that is put away; it stays so.

        Raises:
            FileNotFoundError: It is not.
            CorruptRecordError: It is damaged.
        """
        if self.journal.archive is None:
            raise FileNotFoundError(key)
        reader = self.journal.archive.reader(key)
        reader.objects = self.elements.serde
        records = SessionRecords(key, self._message_record)
        with records.guard, records.attached(reader):
            self._read_on(records)
            yield records

    @contextlib.contextmanager
    def writing(self, key: str) -> Iterator[SessionRecords]:
        """The same, with everyone else kept from writing until the block ends."""
        with self.journal.lock(key), self.reading(key) as records:
            yield records

    @contextlib.contextmanager
    def attempting(self, key: str) -> Iterator[SessionRecords]:
        """`writing`, for what is `repeated`: what others just wrote may be told only then."""
        with self.journal.attempt(key), self.reading(key) as records:
            yield records

    def commit(
        self, records: SessionRecords, new: Sequence[Record], *, durable: bool = True
    ) -> None:
        """Append `new` and fold it. Inside `writing` or `attempting` only.

        A journal begins with a metadata record, which names its key.
        """
        if not records.exists and new[0].get("_type") != "metadata":
            heads = [record for record in new if record.get("_type") == "metadata"]
            new = [*(heads or [metadata_record(records, utc_now())]), *new]
        if not records.exists and self.journal.scope is not None:
            new = [{"scope": list(self.journal.scope), **new[0]}, *new[1:]]
        with _forgotten_on_failure(records):
            self.journal.append(records.key, new, expected_end=records.end, durable=durable)
        try:
            records.fold(*records.read_on())
        except Exception:  # noqa: BLE001 - an error now would make the caller write it once more
            records.reset()
        except BaseException:  # half folded, it would be folded once more
            records.reset()
            raise
        self._keep_index(records)

    def rewrite(self, records: SessionRecords, new: Sequence[Record]) -> None:
        """Put `new` in place of all records. Inside `writing` only."""
        with _forgotten_on_failure(records):
            self.journal.rewrite(records.key, new)
        self._read_anew(records)

    def header(self, records: SessionRecords) -> Record:
        """The metadata record that says what holds now."""
        return metadata_record(records, utc_now())

    @repeated
    def append_messages(self, key: str, messages: Sequence[BaseMessage]) -> None:
        """Append LangChain messages to a session that is no graph's thread, in one write.

        A message whose id is already there is skipped if it is equal.

        Raises:
            ValueError: A message of the same id differs, one can't be stored, or the session
                is a graph's thread. Nothing was written.
        """
        with self.writing(key) as records:
            if records.is_thread:
                raise ValueError(_BELONGS_TO_GRAPH.format(key=key))
            fresh = _without_known(records, [self._redacted(encode(one)) for one in messages])
            if fresh:
                lines = self._message_lines(records, fresh)
                self.commit(records, [*lines, metadata_record(records, utc_now())])

    @repeated
    def record_messages(self, key: str, messages: Sequence[BaseMessage]) -> None:
        """Append those of a graph's messages that the journal has not; others stay as they are."""
        with self.writing(key) as records:
            writer = ElementWriter(self.elements, records)
            writer.encode(list(messages), conversation=True)
            if writer.new:
                self.commit(records, writer.new)
                writer.written()

    @repeated
    def note_trimmed(self, key: str, message_ids: Sequence[str]) -> None:
        """Note that these messages leave a graph's state, and stay in the session."""
        with self.writing(key) as records:
            new = [one for one in message_ids if one not in records.trimmed_ids]
            if new:
                self.commit(records, [{"_type": "trimmed", "ids": new}])

    @repeated
    def bind_scope(self, key: str, scope: tuple[str, ...]) -> None:
        """Bind the session to whose memory it uses, at its first use and for good.

        Raises:
            ScopeError: It is bound to another scope.
        """
        with self.reading(key) as records:
            bound = records.scope
        if bound is None:
            with self.writing(key) as records:
                bound = records.scope
                if bound is None:
                    header = {**metadata_record(records, utc_now()), "scope": list(scope)}
                    self.commit(records, [header])
                    return
        if bound != scope:
            raise ScopeError(
                f"session {key!r} belongs to {_named(bound)}, not to {_named(scope)}. Use another "
                "thread_id or session_id: a session is never shared between scopes."
            )

    @repeated
    def keep_off_the_record(self, key: str) -> None:
        """Have nothing of a session get into memory, log and search, from now on and for good.

        It is kept as it is, and its prompts show the memory. Where it gets too long for a
        prompt, its oldest turns are left out there. What of it is in memory already stays.
        """
        if not self.is_off_the_record(key):
            with self.writing(key) as records:
                header = {**metadata_record(records, utc_now()), "off_the_record": True}
                self.commit(records, [header])

    def is_off_the_record(self, key: str) -> bool:
        """Whether nothing of a session gets into memory, log and search."""
        if self.off_the_record:
            return True
        with self.reading(key) as records:
            return records.is_off_the_record

    def note_pointer(self, session: Session) -> None:
        """Take over where the pointer is now, into an object that may have unsaved messages."""
        with self.reading(session.key) as records:
            session.last_consolidated = records.pointer(records.view())
        if session._origin is not None:
            session._origin = session._origin._replace(pointer=session.last_consolidated)

    @repeated
    def erase(self, key: str) -> None:
        """Empty the session on disk: messages, checkpoints and all; who it belongs to stays."""
        with self.writing(key) as records:
            if records.exists:
                header = metadata_record(SessionRecords(key, self._message_record), utc_now())
                kept = records.header.keys() & {"scope", "metadata", "off_the_record"}
                header |= {name: records.header[name] for name in kept}
                with _forgotten_on_failure(records):
                    self.journal.rewrite(key, [header], erase=True)
                self._read_anew(records)
                session = self._live.get(key)
                if session is not None and session._origin is not None:
                    catch_up(session, records)

    def _cached(self, key: str) -> SessionRecords:
        with self._guard:
            records, session = self._recent.pop(key, (None, None))
            records = records or SessionRecords(key, self._message_record)
            self._recent[key] = (records, session)
            while len(self._recent) > self._max_cached:
                self._recent.popitem(last=False)
            self._uses += 1
            if self._uses % _USES_BETWEEN_WEIGHINGS == 0:
                self._shed()
            return records

    def _shed(self) -> None:
        """Forget those not used for longest, if all together have too many messages."""
        weight = 0
        for place, key in enumerate(reversed(list(self._recent))):
            weight += self._recent[key][0].weight
            if place and weight > self._max_weight:
                del self._recent[key]

    def _redact_new(self, session: Session) -> None:
        """Have the session's new messages, and its metadata, as they may be written."""
        if self.elements.redact is None:
            return
        session.metadata = self.elements.clean(session.metadata)
        for place in range(session._saved, len(session.messages)):
            if isinstance(session.messages[place], dict):
                session.messages[place] = self._redacted(session.messages[place])

    def _redacted(self, record: Record) -> Record:
        redact = self.elements.redact
        return record if redact is None else redacted_record(record, redact)

    def _message_lines(self, records: SessionRecords, fresh: Sequence[Record]) -> list[Record]:
        checked = [_checked(records, place, record) for place, record in enumerate(fresh)]
        return [
            {**self.elements.line(record), "_n": number}
            for number, record in enumerate(checked, start=records.next_number)
        ]

    def _message_record(self, element: Record) -> Record:
        return self.elements.message_record(element)

    def _refresh(self, records: SessionRecords) -> None:
        try:
            if not records.exists:
                self._open_by_index(records)
            self._read_on(records)
        except BaseException:
            records.reset()
            raise

    def _read_on(self, records: SessionRecords) -> None:
        try:
            records.fold(*records.read_on())
        except ReplacedError:
            records.reset()
            records.fold(*records.read_on())

    def _read_anew(self, records: SessionRecords) -> None:
        """Read what was rewritten."""
        records.reset()
        records.renew()
        self._refresh(records)

    def _open_by_index(self, records: SessionRecords) -> None:
        content = self.journal.index(records.key)
        try:
            with paused():
                if content:
                    restore_index(records, content, self.elements.serde)
        except Exception:  # noqa: BLE001 - whatever is in it, it is no index of ours
            records.reset()

    def _forget_misleading_index(self, records: SessionRecords) -> None:
        if records.is_misled:
            records.is_misled = False
            self.journal.keep_index(records.key, b"")

    def _keep_index(self, records: SessionRecords) -> None:
        """Keep an index whenever the journal has grown by a good part since the last."""
        end = records.end.offset
        if end >= records.indexed_until + max(_MIN_INDEXED, records.indexed_until // 16):
            records.indexed_until = end
            self.journal.keep_index(records.key, dump_index(records))

    def _check_same(self, session: Session, records: SessionRecords) -> None:
        origin = session._origin
        if origin is None and records.exists:
            raise ValueError(
                f"session {session.key!r} exists already: get it from get_or_create, not from "
                "Session(). Nothing was written."
            )
        if origin is not None and origin.existed and not is_same(origin, records):
            raise SessionNotFoundError(
                f"session {session.key!r} was deleted while this object of it was held. Nothing "
                "was written; get_or_create gives a new one."
            )


@contextlib.contextmanager
def _forgotten_on_failure(records: SessionRecords) -> Iterator[None]:
    """Have what was read forgotten where it can't be told what is in the journal by now."""
    try:
        yield
    except ReplacedError as error:
        records.reset()
        raise OvertakenError(records.key) from error
    except DatabaseError:
        records.reset()
        raise


_BELONGS_TO_GRAPH = (
    "session {key!r} is a graph's thread: its messages are those of the graph's state. "
    "Change them with graph.update_state(config, {{'messages': [...]}}). Nothing was written."
)


def _checked(records: SessionRecords, place: int, record: Record) -> Record:
    """`record`, the `place`-th new message, if it can be stored."""
    where = f"message {place} of those new in session {records.key!r}"
    if not isinstance(record, dict):
        raise ValueError(f"{where} is no dictionary but {record!r:.80}")  # noqa: TRY004 - bad content
    if reserved := [name for name in _RESERVED if name in record]:
        raise ValueError(f"{where}: the field {reserved[0]!r} is reserved; name it otherwise")
    try:
        dump_record(record)
    except ValueError as error:
        raise ValueError(f"{where} cannot be stored: {error} Nothing was written.") from error
    return record


def _without_known(records: SessionRecords, given: Sequence[Record]) -> list[Record]:
    """Those of the messages whose id is not there yet."""
    fresh: dict[Any, Record] = {}
    for place, record in enumerate(map(stamped, given)):
        message_id = record.get("id")
        number = records.message_ids.get(message_id or "")
        known = fresh.get(message_id) if number is None else records.message(number)
        if message_id is None:
            fresh[place] = record
        elif known is None:
            fresh[message_id] = record
        elif digest(known) != digest(record):
            raise ValueError(
                f"session {records.key!r} already has another message of id {message_id!r}; "
                "messages are never changed. Give the new one another id, or none."
            )
    return list(fresh.values())


def _named(scope: tuple[str, ...]) -> str:
    return f"the scope {'/'.join(scope)!r}" if scope else "the workspace's own scope"
