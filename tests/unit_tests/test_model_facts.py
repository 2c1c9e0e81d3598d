"""What LangChain knows of a model, and what of its window is left for a prompt."""

from __future__ import annotations

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from scripted import ScriptedChatModel, save_memory

from langchain_nanomem import MemoryConsolidator, MemoryStore, Nanomem, SessionManager
from langchain_nanomem.model_facts import WindowOptions, bound_tools, max_input_tokens

TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}


def known(tokens):
    return ScriptedChatModel(replies=["a"], profile={"max_input_tokens": tokens})


UNKNOWN = ScriptedChatModel(replies=["a"])


def made(path, model=None, **options):
    return MemoryConsolidator(SessionManager(path), MemoryStore(path), model, **options)


def test_a_models_input_is_found_however_it_is_wrapped():
    """Through bound tools, fallbacks, and what stands behind it."""
    model = known(9_000)
    assert max_input_tokens(model) == 9_000
    assert max_input_tokens(model.bind(stop=["x"])) == 9_000
    assert max_input_tokens(model.with_fallbacks([UNKNOWN])) == 9_000
    assert max_input_tokens(model.bind_tools([TOOL]) | RunnableLambda(str)) == 9_000


@pytest.mark.parametrize("model", [UNKNOWN, "extractive", None, RunnableLambda(str), known(0)])
def test_of_others_nothing_is_known(model):
    """No profile, none that says so, or no model."""
    assert max_input_tokens(model) is None


def test_bound_tools_are_found():
    """Behind fallbacks and before a parser too."""
    bound = known(1).bind(tools=[TOOL])
    for model in (bound, bound.with_fallbacks([UNKNOWN]), bound | RunnableLambda(str)):
        assert bound_tools(model) == [TOOL]
    assert bound_tools(UNKNOWN) == ()


def test_a_real_profile_is_used(tmp_path):
    """ChatOpenAI knows its models: the input alone counts, and no answer is taken off again."""
    model = ChatOpenAI(model="gpt-4o", api_key="sk-none")
    expected = model.profile["max_input_tokens"] - 1_024
    assert made(tmp_path, model).budget_tokens == expected


def test_a_window_that_is_given_wins(tmp_path):
    """What the program says is what counts."""
    given = made(tmp_path, known(9_000), context_window_tokens=4_000, safety_margin_tokens=0)
    assert given.budget_tokens == 3_000
    assert given.for_model(known(500_000)) is given


def test_nothing_known_nothing_said(tmp_path):
    """Then it is 65,536."""
    assert made(tmp_path).budget_tokens == 65_536 - 4_096 - 1_024
    assert made(tmp_path, UNKNOWN).budget_tokens == made(tmp_path, "extractive").budget_tokens


def test_the_model_that_converses_decides(tmp_path):
    """Its window is the prompt's, whatever the consolidating model takes; the rest is shared."""
    consolidator = made(tmp_path, known(200_000), safety_margin_tokens=0)
    other = consolidator.for_model(known(8_000).bind(stop=["x"]))
    assert (consolidator.budget_tokens, other.budget_tokens) == (200_000, 8_000)
    assert (other.sessions, other.model) == (consolidator.sessions, consolidator.model)
    assert consolidator.for_model(UNKNOWN) is consolidator
    assert consolidator.for_model(known(8_000)) is other


def test_node_and_chain_take_their_models_window(tmp_path):
    """Also the prompt around a wrapped chain, with its tools counted."""
    memory = Nanomem(tmp_path, safety_margin_tokens=0)
    model = known(8_000).bind_tools([TOOL])
    chain = memory.wrap(model)
    assert chain.prompt.consolidator.budget_tokens == 8_000
    assert chain.prompt.tools == [TOOL]
    assert memory.prompt.consolidator.budget_tokens == 65_536 - 4_096


@pytest.mark.parametrize(
    "options",
    [(100, 100, 0), (100, 0, 100), (100, -1, 0), (100, 0, -1), (0, None, None), (-5, None, None)],
)
def test_a_window_of_which_nothing_is_left_is_refused(options):
    """cases/consolidation.md 9: at construction."""
    with pytest.raises(ValueError, match="nothing is left for a prompt"):
        WindowOptions(*options).budget()


@pytest.mark.parametrize("how", ["profile", "option"])
def test_the_consolidating_models_own_window_is_respected(make, run, how):
    """A small model is shown no more than it takes, in several rounds; a large one all at once."""
    small, large = 1_500, 50_000
    for tokens, least in ((small, 3), (large, 1)):
        model = ScriptedChatModel(replies=[save_memory()])
        options = {"consolidation_window_tokens": tokens}
        if how == "profile":
            model, options = model.model_copy(update={"profile": {"max_input_tokens": tokens}}), {}
        consolidator = make(window=4_000, token_counter=None, model=model, **options)
        session = consolidator.sessions.get_or_create(f"{how}:{tokens}")
        for number in range(40):
            session.add_message("user", f"m{number} " + "word " * 60)
            session.add_message("assistant", f"r{number} " + "word " * 60)
        session.add_message("user", "and now?")
        done = run(consolidator, session)
        counted = [consolidator.counter(prompt) for prompt in model.prompts]
        assert max(counted) <= tokens
        assert len(done) >= least
        assert (len(done) == 1) is (tokens == large)
