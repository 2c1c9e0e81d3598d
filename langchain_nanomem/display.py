"""What a notebook shows of sessions, memories and search hits: small pieces of HTML.

Everything in them was written by others, so all text is escaped, shortened, and without
characters that move or hide what stands around it. Colours are those of the page, or let it
through: it may be dark or light.
"""

from __future__ import annotations

import html
import re
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

_LINE_CHARACTERS = 300
_PAGE_CHARACTERS = 4_000
_NAME_CHARACTERS = 80
_MESSAGES = 20
_ENTRIES = 5
_BLOCKS = 20
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Controls, marks that change the direction of text, half characters."""

_LINES = "1px solid rgba(128,128,128,.35)"
_BOX = f"border:{_LINES};border-radius:6px;padding:.5em .8em;margin:.4em 0;max-width:60em"
_CELL = f"text-align:left;vertical-align:top;padding:.2em .8em .2em 0;border-top:{_LINES}"
_OF_PAGE = "background:transparent;color:inherit;font:inherit"  # a table doesn't always inherit
_SHORT = "white-space:nowrap;unicode-bidi:isolate"
_TEXT = "white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate"
_FAINT = "opacity:.7"
_NO_FACTS = f'<span style="{_FAINT}">no facts yet</span>'


def session_html(
    key: str,
    messages: Sequence[dict[str, Any]],
    consolidated: int,
    at: datetime,
    scope: tuple[str, ...],
) -> str:
    """A session: what it is, and its newest messages, oldest first.

    Args:
        key: Its key.
        messages: All of its messages, as records.
        consolidated: How many of them, from the first, are in memory.
        at: When the newest was said.
        scope: Whose it is; () where it is the workspace's.
    """
    facts = [_counted(len(messages), "message"), f"{consolidated} in memory", _moment(at)]
    if scope:
        facts.append(" ".join(scope))
    start = max(len(messages) - _MESSAGES, 0)
    rows = [_message_row(start + n, one, consolidated) for n, one in enumerate(messages[start:])]
    earlier = [f"{_counted(start, 'earlier message')}"] if start else []
    return _box("Session", key, [*facts, *earlier], _table(rows))


def memory_html(
    scope: tuple[str, ...],
    facts: str,
    entries: Sequence[tuple[str, str]],
    version_count: int,
) -> str:
    """A memory: its facts, and the newest entries of its log.

    Args:
        scope: Whose it is; () for the workspace's own.
        facts: The text of MEMORY.md.
        entries: Time and text of all that is in the log, oldest first.
        version_count: How many earlier versions of the facts are kept.
    """
    told = [_counted(version_count, "earlier version"), _counted(len(entries), "entry", "entries")]
    shown = f'<div dir="auto" style="margin-top:.4em;{_TEXT}">{_page(facts) or _NO_FACTS}</div>'
    rows = [_row(_name(stamp), text=_line(text)) for stamp, text in entries[-_ENTRIES:]]
    return _box("Memory", " ".join(scope) or "of the workspace", told, shown + _table(rows))


def unreadable_html(title: str, name: str, error: Exception) -> str:
    """What stands in the place of what can't be read."""
    return _box(title, name, ["can't be read"], f'<div style="{_TEXT}">{_line(str(error))}</div>')


def hit_html(
    kind: str,
    where: str,
    score: float,
    at: datetime | None,
    passages: Iterable[tuple[str, str, bool]],
) -> str:
    """A passage that was found, between the messages around it.

    Args:
        kind: Whether it was said or logged.
        where: Where it stands.
        score: How well it matches.
        at: When it was said; None where that is not known.
        passages: Who said it, what, and whether it is the one that was found.
    """
    facts = [*([] if at is None else [_moment(at)]), f"score {score:.2f}"]
    rows = [
        _row(_name(speaker), text=_line(text) if is_found else _faint(_line(text)))
        for speaker, text, is_found in passages
    ]
    return _box(kind.capitalize(), where, facts, _table(rows))


def _message_row(place: int, record: dict[str, Any], consolidated: int) -> str:
    """A message: its place, who said it, what; faint where it has left the prompt."""
    said = _line(_said(record))
    in_memory = place < consolidated
    speaker = _name(str(record.get("name") or record.get("role") or "?"))
    note = "in memory" if in_memory else ""
    return _row(str(place), speaker, text=_faint(said) if in_memory else said, note=note)


def _said(fields: dict[str, Any]) -> str:
    """What a message says, and the tools that it calls."""
    calls = fields.get("tool_calls")
    called = islice(calls, _BLOCKS) if isinstance(calls, list) else ()
    return " ".join(filter(None, [_content(fields.get("content")), *map(_called, called)]))


def _content(content: Any) -> str:
    """A message's text; of other blocks their kind."""
    if isinstance(content, list):
        return " ".join(map(_block, islice(content, _BLOCKS)))
    return content if isinstance(content, str) else "" if content is None else str(content)


def _block(block: Any) -> str:
    if isinstance(block, dict):
        return str(block["text"]) if "text" in block else f"[{block.get('type', 'block')}]"
    return str(block)


def _called(call: Any) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return str(call)
    return f"{function.get('name')}({function.get('arguments', '')})"


def _box(title: str, name: str, facts: Iterable[str], inside: str) -> str:
    """A frame with a heading."""
    told = " · ".join(map(_name, facts))
    head = f'<b>{title} <bdi>{_name(name)}</bdi></b> <span style="{_FAINT}">{told}</span>'
    return f'<div style="{_BOX}"><div>{head}</div>{inside}</div>'


def _table(rows: Sequence[str]) -> str:
    if not rows:
        return ""
    style = f"border-collapse:collapse;margin:.4em 0 0 0;{_OF_PAGE}"
    return f'<table style="{style}"><tbody>{"".join(rows)}</tbody></table>'


def _row(*shorts: str, text: str, note: str | None = None) -> str:
    """A row of a table: a text behind some short cells, and before a note; all HTML already."""
    inside = [*(_cell(_faint(short), _SHORT) for short in shorts), _cell(text, _TEXT)]
    inside += [] if note is None else [_cell(_faint(note), _SHORT)]
    return f'<tr style="background:transparent">{"".join(inside)}</tr>'


def _cell(inside: str, style: str) -> str:
    return f'<td dir="auto" style="{_OF_PAGE};{_CELL};{style}">{inside}</td>'


def _faint(shown: str) -> str:
    return f'<span style="{_FAINT}">{shown}</span>' if shown else ""


def _name(text: str) -> str:
    return _shown(text, _NAME_CHARACTERS)


def _line(text: str) -> str:
    return _shown(text, _LINE_CHARACTERS)


def _page(text: str) -> str:
    return _shown(text.strip(), _PAGE_CHARACTERS)


def _shown(text: str, most: int) -> str:
    """`text` as HTML, cut where it is too long."""
    cut = text if len(text) <= most else f"{text[:most].rstrip()} … ({len(text):,} characters)"
    return html.escape(_UNSEEN.sub("\ufffd", cut))


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


__all__ = ["hit_html", "memory_html", "session_html", "unreadable_html"]
