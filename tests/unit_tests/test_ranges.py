"""How a list's numbers are written."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_nanomem.ranges import Ranges


class Runs:
    """Runs by their numbers, beyond those of the elements."""

    def __init__(self):
        self.spans = {}

    def run_of(self, spans):
        number = 1_000_000 + len(self.spans)
        self.spans[number] = spans
        return number

    def members(self, written):
        for span in written:
            if isinstance(span, int):
                yield from self.members(self.spans[span])
            else:
                yield from range(*span)


@settings(max_examples=100)
@given(st.lists(st.lists(st.integers(0, 3000), max_size=300), max_size=5))
def test_all_numbers_come_back_in_their_order(parts):
    """However a list is put together, and however scattered its numbers are."""
    runs, ranges, added = Runs(), Ranges(), []
    for numbers in parts:
        ranges.extend(numbers, runs.run_of)
        added += numbers
        assert list(runs.members(ranges.written())) == added
        assert len(ranges.written()) <= 16 * 3


def test_what_is_written_once_stays():
    """A list that grows keeps its runs: each is made once, however often the list is written."""
    runs, ranges = Runs(), Ranges()
    for number in range(0, 20_000, 2):
        ranges = ranges.copy()
        ranges.extend([number], runs.run_of)
    assert len(runs.spans) < 10_000 / 16 * 1.1
    assert list(runs.members(ranges.written())) == list(range(0, 20_000, 2))


def test_a_copy_goes_its_own_way():
    """Extending one leaves the other as it is."""
    runs, one = Runs(), Ranges()
    one.extend([1, 2, 3], runs.run_of)
    other = one.copy()
    other.extend([4, 9], runs.run_of)
    assert one.written() == [[1, 4]]
    assert other.written() == [[1, 5], [9, 10]]
