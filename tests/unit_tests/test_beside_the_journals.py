"""The sessions' own files are the truth: what else lies in a workspace may be lost or wrong."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from checkpoint_forker import reopened
from checkpoint_graph import at, build, call, question, told_of
from langchain_core.messages import HumanMessage

from langchain_nanomem.file_journal import FileJournal

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_nanomem.checkpoint import NanomemSaver

KEYS = ("a", "session")
LONG = "word " * 14_000
"""So long that a workspace may keep more of a session than its own file."""


async def talk(saver: NanomemSaver, colour: str, turns: range) -> None:
    """Turns of a graph on a thread, and messages of a session, the first of them long."""
    for turn in turns:
        text = f"{LONG}{turn}" if turn == turns[0] else f"message {turn}"
        config = at("a") | {"metadata": {"run_id": f"r{turn}"}}
        await call(colour, build(saver), "invoke", question(str(turn), text), config)
        session = saver.sessions.get_or_create("session")
        session.add_message("user", text)
        saver.sessions.save(session)


def shown(saver: NanomemSaver) -> Any:
    """All that a saver tells of all threads, and of the sessions."""
    listed = [told_of(found) for found in saver.list(None)]
    newest = [told_of(found) for key in KEYS if (found := saver.get_tuple(at(key)))]
    log = build(saver).get_state(at("a")).values.get("log")
    return listed, newest, log, [saver.sessions.get_or_create(key).messages for key in KEYS]


def beside(workspace: Path) -> list[Path]:
    """The files that are neither a session's own nor the note of a deletion."""
    own = [*(workspace / "sessions").glob("*.jsonl"), *(workspace / ".deleted").glob("*")]
    return [path for path in workspace.rglob("*") if path.is_file() and path not in own]


def overwriting(change: Callable[[bytes], bytes]) -> Callable[[Path, Path], None]:
    """What overwrites each file beside the journals with something made of its content."""

    def damage(workspace: Path, _: Path) -> None:
        for path in beside(workspace):
            path.write_bytes(change(path.read_bytes()))

    return damage


def delete_directories(workspace: Path, _: Path) -> None:
    for path in workspace.iterdir():
        if path.is_dir() and path.name not in {"sessions", ".deleted"}:
            shutil.rmtree(path)


def delete_files(workspace: Path, _: Path) -> None:
    for path in beside(workspace):
        path.unlink()


def put_back(workspace: Path, older: Path) -> None:
    """Each file as it was at an earlier time, or gone if it was not there."""
    for path in beside(workspace):
        copy = older / path.relative_to(workspace)
        path.write_bytes(copy.read_bytes()) if copy.exists() else path.unlink()


def interchange(workspace: Path, _: Path) -> None:
    """Each file with the content of the next one in its directory."""
    paths = sorted(beside(workspace))
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)


def become_directories(workspace: Path, _: Path) -> None:
    """Each file but the locks, which nobody reads, with a directory in its place."""
    for path in beside(workspace):
        if path.parent.name != ".locks":
            path.unlink()
            path.mkdir()


def become_files(workspace: Path, _: Path) -> None:
    """Each directory but that of the locks with a file in its place."""
    for path in workspace.iterdir():
        if path.is_dir() and path.name not in {"sessions", ".deleted", ".locks"}:
            shutil.rmtree(path)
            path.touch()


