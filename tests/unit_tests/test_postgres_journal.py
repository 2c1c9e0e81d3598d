"""Journals in PostgreSQL: what the narrow waist promises, and what only they have."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest
from journal_records import contents, said
from psycopg_pool import ConnectionPool

from langchain_nanomem import postgres_schema
from langchain_nanomem.errors import CorruptRecordError, DatabaseError, UnsupportedFormatError
from langchain_nanomem.journal import ORIGIN, Position, ReplacedError
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.postgres_journal import PostgresJournal

KEY = "telegram:42"
HEAD = {"_type": "metadata", "key": KEY}


@pytest.fixture
def make(databases, schema):
    """Makes journals of one schema, as several processes would have them."""
    made = []

    def make(**options):
        made.append(PostgresJournal(databases.url, schema=schema, **options))
        return made[-1]

    yield make
    for journal in made:
        journal.close()


@pytest.fixture
def journal(make):
    return make(max_connections=4)


# --- the waist --------------------------------------------------------------


def test_records_come_back_in_order(journal, make):
    """What was appended is read from any position on, also by another process."""
    first = journal.append(KEY, [HEAD, *said("a", "b")])
    end = journal.append(KEY, said("c"), expected_end=first)
    for reader in (journal, make()):
        assert contents(reader.read(KEY)[0]) == ["a", "b", "c"]
        assert contents(reader.read(KEY, first)[0]) == ["c"]
        assert reader.read(KEY, end) == ([], end)


def test_reading_creates_no_session(journal):
    """A missing journal is empty, and is not there afterwards either."""
    assert journal.read(KEY) == ([], ORIGIN)
    assert journal.list() == []
    assert journal.info(KEY) is None
    assert journal.deleted_at(KEY) is None
    assert journal.delete(KEY) is False


def test_an_append_on_another_end_is_refused(journal):
    """Compare and set: nothing is written where the end is not the expected one."""
    end = journal.append(KEY, [HEAD])
    journal.append(KEY, said("a"))
    for expected in (end, ORIGIN, Position(5, b"other")):
        with pytest.raises(ReplacedError):
            journal.append(KEY, said("b"), expected_end=expected)
    assert contents(journal.read(KEY)[0]) == ["a"]


def test_nothing_to_append_changes_nothing(journal):
    """No records are no journal, and no other end."""
    assert journal.append(KEY, []) == ORIGIN
    assert journal.list() == []
    end = journal.append(KEY, [HEAD])
    assert journal.append(KEY, []) == end


def test_a_record_that_cannot_be_stored_leaves_nothing(journal):
    """All records of an append are there, or none."""
    with pytest.raises(ValueError, match="_n"):
        journal.append(KEY, [HEAD, *said("a"), {"_n": object()}])
    assert journal.read(KEY) == ([], ORIGIN)


@pytest.mark.parametrize(
    "text", ["\0", "\ud800", "a\r\nb\x85c\u2028d", "\U0001f600" * 9000, "", "\\u0000"]
)
def test_any_text_survives(journal, text):
    """NUL, lone surrogates, line ends of all kinds and long texts come back as they are."""
    end = journal.append(KEY, [HEAD, *said(text)])
    assert contents(journal.read(KEY)[0]) == [text]
    with journal.open(KEY) as reader:
        entries, _ = reader.read()
        assert reader.load([entries[1].address]) == [entries[1].record]
    assert journal.read(KEY, end) == ([], end)


@pytest.mark.parametrize("key", ["a:b", "a_b", "A:b", "../a", "ключ", "a\0b", "x" * 3000, "%41"])
def test_every_key_has_its_own_journal(journal, key):
    """Whatever the key is, it is told as it is, and shares nothing with one like it."""
    journal.append(key, [{**HEAD, "key": key}, *said("own")])
    journal.append(f"{key}'", [HEAD, *said("other")])
    assert contents(journal.read(key)[0]) == ["own"]
    assert [info.key for info in journal.list()] == sorted([key, f"{key}'"])
    names = journal.states()
    assert sorted(journal.key_of(name) for name in names) == sorted([key, f"{key}'"])
    assert journal.delete(key)
    assert contents(journal.read(f"{key}'")[0]) == ["other"]


@pytest.mark.parametrize("key", ["", None, "\ud800", 7])
def test_what_is_no_key_is_a_value_error(journal, key):
    """The same keys are refused as by files."""
    with pytest.raises(ValueError, match="key"):
        journal.append(key, [HEAD])


def test_a_listing_tells_what_there_is(journal):
    """Keys in order, sizes, times, first records; and a state that changes with each write."""
    before = datetime.now(UTC) - timedelta(minutes=1)
    journal.append("b", [HEAD])
    end = journal.append("a", [{"_type": "metadata", "key": "a", "x": 1}, *said("hi")])
    one, two = journal.list()
    assert (one.key, two.key) == ("a", "b")
    assert (one.first_record["x"], one.size_bytes) == (1, end.offset)
    assert before < one.updated_at.astimezone(UTC) < datetime.now(UTC) + timedelta(minutes=1)
    assert "test_" in one.place
    assert journal.info("a") == one
    state = journal.states()["a"]
    journal.append("a", said("more"))
    assert journal.states()["a"] != state
    assert not journal.states()["a"].replaces(state)
    journal.rewrite("a", [HEAD])
    assert journal.states()["a"].replaces(state)
    journal.delete("a")
    assert journal.key_of("a") is None


def test_long_appends_are_read_in_parts(journal):
    """An append of many records is one append; each of its records is found by its address."""
    texts = [f"{number} {'x' * (number % 700)}" for number in range(2000)]
    journal.append(KEY, [HEAD, *said(*texts)])
    with journal.open(KEY) as reader:
        entries, _ = reader.read()
        wanted = [entry.address for entry in entries[1:][::97]]
        assert contents(reader.load(wanted)) == texts[::97]
        assert contents(reader.load(wanted[::-1])) == texts[::97][::-1]


def test_only_what_is_asked_for_is_read(journal, databases, schema):
    """Records are read without what stands between them: damage there is not noticed."""
    first = journal.append(KEY, [HEAD, *said("a")])
    journal.append(KEY, said("b" * 9))
    end = journal.append(KEY, said("c"))
    databases.ask(
        f"UPDATE {schema}.chunks SET content = overlay(content PLACING 'x' FROM 1) "
        "WHERE start = %s",
        first.offset,
    )
    with journal.open(KEY) as reader:
        last = (end.offset - len('{"role":"user","content":"c"}') - 1, 29)
        assert contents(reader.load([last])) == ["c"]
        with pytest.raises(CorruptRecordError, match="written by something else"):
            reader.read(first)


def test_an_address_that_was_never_given_is_loud(journal):
    """Nothing is made up where no record lies."""
    journal.append(KEY, [HEAD])
    with journal.open(KEY) as reader, pytest.raises(CorruptRecordError):
        reader.load([(7000, 10)])
    with journal.open("missing") as reader, pytest.raises(CorruptRecordError):
        reader.load([(0, 10)])


def test_a_chunk_that_is_missing_is_loud(journal, databases, schema):
    """What someone removed by hand is told with its place, and is never taken for nothing."""
    first = journal.append(KEY, [HEAD])
    journal.append(KEY, said("a"))
    journal.append(KEY, said("b"))
    databases.ask(f"DELETE FROM {schema}.chunks WHERE start = %s", first.offset)
    with pytest.raises(DatabaseError, match=f"byte {first.offset} is missing"):
        journal.read(KEY)


# --- rewriting and deleting -------------------------------------------------


def test_a_rewrite_is_noticed(journal, make):
    """A position of what was replaced is refused; who has it open reads it on."""
    old = journal.append(KEY, [HEAD, *said("old")])
    with make().open(KEY) as reader:
        entries, end = reader.read()
        new = journal.rewrite(KEY, [HEAD, *said("new")])
        assert contents([entry.record for entry in reader.read()[0]]) == ["old"]
        assert reader.read(end) == ([], end)
        assert contents(reader.load([entries[1].address])) == ["old"]
        with pytest.raises(ReplacedError):
            reader.read(new)
        reader.renew()
        assert contents([entry.record for entry in reader.read()[0]]) == ["new"]
        assert reader.read(new) == ([], new)
    with pytest.raises(ReplacedError):
        journal.read(KEY, old)
    assert journal.deleted_at(KEY) is None


def test_a_journal_may_be_rewritten_to_nothing(journal):
    """Then there is none."""
    journal.append(KEY, [HEAD])
    assert journal.rewrite(KEY, []) == ORIGIN
    assert journal.list() == []
    assert journal.append(KEY, [HEAD]) != ORIGIN


@pytest.mark.parametrize("how", ["erase", "delete"])
def test_what_is_erased_leaves_no_copy(journal, make, databases, schema, how):
    """Erased and deleted words are in no row any more, what was replaced before included."""
    journal.append(KEY, [HEAD, *said("secret one")])
    journal.rewrite(KEY, [HEAD, *said("secret two")])
    journal.keep_index(KEY, b"secret three")
    with make().open(KEY) as reader:
        _, end = reader.read()
        if how == "erase":
            journal.rewrite(KEY, [HEAD], erase=True)
        else:
            assert journal.delete(KEY) is True
        with pytest.raises(ReplacedError):
            reader.read(end)
    rows = databases.ask(
        f"SELECT content FROM {schema}.chunks UNION ALL SELECT content FROM {schema}.indexes"
    )
    assert not [row for row in rows if b"secret" in bytes(row[0])]
    assert databases.ask(f"SELECT content FROM {schema}.indexes") == []
    assert abs(journal.deleted_at(KEY) - datetime.now(UTC)) < timedelta(minutes=1)
    assert make().deleted_at(KEY) == journal.deleted_at(KEY)
    tombstones = databases.ask(f"SELECT encode(name, 'escape') FROM {schema}.deletions")
    assert "telegram" not in str(tombstones)


def test_what_was_replaced_is_cleared_away_later(journal, databases, schema):
    """A later rewrite removes what was replaced more than ten minutes ago, of any journal."""
    journal.append(KEY, [HEAD, *said("old")])
    journal.rewrite(KEY, [HEAD, *said("new")])
    count = f"SELECT count(DISTINCT journal) FROM {schema}.chunks"
    journal.append("other", [HEAD])
    journal.rewrite("other", [HEAD, *said("x")])
    assert databases.ask(count) == [(4,)]
    databases.ask(f"UPDATE {schema}.replaced SET replaced_at = now() - interval '11 minutes'")
    journal.rewrite("other", [HEAD, *said("y")])
    assert databases.ask(count) == [(3,)]
    assert contents(journal.read(KEY)[0]) == ["new"]


def test_an_index_goes_with_its_journal(journal, databases, schema):
    """It is kept as it is, and forgotten where it is damaged, or the journal is rewritten."""
    assert journal.index(KEY) is None
    journal.keep_index(KEY, b"of nothing")
    assert journal.index(KEY) is None
    journal.append(KEY, [HEAD])
    journal.keep_index(KEY, b"1")
    with journal.lock(KEY):
        journal.read(KEY)
        journal.keep_index(KEY, b"\0\xff")
    assert journal.index(KEY) == b"\0\xff"
    databases.ask(f"UPDATE {schema}.indexes SET content = 'x'")
    assert journal.index(KEY) is None
    journal.keep_index(KEY, b"2")
    journal.rewrite(KEY, [HEAD, *said("x")])
    assert journal.index(KEY) is None


# --- locks ------------------------------------------------------------------


def test_a_lock_keeps_others_out_until_it_was_written(journal, make):
    """Between reading and writing nobody else writes; a thread may enter it again."""
    other, order = make(), []

    def write():
        other.append(KEY, [HEAD, *said("b")])
        order.append("b")

    with journal.lock(KEY), journal.lock(KEY):
        _, end = journal.read(KEY)
        thread = threading.Thread(target=write)
        thread.start()
        thread.join(0.3)
        order.append("a")
        journal.append(KEY, [HEAD, *said("a")], expected_end=end)
    thread.join()
    assert order == ["a", "b"]
    assert contents(journal.read(KEY)[0]) == ["a", "b"]


def test_who_writes_twice_notices_who_came_between(journal, make):
    """After its first write a lock may be another's; the second write then is refused."""
    other = make()
    for second in (
        lambda end: journal.append(KEY, said("late"), expected_end=end),
        lambda _: journal.rewrite(KEY, [HEAD]),
        lambda _: journal.delete(KEY),
    ):
        with journal.lock(KEY):
            journal.read(KEY)
            end = journal.append(KEY, [HEAD, *said("a")])
            other.append(KEY, said("b"))
            with pytest.raises(ReplacedError):
                second(end)
        assert contents(journal.read(KEY)[0])[-2:] == ["a", "b"]


