"""Files that can't be used, and a person or a program in between."""

from __future__ import annotations

import errno
import os

import pytest
from scripted import (
    KEY,
    save_memory,
    session_of,
    talk,
    texts,
)
from stores import edit_memory

from langchain_nanomem import files
from langchain_nanomem.errors import (
    ConsolidationError,
    CorruptRecordError,
    SessionNotFoundError,
)

pytestmark = pytest.mark.back_ends("files", "postgres")


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


def test_a_memory_that_is_not_utf8_is_left_alone(make, run, caplog, tmp_path):
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


def test_a_memory_damaged_while_the_model_thinks_is_left_alone(make, run, tmp_path):
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


def test_a_history_that_can_t_be_written_is_tried_again(make, run, caplog, tmp_path):
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
def test_a_full_disk_loses_nothing(make, run, monkeypatch, at, tmp_path):
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
        edit_memory(consolidator.memory, "- likes tea\n- by hand")
        return save_memory("first", "- likes tea\n- moved")

    consolidator.model.replies[:] = [
        first,
        save_memory("second", "- likes tea\n- moved\n- by hand"),
    ]
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
        edit_memory(consolidator.memory, next(edits))
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
@pytest.mark.parametrize(
    "reply", [save_memory("secret", "- secret"), TimeoutError()], ids=["ok", "failed"]
)
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


def test_an_edit_stays_though_the_model_ignores_it(make, run):
    """cases/consolidation.md 26: a model that never takes the edit up does not undo it."""
    consolidator = make()
    consolidator.memory.write_long_term("# M\n- old\n")

    def edit_then_answer(_messages):
        if consolidator.model.calls == 1:
            edit_memory(consolidator.memory, "# M\n- old\n- by hand\n")
        return save_memory("entry", "# M\n- old\n- by the model\n")

    consolidator.model.replies = [edit_then_answer]
    assert len(run(consolidator, session_of(consolidator, "UAUAU"))) == 1
    assert "- by hand" in consolidator.memory.read_long_term()
    assert "- by the model" in consolidator.memory.read_long_term()
    assert consolidator.model.calls == 2


def test_a_memory_that_would_fill_the_window_is_cut(make, run):
    """cases/consolidation.md 22: an endless memory_update is cut to what the window carries."""
    consolidator = make(save_memory("entry", "- a fact of the user\n" * 12_000), window=8_000)
    consolidator.counter = lambda messages: 4_000 * len(messages)
    assert run(consolidator, session_of(consolidator, "UAUAU"))
    assert 0 < len(consolidator.memory.read_long_term()) <= 20_000
