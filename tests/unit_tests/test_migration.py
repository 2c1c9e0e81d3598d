"""Threads of other checkpointers are taken over as they are there."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import operator
import pickle
import random
import signal
import subprocess
import sys
import weakref
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.types import Command, Send, interrupt

from langchain_nanomem import (
    Imported,
    MigrationError,
    NanomemSaver,
    SessionManager,
    aimport_checkpoints,
    import_checkpoints,
)

CONFIG = {"configurable": {"thread_id": "chat:1"}}


# --- sources ----------------------------------------------------------------


class ListedSaver(BaseCheckpointSaver[str]):
    """A saver of which nothing is known but its methods: those of an `InMemorySaver`."""

    def __init__(self, inner: InMemorySaver) -> None:
        super().__init__()
        self.inner = inner

    def get_tuple(self, config):
        return self.inner.get_tuple(config)

    def list(self, config, **options):
        return self.inner.list(config, **options)


class AwaitedSaver(BaseCheckpointSaver[str]):
    """The same with asynchronous methods only."""

    def __init__(self, inner: InMemorySaver) -> None:
        super().__init__()
        self.inner = inner

    async def aget_tuple(self, config):
        await asyncio.sleep(0)
        return self.inner.get_tuple(config)

    async def alist(self, config, **options):
        for found in self.inner.list(config, **options):
            await asyncio.sleep(0)
            yield found


@contextlib.contextmanager
def opened(kind, path):
    """A saver to run a graph with."""
    if kind != "sqlite":
        yield InMemorySaver()
        return
    with SqliteSaver.from_conn_string(str(path / "source.sqlite")) as saver:
        yield saver


@pytest.fixture(params=["memory", "sqlite"])
def source(request, tmp_path):
    with opened(request.param, tmp_path) as saver:
        yield saver


@pytest.fixture
def target(tmp_path):
    return NanomemSaver(SessionManager(tmp_path / "workspace"))


def reopened(tmp_path):
    return NanomemSaver(SessionManager(tmp_path / "workspace"))


# --- comparing --------------------------------------------------------------


def form(found):
    """All that a checkpoint is, as LangGraph's serializer writes it: types and order count.

    Snapshots of delta channels don't: `SqliteSaver` has them at fewer checkpoints.
    """
    checkpoint = dict(sorted(found.checkpoint.items()))
    for name in ("channel_values", "channel_versions"):
        items = sorted(checkpoint[name].items())
        checkpoint[name] = [item for item in items if not isinstance(item[1], _DeltaSnapshot)]
    parent = found.parent_config and found.parent_config["configurable"]["checkpoint_id"]
    parts = [parent, checkpoint, found.metadata, found.pending_writes or []]
    return JsonPlusSerializer().dumps_typed(parts)


def place(found):
    configurable = found.config["configurable"]
    return configurable["checkpoint_ns"], configurable["checkpoint_id"]


def assert_same(source, target, thread="chat:1"):
    """`list` and `get_tuple` of both give the same checkpoints."""
    config = {"configurable": {"thread_id": thread}}
    listed = {place(found): form(found) for found in source.list(config)}
    assert listed
    assert {place(found): form(found) for found in target.list(config)} == listed
    for (namespace, checkpoint_id), expected in listed.items():
        at = {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}
        assert form(target.get_tuple({"configurable": at})) == expected


# --- graphs -----------------------------------------------------------------


@dataclasses.dataclass
class Plan:
    steps: list[str]
    price: float = 0.0


class State(MessagesState):
    plan: Plan
    log: Annotated[list[str], operator.add]
    found: dict[str, Any]


class DeltaState(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer, snapshot_frequency=5)]


def ask(state):
    return {"log": [f"asked {interrupt('May I?')}"]}


def plain(saver):
    """A graph with a subgraph, parallel branches, tasks that are sent, and an interrupt."""
    inner = StateGraph(State).add_node("ask", ask).add_edge(START, "ask").compile()

    def reply(state):
        number = len(state["messages"])
        return {
            "messages": [AIMessage(f"reply {number}", response_metadata={"n": number})],
            "plan": Plan([f"step {number}"], float(number)),
            "found": {"a": 1, "b": 1.0, "c": True, "d": [{}], "e": "\N{SNOWMAN}"},
        }

    def route(state):
        wants = state["messages"][0 if len(state["messages"]) < 3 else -2].content
        return [Send("note", {"log": [wants]}), *(["inner"] if "ask" in wants else [])]

    builder = StateGraph(State)
    builder.add_node("reply", reply).add_node("inner", inner)
    builder.add_node("note", lambda state: {"log": [f"noted {state['log']}"]})
    builder.add_edge(START, "reply")
    builder.add_conditional_edges("reply", route, ["note", "inner"])
    return builder.compile(checkpointer=saver)


def delta(saver):
    builder = StateGraph(DeltaState)
    builder.add_node("reply", lambda s: {"messages": [AIMessage(f"reply {len(s['messages'])}")]})
    builder.add_edge(START, "reply")
    return builder.compile(checkpointer=saver)


def talk(graph, turns, thread="chat:1", last=None):
    config = {"configurable": {"thread_id": thread}}
    for turn in range(turns):
        graph.invoke({"messages": [HumanMessage(f"turn {turn}")]}, config)
    if last:
        graph.invoke({"messages": [HumanMessage(last)]}, config)
    return config


def put(saver, values, *, parent=None, checkpoint_id=None, thread="chat:1"):
    """Put a checkpoint below `parent`; each value has version "1"."""
    versions = dict.fromkeys(values, "1")
    checkpoint = empty_checkpoint() | {"channel_values": values, "channel_versions": versions}
    checkpoint |= {"id": checkpoint_id or str(uuid6(clock_seq=-1)), "ts": "2026-05-08T13:00:00Z"}
    at = {"thread_id": thread, "checkpoint_ns": ""}
    config = parent or {"configurable": at}
    return saver.put(config, checkpoint, {"source": "loop", "step": 1, "parents": {}}, versions)


# --- the same ---------------------------------------------------------------


def test_every_checkpoint_is_the_same(source, target, tmp_path):
    """All namespaces, forks, parents, metadata, values and pending writes come over as they are."""
    graph = plain(source)
    config = talk(graph, 3, last="please ask")
    graph.update_state(list(graph.get_state_history(config))[4].config, {"log": ["forked"]})
    talk(graph, 1, last="ask again")
    done = import_checkpoints(source, target)
    count = len(list(source.list(config)))
    assert done == Imported(1, count, 0)
    assert len({place(found)[0] for found in source.list(config)}) > 1
    for saver in (target, reopened(tmp_path)):
        assert_same(source, saver)


@pytest.mark.parametrize("durability", ["sync", "exit"])
def test_delta_threads_are_rebuilt_and_go_on(source, target, tmp_path, durability):
    """A channel without values is rebuilt from its writes at every checkpoint as in the source."""
    graph = delta(source)
    for turn in range(8):
        graph.invoke({"messages": [("user", f"turn {turn}")]}, CONFIG, durability=durability)
    import_checkpoints(source, target)
    assert_same(source, reopened(tmp_path))
    for found in list(source.list(CONFIG)):
        histories = [
            saver.get_delta_channel_history(config=found.config, channels=["messages"])
            for saver in (source, target)
        ]
        assert histories[0] == histories[1]
        states = [delta(saver).get_state(found.config) for saver in (source, target)]
        assert states[0].values == states[1].values
    after = [
        delta(saver).invoke({"messages": [("user", "on")]}, CONFIG) for saver in (source, target)
    ]
    assert [m.content for m in after[0]["messages"]] == [m.content for m in after[1]["messages"]]


def test_threads_with_a_pending_interrupt_are_resumed(tmp_path, target):
    """A `SqliteSaver` database of many turns and threads comes over, and each interrupt resumes."""
    with opened("sqlite", tmp_path) as source:
        for number in range(3):
            talk(plain(source), 15, f"chat:{number}", last="please ask")
        seen = []
        done = import_checkpoints(source, target, progress=lambda *at: seen.append(at))
        assert done.threads == 3
        assert len(seen) == done.checkpoints
        assert {thread for thread, at, of in seen if at == of} == {"chat:0", "chat:1", "chat:2"}
        for number in range(3):
            assert_same(source, target, f"chat:{number}")
            config = {"configurable": {"thread_id": f"chat:{number}"}}
            answers = [
                plain(saver).invoke(Command(resume="yes"), config)
                for saver in (source, reopened(tmp_path))
            ]
            assert answers[0] == answers[1]
            assert "asked yes" in answers[1]["log"]


@pytest.mark.parametrize("kind", [AsyncSqliteSaver, AwaitedSaver, InMemorySaver])
async def test_async_savers_are_read_with_their_own_methods(kind, tmp_path, target):
    """`aimport_checkpoints` takes savers that have asynchronous methods only."""
    stock = InMemorySaver()
    path = str(tmp_path / "source.sqlite")
    async with AsyncSqliteSaver.from_conn_string(path) as file:
        saver = {AsyncSqliteSaver: file, AwaitedSaver: AwaitedSaver(stock)}.get(kind, stock)
        graph = plain(file if kind is AsyncSqliteSaver else stock)
        for text in ("hello", "please ask"):
            await graph.ainvoke({"messages": [HumanMessage(text)]}, CONFIG)
        done = await aimport_checkpoints(saver, target)
        again = await aimport_checkpoints(saver, target, thread_ids=["chat:1"])
        assert (done.threads, again) == (1, Imported(1, 0, done.checkpoints))
        there = await asyncio.to_thread(lambda: list(file.list(CONFIG)))
    assert len(list(target.list(CONFIG))) == done.checkpoints
    if kind is AsyncSqliteSaver:
        assert len(there) == done.checkpoints
        with opened("sqlite", tmp_path) as source:
            assert_same(source, target)
    else:
        assert_same(stock, target)


async def test_a_cancelled_import_stops(tmp_path, target):
    """When `aimport_checkpoints` is cancelled, its thread does not go on to the end."""
    stock = InMemorySaver()
    config = talk(delta(stock), 30)
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    running = asyncio.create_task(
        aimport_checkpoints(
            AwaitedSaver(stock),
            target,
            progress=lambda *_: loop.call_soon_threadsafe(begun.set),
        )
    )
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.sleep(0.2)
    count = len(list(target.list(config)))
    assert 0 < count < len(list(stock.list(config)))


def test_a_saver_of_any_kind_is_read_with_its_public_methods(target):
    """A saver that is none of LangGraph's own has its threads listed."""
    stock = InMemorySaver()
    for thread in ("chat:1", "chat:2"):
        talk(plain(stock), 2, thread, last="please ask")
    assert import_checkpoints(ListedSaver(stock), target).threads == 2
    assert_same(stock, target, "chat:2")
    assert import_checkpoints(ListedSaver(stock), target, thread_ids=["chat:1"]).unchanged > 0


