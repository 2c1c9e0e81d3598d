"""The search index in PostgreSQL: the same hits as from a file, and what only it has."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import AIMessage, HumanMessage
from psycopg.conninfo import make_conninfo

from langchain_nanomem import MemoryStore, PostgresJournal, SessionManager
from langchain_nanomem.search_tables import Passage, Source

pytestmark = pytest.mark.back_ends("postgres")
NOON = datetime(2026, 5, 8, 12, tzinfo=UTC)
TABLES = ("sources", "passages", "texts", "vectors")


@pytest.fixture
def mem(open_memory):
    return open_memory()


def say(mem, key, *texts, at=NOON):
    mem.history(key).add_messages(
        [
            (HumanMessage, AIMessage)[n % 2](
                text, additional_kwargs={"timestamp": (at + timedelta(minutes=n)).isoformat()}
            )
            for n, text in enumerate(texts)
        ]
    )


def found(store, query, **options):
    return [hit.text for hit in store.search_history(query, **options)]


@pytest.fixture
def rows(databases, workspace):
    """Counts the rows of the index, by table."""
    schema = workspace.schema.name

    def rows():
        return {
            name: databases.ask(f"SELECT count(*) FROM {schema}.search_{name}")[0][0]
            for name in TABLES
        }

    return rows


@pytest.fixture
def change(databases, workspace):
    """Does something in the schema by hand."""
    schema = workspace.schema.name
    return lambda statement, *values: databases.ask(statement.replace("{s}", schema), *values)


WORDS = [f"word{n}" for n in range(60)]
QUERIES = [
    *(
        "word1 word2",
        "word3",
        "ord5",
        "柏",
        "柏林",
        '"word4 word5"',
        "#tag",
        "!?",
        "May",
        "2026-05",
    ),
    *("what did word7", "how many word9", "nothing of that", "\0", "x" * 3_000),
]


@pytest.mark.parametrize("with_meaning", [False, True])
def test_hits_are_those_of_a_file(open_memory, tmp_path_factory, with_meaning):
    """Any query finds the same in both, in the same order, with the same scores and neighbours."""
    embedder = DeterministicFakeEmbedding(size=8) if with_meaning else None
    local = open_memory(tmp_path_factory.mktemp("files"), embedder=embedder)
    shared = open_memory(embedder=embedder)
    chance = random.Random(7)
    for number in range(6):
        texts = [" ".join(chance.choices(WORDS, k=9)) for _ in range(40)]
        texts[3] += " 我住在柏林 #tag NUL\0 !?"
        for mem in (local, shared):
            say(mem, f"s{number}", *texts, at=NOON + timedelta(days=20 * number))
            mem.memory.append_history(texts[5], at=NOON, source=f"s{number} 0-9")
            assert found(mem.memory, "word1 word2 ord5")  # later ones are taken in to it
    for query in [*QUERIES, *(" ".join(chance.choices(WORDS, k=3)) for _ in range(40))]:
        hits = shared.memory.search_history(query, limit=30, neighbours=1)
        assert hits == local.memory.search_history(query, limit=30, neighbours=1)
    assert found(shared.memory, "ord5")
    assert found(shared.memory, "柏")


@pytest.mark.parametrize("how", ["delete", "clear", "thread"])
def test_what_is_deleted_leaves_all_tables_at_once(open_memory, rows, how):
    """Also by the hand of a worker that never searched, and with its vectors."""
    mem = open_memory(embedder=DeterministicFakeEmbedding(size=4))
    say(mem, "s", "my zanzibar secret")
    say(mem, "t", "something else")
    assert "my zanzibar secret" in found(mem.memory, "zanzibar")
    assert rows() == dict.fromkeys(TABLES, 2)
    other = open_memory()
    if how == "delete":
        other.sessions.delete("s")
    elif how == "clear":
        other.history("s").clear()
    else:
        other.checkpointer.delete_thread("s")
    assert rows() == dict.fromkeys(TABLES, 1)
    assert found(mem.memory, "zanzibar something")[0] == "something else"


def test_an_erased_memory_leaves_no_index(open_memory, rows, change):
    """That of another scope stays."""
    mem = open_memory(scope="user")
    for user in ("ann", "bob"):
        mem.sessions.bind_scope(user, ("user", user))
        say(mem, user, f"I am {user}")
        assert found(mem.memory_for(("user", user)), user) == [f"I am {user}"]
    mem.memory_for(("user", "ann")).erase()
    assert rows()["texts"] == 1
    assert change("SELECT scope FROM {s}.searches") == [("user+bob",)]
    assert found(mem.memory_for(("user", "bob")), "bob") == ["I am bob"]
    assert found(mem.memory_for(("user", "ann")), "ann") == ["I am ann"]  # its session is there


def test_a_new_worker_reads_neither_sessions_nor_texts(mem, open_memory, change):
    """What it does not read may be unreadable: it finds, and shows the texts of its hits."""
    say(mem, "s", "the needle", *(f"hay {n}" for n in range(20)))
    assert found(mem.memory, "needle", limit=1) == ["the needle"]
    change("UPDATE {s}.chunks SET content = convert_to(repeat('x', length(content)), 'UTF8')")
    change("UPDATE {s}.search_texts SET text = '\\xff' WHERE text NOT IN ('the needle', 'hay 0')")
    hit, _ = open_memory().memory.search_history("needle", limit=2)
    assert hit.text == "the needle"
    say(mem, "t", "the other needle")
    assert set(found(open_memory().memory, "needle", limit=3)) >= {"the needle", "the other needle"}


def test_terms_are_looked_up_in_the_index_of_terms(mem, workspace, change):
    """No table is read through, so others' passages cost nothing, and none of theirs is met."""
    mem.sessions.journal.prepare()
    change("ALTER TABLE {s}.searches ALTER COLUMN id RESTART")
    for number in range(12):
        key = f"u{number}"
        mem.sessions.bind_scope(key, ("user", key))
        say(mem, key, *(f"apple {number} pear" for _ in range(30)))
        assert len(found(mem.memory_for(("user", key)), "apple", limit=99)) == 30
    numbers = [number for (number,) in change("SELECT id FROM {s}.searches ORDER BY id")]
    assert (numbers[0], numbers[-1]) == (1, 12)  # the one begins with the other's digits
    statements = mem.memory_for(("user", "u0"))._index._tables._statements
    query, values = statements.occurrences(1, "appl")
    explained = workspace.database.write(
        statements.by_index(), (b"EXPLAIN (ANALYZE, COSTS off) " + query, values)
    )[1]
    plan = "\n".join(line for (line,) in explained)
    assert "Bitmap Index Scan on search_texts_terms_idx" in plan
    assert "Seq Scan" not in plan
    assert "Rows Removed" not in plan


