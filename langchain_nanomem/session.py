"""One conversation: its messages, the seam between memory and live window, its legal history.

Pure data. Nothing here reads or writes a file; that is the work of `SessionManager`.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

logger = logging.getLogger(__name__)

INTERRUPTED = "[interrupted: this tool call was never answered]"

# What a provider is sent of a record; the rest is bookkeeping of ours or of the program's.
_REPLAYED = (
    "tool_calls",
    "tool_call_id",
    "name",
    "refusal",
    "reasoning_content",
    "reasoning_details",
    "thinking_blocks",
)
_ERROR_FLAGS = ("error", "is_error")
_FINISH_REASONS = ("finish_reason", "stop_reason")
_METADATA = ("metadata", "response_metadata", "additional_kwargs")


def utc_now() -> datetime:
    """The present, aware, in UTC."""
    return datetime.now(UTC)


def parse_timestamp(value: object) -> datetime | None:
    """The moment that a record's timestamp means, aware and in UTC; None if it means none.

    Text is read as ISO 8601, a number as seconds since 1970. A time without a zone is taken
    as UTC: which zone the program that wrote it ran in cannot be known.
    """
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            value = datetime.fromtimestamp(value, UTC)
        if not isinstance(value, datetime):
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None


@dataclass
class Session:
    """A conversation session. Get one from `SessionManager.get_or_create`, nowhere else.

    Messages are only ever appended, so that the prompt's prefix stays the same and the
    provider's prompt cache hits.
    """

    key: str
    """Whose conversation it is, as ``channel:chat_id``."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    """All messages, oldest first, in the form of OpenAI's chat messages."""
    created_at: datetime = field(default_factory=utc_now)
    """When it began, in UTC."""
    updated_at: datetime = field(default_factory=utc_now)
    """When it last changed, in UTC."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """What the program wants to remember with the session; plain data."""
    last_consolidated: int = 0
    """The number of leading messages that live in memory; those after it are the live window."""
    scope: tuple[str, ...] | None = None
    """Whose memory the session belongs to; None until its first use tells."""
    _saved: int = field(default=0, repr=False, compare=False)
    """The number of leading messages that are in the journal."""
    _origin: Any = field(default=None, repr=False, compare=False)
    """What the manager noted when it last read or wrote this session."""
    _cleared: bool = field(default=False, repr=False, compare=False)

    @property
    def uid(self) -> str | None:
        """What tells its journal from a later one of the same key; None until it is saved."""
        return getattr(self._origin, "uid", None)

    def add_message(self, role: str, content: Any, **fields: Any) -> None:
        """Append a message, stamped with the present unless a `timestamp` is given.

        Args:
            role: "user", "assistant", "tool", "system", or any other.
            content: Text, or a list of content blocks.
            fields: More of the message: ``tool_calls``, ``tool_call_id``, ``name``,
                ``timestamp`` (a datetime, or ISO 8601 text), or whatever is to be kept.
        """
        stamp = fields.pop("timestamp", None)
        if stamp is None:
            stamp = utc_now()
        if isinstance(stamp, datetime):
            stamp = (parse_timestamp(stamp) or stamp).isoformat()
        self.messages.append({"role": role, "content": content, "timestamp": stamp, **fields})
        self.updated_at = utc_now()

    def get_history(self, max_messages: int = 500) -> list[dict[str, Any]]:
        """The live window as a provider accepts it: the messages not yet in memory.

        It begins with a user message where there is one. A tool result without its call, a
        second result for one call, an assistant message that is empty or marked as an error
        are left out; a call without a result is given one that says so. The session itself
        is not changed.

        Args:
            max_messages: At most so many of the newest messages; 0 means no limit.

        Raises:
            ValueError: `max_messages` is negative.
        """
        if max_messages < 0:
            raise ValueError(f"max_messages must be 0 (no limit) or more, not {max_messages}")
        start = valid_pointer(self.last_consolidated, len(self.messages), self.key)
        window = self.messages[start:][-max_messages:]
        window = window[first_user(window) :]
        return [
            _interrupted(place) if isinstance(place, MissingResult) else _replayed(window[place])
            for place in legal_view([record_shape(record) for record in window])
        ]

    def _repr_html_(self) -> str:
        from langchain_nanomem.display import session_html  # noqa: PLC0415 - for notebooks alone

        said = parse_timestamp(self.messages[-1].get("timestamp")) if self.messages else None
        at, scope = said or self.updated_at, self.scope or ()
        return session_html(self.key, self.messages, self.last_consolidated, at, scope)

    def clear(self) -> None:
        """Empty the conversation; saving it then removes the text from the disk too."""
        self.messages.clear()
        self.last_consolidated = 0
        self.updated_at = utc_now()
        self._saved = 0
        self._cleared = True


def valid_pointer(value: object, message_count: int, key: str) -> int:
    """`value` if it is a number of leading messages; else 0, with a warning.

    A damaged pointer must never hide history: 0 shows everything.
    """
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= message_count:
        return value
    logger.warning(
        "session %r: last_consolidated is %r, which is no number of its %d messages; "
        "taken as 0, so that nothing is hidden",
        key,
        value,
        message_count,
    )
    return 0


def first_user(records: list[dict[str, Any]]) -> int:
    """The index of the first user message; 0 where there is none."""
    return next((i for i, record in enumerate(records) if record.get("role") == "user"), 0)


# --- what providers accept --------------------------------------------------


class Shape(NamedTuple):
    """What decides whether a message may stand where it stands."""

    role: str
    """OpenAI's role."""
    calls: tuple[tuple[str, str], ...] = ()
    """Id and name of each tool call of an assistant message."""
    result_of: str | None = None
    """The id of the call that a tool message answers."""
    replayable: bool = True
    """False for an assistant message that is empty or marked as an error."""


