"""A chat model that answers what a test tells it to."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

from langchain_nanomem.consolidation import MemoryConsolidator
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.memory import MemoryStore
from langchain_nanomem.postgres_journal import PostgresJournal
from langchain_nanomem.tokens import TokenCounter
from langchain_nanomem.workspaces import open_workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from langchain_nanomem.consolidation import Consolidation
    from langchain_nanomem.session import Session

LONG = " word" * 90
COUNTER = TokenCounter()  # one for all: it takes a while to load
FREE: dict[str, Any] = {
    "max_completion_tokens": 0,
    "safety_margin_tokens": 0,
    "token_counter": COUNTER,
}
"""All of the window is the budget."""
BEGIN = datetime(2026, 5, 8, 13, 0, tzinfo=UTC)


def flat_tokens(messages: Sequence[BaseMessage]) -> int:
    """A token counter: 100 for each message that is no system message."""
    return 100 * sum(message.type != "system" for message in messages)


def talk(session: Session, letters: str) -> Session:
    """Add a message for each letter: S, U, A; C calls a tool, T is its result.

    Each says its letter and place, as "u0", and is a minute later than the one before.
    """
    roles = {"S": "system", "U": "user", "A": "assistant", "C": "assistant", "T": "tool"}
    for letter in letters:
        place = len(session.messages)
        fields: dict[str, Any] = {"timestamp": BEGIN + timedelta(minutes=place)}
        if letter == "C":
            function = {"name": "look", "arguments": "{}"}
            fields["tool_calls"] = [{"id": f"c{place}", "type": "function", "function": function}]
        if letter == "T":
            fields |= {"tool_call_id": f"c{place - 1}", "name": "look"}
        session.add_message(roles[letter], f"{letter.lower()}{place}", **fields)
    return session


def save_memory(entry: Any = "entry", update: Any = "- fact", **fields: Any) -> AIMessage:
    """A call of save_memory, as a provider gives it."""
    args = {"history_entry": entry, "memory_update": update} | fields
    return AIMessage("", tool_calls=[{"name": "save_memory", "args": args, "id": "call_save"}])


class ScriptedChatModel(BaseChatModel):
    """Gives the replies in their order, the last one for ever; an exception is raised.

    A reply may be a message, a text, an exception, or a function of the messages to one of
    these. What it was asked is in `prompts`, the options of each call in `options`.
    """

    replies: list[Any]
    prompts: list[list[BaseMessage]] = Field(default_factory=list)
    options: list[dict[str, Any]] = Field(default_factory=list)

    def __repr__(self) -> str:
        """Short: LangChain makes one of each model that is called, for its callbacks."""
        return f"{type(self).__name__}()"

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def calls(self) -> int:
        return len(self.prompts)

    def bind_tools(self, tools: Any, *, tool_choice: Any = None, **kwargs: Any) -> Any:
        return self.bind(tools=tools, tool_choice=tool_choice, **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: Any = None,  # noqa: ARG002 - its base's form
        run_manager: Any = None,  # noqa: ARG002 - its base's form
        **kwargs: Any,
    ) -> ChatResult:
        self.prompts.append(messages)
        self.options.append(kwargs)
        reply = self.replies[min(self.calls, len(self.replies)) - 1]
        if callable(reply) and not isinstance(reply, (type, BaseMessage)):
            reply = reply(messages)
        if isinstance(reply, BaseException):
            raise reply
        message = AIMessage(reply) if isinstance(reply, str) else reply.model_copy(deep=True)
        return ChatResult(generations=[ChatGeneration(message=message)])


def consolidator_of(
    path: Path, *replies: Any, window: int = 200, **options: Any
) -> MemoryConsolidator:
    """A consolidator of a workspace, as a process has it that starts now.

    Messages count 100 tokens each, and all of the window is the budget, unless `options` say
    otherwise. The sessions are in the same place, unless a `journal` is given; in a database
    the memory is beside them.
    """
    journal = options.pop("journal", path)
    memory = open_workspace(journal).memory if isinstance(journal, PostgresJournal) else path
    model = options.pop("model", ScriptedChatModel(replies=list(replies) or [save_memory()]))
    exact: dict[str, Any] = {
        "max_completion_tokens": 0,
        "safety_margin_tokens": 0,
        "token_counter": flat_tokens,
    }
    return MemoryConsolidator(
        SessionManager(journal),
        MemoryStore(memory),
        model,
        context_window_tokens=window,
        **(exact | options),
    )


def consolidate_in(colour: str) -> Callable[..., list[Consolidation]]:
    """A function that consolidates a session, or compacts it, in the "sync" or "async" colour."""

    def run(
        consolidator: MemoryConsolidator,
        session: Any,
        *,
        how: str = "maybe_consolidate_by_tokens",
        **options: Any,
    ) -> list[Consolidation]:
        if colour == "sync":
            done: list[Consolidation] = getattr(consolidator, how)(session, **options)
            return done
        return asyncio.run(getattr(consolidator, f"a{how}")(session, **options))

    return run


KEY = "cli:user"


def facts(consolidator):
    """77 messages with 40 facts: 38 turns and a last question."""
    session = session_of(consolidator)
    for i in range(38):
        more = f" and fact-{38 + i}-here" if i < 2 else ""
        session.add_message("user", f"Please note fact-{i}-here{more}. " + "Some more words. " * 6)
        session.add_message("assistant", f"Noted number {i}. " + "It was a pleasure. " * 6)
    session.add_message("user", "What do you know?")
    return session


def ranges(done):
    return [(one.start, one.end) for one in done]


def session_of(consolidator, letters="", key=KEY):
    return talk(consolidator.sessions.get_or_create(key), letters)


def shown(model):
    """The text of each question that the model was asked."""
    return [prompt[1].content for prompt in model.prompts]


def texts(consolidator):
    return [entry.text for entry in consolidator.memory.history_entries()]


def recorded(mem, key="t"):
    """The messages in the session's file, by their ids."""
    with mem.sessions.reading(key) as records:
        lines = [records.message(number) for number in records.line_numbers]
        return {line["id"]: line["content"] for line in lines if "id" in line}


def consolidated(mem, key="t"):
    """The ids of each range that went into memory."""
    with mem.sessions.reading(key) as records:
        return [record["ids"] for record in records.consolidations]
