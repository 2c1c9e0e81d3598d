"""What is kept at hand of a session's elements, so that a turn costs little. Never the truth."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.messages import BaseMessage

from langchain_nanomem.live_lists import LiveList, Reusable, hand_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_nanomem.images import Image

Channel = tuple[str, str]
"""The namespace and the name of a channel."""
_MAX_LISTS = 16
_MAX_SEEN = 512
_MAX_NAMES = 4096
_GENERATIONS = 2
"""A program holds what it was given last while it is given the next; it is free after that."""


class Seen(NamedTuple):
    """An element that was written and may come again, in a longer list."""

    element: Any
    """Itself: as long as it is held here, no other object has its identity."""
    image: Image
    number: int


class WorkingSet:
    """The newest lists of a session's channels, and what was written lately. Bounded.

    Not thread-safe by itself: it belongs to the records, and is guarded with them.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.images: dict[int, Image | None] = {}
        """Of the elements that were read, by their numbers."""
        self.names: OrderedDict[bytes, int] = OrderedDict()
        """The numbers of elements by the digests of their content, for what has no image."""
        self.named: set[int] = set()
        """The numbers that have been given a name."""
        self.runs: dict[tuple[Any, ...], int] = {}
        """The runs, by what they stand for."""
        self.unnamed: dict[bytes, int] = {}
        """The numbers of messages that were written without an id, and have got none since."""
        self._live: OrderedDict[Channel, LiveList] = OrderedDict()
        self._handed: dict[Channel, list[LiveList]] = {}
        self._seen: OrderedDict[Any, Seen] = OrderedDict()

    @property
    def weight(self) -> int:
        """How many elements are kept, about."""
        lists = [*self._live.values(), *(one for lists in self._handed.values() for one in lists)]
        return len(self.images) + sum(len(one.objects) for one in lists)

    # --- what a program is given ---

    def hand_out(
        self,
        channel: Channel,
        numbers: list[int],
        images: list[Image | None],
        make: Callable[[int], Any],
    ) -> list[Any]:
        """The elements of these numbers, which the program may keep and change."""
        ranges = self._ranges_of(channel, numbers)
        if not channel[0]:
            self._live.clear()  # a turn begins; what they refer to would count as held
        self._live.pop(channel, None)
        spare = self._handed.pop(channel, [])
        best = previous = _best(spare, numbers)
        if previous and previous[0].is_scattered(len(numbers)):
            previous, images = None, [image and image.again() for image in images]
            self.images.update(zip(numbers, images, strict=True))
        given = hand_out(previous, numbers, images, make)
        given.ranges = ranges
        others = [one for one in spare if best is None or one is not best[0]]
        self._handed[channel] = [given, *others][:_GENERATIONS]
        while len(self._handed) > _MAX_LISTS:
            self._handed.pop(next(iter(self._handed)))
        self._keep(channel, given)
        self._trim_images()
        return list(given.objects)

    def numbers_of(self, channel: Channel, written: list[Any]) -> list[int] | None:
        """The numbers that a list's ranges and runs stand for; None where they aren't at hand."""
        last = self._live.get(channel)
        is_same = last and last.ranges and last.ranges.written() == written
        return last.numbers if last and is_same else None

    def _ranges_of(self, channel: Channel, numbers: list[int]) -> Any:
        last = self._live.get(channel)
        return last.ranges if last and last.numbers == numbers else None

    def _trim_images(self) -> None:
        lists = [*self._live.values(), *(one for lists in self._handed.values() for one in lists)]
        if len(self.images) > 4 * sum(len(one.numbers) for one in lists) + _MAX_NAMES:
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

    def put(self, channel: Channel, written: LiveList) -> None:
        """Note what is now in a channel."""
        self._keep(channel, written)

    def _keep(self, channel: Channel, one: LiveList) -> None:
        self._live[channel] = one
        self._live.move_to_end(channel)
        while len(self._live) > _MAX_LISTS:
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

    def claim(self, unnamed: dict[bytes, int], claimed: set[int]) -> None:
        """Note which messages were written without an id, and which have got one since."""
        self.unnamed |= unnamed
        kept = [(name, number) for name, number in self.unnamed.items() if number not in claimed]
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
            self.names.popitem(last=False)


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
    message_id = element.id if isinstance(element, BaseMessage) else None
    return [id(element), message_id] if type(message_id) is str else [id(element)]
