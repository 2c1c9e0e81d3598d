"""MEMORY.md and the log as a LangGraph store: one line is one item, and no scope is another's."""

from __future__ import annotations

import asyncio
import threading
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedStore
from langgraph.runtime import Runtime  # noqa: TC002 - the graph reads it
from langgraph.store.base import BaseStore, GetOp, InvalidNamespaceError, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from scripted import COUNTER, FREE, LONG, ScriptedChatModel, save_memory

from langchain_nanomem import (
    BaseStoreBackend,
    MemoryStore,
    Nanomem,
    NanomemStore,
    Redaction,
    RedactionError,
    ScopeError,
    SessionManager,
)
from langchain_nanomem.fact_items import fact_items
from langchain_nanomem.memory_lines import with_keys_of
from langchain_nanomem.memory_outline import key_in, unkeyed, with_key

DAY = datetime(2026, 5, 8, tzinfo=UTC)
OWN, ADA, BOB = ("memories",), ("memories", "user", "ada"), ("memories", "user", "bob")
MEMORY = (
    "# User\n- Ada, lives in Berlin (2026-01-02)\n- likes tea #taste #Food\n  - green above all\n\n"
    "```\n- code\n```\n\n# Noted\n- has a cat\n- [ ] buy bread\n"
)
TEA = "likes tea #taste #Food"
KEY = st.text(min_size=1, max_size=50).filter(lambda key: key.isprintable() and "\ud800" not in key)


@pytest.fixture
def made(tmp_path):
    """Makes the store of a workspace, with options."""

    def make(**options):
        sessions = SessionManager(tmp_path, redaction=options.pop("redaction", None))
        memory = lambda scope: MemoryStore(tmp_path, scope, sessions=sessions)  # noqa: E731
        options = {"token_counter": COUNTER, "now": lambda: DAY, **options}
        return NanomemStore(memory, sessions, **options)

    return make


@pytest.fixture
def store(made):
    return made()


@pytest.fixture
def memory(tmp_path):
    """The memory of the workspace's own scope, with something in it."""
    found = MemoryStore(tmp_path)
    found.write_long_term(MEMORY)
    return found


def contents(store, namespace=OWN, **asked):
    return [item.value["content"] for item in store.search(namespace, limit=99, **asked)]


# Reading


def test_each_line_is_an_item(store, memory):
    """With its tags, what it stands under, and its day; headings and code are none."""
    items = store.search(OWN)
    assert [item.value for item in items[:3]] == [
        {"content": "Ada, lives in Berlin", "tags": [], "section": "User", "noted": "2026-01-02"},
        {"content": TEA, "tags": ["food", "taste"], "section": "User", "noted": ""},
        {"content": "green above all", "tags": [], "section": f"User / {TEA}", "noted": ""},
    ]
    assert contents(store)[3:] == ["has a cat", "[ ] buy bread"]
    assert items[0].created_at == items[0].updated_at == datetime(2026, 1, 2, tzinfo=UTC)
    assert items[1].created_at == datetime(1970, 1, 1, tzinfo=UTC)
    for item in items:
        assert store.get(OWN, item.key).value == item.value
    assert store.get(OWN, "unknown") is None


def test_what_is_not_there_is_empty(store, tmp_path):
    """No memory, no log, no namespace; nothing is made by looking."""
    assert store.search(OWN) == store.search(("history",)) == store.list_namespaces() == []
    assert store.get(ADA, "key") is None
    assert list(tmp_path.iterdir()) == []


def test_keys_are_of_what_a_line_says(store, memory):
    """Not of where it stands, how it is bulleted, nor of its day."""
    keys = {item.value["content"]: item.key for item in store.search(OWN)}
    memory.write_long_term("* HAS a  cat (2026-05-01)\n- new\n- likes tea #taste #Food\n")
    assert store.get(OWN, keys["has a cat"]).value["noted"] == "2026-05-01"
    assert store.get(OWN, keys[TEA]).value["section"] == ""


