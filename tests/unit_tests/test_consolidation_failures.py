"""What goes wrong: the model, the files, a person in between. The turn goes on."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from langchain_nanomem import files
from langchain_nanomem.consolidation import Consolidation, MemoryConsolidator
from langchain_nanomem.errors import ConsolidationError, CorruptRecordError, SessionNotFoundError
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.memory import MemoryStore
from scripted import ScriptedChatModel, flat_tokens, save_memory, talk

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "cli:user"


@pytest.fixture
def make(tmp_path) -> Callable[..., MemoryConsolidator]:
    """Makes a consolidator of one workspace, as another process would have it."""

    def make(*replies: Any, window: int = 200, **options: Any) -> MemoryConsolidator:
        return MemoryConsolidator(
            SessionManager(tmp_path),
            MemoryStore(tmp_path),
            ScriptedChatModel(replies=list(replies) or [save_memory()]),
            context_window_tokens=window,
            **{
                "max_completion_tokens": 0,
                "safety_margin_tokens": 0,
                "token_counter": flat_tokens,
                **options,
            },
        )

    return make


@pytest.fixture(params=["sync", "async"])
def run(request) -> Callable[..., list[Consolidation]]:
    """Consolidates, or compacts, in one colour."""

    def run(consolidator, session, *, how="maybe_consolidate_by_tokens", **options):
        if request.param == "sync":
            return getattr(consolidator, how)(session, **options)
        return asyncio.run(getattr(consolidator, f"a{how}")(session, **options))

    return run


def session_of(consolidator, letters="", key=KEY):
    return talk(consolidator.sessions.get_or_create(key), letters)


def texts(consolidator):
    return [entry.text for entry in consolidator.memory.history_entries()]


class ServerError(Exception):
    status_code = 500


# --- the model ---

FAILURES = [
    TimeoutError("slow"),
    ServerError("down"),
    "I would rather talk.",
    save_memory(None),
    save_memory(" "),
    save_memory("<!doctype html><p>502"),
    save_memory().model_copy(update={"response_metadata": {"finish_reason": "length"}}),
    save_memory("(nothing)"),
    save_memory("x" * 227_000),
]


@pytest.mark.parametrize("reply", FAILURES, ids=lambda reply: repr(reply)[:40])
def test_a_failing_model_does_not_stop_the_turn(make, run, tmp_path, caplog, reply):
    """cases/consolidation.md 13, 14, 16, 17: nothing moved, neither file created, it is logged."""
    consolidator = make(reply)
    session = session_of(consolidator, "UAU")
    assert run(consolidator, session) == []
    assert session.last_consolidated == 0
    assert len(session.get_history()) == 3
    assert not (tmp_path / "memory" / "HISTORY.md").exists()
    assert not (tmp_path / "memory" / "MEMORY.md").exists()
    assert "consolidation failed (1 in a row)" in caplog.text


@pytest.mark.parametrize("reply", FAILURES, ids=lambda reply: repr(reply)[:40])
def test_a_failing_model_leaves_the_memory(make, run, reply):
    """cases/consolidation.md 15, 16: MEMORY.md is byte for byte what it was, also when it is raw."""
    consolidator = make(reply)
    consolidator.memory.write_long_term("- likes tea\r\n")
    session = session_of(consolidator, "UAU")
    for _ in range(3):
        run(consolidator, session)
    assert consolidator.memory.memory_path.read_bytes() == b"- likes tea\r\n"
    assert session.last_consolidated == 2


def test_the_third_failure_in_a_row_keeps_the_messages_raw(make, run):
    """cases/consolidation.md 18: all messages whole, the pointer moves; a new object counts on."""
    session = session_of(make(), "UCTA")
    session.messages[2]["content"] = "long result {0} " * 5_000
    talk(session, "U")
    for _ in range(2):
        consolidator = make(TimeoutError())
        session = session_of(consolidator) if session is None else session
        assert run(consolidator, session) == []
        assert texts(consolidator) == []
    consolidator = make(TimeoutError())
    (told,) = run(consolidator, session)
    (text,) = texts(consolidator)
    assert told.kind == "raw"
    assert text == told.history_entry.strip()
    assert text.startswith("[RAW]\n[2026-05-08 Friday 13:00] user: u0\n")
    assert "(calls look with {})" in text
    assert "long result {0} " * 4_999 in text
    assert text.endswith("[2026-05-08 Friday 13:03] assistant: a3")
    assert session.last_consolidated == 4


def test_failures_are_counted_across_restarts(make, run, tmp_path):
    """cases/consolidation.md 18: the count is in the journal."""
    session_of(make(), "UAU")
    for expected in (0, 0, 1):
        consolidator = make(TimeoutError())
        session = consolidator.sessions.get_or_create(KEY)
        if not session.messages:
            talk(session, "UAU")
        assert len(run(consolidator, session)) == expected


def test_failures_are_counted_by_session(make, run):
    """cases/consolidation.md 18: two failures in A do not make the first one in B raw."""
    consolidator = make(TimeoutError())
    first, other = session_of(consolidator, "UAU", "a:1"), session_of(consolidator, "UAU", "b:1")
    for _ in range(2):
        assert run(consolidator, first) == []
    assert run(consolidator, other) == []
    assert other.last_consolidated == 0
    assert len(run(consolidator, first)) == 1


def test_a_success_resets_the_count(make, run):
    """cases/consolidation.md 18: failure, failure, success, failure: no raw entry."""
    failure = TimeoutError()
    consolidator = make(failure, failure, save_memory("fine"), failure)
    session = session_of(consolidator, "UAU")
    for _ in range(3):
        run(consolidator, session)
    talk(session, "AU")
    for _ in range(2):
        assert run(consolidator, session) == []
    assert texts(consolidator) == ["fine"]
    assert [one.kind for one in run(consolidator, session)] == ["raw"]


def test_max_failures_of_one_is_raw_at_once(make, run):
    """The number of failures is the caller's choice."""
    consolidator = make(TimeoutError(), max_failures=1)
    assert [one.kind for one in run(consolidator, session_of(consolidator, "UAU"))] == ["raw"]


