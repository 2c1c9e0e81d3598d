"""How large a prompt is said to be, and long tool results in it."""

from __future__ import annotations

import threading

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from scripted import COUNTER, FREE, ScriptedChatModel, save_memory

from langchain_nanomem import MemoryState, Nanomem
from langchain_nanomem.fitting import shorten_results

pytestmark = pytest.mark.back_ends("files", "postgres", colour="async")

WORDS = " ".join(f"w{number}" for number in range(3_000))
BIG = f"begin {WORDS} end"


def answer(text, input_tokens, **fields):
    usage = {"input_tokens": input_tokens, "output_tokens": 9, "total_tokens": input_tokens + 9}
    return AIMessage(text, usage_metadata=usage, **fields)


def said(consolidator, *messages, key="s"):
    consolidator.sessions.append_messages(key, list(messages))
    return consolidator.sessions.get_or_create(key)


# --- what the provider told ---


def test_what_the_provider_told_is_the_least(make, run):
    """cases/consolidation.md 39: its count of the last prompt, and what came since."""
    consolidator = make(window=10_000)
    session = said(consolidator, HumanMessage("q0"), answer("a0", 9_000, id="a0"))
    assert consolidator.estimate_prompt_tokens(session) == 9_100
    said(consolidator, HumanMessage("q1"))
    assert consolidator.estimate_prompt_tokens(session) == 9_200
    assert run(consolidator, session) == []
    said(consolidator, answer("a1", 9_850, id="a1"), HumanMessage("q2"))
    (told,) = run(consolidator, session)
    assert told.tokens_before == 10_050


def test_a_lower_count_changes_nothing(make):
    """It is a floor."""
    consolidator = make(window=10_000)
    session = said(consolidator, HumanMessage("q0"), answer("a0", 7, id="a0"))
    assert consolidator.estimate_prompt_tokens(session) == 200


def test_after_a_consolidation_it_says_nothing_more(make, run):
    """The prompt that it was of is no more; also where another process reads the session."""
    consolidator = make(window=10_000)
    session = said(
        consolidator,
        HumanMessage("q0"),
        answer("a0", 50, id="a0"),
        HumanMessage("q1"),
        answer("a1", 20_000, id="a1"),
        HumanMessage("q2"),
    )
    assert consolidator.estimate_prompt_tokens(session) == 20_200
    assert len(run(consolidator, session)) == 1
    for one in (consolidator, make(window=10_000)):
        again = one.sessions.get_or_create("s")
        assert one.estimate_prompt_tokens(again) == 100
        assert run(one, again) == []
    said(consolidator, answer("a2", 4_000, id="a2"))
    assert consolidator.estimate_prompt_tokens(session) == 4_100


def test_an_answer_that_stays_says_nothing_more_either(make, run):
    """It is live still, but the prompt that it answered was longer."""
    consolidator = make(window=1_000, consolidation_ratio=0.9)
    session = said(consolidator, *(HumanMessage("q"), AIMessage("a")) * 2)
    said(consolidator, HumanMessage("q2"), answer("a2", 1_100, id="a2"), HumanMessage("q3"))
    assert consolidator.estimate_prompt_tokens(session) == 1_300
    (told,) = run(consolidator, session)
    assert (told.end, told.tokens_after) == (4, 300)


def test_what_was_sent_meanwhile_says_nothing(make):
    """An answer to a prompt from before a consolidation may come after it."""
    told = threading.Event(), threading.Event()

    def think(_messages):
        told[0].set()
        assert told[1].wait(60)
        return save_memory()

    consolidator = make(think, deferred=True)
    session = said(consolidator, HumanMessage("q0"), AIMessage("a0", id="a0"), HumanMessage("q1"))
    assert consolidator.defer(session)
    assert told[0].wait(60)
    consolidator.note_sent("s")
    told[1].set()
    assert consolidator.close(60)
    said(consolidator, answer("a1", 9_999, id="a1"))
    assert consolidator.estimate_prompt_tokens(session) == 200
    consolidator.note_sent("s")
    said(consolidator, HumanMessage("q2"), answer("a2", 9_999, id="a2"))
    assert consolidator.estimate_prompt_tokens(session) == 10_099


def test_an_answer_without_an_id_tells_nothing(make):
    """Nobody can say whether it came before or after a consolidation."""
    consolidator = make(window=10_000)
    session = said(consolidator, HumanMessage("q0"), answer("a0", 9_000))
    assert consolidator.estimate_prompt_tokens(session) == 200