def test_a_saver_with_no_other_methods_says_so(target):
    """Where a saver can't be read in this colour, the error says what it said."""
    with pytest.raises(MigrationError, match="NotImplementedError"):
        import_checkpoints(AwaitedSaver(InMemorySaver()), target)


@pytest.mark.parametrize("wrap", [lambda saver: saver, ListedSaver])
def test_writes_keep_their_order(wrap, target):
    """Tasks that wrote at one checkpoint stay in the order of the paths, known or not."""
    stock = InMemorySaver()
    config = put(stock, {"log": []})
    for task_id, path in (("b", "1"), ("a", "2"), ("c", "0")):
        writes = [("log", [task_id, 0]), ("__interrupt__", "wait"), ("log", [task_id, 2])]
        stock.put_writes(config, writes, task_id, path)
    import_checkpoints(wrap(stock), target)
    assert_same(stock, target)


def test_a_tasks_path_comes_along(source, target):
    """What a task writes after the import stands among the imported writes as in the source."""
    config = put(source, {"log": []})
    source.put_writes(config, [("log", "two")], "a", "path 2")
    import_checkpoints(source, target)
    for saver in (source, target):
        saver.put_writes(config, [("log", "one")], "b", "path 1")
        assert [value for _, _, value in saver.get_tuple(config).pending_writes] == ["one", "two"]