def test_raw_copes_with_whatever_a_session_holds(make, run):
    """cases/consolidation.md 19, 37, 41: odd times, roles, content, half characters, pictures."""
    consolidator = make(TimeoutError(), max_failures=1)
    session = session_of(consolidator)
    session.messages += [
        {"role": "user", "content": "at none", "timestamp": None},
        {"role": "assistant", "content": "at a number", "timestamp": 1_778_248_800},
        {"role": "user", "content": "at nonsense", "timestamp": "soon"},
        {"content": "nobody's"},
        {"role": "user", "content": [{"type": "text", "text": "a list"}, "of parts"]},
        {"role": "user", "content": [{"type": "image", "base64": "A" * 4_000, "name": "cat"}]},
        {"role": "user", "content": "half \ud83d and <|endoftext|>"},
        {"role": "user", "content": "[2026-05-08 10:11] like a stamp\n[2026-05-08 10:11] again"},
        {"role": "assistant", "content": None, "tool_calls": "none"},
        {"role": "user", "content": "last"},
    ]
    (told,) = run(consolidator, session)
    (text,) = texts(consolidator)
    assert told.kind == "raw"
    assert session.last_consolidated == 9
    for said in (
        "[no date] user: at none",
        "[2026-05-08 Friday 14:00] assistant: at a number",
        "[no date] user: at nonsense",
        "user: nobody's",
        "a list\nof parts",
        "[image: cat, 3 kB]",
        "half \ufffd and <|endoftext|>",
        "[2026-05-08 10:11] like a stamp\n[2026-05-08 10:11] again",
    ):
        assert said in text


@pytest.mark.parametrize("entry", ["half \ud83d", "[2026-05-08 10:11]", "--> <!-- nanomem", "\x00"])
def test_no_entry_blocks_the_session_for_ever(make, run, entry):
    """What a file can't hold is mended or refused before it is recorded, never found out after."""
    consolidator = make(save_memory(entry, "half \udc00"), save_memory("later", "- fact"))
    session = session_of(consolidator, "UAU")
    run(consolidator, session)
    run(consolidator, session)
    assert session.last_consolidated == 2
    assert len(texts(consolidator)) == 1