@pytest.mark.parametrize("saver", [NotImplemented, InMemorySaver, None])
async def test_it_counts_in_a_graph(workspace, saver, call, model):
    """A turn whose prompt the provider says is too large is consolidated before the next one."""
    chat = ScriptedChatModel(replies=[answer("a0", 500), answer("a1", 5_000), answer("a2", 600)])
    memory = Nanomem(workspace, model=model, context_window_tokens=4_000, **FREE)
    graph = StateGraph(MemoryState)
    graph.add_node("chat", memory.node(chat))
    graph.add_edge(START, "chat")
    used = memory.checkpointer if saver is NotImplemented else saver and saver()
    compiled = graph.compile(checkpointer=used)
    config = {"configurable": {"thread_id": "t"}}
    calls, messages = [], []
    for number in range(4):
        new = [HumanMessage(f"q{number}")]
        given = new if used else [*messages, *new]
        state = await call(compiled, "invoke", {"messages": given}, config)
        messages = state["messages"]
        calls.append(model.calls)
    assert calls == [0, 0, 1, 1]


# --- long tool results ---


def round_of(number, text, answer_text="seen"):
    calls = [{"name": "read", "args": {}, "id": f"c{number}"}]
    return [
        HumanMessage(f"q{number}"),
        AIMessage("", tool_calls=calls),
        ToolMessage(text, tool_call_id=f"c{number}", id=f"t{number}"),
        AIMessage(answer_text),
    ]


def test_long_results_are_shown_by_head_and_tail():
    """With a mark that says how to get the rest, within the limit; the message stays."""
    messages = round_of(0, BIG)
    shown = shorten_results(messages, 200, COUNTER.count_text)
    short = shown[2].content
    assert COUNTER.count_text(short) <= 200
    assert short.startswith("begin w0 ")
    assert short.endswith(" end")
    assert "characters left out here; the session has them: search for words of them" in short
    assert messages[2].content == BIG
    assert [shown[i] is messages[i] for i in (0, 1, 3)] == [True] * 3
    assert shown[2].tool_call_id == "c0"


def test_what_no_model_has_answered_is_whole():
    """The model sees each result whole once, all of a parallel round too."""
    calls = [{"name": "read", "args": {}, "id": name} for name in "ab"]
    messages = [
        *round_of(0, BIG),
        HumanMessage("q"),
        AIMessage("", tool_calls=calls),
        ToolMessage(BIG, tool_call_id="a"),
        ToolMessage(BIG, tool_call_id="b"),
    ]
    shown = shorten_results(messages, 200, COUNTER.count_text)
    assert [message.content == BIG for message in shown if message.type == "tool"] == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("content", "is_short"),
    [
        ("short", False),
        ([{"type": "text", "text": BIG}], True),
        ([BIG], True),
        ([{"type": "text", "text": BIG}, {"type": "image", "base64": "aGk="}], False),
    ],
)
def test_only_long_words_are_shortened(content, is_short):
    """What holds a picture stays as it is, and so does what is short."""
    messages = round_of(0, content)
    shown = shorten_results(messages, 200, COUNTER.count_text)
    assert (shown[2].content != content) is is_short


def test_user_and_assistant_are_never_shortened():
    """The rule is for the results of tools."""
    messages = [HumanMessage(BIG), AIMessage(BIG), SystemMessage(BIG), HumanMessage("q")]
    assert shorten_results(messages, 200, COUNTER.count_text) == messages


def test_it_is_chosen_by_an_option(make):
    """The prompt has it short, the same in each turn; the session and its file have it whole."""
    options = {"window": 60_000, "token_counter": COUNTER, "max_tool_result_tokens": 300}
    consolidator = make(save_memory(), **options)
    session = said(consolidator, *round_of(0, BIG))
    short = consolidator.estimate_prompt_tokens(session)
    assert short < 500
    assert session.messages[2]["content"] == BIG
    said(consolidator, HumanMessage("q1"))
    end, removed = consolidator.pick_consolidation_boundary(session, 10)
    assert (end, removed < 500) == (4, True)
    whole = make(window=60_000, token_counter=COUNTER)
    assert whole.estimate_prompt_tokens(session) > 5_000


def test_a_chain_and_a_graph_show_it_short(workspace, model):
    """In what the model is sent; the state has it whole."""
    memory = Nanomem(
        workspace, model=model, context_window_tokens=60_000, max_tool_result_tokens=300, **FREE
    )
    chat = ScriptedChatModel(replies=["ok"])
    graph = StateGraph(MemoryState)
    graph.add_node("chat", memory.node(chat))
    graph.add_edge(START, "chat")
    compiled = graph.compile(checkpointer=memory.checkpointer)
    config = {"configurable": {"thread_id": "t"}}
    state = compiled.invoke({"messages": [*round_of(0, BIG), HumanMessage("q1")]}, config)
    assert "left out here" in chat.prompts[0][2].content
    assert state["messages"][2].content == BIG
    memory.sessions.append_messages("chain", round_of(0, BIG))
    memory.wrap(chat).invoke("q1", {"configurable": {"session_id": "chain"}})
    assert "left out here" in chat.prompts[1][2].content


def test_too_small_a_limit_is_refused(make):
    """There must be room for head, tail and mark."""
    with pytest.raises(ValueError, match="max_tool_result_tokens must be at least 100, not 99"):
        make(max_tool_result_tokens=99)