def test_a_thread_of_a_number_is_that_of_its_text(target):
    """cases/checkpointer.md 7: thread 7 of an `InMemorySaver` is thread "7" here."""
    stock = InMemorySaver()
    put(stock, {"x": 1}, thread=7)
    import_checkpoints(stock, target)
    assert target.get_tuple({"configurable": {"thread_id": "7"}}).checkpoint["channel_values"] == {
        "x": 1
    }


def test_an_encrypted_source_is_read_with_its_serializer(tmp_path, target):
    """Values are read with the serializer of the source and written with the target's."""
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0" * 16)
    stock = InMemorySaver(serde=serde)
    talk(delta(stock), 2)
    import_checkpoints(stock, target)
    assert_same(stock, target)
    hidden = NanomemSaver(SessionManager(tmp_path / "hidden"), serde=serde)
    import_checkpoints(stock, hidden)
    assert_same(stock, hidden)


class PickleSerializer:
    """A serializer of a user's own."""

    def dumps_typed(self, obj):
        return "pickle", pickle.dumps(obj)

    def loads_typed(self, data):
        return pickle.loads(data[1])


def test_a_source_with_a_serializer_of_its_own_is_read_with_it(target):
    """What a serializer gives is stored as it is; what comes back as another type is named."""
    stock = InMemorySaver(serde=PickleSerializer())
    put(stock, {"x": [1, "a"]})
    import_checkpoints(stock, target)
    assert_same(stock, target)
    put(stock, {"x": (1, "a")}, thread="chat:2")
    with pytest.raises(MigrationError, match=r"'chat:2'.* channel_values.x cannot be stored"):
        import_checkpoints(stock, target, thread_ids=["chat:2"])


