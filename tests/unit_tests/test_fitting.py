"""A window that is too large for the budget, made to fit."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    HumanMessageChunk,
    SystemMessage,
    ToolMessage,
)

from langchain_nanomem.fitting import fit, least
from langchain_nanomem.session import legal_view
from langchain_nanomem.tokens import TokenCounter
from langchain_nanomem.window import Window, live_window, message_shape

COUNTER = TokenCounter()


def characters(messages):
    """A counter that is easy to reckon with: a token a character."""
    return sum(len(str(message.content)) for message in messages)


def call(*ids, text=""):
    return AIMessage(text, tool_calls=[{"name": "look", "args": {}, "id": i} for i in ids])


def result(call_id, text="result"):
    return ToolMessage(text, tool_call_id=call_id, name="look")


def is_legal(messages):
    shapes = [message_shape(message) for message in messages]
    return legal_view(shapes) == list(range(len(shapes)))


def texts(messages):
    return [message.content for message in messages]


u1, a1, u2, a2, u3 = (
    HumanMessage("u1 " * 10),
    AIMessage("a1 " * 10),
    HumanMessage("u2 " * 10),
    AIMessage("a2 " * 10),
    HumanMessage("u3 " * 10),
)
system = SystemMessage("rules")


# --- whole turns ---


def test_what_fits_is_shown_as_it_is():
    """At the very size of the room everything is shown, in its order."""
    window = Window([system], [u1, a1, u2])
    assert fit(window, 95, characters) == ([system, u1, a1, u2], 0)
    assert fit(window, 94, characters) == ([system, u2], 2)
    assert fit(Window([], []), 0, characters) == ([], 0)


def test_the_oldest_whole_turns_are_left_out_first():
    """cases/consolidation.md 17: no more turns are left out than must be."""
    window = Window([], [u1, a1, u2, a2, u3])
    assert fit(window, 149, characters) == ([u2, a2, u3], 2)
    assert fit(window, 90, characters) == ([u2, a2, u3], 2)
    assert fit(window, 89, characters) == ([u3], 4)
    assert fit(window, 30, characters) == ([u3], 4)


def test_the_last_user_message_stays_without_any_room():
    """cases/consolidation.md 8: the last user message is shown even when it alone is too much."""
    window = Window([system], [u1, a1, u2, a2, u3])
    assert fit(window, 0, characters) == ([system, u3], 4)
    assert fit(window, -1_000, characters) == ([system, u3], 4)


def test_system_messages_stay_wherever_they_stood():
    """cases/consolidation.md 36: a system message in the middle of what is left out stays."""
    later = SystemMessage("later")
    window = Window([system], [u1, later, a1, u2])
    assert fit(window, 40, characters) == ([system, later, u2], 2)
    rounds = [u1, call("a"), result("a", "x" * 50), later, call("b"), result("b", "y" * 50)]
    shown = fit(Window([system], rounds), 30 + 5 + 5 + 50, characters)
    assert texts(shown.messages) == ["rules", u1.content, "later", "", "y" * 50]
    assert shown.left_out == 2


def test_chunks_begin_turns_too():
    """A user's message that came as a chunk begins a turn like any other."""
    chunk = HumanMessageChunk("u2 " * 10)
    assert fit(Window([], [u1, a1, chunk]), 30, characters) == ([chunk], 2)


def test_examples_of_a_template_go_before_turns_do():
    """What a prompt template put in front is left out like the oldest turns, and not counted."""
    window = Window([system, HumanMessage("2+2?"), AIMessage("4")], [u1, a1, u2])
    assert fit(window, 100, characters).left_out == 0
    assert fit(window, 99, characters) == ([system, u2], 2)


# --- inside the last turn ---


def test_in_the_last_turn_the_oldest_rounds_are_left_out():
    """cases/consolidation.md 8: one endless tool loop keeps its user message and newest rounds."""
    rounds = [m for i in range(5) for m in (call(f"c{i}"), result(f"c{i}", f"{i}" * 50))]
    window = Window([], [u1, a1, u2, *rounds])
    shown = fit(window, 30 + 100, characters)
    assert texts(shown.messages) == [u2.content, "", "3" * 50, "", "4" * 50]
    assert shown.left_out == 2 + 6


def test_the_pinned_user_message_stays():
    """cases/consolidation.md 8: where the pointer lies inside its turn, it stays in front."""
    rounds = [m for i in range(3) for m in (call(f"c{i}"), result(f"c{i}", "r" * 50))]
    shown = fit(Window([system, u1], rounds), 30 + 5 + 50, characters)
    assert texts(shown.messages) == ["rules", u1.content, "", "r" * 50]
    assert shown.left_out == 4


