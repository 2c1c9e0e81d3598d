"""LangChain messages and readable records."""

from __future__ import annotations

import json
from typing import Any

import langchain_core.messages as lc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langchain_nanomem.codec import decode, encode
from langchain_nanomem.values import dump_record, load_record

texts = st.text(st.characters(), max_size=10)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
plain = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, plain, max_size=3)
foreign = (
    plain | st.binary(max_size=8) | st.tuples(plain, plain) | st.frozensets(scalars, max_size=3)
)
blocks = st.one_of(
    texts,
    st.builds(lambda text: {"type": "text", "text": text}, texts),
    st.builds(lambda url: {"type": "image_url", "image_url": {"url": url}}, texts),
    st.builds(lambda text: {"type": "reasoning", "reasoning": text, "index": 0}, texts),
    st.builds(
        lambda data: {"type": "audio", "base64": data, "mime_type": "audio/wav", "id": "1"}, texts
    ),
    st.builds(lambda data: {"type": "file", "file": {"file_data": data, "x": None}}, texts),
)
contents = texts | st.lists(blocks, max_size=3)
ids = st.none() | st.text(min_size=1, max_size=5)
calls = st.lists(
    st.builds(
        lambda name, args, call_id: {
            "name": name,
            "args": args,
            "id": call_id,
            "type": "tool_call",
        },
        texts,
        objects,
        ids,
    ),
    max_size=3,
)
invalid_calls = st.lists(
    st.builds(
        lambda name, args, call_id, error: {
            "name": name,
            "args": args,
            "id": call_id,
            "error": error,
            "type": "invalid_tool_call",
        },
        st.none() | texts,
        st.none() | texts,
        ids,
        st.none() | texts,
    ),
    max_size=2,
)
usage = st.none() | st.builds(
    lambda n, m: {
        "input_tokens": n,
        "output_tokens": m,
        "total_tokens": n + m,
        "input_token_details": {"cache_read": n},
    },
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)
common = {
    "content": contents,
    "id": ids,
    "name": st.none() | texts,
    "additional_kwargs": objects,
    "response_metadata": objects,
}
assistant = {
    **common,
    "tool_calls": calls,
    "invalid_tool_calls": invalid_calls,
    "usage_metadata": usage,
}
roles = texts | st.sampled_from(["user", "assistant", "system", "developer", "tool", ""])
tool = {
    **common,
    "tool_call_id": texts,
    "artifact": foreign,
    "status": st.sampled_from(["success", "error"]),
}
chunks = st.lists(
    st.builds(
        lambda name, args, call_id, index: {
            "name": name,
            "args": args,
            "id": call_id,
            "index": index,
            "type": "tool_call_chunk",
        },
        st.none() | texts,
        st.none() | texts,
        ids,
        st.none() | st.integers(0, 3),
    ),
    max_size=2,
)
messages: st.SearchStrategy[BaseMessage] = st.one_of(
    st.builds(lc.HumanMessage, **common),
    st.builds(lc.SystemMessage, **common),
    st.builds(lc.AIMessage, **assistant),
    st.builds(lc.ToolMessage, **tool),
    st.builds(lc.FunctionMessage, **{**common, "name": texts}),
    st.builds(lc.ChatMessage, role=roles, **common),
    st.builds(lambda name: lc.RemoveMessage(id=name), st.text(min_size=1, max_size=5)),
    st.builds(lc.HumanMessageChunk, **common),
    st.builds(lc.SystemMessageChunk, **common),
    st.builds(lc.AIMessageChunk, **{**common, "usage_metadata": usage}, tool_call_chunks=chunks),
    st.builds(lc.ToolMessageChunk, **tool),
    st.builds(lc.FunctionMessageChunk, **{**common, "name": texts}),
    st.builds(lc.ChatMessageChunk, role=roles, **common),
    st.builds(lc.HumanMessage, content=texts, mood=plain, role=roles),
)


def through_the_file(message: BaseMessage) -> BaseMessage:
    return decode(load_record(dump_record(encode(message)), JsonPlusSerializer()))


@given(messages)
def test_every_message_comes_back_equal(message: BaseMessage):
    """cases/sessions.md 24, 28: any message of any class comes back equal, class included."""
    again = through_the_file(message)
    assert type(again) is type(message)
    assert again == message
    assert again.model_dump() == message.model_dump()
    assert dump_record(encode(again)) == dump_record(encode(message))


@given(messages)
def test_a_message_shares_nothing_with_its_copy(message: BaseMessage):
    """Encoding leaves the message as it is."""
    before = message.model_copy(deep=True)
    encode(message)
    assert message == before


def test_all_classes_are_covered():
    """LangChain has no message class that the codec does not know."""
    known = {cls for cls in vars(lc).values() if isinstance(cls, type)}
    concrete = {cls for cls in known if issubclass(cls, BaseMessage)} - {
        BaseMessage,
        lc.BaseMessageChunk,
    }
    assert {
        type(through_the_file(cls.model_construct(role="r", content=""))) for cls in concrete
    } == (concrete)


def test_the_record_is_in_openai_form():
    """A person, jq, or another program reads the record as OpenAI's chat message."""
    call = {"name": "search", "args": {"q": "ä"}, "id": "c1", "type": "tool_call"}
    record = encode(lc.AIMessage("", tool_calls=[call], id="m1"))
    assert record == {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "search", "arguments": '{"q":"ä"}'},
            }
        ],
        "id": "m1",
    }
    assert encode(lc.ToolMessage("found", tool_call_id="c1", name="search")) == {
        "role": "tool",
        "content": "found",
        "name": "search",
        "tool_call_id": "c1",
    }
    assert encode(lc.HumanMessage("hi")) == {"role": "user", "content": "hi"}
    assert encode(lc.SystemMessage("be kind")) == {"role": "system", "content": "be kind"}


