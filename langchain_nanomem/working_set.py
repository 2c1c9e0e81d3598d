"""What is kept at hand of a session's elements, so that a turn costs little. Never the truth."""

from __future__ import annotations

from collections import OrderedDict
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_nanomem.live_lists import LiveList, Reusable, hand_out, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_nanomem.images import Image
    from langchain_nanomem.ranges import Ranges

Channel = tuple[str, str]
"""The namespace and the name of a channel."""
_MAX_LISTS = 256
_FEW_LISTS = 16
_MANY_ELEMENTS = 16_384
"""How many elements all lists may have together where they are not few."""
_MAX_SEEN = 512
_MAX_NAMES = 65_536
_SPARE_IMAGES = 4096
_GENERATIONS = 2
"""A program holds what it was given last while it is given the next; it is free after that."""


class Seen(NamedTuple):
    """An element that was written and may come again, in a longer list."""

    element: Any
    """Itself: as long as it is held here, no other object has its identity."""
    image: Image
    number: int


class LiveNumbers(NamedTuple):
    """The numbers of a list, and how they are written, if that is known."""

    numbers: list[int]
    ranges: Ranges | None


class WorkingSet:
    """The newest lists of a session's channels, and what was written lately. Bounded.

    Not thread-safe by itself: it belongs to the records, and is guarded with them.
    """

    def __init__(self) -> None:
        self.images: dict[int, Image | None] = {}
        """Of the elements that were read, by their numbers."""
        self.names: OrderedDict[bytes, int] = OrderedDict()
        """The numbers of elements by the digests of their content, for what has no image."""
        self.named: set[int] = set()
        """The numbers that have such a name."""
        self.runs: dict[tuple[Any, ...], int] = {}
        """The runs, by what they stand for."""
        self.unnamed: dict[bytes, list[int]] = {}
        """The numbers of messages that were written without an id, and have got none since, by
        what they say."""
        self.early: set[int] = set()
        """The numbers of messages that were written before what was said before them."""
        self._live: OrderedDict[Channel, LiveList] = OrderedDict()
        self._left: dict[Channel, LiveNumbers] = {}
        self._handed: OrderedDict[Channel, list[LiveList]] = OrderedDict()
        self._seen: OrderedDict[Any, Seen] = OrderedDict()

    @property
    def weight(self) -> int:
        """How many elements are kept, about."""
        return len(self.images) + sum(len(one.objects) for one in self._lists())

    def _lists(self) -> list[LiveList]:
        return [*self._live.values(), *chain.from_iterable(self._handed.values())]

    # --- what a program is given ---

    def begin(self, namespace: str) -> None:
        """Let go of what the program had: a turn begins, in which it is given its lists anew.

        What they refer to would count as held.
        """
        self._left = {}
        for channel in [place for place in self._live if namespace in {"", place[0]}]:
            self._let_go(channel)

    def _let_go(self, channel: Channel) -> None:
        one = self._live.pop(channel, None)
        if one is not None and one.ranges is not None:
            self._left[channel] = LiveNumbers(one.numbers, one.ranges)

    def hand_out(
        self,
        channel: Channel,
        live: LiveNumbers,
        images: list[Image | None],
        make: Callable[[int], Any],
    ) -> list[Any]:
        """The elements of these numbers, which the program may keep and change."""
        numbers = live.numbers
        self._let_go(channel)
        spare = self._handed.pop(channel, [])
        best = previous = _best(spare, numbers)
        if previous and previous[0].is_scattered(len(numbers)):
            previous, images = None, [image and image.again() for image in images]
            self.images.update(zip(numbers, images, strict=True))
        given = hand_out(previous, numbers, images, make)
        given.ranges = live.ranges
        others = [one for one in spare if best is None or one is not best[0]]
        self._handed[channel] = [given, *others][:_GENERATIONS]
        while _are_many(list(chain.from_iterable(self._handed.values())), _GENERATIONS):
            self._handed.popitem(last=False)
        self.put(channel, given)
        self._trim_images()
        return list(given.objects)

    def numbers_of(self, channel: Channel, written: list[Any]) -> LiveNumbers | None:
        """The numbers that a list's ranges and runs stand for; None where they aren't at hand."""
        live = self._live.get(channel)
        last = LiveNumbers(live.numbers, live.ranges) if live else self._left.get(channel)
        is_same = last and last.ranges and last.ranges.written() == written
        return last if is_same else None

    def _trim_images(self) -> None:
        lists = self._lists()
        if len(self.images) > 4 * sum(len(one.numbers) for one in lists) + _SPARE_IMAGES:
            kept = {number for one in lists for number in one.numbers}
            self.images = {number: self.images[number] for number in kept & self.images.keys()}

    # --- what a program puts ---

    def like(self, channel: Channel, value: list[Any], *, anywhere: bool) -> LiveList | None:
        """The list that `value` has most likely come from: the channel's, or of another one."""
        if channel in self._live or not anywhere or not value:
            return self._live.get(channel)
        lists = reversed(self._live.values())
        return next((one for one in lists if one.objects and one.objects[0] is value[0]), None)

    def holds(self, channel: Channel) -> bool:
        """Whether the channel's list is kept as single elements."""
        return channel in self._live

    def put(self, channel: Channel, one: LiveList) -> None:
        """Note what is now in a channel."""
        self._live[channel] = one
        self._live.move_to_end(channel)
        while _are_many(list(self._live.values())):
            self._live.popitem(last=False)

    def settle(self, namespace: str) -> None:
        """Note that a checkpoint was put: what was written before it is in the lists by now."""
        if not namespace:
            self._seen.clear()

    def see(self, seen: Seen) -> None:
        """Note an element that was written."""
        for key in keys_of(seen.element):
            self._seen[key] = seen
        while len(self._seen) > _MAX_SEEN:
            self._seen.popitem(last=False)

    def claim(self, unnamed: dict[bytes, list[int]], claimed: set[int]) -> None:
        """Note which messages were written without an id, and which have got one since."""
        for name, numbers in unnamed.items():
            self.unnamed.setdefault(name, []).extend(numbers)
        left = {name: [n for n in ids if n not in claimed] for name, ids in self.unnamed.items()}
        kept = [(name, numbers) for name, numbers in left.items() if numbers]
        self.unnamed = dict(kept[-_MAX_SEEN:])

    def seen(self, element: Any) -> Iterator[Seen]:
        """What was noted of an element, or of it before it had an id."""
        for key in keys_of(element):
            if (found := self._seen.get(key)) is not None:
                yield found

    def name(self, name: bytes, number: int) -> None:
        """Note the digest of an element's content."""
        self.named.add(number)
        self.names[name] = number
        while len(self.names) > _MAX_NAMES:
            self.named.discard(self.names.popitem(last=False)[1])


def _are_many(lists: list[LiveList], times: int = 1) -> bool:
    """Whether there are more lists than are to be kept; few are kept however long they are."""
    if len(lists) <= _FEW_LISTS * times:
        return False
    elements = sum(len(one.objects) for one in lists)
    return len(lists) > _MAX_LISTS * times or elements > _MANY_ELEMENTS * times


def _best(spare: list[LiveList], numbers: list[int]) -> tuple[LiveList, Reusable] | None:
    """The list of which most can be handed out again, and what."""
    best, most = None, 0
    for one in spare:
        found = one.reusable(numbers)
        if found.length - len(found.unfit) > most:
            best, most = (one, found), found.length - len(found.unfit)
        if most > len(numbers) * 3 // 4:
            break
    return best


def keys_of(element: Any) -> list[Any]:
    """By what an element is found again: itself and, of a message that has one, its id."""
    return list(dict.fromkeys([id(element), name_of(element)]))
