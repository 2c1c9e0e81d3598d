"""Lists that a program and a session hold in common: exact, and never shared with two programs."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_nanomem.images import content_of, exact, image_of, image_of_record
from langchain_nanomem.live_lists import LiveList, hand_out
from langchain_nanomem.working_set import LiveNumbers, WorkingSet

HERE = ("", "messages")


def message(number):
    call = {"name": "find", "args": {"q": [number]}, "id": f"c{number}", "type": "tool_call"}
    return AIMessage(
        [{"type": "text", "text": f"{number}"}],
        id=f"{number}",
        tool_calls=[call],
        additional_kwargs={"a": {"b": [1, True, 1.0]}},
        response_metadata={"usage": {"total": number}},
    )


IMAGES = [image_of(message(number)) for number in range(6)]


@pytest.fixture
def working():
    return WorkingSet()


def handed(working, numbers, images, make=lambda _: None):
    working.begin("")
    return working.hand_out(HERE, LiveNumbers(numbers, None), images, make)


def given_out(working, count=6):
    return handed(working, list(range(count)), IMAGES[:count])


def identities(elements):
    return set(map(id, elements))


HOLDERS = {
    "the list": lambda given: given,
    "one message": lambda given: given[2],
    "its fields": lambda given: given[2].__dict__,
    "a dictionary in it": lambda given: given[2].additional_kwargs["a"],
    "a list deep in it": lambda given: given[2].tool_calls[0]["args"]["q"],
    "a content block": lambda given: given[2].content[0],
    "what its class lacks": lambda given: given[2].__pydantic_extra__,
    "a shallow copy": lambda given: copy.copy(given[2]),
    "an iterator": lambda given: iter(given[2].additional_kwargs["a"]["b"]),
    "a bound method": lambda given: given[2].additional_kwargs.update,
    "a weak reference": lambda given: weakref.ref(given[2]),
}


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_what_somebody_holds_is_not_handed_out_again(working, hold):
    """cases/checkpointer.md 11: whoever holds an element, or a part of one, holds it alone."""
    held = hold(given_out(working))
    second = given_out(working)
    third = given_out(working)
    for given_now in (second, third):
        assert all(image.is_of(one) for image, one in zip(IMAGES, given_now, strict=True))
    kept = weakref.ref(held) if isinstance(held, AIMessage) else held
    parts = [part for one in (*second, *third) for part in parts_of(one)]
    assert kept is not None
    assert not any(part is held for part in parts)
    referents = gc.get_referents(held)
    shared = [part for part in parts if any(part is one for one in referents)]
    assert shared == []


def parts_of(element):
    """An element and everything in it that could be changed."""
    found = [element]
    if isinstance(element, AIMessage):
        found += [element.__dict__, element.__pydantic_extra__]
        inner = element.__dict__.values()
    elif isinstance(element, dict):
        inner = element.values()
    else:
        inner = element if isinstance(element, list) else ()
    for part in inner:
        if isinstance(part, (dict, list)):
            found += parts_of(part)
    return found


def test_what_nobody_holds_is_handed_out_again(working):
    """The same objects serve the next turn, or the one after where the last result is kept."""
    first = identities(given_out(working))
    assert identities(given_out(working)) == first
    last, seen = None, []
    for _ in range(6):
        last = given_out(working)
        seen.append(identities(last))
    assert seen[2] == seen[4]
    assert seen[3] == seen[5]
    assert seen[4].isdisjoint(seen[5])


CHANGES = {
    "text": lambda one: setattr(one, "content", "changed"),
    "the type of a number": lambda one: one.additional_kwargs["a"].update(b=[True, True, 1.0]),
    "a float": lambda one: one.additional_kwargs["a"].update(b=[1, True, 1]),
    "the order of keys": lambda one: one.tool_calls[0].update(name=one.tool_calls[0].pop("name")),
    "a further field": lambda one: setattr(one, "more", 1),
    "the class": lambda one: setattr(one, "__class__", HumanMessage),
    "an object": lambda one: one.response_metadata.update(usage=object()),
    "an argument": lambda one: one.tool_calls[0]["args"]["q"].append(2),
    "a field that is gone": lambda one: one.__dict__.pop("additional_kwargs"),
    "a field that is none": lambda one: one.__dict__.update(tool_calls=None),
    "an empty list": lambda one: one.invalid_tool_calls.append({}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_in_place_is_noticed(working, change):
    """cases/checkpointer.md 10: what was changed is neither handed out again nor the same."""
    given_now = given_out(working)
    change(given_now[3])
    put = working.like(HERE, given_now, anywhere=False)
    assert put.common(given_now) == 3
    assert put.find(given_now[4], IMAGES[4]) == 4
    del given_now
    again = given_out(working)
    assert all(image.is_of(one) for image, one in zip(IMAGES, again, strict=True))
    assert [type(one) for one in again] == [AIMessage] * 6


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
)
elements = st.one_of(
    plain,
    st.builds(
        HumanMessage, st.text(max_size=2), additional_kwargs=st.dictionaries(st.text(), plain)
    ),
    st.builds(ToolMessage, st.text(max_size=2), tool_call_id=st.just("1"), artifact=plain),
)


@settings(max_examples=200)
@given(st.lists(elements, max_size=6), st.lists(elements, max_size=6))
def test_common_is_what_is_the_same_to_the_last_detail(one, other):
    """The number of leading elements that are equal in type and content; the same for any lists."""
    images = [image_of(element) for element in one]
    found = LiveList(one, list(range(len(one))), images).common(other)
    shown = [marked(element) for element in other]
    expected = 0
    for mine, theirs in zip(map(marked, one), shown, strict=False):
        if mine != theirs:
            break
        expected += 1
    assert found == expected


def marked(element):
    fields = element.__dict__ if isinstance(element, (HumanMessage, ToolMessage)) else element
    return type(element), repr(fields)


LONG = "A" * 100_000


@pytest.mark.parametrize(
    "edit",
    [
        lambda block: block["image_url"].update(url=LONG[:-1] + "B"),
        lambda block: block["image_url"].update(url=Text(LONG)),
        lambda block: block["image_url"].update(detail=True),
        lambda block: block.update(type=block.pop("type")),
        lambda block: block["more"].append({}),
    ],
    ids=["a letter", "a class of text", "true for 1", "the order", "a part more"],
)
def test_every_change_beside_a_long_text_is_noticed(edit):
    """cases/checkpointer.md 13: images in base64 are compared without being copied."""
    block = {"type": "image_url", "image_url": {"url": LONG, "detail": 1}, "more": []}
    for element in (HumanMessage([block], id="1"), block, [block]):
        image = image_of(element)
        one = LiveList([element], [0], [image])
        assert image.is_of(copy.deepcopy(element))
        assert one.common([copy.deepcopy(element)]) == 1
        assert len(exact([image.pick(content_of(element))])) < 1_000
        edited = copy.deepcopy(element)
        edit(edited if element is block else getattr(edited, "content", edited)[0])
        assert not image.is_of(edited)
        assert one.common([edited]) == 0


class Text(str):
    """A class of text."""

    __slots__ = ()


@pytest.mark.parametrize("loose", [False, True])
@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 3), st.data())
def test_what_lies_behind_a_removed_part_is_known(loose, start, count, new, data):
    """A list is told from one that was cut, at its front or in the middle, and went on."""
    made = [HumanMessage(str(n), id=f"{n}", additional_kwargs={"n": [n]}) for n in range(12)]
    if loose:
        made[::5] = [object() for _ in made[::5]]
    base = LiveList(made, list(range(100, 112)), list(map(image_of, made)))
    values = made[:start] + made[start + count :] + [HumanMessage(f"n{n}") for n in range(new)]
    parts = base.parts_of(values)
    places = [place for part in parts for place in range(*part)]
    kept = [base.objects[place] for place in places]
    pairs = zip(places, kept, values, strict=False)
    assert all(one is other for place, one, other in pairs if base.images[place])
    if values and not loose:
        assert len(kept) == len(values) - new
        edit = data.draw(st.integers(0, len(values) - 1))
        values[edit].content += "!"
        known = sum(end - begin for begin, end in base.parts_of(values))
        assert known <= edit or edit >= len(kept)
    images = [base.images[place] for place in places]
    one = LiveList(values[: len(kept)], places, images, base=base, parts=parts)
    again = LiveList(one.objects, one.numbers, one.images)
    assert (one._exact, one._contents, one._classes, one.loose) == (
        again._exact,
        again._contents,
        again._classes,
        again.loose,
    )


def test_a_list_may_shrink_grow_and_change(working):
    """What is the same in front is handed out again, whatever comes behind."""
    first = [id(one) for one in given_out(working, 6)]
    assert [id(one) for one in given_out(working, 4)] == first[:4]
    grown = given_out(working, 6)
    assert [id(one) for one in grown[:4]] == first[:4]
    assert grown == [message(number) for number in range(6)]
    del grown
    numbers = [0, 5, 2]
    mixed = handed(working, numbers, [IMAGES[n] for n in numbers])
    assert mixed == [message(number) for number in numbers]


def test_an_element_without_an_image_is_made_anew(working):
    """What can't be compared well is never handed out twice."""
    images = [IMAGES[0], None, IMAGES[2]]
    given_now = [handed(working, [0, 1, 2], images, lambda n: {n}) for _ in range(4)]
    assert [one[1] for one in given_now] == [{1}] * 4
    assert len(identities(one[1] for one in given_now)) == 4


