"""`nanomem import` of checkpointers, as a person runs it."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest
from commands import greeter, imported
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

from langchain_nanomem import NanomemSaver, SessionManager


def at(thread):
    return {"configurable": {"thread_id": thread}}


@pytest.fixture
def source(tmp_path):
    """A file with two threads; in each an interrupt waits."""
    path = tmp_path / "my app.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        for thread in ("chat:1", "chat:2"):
            for text in ("hi", "bye"):
                greeter(saver).invoke({"messages": [("user", text)]}, at(thread))
    return path


def threads(workspace):
    return [found["key"] for found in SessionManager(workspace).list_sessions()]


def failed(done, *says):
    """It ended with one line that says these, without a traceback."""
    assert done.returncode == 1
    assert done.stderr.startswith("nanomem: ")
    assert "Traceback" not in done.stderr
    assert all(text in done.stderr for text in says), done.stderr


def test_a_file_is_imported_and_resumes(source, tmp_path):
    """The command copies all threads, says how many, and a graph goes on with them."""
    content = source.read_bytes()
    done = imported(source, "--workspace", tmp_path / "w")
    assert done.returncode == 0, done.stderr
    assert "2 threads are in" in done.stdout
    assert "10 written, 0 were there" in done.stdout
    again = imported(source, NANOMEM_WORKSPACE=str(tmp_path / "w"))
    assert "0 written, 10 were there" in again.stdout
    assert source.read_bytes() == content
    saver = NanomemSaver(SessionManager(tmp_path / "w"))
    after = greeter(saver).invoke(Command(resume="yes, goodbye"), at("chat:2"))
    assert after["messages"][-1].content == "yes, goodbye"


def test_only_the_named_threads_are_imported(source, tmp_path):
    """--thread may be repeated; one that is not in the source is named."""
    assert imported(source, "--workspace", tmp_path / "w", "--thread", "chat:2").returncode == 0
    assert threads(tmp_path / "w") == ["chat:2"]
    done = imported(source, "--workspace", tmp_path, "--thread", "chat:2", "--thread", "nobody")
    failed(done, "'nobody': the source has no such thread", "1 are there")


def test_what_is_no_source_is_named_and_not_created(tmp_path):
    """A missing path, a directory, and files that are something else are errors; none is made."""
    missing = tmp_path / "missing.sqlite"
    failed(imported(missing, "--workspace", tmp_path / "w"), str(missing), "No such file")
    assert not missing.exists()
    failed(imported(tmp_path, "--workspace", tmp_path / "w"), "Is a directory")
    for content, says in ((b"", "empty file"), (b"hello, world, this is text", "no SQLite")):
        other = tmp_path / "other"
        other.write_bytes(content)
        failed(imported(other, "--workspace", tmp_path / "w"), str(other), says)
        assert other.read_bytes() == content
    assert not (tmp_path / "w").exists()


def test_a_database_of_something_else_is_named(tmp_path):
    """A database without LangGraph's tables, or with others of their name, is an error."""
    path = tmp_path / "foreign.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
        failed(imported(path, "--workspace", tmp_path / "w"), "no table 'checkpoints'")
        connection.execute("CREATE TABLE checkpoints (thread_id TEXT)")
        failed(imported(path, "--workspace", tmp_path / "w"), "no column 'checkpoint'")


def test_a_database_without_threads_is_named(tmp_path):
    """Where there is nothing to import, the command says so and fails."""
    path = tmp_path / "empty.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        saver.setup()
    failed(imported(path, "--workspace", tmp_path / "w"), "no threads in it")


def test_a_locked_database_is_named(source, tmp_path):
    """While another program holds the file for itself, the command says so and can be run again."""
    with contextlib.closing(sqlite3.connect(source)) as connection:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        failed(imported(source, "--workspace", tmp_path / "w"), "locked", "another program")
    assert imported(source, "--workspace", tmp_path / "w").returncode == 0


def test_a_damaged_database_is_named(source, tmp_path):
    """A file whose pages are destroyed is an error, and what is good is there."""
    content = bytearray(source.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    source.write_bytes(content)
    failed(imported(source, "--workspace", tmp_path / "w"), "malformed")


def test_a_read_only_place_is_read(source, tmp_path):
    """Where no file can be made beside the database, or it was copied by VACUUM, it is read too."""
    source.with_name(f"{source.name}-shm").mkdir()
    assert imported(source, "--workspace", tmp_path / "w").returncode == 0
    source.with_name(f"{source.name}-shm").rmdir()
    copied = tmp_path / "copied.sqlite"
    with contextlib.closing(sqlite3.connect(source)) as connection:
        connection.execute("VACUUM INTO ?", [str(copied)])
        connection.execute("ALTER TABLE writes DROP COLUMN task_path")  # as older versions had it
    for path in (copied, source):
        done = imported(path, "--workspace", tmp_path / "w")
        assert "10 were there" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://ann:s3cret@127.0.0.1:1/db", "pip install langgraph-checkpoint-postgres"),
        ("postgres://ann:s3cret/x@127.0.0.1/db", "%2F"),
    ],
)
def test_a_password_is_never_shown(url, says, tmp_path):
    """What is wrong with a database is told without the password of its URL."""
    done = imported(url, "--workspace", tmp_path)
    assert "s3cret" not in done.stdout + done.stderr
    if "pip install" in says and "cannot be read: connection" in done.stderr:
        says = "cannot be read"  # the package is there
    failed(done, says)
