"""What is erased leaves no byte; what is another's stays."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, StateGraph
from scripted import FREE, LONG, ScriptedChatModel, save_memory
from stores import bytes_in

from langchain_nanomem import Erased, MemoryState, Nanomem, Retention, ScopeError

pytestmark = pytest.mark.back_ends("files", "postgres")

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
    if memory.sessions.journal.archive is not None:
        memory.sessions.archive(f"old {who}")
    store = memory.memory_for(("user", who))
    store.write_long_term(f"- {telling(who, 'another fact')}\n")
    store.append_history(telling(who, "old news"), at=None)
    store.roll_history(9999)
    store.append_history(telling(who, "news"))
    assert len(store.search_history(f"garden {who}", limit=50)) > 9
    return memory


def holding(workspace, text):
    return [place for place, content in bytes_in(workspace).items() if text.encode() in content]


@pytest.mark.parametrize("is_open", [True, False])
async def test_no_byte_of_a_user_is_left(workspace, call, is_open):
    """Sessions, checkpoints, memory, versions, log, archive, index and its log: nothing."""
    await live(workspace, "bob", call)
    memory = await live(workspace, "ada", call)
    assert len(holding(workspace, "garden of ada")) >= 5
    bobs = {one: content for one, content in bytes_in(workspace).items() if b"of bob" in content}
    if not is_open:
        memory.close()
        memory = opened(workspace, "ada")
    report = memory.erase(user_id="ada")
    assert holding(workspace, "garden of ada") == []
    assert (*report.sessions, *report.archived) == ("chat ada", "old ada")
    assert (report.remains, report.unreadable) == ([], [])
    assert bytes_in(workspace).keys() == {one for one in bytes_in(workspace) if "ada" not in one}
    left = bytes_in(workspace)
    assert all(left[one] == bobs[one] for one in bobs if not one.endswith(("sqlite", "wal")))
    assert memory.memory_for(ADA).search_history("garden") == []
    assert len(memory.memory_for(BOB).search_history("garden", limit=50)) > 9


async def test_the_report_counts_what_was_removed(workspace, call):
    """Of files their paths; in a database the rows."""
    memory = await live(workspace, "ada", call)
    report = memory.erase(user_id="ada")
    if isinstance(workspace, Path):
        assert {path.name for path in report.files} > {"MEMORY.md", "HISTORY.md"}
        assert "1 sessions, 1 archived ones" in str(report)
        assert (report.archived, report.rows) == (["old ada"], 0)
        assert memory.sessions.list_archived() == []
    else:
        assert (report.files, report.archived) == ([], [])
        assert f"2 sessions, 0 archived ones, {report.rows} rows" in str(report)
        assert report.rows == 3


async def test_an_erased_user_may_come_again(workspace, call):
    """The next turn begins anew, with nothing of before."""
    memory = await live(workspace, "ada", call)
    memory.erase(user_id="ada")
    await live(workspace, "ada", call)
    assert len(memory.memory_for(ADA).search_history("garden", limit=50)) > 9


def test_of_nobody_nothing_is_known(tmp_path):
    """An unknown user or session: the report is false and says so; nothing is made."""
    memory = opened(tmp_path, "ada")
    for report in (memory.erase(user_id="eve"), memory.erase(session_id="none")):
        assert not report
        assert str(report).startswith("Nothing is known of")
    assert [one for one in tmp_path.rglob("*.md")] == []  # noqa: C416


def test_a_memory_that_all_share_cannot_be_told_apart(workspace):
    """It says so, and offers to erase by session."""
    for rule in ("workspace", None):
        memory = Nanomem(workspace, scope=rule)
        with pytest.raises(ScopeError, match=r"session_id|no scope was chosen"):
            memory.erase(user_id="ada")
    with pytest.raises(ScopeError, match="session_id"):
        memory.erase(scope=())
    with pytest.raises(ValueError, match="give one of"):
        memory.erase(user_id="ada", session_id="s")


def test_a_session_is_erased_with_its_entries(workspace):
    """Messages, log entries and index; of the facts nobody can tell, and the report says it."""
    memory = Nanomem(
        workspace, model=ScriptedChatModel(replies=[save_memory("We met Zoe.", "- Zoe")])
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
    assert holding(workspace, "room one of") == []
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


@pytest.mark.parametrize("is_told", [True, False])
def test_a_damaged_session_with_a_long_name_is_named(tmp_path, is_told):
    """Its file's name is cut: a later record has its key, or else the file itself is named."""
    memory = opened(tmp_path, "ada")
    key = "x" * 300
    memory.sessions.bind_scope(key, ADA)
    memory.history(key).add_messages([HumanMessage(telling("ada", "roses"))])
    path = memory.sessions.journal.path(key)
    lines = path.read_bytes().splitlines()
    kept = [line for line in lines[1:] if is_told or b"metadata" not in line]
    path.write_bytes(b"\n".join([b"no record", *kept, b""]))
    memory.close()
    report = memory.erase(user_id="ada")
    assert report.unreadable == [key if is_told else str(path)]
    assert memory.apply_retention(Retention(max_sessions=0)).skipped == report.unreadable
    assert memory.erase(session_id=key).sessions == [key]
    assert not path.exists()


