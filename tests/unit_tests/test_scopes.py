"""Whose memory a run uses, and in which session it is."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.graph import START, MessagesState, StateGraph

from langchain_nanomem.errors import ScopeError
from langchain_nanomem.memory import MemoryStore
from langchain_nanomem.scopes import check_scope_rule, resolve_scope, session_key


def config(**configurable):
    return {"configurable": configurable}


class Context(TypedDict, total=False):
    user_id: str | None


@dataclass
class ContextObject:
    user_id: str | None = None


def in_graph(rule, context_schema, context, **configurable):
    """The scope that `rule` gives inside a node of a graph with a runtime context."""
    found = []
    graph = StateGraph(MessagesState, context_schema=context_schema)
    graph.add_node("n", lambda _state, config: found.append(resolve_scope(rule, config)))
    graph.add_edge(START, "n")
    graph.compile().invoke({"messages": []}, config(**configurable), context=context)
    return found[0]


# --- the rule ---


@pytest.mark.parametrize("rule", ["workspace", "user", None, lambda _config: ("x",)])
def test_the_four_forms_of_a_rule_are_taken(rule):
    """A scope rule is "workspace", "user", None or a function."""
    check_scope_rule(rule)


@pytest.mark.parametrize("rule", ["User", "", "tenant", 7, True, ("user", "42"), ["user"], {}])
def test_what_is_no_rule_is_refused(rule):
    """Anything else, also what has no hash, is a ValueError that names the choices."""
    with pytest.raises(ValueError, match='"workspace", "user" or a function'):
        check_scope_rule(rule)


# --- the scope ---


def test_the_workspace_has_one_memory_for_all_whoever_asks():
    """With "workspace" the scope is (), whatever user_id is there."""
    assert resolve_scope("workspace", config()) == ()
    assert resolve_scope("workspace", config(user_id="a")) == ()
    assert resolve_scope("workspace", config(user_id=" ")) == ()


def test_each_user_has_a_scope_of_his_own():
    """With "user" the scope is the user's, and numbers are taken as their text."""
    assert resolve_scope("user", config(user_id="a")) == ("user", "a")
    assert resolve_scope("user", config(user_id="A")) == ("user", "A")
    assert resolve_scope("user", config(user_id=42)) == ("user", "42")
    assert resolve_scope("user", config(user_id=0)) == ("user", "0")


@pytest.mark.parametrize(
    "given_config", [{}, config(), config(user_id=None), config(thread_id="t")]
)
def test_a_user_scope_without_user_is_an_error(given_config):
    """cases/consolidation.md 35: a missing user_id in per-user scope is a ScopeError."""
    with pytest.raises(ScopeError, match="user_id"):
        resolve_scope("user", given_config)


@pytest.mark.parametrize("user_id", ["", " ", "\t\n"])
@pytest.mark.parametrize("rule", ["user", None])
def test_a_blank_user_is_an_error(rule, user_id):
    """A blank user_id is never taken for a user, nor for none."""
    with pytest.raises(ScopeError, match="blank"):
        resolve_scope(rule, config(user_id=user_id))


def test_a_user_where_no_scope_was_chosen_is_an_error():
    """cases/consolidation.md 35: a user_id where no scope was chosen names both choices."""
    with pytest.raises(ScopeError, match=r'(?s)scope="user".*scope="workspace"'):
        resolve_scope(None, config(user_id="a"))
    assert resolve_scope(None, config()) == ()
    assert resolve_scope(None, config(thread_id="t", user="a")) == ()


def test_a_function_gives_the_scope():
    """A function of the config gives any tuple or list of names; () is the workspace's own."""
    assert resolve_scope(lambda c: ("team", c["configurable"]["team"]), config(team="x")) == (
        "team",
        "x",
    )
    assert resolve_scope(lambda _: ["a", "b"], config(user_id="7")) == ("a", "b")
    assert resolve_scope(lambda _: (), config()) == ()


