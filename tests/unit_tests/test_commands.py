"""`nanomem sessions`, `memory`, `search`, `stats`, `prune` and `erase` on real workspaces."""

from __future__ import annotations

import json
import os
import shlex
import sys
from datetime import UTC, datetime, timedelta

import pytest
from command_line import CommandLine
from commands import greeter
from langchain_core.messages import AIMessage, HumanMessage

from langchain_nanomem import MemoryStore, SessionManager

pytestmark = pytest.mark.back_ends("files", "postgres")
HOSTILE = {
    "ansi": "\x1b[2J\x1b]0;owned\x07\x1b[31mred",
    "script": "<script>alert(1)</script>",
    "markup": "[bold red]not markup[/] {0} %s",
    "right-to-left": "\u202egnp.exe\u2066\u200f",
    "controls": "a\x00b\x7fc\x9bd\re",
    "long": "x" * 1_000_000,
}
CONTROLS = {chr(code) for code in [*range(9), 11, 12, *range(13, 32), *range(0x7F, 0xA0)]}


@pytest.fixture
def command(workspace, request) -> CommandLine:
    named = request.node.callspec.params["workspace"]
    url = request.getfixturevalue("databases").url if named != "files" else None
    return CommandLine(workspace, url)


@pytest.fixture
def sessions(workspace) -> SessionManager:
    return SessionManager(workspace)


@pytest.fixture
def filled(sessions, open_memory):
    """Ada's session of five turns, three of them in memory; Bob's thread; facts in two versions."""
    memory = open_memory(model="extractive", scope="user")
    for user, key in (("ada", "cli:ada"), ("bob", "cli:bob")):
        sessions.bind_scope(key, ("user", user))
    for number in range(5):
        sessions.append_messages(
            "cli:ada",
            [
                HumanMessage(f"Where is harbour {number}?", id=f"q{number}"),
                AIMessage(f"Harbour {number} is in Faro.", id=f"a{number}"),
            ],
        )
    greeter(memory.checkpointer).invoke(
        {"messages": [("user", "bye")]}, {"configurable": {"thread_id": "cli:bob"}}
    )
    ada = memory.memory_for(("user", "ada"))
    ada.write_long_term("# Facts\n- Ada sails\n")
    ada.write_long_term("# Facts\n- Ada sails\n- Ada has a boat\n")
    ada.append_history("They spoke of Faro.", at=datetime(2026, 5, 8, 10, tzinfo=UTC))
    session = sessions.get_or_create("cli:ada")
    session.last_consolidated = 6
    sessions.save(session)
    return memory


def test_sessions_are_listed(command, filled):
    """All of them, those of a user, or so many; as columns, and as JSON with times and sizes."""
    assert {row["key"] for row in command.json("sessions", "list")} == {"cli:ada", "cli:bob"}
    (row,) = command.json("sessions", "list", "--user", "ada")
    assert row["key"] == "cli:ada"
    assert row["size_bytes"] > 0
    assert datetime.fromisoformat(row["updated_at"]).tzinfo
    (scoped,) = command.json("sessions", "list", "--scope", "user", "--scope", "bob")
    assert scoped["key"] == "cli:bob"
    table = command("sessions", "list", "--limit", "1")
    assert "LAST WRITTEN (UTC)" in table.stdout
    assert len(table.stdout.splitlines()) == 2
    assert "and 1 more" in table.stderr


def test_a_session_is_shown(command, filled):
    """What was said, the seam between what is in memory and what is live; as JSON every message."""
    told = command("sessions", "show", "cli:ada").stdout
    assert "10, 6 of them in memory" in told
    before, after = told.split("what is above is in memory")
    assert "harbour 2" in before
    assert "harbour 3" in after
    assert "user / ada" in told
    view = command.json("sessions", "show", "cli:ada", "--last", "3")
    assert (view["first"], len(view["messages"]), view["consolidated"]) == (7, 3, 6)
    thread = command.json("sessions", "show", "cli:bob")
    assert thread["checkpoints"] > 0
    assert thread["scope"] == ["user", "bob"]


def test_a_session_that_is_not_there_is_none(command, filled):
    """Showing or exporting it fails in one line, and makes no session."""
    for name in ("show", "export"):
        done = command("sessions", name, "cli:eve")
        assert (done.exit_code, done.stderr) == (1, "nanomem: there is no session 'cli:eve'\n")
    assert len(command.json("sessions", "list")) == 2


