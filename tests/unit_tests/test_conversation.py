"""A session, or a list of messages, as the consolidator sees it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from scripted import BEGIN, consolidator_of, save_memory, talk

from langchain_nanomem.codec import decode
from langchain_nanomem.conversation import Conversation, of_messages, of_session, told_time
from langchain_nanomem.records import SessionRecords
from langchain_nanomem.session import Session
from langchain_nanomem.window import live_window

if TYPE_CHECKING:
    from langchain_nanomem.consolidation import MemoryConsolidator

KEY = "cli:user"


@pytest.fixture
def consolidator(tmp_path) -> MemoryConsolidator:
    """One whose messages count 100 tokens each, with a budget of 200."""
    return consolidator_of(tmp_path)


def with_ids(*texts: str) -> list[BaseMessage]:
    """Messages in turn of user and assistant, whose ids are their texts."""
    classes = (HumanMessage, AIMessage)
    return [classes[place % 2](text, id=text) for place, text in enumerate(texts)]


def branch(consolidator: MemoryConsolidator, messages: Any, pointer_id: Any = None) -> Conversation:
    consolidator.sessions.record_messages(KEY, messages)
    with consolidator.sessions.reading(KEY) as records:
        return of_messages(records, messages, pointer_id)


# --- a session ---


def test_a_session_is_seen_as_it_is(consolidator):
    """Key, messages, times, pointer and journal are the session's."""
    session = talk(consolidator.sessions.get_or_create(KEY), "SUA")
    session.last_consolidated = 1
    consolidator.sessions.save(session)
    seen = of_session(session)
    assert (seen.key, seen.last_consolidated, seen.scope) == (KEY, 1, ())
    assert list(seen.messages) == [decode(record) for record in session.messages]
    assert seen.messages[1:] == [HumanMessage("u1"), AIMessage("a2")]
    assert seen.messages[-1].content == "a2"
    assert seen.said_at(0) == BEGIN
    assert seen.uid == session.uid is not None
    assert seen.session is session


def test_a_session_is_seen_as_it_was(consolidator):
    """What is cleared or added afterwards does not change what was seen."""
    session = talk(consolidator.sessions.get_or_create(KEY), "UA")
    seen = of_session(session)
    talk(session, "U")
    assert len(seen.messages) == 2
    session.clear()
    assert [message.content for message in seen.messages] == ["u0", "a1"]
    assert seen.said_at(1) is not None


@pytest.mark.parametrize("pointer", [-1, 4, None, "2", 1.5, True])
def test_a_damaged_pointer_hides_nothing(pointer):
    """A pointer that is no number of messages is taken as 0."""
    session = talk(Session(KEY), "UAU")
    session.last_consolidated = pointer
    assert of_session(session).last_consolidated == 0


def test_times_of_any_form_are_read():
    """cases/consolidation.md 19: None, a number, no time at all, text without a zone."""
    session = Session(KEY)
    stamps = [None, 0, "soon", "2026-05-08T13:56:00", "2026-05-08T15:56:00+02:00"]
    session.messages += [{"role": "user", "content": "x", "timestamp": stamp} for stamp in stamps]
    session.messages.append({"role": "user", "content": "x"})
    said_at = datetime(2026, 5, 8, 13, 56, tzinfo=UTC)
    expected = [None, datetime(1970, 1, 1, tzinfo=UTC), None, said_at, said_at, None]
    assert [of_session(session).said_at(place) for place in range(6)] == expected


# --- a branch ---


def test_a_branch_begins_behind_its_own_pointer(consolidator):
    """The id of the last message in memory is where the live window begins."""
    messages = with_ids("u0", "a1", "u2", "a3")
    seen = branch(consolidator, messages, "a1")
    assert seen.last_consolidated == 2
    assert seen.window.messages == messages[2:]


@pytest.mark.parametrize("pointer_id", [None, "gone"])
def test_a_pointer_that_is_gone_heals(consolidator, pointer_id):
    """Where the id is unknown, what the records have of the branch tells; nothing raises."""
    messages = with_ids("u0", "a1", "u2", "a3")
    assert branch(consolidator, messages, pointer_id).last_consolidated == 0
    consolidator.maybe_consolidate_by_tokens(branch(consolidator, messages))
    assert branch(consolidator, messages, pointer_id).last_consolidated == 2


def test_a_consolidated_branch_moves_its_pointer(consolidator):
    """The same conversation goes on behind the range; a second call has nothing to do."""
    messages = with_ids("u0", "a1", "u2", "a3")
    seen = branch(consolidator, messages)
    (told,) = consolidator.maybe_consolidate_by_tokens(seen)
    assert (told.start, told.end, seen.last_consolidated) == (0, 2, 2)
    assert consolidator.maybe_consolidate_by_tokens(seen) == []
    assert consolidator.model.calls == 1


