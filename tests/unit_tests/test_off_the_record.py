"""What is said off the record is remembered by nobody; or not even kept."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, StateGraph
from scripted import (
    FREE,
    KEY,
    LONG,
    ScriptedChatModel,
    consolidator_of,
    save_memory,
    session_of,
    texts,
)
from stores import bytes_in

from langchain_nanomem import MemoryState, MemoryStore, Nanomem
from langchain_nanomem.applying import Applier
from langchain_nanomem.conversation import of_session
from langchain_nanomem.errors import SessionNotFoundError
from langchain_nanomem.journal import ReplacedError
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.memory_journal import MemoryJournal

pytestmark = pytest.mark.back_ends("files", "postgres")

OFF = {"configurable": {"thread_id": "t", "off_the_record": True}}
ON = {"configurable": {"thread_id": "t"}}
SECRET = "nobody is to hear of the owl"


def opened(path, **options):
    model = ScriptedChatModel(replies=[save_memory("The owl.", "- the owl")])
    return Nanomem(path, model=model, context_window_tokens=700, **{**FREE, **options})


def graph_of(memory):
    chat = ScriptedChatModel(replies=[AIMessage("I see.")])
    graph = StateGraph(MemoryState)
    graph.add_node("memory", memory.node(chat))
    graph.add_edge(START, "memory")
    return graph.compile(checkpointer=memory.checkpointer), chat


def everything(workspace):
    return b"".join(bytes_in(workspace).values())


def kept(workspace):
    """All but what is kept for the search."""
    found = bytes_in(workspace)
    return {place: content for place, content in found.items() if "/." not in place}


async def test_it_is_kept_and_never_remembered(workspace, call):
    """Once marked, however long it gets: no model is asked, nothing is logged or found."""
    memory = opened(workspace)
    memory.memory.write_long_term("- likes tea")
    graph, chat = graph_of(memory)
    for number in range(8):
        said = [HumanMessage(f"{number} {SECRET}{LONG}")]
        await call(graph, "invoke", {"messages": said}, OFF if number == 0 else ON)
    assert memory.consolidator.model.calls == 0
    assert memory.memory.history_entries() == []
    assert memory.memory.search_history("owl") == []
    system, *_, last = chat.prompts[-1]
    assert "likes tea" in system.content
    assert "older messages of this conversation do not fit here" in system.content
    assert last.content.startswith("7 nobody")
    assert len(memory.sessions.get_or_create("t").messages) == 16
    assert memory.consolidator.compact(memory.sessions.get_or_create("t")) == []
    again = SessionManager(workspace)
    assert again.is_off_the_record("t")
    assert not again.is_off_the_record("u")


async def test_the_tools_remember_nothing_of_it(workspace, call):
    """The agent may look things up, and forget; it can't put anything into the memory."""
    memory = opened(workspace)
    memory.history("other").add_messages([HumanMessage("the piano is blue")])
    memory.sessions.keep_off_the_record("t")
    search, remember, forget = memory.tools(writing=True)
    assert "off the record" in await call(remember, "invoke", {"fact": SECRET}, ON)
    assert memory.memory.read_long_term() == ""
    assert "the piano is blue" in await call(search, "invoke", {"query": "piano"}, ON)
    assert "Nothing is changed" in await call(forget, "invoke", {"fact": "tea"}, ON)


@pytest.mark.parametrize("how", ["invoke", "stream"])
async def test_around_a_chain_it_is_the_same(workspace, call, how):
    """`wrap` looks at the config too, and binds the session to its scope as before."""
    memory = opened(workspace, scope="user")
    chain = memory.wrap(ScriptedChatModel(replies=["I see."]))
    config = {"configurable": {**OFF["configurable"], "user_id": "ada"}}
    for number in range(8):
        await call(chain, how, f"{number} {SECRET}{LONG}", config)
    assert memory.consolidator.model.calls == 0
    assert memory.memory_for(("user", "ada")).search_history("owl") == []
    assert memory.sessions.is_off_the_record("t")
    assert len(memory.sessions.get_or_create("t").messages) == 16
    assert memory.sessions.get_or_create("t").scope == ("user", "ada")


async def test_of_a_graph_without_a_memory_nothing_is_searched(workspace, call):
    """The checkpointer looks at the config, and so does a tool that would remember."""
    memory = opened(workspace)
    _, remember, _ = memory.tools(writing=True)
    graph = StateGraph(MemoryState)
    graph.add_node("echo", lambda _: {"messages": ["I see the owl"]})
    graph.add_edge(START, "echo")
    compiled = graph.compile(checkpointer=memory.checkpointer)
    await call(compiled, "invoke", {"messages": [HumanMessage(SECRET)]}, OFF)
    assert memory.memory.search_history("owl") == []
    assert len(memory.sessions.get_or_create("t").messages) == 2
    fresh = {"configurable": {"thread_id": "u", "off_the_record": True}}
    assert "off the record" in await call(remember, "invoke", {"fact": SECRET}, fresh)
    assert memory.memory.read_long_term() == ""


@pytest.mark.parametrize("how", ["maybe_consolidate_by_tokens", "compact"])
@pytest.mark.parametrize("by_another", [False, True])
def test_marked_while_the_model_thinks_nothing_gets_into_memory(workspace, run, how, by_another):
    """The answer is dropped, and the pointer stays; no retry, no raw entry, no error."""

    def reply(_messages):
        sessions = SessionManager(workspace) if by_another else consolidator.sessions
        sessions.keep_off_the_record(KEY)
        return save_memory("The owl.", "- the owl")

    consolidator = consolidator_of(workspace, reply, window=400)
    session = session_of(consolidator, "UAUAUAUA")
    assert run(consolidator, session, how=how) == []
    assert consolidator.model.calls == 1
    assert (texts(consolidator), consolidator.memory.read_long_term()) == ([], "")
    assert consolidator.sessions.get_or_create(KEY).last_consolidated == 0
    assert run(consolidator, session, how=how) == []
    assert consolidator.model.calls == 1


