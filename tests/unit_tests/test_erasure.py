"""What is erased leaves no byte; what is another's stays."""

from __future__ import annotations

import threading

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, StateGraph
from scripted import FREE, LONG, ScriptedChatModel, save_memory

from langchain_nanomem import MemoryState, Nanomem, ScopeError

ADA, BOB = ("user", "ada"), ("user", "bob")


def telling(who, what):
    return f"the secret garden of {who} has {what} inside it"


def opened(path, who, **options):
    answer = save_memory(telling(who, "a log"), f"- {telling(who, 'a fact')}")
    options = {"scope": "user", "context_window_tokens": 700, **FREE, **options}
    return Nanomem(path, model=ScriptedChatModel(replies=[answer]), **options)


def config(who, thread="chat"):
    return {"configurable": {"thread_id": f"{thread} {who}", "user_id": who}}


async def live(path, who, call):
    """A user with all that there can be: checkpoints, memory, versions, archive, index."""
    memory = opened(path, who)
    chat = ScriptedChatModel(replies=[AIMessage(telling(who, "an answer"))])
    graph = StateGraph(MemoryState)
    graph.add_node("memory", memory.node(chat))
    graph.add_edge(START, "memory")
    compiled = graph.compile(checkpointer=memory.checkpointer)
    for number in range(5):
        said = HumanMessage(telling(who, f"roses {number}") + LONG)
        await call(compiled, "invoke", {"messages": [said]}, config(who))
    memory.sessions.bind_scope(f"old {who}", ("user", who))
    memory.history(f"old {who}").add_messages([HumanMessage(telling(who, "a letter"))])
    memory.sessions.archive(f"old {who}")
    store = memory.memory_for(("user", who))
    store.write_long_term(f"- {telling(who, 'another fact')}\n")
    store.append_history(telling(who, "old news"), at=None)
    store.roll_history(9999)
    store.append_history(telling(who, "news"))
    assert len(store.search_history(f"garden {who}", limit=50)) > 9
    return memory


def bytes_of(path):
    return {one: one.read_bytes() for one in path.rglob("*") if one.is_file()}


def holding(path, text):
    return [str(one) for one, content in bytes_of(path).items() if text.encode() in content]


@pytest.mark.parametrize("is_open", [True, False])
async def test_no_byte_of_a_user_is_left(tmp_path, call, is_open):
    """Sessions, checkpoints, memory, versions, log, archive, index and its log: nothing."""
    await live(tmp_path, "bob", call)
    memory = await live(tmp_path, "ada", call)
    assert len(holding(tmp_path, "garden of ada")) >= 5
    bobs = {one: content for one, content in bytes_of(tmp_path).items() if b"of bob" in content}
    if not is_open:
        memory.close()
        memory = opened(tmp_path, "ada")
    report = memory.erase(user_id="ada")
    assert holding(tmp_path, "garden of ada") == []
    assert (report.sessions, report.archived, report.remains) == (["chat ada"], ["old ada"], [])
    assert {path.name for path in report.files} > {"MEMORY.md", "HISTORY.md"}
    assert "1 sessions, 1 archived ones" in str(report)
    assert [one for one in tmp_path.rglob("*") if "ada" in one.name] == []
    for one, content in bobs.items():
        if one.suffix in {".jsonl", ".md", ".gz"}:
            assert one.read_bytes() == content
    assert memory.memory_for(ADA).search_history("garden") == []
    assert len(memory.memory_for(BOB).search_history("garden", limit=50)) > 9
    assert memory.sessions.list_archived()[0].key == "old bob"


async def test_an_erased_user_may_come_again(tmp_path, call):
    """The next turn begins anew, with nothing of before."""
    memory = await live(tmp_path, "ada", call)
    memory.erase(user_id="ada")
    await live(tmp_path, "ada", call)
    assert len(memory.memory_for(ADA).search_history("garden", limit=50)) > 9


def test_of_nobody_nothing_is_known(tmp_path):
    """An unknown user or session: the report is false and says so; nothing is made."""
    memory = opened(tmp_path, "ada")
    for report in (memory.erase(user_id="eve"), memory.erase(session_id="none")):
        assert not report
        assert str(report).startswith("Nothing is known of")
    assert [one for one in tmp_path.rglob("*.md")] == []  # noqa: C416


def test_a_memory_that_all_share_cannot_be_told_apart(tmp_path):
    """It says so, and offers to erase by session."""
    for rule in ("workspace", None):
        memory = Nanomem(tmp_path, scope=rule)
        with pytest.raises(ScopeError, match=r"session_id|no scope was chosen"):
            memory.erase(user_id="ada")
    with pytest.raises(ScopeError, match="session_id"):
        memory.erase(scope=())
    with pytest.raises(ValueError, match="give one of"):
        memory.erase(user_id="ada", session_id="s")


def test_a_session_is_erased_with_its_entries(tmp_path):
    """Messages, log entries and index; of the facts nobody can tell, and the report says it."""
    memory = Nanomem(
        tmp_path, model=ScriptedChatModel(replies=[save_memory("We met Zoe.", "- Zoe")])
    )
    for key in ("one", "two"):
        session = memory.sessions.get_or_create(key)
        for text in (f"I am in room {key} of the old house", "and", "so"):
            session.add_message("user", text)
        memory.consolidator.compact(session)
    memory.memory.search_history("room")
    report = memory.erase(session_id="one")
    assert (report.sessions, report.log_entries, report.remains) == (["one"], 1, [])
    assert "don't say which session" in str(report)
    assert holding(tmp_path, "room one of") == []
    assert [entry.source.split()[0] for entry in memory.memory.history_entries()] == ["two"]
    assert memory.memory.search_history("room", session_id="two")


def test_a_session_that_nobody_can_read_is_named(tmp_path):
    """Whose it is can't be told: it stays, and the report names it."""
    memory = opened(tmp_path, "ada")
    memory.sessions.bind_scope("good", ADA)
    (tmp_path / "sessions" / "bad.jsonl").write_text("no record\n" * 3)
    report = memory.erase(user_id="ada")
    assert (report.sessions, report.unreadable) == (["good"], ["bad"])
    assert "Not readable" in str(report)


def test_a_consolidation_under_way_writes_nothing_afterwards(tmp_path):
    """The model answers after its user was erased: nothing of it gets onto the disk."""
    erased = threading.Event()
    memory = opened(tmp_path, "ada")

    def reply(_messages):
        memory.erase(user_id="ada")
        erased.set()
        return save_memory(telling("ada", "a log"), telling("ada", "a fact"))

    memory.consolidator.model.replies[:] = [reply]
    memory.sessions.bind_scope("s", ADA)
    session = memory.sessions.get_or_create("s")
    for number in range(3):
        session.add_message("user", telling("ada", number))
    memory.consolidator.compact(session)
    assert erased.is_set()
    assert holding(tmp_path, "garden of ada") == []
