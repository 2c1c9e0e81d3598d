"""LangChain messages and readable records, each made from the other without loss.

A record is a dictionary in the form of OpenAI's chat messages (``role``, ``content``,
``name``, ``tool_calls``, ``tool_call_id``) and has, beside that, whatever LangChain's
message holds beyond it, under LangChain's own names.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import langchain_core.messages as lc
from pydantic import BaseModel

from langchain_nanomem.session import parse_timestamp, tool_calls_of, utc_now
from langchain_nanomem.values import dump_value, from_json, is_plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.messages import BaseMessage

_ROLES: dict[str, type[BaseMessage]] = {
    "user": lc.HumanMessage,
    "assistant": lc.AIMessage,
    "system": lc.SystemMessage,
    "tool": lc.ToolMessage,
    "function": lc.FunctionMessage,
    "remove": lc.RemoveMessage,
}
_CLASSES: dict[str, tuple[type[BaseMessage], str | None]] = {
    **{cls.__name__: (cls, role) for role, cls in _ROLES.items()},
    "ChatMessage": (lc.ChatMessage, None),
    "HumanMessageChunk": (lc.HumanMessageChunk, "user"),
    "AIMessageChunk": (lc.AIMessageChunk, "assistant"),
    "SystemMessageChunk": (lc.SystemMessageChunk, "system"),
    "ToolMessageChunk": (lc.ToolMessageChunk, "tool"),
    "FunctionMessageChunk": (lc.FunctionMessageChunk, "function"),
    "ChatMessageChunk": (lc.ChatMessageChunk, None),
}
_BOOKKEEPING = frozenset({"role", "timestamp", "_class", "_calls", "_extra"})
_OPENAI = ("name", "tool_calls", "tool_call_id")
# The slots of a pydantic model, set directly: its own ways would check what is whole already.
_new = object.__new__
_set_fields, _set_names, _set_extra, _set_private = (
    vars(BaseModel)[slot].__set__
    for slot in (
        "__dict__",
        "__pydantic_fields_set__",
        "__pydantic_extra__",
        "__pydantic_private__",
    )
)


def encode(message: BaseMessage) -> dict[str, Any]:
    """The record of `message`; `decode` makes an equal message of it.

    Raises:
        ValueError: Its class is not one of LangChain's own, or its tool calls are no calls, so it
            could not be made again.
    """
    return encode_fields(type(message), message.__dict__, message.__pydantic_extra__ or {})


def encode_fields(
    cls: type[BaseMessage], fields: Mapping[str, Any], extra: Mapping[str, Any]
) -> dict[str, Any]:
    """The record of a message that has these fields, as `encode` makes it.

    Raises:
        ValueError: Its class is not one of LangChain's own, or its tool calls are no calls, so it
            could not be made again.
    """
    if not is_known_class(cls):
        raise ValueError(
            f"a message of class {cls.__module__}.{cls.__qualname__} cannot be stored: only "
            "LangChain's own message classes can be restored. Convert it to one of them."
        )
    role = _CLASSES[cls.__name__][1]
    record: dict[str, Any] = {"role": role or fields["role"], "content": fields["content"]}
    if _class_by_role(record["role"] or "user") is not cls:
        record["_class"] = cls.__name__
    beyond = _beyond_defaults(cls, fields)
    if calls := beyond.pop("tool_calls", None):
        record |= _encode_tool_calls(calls)
    record |= {name: beyond.pop(name) for name in _OPENAI if name in beyond}
    record |= beyond
    if extra:
        record["_extra"] = dict(extra)
    return record


def is_whole(record: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    """Whether `decode` makes a message of these very fields of the record made of them.

    A program may set a field to what no such message can have: text to None, a type to another.
    """
    _, again, _ = decode_fields(record)
    return again.keys() == fields.keys() and all(
        again[name] is value or _is(value, again[name]) for name, value in fields.items()
    )


def is_known_class(cls: type[Any]) -> bool:
    """Whether it is one of LangChain's own message classes, exactly."""
    return _CLASSES.get(cls.__name__, (None, None))[0] is cls


def decode(record: Mapping[str, Any]) -> BaseMessage:
    """The message of a record, its own or one that another program wrote in OpenAI's form.

    Fields that no LangChain message has are kept in ``additional_kwargs``. Tool arguments
    that are not a JSON object become ``invalid_tool_calls``, as LangChain itself does it.
    """
    return construct(*decode_fields(record))


def construct(cls: type[BaseMessage], fields: dict[str, Any], extra: dict[str, Any]) -> BaseMessage:
    """A message that has these very fields, all of its class, as its own; nothing is checked."""
    message = _new(cls)
    _set_fields(message, fields)
    _set_names(message, _all_names(cls))
    _set_extra(message, extra)
    _set_private(message, None)
    return message


def decode_fields(
    record: Mapping[str, Any],
) -> tuple[type[BaseMessage], dict[str, Any], dict[str, Any]]:
    """Class, fields and further fields of the message that `decode` makes of a record."""
    cls, told, extra = decode_told(record)
    return cls, default_fields(cls) | told, extra


def default_fields(cls: type[BaseMessage]) -> dict[str, Any]:
    """What the fields of a message are that nothing is told of; new ones, that may be changed."""
    return {name: make() for name, make in _defaults(cls).items()}


