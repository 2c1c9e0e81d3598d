"""Tools with which an agent searches its own past."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from scripted import ScriptedChatModel, save_memory

from langchain_nanomem import (
    MemoryState,
    MemoryStore,
    Nanomem,
    ScopeError,
    SessionManager,
    create_search_memory_tool,
)

pytestmark = pytest.mark.back_ends("files", "postgres")


@pytest.fixture(params=["sync", "async"])
def search(request):
    """Calls the tool in one of the two colours."""

    async def search(tool, query, config=None, **more):
        given_input = {"query": query, **more}
        if request.param == "sync":
            return tool.invoke(given_input, config)
        return await tool.ainvoke(given_input, config)

    return search


def config(**configurable):
    return {"configurable": {"thread_id": "now", **configurable}}


@pytest.fixture
def mem(workspace):
    return Nanomem(workspace)


def say(mem, key, *texts):
    mem.history(key).add_messages(
        [(HumanMessage, AIMessage)[n % 2](text) for n, text in enumerate(texts)]
    )


async def test_it_finds_what_was_said_and_what_was_logged(mem, search):
    """The event log comes first, then the words themselves with their date and session."""
    day = datetime(2026, 5, 8, 10, 11, tzinfo=UTC)
    mem.memory.append_history("The user moved to Berlin.", at=day)
    said = HumanMessage("Berlin is lovely", additional_kwargs={"timestamp": day.isoformat()})
    mem.history("cli:ada").add_messages([said, AIMessage("It is!")])
    found = await search(mem.tools()[0], "berlin", config())
    assert found == (
        "From the event log:\n[2026-05-08 Friday 10:11] The user moved to Berlin.\n\n"
        "What was said:\n[2026-05-08 Friday 10:11] user: Berlin is lovely (session cli:ada)"
    )


async def test_it_says_so_when_there_is_nothing(mem, search):
    """Nothing found, in an empty workspace too, is a sentence that names the query."""
    tool = mem.tools()[0]
    assert "'zebra'" in await search(tool, "zebra", config())
    say(mem, "s", "no such animal")
    assert "Nothing" in await search(tool, "zebra", config())
    assert "Nothing" in await search(tool, "", config())


async def test_consolidated_messages_are_found_word_for_word(workspace, search):
    """What only the session has, since its summary does not say it, is found too."""
    mem = Nanomem(workspace, model=ScriptedChatModel(replies=[save_memory("small talk", "- x")]))
    say(mem, "s", "the wifi key is hunter2", "noted", "bye", "bye")
    session = mem.sessions.get_or_create("s")
    mem.consolidator.compact(session)
    assert session.last_consolidated == 2
    assert "hunter2" in await search(mem.tools()[0], "wifi key", config())
    assert "small talk" in await search(mem.tools()[0], "talk", config())


async def test_the_best_match_comes_first_and_the_newest_of_equals(mem, search):
    """More of the words, then the shorter, then newer."""
    say(mem, "a", "red car")
    say(mem, "b", "red")
    say(mem, "c", "red bike")
    lines = (await search(mem.tools()[0], "red car", config())).splitlines()[1:]
    assert ["car" in line for line in lines] == [True, False, False]
    assert "session b" in lines[1]


async def test_the_limit_is_kept_in_bounds(mem, search):
    """At least one passage of each kind, at most 20, whatever the model asks for."""
    say(mem, "s", *(f"word {n}" for n in range(30)))
    tool = mem.tools()[0]
    counts = {
        limit: (await search(tool, "word", config(), limit=limit)).count("session s")
        for limit in (-3, 0, 1, 7, 1_000)
    }
    assert counts == {-3: 1, 0: 1, 1: 1, 7: 7, 1_000: 20}
    assert (await search(tool, "word", config())).count("session s") == 5


async def test_a_long_message_is_clipped(mem, search):
    """A passage has 600 characters at most, so that a search does not fill the window."""
    say(mem, "s", "needle " + "x" * 10_000)
    found = await search(mem.tools()[0], "needle", config())
    assert len(found) < 800
    assert " ... (session s)" in found


@pytest.mark.parametrize("query", ["(", "%s", "{x}", "[a", "*", '"', "\\", "../..", "x" * 5_000])
async def test_no_character_has_a_meaning(mem, search, query):
    """Whatever the model asks for, nothing is a pattern, and nothing raises."""
    say(mem, "s", f"has {query[:100]} in it")
    assert "session s" in await search(mem.tools()[0], query[:100], config())
    await search(mem.tools()[0], query, config())


async def test_a_phrase_must_stand_as_it_is(mem, search):
    """Words in double quotes are looked for as a phrase."""
    say(mem, "s", "green tea", "tea that is green")
    found = await search(mem.tools()[0], '"green tea"', config())
    assert found.count("session s") == 1


def test_the_model_sees_query_and_limit_alone(mem):
    """The schema names the two arguments and says what they mean; the config is no argument."""
    (tool,) = mem.tools()
    assert tool.name == "search_memory"
    assert set(tool.args) == {"query", "limit"}
    assert tool.get_input_schema().model_json_schema()["required"] == ["query"]
    assert '"a phrase"' in tool.args["query"]["description"]
    assert tool.description.startswith("Search all earlier")


async def test_media_leave_a_mark(mem, search):
    """cases/consolidation.md 41: an image is told by its name, never by its data."""
    block = {"type": "image", "base64": "QUJD" * 500, "mime_type": "image/png"}
    mem.history("s").add_messages([HumanMessage([{"type": "text", "text": "my cat"}, block])])
    found = await search(mem.tools()[0], "cat", config())
    assert "[image: image/png" in found
    assert "QUJD" not in found


@pytest.mark.back_ends("files")
async def test_a_damaged_session_does_not_hide_the_others(mem, search, caplog):
    """A session that can't be read is left out with a warning, and stays as it is."""
    say(mem, "good", "needle here")
    say(mem, "bad", "needle there")
    infos = {info["key"]: Path(info["path"]) for info in mem.sessions.list_sessions()}
    damaged = infos["bad"].read_bytes().replace(b'{"role"', b"garbage{", 1)
    infos["bad"].write_bytes(damaged)
    mem.close()
    found = await search(mem.tools()[0], "needle", config())
    assert "session good" in found
    assert "session bad" not in found
    assert "'bad' is not searched" in caplog.text
    assert infos["bad"].read_bytes() == damaged


