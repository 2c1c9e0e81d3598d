"""Chains: `RunnableWithMessageHistory`, prompt templates, and plain LCEL."""

from __future__ import annotations

import asyncio
import functools
import operator

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import ConfigurableFieldSpec
from langchain_core.runnables.history import RunnableWithMessageHistory
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from scripted import ScriptedChatModel, save_memory

from langchain_nanomem import MemoryPrompt, Nanomem, ScopeError, TokenCounter
from langchain_nanomem.memory import fence_memory
from langchain_nanomem.session import legal_view
from langchain_nanomem.window import message_shape

pytestmark = pytest.mark.back_ends("files", "postgres", colour="async")

LONG = " word" * 90
COUNTER = TokenCounter()  # one for all: it takes a while to load
FREE = {
    "max_completion_tokens": 0,
    "safety_margin_tokens": 0,
    "context_window_tokens": 1_000,
    "token_counter": COUNTER,
}
RUN = {"configurable": {"session_id": "s"}}


@pytest.fixture
def model():
    return ScriptedChatModel(
        replies=[save_memory(f"entry {n}", f"- facts of {n}") for n in range(99)]
    )


@pytest.fixture
def chat():
    return ScriptedChatModel(replies=[f"a{n}{LONG}" for n in range(99)])


@pytest.fixture
def mem(workspace, model):
    return Nanomem(workspace, model=model, **FREE)


def with_history(runnable, get_history, **options):
    """langchain-core marks the class as deprecated; programs have it all the same."""
    with pytest.warns(DeprecationWarning, match="RunnableWithMessageHistory"):
        return RunnableWithMessageHistory(runnable, get_history, **options)


@pytest.fixture(params=["invoke", "ainvoke", "stream", "astream", "batch", "abatch"])
def ask(request):
    """Runs a chain in each of the ways that a runnable has."""

    async def ask(chain, given, run=RUN):
        if request.param == "invoke":
            return chain.invoke(given, run)
        if request.param == "ainvoke":
            return await chain.ainvoke(given, run)
        if request.param == "batch":
            return chain.batch([given], [run])[0]
        if request.param == "abatch":
            return (await chain.abatch([given], [run]))[0]
        if request.param == "stream":
            parts = list(chain.stream(given, run))
        else:
            parts = [part async for part in chain.astream(given, run)]
        return functools.reduce(operator.add, parts)

    return ask


@pytest.fixture(params=["sync", "async"])
def colour(request):
    async def ask(chain, given, run=RUN):
        return (
            chain.invoke(given, run) if request.param == "sync" else await chain.ainvoke(given, run)
        )

    return ask


def content(messages):
    return [message.content for message in messages]


def said(count):
    return [text for n in range(count) for text in (f"q{n}{LONG}", f"a{n}{LONG}")]


def assert_in_order(mem, model, chat, count, key="s"):
    """All turns are in the session, each prompt fits, each range went into memory once."""
    session = mem.sessions.get_or_create(key)
    assert content(mem.history(key).messages) == said(count)
    assert all(mem.consolidator.counter(prompt) <= 1_000 for prompt in chat.prompts)
    assert [prompt[-1].content for prompt in chat.prompts] == [f"q{n}{LONG}" for n in range(count)]
    for prompt in chat.prompts:
        shapes = [message_shape(message) for message in prompt]
        assert legal_view(shapes) == list(range(len(shapes)))
    with mem.sessions.reading(key) as records:
        ranges = [(record["start"], record["end"]) for record in records.consolidations]
    assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
    assert session.last_consolidated == ranges[-1][1] > 4
    assert model.calls == len(ranges) == len(mem.memory.history_entries())
    shown = "\n".join(p[-1].content.split("<conversation>")[1] for p in model.prompts)
    texts = said(count)
    assert all(shown.count(text) == 1 for text in texts[: session.last_consolidated])
    assert not any(text in shown for text in texts[session.last_consolidated :])
    assert "no date" not in shown


# --- RunnableWithMessageHistory ---