EXCHANGES = {
    "a dictionary": lambda one: one.__dict__.update(additional_kwargs={"a": {"b": [1, True, 1.0]}}),
    "a list deep in it": lambda one: one.additional_kwargs["a"].update(b=[1, True, 1.0]),
    "all fields": lambda one: object.__setattr__(one, "__dict__", dict(one.__dict__)),
    "a block": lambda one: one.content.__setitem__(0, {"type": "text", "text": "2"}),
}


@pytest.mark.parametrize("exchange", EXCHANGES.values(), ids=EXCHANGES)
def test_an_equal_part_put_in_place_of_another_stays_the_programs(working, exchange):
    """cases/checkpointer.md 11: who keeps the old part and the new one shares neither."""
    one = given_out(working)[2]
    old = parts_of(one)
    exchange(one)
    held = [part for part in (*old, *parts_of(one)) if part is not one]
    del one
    for _ in range(3):
        given_now = [part for element in given_out(working) for part in parts_of(element)]
        assert identities(given_now).isdisjoint(identities(held))


def test_parts_that_changed_places_are_not_shared(working):
    """cases/checkpointer.md 11: empty parts of two messages, exchanged, and one of them kept."""
    one, other = given_out(working)[1:3]
    one.invalid_tool_calls, other.invalid_tool_calls = (
        other.invalid_tool_calls,
        one.invalid_tool_calls,
    )
    held = one.invalid_tool_calls
    del one, other
    for _ in range(3):
        held.append("spoiled")
        assert [element.invalid_tool_calls for element in given_out(working)] == [[]] * 6


