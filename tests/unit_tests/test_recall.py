"""What prompts show of earlier conversations, and of tagged facts."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from scripted import FREE, ScriptedChatModel, save_memory

from langchain_nanomem import MemoryStore, Nanomem
from langchain_nanomem.memory_lines import shown_with
from langchain_nanomem.search_query import tags_in

pytestmark = pytest.mark.back_ends("files", "postgres")

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


async def test_what_was_said_earlier_stands_before_the_question(workspace, call):
    """Fenced, dated, with its session; the question is last, and the system prompt as it was."""
    memory = opened(workspace)
    asked = HumanMessage("Who is my piano teacher?")
    system, recalled, question = await prompt_of(memory, call, asked)
    assert question.content == asked.content
    assert system.content == "You are A."
    assert recalled.content.startswith("<recalled>\nNo message of the user")
    assert f"user: {PIANO} (session before)" in recalled.content


async def test_what_is_in_the_prompt_is_not_recalled(workspace, call):
    """Of the conversation itself nothing is shown twice."""
    memory = opened(workspace)
    memory.sessions.delete("before")
    said = [HumanMessage(PIANO, id="1"), AIMessage("Noted.", id="2")]
    prompt = await prompt_of(memory, call, *said, HumanMessage("Who is my piano teacher?"))
    assert [message.type for message in prompt] == ["system", "human", "ai", "human"]


@pytest.mark.parametrize("options", [{"recall_tokens": 0}, {"context_window_tokens": 60}])
async def test_nothing_is_recalled_without_room(workspace, call, options):
    """Where it is off, or would push something out of the prompt."""
    memory = opened(workspace, **options)
    prompt = await prompt_of(memory, call, HumanMessage("Who is my piano teacher?"))
    assert [message.type for message in prompt] == ["system", "human"]


async def test_nothing_of_another_user_is_recalled(workspace, call):
    """The scope of the session is what is searched."""
    memory = opened(workspace, scope="user")
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
def test_tags_select_what_is_shown(workspace, tags, shown):
    """Lines with one of the tags, or under such a heading, and those without any."""
    assert shown_with(TAGGED, tags) == shown
    store = MemoryStore(workspace)
    store.write_long_term(TAGGED)
    assert shown in store.get_memory_context(tags)


NESTED = """\
# Work #project
## Bridge
- steel

### Cable #health
- heavy
## Empty
# Rest
## Health #health
- swims
  - daily
- Ada #family
  - her job #project
## Nothing here

```css
# Work
a { color: #project }
```"""


@pytest.mark.parametrize(
    ("tags", "hidden"),
    [
        (["project", "health", "family"], []),
        (["project"], [9, 10]),
        (["health"], [2, 6]),
        (["family"], [0, 1, 2, 4, 5, 6, 9, 10]),
        ([], [0, 1, 2, 4, 5, 6, *range(8, 13)]),
    ],
)
def test_the_tags_of_a_heading_hold_for_all_below_it(tags, hidden):
    """Through headings and lists of any depth; what a shown line stands under is shown."""
    lines = NESTED.split("\n")
    shown = [line for place, line in enumerate(lines) if place not in hidden]
    assert shown_with(NESTED, tags) == "\n".join(shown)


@given(
    st.lists(
        st.sampled_from(
            [
                "# A",
                "## B #x",
                "### C",
                "# D #y",
                "- a",
                "- b #x",
                "  - c",
                "    - d #y",
                "",
                "e #x",
            ]
        )
    ),
    st.sets(st.sampled_from("xyz")),
)
def test_what_has_no_tags_above_it_is_always_shown(lines, tags):
    """Of any memory: nothing is put in another order, and all tags show all lines."""
    text = "\n".join(lines)
    shown = shown_with(text, tags).split("\n")
    left = iter(lines)
    assert all(line in left for line in shown if lines and line)
    assert shown_with(text, {"x", "y"}).split() == text.split()
    assert shown_with("\n".join(shown), tags) == "\n".join(shown)
    if "#" not in text:
        assert "\n".join(shown) == text


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        (
            "likes tea #home, (#Work) and #a/b: #überall #家",
            {"home", "work", "a/b", "überall", "家"},
        ),
        ("the colours #ff0000, #FFF, #c0ffee, #a1b2c3d4 and #fafafa", set()),
        ("#ada adds a #facade to the #cafe for #b2c4d", {"ada", "facade", "cafe", "b2c4d"}),
        ("see https://x.org/a#b, https://x.org/#c or /docs/#d and ?q=#e", set()),
        ("https://en.wikipedia.org/wiki/Tea_(meal)#History and x.org/a/#f", set()),
        ("(https://x.org/a/#b)#home <https://x.org/!#b> #work", {"home", "work"}),
        ("[it](https://x.org/~#b) #home https://x.org/看 #家", {"home", "家"}),
        ("a C# heading # one &#xe9; ##two a#three", set()),
    ],
)
def test_what_a_tag_is(workspace, text, tags):
    """Colours and parts of URLs are none, neither in a memory nor in a search."""
    assert tags_in(text) == tags
    assert shown_with(f"- {text}", []) == ("" if tags else f"- {text}")
    store = MemoryStore(workspace)
    store.append_history(f"piano {text}")
    for tag in ("home", "b", "ff0000"):
        assert bool(store.search_history("piano", tags=[tag])) == (tag in tags)


async def test_a_prompt_shows_the_chosen_facts(workspace, call):
    """`memory_tags` of the memory; the file has all of them."""
    memory = opened(workspace, memory_tags=["project"])
    memory.memory.write_long_term(TAGGED)
    system, *_ = await prompt_of(memory, call, HumanMessage("Hi"))
    assert "a bridge" in system.content
    assert "tea" not in system.content
    assert "swims" not in system.content


async def test_the_consolidating_model_is_told_to_keep_tags(workspace):
    """If there are any; it is shown the whole memory."""
    memory = opened(workspace, memory_tags=[])
    memory.memory.write_long_term(TAGGED)
    session = memory.sessions.get_or_create("s")
    for text in ("one", "two", "three"):
        session.add_message("user", text)
    memory.consolidator.compact(session)
    asked = memory.consolidator.model.prompts[0][1].content
    assert TAGGED in asked
    assert "Keep the #tags of facts." in asked
