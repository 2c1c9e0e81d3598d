"""How a checkpoint's record is written, and what it means when it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_nanomem.journal import Record

_DIGITS = 32
"""How many digits LangGraph's savers write for the number in a version."""


def written(record: Record) -> Record:
    """`record`, all of whose versions are whole, as it is written: each version once."""
    known: dict[tuple[type, Any], int] = {}

    def place(version: Any) -> int:
        return known.setdefault((type(version), version), len(known))  # 1 and 1.0 are two versions

    versions = _map(record["versions"], place)
    shown: Record = {**record, "versions": versions, "values": {}}
    for channel, (version, encoded) in record["values"].items():
        number = place(version)
        same = versions.get(channel) == number
        shown["values"][channel] = encoded if same else [number, encoded]
    if "seen" in record:
        shown["seen"] = {node: _map(seen, place) for node, seen in record["seen"].items()}
    return {**shown, "known": [shortened(version) for _, version in known]}


def understood(record: Record) -> Record:
    """What `written` was given. It also takes a record whose versions are written out."""
    known = [whole(version) for version in record.get("known", ())]
    meaning = known.__getitem__ if "known" in record else whole
    versions = _map(record["versions"], meaning)
    meant: Record = {**record, "versions": versions}
    meant["values"] = {
        channel: (versions.get(channel), value)
        if isinstance(value, dict)
        else (meaning(value[0]), value[1])
        for channel, value in record["values"].items()
    }
    if "seen" in record:
        meant["seen"] = {node: _map(seen, meaning) for node, seen in record["seen"].items()}
    return meant


def _map(versions: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
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


def shortened_key(version: Any) -> Any:
    """What stands for a version as a key."""
    return as_key(shortened(version))


def as_key(shown: Any) -> Any:
    """A shortened version as a key."""
    return tuple(shown) if isinstance(shown, list) else shown


def versions_brought(record: Record) -> set[Any]:
    """The keys of the versions of which a record, as it was read, brings values."""
    known = record.get("known")
    found = set()
    for channel, value in record["values"].items():
        version = record["versions"].get(channel) if isinstance(value, dict) else value[0]
        if known is None:
            found.add(shortened_key(whole(version)))
        else:
            shown = known[version] if version is not None else None
            found.add(as_key(shown))
    return found
