"""Memories in any LangGraph store: what the memory promises, and what a store allows."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from base_stores import (
    STORES,
    InterruptedStore,
    StingyStore,
    close_store,
    open_store,
    postgres_store,
)
from hypothesis import given
from hypothesis import strategies as st
from langgraph.graph import START, StateGraph
from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore
from scripted import FREE, LONG, ScriptedChatModel, save_memory

from langchain_nanomem import MemoryState, Nanomem, Retention
from langchain_nanomem.errors import CorruptRecordError, DatabaseError
from langchain_nanomem.memory import MemoryStore
from langchain_nanomem.scope_files import DirectoryMemory
from langchain_nanomem.store_facts import Facts, StoreFacts
from langchain_nanomem.store_memory import BaseStoreBackend

NOON = datetime(2026, 5, 8, 12, 0, tzinfo=UTC)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.fixture(params=STORES)
def base_store(request, tmp_path):
    """A store of each kind."""
    store = open_store(request.param, tmp_path, lambda: request.getfixturevalue("databases"))
    yield store
    close_store(store)


@pytest.fixture(params=["files", *STORES])
def backend(request, tmp_path):
    """The files, and a store of each kind, which are to do the same."""
    if request.param == "files":
        yield DirectoryMemory(tmp_path)
        return
    store = open_store(request.param, tmp_path, lambda: request.getfixturevalue("databases"))
    yield BaseStoreBackend(store, tmp_path)
    close_store(store)


@pytest.fixture
def memory(backend):
    return MemoryStore(backend, ("user", "Ada.L"))


@pytest.fixture
def interrupted(tmp_path):
    """A store in which something happens in between, and two programs that use it."""
    store = InterruptedStore()
    mine, other = (MemoryStore(BaseStoreBackend(store, tmp_path)) for _ in range(2))
    return store, mine, other


def change(memory, text, change_id=None):
    version = memory.read_version().version
    return memory.replace_long_term(text, expected_version=version, change_id=change_id)


def edit(memory, change):
    """Change the facts as they are now; whether it worked."""
    now = memory.read_version()
    return memory.replace_long_term(change(now.text), expected_version=now.version)


def kept(memory):
    return [version.read_text() for version in memory.versions()]


def facts(memory):
    """What the lines of the facts say; each is there once."""
    lines = memory.read_long_term().splitlines()
    assert len(set(lines)) == len(lines)
    return {line.removeprefix("- ") for line in lines}


def texts(memory):
    return [entry.text for entry in memory.history_entries()]


# As with files


def test_nothing_is_there_before_the_first_write(memory, backend):
    """Reading finds nothing, of nobody."""
    assert (memory.read_long_term(), memory.read_version().version) == ("", "")
    assert (memory.versions(), memory.history_entries(), memory.get_memory_context()) == (
        [],
        [],
        "",
    )
    assert not memory.has_change("c")
    assert memory.search_history("anything") == []
    assert not any(one.has_facts() for one in backend.all())


def test_facts_and_their_versions(memory):
    """What was written is read; what it replaced is kept, newest first; the same makes none."""
    for text in ("one", "two", "two", "", "four"):
        memory.write_long_term(text)
    assert memory.read_long_term() == "four"
    assert kept(memory) == ["", "two", "one"]
    memory.restore_long_term(memory.versions()[1].version)
    assert memory.read_long_term() == "two"
    assert kept(memory)[0] == "four"


def test_only_the_expected_version_is_replaced(memory):
    """Else nothing is written; an empty text is another version than none."""
    assert not memory.replace_long_term("new", expected_version="0" * 32)
    assert memory.replace_long_term("", expected_version="")
    assert not memory.replace_long_term("new", expected_version="")
    assert change(memory, "new")
    assert (memory.read_long_term(), kept(memory)) == ("new", [""])


@pytest.mark.parametrize("change_id", ["c-1", "cli:User 0-24", "x" * 5_000, "é", "..", "+"])
@pytest.mark.parametrize("base", [None, "base", "same"])
def test_a_change_is_made_once(memory, backend, base, change_id):
    """It is known by its id from then on, and makes no difference a second time."""
    if base is not None:
        memory.write_long_term(base)
    assert not memory.has_change(change_id)
    assert change(memory, "same", change_id)
    memory.write_long_term("later")
    again = MemoryStore(backend, memory.scope)
    assert again.has_change(change_id)
    assert change(again, "again", change_id)
    assert not again.has_change(f"{change_id}-b")
    assert (again.read_long_term(), kept(again)) == ("later", ["same", base or ""])


def test_versions_are_pruned(memory):
    """The oldest go; what an unfinished change of today is known by stays, and so do the facts."""
    for number in range(4):
        memory.write_long_term(f"text {number}")
    assert len(memory.prune_versions(keep=2)) == 1
    assert kept(memory) == ["text 2", "text 1"]
    change(memory, "by a change", "c")
    memory.write_long_term("last")
    memory.prune_versions(older_than=datetime.now(UTC) + timedelta(minutes=1))
    assert len(kept(memory)) == 1
    assert memory.has_change("c")
    assert memory.read_long_term() == "last"


def test_log_entries_are_there_once(memory, backend):
    """For an id once, in the order in which they came, as they were given."""
    for number in (3, 1, 2, 1, 3):
        memory.append_history(f"entry {number}", at=NOON, entry_id=f"id {number}", source="s 0-1")
    assert texts(memory) == ["entry 3", "entry 1", "entry 2"]
    entry = MemoryStore(backend, memory.scope).history_entries()[0]
    assert (entry.at, entry.entry_id, entry.source) == (NOON, "id 3", "s 0-1")
    assert memory.has_history_entry("id 1")
    assert not memory.has_history_entry("id")


def test_the_search_knows_what_was_logged_before_it(memory):
    """Each entry is found from then on, and none that was taken out."""
    memory.append_history("the garden gate", source="one 0-1")
    assert [hit.text for hit in memory.search_history("gates")] == ["the garden gate"]
    memory.append_history("another gate", source="two 0-1")
    assert len(memory.search_history("gate")) == 2
    assert memory.forget_session("one") == 1
    assert [hit.text for hit in memory.search_history("gate")] == ["another gate"]


def test_scopes_never_share_anything(backend):
    """Whatever their names look like as labels, prefixes and patterns."""
    scopes = [
        (),
        ("a",),
        ("a", "b"),
        ("a+b",),
        ("a.b",),
        ("a!b",),
        ("A",),
        ("%",),
        ("_",),
        ("a%b",),
    ]
    scopes += [("x" * 300,), ("facts",), ("+",), ("nanomem",), ("*",), ("axb",), ("langgraph",)]
    for scope in scopes:
        MemoryStore(backend, scope).write_long_term(f"of {scope}")
        MemoryStore(backend, scope).append_history(f"of {scope}")
    for scope in scopes:
        memory = MemoryStore(backend, scope)
        assert (memory.read_long_term(), texts(memory)) == (f"of {scope}", [f"of {scope}"])
    assert {one.name for one in backend.all()} == {backend.of(scope).name for scope in scopes}
    MemoryStore(backend, ("a",)).erase()
    assert [backend.of(scope).has_facts() for scope in scopes].count(False) == 1


def test_erased_is_all_of_a_scope(memory, backend):
    """Facts, versions and log, and the search finds nothing of them."""
    for text in ("one", "two"):
        memory.write_long_term(text)
        memory.append_history(text)
    assert memory.search_history("one")
    memory.erase()
    assert (memory.read_long_term(), kept(memory), texts(memory)) == ("", [], [])
    assert memory.search_history("one") == []
    assert backend.holding({b"one", b"two"}, noting=contextlib.nullcontext) == []


def test_threads_change_one_after_the_other(backend):
    """Each of them makes its change from what the facts are, and nothing is lost."""
    memory = MemoryStore(backend)

    def add(number):
        memory.append_history(f"entry {number}")
        while not edit(memory, lambda text: f"{text}- fact {number}\n"):
            pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(24)))
    assert facts(memory) == {f"fact {number}" for number in range(24)}
    assert len(set(texts(memory))) == 24


# Between programs


def test_edits_of_the_same_moment_are_both_in_the_facts(interrupted):
    """Both are told that it worked; everybody reads the same, and the next change has both."""
    store, mine, other = interrupted
    mine.write_long_term("- one\n- two\n- three\n")
    store.before_write(1, lambda: edit(other, lambda text: text.replace("two", "2") + "- four\n"))
    assert edit(mine, lambda text: text.replace("- one\n", "").replace("three", "3"))
    for memory in (mine, other):
        assert facts(memory) == {"2", "3", "four"}
    assert mine.read_version() == other.read_version()
    assert edit(other, lambda text: text + "- five\n")
    assert sorted(mine.read_long_term().split()) == sorted(
        ["-", "2", "-", "3", "-", "four", "-", "five"]
    )
    assert kept(mine)[-1] == "- one\n- two\n- three\n"


def test_a_change_that_comes_late_is_merged_into_what_is_newer(interrupted):
    """What others changed since the version that it was made from stays changed."""
    store, mine, other = interrupted
    mine.write_long_term("- one\n- two\n")

    def meanwhile():
        for word in ("uno", "ein", "un"):
            edit(other, lambda text, word=word: text.splitlines()[-1] + f"\n- {word}\n- two\n")

    store.before_write(1, meanwhile)
    assert edit(mine, lambda text: text + "- mine\n")
    assert mine.read_long_term() == "- two\n- mine\n- un\n- two\n"


def test_a_change_that_saw_half_of_what_others_did(interrupted):
    """What it has not seen is no line that it took out: nothing is lost, and nothing comes back."""
    store, mine, other = interrupted
    mine.write_long_term("- one\n- out\n")

    def meanwhile():
        store.before_write(1, lambda: edit(other, lambda text: f"{text}- b\n"))
        edit(mine, lambda text: text.replace("- out\n", "- a\n"))
        edit(other, lambda text: f"{text}- c\n")
        edit(other, lambda text: text.replace("- b\n", "- d\n"))

    store.before_write(1, meanwhile)
    edit(mine, lambda text: f"{text}- e\n")
    assert sorted(mine.read_long_term().split()) == sorted(
        ["-", "one", "-", "a", "-", "c", "-", "d", "-", "e"]
    )


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=24))
def test_whatever_programs_do_at_once_nothing_is_lost(steps):
    """Each reads, and writes later from what it read: what was put in is in, or was taken out."""
    store = StoreFacts(InMemoryStore(), ("nanomem",))
    store.replace(store.read(), "- first\n", None)
    seen: dict[int, Facts] = {}
    put_in, taken_out = {"- first"}, set()
    for number, (program, place) in enumerate(steps):
        if program not in seen:
            seen[program] = store.read()
            continue
        before = seen.pop(program)
        lines = before.text.splitlines()
        taken_out.update(lines[place : place + 1])
        lines[place : place + 1] = [f"- line {number}"]
        put_in.add(f"- line {number}")
        store.replace(before, "\n".join(lines) + "\n", None)
    assert set(store.read().text.splitlines()) == put_in - taken_out


def test_a_change_of_one_cause_is_one_whoever_makes_it(interrupted):
    """Two programs finish the same consolidation at the same moment: it is there once."""
    store, mine, other = interrupted
    mine.write_long_term("- one\n")
    store.before_write(1, lambda: change(other, "- one\n- two\n", "c"))
    assert change(mine, "- one\n- two\n", "c")
    assert mine.read_long_term() == "- one\n- two\n"
    assert kept(mine) == ["- one\n"]


def test_an_entry_that_two_programs_append_is_there_once(interrupted):
    """Its id is its key."""
    store, mine, other = interrupted
    store.before_write(1, lambda: other.append_history("entry", entry_id="e"))
    mine.append_history("entry", entry_id="e")
    assert texts(mine) == ["entry"]


class _CrashError(BaseException):
    """What no code catches."""


@pytest.mark.parametrize("step", range(1, 4))
def test_a_crash_at_any_step(interrupted, step):
    """The change is made or not, `has_change` tells which, and the next one completes it."""
    store, mine, other = interrupted
    for text in ("- one\n", "- one\n- two\n"):
        mine.write_long_term(text)

    def crash():
        raise _CrashError

    store.before_write(step, crash)
    with pytest.raises(_CrashError):
        change(mine, "- made\n", "c")
    is_made = step > 1
    assert other.has_change("c") is is_made
    assert other.read_long_term() == ("- made\n" if is_made else "- one\n- two\n")
    assert change(other, "- made\n", "c")
    assert edit(other, lambda text: text + "- more\n")
    assert other.read_long_term() == "- made\n- more\n"
    assert kept(other) == ["- made\n", "- one\n- two\n", "- one\n"]
    assert other.has_change("c")


def test_an_append_that_crashed_is_completed(interrupted):
    """Also for the search, which looks at the log only when it is told that it changed."""
    store, mine, other = interrupted
    mine.append_history("the first gate")
    assert len(mine.search_history("gate")) == 1

    def crash():
        raise _CrashError

    store.before_write(2, crash)
    with pytest.raises(_CrashError):
        mine.append_history("the second gate", entry_id="e")
    other.append_history("the second gate", entry_id="e")
    assert len(mine.search_history("gate")) == 2
    assert texts(mine) == ["the first gate", "the second gate"]


def test_what_is_pruned_is_in_no_item(interrupted):
    """An edit that was made from it at the same moment is merged all the same."""
    store, mine, other = interrupted
    mine.write_long_term("- old text\n- stays\n")
    mine.write_long_term("- stays\n- goes\n")
    store.before_write(1, lambda: edit(other, lambda text: f"{text}- comes\n"))
    edit(mine, lambda text: f"{text}- mine\n")
    mine.prune_versions(keep=0)
    assert sorted(mine.read_long_term().split()) == sorted(
        ["-", "stays", "-", "goes", "-", "comes", "-", "mine"]
    )
    assert mine.backend.holding({b"old text"}, contextlib.nullcontext) == []


def test_programs_on_one_server_lose_nothing(request, tmp_path, databases):
    """Four of them add facts and entries as fast as they can, each on a connection of its own."""
    schema = databases.schema()
    databases.ask(f"CREATE SCHEMA {schema}")
    stores = [postgres_store(databases.url, schema) for _ in range(4)]
    stores[0].setup()
    begun = threading.Barrier(4)

    def work(number):
        memory = MemoryStore(BaseStoreBackend(stores[number], tmp_path))
        begun.wait()
        for turn in range(12):
            memory.append_history(f"entry {turn}", entry_id=f"id {turn}")
            fact = f"- fact {number}.{turn}\n"
            while not edit(memory, lambda text, fact=fact: text + fact):
                pass

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    memory = MemoryStore(BaseStoreBackend(stores[0], tmp_path))
    assert facts(memory) == {f"fact {one}.{turn}" for one in range(4) for turn in range(12)}
    assert sorted(texts(memory)) == sorted(f"entry {turn}" for turn in range(12))
    for store in stores:
        close_store(store)


# Of stores


@given(ANY_TEXT.filter(str.strip), ANY_TEXT.filter(str.strip))
def test_any_text_comes_back(text, entry_id):
    """Whatever is in it, also what JSON in a database can't hold."""
    memory = MemoryStore(BaseStoreBackend(InMemoryStore(), "absent"))
    memory.write_long_term("before" + text)
    memory.write_long_term(text)
    assert memory.read_long_term() == text
    assert kept(memory) == ["before" + text]
    memory.append_history("x" + text, entry_id=entry_id)
    assert memory.has_history_entry(entry_id)
    assert memory.history_entries()[0].entry_id == entry_id


