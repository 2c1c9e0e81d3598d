"""Memory in a PostgreSQL that breaks: what is acknowledged is there once, and errors are clear."""

from __future__ import annotations

import threading

import pytest
from cut_off import Way
from scripted import ScriptedChatModel, consolidator_of, save_memory, session_of

from langchain_nanomem import MemoryStore, Nanomem, PostgresJournal, SessionManager
from langchain_nanomem.errors import DatabaseError

COMMIT = b"\0COMMIT\0"
SECRET = "s3cret"


@pytest.fixture
def store(way, schema):
    with PostgresJournal(way.url, schema=schema, timeout_seconds=20) as journal:
        store = MemoryStore(journal)
        store.write_long_term("base")
        yield store


@pytest.fixture
def sound(databases, schema):
    """The same memory, which nothing breaks."""
    with PostgresJournal(databases.url, schema=schema) as journal:
        yield MemoryStore(journal)


def texts(store):
    return [entry.text for entry in store.history_entries()]


# --- lost connections -------------------------------------------------------


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_a_change_whose_answer_is_lost_is_made_once(store, sound, way, when, times):
    """The connection breaks as COMMIT was sent, or had been done: one entry, one version."""
    version = store.read_version().version
    way.break_at(COMMIT, when=when, times=times)
    store.append_history("entry", entry_id="e")
    way.break_at(COMMIT, when=when, times=times)
    assert store.replace_long_term("one", expected_version=version, change_id="c")
    way.break_at(COMMIT, when=when, times=times)
    store.write_long_term("two")
    way.break_at(COMMIT, when=when, times=times)
    assert store.replace_long_term("three", expected_version=store.read_version().version)
    assert way.cuts >= 4
    assert texts(sound) == ["entry"]
    assert sound.read_long_term() == "three"
    assert [one.read_text() for one in sound.versions()] == ["two", "one", "base"]
    assert sound.has_change("c")


@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_a_removal_whose_answer_is_lost_is_done(store, sound, way, when):
    """Versions that are pruned, entries that are forgotten, all that is erased."""
    store.write_long_term("new")
    for number in range(3):
        store.append_history(f"entry {number}", source=f"s{number} 0-1")
    way.break_at(COMMIT, when=when)
    store.prune_versions(keep=0)
    assert sound.versions() == []
    way.break_at(COMMIT, when=when)
    store.forget_session("s1")
    assert texts(sound) == ["entry 0", "entry 2"]
    way.break_at(COMMIT, when=when)
    store.erase()
    assert way.cuts == 3
    assert (texts(sound), sound.read_version().version) == ([], "")


def test_another_change_is_not_taken_for_ones_own(store, sound, way):
    """The answer is lost and nothing was done; another is faster: the change is refused."""
    version = store.read_version().version
    way.break_at(COMMIT, when="before")
    taken = threading.Event()
    real = store.backend.journal.database.persist

    def persist(work):
        def retried():
            if way.cuts and not taken.is_set():
                taken.set()
                sound.write_long_term("another's")
            return work()

        return real(retried)

    store.backend.journal.database.persist = persist
    assert not store.replace_long_term("mine", expected_version=version)
    assert taken.is_set()
    assert sound.read_long_term() == "another's"


WRITES = {
    "the answer": (b".chunks (journal", 0),
    "the entry": (b".log_entries (scope", 0),
    "the facts": (b".memory_versions (scope", 0),
    "the pointer": (b".chunks (journal", 1),
}


@pytest.mark.parametrize("when", ["before", "while", "after"])
@pytest.mark.parametrize("write", WRITES)
def test_a_consolidation_is_carried_out_once(databases, schema, way, when, write):
    """Whichever of its writes breaks: one entry, one version, the pointer moved."""
    with PostgresJournal(way.url, schema=schema, timeout_seconds=20) as journal:
        model = ScriptedChatModel(replies=[save_memory("once", "- a fact")])
        consolidator = consolidator_of(None, journal=journal, model=model)
        session = session_of(consolidator, "UAU")
        consolidator.sessions.save(session)
        word, skipped = WRITES[write]
        way.break_at(word, when=when, skipped=skipped)
        (done,) = consolidator.compact(session)
        assert (done.start, done.end, session.last_consolidated) == (0, 2, 2)
    assert (way.cuts, model.calls) == (1, 1)
    with PostgresJournal(databases.url, schema=schema) as journal:
        store = MemoryStore(journal)
        assert (texts(store), store.read_long_term()) == (["once"], "- a fact")
        assert [one.change_id for one in store.versions()] == [done.id]
        assert SessionManager(journal).get_or_create(session.key).last_consolidated == 2


