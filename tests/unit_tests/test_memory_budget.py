"""MEMORY.md stays small, says nothing twice, and loses nothing silently."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import COUNTER, ScriptedChatModel, save_memory, session_of, talk, texts

from langchain_nanomem.memory_budget import crowd_out, fitted, told
from langchain_nanomem.memory_repeats import lines_left, without_repeats

pytestmark = pytest.mark.back_ends("files", "postgres")

MEMORY = "# User\n- Ada\n\n# Plans\n- Berlin in May\n- a piano\n"
LINES = st.lists(
    st.sampled_from(
        [
            *("# A", "## A", "# B", "### C", "- tea", "* Tea.", "1. tea", "", "---", "x = 1"),
            *("```", "~~~~", "  ```", "- ~~~", "  - tea", "    - rum", "- Ada", "#"),
        ]
    )
)


def facts(text):
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def letters(text):
    return sorted(filter(str.isalnum, text))


# --- no line twice ---


@pytest.mark.parametrize(
    ("text", "once"),
    [
        (MEMORY, MEMORY),
        ("- tea\n- Tea.\n* tea\n- coffee", "- tea\n- coffee"),
        ("- [x] paid\n* [X]  Paid\n", "- [x] paid\n"),
        ("# A\n- 1\n# B\n- 2\n# A\n- 3", "# A\n- 1\n- 3\n# B\n- 2"),
        ("# A\n- x\n## A\n- y", "# A\n- x\n## A\n- y"),
        ("# A\n## W\n- 1\n# B\n# A\n## W\n- 2\n- 1", "# A\n## W\n- 1\n- 2\n# B"),
        ("# A\n## W\n- 1\n# A\n### X\n- 2\n", "# A\n### X\n- 2\n## W\n- 1\n"),
        ("**Ada**\n- tea\n\n**Bob**\n**Ada**\n- tea\n- rum", "**Ada**\n- tea\n\n- rum\n**Bob**"),
        ("# A\n- y\n# B\n# A\n  - x\n    - z", "# A\n- y\n- x\n  - z\n# B"),
        ("- tea\n```\n# A\n- tea", "- tea\n```\n# A\n- tea\n```"),
        ("---\n- x\n---\n", "---\n- x\n---\n"),
        ("```\na = 1\na = 1\n```\n- a = 1", "```\na = 1\na = 1\n```\n- a = 1"),
        ("", ""),
        ("喜欢茶\n喜欢茶。\n", "喜欢茶\n"),
    ],
)
def test_what_is_said_twice_stays_once(text, once):
    """The first one stays; bullets, case, spacing and a full stop make no difference."""
    assert without_repeats(text) == once


@pytest.mark.parametrize(
    "text",
    [
        "# Ada\n## Work\n- likes tea\n# Bob\n## Work\n- likes tea\n",
        "# Ada\n- likes tea\n# Bob\n- likes tea",
        "- Ada\n  - likes tea\n- Bob\n  - likes tea\n- Ada\n  - likes rum",
        "**Ada**\n\n- likes tea\n\n**Bob**\n\n- likes tea",
        "- 3. Mai Zahnarzt\n- 4. Mai Zahnarzt",
        "- [ ] pay the rent\n- [x] pay the rent",
        "# Ada\n## 🙂\n- tea\n# Bob\n## 🙂\n- tea",
        "# A\n### X\n- 1\n## Y\n- 1\n",
        "- how to:\n  ```sh\n  # A\n  - x\n  ```\n\n- ~~~\n  x\n  ~~~\n- x\n",
    ],
)
def test_what_is_said_of_another_is_no_repeat(text):
    """The same words under other headings, another line, number or check mark are a fact apart."""
    assert without_repeats(text) == text


@given(LINES)
def test_no_fact_is_lost_or_twice(lines):
    """Whatever the lines are: each that says something is there, once; and again is the same."""
    text = "\n".join(lines)
    once = without_repeats(text)
    assert lines_left(text, once) == []
    assert without_repeats(once) == once


def said_under_headings(text):
    """What a memory says, with the headings it stands under; code as it is."""
    path, fence, said = [], "", set()
    for line in text.splitlines():
        words, mark = line.strip("#-* "), line.strip()
        if fence:
            fence = "" if mark == fence else fence
            said |= {(*path, (9, mark))} if fence else set()
        elif mark in {"```", "~~~"}:
            fence = mark
        elif line.startswith("#"):
            depth = len(line) - len(line.lstrip("#"))
            path = [*(one for one in path if one[0] < depth), (depth, words)]
            said.add(tuple(path))
        elif words:
            said.add((*path, (9, words)))
    return {tuple(name for _, name in fact) for fact in said}


def is_logged(fact, log):
    """Whether the log has each word of a fact and its headings, in one line or its block."""
    return any(all(name in block for name in fact) for block in re.split(r"\n(?=- )", log))


NESTED = st.lists(
    st.one_of(
        st.builds("{} {}".format, st.sampled_from(["#", "##", "###"]), st.sampled_from("ABC")),
        st.builds("- {}".format, st.sampled_from(["tea", "rum", "gin", "ale"])),
        st.just("```\n# shell\n- tea\n```"),
        st.just(""),
    ),
    max_size=14,
)


@settings(deadline=None)
@given(NESTED, NESTED, st.integers(1, 40))
def test_each_fact_is_in_the_memory_or_in_the_log(update, rewrite, most):
    """Whatever is repeated, rewritten or crowded out, under nested and under empty headings."""
    raw = "\n".join(update)
    asking = fitted(ScriptedChatModel(replies=[]), raw, most, COUNTER.count_text)
    try:
        next(asking)
        asking.send(save_memory("none", "\n".join(rewrite)))
    except StopIteration as done:
        kept = done.value
    assert COUNTER.count_text(kept.text) <= most
    log, there = told(kept.left), said_under_headings(kept.text)
    held = {fact[:end] for fact in there for end in range(1, len(fact) + 1)}
    for fact in said_under_headings(raw) - held:
        assert is_logged(fact, log), (fact, kept)


# --- within the budget ---


def test_a_line_leaves_before_what_it_is_said_of():
    """Nested items and lists go first, a block of code goes whole, and the log tells of whom."""
    text = "- old\n- Ada\n  - likes tea\n  ```\n  # run\n  ```\n- Bob\n- Eve"
    kept = crowd_out(text, COUNTER.count_text("- Bob\n- Eve"), COUNTER.count_text)
    assert kept.text == "- Bob\n- Eve"
    assert kept.left == ["- old", "- likes tea", "```\n  # run\n  ```", "- Ada"]
    left = ["old", "Ada", "Ada: likes tea", "Ada:\n  ```\n  # run\n  ```"]
    assert lines_left(text, kept.text) == left


def test_the_largest_section_gives_its_oldest_lines():
    """What little is known of the user stays; of many notes the latest ones do."""
    notes = [f"- note number {n} of the long list" for n in range(50)]
    kept = crowd_out("# User\n- Ada\n# Notes\n" + "\n".join(notes), 100, COUNTER.count_text)
    assert COUNTER.count_text(kept.text) <= 100
    assert kept.text.startswith("# User\n- Ada\n# Notes\n")
    assert kept.text.endswith(notes[-1])
    assert [*kept.left, *facts(kept.text)[1:]] == notes


def test_one_endless_line_is_cut():
    """Its beginning stays, behind a whole word, and the rest is told."""
    text = "word " * 400
    kept = crowd_out(text, 50, COUNTER.count_text)
    assert 0 < COUNTER.count_text(kept.text) <= 50
    assert f"{kept.text} {kept.left[-1]}" == text.strip()


@given(st.text(alphabet="ab #\n-é漢", max_size=300), st.integers(1, 60))
def test_it_always_fits_and_nothing_gets_lost(text, most):
    """Whatever the text: it is within its tokens, and each letter is in it or told of."""
    kept = crowd_out(text, most, COUNTER.count_text)
    assert COUNTER.count_text(kept.text) <= most
    assert letters(kept.text + "".join(kept.left)) == letters(text)


# --- in consolidations ---


def numbered(text):
    return set(re.findall(r"fact-\d+-here", text))


def test_fifty_consolidations_of_a_model_that_repeats_itself(make, run):
    """Its memory stays in its budget, has no line twice, and each version can be had again."""
    known = []

    def reply(messages):
        memory = re.search(
            r"<current_memory>\n(.*)\n</current_memory>", messages[1].content, re.DOTALL
        )
        known.extend(re.findall(r"fact-\d+-here", messages[1].content))
        lines = [line for line in memory[1].splitlines() if line != "(empty)"]
        new = [f"- {fact} is worth knowing" for fact in known[-2:]]
        return save_memory("entry", "\n".join([*lines, *lines, *new, *new]))

    consolidator = make(reply, window=4_000, max_memory_tokens=200)
    session, store = session_of(consolidator), consolidator.memory
    seen = []
    for n in range(50):
        session.add_message("user", f"fact-{n}-here")
        talk(session, "AUA")
        assert run(consolidator, session, how="compact")
        memory = store.read_long_term()
        assert COUNTER.count_text(memory) <= 200
        lines = [line for line in memory.splitlines() if line.strip()]
        assert len(set(lines)) == len(lines)
        seen.append(memory)
    everything = seen[-1] + "\n".join(texts(consolidator))
    assert numbered(everything) == {f"fact-{n}-here" for n in range(50)}
    versions = {version.read_text(): version.version for version in store.versions()}
    assert set(versions) >= set(seen[:-1])
    for memory in seen[:-1]:
        store.restore_long_term(versions[memory])
        assert store.read_long_term() == memory


def test_a_memory_that_is_too_long_is_asked_for_again(make, run):
    """Once, with its tokens and its goal; the shorter one is kept, what it left out is logged."""
    long = [f"- fact-{n}-here is worth to be known" for n in range(60)]
    consolidator = make(
        save_memory("entry", "\n".join(long)),
        save_memory("none", "\n".join(long[:5])),
        max_memory_tokens=200,
    )
    (done,) = run(consolidator, session_of(consolidator, "UAU"))
    assert consolidator.memory.read_long_term() == "\n".join(long[:5])
    assert consolidator.model.calls == done.spent.calls == 2
    asked = consolidator.model.prompts[1][1].content
    assert (
        f"at most 160 tokens. The current memory has {COUNTER.count_text(chr(10).join(long))}"
        in asked
    )
    assert long[0] in asked
    (entry,) = texts(consolidator)
    assert entry.startswith("entry\nNo longer in MEMORY.md")
    assert numbered(entry) == {f"fact-{n}-here" for n in range(5, 60)}
    hits = consolidator.memory.search_history("fact-42-here")
    assert "fact-42-here" in hits[0].text


@pytest.mark.parametrize("second", [RuntimeError("503"), "no tool call", save_memory("e", "")])
def test_a_rewrite_that_fails_keeps_what_fits(make, run, second):
    """The consolidation is good all the same; the oldest lines leave, into the log."""
    long = [f"- fact-{n}-here is worth to be known" for n in range(60)]
    consolidator = make(save_memory("entry", "\n".join(long)), second, max_memory_tokens=200)
    assert run(consolidator, session_of(consolidator, "UAU"))
    memory = consolidator.memory.read_long_term()
    assert COUNTER.count_text(memory) <= 200
    assert memory.endswith(long[-1])
    assert numbered(memory + texts(consolidator)[0]) == numbered("\n".join(long))


def test_what_a_person_wrote_is_not_cut(make, run):
    """A memory over the budget that the model leaves as it is stays as it is."""
    consolidator = make(save_memory("entry", ""), window=4_000, max_memory_tokens=200)
    written = "\n".join(f"- by hand {n}, and again: by hand" for n in range(100))
    consolidator.memory.write_long_term(written)
    assert run(consolidator, session_of(consolidator, "UAU"), how="compact")
    assert consolidator.memory.read_long_term() == written
    assert consolidator.model.calls == 1


def test_the_question_can_be_replaced(make, run):
    """Instructions of one's own for the rewrite; the memory stands fenced behind them."""
    long = "\n".join(f"- fact-{n}-here" for n in range(100))
    consolidator = make(
        save_memory("entry", long),
        save_memory("entry", "- short"),
        max_memory_tokens=200,
        rewrite_prompt="Fasse dich kurz.",
    )
    assert run(consolidator, session_of(consolidator, "UAU"))
    system, question = consolidator.model.prompts[1]
    assert system.content == "Fasse dich kurz."
    assert question.content.startswith("<current_memory>\n- fact-0-here")
