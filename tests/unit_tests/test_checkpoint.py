"""The checkpointer's rules, in both colours: cases/checkpointer.md."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import operator
import os
import random
import shutil
import stat
import subprocess
import sys
import threading
from collections import defaultdict, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import WRITES_IDX_MAP, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, _messages_delta_reducer
from langgraph.types import Command, interrupt

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.codec import encode
from langchain_nanomem.errors import NanomemError
from langchain_nanomem.file_journal import FileJournal
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.session import INTERRUPTED

pytestmark = pytest.mark.back_ends("files", "postgres")

THREAD = {"configurable": {"thread_id": "chat:1"}}


class Colour:
    """Calls the methods of a saver or a graph synchronously or asynchronously."""

    def __init__(self, name):
        self.name = name

    async def __call__(self, target, method, *args, **options):
        if self.name == "sync":
            return getattr(target, method)(*args, **options)
        return await getattr(target, f"a{method}")(*args, **options)

    async def list(self, target, *args, method="list", **options):
        if self.name == "sync":
            return list(getattr(target, method)(*args, **options))
        return [found async for found in getattr(target, f"a{method}")(*args, **options)]


@pytest.fixture(params=["sync", "async"])
def colour(request):
    return Colour(request.param)


@pytest.fixture
def sessions(workspace):
    return SessionManager(workspace)


@pytest.fixture
def saver(sessions):
    return NanomemSaver(sessions)


def reopened(workspace, **options):
    """A saver as another process would have it."""
    return NanomemSaver(SessionManager(workspace), **options)


def file_of(tmp_path, key="chat:1"):
    return FileJournal(tmp_path).path(key)


def at(thread="chat:1", namespace=None, checkpoint_id=None):
    found = {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}
    return {"configurable": {name: v for name, v in found.items() if v is not None}}


def under(config):
    """The id of a checkpoint's config."""
    return config["configurable"]["checkpoint_id"]


def made(values=None, versions=None, checkpoint_id=None):
    """A checkpoint; each value has version "1" unless versions are given."""
    values = values or {}
    versions = dict.fromkeys(values, "1") if versions is None else versions
    checkpoint = empty_checkpoint() | {"channel_values": values, "channel_versions": versions}
    return checkpoint | {"id": checkpoint_id or str(uuid6(clock_seq=-1))}


def about(step=1, **more):
    return {"source": "loop", "step": step, "parents": {}, **more}


async def put(  # noqa: PLR0913 - what a saver's own put takes
    colour, saver, config, values=None, versions=None, *, new=None, **meta
):
    """Put a checkpoint below `config`; all its versions are new unless told."""
    checkpoint = made(values, versions, meta.pop("checkpoint_id", None))
    new = checkpoint["channel_versions"] if new is None else new
    return await colour(saver, "put", config, checkpoint, about(**meta), new)


def ids(found):
    return [checkpoint.config["configurable"]["checkpoint_id"] for checkpoint in found]


def replies(*answers):
    """A graph of one node that answers each turn with the next of `answers`, or all at once."""
    told = iter(answers)
    builder = StateGraph(MessagesState)
    builder.add_node("reply", lambda _: {"messages": next(told)})
    builder.add_edge(START, "reply")
    return builder


def said(text, message_id=None, cls=HumanMessage, **fields):
    return cls(text, id=message_id or text, **fields)


# --- delta channels ---------------------------------------------------------


async def chain(colour, saver, *steps, config=THREAD, **meta):
    """Checkpoints below each other: each step is the value of `log` or None, and the writes."""
    configs = []
    for number, (value, writes) in enumerate(steps):
        values = {} if value is None else {"log": value}
        versions = {"log": f"{random.random()}"}
        config = await put(colour, saver, config, values, versions, step=number, **meta)
        for place, write in enumerate(writes):
            await colour(saver, "put_writes", config, [("log", write)], f"task{place}", "path")
        configs.append(config)
    return configs


async def history(colour, saver, config, channels=("log",)):
    return await colour(saver, "get_delta_channel_history", config=config, channels=channels)


async def test_history_starts_from_the_nearest_value_and_goes_oldest_first(colour, saver):
    """cases/checkpointer.md 2: seed of the nearest ancestor with a value, then writes in order."""
    configs = await chain(
        colour, saver, ([0], ["zero"]), ([1], ["a", "b"]), (None, ["c"]), (None, ["own"])
    )
    found = (await history(colour, saver, configs[-1]))["log"]
    assert found["seed"] == [1]
    assert [value for _, _, value in found["writes"]] == ["a", "b", "c"]


async def test_history_excludes_the_targets_own_writes_and_value(colour, saver):
    """cases/checkpointer.md 2: what was written at the target is for the step after it."""
    configs = await chain(colour, saver, (["seed"], []), (["own value"], ["own write"]))
    assert (await history(colour, saver, configs[-1]))["log"] == {"writes": [], "seed": ["seed"]}


async def test_history_without_any_value_has_no_seed(colour, saver):
    """cases/checkpointer.md 2: where no ancestor has a value, the channel starts empty."""
    configs = await chain(colour, saver, (None, ["a"]), (None, ["b"]), (None, []))
    found = (await history(colour, saver, configs[-1]))["log"]
    assert "seed" not in found
    assert [value for _, _, value in found["writes"]] == ["a", "b"]


async def test_history_follows_parents_not_ids(colour, saver):
    """cases/checkpointer.md 2: an ancestor with a larger id than its child is still older."""
    first = await put(colour, saver, THREAD, {"log": ["s"]}, checkpoint_id="9")
    second = await put(colour, saver, first, {}, {"log": "2"}, checkpoint_id="5")
    third = await put(colour, saver, second, {}, {"log": "3"}, checkpoint_id="1")
    await put(colour, saver, THREAD, {"log": ["stranger"]}, {"log": "4"}, checkpoint_id="4")
    for config, value in ((first, "a"), (second, "b")):
        await colour(saver, "put_writes", config, [("log", value)], "t")
    found = (await history(colour, saver, third))["log"]
    assert found["seed"] == ["s"]
    assert [value for _, _, value in found["writes"]] == ["a", "b"]


async def test_history_keeps_forks_apart(colour, saver):
    """cases/checkpointer.md 2: another branch's writes are never in it."""
    (root,) = await chain(colour, saver, ([0], ["common"]))
    left = await chain(colour, saver, (None, ["left"]), (None, []), config=root)
    right = await chain(colour, saver, (None, ["right"]), (None, []), config=root)
    for branch, name in ((left, "left"), (right, "right")):
        writes = (await history(colour, saver, branch[-1]))["log"]["writes"]
        assert [value for _, _, value in writes] == ["common", name]


async def test_history_ends_for_each_channel_by_itself(colour, saver):
    """cases/checkpointer.md 2: each channel from its own seed; none asked, none told."""
    first = await put(colour, saver, THREAD, {"log": [1], "other": [2]})
    second = await put(colour, saver, first, {"log": [3]}, {"log": "2", "other": "2"})
    third = await put(colour, saver, second, {}, {"log": "3", "other": "3"})
    for config in (first, second):
        writes = [("log", under(config)), ("other", under(config))]
        await colour(saver, "put_writes", config, writes, "t")
    found = await history(colour, saver, third, ("log", "other"))
    assert (found["log"]["seed"], found["other"]["seed"]) == ([3], [2])
    assert [value for _, _, value in found["log"]["writes"]] == [under(second)]
    assert [value for _, _, value in found["other"]["writes"]] == [under(first), under(second)]
    assert await history(colour, saver, third, ()) == {}


async def test_history_orders_the_writes_of_one_step_as_langgraph_applies_them(colour, saver):
    """cases/checkpointer.md 2, 4: by path, task and place, not by when they came."""
    (first,) = await chain(colour, saver, ([0], []))
    (second,) = await chain(colour, saver, (None, []), config=first)
    for path, task in (("b", "1"), ("a", "3"), ("a", "2"), ("", "9")):
        await colour(saver, "put_writes", first, [("log", path + task), ("log", 0)], task, path)
    found = (await history(colour, saver, second))["log"]
    assert [value for _, _, value in found["writes"]] == ["9", 0, "a2", 0, "a3", 0, "b1", 0]


class DeltaState(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer, snapshot_frequency=4)]
    log: Annotated[
        list[Any],
        DeltaChannel(
            lambda state, writes: [*state, *(n for w in writes for n in w)], snapshot_frequency=3
        ),
    ]


def delta_graph(saver):
    def reply(state):
        number = len(state["messages"])
        return {"messages": [said(f"answer {number}", cls=AIMessage)], "log": [number]}

    builder = StateGraph(DeltaState)
    builder.add_node("reply", reply)
    builder.add_edge(START, "reply")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("turns", [1, 3, 4, 7, 11])
async def test_pruning_never_severs_a_delta_channel(colour, workspace, turns, durability):
    """cases/checkpointer.md 2: after keep_latest the state is the same, and goes on."""
    saver = reopened(workspace)
    graph = delta_graph(saver)
    for turn in range(turns):
        given = {"messages": [said(f"question {turn}")]}
        await colour(graph, "invoke", given, THREAD, durability=durability)
    before = (await colour(graph, "get_state", THREAD)).values
    assert len(before["messages"]) == 2 * turns
    shown = SessionManager(workspace).get_or_create("chat:1").messages
    kept_before = len(await colour.list(saver, THREAD))
    for prune_again in (True, False):
        await colour(saver, "prune", ["chat:1"], strategy="keep_latest")
        graph = delta_graph(reopened(workspace)) if prune_again else graph
        assert (await colour(graph, "get_state", THREAD)).values == before
    assert len(await colour.list(saver, THREAD)) < max(kept_before, 2 * 4)
    assert SessionManager(workspace).get_or_create("chat:1").messages == shown
    given = {"messages": [said("and more")]}
    after = await colour(graph, "invoke", given, THREAD, durability=durability)
    assert after["messages"][:-2] == before["messages"]
    assert after["log"] == [*before["log"], 2 * turns + 1]


