"""The live window is legal and shows the right user message; boundaries part no round."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_nanomem.session import INTERRUPTED, Shape
from langchain_nanomem.window import (
    cuts,
    leading_system,
    live_window,
    message_shape,
    pick_boundary,
    with_memory,
)


def made(letters):
    """Messages by letters: S, U, A; C calls x, D calls x and y; x, y and z are results."""
    calls = {"A": "", "C": "x", "D": "xy"}
    messages = []
    for place, letter in enumerate(letters):
        if letter in calls:
            named = [{"name": "f", "args": {}, "id": call_id} for call_id in calls[letter]]
            messages.append(AIMessage(f"a{place}", tool_calls=named))
        elif letter in "xyz":
            messages.append(ToolMessage(f"t{place}", tool_call_id=letter))
        else:
            cls = SystemMessage if letter == "S" else HumanMessage
            messages.append(cls(f"{letter.lower()}{place}"))
    return messages


def shapes_of(letters):
    return [message_shape(message) for message in made(letters)]


def boundary(letters, tokens_to_remove, start=0):
    return pick_boundary(shapes_of(letters), start, tokens_to_remove, lambda _: 100)


LETTERS = st.text("SUACDxyz", max_size=14)
TURNS = st.lists(st.sampled_from(["U", "UA", "UCxA", "UDxyCxA", "UDyxA", "SUA", "UCxDyx", "UC"]))


# --- where it may be cut ---


@pytest.mark.parametrize(
    ("letters", "tokens", "start", "expected"),
    [
        ("UAUAU", 100, 0, (2, 200)),
        ("UAUAU", 300, 0, (4, 400)),
        ("UAUAU", 9_999, 0, (4, 400)),
        ("UAAA", 100, 0, None),
        ("AAU", 50, 0, (2, 200)),
        ("U", 100, 0, None),
        ("UAUA", 100, 2, None),
        ("UUU", 100, 0, (1, 100)),
        ("UAUAU", 200, 0, (2, 200)),
        ("UAUAU", 0, 0, None),
        ("UAUAU", -5, 0, None),
        ("UAUAU", 100, 2, (4, 200)),
        ("", 100, 0, None),
    ],
)
def test_the_boundary_is_the_first_user_turn_that_removes_enough(letters, tokens, start, expected):
    """cases/consolidation.md 4: the first that removes enough, else the last one, else None."""
    assert boundary(letters, tokens, start) == expected


def test_a_long_first_turn_can_be_taken_out():
    """cases/consolidation.md 5: eighty rounds of tools before the next user turn go at once."""
    assert boundary("U" + "Cx" * 80 + "U", 100) == (161, 16_100)


def test_one_endless_tool_loop_has_a_boundary_between_its_rounds():
    """cases/consolidation.md 5: without a later user turn it is cut between complete rounds."""
    assert boundary("U" + "Cx" * 80, 300) == (3, 300)
    assert boundary("U" + "Cx" * 80, 9_999_999) == (159, 15_900)
    assert boundary("U" + "Cx" * 80, 300, start=159) is None


def test_parallel_results_are_not_parted():
    """cases/consolidation.md 7: a message between two results of one call is no boundary."""
    assert boundary("UDxUyU", 100) == (5, 500)
    assert boundary("UDxUy", 100) is None
    assert boundary("UDxyDxy", 100) == (4, 400)


def test_system_messages_are_never_what_a_boundary_takes():
    """cases/consolidation.md 36: they stay in the window, so they remove nothing."""
    assert boundary("SU", 50) is None
    assert boundary("SUAU", 50) == (3, 200)
    assert boundary("SSUASU", 9_999) == (5, 200)


@given(LETTERS | TURNS.map("".join), st.integers(0, 14), st.integers(1, 2_000))
def test_no_boundary_parts_a_call_from_its_result(letters, start, tokens):
    """cases/consolidation.md 7: no result behind the boundary belongs to a call before it."""
    start = min(start, len(letters))
    found = boundary(letters, tokens, start)
    if found is None:
        return
    end, removed = found
    assert start < end < len(letters)
    taken = letters[start:end]
    assert removed == 100 * sum(letter != "S" for letter in taken) > 0
    assert_parts_nothing(letters, end)


def assert_parts_nothing(letters, place):
    shapes = shapes_of(letters)
    caller = {}
    for i, shape in enumerate(shapes):
        caller |= {call_id: i for call_id, _ in shape.calls}
        if shape.role == "tool" and shape.result_of in caller:
            assert not caller[shape.result_of] < place <= i


@given(LETTERS, st.integers(0, 14), st.integers(0, 14))
def test_cuts_part_no_round_and_end_at_the_end(letters, start, end):
    """cases/consolidation.md 7: a range is cut between rounds too; the last is its end."""
    start, end = sorted((min(start, len(letters)), min(end, len(letters))))
    found = list(cuts(shapes_of(letters), start, end))
    assert found[-1] == end
    assert sorted(set(found)) == found
    for place in found[:-1]:
        assert_parts_nothing(letters, place)


# --- the live window ---


def assert_legal(messages):
    """What strict providers ask: each call has one result, right behind it; no result is alone."""
    waiting = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert message.tool_call_id in waiting
            waiting.remove(message.tool_call_id)
        else:
            assert not waiting
            waiting = [call["id"] for call in getattr(message, "tool_calls", [])]
    assert not waiting


@given(LETTERS | TURNS.map("".join), st.integers(0, 20))
def test_the_window_is_legal_and_has_the_last_user_message(letters, pointer):
    """cases/consolidation.md 8: verbatim, wherever the pointer lies; no call without its result."""
    messages = made(letters)
    window = live_window(messages, min(pointer, len(messages)))
    assert_legal(window.messages)
    users = [message for message in messages if message.type == "human"]
    if users:
        assert any(message is users[-1] for message in window.messages)


@given(LETTERS | TURNS.map("".join), st.integers(0, 20))
def test_the_window_pins_the_user_message_of_its_first_turn_alone(letters, pointer):
    """cases/consolidation.md 8: of what is in memory, it shows that and system messages only."""
    messages = made(letters)
    pointer = min(pointer, len(messages))
    before, rest = messages[:pointer], messages[pointer:]
    shown = [message for message in live_window(messages, pointer).messages if message in before]
    owners = [message for message in before if message.type == "human"][-1:]
    if next((m.type for m in rest if m.type != "system"), None) == "human":
        owners = []
    assert shown == [message for message in before if message.type == "system"] + owners


@given(LETTERS, st.integers(0, 14))
def test_every_live_user_and_system_message_is_shown_once(letters, pointer):
    """cases/consolidation.md 36: no system or user message of the live part is lost or doubled."""
    messages = made(letters)
    rest = messages[pointer:]
    live = live_window(messages, min(pointer, len(messages))).live
    expected = [message for message in rest if message.type in {"human", "system"}]
    assert [message for message in live if message.type in {"human", "system"}] == expected


def test_a_call_without_a_result_is_given_one_that_says_so():
    """A call that was interrupted does not make the prompt illegal."""
    window = live_window(made("UCU"), 0)
    assert [message.content for message in window.live] == ["u0", "a1", INTERRUPTED, "u2"]
    assert window.live[2].status == "error"
    assert window.live[2].name == "f"


def test_a_window_without_consolidated_messages_pins_nothing():
    """A conversation that begins with the assistant is shown as it is."""
    assert [message.content for message in live_window(made("AU"), 0).messages] == ["a0", "u1"]


def test_all_consolidated_still_shows_the_last_user_message():
    """cases/consolidation.md 8: also where the pointer is behind all messages."""
    assert [message.content for message in live_window(made("SUAUA"), 5).messages] == ["s0", "u3"]


@pytest.mark.parametrize(
    ("message", "shape"),
    [
        (HumanMessage("x"), Shape("user")),
        (ChatMessage("x", role="user"), Shape("user")),
        (ChatMessage("x", role="critic"), Shape("critic")),
        (SystemMessage("x"), Shape("system")),
        (ToolMessage("x", tool_call_id="1"), Shape("tool", result_of="1")),
        (AIMessage("x"), Shape("assistant")),
        (AIMessageChunk("x"), Shape("assistant")),
        (AIMessage(""), Shape("assistant", replayable=False)),
        (AIMessage([{"type": "text", "text": " "}]), Shape("assistant", replayable=False)),
        (
            AIMessage("x", response_metadata={"finish_reason": "error"}),
            Shape("assistant", replayable=False),
        ),
        (
            AIMessage(
                "",
                tool_calls=[{"name": "f", "args": {}, "id": "1"}],
                invalid_tool_calls=[{"name": None, "args": "{", "id": "2", "error": None}],
            ),
            Shape("assistant", (("1", "f"), ("2", ""))),
        ),
        (AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": None}]), Shape("assistant")),
    ],
)
def test_the_shape_of_a_message(message, shape):
    """A message's shape has its role, its calls, and whether it may be replayed."""
    assert message_shape(message) == shape


