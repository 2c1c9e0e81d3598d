"""Where two values or two checkpoints differ, in the types of all their parts too."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import get_checkpoint_id
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from pydantic import BaseModel

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple, PendingWrite

_ATOMS = frozenset({str, int, bool, bytes, type(None)})


def first_difference(one: Any, other: Any) -> str | None:
    """Where two values first differ, as ``.messages.3.content``; None where they are the same.

    They differ where `==` sees it, and also in a type (1, 1.0 and True), in the order of a
    dictionary's keys, and in the sign of a zero. What is no container and no model is
    compared by the parts that it would be pickled as.
    """
    if type(one) is not type(other):
        return ""
    if type(one) in _ATOMS:
        return None if one == other else ""
    return None if one is other else _of_parts(one, other)


def checkpoint_difference(
    stored: CheckpointTuple, found: CheckpointTuple, *, with_writes: bool = True
) -> str | None:
    """Where two checkpoints first differ, as ``channel_values.messages.3``; None if nowhere.

    A snapshot of a delta channel that only `stored` has makes no difference: `SqliteSaver`
    keeps it at one of the checkpoints of its version, other savers at all of them.
    """
    apart = found.checkpoint["channel_values"]
    values = {
        channel: value
        for channel, value in stored.checkpoint["channel_values"].items()
        if channel in apart or not isinstance(value, _DeltaSnapshot)
    }
    pair = _comparable(stored, values, with_writes), _comparable(found, apart, with_writes)
    different = first_difference(*pair)
    return None if different is None else different.removeprefix(".")


def are_among(some: Iterable[PendingWrite] | None, writes: Iterable[PendingWrite] | None) -> bool:
    """Whether all of `some` are among `writes`, in this order."""
    rest = iter(writes or ())
    return all(
        any(first_difference(tuple(write), tuple(other)) is None for other in rest)
        for write in some or ()
    )


def parent_of(found: CheckpointTuple) -> str | None:
    """The id of a checkpoint's parent."""
    return get_checkpoint_id(found.parent_config) if found.parent_config else None


def _comparable(found: CheckpointTuple, values: dict[str, Any], with_writes: bool) -> Any:  # noqa: FBT001 - passed through
    """The parts that count. In what order a saver gives fields and channels is free."""
    checkpoint: dict[str, Any] = dict(sorted(found.checkpoint.items()))
    checkpoint["channel_values"] = dict(sorted(values.items()))
    checkpoint["channel_versions"] = dict(sorted(checkpoint["channel_versions"].items()))
    writes = [tuple(write) for write in found.pending_writes or ()] if with_writes else []
    return {
        "parent": parent_of(found),
        **checkpoint,
        "metadata": found.metadata,
        "pending_writes": writes,
    }


def _of_parts(one: Any, other: Any) -> str | None:
    if type(one) is float:
        return None if repr(one) == repr(other) else ""
    if type(one) is dict:
        return _of_dicts(one, other)
    if isinstance(one, (list, tuple)):
        parts = zip(range(len(one)), one, other, strict=False)
        return "" if len(one) != len(other) else _first(parts)
    if isinstance(one, (set, frozenset)):
        return None if _members(one) == _members(other) else ""
    return _of_objects(one, other)


def _of_dicts(one: dict[Any, Any], other: dict[Any, Any]) -> str | None:
    if odd := one.keys() ^ other.keys():
        return f".{min(odd, key=repr)}"
    if first_difference(list(one), list(other)) is not None:
        return ""
    return _first(zip(one, one.values(), other.values(), strict=True))


def _of_objects(one: Any, other: Any) -> str | None:
    if isinstance(one, BaseModel):
        return _of_models(one, other)
    if dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one)]
        return _first((name, getattr(one, name), getattr(other, name)) for name in names)
    apart = _taken_apart(one), _taken_apart(other)
    if None in apart:
        return None if one == other else ""
    return first_difference(*apart)


def _of_models(one: BaseModel, other: BaseModel) -> str | None:
    rest = [(m.__pydantic_extra__, m.__pydantic_private__) for m in (one, other)]
    found = _of_dicts(one.__dict__, other.__dict__)
    return first_difference(*rest) if found is None else found


def _first(parts: Iterable[tuple[Any, Any, Any]]) -> str | None:
    for name, one, other in parts:
        if (found := first_difference(one, other)) is not None:
            return f".{name}{found}"
    return None


def _members(values: Iterable[Any]) -> set[tuple[type, Any]]:
    return {(type(value), value) for value in values}


def _taken_apart(value: Any) -> list[Any] | None:
    """The parts that pickle would store of an object; None where it has no such parts."""
    try:
        parts = value.__reduce_ex__(4)
    except Exception:  # noqa: BLE001 - whatever a class raises that can't be pickled
        return None
    if isinstance(parts, str):
        return None
    return [list(part) if isinstance(part, Iterator) else part for part in parts]