def test_lines_that_say_the_same_have_keys_of_their_own(store, memory):
    """And so have those of one key, where a person has copied it."""
    memory.write_long_term("- a\n- a\n- b <!-- key: k -->\n- c <!-- key: k -->\n")
    items = store.search(OWN)
    assert len({item.key for item in items}) == 4
    assert store.get(OWN, "k").value["content"] == "b"
    assert contents(store) == ["a", "a", "b", "c"]


def test_filter_limit_and_offset(store, memory):
    """By fields, with LangGraph's operators."""
    assert contents(store, filter={"section": "Noted"}) == ["has a cat", "[ ] buy bread"]
    assert contents(store, filter={"noted": {"$gt": "2026"}}) == ["Ada, lives in Berlin"]
    assert contents(store, filter={"tags": ["food", "taste"]}) == [TEA]
    assert contents(store, filter={"noted": {"$ne": ""}, "section": "Noted"}) == []
    assert contents(store, filter={"tags": {"$gte": 3}}) == []
    assert [one.value["content"] for one in store.search(OWN, limit=1, offset=3)] == ["has a cat"]
    with pytest.raises(ValueError, match=r"no operator \$in"):
        store.search(OWN, filter={"noted": {"$in": []}})


def test_a_query_ranks(store, memory):
    """What matches, best first, with scores, also by the words above it; nothing else."""
    memory.write_long_term("# Pets\n- a cat called Tom\n- a dog\n\n# Food\n- eats what cats eat\n")
    found = store.search(OWN, query="cat Tom")
    assert found[0].value["content"] == "a cat called Tom"
    assert found[0].score > found[1].score > 0
    assert set(contents(store, query="pets")) == {"a cat called Tom", "a dog"}
    assert contents(store, query="elephant") == []
    assert contents(store, query="cat", filter={"section": "Food"}) == ["eats what cats eat"]
    assert len(contents(store, query=" ")) == 3


def test_the_log_can_be_read(store, memory):
    """The newest first, each by its id, or ranked; it can't be written."""
    memory.append_history("moved to Berlin", at=DAY, entry_id="e1", source="one 0-4")
    memory.append_history("has got a cat", entry_id="e2")
    log = store.search(("history",))
    assert [item.key for item in log] == ["e2", "e1"]
    assert log[1].value == {
        "content": "moved to Berlin",
        "at": DAY.isoformat(),
        "session_id": "one",
        "source": "one 0-4",
    }
    assert store.get(("history",), "e1").created_at == DAY
    ranked = store.search(("history",), query="cats")
    assert [item.key for item in ranked] == ["e2"]
    assert ranked[0].score > 0
    with pytest.raises(InvalidNamespaceError, match="only be read"):
        store.put(("history",), "e1", {"content": "x"})


def test_a_day_that_is_none(store, memory):
    """It is what stands there; the item is of an unknown time."""
    memory.write_long_term("- met (2026-13-40)\n")
    assert store.search(OWN)[0].value["noted"] == "2026-13-40"
    assert store.search(OWN)[0].created_at.year == 1970


def test_what_is_no_operation(store):
    """It says so."""
    with pytest.raises(ValueError, match="no operation"):
        store.batch(["get"])


# Writing


def test_a_put_goes_the_way_of_the_tool(store, memory):
    """Into the section for it, with the day, a version archived; and comes back by its key."""
    store.put(OWN, "chess", {"content": "plays  chess\nwell", "tags": ["Hobby"]})
    assert store.get(OWN, "chess").value == {
        "content": "plays chess well #hobby",
        "tags": ["hobby"],
        "section": "Noted",
        "noted": "2026-05-08",
    }
    line = "- plays chess well #hobby (2026-05-08) <!-- key: chess -->\n"
    assert memory.read_long_term() == MEMORY + line
    assert [version.read_text() for version in memory.versions()] == [MEMORY]