# --- memory in the prompt ---


def test_memory_stands_at_the_end_of_the_last_system_message():
    """cases/consolidation.md 31: what stands before it stays the same when memory changes."""
    first, second = with_memory([SystemMessage("more")], "rules", "MEMORY")
    assert (first.content, second.content) == ("rules", "more\n\nMEMORY")


def test_memory_joins_a_system_message_of_blocks():
    """A system message made of blocks gets one more."""
    blocks = [{"type": "text", "text": "rules", "cache_control": {"type": "ephemeral"}}]
    (message,) = with_memory((), SystemMessage(blocks), "MEMORY")
    assert message.content == [*blocks, {"type": "text", "text": "MEMORY"}]
    assert len(blocks) == 1


def test_memory_alone_is_a_system_message_and_no_memory_is_none():
    """Without a system prompt the memory is one; without both there is none."""
    assert with_memory((), None, "MEMORY") == [SystemMessage("MEMORY")]
    assert with_memory((), None, "") == []
    assert with_memory((), "", "") == []
    assert with_memory((), "rules", "") == [SystemMessage("rules")]


def test_leading_system_messages_are_counted():
    """The number of system messages in front, all of them where there are no others."""
    assert [leading_system(made(letters)) for letters in ("", "SS", "SSUS", "US")] == [0, 2, 2, 0]