def test_odd_text_comes_back_from_any_store(base_store, tmp_path):
    """NUL, what looks like escapes, characters of all planes, line ends."""
    odd = '\0 \\u0000 \\ " \u2028 \U0001f600 \r\n \x7f \ufeff'
    memory = MemoryStore(BaseStoreBackend(base_store, tmp_path), (odd,))
    memory.write_long_term("first" + odd)
    memory.write_long_term(odd)
    memory.append_history("text", entry_id=odd, source=odd)
    assert (memory.read_long_term(), kept(memory)) == (odd, ["first" + odd])
    entry = memory.history_entries()[0]
    assert (entry.entry_id, entry.source) == (odd, odd)


def test_a_store_that_gives_little_at_once_is_read_to_the_end(tmp_path):
    """However many entries there are."""
    memory = MemoryStore(BaseStoreBackend(StingyStore(), tmp_path))
    for number in range(320):
        memory.append_history(f"entry {number}")
    assert texts(memory) == [f"entry {number}" for number in range(320)]


class _ExpiringStore(InMemoryStore):
    """A store whose items expire unless that is asked for otherwise."""

    supports_ttl = True
    ttl_config = {"default_ttl": 1}  # noqa: RUF012 - as in LangGraph

    def batch(self, ops):
        ops = list(ops)
        assert all(op.ttl is None for op in ops if isinstance(op, PutOp))
        return super().batch(ops)


