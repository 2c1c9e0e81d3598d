"""Messages as text: what the consolidating model is shown, and what a raw entry keeps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SPEAKERS = {"human": "user", "ai": "assistant", "tool": "tool", "system": "system"}
_MEDIA = {
    "image": "image",
    "image_url": "image",
    "audio": "audio",
    "input_audio": "audio",
    "video": "video",
    "file": "file",
    "document": "file",
    "text-plain": "file",
}
_UNSPOKEN = frozenset({"reasoning", "thinking", "redacted_thinking", "tool_use", "tool_call"})
_DATA_FIELDS = ("base64", "data", "file_data", "url", "image_url")
_NAME_FIELDS = ("name", "filename", "file_name", "title", "mime_type", "media_type", "format")


def render_message(message: BaseMessage, said_at: datetime | None) -> str:
    """One message as text, led by its date, weekday and speaker: ``[2026-05-08 Friday 13:56]``.

    Tool calls and results are told as such. Media leave a mark that names them.
    """
    lines = [content_text(message.content)]
    if isinstance(message, AIMessage):
        lines += [_call_text(call["name"], call["args"]) for call in message.tool_calls]
        lines += [_call_text(call["name"], call["args"]) for call in message.invalid_tool_calls]
    text = "\n".join(line for line in lines if line.strip())
    return f"[{render_moment(said_at)}] {speaker_of(message)}: {text}"


def render_moment(moment: datetime | None) -> str:
    """Date, weekday and time, in UTC and English whatever the locale; "no date" for None."""
    if moment is None:
        return "no date"
    return f"{moment:%Y-%m-%d} {_WEEKDAYS[moment.weekday()]} {moment:%H:%M}"


def speaker_of(message: BaseMessage) -> str:
    """Who said it: the message's name where it has one."""
    if isinstance(message, ToolMessage):
        return f"tool {message.name}" if message.name else "tool"
    return (
        message.name or getattr(message, "role", None) or _SPEAKERS.get(message.type, message.type)
    )


def content_text(content: Any) -> str:
    """The words of a message's content, and a mark for each picture, sound or file in it."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else [content]
    parts = (block if isinstance(block, str) else _block_text(block) for block in blocks)
    return "\n".join(part for part in parts if part)


def _block_text(block: Any) -> str:
    if not isinstance(block, dict):
        return "" if block is None else str(block)
    kind = str(block.get("type", ""))
    if kind in _MEDIA:
        return _media_mark(_MEDIA[kind], block)
    if kind in _UNSPOKEN:
        return ""
    text = block.get("text", block.get("content"))
    return text if isinstance(text, str) else json.dumps(block, ensure_ascii=False, default=str)


def _media_mark(kind: str, block: Mapping[str, Any]) -> str:
    """``[image: cat.png, 12 kB]``: its name or type, and its size where the data is there."""
    inner = [
        place
        for name in ("source", kind, "image_url", "input_audio", "file")
        if isinstance(place := block.get(name), dict)
    ]
    places = [block, *inner]
    name = _first_text(places, _NAME_FIELDS)
    data = _first_text(places, _DATA_FIELDS)
    if data.startswith("data:"):
        kind_of_data, _, data = data.removeprefix("data:").partition(",")
        name = name or kind_of_data.split(";")[0]
    elif "://" in data[:20]:
        name, data = name or data, ""
    size = f"{max(1, round(len(data) * 3 / 4 / 1000))} kB" if data else ""
    return f"[{kind}: {', '.join(part for part in (name, size) if part) or 'unnamed'}]"


def _first_text(places: list[Mapping[str, Any]], names: tuple[str, ...]) -> str:
    found = (place.get(name) for place in places for name in names)
    return next((text for text in found if isinstance(text, str) and text), "")


def _call_text(name: str | None, args: Any) -> str:
    text = args if isinstance(args, str) else json.dumps(args, ensure_ascii=False, default=str)
    return f"(calls {name or 'a tool'} with {text})"


def shorten(text: str, max_tokens: int, count_tokens: Callable[[str], int]) -> str:
    """`text`, or its head and its tail with a mark between them, within `max_tokens`."""
    total = count_tokens(text)
    if total <= max_tokens:
        return text
    kept = int(len(text) * max_tokens / total)
    while True:
        head, tail = text[: kept * 2 // 3], text[len(text) - kept // 3 :]
        left_out = len(text) - len(head) - len(tail)
        short = (
            f"{head}\n[... {left_out} characters left out here; the session has them ...]\n{tail}"
        )
        if kept < 2 or count_tokens(short) <= max_tokens:  # noqa: PLR2004 - nothing is left to cut
            return short
        kept = kept * 4 // 5
