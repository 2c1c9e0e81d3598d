"""The numbers by which elements are told, and by which values refer to them.

An element is a message, or another value of which a list is made. It is stored once, and a
list is written as ranges of numbers; where it takes many of them, an element of its own, a
*run*, stands for the first ones.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import TYPE_CHECKING, Any

from langchain_nanomem.values import dump_record

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from langchain_nanomem.journal import Record
    from langchain_nanomem.shelf import Shelf

Encoded = dict[str, Any]
"""A value as a checkpoint's record refers to it."""
MESSAGE_TYPES = frozenset({None, "message"})
"""The types of records that are messages of the session's own conversation."""
ELEMENT_TYPES = MESSAGE_TYPES | {"element"}
_OURS = frozenset({"_type", "_n", "_more"})


def digest(record: Record) -> bytes:
    """A short name for the content of an element; its number and time don't count."""
    content = {name: v for name, v in record.items() if name != "timestamp" and name not in _OURS}
    return hashlib.blake2b(dump_record(content), digest_size=16).digest()


def own_number(record: Record) -> int | None:
    """The number that a record carries; None where it carries none."""
    number = record.get("_n")
    return number if type(number) is int else None


def own_numbers(records: Iterable[Record], above: int = -1) -> set[int]:
    """The numbers above one that these records were written with: a copied one is too small."""
    found = set()
    for record in records:
        number = own_number(record)
        if number is not None and number > above:
            found.add(number)
            above = number
    return found


def number_of(
    record: Record, taken: Container[int], carried: Container[int], following: int
) -> int:
    """The number of an element.

    Args:
        record: The element. One that a person or another program wrote, or copied, gets a
            number that no other has: the others keep theirs, wherever it was put.
        taken: The numbers of the elements before it.
        carried: The numbers with which those behind it were written.
        following: The one after the greatest so far.
    """
    number = own_number(record)
    if number is not None and number not in taken:
        return number
    if following not in carried:
        return following
    return next(number for number in itertools.count(-1, -1) if number not in taken)


def members(spans: Sequence[Any], elements: Shelf) -> Iterator[int]:
    """The numbers of a list's elements, in their order; of a run that is missing, its own."""
    elements.prefetch(span for span in spans if isinstance(span, int))
    for span in spans:
        if not isinstance(span, int):
            yield from range(*span)
        elif span in elements:
            yield from members(elements[span]["list"], elements)
        else:
            yield span


def numbers_in(encoded: Iterable[Encoded], elements: Shelf) -> set[int]:
    """The numbers of all elements that these values refer to, runs included.

    Lists that grow have most of their ranges in common: each is looked at once.
    """
    waiting = list(encoded)
    runs: set[int] = set()
    ranges: set[tuple[int, int]] = set()
    while waiting:
        for span in _spans_of(waiting.pop()):
            if not isinstance(span, int):
                ranges.add((span[0], span[1]))
            elif span not in runs:
                runs.add(span)
                waiting.append(elements.get(span) or {})
    found, end = set(runs), 0
    for first, stop in sorted(ranges):
        found.update(range(max(first, end), stop))
        end = max(end, stop)
    return found


def _spans_of(encoded: Any) -> Iterator[Any]:
    """The ranges of numbers, and the runs, that an encoded value refers to itself."""
    if "list" in encoded:
        yield from encoded["list"]
    elif "ref" in encoded:
        yield [encoded["ref"], encoded["ref"] + 1]
    elif "dict" in encoded:
        for item in encoded["dict"].values():
            yield from _spans_of(item)
    elif "snapshot" in encoded:
        yield from _spans_of(encoded["snapshot"])
