"""Python values as lines of JSON, without loss.

What JSON has is written as it is. A value that JSON lacks is tagged:
``{"__nanomem__": "tuple", "value": [1, 2]}``. Objects of classes are written as LangGraph's
serializer writes them, and are made again only by a serializer that is given: which classes
may be, is for it to say.
"""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import orjson
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from langgraph.checkpoint.serde.base import SerializerProtocol

TAG = "__nanomem__"
_TAG_BYTES = TAG.encode()
_ATOMS = frozenset({str, bool, type(None)})
"""The types all of whose values JSON has."""
_INT64 = range(-(2**63), 2**64)
_KIND = "msgpack"
"""How LangGraph's serializer names what it makes of an object."""
_LOOKING = JsonPlusSerializer(__unpack_ext_hook__=lambda _, content: content)
"""Reads what is well formed, and makes no object of it."""
_COPYING = JsonPlusSerializer(allowed_msgpack_modules=True)
"""Copies the objects of a record: whoever may have them has them already."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as it is written: nothing was made of it. It is written again as it was."""

    content: bytes
    """What LangGraph's serializer made of it."""


# --- lines ------------------------------------------------------------------


def dump_record(record: Mapping[str, Any]) -> bytes:
    """`record` as one line of JSON, without the line's end; `load_record` gives it back equal.

    Raises:
        ValueError: A value in it can't be stored so that it comes back equal; names the field.
    """
    return dump_value(record, "")


def dump_value(value: Any, where: str) -> bytes:
    """Any value as a piece of JSON, like `dump_record`; `where` stands before a field's name.

    Raises:
        ValueError: A value in it can't be stored so that it comes back equal; names the field.
    """
    try:
        return to_json(value if is_plain(value) else pack(value, where))
    except RecursionError:
        field = _too_deep(value, where) or "the value"
        raise ValueError(
            f"{field}: nested too deeply to be stored, or it holds itself. Store plain data."
        ) from None


def _too_deep(value: Any, where: str) -> str:
    """The name of the field of `value` that is nested too deeply; `where` if it is all of them."""
    for name, item in value.items() if isinstance(value, dict) else ():
        try:
            to_json(pack(item, ""))
        except RecursionError:
            return f"{where}.{name}" if where else str(name)
    return where


def load_record(line: bytes, objects: SerializerProtocol | None = None) -> dict[str, Any]:
    """The record of a line.

    Args:
        line: Without its end.
        objects: Makes the objects in it again; without it each is a `StoredObject`.

    Raises:
        ValueError: It is no JSON object, or a tagged value in it can't be made again.
    """
    record = from_json(line)
    if may_be_tagged(line):
        record = unpack(record, objects)
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - the file is wrong, not an argument
    return record


def copy_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record equal to `record` that shares nothing with it."""
    return load_record(dump_record(record), _COPYING)


def may_be_tagged(line: bytes) -> bool:
    """Whether a piece of JSON may hold a value that JSON lacks."""
    return _TAG_BYTES in line


def to_json(value: Any) -> bytes:
    """Plain JSON values as compact UTF-8; lone surrogates, which UTF-8 lacks, as escapes."""
    try:
        return orjson.dumps(value)
    except TypeError:  # a lone surrogate, or nesting deeper than orjson goes
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def from_json(line: bytes) -> Any:
    """The value of a piece of JSON, also of one that holds escaped lone surrogates."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return _from_loose_json(line.decode("utf-8"))


def _from_loose_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# --- values that JSON lacks -------------------------------------------------


def is_plain(value: Any) -> bool:
    """Whether `value` is made of JSON's own types alone, exactly, and comes back as it is."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if kind is dict:
        return _is_plain_dict(value)
    if kind is list:
        return _is_plain_list(value)
    if kind is int:
        return value in _INT64
    return kind is float and math.isfinite(value)


def _is_plain_dict(value: dict[Any, Any]) -> bool:
    for name, item in [*value.items()]:  # another thread may add to it
        if type(name) is not str or (type(item) not in _ATOMS and not is_plain(item)):
            return False
    return TAG not in value


def _is_plain_list(value: list[Any]) -> bool:
    for item in value:  # noqa: SIM110 - a generator takes twice as long, and each write waits for it
        if type(item) not in _ATOMS and not is_plain(item):
            return False
    return True


def pack(value: Any, where: str) -> Any:
    """`value` in JSON's own types; `unpack` makes an equal value of it.

    Raises:
        ValueError: There is no way to store it so that it comes back equal; starts with the
            field it stands in, below `where`.
    """
    if value is None or type(value) is str or type(value) is bool:
        return value
    if isinstance(value, dict):
        return _pack_dict(value, where)
    if isinstance(value, list):
        return [pack(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, (str, int, float)) and not isinstance(value, Enum):
        return _pack_scalar(value)
    return _pack_foreign(value, where)


def _pack_scalar(value: str | float) -> Any:
    """A number or a text of a class derived from Python's own; equal to the plain one."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value) if value in _INT64 else {TAG: "int", "value": str(int(value))}
    return float(value) if math.isfinite(value) else {TAG: "float", "value": str(float(value))}


