"""A saver that forwards each call to ours and to the stock saver, and compares the answers."""

from __future__ import annotations

import copy
import dataclasses
import threading
from itertools import zip_longest
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.manager import SessionManager


def parts_of(value, where=""):
    """Every part of a value, however deep: where it stands, its class, and itself if it is one."""
    if isinstance(value, BaseModel):
        parts = {**value.__dict__, **(value.__pydantic_extra__ or {})}
    elif dataclasses.is_dataclass(value):
        parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif isinstance(value, (list, tuple)):
        parts = dict(enumerate(value))
    else:
        parts = value
    if not isinstance(parts, dict):
        return [(where, type(value), value)]
    found = [(where, type(value), list(parts))]
    for name, part in parts.items():
        found += parts_of(part, f"{where}.{name}")
    return found


def assert_same(ours, stock, what):
    """Two values are equal, in the types of all their parts and in the order of their keys."""
    different = [
        pair
        for pair in zip_longest(parts_of(ours, what), parts_of(stock, what))
        if len(set(map(repr, pair))) > 1
    ]
    assert not different, "\n".join(f"ours  {one}\nstock {other}" for one, other in different[:5])


def place(config):
    if config is None:
        return None
    configurable = config["configurable"]
    return tuple(configurable.get(name) for name in ("thread_id", "checkpoint_ns", "checkpoint_id"))


def assert_same_tuples(ours, stock):
    """Two answers of `get_tuple` are the same in every part."""
    assert (ours is None) == (stock is None)
    if stock is not None:
        assert place(ours.config) == place(stock.config)
        assert place(ours.parent_config) == place(stock.parent_config)
        assert_same(
            dict(sorted(ours.checkpoint.items())),
            dict(sorted(stock.checkpoint.items())),
            "checkpoint",
        )
        assert_same(ours.metadata, stock.metadata, "metadata")
        assert_same(ours.pending_writes, stock.pending_writes, "writes")


def by_place(found):
    """Checkpoints by namespace, each newest first: in what order namespaces come is free."""
    spaces: dict[str, list[Any]] = {}
    for checkpoint in found:
        spaces.setdefault(checkpoint.config["configurable"]["checkpoint_ns"], []).append(checkpoint)
    return spaces


def assert_same_lists(ours, stock):
    ours, stock = by_place(ours), by_place(stock)
    assert ours.keys() == stock.keys()
    for namespace, found in stock.items():
        assert len(ours[namespace]) == len(found)
        for one, other in zip(ours[namespace], found, strict=True):
            assert_same_tuples(one, other)


def _held_still(checkpoint, metadata):
    """The checkpoint itself; of an input's, whose put LangGraph doesn't wait for, a copy."""
    return copy.deepcopy(checkpoint) if metadata.get("source") == "input" else checkpoint


class Twin(BaseCheckpointSaver):
    """Forwards each call to both savers, and compares what they answer."""

    def __init__(self, workspace, **options):
        super().__init__()
        self.stock = InMemorySaver()
        self._workspace, self._options = workspace, options
        self._one_call = threading.RLock()
        self.restart()

    def restart(self):
        """Go on as a new process would: nothing of ours is known but what is on disk."""
        self.ours = NanomemSaver(SessionManager(self._workspace), **self._options)

    def get_next_version(self, current, channel):
        return self.ours.get_next_version(current, channel)

    def get_tuple(self, config):
        with self._one_call:
            ours = self.ours.get_tuple(config)
            assert_same_tuples(ours, self.stock.get_tuple(config))
            return ours

    def list(self, config, **options):
        with self._one_call:
            ours = list(self.ours.list(config, **options))
            if options.get("limit") is None:
                assert_same_lists(ours, list(self.stock.list(config, **options)))
            return iter(ours)

    def put(self, config, checkpoint, metadata, new_versions):
        with self._one_call:
            checkpoint = _held_still(checkpoint, metadata)
            answer = self.ours.put(config, checkpoint, metadata, new_versions)
            assert answer == self.stock.put(config, checkpoint, metadata, new_versions)
            return answer

    def put_writes(self, config, writes, task_id, task_path=""):
        # Writes are put beside the next node, which may edit them: both get one state of them.
        with self._one_call:
            writes = copy.deepcopy(writes)
            self.ours.put_writes(config, writes, task_id, task_path)
            self.stock.put_writes(config, writes, task_id, task_path)

    def delete_thread(self, thread_id):
        with self._one_call:
            self.ours.delete_thread(thread_id)
            self.stock.delete_thread(thread_id)

    def get_delta_channel_history(self, *, config, channels):
        with self._one_call:
            ours = self.ours.get_delta_channel_history(config=config, channels=channels)
            stock = self.stock.get_delta_channel_history(config=config, channels=channels)
            assert_same(ours, stock, "history")
            return ours

    async def aget_tuple(self, config):
        ours = await self.ours.aget_tuple(config)
        assert_same_tuples(ours, await self.stock.aget_tuple(config))
        return ours

    async def alist(self, config, **options):
        ours = [found async for found in self.ours.alist(config, **options)]
        if options.get("limit") is None:
            assert_same_lists(ours, list(self.stock.list(config, **options)))
        for found in ours:
            yield found

    async def aput(self, config, checkpoint, metadata, new_versions):
        checkpoint = _held_still(checkpoint, metadata)
        answer = await self.ours.aput(config, checkpoint, metadata, new_versions)
        assert answer == self.stock.put(config, checkpoint, metadata, new_versions)
        return answer

    async def aput_writes(self, config, writes, task_id, task_path=""):
        self.put_writes(config, writes, task_id, task_path)

    def assert_all_same(self):
        """All checkpoints, listed and one by one, here and as a new process reads them."""
        stock = list(self.stock.list(None))
        assert_same_lists(list(self.ours.list(None)), stock)
        self.restart()
        assert_same_lists(list(self.ours.list(None)), stock)
        for found in stock[:: 1 + len(stock) // 10]:
            assert_same_tuples(self.ours.get_tuple(found.config), found)
        return len(stock)


class Mirror:
    """A cipher for tests: what it makes is not to be read, and is soon made."""

    def encrypt(self, plaintext):
        return "mirror", plaintext[::-1]

    def decrypt(self, ciphername, ciphertext):
        assert ciphername == "mirror"
        return ciphertext[::-1]
