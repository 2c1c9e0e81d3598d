"""One object that wires everything together for one workspace."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.graph import START, StateGraph
from scripted import ScriptedChatModel, save_memory

from langchain_nanomem import (
    ConsolidationError,
    FileJournal,
    MemoryConsolidator,
    MemoryPrompt,
    MemoryState,
    MemoryStore,
    Nanomem,
    NanomemChatMessageHistory,
    NanomemSaver,
    SessionManager,
    TokenCounter,
)
from langchain_nanomem.memory_journal import MemoryJournal

pytestmark = pytest.mark.back_ends("files", "postgres")

LONG = " word" * 90
COUNTER = TokenCounter()  # one for all: it takes a while to load
FREE = {
    "max_completion_tokens": 0,
    "safety_margin_tokens": 0,
    "context_window_tokens": 1_000,
    "token_counter": COUNTER,
}


def config(thread="t", **more):
    return {"configurable": {"thread_id": thread, **more}}


def graph_of(mem, chat):
    graph = StateGraph(MemoryState)
    graph.add_node("model", mem.node(chat))
    graph.add_edge(START, "model")
    return graph.compile(checkpointer=mem.checkpointer)


def talk(graph, count, run, start=0):
    for n in range(start, start + count):
        graph.invoke({"messages": [HumanMessage(f"q{n}{LONG}")]}, run)


def remembering():
    """A model that keeps count: each consolidation adds a fact to the memory it is shown."""

    def reply(messages):
        shown = messages[-1].content.split("<current_memory>\n")[1].split("\n</current_memory>")[0]
        facts = "" if shown == "(empty)" else f"{shown}\n"
        return save_memory(f"entry {facts.count('fact')}", f"{facts}- fact {facts.count('fact')}")

    return ScriptedChatModel(replies=[reply])


# --- the parts ---


def test_it_has_every_part_on_one_workspace(workspace):
    """Each part is of its class, and all share the same sessions and memory."""
    mem = Nanomem(workspace)
    assert isinstance(mem.sessions, SessionManager)
    assert isinstance(mem.consolidator, MemoryConsolidator)
    assert isinstance(mem.memory, MemoryStore)
    assert isinstance(mem.checkpointer, NanomemSaver)
    assert isinstance(mem.prompt, MemoryPrompt)
    assert isinstance(mem.history("s"), NanomemChatMessageHistory)
    assert [tool.name for tool in mem.tools()] == ["search_memory"]
    assert mem.checkpointer is mem.checkpointer
    assert mem.checkpointer.sessions is mem.history("s").sessions is mem.sessions
    assert mem.prompt.consolidator is mem.consolidator


def test_nothing_is_written_before_the_first_use(tmp_path):
    """Making it, and reading from it, leaves no trace on the disk."""
    workspace = tmp_path / "not" / "there"
    mem = Nanomem(workspace)
    _ = mem.checkpointer, mem.prompt, mem.node(), mem.tools()
    assert mem.memory.read_long_term() == ""
    assert mem.history("s").messages == []
    assert not workspace.exists()


@pytest.mark.parametrize("form", [str, Path])
def test_a_workspace_is_a_path_or_its_text(tmp_path, form):
    """Both forms of a directory are taken."""
    mem = Nanomem(form(tmp_path))
    mem.memory.write_long_term("- x")
    mem.history("s").add_user_message("hi")
    assert (tmp_path / "memory" / "MEMORY.md").read_text() == "- x"
    assert len(list((tmp_path / "sessions").glob("*.jsonl"))) == 1


@pytest.mark.parametrize("scheme", ["mysql", "postgresql+psycopg", "file"])
def test_a_url_of_another_kind_is_an_error_that_says_what_is_taken(scheme):
    """It is never taken for a directory's name, and its password is not shown."""
    with pytest.raises(ValueError, match=r"postgresql://.*") as raised:
        Nanomem(f"{scheme}://user:secret@localhost/db")
    assert "directory" in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("address", ["host=db user=ada password=secret", "dbname = x"])
