"""Message records without what is sensitive, for sessions that are to be redacted too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_nanomem.journal import Record

_STRUCTURE = frozenset({"_n", "_type", "id", "index", "of", "role", "timestamp", "tool_call_id"})


def redacted_record(record: Record, redact: Callable[[str], str]) -> Record:
    """A message record whose texts went through `redact`, however deep they lie in it.

    What ties it to others (ids, role, time) is as it was. A record without anything to redact
    comes back equal.
    """
    return {
        name: value if name in _STRUCTURE else _redacted(value, redact)
        for name, value in record.items()
    }


def _redacted(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redacted(item, redact) for item in value]
    return redacted_record(value, redact) if isinstance(value, dict) else value