def test_an_empty_source_has_nothing_to_import(source, target, tmp_path):
    """Of no threads none is imported, and nothing is written."""
    assert import_checkpoints(source, target) == Imported(0, 0, 0)
    assert not (tmp_path / "workspace" / "sessions").exists()


# --- stopped and gone on ----------------------------------------------------

KILLED = """
import os, signal, sys
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.checkpoint.sqlite import SqliteSaver
from langchain_nanomem import NanomemSaver, SessionManager, import_checkpoints

def progress(thread_id, number, of):
    if (thread_id, number) == ("chat:1", int(sys.argv[3])):
        os.kill(os.getpid(), signal.SIGKILL)

with SqliteSaver.from_conn_string(sys.argv[1]) as source:
    import_checkpoints(source, NanomemSaver(SessionManager(sys.argv[2])), progress=progress)
"""


@pytest.mark.parametrize("after", [1, 9])
def test_a_killed_import_goes_on(tmp_path, after):
    """cases/checkpointer.md 15: killed in the middle, a second run ends with all the same."""
    with opened("sqlite", tmp_path) as source:
        for thread in ("chat:0", "chat:1", "chat:2"):
            talk(delta(source), 4, thread)
        arguments = [str(source.conn.execute("PRAGMA database_list").fetchone()[2])]
        arguments += [str(tmp_path / "workspace"), str(after)]
        killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False)
        assert killed.returncode == -signal.SIGKILL
        done = import_checkpoints(source, reopened(tmp_path))
        each = len(list(source.list(CONFIG)))
        assert done == Imported(3, 2 * each - after, each + after)
        for thread in ("chat:0", "chat:1", "chat:2"):
            assert_same(source, reopened(tmp_path), thread)


def test_a_torn_end_goes_on(source, target, tmp_path):
    """cases/checkpointer.md 16: where the last record was cut off, it is written again."""
    talk(plain(source), 2, last="please ask")
    import_checkpoints(source, target)
    path = target.sessions.journal.path("chat:1")
    content = path.read_bytes()
    for cut in sorted(random.Random(1).sample(range(200, len(content)), 12)):
        path.write_bytes(content[:cut])
        import_checkpoints(source, reopened(tmp_path))
        assert_same(source, reopened(tmp_path))


def test_what_is_there_is_not_written_again(source, target):
    """A second import changes nothing."""
    talk(plain(source), 2, last="please ask")
    done = import_checkpoints(source, target)
    content = target.sessions.journal.path("chat:1").read_bytes()
    assert import_checkpoints(source, target) == Imported(1, 0, done.checkpoints)
    assert target.sessions.journal.path("chat:1").read_bytes() == content


