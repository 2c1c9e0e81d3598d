"""What is sensitive never gets into memory, log, index and logs; nor, if asked, into sessions."""

from __future__ import annotations

import asyncio
import logging

import pytest
from langchain_core.messages import AIMessage, ChatMessage, HumanMessage
from langgraph.graph import START, StateGraph
from leaks import EVERYWHERE, RULES, SECRETS, TOLD, leaks, written
from scripted import FREE, LONG, ScriptedChatModel, save_memory, texts

from langchain_nanomem import (
    MemoryState,
    MemoryStore,
    Nanomem,
    Redaction,
    RedactionError,
    SessionManager,
)


def opened(path, *replies, redaction=RULES, **options):
    model = ScriptedChatModel(replies=[*replies] or [save_memory(TOLD, f"- {TOLD}")])
    return Nanomem(
        path, model=model, redaction=redaction, context_window_tokens=900, **FREE, **options
    )


def graph_of(memory):
    chat = ScriptedChatModel(replies=[AIMessage(f"I note: {TOLD}")])
    graph = StateGraph(MemoryState)
    graph.add_node("memory", memory.node(chat))
    graph.add_edge(START, "memory")
    return graph.compile(checkpointer=memory.checkpointer)


async def say(memory, call, turns=4):
    graph = graph_of(memory)
    for _ in range(turns):
        said = [HumanMessage(TOLD + LONG)]
        await call(graph, "invoke", {"messages": said}, {"configurable": {"thread_id": "t"}})


@pytest.mark.parametrize(
    "replies",
    [
        [save_memory(TOLD, f"# User\n- {TOLD}")],
        [save_memory([TOLD], {"user": TOLD})],
        [RuntimeError(TOLD)],
        [save_memory(3, TOLD), AIMessage(TOLD)],
    ],
    ids=["good", "structured", "failing", "malformed"],
)
async def test_no_secret_is_remembered(tmp_path, call, caplog, replies):
    """Whatever the model answers: MEMORY.md, HISTORY.md, archive, index and logs have none."""
    caplog.set_level(logging.DEBUG, logger="langchain_nanomem")
    memory = opened(tmp_path, *replies, max_failures=1)
    await say(memory, call)
    assert memory.memory.history_entries()
    hits = memory.memory.search_history("github aws")
    assert hits
    assert leaks("".join(hit.text for hit in hits)) == []
    assert leaks(written(tmp_path, without=["sessions"])) == []
    assert leaks(caplog.text) == []
    assert len(leaks(written(tmp_path))) == len(SECRETS)  # the session is complete


async def test_no_secret_is_in_sessions_either_if_so_chosen(tmp_path, call):
    """Then no file has one: graph, chat history and a session of one's own."""
    memory = opened(tmp_path, redaction=EVERYWHERE)
    await say(memory, call)
    memory.history("h").add_messages([HumanMessage(TOLD, id="1"), AIMessage(TOLD)])
    memory.history("h").add_messages([HumanMessage(TOLD, id="1")])
    session = memory.sessions.get_or_create("s")
    session.add_message("user", TOLD, tool_calls=[{"function": {"arguments": TOLD}}])
    memory.sessions.save(session)
    session.add_message("assistant", "Noted.")
    memory.sessions.save(session)
    assert leaks(written(tmp_path)) == []
    assert "[secret]" in session.messages[0]["content"]
    again = opened(tmp_path, redaction=RULES)
    state = graph_of(again).get_state({"configurable": {"thread_id": "t"}}).values
    assert len(state["messages"]) == 8
    assert "my aws is [secret]" in state["messages"][0].content
    assert len(again.history("h").messages) == 2


def test_what_is_blocked_is_not_written(tmp_path):
    """A program that writes it gets an error without the text; the files are as they were."""
    store = MemoryStore(tmp_path, redaction=Redaction({"email": "block"}))
    store.write_long_term("- kept")
    base = store.read_version().version
    for write in (
        store.write_long_term,
        store.append_history,
        lambda text: store.replace_long_term(text, expected_version=base),
    ):
        with pytest.raises(RedactionError, match="email") as caught:
            write(TOLD)
        assert leaks(str(caught.value)) == []
    assert store.read_long_term() == "- kept"
    assert store.history_entries() == []