async def test_a_long_chat_stays_in_the_window(mem, model, chat, ask):
    """cases/sessions.md 26, 26b: the log grows, the slicing stays right, the prompt stays small."""
    chain = with_history(mem.prompt | chat, mem.history)
    for n in range(12):
        answer = await ask(chain, f"q{n}{LONG}")
        assert answer.content == f"a{n}{LONG}"
    assert_in_order(mem, model, chat, 12)


@pytest.mark.parametrize("form", ["text", "message", "list"])
async def test_every_form_of_question(mem, model, chat, colour, form):
    """cases/sessions.md 26b: a text, a message, a list of one."""
    chain = with_history(mem.prompt | chat, mem.history)
    for n in range(10):
        text = f"q{n}{LONG}"
        given = {"text": text, "message": HumanMessage(text), "list": [HumanMessage(text)]}[form]
        await colour(chain, given)
    assert_in_order(mem, model, chat, 10)


async def test_the_whole_list_under_a_key(mem, model, chat, colour):
    """cases/sessions.md 26b: with input_messages_key alone, the chain gets a state of messages."""
    chain = with_history(mem.prompt | chat, mem.history, input_messages_key="messages")
    for n in range(10):
        await colour(chain, {"messages": [HumanMessage(f"q{n}{LONG}")], "topic": "x"})
    assert_in_order(mem, model, chat, 10)


def template(*front):
    return ChatPromptTemplate(
        [*front, MessagesPlaceholder("history", optional=True), ("human", "{input}")]
    )


async def test_a_template_with_a_system_message_in_front(mem, model, chat, ask):
    """cases/consolidation.md 36, cases/sessions.md 26b: the usual chain of template and model.

    The template's system message is in every prompt, with memory at its end, in no session and
    in no consolidation.
    """
    chain = with_history(
        template(("system", "You are {name}.")) | mem.prompt | chat,
        mem.history,
        input_messages_key="input",
        history_messages_key="history",
    )
    for n in range(12):
        await ask(chain, {"input": f"q{n}{LONG}", "name": "Ada"})
    assert_in_order(mem, model, chat, 12)
    assert chat.prompts[0][0].content == "You are Ada."
    with_memory = {prompt[0].content for prompt in chat.prompts[1:]} - {"You are Ada."}
    assert with_memory
    assert with_memory <= {
        f"You are Ada.\n\n{fence_memory(f'- facts of {n}')}" for n in range(model.calls)
    }
    assert all("You are Ada" not in prompt[-1].content for prompt in model.prompts)
    assert all([m.type for m in prompt].count("system") == 1 for prompt in chat.prompts)


async def test_a_template_whose_system_message_changes(mem, model, chat, colour):
    """A system message that is another one at each turn, with the time say, does no harm."""
    chain = with_history(
        template(("system", "It is {time}."), ("system", "Be kind.")) | mem.prompt | chat,
        mem.history,
        input_messages_key="input",
        history_messages_key="history",
    )
    for n in range(12):
        await colour(chain, {"input": f"q{n}{LONG}", "time": f"{n} o'clock"})
    assert_in_order(mem, model, chat, 12)
    assert [prompt[0].content for prompt in chat.prompts] == [
        f"It is {n} o'clock." for n in range(12)
    ]
    assert all(prompt[1].content.startswith("Be kind.") for prompt in chat.prompts)


async def test_a_template_with_examples_in_front(mem, model, chat, colour):
    """Examples of a template stay in every prompt, and never go into memory."""
    examples = [
        ("system", "Answer."),
        ("human", "2+2?"),
        ("ai", "4"),
        ("human", "3+3?"),
        ("ai", "6"),
    ]
    chain = with_history(
        template(*examples) | mem.prompt | chat,
        mem.history,
        input_messages_key="input",
        history_messages_key="history",
    )
    for n in range(12):
        await colour(chain, {"input": f"q{n}{LONG}"})
    assert_in_order(mem, model, chat, 12)
    assert all(content(prompt[1:5]) == ["2+2?", "4", "3+3?", "6"] for prompt in chat.prompts)
    assert all("2+2?" not in prompt[-1].content for prompt in model.prompts)