WORKER = (
    "import sys\n"
    "from langchain_core.messages import HumanMessage\n"
    "from langchain_nanomem import MemoryStore, NanomemChatMessageHistory, PostgresJournal\n"
    "from langchain_nanomem import SessionManager\n"
    "url, schema, key = sys.argv[1:]\n"
    "sessions = SessionManager(PostgresJournal(url, schema=schema))\n"
    "store = MemoryStore(sessions.journal, sessions=sessions)\n"
    "for n in range(10):\n"
    "    NanomemChatMessageHistory(key, sessions).add_messages([HumanMessage(f'word{key}x{n}')])\n"
    "    assert store.search_history(f'word{key}x{n}')[0].text == f'word{key}x{n}'\n"
)


def test_workers_share_an_index(mem, databases, workspace, rows):
    """Three processes and three threads say and search at once: each finds all, kept once."""
    command = [sys.executable, "-W", "error", "-c", WORKER, databases.url, workspace.schema.name]
    running = [subprocess.Popen([*command, f"p{n}"]) for n in range(3)]
    errors = []

    def work(key):
        try:
            for n in range(10):
                say(mem, key, f"word{key}x{n}")
                assert found(mem.memory, f"word{key}x{n}")[0] == f"word{key}x{n}"
        except BaseException as error:  # noqa: BLE001 - told by the test below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert errors == []
    assert found(mem.memory, "wordp0x9")[0] == "wordp0x9"
    assert rows() == {"sources": 6, "passages": 60, "texts": 60, "vectors": 0}


def test_a_search_goes_on_where_connections_are_lost(mem, databases):
    """Whenever that is: what was being brought in is brought in then, and none is left out."""
    is_over, lost = threading.Event(), []

    def cut():
        pauses = random.Random(5)
        while not is_over.wait(pauses.uniform(0.1, 0.4)):
            lost.extend(
                databases.ask(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'cut'"
                )
            )

    journal = PostgresJournal(
        make_conninfo(databases.url, application_name="cut"),
        schema=mem.sessions.journal.schema.name,
    )
    store = MemoryStore(journal, sessions=SessionManager(journal))
    thread = threading.Thread(target=cut)
    thread.start()
    try:
        for number in itertools.takewhile(lambda _: len(lost) < 5, itertools.count()):
            say(mem, f"s{number}", f"word{number}", "and more")
            assert found(store, f"word{number}")[0] == f"word{number}"
    finally:
        is_over.set()
        thread.join()
        journal.close()