def test_an_item_is_altered_in_its_place(store, memory):
    """Its key stays, whether it was given or made of what the line said before."""
    made = store.search(OWN)[1].key
    store.put(OWN, made, {"content": "likes coffee"})
    assert store.get(OWN, made).value["content"] == "likes coffee"
    assert store.get(OWN, made).value["section"] == "User"
    assert memory.read_long_term().split("\n")[2] == (
        f"- likes coffee (2026-05-08) <!-- key: {made} -->"
    )
    store.put(OWN, made, {"content": "likes tea #taste #Food", "noted": ""})
    assert memory.read_long_term() == MEMORY


def test_a_value_that_was_read_may_be_put_again(store, memory):
    """As it is that changes nothing; and with another content it keeps the rest."""
    for item in store.search(OWN):
        store.put(OWN, item.key, item.value)
    assert memory.read_long_term() == MEMORY
    item = store.search(OWN)[0]
    store.put(OWN, item.key, {**item.value, "content": "Ada, lives in Rome"})
    assert store.get(OWN, item.key).value == {**item.value, "content": "Ada, lives in Rome"}


def test_a_line_that_says_it_already_is_given_the_key(store, memory):
    """Unless it has one: then there are two, as it is asked for."""
    store.put(OWN, "cat", {"content": "Has a cat"})
    assert memory.read_long_term() == MEMORY.replace("a cat", "a cat <!-- key: cat -->")
    store.put(OWN, "pet", {"content": "has a cat"})
    assert contents(store).count("has a cat") == 2
    store.delete(OWN, "cat")
    assert contents(store).count("has a cat") == 1


def test_delete_takes_one_line_out(store, memory):
    """By any key; of one that is not there nothing."""
    store.delete(OWN, store.search(OWN)[0].key)
    store.delete(OWN, "unknown")
    assert memory.read_long_term() == MEMORY.replace("- Ada, lives in Berlin (2026-01-02)\n", "")
    assert len(memory.versions()) == 1


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"content": "a", "importance": 3}, "'importance'"),
        ({"text": "a"}, "'text'"),
        ({}, "no text as 'content'"),
        ({"content": {"a": "b"}}, "no text as 'content'"),
        ({"content": " \n "}, "empty"),
        ({"content": "- ## "}, "empty"),
        ({"content": "..."}, "can't be kept"),
        ({"content": "x" * 501}, "501 characters"),
        ({"content": "a", "tags": ["two words"]}, "no tag"),
        ({"content": "a", "tags": ["fff"]}, "can't be kept"),
        ({"content": "a", "tags": [1]}, "no tag"),
        ({"content": "a", "section": "User"}, "stands under 'Noted'"),
        ({"content": "a", "section": 1}, "must be a text"),
        ({"content": "a", "noted": "yesterday"}, "must be a day"),
        ({"content": "a <!-- key: b -->"}, "reads as a key"),
    ],
)
def test_what_a_line_cannot_hold_is_refused(store, memory, value, told):
    """In a sentence, before anything is written, also of what else is put."""
    with pytest.raises(ValueError, match=told):
        store.batch([PutOp(OWN, "good", {"content": "good"}), PutOp(OWN, "key", value)])
    assert memory.read_long_term() == MEMORY


@pytest.mark.parametrize("key", ["", "x" * 201])
def test_a_key_has_text_and_an_end(store, memory, key):
    """It stands in the memory."""
    with pytest.raises(ValueError, match="key must have"):
        store.put(OWN, key, {"content": "a"})
    assert memory.read_long_term() == MEMORY


def test_nothing_expires(store, memory):
    """A time to live is refused, however it is asked for."""
    with pytest.raises(NotImplementedError, match="TTL"):
        store.put(OWN, "key", {"content": "a"}, ttl=5)
    with pytest.raises(NotImplementedError, match="ttl"):
        store.batch([PutOp(OWN, "key", {"content": "a"}, ttl=5)])
    assert memory.read_long_term() == MEMORY


def test_a_full_memory_takes_no_more(made, memory):
    """But a shorter line in place of another."""
    store = made(max_memory_tokens=COUNTER.count_text(MEMORY))
    with pytest.raises(ValueError, match="the memory is full"):
        store.put(OWN, "key", {"content": "one fact more"})
    store.put(OWN, store.search(OWN)[0].key, {"content": "Ada", "noted": ""})
    assert "- Ada <!-- key: " in memory.read_long_term()


