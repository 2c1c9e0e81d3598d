"""Copying a workspace between back ends: all of it comes across, and nothing is overwritten."""

from __future__ import annotations

import math
import shutil
from datetime import UTC, datetime, timedelta

import pytest

from langchain_nanomem import session_copy
from langchain_nanomem.errors import CopyError, UnsupportedFormatError
from langchain_nanomem.file_journal import FileJournal
from langchain_nanomem.history_log import HistoryEntry
from langchain_nanomem.journal import deletion_name
from langchain_nanomem.memory_journal import MemoryJournal
from langchain_nanomem.memory_versions import change_stem
from langchain_nanomem.postgres_journal import PostgresJournal
from langchain_nanomem.workspace_copy import Copied, acopy_workspace, copy_workspace
from langchain_nanomem.workspaces import open_workspace

KEY = "Web/42: ünï"
HEAD = {"_type": "metadata", "key": KEY}
LONG = f"{'x' * 300}:1"
EARLIER = datetime(2024, 2, 29, 23, 59, 58, 123456, tzinfo=UTC)
MINUTE = EARLIER.replace(second=0, microsecond=0)
SCOPE = ("user", "42")


def said(*texts):
    return [{"role": "user", "content": text} for text in texts]


ODD = [
    {"_type": "element", "_n": 0, "value": (1, 1.0, True, -0.0)},
    {"_type": "element", "_n": 1, "value": {"half": "\ud800", "bytes": b"\0\xff"}},
    {"_type": "checkpoint", "value": [math.inf, 2**70, {1: {2}}]},
]


@pytest.fixture
def place(tmp_path, request):
    """Makes places of a kind."""
    made = []

    def make(kind):
        if kind == "files":
            made.append(FileJournal(tmp_path / f"w{len(made)}"))
        else:
            made.append(request.getfixturevalue("databases").journal())
        return made[-1]

    yield make
    if any(isinstance(one, PostgresJournal) for one in made):
        request.getfixturevalue("databases").drop()


@pytest.fixture(
    params=["files postgres", "postgres files", "files files", "postgres postgres"],
    ids=lambda kinds: kinds.replace(" ", " to "),
)
def ways(request, place):
    """A source and a target."""
    return [place(kind) for kind in request.param.split()]


@pytest.fixture(params=["files", "postgres"])
def other(request, place):
    """A target, for a source in files."""
    return place(request.param)


@pytest.fixture
def source(place):
    """An empty source, in files."""
    return place("files")


def memory_of(journal, scope=()):
    return open_workspace(journal).memory.of(scope)


def kept_of(journal, scope=()):
    """All that is kept of a memory."""
    memory = memory_of(journal, scope)
    versions = [(v.version, v.archived_at, v.change, v.read_bytes()) for v in memory.versions()]
    log = [(e.at, e.text, e.entry_id, e.source) for e in memory.entries()]
    return memory.current(), versions, log


def lines(journal, key):
    """The records of a session, as exact as they can be told."""
    return [repr(record) for record in journal.read(key)[0]]


# --- what the waist has for it ----------------------------------------------


@pytest.mark.parametrize("kind", ["files", "postgres", "memory"])
def test_deletions_and_times_can_be_put_back(place, kind):
    """A deletion keeps the later time and deletes nothing; a session is as old as is said."""
    journal = MemoryJournal() if kind == "memory" else place(kind)
    journal.append(KEY, [HEAD])
    assert journal.deletions() == {}
    for at in (MINUTE, EARLIER, MINUTE):
        journal.note_deletion(deletion_name(KEY), at)
    assert journal.deletions() == {deletion_name(KEY): EARLIER}
    assert journal.deleted_at(KEY) == EARLIER
    assert journal.read(KEY)[0] == [HEAD]
    journal.set_updated_at(KEY, EARLIER)
    assert journal.info(KEY).updated_at == EARLIER
    end = journal.append(KEY, said("a"))
    assert journal.info(KEY).updated_at > EARLIER
    journal.set_updated_at(KEY, EARLIER)
    assert journal.read(KEY, end) == ([], end)
    journal.delete(KEY)
    assert journal.deleted_at(KEY) > EARLIER
    assert journal.is_there()


# --- sessions ---------------------------------------------------------------


