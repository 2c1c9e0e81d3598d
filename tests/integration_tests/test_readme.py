"""The README's code is what it says: short, and it runs."""

from __future__ import annotations

import examples
import pytest

from langchain_nanomem.postgres_journal import PostgresJournal

README = examples.examples((examples.ROOT / "README.md").read_text(encoding="utf-8"))
BLOCKS = [(one.title, one.code) for one in README if one.language == "python"]
COMMANDS = [one for one in README if one.language == "sh"]
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


def test_the_readme_has_these_examples():
    """Each way to use it has one example, of at most ten lines."""
    assert [title for title, _ in BLOCKS] == TITLES
    assert all(len(code.strip().splitlines()) <= 10 for _, code in BLOCKS)


@pytest.mark.usefixtures("openai_answers", "another_checkpointer")
@pytest.mark.parametrize(("title", "code"), BLOCKS, ids=TITLES)
def test_an_example_runs(title, code, tmp_path, make_database):
    """The code of an example runs as it stands, and what was said is in a session's file.

    Or in the database; or, of what was erased, in none.
    """
    names: dict[str, object] = {}
    database = make_database() if title == "On several machines" else None
    printed = examples.run(code, names, f"README: {title}")
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
        assert "Removed of user '42': 1 sessions" in printed
        assert texts == []
        return
    assert any("I'm Ada." in text or '"scope":["user","42"]' in text for text in texts)
    assert title == "Several users" or any("Hello, Ada." in text for text in texts)


@pytest.mark.parametrize("example", COMMANDS, ids=[one.title for one in COMMANDS])
def test_the_commands_are_there(example):
    """Each command that it shows is one that there is, with the options that it has."""
    for words in examples.commands(example.code):
        examples.check_command(words)
