"""The search over what was said and logged."""

# ruff: noqa: RUF001 - texts of other scripts

from __future__ import annotations

import gc
import logging
import os
import random
import sqlite3
import subprocess
import sys
import threading
import weakref
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage
from langgraph.graph import START, MessagesState, StateGraph

from langchain_nanomem import DatabaseError, MemoryStore, Nanomem, SearchHit, search_file
from langchain_nanomem.search_places import search_path, sessions_path

pytestmark = pytest.mark.back_ends("files", "postgres")
ON_FILES = pytest.mark.back_ends("files")
NOON = datetime(2026, 5, 8, 12, tzinfo=UTC)


@pytest.fixture
def mem(open_memory):
    return open_memory()


def say(mem, key, *texts, at=NOON, name=None):
    kinds = (HumanMessage, AIMessage)
    mem.history(key).add_messages(
        [
            kinds[n % 2](
                text,
                name=name,
                additional_kwargs={"timestamp": (at + timedelta(minutes=n)).isoformat()},
            )
            for n, text in enumerate(texts)
        ]
    )


def found(store, query, **options):
    return [hit.text for hit in store.search_history(query, **options)]


def files_with(workspace, text):
    """The files that have a text in their bytes."""
    return [
        path
        for path in workspace.rglob("*")
        if path.is_file() and text.encode() in path.read_bytes()
    ]


# What matches


def test_a_hit_tells_all_that_is_known(mem):
    """Text, session, place, speaker, time; of an entry what it tells of."""
    say(mem, "cli:ann", "I moved to Berlin.", "When?", name="Ann")
    mem.memory.append_history("Ann moved.", at=NOON, source="cli:ann 0-2")
    said, asked, logged = sorted(
        mem.memory.search_history("moved"), key=lambda hit: (hit.kind != "said", hit.position)
    )
    assert said == SearchHit(
        "I moved to Berlin.", "said", said.score, NOON, "cli:ann", 0, "Ann", None
    )
    assert (asked.text, asked.position) == ("When?", 1)
    assert logged == SearchHit(
        "Ann moved.", "logged", logged.score, NOON, "cli:ann", None, "", "cli:ann 0-2"
    )
    assert said.score > asked.score


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("She went skiing", "go ski"),
        ("two children", "child"),
        ("Café in Köln", "koln cafe"),
        ("the PostgresSaver leaks", "saver"),
        ("see snake_case_name", "case"),
        ("written in C++", "C++"),
        ("on 2026-05-08 at noon", "2026-05"),
        ("ＦＵＬＬ width", "full"),
        ("Caroline's dog", "caroline"),
        (
            "привет мир",
            "Привет",
        ),
        ("misspelt extraordinarily", "ordinar"),
    ],
)
def test_words_match_by_their_stems(mem, text, query):
    """Irregular forms, accents, parts of names, signs, widths; a part of a word if nothing else."""
    say(mem, "s", "nothing of that", text)
    assert found(mem.memory, query)[0] == text


def test_parts_of_words_are_looked_for_in_the_words_there_are_now(mem):
    """Those of what was said since the last search too; those of what was deleted not."""
    say(mem, "s", "extraordinarily odd")
    assert found(mem.memory, "ordinar") == ["extraordinarily odd"]
    say(mem, "t", "subordinary things", at=NOON + timedelta(days=1))
    assert set(found(mem.memory, "ordinar")) == {"extraordinarily odd", "subordinary things"}
    mem.sessions.delete("s")
    assert found(mem.memory, "ordinar") == ["subordinary things"]


def test_an_answer_is_found_by_its_question(mem):
    """What stands before a message tells what it is about; it comes before what does not match."""
    say(mem, "s", "What is the name of your dog?", "Rex, since he is a king.", "Nice.")
    say(mem, "t", "The weather is fine today.", "Indeed.")
    assert found(mem.memory, "name of the dog")[:2] == [
        "Rex, since he is a king.",
        "What is the name of your dog?",
    ]


def test_the_log_leads_to_what_it_tells_of(mem):
    """Of two equal messages the one comes first whose entry in the log has the other words."""
    for key in ("a", "b"):
        say(mem, key, "I booked it.", "Great.")
    mem.memory.append_history("The flight to Oslo was booked.", source="a 0-2")
    hits = mem.memory.search_history("booked Oslo flight", kinds=["said"])
    assert [hit.session_id for hit in hits if "booked" in hit.text] == ["a", "b"]


