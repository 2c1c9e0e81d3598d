# ruff: noqa: RUF001 - the punctuation of Chinese is meant where it stands
from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_nanomem.extractive import (
    Utterance,
    _estimate_tokens,
    _split,
    summarize_extractively,
)

MONDAY = datetime(2023, 5, 8, 14, tzinfo=UTC)
TALK = [
    Utterance("Caroline", "Hey Mel! Good to see you! How have you been?", MONDAY),
    Utterance("Melanie", "Hi Caroline! I'm swamped with the kids. Anything new?", MONDAY),
    Utterance("Caroline", "I went to a support group in Boston yesterday.", MONDAY),
    Utterance("Melanie", "Wow, that's amazing! Was it good?", MONDAY),
    Utterance("Caroline", "Yes. I signed up for 3 meetings.", MONDAY + timedelta(days=1)),
    Utterance("Melanie", "Great! I painted a sunrise last year.", MONDAY + timedelta(days=1)),
]


def test_summary_has_the_stated_form():
    """Lines led by the speaker, each day once before its first sentence, dates resolved."""
    assert summarize_extractively(TALK) == (
        "2023-05-08 Mon Melanie: I'm swamped with the kids.\n"
        "Caroline: I went to a support group in Boston yesterday (2023-05-07).\n"
        "2023-05-09 Tue Caroline: I signed up for 3 meetings.\n"
        "Melanie: I painted a sunrise last year (2022)."
    )


def test_a_small_budget_keeps_the_most_telling_sentence():
    """With room for one sentence, what was done, when and where wins over greetings."""
    assert summarize_extractively(TALK, max_tokens=30) == (
        "2023-05-08 Mon Caroline: I went to a support group in Boston yesterday (2023-05-07)."
    )


def test_chinese_talk_is_summarized():
    """Chinese is split at its own punctuation, weighed by character pairs, and dated."""
    talk = [
        Utterance("小明", "你好！我昨天去了北京，见到了老朋友张伟。你最近怎么样？", MONDAY),
        Utterance("小红", "哈哈，谢谢。我女儿上周五开始上小学了。再见！", MONDAY),
    ]
    assert summarize_extractively(talk, max_tokens=70) == (
        "2023-05-08 Mon 小明: 我昨天（2023-05-07）去了北京，见到了老朋友张伟。\n"
        "小红: 我女儿上周五（2023-05-05）开始上小学了。"
    )


@pytest.mark.parametrize(
    "text",
    [
        "昨日、東京で友達に会いました。",
        "저는 어제 서울에서 친구를 만났습니다.",
        "Я купил машину в Москве.",
    ],
)
def test_other_scripts_are_kept(text):
    """Japanese, Korean and Cyrillic sentences count as content."""
    assert summarize_extractively([Utterance("", text)]) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n\t",
        "Hey! Thanks, you too!",
        "...",
        "😀😀",
        "```\ncode = 1\n```",
        "|---|---|",
        "谢谢",
    ],
)
def test_nothing_to_say_is_empty(text):
    """Without a sentence that has a content word there is no summary."""
    assert summarize_extractively([Utterance("user", text, MONDAY)]) == ""


def test_no_utterances_are_empty():
    """Nothing said, nothing summarized."""
    assert summarize_extractively([]) == ""


@pytest.mark.parametrize("max_tokens", [-1, 0, 1])
def test_no_room_is_empty(max_tokens):
    """A budget that holds no sentence and no lead gives nothing."""
    assert summarize_extractively(TALK, max_tokens=max_tokens) == ""


def test_a_sentence_beyond_the_budget_is_cut():
    """Where no sentence fits, the best one is cut to the budget and ends in an ellipsis."""
    words = " ".join(f"mountain{n}" for n in range(500))
    summary = summarize_extractively([Utterance("user", words, MONDAY)], max_tokens=40)
    assert summary.startswith("2023-05-08 Mon user: mountain0 mountain1 ")
    assert summary.endswith("…")
    assert 35 <= _estimate_tokens(summary) <= 40


def test_the_whole_is_counted_where_it_costs_more_than_its_parts():
    """With a counter for which joining costs extra, the least sentence goes until it fits."""
    said = [Utterance("", "Plums fall in Rome. Cherries bloom in the garden near the river.")]

    def count(text):
        return len(text) ** 2

    short, whole = "Plums fall in Rome.", said[0].text
    assert summarize_extractively(said, max_tokens=60**2, count_tokens=count) == short
    assert summarize_extractively(said, max_tokens=64**2, count_tokens=count) == whole


def test_what_was_said_before_is_not_repeated():
    """A sentence whose words are all picked already adds nothing."""
    said = [Utterance("user", "The server in Berlin crashed.")] * 5
    assert summarize_extractively(said) == "user: The server in Berlin crashed."


def test_code_and_marks_are_left_out_and_sentences_stay_whole():
    """Code blocks go, list marks go; abbreviations, decimals, versions and URLs part nothing."""
    text = (
        "# Plan\n\n- First Dr. Smith reviews v1.2.3 at https://example.com/a.b?c=d.e today, etc.\n"
        "1. Then Alice, e.g. now,\n   deploys it for $3.50.\n```python\nyesterday = 1\n```\n"
    )
    assert _split(text, MONDAY) == [
        "Plan",
        "First Dr. Smith reviews v1.2.3 at https://example.com/a.b?c=d.e today (2023-05-08), etc.",
        "1. Then Alice, e.g. now, deploys it for $3.50.",
    ]