@pytest.mark.parametrize(
    "scope", ["user", b"user", None, 7, ("a", ""), ("a", None), ("a", 7), {"a"}, {"a": 1}]
)
def test_a_function_that_gives_no_names_is_an_error(scope):
    """What is no tuple of names is a ScopeError, never the workspace's memory."""
    with pytest.raises(ScopeError, match="tuple of names"):
        resolve_scope(lambda _: scope, config())


def test_a_generator_is_no_scope():
    """A generator, which is empty once it was checked, never becomes the workspace's scope."""
    with pytest.raises(ScopeError):
        resolve_scope(lambda _: (part for part in ["user", "a"]), config())


def test_an_error_in_the_function_comes_through():
    """What the function itself raises is not hidden."""
    with pytest.raises(KeyError, match="team"):
        resolve_scope(lambda c: (c["configurable"]["team"],), config())


# --- the runtime's context ---


@pytest.mark.parametrize(
    ("schema", "context"),
    [(Context, {"user_id": "ctx"}), (ContextObject, ContextObject("ctx"))],
)
def test_the_context_says_who_the_user_is(schema, context):
    """cases/consolidation.md 35: the user_id of the runtime's context comes first."""
    assert in_graph("user", schema, context) == ("user", "ctx")
    assert in_graph("user", schema, context, user_id="other") == ("user", "ctx")


@pytest.mark.parametrize(("schema", "context"), [(Context, {}), (ContextObject, ContextObject())])
def test_without_a_user_in_the_context_the_config_says_it(schema, context):
    """A context without a user_id leaves it to the configurable."""
    assert in_graph("user", schema, context, user_id="cfg") == ("user", "cfg")
    with pytest.raises(ScopeError):
        in_graph("user", schema, context)


def test_a_user_in_the_context_needs_a_scope_too():
    """cases/consolidation.md 35: a user_id in the context alone also asks for a choice."""
    with pytest.raises(ScopeError, match="no scope was chosen"):
        in_graph(None, Context, {"user_id": "a"})


def test_a_graph_without_context_is_no_obstacle():
    """A graph without any context uses what its config says."""
    assert in_graph("user", None, None, user_id="a") == ("user", "a")
    assert in_graph(None, None, None) == ()


# --- distinct users ---


@given(st.lists(st.text(min_size=1).filter(str.strip), min_size=2, max_size=5, unique=True))
def test_distinct_users_never_share_a_file(tmp_path_factory, users):
    """cases/consolidation.md 35: distinct user ids have distinct memory files."""
    users = [u for u in users if u.isprintable()]
    stores = [MemoryStore("w", resolve_scope("user", config(user_id=user))) for user in users]
    paths = {str(store.memory_path).casefold() for store in stores}
    assert len(paths) == len(users)
    assert MemoryStore("w").memory_path not in {store.memory_path for store in stores}


# --- the session ---


def test_the_session_is_the_thread():
    """The thread_id names the session, else the session_id; numbers as their text."""
    assert session_key(config(thread_id="t", session_id="s")) == "t"
    assert session_key(config(session_id="s")) == "s"
    assert session_key(config(thread_id=None, session_id="s")) == "s"
    assert session_key(config(thread_id=7)) == session_key(config(thread_id="7")) == "7"
    assert session_key(config(thread_id=0)) == "0"


def test_in_a_chain_with_history_the_session_is_the_historys():
    """A RunnableWithMessageHistory may name its session by any field: the history knows it."""
    history = SimpleNamespace(session_id="of-history")
    assert session_key(config(message_history=history, conversation_id="c")) == "of-history"
    assert session_key(config(message_history=history, thread_id="t")) == "of-history"
    assert session_key(config(message_history=object(), session_id="s")) == "s"


@pytest.mark.parametrize(
    "given_config", [{}, {"configurable": None}, config(), config(user_id="u")]
)
def test_a_config_without_session_is_an_error(given_config):
    """Without a session the error names what to pass."""
    with pytest.raises(ValueError, match="thread_id"):
        session_key(given_config)