def test_what_is_quoted_comes_first(mem):
    """Four words or more as they were said, also where others match better by rare words."""
    say(mem, "a", "Well, that is all so far, I think.", "Yes.")
    say(mem, "b", "far all think think think", "far think all far think all think")
    assert found(mem.memory, "that is all so far i think")[0].startswith("Well")
    assert not found(mem.memory, "think all far")[0].startswith("Well")


def test_an_episode_ends_with_a_pause(mem):
    """A neighbour of another day tells nothing of a message."""
    say(mem, "s", "Where is the needle?")
    say(mem, "s", "No idea.", at=NOON + timedelta(days=1))
    assert found(mem.memory, "needle") == ["Where is the needle?"]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("when did she paint", "I will paint next year."),
        ("how many paintings did she paint", "I will paint three boats."),
        ("what did she paint", "I will paint my boats."),
    ],
)
def test_an_english_question_says_what_it_asks_for(mem, query, first):
    """When: words of time; how many: numbers; else the newest of equals."""
    for key, text in enumerate(
        ["I will paint next year.", "I will paint three boats.", "I will paint my boats."]
    ):
        say(mem, str(key), text, at=NOON + timedelta(hours=key))
    assert found(mem.memory, query)[0] == first


def test_a_named_month_and_a_named_speaker_count(mem):
    """Of equals the one comes first that was said then, or by that person."""
    say(mem, "a", "We sailed.", name="Ann", at=NOON)
    say(mem, "b", "We sailed.", name="Bob", at=NOON + timedelta(days=40))
    first = mem.memory.search_history("who sailed in May")[0]
    assert first.session_id == "a"
    assert mem.memory.search_history("did Bob go sailing")[0].session_id == "b"
    assert mem.memory.search_history("did Ann go sailing")[0].session_id == "a"


CHINESE = [
    "我住在柏林，养了一只猫。",
    "它叫什么名字？",
    "它叫豆豆，今年三岁。",
    "我下周去巴黎出差。",
]
JAPANESE = [
    "昨日、京都の寺を訪れました。",
    "何を食べましたか？",
    "湯豆腐と抹茶アイスです。",
    "来月は大阪に引っ越します。",
]


@pytest.mark.parametrize(
    ("dialogue", "term", "place"),
    [
        (CHINESE, "柏林", 0),
        (CHINESE, "豆豆", 2),
        (CHINESE, "巴黎", 3),
        (CHINESE, "猫", 0),
        (JAPANESE, "京都", 0),
        (JAPANESE, "抹茶", 2),
        (JAPANESE, "アイス", 2),
        (JAPANESE, "大阪", 3),
    ],
)
def test_text_without_spaces_is_found_by_terms_of_two_characters(mem, dialogue, term, place):
    """A Chinese and a Japanese dialogue: exact terms, of one character too, come first."""
    say(mem, "s", *dialogue)
    mem.memory.append_history(dialogue[place])
    assert found(mem.memory, term, kinds=["said"])[0] == dialogue[place]
    assert found(mem.memory, term, kinds=["logged"]) == [dialogue[place]]


# What is asked for


def test_times_sessions_tags_and_kinds_are_kept(mem):
    """Since is inclusive, until is not; what has no time is left out of a search by time."""
    say(mem, "a", "red #House/old one", at=NOON)
    say(mem, "b", "red two", at=NOON + timedelta(days=2))
    mem.memory.append_history("red three", at=NOON + timedelta(days=4), source="b 0-1")
    store = mem.memory
    assert set(found(store, "red")) == {"red #House/old one", "red two", "red three"}
    assert found(store, "red", until=NOON + timedelta(days=2)) == ["red #House/old one"]
    assert set(found(store, "red", since=NOON + timedelta(days=2))) == {"red two", "red three"}
    assert set(found(store, "red", session_id="b")) == {"red two", "red three"}
    assert found(store, "red", session_id="nobody") == []
    assert found(store, "red", tags=["#house/OLD"]) == ["red #House/old one"]
    assert found(store, "red", tags=["house/old", "x"]) == []
    assert found(store, "red", kinds=["logged"]) == ["red three"]
    assert found(store, "red", kinds=[]) == []
    with pytest.raises(ValueError, match="time zone"):
        store.search_history("red", since=datetime(2026, 5, 8))  # noqa: DTZ001 - that is the point
    with pytest.raises(ValueError, match="neighbours"):
        store.search_history("red", neighbours=-1)