def test_who_reads_again_may_write_again(journal, make):
    """What came between is read, and then the journal is theirs again."""
    other = make()
    with journal.lock(KEY), journal.open(KEY) as reader:
        end = journal.append(KEY, [HEAD, *said("a")])
        other.append(KEY, said("b"))
        entries, end = reader.read(end)
        assert contents([entry.record for entry in entries]) == ["b"]
        journal.append(KEY, said("c"), expected_end=end)
    assert contents(journal.read(KEY)[0]) == ["a", "b", "c"]


def test_what_was_just_written_is_not_fetched(journal, databases, schema):
    """Under the lock the own append is told as it was written, without asking the server."""
    with journal.lock(KEY), journal.open(KEY) as reader:
        _, start = reader.read()
        start = journal.append(KEY, [HEAD])
        end = journal.append(KEY, said("a"), expected_end=start)
        databases.ask(f"UPDATE {schema}.chunks SET content = 'x'")
        entries, found = reader.read(start)
        assert (contents([entry.record for entry in entries]), found) == (["a"], end)


def test_a_thread_that_waits_for_a_lock_takes_no_connection(make):
    """Many threads on one key and a single connection get along."""
    journal = make(max_connections=1)

    def write(number):
        with journal.lock(KEY):
            _, end = journal.read(KEY)
            journal.append(KEY, said(str(number)), expected_end=end)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, contents(journal.read(KEY)[0]))) == list(range(12))


