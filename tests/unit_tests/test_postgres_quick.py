"""Appends in one round trip, upon what a program knows; and what it notices where that is old."""

from __future__ import annotations

import threading

import pytest
from checkpoint_graph import at, made
from journal_records import contents, said
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, MessagesState, StateGraph

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.errors import CorruptRecordError
from langchain_nanomem.journal import ReplacedError
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.postgres_journal import PostgresJournal
from langchain_nanomem.postgres_recent import RecentLines
from langchain_nanomem.postgres_tables import Piece

KEY = "t"
HEAD = {"_type": "metadata", "key": KEY}


@pytest.fixture
def make(databases, schema):
    """Makes journals of one place, as several programs have them."""
    made_so_far = []

    def make():
        made_so_far.append(PostgresJournal(databases.url, schema=schema, timeout_seconds=5))
        return made_so_far[-1]

    yield make
    for one in made_so_far:
        one.close()


@pytest.fixture
def asked(monkeypatch):
    """What is asked of servers in this process, one entry a round trip."""
    from langchain_nanomem import postgres_database  # noqa: PLC0415 - what is looked at

    asked = []
    real_call, real_answers = postgres_database.Database.call, postgres_database._answers

    def call(database, query):
        asked.append([query[0]])
        return real_call(database, query)

    def answers(connection, queries):
        asked.append([statement for statement, _ in queries])
        return real_answers(connection, queries)

    monkeypatch.setattr(postgres_database.Database, "call", call)
    monkeypatch.setattr(postgres_database, "_answers", answers)
    return asked


def test_a_checkpoint_of_a_known_thread_is_one_round_trip(make, asked):
    """Each put and each put_writes asks the server once; so does get_tuple."""
    saver = NanomemSaver(SessionManager(make()))
    config = saver.put(at(KEY), made("1"), {"step": 1}, {})
    for call in (
        lambda: saver.put_writes(config, [("messages", AIMessage("a", id="a"))], "task"),
        lambda: saver.put(config, made("2"), {"step": 2}, {}),
        lambda: saver.get_tuple(at(KEY)),
    ):
        asked.clear()
        call()
        assert len(asked) == 1, asked


def test_a_program_that_comes_anew_asks_a_few_times(make, asked):
    """However many messages there are, also of those that were given their ids later."""

    def answer(state):
        return {"messages": [AIMessage(f"re: {state['messages'][-1].content}")]}

    def graph():
        whole = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer")
        return whole.compile(NanomemSaver(SessionManager(make())))

    first = graph()
    for number in range(40):
        first.invoke({"messages": [HumanMessage(str(number))]}, at(KEY))
    anew = graph()
    asked.clear()
    assert len(anew.get_state(at(KEY)).values["messages"]) == 80
    assert len(asked) < 15


def test_what_another_program_wrote_is_built_upon(make):
    """A put upon an end that is none any more is put anew, behind what the other wrote."""
    saver, other = NanomemSaver(SessionManager(make())), make()
    messages = [HumanMessage("hi", id="h")]
    config = saver.put(at(KEY), made("1", messages=messages), {"step": 1}, {"messages": "1.1"})
    other.append(KEY, said("between"))
    saver.put_writes(config, [("messages", AIMessage("ho", id="a"))], "task")
    found = NanomemSaver(SessionManager(make())).get_tuple(at(KEY))
    assert found.pending_writes == [("task", "messages", AIMessage("ho", id="a"))]
    assert contents(other.read(KEY)[0]) == ["hi", "between", "ho"]


def test_a_thread_deleted_by_another_program_stays_deleted(make):
    """What a run still puts of it, upon what it knows, is dropped."""
    saver, other = NanomemSaver(SessionManager(make())), NanomemSaver(SessionManager(make()))
    config = saver.put(at(KEY), empty_checkpoint(), {"step": 1}, {})
    other.delete_thread(KEY)
    saver.put_writes(config, [("messages", AIMessage("ho", id="a"))], "task")
    assert other.get_tuple(at(KEY)) is None
    assert other.sessions.journal.read(KEY)[0] == []


