"""What is put into a store, as facts; and what comes out of it, as LangGraph's items."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_nanomem.history_log import session_of
from langchain_nanomem.memory_outline import unkeyed
from langchain_nanomem.noting import UnfitFactError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_nanomem.fact_items import FactItem
    from langchain_nanomem.history_log import HistoryEntry

UNKNOWN = datetime(1970, 1, 1, tzinfo=UTC)
"""The time of what has none: LangGraph's items have to have one."""
_TAG = re.compile(r"#?\w[\w-]*")


class Kept(NamedTuple):
    """What is kept under a key."""

    value: dict[str, Any]
    at: datetime


class Given(NamedTuple):
    """A fact that is put."""

    content: str
    """What it says, with its tags."""
    tags: frozenset[str]
    section: str | None
    """Where it has to stand; None: anywhere."""
    noted: str | None
    """Its day, "" for none; None: the day it is put on."""

    @classmethod
    def of(cls, value: Mapping[str, Any], field: str) -> Given:
        """What a value says.

        Args:
            value: As it was put.
            field: The name of what is the content.

        Raises:
            UnfitFactError: It has something that no line of a memory can hold.
        """
        others = value.keys() - {field, "tags", "section", "noted"}
        if others or not isinstance(value.get(field), str):
            named = ", ".join(sorted(map(repr, others))) or f"no text as {field!r}"
            raise UnfitFactError(
                f"A fact is a line of text: {{{field!r}: text}}, and beside it 'tags', 'section' "
                f"and 'noted'. This value has {named}; put it into another store."
            )
        if unkeyed(value[field]) != value[field]:
            raise UnfitFactError("A fact can't end in what reads as a key.")
        tags = frozenset(_tag(tag) for tag in value.get("tags") or ())
        said = value[field].split()
        missing = sorted(tag for tag in tags if f"#{tag}" not in map(str.casefold, said))
        content = " ".join([*said, *(f"#{tag}" for tag in missing)])
        return cls(content, tags, _text(value, "section"), _day(_text(value, "noted")))


def fact_kept(item: FactItem, field: str) -> Kept:
    """A fact as it comes out of the store."""
    value = {
        field: item.content,
        "tags": item.tags,
        "section": item.section,
        "noted": item.noted,
    }
    return Kept(value, _moment(item.noted))


def entry_key(entry: HistoryEntry) -> str:
    """The key of an entry of the log; of one that a person wrote it is made of what it says."""
    told = f"{entry.stamp}\0{entry.text}".encode("utf-8", "replace")
    return entry.entry_id or hashlib.sha256(told).hexdigest()[:16]


def entry_kept(entry: HistoryEntry, text: str, field: str) -> Kept:
    """An entry of the log as it comes out of the store."""
    value = {
        field: text,
        "at": None if entry.at is None else entry.at.isoformat(),
        "session_id": session_of(entry.source) or None,
        "source": entry.source,
    }
    return Kept(value, entry.at or UNKNOWN)


def _tag(tag: Any) -> str:
    if not isinstance(tag, str) or not _TAG.fullmatch(tag):
        raise UnfitFactError(f"{tag!r} is no tag: a tag is a word, such as 'project'.")
    return tag.removeprefix("#").casefold()


def _text(value: Mapping[str, Any], name: str) -> str | None:
    found = value.get(name)
    if found is not None and not isinstance(found, str):
        raise UnfitFactError(f"{name!r} must be a text, not {found!r}.")
    return found


def _day(noted: str | None) -> str | None:
    if noted:
        try:
            return date.fromisoformat(noted).isoformat()
        except ValueError:
            raise UnfitFactError(f"'noted' must be a day as 2026-05-08, not {noted!r}.") from None
    return noted


def _moment(day: str) -> datetime:
    try:
        return datetime.fromisoformat(day).replace(tzinfo=UTC) if day else UNKNOWN
    except ValueError:  # it only looks like one
        return UNKNOWN