async def test_pruning_a_forked_delta_thread_keeps_the_newest_branch(colour, saver, workspace):
    """cases/checkpointer.md 2: the chain of the branch that went on stays, the other goes."""
    graph = delta_graph(saver)
    for turn in range(6):
        await colour(graph, "invoke", {"messages": [said(f"q{turn}")]}, THREAD)
    past = await colour.list(graph, THREAD, method="get_state_history")
    await colour(graph, "update_state", past[7].config, {"messages": [said("fork")]})
    await colour(graph, "invoke", {"messages": [said("on the fork")]}, THREAD)
    before = (await colour(graph, "get_state", THREAD)).values
    await colour(saver, "prune", ["chat:1"])
    assert (await colour(delta_graph(reopened(workspace)), "get_state", THREAD)).values == before


async def test_a_delta_threads_session_shows_its_messages(colour, saver, sessions):
    """The session of a delta thread: edits by id, removals, snapshots; history before it once."""
    session = sessions.get_or_create("chat:1")
    session.add_message("user", "before the graph")
    sessions.save(session)
    graph = delta_graph(saver)
    for turn in range(5):
        await colour(graph, "invoke", {"messages": [said(f"q{turn}")]}, THREAD)
    edits = [said("edited", "q1"), RemoveMessage("answer 1"), said("new")]
    await colour(graph, "update_state", THREAD, {"messages": edits})
    state = (await colour(graph, "get_state", THREAD)).values["messages"]
    shown = sessions.get_or_create("chat:1").messages
    assert [m["content"] for m in shown] == ["before the graph", *(m.content for m in state)]
    await colour(graph, "update_state", THREAD, {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES)]})
    shown = sessions.get_or_create("chat:1").messages
    assert [m["content"] for m in shown] == ["before the graph"]


async def test_snapshots_of_a_delta_channel_share_its_messages(colour, saver, tmp_path):
    """A snapshot every few turns must not store the whole conversation again."""
    graph = delta_graph(saver)
    for turn in range(40):
        await colour(graph, "invoke", {"messages": [said("x" * 5000, f"q{turn}")]}, THREAD)
    assert file_of(tmp_path).stat().st_size < 40 * 5000 * 3


# --- values -----------------------------------------------------------------


async def test_a_channel_without_a_value_comes_back_absent(colour, saver, workspace):
    """cases/checkpointer.md 3: new version, no value: absent, though an older one had a value."""
    first = await put(colour, saver, THREAD, {"a": 1, "b": [2]}, {"a": "1", "b": "1"})
    await put(colour, saver, first, {"b": [2]}, {"a": "2", "b": "1"}, new={"a": "2"})
    for reader in (saver, reopened(workspace)):
        found = await colour(reader, "get_tuple", THREAD)
        assert found.checkpoint["channel_values"] == {"b": [2]}
        assert found.checkpoint["channel_versions"] == {"a": "2", "b": "1"}


async def test_a_channel_that_is_gone_does_not_come_back(colour, saver):
    """cases/checkpointer.md 3: what `channel_versions` no longer names has no value."""
    first = await put(colour, saver, THREAD, {"a": 1, "b": 2})
    await put(colour, saver, first, {"a": 1}, {"a": "1"}, new={})
    found = await colour(saver, "get_tuple", THREAD)
    assert found.checkpoint["channel_values"] == {"a": 1}


@pytest.mark.parametrize("version", ["00002.0.5", 2, 2.5])
async def test_versions_may_be_text_or_numbers(colour, saver, workspace, version):
    """cases/checkpointer.md 5: versions of all kinds that LangGraph names come back as they are."""
    await put(colour, saver, THREAD, {"a": 1}, {"a": version})
    found = await colour(reopened(workspace), "get_tuple", THREAD)
    assert repr(found.checkpoint["channel_versions"]) == repr({"a": version})
    assert found.checkpoint["channel_values"] == {"a": 1}


@pytest.mark.parametrize(
    "value", ["x" * 200_000, ["y" * 200_000], {"z": HumanMessage("z" * 200_000)}]
)
async def test_an_unchanged_value_is_stored_once(colour, saver, tmp_path, value):
    """cases/checkpointer.md 3: 200 kB kept over 20 checkpoints takes 200 kB, not 4 MB."""
    config = await put(colour, saver, THREAD, {"big": value, "n": 0}, {"big": "1", "n": "0"})
    for n in range(1, 20):
        versions = {"big": "1", "n": str(n)}
        values = {"big": value, "n": n}
        config = await put(colour, saver, config, values, versions, new={"n": str(n)})
    assert file_of(tmp_path).stat().st_size < 220_000
    found = await colour(reopened(tmp_path), "get_tuple", THREAD)
    assert found.checkpoint["channel_values"] == {"big": value, "n": 19}


async def test_what_was_read_may_be_changed(colour, saver):
    """cases/checkpointer.md 11: the next read is not touched by what a caller does to this one."""
    values = {
        "messages": [said("a", additional_kwargs={"x": {"y": [1]}})],
        "plain": {"deep": [{"er": 1}]},
        "shared": [{"k": "v" * 300}, {"k": "w"}],
    }
    config = await put(colour, saver, THREAD, values)
    await colour(saver, "put_writes", config, [("plain", {"deep": [1]})], "t")
    found = await colour(saver, "get_tuple", THREAD)
    read = found.checkpoint["channel_values"]
    read["messages"][0].content = "changed"
    read["messages"][0].additional_kwargs["x"]["y"].append(2)
    read["messages"].clear()
    read["plain"]["deep"][0]["er"] = 2
    read["shared"][0]["k"] = 3
    found.checkpoint["channel_versions"]["new"] = "9"
    found.metadata["step"] = 99
    found.pending_writes[0][2]["deep"].append(2)
    again = await colour(saver, "get_tuple", THREAD)
    assert again.checkpoint["channel_values"] == values
    assert "new" not in again.checkpoint["channel_versions"]
    assert again.metadata["step"] == 1
    assert again.pending_writes == [("t", "plain", {"deep": [1]})]
    (listed,) = await colour.list(saver, THREAD)
    assert listed == again


async def test_what_was_put_may_be_changed(colour, saver):
    """cases/checkpointer.md 10: a value edited after its put leaves what was put then."""
    message = said("first", additional_kwargs={"x": {"y": [1]}})
    log = [{"n": 1, "text": "t" * 300}]
    config = await put(colour, saver, THREAD, {"messages": [message], "log": log})
    await colour(saver, "put_writes", config, [("messages", [message]), ("log", log)], "t")
    message.content = "second"
    message.additional_kwargs["x"]["y"][0] = True
    log[0]["n"] = 2
    values = {"messages": [message], "log": log}
    second = await put(colour, saver, config, values, {"messages": "2", "log": "2"})
    first = await colour(saver, "get_tuple", config)
    read = first.checkpoint["channel_values"]
    assert read["messages"][0].content == "first"
    assert repr(read["messages"][0].additional_kwargs) == repr({"x": {"y": [1]}})
    assert read["log"][0]["n"] == 1
    assert first.pending_writes[0][2][0].content == "first"
    assert first.pending_writes[1][2][0]["n"] == 1
    read = (await colour(saver, "get_tuple", second)).checkpoint["channel_values"]
    assert read["messages"][0].content == "second"
    assert repr(read["messages"][0].additional_kwargs) == repr({"x": {"y": [True]}})
    assert read["log"][0]["n"] == 2


# --- writes -----------------------------------------------------------------


async def test_the_first_of_ordinary_writes_stays(colour, saver, workspace):
    """cases/checkpointer.md 4: at one place the first write wins; of special ones, the last."""
    config = await put(colour, saver, THREAD)
    special = sorted(WRITES_IDX_MAP)
    for n in range(3):
        writes = [("a", n), ("b", n), *((channel, n) for channel in special)]
        await colour(saver, "put_writes", config, writes, "t")
    for reader in (saver, reopened(workspace)):
        found = {c: v for _, c, v in (await colour(reader, "get_tuple", config)).pending_writes}
        assert found == {"a": 0, "b": 0, **dict.fromkeys(special, 2)}


async def test_writes_may_come_before_their_checkpoint(colour, saver, workspace):
    """cases/checkpointer.md 4: on a fresh thread too; until then there is no checkpoint."""
    checkpoint = made({"a": 1})
    config = at("chat:1", "", checkpoint["id"])
    await colour(saver, "put_writes", config, [("a", "early")], "t", "p")
    assert await colour(saver, "get_tuple", config) is None
    assert await colour(saver, "get_tuple", THREAD) is None
    await colour(saver, "put", THREAD, checkpoint, about(), {"a": "1"})
    for reader in (saver, reopened(workspace)):
        found = await colour(reader, "get_tuple", THREAD)
        assert found.pending_writes == [("t", "a", "early")]


async def test_writes_may_come_from_several_threads(saver):
    """cases/checkpointer.md 4, 17: none of many tasks' writes is lost, and all are in order."""
    config = saver.put(THREAD, made(), about(), {})
    with ThreadPoolExecutor(8) as pool:
        for n in range(40):
            pool.submit(saver.put_writes, config, [("a", n), ("b", [n])], f"t{n:02}", f"p{n % 3}")
    found = saver.get_tuple(THREAD).pending_writes
    assert len(found) == 80
    order = [(f"p{int(task[1:]) % 3}", task, channel) for task, channel, _ in found]
    assert order == sorted(order)


def test_the_path_of_a_task_has_the_name_that_langgraph_looks_for(saver):
    """cases/checkpointer.md 4: LangGraph passes `task_path` only to a parameter of that name."""
    for method in (saver.put_writes, saver.aput_writes):
        assert "task_path" in inspect.signature(method).parameters


# --- which checkpoint -------------------------------------------------------


async def test_the_latest_is_the_one_with_the_largest_id(colour, saver):
    """cases/checkpointer.md 5: not the one put last; an id of None means the latest."""
    for checkpoint_id in ("2", "10", "9", "1"):
        await put(colour, saver, THREAD, checkpoint_id=checkpoint_id)
    assert ids([await colour(saver, "get_tuple", THREAD)]) == ["9"]
    config = {"configurable": {"thread_id": "chat:1", "checkpoint_id": None}}
    assert ids([await colour(saver, "get_tuple", config)]) == ["9"]
    assert ids(await colour.list(saver, THREAD)) == ["9", "2", "10", "1"]
    assert await colour(saver, "get_tuple", at(checkpoint_id="3")) is None