def test_what_is_removed_while_it_is_read_hides_nothing(tmp_path):
    """Pages are counted from the start, and begin elsewhere when something goes."""
    store = StingyStore()
    reader, other = (MemoryStore(BaseStoreBackend(store, tmp_path)) for _ in range(2))
    for number in range(250):
        reader.append_history(f"entry {number}", source=f"{number % 2} 0-1")
    store.before_search(2, lambda: other.forget_session("1"))
    assert texts(reader) == [f"entry {number}" for number in range(0, 250, 2)]


def test_what_it_says_of_itself(tmp_path):
    """Where it is, for people; a version that was pruned meanwhile is a file that is not there."""
    backend = BaseStoreBackend(InMemoryStore(), tmp_path)
    memory = MemoryStore(backend)
    assert repr(backend) == f"BaseStoreBackend(InMemoryStore, DirectoryMemory({str(tmp_path)!r}))"
    assert memory.workspace == tmp_path
    with pytest.raises(AttributeError, match="no path"):
        memory.memory_path  # noqa: B018 - it raises
    for text in ("one", "two"):
        memory.write_long_term(text)
    (version,) = memory.versions()
    memory.prune_versions(keep=0)
    with pytest.raises(FileNotFoundError, match="InMemoryStore, nanomem/\\+/versions/"):
        version.read_text()


