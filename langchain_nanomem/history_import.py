"""The message history files of LangChain, read to become sessions."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from langchain_core.messages import messages_from_dict

from langchain_nanomem.errors import MigrationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from langchain_core.messages import BaseMessage

    from langchain_nanomem.manager import SessionManager

_NAMESPACE = uuid.UUID("6f1d9b8e-6d0a-4d5c-9d5e-3f7f8f4f1f10")


def import_histories(
    paths: Sequence[Path],
    sessions: SessionManager,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> int:
    """Append the messages of history files to sessions named as the files are.

    The files are those of LangChain's `FileChatMessageHistory`, which are only read. Imported
    again, a file adds what it has more than before.

    Args:
        paths: The files.
        sessions: Where they go.
        progress: Told which is read, how many were before it, and of how many.

    Returns:
        How many messages there are in them.

    Raises:
        MigrationError: A file is no such history, or a session has other messages than its file:
            nothing of this file was written, and all before it are imported.
        OSError: It could not be read or written.
    """
    total = 0
    for number, path in enumerate(paths):
        progress(path.stem, number, len(paths))
        messages = read_history(path)
        try:
            sessions.append_messages(path.stem, messages)
        except ValueError as error:
            raise MigrationError(f"{path}: {error}") from error
        total += len(messages)
    return total


def read_history(path: Path) -> list[BaseMessage]:
    """The messages of a history file. One without an id gets one by its place in it.

    Raises:
        MigrationError: It is no such history.
    """
    try:
        messages = messages_from_dict(_listed(json.loads(path.read_text(encoding="utf-8"))))
    except (ValueError, KeyError, TypeError) as error:
        raise MigrationError(f"{path} is no message history of LangChain: {error}") from error
    for place, message in enumerate(messages):
        message.id = message.id or str(uuid.uuid5(_NAMESPACE, f"{path.stem}/{place}"))
    return messages


def is_history(path: Path) -> bool:
    """Whether a file looks like one."""
    try:
        found = _listed(json.loads(path.read_text(encoding="utf-8")))
    except ValueError:
        return False
    return all({"type", "data"} <= one.keys() for one in found)


def _listed(found: Any) -> list[dict[str, Any]]:
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ValueError("it holds no list of messages")
    return found