def test_sessions_are_the_same(ways):
    """Each record comes across, in its order and of its types, and so does when it was written."""
    source, target = ways
    source.append(KEY, [HEAD, *ODD])
    source.append(KEY, said("a"))
    source.append(LONG, [HEAD | {"key": LONG}, *said("b")])
    source.set_updated_at(KEY, EARLIER)
    assert copy_workspace(source, target) == Copied(sessions=2, records=7)
    for key in (KEY, LONG):
        assert lines(target, key) == lines(source, key)
        assert target.info(key).first_record == source.info(key).first_record
        assert target.info(key).updated_at == source.info(key).updated_at
    assert target.info(KEY).updated_at == EARLIER
    assert [info.key for info in target.list()] == [KEY, LONG]


def test_a_session_that_grew_is_continued(ways):
    """Called again, it adds what is new, and only that."""
    source, target = ways
    source.append(KEY, [HEAD, *said("a", "b")])
    copy_workspace(source, target)
    first = target.read(KEY)[1]
    assert copy_workspace(source, target) == Copied(sessions=1, unchanged=3)
    assert target.read(KEY)[1] == first
    source.append(KEY, said("c", "d"))
    assert copy_workspace(source, target) == Copied(sessions=1, records=2, unchanged=3)
    assert lines(target, KEY) == lines(source, KEY)
    assert target.read(KEY, first)[0] == said("c", "d")


def test_a_long_session_is_written_in_parts(ways, monkeypatch):
    """What is too long to be written at once comes across whole, and goes on where it stopped."""
    source, target = ways
    monkeypatch.setattr(session_copy, "_BATCH_BYTES", 200)
    source.append(KEY, [HEAD, *said(*(f"{n} {'x' * 50}" for n in range(40)))])
    target.rewrite(KEY, source.read(KEY)[0][:17])
    assert copy_workspace(source, target) == Copied(sessions=1, records=24, unchanged=17)
    assert lines(target, KEY) == lines(source, KEY)


def test_the_source_is_only_read(ways):
    """Nothing of it changes, and no table is made in a database without any."""
    source, target = ways
    with pytest.raises(FileNotFoundError, match="there is no workspace"):
        copy_workspace(source, target)
    assert not source.is_there()
    assert not target.is_there()
    source.append(KEY, [HEAD, *said("a")])
    memory_of(source).put(b"- a")
    before = source.states(), lines(source, KEY), kept_of(source)
    copy_workspace(source, target)
    assert (source.states(), lines(source, KEY), kept_of(source)) == before


@pytest.mark.parametrize(
    ("there", "says"),
    [
        (said("other"), "differs in record 2"),
        (said("a", "b", "c"), "has 4 records of it, the source only 3"),
        ([{"role": "user", "content": 1}], "differs in record 2"),
    ],
)
def test_something_else_is_never_overwritten(ways, there, says):
    """Another session of the key, or one that went on, is named and left; all else is copied."""
    source, target = ways
    source.append(KEY, [HEAD, *said("a", "b")])
    source.append("z", [HEAD | {"key": "z"}])
    target.append(KEY, [HEAD, *there])
    target.append("own", [HEAD | {"key": "own"}])
    before = lines(target, KEY), target.read(KEY)[1]
    with pytest.raises(CopyError, match=says) as caught:
        copy_workspace(source, target)
    assert f"session {KEY!r}" in str(caught.value)
    assert "1 could not be copied; 1 sessions" in str(caught.value)
    assert (lines(target, KEY), target.read(KEY)[1]) == before
    assert [info.key for info in target.list()] == [KEY, "own", "z"]


def test_values_that_are_equal_and_of_other_types_are_not_the_same(source, other):
    """1, 1.0 and True are three values."""
    source.append(KEY, [HEAD, {"value": 1}])
    other.append(KEY, [HEAD, {"value": True}])
    with pytest.raises(CopyError, match="record 2"):
        copy_workspace(source, other)


def test_deletions_are_noted(ways):
    """When sessions were deleted comes across, also of one that is there again.

    Never an earlier time than is known, and not for a session that only the target has.
    """
    source, target = ways
    for key in ("gone", "again", "own"):
        source.append(key, [HEAD | {"key": key}])
        source.delete(key)
    source.append("again", [HEAD | {"key": "again"}])
    target.append("own", [HEAD | {"key": "own"}])
    later = datetime.now(UTC) + timedelta(days=1)
    target.note_deletion(deletion_name("later"), later)
    source.note_deletion(deletion_name("later"), EARLIER)
    assert copy_workspace(source, target) == Copied(sessions=1, records=1, deletions=3)
    for key in ("gone", "again"):
        assert target.deleted_at(key) == source.deleted_at(key)
    assert target.deleted_at("own") is None
    assert target.deleted_at("later") == later
    assert [info.key for info in target.list()] == ["again", "own"]