# --- scopes ---


async def test_by_default_it_searches_the_sessions_own_scope(workspace, search):
    """Without a rule it is the scope that the session in the config is bound to."""
    sessions = SessionManager(workspace)
    tool = create_search_memory_tool(lambda scope: MemoryStore(workspace, scope), sessions)
    MemoryStore(workspace, ("user", "a")).append_history("needle of a")
    MemoryStore(workspace).append_history("needle of all")
    sessions.bind_scope("a1", ("user", "a"))
    assert "needle of a" in await search(tool, "needle", {"configurable": {"thread_id": "a1"}})
    assert "needle of all" in await search(tool, "needle", config())
    assert "needle of all" in await search(tool, "needle")


async def test_the_tool_of_one_memory_is_not_for_others(workspace, search):
    """cases/consolidation.md 35: a session of another scope is a ScopeError, not that memory."""
    sessions = SessionManager(workspace)
    store = MemoryStore(workspace, ("user", "a"))
    store.append_history("needle of a")
    tool = create_search_memory_tool(store, sessions)
    sessions.bind_scope("b1", ("user", "b"))
    sessions.bind_scope("a1", ("user", "a"))
    with pytest.raises(ScopeError, match="alone"):
        await search(tool, "needle", {"configurable": {"thread_id": "b1"}})
    assert "of a" in await search(tool, "needle", {"configurable": {"thread_id": "a1"}})
    assert "of a" in await search(tool, "needle")


async def test_an_unclear_scope_is_an_error(workspace, search):
    """cases/consolidation.md 35: per user, a search without a user_id is a ScopeError."""
    tool = Nanomem(workspace, scope="user").tools()[0]
    with pytest.raises(ScopeError):
        await search(tool, "needle", config())
    with pytest.raises(ScopeError):
        await search(Nanomem(workspace).tools()[0], "needle", config(user_id="a"))