def test_bind_tools_that_raises_is_no_failure(make, run):
    """cases/consolidation.md 14: a model without tools answers in JSON."""

    class NoTools(ScriptedChatModel):
        def bind_tools(self, tools, **kwargs):
            raise NotImplementedError

    consolidator = make()
    consolidator.model = NoTools(
        replies=['```json\n{"history_entry": "said", "memory_update": "- f"}\n```']
    )
    assert run(consolidator, session_of(consolidator, "UAU"))
    assert texts(consolidator) == ["said"]


# --- the memory ---


def test_a_memory_that_fills_the_window_is_a_clear_error(make, run, caplog):
    """cases/consolidation.md 21: no model call, no endless loop; it says what to do."""
    consolidator = make(window=1_000, token_counter=None)
    consolidator.memory.write_long_term("- a fact of the past\n" * 400)
    session = session_of(consolidator, "UAU")
    session.add_message("user", "word " * 1_000)
    assert run(consolidator, session) == []
    assert consolidator.model.calls == 0
    assert "leaves no room" in caplog.text
    assert "use a model with a larger window" in caplog.text
    with pytest.raises(ConsolidationError, match="leaves no room"):
        run(consolidator, session, how="compact")
    assert [one.kind for one in run(consolidator, session)] == ["raw"]
    assert consolidator.memory.read_long_term() == "- a fact of the past\n" * 400


def test_a_memory_that_is_not_utf8_is_left_alone(make, run, caplog):
    """cases/consolidation.md 27: a warning that names the file; the turn goes on."""
    consolidator = make()
    consolidator.memory.write_long_term("x")
    path = consolidator.memory.memory_path
    path.write_bytes(b"caf\xe9")
    session = session_of(consolidator, "UAU")
    for _ in range(4):
        run(consolidator, session)
    assert str(path) in caplog.text
    assert path.read_bytes() == b"caf\xe9"
    assert consolidator.model.calls == 0
    assert texts(consolidator)[0].startswith("[RAW]")
    assert consolidator.memory_block(()) == ""
    with pytest.raises(CorruptRecordError):
        run(consolidator, talk(session, "AU"), how="compact")


def test_a_memory_that_can_t_be_opened_is_left_alone(make, run, caplog, tmp_path):
    """cases/consolidation.md 27: the same for one that can't be read; later it goes on."""
    consolidator = make()
    path = consolidator.memory.memory_path
    path.mkdir(parents=True)
    session = session_of(consolidator, "UAU")
    assert run(consolidator, session) == []
    assert str(path) in caplog.text
    path.rmdir()
    assert len(run(consolidator, session)) == 1


def test_a_memory_damaged_while_the_model_thinks_is_left_alone(make, run):
    """cases/consolidation.md 27: the second reading is as careful as the first."""
    consolidator = make()

    def reply(_messages):
        consolidator.memory.memory_path.parent.mkdir(parents=True, exist_ok=True)
        consolidator.memory.memory_path.write_bytes(b"\xff")
        return save_memory()

    consolidator.model.replies[:] = [reply]
    session = session_of(consolidator, "UAU")
    assert run(consolidator, session) == []
    assert consolidator.memory.memory_path.read_bytes() == b"\xff"
    assert session.last_consolidated == 0


def test_a_history_that_can_t_be_written_is_tried_again(make, run, caplog):
    """The recorded answer waits; once the file is there it is finished without the model."""
    consolidator = make()
    path = consolidator.memory.history_path
    path.mkdir(parents=True)
    session = session_of(consolidator, "UAU")
    for _ in range(2):
        assert run(consolidator, session) == []
    assert "the memory could not be written" in caplog.text
    assert session.last_consolidated == 0
    with pytest.raises(OSError, match=r"HISTORY\.md"):
        run(consolidator, session, how="compact")
    path.rmdir()
    assert run(consolidator, session) == []
    assert consolidator.model.calls == 1
    assert texts(consolidator) == ["entry"]
    assert session.last_consolidated == 2