def test_neighbours_come_with_a_hit(mem):
    """As many messages of the session as are asked for, before and behind it, in order."""
    say(mem, "s", "one", "two", "the needle", "four", "five")
    hit = mem.memory.search_history("needle", neighbours=2, limit=1)[0]
    assert [one.text for one in hit.before] == ["one", "two"]
    assert [one.text for one in hit.after] == ["four", "five"]
    first = mem.memory.search_history("one", neighbours=3, limit=1)[0]
    assert (first.before, len(first.after)) == ((), 3)


@pytest.mark.parametrize(
    "query",
    ['"', '""', "a OR b", "NEAR(", "terms:*", "' --", "\0", "\ud800", "x" * 10_000, "*", "#", "-"],
)
def test_no_query_is_an_error(mem, query):
    """Operators, quotes, lone surrogates, 10 kB: nothing is an error of SQL or of FTS."""
    say(mem, "s", "a b c")
    assert isinstance(mem.memory.search_history(query), list)
    assert isinstance(mem.tools()[0].invoke({"query": query}), str)


def test_any_text_can_be_said_and_asked_for(mem):
    """Nothing raises; a message that has any letters is found by its own text."""

    @settings(max_examples=50, deadline=None)
    @given(st.text(), st.text())
    def check(text, query):
        mem.sessions.delete("s")
        mem.history("s").add_messages([HumanMessage(text)])
        assert isinstance(mem.memory.search_history(query), list)
        if any(character.isalnum() for character in text) and '"' not in text:
            assert [hit.position for hit in mem.memory.search_history(text)] == [0]

    check()


# What is in it


def test_a_turn_is_found_within_the_same_call(mem, open_memory):
    """What was appended by anyone, saved or logged, is found at once, each time."""
    for number in range(5):
        say(mem, "s", f"number{number}")
        assert found(mem.memory, f"number{number}")[0] == f"number{number}"
        mem.memory.append_history(f"entry{number}")
        assert found(mem.memory, f"entry{number}") == [f"entry{number}"]
    other = open_memory().sessions
    session = other.get_or_create("other")
    session.add_message("user", "from elsewhere")
    other.save(session)
    assert found(mem.memory, "elsewhere") == ["from elsewhere"]


@pytest.mark.back_ends("files")
def test_what_a_person_edits_in_the_log_is_found_as_it_is_now(mem):
    """An edited entry is found by its new words, and not by its old ones."""
    for text in ("alpha", "beta"):
        mem.memory.append_history(text)
    assert found(mem.memory, "beta") == ["beta"]
    path = mem.memory.history_path
    path.write_text(path.read_text().replace("beta", "gamma"))
    assert found(mem.memory, "beta") == []
    assert found(mem.memory, "gamma") == ["gamma"]
    path.unlink()
    assert found(mem.memory, "alpha") == []


def test_what_leaves_a_graphs_state_by_hand_is_not_found(mem):
    """A message that was removed from the conversation is gone from the search too."""
    graph = StateGraph(MessagesState)
    graph.add_node("n", lambda _: {"messages": [AIMessage("the answer", id="a")]})
    graph.add_edge(START, "n")
    compiled = graph.compile(checkpointer=mem.checkpointer)
    config = {"configurable": {"thread_id": "t"}}
    compiled.invoke({"messages": [SystemMessage("be kind"), HumanMessage("question")]}, config)
    assert found(mem.memory, "answer")[0] == "the answer"
    assert found(mem.memory, "kind") == []  # the program's words, not said
    compiled.update_state(config, {"messages": [RemoveMessage("a")]})
    assert "the answer" not in found(mem.memory, "answer")


@ON_FILES
@pytest.mark.parametrize("how", ["delete", "clear", "thread", "by hand"])
def test_what_is_deleted_is_in_no_byte_of_the_index(mem, how):
    """Deleted through any of our ways it is gone at once, by hand with the next search."""
    say(mem, "s", "my zanzibar secret")
    say(mem, "t", "something else")
    assert found(mem.memory, "zanzibar")
    workspace = mem.sessions.journal.workspace
    assert files_with(workspace / ".search", "zanzibar")
    if how == "delete":
        mem.sessions.delete("s")
    elif how == "clear":
        mem.history("s").clear()
    elif how == "thread":
        mem.checkpointer.delete_thread("s")
    else:
        mem.sessions.journal.path("s").unlink()
        assert found(mem.memory, "zanzibar") == []
    assert files_with(workspace / ".search", "zanzibar") == []
    assert found(mem.memory, "something") == ["something else"]