async def test_list_without_a_config_is_all_threads(colour, saver):
    """cases/checkpointer.md 5: `list(None)`; another thread's are not in a thread's list."""
    for thread in ("one", "two", "Two"):
        await put(colour, saver, at(thread))
    found = await colour.list(saver, None)
    assert sorted(c.config["configurable"]["thread_id"] for c in found) == ["Two", "one", "two"]
    assert len(await colour.list(saver, at("two"))) == 1
    assert await colour.list(saver, at("three")) == []


async def test_list_of_no_namespace_is_all_of_them(colour, saver):
    """cases/checkpointer.md 5: without `checkpoint_ns` all namespaces, with "" the root's only."""
    for namespace in ("", "child:1", "child"):
        await put(colour, saver, at(namespace=namespace))
    assert len(await colour.list(saver, THREAD)) == 3
    for namespace in ("", "child:1", "child"):
        (found,) = await colour.list(saver, at(namespace=namespace))
        assert found.config["configurable"]["checkpoint_ns"] == namespace


async def test_limits_and_bounds_of_a_list(colour, saver):
    """cases/checkpointer.md 5: limit=0 is nothing; `before` and an id narrow it."""
    config = THREAD
    for checkpoint_id in "123456":
        config = await put(colour, saver, config, checkpoint_id=checkpoint_id)
    assert await colour.list(saver, THREAD, limit=0) == []
    assert await colour.list(saver, THREAD, limit=-1) == []
    assert ids(await colour.list(saver, THREAD, limit=2)) == ["6", "5"]
    before = at(checkpoint_id="3")
    assert ids(await colour.list(saver, THREAD, before=before)) == ["2", "1"]
    assert ids(await colour.list(saver, THREAD, before=before, limit=1)) == ["2"]
    assert ids(await colour.list(saver, at(checkpoint_id="4"))) == ["4"]
    assert await colour.list(saver, at(checkpoint_id="4"), before=before) == []


HOSTILE = ["a.b", "a b", "it's", 'say "x"', "$.x", "x') OR 1=1 --", "%", "*", "[*]", "a[0]", "Ключ"]


@pytest.mark.parametrize("name", HOSTILE)
async def test_filter_keys_and_values_are_literal(colour, saver, name):
    """cases/checkpointer.md 5, 22: no key and no value of a filter is ever read as a query."""
    wanted = await put(colour, saver, THREAD, **{name: "yes"})
    await put(colour, saver, THREAD, a={"b": "yes"}, x=1)
    await put(colour, saver, THREAD, **{name: name})
    assert ids(await colour.list(saver, THREAD, filter={name: "yes"})) == [under(wanted)]
    assert len(await colour.list(saver, None, filter={name: name})) == 1
    for nothing in ("' OR '1'='1", "no", None, {"$ne": "x"}):
        assert await colour.list(saver, None, filter={name: nothing, "step": 1}) == [] or (
            nothing is None
        )
    assert await colour.list(saver, None, filter={"x' OR '1'='1": 1}) == []


async def test_a_filter_compares_whole_values(colour, saver):
    """cases/checkpointer.md 5: several keys are joined by and; nested values compare whole."""
    await put(colour, saver, THREAD, step=1, tag={"k": [1]})
    await put(colour, saver, THREAD, step=2, tag={"k": [1]})
    assert len(await colour.list(saver, THREAD, filter={"tag": {"k": [1]}})) == 2
    assert len(await colour.list(saver, THREAD, filter={"tag": {"k": [1]}, "step": 2})) == 1
    assert await colour.list(saver, THREAD, filter={"tag": {"k": [1], "more": 1}}) == []
    assert len(await colour.list(saver, THREAD, filter={})) == 2


def test_next_versions_sort_as_text():
    """cases/checkpointer.md 5: versions are text that sorts, as the stock savers have it."""
    saver = NanomemSaver(SessionManager("unused"))
    version, versions = None, []
    for _ in range(12):
        version = saver.get_next_version(version, None)
        versions.append(version)
    assert versions == sorted(versions)
    assert len(set(versions)) == 12
    assert all(len(v.split(".")[0]) == 32 for v in versions)
    assert saver.get_next_version(41, None) > saver.get_next_version(40, None)
    assert not Path("unused").exists()


async def test_a_config_without_a_namespace_means_the_root(colour, saver):
    """cases/checkpointer.md 7: `put` and `put_writes` without `checkpoint_ns` are the root's."""
    config = await put(colour, saver, {"configurable": {"thread_id": "chat:1"}}, {"a": 1})
    assert config["configurable"]["checkpoint_ns"] == ""
    bare = {"configurable": {"thread_id": "chat:1", "checkpoint_id": under(config)}}
    await colour(saver, "put_writes", bare, [("a", 2)], "t")
    found = await colour(saver, "get_tuple", at(namespace=""))
    assert found.pending_writes == [("t", "a", 2)]


async def test_a_thread_of_a_number_is_that_of_its_text(colour, saver):
    """cases/checkpointer.md 7: thread 7 and thread "7" are the same."""
    config = await put(colour, saver, at(7), {"a": 1})
    await colour(saver, "put_writes", config, [("a", 2)], "t")
    for thread in (7, "7"):
        found = await colour(saver, "get_tuple", at(thread))
        assert found.pending_writes == [("t", "a", 2)]
        assert len(await colour.list(saver, at(thread))) == 1
    await colour(saver, "copy_thread", 7, 8)
    assert len(await colour.list(saver, at("8"))) == 1
    await colour(saver, "prune", [8], strategy="delete")
    assert await colour.list(saver, at("8")) == []
    await colour(saver, "delete_thread", 7)
    assert await colour(saver, "get_tuple", at("7")) is None


# --- colours, loops, iterators ---------------------------------------------


async def test_a_graph_runs_in_this_colour_without_set_up(colour, saver, workspace):
    """cases/checkpointer.md 8: invoke and ainvoke, inside a running loop, no context manager."""
    graph = replies([said("hello", cls=AIMessage)]).compile(checkpointer=saver)
    given = {"messages": [said("hi")]}
    await asyncio.wait_for(colour(graph, "invoke", given, THREAD), 20)
    state = await colour(replies().compile(checkpointer=reopened(workspace)), "get_state", THREAD)
    assert [m.content for m in state.values["messages"]] == ["hi", "hello"]


async def test_both_colours_at_once_on_one_thread(saver):
    """cases/checkpointer.md 8: tasks of one loop and a thread of its own lose nothing."""
    config = saver.put(THREAD, made(), about(), {})

    async def write(n):
        await saver.aput_writes(config, [("a", n)], f"task{n}")
        return saver.get_tuple(THREAD)

    worker = threading.Thread(target=lambda: saver.put_writes(config, [("b", 1)], "thread"))
    worker.start()
    await asyncio.wait_for(asyncio.gather(*map(write, range(20))), 20)
    await asyncio.to_thread(worker.join)
    assert len((await saver.aget_tuple(THREAD)).pending_writes) == 21


async def test_an_open_list_does_not_block_a_put(colour, saver):
    """cases/checkpointer.md 9: a list is left open, the thread goes on, the list too."""
    for checkpoint_id in "123":
        await put(colour, saver, THREAD, {"a": checkpoint_id}, checkpoint_id=checkpoint_id)
    if colour.name == "sync":
        left = saver.list(THREAD)
        first = next(left)
    else:
        left = saver.alist(THREAD)
        first = await anext(left)
    assert ids([first]) == ["3"]
    await asyncio.wait_for(put(colour, saver, THREAD, checkpoint_id="4"), 20)
    with ThreadPoolExecutor(1) as pool:  # from another thread too
        pool.submit(saver.put, THREAD, made(checkpoint_id="5"), about(), {}).result(20)
    rest = list(left) if colour.name == "sync" else [found async for found in left]
    assert ids(rest) == ["2", "1"]
    assert ids(await colour.list(saver, THREAD)) == ["5", "4", "3", "2", "1"]


class Counting(JsonPlusSerializer):
    """Counts what it reads."""

    loads = 0

    def loads_typed(self, data):
        type(self).loads += 1
        return super().loads_typed(data)


async def test_a_limited_history_decodes_no_more_than_it_gives(colour, sessions):
    """cases/checkpointer.md 9: limit 10 on a long thread decodes ten checkpoints."""
    saver = NanomemSaver(sessions, serde=Counting())
    config = THREAD
    for n in range(200):
        config = await put(colour, saver, config, {"a": n}, {"a": str(n)})
    Counting.loads = 0
    assert len(await colour.list(saver, THREAD, limit=10)) == 10
    assert 0 < Counting.loads <= 30
    Counting.loads = 0
    graph = replies().compile(checkpointer=saver)
    await colour.list(graph, THREAD, method="get_state_history", limit=10)
    assert 0 < Counting.loads <= 30


async def test_an_allowlist_makes_a_copy_that_shares_all_else(colour, sessions, tmp_path):
    """cases/checkpointer.md 6: the shallow copy and the saver see each other's checkpoints."""
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    saver = NanomemSaver(sessions, serde=strict)
    copied = saver.with_allowlist([(Preference.__module__, "Preference")])
    assert copied is not saver
    first = await put(colour, saver, THREAD, {"a": Preference("one")})
    second = await put(colour, copied, first, {"a": Preference("two")}, {"a": "2"})
    await colour(saver, "put_writes", second, [("b", 1)], "t")
    found = await colour(copied, "get_tuple", THREAD)
    assert found.checkpoint["channel_values"] == {"a": Preference("two")}
    assert found.pending_writes == [("t", "b", 1)]
    blocked = (await colour(saver, "get_tuple", THREAD)).checkpoint["channel_values"]
    assert blocked == {"a": {"name": "two"}}
    with ThreadPoolExecutor(8) as pool:
        for n in range(24):
            pool.submit((saver, copied)[n % 2].put_writes, second, [("c", n)], f"c{n}")
    assert len((await colour(saver, "get_tuple", THREAD)).pending_writes) == 25
    await colour(saver, "delete_thread", "chat:1")
    await colour(copied, "put_writes", second, [("late", 1)], "t")
    assert not file_of(tmp_path).exists()


# --- what the serializer can and can't -------------------------------------


class Mood(Enum):
    GOOD = "good"


@dataclass
class Preference:
    name: str


class Pair(TypedDict):
    left: int


