"""Sessions are put away and come back; the log is rolled by year; old versions go."""

from __future__ import annotations

import gzip
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from stores import date_back

from langchain_nanomem import CorruptRecordError, MemoryStore, Nanomem, Retention, SessionManager
from langchain_nanomem.errors import SessionNotFoundError

pytestmark = pytest.mark.back_ends("files", "postgres")
ON_FILES = pytest.mark.back_ends("files")

NOW = datetime(2026, 5, 8, 12, tzinfo=UTC)


def said(memory, key, text, days_ago=0.0):
    memory.history(key).add_messages([HumanMessage(text)])
    date_back(memory.sessions.journal, key, NOW - timedelta(days=days_ago))


@pytest.fixture
def memory(workspace):
    found = Nanomem(workspace)
    for key, days in (("old", 90), ("middle", 30), ("new", 0)):
        said(found, key, f"the {key} owl sits in the barn", days)
    return found


def keys(memory):
    return sorted(one["key"] for one in memory.sessions.list_sessions())


# --- the archive ---


def test_an_archived_session_is_searched(memory, tmp_path):
    """As before, also by an index that is made anew; its file is compressed."""
    for _ in range(2):
        assert memory.sessions.archive("old") or _
        (hit,) = memory.memory.search_history('"the old owl"')
        assert (hit.session_id, hit.position) == ("old", 0)
        memory.close()
        for path in (tmp_path / ".search").iterdir():
            path.unlink()
    assert keys(memory) == ["middle", "new"]
    (kept,) = memory.sessions.list_archived()
    assert (kept.key, kept.scope) == ("old", ())
    assert b"the old owl" in gzip.decompress(kept.path.read_bytes())
    assert kept.path.stat().st_mode & 0o077 == 0


def test_it_comes_back_when_it_is_used(memory, tmp_path):
    """To the byte, without being asked; also after it was deleted and archived before."""
    path = memory.sessions.journal.path("old")
    before = path.read_bytes()
    assert memory.sessions.archive("old")
    assert not path.exists()
    again = SessionManager(tmp_path)
    assert again.get_or_create("old").messages[0]["content"] == "the old owl sits in the barn"
    assert path.read_bytes() == before
    assert memory.sessions.list_archived() == []
    (hit,) = memory.memory.search_history('"the old owl"')
    assert hit.session_id == "old"


def test_another_process_that_knows_it_finds_it_too(memory, tmp_path):
    """Put away behind the back of one that has it cached: it is no empty session there."""
    other = SessionManager(tmp_path)
    assert len(other.get_or_create("old").messages) == 1
    memory.sessions.archive("old")
    assert len(other.get_or_create("old").messages) == 1
    memory.sessions.archive("old")
    other.append_messages("old", [HumanMessage("more")])
    assert [one["content"] for one in memory.sessions.get_or_create("old").messages] == [
        "the old owl sits in the barn",
        "more",
    ]


@pytest.mark.parametrize("with_meaning", [False, True])
def test_a_search_sees_one_moment(tmp_path, with_meaning):
    """Another one takes a session out of the index between two reads of a search: none fails."""
    embedder = DeterministicFakeEmbedding(size=4) if with_meaning else None
    memory, other = Nanomem(tmp_path, embedder=embedder), Nanomem(tmp_path)
    for key in ("a", "b"):
        memory.history(key).add_messages([HumanMessage(f"owl {key} {n}") for n in range(9)])
    memory.memory.search_history("owl")
    others = []

    def put_away(statement):
        if "text FROM passages" in statement and not others:
            others.append(threading.Thread(target=lambda: use(other)))
            others[0].start()
            others[0].join(0.5)  # its end may wait for ours

    def use(other):
        other.sessions.archive("a")
        other.memory.search_history("owl")

    connection = memory.memory._index._tables._file._connection
    connection.set_trace_callback(put_away)
    assert len(memory.memory.search_history("owl", limit=18, neighbours=1)) == 18
    others[0].join()
    assert [one.key for one in other.sessions.list_archived()] == ["a"]
    assert len(memory.memory.search_history("owl", limit=18, neighbours=1)) == 18


