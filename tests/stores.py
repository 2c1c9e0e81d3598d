"""Places as other processes get at them."""

from __future__ import annotations

from langchain_nanomem.memory import MemoryStore
from langchain_nanomem.workspaces import Workspace, open_workspace


def workspace_at(address: str) -> Workspace:
    """The place of an address: a path; or the URL of a server, a space, and a schema."""
    if "://" not in address:
        return open_workspace(address)
    url, schema = address.split()
    return open_workspace(url, schema)


def store_at(address: str) -> MemoryStore:
    """The memory of a place."""
    return MemoryStore(workspace_at(address).memory)