USERS = ["a", "A", "a:b", "../a"]
EXAMPLES = int(os.environ.get("NANOMEM_EXAMPLES", "10"))


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(USERS), st.sampled_from("pq"), st.booleans()), max_size=8)
)
def test_users_never_find_what_others_said(tmp_path_factory, said):
    """cases/consolidation.md 35: no search hit and no prompt of one user has another's words."""
    mem = Nanomem(tmp_path_factory.mktemp("w"), scope="user")
    for number, (user, thread, is_fact) in enumerate(said):
        key, secret = f"{user}/{thread}", f"needle <{user}> {number}"
        mem.sessions.bind_scope(key, ("user", user))
        if is_fact:
            store = mem.memory_for(("user", user))
            store.append_history(secret)
            store.write_long_term(f"{store.read_long_term()}- {secret}\n")
        else:
            say(mem, key, secret)
    for user in USERS:
        run = {"configurable": {"thread_id": f"{user}/new", "user_id": user}}
        found = mem.tools()[0].invoke({"query": "needle", "limit": 20}, run)
        shown = str(mem.prompt.invoke("hi", run))
        own = [f"<{user}> {n}" for n, (name, _, _) in enumerate(said) if name == user]
        facts = [f"<{user}> {n}" for n, (name, _, fact) in enumerate(said) if name == user and fact]
        assert all(secret in found for secret in own)
        assert all(secret in shown for secret in facts)
        others = {f"<{name}>" for name, _, _ in said} - {f"<{user}>"}
        assert not any(name in found or name in shown for name in others)


# --- in an agent ---


class Context(TypedDict):
    user_id: str


def asks(query):
    call = {"name": "search_memory", "args": {"query": query}, "id": "call_1"}
    return AIMessage("", tool_calls=[call])


def agent(mem, model, **options):
    """The usual loop of a model and its tools, with the memory node as the model node."""
    graph = StateGraph(MemoryState, **options)
    graph.add_node("model", mem.node(model.bind_tools(mem.tools())))
    graph.add_node("tools", ToolNode(mem.tools()))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=mem.checkpointer)


@pytest.mark.parametrize("place", ["context", "configurable"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_an_agent_searches_its_own_users_past(workspace, place, is_async):
    """cases/consolidation.md 35: in a ToolNode too the user is the context's or the config's."""
    mem = Nanomem(workspace, scope="user")
    for user in "ab":
        mem.sessions.bind_scope(f"old-{user}", ("user", user))
        say(mem, f"old-{user}", f"the needle of {user}")
    model = ScriptedChatModel(replies=[asks("needle"), "done"])
    graph = agent(mem, model, context_schema=Context)
    run = {"configurable": {"thread_id": "t"}}
    options = {"context": {"user_id": "a"}} if place == "context" else {}
    run["configurable"] |= {"user_id": "a"} if place == "configurable" else {}
    given_input = {"messages": [HumanMessage("where is it?")]}
    if is_async:
        result = await graph.ainvoke(given_input, run, **options)
    else:
        result = graph.invoke(given_input, run, **options)
    found = result["messages"][-2]
    assert isinstance(found, ToolMessage)
    assert "the needle of a" in found.content
    assert "of b" not in found.content


def test_a_message_without_words_is_not_found(workspace):
    """A message that only searches says nothing, however well what stands around it matches."""
    mem = Nanomem(workspace)
    call = {"name": "search_memory", "args": {"query": "needle"}, "id": "call_1"}
    told = [HumanMessage("where is the needle?"), AIMessage("", tool_calls=[call]), AIMessage(" ")]
    mem.history("now").add_messages(told)
    [hit] = mem.memory.search_history("needle", neighbours=2)
    assert (hit.position, hit.after) == (0, ())


def test_an_agent_does_not_find_its_own_searches(workspace):
    """Neither the call that searches nor an earlier one's results are passages of the past."""
    mem = Nanomem(workspace)
    say(mem, "old", "the needle is in the haystack")
    model = ScriptedChatModel(replies=[asks("needle"), "ok", asks("needle"), "ok"])
    graph = agent(mem, model)
    for _ in range(2):
        result = graph.invoke({"messages": [SystemMessage("x"), HumanMessage("go")]}, config())
        found = result["messages"][-2].content
        assert found.count("needle") == 1
        assert "calls search_memory" not in found
        assert "assistant:  (session" not in found
    lines = mem.sessions.get_or_create("now").messages
    assert any(line.get("tool_calls") for line in lines), "the session has the call itself"
