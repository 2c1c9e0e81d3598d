"""Scopes as names of files."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from urllib.parse import unquote

from langchain_nanomem.files import file_stem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_MAX_SCOPE_LENGTH = 200  # as for one file stem; the name of a lock must fit too


def checked_scope(scope: Sequence[str]) -> tuple[str, ...]:
    """`scope` as a tuple.

    Raises:
        ValueError: It is a string, or a part of it is no string, empty or not Unicode.
    """
    if isinstance(scope, str | bytes):
        raise ValueError(f"scope must be a sequence of strings, such as ({scope!r},)")  # noqa: TRY004 - wrong arguments are ValueError throughout this package
    for part in scope:
        if not isinstance(part, str) or not part:
            raise ValueError(f"each part of a scope must be a string with text, not {part!r}")
    return tuple(scope)


def scope_name(scope: tuple[str, ...]) -> str:
    """A directory name for `scope`; distinct scopes never share one. "" for the empty scope."""
    joined = "+".join(_part_stem(part) for part in scope)
    if len(joined) <= _MAX_SCOPE_LENGTH:
        return joined
    # "+~" occurs in no other name: no stem begins with a tilde
    return f"{joined[:120]}+~{hashlib.sha256(joined.encode()).hexdigest()[:40]}"


def known_scopes(workspace: Path) -> Iterator[tuple[str, ...]]:
    """The workspace's own scope, and those that have a directory of their memory.

    One with so long a name that its directory's is cut can't be told, and is left out.
    """
    yield ()
    directory = workspace / "memory" / "scopes"
    names = sorted(one.name for one in directory.iterdir()) if directory.is_dir() else []
    for name in names:
        scope = tuple(map(unquote, name.split("+")))
        if all(scope) and scope_name(scope) == name:
            yield scope


def _part_stem(part: str) -> str:
    stem = file_stem(part)
    return f"{stem[:-1]}%2e" if stem.endswith(".") else stem  # Windows drops a last dot
