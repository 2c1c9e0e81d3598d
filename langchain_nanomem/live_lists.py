"""The lists that a program and a session hold in common: which element has which number.

What a graph puts is nearly always what it was given, or what it put before, and a little
more. So the elements of the last list of a channel are compared with those of the new one,
in bulk, and only what differs is looked at one by one. What is handed out is handed out again
if nobody holds it any longer: a thread's thousand messages are not made anew at each turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.messages import BaseMessage

from langchain_nanomem.holders import CAN_TELL, are_free, are_held
from langchain_nanomem.images import Image, content_of, exact, extra_of, fields_of, has_extra

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from langchain_nanomem.ranges import Ranges

Images = list[Image | None]
Part = tuple[int, int]
"""Where a part of a list begins, and where it ends."""
_SCATTERED = 64


class Reusable(NamedTuple):
    """What of a list may be handed out again."""

    length: int
    """The number of leading elements that are the same."""
    unfit: AbstractSet[int]
    """Of those, the places of the ones that someone may still hold, or has changed."""


NOTHING = Reusable(0, frozenset())


class LiveList:
    """A list as the program holds it.

    Args:
        objects: Its elements. Of a list that was put, the program's own; of one that was
            handed out, ours, which the program may hold, and change.
        numbers: The number of each in the session.
        images: What each was when it was put or handed out.
        base: A list whose elements are the leading ones of this.
        parts: Where those lie in it, in their order here.
    """

    def __init__(
        self,
        objects: list[Any],
        numbers: list[int],
        images: Images,
        *,
        base: LiveList | None = None,
        parts: Sequence[Part] = (),
    ) -> None:
        self.objects = objects
        self.numbers = numbers
        self.images = images
        self.ranges: Ranges | None = None
        """How the numbers are written; None until that is known."""
        self.made_together = 0
        """How many of its elements were made one after the other, and so lie side by side."""
        self.grabs: list[Any] = []
        """Of a list that was handed out, for each message what gets the parts of it."""
        self._places: dict[Any, int] | None = None
        shared = sum(end - start for start, end in parts)
        new = images[shared:]
        self._contents = [image.content if image else None for image in new]
        self._classes = [image.cls if image else type(None) for image in new]
        self._picks = [image.pick if image else None for image in new]
        self._exact = self._exactly(self._contents, self._picks)
        self.loose = [place for place, image in enumerate(new, shared) if image is None]
        """The places of the elements that have no image."""
        for start, end in reversed(parts) if base else ():
            shared -= end - start
            self._take(base, start, end, shared)  # type: ignore[arg-type]  # it is one here

    def _take(self, base: LiveList, start: int, end: int, place: int) -> None:
        """Put what is known of a part of `base` in front; it begins at `place` here."""
        self._exact = base._exact_of(start, end) + self._exact
        self._contents = base._contents[start:end] + self._contents
        self._classes = base._classes[start:end] + self._classes
        self._picks = base._picks[start:end] + self._picks
        inside = [one - start + place for one in base.loose if start <= one < end]
        self.loose = inside + self.loose

    def _exact_of(self, start: int, end: int) -> bytes:
        if end - start == len(self.objects):
            return self._exact
        return self._exactly(self._contents[start:end], self._picks[start:end])

    @staticmethod
    def _exactly(contents: list[Any], picks: list[Any]) -> bytes:
        return exact(
            [pick(content) for pick, content in zip(picks, contents, strict=False) if pick]
        )

    # --- comparing ---

    def parts_of(self, values: list[Any]) -> list[Part]:
        """Where the leading ones of `values` lie in this list, unchanged.

        That is most of them also where a program has removed some, or a run of them.
        """
        shared = self.common(values)
        behind = self._behind(values, shared)
        return [part for part in ((0, shared), behind) if part and part[1] > part[0]]

    def _behind(self, values: list[Any], shared: int) -> Part | None:
        """Where all that follows in `values` lies in a row, as far as this list goes."""
        is_cut = shared < min(len(values), len(self.objects))
        start = self._place_of(values[shared]) if is_cut else None
        if start is None:
            return None
        rest = values[shared : shared + len(self.objects) - start]
        return (start, start + len(rest)) if self._is_same(rest, start) else None

    def common(self, values: list[Any]) -> int:
        """How many leading ones of `values` are, now, what the same ones of this list were.

        Those without an image count as the same; the caller looks at them himself.
        """
        count = min(len(values), len(self.objects))
        head = values if len(values) == count else values[:count]
        if self._is_same(head):
            return count
        pairs = enumerate(zip(self.images, head, strict=False))
        return next((i for i, (image, value) in pairs if image and not image.is_of(value)), count)

    def _is_same(self, values: list[Any], start: int = 0) -> bool:
        """Whether these are, now, what the elements from `start` on were."""
        end = start + len(values)
        classes = list(map(type, values))
        contents = _contents_of(values, classes)
        for place in self.loose:
            if start <= place < end:
                classes[place - start], contents[place - start] = type(None), None
        try:
            return (
                classes == self._classes[start:end]
                and contents == self._contents[start:end]
                and self._exactly(contents, self._picks[start:end]) == self._exact_of(start, end)
            )
        except Exception:  # noqa: BLE001 - whatever a foreign object in it raises when compared
            return False

    def find(self, value: Any, image: Image) -> int | None:
        """The number of the element that is `value`, of this image; None if there is none."""
        place = self._place_of(value)
        known = None if place is None else self.images[place]
        return self.numbers[place] if known and place is not None and known.equals(image) else None

    def _place_of(self, value: Any) -> int | None:
        if self._places is None:
            self._places = {name_of(one): place for place, one in enumerate(self.objects)}
        return self._places.get(name_of(value))

    def loose_numbers(self) -> list[int]:
        """The numbers of the elements that have no image."""
        return [self.numbers[place] for place in self.loose]

    # --- handing out again ---

    def is_scattered(self, count: int) -> bool:
        """Whether it is better to make all `count` elements anew than to hand these out again.

        Elements that were made turn by turn lie all over the memory, and looking at them takes
        several times as long. Making all of them anew whenever a good part was is a small price.
        """
        return count > self.made_together * 9 // 8 + _SCATTERED

    def reusable(self, numbers: list[int]) -> Reusable:
        """Which elements may be handed out again for `numbers`."""
        count = min(len(numbers), len(self.objects))
        if not count or not CAN_TELL or numbers[0] != self.numbers[0]:
            return NOTHING
        if numbers[:count] != self.numbers[:count]:
            pairs = zip(numbers, self.numbers, strict=False)
            count = next(i for i, (one, other) in enumerate(pairs) if one != other)
        return Reusable(count, self._unfit(count))

    def _unfit(self, count: int) -> set[int]:
        """The places of those that somebody holds, or to a part of them, or has changed."""
        if self._are_free(0, count):
            loose = {place for place in self.loose if place < count}
            if self._is_same(self.objects[:count]):
                return loose
        elif are_held(self.objects[:count]):
            return set(range(count))
        return {place for place in range(count) if not self._is_fit(place)}

    def _is_fit(self, place: int) -> bool:
        image = self.images[place]
        is_same = image is not None and image.is_of(self.objects[place])
        return is_same and self._are_free(place, place + 1)

    def _are_free(self, start: int, end: int) -> bool:
        return are_free(self.objects[start:end], self.grabs[start:end])


def hand_out(
    previous: tuple[LiveList, Reusable] | None,
    numbers: list[int],
    images: Images,
    make: Callable[[int], Any],
) -> LiveList:
    """A list of these elements for a program, of fresh objects or of ones nobody holds.

    Args:
        previous: What was handed out before, and what of it may be handed out again.
        numbers: The elements' numbers.
        images: Their images.
        make: Makes an element that has no image of its number.
    """
    base, (count, unfit) = previous or (None, NOTHING)
    objects = base.objects[:count] if base else []
    places = sorted(unfit) + list(range(count, len(numbers)))
    for place in places:
        image = images[place]
        objects[place : place + 1] = [image.fresh() if image else make(numbers[place])]
    made = LiveList(objects, numbers, images, base=base, parts=[(0, count)] if count else [])
    made.grabs = base.grabs[:count] if base else []
    made.grabs += [image and image.grab for image in images[len(made.grabs) :]]
    made.made_together = base.made_together if base else len(numbers)
    return made


def _contents_of(values: list[Any], classes: list[type]) -> list[Any]:
    """What an image compares of each; None for a message with fields that its class lacks."""
    are_messages = all(issubclass(cls, BaseMessage) for cls in set(classes))
    if are_messages and not any(map(extra_of, values)):
        return list(map(fields_of, values))
    return [None if has_extra(value) else content_of(value) for value in values]


def name_of(value: Any) -> Any:
    """What a message, or any other element, is likely to be found again by."""
    message_id = value.id if isinstance(value, BaseMessage) else None
    return message_id if type(message_id) is str else id(value)