@ON_FILES
def test_a_session_that_is_in_both_places_is_found_once(memory):
    """What a crash left in the archive counts once; it goes at the next use of the session."""
    memory.sessions.archive("old")
    (kept,) = memory.sessions.list_archived()
    content = kept.path.read_bytes()
    memory.sessions.restore("old")
    kept.path.write_bytes(content)
    for _ in range(2):
        (hit,) = memory.memory.search_history('"the old owl"')
        assert hit.session_id == "old"
        assert len(memory.sessions.get_or_create("old").messages) == 1
        assert memory.sessions.list_archived() == []
    kept.path.write_bytes(b"no archive")
    assert len(memory.sessions.get_or_create("old").messages) == 1
    assert kept.path.exists()


@ON_FILES
def test_it_is_brought_back_by_hand(memory):
    """And not over another of the same key."""
    assert memory.sessions.archive("old")
    assert memory.sessions.restore("old")
    assert not memory.sessions.restore("old")
    assert not memory.sessions.archive("unknown")
    assert keys(memory) == ["middle", "new", "old"]


async def test_a_graph_goes_on_from_its_archive(tmp_path, call):
    """Its thread comes back with its checkpoints, and new ones are taken."""
    graph = StateGraph(MessagesState)
    graph.add_node("echo", lambda state: {"messages": [f"echo {len(state['messages'])}"]})
    graph.add_edge(START, "echo")
    config = {"configurable": {"thread_id": "t"}}
    for turn in range(3):
        memory = Nanomem(tmp_path)
        compiled = graph.compile(checkpointer=memory.checkpointer)
        state = await call(compiled, "invoke", {"messages": ["hi"]}, config)
        assert len(state["messages"]) == 2 * turn + 2
        assert memory.sessions.archive("t")
    assert len(list(Nanomem(tmp_path).checkpointer.list(config))) == 9


@pytest.mark.parametrize("by_another", [False, True])
def test_an_object_of_it_brings_it_back(memory, tmp_path, by_another):
    """What is held of a session that was put away stays the one object of it, and is saved."""
    session = memory.sessions.get_or_create("old")
    session.add_message("user", "more")
    keeper = Nanomem(tmp_path) if by_another else memory
    rule = Retention(max_age=timedelta(days=60))
    assert keeper.apply_retention(rule, now=NOW).archived == ["old"]
    session.add_message("user", "and more")
    memory.sessions.save(session)
    assert memory.sessions.list_archived() == []
    assert memory.sessions.get_or_create("old") is session
    fresh = SessionManager(tmp_path).get_or_create("old")
    texts = [one["content"] for one in fresh.messages]
    assert texts == ["the old owl sits in the barn", "more", "and more"]


@ON_FILES
def test_an_object_of_one_that_left_the_archive_cannot_be_saved(memory):
    """What was put away and then deleted is no second session, whoever holds an object of it."""
    for delete in (memory.sessions.delete, memory.sessions.delete_archived):
        session = memory.sessions.get_or_create("old")
        session.add_message("user", "more")
        memory.sessions.save(session)
        memory.sessions.archive("old")
        assert delete("old")
        session.add_message("user", "and more")
        with pytest.raises(SessionNotFoundError):
            memory.sessions.save(session)
        assert memory.sessions.get_or_create("old").messages == []


def test_what_a_repair_put_aside_outlives_the_archive(memory, tmp_path):
    """Only a deletion takes it; and one from before stays known, so that no late run comes back."""
    journal = memory.sessions.journal
    path = journal.path("old")
    path.write_bytes(path.read_bytes() + b"no record\n")
    aside = journal.repair("old")
    memory.sessions.delete("middle")
    deleted_at = journal.deleted_at("middle")
    said(memory, "middle", "anew")
    for key in ("old", "middle"):
        assert memory.sessions.archive(key)
        assert aside.exists()
        assert memory.sessions.restore(key)
    assert aside.exists()
    assert (journal.deleted_at("old"), journal.deleted_at("middle")) == (None, deleted_at)
    memory.sessions.archive("old")
    assert memory.erase(session_id="old")
    assert not aside.exists()
    assert list(tmp_path.rglob("*damaged*")) == []