def test_an_address_in_words_is_no_directory(tmp_path, monkeypatch, address):
    """What libpq would take for an address is refused, and makes no directory of its name."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="postgresql://") as raised:
        Nanomem(address)
    assert "secret" not in str(raised.value)
    assert Nanomem(tmp_path / address).sessions.list_sessions() == []


def test_a_schema_is_for_a_database(tmp_path):
    """With a directory it is refused, and so is a journal of which no memory is known."""
    for place in (tmp_path, FileJournal(tmp_path)):
        with pytest.raises(ValueError, match="schema is for a database"):
            Nanomem(place, schema="bot")
    with pytest.raises(ValueError, match="no memory is known"):
        Nanomem(MemoryJournal())
    assert Nanomem(FileJournal(tmp_path)).memory.workspace == tmp_path


@pytest.mark.parametrize(
    "options",
    [
        {"context_window_tokens": 0},
        {"context_window_tokens": 100, "max_completion_tokens": 100},
        {"scope": "tenant"},
        {"scope": ["user"]},
        {"model": "gpt-4"},
        {"consolidation_ratio": 0},
        {"max_failures": 0},
    ],
)
def test_wrong_arguments_are_value_errors(workspace, options):
    """cases/consolidation.md 9: also a window of which nothing is left."""
    with pytest.raises(ValueError, match=r"."):
        Nanomem(workspace, **options)


def test_the_options_of_the_consolidator_pass_through(tmp_path):
    """The budget, the counter and the hook are the consolidator's."""
    told = []
    mem = Nanomem(
        tmp_path,
        model=remembering(),
        consolidation_ratio=0.25,
        on_consolidated=told.append,
        **FREE | {"token_counter": lambda messages: 100 * len(messages)},
    )
    assert (mem.consolidator.budget_tokens, mem.consolidator.target_tokens) == (1_000, 250)
    messages = [HumanMessage(str(n), id=str(n)) for n in range(10)]
    mem.prompt.invoke(messages, config())
    assert [(c.key, c.start, c.end, c.kind) for c in told] == [
        ("t", 0, 8, "model"),
        ("t", 8, 9, "model"),  # for the memory, which is now a message in the prompt
    ]


def test_each_scope_has_a_memory(tmp_path):
    """`memory` is the workspace's own, `memory_for` any scope's."""
    mem = Nanomem(tmp_path, scope="user")
    mem.memory_for(("user", "a")).write_long_term("of a")
    assert mem.memory.read_long_term() == ""
    assert mem.memory_for(("user", "a")).read_long_term() == "of a"
    assert mem.memory_for(()).memory_path == mem.memory.memory_path


def test_close_and_the_context_manager_let_go_of_nothing_that_counts(workspace):
    """All is on the disk before close, which may be called twice, and it can be used after."""
    with Nanomem(workspace) as mem:
        mem.history("s").add_user_message("hi")
    mem.close()
    assert [m.content for m in mem.history("s").messages] == ["hi"]
    assert [m.content for m in Nanomem(workspace).history("s").messages] == ["hi"]


def test_the_system_prompt_is_used_in_prompt_and_node(workspace):
    """One system prompt stands in front in both."""
    mem = Nanomem(workspace, system_prompt="You are Ada.")
    chat = ScriptedChatModel(replies=["ok"])
    graph_of(mem, chat).invoke({"messages": [HumanMessage("hi")]}, config())
    assert chat.prompts[0][0] == SystemMessage("You are Ada.")
    assert mem.prompt.invoke("hi", config("u"))[0] == SystemMessage("You are Ada.")


# --- over restarts, threads and users ---


def test_a_restart_keeps_pointer_and_memory(workspace):
    """cases/consolidation.md 12: a new Nanomem on the directory goes on where the old one was."""
    model, chat = remembering(), ScriptedChatModel(replies=["ok" + LONG])
    talk(graph_of(Nanomem(workspace, model=model, **FREE), chat), 7, config())
    calls, before = model.calls, chat.prompts[-1]
    mem = Nanomem(workspace, model=model, **FREE)
    pointer = mem.sessions.get_or_create("t").last_consolidated
    assert calls > 0
    assert pointer > 0
    talk(graph_of(mem, chat), 1, config(), start=7)
    after = chat.prompts[-1]
    assert model.calls == calls
    assert after[: len(before)] == before, "the provider's prefix cache hits across the restart"
    assert len(after) == len(before) + 2
    assert mem.sessions.get_or_create("t").last_consolidated == pointer


def test_a_new_thread_knows_the_memory(workspace):
    """A new thread of the same workspace starts with what others left in memory."""
    model, chat = remembering(), ScriptedChatModel(replies=["ok" + LONG])
    mem = Nanomem(workspace, model=model, **FREE)
    talk(graph_of(mem, chat), 6, config("one"))
    assert "- fact 0" in mem.memory.read_long_term()
    talk(graph_of(Nanomem(workspace, **FREE), chat), 1, config("two"))
    prompt = chat.prompts[-1]
    assert [m.type for m in prompt] == ["system", "human"]
    assert prompt[0].content == mem.memory.get_memory_context()


