"""What prompts show of earlier conversations, and of tagged facts."""

from __future__ import annotations

import logging

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from scripted import FREE, ScriptedChatModel, save_memory

from langchain_nanomem import MemoryStore, Nanomem
from langchain_nanomem.memory_lines import shown_with

CONFIG = {"configurable": {"thread_id": "now"}}
PIANO = "My piano teacher is called Mrs. Kowalski."


def opened(path, **options):
    model = ScriptedChatModel(replies=[save_memory()])
    settings = {"context_window_tokens": 2_000, "recall_tokens": 200, **FREE, **options}
    memory = Nanomem(path, model=model, system_prompt="You are A.", **settings)
    memory.history("before").add_messages([HumanMessage(PIANO), AIMessage("Noted.")])
    return memory


async def prompt_of(memory, call, *said):
    return await call(memory.prompt, "invoke", {"messages": [*said]}, CONFIG)


async def test_what_was_said_earlier_stands_before_the_question(tmp_path, call):
    """Fenced, dated, with its session; the question is last, and the system prompt as it was."""
    memory = opened(tmp_path)
    asked = HumanMessage("Who is my piano teacher?")
    system, recalled, question = await prompt_of(memory, call, asked)
    assert question.content == asked.content
    assert system.content == "You are A."
    assert recalled.content.startswith("<recalled>\nNo message of the user")
    assert f"user: {PIANO} (session before)" in recalled.content


async def test_what_is_in_the_prompt_is_not_recalled(tmp_path, call):
    """Of the conversation itself nothing is shown twice."""
    memory = opened(tmp_path)
    memory.sessions.delete("before")
    said = [HumanMessage(PIANO, id="1"), AIMessage("Noted.", id="2")]
    prompt = await prompt_of(memory, call, *said, HumanMessage("Who is my piano teacher?"))
    assert [message.type for message in prompt] == ["system", "human", "ai", "human"]


@pytest.mark.parametrize("options", [{"recall_tokens": 0}, {"context_window_tokens": 60}])
async def test_nothing_is_recalled_without_room(tmp_path, call, options):
    """Where it is off, or would push something out of the prompt."""
    memory = opened(tmp_path, **options)
    prompt = await prompt_of(memory, call, HumanMessage("Who is my piano teacher?"))
    assert [message.type for message in prompt] == ["system", "human"]


async def test_nothing_of_another_user_is_recalled(tmp_path, call):
    """The scope of the session is what is searched."""
    memory = opened(tmp_path, scope="user")
    for user in ("ada", "bob"):
        memory.sessions.bind_scope(f"of {user}", ("user", user))
        memory.history(f"of {user}").add_messages([HumanMessage(f"{user} plays the piano")])
    config = {"configurable": {"thread_id": "now", "user_id": "bob"}}
    prompt = await call(memory.prompt, "invoke", "Who plays the piano?", config)
    assert "bob plays the piano" in prompt[1].content
    assert "ada" not in prompt[1].content


async def test_a_search_that_fails_costs_no_turn(tmp_path, call, caplog):
    """A damaged log: one warning, and the prompt without it."""
    memory = opened(tmp_path)
    memory.memory.append_history("The piano.")
    memory.memory.history_path.write_bytes(b"\xff\xfe")
    with caplog.at_level(logging.WARNING):
        prompt = await prompt_of(memory, call, HumanMessage("Who is my piano teacher?"))
    assert [message.type for message in prompt] == ["system", "human"]
    assert "nothing is recalled" in caplog.text


# --- tags ---

TAGGED = (
    "# User\n- Ada\n- likes tea #preference\n# Work #project\n- a bridge\n# Rest\n- swims #health"
)


@pytest.mark.parametrize(
    ("tags", "shown"),
    [
        (None, TAGGED),
        (["project", "preference", "health"], TAGGED),
        (["#Project"], "# User\n- Ada\n# Work #project\n- a bridge"),
        (["health"], "# User\n- Ada\n# Rest\n- swims #health"),
        ([], "# User\n- Ada"),
    ],
)
def test_tags_select_what_is_shown(tmp_path, tags, shown):
    """Lines with one of the tags, or under such a heading, and those without any."""
    assert shown_with(TAGGED, tags) == shown
    store = MemoryStore(tmp_path)
    store.write_long_term(TAGGED)
    assert shown in store.get_memory_context(tags)


async def test_a_prompt_shows_the_chosen_facts(tmp_path, call):
    """`memory_tags` of the memory; the file has all of them."""
    memory = opened(tmp_path, memory_tags=["project"])
    memory.memory.write_long_term(TAGGED)
    system, *_ = await prompt_of(memory, call, HumanMessage("Hi"))
    assert "a bridge" in system.content
    assert "tea" not in system.content
    assert "swims" not in system.content


async def test_the_consolidating_model_is_told_to_keep_tags(tmp_path):
    """If there are any; it is shown the whole memory."""
    memory = opened(tmp_path, memory_tags=[])
    memory.memory.write_long_term(TAGGED)
    session = memory.sessions.get_or_create("s")
    for text in ("one", "two", "three"):
        session.add_message("user", text)
    memory.consolidator.compact(session)
    asked = memory.consolidator.model.prompts[0][1].content
    assert TAGGED in asked
    assert "Keep the #tags of facts." in asked