@ON_FILES
def test_to_be_read_makes_a_session_no_newer(memory):
    """It is as old as its last message, also when it comes back; written to, it is new."""
    before = {one["key"]: one["updated_at"] for one in memory.sessions.list_sessions()}
    rule = Retention(max_age=timedelta(days=60))
    for _ in range(2):
        assert memory.apply_retention(rule, now=NOW).archived == ["old"]
        memory.sessions.get_or_create("old")
        assert {o["key"]: o["updated_at"] for o in memory.sessions.list_sessions()} == before
    memory.sessions.archive("old")
    memory.history("old").add_messages([HumanMessage("more")])
    assert memory.apply_retention(rule, now=NOW).archived == []
    assert memory.sessions.list_sessions()[0]["key"] == "old"


@ON_FILES
def test_what_is_put_away_already_is_let_alone(memory):
    """The file of the archive stays as it is, with when it was put away."""
    memory.sessions.archive("old")
    (kept,) = memory.sessions.list_archived()
    content = kept.path.read_bytes()
    assert not memory.sessions.archive("old")
    assert (kept.path.read_bytes(), memory.sessions.list_archived()) == (content, [kept])


def test_a_deleted_session_leaves_the_archive(memory, tmp_path):
    """Also out of the index, to the byte."""
    memory.sessions.archive("old")
    memory.memory.search_history("owl")
    assert memory.sessions.delete("old")
    assert not memory.sessions.delete("old")
    assert memory.memory.search_history('"the old owl"') == []
    memory.close()
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in left if b"old owl" in path.read_bytes()] == []


@ON_FILES
def test_a_damaged_archive_is_loud_where_it_is_used(memory, caplog):
    """It is never an empty session; search goes on without it, and says so."""
    memory.sessions.archive("old")
    (kept,) = memory.sessions.list_archived()
    kept.path.write_bytes(kept.path.read_bytes()[:-9])
    with pytest.raises(CorruptRecordError, match="can't be unpacked"):
        memory.sessions.get_or_create("old")
    assert kept.path.exists()
    assert len(memory.memory.search_history("owl")) == 2
    assert "is not searched" in caplog.text


@ON_FILES
def test_a_damaged_session_is_not_put_away(memory):
    """It stays where it is, as it is."""
    path = memory.sessions.journal.path("old")
    path.write_bytes(path.read_bytes() + b"no record\n")
    memory.sessions.invalidate("old")
    with pytest.raises(CorruptRecordError):
        memory.sessions.archive("old")
    report = memory.apply_retention(Retention(max_sessions=0), now=NOW)
    assert sorted(report.archived) == ["middle", "new"]
    assert (report.archived[2:], report.skipped) == ([], ["old"])
    assert path.read_bytes().endswith(b"no record\n")


# --- by age, number and size ---


@ON_FILES
@pytest.mark.parametrize(
    ("rule", "gone"),
    [
        ({"max_age": timedelta(days=60)}, ["old"]),
        ({"max_age": timedelta(days=7)}, ["old", "middle"]),
        ({"max_sessions": 1}, ["old", "middle"]),
        ({"max_sessions": 0}, ["old", "middle", "new"]),
        ({"max_bytes": 10**6}, []),
        ({"max_bytes": 10}, ["old", "middle", "new"]),
        ({}, []),
    ],
)
@pytest.mark.parametrize("action", ["archive", "delete"])
def test_what_is_beyond_a_limit_goes(memory, rule, gone, action):
    """The oldest first; archived ones are still found, deleted ones are not."""
    report = memory.apply_retention(Retention(action=action, **rule), now=NOW)
    assert (report.archived if action == "archive" else report.deleted) == gone
    assert keys(memory) == sorted({"old", "middle", "new"} - {*gone})
    found = {hit.session_id for hit in memory.memory.search_history("owl")}
    assert found == ({"old", "middle", "new"} if action == "archive" else set(keys(memory)))