def test_a_damaged_session_is_named(source, other):
    """One that can't be read, or whose key nobody can tell, is an error; all else is copied."""
    for key in ("a", "b", LONG):
        source.append(key, [HEAD | {"key": key}])
    source.path("a").write_bytes(b"nonsense\n")
    source.path(LONG).write_bytes(b"nonsense\n")
    with pytest.raises(CopyError, match="2 could not be copied; 1 sessions") as caught:
        copy_workspace(source, other)
    assert str(source.path("a")) in str(caught.value)
    assert "nobody can tell which session" in str(caught.value)
    assert [info.key for info in other.list()] == ["b"]


def test_another_who_writes_to_the_target_is_noticed(source, place, databases):
    """What someone else has written meanwhile stays, and the copy says so."""
    rival = place("postgres")
    rival.prepare()

    class Overtaken(PostgresJournal):
        def read(self, key, *start):
            found = super().read(key, *start)
            databases.ask(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
            )
            rival.append(key, [HEAD, *said("mine")])
            return found

    source.append(KEY, [HEAD])
    with (
        Overtaken(databases.url, schema=rival.schema.name) as target,
        pytest.raises(CopyError, match="another wrote to it in the target"),
    ):
        copy_workspace(source, target)
    assert rival.read(KEY)[0] == [HEAD, *said("mine")]


# --- the archive ------------------------------------------------------------


def test_archived_sessions_stay_archived(source, place):
    """Where there is an archive they are in it, as old as they were."""
    target = place("files")
    source.append(KEY, [HEAD, *said("a")])
    source.set_updated_at(KEY, EARLIER)
    source.put_away(KEY, SCOPE, EARLIER + timedelta(days=1))
    assert copy_workspace(source, target) == Copied(sessions=1, archived=1, records=2)
    found, there = target.archive.find(KEY), source.archive.find(KEY)
    assert (found.scope, found.archived_at, found.updated_at) == there[1:3] + there[5:]
    assert (found.scope, found.updated_at) == (SCOPE, EARLIER)
    assert target.list() == []
    assert copy_workspace(source, target) == Copied(sessions=1, archived=1, unchanged=2)
    assert target.archive.find(KEY) == found
    target.bring_back(KEY)
    assert lines(target, KEY) == [repr(record) for record in [HEAD, *said("a")]]


def test_a_database_has_archived_sessions_as_others(source, place):
    """They come across whole; and what is whole in an archive is not taken out of it."""
    target = place("postgres")
    source.append(KEY, [HEAD, *said("a")])
    source.put_away(KEY, SCOPE)
    assert copy_workspace(source, target) == Copied(sessions=1, archived=1, records=2)
    assert target.read(KEY)[0] == [HEAD, *said("a")]
    assert copy_workspace(target, source) == Copied(sessions=1, unchanged=2)
    assert source.archive.holds(KEY)
    target.append(KEY, said("b"))
    assert copy_workspace(target, source) == Copied(sessions=1, records=1, unchanged=2)
    assert source.read(KEY)[0] == [HEAD, *said("a", "b")]
    assert not source.archive.holds(KEY)


def test_a_session_goes_into_the_archive_and_out_of_it(source, place):
    """One that was put away, or came back and grew, since the last time is so in the target."""
    target = place("files")
    source.append(KEY, [HEAD, *said("a")])
    copy_workspace(source, target)
    source.put_away(KEY, SCOPE)
    assert copy_workspace(source, target) == Copied(sessions=1, archived=1, unchanged=2)
    assert target.archive.holds(KEY)
    source.bring_back(KEY)
    source.append(KEY, said("b"))
    source.put_away(KEY, SCOPE)
    assert copy_workspace(source, target) == Copied(1, 1, records=1, unchanged=2)
    assert target.list() == []
    source.bring_back(KEY)
    source.append(KEY, said("c"))
    assert copy_workspace(source, target) == Copied(sessions=1, records=1, unchanged=3)
    assert lines(target, KEY) == lines(source, KEY)
    assert not target.archive.holds(KEY)


