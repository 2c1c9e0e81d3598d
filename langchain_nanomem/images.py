"""What a message or a list element was when it was last looked at, to the last detail.

A program may edit a message in place, and `==` takes 1, 1.0 and True for equal. An image
notices every change: text is compared as Python does it (which is free where it is the same
object), everything nested by its `marshal` bytes, which tell types and orders apart.
"""

from __future__ import annotations

import hashlib
import marshal
from functools import cache
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.messages import BaseMessage

from langchain_nanomem.codec import construct, decode_told, default_fields, is_known_class
from langchain_nanomem.values import is_plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_nanomem.journal import Record

CONTAINERS = frozenset({dict, list})
SCALARS = frozenset({str, int, float, bool, type(None)})
fields_of = attrgetter("__dict__")
extra_of = attrgetter("__pydantic_extra__")
_MARSHAL_VERSION = 2
"""The last one whose bytes depend on nothing but the value: no references to shared parts."""
_LONG = 1_024
"""Texts that are longer, such as images in base64, are compared by `==` alone."""
_HEADER_BYTES = len(marshal.dumps([], _MARSHAL_VERSION))
_SIMPLE_ROLES = frozenset({"user", "assistant", "system"})
_SIMPLE = frozenset({"role", "content", "timestamp", "id"})


class Image(NamedTuple):
    """An element as it was, and how to make another one that shares nothing it could change."""

    cls: type[Any]
    content: Any
    """A message's fields, never to be handed out; or the element itself, copied if it is nested."""
    nested: tuple[str, ...] | None
    """The names of a message's fields that are dictionaries or lists; None for what is none."""
    pick: Callable[[Any], Any] | None
    """Gets the part of the content for which `==` isn't enough; None where it is."""

    @property
    def grab(self) -> Callable[[Any], Any] | None:
        """Gets all fields of a message that are dictionaries or lists; None for what is none."""
        return None if self.nested is None else _grab_of(self.nested)

    def again(self) -> Image:
        """The same, with its fields in another place of the memory."""
        return self if self.nested is None else self._replace(content=self.content.copy())

    def name(self) -> bytes:
        """A short name for class and content."""
        return hashlib.blake2b(
            self.cls.__name__.encode() + exact([self.content]), digest_size=16
        ).digest()

    def is_of(self, element: Any) -> bool:
        """Whether `element` is now, in class and content, what this was made of."""
        if type(element) is not self.cls or has_extra(element):
            return False
        return self.is_content(content_of(element))

    def equals(self, other: Image, *, but: str | None = None) -> bool:
        """Whether both are of the same class and content, but perhaps for the field `but`."""
        if self.cls is not other.cls:
            return False
        if but is None:
            return self.is_content(other.content)
        return isinstance(other.content, dict) and self.is_content(
            {**other.content, but: self.content.get(but)}
        )

    def is_content(self, content: Any) -> bool:
        """Whether `content`, of an element of this class, is what this was made of."""
        try:
            if content != self.content:
                return False
            pick = self.pick
            return pick is None or exact([pick(content)]) == exact([pick(self.content)])
        except Exception:  # noqa: BLE001 - whatever a foreign object in it raises when compared
            return False

    def fresh(self) -> Any:
        """A new element of this content, which shares nothing that could be changed in place."""
        if self.nested is None:
            return _fresh(self.content)
        fields = self.content.copy()
        for name in self.nested:
            value = fields[name]
            fields[name] = _fresh(value) if value else type(value)()
        return construct(self.cls, fields, {})


def image_of(element: Any) -> Image | None:
    """The image of an element; None of one that can't be compared well: look at it anew each time.

    That are objects that are no message of LangChain's own, and what holds such objects.
    """
    cls = type(element)
    try:
        if cls in SCALARS:
            pick = _itself if cls is float else None  # 0.0 equals -0.0
            return Image(cls, element, None, pick) if is_plain(element) else None
        if cls in CONTAINERS:
            frozen = _frozen(element)
            return Image(cls, frozen, None, _pick_of(frozen)) if is_plain(frozen) else None
        if not is_known_class(cls) or has_extra(element):
            return None
        return _image_of_fields(cls, _NOTHING, element.__dict__)
    except RecursionError:
        return None