def damage(path, how):
    content = path.read_bytes()
    cut = {"whole": b"no archive", "head": b"\0" * 40 + content[40:], "body": content[:-12]}[how]
    path.write_bytes(cut)


@pytest.mark.parametrize("how", ["whole", "head", "body"])
async def test_a_damaged_archive_hinders_nothing(tmp_path, call, how, caplog):
    """All else goes. It goes too where its head can be read; else it is named."""
    memory = await live(tmp_path, "ada", call)
    (kept,) = memory.sessions.list_archived()
    damage(kept.path, how)
    report = memory.erase(user_id="ada")
    assert report.sessions == ["chat ada"]
    assert {path.name for path in report.files} > {"MEMORY.md", "HISTORY.md"}
    if how == "body":
        assert (report.archived, report.unreadable) == (["old ada"], [])
        assert "nothing of it was looked for: the archived session 'old ada'" in str(report)
    else:
        assert (report.archived, report.unreadable) == ([], ["archive/old%20ada"])
        assert "Not readable" in str(report)
        assert memory.sessions.list_archived() == []
        assert "an archived session can't be read" in caplog.text
    assert kept.path.exists() == (how != "body")
    assert holding(tmp_path, "garden of ada") == []
    again = memory.erase(user_id="ada")
    assert not again
    assert ("Not readable" in str(again)) == (how != "body")


@pytest.mark.parametrize("where", ["session", "archive"])
def test_the_very_session_goes_though_it_is_damaged(tmp_path, where):
    """Its file, its entries in whosever log, what was put aside; nothing raises."""
    memory = opened(tmp_path, "ada")
    memory.sessions.bind_scope("s", ADA)
    memory.history("s").add_messages([HumanMessage(telling("ada", "roses"))])
    memory.memory_for(ADA).append_history(telling("ada", "news"), source="s 0-1")
    memory.memory_for(ADA).append_history(telling("ada", "more"), source="t 0-1")
    path = memory.sessions.journal.path("s")
    if where == "archive":
        memory.sessions.archive("s")
        path = memory.sessions.list_archived()[0].path
        damage(path, "whole")
    else:
        path.write_bytes(b"no record\n" + path.read_bytes() + b"none, either\n")
        memory.close()
    report = memory.erase(session_id="s")
    assert (report.sessions or report.archived, report.log_entries) == (["s"], 1)
    assert "nobody can tell whose memory" in str(report)
    assert not path.exists()
    assert holding(tmp_path, "ada has roses") == []
    assert [one.source for one in memory.memory_for(ADA).history_entries()] == ["t 0-1"]


def test_the_entries_of_a_session_that_is_gone_go_too(workspace):
    """Deleted before, it can't tell whose it was: all logs are looked through."""
    memory = opened(workspace, "ada")
    for scope in (ADA, BOB):
        memory.memory_for(scope).append_history("news", source=f"of {scope[1]} 0-1")
    assert memory.erase(session_id="of bob").log_entries == 1
    assert memory.memory_for(BOB).history_entries() == []
    assert len(memory.memory_for(ADA).history_entries()) == 1


def test_a_log_that_is_no_text_is_cleaned_as_well(tmp_path):
    """The entries of the session go, and all other bytes stay."""
    memory = Nanomem(tmp_path)
    memory.history("s").add_messages([HumanMessage("hello")])
    log = memory.memory.history_path
    for number, name in enumerate(("before", "s", "s", "behind")):
        memory.memory.append_history(f"entry of {name}", source=f"{name} {number}-9")
        log.write_bytes(log.read_bytes() + b"\na note of \xff bytes\n")
    report = memory.erase(session_id="s")
    assert (report.sessions, report.log_entries) == (["s"], 2)
    assert b"entry of s" not in log.read_bytes()
    assert log.read_bytes().count(b"a note of \xff bytes\n") == 4
    assert log.read_bytes().count(b"entry of be") == 2


def said(memory, key, scope, text):
    memory.sessions.bind_scope(key, scope)
    memory.history(key).add_messages([HumanMessage(text)])


