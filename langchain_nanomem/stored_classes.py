"""A saver that refuses what it could only give back as something else.

LangGraph's serializer gives plain data in place of an object whose class it can't import, or
is not allowed to. A graph may get along with that; who copies it loses the object for good.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import threading
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.event_hooks import register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import EXT_NUMPY_ARRAY, JsonPlusSerializer

from langchain_nanomem.errors import MigrationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.checkpoint.serde.event_hooks import SerdeEvent


def with_all_classes(saver: BaseCheckpointSaver[Any]) -> BaseCheckpointSaver[Any]:
    """A shallow copy of `saver` that gives every object as itself, or raises.

    A saver with a serializer that is not LangGraph's is given back as it is.
    """
    serde = _checked(saver.serde)
    if serde is None:
        return saver
    strict = copy.copy(saver)
    strict.serde = serde
    return strict


def _checked(serde: SerializerProtocol) -> SerializerProtocol | None:
    if isinstance(serde, EncryptedSerializer):
        inner = _checked(serde.serde)
        return inner and EncryptedSerializer(serde.cipher, inner)
    return ClassChecker(serde) if isinstance(serde, JsonPlusSerializer) else None


class ClassChecker:
    """LangGraph's serializer, that raises where it would give another object than was stored."""

    def __init__(self, serde: JsonPlusSerializer) -> None:
        self._serde = serde

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """`obj` as the serializer makes it."""
        return self._serde.dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """The object.

        Raises:
            MigrationError: A class in it can't be imported, or the serializer refuses it.
        """
        with _refusals() as refused:
            value = self._serde.loads_typed(data)
        if refused:
            raise MigrationError(
                f"the serializer refuses {', '.join(refused)}, so what was stored of it would be "
                "lost. Allow it with allowed_msgpack_modules, or unset LANGGRAPH_STRICT_MSGPACK."
            )
        if data[0] == "msgpack" and (missing := _missing_classes(data)):
            raise MigrationError(
                f"{', '.join(missing)} cannot be imported here, so what was stored of it would be "
                "lost. Import where the graph's own code can be imported (PYTHONPATH)."
            )
        return value


def _missing_classes(data: tuple[str, bytes]) -> list[str]:
    """The names of all classes in data, loaded just now, whose module could not be imported."""
    missing: dict[str, None] = {}

    def look(code: int, content: bytes) -> None:
        found = scanner.loads_typed(("msgpack", content))
        if code == EXT_NUMPY_ARRAY:
            found = ("numpy", "ndarray")
        if code <= EXT_NUMPY_ARRAY and not _was_found(found[0], found[1]):
            missing[f"{found[0]}.{found[1]}"] = None

    scanner = JsonPlusSerializer(__unpack_ext_hook__=look)
    scanner.loads_typed(data)
    return list(missing)


def _was_found(module: str, name: str) -> bool:
    """Whether the class was there for the serializer as it is for the graph's own process.

    A module that was imported but has no such name, as of a class within another, lacks it
    there too. Nothing is imported for the question: stored data must not have that done.
    """
    if module == "__main__":
        return hasattr(sys.modules[module], name)
    return module in sys.modules


@contextlib.contextmanager
def _refusals() -> Iterator[list[str]]:
    """The names of the classes that the serializer refuses to this thread meanwhile."""
    refused: list[str] = []
    here = threading.get_ident()

    def note(event: SerdeEvent) -> None:
        if threading.get_ident() == here and event["kind"].endswith("_blocked"):
            refused.append(f"{event['module']}.{event['name']}")

    unregister = register_serde_event_listener(note)
    try:
        yield refused
    finally:
        unregister()