async def test_a_turn_goes_on_where_something_is_blocked(tmp_path, call):
    """At a consolidation the lines with it are left out, marked, and the rest is kept."""
    update = f"# User\n- Ada\n- {SECRETS['mail']}\n- likes tea"
    rules = Redaction({"email": "block"})
    memory = opened(tmp_path, save_memory("We talked.", update), redaction=rules)
    await say(memory, call)
    kept = "# User\n- Ada\n[withheld: email]\n- likes tea"
    assert memory.memory.read_long_term() == kept
    assert texts(memory)[0] == "We talked."


HAND = f"# User\n- Ada\n- {SECRETS['mail']}\n- likes tea\n"


@pytest.mark.parametrize("strategy", ["block", "redact"])
@pytest.mark.parametrize("keeps_it", [True, False])
async def test_a_line_by_hand_does_not_end_consolidations(
    tmp_path, call, caplog, strategy, keeps_it
):
    """What a person wrote and what is blocked becomes its mark, the person is told, all goes on."""
    mark = "[withheld: email]" if strategy == "block" else "- [REDACTED_EMAIL]"
    first = HAND.replace("tea", "rum") if keeps_it else "# User\n- Ada\n- likes rum"
    second = first.replace("rum", "gin")
    replies = [save_memory("One.", first), save_memory("Two.", second)]
    memory = opened(tmp_path, *replies, redaction=Redaction({"email": strategy}))
    memory.memory.memory_path.parent.mkdir(parents=True)
    memory.memory.memory_path.write_text(HAND, encoding="utf-8")
    await say(memory, call, turns=8)
    assert texts(memory)[:2] == ["One.", "Two."]
    marked = second.strip().replace(f"- {SECRETS['mail']}", mark)
    assert memory.memory.read_long_term().strip() == marked
    assert memory.memory.versions()[-1].read_text() == HAND
    assert caplog.text.count("1 lines had something that must not be written") == 1
    assert "could not be written" not in caplog.text
    assert leaks(caplog.text) == []


async def test_an_edit_with_a_secret_meets_an_answer(tmp_path, call):
    """Made while the model thinks: the other edits are kept, the line becomes its mark."""
    path = tmp_path / "memory" / "MEMORY.md"
    answer = save_memory("One.", "- Ada\n- likes tea\n")

    def edit(messages):
        path.write_text(f"- Ada\n- {SECRETS['mail']}\n- by hand\n", encoding="utf-8")
        return answer

    replies = [edit, answer, save_memory("Two.", "")]
    memory = opened(tmp_path, *replies, redaction=Redaction({"email": "block"}))
    memory.memory.write_long_term("- Ada\n")
    await say(memory, call)
    lines = memory.memory.read_long_term().split("\n")
    assert {"- Ada", "[withheld: email]", "- by hand", "- likes tea"} <= {*lines}
    assert len(lines) == len({*lines})


async def test_an_answer_under_older_rules_is_carried_out(tmp_path, call):
    """What was committed before rules got stricter is written by the new ones, as marks."""
    told = f"Mail {SECRETS['mail']}."
    before = opened(tmp_path, save_memory(told, f"- likes tea\n- {told}"), redaction=None)
    before.memory.history_path.mkdir(parents=True)  # so that nothing can be written
    await say(before, call)
    before.close()
    before.memory.history_path.rmdir()
    after = opened(tmp_path, save_memory("Two.", ""), redaction=Redaction({"email": "block"}))
    await say(after, call)
    assert texts(after)[0] == "[withheld: email]"
    assert after.memory.read_long_term() == "- likes tea\n[withheld: email]"


async def test_tools_look_at_their_own_line(tmp_path, call):
    """A secret that a person wrote elsewhere refuses nothing; the person's line stays."""
    memory = opened(tmp_path, redaction=Redaction({"email": "block"}))
    memory.memory.memory_path.parent.mkdir(parents=True)
    memory.memory.memory_path.write_text(HAND, encoding="utf-8")
    _, remember, forget = memory.tools(writing=True)

    async def used(tool, **args):
        return await call(tool, "invoke", args, {"configurable": {"thread_id": "h"}})

    assert (await used(remember, fact="swims")).startswith("Remembered")
    assert (await used(remember, fact="likes rum", replaces="likes tea")).startswith("Corrected")
    assert (await used(forget, fact="Ada")).startswith("Forgotten")
    blocked = await used(remember, fact=f"writes from {SECRETS['mail']}", replaces="swims")
    assert blocked.startswith("Nothing is remembered")
    left = memory.memory.read_long_term()
    assert left.startswith(f"# User\n- {SECRETS['mail']}\n- likes rum (")
    assert "# Noted\n- swims (" in left
    assert (await used(forget, fact=SECRETS["mail"])).startswith("Forgotten")
    assert leaks(memory.memory.read_long_term()) == []


