"""One conversation and its legal history."""

from __future__ import annotations

import copy
import logging
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_nanomem.session import (
    INTERRUPTED,
    MissingResult,
    Session,
    Shape,
    has_content,
    legal_view,
    parse_timestamp,
    record_shape,
    tool_calls_of,
)

pytestmark = pytest.mark.back_ends("files", "postgres")


def U(text: str = "hi", **fields: Any) -> dict[str, Any]:  # noqa: N802 - as the cases name it
    return {"role": "user", "content": text, **fields}


def A(*calls: str, content: Any = "", **fields: Any) -> dict[str, Any]:  # noqa: N802 - as the cases name it
    message = {"role": "assistant", "content": content or ("" if calls else "ok"), **fields}
    if calls:
        function = {"name": "f", "arguments": "{}"}
        message["tool_calls"] = [{"id": c, "type": "function", "function": function} for c in calls]
    return message


def T(call: str | None, text: str = "result", **fields: Any) -> dict[str, Any]:  # noqa: N802 - as the cases name it
    return {"role": "tool", "tool_call_id": call, "name": "f", "content": text, **fields}


def session(*messages: dict[str, Any], pointer: Any = 0) -> Session:
    return Session("cli:test", messages=list(messages), last_consolidated=pointer)


def history(*messages: dict[str, Any], limit: int = 500) -> list[dict[str, Any]]:
    return session(*messages).get_history(limit)


def assert_legal(messages: list[dict[str, Any]]) -> None:
    """Every call is answered exactly once, right behind it; there is no other result."""
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in open_calls
            open_calls.remove(message["tool_call_id"])
        else:
            assert open_calls == []
            open_calls = [call["id"] for call in message.get("tool_calls", ())]
    assert open_calls == []


# --- the window -------------------------------------------------------------


def test_a_new_session_is_empty():
    """cases/sessions.md 1: nothing in it, nothing consolidated, no history."""
    fresh = Session("cli:test")
    assert (fresh.messages, fresh.last_consolidated, fresh.metadata) == ([], 0, {})
    assert fresh.get_history() == []
    assert fresh.created_at.tzinfo is not None


def test_the_window_starts_with_a_user_message():
    """cases/sessions.md 2: six of twenty, from a user message on; a hundred of five are five."""
    turns = [message for i in range(10) for message in (U(f"q{i}"), A(content=f"a{i}"))]
    cut = history(*turns, limit=6)
    assert [m["content"] for m in cut] == ["q7", "a7", "q8", "a8", "q9", "a9"]
    assert len(history(*turns[:5], limit=100)) == 5
    assert [m["content"] for m in history(*turns, limit=5)] == ["q8", "a8", "q9", "a9"]


def test_asking_twice_changes_nothing():
    """cases/sessions.md 2: equal results, and the session is as it was."""
    asked = session(T("x"), U(), A("a"), U(), A(content=[{"type": "text", "text": "x"}]))
    before = copy.deepcopy(asked)
    assert asked.get_history(3) == asked.get_history(3)
    assert asked == before


def test_who_is_given_the_history_may_mark_it_up():
    """cases/sessions.md 2: a program that adds to what it was given does not change the session."""
    asked = session(U([{"type": "text", "text": "x"}]), A("a"), T("a"))
    before = copy.deepcopy(asked.messages)
    for message in asked.get_history():
        message["cache_control"] = 1
        if isinstance(message["content"], list):
            message["content"][0]["cache_control"] = {"type": "ephemeral"}
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = "changed"
    assert asked.messages == before


def test_zero_is_no_limit_and_less_is_an_error():
    """cases/sessions.md 3: max_messages=0 gives all, a negative number is a ValueError."""
    many = [U(str(i)) for i in range(1200)]
    assert len(history(*many, limit=0)) == 1200
    assert len(session(*many).get_history()) == 500
    with pytest.raises(ValueError, match="max_messages"):
        history(*many, limit=-1)


@pytest.mark.parametrize("limit", range(1, 110))
def test_a_cut_never_parts_calls_and_results(limit: int):
    """cases/sessions.md 4: long tool loops, cut anywhere: no result without its call."""

    def loop(name: str, rounds: int) -> list[dict[str, Any]]:
        return [
            message
            for i in range(rounds)
            for message in (
                A(f"{name}{i}a", f"{name}{i}b"),
                T(f"{name}{i}a"),
                T(f"{name}{i}b"),
            )
        ]

    cut = history(U("1"), *loop("x", 20), U("2"), *loop("y", 25), U("3"), limit=limit)
    assert_legal(cut)
    assert cut[-1]["content"] == "3"
    assert not any(message["content"] == INTERRUPTED for message in cut)


