"""`nanomem import-checkpoints`, as a person runs it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from langchain_nanomem import NanomemSaver, SessionManager

COMMAND = [sys.executable, "-c", "from langchain_nanomem.cli import main; main()"]


def nanomem(*arguments, **environment):
    settings = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", **environment}
    return subprocess.run(
        [*COMMAND, "import-checkpoints", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=settings,
        timeout=240,
        check=False,
    )


def graph(saver):
    """A graph that greets, and asks before it says good-bye."""

    def reply(state):
        if state["messages"][-1].content == "bye":
            return {"messages": [("ai", interrupt("Leave?"))]}
        return {"messages": [("ai", "hello")]}

    builder = StateGraph(MessagesState).add_node("reply", reply).add_edge(START, "reply")
    return builder.compile(checkpointer=saver)


def at(thread):
    return {"configurable": {"thread_id": thread}}


@pytest.fixture
def source(tmp_path):
    """A file with two threads; in each an interrupt waits."""
    path = tmp_path / "my app.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        for thread in ("chat:1", "chat:2"):
            for text in ("hi", "bye"):
                graph(saver).invoke({"messages": [("user", text)]}, at(thread))
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
    done = nanomem(source, "--workspace", tmp_path / "w")
    assert done.returncode == 0, done.stderr
    assert "2 threads are in" in done.stdout
    assert "10 written, 0 were there" in done.stdout
    again = nanomem(source, NANOMEM_WORKSPACE=str(tmp_path / "w"))
    assert "0 written, 10 were there" in again.stdout
    assert source.read_bytes() == content
    saver = NanomemSaver(SessionManager(tmp_path / "w"))
    after = graph(saver).invoke(Command(resume="yes, goodbye"), at("chat:2"))
    assert after["messages"][-1].content == "yes, goodbye"


def test_only_the_named_threads_are_imported(source, tmp_path):
    """--thread may be repeated; one that is not in the source is named."""
    assert nanomem(source, "--workspace", tmp_path / "w", "--thread", "chat:2").returncode == 0
    assert threads(tmp_path / "w") == ["chat:2"]
    done = nanomem(source, "--workspace", tmp_path, "--thread", "chat:2", "--thread", "nobody")
    failed(done, "'nobody': the source has no such thread", "1 are there")


def test_what_is_no_source_is_named_and_not_created(tmp_path):
    """A missing path, a directory, and files that are something else are errors; none is made."""
    missing = tmp_path / "missing.sqlite"
    failed(nanomem(missing, "--workspace", tmp_path / "w"), str(missing), "No such file")
    assert not missing.exists()
    failed(nanomem(tmp_path, "--workspace", tmp_path / "w"), "Is a directory")
    for content, says in ((b"", "empty file"), (b"hello, world, this is text", "no SQLite")):
        other = tmp_path / "other"
        other.write_bytes(content)
        failed(nanomem(other, "--workspace", tmp_path / "w"), str(other), says)
        assert other.read_bytes() == content
    assert not (tmp_path / "w").exists()


def test_a_database_of_something_else_is_named(tmp_path):
    """A database without LangGraph's tables, or with others of their name, is an error."""
    path = tmp_path / "foreign.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
        failed(nanomem(path, "--workspace", tmp_path / "w"), "no table 'checkpoints'")
        connection.execute("CREATE TABLE checkpoints (thread_id TEXT)")
        failed(nanomem(path, "--workspace", tmp_path / "w"), "no column 'checkpoint'")


def test_a_database_without_threads_is_named(tmp_path):
    """Where there is nothing to import, the command says so and fails."""
    path = tmp_path / "empty.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        saver.setup()
    failed(nanomem(path, "--workspace", tmp_path / "w"), "no threads in it")


def test_a_locked_database_is_named(source, tmp_path):
    """While another program holds the file for itself, the command says so and can be run again."""
    with contextlib.closing(sqlite3.connect(source)) as connection:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        failed(nanomem(source, "--workspace", tmp_path / "w"), "locked", "another program")
    assert nanomem(source, "--workspace", tmp_path / "w").returncode == 0


def test_a_damaged_database_is_named(source, tmp_path):
    """A file whose pages are destroyed is an error, and what is good is there."""
    content = bytearray(source.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    source.write_bytes(content)
    failed(nanomem(source, "--workspace", tmp_path / "w"), "malformed")


def test_a_read_only_place_is_read(source, tmp_path):
    """Where no file can be made beside the database, or it was copied by VACUUM, it is read too."""
    source.with_name(f"{source.name}-shm").mkdir()
    assert nanomem(source, "--workspace", tmp_path / "w").returncode == 0
    source.with_name(f"{source.name}-shm").rmdir()
    copied = tmp_path / "copied.sqlite"
    with contextlib.closing(sqlite3.connect(source)) as connection:
        connection.execute("VACUUM INTO ?", [str(copied)])
        connection.execute("ALTER TABLE writes DROP COLUMN task_path")  # as older versions had it
    for path in (copied, source):
        done = nanomem(path, "--workspace", tmp_path / "w")
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
    done = nanomem(url, "--workspace", tmp_path)
    assert "s3cret" not in done.stdout + done.stderr
    if "pip install" in says and "cannot be read: connection" in done.stderr:
        says = "cannot be read"  # the package is there
    failed(done, says)
