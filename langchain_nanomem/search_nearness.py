"""Which vectors are near to one, and two rankings made one. Pure."""

from __future__ import annotations

import importlib
import math
from array import array
from operator import mul
from typing import TYPE_CHECKING

from langchain_nanomem.search_ranking import Ranked, best_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_nanomem.search_tables import PassageRow

_RRF_RANK = 10
_DIGITS = 6
"""What differs less is equal."""


def packed(vector: Sequence[float]) -> bytes:
    """A vector of length 1, in four bytes a number; one of zeros stays."""
    values = array("f", vector)
    length = math.hypot(*values)
    if not math.isfinite(length):
        raise ValueError("a vector has numbers that are none")
    return array("f", (value / (length or 1.0) for value in values)).tobytes()


def nearest_first(packed: bytearray, vector: bytes, ids: list[int]) -> Iterable[int]:
    """The ids whose vectors are more like one than not; of equals the greatest first."""
    try:
        numpy = importlib.import_module("numpy")
    except ImportError:
        return _plainly_nearest_first(packed, vector, ids)
    asked = numpy.frombuffer(vector, dtype=numpy.float32)
    known = numpy.frombuffer(packed, dtype=numpy.float32, count=len(ids) * len(asked))
    scores = numpy.round(known.reshape(len(ids), len(asked)) @ asked, _DIGITS)
    numbers = numpy.array(ids, dtype=numpy.int64)
    order = numpy.lexsort((-numbers, -scores))
    found: list[int] = numbers[order[: int((scores > 0).sum())]].tolist()
    return found


def _plainly_nearest_first(packed: bytearray, vector: bytes, ids: list[int]) -> Iterable[int]:
    asked = array("f", vector)
    size = len(asked)
    with memoryview(packed).cast("f") as known:
        parts = (known[n * size : (n + 1) * size] for n in range(len(ids)))
        scores = [round(sum(map(mul, part, asked)), _DIGITS) for part in parts]
    alike = [(score, number) for score, number in zip(scores, ids, strict=True) if score > 0]
    return (number for _, number in sorted(alike, reverse=True))


def fused(ranked: list[Ranked], near: Iterable[PassageRow], weight: float) -> list[Ranked]:
    """Two rankings as one by reciprocal rank: what is high up in both comes first.

    Args:
        ranked: Those that match by words, best first.
        near: Those that are near by meaning, best first.
        weight: What a rank in it counts beside one by words.
    """
    rows: dict[int, PassageRow] = {}
    scores: dict[int, float] = {}
    for share, order in ((1.0, (one.row for one in ranked)), (weight, near)):
        for rank, row in enumerate(order, 1):
            rows[row.id] = row
            scores[row.id] = scores.get(row.id, 0.0) + share / (_RRF_RANK + rank)
    best = max(scores.values(), default=1.0)
    return sorted((Ranked(score / best, rows[i]) for i, score in scores.items()), key=best_first)