@ON_FILES
def test_a_deleted_session_leaves_an_index_that_is_in_use(mem):
    """Where another connection reads it, the whole index goes, and is built anew."""
    say(mem, "s", "my zanzibar secret")
    say(mem, "t", "something else")
    assert found(mem.memory, "zanzibar")
    path = search_path(mem.sessions.journal.workspace, ())
    reader = sqlite3.connect(path)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM passages").fetchone()
    Nanomem(mem.sessions.journal.workspace).sessions.delete("s")
    assert files_with(path.parent, "zanzibar") == []
    reader.close()
    assert found(mem.memory, "zanzibar") == []
    assert found(mem.memory, "something") == ["something else"]


@ON_FILES
@pytest.mark.parametrize("damage", ["bytes", "cut", "text", "tables", "gone", "version", "empty"])
def test_a_damaged_index_is_built_anew(mem, damage, caplog):
    """With one warning at most; what is searched for is found all the same."""
    say(mem, "s", *(f"word{n} and some more of it" for n in range(50)))
    assert found(mem.memory, "word7")
    workspace = mem.sessions.journal.workspace
    path = search_path(workspace, ())
    Nanomem(workspace).memory._index.close()
    mem.memory._index.close()
    spoil(path, damage)
    with caplog.at_level(logging.WARNING):
        assert found(Nanomem(workspace).memory, "word7")[0] == "word7 and some more of it"
    assert len(caplog.records) == (0 if damage in {"gone", "version", "empty"} else 1)
    assert found(mem.memory, "word8")[0] == "word8 and some more of it"


def spoil(path, damage):
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:5_000])
    elif damage == "text":
        path.write_text("this is no database at all" * 200)
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "bytes":
        content = bytearray(path.read_bytes())
        content[100:] = random.Random(1).randbytes(len(content) - 100)
        path.write_bytes(content)
    else:
        connection = sqlite3.connect(path)
        connection.execute("DROP TABLE terms" if damage == "tables" else "PRAGMA user_version=1")
        connection.commit()
        connection.close()


@ON_FILES
def test_the_list_of_sessions_may_be_damaged_too(mem):
    """It is made anew as well; a deletion then takes all indexes with it."""
    say(mem, "s", "zanzibar")
    say(mem, "t", "mombasa")
    assert found(mem.memory, "zanzibar")
    workspace = mem.sessions.journal.workspace
    mem.memory._index.close()
    sessions_path(workspace).write_bytes(b"rubbish" * 1_000)
    mem.sessions.delete("s")
    assert files_with(workspace / ".search", "zanzibar") == []
    assert found(Nanomem(workspace).memory, "mombasa") == ["mombasa"]


@ON_FILES
def test_an_index_that_can_not_be_written_is_kept_in_memory(mem, caplog):
    """A directory where the file should be: one warning, and the search works."""
    say(mem, "s", "zanzibar")
    workspace = mem.sessions.journal.workspace
    for path in (search_path(workspace, ()), sessions_path(workspace)):
        path.mkdir(parents=True)
    with caplog.at_level(logging.WARNING):
        assert found(mem.memory, "zanzibar") == ["zanzibar"]
        say(mem, "s", "mombasa")
        assert found(mem.memory, "mombasa")[0] == "mombasa"
    assert all("kept in memory" in record.message for record in caplog.records)
    assert len(caplog.records) == 2  # one for each file


@ON_FILES
def test_an_index_that_another_keeps_for_too_long_is_told(mem, monkeypatch):
    """It is neither damaged nor kept in memory then: the search says so, and works later."""
    monkeypatch.setattr(search_file, "_WAIT_SECONDS", 0.1)
    say(mem, "s", "zanzibar")
    assert found(mem.memory, "zanzibar") == ["zanzibar"]
    mem.close()
    say(mem, "s", "mombasa")
    with closing(sqlite3.connect(search_path(mem.sessions.journal.workspace, ()))) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError, match="someone else"):
            found(mem.memory, "mombasa")
    assert found(mem.memory, "mombasa")[0] == "mombasa"


