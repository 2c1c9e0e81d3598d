"""What may be made of a line: only what the saver's serializer allows. No code is ever run."""

from __future__ import annotations

import base64
import dataclasses
import json
import pickle

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.codec import decode, encode
from langchain_nanomem.errors import CorruptRecordError, NanomemError
from langchain_nanomem.file_journal import FileJournal
from langchain_nanomem.history import NanomemChatMessageHistory
from langchain_nanomem.manager import SessionManager

CONFIG = {"configurable": {"thread_id": "chat:1", "checkpoint_ns": ""}}
STRICT = JsonPlusSerializer(allowed_msgpack_modules=None)
made: list[str] = []


@dataclasses.dataclass
class Trap:
    """Tells when one is made."""

    name: str

    def __post_init__(self):
        made.append(self.name)


@dataclasses.dataclass
class Allowed:
    name: str


@pytest.fixture(autouse=True)
def nothing_made():
    made.clear()


def tagged(value):
    """What stands in a line for an object."""
    content = JsonPlusSerializer().dumps_typed(value)[1]
    made.clear()
    return {
        "__nanomem__": "object",
        "type": "msgpack",
        "value": base64.b64encode(content).decode(),
    }


def message_line(value):
    return {
        "role": "tool",
        "content": "r",
        "tool_call_id": "c",
        "id": "t",
        "artifact": value,
        "_n": 1,
    }


def written(workspace, line):
    """A thread whose message is that of a line which somebody has edited."""
    saver = NanomemSaver(SessionManager(workspace))
    messages = [HumanMessage("h", id="h"), ToolMessage("r", tool_call_id="c", id="t")]
    values, versions = {"messages": messages}, {"messages": "1"}
    checkpoint = empty_checkpoint() | {"channel_values": values, "channel_versions": versions}
    saver.put(CONFIG, checkpoint, {"source": "loop", "step": 1, "parents": {}}, versions)
    path = FileJournal(workspace).path("chat:1")
    lines = path.read_bytes().splitlines()
    lines[2] = json.dumps(line).encode()
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def artifact_of(workspace, serde):
    saver = NanomemSaver(SessionManager(workspace), serde=serde)
    return saver.get_tuple(CONFIG).checkpoint["channel_values"]["messages"][1].artifact


@pytest.mark.parametrize("more", [[], [Allowed]])
def test_a_line_makes_no_object_that_the_saver_would_refuse(workspace, more):
    """cases/checkpointer.md 21: an allowlist holds for the lines of messages too."""
    written(workspace, message_line([tagged(Trap("x")), tagged(Allowed("y"))]))
    serde = JsonPlusSerializer(allowed_msgpack_modules=more or None)
    artifact = artifact_of(workspace, serde)
    assert artifact == [{"name": "x"}, Allowed("y") if more else {"name": "y"}]
    assert made == []
    assert artifact_of(workspace, JsonPlusSerializer()) == [Trap("x"), Allowed("y")]


def test_no_way_of_reading_makes_it(workspace):
    """cases/checkpointer.md 21: sessions, histories and listings make no such object either."""
    written(workspace, message_line(tagged(Trap("x"))))
    sessions = SessionManager(workspace)
    saver = NanomemSaver(sessions, serde=STRICT)
    assert sessions.get_or_create("chat:1").messages[1]["artifact"] == {"name": "x"}
    assert NanomemChatMessageHistory("chat:1", sessions).messages[1].artifact == {"name": "x"}
    assert len(list(saver.list(CONFIG))) == len(sessions.list_sessions()) == 1
    assert made == []


def test_a_serializer_that_comes_later_holds_for_what_was_read(workspace):
    """cases/checkpointer.md 21: what another one made is not handed out by a stricter one."""
    written(workspace, message_line(tagged(Trap("x"))))
    sessions = SessionManager(workspace)
    NanomemSaver(sessions).get_tuple(CONFIG)
    made.clear()
    found = NanomemSaver(sessions, serde=STRICT).get_tuple(CONFIG)
    assert found.checkpoint["channel_values"]["messages"][1].artifact == {"name": "x"}
    assert made == []


@pytest.mark.parametrize("operation", ["prune", "copy", "delete_for_runs", "repair"])
def test_what_may_not_be_made_is_kept_as_it_is_written(tmp_path, operation):
    """cases/checkpointer.md 21: a stricter program loses nothing of what it rewrites or copies."""
    path = written(tmp_path, message_line(tagged(Trap("x"))))
    sessions = SessionManager(tmp_path)
    saver = NanomemSaver(sessions, serde=STRICT)
    newest = saver.get_tuple(CONFIG).checkpoint
    again = {**newest, "id": empty_checkpoint()["id"]}
    told = {"source": "loop", "step": 2, "parents": {}, "run_id": "r"}
    if operation == "delete_for_runs":
        saver.put(CONFIG, again, told, {})
        saver.delete_for_runs(["r"])
    elif operation == "prune":
        saver.put(CONFIG, again, told, {})
        saver.prune(["chat:1"])
    elif operation == "copy":
        saver.copy_thread("chat:1", "copy")
        saver.delete_thread("chat:1")
        saver.copy_thread("copy", "chat:1")
    else:
        path.write_bytes(path.read_bytes() + b"nonsense\n")
        assert FileJournal(tmp_path).repair("chat:1")
    assert made == []
    assert artifact_of(tmp_path, JsonPlusSerializer()) == Trap("x")


