"""Which items and namespaces are asked for, as LangGraph's stores understand it. Pure."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from langgraph.store.base import ListNamespacesOp, MatchCondition

_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def is_asked(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether the value of an item is as a filter has it.

    Raises:
        ValueError: It has an operator that is none.
    """
    return all(_matches(value.get(name), one) for name, one in (wanted or {}).items())


def _matches(value: Any, wanted: Any) -> bool:
    if not isinstance(wanted, dict) or not any(name.startswith("$") for name in wanted):
        return bool(value == wanted)
    if unknown := wanted.keys() - _COMPARED.keys():
        raise ValueError(f"a filter has no operator {', '.join(sorted(unknown))}")
    return all(_compares(_COMPARED[name], value, one) for name, one in wanted.items())


def _compares(compare: Callable[[Any, Any], Any], value: Any, other: Any) -> bool:
    try:
        return bool(compare(value, other))
    except TypeError:  # of different kinds
        return False


def listed(spaces: Iterable[tuple[str, ...]], asked: ListNamespacesOp) -> list[tuple[str, ...]]:
    """The namespaces that are asked for, sorted, each once."""
    conditions = asked.match_conditions or ()
    found = {space for space in spaces if all(_fits(space, one) for one in conditions)}
    cut = sorted({space[: asked.max_depth] for space in found})
    return cut[asked.offset : asked.offset + asked.limit]


def _fits(space: tuple[str, ...], condition: MatchCondition) -> bool:
    path = condition.path
    if len(path) > len(space):
        return False
    start = 0 if condition.match_type == "prefix" else len(space) - len(path)
    part = space[start : start + len(path)]
    return all(wanted in ("*", label) for label, wanted in zip(part, path, strict=True))