def test_a_session_that_goes_while_it_is_read_is_not_put_in(mem, rows):
    """Its journal is looked for under a lock: deleted before, it leaves nothing; else it waits."""
    say(mem, "s", "my zanzibar secret")
    (name, bound), *_ = mem.sessions.journal.sessions_of(()).items()
    tables = mem.memory._index._tables
    passage = Passage(0, 0, 0, None, "user", "my zanzibar secret", "", ["zanzibar"], [])
    with tables.writing() as kept:
        source = kept.put_source(Source(0, name, "s", "", 1, 0), bound.state.identity)
        deleting = threading.Thread(target=lambda: mem.sessions.delete("s"))
        deleting.start()
        deleting.join(0.5)
        assert deleting.is_alive()
        kept.add_passages(source, [passage])
    deleting.join()
    assert rows() == dict.fromkeys(TABLES, 0)
    with tables.writing() as kept:
        assert kept.put_source(Source(0, name, "s", "", 1, 0), bound.state.identity) is None
    assert rows() == dict.fromkeys(TABLES, 0)


def test_a_search_sees_one_moment(mem, open_memory):
    """What is deleted while a search reads is in it as a whole, and in no later one."""
    say(mem, "a", *(f"owl a {n}" for n in range(9)))
    found(mem.memory, "owl")
    tables = mem.memory._index._tables
    with tables.reading() as kept:
        assert len(kept.rows_behind(0)) == 9
        open_memory().sessions.delete("a")
        assert len(kept.texts_of(range(1, 10))) == 9
        assert len(kept.occurrences(["owl"])["owl"]) == 9
    assert found(mem.memory, "owl") == []


def test_sessions_of_an_earlier_version_are_found_by_their_scope(mem, change):
    """Whose they are was not noted then: it is read from each, once."""
    mem.sessions.bind_scope("a", ("user", "ann"))
    say(mem, "a", "a zebra of Ann")
    say(mem, "b", "a zebra of all")
    change("UPDATE {s}.journals SET scope = NULL")
    assert found(mem.memory_for(("user", "ann")), "zebra") == ["a zebra of Ann"]
    assert found(mem.memory, "zebra") == ["a zebra of all"]
    assert change("SELECT scope FROM {s}.journals ORDER BY name") == [("user+ann",), ("",)]


def test_a_damaged_session_of_an_earlier_version_hides_no_other(mem, change, caplog):
    """Whose it is can't be told: a warning names it, and it is in no search."""
    say(mem, "a", "a zebra")
    say(mem, "b", "another zebra")
    change("UPDATE {s}.journals SET scope = NULL")
    change(
        "UPDATE {s}.chunks SET content = convert_to(repeat('x', length(content)), 'UTF8') "
        "WHERE journal = (SELECT id FROM {s}.journals WHERE name = 'a')"
    )
    assert found(mem.memory, "zebra") == ["another zebra"]
    assert "whose session 'a' is" in caplog.text


def test_whose_a_session_is_stays_known_when_it_is_written_anew(mem):
    """A session that is emptied, and then used again, is still the user's."""
    mem.sessions.bind_scope("a", ("user", "ann"))
    say(mem, "a", "zebra")
    mem.history("a").clear()
    say(mem, "a", "okapi")
    assert found(mem.memory, "okapi zebra") == []
    assert found(mem.memory_for(("user", "ann")), "okapi zebra") == ["okapi"]


def test_a_damaged_vector_has_the_index_built_anew(open_memory, change):
    """What means the same is found all the same."""
    mem = open_memory(embedder=DeterministicFakeEmbedding(size=4))
    say(mem, "s", "a puppy")
    assert found(mem.memory, "puppy") == ["a puppy"]
    change("UPDATE {s}.search_vectors SET vector = '\\x00'")
    other = open_memory(embedder=DeterministicFakeEmbedding(size=4))
    assert found(other.memory, "puppy") == ["a puppy"]
    assert change("SELECT length(vector) FROM {s}.search_vectors") == [(16,)]


def test_an_index_of_other_terms_is_left_behind(mem, change):
    """A newer version's terms make an index of its own; one of an older version's goes."""
    say(mem, "s", "zebra")
    found(mem.memory, "zebra")
    change("UPDATE {s}.searches SET format = 99")
    assert found(mem.memory, "zebra") == ["zebra"]
    assert len(change("SELECT id FROM {s}.searches")) == 2
    change("DELETE FROM {s}.searches WHERE format = 99")
    change("UPDATE {s}.searches SET format = 0")
    assert found(mem.memory, "zebra") == ["zebra"]
    assert [format_ for (format_,) in change("SELECT format FROM {s}.searches")] == [1]


def test_nothing_is_written_for_a_search_that_has_nothing_to_read(mem, change):
    """A scope without a word has no index."""
    assert found(mem.memory_for(("user", "nobody")), "zebra") == []
    assert change("SELECT 1 FROM {s}.searches") == []