def test_all_that_is_asked_under_a_lock_takes_one_connection(make):
    """Listings, other journals and the index are read on the connection that has the lock."""
    journal = make(max_connections=1, timeout_seconds=3)
    journal.append(KEY, [HEAD, *said("a")])
    journal.append("other", [HEAD, *said("b")])
    with journal.lock(KEY):
        journal.read(KEY)
        assert len(journal.list()) == len(journal.states()) == 2
        assert contents(journal.read("other")[0]) == ["b"]
        assert journal.deleted_at("other") is None
        assert journal.index("other") is None
        journal.append(KEY, said("c"))
    assert contents(journal.read(KEY)[0]) == ["a", "c"]


def test_a_session_overtaken_in_the_middle_is_told_so(journal, make):
    """A manager whose second write in one block is overtaken says so, and reads anew."""
    manager, other = SessionManager(journal), SessionManager(make())
    with manager.writing(KEY) as records:
        manager.commit(records, said("a"))
        other.journal.append(KEY, said("b"))
        with pytest.raises(Exception, match="by another program meanwhile"):
            manager.commit(records, said("c"))
    assert [one["content"] for one in manager.get_or_create(KEY).messages] == ["a", "b"]


# --- durability -------------------------------------------------------------


@pytest.mark.parametrize("durable", [True, False])
def test_only_what_is_to_be_durable_waits_for_the_disk(journal, databases, schema, durable):
    """`durable=False` leaves the disk to the server; the default waits for it."""
    journal.prepare()
    databases.ask(f"""
        CREATE FUNCTION {schema}.note() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN NEW.content := NEW.content || (''{{"how":"''
             || current_setting(''synchronous_commit'') || ''"}}'' || chr(10))::bytea;
         RETURN NEW; END';
        CREATE TRIGGER note BEFORE INSERT ON {schema}.chunks
        FOR EACH ROW EXECUTE FUNCTION {schema}.note();
    """)
    journal.append(KEY, [HEAD], durable=durable)
    assert journal.read(KEY)[0][-1] == {"how": "on" if durable else "off"}


