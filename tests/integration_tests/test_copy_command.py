"""`nanomem copy`, `nanomem db` and what else may be given a database, as a person runs them."""

from __future__ import annotations

import psycopg
import pytest
from commands import greeter, imported, nanomem
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

from langchain_nanomem import Nanomem, postgres_schema
from langchain_nanomem.file_journal import FileJournal

NOWHERE = "postgresql://ann:s3cret@127.0.0.1:1/db?connect_timeout=2"


def at(thread):
    return {"configurable": {"thread_id": thread}}


@pytest.fixture
def source(tmp_path):
    """A workspace with two threads, in each of which an interrupt waits, and a memory."""
    memory = Nanomem(tmp_path / "my files", model="extractive")
    for thread in ("chat:1", "chat:2"):
        for text in ("hi", "bye"):
            greeter(memory.checkpointer).invoke({"messages": [("user", text)]}, at(thread))
    memory.memory.write_long_term("- first")
    memory.memory.write_long_term("- second")
    memory.memory.append_history("They met.", entry_id="e-1")
    return tmp_path / "my files"


def run(*arguments):
    """What a command does, on lines as long as they are."""
    return nanomem(*arguments, COLUMNS="200")


def failed(done, *says):
    """It ended with one line that says these, without a traceback or a password."""
    assert done.returncode == 1, done.stdout
    assert done.stderr.startswith("nanomem: ")
    assert "Traceback" not in done.stderr
    assert "s3cret" not in done.stdout + done.stderr
    assert all(text in done.stderr for text in says), done.stderr


def resumed(memory, thread):
    found = greeter(memory.checkpointer).invoke(Command(resume="goodbye"), at(thread))
    return found["messages"][-1].content


def test_a_workspace_goes_into_a_database_and_back(source, databases, schema, tmp_path):
    """The command tells how many of what are there, and graphs go on with them in both places."""
    done = run("copy", source, databases.url, "--target-schema", schema)
    assert done.returncode == 0, done.stderr
    assert "2 sessions are in PostgreSQL database" in done.stdout
    assert ", and every record is the same: " in done.stdout
    assert " written, 0 were there." in done.stdout
    assert "1 memories are, with 1 earlier versions and 1 log entries" in done.stdout
    again = run("copy", source, databases.url, "--target-schema", schema)
    assert ": 0 written, " in again.stdout
    back = run("copy", databases.url, tmp_path / "back", "--source-schema", schema)
    assert f"2 sessions are in {tmp_path / 'back'}" in back.stdout
    with Nanomem(databases.url, model="extractive", schema=schema) as memory:
        assert resumed(memory, "chat:1") == "goodbye"
    with Nanomem(tmp_path / "back", model="extractive") as memory:
        assert resumed(memory, "chat:2") == "goodbye"
        assert memory.memory.read_long_term() == "- second"


def test_what_cannot_be_copied_is_named(source, tmp_path, databases, schema):
    """Something else under a key, a source that is not there or empty: an error."""
    other = FileJournal(tmp_path / "other")
    other.append("chat:1", [{"_type": "metadata", "key": "chat:1", "is": "another"}])
    failed(run("copy", source, other.workspace), "session 'chat:1'", "differs in record 1")
    failed(run("copy", tmp_path / "missing", tmp_path / "b"), "missing", "there is no workspace")
    assert not (tmp_path / "missing").exists()
    (tmp_path / "empty").mkdir()
    failed(run("copy", tmp_path / "empty", tmp_path / "b"), "nothing to copy")
    failed(run("copy", databases.url, tmp_path / "b", "--source-schema", schema), "no workspace")
    assert databases.ask(f"SELECT 1 FROM pg_namespace WHERE nspname = '{schema}'") == []
    failed(run("copy", source, tmp_path / "b", "--target-schema", "a"), "schema is for a database")


def test_no_password_is_shown(source, tmp_path):
    """Not of a database that can't be reached, of a URL that can't be read, nor of another kind."""
    for url in (NOWHERE, "postgresql://ann:s3cret/x@127.0.0.1/db", "mysql://ann:s3cret@h/db"):
        failed(run("copy", source, url))
        failed(run("copy", url, tmp_path / "b"))
        failed(run("db", "upgrade", url))
        failed(run("db", "status", url))
        failed(run("doctor", "--workspace", url))
        done = run("demo", "--keep", url)
        assert done.returncode == 2
        assert "s3cret" not in done.stdout + done.stderr
    for arguments in (("copy", source, tmp_path / "b", NOWHERE), ("db", NOWHERE), (NOWHERE,)):
        done = run(*arguments)
        assert done.returncode == 2
        assert "Usage: " in done.stderr
        assert "s3cret" not in done.stdout + done.stderr
    assert not (tmp_path / "b").exists()