def test_what_the_source_has_more_is_added(source, target):
    """Where the source went on after an import, the next one adds checkpoints and writes."""
    config = talk(plain(source), 1, last="please ask")
    import_checkpoints(source, target)
    plain(source).invoke(Command(resume="yes"), config)
    talk(plain(source), 1)
    assert import_checkpoints(source, target).checkpoints > 0
    assert_same(source, target)


def test_one_checkpoint_is_in_memory_at_a_time(target):
    """However long a thread is, what was decoded of it is not kept."""
    alive = []

    class Watched(ListedSaver):
        def get_tuple(self, config):
            found = super().get_tuple(config)
            values = found.checkpoint["channel_values"]
            alive.extend(map(weakref.ref, values.get("messages", ())[:1]))
            return found

        def list(self, config, **options):
            yield from super().list(config, **options)

    stock = InMemorySaver()
    graph = StateGraph(MessagesState).add_node("reply", lambda _: {"messages": [AIMessage("so")]})
    talk(graph.add_edge(START, "reply").compile(checkpointer=stock), 10)
    most = []
    import_checkpoints(
        Watched(stock),
        target,
        progress=lambda *_: most.append(sum(ref() is not None for ref in alive)),
    )
    assert len(alive) > 20
    assert max(most) <= 2


# --- what stands in the way -------------------------------------------------


def refused(source, target, says, thread="chat:1"):
    """The import fails with such a message, and the file of the thread is as it was."""
    path = target.sessions.journal.path(thread)
    before = path.read_bytes() if path.exists() else None
    with pytest.raises(MigrationError, match=says) as caught:
        import_checkpoints(source, target)
    assert (path.read_bytes() if path.exists() else None) == before
    assert thread in str(caught.value)
    return str(caught.value)


def test_another_thread_of_the_name_is_left_as_it_is(source, target):
    """A thread of the target that is no part of the source's is never changed."""
    talk(plain(source), 1)
    talk(plain(target), 1)
    refused(source, target, "thread 'chat:1', checkpoint .*: the target has it")


def test_a_thread_that_went_on_in_the_target_is_left_as_it_is(source, target):
    """Once the thread goes on in the target, it is no longer the source's."""
    talk(plain(source), 1)
    import_checkpoints(source, target)
    talk(plain(target), 1)
    refused(source, target, "delete it first")


@pytest.mark.parametrize(
    ("values", "writes", "says"),
    [
        ({"x": 1.0}, [("x", "w")], "channel_values.x"),
        ({"x": 1}, [("x", "another")], "other pending writes"),
        ({"x": 1}, [("x", "w"), ("x", "more")], "other pending writes"),
    ],
)
def test_another_checkpoint_of_the_same_id_is_left_as_it_is(source, target, values, writes, says):
    """A checkpoint that is there with another value or other writes is named."""
    for saver, value, written in ((source, {"x": 1}, [("x", "w")]), (target, values, writes)):
        config = put(saver, value, checkpoint_id="1f0")
        saver.put_writes(config, written, "task", "path")
    refused(source, target, says)


def test_a_session_without_a_graph_is_left_as_it_is(source, target):
    """A plain session of the same name is no thread to add checkpoints to."""
    talk(plain(source), 1)
    session = target.sessions.get_or_create("chat:1")
    session.add_message("user", "hello")
    target.sessions.save(session)
    refused(source, target, "without a graph")


def test_a_deleted_thread_comes_back(source, target, tmp_path):
    """cases/checkpointer.md 18: what is imported on purpose is no late put, however old it is."""
    config = talk(plain(source), 1, last="please ask")
    import_checkpoints(source, target)
    target.delete_thread("chat:1")
    old = next(iter(source.list(config)))
    target.put(old.parent_config, old.checkpoint, old.metadata, old.checkpoint["channel_versions"])
    assert list(target.list(config)) == []
    import_checkpoints(source, target)
    assert_same(source, reopened(tmp_path))
    assert "asked yes" in plain(target).invoke(Command(resume="yes"), config)["log"]


def test_a_failing_thread_is_named_and_the_others_are_there(tmp_path, target):
    """Of several threads those that can be taken over are, and of the others nothing is."""
    with opened("sqlite", tmp_path) as source:
        for thread in ("chat:0", "chat:1", "chat:2"):
            talk(delta(source), 2, thread)
        source.conn.execute(
            "UPDATE checkpoints SET checkpoint = x'c1' WHERE rowid = "
            "(SELECT max(rowid) FROM checkpoints WHERE thread_id = 'chat:1')"
        )
        with pytest.raises(MigrationError, match=r"(?s)1 threads .*; 2 are there.*'chat:1', check"):
            import_checkpoints(source, target)
        assert list(target.list(CONFIG)) == []
        for thread in ("chat:0", "chat:2"):
            assert_same(source, target, thread)


