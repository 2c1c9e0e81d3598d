"""How a list's numbers are written: as ranges, and as runs that stand for many ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_RUN_LENGTH = 16
"""How many ranges, or runs, one run stands for."""
_MAX_LEVELS = 16


class Ranges:
    """The numbers of a list that grows, as few ranges.

    A run stands for every `_RUN_LENGTH` ranges but the last ones, and a run of runs for as
    many runs. Without it, a list beside which other elements are written would take one more
    range at each turn in each of its checkpoints. What is there stays as more is added, so
    that the same runs serve again.
    """

    def __init__(self) -> None:
        self._levels: list[list[Any]] = [[]]
        """Ranges, runs of ranges, runs of those, and so on: of each, those in no run."""

    @classmethod
    def of(
        cls, written: Sequence[Any], members_of: Callable[[int], Sequence[Any] | None]
    ) -> Ranges | None:
        """The ranges that were written so; None where they were not written by this class.

        Args:
            written: What `written` gave.
            members_of: What a run stands for; None if it is missing.
        """
        found = cls()
        levels = [_level(span, members_of) for span in written]
        found._levels = [[] for _ in range(max(levels, default=0) + 1)]
        for level, span in zip(levels, written, strict=True):
            found._levels[level].append(span)
        is_regular = all(len(level) <= _RUN_LENGTH for level in found._levels)
        return found if is_regular and found.written() == written and -1 not in levels else None

    def copy(self) -> Ranges:
        """One that can be extended by itself."""
        copied = Ranges()
        copied._levels = [level.copy() for level in self._levels]
        return copied

    def extend(self, numbers: Iterable[int], run_of: Callable[[list[Any]], int]) -> None:
        """Add numbers at the end.

        Args:
            numbers: What to add.
            run_of: Gives the number of the run that stands for these ranges or runs.
        """
        spans = self._levels[0]
        for number in numbers:
            if spans and spans[-1][1] == number:
                spans[-1] = [spans[-1][0], number + 1]
            else:
                if len(spans) == _RUN_LENGTH:
                    self._gather(0, run_of)
                spans.append([number, number + 1])

    def _gather(self, level: int, run_of: Callable[[list[Any]], int]) -> None:
        if level + 1 == len(self._levels):
            self._levels.append([])
        elif len(self._levels[level + 1]) == _RUN_LENGTH:
            self._gather(level + 1, run_of)
        self._levels[level + 1].append(run_of(self._levels[level].copy()))
        self._levels[level].clear()

    def written(self) -> list[Any]:
        """The list as it is written: numbers of runs, then ranges of numbers, each as a pair."""
        return [item for level in reversed(self._levels) for item in level]


def _level(span: Any, members_of: Callable[[int], Sequence[Any] | None]) -> int:
    """0 for a range, 1 for a run of ranges, and so on; -1 where that can't be told."""
    level = 0
    while isinstance(span, int):
        members = members_of(span)
        if not members or level == _MAX_LEVELS:
            return -1
        span = members[0]
        level += 1
    return level