def test_two_threads_write_into_one_memory(workspace):
    """What one thread learns does not undo what another did."""
    mem = Nanomem(workspace, model=remembering(), **FREE)
    graph = graph_of(mem, ScriptedChatModel(replies=["ok" + LONG]))
    talk(graph, 6, config("one"))
    facts = mem.memory.read_long_term()
    talk(graph, 6, config("two"))
    assert mem.memory.read_long_term().startswith(facts)
    assert len(mem.memory.read_long_term()) > len(facts)
    assert {e.source.split()[0] for e in mem.memory.history_entries()} == {"one", "two"}


def test_users_do_not_see_each_others_memory(workspace):
    """cases/consolidation.md 35: by user, what one is told never reaches the other's prompt."""
    model = ScriptedChatModel(
        replies=[lambda shown: save_memory("e", f"- {shown[-1].content.split('name is ')[1][:5]}")]
    )
    chat = ScriptedChatModel(replies=["ok" + LONG])
    mem = Nanomem(workspace, model=model, scope="user", **FREE)
    graph = graph_of(mem, chat)
    for user, name in [("a", "Alice"), ("b", "Bobby")]:
        for n in range(8):
            text = f"{n} my name is {name}{LONG}"
            graph.invoke({"messages": [HumanMessage(text)]}, config(f"t-{user}", user_id=user))
    assert mem.memory_for(("user", "a")).read_long_term().strip() == "- Alice"
    assert mem.memory_for(("user", "b")).read_long_term().strip() == "- Bobby"
    assert mem.memory.read_long_term() == ""
    for user, own, other in [("a", "Alice", "Bobby"), ("b", "Bobby", "Alice")]:
        graph.invoke({"messages": [HumanMessage("hi")]}, config(f"new-{user}", user_id=user))
        shown = str(chat.prompts[-1])
        assert own in shown
        assert other not in shown


def test_a_model_that_always_fails_never_stops_a_turn(workspace):
    """cases/consolidation.md 17, 18: every turn is answered, and after three failures it is raw."""
    model = ScriptedChatModel(replies=[RuntimeError("down")])
    chat = ScriptedChatModel(replies=["ok" + LONG])
    mem = Nanomem(workspace, model=model, **FREE)
    graph = graph_of(mem, chat)
    talk(graph, 14, config())
    assert chat.calls == 14
    assert all(mem.consolidator.counter(prompt) <= 1_000 for prompt in chat.prompts)
    entries = mem.memory.history_entries()
    assert entries[0].text.startswith("[RAW]")
    pointer = mem.sessions.get_or_create("t").last_consolidated
    raw = "\n".join(entry.text for entry in entries)
    assert all(f"user: q{n} " in raw for n in range(pointer // 2))
    assert mem.memory.read_long_term() == ""


def test_without_a_model_the_first_due_one_raises(workspace):
    """With model None sessions and graph work until a consolidation is due, then it is told."""
    mem = Nanomem(workspace, **FREE)
    graph = graph_of(mem, ScriptedChatModel(replies=["ok" + LONG]))
    with pytest.raises(ConsolidationError, match="model"):
        talk(graph, 9, config())
    assert len(mem.history("t").messages) > 6


def test_threads_and_runs_at_once(workspace):
    """Many runs at once on threads of their own lose nothing and consolidate each range once."""
    mem = Nanomem(workspace, model=remembering(), **FREE)
    chat = ScriptedChatModel(replies=["ok" + LONG])
    graph = graph_of(mem, chat)
    workers = [threading.Thread(target=talk, args=(graph, 7, config(f"t{n}"))) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sources = [entry.source for entry in mem.memory.history_entries()]
    assert len(set(sources)) == len(sources) >= 4
    for n in range(4):
        said = [m.content for m in mem.history(f"t{n}").messages if m.type == "human"]
        assert said == [f"q{i}{LONG}" for i in range(7)]


async def test_async_runs_do_not_block_each_other(workspace):
    """A consolidation that waits for its model holds up no other thread's turn."""
    release = asyncio.Event()

    class Slow(ScriptedChatModel):
        async def _agenerate(self, *args, **kwargs):
            await release.wait()
            return self._generate(*args, **kwargs)

    mem = Nanomem(workspace, model=Slow(replies=[save_memory()]), **FREE)
    graph = graph_of(mem, ScriptedChatModel(replies=["ok"]))
    messages = [m for n in range(6) for m in (HumanMessage(f"q{LONG}"), AIMessage(f"a{LONG}"))]
    slow = asyncio.create_task(
        graph.ainvoke({"messages": [*messages, HumanMessage("q")]}, config("slow"))
    )
    for n in range(3):
        await graph.ainvoke({"messages": [HumanMessage("hi")]}, config(f"fast{n}"))
    assert not slow.done()
    release.set()
    await slow
    assert len(mem.memory.history_entries()) >= 1