async def test_the_session_may_be_named_by_other_fields(workspace, model, chat, colour):
    """A factory with fields of its own: the session is that of the history it makes."""
    mem = Nanomem(workspace, model=model, scope="user", **FREE)
    fields = [
        ConfigurableFieldSpec(id=name, annotation=str, default="", is_shared=True)
        for name in ("user_id", "conversation_id")
    ]
    chain = with_history(
        mem.prompt | chat,
        lambda user_id, conversation_id: mem.history(f"{user_id}:{conversation_id}"),
        history_factory_config=fields,
    )
    mem.memory_for(("user", "b")).write_long_term("- secret of b")
    for n in range(8):
        run = {"configurable": {"user_id": "a", "conversation_id": "c"}}
        await colour(chain, f"q{n}{LONG}", run)
    assert content(mem.history("a:c").messages) == said(8)
    assert mem.memory_for(("user", "a")).read_long_term().startswith("- facts")
    assert "secret of b" not in str(chat.prompts)
    assert mem.sessions.get_or_create("a:c").last_consolidated > 0
    with pytest.raises(ScopeError):
        await colour(chain, "q", {"configurable": {"user_id": " ", "conversation_id": "c"}})


async def test_another_user_on_a_chains_session(workspace, model, chat, colour):
    """cases/consolidation.md 35: a ScopeError before any model call, and nothing is added."""
    mem = Nanomem(workspace, model=model, scope="user", **FREE)
    chain = with_history(mem.prompt | chat, mem.history)
    await colour(chain, "mine", {"configurable": {"session_id": "s", "user_id": "a"}})
    for more in ({"user_id": "b"}, {}):
        with pytest.raises(ScopeError):
            await colour(chain, "x", {"configurable": {"session_id": "s", **more}})
    assert chat.calls == 1
    assert content(mem.history("s").messages) == ["mine", f"a0{LONG}"]


async def test_a_failing_consolidation_does_not_stop_a_chain(mem, model, chat, colour):
    """cases/consolidation.md 17, 18: the chat goes on, then the range is raw, the log whole."""
    model.replies = [RuntimeError("down")]
    chain = with_history(mem.prompt | chat, mem.history)
    for n in range(12):
        await colour(chain, f"q{n}{LONG}")
    assert content(mem.history("s").messages) == said(12)
    assert all(mem.consolidator.counter(prompt) <= 1_000 for prompt in chat.prompts)
    raw = "\n".join(entry.text for entry in mem.memory.history_entries())
    pointer = mem.sessions.get_or_create("s").last_consolidated
    assert pointer > 0
    assert all(text in raw for text in said(12)[:pointer])


async def test_a_failing_answer_adds_nothing(mem, model, chat, colour):
    """Where the answering model fails, the log is as it was; what is in memory was in the log."""
    chain = with_history(mem.prompt | chat, mem.history)
    for n in range(5):
        await colour(chain, f"q{n}{LONG}")
    chat.replies[5] = RuntimeError("rate limit")
    question = [HumanMessage(f"one{LONG * 6}"), AIMessage("two"), HumanMessage(f"q{LONG * 6}")]
    with pytest.raises(RuntimeError, match="rate limit"):
        await colour(chain, question)
    assert content(mem.history("s").messages) == said(5)
    shown = "\n".join(prompt[-1].content for prompt in model.prompts)
    assert f"one{LONG}" not in shown
    assert 0 < mem.sessions.get_or_create("s").last_consolidated <= 10


async def test_several_messages_as_one_question(mem, model, chat, colour):
    """cases/sessions.md 26: however many messages a question has, each is added once."""
    chain = with_history(mem.prompt | chat, mem.history)
    expected = []
    for n in range(8):
        question = [
            HumanMessage(f"x{n}{LONG * 6}"),
            AIMessage(f"y{n}"),
            HumanMessage(f"z{n}{LONG * 6}"),
        ]
        answer = await colour(chain, question)
        expected += [*content(question), answer.content]
    assert content(mem.history("s").messages) == expected
    assert model.calls > 0
    assert all(mem.consolidator.counter(prompt) <= 1_000 for prompt in chat.prompts)


async def test_messages_with_ids(mem, model, chat, colour):
    """A program that names its messages gets the same: each goes in once."""
    chain = with_history(mem.prompt | chat, mem.history)
    for n in range(12):
        await colour(chain, [HumanMessage(f"q{n}{LONG}", id=f"id{n}")])
    assert_in_order(mem, model, chat, 12)


