"""Namespaces of a LangGraph store, and the scopes that they stand for. One to one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import unquote

from langgraph.store.base import GetOp, InvalidNamespaceError, validate_op_namespace

if TYPE_CHECKING:
    from langchain_nanomem.scopes import Scope

Kind = Literal["facts", "log"]
LOG = "history"


class Space(NamedTuple):
    """What a namespace has."""

    kind: Kind
    scope: Scope


class Spaces:
    """Which namespace is which scope's: ``("memories", "user", "42")`` that of ``("user", "42")``.

    The log of the same scope is ``("history", "user", "42")``. What a label can't have, and what
    it would be written with, is encoded: the user ``a.b`` is ``a%2eb``.

    Args:
        namespace: What those of facts begin with.

    Raises:
        ValueError: It is empty, or begins with what is LangGraph's or the log's.
    """

    def __init__(self, namespace: tuple[str, ...]) -> None:
        if not namespace or namespace[0] in {"langgraph", LOG}:
            raise ValueError(
                f"namespace must be there, and begin with neither 'langgraph' nor {LOG!r}: "
                f"{namespace}"
            )
        validate_op_namespace(GetOp(namespace, ""))
        self._facts = tuple(namespace)

    def of(self, kind: Kind, scope: Scope) -> tuple[str, ...]:
        """The namespace of a scope."""
        start = self._facts if kind == "facts" else (LOG,)
        return (*start, *map(_label, scope))

    def find(self, namespace: tuple[str, ...]) -> Space | None:
        """What a namespace has; None where it can have nothing of a memory."""
        kinds: tuple[Kind, ...] = ("facts", "log")
        for kind in kinds:
            start = self.of(kind, ())
            if namespace[: len(start)] == start:
                labels = namespace[len(start) :]
                scope = tuple(map(unquote, labels))
                return Space(kind, scope) if tuple(map(_label, scope)) == labels else None
        return None

    def must_find(self, namespace: tuple[str, ...]) -> Space:
        """What a namespace has.

        Raises:
            InvalidNamespaceError: It can have nothing of a memory.
        """
        if (found := self.find(namespace)) is None:
            start = "/".join(self._facts)
            raise InvalidNamespaceError(
                f"{namespace} is no memory: facts are below {start!r}, log entries below {LOG!r}, "
                "each followed by the parts of a scope, in which '%', '.' and NUL are written as "
                "%25, %2e and %00"
            )
        return found


def _label(part: str) -> str:
    return part.replace("%", "%25").replace(".", "%2e").replace("\0", "%00")