@pytest.mark.parametrize("from_private", [True, False])
@pytest.mark.parametrize("what", [{"user_id": "ada"}, {"session_id": "s"}])
def test_it_makes_no_difference_where_it_is_said(tmp_path, from_private, what):
    """From a private conversation and from the memory itself, all goes, in both places."""
    memory = opened(tmp_path, "ada")
    for key in ("s", "away"):
        said(memory, key, ADA, telling("ada", key))
    memory.sessions.archive("away")
    memory.memory_for(ADA).append_history(telling("ada", "news"), source="s 0-1")
    said(memory, "of bob", BOB, telling("bob", "roses"))
    private, another = memory.off_the_record(), memory.off_the_record().off_the_record()
    for one in (private, another):
        said(one, "s", ADA, "in private")
        said(one, "of bob", BOB, "in private, too")
    report = (private if from_private else memory).erase(**what)
    assert report.sessions == ["s"]
    assert report.archived == (["away"] if "user_id" in what else [])
    assert (memory.memory_for(ADA).history_entries(), report.remains) == ([], [])
    assert holding(tmp_path, "ada has s inside") == []
    for one in (memory, private, another):
        assert [kept["key"] for kept in one.sessions.list_sessions()] == ["of bob"]


def test_what_was_private_alone_is_erased(workspace):
    """It is in the report; no note has anybody look for facts that can't be there."""
    memory = opened(workspace, "ada")
    memory.memory_for(ADA).write_long_term("- a fact")
    private = memory.off_the_record()
    said(private, "s", ADA, telling("ada", "roses"))
    report = memory.erase(session_id="s")
    assert (report.sessions, report.notes) == (["s"], [])
    assert private.sessions.list_sessions() == []


@pytest.mark.parametrize("source", ["my chat", "my chat 3-9", "my chat 12-40"])
@pytest.mark.parametrize("is_rolled", [False, True])
def test_whatever_names_the_session_goes(workspace, source, is_rolled):
    """With a range or without; what names one whose name is alike stays."""
    memory = Nanomem(workspace)
    others = ["my", "my 0-4", "my chat too", "my chat too 0-1", "chat", "my chat 1", "my chat 0-4 "]
    for name in [*others, source]:
        memory.memory.append_history(f"[2020-01-01 10:00] told of {name}", source=name)
    memory.memory.roll_history(2021 if is_rolled else 0)
    assert memory.erase(session_id="my chat").log_entries == 1
    assert [entry.source for entry in memory.memory.history_entries()] == others
    assert memory.memory.forget_session("my") == 2


def test_an_entry_is_known_by_its_id_where_it_names_nobody(tmp_path):
    """A person took the source out: the session's own record of it has the id."""
    memory = opened(tmp_path, "ada")
    session = memory.sessions.get_or_create("s")
    for text in ("one", "two", "three"):
        session.add_message("user", telling("ada", text))
    memory.consolidator.compact(session)
    log = memory.memory.history_path
    text = log.read_text()
    (entry,) = memory.memory.history_entries()
    log.write_text(text.replace(f' source="{entry.source}"', ""))
    memory.memory.append_history("of another", source="t")
    report = memory.erase(session_id="s")
    assert report.log_entries == 1
    assert [one.source for one in memory.memory.history_entries()] == ["t"]


def test_entries_that_name_no_session_are_told_of(tmp_path):
    """Nobody can tell whether they are of the session: the report says where they are."""
    memory = opened(tmp_path, "ada")
    for user in ("ada", "bob"):
        store = memory.memory_for(("user", user))
        store.append_history("by hand")
        store.append_history("by hand, too")
        store.append_history("of a session", source=f"of {user}")
    said(memory, "of ada", ADA, "hello")
    report = memory.erase(session_id="of ada")
    assert report.log_entries == 1
    (note,) = [one for one in report.notes if "no session" in one]
    assert note.startswith("2 log entries")
    assert str(memory.memory_for(ADA).history_path) in note
    assert "bob" not in note
    unknown = memory.erase(session_id="of nobody")
    assert not unknown
    assert unknown.notes[0].startswith("4 log entries")


def test_what_is_logged_leaves_the_index_too(tmp_path):
    """To the byte, before anybody searches again; and it is looked for in the memory."""
    memory = opened(tmp_path, "ada")
    store = memory.memory_for(ADA)
    store.append_history(telling("ada", "news"), source="s 0-1")
    store.append_history(telling("bob", "news"), source="t 0-1")
    store.write_long_term(f"- {telling('ada', 'news')}")
    assert len(store.search_history("garden")) == 2
    report = memory.erase(session_id="s")
    assert report.remains == [str(store.memory_path)]
    assert [hit.session_id for hit in store.search_history("garden")] == ["t"]