# --- the tables -------------------------------------------------------------

PREPARE = """
import sys
from langchain_nanomem.postgres_journal import PostgresJournal
with PostgresJournal(sys.argv[1], schema=sys.argv[2]) as journal:
    journal.append(sys.argv[3], [{"_type": "metadata", "key": sys.argv[3]}])
"""


def test_many_may_use_it_first_at_once(databases, schema, journal):
    """The tables are made once, whoever comes at the same time; nobody fails."""
    command = [sys.executable, "-W", "error", "-c", PREPARE, databases.url, schema]
    running = [subprocess.Popen([*command, f"k{number}"]) for number in range(4)]
    assert [process.wait(60) for process in running] == [0, 0, 0, 0]
    assert [info.key for info in journal.list()] == ["k0", "k1", "k2", "k3"]


def test_an_older_server_is_refused(make, monkeypatch):
    """The error says which one there is, and which one is needed."""
    monkeypatch.setattr(postgres_schema, "_OLDEST_SERVER", 990_000)
    with pytest.raises(UnsupportedFormatError, match=r"PostgreSQL \d\d, and .* needs 99 or later"):
        make().list()


def test_a_newer_schema_is_refused(databases, schema, journal, make):
    """What a newer version made is left alone: the message says what, where, what to do."""
    journal.append(KEY, [HEAD])
    databases.ask(f"UPDATE {schema}.version SET version = 99")
    with pytest.raises(UnsupportedFormatError, match=f"{schema}.*version 99.*Upgrade"):
        make().read(KEY)