def decode_told(
    record: Mapping[str, Any],
) -> tuple[type[BaseMessage], dict[str, Any], dict[str, Any]]:
    """Class, further fields, and of the fields those that the record tells something of."""
    role = str(record.get("role") or ("" if "_class" in record else "user"))
    cls = _class_of(record, role)
    names = _defaults(cls)
    told: dict[str, Any] = {"content": _content(record.get("content"))}
    foreign: dict[str, Any] = {}
    for name, value in record.items():
        if name in _BOOKKEEPING or name == "content":
            continue
        if name not in names or name == "type":
            foreign[name] = value
        elif value is not None:  # other programs write null for what is not there
            told[name] = value
    if cls is lc.ChatMessage or cls is lc.ChatMessageChunk:
        told["role"] = role
    elif role == "developer":
        foreign["__openai_role__"] = role  # LangChain's own mark for this role
    if told.get("tool_calls"):
        told |= _decode_tool_calls(record)
    if foreign:
        told["additional_kwargs"] = {**told.get("additional_kwargs", {}), **foreign}
    return cls, told, dict(record.get("_extra", ()))


def stamped(record: dict[str, Any]) -> dict[str, Any]:
    """With the time it was said: what the message itself tells, else the present.

    A message tells its time as ``additional_kwargs["timestamp"]``, in ISO 8601.
    """
    stamp = said_at(record.get("additional_kwargs"))
    return {"role": record["role"], "content": record["content"], "timestamp": stamp} | record


def said_at(additional_kwargs: Any) -> str:
    """When a message was said, by what it tells itself, else the present; in ISO 8601."""
    is_told = isinstance(additional_kwargs, Mapping)
    told = parse_timestamp(additional_kwargs.get("timestamp")) if is_told else None
    return (told or utc_now()).isoformat()


def _class_of(record: Mapping[str, Any], role: str) -> type[BaseMessage]:
    if known := _CLASSES.get(str(record.get("_class"))):
        return known[0]
    return _class_by_role(role)


def _class_by_role(role: str) -> type[BaseMessage]:
    return lc.SystemMessage if role == "developer" else _ROLES.get(role, lc.ChatMessage)


def _content(content: Any) -> str | list[Any]:
    if isinstance(content, (str, list)):
        return content
    return "" if content is None else dump_value(content, "content").decode()


@cache
def _all_names(cls: type[BaseMessage]) -> set[str]:
    """The names of all fields; one set serves all messages, for pydantic only adds such names."""
    return set(cls.model_fields)


@cache
def _defaults(cls: type[BaseMessage]) -> dict[str, Callable[[], Any]]:
    """A maker of the default of each field but the role; a required text defaults to ""."""
    return {
        name: _maker(field.default_factory, field.get_default() if not field.is_required() else "")
        for name, field in cls.model_fields.items()
        if name != "role"
    }


def _maker(factory: Any, default: Any) -> Callable[[], Any]:
    return factory or (lambda: default)


def _beyond_defaults(cls: type[BaseMessage], fields: Mapping[str, Any]) -> dict[str, Any]:
    defaults = _defaults(cls)
    return {
        name: value
        for name, value in fields.items()
        if name not in {"content", "type", "role"} and not _is(value, defaults[name]())
    }


def _is(value: Any, default: Any) -> bool:
    """Whether it is the default; only values of one class are asked, for some refuse to compare."""
    return type(value) is type(default) and bool(value == default)


def _encode_tool_calls(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """OpenAI's form of the calls; and the calls themselves where that form can't hold them."""
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise ValueError(f"tool_calls: {calls!r:.80} is no list of calls. Store calls, or none.")
    encoded = {"tool_calls": [_openai_call(call) for call in calls]}
    if not all(_is_regular(call) for call in calls):
        encoded["_calls"] = calls
    return encoded


def _is_regular(call: dict[str, Any]) -> bool:
    return (
        call.keys() == {"name", "args", "id", "type"}
        and call["type"] == "tool_call"
        and isinstance(call["args"], dict)
        and is_plain(call["args"])
    )


def _openai_call(call: dict[str, Any]) -> dict[str, Any]:
    arguments = dump_value(call.get("args"), "tool_calls").decode()
    return {
        "id": call.get("id"),
        "type": "function",
        "function": {"name": call.get("name"), "arguments": arguments},
    }


def _decode_tool_calls(record: Mapping[str, Any]) -> dict[str, Any]:
    if "_calls" in record:
        return {"tool_calls": record["_calls"]}
    valid, invalid = [], list(record.get("invalid_tool_calls", ()))
    for call in tool_calls_of(record):
        function = call.get("function")
        function = function if isinstance(function, Mapping) else {}
        name, call_id = str(function.get("name") or ""), call.get("id")
        args = _arguments(function.get("arguments"))
        if args is None:
            text = str(function.get("arguments"))
            error = "the arguments are not a JSON object"
            rest = {"error": error, "type": "invalid_tool_call"}
            invalid.append({"name": name, "args": text, "id": call_id, **rest})
        else:  # in the order of LangChain's own, so that a provider is sent the same text again
            valid.append({"name": name, "args": args, "id": call_id, "type": "tool_call"})
    return {"tool_calls": valid, "invalid_tool_calls": invalid}


def _arguments(arguments: Any) -> dict[str, Any] | None:
    if isinstance(arguments, str):
        try:
            arguments = from_json(arguments.encode("utf-8", "surrogatepass") or b"{}")
        except ValueError:
            return None
    return arguments if isinstance(arguments, dict) else None
