"""What several tests share."""

from __future__ import annotations

import functools
import inspect
import os
from typing import TYPE_CHECKING, Any

import checkpoint_graph
import pytest
from checkpoint_forker import Forker
from cut_off import Way
from databases import Databases, directory, server_in
from hypothesis import settings
from scripted import LONG, ScriptedChatModel, consolidate_in, consolidator_of, save_memory

from langchain_nanomem import Nanomem, files
from langchain_nanomem.journal import Journal
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.postgres_journal import PostgresJournal
from langchain_nanomem.workspaces import open_workspace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from langchain_nanomem.consolidation import Consolidation, MemoryConsolidator
    from langchain_nanomem.memory_backend import MemoryBackend

# A busy machine is no failure, and a checkout may be read-only.
settings.register_profile("anywhere", deadline=None, database=None)
settings.load_profile("anywhere")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what is marked so over the back ends; what takes `tmp_path` looks at files."""
    if "workspace" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("back_ends")
        looks_at_files = "tmp_path" in inspect.signature(metafunc.function).parameters
        names = marker.args if marker and not looks_at_files else ["files"]
        metafunc.parametrize("workspace", names, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave one colour out on a database where a mark says so."""
    left_out = [item for item in items if _is_left_out(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in {*left_out}]


def _is_left_out(item: pytest.Item) -> bool:
    marker, call = item.get_closest_marker("back_ends"), getattr(item, "callspec", None)
    if marker is None or call is None or call.params.get("workspace") in {None, "files"}:
        return False
    other = {"sync": "async", "async": "sync"}.get(marker.kwargs.get("colour"))
    return other is not None and other in call.params.values()


@pytest.fixture
def workspace(request, tmp_path: Path) -> Iterator[Path | Journal]:
    """Where a test's sessions are kept: what `SessionManager` takes."""
    if request.param == "files":
        yield tmp_path
        return
    databases = request.getfixturevalue("databases")
    yield databases.lend()
    databases.take_back()


@pytest.fixture
def backend(workspace: Path | Journal) -> MemoryBackend:
    """Where a test's memory is kept: what `MemoryStore` takes."""
    return open_workspace(workspace).memory


@pytest.fixture
def address(workspace: Path | Journal, request) -> str:
    """What another process needs to get at the same place: see `stores.workspace_at`."""
    if not isinstance(workspace, PostgresJournal):
        return str(workspace)
    databases = request.getfixturevalue("databases")
    databases.retire(workspace)
    return f"{databases.url} {workspace.schema.name}"


@pytest.fixture
def elsewhere(workspace, request, tmp_path_factory) -> Callable[[], Path | Journal]:
    """Makes further workspaces of the same kind."""
    if isinstance(workspace, Journal):
        return request.getfixturevalue("databases").lend
    return lambda: tmp_path_factory.mktemp("elsewhere")


@pytest.fixture
def open_memory(workspace) -> Callable[..., Nanomem]:
    """Opens the memory of the workspace, or of another one, as several workers would."""
    return lambda place=workspace, **options: Nanomem(place, **options)


@pytest.fixture
def schema(databases: Databases) -> Iterator[str]:
    """The name of a schema that is not there yet, and goes when the test ends."""
    yield databases.schema()
    databases.drop()


@pytest.fixture
def way(databases: Databases) -> Iterator[Way]:
    """A way to the server that can be broken."""
    way = Way(databases.url)
    yield way
    way.close()


@pytest.fixture(scope="session")
def databases() -> Iterator[Databases]:
    """Places in a PostgreSQL server, which is started when the first test asks for one."""
    with directory() as path, server_in(path) as url:
        databases = Databases(url)
        yield databases
        databases.close()


@pytest.fixture
def manager(workspace: Path | Journal) -> SessionManager:
    """A manager of a workspace that does not exist yet."""
    is_journal = isinstance(workspace, Journal)
    return SessionManager(workspace if is_journal else workspace / "workspace")


@pytest.fixture
def again(manager: SessionManager) -> Callable[[], SessionManager]:
    """Makes further managers of the same workspace, as another process would have them."""
    return lambda: SessionManager(getattr(manager.journal, "workspace", manager.journal))


@pytest.fixture(params=["sync", "async"])
def colour(request) -> str:
    """In which colour a saver's and a graph's methods are called."""
    return request.param


@pytest.fixture
def call(colour: str) -> Callable[..., Awaitable[Any]]:
    """Calls a method of a saver or a graph in one colour."""
    return functools.partial(checkpoint_graph.call, colour)


@pytest.fixture
def model() -> ScriptedChatModel:
    """Consolidates, and keeps count."""
    replies = [save_memory(f"entry {n}", f"- facts of {n}") for n in range(99)]
    return ScriptedChatModel(replies=replies)


@pytest.fixture
def chat() -> ScriptedChatModel:
    """Answers, and keeps count."""
    return ScriptedChatModel(replies=[f"a{n}{LONG}" for n in range(99)])


@pytest.fixture(scope="session")
def forker() -> Iterator[Forker]:
    """Starts processes that work on threads."""
    forker = Forker()
    yield forker
    forker.close()


@pytest.fixture
def disk_full(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets how many more bytes the disk takes before every write fails."""
    real = os.write

    def fill(free_bytes: int) -> None:
        left = free_bytes

        def write(fd: int, content: bytes) -> int:
            nonlocal left
            if left <= 0:
                raise OSError(28, "No space left on device")
            written = real(fd, bytes(content)[:left])
            left -= written
            return written

        monkeypatch.setattr(files.os, "write", write)

    return fill


@pytest.fixture
def deny_open(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes opening of all files whose name ends so fail, for root too."""

    def deny(ending: str) -> None:
        real = os.open

        def refuse(path: str | os.PathLike[str], *args: int, **kwargs: int) -> int:
            if str(path).endswith(ending):
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, *args, **kwargs)

        monkeypatch.setattr(files.os, "open", refuse)

    return deny


@pytest.fixture
def make(workspace, tmp_path) -> Callable[..., MemoryConsolidator]:
    """Makes consolidators of one workspace, as several processes would have them."""
    return functools.partial(consolidator_of, tmp_path, journal=workspace)


@pytest.fixture(params=["sync", "async"])
def run(request) -> Callable[..., list[Consolidation]]:
    """Consolidates, or compacts, in one colour."""
    return consolidate_in(request.param)


@pytest.fixture
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a proxy nor a setting of the person who runs the tests gets in between."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "OPENAI_PROXY", "OPENAI_API_BASE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
