"""Whether anybody holds what was handed out, or a part of it, as reference counts tell it."""

from __future__ import annotations

import gc
import sys
from itertools import chain
from operator import call
from typing import TYPE_CHECKING, Any
from weakref import getweakrefcount

from langchain_nanomem.images import CONTAINERS, SCALARS, extra_of, fields_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def _count_alone() -> int | None:
    """The count of a part that only its owner and the list that is looked through refer to.

    None where counts say nothing: on other Pythons, and on those without a global lock.
    """
    is_locked: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    if sys.implementation.name != "cpython" or not is_locked():
        return None  # pragma: no cover - depends on the Python that runs it
    owner: list[Any] = [{}]
    return next(map(sys.getrefcount, list(owner)))


_ALONE = _count_alone()
CAN_TELL = _ALONE is not None
"""Whether it can be told at all here."""


def are_held(elements: list[Any]) -> bool:
    """Whether most of these are held themselves: most likely, the program still has the list.

    Args:
        elements: A slice of the only list that is to refer to them.
    """
    counts = list(map(sys.getrefcount, [one for one in elements if type(one) not in SCALARS]))
    return counts.count(_ALONE + 1) < len(counts) // 2  # type: ignore[operator]  # asked if CAN_TELL


def are_free(elements: list[Any], grabs: list[Callable[[Any], Any] | None]) -> bool:
    """Whether nobody can reach any of these, or a part of it, from elsewhere.

    What is looked at are the parts that they have now: a part that was put in place of an equal
    one may well be held.

    Args:
        elements: A slice of the only list that is to refer to them: plain data, and messages.
        grabs: For each message, what gets all of its fields that are dictionaries or lists; for
            another element None.
    """
    messages, others, also = elements, list[Any](), 0
    if None in grabs:
        messages = [one for one, grab in zip(elements, grabs, strict=True) if grab]
        others = [one for one in elements if type(one) in CONTAINERS]
        also = 1
    if not _are_alone(messages, also) or any(map(getweakrefcount, messages)):
        return False
    fields, extra = list(map(fields_of, messages)), list(map(extra_of, messages))
    if not (_are_alone(others, also) and _are_alone(fields) and _are_alone(extra)):
        return False
    try:
        parts = list(chain.from_iterable(map(call, filter(None, grabs), fields)))
    except KeyError:  # a field was removed
        return False
    return _are_parts_alone(parts) and _are_parts_alone(_parts_of(others))


def _are_alone(parts: list[Any], also: int = 0) -> bool:
    counts = list(map(sys.getrefcount, parts))
    return counts.count(_ALONE + also) == len(counts)  # type: ignore[operator]  # asked if CAN_TELL


def _are_parts_alone(parts: list[Any]) -> bool:
    """The same of dictionaries and lists and of all that are in them, level by level."""
    while parts:
        if not _are_alone(parts) or not CONTAINERS.issuperset(map(type, parts)):
            return False
        parts = _parts_of(filter(None, parts))
    return True


def _parts_of(containers: Iterable[Any]) -> list[Any]:
    return [part for part in gc.get_referents(*containers) if type(part) in CONTAINERS]