def test_programs_that_put_at_once_lose_nothing(make):
    """Savers of four programs write at one checkpoint at once: all of it is there once."""
    first = NanomemSaver(SessionManager(make()))
    config = first.put(at(KEY), made("1"), {"step": 1}, {})
    savers = [NanomemSaver(SessionManager(make())) for _ in range(4)]

    def write(number):
        for count in range(15):
            savers[number].put_writes(config, [("x", count)], f"{number}-{count}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = NanomemSaver(SessionManager(make())).get_tuple(at(KEY)).pending_writes
    told = sorted((task, value) for task, _, value in found)
    assert told == sorted((f"{n}-{count}", count) for n in range(4) for count in range(15))


def test_an_append_that_took_a_lost_ones_place_is_noticed(make, databases, schema):
    """What a crashed server lost is no position any more, though another append ends there."""
    journal, other = make(), make()
    start = journal.append(KEY, [HEAD])
    lost = journal.append(KEY, said("lost"), durable=False)
    databases.ask(f"DELETE FROM {schema}.chunks WHERE start = %s", start.offset)
    assert other.append(KEY, said("kept")).offset == lost.offset
    with pytest.raises(ReplacedError):
        journal.append(KEY, said("upon it"), expected_end=lost)
    with pytest.raises(ReplacedError):
        journal.read(KEY, lost)
    other.append(KEY, said("more"))
    with pytest.raises(ReplacedError):
        journal.read(KEY, lost)
    assert contents(journal.read(KEY, start)[0]) == ["kept", "more"]


def test_a_graph_goes_on_after_a_crash_lost_its_writes(make, databases, schema):
    """The next put reads what is there, and writes what is missing."""
    saver, other = NanomemSaver(SessionManager(make())), make()
    config = saver.put(at(KEY), made("1"), {"step": 1}, {})
    answer = AIMessage("ho", id="a")
    ((end,),) = databases.ask(f"SELECT max(start + octet_length(content)) FROM {schema}.chunks")
    saver.put_writes(config, [("messages", answer)], "task")
    databases.ask(f"DELETE FROM {schema}.chunks WHERE start >= %s", end)
    other.append(KEY, said("of another"))
    saver.put(config, made("2", messages=[answer]), {"step": 2}, {"messages": "1.2"})
    found = NanomemSaver(SessionManager(make())).get_tuple(at(KEY))
    assert found.checkpoint["channel_values"]["messages"] == [answer]
    assert contents(other.read(KEY)[0]) == ["of another", "ho"]


@pytest.mark.parametrize("how", ["erase", "delete"])
def test_what_was_erased_is_not_kept_at_hand(make, how):
    """A record that was just read is gone for its own program once it erased it."""
    journal = make()
    journal.append(KEY, [HEAD, *said("secret")])
    with journal.open(KEY) as reader:
        entries, _ = reader.read()
        assert contents(reader.load([entries[1].address])) == ["secret"]
        if how == "erase":
            journal.rewrite(KEY, [HEAD], erase=True)
        else:
            journal.delete(KEY)
        with pytest.raises(CorruptRecordError):
            reader.load([entries[1].address])


def test_only_the_end_of_a_journal_is_kept_at_hand():
    """About 32 KB: the lines behind are told, those before and of another journal are not."""
    recent = RecentLines()
    recent.note(1, [Piece(n * 10_000, b"x" * 10_000) for n in range(5)])
    assert recent.line(1, 9_990, 10) is None
    assert recent.line(1, 20_000, 10) == b"x" * 10
    assert recent.line(2, 20_000, 10) is None
    assert recent.line(1, 49_995, 10) is None
    recent.note(1, [Piece(40_000, b"y" * 10)])
    assert recent.line(1, 40_000, 10) == b"y" * 10
    assert recent.line(1, 40_010, 10) is None
    recent.note(2, [Piece(0, b"z")])
    assert recent.line(1, 40_000, 10) is None


def test_a_long_append_in_one_round_trip_is_parted(make, databases, schema, asked):
    """Upon a known end, too, no chunk is longer than needed, and the lines come back."""
    journal = make()
    end = journal.append(KEY, [HEAD])
    texts = [f"{number} {'x' * (number % 900)}" for number in range(300)]
    asked.clear()
    journal.append(KEY, said(*texts), expected_end=end)
    assert len(asked) == 1
    assert contents(make().read(KEY, end)[0]) == texts
    sizes = databases.ask(f"SELECT octet_length(content) FROM {schema}.chunks")
    assert len(sizes) > 3
    assert max(sizes) <= (16_384,)