def test_sessions_are_exported(command, filled, tmp_path_factory):
    """As lines of JSON or as Markdown, to the terminal or a new file; nothing is overwritten."""
    lines = command("sessions", "export", "cli:ada", "cli:bob").stdout.splitlines()
    records = [json.loads(line) for line in lines]
    assert [one["session"] for one in records] == ["cli:ada"] * 10 + ["cli:bob"]
    assert records[0]["content"] == "Where is harbour 0?"
    path = tmp_path_factory.mktemp("out") / "ada.md"
    arguments = ("sessions", "export", "cli:ada", "--format", "markdown", "-o", path)
    assert command(*arguments).exit_code == 0
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# cli:ada\n")
    assert text.count("---") == 1
    assert command(*arguments).exit_code == 1
    assert path.read_text(encoding="utf-8") == text


def test_nothing_is_deleted_unasked(command, filled):
    """A no, and an answer that nobody can give, keep all; a yes deletes; a wrong key is told."""
    for answer in ("n\n", None):
        assert command("sessions", "delete", "cli:ada", answer=answer).exit_code == 1
        assert command("erase", "--user", "ada", answer=answer).exit_code == 1
    assert len(command.json("sessions", "list")) == 2
    assert command("sessions", "delete", "cli:ada", answer="y\n").exit_code == 0
    assert [row["key"] for row in command.json("sessions", "list")] == ["cli:bob"]
    again = command("sessions", "delete", "cli:ada", "--yes")
    assert (again.exit_code, again.stdout) == (1, "cli:ada: there was none\n")
    assert filled.memory_for(("user", "ada")).read_long_term(), "the facts stay"


def test_memories_are_listed_and_shown(command, filled):
    """The scopes with sizes and counts, and the facts and the log of one."""
    rows = {tuple(row["scope"]): row for row in command.json("memory", "list")}
    ada = rows["user", "ada"]
    assert (ada["versions"], ada["log_entries"]) == (1, 1)
    assert command.json("memory", "show", "--user", "ada")["text"].endswith("boat\n")
    assert "- Ada has a boat" in command("memory", "show", "--user", "ada").stdout
    assert "They spoke of Faro." in command("memory", "log", "--user", "ada").stdout
    (entry,) = command.json("memory", "log", "--user", "ada", "--last", "1")
    assert entry["at"] == "2026-05-08T10:00:00+00:00"
    wrong = command("memory", "show", "--user", "eve")
    assert wrong.exit_code == 1
    assert "there is no memory of 'user / eve'" in wrong.stderr


@pytest.mark.back_ends("files")
def test_what_cannot_be_read_hides_nothing_else(command, filled, caplog):
    """A damaged session and a damaged memory are told of; the others are listed all the same."""
    session, memory = filled.sessions.journal.path("cli:bob"), filled.memory_for(("user", "bob"))
    session.write_bytes(b'{"role": "user", "content": 7\n' + session.read_bytes())
    memory.write_long_term("# Facts")
    memory.memory_path.write_bytes(b"\xff\xfe")
    done = command("sessions", "list", "--user", "ada")
    assert (done.exit_code, "cli:ada" in done.stdout) == (0, True)
    assert "'cli:bob': nobody can tell whose it is" in caplog.text
    rows = {tuple(row["scope"]): row for row in command.json("memory", "list")}
    assert rows["user", "ada"]["problem"] is None
    assert rows["user", "bob"]["facts_bytes"] is None
    listed = command("memory", "list")
    assert "unreadable" in listed.stdout
    assert "UTF-8" in listed.stderr


def test_versions_are_compared_and_restored(command, filled):
    """The history names them, the diff tells what changed, and a restored one can be undone."""
    (old,) = command.json("memory", "history", "--user", "ada")
    told = command("memory", "diff", old["version"][:6], "--user", "ada").stdout
    assert "+- Ada has a boat" in told.splitlines()
    done = command("memory", "restore", old["version"][:6], "--user", "ada", "--yes")
    assert done.stdout == "Written.\n"
    store = filled.memory_for(("user", "ada"))
    assert store.read_long_term() == "# Facts\n- Ada sails\n"
    assert len(command.json("memory", "history", "--user", "ada")) == 2
    none = command("memory", "diff", "zzz", "--user", "ada")
    assert "no versions begin with 'zzz'" in none.stderr
    assert command("memory", "diff", "", "--user", "ada").exit_code == 1