SILENT = {
    "tuple": (1, (2, "x")),
    "tuple in a list": [(1, 2)] * 40,
    "defaultdict": defaultdict(list, a=[1]),
    "deque": deque([1, 2], maxlen=2),
    "set": {1, 2},
    "frozenset": frozenset("a"),
    "enum": Mood.GOOD,
    "nested enum": {"mood": Mood.GOOD},
    "bytes": b"\x00\xff",
    "bytearray": bytearray(b"ab"),
    "numbers as keys": {1: "a", 2.5: "b", None: "c"},
    "big": 2**63,
    "not finite": [float("inf"), -0.0],
    "dataclass": Preference("x"),
    "typed dict": Pair(left=1),
    "exception": ValueError("x"),
    "text": "\ud7ff\u2028\x00\U0001f600",
    "empty": [[], {}, "", None, 0, False],
}


@pytest.mark.parametrize("name", SILENT)
async def test_values_come_back_as_the_stock_saver_gives_them(colour, saver, workspace, name):
    """cases/checkpointer.md 12: what the serializer changes is as with the stock savers."""
    value, stock = SILENT[name], InMemorySaver()
    values = {"a": value, "b": [value], "c": {"k": [value] * 3}}
    for one in (saver, stock):
        config = one.put(at(namespace=""), made(values), about(), dict.fromkeys(values, "1"))
        one.put_writes(config, [("w", value)], "t")
    expected = stock.get_tuple(THREAD)
    for reader in (saver, reopened(workspace)):
        found = await colour(reader, "get_tuple", THREAD)
        for ours, theirs in (
            (found.checkpoint["channel_values"], expected.checkpoint["channel_values"]),
            (found.pending_writes, expected.pending_writes),
        ):
            assert ours == theirs
            # A bytearray within a list stays one with us, and not always with the stock savers.
            assert repr(ours) == repr(theirs) or name == "bytearray"


class Opaque:
    """Nothing can serialize it."""


UNSTORABLE = {
    "itself": (Opaque(), "'spoilt'"),
    "in a dictionary": ({"deep": [1, {"er": threading.Lock()}]}, "'spoilt.deep.1.er'"),
    "in a list": ([said("fine"), Opaque()], "'spoilt.1'"),
    "in a message": (
        [said("fine"), ToolMessage("x", tool_call_id="1", artifact={"a": Opaque()})],
        "'spoilt.1.artifact.a'",
    ),
    "in a dataclass": (Preference(Opaque()), "'spoilt.name'"),
}


@pytest.mark.parametrize("where", UNSTORABLE)
@pytest.mark.parametrize("serde", [None, Counting()])
async def test_what_cannot_be_stored_is_named_and_leaves_nothing(
    colour, sessions, tmp_path, where, serde
):
    """cases/checkpointer.md 12: an error naming channel and path, nothing half-written."""
    value, path = UNSTORABLE[where]
    saver = NanomemSaver(sessions, serde=serde)
    config = await put(colour, saver, THREAD, {"a": [said("kept")]})
    before = file_of(tmp_path).read_bytes()
    with pytest.raises(ValueError, match="channel 'spoilt' cannot be stored") as error:
        await put(colour, saver, config, {"a": [said("new")], "spoilt": value})
    assert path in str(error.value)
    with pytest.raises(ValueError, match="channel 'spoilt'") as error:
        await colour(saver, "put_writes", config, [("a", [said("w")]), ("spoilt", value)], "t")
    assert path in str(error.value)
    assert file_of(tmp_path).read_bytes() == before
    await put(colour, saver, config, {"a": [said("after")]}, {"a": "2"})
    found = await colour(reopened(tmp_path, serde=serde), "get_tuple", THREAD)
    assert found.checkpoint["channel_values"] == {"a": [said("after")]}


async def test_a_graph_goes_on_after_a_value_that_cannot_be_stored(colour, saver, workspace):
    """cases/checkpointer.md 12: the run fails with the channel's name, the next one works."""

    class State(MessagesState):
        extra: Any

    answers = iter([{"extra": Opaque()}, {"extra": 1, "messages": [said("fine", cls=AIMessage)]}])
    builder = StateGraph(State)
    builder.add_node("reply", lambda _: next(answers))
    builder.add_edge(START, "reply")
    graph = builder.compile(checkpointer=saver)
    with pytest.raises(ValueError, match="channel 'extra'"):
        await colour(graph, "invoke", {"messages": [said("one")]}, THREAD, durability="sync")
    await colour(graph, "invoke", {"messages": [said("two")]}, THREAD, durability="sync")
    state = await colour(builder.compile(checkpointer=reopened(workspace)), "get_state", THREAD)
    assert [m.content for m in state.values["messages"]] == ["one", "two", "fine"]
    assert state.values["extra"] == 1


async def test_a_removed_line_is_named_when_it_is_needed(colour, saver, sessions, tmp_path):
    """A message that a person cut out of the file is an error where it is needed, not silence."""
    first = await put(colour, saver, THREAD, {"messages": [said("cut out"), said("stays")]})
    await put(colour, saver, first, {"messages": [said("stays")]}, {"messages": "2"})
    lines = file_of(tmp_path).read_bytes().splitlines(keepends=True)
    file_of(tmp_path).write_bytes(b"".join(line for line in lines if b"cut out" not in line))
    reader = reopened(tmp_path)
    with pytest.raises(NanomemError, match="record number 0 is missing"):
        await colour(reader, "get_tuple", first)
    found = await colour(reader, "get_tuple", THREAD)
    assert found.checkpoint["channel_values"] == {"messages": [said("stays")]}


# --- torn and shared files --------------------------------------------------


def test_a_torn_end_at_every_byte_opens(tmp_path, saver):
    """cases/checkpointer.md 16: whatever byte the last records end at, the one before is there."""
    first = saver.put(THREAD, made({"messages": [said("one")]}), about(), {"messages": "1"})
    whole = len(file_of(tmp_path).read_bytes())
    values = {"messages": [said("one"), said("twö"), said("three")], "n": [{"k": "v" * 300}]}
    versions = {"messages": "2", "n": "1"}
    second = saver.put(first, made(values, versions), about(), versions)
    put_end = len(file_of(tmp_path).read_bytes())
    saver.put_writes(second, [("messages", [said("four"), said("five")])], "t")
    content = file_of(tmp_path).read_bytes()
    for end in range(len(content), whole - 1, -1):
        os.truncate(file_of(tmp_path), end)
        found = reopened(tmp_path).get_tuple(THREAD)
        # The last line of an append counts without its line end, as editors leave it.
        assert ids([found]) == [under(second if end >= put_end - 1 else first)]
        assert len(found.pending_writes) == (end >= len(content) - 1)
        if end % 40 == 0:
            workspace = tmp_path / str(end)
            shutil.copytree(tmp_path / "sessions", workspace / "sessions")
            version = {"n": "3"}
            third = reopened(workspace).put(found.config, made({"n": 3}, version), about(), version)
            assert ids(reopened(workspace).list(THREAD))[:2] == [under(third), under(found.config)]