class MissingResult(NamedTuple):
    """Where a view needs a result that was never recorded."""

    call_id: str
    name: str


def legal_view(shapes: list[Shape]) -> list[int | MissingResult]:
    """The places of the messages that a strict provider accepts, in its order.

    Each tool result stands right behind its call, and each call has exactly one; results of
    no call, and further results of the same call, are left out.
    """
    results: dict[int, list[int]] = {}
    waiting: dict[str | None, int] = {}
    for place, shape in enumerate(shapes):
        if shape.role == "tool":
            caller = waiting.pop(shape.result_of, None)
            if caller is not None:
                results.setdefault(caller, []).append(place)
        elif shape.replayable:
            waiting |= {call_id: place for call_id, _ in shape.calls}
    view: list[int | MissingResult] = []
    for place, shape in enumerate(shapes):
        if shape.role != "tool" and shape.replayable:
            answered = results.get(place, [])
            given = {shapes[result].result_of for result in answered}
            view += [place, *answered]
            view += [MissingResult(*call) for call in shape.calls if call[0] not in given]
    return view


def record_shape(record: Mapping[str, Any]) -> Shape:
    """The shape of a record, whoever wrote it."""
    role = str(record.get("role") or "")
    if role == "tool":
        return Shape(role, result_of=_call_id(record.get("tool_call_id")))
    if role != "assistant":
        return Shape(role)
    calls = {_call_id(call.get("id")): call_name(call) for call in tool_calls_of(record)}
    filled = bool(record.get("tool_calls")) or has_content(record.get("content"))
    answerable = tuple((call_id, name) for call_id, name in calls.items() if call_id)
    return Shape(role, answerable, replayable=filled and not _is_error(record))


def tool_calls_of(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tool calls of a record, whoever wrote it; what is no call is left out."""
    calls = record.get("tool_calls")
    return [call for call in calls if isinstance(call, Mapping)] if isinstance(calls, list) else []


def _call_id(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def call_name(call: Mapping[str, Any]) -> str:
    """The tool that a call names, in LangChain's form or OpenAI's; "" where it names none."""
    function = call.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    return str(name or call.get("name") or "")


def has_content(content: object) -> bool:
    """Whether there is anything in a message's content but white space."""
    if isinstance(content, list):
        return any(_block_has_content(block) for block in content)
    return bool(content.strip() if isinstance(content, str) else content)


def _block_has_content(block: object) -> bool:
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else block
    return has_content(text)


def _is_error(record: Mapping[str, Any]) -> bool:
    """Whether its finish reason or metadata say so. The wording of the text never does."""
    places = [record, *(record.get(name) for name in _METADATA)]
    return any(
        any(place.get(flag) for flag in _ERROR_FLAGS)
        or any(place.get(reason) == "error" for reason in _FINISH_REASONS)
        for place in places
        if isinstance(place, Mapping)
    )


def _replayed(record: dict[str, Any]) -> dict[str, Any]:
    entry = {"role": record.get("role", "user"), "content": record.get("content", "")}
    entry |= {name: record[name] for name in _REPLAYED if name in record}
    # who is given it may mark it up, as for a provider's cache
    return {n: v if isinstance(v, str) else copy.deepcopy(v) for n, v in entry.items()}


def _interrupted(missing: MissingResult) -> dict[str, Any]:
    return {
        "role": "tool",
        "content": INTERRUPTED,
        "tool_call_id": missing.call_id,
        "name": missing.name,
    }
