"""LangGraph's own conformance suite, over the asynchronous and the synchronous methods."""

from __future__ import annotations

import tempfile

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.memory_journal import MemoryJournal


class SyncColour(BaseCheckpointSaver):
    """Drives the synchronous methods of a saver through the asynchronous ones of the suite."""

    def __init__(self, saver):
        super().__init__(serde=saver.serde)
        self.saver = saver

    def get_next_version(self, current, channel):
        return self.saver.get_next_version(current, channel)

    async def aget_tuple(self, config):
        return self.saver.get_tuple(config)

    async def alist(self, config, **options):
        for found in self.saver.list(config, **options):
            yield found

    async def aput(self, *args):
        return self.saver.put(*args)

    async def aput_writes(self, *args, **options):
        self.saver.put_writes(*args, **options)

    async def adelete_thread(self, thread_id):
        self.saver.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids):
        self.saver.delete_for_runs(run_ids)

    async def acopy_thread(self, *args):
        self.saver.copy_thread(*args)

    async def aprune(self, thread_ids, **options):
        self.saver.prune(thread_ids, **options)


@pytest.mark.parametrize("colour", ["async", "sync"])
@pytest.mark.parametrize("place", ["files", "memory", "postgres"])
async def test_all_eight_capabilities_conform(colour, place, capsys, request):
    """cases/checkpointer.md 1: all 81 tests of all 8 capabilities pass, in both colours."""

    def journal():
        return request.getfixturevalue("databases").journal()

    @checkpointer_test(name=f"NanomemSaver {colour}")
    async def factory():
        with tempfile.TemporaryDirectory() as directory:
            journals = {"files": lambda: directory, "memory": MemoryJournal, "postgres": journal}
            saver = NanomemSaver(SessionManager(journals[place]()))
            yield saver if colour == "async" else SyncColour(saver)

    report = await validate(factory)
    capsys.readouterr()
    failures = [failure for result in report.results.values() for failure in result.failures]
    assert failures == []
    assert len(report.results) == 8
    assert all(result.detected and result.passed for result in report.results.values())
    assert sum(result.tests_passed for result in report.results.values()) == 81
