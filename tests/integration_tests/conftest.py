"""What the examples of README and documentation need around them."""

from __future__ import annotations

import uuid
from collections import defaultdict
from urllib.parse import urlsplit

import examples
import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from openai_server import OpenAIServer


@pytest.fixture
def openai_answers(monkeypatch, tmp_path):
    """A provider on the loopback for all models; an empty working directory."""
    with OpenAIServer(defaultdict(lambda: [examples.answer])) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
        monkeypatch.chdir(tmp_path)
        yield server


@pytest.fixture
def another_checkpointer(tmp_path):
    """A file of LangGraph's own checkpointer, with a conversation in it."""
    answer = {"messages": [("ai", "Hello, Ada.")]}
    graph = StateGraph(MessagesState).add_node("chat", lambda _: answer).add_edge(START, "chat")
    with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.sqlite")) as saver:
        graph.compile(checkpointer=saver).invoke(
            {"messages": [("user", "I'm Ada.")]}, {"configurable": {"thread_id": "cli:ada"}}
        )


@pytest.fixture
def make_database(request, monkeypatch):
    """Makes an empty database, and puts its URL where a program finds it.

    Another URL is that of a role `agent`, which the example has to make.
    """
    made = []

    def make() -> str:
        databases, name = request.getfixturevalue("databases"), f"example_{uuid.uuid4().hex}"
        databases.ask(f"CREATE DATABASE {name}")
        made.append((databases, name))
        parts = urlsplit(databases.url)._replace(path=f"/{name}")
        agent = "agent:choose%20another@" + parts.netloc.rpartition("@")[2]
        monkeypatch.setenv("DATABASE_URL", parts.geturl())
        monkeypatch.setenv("AGENT_URL", parts._replace(netloc=agent).geturl())
        return parts.geturl()

    yield make
    for databases, name in made:
        databases.ask(f"DROP DATABASE {name} WITH (FORCE)")
        databases.ask("DROP ROLE IF EXISTS agent")