def test_facts_are_edited(command, filled, tmp_path_factory):
    """In the editor, from a file, or from standard input; the same text changes nothing."""
    editor = tmp_path_factory.mktemp("bin") / "editor.py"
    editor.write_text("import sys\nopen(sys.argv[1], 'a').write('- Ada rows\\n')\n")
    store = filled.memory_for(("user", "ada"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VISUAL", f"{sys.executable} {editor}")
        assert command("memory", "edit", "--user", "ada").stdout == "Written.\n"
        assert store.read_long_term().endswith("- Ada has a boat\n- Ada rows\n")
        patch.setenv("VISUAL", f"{sys.executable} -c pass")
        assert command("memory", "edit", "--user", "ada").stdout == "Nothing was changed.\n"
        patch.setenv("VISUAL", "no-such-editor")
        failed = command("memory", "edit", "--user", "ada")
        assert failed.exit_code == 1
        assert "the editor failed" in failed.stderr
    done = command("memory", "edit", "--user", "ada", "--file", "-", answer="- new\n")
    assert done.stdout == "Written.\n"
    assert store.read_long_term() == "- new\n"


EDITOR = """
import sys
from pathlib import Path
from langchain_nanomem import MemoryStore
from stores import workspace_at
store = MemoryStore(workspace_at(sys.argv[1]).memory, scope=("user", "ada"))
store.write_long_term("- theirs\\n")
Path(sys.argv[2]).write_text("- mine\\n")
"""


def test_an_edit_that_came_too_late_is_kept(command, filled, address, tmp_path_factory):
    """Where the facts change while a person edits, nothing is written, and the text is printed."""
    editor = tmp_path_factory.mktemp("bin") / "editor.py"
    editor.write_text(EDITOR)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        patch.setenv("VISUAL", shlex.join([sys.executable, str(editor), address]))
        done = command("memory", "edit", "--user", "ada")
    assert done.exit_code == 1
    assert done.stdout == "- mine\n\n"
    assert filled.memory_for(("user", "ada")).read_long_term() == "- theirs\n"


def test_search_finds_what_the_tool_finds(command, filled):
    """The hits are those of `search_history`, with their neighbours where that is asked for."""
    hits = command.json("search", "harbour 3", "--user", "ada", "--around", "1")
    expected = filled.memory_for(("user", "ada")).search_history("harbour 3")
    assert [hit["text"] for hit in hits] == [hit.text for hit in expected]
    assert hits[0]["before"]
    assert "cli:ada #" in command("search", "harbour 3", "--user", "ada").stdout
    (logged,) = command.json("search", "Faro", "--user", "ada", "--kind", "logged")
    assert logged["kind"] == "logged"
    assert command.json("search", "harbour", "--user", "ada", "--since", "2999-01-01") == []
    assert "no date such as" in command("search", "x", "--since", "yesterday").stderr


def test_stats_count_and_tell_what_was_saved(command, workspace, make, model):
    """Consolidations, calls and tokens are those of the account; what was not sent is counted."""
    consolidator = make(model=model)
    sessions = consolidator.sessions
    session = sessions.get_or_create("cli:ada")
    for number in range(40):
        session.add_message("user", f"question {number} " + "word " * 200)
        session.add_message("assistant", f"answer {number}")
        sessions.save(session)
        consolidator.maybe_consolidate_by_tokens(session)
    account = consolidator.account("cli:ada")
    found = command.json("stats")
    for name in ("consolidations", "calls", "input_tokens", "output_tokens", "failures"):
        assert found[name] == getattr(account, name), name
    assert (found["sessions"], found["messages"]) == (1, 80)
    assert found["tokens_not_sent"] > found["message_tokens"]
    spent = account.input_tokens + account.output_tokens
    assert found["tokens_saved"] == found["tokens_not_sent"] - spent
    assert f"{account.consolidations:,} (0 raw)" in command("stats").stdout


def test_old_versions_and_checkpoints_are_pruned(command, filled):
    """What is asked for goes, after a yes, and is told; nothing asked for is an error."""
    bob = {"configurable": {"thread_id": "cli:bob"}}
    greeter(filled.checkpointer).invoke({"messages": [("user", "hi")]}, bob)
    assert command("prune").exit_code == 2
    done = command.json("prune", "--max-versions", "0", "--keep-checkpoints", "1", "--yes")
    assert (done["removed_versions"], done["thinned"]) == (1, ["cli:bob"])
    assert command.json("sessions", "show", "cli:bob")["checkpoints"] == 1
    assert command("prune", "--max-age", "0", "--delete", answer="n\n").exit_code == 1
    assert len(command.json("sessions", "list")) == 2
    assert command("prune", "--max-age", "0", "--delete", "--yes").exit_code == 0
    assert command.json("sessions", "list") == []


def test_a_user_is_erased(command, filled):
    """Sessions, facts and log of one user go, those of the other stay; a second time is told."""
    done = command.json("erase", "--user", "ada", "--yes")
    assert done["sessions"] == ["cli:ada"]
    assert [row["key"] for row in command.json("sessions", "list")] == ["cli:bob"]
    again = command("erase", "--user", "ada", "--yes")
    assert again.exit_code == 1
    assert "Nothing is known" in again.stdout
    assert command("erase").exit_code == 2
    assert command("erase", "--user", "a", "--scope", "b").exit_code == 2


def test_a_session_is_erased(command, filled):
    """With the entries of the log that tell of it."""
    assert command.json("erase", "--session", "cli:bob", "--yes")["sessions"] == ["cli:bob"]
    assert [row["key"] for row in command.json("sessions", "list")] == ["cli:ada"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_does_no_harm(command, sessions, name):
    """No command lets a control character through, or is upset by text that looks like markup."""
    sessions.append_messages("evil", [HumanMessage(HOSTILE[name], id="q"), AIMessage("ok", id="a")])
    MemoryStore(sessions.journal).write_long_term(f"- {HOSTILE[name]}\n")
    asked = [
        ("sessions", "show", "evil", "--full"),
        ("sessions", "export", "evil", "--format", "markdown"),
        ("sessions", "export", "evil"),
        ("sessions", "list"),
        ("memory", "show"),
        ("search", "ok"),
        ("sessions", "show", "evil", "--json"),
    ]
    for arguments in asked:
        done = command(*arguments)
        assert done.exit_code == 0, done.output
        assert not CONTROLS & set(done.stdout), arguments
        assert "\u202e" not in done.stdout
    shown = command("sessions", "show", "evil").stdout
    assert len(shown) < 10_000
    assert HOSTILE["script"] in shown or name != "script"
    assert HOSTILE["markup"] in shown or name != "markup"


def test_an_archived_session_is_listed_and_shown(tmp_path):
    """It is read where it is, and stays there."""
    command, manager = CommandLine(tmp_path, None), SessionManager(tmp_path)
    manager.append_messages("old", [HumanMessage("hi", id="q")])
    assert command.json("prune", "--max-age", "0")["archived"] == ["old"]
    assert command.json("sessions", "list") == []
    (row,) = command.json("sessions", "list", "--archived")
    assert row["key"] == "old"
    assert command.json("sessions", "show", "old")["archived_at"]
    assert manager.list_archived()
    assert command("sessions", "export", "old").stdout.count("\n") == 1
    assert command.json("stats")["archived"] == 1


def test_damage_is_told_and_the_rest_is_counted(tmp_path):
    """A damaged session and memory fail the doctor, and `stats` names them."""
    command, manager = CommandLine(tmp_path, None), SessionManager(tmp_path)
    for key in ("good", "bad"):
        manager.append_messages(key, [HumanMessage("hi", id=key)])
    path = manager.journal.path("bad")
    path.write_bytes(b"\xff\xfe not a record\n" + path.read_bytes())
    MemoryStore(tmp_path, scope=("user", "eve")).write_long_term("- fine\n")
    MemoryStore(tmp_path, scope=("user", "eve")).memory_path.write_bytes(b"\xff\xfe")
    done = command("doctor", "--json")
    assert done.exit_code == 1
    damaged = json.loads(done.stdout)["damaged"]
    assert any("bad: 1 lines" in one for one in damaged)
    assert any("eve" in one for one in damaged)
    found = command.json("stats")
    assert (found["sessions"], found["messages"]) == (2, 1)
    assert len(found["unreadable"]) == 2
    assert command("sessions", "show", "bad").exit_code == 1
    assert {row["key"] for row in command.json("sessions", "list")} == {"good", "bad"}


def test_no_workspace_is_no_empty_workspace(tmp_path):
    """A directory that is not there is told, not made."""
    command = CommandLine(tmp_path / "nowhere", None)
    for arguments in (["sessions", "list"], ["memory", "show"], ["search", "x"], ["stats"]):
        done = command(*arguments)
        assert done.exit_code == 1
        assert "there is no workspace; say where with --workspace" in done.stderr
    assert not (tmp_path / "nowhere").exists()


def test_an_empty_workspace_is_told(tmp_path):
    """Each command says that there is nothing, and none fails."""
    command = CommandLine(tmp_path, None)
    assert "There are no sessions" in command("sessions", "list").stdout
    assert command.json("sessions", "list") == []
    assert "Nothing is remembered yet." in command("memory", "show").stderr
    assert "There is no earlier version." in command("memory", "history").stderr
    assert "Nothing is found." in command("search", "x").stderr
    assert command.json("stats")["sessions"] == 0
    assert command("doctor").exit_code == 0


def test_a_session_of_the_future_is_not_pruned(tmp_path):
    """Only what is older than the limit goes."""
    command, manager = CommandLine(tmp_path, None), SessionManager(tmp_path)
    manager.append_messages("new", [HumanMessage("hi", id="q")])
    manager.append_messages("old", [HumanMessage("hi", id="q")])
    manager.journal.set_updated_at("old", datetime.now(UTC) - timedelta(days=91))
    assert command.json("prune", "--max-age", "90")["archived"] == ["old"]