def test_nothing_expires_and_nothing_is_embedded(tmp_path):
    """Whatever the store does with other items by default."""
    embedded = []

    def embed(given):
        embedded.extend(given)
        return [[0.0] for _ in given]

    memory = MemoryStore(
        BaseStoreBackend(_ExpiringStore(index={"dims": 1, "embed": embed}), tmp_path)
    )
    memory.write_long_term("text")
    memory.append_history("text")
    assert embedded == []


@pytest.mark.parametrize("base_store", ["sqlite", "postgres"], indirect=True)
def test_a_store_that_fails_is_a_database_error(base_store, tmp_path):
    """It says which store, what for, and whether something may be written; facts stay unknown."""
    memory = MemoryStore(BaseStoreBackend(base_store, tmp_path))
    close_store(base_store)
    with pytest.raises(DatabaseError, match=r"nanomem/\+/facts: could not be read") as failed:
        memory.read_long_term()
    assert not failed.value.may_be_written
    with pytest.raises(OSError, match=r"could not be (read|written)"):
        memory.append_history("text")


def test_what_others_put_there_is_no_memory(tmp_path):
    """It is named, and never taken for an empty memory."""
    store = InMemoryStore()
    memory = MemoryStore(BaseStoreBackend(store, tmp_path))
    store.put(("nanomem", "+", "facts"), "strange", {"some": "thing"})
    store.put(("nanomem", "+", "log"), "strange", {"some": "thing"})
    memory.append_history("entry", source="one 0-1")
    with pytest.raises(CorruptRecordError, match="facts"):
        memory.read_long_term()
    with pytest.raises(CorruptRecordError, match="strange"):
        memory.history_entries()
    assert memory.forget_session("one") == 1
    assert memory.backend.of(()).has_facts()


