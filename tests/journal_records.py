"""Records for tests of journals, and what is in them."""

from __future__ import annotations

from typing import Any


def said(*texts: str) -> list[dict[str, Any]]:
    """A message of the user for each text."""
    return [{"role": "user", "content": text} for text in texts]


def contents(records: list[dict[str, Any]]) -> list[str]:
    """What the messages say."""
    return [record["content"] for record in records if "content" in record]
