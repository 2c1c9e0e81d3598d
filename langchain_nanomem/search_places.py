"""Where the search indexes lie, which session is in which, and how one that is gone leaves them."""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
from typing import TYPE_CHECKING

from langchain_nanomem.journal import Bound, JournalState
from langchain_nanomem.scope_names import scope_name
from langchain_nanomem.search_file import SearchFile, wipe_removed
from langchain_nanomem.search_file_tables import forget_source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

logger = logging.getLogger(__name__)

_DIRECTORY = ".search"
_OWN = "+workspace"
"""The workspace's own scope. The name of no other begins with a plus."""
LOG = "+history"
"""The name of the event log among the sources: no file of a session is called so."""

_TABLE = (
    "CREATE TABLE IF NOT EXISTS sessions("
    "name TEXT PRIMARY KEY, key TEXT NOT NULL, scope TEXT NOT NULL, state TEXT NOT NULL)"
)


def bound_in(connection: sqlite3.Connection) -> dict[str, Bound]:
    """Whose each session is, by the name of its journal."""
    connection.execute(_TABLE)
    rows = connection.execute("SELECT name, key, scope, state FROM sessions").fetchall()
    return {
        name: Bound(json.loads(key), tuple(json.loads(scope)), JournalState(*json.loads(state)))
        for name, key, scope, state in rows
    }


def put_bound(connection: sqlite3.Connection, bound: Mapping[str, Bound]) -> None:
    """Note whose sessions are, by the names of their journals."""
    connection.execute(_TABLE)
    connection.executemany(
        "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?)",
        [(name, *map(json.dumps, one)) for name, one in bound.items()],
    )


def search_path(workspace: Path, scope: tuple[str, ...]) -> Path:
    """The index of a scope."""
    return _index_path(workspace, scope_name(scope))


def _index_path(workspace: Path, name: str) -> Path:
    return workspace / _DIRECTORY / f"{name or _OWN}.sqlite"


def sessions_path(workspace: Path) -> Path:
    """What is known of whose each session is."""
    return workspace / _DIRECTORY / "+sessions.sqlite"


def forget_session(workspace: Path, name: str) -> None:
    """Have no index hold anything of a session that is gone.

    Where it can't be taken out of an index, the whole index goes: it is built anew.

    Raises:
        OSError: It can't be removed.
    """
    directory = workspace / _DIRECTORY
    if not directory.is_dir():
        return
    try:
        scopes = {(), _scope_of(sessions_path(workspace), name)}
        for index in (search_path(workspace, scope) for scope in scopes):
            if index.exists():
                _forget(index, name)
    except sqlite3.Error as error:
        logger.info("%s: all indexes go: %s", directory, error)
        for path in directory.iterdir():
            path.unlink(missing_ok=True)


def forget_log(workspace: Path, name: str) -> None:
    """Have the index of a scope hold nothing of its log: the next search reads that anew.

    Args:
        workspace: The directory of the memory.
        name: The scope's `scope_name`.

    Raises:
        OSError: The log can't be taken out of it, and it can't be removed.
    """
    path = _index_path(workspace, name)
    if path.exists():
        _forget(path, LOG)


def _scope_of(path: Path, name: str) -> tuple[str, ...]:
    """Whose the session was, as far as that is known; it is forgotten."""
    with contextlib.closing(SearchFile(path)) as file:
        with file.writing() as connection:
            bound = bound_in(connection).get(name)
            connection.execute("DELETE FROM sessions WHERE name=?", (name,))
        wipe_removed(file)
    return () if bound is None else bound.scope


def _forget(path: Path, name: str) -> None:
    with contextlib.closing(SearchFile(path)) as file:
        try:
            forget_source(file, name)
        except sqlite3.Error as error:
            logger.info("%s goes as a whole: %s", path, error)
            file.remove()