def test_eight_threads_on_eight_conversations(saver, workspace):
    """cases/checkpointer.md 17: nothing is lost, nothing mixed up."""

    def work(n):
        config = at(f"t{n}")
        for step in range(20):
            values = {"messages": [said(f"{n} {k}") for k in range(step + 1)]}
            version = {"messages": str(step)}
            config = saver.put(config, made(values, version), about(step), version)
            saver.put_writes(config, [("n", step)], f"task{step}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    for reader in (saver, reopened(workspace)):
        for n in range(8):
            found = list(reader.list(at(f"t{n}")))
            assert [c.metadata["step"] for c in found] == list(range(19, -1, -1))
            messages = found[0].checkpoint["channel_values"]["messages"]
            assert [m.content for m in messages] == [f"{n} {k}" for k in range(20)]
            assert all(len(c.pending_writes) == 1 for c in found)


async def test_two_managers_notice_each_other(colour, workspace):
    """cases/checkpointer.md 17: appends, prune and delete of one are seen by the other."""
    one, other = reopened(workspace), reopened(workspace)
    config = THREAD
    for n in range(6):
        values, versions = {"messages": [said(f"m{k}") for k in range(n + 1)]}, {"messages": str(n)}
        config = await put(colour, (one, other)[n % 2], config, values, versions)
    for saver in (one, other):
        assert len(await colour.list(saver, THREAD)) == 6
    await colour(one, "prune", ["chat:1"])
    assert ids(await colour.list(other, THREAD)) == [under(config)]
    config = await put(colour, other, config, {"messages": [said("m")]}, {"messages": "9"})
    assert len(await colour.list(one, THREAD)) == 2
    await colour(other, "delete_thread", "chat:1")
    assert await colour(one, "get_tuple", THREAD) is None
    fresh = await put(colour, one, THREAD, {"messages": [said("anew")]})
    assert ids(await colour.list(other, THREAD)) == [under(fresh)]


WORKER = """
import sys
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.manager import SessionManager
saver = NanomemSaver(SessionManager(sys.argv[1]))
name = sys.argv[2]
config = {"configurable": {"thread_id": "chat:1"}}
for n in range(25):
    messages = [HumanMessage(f"{name}{k}", id=f"{name}{k}") for k in range(n + 1)]
    version = {"messages": f"{name}{n}"}
    values = {"messages": messages}
    new = empty_checkpoint() | {"channel_values": values, "channel_versions": version}
    config = saver.put(config, new, {"source": "loop", "step": n, "by": name}, version)
    saver.put_writes(config, [("x", n)], f"{name}{n}")
"""


def test_two_processes_on_one_thread_lose_nothing(tmp_path, saver):
    """cases/checkpointer.md 17: each process's checkpoints and writes are all there, and right."""
    command = [sys.executable, "-c", WORKER, str(tmp_path)]
    workers = [subprocess.Popen([*command, name]) for name in ("a", "b")]
    assert [worker.wait(60) for worker in workers] == [0, 0]
    found = list(saver.list(THREAD))
    assert len(found) == 50
    for checkpoint in found:
        by, step = checkpoint.metadata["by"], checkpoint.metadata["step"]
        messages = checkpoint.checkpoint["channel_values"]["messages"]
        assert [m.content for m in messages] == [f"{by}{k}" for k in range(step + 1)]
        assert checkpoint.pending_writes == [(f"{by}{step}", "x", step)]


# --- deletion ---------------------------------------------------------------


async def test_a_late_put_does_not_bring_a_thread_back(colour, saver, tmp_path):
    """cases/checkpointer.md 18: neither a put nor writes of a run that began before it."""
    first = await put(colour, saver, THREAD, {"messages": [said("secret")]})
    late = made({"messages": [said("secret"), said("more")]})
    await colour(saver, "delete_thread", "chat:1")
    for one in (saver, reopened(tmp_path)):
        await colour(one, "put_writes", first, [("messages", [said("late")])], "t")
        await colour(one, "put", first, late, about(), {"messages": "1"})
        await colour(one, "put", THREAD, late, about(), {"messages": "1"})
        # The run goes on: what follows is newer than the deletion, but its parent was dropped.
        second = await put(colour, one, first, {"messages": [said("second")]})
        await colour(one, "put_writes", second, [("messages", [said("late")])], "t")
        third = await put(colour, one, second, {"messages": [said("third")]})
        await colour(one, "put_writes", third, [("messages", [said("late")])], "t")
        assert await colour(one, "get_tuple", THREAD) is None
        assert await colour.list(one, None) == []
        assert not file_of(tmp_path).exists()
    assert SessionManager(tmp_path).list_sessions() == []


async def test_a_clock_that_was_ahead_at_a_deletion_drops_nothing(colour, saver, tmp_path):
    """What begins anew is kept, though the deletion is noted as of a time that is to come."""
    await put(colour, saver, THREAD, {"messages": [said("old")]})
    await colour(saver, "delete_thread", "chat:1")
    (tombstone,) = (tmp_path / ".deleted").iterdir()
    tombstone.write_text((datetime.now(UTC) + timedelta(days=365)).isoformat())
    config = await put(colour, saver, THREAD, {"messages": [said("new")]})
    await colour(saver, "put_writes", config, [("messages", [said("more")])], "t")
    found = await colour(reopened(tmp_path), "get_tuple", THREAD)
    assert [one.content for one in found.checkpoint["channel_values"]["messages"]] == ["new"]
    assert len(found.pending_writes) == 1


async def test_a_late_subgraph_does_not_bring_a_thread_back(colour, saver, tmp_path):
    """cases/checkpointer.md 18: a namespace that begins after the deletion, of a run before it."""
    root = await put(colour, saver, THREAD, {"a": 1})
    await colour(saver, "delete_thread", "chat:1")
    child = made({"b": 1})
    config = at(namespace="child:1")
    config["configurable"]["checkpoint_map"] = {"": under(root)}
    meta = {**about(), "parents": {"": under(root)}}
    below = await colour(saver, "put", config, child, meta, {"b": "1"})
    await colour(saver, "put_writes", below, [("b", 2)], "t")
    config["configurable"]["checkpoint_id"] = str(uuid6(clock_seq=-1))
    await colour(saver, "put_writes", config, [("b", 2)], "t")
    assert not file_of(tmp_path).exists()


async def test_a_graph_deleted_while_it_runs_stays_deleted(colour, saver, tmp_path):
    """cases/checkpointer.md 18: the run ends well, and leaves nothing; a new one starts anew."""
    for durability in ("sync", "async", "exit"):

        def delete(_):
            saver.delete_thread("chat:1")
            return {"messages": [said("after the deletion", cls=AIMessage)]}

        builder = StateGraph(MessagesState)
        builder.add_node("delete", delete)
        builder.add_node("go on", lambda _: {"messages": [said("and on", cls=AIMessage)]})
        builder.add_edge(START, "delete")
        builder.add_edge("delete", "go on")
        graph = builder.compile(checkpointer=saver)
        start = replies([said("hello", cls=AIMessage)]).compile(checkpointer=saver)
        await colour(start, "invoke", {"messages": [said("earlier")]}, THREAD)
        given = {"messages": [said("hi")]}
        await colour(graph, "invoke", given, THREAD, durability=durability)
        assert await colour(saver, "get_tuple", THREAD) is None
        assert not file_of(tmp_path).exists()
        fresh = replies([said("hello", cls=AIMessage)]).compile(checkpointer=saver)
        await colour(fresh, "invoke", {"messages": [said("new")]}, THREAD, durability=durability)
        messages = (await colour(fresh, "get_state", THREAD)).values["messages"]
        assert [m.content for m in messages] == ["new", "hello"]


async def test_writes_that_overtake_a_late_checkpoint_are_taken_back(colour, saver, tmp_path):
    """cases/checkpointer.md 18: they are taken for a new thread's until their checkpoint comes."""
    first = await put(colour, saver, THREAD, {"messages": [said("secret")]})
    await colour(saver, "delete_thread", "chat:1")
    second = made({"messages": [said("secret"), said("second")]})
    early = at("chat:1", "", second["id"])
    await colour(saver, "put_writes", early, [("messages", [said("overtook")])], "t")
    await colour(saver, "put", first, second, about(), {"messages": "1"})
    assert not file_of(tmp_path).exists()
    # Beside a new thread, only they go.
    fresh = await put(colour, saver, THREAD, {"messages": [said("new")]})
    third = made({"messages": [said("third")]})
    early = at("chat:1", "", third["id"])
    await colour(saver, "put_writes", early, [("messages", [said("overtook")])], "t")
    await colour(saver, "put", first, third, about(), {"messages": "1"})
    assert "overtook" not in file_of(tmp_path).read_text()
    assert ids(await colour.list(reopened(tmp_path), THREAD)) == [under(fresh)]


async def test_after_a_deletion_newer_ones_start_a_new_thread(colour, saver, workspace):
    """cases/checkpointer.md 18, 4: also with writes that come before their checkpoint."""
    await put(colour, saver, THREAD, {"a": 1, "b": 1})
    await colour(saver, "delete_thread", "chat:1")
    checkpoint = made({"a": 2})
    await colour(saver, "put_writes", at("chat:1", "", checkpoint["id"]), [("a", 3)], "t")
    await colour(saver, "put", THREAD, checkpoint, about(), {"a": "1"})
    for reader in (saver, reopened(workspace)):
        (found,) = await colour.list(reader, THREAD)
        assert found.checkpoint["channel_values"] == {"a": 2}
        assert found.pending_writes == [("t", "a", 3)]


async def test_a_put_that_waits_for_a_deletion_is_late(saver, sessions, tmp_path):
    """cases/checkpointer.md 18: a deletion between a put's beginning and its lock counts."""
    config = saver.put(THREAD, made({"a": 1}), about(), {"a": "1"})
    late = made({"a": 2})
    with ThreadPoolExecutor(1) as pool:
        with sessions.journal.lock("chat:1"):
            running = pool.submit(saver.put, config, late, about(), {"a": "2"})
            with contextlib.suppress(TimeoutError):
                running.result(0.1)
            saver.delete_thread("chat:1")
        running.result(20)
    assert not file_of(tmp_path).exists()


async def test_deleting_what_is_not_there_does_nothing(colour, saver, tmp_path):
    """Deletion, pruning and copying of a missing thread neither fail nor create anything."""
    await colour(saver, "delete_thread", "none")
    await colour(saver, "prune", ["none"])
    await colour(saver, "prune", ["none"], strategy="delete")
    await colour(saver, "copy_thread", "none", "other")
    await colour(saver, "delete_for_runs", ["none"])
    assert await colour.list(saver, None) == []
    assert list(tmp_path.rglob("*.jsonl")) == []


async def test_a_copy_onto_a_deleted_name_goes_on(colour, saver):
    """cases/checkpointer.md 18, 20: what was copied there is older than the deletion, not late."""
    config = await put(colour, saver, at("source"), {"a": 1})
    await put(colour, saver, at("target"), {"a": 0})
    await colour(saver, "delete_thread", "target")
    await colour(saver, "copy_thread", "source", "target")
    copied = at("target", "", under(config))
    await colour(saver, "put_writes", copied, [("a", 2)], "t")
    await put(colour, saver, copied, {"a": 2}, {"a": "2"})
    found = await colour.list(saver, at("target"))
    assert [c.checkpoint["channel_values"]["a"] for c in found] == [2, 1]
    assert found[1].pending_writes == [("t", "a", 2)]


# --- pruning and copying ----------------------------------------------------


async def test_pruning_keeps_the_newest_of_each_namespace_with_its_writes(colour, saver, workspace):
    """cases/checkpointer.md 19: per namespace the newest, pending writes included."""
    newest = {}
    for namespace in ("", "child", "child:1"):
        config = at(namespace=namespace)
        for n in range(3):
            values, versions = {"a": n, "b": "same"}, {"a": str(n), "b": "0"}
            new = {"a": str(n)} if n else None
            config = await put(colour, saver, config, values, versions, new=new)
            await colour(saver, "put_writes", config, [("a", f"w{n}")], "t")
        newest[namespace] = under(config)
    await colour(saver, "prune", ["chat:1"], strategy="keep_latest")
    for reader in (saver, reopened(workspace)):
        found = {
            c.config["configurable"]["checkpoint_ns"]: c for c in await colour.list(reader, THREAD)
        }
        assert {namespace: c.checkpoint["id"] for namespace, c in found.items()} == newest
        for checkpoint in found.values():
            assert checkpoint.checkpoint["channel_values"] == {"a": 2, "b": "same"}
            assert checkpoint.pending_writes == [("t", "a", "w2")]


def nested(saver, *, ask_within=True):
    """A graph whose node is a subgraph that may ask something."""

    def think(_):
        answer = interrupt("within") if ask_within else "unasked"
        return {"messages": [said(f"{answer} {random.random()}", cls=AIMessage)]}

    sub = StateGraph(MessagesState)
    sub.add_node("before", lambda _: {})
    sub.add_node("think", think)
    sub.add_edge(START, "before")
    sub.add_edge("before", "think")
    builder = StateGraph(MessagesState)
    builder.add_node("sub", sub.compile())
    builder.add_edge(START, "sub")
    return builder.compile(checkpointer=saver)


async def test_pruning_keeps_a_pending_interrupt_within_a_subgraph(colour, saver, workspace):
    """cases/checkpointer.md 19: the subgraph's state stays with its root, and can be resumed."""
    graph = nested(saver)
    await colour(graph, "invoke", {"messages": [said("hi")]}, THREAD)
    before = await colour(graph, "get_state", THREAD, subgraphs=True)
    await colour(saver, "prune", ["chat:1"])
    graph = nested(reopened(workspace))
    after = await colour(graph, "get_state", THREAD, subgraphs=True)
    assert after.interrupts == before.interrupts
    assert len(after.interrupts) == 1
    assert after.tasks[0].state.values == before.tasks[0].state.values
    done = await colour(graph, "invoke", Command(resume="yes"), THREAD)
    assert done["messages"][-1].content.startswith("yes")


async def test_pruning_removes_the_calls_that_are_over(colour, saver, tmp_path):
    """cases/checkpointer.md 19: subgraphs' calls go with their root; space returns."""
    graph = nested(saver, ask_within=False)
    for turn in range(12):
        await colour(graph, "invoke", {"messages": [said("x" * 3000, f"q{turn}")]}, THREAD)
    values = (await colour(graph, "get_state", THREAD)).values
    size = file_of(tmp_path).stat().st_size
    await colour(saver, "prune", ["chat:1"])
    (found,) = await colour.list(saver, THREAD)
    assert found.config["configurable"]["checkpoint_ns"] == ""
    assert file_of(tmp_path).stat().st_size < size / 2
    assert file_of(tmp_path).stat().st_size < 12 * 3000 * 1.5
    state = await colour(nested(reopened(tmp_path), ask_within=False), "get_state", THREAD)
    assert state.values == values


async def test_pruning_keeps_the_state_of_a_subgraph_that_remembers(colour, saver, workspace):
    """cases/checkpointer.md 19, 14: a subgraph's own thread of state is no call: it stays."""

    def build(saver):
        class Counted(TypedDict):
            count: Annotated[int, operator.add]
            messages: list[Any]

        sub = StateGraph(Counted)
        sub.add_node("count", lambda _: {"count": 1})
        sub.add_edge(START, "count")
        counting = sub.compile(checkpointer=True)

        def maybe(state):
            if state["messages"][-1].content != "count":
                return {}
            return {"messages": [str(counting.invoke({"count": 1})["count"])]}

        builder = StateGraph(MessagesState)
        builder.add_node("maybe", maybe)
        builder.add_edge(START, "maybe")
        return builder.compile(checkpointer=saver)

    graph = build(saver)
    for text in ("count", "count", "other"):
        graph.invoke({"messages": [said(text, str(random.random()))]}, THREAD)
    await colour(saver, "prune", ["chat:1"])
    answer = build(reopened(workspace)).invoke({"messages": [said("count", "last")]}, THREAD)
    assert answer["messages"][-1].content == "6"


@pytest.mark.parametrize("arguments", [("chat:1",), "chat:1"])
async def test_pruning_refuses_a_wrong_call(colour, saver, arguments):
    """cases/checkpointer.md 19: "delete", an unknown strategy is ValueError, a string TypeError."""
    await put(colour, saver, THREAD, {"a": 1})
    if isinstance(arguments, str):
        for strategy in ("keep_latest", "delete", "odd"):
            with pytest.raises(TypeError):
                await colour(saver, "prune", arguments, strategy=strategy)
    else:
        with pytest.raises(ValueError, match="keep_latest"):
            await colour(saver, "prune", arguments, strategy="keep_all")
    assert len(await colour.list(saver, THREAD)) == 1
    await colour(saver, "prune", ["chat:1"], strategy="delete")
    assert await colour.list(saver, THREAD) == []


async def test_pruning_does_not_bring_back_what_was_removed(colour, saver, sessions, workspace):
    """The session of a pruned thread shows what it showed before, however often it is pruned."""
    session = sessions.get_or_create("chat:1")
    session.add_message("user", "before the graph")
    sessions.save(session)
    graph = replies(*([said(f"a{n}", cls=AIMessage)] for n in range(4))).compile(checkpointer=saver)
    for n in range(3):
        await colour(graph, "invoke", {"messages": [said(f"q{n}")]}, THREAD)
    edits = [RemoveMessage("q0"), said("edited", "q1")]
    await colour(graph, "update_state", THREAD, {"messages": edits})
    texts = ["before the graph", "a0", "edited", "a1", "q2", "a2"]
    for _ in range(3):
        assert [m["content"] for m in sessions.get_or_create("chat:1").messages] == texts
        fresh = SessionManager(workspace).get_or_create("chat:1")
        assert [m["content"] for m in fresh.messages] == texts
        await colour(saver, "prune", ["chat:1"])
    await colour(graph, "invoke", {"messages": [said("q3")]}, THREAD)
    texts += ["q3", "a3"]
    assert [m["content"] for m in sessions.get_or_create("chat:1").messages] == texts


async def test_lines_written_by_hand_keep_their_place_when_a_thread_is_pruned(
    colour, saver, sessions, tmp_path
):
    """A line without a number stays the message that it was, and so does every other."""
    path = file_of(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(
        '{"role":"user","content":"by hand 1"}\n{"role":"user","content":"by hand 2"}\n'
    )
    first = await put(
        colour, saver, THREAD, {"board": [{"n": n, "x": "y" * 300} for n in range(5)]}
    )
    with path.open("a") as file:
        file.write('{"role":"user","content":"by hand 3","id":"h3"}\n')
        file.write('{"role":"user","content":"by hand, a number taken","_n":0}\n')
    messages = [said("by hand 3", "h3"), said("m0"), said("m1")]
    values, versions = {"messages": messages, "board": []}, {"messages": "1", "board": "2"}
    await put(colour, saver, first, values, versions)
    before = sessions.get_or_create("chat:1").messages
    texts = ["by hand 1", "by hand 2", "by hand 3", "m0", "m1"]
    assert [m["content"] for m in before] == texts
    for _ in range(2):
        await colour(saver, "prune", ["chat:1"])
        found = await colour(reopened(tmp_path), "get_tuple", THREAD)
        assert found.checkpoint["channel_values"]["messages"] == messages
        assert SessionManager(tmp_path).get_or_create("chat:1").messages == before
    assert "by hand, a number taken" in path.read_text()


async def test_deleting_runs_leaves_the_values_of_the_others(colour, saver, sessions, tmp_path):
    """A run's checkpoints, writes and messages go; values that later ones still need stay."""
    first = await put(colour, saver, THREAD, {"messages": [said("gone")], "big": "b" * 400},
                      run_id="one")  # fmt: skip
    await colour(saver, "put_writes", first, [("messages", [said("gone too")])], "t")
    await put(colour, saver, first, {"messages": [said("stays")], "big": "b" * 400},
              {"messages": "2", "big": "1"}, new={"messages": "2"}, run_id="two")  # fmt: skip
    await colour(saver, "delete_for_runs", ["one", "three"])
    for reader in (saver, reopened(tmp_path)):
        (found,) = await colour.list(reader, THREAD)
        assert found.checkpoint["channel_values"] == {
            "messages": [said("stays")], "big": "b" * 400,
        }  # fmt: skip
    assert "gone" not in file_of(tmp_path).read_text()
    assert [m["content"] for m in sessions.get_or_create("chat:1").messages] == ["stays"]


async def test_deleting_the_first_run_does_not_move_later_messages(colour, saver, sessions):
    """What no longer has its first checkpoint is not taken for what was there before the graph."""
    first = await put(colour, saver, THREAD, {"messages": [said("shared")]}, run_id="one")
    second = await put(colour, saver, first, {"messages": []}, {"messages": "2"}, run_id="two")
    await put(colour, saver, second, {"messages": [said("new"), said("shared")]},
              {"messages": "3"}, run_id="two")  # fmt: skip
    await colour(saver, "delete_for_runs", ["one"])
    texts = [m["content"] for m in sessions.get_or_create("chat:1").messages]
    assert texts == ["new", "shared"]


async def test_a_copied_thread_is_whole_and_independent(colour, saver, sessions, workspace):
    """cases/checkpointer.md 20: all checkpoints, writes and messages; each goes on by itself."""
    session = sessions.get_or_create("chat:1")
    session.add_message("user", "before the graph")
    sessions.save(session)
    graph = replies(*([said(f"a{n}", cls=AIMessage)] for n in range(6))).compile(checkpointer=saver)
    for n in range(3):
        await colour(graph, "invoke", {"messages": [said(f"q{n}")]}, THREAD)
    config = (await colour(saver, "get_tuple", THREAD)).config
    await colour(saver, "put_writes", config, [("x", 1)], "t")
    await colour(saver, "copy_thread", "chat:1", "copy")

    def parts(found):
        return [c._replace(config=under(c.config), parent_config=c.parent_config and
                           under(c.parent_config)) for c in found]  # fmt: skip

    original = parts(await colour.list(saver, THREAD))
    for reader in (saver, reopened(workspace)):
        assert parts(await colour.list(reader, at("copy"))) == original
    texts = [m["content"] for m in sessions.get_or_create("chat:1").messages]
    copied = sessions.get_or_create("copy")
    assert [m["content"] for m in copied.messages] == texts
    await colour(graph, "invoke", {"messages": [said("only here")]}, at("copy"))
    assert parts(await colour.list(saver, THREAD)) == original
    await colour(saver, "delete_thread", "chat:1")
    assert len(await colour.list(reopened(workspace), at("copy"))) > len(original)
    await put(colour, saver, at("third"), {"a": 1})
    with pytest.raises(ValueError, match="exists already"):
        await colour(saver, "copy_thread", "copy", "third")


# --- the session of a thread ------------------------------------------------


def as_records(messages):
    return [encode(message) for message in messages]


def without_times(records):
    return [{n: v for n, v in record.items() if n != "timestamp"} for record in records]


async def test_a_session_of_a_graph_is_its_newest_state(colour, saver, sessions, workspace):
    """The session's messages are the newest checkpoint's, after every kind of change."""
    graph = replies(*([AIMessage(f"a{n}")] for n in range(9))).compile(checkpointer=saver)
    held = sessions.get_or_create("chat:1")

    async def shown():
        state = (await colour(graph, "get_state", THREAD)).values.get("messages", [])
        for manager in (sessions, SessionManager(workspace)):
            session = manager.get_or_create("chat:1")
            assert without_times(session.messages) == as_records(state)
        assert sessions.get_or_create("chat:1") is held
        return [m["content"] for m in held.messages]

    await colour(graph, "invoke", {"messages": [HumanMessage("q0")]}, THREAD)
    await colour(graph, "invoke", {"messages": [("user", "q1"), said("q2")]}, THREAD)
    assert await shown() == ["q0", "a0", "q1", "q2", "a1"]
    edits = {"messages": [said("edited", "q2", response_metadata={"n": 1.0})]}
    await colour(graph, "update_state", THREAD, edits)
    assert await shown() == ["q0", "a0", "q1", "edited", "a1"]
    await colour(graph, "update_state", THREAD, {"messages": [RemoveMessage("q2")]})
    assert await shown() == ["q0", "a0", "q1", "a1"]
    past = await colour.list(graph, THREAD, method="get_state_history")
    old = next(s for s in past if len(s.values.get("messages", [])) == 2)
    await colour(graph, "update_state", old.config, {"messages": [said("fork")]})
    assert await shown() == ["q0", "a0", "fork"]
    everything = {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES)]}
    await colour(graph, "update_state", THREAD, everything)
    assert await shown() == []
    await colour(graph, "invoke", {"messages": [said("again")]}, THREAD)
    assert await shown() == ["again", "a2"]