def test_archived_sessions_are_told_of(source, databases, schema):
    """A database has none: the command says how many there were."""
    Nanomem(source, model="extractive").sessions.archive("chat:1")
    done = run("copy", source, databases.url, "--target-schema", schema)
    assert "1 sessions were archived; there is no archive in a database." in done.stdout


# --- the tables -------------------------------------------------------------


def test_the_tables_are_made_and_brought_up_to_date(databases, schema):
    """`db upgrade` tells from which version to which, `db status` whether that is to be done."""
    newest = postgres_schema.newest_version()
    failed(run("db", "status", databases.url, "--schema", schema), "there are no tables")
    done = run("db", "upgrade", databases.url, "--schema", schema)
    assert f"schema '{schema}': version {newest}; it was not there." in done.stdout
    again = run("db", "upgrade", databases.url, "--schema", schema)
    assert f"version {newest}; nothing was to be done." in again.stdout
    told = run("db", "status", databases.url, "--schema", schema)
    assert f"version {newest}, which is the newest; 0 sessions, 0 bytes." in told.stdout


def test_an_older_schema_is_upgraded(databases, schema, tmp_path):
    """What an earlier version has made is not read before it was upgraded, and is then."""
    make = postgres_schema.Schema(schema).statement
    for text in ("CREATE SCHEMA {s}", postgres_schema.MIGRATIONS[0]):
        databases.ask(make(text).decode())
    databases.ask(f"CREATE TABLE {schema}.version AS SELECT 1 AS version")
    failed(run("db", "status", databases.url, "--schema", schema), "nanomem db upgrade")
    says = "nanomem db upgrade"
    failed(run("copy", databases.url, tmp_path, "--source-schema", schema), says)
    done = run("db", "upgrade", databases.url, "--schema", schema)
    assert f"version {postgres_schema.newest_version()}; it was 1." in done.stdout
    assert run("db", "status", databases.url, "--schema", schema).returncode == 0


def test_a_newer_schema_is_let_alone(databases, schema):
    """The error says what to upgrade."""
    run("db", "upgrade", databases.url, "--schema", schema)
    databases.ask(f"UPDATE {schema}.version SET version = 99")
    for command in ("upgrade", "status"):
        done = run("db", command, databases.url, "--schema", schema)
        failed(done, "version 99", "Upgrade langchain-nanomem")
    assert databases.ask(f"SELECT version FROM {schema}.version") == [(99,)]


def test_a_user_without_rights_is_told(databases, schema):
    """The error names the right that is missing, and not the password."""
    user = f"{schema}_user"
    databases.ask(f"CREATE USER {user} PASSWORD 's3cret'")
    options = psycopg.conninfo.conninfo_to_dict(databases.url) | {"user": user}
    url = psycopg.conninfo.make_conninfo(**options | {"password": "s3cret"})
    try:
        failed(run("db", "upgrade", url, "--schema", schema), "CREATE on the database")
    finally:
        databases.ask(f"DROP USER {user}")


def test_a_schema_of_no_plain_name_is_refused(databases):
    """Before the database is asked."""
    failed(run("db", "upgrade", databases.url, "--schema", 'a"b'), "schema must be a name")


def test_a_directory_has_no_tables(tmp_path):
    """`db` takes a database, and says so."""
    failed(run("db", "upgrade", tmp_path), "postgresql://user:password@host:port/database")


# --- the other commands -----------------------------------------------------


def test_the_doctor_reads_a_database(source, databases, schema):
    """It reads all sessions there and names what is damaged; what it mends are files."""
    where = ("--workspace", databases.url, "--schema", schema)
    failed(run("doctor", *where), "there is no workspace")
    run("copy", source, databases.url, "--target-schema", schema)
    done = run("doctor", *where)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 sessions in PostgreSQL database")
    failed(run("doctor", "--repair", *where), "--repair is for files")
    databases.ask(f"UPDATE {schema}.chunks SET content = 'nonsense' WHERE start = 0")
    done = run("doctor", *where)
    assert done.returncode == 1
    damaged = [line.split(": ")[0] for line in done.stdout.splitlines() if "session '" in line]
    assert damaged == ["chat:1", "chat:2"]


def test_threads_are_imported_into_a_database(databases, schema, tmp_path):
    """`import-checkpoints` takes a URL as a workspace."""
    path = tmp_path / "app.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        for text in ("hi", "bye"):
            greeter(saver).invoke({"messages": [("user", text)]}, at("chat:1"))
    done = imported(path, "--workspace", databases.url, "--schema", schema)
    assert done.returncode == 0, done.stderr
    assert "1 threads are in PostgreSQL database" in done.stdout
    with Nanomem(databases.url, model="extractive", schema=schema) as memory:
        assert resumed(memory, "chat:1") == "goodbye"