def test_the_redaction_is_in_between(made, tmp_path):
    """What it replaces is replaced, what it blocks is refused, in a key too."""
    store = made(redaction=Redaction({"email": "redact", "ip": "block"}))
    store.put(OWN, "mail", {"content": "writes as ada@example.com"})
    assert "ada@example.com" not in MemoryStore(tmp_path).read_long_term()
    assert store.get(OWN, "mail").value["content"].startswith("writes as ")
    before = MemoryStore(tmp_path).read_long_term()
    with pytest.raises(RedactionError):
        store.put(OWN, "host", {"content": "is at 10.11.12.13"})
    with pytest.raises(ValueError, match="must not be written"):
        store.put(OWN, "ada@example.com", {"content": "writes"})
    assert MemoryStore(tmp_path).read_long_term() == before
    store = made(redaction=Redaction())
    store.put(OWN, "36271315-6895-4846-8ab9-f41c868d8d2f", {"content": "like a card, but none"})
    assert store.search(OWN, query="card")[0].key == "36271315-6895-4846-8ab9-f41c868d8d2f"


def test_a_batch_is_one_change_of_a_scope(store, memory):
    """Of a key the last one counts; what is read is what was before."""
    results = store.batch(
        [
            PutOp(OWN, "a", {"content": "first"}),
            GetOp(OWN, "a"),
            PutOp(OWN, "a", {"content": "last"}),
            PutOp(OWN, "b", {"content": "other"}),
            PutOp(ADA, "a", {"content": "hers"}),
            SearchOp(OWN, limit=1),
        ]
    )
    assert results[:5] == [None] * 5
    assert len(results[5]) == 1
    assert contents(store)[-2:] == ["last", "other"]
    assert contents(store, ADA) == ["hers"]
    assert len(memory.versions()) == 1