def test_what_is_archived_is_not_overwritten(source, place):
    """Another session in the target's archive is left; so is one that the source has twice."""
    target = place("files")
    for key in (KEY, "b"):
        source.append(key, [HEAD | {"key": key}, *said("a")])
        target.append(key, [HEAD | {"key": key}, *said("other")])
        target.put_away(key, ())
    source.put_away("b", ())
    source.append("twice", [HEAD | {"key": "twice"}])
    source.put_away("twice", ())
    source.append("twice", [HEAD | {"key": "twice"}, *said("new")])
    with pytest.raises(CopyError, match="3 could not be copied; 1 sessions") as caught:
        copy_workspace(source, target)
    assert "one in its archive, and another in use" in str(caught.value)
    assert {one.key for one in target.archive.sessions()} == {KEY, "b"}
    assert target.read("twice")[0][1:] == said("new")


def test_a_damaged_archive_is_named(source, other):
    """A file that is no archived session is an error, and not passed over."""
    source.append(KEY, [HEAD])
    source.put_away(KEY, ())
    source.archive.find(KEY).path.write_bytes(b"nonsense")
    with pytest.raises(CopyError, match="can't be unpacked"):
        copy_workspace(source, other)


# --- memory -----------------------------------------------------------------


NOTES = [
    HistoryEntry(MINUTE, "the first\n[2024-01-01 10:00] no", "e-1", "k 0-4", 1),
    HistoryEntry(None, "a person's note\n\nof two paragraphs", None, None, 1),
    HistoryEntry(MINUTE, "a person's, with a date", None, None, 1),
    HistoryEntry(MINUTE, 'odd -- "id"', 'e\n--> "2', None, 1),
    HistoryEntry(None, "[2024-01-01 10:00] looks dated", "e-3", "", 1),
]


def test_memories_are_the_same(ways):
    """Facts, earlier versions with their times and changes, and the log come across as they are."""
    source, target = ways
    for scope in ((), SCOPE, ("a" * 300, "b")):
        memory = memory_of(source, scope)
        memory.put(f"- first of {scope}".encode())
        memory.replace(b"- second", memory.current().version, change_stem("c" * 200))
        memory.put(b"- third\xc3\xbc")
        memory.extend(NOTES)
    assert copy_workspace(source, target) == Copied(memories=3, versions=6, entries=15)
    for scope in ((), SCOPE, ("a" * 300, "b")):
        assert kept_of(target, scope) == kept_of(source, scope)
        assert memory_of(target, scope).is_made(change_stem("c" * 200))
        assert memory_of(target, scope).contains("e-1")
    assert [log[1:] for log in kept_of(target)[2]] == [
        (note.text, note.entry_id, note.source) for note in NOTES
    ]


def test_a_memory_that_grew_is_continued(ways):
    """Called again, it adds what is new; what was facts is archived as in the source."""
    source, target = ways
    memory = memory_of(source)
    memory.put(b"- first")
    memory.extend(NOTES[:2])
    copy_workspace(source, target)
    assert copy_workspace(source, target) == Copied(memories=1, entries=2)
    memory.put(b"- second")
    memory.put(b"- third")
    memory.extend(NOTES[2:])
    assert copy_workspace(source, target) == Copied(memories=1, versions=2, entries=5)
    assert kept_of(target) == kept_of(source)
    assert copy_workspace(source, target) == Copied(memories=1, versions=2, entries=5)
    assert kept_of(target) == kept_of(source)


def test_other_facts_and_another_log_are_never_overwritten(ways):
    """What the target has and the source never had is named and left; sessions are copied."""
    source, target = ways
    source.append(KEY, [HEAD])
    memory_of(source).put(b"- ours")
    memory_of(target).put(b"- theirs")
    memory_of(source, SCOPE).extend(NOTES[:1])
    memory_of(target, SCOPE).extend(NOTES[1:2])
    before = kept_of(target), kept_of(target, SCOPE)
    with pytest.raises(CopyError, match="2 could not be copied; 1 sessions") as caught:
        copy_workspace(source, target)
    assert "other facts" in str(caught.value)
    assert "other entries" in str(caught.value)
    assert (kept_of(target), kept_of(target, SCOPE)) == before


def test_facts_that_are_gone_in_the_source_stay(source, other):
    """Nothing is removed in the target."""
    memory_of(source).put(b"- a")
    copy_workspace(source, other)
    memory_of(source).memory_path.unlink()
    with pytest.raises(CopyError, match="other facts"):
        copy_workspace(source, other)
    assert memory_of(other).current().text == "- a"