def image_of_record(record: Record) -> Image | None:
    """The image of the message that a record stands for."""
    role, message_id = record.get("role"), record.get("id")
    if record.keys() <= _SIMPLE and {type(record.get("content")), type(role)} == {str}:
        default = _simple_default(role)
        if default is not None and (message_id is None or type(message_id) is str):
            content = default.content.copy()
            content["content"] = record["content"]
            content["id"] = message_id
            return Image(default.cls, content, default.nested, None)
    cls, told, extra = decode_told(record)
    return None if extra else _image_of_fields(cls, _frozen_defaults(cls), told)


@cache
def _simple_default(role: str | None) -> Image | None:
    """What a message of this role is when it has nothing but text and id."""
    cls, told, _ = decode_told({"role": role, "content": ""})
    return _image_of_fields(cls, _frozen_defaults(cls), told) if role in _SIMPLE_ROLES else None


@cache
def _frozen_defaults(cls: type[BaseMessage]) -> Image:
    """The image of a message of which nothing is told."""
    fields = default_fields(cls)
    content = {name: _frozen(value) for name, value in fields.items()}
    nested = tuple(name for name, value in fields.items() if type(value) in CONTAINERS)
    return Image(cls, content, nested, None)


def _image_of_fields(cls: type[Any], default: Image, fields: dict[str, Any]) -> Image | None:
    """The image of a message that has these fields, and for the rest those of `default`."""
    content = default.content.copy()
    picked: list[str] = []
    for name, given in fields.copy().items():
        kind = type(given)
        if kind is str or given is None:
            content[name] = given
            continue
        content[name] = value = _frozen(given)
        if not is_plain(value):
            return None
        if value or kind not in CONTAINERS:
            picked.append(name)
    if len(content) != len(cls.model_fields):
        return None
    nested = tuple(name for name, value in content.items() if type(value) in CONTAINERS)
    return Image(cls, content, nested, _pick_fields(content, picked) if picked else None)


def _pick_fields(content: dict[str, Any], names: list[str]) -> Callable[[Any], Any]:
    """Gets these fields of a message, long texts in them left out."""
    get = itemgetter(*names)
    has_long = _pick_of([content[name] for name in names]) is _without_long
    return (lambda fields: _without_long(get(fields))) if has_long else get


def _pick_of(value: Any) -> Callable[[Any], Any]:
    """Gets a nested value itself, or it without its long texts, if it has any.

    A conversation with images would else be copied at each turn to compare their types.
    """
    is_long = len(exact([value])) > _LONG and value != _without_long(value)
    return _without_long if is_long else _itself


def _without_long(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {name: _without_long(item) for name, item in value.items()}
    if kind is list or kind is tuple:
        return [_without_long(item) for item in value]
    return None if kind is str and len(value) > _LONG else value


@cache
def _grab_of(names: tuple[str, ...]) -> Callable[[Any], Any]:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda fields: [fields[name] for name in names]  # `itemgetter` would make no sequence


def _itself(content: Any) -> Any:
    return content


_NOTHING = Image(BaseMessage, {}, (), None)
_EMPTY_DICT: dict[str, Any] = {}
_EMPTY_LIST: list[Any] = []


def _frozen(value: Any) -> Any:
    """A copy that nobody else can change; empty ones are one and the same.

    Where the program changes the value meanwhile, it is a copy of some state of each part.
    """
    if type(value) is dict:
        items = value.copy().items() if value else ()
        return {name: _frozen(item) for name, item in items} if items else _EMPTY_DICT
    if type(value) is list:
        return [_frozen(item) for item in value] if value else _EMPTY_LIST
    return value


def _fresh(value: Any) -> Any:
    if type(value) is dict:
        return {name: _fresh(item) for name, item in value.items()}
    if type(value) is list:
        return [_fresh(item) for item in value]
    return value


def content_of(element: Any) -> Any:
    """What an image compares: a message's fields, or any other element itself."""
    return element.__dict__ if isinstance(element, BaseMessage) else element


def has_extra(element: Any) -> bool:
    """Whether it is a message with fields that its class doesn't have."""
    return isinstance(element, BaseMessage) and bool(element.__pydantic_extra__)


def exact(values: list[Any]) -> bytes:
    """Bytes that are the same for the same values only, types and orders included.

    Those of two lists behind each other are those of both lists joined.

    Raises:
        ValueError: One of them is no plain data.
    """
    return marshal.dumps(values, _MARSHAL_VERSION)[_HEADER_BYTES:]