@pytest.mark.parametrize(
    "role", ["user", "assistant", "system", "tool", "developer", "function", ""]
)
def test_a_chat_message_of_a_known_role_stays_a_chat_message(role: str):
    """The class is not guessed from the role where the two disagree."""
    message = lc.ChatMessage("x", role=role)
    assert type(through_the_file(message)) is lc.ChatMessage
    assert through_the_file(message) == message


class Special(lc.HumanMessage):
    """A class of the program's own."""


def test_a_class_of_ones_own_is_refused_at_write_time():
    """cases/sessions.md 24: what could not be made again is an error that says what to do."""
    with pytest.raises(ValueError, match=r"Special cannot be stored.*Convert"):
        encode(Special("x"))


class Array:
    """Like numpy's: comparing gives no truth."""

    def __eq__(self, other: object) -> Any:
        raise ValueError("the truth value of an array is ambiguous")

    __hash__ = None  # type: ignore[assignment]  # as of any class with its own equality


@pytest.mark.parametrize("artifact", [object(), Array(), {"deep": [Array()]}])
def test_an_artifact_that_cannot_be_stored_is_named(artifact: Any):
    """cases/sessions.md 22, 24: a clear error at write time that names the artifact."""
    message = lc.ToolMessage("x", tool_call_id="1", artifact=artifact)
    with pytest.raises(ValueError, match=r"^artifact"):
        dump_record(encode(message))


def test_tool_arguments_that_are_too_deep_are_named():
    """cases/sessions.md 22: endless arguments are a ValueError."""
    endless: dict[str, Any] = {}
    endless["me"] = endless
    message = lc.AIMessage("")
    message.tool_calls = [{"name": "f", "args": endless, "id": "1", "type": "tool_call"}]
    with pytest.raises(ValueError, match="nested too deeply"):
        encode(message)


@pytest.mark.parametrize(
    "call",
    [
        {"name": "f", "args": {}, "id": "1"},
        {"name": "f", "args": [1], "id": "1", "type": "tool_call"},
        {"name": "f", "args": None, "id": None, "type": "tool_call"},
        {"name": "f", "args": {"b": b"\x00", 1: 2}, "id": "1", "type": "tool_call", "extra": 1},
    ],
)
def test_irregular_tool_calls_come_back(call: dict[str, Any]):
    """Calls that OpenAI's form can't hold, set after validation, come back all the same."""
    message = lc.AIMessage("")
    message.tool_calls = [call]  # type: ignore[list-item]  # irregular on purpose
    assert through_the_file(message) == message


def test_records_of_other_programs_are_understood():
    """cases/sessions.md 23: OpenAI's form, with null, string arguments and unknown fields."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    message = decode(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call],
            "timestamp": "2026-01-01",
            "x": 1,
        }
    )
    assert message == lc.AIMessage(
        "",
        tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c", "type": "tool_call"}],
        additional_kwargs={"x": 1},
    )
    assert decode({"role": "developer", "content": "x"}) == lc.SystemMessage(
        "x", additional_kwargs={"__openai_role__": "developer"}
    )
    assert decode({"role": "critic", "content": "x"}) == lc.ChatMessage("x", role="critic")
    assert decode({"content": {"a": 1}}) == lc.HumanMessage('{"a":1}')
    assert decode({}) == lc.HumanMessage("")


@pytest.mark.parametrize("role", ["user", "assistant", "tool", "system", "function", "critic"])
def test_null_means_not_there(role: str):
    """cases/sessions.md 23: a null field of another program is its default, and can be sent."""
    nothing = dict.fromkeys(
        [
            "content",
            "name",
            "tool_calls",
            "tool_call_id",
            "id",
            "additional_kwargs",
            "usage_metadata",
        ]
    )
    message = decode({"role": role, **nothing})
    assert message.content == ""
    assert isinstance(message.additional_kwargs, dict)
    assert getattr(message, "tool_calls", []) == []
    assert json.loads(message.model_dump_json())["content"] == ""


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", "5", None, 7])
def test_arguments_that_are_no_object_are_invalid_calls(arguments: Any):
    """What a model wrote wrongly is kept as an invalid call; nothing at all means no arguments."""
    call = {"id": "c", "function": {"name": "f", "arguments": arguments}}
    message = decode({"role": "assistant", "content": "", "tool_calls": [call]})
    assert isinstance(message, lc.AIMessage)
    if arguments == "":
        assert message.tool_calls == [{"name": "f", "args": {}, "id": "c", "type": "tool_call"}]
    else:
        assert message.tool_calls == []
        assert message.invalid_tool_calls[0]["args"] == str(arguments)
        assert message.invalid_tool_calls[0]["id"] == "c"


@pytest.mark.parametrize("calls", ["text", {"a": 1}, 7, [None, "x", 3], [{"function": None}]])
def test_tool_calls_of_another_shape_do_not_break_reading(calls: Any):
    """cases/sessions.md 23: whatever a file holds as tool calls, the message can be read."""
    message = decode({"role": "assistant", "content": "x", "tool_calls": calls})
    assert message.content == "x"
    assert decode({"role": "user", "content": "x", "tool_calls": calls}).content == "x"


@pytest.mark.parametrize("function", ["f", None, 5, {"name": None, "arguments": None}])
def test_a_malformed_call_of_another_program_is_no_error(function: Any):
    """cases/sessions.md 23: whatever stands in place of a call's function, the message is read."""
    record = {
        "role": "assistant",
        "content": "x",
        "tool_calls": [{"id": "1", "function": function}],
    }
    message = decode(record)
    assert message.content == "x"
    assert not message.tool_calls
    assert len(message.invalid_tool_calls) == 1
