"""A model that fails, or is interrupted. The turn goes on."""

from __future__ import annotations

import asyncio
import threading

import pytest
from scripted import (
    KEY,
    ScriptedChatModel,
    save_memory,
    session_of,
    talk,
    texts,
)

from langchain_nanomem import files
from langchain_nanomem.postgres_database import Transaction

pytestmark = pytest.mark.back_ends("files", "postgres")


class ServerError(Exception):
    status_code = 500


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
    """cases/consolidation.md 15, 16: MEMORY.md is what it was, also when the range is raw."""
    consolidator = make(reply)
    consolidator.memory.write_long_term("- likes tea\r\n")
    session = session_of(consolidator, "UAU")
    for _ in range(3):
        run(consolidator, session)
    assert consolidator.memory.read_long_term() == "- likes tea\r\n"
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
    """A cancellation while the model thinks: nothing moved, the next call goes on."""
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
    """Invariant 10: while something is written, the event loop runs other tasks."""
    consolidator = make()
    session = session_of(consolidator, "UAU")
    threads = []

    def watch(owner, name):
        real = getattr(owner, name)

        def write(*args, **options):
            threads.append(threading.current_thread())
            return real(*args, **options)

        monkeypatch.setattr(owner, name, write)

    watch(files, "write_all")
    watch(Transaction, "commit")
    assert await consolidator.amaybe_consolidate_by_tokens(session)
    assert threads
    assert threading.main_thread() not in threads