def test_all_logs_are_looked_through(workspace):
    """The session may have been another's before it was deleted, or nobody's yet."""
    memory = opened(workspace, "ada")
    said(memory, "s", ADA, "hello")
    for scope in ((), ADA, BOB):
        memory.memory_for(scope).append_history("news", source="s 0-1")
    assert memory.erase(session_id="s").log_entries == 3


def test_what_was_logged_before_a_session_was_somebodys_goes(workspace):
    """Until then it is in the workspace's own log; what others have logged stays theirs."""
    memory = opened(workspace, "ada")
    for scope in ((), BOB):
        memory.memory_for(scope).append_history(telling("ada", "news"), source="s 0-1")
        memory.memory_for(scope).append_history("other", source="t 0-1")
    said(memory, "s", ADA, "hello")
    report = memory.erase(user_id="ada")
    assert (report.sessions, report.log_entries) == (["s"], 1)
    assert [one.source for one in memory.memory.history_entries()] == ["t 0-1"]
    assert len(memory.memory_for(BOB).history_entries()) == 2


def test_a_log_that_cannot_be_read_is_named(tmp_path):
    """All others are cleaned; nobody can tell what is in it."""
    memory = opened(tmp_path, "ada")
    for scope in (ADA, BOB):
        memory.memory_for(scope).append_history("news", source="s 0-1")
    log = memory.memory_for(ADA).history_path
    log.unlink()
    log.symlink_to(tmp_path / "elsewhere")
    report = memory.erase(session_id="s")
    assert (report.log_entries, report.unreadable) == (1, [str(log)])
    assert memory.memory_for(BOB).history_entries() == []


@pytest.mark.parametrize("scope", [("user", "x" * 300), ("y" * 120, "z" * 120)])
def test_a_long_name_hides_nothing(tmp_path, scope):
    """The log of a scope whose directory's name is cut is looked through, too."""
    memory = Nanomem(tmp_path)
    store = memory.memory_for(scope)
    store.append_history("news", source="s 0-1")
    (tmp_path / "memory" / "scopes" / "a person's own.txt").write_text("news")
    assert memory.erase(session_id="s").log_entries == 1
    assert store.history_entries() == []


def test_nothing_names_a_session_that_was_deleted_before(tmp_path):
    """Nor one that never was: no lock of it stays."""
    memory = Nanomem(tmp_path)
    memory.history("s").add_messages([HumanMessage("hello")])
    memory.sessions.delete("s")
    for key in ("s", "none"):
        assert not memory.erase(session_id=key)
        assert list(tmp_path.rglob(f"{key}.*")) == []


def test_what_cannot_be_removed_keeps_nothing_else(tmp_path, monkeypatch):
    """One session that the system does not let go: the error comes when all else is gone."""
    memory = opened(tmp_path, "ada")
    for key in ("a", "b", "c"):
        memory.sessions.bind_scope(key, ADA)
    memory.memory_for(ADA).write_long_term("- a fact")
    unlink = type(tmp_path).unlink

    def refuse(path, missing_ok=False):  # noqa: FBT002 - its form
        if path.name == "a.jsonl":
            raise PermissionError(path)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(type(tmp_path), "unlink", refuse)
    with pytest.raises(PermissionError):
        memory.erase(user_id="ada")
    assert [one["key"] for one in memory.sessions.list_sessions()] == ["a"]
    assert not memory.memory_for(ADA).memory_path.exists()


def test_a_report_tells_all_that_it_knows():
    """What is unreadable, what remains, and the notes: also where nothing was removed."""
    report = Erased("user 'x'", unreadable=["bad"], remains=["left.md"], notes=["Note."])
    told = str(report)
    assert not report
    assert told.startswith("Nothing is known of user 'x'")
    assert all(part in told for part in ("bad", "left.md", "Note."))


@pytest.mark.parametrize(
    "text", ['she said "yes, at nine" today', "Zo\u00eb wohnt in K\u00f6ln am Rhein"]
)
def test_what_remains_is_found_in_whatever_form(tmp_path, text):
    """As it is, in JSON, with and without escapes, and in JSON within JSON."""
    memory = Nanomem(tmp_path)
    once = json.dumps(text)
    forms = {
        "raw": text,
        "json": once,
        "twice": json.dumps(once),
        "utf8": json.dumps({"t": text}, ensure_ascii=False),
    }
    for name, form in forms.items():
        (tmp_path / f"{name}.txt").write_text(form)
    memory.history("s").add_messages([HumanMessage(text)])
    report = memory.erase(session_id="s")
    assert {Path(place).stem for place in report.remains} == {*forms}


def test_a_consolidation_under_way_writes_nothing_afterwards(workspace):
    """The model answers after its user was erased: nothing of it gets onto the disk."""
    erased = threading.Event()
    memory = opened(workspace, "ada")

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
    assert holding(workspace, "garden of ada") == []