def retained(memory, other, use, rule, now=NOW):
    """What a retention did that finds "old" due, and locked, and used before it goes."""
    is_held, reports = threading.Event(), []

    def apply():
        is_held.wait()
        reports.append(memory.apply_retention(rule, now=now))

    applying = threading.Thread(target=apply)
    applying.start()
    with other.journal.lock("old"):
        is_held.set()
        applying.join(0.5)  # it has listed the sessions, and waits for this one
        use()
    applying.join()
    return reports[0]


def keep_what_is_written_to(memory, workspace, action):
    other = SessionManager(workspace)
    write = lambda: other.append_messages("old", [HumanMessage("just now")])  # noqa: E731
    report = retained(memory, other, write, Retention(max_sessions=0, action=action))
    assert sorted([*report.archived, *report.deleted]) == ["middle", "new"]
    assert keys(memory) == ["old"]
    assert memory.sessions.get_or_create("old").messages[-1]["content"] == "just now"


def test_what_is_written_meanwhile_is_not_deleted(memory, workspace):
    """A message comes when the session is due already, and before it goes: none is lost."""
    keep_what_is_written_to(memory, workspace, "delete")


@ON_FILES
def test_what_is_written_meanwhile_is_not_archived(memory, workspace):
    """Nor is it put away."""
    keep_what_is_written_to(memory, workspace, "archive")


def test_where_there_is_no_archive_nothing_is_put_away(memory, workspace):
    """A database keeps none: it says so before anything is done; versions can be limited."""
    rule = Retention(max_sessions=0)
    if isinstance(workspace, Path):
        assert memory.apply_retention(rule, now=NOW).archived == ["old", "middle", "new"]
        return
    with pytest.raises(ValueError, match=r"no archive.*action=.delete"):
        memory.apply_retention(rule, now=NOW)
    assert keys(memory) == ["middle", "new", "old"]
    assert memory.apply_retention(Retention(max_versions=1, history_years=1), now=NOW).deleted == []


def test_what_came_back_and_went_again_is_as_new_as_it_is(memory, tmp_path):
    """Put away anew while the archive is gone through: it is no more what was due."""
    memory.sessions.archive("old")
    (kept,) = memory.sessions.list_archived()
    other = SessionManager(tmp_path)
    use = lambda: [other.restore("old"), other.archive("old")]  # noqa: E731
    rule = Retention(max_archive_age=timedelta(days=365))
    later = kept.archived_at + timedelta(days=400)
    assert retained(memory, other, use, rule, later).deleted == []
    assert [one.key for one in memory.sessions.list_archived()] == ["old"]


@ON_FILES
def test_the_archive_has_an_age_too(memory):
    """So long after they were put away they are deleted."""
    memory.sessions.archive("old")
    rule = Retention(max_archive_age=timedelta(days=365))
    assert memory.apply_retention(rule).deleted == []
    later = datetime.now(UTC) + timedelta(days=366)
    assert memory.apply_retention(rule, now=later).deleted == ["old"]
    assert memory.sessions.list_archived() == []


@pytest.mark.parametrize(
    "wrong", [{"max_sessions": -1}, {"max_age": timedelta(days=-1)}, {"action": "burn"}]
)
def test_a_limit_that_is_none_is_refused(wrong):
    """A negative one, or an unknown action."""
    with pytest.raises(ValueError, match="must"):
        Retention(**wrong)


# --- the log ---


