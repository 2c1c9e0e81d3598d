"""Messages as text: dates, speakers, calls, media, and over-long ones cut."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_nanomem.codec import decode
from langchain_nanomem.rendering import (
    content_text,
    render_message,
    render_moment,
    shorten,
    speaker_of,
    valid_unicode,
)

SAID_AT = datetime(2026, 5, 8, 13, 56, tzinfo=UTC)


def words(text):
    return len(text.split())


# --- who said it, and when ---


def test_each_message_carries_date_and_weekday():
    """cases/consolidation.md 28: the text leads with date, weekday, time and speaker."""
    text = render_message(HumanMessage("I moved yesterday"), SAID_AT)
    assert text == "[2026-05-08 Friday 13:56] user: I moved yesterday"


@pytest.mark.parametrize("day", range(7))
def test_weekdays_are_english_and_right(day):
    """Each day of a week gets its own English name, whatever the locale."""
    names = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    moment = datetime(2026, 5, 4, 9, 5, tzinfo=UTC) + timedelta(days=day)
    assert render_moment(moment) == f"2026-05-{4 + day:02} {names[day]} 09:05"


def test_a_message_without_a_time_says_so():
    """cases/consolidation.md 19: a timestamp of None is rendered as "no date"."""
    assert render_message(HumanMessage("hi"), None) == "[no date] user: hi"


@pytest.mark.parametrize(
    ("message", "speaker"),
    [
        (HumanMessage("x"), "user"),
        (HumanMessage("x", name="Ada"), "Ada"),
        (AIMessage("x"), "assistant"),
        (AIMessageChunk("x"), "assistant"),
        (ToolMessage("x", tool_call_id="1"), "tool"),
        (ToolMessage("x", tool_call_id="1", name="grep"), "tool grep"),
        (SystemMessage("x"), "system"),
        (ChatMessage("x", role="critic"), "critic"),
        (FunctionMessage("x", name="f"), "f"),
    ],
)
def test_the_speaker_is_named(message, speaker):
    """The speaker is the message's name, else its role in plain words."""
    assert speaker_of(message) == speaker


@pytest.mark.parametrize(
    "record",
    [
        {"content": "hello"},
        {"role": None, "content": "hello"},
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
        {"role": "user", "content": ["hello"]},
        {"role": "assistant", "content": "hello", "tool_calls": "none"},
        {"role": "assistant", "content": "hello", "tool_calls": [7], "name": None},
        {"role": "user", "content": {"text": "hello"}},
    ],
)
def test_odd_records_are_rendered(record):
    """cases/consolidation.md 19: a missing role or list content does not stop the rendering."""
    assert "hello" in render_message(decode(record), None)


def test_content_of_none_and_numbers_is_rendered():
    """Content that is nothing is empty; other values are shown as they print."""
    assert content_text(None) == ""
    assert content_text(7) == "7"
    assert content_text([None, 7, "x"]) == "7\nx"


# --- calls ---


def test_calls_and_their_arguments_are_told():
    """A tool call is shown by its name and arguments, readable in any script."""
    call = {"name": "weather", "args": {"city": "Zürich"}, "id": "1"}
    text = render_message(AIMessage("Let me look.", tool_calls=[call]), SAID_AT)
    assert text.endswith('assistant: Let me look.\n(calls weather with {"city": "Zürich"})')


def test_an_invalid_call_is_told_as_it_is():
    """Arguments that were no JSON are shown verbatim."""
    call = {"name": None, "args": "{oops", "id": "1", "error": "no JSON"}
    text = render_message(AIMessage("", invalid_tool_calls=[call]), None)
    assert text == "[no date] assistant: (calls a tool with {oops)"


@pytest.mark.parametrize("odd", [{("a", 1): 2}, {"when": SAID_AT}, {"raw": b"\x00"}, {1: {2, 3}}])
def test_arguments_that_json_lacks_are_shown_somehow(odd):
    """Whatever a call's arguments hold, it is rendered and nothing is raised."""
    call = {"name": "f", "args": odd, "id": "1", "type": "tool_call"}
    message = AIMessage.model_construct(
        content="", tool_calls=[call], invalid_tool_calls=[], name=None, type="ai"
    )
    assert "(calls f with {" in render_message(message, None)


def test_arguments_that_hold_themselves_are_shown_somehow():
    """A cycle in the content does not raise."""
    block = {"type": "odd"}
    block["self"] = block
    assert "odd" in content_text([block])


def test_what_repeats_the_calls_or_is_thought_is_not_said():
    """Reasoning and call blocks are no words of the conversation."""
    content = [
        {"type": "thinking", "thinking": "hmm"},
        {"type": "reasoning", "reasoning": "hmm"},
        {"type": "redacted_thinking", "data": "hmm"},
        {"type": "text", "text": "So:"},
        {"type": "tool_use", "id": "1", "name": "f", "input": {"hmm": 1}},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "hmm"},
    ]
    assert content_text(content) == "So:"


# --- media ---