def test_prose_goes_before_tool_output():
    """Of a sentence and a JSON record, both with room for one only, the sentence is kept."""
    said = [
        Utterance("tool", json.dumps({"id": 17, "rows": [[1, 2], [3, 4]], "ok": True}), MONDAY),
        Utterance("user", "My flight to Lisbon leaves on Tuesday at nine.", MONDAY),
    ]
    assert summarize_extractively(said, max_tokens=28) == (
        "2023-05-08 Mon user: My flight to Lisbon leaves on Tuesday at nine."
    )


def test_a_day_is_stated_anew_when_it_changes():
    """A day stands once while it lasts; undated sentences state none."""
    said = [
        Utterance("a", "Apples grow.", MONDAY),
        Utterance("a", "Pears ripen.", MONDAY + timedelta(hours=1)),
        Utterance("a", "Plums fall."),
        Utterance("a", "Cherries bloom.", MONDAY + timedelta(days=1)),
    ]
    assert summarize_extractively(said) == (
        "2023-05-08 Mon a: Apples grow. Pears ripen. Plums fall.\n2023-05-09 Tue a: Cherries bloom."
    )


def test_lone_surrogates_and_control_characters_can_be_written():
    """The summary is valid UTF-8 on clean lines, whatever was said."""
    said = [Utterance("us\x1b\ner\ud800", "The \ud83d\ude00 disk\x00 is\u2028full \udfff now.")]
    assert summarize_extractively(said) == "us er\ufffd: The 😀 disk is full \ufffd now."


HUGE = {
    "run": "a" * 300_000,
    "words": "word " * 60_000,
    "chinese": "昨天我去" * 50_000,
    "lines": "\n" * 300_000,
    "dots": "." * 300_000,
    "ticks": "`" * 300_000,
    "quotes": '."' * 150_000,
    "prose": "I met Ann in Paris yesterday. " * 8_000,
    "wraps": "\n a" * 100_000,
}


@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE)
def test_a_huge_text_takes_seconds(text):
    """A huge text of any shape is summarized in seconds and within the budget."""
    start = time.perf_counter()
    summary = summarize_extractively([Utterance("user", text, MONDAY)])
    assert time.perf_counter() - start < 20
    assert _estimate_tokens(summary) <= 140


def test_many_utterances_take_little_time():
    """2,000 utterances are summarized in a time that does not grow with their square."""
    said = [
        Utterance("user", f"I moved item{n} to shelf{n * 7}. It was number {n}.", MONDAY)
        for n in range(2_000)
    ]
    start = time.perf_counter()
    summarize_extractively(said, max_tokens=2_000)
    assert time.perf_counter() - start < 10


def test_the_summary_does_not_depend_on_the_process():
    """Hash seeds of the interpreter do not change what is picked."""
    script = (
        "from langchain_nanomem.extractive import *\n"
        "words = [f'alpha{n} beta{n % 7} gamma{n % 5} delta{n % 3}.' for n in range(60)]\n"
        "print(summarize_extractively([Utterance('u', ' '.join(words))]))"
    )
    shown = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(shown) == 1
    assert "alpha" in shown.pop()


PIECES = st.sampled_from(
    [
        "I went to Paris yesterday. ", "What? ", "Thanks! ", "昨天我去了北京。", "```\nx\n```",
        "\n", "- ", "2 apples, 3 pears", "“Dune” ", "e.g. this. ", "今日は。", "\ud800", "\x00",
        "x" * 300, ": ",
    ]
)  # fmt: skip
SPOKEN = st.one_of(st.text(st.characters()), st.lists(PIECES, max_size=12).map("".join))
UTTERANCES = st.lists(
    st.builds(
        Utterance,
        speaker=st.sampled_from(["user", "assistant", "", "A:\nB", "小明"]),
        text=SPOKEN,
        said_at=st.none() | st.datetimes(timezones=st.just(UTC)),
    ),
    max_size=8,
)
COUNTERS = st.sampled_from([None, len, lambda text: len(text.split()), lambda text: len(text) // 3])


def can_be_built(text, sentences):
    """True if some of `sentences`, in their order, with a space between or none, are `text`."""
    ends = {0}
    for sentence in sentences:
        starts = ends | {end + 1 for end in ends if text[end : end + 1] == " "}
        ends |= {start + len(sentence) for start in starts if text.startswith(sentence, start)}
    return len(text) in ends


@given(utterances=UTTERANCES, max_tokens=st.integers(-2, 200), count_tokens=COUNTERS)
@settings(max_examples=300)
def test_the_budget_holds_and_nothing_raises(utterances, max_tokens, count_tokens):
    """Whatever is said and however it is counted, the summary is within the budget."""
    summary = summarize_extractively(utterances, max_tokens=max_tokens, count_tokens=count_tokens)
    count = count_tokens or _estimate_tokens
    assert not summary or count(summary) <= max_tokens
    assert summary.encode().decode() == summary
    assert all(summary.splitlines())
    assert summary == summarize_extractively(
        utterances, max_tokens=max_tokens, count_tokens=count_tokens
    )


@given(utterances=UTTERANCES)
@settings(max_examples=300)
def test_sentences_are_a_subsequence_of_what_was_said(utterances):
    """Each line consists of whole sentences of the input, resolved, in their order."""
    anonymous = [Utterance("", utterance.text) for utterance in utterances]
    said = [sentence for utterance in anonymous for sentence in _split(utterance.text, None)]
    assert can_be_built(summarize_extractively(anonymous, max_tokens=10_000), said)
