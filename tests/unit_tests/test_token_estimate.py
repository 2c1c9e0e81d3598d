"""The estimate: never far below the exact count, for prose of any script, code and noise."""
# ruff: noqa: E501, RUF001 - samples of many scripts

from __future__ import annotations

import base64
import json
import random
import string
from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_nanomem import token_estimate
from langchain_nanomem.token_estimate import estimate_tokens
from langchain_nanomem.vocabulary import exact_counter

EXACT = {name: exact_counter(name) for name in ("cl100k_base", "o200k_base")}
assert all(EXACT.values()), "the extra `offline` is needed"
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


def exact_tokens(text, encoding="o200k_base"):
    return EXACT[encoding](text)


@pytest.mark.parametrize("name", SAMPLES)
def test_estimate(name):
    """cases/consolidation.md 38: the estimate is 0.95 to 1.6 times the exact count."""
    exact = exact_tokens(SAMPLES[name])
    assert 0.95 * exact <= estimate_tokens(SAMPLES[name]) <= 1.6 * exact + 2


@pytest.mark.parametrize("name", SAMPLES)
def test_estimate_of_older_encoding(name):
    """For ``cl100k_base`` too the estimate is not far below, and at most double."""
    exact = exact_tokens(SAMPLES[name], "cl100k_base")
    estimate = estimate_tokens(SAMPLES[name], encoding="cl100k_base")
    assert 0.9 * exact <= estimate <= 2.25 * exact + 2


@settings(deadline=None, max_examples=50)
@given(text=st.text(st.characters(codec="utf-8"), min_size=150, max_size=400))
def test_estimate_of_any_text(text):
    """Random characters of all of Unicode are not undercounted by much."""
    assert 0.8 * exact_tokens(text) <= estimate_tokens(text) <= 3 * exact_tokens(text) + 2


def test_estimate_is_additive_over_slices():
    """A text of many slices counts about as the sum of its parts."""
    text = SAMPLES["english"]
    times = 3 * token_estimate._SLICE // len(text)
    assert estimate_tokens(text * times) == pytest.approx(times * estimate_tokens(text), rel=0.01)


def test_chinese():
    """cases/consolidation.md 38: Chinese is not undercounted by the estimate either."""
    text = CHINESE * 10
    assert estimate_tokens(text) >= exact_tokens(text) > 400


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83d\ude00", "\0", "\0" * 3_000, ""])
def test_odd_text(text):
    """cases/consolidation.md 37: lone surrogates and NUL do not raise; "" is 0."""
    assert bool(text) == (estimate_tokens(text) > 0)


@pytest.mark.parametrize("text", ["a", " ", "的", NOISE.hex()], ids=["a", " ", "的", "hex"])
def test_long_unbroken_text_is_linear(text):
    """200,000 characters without a boundary take no more a character than 10,000 do."""
    text *= 200_000 // len(text)
    estimate_tokens("warm")
    start = perf_counter()
    estimate_tokens(text[:10_000])
    middle = perf_counter()
    estimate_tokens(text)
    assert perf_counter() - middle < 10 * (middle - start) * len(text) / 10_000