def test_an_older_schema_is_brought_up_to_date(databases, schema, journal, make, monkeypatch):
    """A migration that is added runs at the first use, once, and nothing is lost."""
    from langchain_nanomem import postgres_schema  # noqa: PLC0415 - its list is changed here

    journal.append(KEY, [HEAD, *said("a")])
    added = "CREATE TABLE {s}.added (x int); INSERT INTO {s}.added VALUES (1)"
    monkeypatch.setattr(
        postgres_schema, "MIGRATIONS", (*postgres_schema.MIGRATIONS, added), raising=True
    )
    for _ in range(2):
        assert contents(make().read(KEY)[0]) == ["a"]
    assert databases.ask(f"SELECT x FROM {schema}.added") == [(1,)]
    assert make().version() == postgres_schema.newest_version()


def test_a_migration_that_fails_changes_nothing(databases, schema, journal, make, monkeypatch):
    """All of it is one transaction."""
    from langchain_nanomem import postgres_schema  # noqa: PLC0415 - its list is changed here

    journal.append(KEY, [HEAD])
    before = postgres_schema.newest_version()
    broken = ("CREATE TABLE {s}.added (x int)", "SELECT nothing FROM {s}.nowhere")
    monkeypatch.setattr(
        postgres_schema, "MIGRATIONS", (*postgres_schema.MIGRATIONS, *broken), raising=True
    )
    with pytest.raises(DatabaseError, match="nowhere"):
        make().read(KEY)
    assert make().version() == before
    assert databases.ask("SELECT 1 FROM pg_class WHERE relname = 'added'") == []


@pytest.mark.parametrize("name", ["", "a b", 'a"b', "pg_own", "x" * 64, "A", "1a", None, "a;b"])
def test_a_schema_has_a_plain_name(databases, name):
    """Anything else is refused before the database is asked."""
    with pytest.raises(ValueError, match="schema must be"):
        PostgresJournal(databases.url, schema=name)


def test_schemas_share_nothing(make, databases):
    """Two schemas of a database are as two databases."""
    with PostgresJournal(databases.url, schema=databases.schema()) as other:
        make().append(KEY, [HEAD, *said("a")])
        assert other.list() == []


# --- connections ------------------------------------------------------------


