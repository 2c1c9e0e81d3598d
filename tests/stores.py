"""Places as other processes get at them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from langchain_nanomem.file_journal import FileJournal
from langchain_nanomem.memory import MemoryStore
from langchain_nanomem.postgres_memory import PostgresMemory
from langchain_nanomem.workspaces import Workspace, open_workspace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from langchain_nanomem.journal import Journal
    from langchain_nanomem.postgres_journal import PostgresJournal


def workspace_at(address: str) -> Workspace:
    """The place of an address: a path; or the URL of a server, a space, and a schema."""
    if "://" not in address:
        return open_workspace(address)
    url, schema = address.split()
    return open_workspace(url, schema)


def store_at(address: str) -> MemoryStore:
    """The memory of a place."""
    return MemoryStore(workspace_at(address).memory)


def bytes_in(workspace: Path | PostgresJournal) -> dict[str, bytes]:
    """All that is kept in a place, by the path of its file, or the table and key of its row."""
    if isinstance(workspace, Path):
        return {str(one): one.read_bytes() for one in workspace.rglob("*") if one.is_file()}
    return {place: content for table in _TABLES for place, content in _rows_in(workspace, table)}


def edit_memory(store: MemoryStore, text: str) -> None:
    """Have the facts be this text, as a person's editor does it, or another worker."""
    if isinstance(store.backend, PostgresMemory):
        MemoryStore(store.backend, store.scope).write_long_term(text)
        return
    store.memory_path.parent.mkdir(parents=True, exist_ok=True)
    store.memory_path.write_text(text, encoding="utf-8")


_TABLES = (
    "journals",
    "chunks",
    "indexes",
    "replaced",
    "memories",
    "memory_versions",
    "log_entries",
    "search_sources",
    "search_texts",
)


def _rows_in(journal: PostgresJournal, table: str) -> Iterator[tuple[str, bytes]]:
    journal.prepare()
    statement = journal.schema.statement(f"SELECT * FROM {{s}}.{table}")
    for row in journal.database.ask((statement, ()))[0]:
        texts = [bytes(one) for one in row if isinstance(one, bytes | memoryview)]
        keys = [str(one) for one in row if isinstance(one, str | int)]
        yield f"{table} {keys}", b"\n".join([*texts, *map(str.encode, keys)])


def date_back(journal: Journal, key: str, moment: datetime) -> None:
    """Have a session be as if nothing was written to it since then."""
    if isinstance(journal, FileJournal):
        os.utime(journal.path(key), (moment.timestamp(),) * 2)
        return
    statement = journal.schema.statement(
        "UPDATE {s}.chunks SET written_at = %s FROM {s}.journals WHERE id = journal AND key = %b"
    )
    journal.database.write((statement, (moment, key.encode())))