@pytest.mark.parametrize("at", range(1, 9))
def test_a_full_disk_loses_nothing(make, run, monkeypatch, at):
    """Invariant 6: whichever write fails, all of it is there once there is room again."""
    consolidator = make(save_memory("entry", "- fact"))
    consolidator.memory.write_long_term("- old")
    session = session_of(consolidator, "UAU")
    consolidator.sessions.save(session)
    real, calls = os.write, 0

    def write(fd, content):
        nonlocal calls
        calls += 1
        if calls >= at:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, content)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "write", write)
        try:
            run(consolidator, session)
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017 - raised or not, by which write fails
    for _ in range(2):
        run(consolidator, session)
    assert texts(consolidator) == ["entry"]
    assert consolidator.memory.read_long_term() == "- fact"
    assert session.last_consolidated == 2
    assert make().sessions.get_or_create(KEY).last_consolidated == 2


# --- a person, or a program, in between ---


def test_an_edit_while_the_model_thinks_is_asked_for_again(make, run):
    """cases/consolidation.md 26: the model sees the person's edit, and its line is there."""
    consolidator = make()
    consolidator.memory.write_long_term("- likes tea")

    def first(_messages):
        consolidator.memory.memory_path.write_text("- likes tea\n- by hand")
        return save_memory("first", "- likes tea\n- moved")

    consolidator.model.replies[:] = [first, save_memory("second", "- likes tea\n- moved\n- by hand")]
    assert run(consolidator, session_of(consolidator, "UAU"))
    assert consolidator.model.calls == 2
    assert "<current_memory>\n- likes tea\n- by hand\n" in consolidator.model.prompts[1][1].content
    assert texts(consolidator) == ["second"]
    assert consolidator.memory.read_long_term() == "- likes tea\n- moved\n- by hand"


def test_an_edit_at_each_thought_is_merged(make, run):
    """cases/consolidation.md 26: it is asked once more, not for ever; the person's lines win."""
    consolidator = make()
    consolidator.memory.write_long_term("- a\n- b")
    edits = iter(["- a\n- b\n- one", "- a\n- one\n- two"])

    def reply(_messages):
        consolidator.memory.memory_path.write_text(next(edits))
        return save_memory("entry", "- a\n- b\n- model")

    consolidator.model.replies[:] = [reply]
    assert run(consolidator, session_of(consolidator, "UAU"))
    assert consolidator.model.calls == 2
    lines = consolidator.memory.read_long_term().splitlines()
    assert set(lines) == {"- a", "- model", "- two"} | ({"- one"} & set(lines))
    assert "- b" not in lines


def test_an_edit_beside_a_blank_update_stays(make, run):
    """cases/consolidation.md 15, 26: nothing to merge, so nothing is asked again."""
    consolidator = make()

    def reply(_messages):
        consolidator.memory.write_long_term("- by hand")
        return save_memory("entry", "")

    consolidator.model.replies[:] = [reply]
    assert run(consolidator, session_of(consolidator, "UAU"))
    assert consolidator.model.calls == 1
    assert consolidator.memory.read_long_term() == "- by hand"


@pytest.mark.parametrize("in_between", ["delete", "clear", "clear unsaved", "anew"])
@pytest.mark.parametrize("reply", [save_memory("secret", "- secret"), TimeoutError()], ids=repr)
def test_a_session_that_is_gone_meanwhile_leaves_nothing(make, run, in_between, reply):
    """What a person deleted or cleared while the model thought is in no memory, and stays gone."""
    consolidator = make(max_failures=1)
    session = session_of(consolidator, "UAU")
    sessions = consolidator.sessions

    def remove(_messages):
        if in_between.startswith("clear"):
            session.clear()
        else:
            sessions.delete(KEY)
        if in_between == "clear":
            sessions.save(session)
        if in_between == "anew":
            sessions.save(talk(sessions.get_or_create(KEY), "UAUAUA"))
        return reply

    consolidator.model.replies[:] = [remove]
    assert run(consolidator, session) == []
    assert texts(consolidator) == []
    assert consolidator.memory.read_long_term() == ""
    fresh = make().sessions
    if in_between == "delete":
        assert fresh.list_sessions() == []
    elif in_between != "clear unsaved":
        again = fresh.get_or_create(KEY)
        assert len(again.messages) == (6 if in_between == "anew" else 0)
        assert again.last_consolidated == 0


