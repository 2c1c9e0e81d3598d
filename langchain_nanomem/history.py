"""LangChain's chat history over a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage, RemoveMessage
from typing_extensions import override

from langchain_nanomem.codec import decode
from langchain_nanomem.values import copy_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_nanomem.manager import SessionManager


class NanomemChatMessageHistory(BaseChatMessageHistory):
    """The full log of a session, for `RunnableWithMessageHistory` and the like.

    It never shrinks, also when messages were consolidated: what a prompt shows of it is the
    work of `MemoryPrompt`. Safe between threads and processes; every call sees what others
    wrote. The asynchronous methods are those of the base class, which run these in a thread.

    Args:
        session_id: The session's key.
        sessions: Where the sessions are kept.
    """

    def __init__(self, session_id: str, sessions: SessionManager) -> None:
        super().__init__()
        self.session_id = session_id
        self.sessions = sessions

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # the base class allows a property
        """All messages, oldest first; of a graph's thread, those of its newest checkpoint."""
        with self.sessions.reading(self.session_id) as records:
            return [decode(copy_record(record)) for record in records.messages(records.view())]

    @override
    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages, in one write. One whose id is there already is skipped if equal.

        Raises:
            ValueError: A message of the same id differs, one can't be stored, one is a
                `RemoveMessage`, or the session is a graph's thread. Nothing was written.
        """
        if any(isinstance(message, RemoveMessage) for message in messages):
            raise ValueError(
                "a RemoveMessage is for a graph's state; a history is only ever appended to. "
                "clear() empties it."
            )
        self.sessions.append_messages(self.session_id, messages)

    @override
    def clear(self) -> None:
        """Remove all text of the session from the disk: messages, and checkpoints of its thread.

        What was already consolidated stays in MEMORY.md and HISTORY.md.
        """
        self.sessions.erase(self.session_id)