def test_processes_and_threads_share_an_index(tmp_path):
    """Four threads and two processes append and search at once; all is found by all in the end."""
    script = (
        "import sys\n"
        "from langchain_core.messages import HumanMessage\n"
        "from langchain_nanomem import Nanomem\n"
        "mem = Nanomem(sys.argv[1])\n"
        "for n in range(10):\n"
        "    mem.history(sys.argv[2]).add_messages([HumanMessage(f'word{sys.argv[2]}x{n}')])\n"
        "    assert mem.memory.search_history(f'word{sys.argv[2]}x{n}')\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), f"p{n}"]) for n in range(2)
    ]
    mem, errors = Nanomem(tmp_path), []

    def work(number):
        try:
            for n in range(10):
                say(mem, f"t{number}", f"wordt{number}x{n}")
                assert mem.memory.search_history(f"wordt{number}x{n}")
        except BaseException as error:  # noqa: BLE001 - told by the test below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait() for process in processes] == [0, 0]
    assert errors == []
    for store in (mem.memory, Nanomem(tmp_path).memory):
        for key in ("p0", "p1", "t0", "t1", "t2", "t3"):
            for n in range(10):
                assert found(store, f"word{key}x{n}")[0] == f"word{key}x{n}"


# Whose it is


def test_nothing_of_another_user_is_found_or_counted(open_memory, elsewhere):
    """Two users, 200 random facts each: no hit, no score of one depends on the other's."""
    chance = random.Random(3)
    words = [f"w{n}" for n in range(80)]
    facts = {
        user: [" ".join([user, *chance.choices(words, k=8)]) for _ in range(200)]
        for user in ("ann", "bob")
    }
    alone = open_memory(elsewhere(), scope="user")
    both = open_memory(scope="user")
    for mem, users in ((alone, ["ann"]), (both, ["bob", "ann"])):
        for user in users:
            for number in range(4):
                key = f"{user}-{number}"
                mem.sessions.bind_scope(key, ("user", user))
                say(mem, key, *facts[user][number * 50 : number * 50 + 50])
            store = mem.memory_for(("user", user))
            store.append_history(f"{user} knows {' '.join(words[:9])}", source=f"{user}-0 0-50")
    for _ in range(60):
        query = " ".join(chance.choices([*words, "bob", "ann"], k=3))
        hits = both.memory_for(("user", "ann")).search_history(query, limit=500, neighbours=1)
        assert hits == alone.memory_for(("user", "ann")).search_history(
            query, limit=500, neighbours=1
        )
        assert all(hit.text.startswith("ann") for hit in hits)
    assert both.memory.search_history("w1 w2 w3 ann bob") == []


def test_nothing_of_another_user_is_in_the_file(tmp_path):
    """A scope's index has its own passages alone."""
    mem = Nanomem(tmp_path, scope="user")
    for user in ("ann", "bob"):
        mem.sessions.bind_scope(user, ("user", user))
        say(mem, user, f"I am {user}")
        assert found(mem.memory_for(("user", user)), user) == [f"I am {user}"]
    directory = tmp_path / ".search"
    for user in ("ann", "bob"):
        names = {one.name.partition(".")[0] for one in files_with(directory, f"I am {user}")}
        assert names == {f"user+{user}"}


def test_a_session_that_gets_its_scope_later_leaves_the_workspaces_index(mem):
    """What was said before anyone said whose it is belongs to the user from then on."""
    say(mem, "s", "zanzibar")
    assert found(mem.memory, "zanzibar") == ["zanzibar"]
    mem.sessions.bind_scope("s", ("user", "ann"))
    assert found(mem.memory, "zanzibar") == []
    assert found(mem.memory_for(("user", "ann")), "zanzibar") == ["zanzibar"]
    mem.sessions.delete("s")
    assert found(mem.memory_for(("user", "ann")), "zanzibar") == []


@ON_FILES
def test_a_store_of_its_own_searches_the_workspaces_sessions(mem):
    """`MemoryStore(workspace)` finds what sessions of the workspace have."""
    say(mem, "s", "zanzibar")
    assert found(MemoryStore(mem.sessions.journal.workspace), "zanzibar") == ["zanzibar"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12: threads may be
def test_a_forked_process_opens_the_index_itself(mem):
    """Parent and child search on, each with a connection of its own; `close` lets go of it."""
    say(mem, "s", "zanzibar")
    assert found(mem.memory, "zanzibar")
    child = os.fork()
    if not child:
        status = 1
        with suppress(BaseException):
            status = 0 if found(mem.memory, "zanzibar") == ["zanzibar"] else 2
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    say(mem, "s", "mombasa")
    assert found(mem.memory, "mombasa")[0] == "mombasa"
    mem.close()
    assert found(mem.memory, "mombasa")[0] == "mombasa"


@ON_FILES
def test_an_index_is_let_go_of_with_its_sessions(tmp_path):
    """A store that nobody holds keeps no file open."""
    store = MemoryStore(tmp_path)
    store.append_history("zanzibar")
    assert found(store, "zanzibar")
    index = weakref.ref(store._index)
    del store
    gc.collect()
    assert index() is None
