"""The shape of the package itself: what it exports, and which way its modules look."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import langchain_nanomem

PACKAGE = Path(langchain_nanomem.__file__).parent
TESTS = Path(__file__).parents[1]

# A module imports only from those above it.
ORDER = [
    "errors",
    "display",
    "sensitive",
    "redaction",
    "files",
    "session",
    "values",
    "codec",
    "search_tables",
    "journal",
    "journal_lines",
    "memory_journal",
    "scope_names",
    "search_terms",
    "search_file",
    "search_file_tables",
    "search_places",
    "session_files",
    "session_archive",
    "file_reader",
    "connection_urls",
    "file_journal",
    "postgres_errors",
    "postgres_isolation",
    "postgres_ping",
    "postgres_database",
    "postgres_schema",
    "postgres_tables",
    "postgres_recent",
    "postgres_locks",
    "postgres_reader",
    "postgres_search_rows",
    "postgres_search",
    "postgres_journal",
    "collector",
    "images",
    "ranges",
    "holders",
    "live_lists",
    "working_set",
    "shelf",
    "checkpoint_record",
    "numbering",
    "folded",
    "records",
    "records_index",
    "redacted_records",
    "elements",
    "element_writer",
    "session_sync",
    "turns",
    "overtaking",
    "manager",
    "history_log",
    "history_files",
    "memory_versions",
    "memory_file",
    "rendering",
    "search_weights",
    "search_cues",
    "search_query",
    "search_sources",
    "search_postings",
    "search_ranking",
    "search_nearness",
    "search_vectors",
    "search_scopes",
    "search_news",
    "search_index",
    "memory_backend",
    "scope_files",
    "postgres_memory_tables",
    "postgres_samples",
    "postgres_memory",
    "workspaces",
    "fences",
    "memory_words",
    "memory_outline",
    "memory_repeats",
    "memory_lines",
    "memory",
    "token_estimate",
    "vocabulary",
    "tokens",
    "passages",
    "dates",
    "extractive",
    "window",
    "fitting",
    "model_calls",
    "answers",
    "alignment",
    "conversation",
    "merging",
    "store_items",
    "store_facts",
    "store_memory",
    "memory_budget",
    "planning",
    "applying",
    "scopes",
    "memory_view",
    "policy",
    "meter",
    "model_facts",
    "goals",
    "in_place",
    "driving",
    "rounds",
    "recall",
    "deferred",
    "consolidation",
    "prompt",
    "history",
    "remains",
    "pruning",
    "delta_history",
    "checkpoint_async",
    "removal",
    "checkpoint",
    "repair",
    "node",
    "pre_model_hook",
    "middleware",
    "chain",
    "scoped_memory",
    "tools",
    "noting",
    "fact_items",
    "fact_search",
    "store_filter",
    "store_spaces",
    "store_values",
    "fact_writing",
    "store",
    "writing_tools",
    "samples",
    "erasure",
    "retention",
    "nanomem",
    "exactness",
    "stored_classes",
    "migration_source",
    "thread_copy",
    "migration",
    "open_saver",
    "session_copy",
    "memory_copy",
    "workspace_copy",
    "history_import",
    "session_view",
    "workspace_stats",
    "demo",
    "demo.locomo",
    "demo.replay",
    "demo.show",
    "printing",
    "terminal",
    "terminal_options",
    "check_command",
    "session_commands",
    "memory_commands",
    "search_command",
    "workspace_commands",
    "import_commands",
    "database_commands",
    "cli",
]

EXPORTS = [
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


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imported_modules(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("langchain_nanomem"):
            module = (node.module or "").removeprefix("langchain_nanomem").removeprefix(".")
            names = [alias.name for alias in node.names]
            found |= {module} if module else set(names) & set(ORDER)
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            found |= {n.split(".", 1)[1] for n in names if n.startswith("langchain_nanomem.")}
    return found


def test_exports_are_exact_and_sorted():
    """The public names are exactly these, and sorted."""
    assert langchain_nanomem.__all__ == EXPORTS
    assert sorted(EXPORTS) == EXPORTS
    assert all(hasattr(langchain_nanomem, name) for name in EXPORTS)


def test_the_order_names_every_module():
    """No module stands outside of the order."""
    modules = {module_name(path) for path in PACKAGE.rglob("*.py")} - {""}
    assert modules == set(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_imports_point_one_way(name):
    """A module imports only from those above it in the order."""
    path = PACKAGE / Path(*name.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    above = set(ORDER[: ORDER.index(name)])
    assert imported_modules(path) <= above


def test_every_test_says_what_it_holds():
    """Each test has a docstring."""
    silent = [
        f"{path.name}: {node.name}"
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert silent == []