def _pack_dict(value: dict[Any, Any], where: str) -> dict[str, Any]:
    if TAG not in value and all(isinstance(name, str) for name in value):
        return {
            str.__str__(name): pack(item, f"{where}.{name}" if where else str(name))
            for name, item in value.items()
        }
    return {
        TAG: "dict",
        "value": [
            [pack(name, f"{where}{{key}}"), pack(item, f"{where}[{name!r}]")]
            for name, item in value.items()
        ],
    }


def _pack_foreign(value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, StoredObject):
        return {TAG: "object", "type": _KIND, "value": base64.b64encode(value.content).decode()}
    if isinstance(value, tuple):
        return {TAG: "tuple", "value": pack(list(value), where)}
    if isinstance(value, (bytes, bytearray)):
        kind = "bytes" if isinstance(value, bytes) else "bytearray"
        return {TAG: kind, "value": base64.b64encode(value).decode()}
    if type(value) in {set, frozenset}:
        # sorted: equal sets of two processes are to have one and the same line
        return {TAG: type(value).__name__, "value": sorted(pack(list(value), where), key=to_json)}
    return _pack_object(value, where)


def _pack_object(value: Any, where: str) -> dict[str, Any]:
    """Through LangGraph's serializer, and back at once, for it changes some values silently."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    field = where or "the value"
    try:
        serde = JsonPlusSerializer()
        kind_written, content = serde.dumps_typed(value)
        again = serde.loads_typed((kind_written, content))
        equal = type(again) is type(value) and bool(again == value)
    except Exception as error:
        raise ValueError(
            f"{field}: an object of type {kind} cannot be stored ({error}). Store plain data."
        ) from error
    if not equal:
        raise ValueError(
            f"{field}: an object of type {kind} would not come back equal. Store plain data."
        )
    return _pack_foreign(StoredObject(content), where)


def unpack(value: Any, objects: SerializerProtocol | None = None) -> Any:
    """The value that `pack` was given; without `objects`, each object in it as a `StoredObject`.

    Raises:
        ValueError: A tag is unknown or its value malformed.
    """
    if isinstance(value, list):
        return [unpack(item, objects) for item in value]
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {name: unpack(item, objects) for name, item in value.items()}
    try:
        return _UNPACKERS[value[TAG]](value, objects)
    except Exception as error:  # whatever LangGraph's serializer raises on a damaged value
        raise ValueError(f"a tagged value of kind {value[TAG]!r} cannot be read") from error


def _unpack_bytes(tagged: dict[str, Any], _: SerializerProtocol | None) -> bytes:
    return base64.b64decode(tagged["value"], validate=True)


def _unpack_object(tagged: dict[str, Any], objects: SerializerProtocol | None) -> Any:
    if tagged["type"] != _KIND:
        raise ValueError(f"objects are never written as {tagged['type']!r}")
    content = _unpack_bytes(tagged, objects)
    if objects is not None:
        return objects.loads_typed((_KIND, content))
    _LOOKING.loads_typed((_KIND, content))
    return StoredObject(content)


def _unpack_dict(tagged: dict[str, Any], objects: SerializerProtocol | None) -> dict[Any, Any]:
    return {unpack(name, objects): unpack(item, objects) for name, item in tagged["value"]}


_UNPACKERS: dict[str, Callable[[dict[str, Any], SerializerProtocol | None], Any]] = {
    "int": lambda tagged, _: int(tagged["value"]),
    "float": lambda tagged, _: float(tagged["value"]),
    "tuple": lambda tagged, objects: tuple(unpack(tagged["value"], objects)),
    "bytes": _unpack_bytes,
    "bytearray": lambda tagged, objects: bytearray(_unpack_bytes(tagged, objects)),
    "set": lambda tagged, objects: set(unpack(tagged["value"], objects)),
    "frozenset": lambda tagged, objects: frozenset(unpack(tagged["value"], objects)),
    "dict": _unpack_dict,
    "object": _unpack_object,
}