async def test_history_before_a_graph_comes_first_and_once(colour, saver, sessions):
    """Chat history that was there stays in front, even where the graph takes some of it up."""
    session = sessions.get_or_create("chat:1")
    for n in range(3):
        session.add_message("user", f"chat {n}", id=f"c{n}")
    sessions.save(session)
    graph = replies(*([said(f"a{n}", cls=AIMessage)] for n in range(9))).compile(checkpointer=saver)
    await colour(graph, "invoke", {"messages": [said("q0")]}, THREAD)
    texts = ["chat 0", "chat 1", "chat 2", "q0", "a0"]
    assert [m["content"] for m in sessions.get_or_create("chat:1").messages] == texts
    taken = [said("chat 2", "c2"), said("chat 0", "c0")]
    await colour(graph, "update_state", THREAD, {"messages": taken})
    texts = ["chat 1", "q0", "a0", "chat 2", "chat 0"]
    assert [m["content"] for m in sessions.get_or_create("chat:1").messages] == texts


async def test_messages_of_a_graphs_thread_are_not_saved_from_a_session(colour, saver, sessions):
    """New messages on a graph's thread are a ValueError that names update_state; the rest saves."""
    graph = replies([said("a", cls=AIMessage)]).compile(checkpointer=saver)
    await colour(graph, "invoke", {"messages": [said("q")]}, THREAD)
    session = sessions.get_or_create("chat:1")
    session.metadata["title"] = "kept"
    sessions.save(session)
    session.add_message("user", "from outside")
    with pytest.raises(ValueError, match="update_state"):
        sessions.save(session)
    with pytest.raises(ValueError, match="update_state"):
        sessions.append_messages("chat:1", [said("from outside")])
    sessions.invalidate("chat:1")
    again = sessions.get_or_create("chat:1")
    assert [m["content"] for m in again.messages] == ["q", "a"]
    assert again.metadata == {"title": "kept"}
    state = (await colour(graph, "get_state", THREAD)).values["messages"]
    assert [m.content for m in state] == ["q", "a"]