@pytest.mark.parametrize("answer", [save_memory("The owl.", "- the owl"), "no call"])
def test_marked_behind_the_answer_nothing_gets_into_memory(workspace, answer):
    """The same where the consolidation is deferred, and where the model failed too often."""
    memory = opened(workspace, deferred=True, max_failures=1)

    def reply(_messages):
        memory.sessions.keep_off_the_record("t")
        return answer

    memory.consolidator.model.replies[:] = [reply]
    chain = memory.wrap(ScriptedChatModel(replies=["I see."]))
    for turn in range(8):
        chain.invoke(f"{turn} {SECRET}{LONG}", ON)
        assert memory.consolidator.close(60)
    assert memory.consolidator.model.calls > 0
    assert (memory.memory.history_entries(), memory.memory.read_long_term()) == ([], "")
    assert memory.sessions.get_or_create("t").last_consolidated == 0


def killed(*_args, **_options):
    raise KeyboardInterrupt


def test_marked_before_an_answer_is_carried_out_it_is_not(workspace, run, monkeypatch):
    """It was in the journal when the process was killed: nobody finishes it."""
    consolidator = consolidator_of(workspace, window=400)
    session = session_of(consolidator, "UAUAUAUA")
    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "append_history", killed)
        with pytest.raises(KeyboardInterrupt):
            run(consolidator, session)
    again = consolidator_of(workspace, window=400)
    again.sessions.keep_off_the_record(KEY)
    assert run(again, session_of(again)) == []
    applier, conversation = Applier(again.sessions, again.memory_for), of_session(session_of(again))
    assert not applier.settle(conversation)
    assert (texts(again), again.memory.read_long_term(), again.model.calls) == ([], "", 0)


def test_what_was_found_before_is_found_no_more(tmp_path):
    """Marked later, a session leaves the index; emptied, it stays marked; so in the archive."""
    memory = opened(tmp_path)
    memory.history("t").add_messages([HumanMessage(SECRET)])
    assert memory.memory.search_history("owl")
    memory.sessions.keep_off_the_record("t")
    assert memory.memory.search_history("owl") == []
    memory.sessions.archive("t")
    assert memory.memory.search_history("owl") == []
    memory.sessions.erase("t")
    assert memory.sessions.is_off_the_record("t")


async def test_of_a_private_conversation_no_byte_is_kept(workspace, call):
    """It goes on from turn to turn, knows the memory, and leaves nothing on the disk."""
    memory = opened(workspace, recall_tokens=200)
    memory.memory.write_long_term("- likes tea")
    memory.history("before").add_messages([HumanMessage("the piano is blue")])
    memory.memory.search_history("piano")
    before = kept(workspace)
    private = memory.off_the_record()
    graph, chat = graph_of(private)
    for number in range(8):
        said = [HumanMessage(f"{number} {SECRET}, by the piano{LONG}")]
        state = await call(graph, "invoke", {"messages": said}, ON)
    private.history("chat").add_messages([HumanMessage(SECRET)])
    assert len(state["messages"]) == 16
    assert len(private.history("chat").messages) == 1
    assert "likes tea" in chat.prompts[-1][0].content
    assert any("the piano is blue" in str(m.content) for m in chat.prompts[0])
    search, remember, _ = private.tools(writing=True)
    assert "the piano is blue" in await call(search, "invoke", {"query": "piano"}, ON)
    assert "off the record" in await call(remember, "invoke", {"fact": SECRET}, ON)
    assert private.consolidator.model.calls == 0
    assert kept(workspace) == before
    assert SECRET.encode() not in everything(workspace)
    assert memory.sessions.list_sessions()[0]["key"] == "before"
    assert {one["key"] for one in private.sessions.list_sessions()} == {"chat", "t"}


def test_a_journal_in_memory_is_a_journal():
    """Appended with what is expected, rewritten, deleted, as one on the disk."""
    journal = MemoryJournal()
    end = journal.append("a", [{"_type": "metadata", "key": "a"}, {"n": 1}, {"n": 2}])
    assert journal.read("a")[0][1:] == [{"n": 1}, {"n": 2}]
    assert journal.append("a", [{"n": 3}], expected_end=end) != end
    with pytest.raises(ReplacedError):
        journal.append("a", [{"n": 4}], expected_end=end)
    assert journal.read("a", end)[0] == [{"n": 3}]
    with journal.open("a") as reader:
        entries, _ = reader.read()
        assert reader.load([entries[1].address]) == [{"n": 1}]
        journal.rewrite("a", [{"n": 9}])
        with pytest.raises(ReplacedError):
            reader.read(end)
        reader.renew()
        assert [entry.record for entry in reader.read()[0]] == [{"n": 9}]
    assert [info.key for info in journal.list()] == ["a"]
    assert journal.deleted_at("a") is None
    assert journal.delete("a")
    assert not journal.delete("a")
    assert journal.deleted_at("a") is not None
    assert journal.read("a")[0] == []


def test_sessions_in_memory_are_sessions():
    """Saved, read again, consolidated pointers and all; deleted, they are gone."""
    sessions = SessionManager(MemoryJournal())
    session = sessions.get_or_create("a")
    session.add_message("user", "hi")
    sessions.save(session)
    sessions.invalidate("a")
    assert sessions.get_or_create("a").messages[0]["content"] == "hi"
    sessions.delete("a")
    session.add_message("user", "again")
    with pytest.raises(SessionNotFoundError):
        sessions.save(session)