def test_a_namespace_of_ones_own(tmp_path):
    """Two memories in one store, and one that the store would refuse."""
    store = InMemoryStore()
    one = MemoryStore(BaseStoreBackend(store, tmp_path))
    two = MemoryStore(BaseStoreBackend(store, tmp_path, namespace=("nanomem", "+", "two")))
    one.write_long_term("one")
    two.write_long_term("two")
    assert (one.read_long_term(), two.read_long_term()) == ("one", "two")
    one.erase()
    assert two.read_long_term() == "two"
    for wrong in ((), ("langgraph", "a"), ("a.b",), ("",)):
        with pytest.raises(ValueError, match=r"[Nn]amespace"):
            BaseStoreBackend(store, tmp_path, namespace=wrong)


# With all the rest


@pytest.fixture
def chat():
    return ScriptedChatModel(replies=[f"a{number}{LONG}" for number in range(9)])


def wired(path, store):
    """A workspace whose memory is in a store, with a model that consolidates."""
    model = ScriptedChatModel(replies=[save_memory(f"entry {n}", f"- fact {n}") for n in range(9)])
    return Nanomem(path, model=model, base_store=store, context_window_tokens=400, **FREE)


async def test_a_conversation_is_consolidated_into_the_store(call, base_store, tmp_path, chat):
    """And shown, searched, kept by a retention and erased, as with files; no file has any of it."""
    memory = wired(tmp_path, base_store)
    builder = StateGraph(MemoryState).add_node("model", memory.node(chat))
    graph = builder.add_edge(START, "model").compile(checkpointer=memory.checkpointer)
    for number in range(4):
        given = {"messages": [("user", f"question {number}{LONG}")]}
        await call(graph, "invoke", given, {"configurable": {"thread_id": "t"}})
    assert texts(memory.memory)[0] == "entry 0"
    assert memory.memory.read_long_term().startswith("- fact")
    assert "- fact" in str(chat.prompts[-1][0].content)
    assert {hit.kind for hit in memory.memory.search_history("entry question")} == {
        "said",
        "logged",
    }
    assert memory.apply_retention(Retention(max_versions=0)).skipped_memories == []
    assert list(tmp_path.rglob("*.md")) == []
    done = memory.erase(session_id="t")
    assert done.log_entries > 0
    assert not texts(memory.memory)
    memory.memory_for(("user", "ada")).write_long_term("- hers\n")
    assert memory.erase(scope=("user", "ada")).rows == 1


async def test_async_methods_leave_the_loop_free(tmp_path, databases, chat):
    """An asynchronous store, which refuses the loop's own thread, works as a memory there."""
    from langgraph.store.postgres import AsyncPostgresStore  # noqa: PLC0415 - one test's

    schema = databases.schema()
    databases.ask(f"CREATE SCHEMA {schema}")
    url = f"{databases.url}{'&' if '?' in databases.url else '?'}options=-csearch_path%3D{schema}"
    async with AsyncPostgresStore.from_conn_string(url) as store:
        await store.setup()
        memory = wired(tmp_path, store)
        session = memory.sessions.get_or_create("s")
        for number in range(4):
            session.add_message("user", f"question {number}{LONG}")
            session.add_message("assistant", f"answer{LONG}")
        await asyncio.to_thread(memory.sessions.save, session)
        await memory.consolidator.acompact(session)
        assert await asyncio.to_thread(memory.memory.read_long_term) == "- fact 2"
        with pytest.raises(DatabaseError):
            memory.memory.read_long_term()
