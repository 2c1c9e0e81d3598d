"""Writes that reach the saver before their checkpoint, as LangGraph's own runs send them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from checkpoint_forker import reopened
from checkpoint_graph import at, call, made
from langgraph.checkpoint.base.id import uuid6

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.back_ends("files", "postgres")

CHANGES = [
    ("prune", (["a"],)),
    ("delete_for_runs", (["old"],)),
    ("copy_thread", ("a", "copy")),
]


def fresh(**values: Any) -> dict[str, Any]:
    """A checkpoint that is newer than any so far."""
    return made(str(uuid6(clock_seq=-1)), **values)


@pytest.mark.parametrize(("method", "arguments"), CHANGES)
async def test_early_writes_outlive_a_rewrite(workspace: Path, colour, method, arguments):
    """cases/checkpointer.md 4, 15, 19: their checkpoint is being put; all that is acknowledged."""
    saver = reopened(workspace)
    config: Any = at("a")
    for run in ("old", "new"):
        checkpoint = fresh(plain=run)
        meta = {"step": 0, "run_id": run}
        config = saver.put(config, checkpoint, meta, checkpoint["channel_versions"])
    following = fresh(plain="following")
    early = at("a", "", following["id"])
    await call(colour, saver, "put_writes", early, [("plain", "early")], "task", "path")
    await call(colour, saver, method, *arguments)
    meta = {"step": 1, "run_id": "new"}
    await call(colour, saver, "put", config, following, meta, following["channel_versions"])
    for reader in (saver, reopened(workspace)):
        found = await call(colour, reader, "get_tuple", at("a"))
        assert found.checkpoint == following
        assert found.pending_writes == [("task", "plain", "early")]