def test_the_log_is_rolled_by_year(memory, tmp_path):
    """Entries go to a file for their year, as they stand; a note without a time stays."""
    store = memory.memory
    for year in (2023, 2024, 2024, 2026):
        store.append_history(f"owl of {year}", at=datetime(year, 3, 1, tzinfo=UTC), source="s 0-1")
    with store.history_path.open("a") as file:
        file.write("\n[2024-05-05 10:00] by hand\nof two lines\n\na note\n")
    before = store.history_entries()
    report = memory.apply_retention(Retention(history_years=1), now=NOW)
    assert report.rolled_entries == 4
    names = sorted(path.name for path in store.history_path.parent.glob("HISTORY*"))
    assert names == ["HISTORY-2023.md", "HISTORY-2024.md", "HISTORY.md"]
    assert "by hand\nof two lines" in (store.history_path.parent / names[1]).read_text()
    after = store.history_entries()
    key = lambda entry: (str(entry.at), entry.text, entry.entry_id, entry.source)  # noqa: E731
    assert sorted(map(key, after)) == sorted(map(key, before))
    assert store.history_path.read_text().count("owl of 2026") == 1
    assert memory.apply_retention(Retention(history_years=1), now=NOW).rolled_entries == 0
    assert {hit.text for hit in store.search_history("owl 2023", kinds=["logged"])} >= {
        "owl of 2023"
    }


def test_no_entry_passes_for_a_part_of_another(tmp_path):
    """What begins as another does is an entry of its own; odd line ends part none."""
    store = MemoryStore(tmp_path)
    store.append_history("the start", at=datetime(2020, 1, 1, tzinfo=UTC))
    log = store.history_path
    hand = "[2020-05-05 10:00] by hand\u2028and more\r\nof it\r\n\r\n[2026-05-05 10:00] now\r\n"
    log.write_bytes(log.read_bytes() + b"\n" + hand.encode())
    store.roll_history(2025)
    log.write_bytes(b"[2020-05-05 10:00] by\n\n" + log.read_bytes())
    before = sorted(entry.text for entry in store.history_entries())
    assert before == ["by", "by hand\u2028and more\nof it", "now", "the start"]
    assert store.roll_history(2025) == 1
    assert sorted(entry.text for entry in store.history_entries()) == before
    assert log.read_text().strip() == "[2026-05-05 10:00] now"


def test_an_entry_is_appended_once_whatever_was_rolled(workspace):
    """Its id is known in the files of earlier years, too."""
    store = MemoryStore(workspace)
    for _ in range(2):
        store.append_history("long ago", at=datetime(2020, 1, 1, tzinfo=UTC), entry_id="x")
        store.roll_history(2025)
        assert store.has_history_entry("x")
    assert [entry.text for entry in store.history_entries()] == ["long ago"]


def test_a_crash_while_rolling_loses_and_doubles_nothing(tmp_path):
    """An entry that is in both files counts once, and leaves at the next call."""
    store = MemoryStore(tmp_path)
    for year in (2020, 2026):
        store.append_history(f"in {year}", at=datetime(year, 1, 1, tzinfo=UTC))
    whole = store.history_path.read_text()
    store.roll_history(2025)
    rolled = store.history_path.with_name("HISTORY-2020.md").read_text()
    store.history_path.write_text(whole)
    assert [entry.text for entry in store.history_entries()] == ["in 2020", "in 2026"]
    store.roll_history(2025)
    assert store.history_path.with_name("HISTORY-2020.md").read_text() == rolled
    assert "in 2020" not in store.history_path.read_text()


# --- versions ---


def test_old_versions_of_the_memory_go(workspace):
    """By number and by age, in every scope; those of a fresh change stay."""
    memory = Nanomem(workspace, scope="user")
    store = memory.memory_for(("user", "Ada+Bob"))
    for number in range(6):
        store.write_long_term(f"version {number}")
    report = memory.apply_retention(Retention(max_versions=2))
    assert report.removed_versions == 3
    assert [one.read_text() for one in store.versions()] == ["version 4", "version 3"]
    base = store.read_version().version
    assert store.replace_long_term("by a change", expected_version=base, change_id="c")
    later = datetime.now(UTC) + timedelta(days=30)
    rule = Retention(max_version_age=timedelta(days=10), max_versions=0)
    assert memory.apply_retention(rule, now=later).removed_versions == 2
    assert [one.change_id for one in store.versions()] == ["c"]
    assert store.has_change("c")


