"""The sessions' own files are the truth: what else lies in a workspace may be lost or wrong."""

from __future__ import annotations

import os
import shutil
import stat
from typing import TYPE_CHECKING, Any

import pytest
from checkpoint_forker import reopened
from checkpoint_graph import at, build, call, question, told_of
from langchain_core.messages import HumanMessage

from langchain_nanomem.file_journal import FileJournal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from langchain_nanomem.checkpoint import NanomemSaver

KEYS = ("a", "session")


async def talk(saver: NanomemSaver, colour: str, turns: range) -> None:
    """Turns of a graph on a thread, and messages of a session."""
    for turn in turns:
        await call(colour, build(saver), "invoke", question(str(turn)), at("a"))
        session = saver.sessions.get_or_create("session")
        session.add_message("user", f"message {turn}")
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


DAMAGES: dict[str, Callable[[Path, Path], None]] = {
    "delete files": delete_files,
    "delete directories": delete_directories,
    "put back older ones": put_back,
    "interchange": interchange,
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
    for saver in (held, reopened(workspace)):
        DAMAGES[damage](workspace, older)
        assert shown(reopened(workspace)) == expected
        DAMAGES[damage](workspace, older)
        await talk(saver, colour, range(3, 4))
        before, expected = expected, shown(saver)
        assert shown(held) == shown(reopened(workspace)) == expected
        assert [one for one in before[0] if one not in expected[0]] == []
        assert expected[2][:-3] == before[2]


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
