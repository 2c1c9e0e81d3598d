"""Messages without what is sensitive: where it is looked for, and what has to stay."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.graph import START, MessagesState, StateGraph
from leaks import EVERYWHERE, RULES, SECRETS, TOLD, leaks, written

from langchain_nanomem import NanomemChatMessageHistory, NanomemSaver, Redaction, SessionManager
from langchain_nanomem.codec import decode, encode
from langchain_nanomem.redacted_records import redacted_record, redacted_value
from langchain_nanomem.values import dump_record

MAIL, CARD = SECRETS["mail"], int(SECRETS["card"].replace(" ", ""))
PASSWORD = "hunter" + "22"
ARGUMENTS = {"password": PASSWORD, "card": CARD, "to": [MAIL, {"id": MAIL, MAIL: 7}], "n": 7}
CALL = {"name": "send", "args": ARGUMENTS, "id": "call_1", "type": "tool_call"}
BLOCKS = [
    {"type": "text", "text": TOLD, "id": MAIL, "index": MAIL, MAIL: MAIL},
    {"type": "tool_use", "id": "call_1", "name": "send", "input": ARGUMENTS},
]
OPENAI = {"id": "call_1", "function": {"name": "send", "arguments": json.dumps(ARGUMENTS)}}
MESSAGES = [
    HumanMessage(TOLD, name=MAIL, id="1", additional_kwargs={"role": MAIL, MAIL: {"of": MAIL}}),
    AIMessage(BLOCKS, tool_calls=[CALL], id="2", response_metadata={"id": MAIL, "text": [TOLD]}),
    AIMessage("", tool_calls=[CALL], additional_kwargs={"tool_calls": [OPENAI]}),
    AIMessage("", invalid_tool_calls=[{"name": "x", "args": TOLD, "id": "call_1", "error": TOLD}]),
    AIMessageChunk("", tool_call_chunks=[{"name": "x", "args": TOLD, "id": "c", "index": 0}]),
    ToolMessage(TOLD, tool_call_id="call_1", artifact={"id": MAIL, "timestamp": MAIL, MAIL: 1}),
    SystemMessage(TOLD),
    ChatMessage(TOLD, role="guest"),
    FunctionMessage(TOLD, name="f"),
    HumanMessage(TOLD, extra={MAIL: TOLD}),
]
RULES_BY_STRATEGY = {
    strategy: Redaction(dict.fromkeys(("email", "credit_card", "secret", "patient"), strategy),
                        RULES.custom, sessions=True)
    for strategy in ("mask", "redact", "hash", "block")
}  # fmt: skip


def leaked(content):
    return leaks(content, PASSWORD, str(CARD), MAIL.split("@")[1])


@pytest.mark.parametrize("strategy", RULES_BY_STRATEGY)
@pytest.mark.parametrize("message", MESSAGES)
def test_nothing_of_a_message_is_left(message, strategy):
    """Texts and names are redacted at every depth; the given message stays as it is."""
    redact = RULES_BY_STRATEGY[strategy].withhold
    before = copy.deepcopy(message)
    record = redacted_record(encode(message), redact)
    again = redacted_value(message, redact)
    assert leaked(dump_record(record)) == leaked(dump_record(encode(again))) == []
    assert message == before
    assert type(again) is type(message)
    assert redacted_record(record, redact) == record
    assert redacted_value(again, redact) is again


@pytest.mark.parametrize("strategy", RULES_BY_STRATEGY)
def test_what_ties_messages_together_stays(strategy):
    """Ids, roles, times and the calls that results belong to are as they were."""
    redact = RULES_BY_STRATEGY[strategy].withhold
    digits = Redaction({}, {"digits": r"\d+"}, sessions=True).withhold
    calls = [CALL | {"id": "call_12345"}]
    block = {"type": "tool_use", "id": "call_12345", "name": "send", "input": {}}
    said_at = {"timestamp": "2026-05-08T10:00:00+00:00"}
    for rule in (redact, digits):
        answer = AIMessage([block], tool_calls=calls, id="12345", additional_kwargs=said_at)
        again = redacted_value(answer, rule)
        assert again.id == "12345"
        assert again.additional_kwargs == said_at
        assert again.tool_calls[0]["id"] == "call_12345"
        assert again.content == [block]
        result = redacted_value(ToolMessage("x", tool_call_id="call_12345", id="6"), rule)
        assert result == ToolMessage("x", tool_call_id="call_12345", id="6")
        assert redacted_value(RemoveMessage(id="12345"), rule) == RemoveMessage(id="12345")
        record = {"role": "guest", "content": "", **said_at, "id": "12345"}
        assert redacted_record(record, rule) == record


@pytest.mark.parametrize("strategy", RULES_BY_STRATEGY)
def test_arguments_stay_json(tmp_path, strategy):
    """After a restart a redacted tool call is a call still, with the arguments that may be read."""
    rules = RULES_BY_STRATEGY[strategy]
    history = NanomemChatMessageHistory("s", SessionManager(tmp_path, redaction=rules))
    history.add_messages([AIMessage("", tool_calls=[CALL])])
    assert leaked(written(tmp_path)) == []
    (again,) = NanomemChatMessageHistory("s", SessionManager(tmp_path)).messages
    (call,) = again.tool_calls
    assert again.invalid_tool_calls == []
    assert (call["name"], call["id"], call["args"]["n"]) == ("send", "call_1", 7)
    assert call["args"].keys() == ARGUMENTS.keys()
    assert len(call["args"]["to"][1]) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{ "n": 1.50, "to": "x" }', '{ "n": 1.50, "to": "x" }'),
        ('{ "n": 1.50, "to": "' + MAIL + '" }', '{"n":1.5,"to":"[REDACTED_EMAIL]"}'),
        ('{"password": "correct horse"}', '{"password":"[REDACTED_SECRET]"}'),
        (f'{{"card": {CARD}, "at": {CARD + 1}}}', None),
        (f'{{"a": "{MAIL}", "a": 1}}', '{"a": "[REDACTED_EMAIL]", "a": 1}'),
        (f"to {MAIL}", "to [REDACTED_EMAIL]"),
        (f'"{MAIL}"', '"[REDACTED_EMAIL]"'),
        ("[" * 99_999, "[" * 99_999),
        ("", ""),
    ],
)
def test_arguments_are_written_anew_only_where_they_must(text, expected):
    """Without a find they stay to the letter; what is no JSON object is redacted as a text."""
    if expected is None:
        expected = f'{{"card":"[REDACTED_CREDIT_CARD]","at":{CARD + 1}}}'
    record = {"role": "assistant", "tool_calls": [{"function": {"arguments": text}}]}
    redact = Redaction({"email": "redact", "credit_card": "redact", "secret": "redact"}).apply
    again = redacted_record(record, redact)
    assert again["tool_calls"][0]["function"]["arguments"] == expected


def test_numbers_of_a_state_stay_numbers():
    """Only what a model wrote as arguments is looked at for numbers; a state must be computed."""
    state = {"at": CARD, "flag": True, "args": {"n": CARD, "flag": True, "huge": 10**5000}}
    again = redacted_value(state, EVERYWHERE.withhold)
    assert again == {**state, "args": {**state["args"], "n": "************1111"}}


NAMES = st.sampled_from(["id", "role", "of", "index", "timestamp", "content", "password", "x"])
NESTED = st.recursive(
    st.sampled_from([MAIL, TOLD, "x", "2026-05-08"]) | st.integers() | st.booleans() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(NAMES | st.sampled_from([MAIL, TOLD]), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
)


@given(NESTED, st.sampled_from(list(RULES_BY_STRATEGY)))
def test_nothing_is_left_at_any_depth(value, strategy):
    """Whatever plain data is made of: no secret is left, and once is enough."""
    redact = RULES_BY_STRATEGY[strategy].withhold
    arguments = {"arguments": json.dumps(value)}
    record = {"role": "user", "content": value, "artifact": [value], "function_call": arguments}
    once = redacted_record(record, redact)
    assert leaked(dump_record(once)) == []
    assert redacted_record(once, redact) == once
    assert redacted_value(once, redact) is once
    assert decode(once).content is not None
    if isinstance(value, dict):
        assert len(json.loads(once["function_call"]["arguments"])) == len(value)


async def test_a_call_is_carried_on_after_a_restart(tmp_path, call):
    """A graph whose tool call was redacted goes on from it in another process."""

    def compiled(path):
        graph = StateGraph(MessagesState)
        graph.add_node("say", lambda _: {"messages": [AIMessage("", tool_calls=[CALL])]})
        graph.add_edge(START, "say")
        rules = RULES_BY_STRATEGY["block"]
        return graph.compile(checkpointer=NanomemSaver(SessionManager(path, redaction=rules)))

    config = {"configurable": {"thread_id": "t"}}
    await call(compiled(tmp_path), "invoke", {"messages": ["hello"]}, config)
    assert leaked(written(tmp_path)) == []
    (again,) = compiled(tmp_path).get_state(config).values["messages"][1].tool_calls
    assert again["args"]["password"] == "[withheld: secret]"