# --- others at the same time ------------------------------------------------


class Watched(MemoryStore):
    """A memory before which something happens to what is done at one moment."""

    happens = staticmethod(lambda _: None)

    def append_history(self, *args, **options):
        self.happens("append_history")
        return super().append_history(*args, **options)

    def has_change(self, change_id):
        self.happens("has_change")
        return super().has_change(change_id)

    def replace_long_term(self, *args, **options):
        self.happens("replace_long_term")
        return super().replace_long_term(*args, **options)


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("moment", ["append_history", "has_change", "replace_long_term"])
def test_what_is_erased_while_it_is_consolidated_stays_so(databases, schema, way, moment, is_cut):
    """Another worker erases the user between two steps; or as the connection has broken."""
    erasing = []

    def erase():
        with Nanomem(databases.url, schema=schema, scope="user") as other:
            other.erase(user_id="ada")

    def happens(at):
        if at == moment and not erasing:
            if is_cut:
                way.break_all()
            erasing.append(threading.Thread(target=erase))
            erasing[0].start()
            erasing[0].join(20 if is_cut else 0.5)  # else it waits for the session, or has passed

    with PostgresJournal(way.url, schema=schema, timeout_seconds=10) as journal:
        model = ScriptedChatModel(replies=[save_memory("of ada", "- ada's fact")])
        consolidator = consolidator_of(None, journal=journal, model=model)
        session = session_of(consolidator, "UAU")
        consolidator.sessions.save(session)
        consolidator.sessions.bind_scope(session.key, ("user", "ada"))
        store = consolidator.memory = Watched(journal, ("user", "ada"))
        store.happens = happens
        consolidator.compact(session)
        erasing[0].join()
        assert (texts(store), store.read_long_term(), store.versions()) == ([], "", [])
        assert consolidator.sessions.list_sessions() == []


def test_one_connection_is_enough(databases, schema):
    """A thread takes one at most, whatever it does: so a small pool can't lock itself up."""
    journal = PostgresJournal(databases.url, schema=schema, max_connections=1, timeout_seconds=5)
    with journal:
        consolidators = [
            consolidator_of(
                None,
                journal=journal,
                model=ScriptedChatModel(replies=[save_memory(f"entry {n}", f"- fact {n}")]),
            )
            for n in range(6)
        ]
        sessions = [session_of(c, "UAU", key=f"c:{n}") for n, c in enumerate(consolidators)]
        threads = [
            threading.Thread(target=c.compact, args=(session,))
            for c, session in zip(consolidators, sessions, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(texts(MemoryStore(journal))) == [f"entry {n}" for n in range(6)]
        assert [session.last_consolidated for session in sessions] == [2] * 6


# --- clear errors -----------------------------------------------------------


def test_a_lock_that_another_holds_is_waited_for_so_long(databases, schema, sound):
    """The error says that another holds it; nothing was written."""
    sound.write_long_term("base")
    number = sound.backend.journal.schema.lock_number("+memory+")
    with PostgresJournal(databases.url, schema=schema, timeout_seconds=1) as journal:
        store = MemoryStore(journal)
        with databases.pool.connection() as holder:
            holder.execute("SELECT pg_advisory_xact_lock(%s)", (number,))
            with pytest.raises(DatabaseError, match="another holds"):
                store.write_long_term("new")
            assert store.read_long_term() == "base"
    assert sound.read_long_term() == "base"


def test_a_server_that_is_out_of_reach_is_told(databases, schema, caplog):
    """The error says where, and shows no password; prompts go without the memory."""
    way = Way(databases.url)
    url = way.url.replace("@127", f":{SECRET}@127") if f":{SECRET}@" not in way.url else way.url
    way.close()
    with PostgresJournal(url, schema=schema, timeout_seconds=0.5) as journal:
        memory = Nanomem(journal)
        for use in (
            memory.memory.read_long_term,
            lambda: memory.memory.write_long_term("x"),
            lambda: memory.memory.append_history("x"),
            lambda: memory.memory.search_history("x"),
            lambda: memory.erase(session_id="s"),
        ):
            with pytest.raises(DatabaseError, match=r"database .* at 127.0.0.1") as raised:
                use()
            assert SECRET not in str(raised.value)
        assert memory.consolidator.memory_block(()) == ""
        assert "left out of the prompt" in caplog.text
        assert SECRET not in caplog.text + repr(memory) + repr(memory.memory)