def test_the_header_and_the_index_make_no_object(tmp_path):
    """cases/checkpointer.md 21: nor does what the program keeps with a session, or an index."""
    sessions = SessionManager(tmp_path)
    session = sessions.get_or_create("chat:1")
    session.metadata["liked"] = [Trap("x")]
    for number in range(200):
        session.add_message("user", f"{number} {'x' * 600}")
    sessions.save(session)
    assert list((tmp_path / ".index").iterdir())
    made.clear()
    again = SessionManager(tmp_path)
    NanomemSaver(again, serde=STRICT)
    again.list_sessions()
    assert again.get_or_create("chat:1").metadata == {"liked": [{"name": "x"}]}
    assert made == []
    assert SessionManager(tmp_path).get_or_create("chat:1").metadata == {"liked": [Trap("x")]}


class Bomb:
    def __reduce__(self):
        return made.append, ("exploded",)


PICKLE = pickle.dumps(Bomb())
PICKLING = JsonPlusSerializer(pickle_fallback=True)


@pytest.mark.parametrize("serde", [None, PICKLING], ids=["default", "pickling"])
def test_a_pickle_in_a_message_is_a_damaged_line(workspace, serde):
    """cases/checkpointer.md 21: a line with a pickle is refused, whatever the serializer takes."""
    pickled = {"type": "pickle", "value": base64.b64encode(PICKLE).decode()}
    written(workspace, message_line({"__nanomem__": "object", **pickled}))
    with pytest.raises(CorruptRecordError, match="'object' cannot be read"):
        artifact_of(workspace, serde)
    assert made == []


class Plain:
    """A cipher that leaves everything as it is."""

    def encrypt(self, plaintext):
        return "plain", plaintext

    def decrypt(self, ciphername, ciphertext):
        assert ciphername == "plain"
        return ciphertext


@pytest.mark.parametrize(
    ("serde", "kind"),
    [
        (PICKLING, "pickle"),
        (EncryptedSerializer(Plain(), PICKLING), "pickle"),
        (EncryptedSerializer(Plain(), PICKLING), "pickle+plain"),
    ],
)
def test_a_pickle_for_a_value_is_refused(tmp_path, serde, kind):
    """cases/checkpointer.md 21: nor is one carried out that stands for a channel's value."""
    saver = NanomemSaver(SessionManager(tmp_path), serde=serde)
    checkpoint = empty_checkpoint() | {"channel_values": {"a": 1}, "channel_versions": {"a": "1"}}
    saver.put(CONFIG, checkpoint, {"source": "loop", "step": 1, "parents": {}}, {"a": "1"})
    path = FileJournal(tmp_path).path("chat:1")
    *rest, last = path.read_text().splitlines()
    record = json.loads(last)
    record["values"]["a"] = {"serde": [kind, base64.b64encode(PICKLE).decode()]}
    path.write_text("\n".join([*rest, json.dumps(record), ""]))
    with pytest.raises(NanomemError, match="a pickled value, which this package never writes"):
        NanomemSaver(SessionManager(tmp_path), serde=serde).get_tuple(CONFIG)
    assert made == []


def test_what_would_have_to_be_pickled_is_refused(workspace):
    """cases/checkpointer.md 12, 21: a serializer that falls back on pickle can't store it here."""
    saver = NanomemSaver(SessionManager(workspace), serde=PICKLING)
    checkpoint = empty_checkpoint() | {
        "channel_values": {"f": Bomb()},
        "channel_versions": {"f": "1"},
    }
    about = {"source": "loop", "step": 1, "parents": {}}
    with pytest.raises(ValueError, match=r"channel 'f' cannot be stored.*pickles are never stored"):
        saver.put(CONFIG, checkpoint, about, {"f": "1"})
    assert saver.get_tuple(CONFIG) is None


@pytest.mark.parametrize("form", ["record", "session"])
def test_what_a_model_writes_as_arguments_is_only_text(workspace, form):
    """cases/checkpointer.md 21: arguments of a tool call are plain JSON, tags in them too."""
    arguments = json.dumps({"x": tagged(Trap("x"))})
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "look", "arguments": arguments},
    }
    record = {"role": "assistant", "content": "", "tool_calls": [call]}
    if form == "session":
        sessions = SessionManager(workspace)
        session = sessions.get_or_create("chat:1")
        session.add_message("assistant", "", tool_calls=[call])
        sessions.save(session)
        (message,) = NanomemChatMessageHistory("chat:1", SessionManager(workspace)).messages
    else:
        message = decode(record)
    assert message.tool_calls[0]["args"] == json.loads(arguments)
    assert made == []


@pytest.mark.parametrize("argument", [(1, 2), b"\x00", {1: 2}, {"__nanomem__": "object"}])
def test_arguments_that_are_no_json_come_back(workspace, argument):
    """What a program itself puts into a tool call's arguments comes back as it was."""
    call = {"name": "look", "args": {"x": argument}, "id": "c", "type": "tool_call"}
    message = AIMessage("", tool_calls=[call], id="a")
    sessions = SessionManager(workspace)
    sessions.append_messages("chat:1", [message])
    assert NanomemChatMessageHistory("chat:1", SessionManager(workspace)).messages == [message]
    assert decode(encode(message)) == message
