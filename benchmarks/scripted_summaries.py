"""A model that consolidates with what it is told to say."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

_MOST_FACTS = 60


class RecordedSummary(BaseChatModel):
    """Answers each consolidation with one entry, and the newest of its facts."""

    entry: str = ""
    facts: list[str] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "recorded"

    def bind_tools(self, tools: Any, **_: Any) -> Any:  # noqa: ARG002 - the base class's form
        """The model itself: it knows no other answer than that call."""
        return self

    def _generate(
        self,
        messages: list[BaseMessage],  # noqa: ARG002 - the base class's form
        stop: list[str] | None = None,  # noqa: ARG002 - the base class's form
        run_manager: Any = None,  # noqa: ARG002 - the base class's form
        **_: Any,
    ) -> ChatResult:
        memory = "\n".join(f"- {fact}" for fact in self.facts[-_MOST_FACTS:])
        args = {"history_entry": self.entry or "They talked.", "memory_update": memory or "-"}
        call = {"name": "save_memory", "args": args, "id": "call_recorded"}
        return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=[call]))])