def test_earlier_facts_that_a_person_edited_are_noticed(source, other):
    """An archived version that says something else in the target is an error."""
    memory = memory_of(source)
    memory.put(b"- a")
    memory.put(b"- b")
    copy_workspace(source, other)
    memory.versions()[0].path.write_text("edited")
    with pytest.raises(CopyError, match="other earlier facts"):
        copy_workspace(source, other)


def test_a_change_that_was_never_made_is_not_made_in_the_target(source, other):
    """What a crash left between archiving and replacing doesn't count as a change."""
    memory, change = memory_of(source), change_stem("c-1")
    memory.put(b"- a")
    memory.replace(b"- b", memory.current().version, change)
    memory.memory_path.write_bytes(b"- a")
    memory.memory_path.with_name(f".MEMORY.md.{change}.pending").write_bytes(b"- b")
    assert not memory.is_made(change)
    assert copy_workspace(source, other) == Copied(memories=1)
    assert not memory_of(other).is_made(change)
    assert memory_of(other).replace(b"- b", memory.current().version, change)


def test_rolled_years_are_one_log(source, other):
    """Entries in files of earlier years come across in their order."""
    memory = memory_of(source)
    memory.extend(NOTES[:4])
    assert memory.roll(2025) == 3
    assert copy_workspace(source, other) == Copied(memories=1, entries=4)
    assert kept_of(other) == kept_of(source)


# --- calling it -------------------------------------------------------------


async def test_the_twin_does_the_same(source, other):
    """`acopy_workspace` tells of progress too, session by session and memory by memory."""
    source.append(KEY, [HEAD])
    memory_of(source, SCOPE).put(b"- a")
    told = []
    done = await acopy_workspace(source, other, progress=lambda *step: told.append(step))
    assert done == Copied(sessions=1, records=1, memories=1)
    assert told == [(KEY, 1, 3), ("memory", 2, 3), ("user+42", 3, 3)]


def test_places_are_told_by_addresses(source, databases, tmp_path):
    """A directory and a URL with a schema are taken as they are elsewhere."""
    source.append(KEY, [HEAD])
    schema = databases.schema()
    assert copy_workspace(source.workspace, databases.url, target_schema=schema).sessions == 1
    back = copy_workspace(databases.url, str(tmp_path / "back"), source_schema=schema)
    assert back == Copied(sessions=1, records=1)
    assert lines(FileJournal(tmp_path / "back"), KEY) == lines(source, KEY)
    databases.drop()


def test_what_is_no_workspace_is_refused(tmp_path):
    """A journal without a memory, a schema for a directory, another kind of URL."""
    with pytest.raises(ValueError, match="no memory is known"):
        copy_workspace(MemoryJournal(), tmp_path)
    with pytest.raises(ValueError, match="schema is for a database"):
        copy_workspace(tmp_path, tmp_path / "b", target_schema="a")
    with pytest.raises(ValueError, match="mysql:// is not supported"):
        copy_workspace(tmp_path, "mysql://ann:s3cret@host/db")


def test_an_older_database_is_not_changed_to_be_read(place, databases, tmp_path):
    """A source is not migrated: the error says how to."""
    source = place("postgres")
    source.prepare()
    databases.ask(f"UPDATE {source.schema.name}.version SET version = 1")
    fresh = PostgresJournal(databases.url, schema=source.schema.name)
    with pytest.raises(UnsupportedFormatError, match="nanomem db upgrade"):
        copy_workspace(fresh, tmp_path / "b")
    assert fresh.version() == 1
    fresh.close()


def test_a_disk_that_fills_up_loses_nothing(source, place, disk_full):
    """It ends with the system's error; called again, it goes on."""
    target = place("files")
    for n in range(5):
        source.append(f"k{n}", [HEAD | {"key": f"k{n}"}, *said("x" * 4000)])
    disk_full(10_000)
    with pytest.raises(OSError, match="No space"):
        copy_workspace(source, target)
    there = [info.key for info in target.list()]
    assert there == ["k0", "k1"]
    disk_full(10**9)
    assert copy_workspace(source, target) == Copied(sessions=5, records=6, unchanged=4)


def test_a_copy_of_the_files_by_hand_is_the_same(source, place):
    """What other means have copied is compared, and nothing of it is written again."""
    target = place("files")
    source.append(KEY, [HEAD, *said("a", "b")])
    memory_of(source).put(b"- a")
    shutil.copytree(source.workspace, target.workspace)
    assert copy_workspace(source, target) == Copied(sessions=1, unchanged=3, memories=1)
