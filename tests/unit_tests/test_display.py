"""What a notebook shows of sessions, memories and hits."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest

from langchain_nanomem import MemoryStore, SearchHit, Session

NOON = datetime(2026, 5, 8, 12, tzinfo=UTC)
HOSTILE = "<script>alert(1)</script>\"' onload=x \x1b[31m \u202egnp.exe \x00 \ud800 </td></table>"
OWN_TAGS = {"div", "b", "bdi", "span", "table", "tbody", "tr", "td"}


class Reader(HTMLParser):
    """Reads HTML as a browser does: its tags, whether they are closed in order, its text."""

    def __init__(self, shown: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.rows: list[list[str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(shown)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag == "td":
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if "td" in self.open:
            self.rows[-1][-1] += data


def session(*texts, key="cli:ada", **fields):
    made = Session(key, **fields)
    for n, text in enumerate(texts):
        made.add_message("assistant" if n % 2 else "user", text, timestamp=NOON)
    return made


def hit(text, **fields):
    given = {"kind": "said", "score": 1.0, "at": NOON, "session_id": "cli:ada", "position": 4}
    return SearchHit(text, **{**given, "speaker": "user", **fields})


def memory(path, facts="- likes tea", *entries):
    store = MemoryStore(path)
    if facts:
        store.write_long_term(facts)
    for n, entry in enumerate(entries):
        store.append_history(entry, at=NOON + timedelta(minutes=n))
    return store


def test_a_session_shows_which_messages_are_in_memory():
    """Each message has its place, its speaker, its text, and whether it is in memory."""
    read = Reader(session("I'm Ada.", "Hello!", "And now?", last_consolidated=2)._repr_html_())
    assert read.rows == [
        ["0", "user", "I'm Ada.", "in memory"],
        ["1", "assistant", "Hello!", "in memory"],
        ["2", "user", "And now?", ""],
    ]
    assert "Session cli:ada 3 messages · 2 in memory · 2026-05-08 12:00 UTC" in read.text


def test_a_session_without_times_shows_when_it_changed():
    """An empty session, and one whose last message has no time, show when they last changed."""
    empty, untold = Session("a", updated_at=NOON), Session("b", [{"role": "user"}], updated_at=NOON)
    assert (
        "Session a 0 messages · 0 in memory · 2026-05-08 12:00" in Reader(empty._repr_html_()).text
    )
    assert "1 message · 0 in memory · 2026-05-08 12:00" in Reader(untold._repr_html_()).text


def test_a_long_session_shows_its_newest_messages():
    """Of 50 messages the newest twenty are shown, and the number of the others."""
    read = Reader(session(*(f"number {n}" for n in range(50)), scope=("user", "42"))._repr_html_())
    assert [row[0] for row in read.rows] == [str(n) for n in range(30, 50)]
    assert "user 42 · 30 earlier messages" in read.text


def test_a_message_shows_blocks_and_tool_calls():
    """Text blocks are shown, other blocks by their kind, tool calls by name and arguments."""
    one = session([{"type": "text", "text": "Look:"}, {"type": "image_url"}, "here"])
    function = {"name": "weather", "arguments": '{"city": "Lyon"}'}
    one.add_message("assistant", None, tool_calls=[{"function": function}, "odd"])
    one.messages += [{"role": 7, "content": {"a": 1}}, {"name": "ben", "content": "x"}]
    assert [row[1:3] for row in Reader(one._repr_html_()).rows] == [
        ["user", "Look: [image_url] here"],
        ["assistant", 'weather({"city": "Lyon"}) odd'],
        ["7", "{'a': 1}"],
        ["ben", "x"],
    ]


def test_a_memory_shows_facts_and_log(tmp_path):
    """The facts, the newest five entries of the log with their time, how many there are."""
    store = memory(tmp_path, "# Ada\n- likes tea", *(f"entry {n}" for n in range(7)))
    read = Reader(store._repr_html_())
    assert "Memory of the workspace 0 earlier versions · 7 entries# Ada\n- likes tea" in read.text
    assert read.rows == [[f"[2026-05-08 12:0{n}]", f"entry {n}"] for n in range(2, 7)]


def test_an_empty_memory_says_so(tmp_path):
    """A memory of a user that is not there yet says so, and nothing is made."""
    read = Reader(MemoryStore(tmp_path / "none", ("user", "42"))._repr_html_())
    assert "Memory user 42" in read.text
    assert "no facts yet" in read.text
    assert not (tmp_path / "none").exists()


def test_a_damaged_memory_says_so(tmp_path):
    """A memory that is no UTF-8 is shown as unreadable; a notebook's cell doesn't fail."""
    store = memory(tmp_path)
    store.memory_path.write_bytes(b"\xff\xfe")
    read = Reader(store._repr_html_())
    assert "can't be read" in read.text
    assert "MEMORY.md" in read.text


def test_a_hit_shows_where_it_stands():
    """A hit names its kind, session, place, time and score, between the messages around it."""
    found = hit("In Kiel.", before=(hit("Where?"),), after=(hit("Nice!", speaker="ben"),))
    read = Reader(found._repr_html_())
    assert "Said cli:ada message 4 2026-05-08 12:00 UTC · score 1.00" in read.text
    assert read.rows == [["user", "Where?"], ["user", "In Kiel."], ["ben", "Nice!"]]


def test_an_entry_that_is_found_shows_what_it_tells_of():
    """A hit of the log names the range that it tells of, and no time where it has none."""
    entry = hit("Sailed.", kind="logged", source="cli:ada 0-8", position=None, at=None, speaker="")
    assert "Logged cli:ada 0-8 score 1.00" in Reader(entry._repr_html_()).text


@pytest.fixture
def hostile_things(tmp_path):
    def make(text):
        log = text.encode(errors="replace").decode().replace("\x00", "")
        call = {"function": {"name": text, "arguments": text}}
        one = session(text, key=text, scope=(text,))
        one.add_message(text, [text, {"text": text}, {"type": text}], name=text, tool_calls=[call])
        found = hit(text, session_id=text, speaker=text, before=(hit(text),), source=text)
        return [one, memory(tmp_path, log, log), found]

    return make


def test_hostile_text_is_shown_harmlessly(hostile_things):
    """Tags, quotes, escapes, directions, half characters make no tag, attribute or control."""
    for thing in hostile_things(HOSTILE):
        shown = thing._repr_html_()
        read = Reader(shown)
        assert read.tags <= OWN_TAGS
        assert read.attributes <= {"style", "dir"}
        assert read.open == []
        assert "<script>alert(1)</script>" in read.text
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", shown)
        shown.encode()


def test_a_line_of_a_megabyte_is_shortened(hostile_things):
    """A megabyte is cut, its length is told, and what is cut at an entity is none."""
    for thing in hostile_things("&" * 1_000_000):
        shown = thing._repr_html_()
        assert len(shown) < 40_000
        assert "1,000,000 characters" in shown
        assert Reader(shown).open == []


def test_a_page_may_be_dark_or_light(hostile_things):
    """No colour is set but such as let the page's own through."""
    for thing in hostile_things("x"):
        shown = thing._repr_html_()
        assert set(re.findall(r"background:([^;\"]*)", shown)) <= {"transparent"}
        assert not re.search(r"[^-]color:(?!inherit)|#[0-9a-f]{3}", shown)
        assert set(re.findall(r"rgba?\([^)]*\)", shown)) == {"rgba(128,128,128,.35)"}


def test_nothing_of_it_is_loaded_before_it_is_shown():
    """A program that shows nothing doesn't load it."""
    code = "import sys, langchain_nanomem; assert 'langchain_nanomem.display' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
