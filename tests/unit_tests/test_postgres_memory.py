"""Memory as rows of a PostgreSQL database: what only it has. See also test_memory."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from psycopg_pool import ConnectionPool

from langchain_nanomem import CorruptRecordError, MemoryStore, Nanomem, PostgresJournal

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.fixture(scope="module")
def journal(databases):
    with PostgresJournal(databases.pool, schema=databases.schema()) as journal:
        yield journal
        databases.drop()


@pytest.fixture
def store(journal, request):
    """A memory that no other test has."""
    return MemoryStore(journal, (request.node.name,))


def test_it_has_places_and_no_paths(journal):
    """What asks for a path is told where the memory is; so are people."""
    store = MemoryStore(journal, ("user", "42"))
    store.write_long_term("one")
    store.write_long_term("two")
    (kept,) = store.versions()
    assert "memory of 'user+42'" in store.place
    assert kept.place.startswith(store.place)
    for owner, name in ((store, "memory_path"), (store, "history_path"), (kept, "path")):
        with pytest.raises(AttributeError, match=re.escape(store.place)):
            getattr(owner, name)
    with pytest.raises(AttributeError, match="is no directory"):
        _ = store.workspace
    store.prune_versions(keep=0)
    with pytest.raises(FileNotFoundError, match="not there any more"):
        kept.read_text()


@given(ANY_TEXT, ANY_TEXT.filter(str.strip), st.none() | ANY_TEXT)
@settings(deadline=None, max_examples=40)
def test_any_text_comes_back(journal, text, entry_id, source):
    """Facts, entry, id and source, whatever characters they have; nothing else is an entry."""
    store = MemoryStore(journal, ("any",))
    store.erase()
    store.write_long_term(text)
    assert store.read_long_term() == text
    at = datetime(1, 1, 1, tzinfo=UTC)
    store.append_history(f"x{text}", at=at, entry_id=entry_id, source=source)
    (entry,) = store.history_entries()
    told = (entry.at, entry.entry_id, entry.source, entry.line_number)
    assert told == (at, entry_id, source, 1)
    assert store.has_history_entry(entry_id)


def test_facts_that_are_no_text_are_told_and_can_be_replaced(databases, journal, store):
    """Someone wrote them by hand: nothing is overwritten, and a version brings them back."""
    store.write_long_term("good")
    store.write_long_term("newer")
    (kept,) = store.versions()
    databases.ask(
        f"UPDATE {journal.schema.name}.memories SET facts = %s WHERE facts = %s", b"\xff", b"newer"
    )
    for use in (store.read_long_term, lambda: store.write_long_term("x")):
        with pytest.raises(CorruptRecordError, match=r"facts, line 1.*restore_long_term"):
            use()
    store.restore_long_term(kept.version)
    assert store.read_long_term() == "good"


def test_erasing_removes_every_row(journal, store):
    """Facts, versions, log: none is left, and the rows are counted before."""
    store.write_long_term("one")
    store.write_long_term("two")
    store.append_history("entry")
    rows = journal.schema.statement("SELECT count(*) FROM {s}.memories")
    kept = store.backend.of(store.scope)
    assert kept.rows() == 3
    before = journal.database.ask((rows, ()))
    assert store.erase() == []
    assert kept.rows() == 0
    assert journal.database.ask((rows, ())) != before
    assert kept.name not in [one.name for one in store.backend.all()]


def test_what_others_still_have_is_named(databases):
    """After an erasure it is looked for in all tables: sessions, facts, versions, logs."""
    said = "the secret garden has a gate of iron and roses"
    with Nanomem(databases.url, schema=databases.schema(), scope="user") as memory:
        store = memory.memory_for(("user", "bob"))
        for text in (said, f"- {said}", "- nothing"):
            store.write_long_term(text)
        store.append_history(said)
        for key in ("gone", "other"):
            memory.history(key).add_messages([HumanMessage(said)])
        remains = memory.erase(session_id="gone").remains
    told = [place.partition(": ")[2] for place in remains]
    assert told == ["session 'other'", "version of 'user+bob'", "log of 'user+bob'"]


def test_nothing_is_rolled(journal, store):
    """A log of rows is not read whole where it is long: all of it stays where it is."""
    store.append_history("old", at=datetime(2020, 1, 1, tzinfo=UTC))
    assert store.roll_history(2026) == 0
    assert [entry.text for entry in store.history_entries()] == ["old"]


def test_nanomem_takes_a_url_a_journal_or_a_pool(databases):
    """One memory, whichever way; what is given open stays open, and what it opened is closed."""
    schema = databases.schema()
    with Nanomem(databases.url, schema=schema) as memory:
        memory.memory.write_long_term("- a fact")
        opened = memory.sessions.journal.database
        assert opened._pool is not None
    assert opened._pool is None
    with ConnectionPool(databases.url, min_size=1, max_size=2) as pool:
        with Nanomem(pool, schema=schema) as memory:
            assert memory.memory.read_long_term() == "- a fact"
        with PostgresJournal(pool, schema=schema) as journal, Nanomem(journal) as memory:
            assert memory.memory.read_long_term() == "- a fact"
            with pytest.raises(ValueError, match="schema is for a database"):
                Nanomem(journal, schema=schema)
        with pool.connection() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_no_secret_is_shown():
    """Neither by what it is called nor by an address that can't be read."""
    memory = Nanomem("postgresql://bot:s3cret@localhost:1/db", schema="bot")
    assert "s3cret" not in repr(memory) + repr(memory.memory) + memory.memory.place
    with pytest.raises(ValueError, match="cannot be read") as raised:
        Nanomem("postgresql://bot:s3/cret@localhost/db")
    assert "cret" not in str(raised.value)
