"""Values and message records without what is sensitive, for sessions that are redacted too.

Texts are looked at wherever they lie in plain data, in messages, and in the fields of models,
dataclasses and LangGraph's own objects. A text behind a name is looked at with its name, which
may tell what it is: ``{"password": "..."}``. What has nothing to redact is the same object
afterwards; what has is a copy. Of other objects nothing is known.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
from collections import deque
from collections.abc import Container, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage
from langgraph.types import Interrupt, Overwrite, Send
from pydantic import BaseModel, SecretStr

from langchain_nanomem.session import parse_timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_nanomem.journal import Record

_RECORD_KEPT = frozenset({"_type", "_class", "id", "role", "tool_call_id"})
_MESSAGE_KEPT = frozenset({"id", "role", "type", "status", "tool_call_id"})
_CALLS = ("tool_calls", "invalid_tool_calls", "tool_call_chunks", "_calls")
_REFERENCES = frozenset({"id", "call_id", "tool_call_id", "tool_use_id"})
_ARGUMENTS = frozenset({"args", "arguments"})
_NEUTRAL = frozenset({"content", "role", "text", "type"})
"""Names that tell nothing of what is behind them."""
_MOST_BITS = 1024


def redacted_record(record: Record, redact: Callable[[str], str]) -> Record:
    """A message record whose texts and names went through `redact`, however deep they lie.

    What ties it to others (its id, role and time, and the ids of tool calls) is as it was.
    """
    return _Redacting(redact, _call_ids(record)).fields(record, _RECORD_KEPT)


def redacted_value(value: Any, redact: Callable[[str], str], name: str = "") -> Any:
    """A value whose texts went through `redact`, as far as anything is known of its parts.

    Args:
        value: The value.
        redact: What they go through.
        name: What it stands behind, where that may tell what it is.
    """
    redacting = _Redacting(redact)
    if name and type(value) is str:
        return redacting.named_text(name, value)
    return redacting.value(value)


def redacted_fields(
    fields: Mapping[str, Any], redact: Callable[[str], str], kept: Container[str]
) -> dict[str, Any]:
    """The same of fields, but those of these names."""
    return _Redacting(redact).fields(fields, kept)


def free_name(name: Any, taken: Container[Any]) -> Any:
    """`name`, or one like it that isn't taken: different texts may have the same mark."""
    if name not in taken:
        return name
    return next(one for n in itertools.count(2) if (one := f"{name} ({n})") not in taken)


def _call_ids(fields: Mapping[str, Any]) -> frozenset[str]:
    """The ids of a message's tool calls: a provider wants them back wherever they stand."""
    calls = itertools.chain.from_iterable(
        one for name in _CALLS if isinstance(one := fields.get(name), list)
    )
    ids = [call.get("id") for call in calls if isinstance(call, Mapping)]
    return frozenset(one for one in (*ids, fields.get("tool_call_id")) if isinstance(one, str))