def test_orphans_at_the_start_are_left_out():
    """cases/sessions.md 5: T, T, U, A gives exactly U, A."""
    assert history(T("x"), T("y"), U(), A()) == [U(), A()]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([U(), A("a"), T("a"), U("2"), T("b")], [U(), A("a"), T("a"), U("2")]),
        ([U(), T("b"), A("a"), T("a"), U("2")], [U(), A("a"), T("a"), U("2")]),
        ([U(), A("a"), T("b"), T("a"), U("2")], [U(), A("a"), T("a"), U("2")]),
        ([U(), A("a"), T("a"), T("a", "again")], [U(), A("a"), T("a")]),
        ([U(), A("a"), T("a"), U("2"), T("a", "again")], [U(), A("a"), T("a"), U("2")]),
        ([U(), A("a"), T(None), T("a")], [U(), A("a"), T("a")]),
        ([U(), A("a"), T(""), T("a")], [U(), A("a"), T("a")]),
        ([U(), {"role": "tool", "content": "x"}, A()], [U(), A()]),
        ([U(), T("a", "too early"), A("a"), T("a")], [U(), A("a"), T("a")]),
        ([U(), A("a", "b"), T("b"), T("a"), A()], [U(), A("a", "b"), T("b"), T("a"), A()]),
        ([U(), A("a"), T("a"), A("a"), T("a", "2")], [U(), A("a"), T("a"), A("a"), T("a", "2")]),
    ],
)
def test_only_the_orphan_goes(given: list[dict[str, Any]], expected: list[dict[str, Any]]):
    """cases/sessions.md 6: an orphan, a duplicate, a result without an id: just those go."""
    assert history(*given) == expected


def test_a_late_result_stands_behind_its_call():
    """cases/sessions.md 6: a result that came after the next user message is moved to its call."""
    late = history(U(), A("a"), U("2"), T("a"))
    assert late == [U(), A("a"), T("a"), U("2")]


@pytest.mark.parametrize("bad", [7, ["a"], {"a": 1}, 0.5, True])
def test_odd_ids_and_calls_break_nothing(bad: Any):
    """cases/sessions.md 6: whatever a file holds as an id or a call, the rest can be read."""
    given = [U(), T(bad), A(content="x", tool_calls=bad), A(content="y", tool_calls=[bad]), U("2")]
    given.append(A(content="z", tool_calls=[{"id": bad, "function": bad}]))
    assert [m["content"] for m in history(*given)] == ["hi", "x", "y", "2", "z"]


def test_a_call_without_result_is_interrupted():
    """cases/sessions.md 7: each gets a synthetic result; the session stays as it is."""
    asked = session(U(), A("a", "b"), T("b"), U("2"))
    answer = asked.get_history()
    assert_legal(answer)
    assert answer[2] == T("b")
    assert answer[3] == {"role": "tool", "tool_call_id": "a", "name": "f", "content": INTERRUPTED}
    assert asked.messages == [U(), A("a", "b"), T("b"), U("2")]


def test_a_call_at_the_very_end_is_interrupted_too():
    """cases/sessions.md 7: after a restart the last call has no result; providers want one."""
    assert_legal(history(U(), A("a")))
    assert len(history(U(), A("a"))) == 3


def test_one_id_twice_in_a_message_is_answered_once():
    """cases/sessions.md 7: a strict provider refuses two results of one id."""
    assert [m["role"] for m in history(U(), A("a", "a"))] == ["user", "assistant", "tool"]


def test_without_a_user_message_the_window_starts_legally():
    """cases/sessions.md 8: at the first legal message, never with a result."""
    assert history(T("x"), A("a"), T("a"), A()) == [A("a"), T("a"), A()]
    loop = [m for i in range(20) for m in (A(f"{i}"), T(f"{i}"))]
    for limit in range(1, 41):
        cut = history(U(), *loop, limit=limit)
        assert_legal(cut)
        assert cut == [] or cut[0]["role"] == "assistant"


