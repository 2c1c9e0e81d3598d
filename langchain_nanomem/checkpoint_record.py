"""How a checkpoint's record is written, and what it means when it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_nanomem.journal import Record

_DIGITS = 32
"""How many digits LangGraph's savers write for the number in a version."""


def written(record: Record) -> Record:
    """`record`, all of whose versions are whole, as it is written."""
    versions = record["versions"]
    shown: Record = {**record, "versions": _map(versions, shortened)}
    shown["values"] = {
        channel: encoded if versions.get(channel) == version else [shortened(version), encoded]
        for channel, (version, encoded) in record["values"].items()
    }
    if "seen" in record:
        shown["seen"] = {node: _map(seen, shortened) for node, seen in record["seen"].items()}
    return shown


def understood(record: Record) -> Record:
    """What `written` was given. It also takes the form in which version 0.1 wrote it."""
    versions = _map(record["versions"], whole)
    meant: Record = {**record, "versions": versions}
    meant["values"] = {
        channel: (versions.get(channel), value)
        if isinstance(value, dict)
        else (whole(value[0]), value[1])
        for channel, value in record["values"].items()
    }
    if "seen" in record:
        meant["seen"] = {node: _map(seen, whole) for node, seen in record["seen"].items()}
    return meant


def _map(versions: dict[str, Any], change: Any) -> dict[str, Any]:
    return {channel: change(version) for channel, version in versions.items()}


def shortened(version: Any) -> Any:
    """A version without the zeros in front, which only make it sort as text."""
    if not isinstance(version, str):
        return version
    number, dot, rest = version.partition(".")
    if not (dot and number.isascii() and number.isdigit()):
        return version
    if len(number) != _DIGITS:
        return [version]  # it would be taken for a shortened one
    return f"{number.lstrip('0') or '0'}.{rest}"


def whole(version: Any) -> Any:
    """The version that was shortened."""
    if isinstance(version, list):
        return version[0]
    if not isinstance(version, str):
        return version
    number, dot, rest = version.partition(".")
    if dot and number.isascii() and number.isdigit():
        return f"{number:0>{_DIGITS}}.{rest}"
    return version