class _Redacting:
    """Redacts what belongs together.

    Args:
        redact: What each text goes through.
        call_ids: Tool calls' ids, which stay.
        numbers: Whether whole numbers are looked at as texts: where a model wrote them. In a
            graph's state another type would break more than it hides.
    """

    def __init__(
        self,
        redact: Callable[[str], str],
        call_ids: frozenset[str] = frozenset(),
        *,
        numbers: bool = False,
    ) -> None:
        self._redact = redact
        self._call_ids = call_ids
        self._numbers = numbers

    def value(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, float, bytes, Enum)):
            return value
        if isinstance(value, str):
            return self._redact(value)
        if isinstance(value, int):
            return self.number("", value)
        if isinstance(value, dict):
            return self._dict(value)
        if isinstance(value, (list, tuple, set, frozenset, deque)):
            return self._items(value)
        return self._object(value)

    def fields(self, fields: Mapping[str, Any], kept: Container[str] = ()) -> dict[str, Any]:
        """All fields, those of these names as they are; no two are under one mark."""
        clean: dict[Any, Any] = {}
        for name, item in fields.items():
            shown = name if name in kept else free_name(self.value(name), clean)
            clean[shown] = item if name in kept else self._behind(shown, item)
        return clean

    def _dict(self, value: dict[Any, Any]) -> Any:
        given = dict(value)  # another thread may add to it
        clean = self.fields(given)
        if _are_same(clean, given) and _are_same(clean.values(), given.values()):
            return value
        if type(value) is dict:
            return clean
        again = copy.copy(value)  # such as a defaultdict
        again.clear()
        again.update(clean)
        return again

    def _items(self, value: Any) -> Any:
        items = list(value)
        clean = [self.value(item) for item in items]
        if _are_same(clean, items):
            return value
        if isinstance(value, deque):
            return deque(clean, value.maxlen)
        if hasattr(value, "_make"):
            return value._make(clean)
        return next(kind for kind in _MANY if isinstance(value, kind))(clean)

    def _behind(self, name: Any, item: Any) -> Any:
        """What stands behind a name."""
        if not isinstance(name, str):
            return self.value(item)
        is_of_call = name in _ARGUMENTS or (name == "input" and self._call_ids)
        redacting = self._with_numbers() if is_of_call else self
        if isinstance(item, str) and not isinstance(item, Enum):
            return redacting.named_text(name, item)
        if type(item) is int:
            return redacting.number(f'"{name}": ', item)
        return redacting.value(item)

    def named_text(self, name: str, text: str) -> str:
        is_reference = name in _REFERENCES and text in self._call_ids
        if is_reference or (name == "timestamp" and parse_timestamp(text)):
            return text
        clean = self._json(text) if name in _ARGUMENTS else self._redact(text)
        if name in _NEUTRAL or name in _ARGUMENTS:
            return clean
        before = f'"{name}": "'
        shown = self._redact(f'{before}{clean}"')
        return clean if shown == f'{before}{clean}"' else _between(shown, before, '"')

    def _json(self, text: str) -> str:
        """A tool call's arguments: JSON stays JSON."""
        try:
            parsed = json.loads(text, object_pairs_hook=_with_each_once)
        except (ValueError, RecursionError):
            return self._redact(text)
        if not isinstance(parsed, (dict, list)):
            return self._redact(text)
        clean = self.value(parsed)
        return (
            text
            if clean is parsed
            else json.dumps(clean, ensure_ascii=False, separators=(",", ":"))
        )

    def number(self, before: str, value: int) -> Any:
        if not self._numbers or value.bit_length() > _MOST_BITS:
            return value
        digits = str(int(value))
        shown = self._redact(before + digits)
        return value if shown == before + digits else _between(shown, before, "")

    def _with_numbers(self) -> _Redacting:
        return _Redacting(self._redact, self._call_ids, numbers=True)

    def _object(self, value: Any) -> Any:
        if isinstance(value, BaseMessage):
            redacting = _Redacting(self._redact, _call_ids(value.__dict__))
            return redacting._with_fields(value, _MESSAGE_KEPT)
        if isinstance(value, SecretStr):
            clean = self.named_text("secret", value.get_secret_value())
            return value if clean == value.get_secret_value() else type(value)(clean)
        if isinstance(value, BaseException):
            told = repr(value)  # LangGraph's serializer writes this
            clean = self._redact(told)
            return value if clean == told else clean
        return self._with_fields(value)

    def _with_fields(self, value: Any, kept: Container[str] = ()) -> Any:
        """An object like `value`, made without asking its class: its checks were for the text."""
        changed = {
            name: clean
            for name, item in _fields_of(value)
            if name not in kept and (clean := self._behind(name, item)) is not item
        }
        if not changed:
            return value
        again = copy.copy(value)
        extra = getattr(again, "__pydantic_extra__", None) or {}
        for name, item in changed.items():
            if name in extra:
                extra[name] = item
            else:
                object.__setattr__(again, name, item)
        return again


_MANY = (list, tuple, set, frozenset)


def _fields_of(value: Any) -> Iterable[tuple[str, Any]]:
    """Names and values of what can be told apart in an object."""
    if isinstance(value, (Interrupt, Overwrite)):
        return [("value", value.value)]
    if isinstance(value, Send):
        return [("arg", value.arg)]
    if isinstance(value, BaseModel):
        return [*value.__dict__.items(), *(value.__pydantic_extra__ or {}).items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return [(name, getattr(value, name)) for name in names if hasattr(value, name)]
    return ()


def _are_same(some: Iterable[Any], others: Iterable[Any]) -> bool:
    return all(one is other for one, other in zip(some, others, strict=False))


def _between(text: str, before: str, behind: str) -> str:
    """A redacted text without what was put around it; that may have gone with it."""
    return text.removeprefix(before).removesuffix(behind)


def _with_each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a name stands twice")
    return found