DAMAGES: dict[str, Callable[[Path, Path], None]] = {
    "delete files": delete_files,
    "delete directories": delete_directories,
    "put back older ones": put_back,
    "interchange": interchange,
    "become directories": become_directories,
    "become files": become_files,
    "empty": overwriting(lambda _: b""),
    "zeros": overwriting(lambda content: bytes(len(content))),
    "garbage": overwriting(lambda content: b"\xff\xfe{garbage" * (len(content) // 10 + 1)),
    "cut in half": overwriting(lambda content: content[: len(content) // 2]),
    "cut at the end": overwriting(lambda content: content[:-1]),
    "more at the end": overwriting(lambda content: content + b"\0{}\n"),
    "one byte": overwriting(
        lambda content: content[: len(content) // 2] + b"?" + content[len(content) // 2 + 1 :]
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_what_lies_beside_is_not_needed(tmp_path, colour, damage):
    """Invariants 2, 3: without it, or with it damaged, all reads the same, and goes on."""
    workspace, older = tmp_path / "workspace", tmp_path / "older"
    await talk(reopened(workspace), colour, range(2))
    shutil.copytree(workspace, older)
    held = reopened(workspace)
    await talk(held, colour, range(2, 3))
    expected = shown(reopened(workspace))
    DAMAGES[damage](workspace, older)
    assert shown(held) == expected
    for turn, saver in enumerate((held, reopened(workspace)), start=3):
        DAMAGES[damage](workspace, older)
        assert shown(reopened(workspace)) == expected
        DAMAGES[damage](workspace, older)
        await talk(saver, colour, range(turn, turn + 1))
        before, expected = expected, shown(saver)
        assert shown(held) == shown(reopened(workspace)) == expected
        assert [one for one in before[0] if one not in expected[0]] == []
        assert expected[2][:-3] == before[2]


@pytest.mark.parametrize("damage", ["garbage", "become directories", "become files"])
@pytest.mark.parametrize(
    "call_of",
    [("prune", ["a"]), ("delete_for_runs", ["r0"]), ("delete_thread", "a")],
    ids=lambda given: given[0],
)
async def test_rewriting_does_not_need_it_either(tmp_path, colour, damage, call_of):
    """Invariants 2, 3: damaged files beside a session's own keep nobody from changing that."""
    sound, damaged = tmp_path / "sound", tmp_path / "damaged"
    await talk(reopened(sound), colour, range(3))
    shutil.copytree(sound, damaged)
    await call(colour, reopened(sound), *call_of)
    saver = reopened(damaged)
    assert saver.get_tuple(at("a"))
    DAMAGES[damage](damaged, damaged)
    await call(colour, saver, *call_of)
    assert shown(saver) == shown(reopened(damaged)) == shown(reopened(sound))


async def test_an_older_journal_counts(tmp_path, colour):
    """Invariant 2: a session's file from a backup is read as it is, whatever lies beside it."""
    workspace, older = tmp_path / "workspace", tmp_path / "older"
    await talk(reopened(workspace), colour, range(3))
    shutil.copytree(workspace, older)
    expected = shown(reopened(older))
    await talk(reopened(workspace), colour, range(3, 6))
    for path in (older / "sessions").iterdir():
        shutil.copy2(path, workspace / "sessions" / path.name)
    assert shown(reopened(workspace)) == expected
    await talk(reopened(workspace), colour, range(3, 6))
    assert len(shown(reopened(workspace))[2]) == 18


@pytest.mark.parametrize("word", [b"ANSWER", b"word", b"a longer word"])
async def test_a_journal_edited_by_hand_counts(tmp_path, colour, word):
    """Invariant 2: what a person changes in a session's file is what a new process reads."""
    saver = reopened(tmp_path)
    config = at("a")
    graph = build(saver)
    for turn in ("answer", "2", "3"):
        await call(colour, graph, "invoke", question(turn), config)
    path = FileJournal(tmp_path).path("a")
    path.write_bytes(path.read_bytes().replace(b'"content":"answer"', b'"content":"%s"' % word))
    later = path.stat().st_mtime + 5
    os.utime(path, (later, later))
    found = await call(colour, reopened(tmp_path), "get_tuple", config)
    messages = found.checkpoint["channel_values"]["messages"]
    assert messages[0].content == word.decode()
    assert reopened(tmp_path).sessions.get_or_create("a").messages[0]["content"] == word.decode()
    await call(colour, build(reopened(tmp_path)), "invoke", question("on"), config)
    messages = build(reopened(tmp_path)).get_state(config).values["messages"]
    assert (messages[0].content, messages[-3].content) == (word.decode(), "on")


@pytest.mark.parametrize("stop", ["open", "replace"])
def test_a_deletion_while_another_reads_leaves_nothing(tmp_path, monkeypatch, stop):
    """cases/sessions.md 17: whatever a reader keeps beside a session's file, it goes with it."""
    session = reopened(tmp_path).sessions.get_or_create("session")
    session.metadata["title"] = "sEcret"
    session.add_message("user", LONG)
    reopened(tmp_path).sessions.save(session)
    delete_files(tmp_path, tmp_path)
    stopped, deleted = threading.Event(), threading.Event()
    real = getattr(os, stop)

    def wait(*args: Any, **kwargs: Any) -> Any:
        is_own = {"sessions", ".locks"} & {*Path(args[0]).parts}
        makes = stop == "replace" or args[1] & os.O_CREAT
        if threading.current_thread() is reader and makes and not is_own:
            stopped.set()
            deleted.wait(20)
        return real(*args, **kwargs)

    monkeypatch.setattr(os, stop, wait)
    reader = threading.Thread(target=lambda: reopened(tmp_path).get_tuple(at("session")))
    reader.start()
    while reader.is_alive() and not stopped.wait(0.01):
        pass  # one that keeps nothing ends by itself
    reopened(tmp_path).sessions.delete("session")
    deleted.set()
    reader.join()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if b"sEcret" in path.read_bytes()] == []


@pytest.fixture
def generous() -> Any:
    """A process that takes nothing from what it gives to others."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("generous")
async def test_all_that_is_there_is_the_owners(tmp_path, colour):
    """cases/checkpointer.md 21: files are 0600, directories 0700, whatever the process allows."""
    workspace = tmp_path / "workspace"
    saver = reopened(workspace)
    await talk(saver, colour, range(2))
    config = (await call(colour, saver, "get_tuple", at("a"))).config
    for number in range(40):
        writes = [("messages", [HumanMessage("w" * 1000, id=f"w{number}")])]
        await call(colour, saver, "put_writes", config, writes, f"task {number}")
    await call(colour, saver, "copy_thread", "a", "copy")
    await call(colour, saver, "prune", ["a"])
    await call(colour, saver, "delete_thread", "session")
    assert shown(reopened(workspace))[0]
    damaged = FileJournal(workspace).path("copy")
    damaged.write_bytes(damaged.read_bytes() + b"garbage\n")
    assert FileJournal(workspace).repair("copy")
    for path in (workspace, *workspace.rglob("*")):
        mode = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == mode, path