@ON_FILES
def test_what_stays_in_the_archive_keeps_nothing_else(memory, monkeypatch):
    """One that the system does not let go is named; the others go."""
    for key in ("old", "middle"):
        memory.sessions.archive(key)
    unlink = Path.unlink

    def refuse(path, missing_ok=False):  # noqa: FBT002 - its form
        if path.name == "middle.jsonl.gz":
            raise PermissionError(path)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    later = datetime.now(UTC) + timedelta(days=400)
    report = memory.apply_retention(Retention(max_archive_age=timedelta(days=365)), now=later)
    assert (report.deleted, report.skipped) == (["old"], ["middle"])


LONG = [
    ("user", "x" * 300),
    ("user", "Ä" * 100),
    ("user", "Ada" * 40, "project", "P" * 60),
    ("." * 200,),
]


@pytest.mark.parametrize("scope", [(), ("user", "42"), *LONG])
def test_every_memory_is_reached(tmp_path, scope):
    """Also one with so long a name that its directory's is cut."""
    memory = Nanomem(tmp_path)
    store = memory.memory_for(scope)
    for number in range(4):
        store.write_long_term(f"version {number}")
        store.append_history(f"in {number}", at=datetime(2020 + number, 1, 1, tzinfo=UTC))
    report = memory.apply_retention(Retention(max_versions=1, history_years=4), now=NOW)
    assert (report.rolled_entries, report.removed_versions) == (2, 2)
    assert store.history_path.with_name("HISTORY-2021.md").exists()
    assert [one.read_text() for one in store.versions()] == ["version 2"]


def test_what_is_no_memory_is_let_alone(tmp_path):
    """A person's files and copies among the directories of the scopes."""
    memory = Nanomem(tmp_path)
    store = memory.memory_for(("user", "42"))
    store.append_history("long ago", at=datetime(2020, 1, 1, tzinfo=UTC))
    scopes = store.history_path.parents[1]
    (scopes / "notes").write_text("a person's own")
    copy = scopes / "user+42 (copy)"
    copy.mkdir()
    (copy / "HISTORY.md").write_bytes(store.history_path.read_bytes())
    assert memory.apply_retention(Retention(history_years=1), now=NOW).rolled_entries == 1
    assert [one.name for one in copy.iterdir()] == ["HISTORY.md"]


def test_a_damaged_log_keeps_no_other(tmp_path, caplog):
    """It is named, and is as it was; the memories of all others are gone through."""
    memory = Nanomem(tmp_path)
    stores = [memory.memory_for(("user", name)) for name in ("ada", "bob")]
    for store in stores:
        store.append_history("long ago", at=datetime(2020, 1, 1, tzinfo=UTC))
        store.write_long_term("one")
        store.write_long_term("two")
    damaged = stores[0].history_path
    damaged.write_bytes(content := b"\xff" + damaged.read_bytes())
    report = memory.apply_retention(Retention(history_years=1, max_versions=0), now=NOW)
    assert (report.rolled_entries, report.removed_versions) == (1, 2)
    assert report.skipped_memories == [str(damaged.parent)]
    assert damaged.read_bytes() == content
    assert "is kept as it is" in caplog.text
    assert [len(one.versions()) for one in stores] == [0, 0]


@ON_FILES
def test_from_a_private_conversation_it_is_the_same(memory):
    """What is kept is the workspace's; what is not kept ends by itself."""
    private = memory.off_the_record()
    private.history("t").add_messages([HumanMessage("hello")])
    report = private.apply_retention(Retention(max_sessions=1), now=NOW)
    assert report.archived == ["old", "middle"]
    assert [one["key"] for one in private.sessions.list_sessions()] == ["t"]