@pytest.mark.parametrize(
    "bad",
    [
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": " \n"},
        {"role": "assistant"},
        {"role": "assistant", "content": []},
        {"role": "assistant", "content": [{"type": "text", "text": ""}]},
        {"role": "assistant", "content": ["", " "]},
        {"role": "assistant", "content": "", "tool_calls": []},
        {"role": "assistant", "content": "", "tool_calls": None},
        A(content="x", finish_reason="error"),
        A(content="x", error=True),
        A(content="x", is_error=True),
        A(content="x", metadata={"error": "timeout"}),
        A(content="x", metadata={"finish_reason": "error"}),
        A(content="x", response_metadata={"finish_reason": "error"}),
        A(content="x", response_metadata={"stop_reason": "error"}),
        A(content="x", additional_kwargs={"error": {"code": 500}}),
    ],
)
def test_empty_and_failed_answers_are_not_replayed(bad: dict[str, Any]):
    """cases/sessions.md 9: neither content nor calls, or marked as an error: left out."""
    assert history(U(), bad, U("2")) == [U(), U("2")]


def test_the_results_of_a_failed_answer_go_with_it():
    """cases/sessions.md 9: what answers a message that is left out would be an orphan."""
    assert history(U(), A("a", finish_reason="error"), T("a"), U("2")) == [U(), U("2")]


@pytest.mark.parametrize(
    "good",
    [
        A(content="Error calling the model: error, sorry"),
        A(content="[error]", finish_reason="stop"),
        A(content="x", error=None, is_error=False, metadata={"error": ""}),
        A(content="x", finish_reason="length"),
        A(content="x", metadata="error"),
        A(content=[{"type": "image_url", "image_url": {"url": "x"}}]),
        A("a"),
    ],
)
def test_wording_is_never_judged(good: dict[str, Any]):
    """cases/sessions.md 9: a message that only talks of errors is a message."""
    assert history(U(), good)[1]["content"] == good["content"]


def test_a_user_or_a_tool_may_say_nothing():
    """cases/sessions.md 9: only assistant messages are judged; an empty result is a result."""
    assert history(U(""), A("a"), T("a", "")) == [U(""), A("a"), T("a", "")]


def test_what_the_model_sees_has_no_bookkeeping():
    """cases/sessions.md 10: no timestamps; reasoning and content blocks survive."""
    blocks = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "x"}]
    spoken = session(U())
    spoken.add_message("assistant", blocks, reasoning_content="hm", thinking_blocks=[1], id="7")
    spoken.add_message("user", "later", metadata={"a": 1})
    assert spoken.get_history() == [
        U(),
        {"role": "assistant", "content": blocks, "reasoning_content": "hm", "thinking_blocks": [1]},
        U("later"),
    ]


def test_only_the_live_window_is_shown():
    """cases/sessions.md 11: with 7 of ten consolidated only 7 to 9 are shown; with all, nothing."""
    ten = [U(str(i)) for i in range(10)]
    assert [m["content"] for m in session(*ten, pointer=7).get_history()] == ["7", "8", "9"]
    assert session(*ten, pointer=10).get_history() == []


@pytest.mark.parametrize("pointer", [999, -5, "999", None, 0.5, True, [1], 11])
def test_a_damaged_pointer_hides_nothing(pointer: Any, caplog: pytest.LogCaptureFixture):
    """cases/sessions.md 11: taken as 0, with a warning that names the session."""
    with caplog.at_level(logging.WARNING):
        shown = session(*[U(str(i)) for i in range(10)], pointer=pointer).get_history()
    assert len(shown) == 10
    assert "cli:test" in caplog.text
    assert "last_consolidated" in caplog.text


# --- properties -------------------------------------------------------------

names = st.sampled_from(["a", "b", "c"])
shapes = st.lists(
    st.one_of(
        st.just(Shape("user")),
        st.just(Shape("system")),
        st.builds(
            lambda calls, ok: Shape("assistant", tuple((c, "f") for c in calls), replayable=ok),
            st.lists(names, unique=True, max_size=3),
            st.booleans(),
        ),
        st.builds(lambda name: Shape("tool", result_of=name), st.none() | names),
    ),
    max_size=14,
)


def as_shapes(all_shapes: list[Shape], view: list[int | MissingResult]) -> list[Shape]:
    return [
        Shape("tool", result_of=place.call_id)
        if isinstance(place, MissingResult)
        else all_shapes[place]
        for place in view
    ]


@given(shapes)
def test_every_view_is_legal(given_shapes: list[Shape]):
    """cases/sessions.md 6, 7: each call has exactly one result, right behind it; no orphan."""
    open_calls: list[str | None] = []
    for shape in as_shapes(given_shapes, legal_view(given_shapes)):
        if shape.role == "tool":
            open_calls.remove(shape.result_of)
        else:
            assert open_calls == []
            assert shape.replayable
            open_calls = [call_id for call_id, _ in shape.calls]
    assert open_calls == []


