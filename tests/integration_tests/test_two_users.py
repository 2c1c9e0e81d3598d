"""Two users, one workspace: nothing made for one shows anything of the other."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from scripted import FREE, ScriptedChatModel, save_memory

from langchain_nanomem import Nanomem, Retention

USERS = ("ada", "bob")
FACTS = 200
WORDS = [f"word{number}" for number in range(40)]


def mark(user, number):
    return f"{user}-fact-{number:03}"


def other(user):
    return USERS[1 - USERS.index(user)]


def config(user, thread="now"):
    return {"configurable": {"thread_id": f"{thread}-{user}", "user_id": user}}


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
    """Each has 200 facts: said, logged, in MEMORY.md, in the archive; of the same words."""
    replies = ScriptedChatModel(replies=[save_memory("Nothing.", "")])
    found = Nanomem(
        tmp_path_factory.mktemp("both"),
        model=replies,
        scope="user",
        recall_tokens=600,
        context_window_tokens=8_000,
        **FREE,
    )
    for user in USERS:
        store = found.memory_for(("user", user))
        lines = [
            f"{mark(user, number)} {' '.join(WORDS[(number + k) % 40] for k in range(5))}"
            for number in range(FACTS)
        ]
        for part in range(4):
            key = f"old{part}-{user}"
            found.sessions.bind_scope(key, ("user", user))
            some = lines[part * 50 : part * 50 + 50]
            found.history(key).add_messages([HumanMessage(line) for line in some])
        found.sessions.archive(f"old0-{user}")
        for line in lines[::10]:
            store.append_history(line, source=f"old1-{user} 0-50")
        store.write_long_term("\n".join(f"- {line} #{user}" for line in lines[:60]))
    return found


QUERIES = st.lists(
    st.sampled_from([*WORDS, *USERS, "fact", "001", "ada-fact-007", "bob-fact-007", '"', "OR"]),
    min_size=1,
    max_size=6,
).map(" ".join)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(user=st.sampled_from(USERS), query=QUERIES, number=st.integers(0, FACTS - 1))
def test_no_search_prompt_or_tool_shows_anything_of_the_other(memory, user, query, number):
    """Hits, neighbours, prompts with what is recalled, each tool, whatever is asked."""
    store = memory.memory_for(("user", user))
    search, remember, forget = memory.tools(writing=True)
    asked = f"{query} {mark(other(user), number)}"
    hits = store.search_history(query, limit=50, neighbours=2)
    prompt = memory.prompt.invoke({"messages": [HumanMessage(query, id="q")]}, config(user))
    shown = [
        *(str(hit) for hit in hits),
        *(str(message.content) for message in prompt if message.id != "q"),
        search.invoke({"query": query, "limit": 20}, config(user)),
        forget.invoke({"fact": mark(other(user), number)}, config(user)),
        store.get_memory_context(),
        str(memory.consolidator.account(f"now-{user}")),
    ]
    named = re.findall(rf"{other(user)}-fact-\d+|old\d-{other(user)}", "\n".join(shown))
    assert set(named) <= {mark(other(user), number), *query.split()}
    assert f"#{other(user)}" not in "\n".join(shown)
    told = remember.invoke({"fact": "x", "replaces": asked}, config(user))
    assert "no line of the memory says" in told


@pytest.mark.parametrize("user", USERS)
def test_no_count_or_report_knows_of_the_other(memory, user):
    """Search by the other's own words, tags and sessions finds nothing; all of one's own is."""
    store = memory.memory_for(("user", user))
    for number in range(0, FACTS, 10):
        found = [hit.text for hit in store.search_history(f'"{mark(user, number)}"', limit=9)]
        assert found
        assert store.search_history(f'"{mark(other(user), number)}"') == []
    assert store.search_history("word1", session_id=f"old1-{other(user)}") == []
    assert store.search_history("word1", tags=[other(user)]) == []
    assert len(store.history_entries()) == FACTS // 10


def test_answers_of_an_agent_have_nothing_of_the_other(memory):
    """What the model is sent in a turn, and what the turn gives."""
    chat = ScriptedChatModel(replies=[AIMessage("Fine.")])
    for user in USERS:
        chain = memory.wrap(chat)
        chain.invoke(f"What of word3 and {other(user)}?", config(user, "chain"))
        sent = "\n".join(str(message.content) for message in chat.prompts[-1][:-1])
        assert f"{other(user)}-" not in sent
        assert f"{user}-fact-" in sent


def test_retention_and_erasure_of_one_leave_the_other(memory):
    """Last of all: one is erased, the other has all facts as before."""
    memory.apply_retention(Retention(max_versions=1))
    before = memory.memory_for(("user", "ada")).search_history("word1", limit=500)
    assert memory.erase(user_id="bob").remains == []
    assert memory.memory_for(("user", "ada")).search_history("word1", limit=500) == before
    assert memory.memory_for(("user", "bob")).search_history("word1", limit=500) == []