def test_threads_and_a_person_lose_nothing(store, memory):
    """All that is put at once is there, and what was written into the file meanwhile."""

    def put(number):
        for turn in range(6):
            store.put(OWN, f"{number}.{turn}", {"content": f"fact {number} {turn}"})

    threads = [threading.Thread(target=put, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for turn in range(6):
        now = memory.read_version()
        memory.replace_long_term(f"- mine {turn}\n{now.text}", expected_version=now.version)
    for thread in threads:
        thread.join()
    assert {f"{one}.{turn}" for one in range(4) for turn in range(6)} <= {
        item.key for item in store.search(OWN, limit=99)
    }


# Keys and models


def test_no_prompt_shows_a_key(store, memory):
    """Neither the one of the conversation, nor the one that is to write the memory anew."""
    store.put(OWN, "a-key", {"content": "has a dog"})
    assert "a=key" in memory.read_long_term()
    assert "key" not in memory.get_memory_context()
    assert "has a dog" in memory.get_memory_context()


@pytest.mark.parametrize("reuse_prompt", [False, True])
def test_keys_outlive_a_consolidation(tmp_path, reuse_prompt):
    """The model sees none; a line that says the same afterwards has its key, whoever edits it."""
    model = ScriptedChatModel(replies=[save_memory("entry", "- New\n* has a DOG\n- likes tea\n")])
    memory = Nanomem(
        tmp_path, model=model, context_window_tokens=400, reuse_prompt=reuse_prompt, **FREE
    )
    for key, content in (("dog", "has a dog"), ("cat", "has a cat")):
        memory.store.put(OWN, key, {"content": content, "noted": ""})
    memory.memory.write_long_term(memory.memory.read_long_term() + "- likes tea\n")
    session = memory.sessions.get_or_create("s")
    for number in range(2):
        session.add_message("user", f"question {number}{LONG}")
        session.add_message("assistant", f"answer{LONG}")
    assert memory.consolidator.compact(session)
    assert "key:" not in str(model.prompts)
    assert memory.memory.read_long_term() == "- New\n* has a DOG <!-- key: dog -->\n- likes tea"
    assert memory.store.get(OWN, "dog").value["content"] == "has a DOG"


def test_the_tools_leave_keys_alone(tmp_path, memory):
    """A line is found and corrected by what it says, keeps its key, and no answer shows it."""
    nanomem = Nanomem(tmp_path)
    nanomem.store.put(OWN, "dog", {"content": "has a dog", "noted": ""})
    remember, forget = nanomem.tools(writing=True)[1:]
    config = {"configurable": {"thread_id": "t"}}
    told = remember.invoke({"fact": "has two dogs", "replaces": "- has a dog"}, config)
    assert "it was: has a dog)" in told
    assert nanomem.store.get(OWN, "dog").value["content"] == "has two dogs"
    assert "says that already" in remember.invoke({"fact": "has two dogs"}, config)
    told = forget.invoke({"fact": "has two dogs"}, config)
    assert "key" not in told
    assert nanomem.store.get(OWN, "dog") is None


@given(KEY, st.text())
def test_a_key_comes_back_from_its_line(key, line):
    """Whatever is in it; and without it the line is as it was."""
    line = unkeyed(line.replace("\n", " ").replace("\r", " ")).rstrip()
    keyed = with_key(line, key)
    assert (key_in(keyed), unkeyed(keyed)) == (key, line)
    assert keyed.count("--") == line.count("--") + 2


LINE = st.text(st.sampled_from("ab #-*1.)[x]`<!>é(2026)\t"), max_size=12)


@given(st.lists(st.tuples(KEY, LINE, st.booleans()), max_size=8), st.lists(LINE, max_size=8))
def test_facts_and_items_are_the_same(puts, lines):
    """Whatever a memory holds and is put in: what was put comes back, and all else stays."""
    backend = BaseStoreBackend(InMemoryStore(), "absent")
    memory = MemoryStore(backend)
    memory.write_long_term("\n".join(lines))
    store = NanomemStore(memory, SessionManager(backend.journal), token_counter=COUNTER)
    for key, content, is_deleted in puts:
        before = store.search(OWN, limit=99)
        if is_deleted:
            store.delete(OWN, key)
            expected = None
        else:
            try:
                store.put(OWN, key, {"content": content, "noted": ""})
            except ValueError:
                assert store.search(OWN, limit=99) == before
                continue
            expected = store.get(OWN, key).value["content"]
        after = {one.key: one.value["content"] for one in store.search(OWN, limit=99)}
        assert after.get(key) == expected
        marked = set(filter(None, map(key_in, memory.read_long_term().split("\n"))))
        for one in before:
            if one.key in marked - {key}:
                assert after[one.key] == one.value["content"]
    assert list(fact_items(memory.read_long_term())) == [
        item.key for item in store.search(OWN, limit=99)
    ]


@given(st.lists(LINE, max_size=8), st.lists(LINE, max_size=8))
def test_keys_come_back_to_lines_that_say_the_same(before, after):
    """And to no others; without keys the text is what it was."""
    keyed = "\n".join(with_key(line, str(place)) for place, line in enumerate(before) if line)
    text = with_keys_of(keyed, "\n".join(after))
    assert unkeyed(text).split() == unkeyed("\n".join(after)).split()


# Scopes


SCOPE = st.lists(st.text(st.sampled_from("a.b%2e/+\0é*"), min_size=1, max_size=5), max_size=3)


@given(SCOPE, SCOPE)
def test_namespaces_and_scopes_are_one_to_one(one, other):
    """Each scope has a namespace of its own, which LangGraph takes, and it is listed."""
    backend = BaseStoreBackend(InMemoryStore(), "absent")
    sessions = SessionManager(backend.journal)
    store = NanomemStore(lambda scope: MemoryStore(backend, scope), sessions, token_counter=COUNTER)
    for scope in (one, other):
        MemoryStore(backend, scope).write_long_term(f"- of {scope!r}\n")
    spaces = store.list_namespaces()
    assert len(spaces) == len({tuple(one), tuple(other)})
    found = {contents(store, space)[0] for space in spaces}
    assert found == {f"of {one!r}", f"of {other!r}"}


def test_a_namespace_is_of_one_scope(store):
    """A search by the beginning of another's name finds nothing of that."""
    for namespace in (OWN, ("memories", "user"), ADA, BOB, (*ADA, "work")):
        store.put(namespace, "key", {"content": "/".join(namespace)})
    assert contents(store) == ["memories"]
    assert contents(store, ("memories", "user")) == ["memories/user"]
    assert contents(store, ADA) == ["memories/user/ada"]
    for namespace in ((), ("other",), ("memories", "a%zz"), ("memories", "%61")):
        with pytest.raises(InvalidNamespaceError, match="is no memory"):
            store.search(namespace)
    assert store.get(("other",), "key") is None
    with pytest.raises(InvalidNamespaceError, match="is no memory"):
        store.put(("other",), "key", {"content": "a"})
    with pytest.raises(InvalidNamespaceError, match="period"):
        store.batch([GetOp(("memories", "a.b"), "key")])


def test_namespaces_are_listed(store, tmp_path):
    """Those that have something, as LangGraph's stores do: by parts, to a depth, in pages."""
    for namespace in (ADA, BOB):
        store.put(namespace, "key", {"content": "a"})
    MemoryStore(tmp_path, ("user", "a.b")).append_history("entry")
    MemoryStore(tmp_path, ("x" * 300,)).append_history("nobody can tell whose")
    assert store.list_namespaces() == [("history", "user", "a%2eb"), ADA, BOB]
    assert store.list_namespaces(prefix=("memories",), suffix=("*", "bob")) == [BOB]
    assert store.list_namespaces(suffix=("memories", "user", "ada", "more")) == []
    assert store.list_namespaces(max_depth=2) == [("history", "user"), ("memories", "user")]
    assert store.list_namespaces(limit=1, offset=1) == [ADA]


def test_one_memory_is_of_its_scope_alone(tmp_path):
    """A store that was given it has no other."""
    memory = MemoryStore(tmp_path, ("user", "ada"))
    store = NanomemStore(memory, SessionManager(tmp_path), token_counter=COUNTER)
    store.put(ADA, "key", {"content": "hers"})
    assert store.list_namespaces() == [ADA]
    for namespace in (OWN, BOB):
        with pytest.raises(ScopeError, match="alone"):
            store.search(namespace)


# In graphs


@dataclass
class Context:
    user_id: str


async def test_a_node_uses_it(call, tmp_path):
    """As an argument and by the runtime; a run reads and writes its own user's memory."""
    memory = Nanomem(tmp_path, scope="user")

    def write(state: MessagesState, *, store: BaseStore) -> dict[str, Any]:
        store.put(ADA, "fact", {"content": state["messages"][-1].content, "noted": ""})
        return {}

    async def awrite(state: MessagesState, *, store: BaseStore) -> dict[str, Any]:
        await store.aput(ADA, "fact", {"content": state["messages"][-1].content, "noted": ""})
        return {}

    def read(state: MessagesState, runtime: Runtime[Context]) -> dict[str, Any]:
        (item,) = runtime.store.search(ADA, query="cat")
        return {"messages": [("ai", item.value["content"])]}

    async def aread(state: MessagesState, runtime: Runtime[Context]) -> dict[str, Any]:
        (item,) = await runtime.store.asearch(ADA, query="cat")
        return {"messages": [("ai", item.value["content"])]}

    is_sync = call.args == ("sync",)
    builder = StateGraph(MessagesState, context_schema=Context)
    builder.add_node("write", write if is_sync else awrite)
    builder.add_node("read", read if is_sync else aread)
    builder.add_edge(START, "write").add_edge("write", "read")
    graph = builder.compile(store=memory.store, checkpointer=memory.checkpointer)

    async def run(user):
        config = {"configurable": {"thread_id": user, "user_id": user}}
        given = {"messages": [("user", "has a cat")]}
        return await call(graph, "invoke", given, config)

    state = await run("ada")
    assert state["messages"][-1].content == "has a cat"
    text = await asyncio.to_thread(memory.memory_for(("user", "ada")).read_long_term)
    assert text == "# Noted\n- has a cat <!-- key: fact -->\n"
    with pytest.raises(ScopeError, match="belongs to"):
        await run("bob")


@tool
def manage_memory(  # noqa: D417 - the model sees no store
    content: str, store: Annotated[Any, InjectedStore()], key: str | None = None
) -> str:
    """Keep something, as the tools of langmem do.

    Args:
        content: What is to be kept.
        key: Of what it takes the place.
    """
    key = key or str(uuid.uuid4())
    store.put(OWN, key, {"content": content})
    return f"kept {key}"


@tool
async def search_memories(  # noqa: D417 - the model sees no store
    query: str, store: Annotated[Any, InjectedStore()]
) -> str:
    """Search what was kept.

    Args:
        query: What for.
    """
    return str([item.dict()["value"]["content"] for item in await store.asearch(OWN, query=query)])


async def test_an_agent_has_it_injected(tmp_path):
    """Tools that put texts under random keys, and search, work as they are."""
    calls = [
        AIMessage("", tool_calls=[{"name": name, "args": args, "id": str(number)}])
        for number, (name, args) in enumerate(
            [
                ("manage_memory", {"content": "Ada has a cat"}),
                ("search_memories", {"query": "cats"}),
            ]
        )
    ]
    model = ScriptedChatModel(replies=[*calls, "done"])
    memory = Nanomem(tmp_path)
    agent = create_agent(model, [manage_memory, search_memories], store=memory.store)
    state = await agent.ainvoke({"messages": [("user", "remember that I have a cat")]})
    told = [one.content for one in state["messages"] if isinstance(one, ToolMessage)]
    assert told[1] == "['Ada has a cat']"
    key = told[0].removeprefix("kept ")
    assert memory.store.get(OWN, key).value["content"] == "Ada has a cat"


def test_tools_that_call_it_otherwise_may(made, memory):
    """The field of the text is the one that they use."""
    store = made(content_field="text")
    store.put(OWN, "key", {"text": "has a dog"})
    assert store.get(OWN, "key").value["text"] == "has a dog"
    with pytest.raises(ValueError, match="'content'"):
        store.put(OWN, "key", {"content": "has a dog"})
    with pytest.raises(ValueError, match="another field"):
        made(content_field="tags")
    for wrong in ((), ("langgraph",), ("history",), ("a.b",)):
        with pytest.raises(ValueError, match=r"[Nn]amespace"):
            made(namespace=wrong)


async def test_off_the_record_nothing_is_put(call, tmp_path):
    """In a run that says so, in a session that is, and by an object that keeps nothing."""
    memory = Nanomem(tmp_path)

    def node(state: MessagesState, *, store: BaseStore) -> dict[str, Any]:
        store.put(OWN, "key", {"content": "secret"})
        return {}

    builder = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node")
    graph = builder.compile(store=memory.store)
    config = {"configurable": {"thread_id": "t", "off_the_record": True}}
    with pytest.raises(ScopeError, match="off the record"):
        await call(graph, "invoke", {"messages": [("user", "hello")]}, config)
    with pytest.raises(ScopeError, match="off the record"):
        memory.off_the_record().store.put(OWN, "key", {"content": "secret"})
    assert memory.off_the_record().store.search(OWN) == []
    assert memory.memory.read_long_term() == ""


async def test_the_loop_is_left_free(store, memory):
    """While the memory is read and written, the loop runs on."""
    main = threading.get_ident()
    seen = []
    real = MemoryStore.read_version
    memory_type = type(memory)
    try:
        memory_type.read_version = lambda self: seen.append(threading.get_ident()) or real(self)
        await store.aput(OWN, "key", {"content": "fact"})
        assert (await store.aget(OWN, "key")).value["content"] == "fact"
    finally:
        memory_type.read_version = real
    assert seen
    assert main not in seen