DATA = "A" * 4_000  # of 3,000 bytes
MEDIA = [
    ({"type": "image", "base64": DATA, "mime_type": "image/png"}, "[image: image/png, 3 kB]"),
    (
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
        "[image: image/png, 3 kB]",
    ),
    (
        {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
        "[image: https://example.org/cat.png]",
    ),
    ({"type": "image_url", "image_url": "https://x.org/c.png"}, "[image: https://x.org/c.png]"),
    ({"type": "input_image", "image_url": f"data:image/gif;base64,{DATA}"}, "image/gif, 3 kB]"),
    (
        {"type": "image", "source": {"type": "base64", "media_type": "image/webp", "data": DATA}},
        "[image: image/webp, 3 kB]",
    ),
    (
        {"type": "image", "source_type": "base64", "data": DATA, "mime_type": "image/jpeg"},
        "[image: image/jpeg, 3 kB]",
    ),
    ({"type": "image", "data": b"x" * 5_000, "name": "cat.png"}, "[image: cat.png, 5 kB]"),
    ({"type": "image", "file_id": "file-7"}, "[image: file-7]"),
    ({"type": "image"}, "[image: unnamed]"),
    (
        {"image": {"format": "png", "source": {"bytes": b"x" * 2_000}}},
        "[image: png, 2 kB]",
    ),
    (
        {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}},
        "[audio: wav, 3 kB]",
    ),
    ({"type": "audio", "base64": DATA, "mime_type": "audio/mp3"}, "[audio: audio/mp3, 3 kB]"),
    ({"type": "video", "url": "https://example.org/a.mp4"}, "[video: https://example.org/a.mp4]"),
    (
        {"type": "file", "file": {"filename": "plan.pdf", "file_data": f"data:x/y;base64,{DATA}"}},
        "[file: plan.pdf, 3 kB]",
    ),
    (
        {
            "type": "file",
            "mime_type": "application/pdf",
            "base64": DATA,
            "extras": {"filename": "plan.pdf"},
        },
        "[file: plan.pdf, 3 kB]",
    ),
    (
        {"type": "document", "title": "Plan", "source": {"type": "base64", "data": DATA}},
        "[file: Plan, 3 kB]",
    ),
    ({"type": "image", "base64": "AA", "name": "dot\n\x1f.png"}, "[image: dot .png, 1 kB]"),
]


@pytest.mark.parametrize(("block", "mark"), MEDIA, ids=[mark for _, mark in MEDIA])
def test_media_leave_a_mark(block, mark):
    """cases/consolidation.md 41: a medium is shown by name or type and size, never its data."""
    message = HumanMessage.model_construct(
        content=[{"type": "text", "text": "look"}, block], name=None, type="human"
    )
    text = render_message(message, None)
    assert text.startswith("[no date] user: look\n[")
    assert text.endswith(mark)
    assert DATA not in text


def test_media_in_a_tool_result_leave_a_mark():
    """cases/consolidation.md 41: also where the picture stands inside a result's own content."""
    inner = [{"type": "text", "text": "shot"}, {"type": "image", "base64": DATA, "name": "s.png"}]
    content = [{"type": "tool_result", "tool_use_id": "1", "content": inner}]
    assert content_text(content) == "shot\n[image: s.png, 3 kB]"


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text-plain", "text": "the plan", "title": "plan.txt"},
        {"type": "document", "title": "plan.txt", "source": {"type": "text", "data": "the plan"}},
        {
            "type": "document",
            "title": "plan.txt",
            "source": {"type": "content", "content": [{"type": "text", "text": "the plan"}]},
        },
    ],
)
def test_words_of_a_text_file_are_words(block):
    """A document made of text is shown with its text."""
    assert content_text([block]) == "[file: plan.txt]\nthe plan"


def test_the_name_of_a_medium_is_bounded():
    """A name of any length takes no more than a line."""
    assert len(content_text([{"type": "image", "url": f"https://x.org/{DATA}"}])) < 250


# --- half characters ---


def test_half_characters_are_joined_or_replaced():
    """cases/consolidation.md 37: lone surrogates never raise; the text can be written as UTF-8."""
    assert valid_unicode("a\ud83d\ude00b") == "a😀b"
    assert valid_unicode("a\ud83d b") == "a\ufffd b"
    assert render_message(HumanMessage("a\ud83d"), None).encode().endswith(b"\xef\xbf\xbd")


@given(st.text())
def test_valid_text_stays_as_it_is(text):
    """Text that UTF-8 can hold is not changed, byte order marks included."""
    assert valid_unicode(text) == text
    assert valid_unicode(f"\ufeff{text}") == f"\ufeff{text}"


# --- over-long ones ---


def test_a_short_text_is_not_cut():
    """What fits is returned as it is, to the last token."""
    assert shorten("one two three", 3, words) == "one two three"


def test_a_long_text_keeps_head_and_tail_and_says_what_is_missing():
    """Head and tail stay, the mark says how many characters are left out."""
    text = " ".join(f"w{i}" for i in range(1_000))
    short = shorten(text, 100, words)
    assert words(short) <= 100
    head, mark, tail = short.split("\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert head
    assert tail
    left_out = len(text) - len(head) - len(tail)
    assert mark == f"[... {left_out} characters left out here; the session has them ...]"


@given(st.text(max_size=400), st.integers(min_value=1, max_value=400))
def test_a_cut_text_fits_or_is_the_mark_alone(text, limit):
    """It ends, and is within the limit unless the mark alone is beyond that."""
    short = shorten(text, limit, len)
    assert len(short) <= max(limit, 80)