async def test_ids_now_and_then(mem, model, chat, colour):
    """Messages of which some have ids and some have none go in once too."""
    chain = with_history(mem.prompt | chat, mem.history)
    for n in range(16):
        await colour(chain, [HumanMessage(f"q{n}{LONG}", id=f"id{n}" if n < 8 else None)])
    assert_in_order(mem, model, chat, 16)


async def test_a_restart_of_a_chain(workspace, model, chat, colour):
    """cases/consolidation.md 12: a new process goes on with the log, the pointer, the memory."""
    for start in (0, 6):
        mem = Nanomem(workspace, model=model, **FREE)
        chain = with_history(mem.prompt | chat, mem.history)
        for n in range(start, start + 6):
            await colour(chain, f"q{n}{LONG}")
    assert_in_order(mem, model, chat, 12)


async def test_clearing_a_chains_history_begins_anew(mem, model, chat, colour):
    """cases/sessions.md 30: after clear the chain has the memory, and a window of new messages."""
    chain = with_history(mem.prompt | chat, mem.history)
    for n in range(8):
        await colour(chain, f"q{n}{LONG}")
    mem.history("s").clear()
    await colour(chain, "hello")
    assert [m.type for m in chat.prompts[-1]] == ["system", "human"]
    for n in range(8):
        await colour(chain, f"r{n}{LONG}")
    assert mem.sessions.get_or_create("s").last_consolidated > 2
    assert all(mem.consolidator.counter(prompt) <= 1_000 for prompt in chat.prompts)


async def test_a_graphs_thread_in_a_chain_is_read_only(mem, chat, colour):
    """A chain on a graph's thread has its messages; adding to it names update_state."""
    graph = StateGraph(MessagesState)
    graph.add_node("n", lambda _: {"messages": [AIMessage("from the graph")]})
    graph.add_edge(START, "n")
    config = {"configurable": {"thread_id": "s"}}
    graph.compile(checkpointer=mem.checkpointer).invoke({"messages": [HumanMessage("hi")]}, config)
    prompt = await colour(mem.prompt, [*mem.history("s").messages, HumanMessage("new")])
    assert content(prompt) == ["hi", "from the graph", "new"]


# --- plain LCEL ---


async def test_prompt_model_and_parser(mem, chat, ask):
    """`prompt | model | parser` works in every way that a runnable is run."""
    mem.memory.write_long_term("- fact")
    answer = await ask(mem.prompt | chat | StrOutputParser(), "hi")
    assert answer == f"a0{LONG}"
    assert chat.prompts == [[SystemMessage(fence_memory("- fact")), HumanMessage("hi")]]


async def test_a_history_kept_by_the_program(mem, model, chat, colour):
    """Without RunnableWithMessageHistory: the program adds to the history itself."""
    history = mem.history("s")
    for n in range(12):
        history.add_user_message(f"q{n}{LONG}")
        history.add_message(await colour(mem.prompt | chat, history.messages))
    assert_in_order(mem, model, chat, 12)


async def test_a_history_that_is_added_to_after_the_answer(mem, model, chat, colour):
    """The question may be added to the history only once it is answered."""
    history = mem.history("s")
    for n in range(12):
        question = HumanMessage(f"q{n}{LONG}")
        answer = await colour(mem.prompt | chat, [*history.messages, question])
        history.add_messages([question, answer])
    assert_in_order(mem, model, chat, 12)


async def test_the_newest_part_of_a_history_is_enough(mem, model, chat, colour):
    """A program that gives only the last messages of the history gets the same pointer."""
    history = mem.history("s")
    for n in range(12):
        history.add_user_message(f"q{n}{LONG}")
        history.add_message(await colour(mem.prompt | chat, history.messages[-13:]))
    assert_in_order(mem, model, chat, 12)


