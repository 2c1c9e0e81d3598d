"""Scopes as names of files."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from langchain_nanomem.files import file_stem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_MAX_SCOPE_LENGTH = 200  # as for one file stem; the name of a lock must fit too
_PART = re.compile(r"[a-z0-9_.%-]+")
_CUT_PART = re.compile(r"[a-z0-9_.%-]{120}~[0-9a-f]{40}")
_CUT_NAME = re.compile(r"[a-z0-9_.%+~-]{120}\+~[0-9a-f]{40}")


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


def scope_in(name: str) -> tuple[str, ...] | None:
    """The scope of a name; None where that is cut, so that nobody can tell."""
    if "~" in name:  # no other name has one
        return None
    return tuple(map(unquote, name.split("+"))) if name else ()


def scope_names(workspace: Path) -> Iterator[str]:
    """The names of the directories of all scopes, first "" for the workspace's own.

    What else lies among them, such as a person's copy of one, is left out.
    """
    yield ""
    directory = workspace / "memory" / "scopes"
    found = directory.iterdir() if directory.is_dir() else ()
    yield from sorted(one.name for one in found if _is_scope_name(one.name) and one.is_dir())


def _is_scope_name(name: str) -> bool:
    if _CUT_NAME.fullmatch(name):
        return True
    return len(name) <= _MAX_SCOPE_LENGTH and all(map(_is_part_stem, name.split("+")))


def _is_part_stem(stem: str) -> bool:
    if _CUT_PART.fullmatch(stem):
        return True
    return bool(_PART.fullmatch(stem)) and _part_stem(unquote(stem)) == stem


def _part_stem(part: str) -> str:
    stem = file_stem(part)
    return f"{stem[:-1]}%2e" if stem.endswith(".") else stem  # Windows drops a last dot