def test_a_deleted_session_can_t_be_consolidated(make, run):
    """An object that is still held says that its session is gone."""
    consolidator = make()
    session = session_of(consolidator, "UAU")
    consolidator.sessions.save(session)
    consolidator.sessions.delete(KEY)
    with pytest.raises(SessionNotFoundError):
        run(consolidator, session)
    assert consolidator.model.calls == 0


def test_a_moved_pointer_voids_the_answer(make, run):
    """cases/consolidation.md 11: whoever consolidated meanwhile has it; no second entry."""
    consolidator, faster = make(), make(save_memory("faster", "- fast"))
    session = session_of(consolidator, "UAU")
    consolidator.sessions.save(session)

    def reply(_messages):
        faster.maybe_consolidate_by_tokens(faster.sessions.get_or_create(KEY))
        return save_memory("slower", "- slow")

    consolidator.model.replies[:] = [reply]
    assert run(consolidator, session) == []
    assert texts(consolidator) == ["faster"]
    assert consolidator.memory.read_long_term() == "- fast"
    assert consolidator.sessions.get_or_create(KEY).last_consolidated == 2


def test_ids_and_a_pointer_set_by_hand_go_together(make, run):
    """Messages with ids behind a pointer that no consolidation set: each goes once."""
    consolidator = make()
    session = session_of(consolidator)
    for place, letter in enumerate("UAUAUAU"):
        talk(session, letter)
        session.messages[-1]["id"] = f"id-{place}"
    session.last_consolidated = 2
    assert [(one.start, one.end) for one in run(consolidator, session)] == [(2, 6)]
    assert session.last_consolidated == 6
    assert run(consolidator, session) == []


# --- interrupts ---


def test_an_interrupt_gives_the_session_free(make):
    """Ctrl-C while the model thinks: the next call consolidates, though the error is kept."""
    consolidator = make(KeyboardInterrupt(), save_memory())
    session = session_of(consolidator, "UAU")
    with pytest.raises(KeyboardInterrupt) as kept:
        consolidator.maybe_consolidate_by_tokens(session)
    assert kept.value.__traceback__ is not None
    assert len(consolidator.maybe_consolidate_by_tokens(session)) == 1


class Slow(ScriptedChatModel):
    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
        if not self.prompts:
            self.prompts.append(messages)
            await asyncio.sleep(30)
        return self._generate(messages, stop, run_manager, **kwargs)


async def test_a_cancelled_call_gives_the_session_free(make):
    """asyncio's cancellation while the model thinks: nothing moved, the next call goes on."""
    consolidator = make()
    consolidator.model = Slow(replies=[save_memory()])
    session = session_of(consolidator, "UAU")
    with pytest.raises(TimeoutError) as kept:
        await asyncio.wait_for(consolidator.amaybe_consolidate_by_tokens(session), 0.3)
    assert kept.value.__traceback__ is not None
    assert session.last_consolidated == 0
    assert len(await consolidator.amaybe_consolidate_by_tokens(session)) == 1


async def test_a_cancelled_call_waits_for_what_it_writes(make, monkeypatch):
    """Cancelled while files are written, it ends only when they are; nothing is half done."""
    consolidator = make()
    session = session_of(consolidator, "UAU")
    writing, go_on = threading.Event(), threading.Event()
    real = consolidator.memory.append_history

    def append(*args, **options):
        writing.set()
        go_on.wait(10)
        return real(*args, **options)

    monkeypatch.setattr(consolidator.memory, "append_history", append)
    task = asyncio.create_task(consolidator.amaybe_consolidate_by_tokens(session))
    await asyncio.to_thread(writing.wait, 10)
    task.cancel()
    await asyncio.sleep(0.05)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert session.last_consolidated == 2
    assert texts(consolidator) == ["entry"]


async def test_the_loop_is_never_blocked(make, monkeypatch):
    """Invariant 10: while files are written, the event loop runs other tasks."""
    consolidator = make()
    session = session_of(consolidator, "UAU")
    threads = []
    real = files.write_all

    def write_all(*args):
        threads.append(threading.current_thread())
        real(*args)

    monkeypatch.setattr(files, "write_all", write_all)
    assert await consolidator.amaybe_consolidate_by_tokens(session)
    assert threads
    assert threading.main_thread() not in threads