@given(shapes)
def test_a_view_drops_nothing_else_and_keeps_the_order(given_shapes: list[Shape]):
    """cases/sessions.md 6: what is no result and may be replayed is there, once, in its order."""
    places = [place for place in legal_view(given_shapes) if isinstance(place, int)]
    assert len(set(places)) == len(places)
    spoken = [place for place in places if given_shapes[place].role != "tool"]
    assert spoken == [
        place
        for place, shape in enumerate(given_shapes)
        if shape.role != "tool" and shape.replayable
    ]


@given(shapes)
def test_a_view_of_a_view_is_itself(given_shapes: list[Shape]):
    """cases/sessions.md 2: what is legal stays as it is."""
    once = as_shapes(given_shapes, legal_view(given_shapes))
    assert legal_view(once) == list(range(len(once)))


records = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(["user", "assistant", "tool", "", None, 7]),
            "content": st.none() | st.text(max_size=3) | st.lists(st.text(max_size=2), max_size=2),
            "tool_calls": st.none()
            | st.lists(
                st.none()
                | st.fixed_dictionaries(
                    {}, optional={"id": st.none() | st.integers() | names, "function": st.none()}
                ),
                max_size=3,
            ),
            "tool_call_id": st.none() | st.integers() | names,
        },
    ),
    max_size=8,
)


@given(records, st.integers(0, 9))
def test_whatever_a_file_holds_can_be_shown(found: list[dict[str, Any]], limit: int):
    """cases/sessions.md 6, 23: records of any program make a history and never an exception."""
    shown = session(*found).get_history(limit)
    assert all(set(message) >= {"role", "content"} for message in shown)
    assert [record_shape(record) for record in found] == [record_shape(r) for r in found]


# --- adding, clearing, times ------------------------------------------------


def test_messages_are_stamped_in_utc():
    """A message has the time it was added; a given time is kept, as UTC."""
    spoken = session()
    spoken.add_message("user", "a")
    spoken.add_message("user", "b", timestamp="2026-01-02T03:04:05")
    tokyo = timezone(timedelta(hours=9))
    spoken.add_message("user", "c", timestamp=datetime(2026, 1, 2, 9, tzinfo=tokyo), extra=1)
    stamps = [message["timestamp"] for message in spoken.messages]
    moment = parse_timestamp(stamps[0])
    assert moment is not None
    assert abs(datetime.now(UTC) - moment) < timedelta(minutes=1)
    assert stamps[1:] == ["2026-01-02T03:04:05", "2026-01-02T00:00:00+00:00"]
    assert spoken.messages[2]["extra"] == 1
    assert list(spoken.messages[0]) == ["role", "content", "timestamp"]


def test_adding_moves_updated_at():
    """A session that was added to was changed now."""
    spoken = Session("cli:test", updated_at=datetime(2020, 1, 1, tzinfo=UTC))
    spoken.add_message("user", "a")
    assert spoken.updated_at.year > 2020


def test_clearing_empties():
    """A cleared session has neither messages nor a pointer."""
    spoken = session(U(), A(), pointer=2)
    spoken.clear()
    assert (spoken.messages, spoken.last_consolidated, spoken.get_history()) == ([], 0, [])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-01-02T03:04:05", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05+09:00", datetime(2026, 1, 1, 18, 4, 5, tzinfo=UTC)),
        ("2026-01-02", datetime(2026, 1, 2, tzinfo=UTC)),
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (1.5, datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=UTC)),
        (datetime(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC)),  # noqa: DTZ001 - without a zone on purpose
        ("yesterday", None),
        ("", None),
        (None, None),
        (True, None),
        (1e300, None),
        (float("nan"), None),
        ("0001-01-01T00:00:00+14:00", None),
        ([], None),
    ],
)
def test_timestamps_of_any_program_are_understood(value: Any, expected: datetime | None):
    """cases/sessions.md 23: ISO 8601 with or without zone, seconds; else None, never an error."""
    assert parse_timestamp(value) == expected


def test_content_and_calls_of_any_shape():
    """What counts as content and as a call is told for any value."""
    assert [has_content(c) for c in ["x", " ", "", None, [], ["x"], {"a": 1}, 7]] == [
        True, False, False, False, False, True, True, True,
    ]  # fmt: skip
    assert tool_calls_of({"tool_calls": [{"id": "a"}, None, "x"]}) == [{"id": "a"}]
    assert tool_calls_of({}) == []
