"""The README's code is what it says: short, and it runs."""

from __future__ import annotations

import re
import uuid
import warnings
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_nanomem.postgres_journal import PostgresJournal

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = [
    (section.split("\n", 1)[0], code)
    for section in README.split("\n## ")
    for code in re.findall(r"```python\n(.*?)```", section, re.DOTALL)
]
TITLES = [
    "In a graph",
    "With a model node of your own",
    "In an agent",
    "In a chain",
    "When, and at what price",
    "Several users",
    "What is remembered, and for how long",
    "On several machines",
    "Coming from another checkpointer",
    "From files to a database, and back",
]


@pytest.fixture
def openai_answers(httpserver, monkeypatch, tmp_path):
    """A provider on the loopback that always gives the same answer; an empty working directory."""
    httpserver.expect_request("/v1/chat/completions", method="POST").respond_with_json(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-4o-mini",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "Hello, Ada."},
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8},
        }
    )
    monkeypatch.setenv("OPENAI_BASE_URL", httpserver.url_for("/v1"))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
    monkeypatch.chdir(tmp_path)
    return httpserver


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
def database(request, title, monkeypatch):
    """An empty database for the example that needs one, and its URL where a program finds it."""
    if title != "On several machines":
        yield None
        return
    databases, name = request.getfixturevalue("databases"), f"readme_{uuid.uuid4().hex}"
    databases.ask(f"CREATE DATABASE {name}")
    url = urlsplit(databases.url)._replace(path=f"/{name}").geturl()
    monkeypatch.setenv("DATABASE_URL", url)
    yield url
    databases.ask(f"DROP DATABASE {name} WITH (FORCE)")


def test_the_readme_has_these_examples():
    """Each way to use it has one example, of at most ten lines."""
    assert [title for title, _ in BLOCKS] == TITLES
    assert all(len(code.strip().splitlines()) <= 10 for _, code in BLOCKS)


@pytest.mark.usefixtures("openai_answers", "another_checkpointer")
@pytest.mark.parametrize(("title", "code"), BLOCKS, ids=TITLES)
def test_an_example_runs(title, code, tmp_path, capsys, database):
    """The code of an example runs as it stands, and what was said is in a session's file.

    Or in the database; or, of what was erased, in none.
    """
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*deprecated", category=DeprecationWarning)
        exec(compile(code, f"README: {title}", "exec"), names)
        if title == "With a model node of your own":
            names["agent"].invoke(
                {"messages": [("user", "I'm Ada.")]}, {"configurable": {"thread_id": "cli:ada"}}
            )
    if database is not None:
        (session,) = PostgresJournal(database).list()
        assert "I'm Ada." in str(PostgresJournal(database).read(session.key))
        return
    texts = [path.read_text() for path in (tmp_path / "workspace" / "sessions").glob("*.jsonl")]
    if title == "What is remembered, and for how long":
        assert "Removed of user '42': 1 sessions" in capsys.readouterr().out
        assert texts == []
        return
    assert any("I'm Ada." in text or '"scope":["user","42"]' in text for text in texts)
    assert title == "Several users" or any("Hello, Ada." in text for text in texts)