async def test_a_gap_between_memory_and_what_is_given(mem, model, chat, colour, caplog):
    """Messages that are neither in memory nor given are not passed over: nothing goes in."""
    history = mem.history("s")
    history.add_messages([HumanMessage(text) for text in said(15)])
    await colour(mem.prompt | chat, history.messages[-20:])
    assert model.calls == 0
    assert mem.consolidator.counter(chat.prompts[-1]) <= 1_000
    assert "are missing" in caplog.text
    await colour(mem.prompt | chat, history.messages)
    assert mem.sessions.get_or_create("s").last_consolidated > 0


async def test_many_sessions_in_one_batch(mem, model, chat):
    """A batch runs sessions of its own at once, and none gets another's messages."""
    chain = with_history(mem.prompt | ScriptedChatModel(replies=[f"ok{LONG}"]), mem.history)
    runs = [{"configurable": {"session_id": f"s{n}"}} for n in range(5)]
    for turn in range(7):
        given = [f"q{n}.{turn}{LONG}" for n in range(5)]
        answers = chain.batch(given, runs) if turn % 2 else await chain.abatch(given, runs)
        assert content(answers) == [f"ok{LONG}"] * 5
    for n in range(5):
        questions = [m.content for m in mem.history(f"s{n}").messages if m.type == "human"]
        assert questions == [f"q{n}.{turn}{LONG}" for turn in range(7)]
        assert mem.sessions.get_or_create(f"s{n}").last_consolidated > 0
    sources = [entry.source for entry in mem.memory.history_entries()]
    assert len(set(sources)) == len(sources) >= 5


async def test_tokens_are_streamed(mem):
    """The chain gives the model's chunks as they come; the prompt does not hold them up."""

    class Streaming(ScriptedChatModel):
        def _stream(self, messages, stop=None, run_manager=None, **kwargs):  # noqa: ARG002 - its base's form
            for word in ("one", " two", " three"):
                yield ChatGenerationChunk(message=AIMessageChunk(word))

    chain = with_history(mem.prompt | Streaming(replies=["x"]), mem.history)
    parts = [part.content for part in chain.stream("hi", RUN)]
    assert [part for part in parts if part] == ["one", " two", " three"]
    parts = [part.content async for part in chain.astream("again", RUN)]
    assert [part for part in parts if part] == ["one", " two", " three"]
    assert content(mem.history("s").messages) == ["hi", "one two three", "again", "one two three"]


@tool
def look(q: str) -> str:
    """Look something up."""
    return q


async def test_tool_rounds_in_a_chain(mem, model, colour):
    """cases/sessions.md 26b: a chain with tool calls in its log has legal prompts that fit."""
    calls = [{"name": "look", "args": {"q": LONG}, "id": "c"}]
    replies = [m for n in range(30) for m in (AIMessage("", tool_calls=calls), f"a{n}{LONG}")]
    chat = ScriptedChatModel(replies=replies)
    prompt = MemoryPrompt(mem.consolidator, tools=[look])
    history = mem.history("s")
    for n in range(10):
        history.add_user_message(f"q{n}")
        asked = await colour(prompt | chat, history.messages)
        result = look.invoke(asked.tool_calls[0])
        history.add_messages([asked, result])
        history.add_message(await colour(prompt | chat, history.messages))
    tools = mem.consolidator.count_tools([look])
    for sent in chat.prompts:
        shapes = [message_shape(message) for message in sent]
        assert legal_view(shapes) == list(range(len(shapes)))
        assert mem.consolidator.counter(sent) + tools <= 1_000
    assert len(history.messages) == 40
    assert model.calls == len(mem.memory.history_entries()) > 1


def test_chains_of_one_session_at_once(mem, model):
    """cases/consolidation.md 11: whatever chains meet on a session, no range goes in twice."""
    chain = with_history(mem.prompt | ScriptedChatModel(replies=[f"ok{LONG}"]), mem.history)

    async def talk(worker):
        for n in range(5):
            await chain.ainvoke(f"w{worker}.{n}{LONG}", RUN)

    async def all_of_them():
        await asyncio.gather(*(talk(n) for n in range(3)))

    asyncio.run(all_of_them())
    with mem.sessions.reading("s") as records:
        ranges = [(record["start"], record["end"]) for record in records.consolidations]
    assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
    assert len(mem.memory.history_entries()) == len(ranges)
    assert mem.sessions.get_or_create("s").last_consolidated == ranges[-1][1]
