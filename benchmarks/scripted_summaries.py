"""Models that consolidate with what was recorded."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

MOST_FACTS = 60


class Recorded(BaseChatModel):
    """Answers each consolidation with the entry and the memory that `_saved` gives."""

    @property
    def _llm_type(self) -> str:
        return "recorded"

    def bind_tools(self, tools: Any, **_: Any) -> Any:  # noqa: ARG002 - the base class's form
        """The model itself: it knows no other answer than that call."""
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - the base class's form
        run_manager: Any = None,  # noqa: ARG002 - the base class's form
        **_: Any,
    ) -> ChatResult:
        entry, lines = self._saved(str(messages[-1].content))
        args = {"history_entry": entry, "memory_update": "\n".join(lines[-MOST_FACTS:])}
        call = {"name": "save_memory", "args": args, "id": "call_recorded"}
        return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=[call]))])

    def _saved(self, question: str) -> tuple[str, list[str]]:
        """The entry, and the lines of the memory; the newest of them are kept."""
        raise NotImplementedError


class RecordedSummary(Recorded):
    """Answers with what it is told to say."""

    entry: str = ""
    facts: list[str] = Field(default_factory=list)

    def _saved(self, question: str) -> tuple[str, list[str]]:  # noqa: ARG002 - the same each time
        return self.entry or "They talked.", [f"- {fact}" for fact in self.facts] or ["-"]