def test_long_results_are_shown_by_head_and_tail():
    """A result that has no room for itself is cut in its middle, with a mark that says so."""
    window = Window([], [u1, call("a", "b"), result("a", "A" + "x" * 2_000 + "Z"), result("b")])
    shown = fit(window, 400, characters)
    assert characters(shown.messages) <= 400
    assert shown.left_out == 0
    cut = shown.messages[2].content
    assert cut[0] == "A"
    assert cut[-1] == "Z"
    assert "left out here" in cut
    assert shown.messages[3] is window.live[3]
    assert window.live[2].content == "A" + "x" * 2_000 + "Z"


def test_a_round_that_can_not_be_cut_is_left_out():
    """Where a call's own arguments are too much, the user message is shown without the round."""
    big = AIMessage("x" * 500, tool_calls=[{"name": "look", "args": {}, "id": "a"}])
    shown = fit(Window([], [u1, big, result("a")]), 100, characters)
    assert shown == ([u1], 2)


def test_parallel_results_are_never_parted():
    """cases/consolidation.md 7: two results of one call are shown together or not at all."""
    live = [u1, call("a", "b"), result("a", "x" * 40), result("b", "y" * 40), a1]
    for room in range(0, 200, 5):
        assert is_legal(fit(Window([], live), room, characters).messages)


def test_without_any_user_message_the_newest_rounds_are_shown():
    """A window that no user message begins keeps its newest end."""
    live = [a1, call("a"), result("a", "x" * 40), a2]
    assert fit(Window([], live), 40, characters) == ([a2], 3)


def test_what_always_stays_is_told():
    """`least` gives the system messages and the last user message, wherever they stand."""
    assert least(Window([system, u1], [a1, u2, a2])) == [system, u2]
    assert least(Window([system, u1], [call("a"), result("a")])) == [system, u1]
    assert least(Window([], [a1])) == []


@pytest.mark.parametrize("rounds", [False, True])
def test_a_long_window_is_made_to_fit_in_no_time(rounds):
    """cases/consolidation.md 40: 10,000 messages are counted a few times over, not 10,000 times."""
    turn = [call("c"), result("c", "r" * 90)] if rounds else [u1, a1]
    live = [HumanMessage("go"), *(turn * 5_000)]
    counted = 0

    def count(messages):
        nonlocal counted
        counted += len(messages)
        return characters(messages)

    began = time.process_time()
    assert characters(fit(Window([], live), 5_000, count).messages) <= 5_000
    assert counted < 30 * len(live)
    assert time.process_time() - began < 5


# --- properties ---

words = st.builds(
    lambda word, n: word * n, st.sampled_from(["ab ", "x", "é 漢 "]), st.integers(0, 60)
)


@st.composite
def conversations(draw) -> list[BaseMessage]:
    """Any conversation: turns, rounds with parallel calls, system messages anywhere."""
    messages: list[BaseMessage] = []
    number = 0
    for kind in draw(st.lists(st.sampled_from("uuarrs"), min_size=1, max_size=14)):
        text = draw(words)
        if kind == "u":
            messages.append(HumanMessage(f"u{len(messages)} {text}"))
        elif kind == "a":
            messages.append(AIMessage(f"a{len(messages)} {text}"))
        elif kind == "s":
            messages.append(SystemMessage(f"s{len(messages)} {text}"))
        else:
            ids = [f"c{number + i}" for i in range(draw(st.integers(1, 3)))]
            number += 3
            messages.append(call(*ids, text=draw(words)))
            messages += [result(i, draw(words) * draw(st.integers(1, 8))) for i in ids]
    return messages


@settings(max_examples=150, deadline=None)
@given(conversations(), st.integers(0, 20), st.integers(-50, 600))
def test_the_room_is_never_exceeded(messages, pointer, room):
    """What is shown fits, unless system messages and the last user message alone do not."""
    window = live_window(messages, min(pointer, len(messages)))
    shown = fit(window, room, COUNTER)
    must = least(window)
    assert COUNTER(shown.messages) <= max(room, COUNTER(must))
    assert all(any(m is message for m in shown.messages) for message in must)
    assert is_legal(shown.messages)
    assert shown.left_out == len(window.live) - sum(
        not any(m is message for m in window.kept) for message in shown.messages
    )
    assert shown.left_out >= 0


@settings(max_examples=100, deadline=None)
@given(conversations(), st.integers(0, 600))
def test_more_room_never_shows_less(messages, room):
    """With a larger room no fewer messages are shown."""
    window = live_window(messages, 0)
    less, more = fit(window, room, COUNTER), fit(window, room + 50, COUNTER)
    assert more.left_out <= less.left_out