async def test_the_pointer_of_a_thread_follows_its_consolidations(colour, saver, sessions):
    """last_consolidated counts the leading messages of the branch that were consolidated."""
    graph = replies(*([said(f"a{n}", cls=AIMessage)] for n in range(9))).compile(checkpointer=saver)
    for n in range(3):
        await colour(graph, "invoke", {"messages": [said(f"q{n}")]}, THREAD)
    with sessions.writing("chat:1") as records:
        done = {"id": "c1", "ids": ["q0", "a0", "q1", "a1"]}
        sessions.commit(records, [{"_type": "consolidation", **done}])
        sessions.commit(records, [{"_type": "consolidated", "id": "c1", "last_consolidated": 4}])
    assert sessions.get_or_create("chat:1").last_consolidated == 4
    past = await colour.list(graph, THREAD, method="get_state_history")
    old = next(s for s in past if len(s.values.get("messages", [])) == 2)
    await colour(graph, "update_state", old.config, {"messages": [said("fork")]})
    assert sessions.get_or_create("chat:1").last_consolidated == 2
    await colour(saver, "prune", ["chat:1"])
    assert sessions.get_or_create("chat:1").last_consolidated == 2


async def test_grep_shows_each_message_of_the_conversation_once(colour, saver, tmp_path):
    """`grep -v '"_type"'` of the file is the conversation: messages with ids, each one time."""

    class State(MessagesState):
        scratch: list[Any]

    calls = [{"name": "look", "args": {"at": 1}, "id": "c", "type": "tool_call"}]
    answers = iter([
        {"messages": [said("", "call", AIMessage, tool_calls=calls)], "scratch": [said("s1")]},
        {"messages": [said("result", cls=ToolMessage, tool_call_id="c", artifact={"b": b"x"})]},
        {"messages": [said("done", cls=AIMessage)]},
        {"messages": [said("bye", cls=AIMessage)]},
    ])  # fmt: skip
    builder = StateGraph(State)
    builder.add_node("reply", lambda _: next(answers))
    builder.add_edge(START, "reply")
    builder.add_conditional_edges(
        "reply", lambda s: END if s["messages"][-1].content in {"done", "bye"} else "reply"
    )
    graph = builder.compile(checkpointer=saver)
    given = {"messages": [said("q0")], "scratch": [said("not of the conversation")]}
    await colour(graph, "invoke", given, THREAD, durability="sync")
    await colour(graph, "invoke", {"messages": [said("q1")]}, THREAD, durability="sync")
    lines = file_of(tmp_path).read_text().splitlines()
    shown = [json.loads(line) for line in lines if '"_type"' not in line]
    assert [m["id"] for m in shown] == ["q0", "call", "result", "done", "q1", "bye"]
    assert [m["role"] for m in shown] == ["user", "assistant", "tool", "assistant", "user",
                                          "assistant"]  # fmt: skip
    assert all("timestamp" in m for m in shown)


@pytest.mark.parametrize(("turns", "with_ids"), [(200, True), (80, False)])
def test_storage_grows_with_what_is_new(saver, tmp_path, turns, with_ids):
    """Invariant 5: 200 turns take at most 6 times their payload, and each turn the same."""
    texts = [f"{n:04}{'x' * 636}" for n in range(400)]
    builder = replies(*([AIMessage(t[::-1], id=t if with_ids else None)] for t in texts))
    graph = builder.compile(checkpointer=saver)
    sizes = []
    for turn, text in enumerate(texts[:turns]):
        question = HumanMessage(text, id=f"q{turn}" if with_ids else None)
        graph.invoke({"messages": [question]}, THREAD, durability="sync")
        sizes.append(file_of(tmp_path).stat().st_size)
    assert sizes[-1] < 6 * turns * 2 * 640
    early, late = sizes[40] - sizes[10], sizes[-1] - sizes[-31]
    assert late < early * 1.05


def test_interleaved_lists_grow_with_what_is_new(saver, tmp_path):
    """Invariant 5: two lists that grow at each step, and one that is replaced, stay cheap."""
    config, sizes = THREAD, []
    messages, log, board = [], [], []
    for n in range(160):
        messages, log = [*messages, said(f"m{n}")], [*log, {"n": n, "text": "t" * 40}]
        board = [said(f"b{n}"), *board[:5]]
        values = {"messages": messages, "log": log, "board": board}
        versions = dict.fromkeys(values, str(n))
        config = saver.put(config, made(values, versions), about(n), versions)
        sizes.append(file_of(tmp_path).stat().st_size)
    assert sizes[159] - sizes[119] < (sizes[60] - sizes[20]) * 1.2
    found = reopened(tmp_path).get_tuple(THREAD).checkpoint["channel_values"]
    assert found == values
    old = list(reopened(tmp_path).list(THREAD))[-20].checkpoint["channel_values"]
    assert old["messages"] == messages[:20]
    assert old["log"] == log[:20]


# --- security ---------------------------------------------------------------


@dataclass
class DataState:
    name: str = ""
    seen: list[int] | None = None


async def test_a_dataclass_state_comes_back_as_itself(colour, saver, workspace):
    """cases/checkpointer.md 21: the serializer's defaults are those of the stock savers."""
    builder = StateGraph(DataState)
    builder.add_node("see", lambda state: {"name": state.name + "!", "seen": [1]})
    builder.add_edge(START, "see")
    graph = builder.compile(checkpointer=saver)
    await colour(graph, "invoke", DataState("x"), THREAD)
    kept = await put(colour, saver, at("other"), {"state": DataState("y", [1])})
    found = await colour(reopened(workspace), "get_tuple", kept)
    assert found.checkpoint["channel_values"] == {"state": DataState("y", [1])}
    starts = await colour.list(reopened(workspace), THREAD)
    assert starts[-1].checkpoint["channel_values"]["__start__"] == DataState("x")


async def test_a_strict_serializer_restores_only_what_it_allows(colour, sessions, workspace):
    """cases/checkpointer.md 21: an allowlist argument holds, also for what a message carries."""
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    result = ToolMessage("r", tool_call_id="c", id="r", artifact=Preference("hidden"))
    values = {"a": Preference("x"), "b": [Preference("y")], "messages": [result]}
    config = await put(colour, NanomemSaver(sessions, serde=strict), THREAD, values)
    found = await colour(reopened(workspace, serde=strict), "get_tuple", config)
    read = found.checkpoint["channel_values"]
    assert read["a"] == {"name": "x"}
    assert read["b"] == [{"name": "y"}]
    assert read["messages"][0].artifact == {"name": "hidden"}
    listed = JsonPlusSerializer(allowed_msgpack_modules=[Preference])
    found = await colour(reopened(workspace, serde=listed), "get_tuple", config)
    assert found.checkpoint["channel_values"] | {"messages": []} == values | {"messages": []}


