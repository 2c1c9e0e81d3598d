"""The live window of a conversation, and where it may be cut. Pure."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage

from langchain_nanomem.session import (
    INTERRUPTED,
    MissingResult,
    Shape,
    has_content,
    legal_view,
    record_shape,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_TYPE = attrgetter("type")
_ROLES = {"human": "user", "ai": "assistant", "tool": "tool", "system": "system"}


def message_shape(message: BaseMessage) -> Shape:
    """The shape of a LangChain message."""
    if isinstance(message, ToolMessage):
        return Shape("tool", result_of=message.tool_call_id)
    kind = getattr(message, "role", message.type)  # of a ChatMessage
    role = _ROLES.get(kind.removesuffix("MessageChunk").lower(), kind)
    if not isinstance(message, AIMessage):
        return Shape(role)
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    marked = {
        "role": "assistant",
        "content": "-",
        "response_metadata": message.response_metadata,
        "additional_kwargs": message.additional_kwargs,
    }
    filled = bool(calls) or has_content(message.content)
    return Shape(
        "assistant",
        tuple((str(call["id"]), call["name"] or "") for call in calls if call["id"]),
        replayable=filled and record_shape(marked).replayable,
    )


class Window(NamedTuple):
    """The part of a conversation that a prompt shows."""

    kept: list[BaseMessage]
    """From before the window: a prompt template's messages, system messages, and the user
    message whose turn it continues."""
    live: list[BaseMessage]
    """The messages that are not in memory, as a strict provider accepts them."""

    @property
    def messages(self) -> list[BaseMessage]:
        """All of it, in order."""
        return [*self.kept, *self.live]


def live_window(messages: Sequence[BaseMessage], pointer: int, *, template: int = 0) -> Window:
    """What is shown of `messages` when the first `pointer` of them are in memory.

    System messages are never hidden, nor are the first `template` messages. Where the pointer
    lies inside a turn, the user message of that turn stands in front. A tool result stands
    behind its call, a call without a result gets one that says so; nothing else is changed.
    """
    pointer = max(pointer, template)
    before = messages[:pointer]
    kept = list(before[:template])
    if "system" in map(_TYPE, before[template:]):  # at once, since they may be very many
        kept += [message for message in before[template:] if message.type == "system"]
    rest = list(messages[pointer:])
    first = next((message for message in rest if message.type != "system"), None)
    if pointer > template and (first is None or not is_user(first)):
        owner = next((m for m in reversed(messages[template:pointer]) if is_user(m)), None)
        kept += [] if owner is None else [owner]
    view = legal_view([message_shape(message) for message in rest])
    live = [missing_result(p) if isinstance(p, MissingResult) else rest[p] for p in view]
    return Window(kept, live)


def with_memory(
    system: Sequence[BaseMessage],
    system_prompt: str | SystemMessage | None,
    block: str,
    cache_control: Mapping[str, Any] | None = None,
) -> list[BaseMessage]:
    """The system messages of a prompt, with the memory block at the end of the last of them.

    There, a change of memory leaves all that stands before it in the provider's cache.

    Args:
        system: The system messages of the conversation.
        system_prompt: Stands before them.
        block: The memory; "" for none.
        cache_control: What marks the ends of what is to be cached, for providers that want it:
            before the memory, and behind it. None: no marks.
    """
    first = [SystemMessage(system_prompt)] if isinstance(system_prompt, str) else [system_prompt]
    messages: list[BaseMessage] = [m for m in [*first, *system] if m is not None and m.content]
    if not messages and not block:
        return []
    *before, last = messages or [SystemMessage("")]
    content = _joined(last.content, block, cache_control)
    return [*before, last.model_copy(update={"content": content})]


def _joined(content: Any, block: str, cache_control: Mapping[str, Any] | None) -> Any:
    """The content of a system message, and the memory behind it."""
    if isinstance(content, str) and cache_control is None:
        return "\n\n".join(text for text in (content, block) if text)
    blocks = [content] if isinstance(content, str) else content
    memory = [{"type": "text", "text": block}] if block else []
    if cache_control is None:
        return [*blocks, *memory]
    return [*_marked(blocks, cache_control), *_marked(memory, cache_control)]


def _marked(blocks: list[Any], cache_control: Mapping[str, Any]) -> list[Any]:
    """Blocks of content, the last one with the mark unless it has one."""
    filled = [block for block in blocks if block]
    if not filled:
        return []
    *before, last = filled
    block = {"type": "text", "text": last} if isinstance(last, str) else last
    return [*before, {"cache_control": dict(cache_control), **block}]


def leading_system(messages: Sequence[BaseMessage]) -> int:
    """The number of system messages that a list begins with."""
    others = (i for i, message in enumerate(messages) if message.type != "system")
    return next(others, len(messages))


def is_user(message: BaseMessage) -> bool:
    """Whether it begins a turn."""
    return message_shape(message).role == "user"


def missing_result(missing: MissingResult) -> ToolMessage:
    """The result that says that a call was never answered."""
    return ToolMessage(
        INTERRUPTED, tool_call_id=missing.call_id, name=missing.name or None, status="error"
    )


# --- where it may be cut ----------------------------------------------------


def pick_boundary(
    shapes: Sequence[Shape], start: int, tokens_to_remove: int, count: Callable[[int], int]
) -> tuple[int, int] | None:
    """The end of the range to take out of the window, and its tokens.

    It is the first user turn behind `start` that takes out enough, else the last one. With no
    later user turn it is a place between complete rounds of tools, found in the same way.
    System messages stay in the window: they count nothing, and a range has others too.

    Args:
        shapes: Of all messages.
        start: Where the live window begins.
        tokens_to_remove: What is to go, at least, if possible.
        count: The tokens of the message at a place.

    Returns:
        None where there is no such place, or nothing to remove.
    """
    if tokens_to_remove <= 0:
        return None
    forbidden = _inside_rounds(shapes)
    goes = [shape.role != "system" for shape in shapes]
    first = next((place for place in range(start, len(shapes)) if goes[place]), len(shapes))
    places = [place for place in range(first + 1, len(shapes)) if place not in forbidden]
    turns = [place for place in places if shapes[place].role == "user"]
    if not turns:
        turns = [place for place in places if _follows_a_round(shapes, place)]
    return _first_enough(turns, start, tokens_to_remove, lambda i: count(i) if goes[i] else 0)


def _first_enough(
    places: list[int], start: int, tokens_to_remove: int, count: Callable[[int], int]
) -> tuple[int, int] | None:
    removed, at, found = 0, start, None
    for place in places:
        removed += sum(count(i) for i in range(at, place))
        at, found = place, (place, removed)
        if removed >= tokens_to_remove:
            break
    return found


def _follows_a_round(shapes: Sequence[Shape], place: int) -> bool:
    return shapes[place].role == "assistant" and shapes[place - 1].role == "tool"


def _inside_rounds(shapes: Sequence[Shape]) -> set[int]:
    """The places that would part a tool call from a result of it."""
    asked: dict[str, int] = {}
    inside: set[int] = set()
    for place, shape in enumerate(shapes):
        asked |= {call_id: place for call_id, _ in shape.calls}
        caller = asked.get(shape.result_of or "")
        if shape.role == "tool" and caller is not None:
            inside.update(range(caller + 1, place + 1))
    return inside


def cuts(shapes: Sequence[Shape], start: int, end: int) -> Iterator[int]:
    """The places in `start` to `end`, `end` included, that part no call from its result."""
    forbidden = _inside_rounds(shapes)
    yield from (place for place in range(start + 1, end) if place not in forbidden)
    yield end
