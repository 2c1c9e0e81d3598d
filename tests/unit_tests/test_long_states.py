"""What a turn looks at all at once, in a long state, is what it would find one by one."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from scripted import consolidator_of

from langchain_nanomem.alignment import recognized
from langchain_nanomem.conversation import of_messages
from langchain_nanomem.prompt import MemoryPrompt

if TYPE_CHECKING:
    from langchain_nanomem.consolidation import MemoryConsolidator

KEYS = itertools.count()
IN_MEMORY = [f"m{n}" for n in range(6)]
LIVE = [f"l{n}" for n in range(4)]
UNKNOWN = [f"u{n}" for n in range(3)]
SYSTEM = [f"s{n}" for n in range(2)]


@pytest.fixture(scope="module")
def consolidator(tmp_path_factory) -> MemoryConsolidator:
    """One workspace for all examples, each with a session of its own."""
    return consolidator_of(tmp_path_factory.mktemp("long"))


def said(ids: list[str], texts: int = 3) -> list[BaseMessage]:
    """Messages with these ids, few of which say something that no other says."""
    return [_message(one, f"text {sum(map(ord, one)) % texts}") for one in ids]


def _message(message_id: str, text: str) -> BaseMessage:
    if message_id.startswith("s"):
        return SystemMessage(text, id=message_id)
    kind = HumanMessage if int(message_id[1:]) % 2 == 0 else AIMessage
    return kind(text, id=message_id)


def session(consolidator: MemoryConsolidator) -> str:
    """A session whose first messages are in memory; gives its key."""
    key = f"t{next(KEYS)}"
    consolidator.sessions.record_messages(key, said([*IN_MEMORY, *LIVE]))
    answer: dict[str, Any] = {"_type": "consolidation", "id": "c", "kind": "model", "start": 0}
    answer |= {"ids": IN_MEMORY, "end": len(IN_MEMORY), "base": None, "at": None}
    answer |= {"history_entry": "-", "memory_update": None, "memory_base": None}
    moved = {"_type": "consolidated", "id": "c", "last_consolidated": len(IN_MEMORY)}
    with consolidator.sessions.writing(key) as records:
        consolidator.sessions.commit(records, [answer])
        consolidator.sessions.commit(records, [moved])
    return key


states = st.permutations([*IN_MEMORY, *LIVE, *UNKNOWN, *SYSTEM]).flatmap(
    lambda ids: st.integers(1, len(ids)).map(lambda size: ids[:size])
)


@settings(max_examples=100, deadline=None)
@given(ids=states, data=st.data())
def test_the_pointer_is_found_all_at_once_as_one_by_one(consolidator, ids, data):
    """Whatever was reordered, removed or put in: the id tells no other place than the walk."""
    key, messages = session(consolidator), said(ids)
    pointer_id = data.draw(st.sampled_from(ids))
    with consolidator.sessions.reading(key) as records:
        found = of_messages(records, messages, pointer_id)
        walked = records.covered((m.id, m.type == "system") for m in messages)
    assert found.last_consolidated == max(ids.index(pointer_id) + 1, walked)


@settings(max_examples=150, deadline=None)
@given(
    changes=st.lists(st.sampled_from(["kept", "kept", "kept", "new id", "removed"]), max_size=10),
    behind=st.integers(0, 3),
)
def test_ids_are_recognized_all_at_once_as_one_by_one(consolidator, changes, behind):
    """A state that is passed over, or only its start compared, has the ids of the whole walk."""
    key = session(consolidator)
    config: Any = {"configurable": {"thread_id": key}}
    changed = zip(said([*IN_MEMORY, *LIVE]), changes, strict=False)
    messages = [_changed(message, change) for message, change in changed if change != "removed"]
    messages += said(UNKNOWN[:behind])
    with consolidator.sessions.reading(key) as records:
        shown = records.messages(records.view())
        walked = recognized(messages, shown, frozenset(records.message_ids))
    found = MemoryPrompt(consolidator).conversation({"messages": messages}, config)
    assert [m.id for m in found.messages] == [m.id for m in walked]


def _changed(message: BaseMessage, change: str) -> BaseMessage:
    if change == "kept":
        return message
    return message.model_copy(update={"id": f"new-{message.id}"})


def test_an_exchange_said_again_keeps_its_ids_when_the_first_is_removed(consolidator):
    """It is live, also where the same words before it are in memory and left the state."""
    key = f"t{next(KEYS)}"
    again = [HumanMessage("hi", id="l0"), AIMessage("hello", id="l1")]
    first = [HumanMessage("hi", id="m0"), AIMessage("hello", id="m1")]
    consolidator.sessions.record_messages(key, [*first, *again])
    state = {"messages": [*again, HumanMessage("and now?", id="u0")]}
    config: Any = {"configurable": {"thread_id": key}}
    found = MemoryPrompt(consolidator).conversation(state, config)
    assert [m.id for m in found.messages] == ["l0", "l1", "u0"]