def test_a_value_changed_in_place_is_named(tmp_path, target):
    """Where the source has two values of one version, which only some savers can, it is named."""
    with opened("sqlite", tmp_path) as source:
        first = put(source, {"x": [1]})
        put(source, {"x": [2]}, parent=first)
        refused(source, target, r"checkpoint .*: channel_values.x.0 .*changed in place")


def test_a_value_that_cannot_be_stored_is_named(target):
    """A value that the target's serializer refuses is an error that names its channel."""
    stock = InMemorySaver(serde=JsonPlusSerializer(pickle_fallback=True))
    put(stock, {"x": {"y": range(3)}})
    refused(stock, target, "checkpoint .*the value of the channel 'x' cannot be stored")


@pytest.mark.parametrize("name", ["gone_module", "__main__"])
def test_a_class_that_cannot_be_imported_is_named(name, source, target, monkeypatch):
    """What would come over as plain data in place of an object is an error."""
    kind = dataclasses.make_dataclass("Order", ["number"])
    kind.__module__ = name
    put(source, {"x": [{"y": kind(1)}]})
    refused(source, target, rf"{name}.Order cannot be imported")


def test_a_class_that_the_serializer_refuses_is_named(target):
    """Under a strict serializer too nothing is silently degraded."""
    stock = InMemorySaver()
    put(stock, {"x": Plan([])})
    stock.serde = JsonPlusSerializer(allowed_msgpack_modules=None)
    refused(stock, target, "refuses .*Plan")
    stock.serde = JsonPlusSerializer(allowed_msgpack_modules=[Plan])
    import_checkpoints(stock, target)
    assert_same(stock, target)


def test_what_is_no_checkpoint_is_named(source, target):
    """A table that looks like LangGraph's but holds other things is an error."""
    config = put(source, {"x": 1})
    broken = ListedSaver(source)
    broken.get_tuple = lambda _: source.get_tuple(config)._replace(checkpoint={"id": "1"})
    refused(broken, target, "no checkpoint of LangGraph")
    broken.get_tuple = lambda _: None
    refused(broken, target, "gone meanwhile")


def test_a_thread_that_is_not_in_the_source_is_named(source, target):
    """A thread that was asked for and is not there is an error."""
    with pytest.raises(MigrationError, match="thread 'nobody': the source has no such thread"):
        import_checkpoints(source, target, thread_ids=["nobody"])


def test_one_string_is_no_sequence_of_threads(source, target):
    """A bare string for `thread_ids` is refused."""
    with pytest.raises(TypeError, match="not one string"):
        import_checkpoints(source, target, thread_ids="chat:1")


def test_a_name_that_no_session_can_have_is_named(target):
    """A thread whose id can't name a session is an error."""
    stock = InMemorySaver()
    put(stock, {"x": 1}, thread="")
    with pytest.raises(MigrationError, match="thread ''"):
        import_checkpoints(stock, target)


def test_a_full_disk_is_no_fault_of_the_thread(source, target, disk_full, monkeypatch, tmp_path):
    """Where the target can't be written, what is there stays, and a second run goes on."""
    talk(plain(source), 3)
    with monkeypatch.context() as patched:
        disk_full(6_000)
        with pytest.raises(OSError, match="No space"):
            import_checkpoints(source, target)
        patched.undo()
    monkeypatch.undo()
    there = len(list(reopened(tmp_path).list(CONFIG)))
    assert there > 0
    assert import_checkpoints(source, reopened(tmp_path)).unchanged == there
    assert_same(source, reopened(tmp_path))


def test_a_closed_source_says_so(tmp_path, target):
    """A source that can't even be listed is an error of the source."""
    with opened("sqlite", tmp_path) as source:
        put(source, {"x": 1})
    with pytest.raises(MigrationError, match=r"the source: .*closed database"):
        import_checkpoints(source, target)