STRICT = """
import sys
from tests_of_types import Preference
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.manager import SessionManager
values = {"a": Preference("x"),
          "messages": [ToolMessage("r", tool_call_id="c", id="r", artifact=Preference("y"))]}
versions = dict.fromkeys(values, "1")
new = empty_checkpoint() | {"channel_values": values, "channel_versions": versions}
config = {"configurable": {"thread_id": "chat:1"}}
if sys.argv[2] == "put":
    NanomemSaver(SessionManager(sys.argv[1])).put(config, new, {"source": "loop"}, versions)
found = NanomemSaver(SessionManager(sys.argv[1])).get_tuple(config)
print(found.checkpoint["channel_values"]["a"])
print(found.checkpoint["channel_values"]["messages"][0].artifact)
"""


def test_langgraphs_strict_switch_holds(tmp_path):
    """cases/checkpointer.md 21: LANGGRAPH_STRICT_MSGPACK: only safe types are restored."""
    (tmp_path / "tests_of_types.py").write_text(
        "from dataclasses import dataclass\n@dataclass\nclass Preference:\n    name: str\n"
    )

    def run(switch, what):
        path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
        environment = {**os.environ, "PYTHONPATH": path, "LANGGRAPH_STRICT_MSGPACK": switch}
        command = [sys.executable, "-c", STRICT, str(tmp_path / switch), what]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    assert run("false", "put") == ["Preference(name='x')", "Preference(name='y')"]
    (tmp_path / "false").rename(tmp_path / "true")
    assert run("true", "read") == ["{'name': 'x'}", "{'name': 'y'}"]


@pytest.mark.parametrize(
    "typed",
    [
        ["pickle", "gASVIwAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAhlY2hvIG93bpSFlFKULg=="],
        [
            "json",
            "eyJsYyI6MiwidHlwZSI6ImNvbnN0cnVjdG9yIiwiaWQiOlsib3MiLCJzeXN0ZW0iXSwiYXJncyI6WyJ0cnVlIl19",
        ],
    ],
)
async def test_a_file_cannot_have_code_run(colour, saver, tmp_path, typed):
    """cases/checkpointer.md 21: neither pickle nor JSON constructors are ever carried out."""
    config = await put(colour, saver, THREAD, {"a": {1: 2}})
    text = file_of(tmp_path).read_text()
    line = json.loads(text.splitlines()[-1])
    line["values"]["a"][1] = {"serde": typed}
    with file_of(tmp_path).open("a") as file:
        file.write(json.dumps(line) + "\n")
    try:
        found = await colour(reopened(tmp_path), "get_tuple", config)
    except NotImplementedError:
        assert typed[0] == "pickle"
    else:
        assert found.checkpoint["channel_values"]["a"] != 0
        assert isinstance(found.checkpoint["channel_values"]["a"], dict)


async def test_nothing_is_pickled_and_files_are_private(colour, saver, tmp_path):
    """cases/checkpointer.md 21: what needs pickle is refused; files are 0600."""
    await put(colour, saver, THREAD, {"a": {1, 2}, "messages": [said("x")]})
    with pytest.raises(ValueError, match="channel 'f' cannot be stored"):
        await put(colour, saver, THREAD, {"f": lambda: None})
    assert "pickle" not in file_of(tmp_path).read_text()
    await colour(saver, "prune", ["chat:1"])
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 2
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in files)


class Shift:
    """A cipher for tests: a byte is moved by a random number that stands in front."""

    def encrypt(self, plaintext):
        key = random.randrange(1, 255)
        return "shift", bytes([key, *((b + key) % 256 for b in plaintext)])

    def decrypt(self, ciphername, ciphertext):
        assert ciphername == "shift"
        return bytes((b - ciphertext[0]) % 256 for b in ciphertext[1:])


@pytest.fixture(params=["aes", "own"])
def encrypting(request):
    if request.param == "own":
        return EncryptedSerializer(Shift())
    return EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")


SECRETS = ["sEcret", "tOol output", "aRtifact", "eDited", "nOte"]


def assert_no_secret(tmp_path, *more):
    for path in tmp_path.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not [secret for secret in (*SECRETS, *more) if secret.encode() in content], path


async def test_an_encrypted_thread_shows_no_text(colour, sessions, tmp_path, encrypting):
    """cases/checkpointer.md 21: no message text in any file; all of it for who has the key."""

    class State(MessagesState):
        notes: Annotated[list[Any], operator.add]

    saver = NanomemSaver(sessions, serde=encrypting)
    calls = [{"name": "look", "args": {"what": "sEcret"}, "id": "c", "type": "tool_call"}]
    answers = [
        {"messages": [AIMessage("sEcret call", tool_calls=calls)], "notes": ["nOte"]},
        {"messages": [ToolMessage("tOol output", tool_call_id="c", artifact=["aRtifact"])]},
        {"messages": [said("sEcret answer", "last", AIMessage)], "notes": [said("nOte", "n")]},
    ]

    def build(saver):
        told = iter(answers)
        builder = StateGraph(State)
        builder.add_node("reply", lambda _: next(told))
        builder.add_edge(START, "reply")
        return builder.compile(checkpointer=saver)

    graph = build(saver)
    for text in ("sEcret question", "sEcret again", "sEcret third"):
        await colour(graph, "invoke", {"messages": [("user", text)]}, THREAD)
    await colour(graph, "update_state", THREAD, {"messages": [said("eDited", "last")]})
    state = (await colour(graph, "get_state", THREAD)).values
    session = sessions.get_or_create("chat:1")
    assert without_times(session.messages) == as_records(state["messages"])
    session.metadata["title"] = "plain"
    sessions.save(session)
    await colour(saver, "prune", ["chat:1"])
    assert_no_secret(tmp_path)
    again = SessionManager(tmp_path)
    reader = NanomemSaver(again, serde=encrypting)
    assert (await colour(build(reader), "get_state", THREAD)).values == state
    assert without_times(again.get_or_create("chat:1").messages) == as_records(state["messages"])


async def test_an_encrypted_session_without_a_graph_shows_no_text(sessions, tmp_path, encrypting):
    """cases/checkpointer.md 21: saved sessions, appended and recorded messages are opaque too."""
    NanomemSaver(sessions, serde=encrypting)
    session = sessions.get_or_create("saved")
    session.add_message("user", "sEcret one", id="s1")
    sessions.save(session)
    session.add_message("assistant", "sEcret two")
    sessions.save(session)
    sessions.append_messages("added", [said("sEcret three", "a1"), AIMessage("sEcret four")])
    sessions.append_messages("added", [said("sEcret three", "a1"), said("sEcret five", "a2")])
    with pytest.raises(ValueError, match="another message of id"):
        sessions.append_messages("added", [said("other", "a1")])
    sessions.record_messages("recorded", [said("r1"), said("sEcret six", "r2")])
    sessions.record_messages("recorded", [said("r1"), said("sEcret six", "r2"), said("r3")])
    texts = {
        "saved": ["sEcret one", "sEcret two"],
        "added": ["sEcret three", "sEcret four", "sEcret five"],
        "recorded": ["r1", "sEcret six", "r3"],
    }
    again = SessionManager(tmp_path)
    NanomemSaver(again, serde=encrypting)
    for manager in (sessions, again):
        for key, expected in texts.items():
            messages = manager.get_or_create(key).messages
            assert [m["content"] for m in messages] == expected
            assert all("timestamp" in m for m in messages)
    assert_no_secret(tmp_path, '"content"', '"role"')


async def test_an_encrypted_thread_grows_with_what_is_new(colour, sessions, tmp_path, encrypting):
    """Invariant 5 holds for encrypted threads too: each message is stored once."""
    saver = NanomemSaver(sessions, serde=encrypting)
    config = THREAD
    messages = []
    for n in range(60):
        if n == 30:  # a new process has to know what is there already
            saver = reopened(tmp_path, serde=encrypting)
        messages = [*messages, said(f"{n} {'x' * 2000}", f"m{n}")]
        config = await put(colour, saver, config, {"messages": messages}, {"messages": str(n)})
    assert file_of(tmp_path).stat().st_size < 60 * 2000 * 2.5
    found = await colour(reopened(tmp_path, serde=encrypting), "get_tuple", THREAD)
    assert found.checkpoint["channel_values"]["messages"] == messages


# --- never repaired ---------------------------------------------------------


async def test_a_killed_run_is_given_back_as_it_was(colour, saver, sessions, tmp_path):
    """cases/checkpointer.md 23: calls without results stay; only the prompt's view mends them."""
    calls = [{"name": "look", "args": {}, "id": f"c{n}", "type": "tool_call"} for n in range(2)]
    messages = [said("q"), said("", "call", AIMessage, tool_calls=calls)]
    config = await put(colour, saver, THREAD, {"messages": messages})
    before = file_of(tmp_path).read_bytes()
    for reader in (saver, reopened(tmp_path)):
        found = await colour(reader, "get_tuple", config)
        assert found.checkpoint["channel_values"]["messages"] == messages
        (listed,) = await colour.list(reader, THREAD)
        assert listed.checkpoint["channel_values"]["messages"] == messages
    view = sessions.get_or_create("chat:1").get_history()
    assert [m["content"] for m in view] == ["q", "", INTERRUPTED, INTERRUPTED]
    assert len(sessions.get_or_create("chat:1").messages) == 2
    assert file_of(tmp_path).read_bytes() == before


async def test_messages_that_only_the_serializer_can_store_show_in_the_session(
    colour, saver, sessions, workspace
):
    """A message of a class of the program's own, or with an odd artifact, hides no session."""
    odd = [
        OwnMessage("mine", id="own"),
        ToolMessage("t", tool_call_id="c", id="odd", artifact=Unequal(1)),
        said("ordinary"),
    ]
    config = await put(colour, saver, THREAD, {"messages": odd})
    found = await colour(reopened(workspace), "get_tuple", config)
    read = found.checkpoint["channel_values"]["messages"]
    assert [type(m) for m in read] == [type(m) for m in odd]
    for manager in (sessions, SessionManager(workspace)):
        shown = manager.get_or_create("chat:1").messages
        assert [m["content"] for m in shown] == ["mine", "t", "ordinary"]
        assert [m["id"] for m in shown] == ["own", "odd", "ordinary"]
        manager.save(manager.get_or_create("chat:1"))


class OwnMessage(HumanMessage):
    """A class that LangChain does not know."""


class Unequal:
    """Comes back, but never equal."""

    def __init__(self, n):
        self.n = n

    def _asdict(self):
        return {"n": self.n}