def test_an_index_of_other_rules_is_made_anew(tmp_path):
    """What was searchable without redaction is in no byte of the index with it."""
    plain = opened(tmp_path, redaction=None)
    plain.history("h").add_messages([HumanMessage(TOLD)])
    assert plain.memory.search_history("patient 00471")
    plain.close()
    assert leaks(written(tmp_path / ".search")) != []
    memory = opened(tmp_path)
    assert leaks(memory.memory.search_history("patient")[0].text) == []
    assert memory.memory.search_history("00471") == []
    memory.close()
    assert leaks(written(tmp_path / ".search")) == []


async def test_who_said_it_is_redacted_too(tmp_path, call):
    """A name that is an address is in no byte of memory, log and index; it is found by the rest."""
    memory = opened(tmp_path)
    graph = graph_of(memory)
    for name in (SECRETS["mail"], SECRETS["own"], "Ada"):
        said = [HumanMessage(f"I like tea. {LONG}", name=name)]
        await call(graph, "invoke", {"messages": said}, {"configurable": {"thread_id": "t"}})
    memory.history("h").add_messages([ChatMessage("I like tea.", role=SECRETS["mail"])])
    speakers = {hit.speaker for hit in memory.memory.search_history("like tea")}
    assert speakers >= {"ada.lovelace@****.org", "[patient]", "Ada"}
    assert memory.memory.search_history("00471") == []
    memory.close()
    assert leaks(written(tmp_path, without=["sessions"])) == []


def test_a_key_stays_usable(tmp_path):
    """What is logged of a session leads to it, whatever its key is: keys are not redacted."""
    memory = opened(tmp_path)
    key = "mail:" + SECRETS["mail"]
    memory.history(key).add_messages([HumanMessage("I like tea."), AIMessage("Noted.")] * 2)
    memory.consolidator.compact(memory.sessions.get_or_create(key))
    logged = memory.memory.search_history("github", session_id=key, kinds=["logged"])
    assert [hit.session_id for hit in logged] == [key]
    erased = memory.erase(session_id=key)
    assert (erased.sessions, erased.log_entries) == ([key], 1)


def test_what_a_program_keeps_with_a_session(tmp_path):
    """Its metadata are redacted where sessions are; otherwise they are as they were set."""
    told = {"password": "hunter" + "22", "note": {TOLD: [TOLD, (TOLD, 1)]}, "n": 1}
    for redaction, name in ((RULES, "plain"), (EVERYWHERE, "redacted")):
        sessions = SessionManager(tmp_path / name, redaction=redaction)
        session = sessions.get_or_create("s")
        session.metadata |= told
        sessions.save(session)
        sessions.save(session)
    assert session.metadata["password"] == "[secret]"
    assert SessionManager(tmp_path / "plain").get_or_create("s").metadata == told
    assert SessionManager(tmp_path / "redacted").get_or_create("s").metadata == session.metadata
    assert leaks(written(tmp_path / "redacted"), told["password"]) == []


def test_a_version_from_before_is_restored_without_secrets(tmp_path):
    """What was archived as it was comes back as it may be written now."""
    MemoryStore(tmp_path).write_long_term(f"- {SECRETS['aws']}\n")
    MemoryStore(tmp_path).write_long_term("- other\n")
    store = MemoryStore(tmp_path, redaction=RULES)
    store.restore_long_term(store.versions()[0].version)
    assert store.read_long_term() == "- [secret]\n"


def test_the_tool_gives_no_secret(tmp_path):
    """The agent's own search of its past shows the marks."""
    memory = opened(tmp_path)
    memory.history("h").add_messages([HumanMessage(TOLD)])
    (tool,) = [one for one in memory.tools() if one.name == "search_memory"]
    config = {"configurable": {"thread_id": "h"}}
    for found in (
        tool.invoke({"query": "my github"}, config),
        asyncio.run(tool.ainvoke({"query": "my github"}, config)),
    ):
        assert "my github is [secret]" in found
        assert leaks(found) == []
