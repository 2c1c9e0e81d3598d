"""What was found, as a text for a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_nanomem.rendering import render_moment

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from langchain_nanomem.memory import MemoryStore
    from langchain_nanomem.search_index import SearchHit
    from langchain_nanomem.tokens import TokenCounter

_HIT_CHARACTERS = 600
_LEAD_CHARACTERS = 120
_LOG_SHARE = 0.4


def found_text(  # noqa: PLR0913 - what is searched, and how much of it is given
    store: MemoryStore,
    query: str,
    limit: int,
    max_tokens: int,
    counter: TokenCounter,
    *,
    left_out: Collection[str] = (),
) -> str:
    """What is found in the log, and what was said, as `passages_text` gives it.

    Args:
        store: Whose past is searched.
        query: What for.
        limit: How many passages of either are given at most.
        max_tokens: How long the text may be.
        counter: Counts it.
        left_out: Messages that are not to be given.
    """
    logged = store.search_history(query, limit=limit, kinds=["logged"])
    said = store.search_history(query, limit=limit + len(left_out), kinds=["said"])
    others = [hit for hit in said if hit.text not in left_out][:limit]
    return passages_text(query, logged, others, max_tokens, counter)


def passages_text(
    query: str,
    logged: Sequence[SearchHit],
    said: Sequence[SearchHit],
    max_tokens: int,
    counter: TokenCounter,
) -> str:
    """Hits as a text for a model, within `max_tokens`; "" where there are none."""
    of_log = _within(
        ["From the event log:", *(_line(hit, query) for hit in logged)],
        int(max_tokens * _LOG_SHARE) if said else max_tokens,
        counter,
    )
    room = max_tokens - (counter.count_text(of_log) + 1 if of_log else 0)
    of_said = _within(["What was said:", *(_line(hit, query) for hit in said)], room, counter)
    return "\n\n".join(part for part in (of_log, of_said) if part)


def _within(lines: list[str], max_tokens: int, counter: TokenCounter) -> str:
    """A heading and the lines under it that there is room for, one at least; "" without any."""
    sizes = [counter.count_text(line) + 1 for line in lines]
    kept = [*lines[:2]]
    used = sum(sizes[:2])
    for line, size in zip(lines[2:], sizes[2:], strict=True):
        if used + size <= max_tokens:
            kept.append(line)
            used += size
    return "\n".join(kept) if len(lines) > 1 else ""


def _line(hit: SearchHit, query: str) -> str:
    text = _excerpt(hit.text, query)
    if hit.kind == "logged":
        return f"[{render_moment(hit.at)}] {text}"
    return f"[{render_moment(hit.at)}] {hit.speaker}: {text} (session {hit.session_id})"


def _excerpt(text: str, query: str) -> str:
    """A text, or the part of a long one where the longest words of a query are."""
    if len(text) <= _HIT_CHARACTERS:
        return text
    folded = text.casefold()
    words = sorted(dict.fromkeys(query.casefold().replace('"', " ").split()), key=len, reverse=True)
    at = next((place for word in words if (place := folded.find(word)) >= 0), 0)
    start = max(min(at - _LEAD_CHARACTERS, len(text) - _HIT_CHARACTERS), 0)
    part = text[start : start + _HIT_CHARACTERS]
    lead = "... " if start else ""
    return f"{lead}{part} ..." if start + _HIT_CHARACTERS < len(text) else f"{lead}{part}"
