"""`nanomem import` of LangChain's history files and of nanobot's directories."""

from __future__ import annotations

import json

import pytest
from command_line import CommandLine
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, messages_to_dict

from langchain_nanomem import SessionManager

MESSAGES = [
    HumanMessage("Where is the boat?"),
    AIMessage("", tool_calls=[{"name": "find", "args": {"what": "boat"}, "id": "c1"}]),
    ToolMessage("in Faro", tool_call_id="c1"),
    AIMessage("In Faro.", additional_kwargs={"mood": "calm"}),
]


@pytest.fixture
def command(tmp_path) -> CommandLine:
    return CommandLine(tmp_path / "workspace", None)


@pytest.fixture
def histories(tmp_path):
    directory = tmp_path / "histories"
    directory.mkdir()
    for name in ("ada", "bob"):
        write(directory / f"{name}.json", MESSAGES)
    return directory


def write(path, messages):
    path.write_text(json.dumps(messages_to_dict(messages)), encoding="utf-8")


def messages_in(tmp_path, key):
    return SessionManager(tmp_path / "workspace").get_or_create(key).messages


def test_a_directory_of_histories_becomes_sessions(command, histories, tmp_path):
    """Each file is a session of its name, with its messages in order, calls and extras too."""
    before = {path: path.read_bytes() for path in histories.iterdir()}
    found = command.json("import", histories)
    assert (found["sessions"], found["messages"]) == (2, 8)
    kept = messages_in(tmp_path, "ada")
    assert [one["role"] for one in kept] == ["user", "assistant", "tool", "assistant"]
    assert kept[1]["tool_calls"][0]["id"] == "c1"
    assert kept[3]["additional_kwargs"]["mood"] == "calm"
    assert {path: path.read_bytes() for path in histories.iterdir()} == before


def test_a_history_that_has_grown_is_imported_again(command, histories, tmp_path):
    """What is there stays, and what is new is added; one that was changed is refused."""
    path = histories / "ada.json"
    assert "1 sessions with 4 messages" in command("import", path).stdout
    write(path, [*MESSAGES, HumanMessage("Thanks!")])
    command.json("import", path)
    assert len(messages_in(tmp_path, "ada")) == 5
    write(path, [HumanMessage("Something else"), *MESSAGES[1:]])
    done = command("import", path)
    assert done.exit_code == 1
    assert "already has another message" in done.stderr
    assert len(messages_in(tmp_path, "ada")) == 5


@pytest.mark.parametrize("text", ["{", '{"a": 1}', '[{"type": "human"}]', "[1]"])
def test_what_is_no_history_is_told(command, tmp_path, text):
    """Nothing is made of a file that is something else, and the file is named."""
    path = tmp_path / "odd.json"
    path.write_text(text)
    done = command("import", path)
    assert done.exit_code == 1
    assert str(path) in done.stderr.replace("\n", "")
    assert not (tmp_path / "workspace").exists()


def test_a_directory_of_nanobot_is_imported(command, tmp_path):
    """Sessions, facts and log, as nanobot left them; a second time adds nothing."""
    source = tmp_path / "nanobot"
    (source / "sessions").mkdir(parents=True)
    (source / "memory").mkdir()
    head = {"_type": "metadata", "created_at": "2026-02-01T10:00:00", "last_consolidated": 1}
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    lines = [json.dumps(one) for one in [head, *said]]
    (source / "sessions" / "telegram_42.jsonl").write_text("\n".join(lines) + "\n")
    (source / "memory" / "MEMORY.md").write_text("# Facts\n- Ada sails\n")
    (source / "memory" / "HISTORY.md").write_text("[2026-02-01 10:00] They met.\n\n")
    assert command.json("import", source)["sessions"] == 1
    again = command.json("import", source)
    assert (again["records"], again["sessions"]) == (0, 1)
    (row,) = command.json("sessions", "list")
    view = command.json("sessions", "show", row["key"])
    assert [one["content"] for one in view["messages"]] == ["hi", "hello"]
    assert view["consolidated"] == 1
    assert "- Ada sails" in command("memory", "show").stdout
    assert "They met." in command("memory", "log").stdout
    refused = command("import", source, "--thread", "t")
    assert "--thread is for a checkpointer" in refused.stderr


def test_a_source_that_is_not_there_is_told(command, tmp_path):
    """One line that names it."""
    done = command("import", tmp_path / "nothing")
    assert done.exit_code == 1
    assert "nothing" in done.stderr
    assert not (tmp_path / "workspace").exists()