@pytest.mark.parametrize("autocommit", [True, False])
def test_a_pool_may_be_passed_in(databases, schema, autocommit):
    """It is used as it is, is not closed, and its connections come back as they were."""
    kwargs = {"autocommit": autocommit}
    with ConnectionPool(databases.url, min_size=1, max_size=1, kwargs=kwargs) as pool:
        with PostgresJournal(pool, schema=schema) as journal:
            journal.append(KEY, [HEAD, *said("a")])
            assert contents(journal.read(KEY)[0]) == ["a"]
            assert databases.url not in repr(journal)
        with pool.connection() as connection:
            assert connection.autocommit is autocommit
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_no_state_of_a_connection_is_left(databases, schema):
    """Between transactions a connection has no settings, locks or statements of ours."""
    with ConnectionPool(databases.url, min_size=1, max_size=1) as pool:
        journal = PostgresJournal(pool, schema=schema)
        with pool.connection() as connection:
            before = connection.execute("SELECT name, setting FROM pg_settings").fetchall()
        manager = SessionManager(journal)
        for word in ("a", "b", "c", "d", "e", "f", "g"):
            session = manager.get_or_create(KEY)
            session.add_message("user", word)
            manager.save(session)
        with pool.connection() as connection:
            assert connection.execute("SELECT * FROM pg_prepared_statements").fetchall() == []
            held = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
            assert connection.execute(held).fetchall() == []
            after = connection.execute("SELECT name, setting FROM pg_settings").fetchall()
        assert set(before) <= set(after)  # PL/pgSQL brings some settings of its own


def test_closing_is_no_end(journal):
    """A closed journal opens new connections when it is used again."""
    journal.append(KEY, [HEAD])
    journal.close()
    journal.close()
    assert journal.list()


def test_another_default_isolation_does_no_harm(databases, schema, make):
    """Where transactions are serializable by default, a write still sees what came before."""
    url = f"{databases.url}{'&' if '?' in databases.url else '?'}options="
    strict = f"{url}-cdefault_transaction_isolation%3Dserializable"
    with PostgresJournal(strict, schema=schema) as journal:
        journal.append(KEY, [HEAD])
        other = make()
        with journal.lock(KEY):
            journal.list()
            other.append("other", [HEAD])
            journal.read(KEY)
            journal.append(KEY, said("a"))
            assert len(journal.list()) == 2
    assert contents(other.read(KEY)[0]) == ["a"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of threads: they are the pool's
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no forking here")
def test_a_fork_shares_no_connection(journal):
    """A process that was forked off opens connections of its own, and both go on."""
    journal.append(KEY, [HEAD])
    child = os.fork()
    if not child:
        try:
            journal.append(KEY, said("child"))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    journal.append(KEY, said("parent"))
    assert contents(journal.read(KEY)[0]) == ["child", "parent"]


@pytest.mark.parametrize("missing", ["psycopg", "psycopg_pool"])
def test_without_psycopg_the_error_names_the_extra(missing):
    """All else works without it."""
    code = f"""
import sys
sys.modules[{missing!r}] = None
import langchain_nanomem
try:
    langchain_nanomem.PostgresJournal
except ImportError as error:
    print(error)
"""
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "pip install 'langchain-nanomem[postgres]'" in told


@pytest.mark.parametrize(
    "options",
    [
        {"max_connections": 0},
        {"max_connections": 1.5},
        {"timeout_seconds": 0},
        {"timeout_seconds": float("inf")},
    ],
)
def test_wrong_options_are_refused(databases, options):
    """They are ValueErrors at construction."""
    with pytest.raises(ValueError, match=next(iter(options))):
        PostgresJournal(databases.url, **options)


def test_it_says_where_it_is_without_the_password(caplog):
    """The password is in no repr; nothing is connected to before the first use."""
    with caplog.at_level(logging.DEBUG):
        journal = PostgresJournal("postgresql://ann:s3cret@db.example:6543/bot", schema="own")
    assert repr(journal) == (
        "PostgresJournal(\"PostgreSQL database 'bot' at db.example:6543\", schema='own')"
    )
    assert caplog.records == []