def test_other_elements_are_told_apart_too(working):
    """Lists, dictionaries, texts and messages in one list: what is held is made anew, no more."""
    elements = [{"a": [1]}, "text", 1.5, [[], {}], message(1), [{"b": {}}]] * 2
    images = [image_of(element) for element in elements]
    numbers = list(range(len(images)))

    def given_now():
        return handed(working, numbers, images)

    first = list(map(id, given_now()))
    assert list(map(id, given_now())) == first
    held = given_now()[3][1]
    again = list(map(id, given_now()))
    assert [n for n in numbers if again[n] != first[n]] == [3]
    held["spoiled"] = True
    assert given_now() == elements


def test_only_what_is_held_is_made_anew():
    """The others are handed out again."""
    live = hand_out(None, [0, 1, 2], IMAGES[:3], lambda _: None)
    held = live.objects[1]
    again = hand_out((live, live.reusable([0, 1, 2])), [0, 1, 2], IMAGES[:3], lambda _: None)
    assert [a is b for a, b in zip(live.objects, again.objects, strict=True)] == [True, False, True]
    assert held == again.objects[1]


def test_the_image_of_a_record_is_that_of_its_message():
    """What is read from a file is compared with as what it becomes."""
    record = {"role": "user", "content": "hello", "id": "1", "foreign": [1]}
    image = image_of_record(record)
    assert image.fresh() == HumanMessage("hello", id="1", additional_kwargs={"foreign": [1]})
    assert image.is_of(HumanMessage("hello", id="1", additional_kwargs={"foreign": [1]}))