def test_a_fork_skips_what_is_in_memory(consolidator):
    """Ranges that are in HISTORY.md by their ids need no second model call."""
    messages = with_ids("u0", "a1", "u2", "a3")
    consolidator.maybe_consolidate_by_tokens(branch(consolidator, messages))
    fork = [*messages[:2], HumanMessage("other", id="o2")]
    seen = branch(consolidator, fork)
    assert seen.last_consolidated == 2
    assert consolidator.maybe_consolidate_by_tokens(seen) == []
    assert consolidator.model.calls == 1


def test_a_system_message_in_front_is_covered_with_what_follows(consolidator):
    """cases/consolidation.md 36: it does not stop the pointer, and stays in the window."""
    system = SystemMessage("rules", id="s")
    messages = [system, *with_ids("u0", "a1", "u2", "a3")]
    consolidator.maybe_consolidate_by_tokens(branch(consolidator, messages))
    seen = branch(consolidator, messages)
    assert seen.last_consolidated == 3
    assert seen.window.messages == [system, *messages[3:]]


def test_the_times_of_a_branch_are_those_of_its_records(consolidator):
    """A message's own time comes first, then the time its record has."""
    told = HumanMessage("u0", id="u0", additional_kwargs={"timestamp": "2026-05-08T13:56:00Z"})
    seen = branch(consolidator, [told, AIMessage("a1", id="a1")])
    assert seen.said_at(0) == told_time(told) == datetime(2026, 5, 8, 13, 56, tzinfo=UTC)
    recorded = seen.said_at(1)
    assert recorded is not None
    assert abs((datetime.now(UTC) - recorded).total_seconds()) < 600


def test_a_branch_of_a_deleted_session_is_void(consolidator):
    """What was deleted while the model thought is in no memory, and stays deleted."""
    seen = branch(consolidator, with_ids("u0", "a1", "u2", "a3"))

    def reply(_messages):
        consolidator.sessions.delete(KEY)
        return save_memory("secret")

    consolidator.model.replies[:] = [reply]
    assert consolidator.maybe_consolidate_by_tokens(seen) == []
    assert consolidator.memory.history_entries() == []
    assert consolidator.sessions.list_sessions() == []


# --- looked at all at once -----------------------------------------------------------------


KINDS = st.sampled_from([HumanMessage, AIMessage, SystemMessage])
LISTS = st.lists(st.tuples(KINDS, st.integers(0, 12)), max_size=14, unique_by=lambda one: one[1])


class Known(SessionRecords):
    """Records of which these messages are known, and in memory."""

    def __init__(self, consolidated, known):
        super().__init__(KEY, dict)
        self.consolidated_ids = {one: place for place, one in enumerate(consolidated)}
        self.message_ids = {one: place for place, one in enumerate(known)}


@given(LISTS, st.sets(st.integers(0, 12)), st.integers(0, 13))
def test_the_pointer_is_what_one_by_one_would_give(messages, consolidated, pointer):
    """However messages were edited, put in front, or removed since."""
    state = [kind("x", id=str(number)) for kind, number in messages]
    records = Known(map(str, consolidated), [])
    seen = of_messages(records, state, str(pointer))
    marks = [(message.id, message.type == "system") for message in state]
    ids = [message.id for message in state]
    known = ids.index(str(pointer)) + 1 if str(pointer) in ids else 0
    expected = max(known, records.covered(marks))
    if known or consolidated:
        assert seen.last_consolidated == expected


@given(LISTS, st.integers(0, 14), st.integers(0, 3))
def test_the_window_is_what_one_by_one_would_give(messages, pointer, template):
    """System messages, and a template's, are shown from before it."""
    state = [kind("x", id=str(number)) for kind, number in messages]
    window = live_window(state, min(pointer, len(state)), template=min(template, len(state)))
    before = state[: max(min(pointer, len(state)), min(template, len(state)))]
    kept = [m for i, m in enumerate(before) if i < template or m.type == "system"]
    assert window.kept[: len(kept)] == kept
    assert all(message.type == "human" for message in window.kept[len(kept) :])


@given(st.lists(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_unknown_ids_are_found_wherever_they_stand(ids, known):
    """In their order, also twice, and where there is none."""
    records = Known([], map(str, known))
    asked = [str(one) if one else None for one in ids]
    expected = [place for place, one in enumerate(asked) if one not in records.message_ids]
    assert records.unknown(asked) == expected
