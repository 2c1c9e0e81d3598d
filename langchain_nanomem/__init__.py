"""Memory for LangChain and LangGraph agents that outlives the context window, in plain files."""

from typing import TYPE_CHECKING, Any

from langchain_nanomem.chain import MemoryChain
from langchain_nanomem.checkpoint import NanomemSaver
from langchain_nanomem.consolidation import Account, Consolidation, MemoryConsolidator
from langchain_nanomem.erasure import Erased
from langchain_nanomem.errors import (
    ConsolidationError,
    CopyError,
    CorruptRecordError,
    DatabaseError,
    MigrationError,
    NanomemError,
    RedactionError,
    ScopeError,
    SessionNotFoundError,
    UnsupportedFormatError,
)
from langchain_nanomem.file_journal import FileJournal
from langchain_nanomem.history import NanomemChatMessageHistory
from langchain_nanomem.journal import Journal
from langchain_nanomem.manager import SessionManager
from langchain_nanomem.memory import MemoryStore
from langchain_nanomem.memory_backend import MemoryBackend
from langchain_nanomem.migration import Imported, aimport_checkpoints, import_checkpoints
from langchain_nanomem.nanomem import Nanomem
from langchain_nanomem.node import MemoryState, create_memory_node
from langchain_nanomem.policy import CostAwarePolicy
from langchain_nanomem.pre_model_hook import ReactMemoryState, create_pre_model_hook
from langchain_nanomem.prompt import MemoryPrompt
from langchain_nanomem.redaction import Redaction
from langchain_nanomem.repair import aanswer_interrupted_calls, answer_interrupted_calls
from langchain_nanomem.retention import Retained, Retention
from langchain_nanomem.search_index import SearchHit
from langchain_nanomem.session import Session
from langchain_nanomem.store import NanomemStore
from langchain_nanomem.store_memory import BaseStoreBackend
from langchain_nanomem.tokens import TokenCounter
from langchain_nanomem.tools import create_search_memory_tool
from langchain_nanomem.workspace_copy import Copied, acopy_workspace, copy_workspace
from langchain_nanomem.writing_tools import create_forget_tool, create_remember_tool

if TYPE_CHECKING:
    from langchain_nanomem.middleware import NanomemMiddleware
    from langchain_nanomem.postgres_journal import PostgresJournal

__version__ = "0.1.0"

__all__ = [
    "Account",
    "BaseStoreBackend",
    "Consolidation",
    "ConsolidationError",
    "Copied",
    "CopyError",
    "CorruptRecordError",
    "CostAwarePolicy",
    "DatabaseError",
    "Erased",
    "FileJournal",
    "Imported",
    "Journal",
    "MemoryBackend",
    "MemoryChain",
    "MemoryConsolidator",
    "MemoryPrompt",
    "MemoryState",
    "MemoryStore",
    "MigrationError",
    "Nanomem",
    "NanomemChatMessageHistory",
    "NanomemError",
    "NanomemMiddleware",
    "NanomemSaver",
    "NanomemStore",
    "PostgresJournal",
    "ReactMemoryState",
    "Redaction",
    "RedactionError",
    "Retained",
    "Retention",
    "ScopeError",
    "SearchHit",
    "Session",
    "SessionManager",
    "SessionNotFoundError",
    "TokenCounter",
    "UnsupportedFormatError",
    "aanswer_interrupted_calls",
    "acopy_workspace",
    "aimport_checkpoints",
    "answer_interrupted_calls",
    "copy_workspace",
    "create_forget_tool",
    "create_memory_node",
    "create_pre_model_hook",
    "create_remember_tool",
    "create_search_memory_tool",
    "import_checkpoints",
]


def __getattr__(name: str) -> Any:
    if name == "NanomemMiddleware":  # needs an extra, so it is imported when it is asked for
        from langchain_nanomem.middleware import NanomemMiddleware  # noqa: PLC0415

        return NanomemMiddleware
    if name == "PostgresJournal":  # so does this
        from langchain_nanomem.postgres_journal import PostgresJournal  # noqa: PLC0415

        return PostgresJournal
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
