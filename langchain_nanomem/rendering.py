"""Messages as text: what the consolidating model is shown, and what a raw entry keeps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SPEAKERS = {"human": "user", "ai": "assistant", "tool": "tool", "system": "system"}
_MEDIA = {
    **dict.fromkeys(["image", "image_url", "input_image", "image_generation_call"], "image"),
    **dict.fromkeys(["audio", "input_audio"], "audio"),
    **dict.fromkeys(["video", "video_url"], "video"),
    **dict.fromkeys(["file", "input_file", "document", "media", "text-plain"], "file"),
}
_UNSPOKEN = frozenset(
    {
        "reasoning",
        "reasoning_content",
        "thinking",
        "redacted_thinking",
        # calls, which a message has in its tool_calls too
        "tool_use",
        "tool_call",
        "tool_call_chunk",
        "invalid_tool_call",
        "function_call",
    }
)
_DATA_FIELDS = ("base64", "data", "bytes", "file_data", "result", "url", "uri", "image_url")
_TYPE_FIELDS = ("mime_type", "media_type", "format", "file_id")
_NAME_FIELDS = ("name", "filename", "file_name", "title", *_TYPE_FIELDS)
_MAX_NAME_CHARACTERS = 200


def render_message(message: BaseMessage, said_at: datetime | None) -> str:
    """One message as text, led by its date, weekday and speaker: ``[2026-05-08 Friday 13:56]``.

    Tool calls and results are told as such. Media leave a mark that names them.
    """
    text = render_words(message)
    return valid_unicode(f"[{render_moment(said_at)}] {speaker_of(message)}: {text}")


def render_words(message: BaseMessage) -> str:
    """What a message says, and what it calls."""
    lines = [content_text(message.content)]
    if isinstance(message, AIMessage):
        lines += [_call_text(call["name"], call["args"]) for call in message.tool_calls]
        lines += [_call_text(call["name"], call["args"]) for call in message.invalid_tool_calls]
    return "\n".join(line for line in lines if line.strip())


def render_moment(moment: datetime | None) -> str:
    """Date, weekday and time, in UTC and English whatever the locale; "no date" for None."""
    return "no date" if moment is None else f"{render_day(moment)} {moment:%H:%M}"


def render_day(moment: datetime | None) -> str:
    """Date and weekday, as `render_moment` gives them."""
    if moment is None:
        return "no date"
    return f"{moment:%Y-%m-%d} {_WEEKDAYS[moment.weekday()]}"


def speaker_of(message: BaseMessage) -> str:
    """Who said it: the message's name where it has one."""
    if isinstance(message, ToolMessage):
        return f"tool {message.name}" if message.name else "tool"
    kind = message.type.removesuffix("MessageChunk").lower()
    return message.name or getattr(message, "role", None) or _SPEAKERS.get(kind, kind)


def content_text(content: Any) -> str:
    """The words of a message's content, and a mark for each picture, sound or file in it."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list | tuple) else [content]
    parts = (block if isinstance(block, str) else _block_text(block) for block in blocks)
    return "\n".join(part for part in parts if part)


def _block_text(block: Any) -> str:
    if not isinstance(block, dict):
        return "" if block is None else str(block)
    kind = block.get("type") or next(iter(block), "")  # Bedrock's only key is the type
    if kind in _MEDIA:
        return _media_text(_MEDIA[kind], block)
    if kind in _UNSPOKEN:
        return ""
    words = block.get("text", block.get("content"))
    return content_text(words) if isinstance(words, str | list) else _json(block)


def _media_text(kind: str, block: Mapping[str, Any]) -> str:
    """The mark of a medium, and its words where it is made of words."""
    source = block.get("source")
    inner = source if isinstance(source, dict) else {}
    words = block.get("text")
    if inner.get("type") in {"text", "content"}:
        words = inner.get("data", inner.get("content"))
    if not words:
        return _media_mark(kind, block)
    return f"[{kind}: {_first(block, _NAME_FIELDS) or 'unnamed'}]\n{content_text(words)}"


def _media_mark(kind: str, block: Mapping[str, Any]) -> str:
    """``[image: cat.png, 12 kB]``: its name or type, and its size where the data is there."""
    name, data = _first(block, _NAME_FIELDS), _first(block, _DATA_FIELDS)
    length = len(data)
    if isinstance(data, str):
        if data.startswith("data:"):
            told, _, data = data.removeprefix("data:").partition(",")
            name = name or told.split(";")[0]
        elif "://" in data[:20]:
            name, data = name or data, ""
        length = len(data) * 3 // 4
    size = f"{max(1, round(length / 1000))} kB" if length else ""
    label = " ".join(str(name).split())[:_MAX_NAME_CHARACTERS]
    return f"[{kind}: {', '.join(part for part in (label, size) if part) or 'unnamed'}]"


def _first(block: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """The first of these fields, in their order, that is filled, however deep it stands."""
    places = list(_places(block))
    found = (place.get(name) for name in names for place in places)
    return next((value for value in found if isinstance(value, str | bytes) and value), "")


def _places(block: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield block
    for value in block.values():
        if isinstance(value, dict):
            yield from _places(value)


def _call_text(name: str | None, args: Any) -> str:
    return f"(calls {name or 'a tool'} with {args if isinstance(args, str) else _json(args)})"


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # keys that are no text, cycles, depth
        return repr(value)


def valid_unicode(text: str) -> str:
    """`text` with halves of characters joined, or replaced where the other one is missing."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def shorten(
    text: str,
    max_tokens: int,
    count_tokens: Callable[[str], int],
    remark: str = "the session has them",
) -> str:
    """`text`, or its head and its tail with a mark between them, within `max_tokens`.

    The mark tells how many characters are left out, and the `remark`.
    """
    total = count_tokens(text)
    if total <= max_tokens:
        return text
    kept = int(len(text) * max_tokens / total)
    while True:
        head, tail = text[: kept * 2 // 3], text[len(text) - kept // 3 :]
        left_out = len(text) - len(head) - len(tail)
        short = f"{head}\n[... {left_out} characters left out here; {remark} ...]\n{tail}"
        if kept < 2 or count_tokens(short) <= max_tokens:  # noqa: PLR2004 - nothing is left to cut
            return short
        kept = kept * 4 // 5
