"""A window that is too large for the budget, made to fit: for the prompt alone. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage, ToolMessage

from langchain_nanomem.rendering import content_text, shorten
from langchain_nanomem.window import Window, cuts, is_user, message_shape

Count = Callable[[Sequence[BaseMessage]], int]


_HOW_TO_GET_IT = (
    "the session has them: search for words of them, or use the tool again for a part at a time"
)


class Fitted(NamedTuple):
    """What is shown of a window, and how much of it is not."""

    messages: list[BaseMessage]
    left_out: int
    """The number of live messages that are not shown."""


def fit(window: Window, room: int, count: Count) -> Fitted:
    """As much of the newest end of `window` as `room` tokens hold.

    The oldest whole turns are left out first. Of the last turn, the oldest rounds of tools;
    then the long tool results of the last round are shown by their heads and tails; then that
    round is left out too. The last user message stays, verbatim, and so do system messages,
    whether there is room for them or not.
    """
    if count(window.messages) <= room:
        return Fitted(window.messages, 0)
    live = window.live
    turns = [place for place, message in enumerate(live) if place and is_user(message)]

    def shown(start: int) -> list[BaseMessage]:
        return [*_system(window.kept), *_system(live[:start]), *live[start:]]

    found = bisect_left(turns, x=True, key=lambda start: count(shown(start)) <= room)
    if found == len(turns):
        return _fit_last_turn(window, room, count)
    return _fitted(window, shown(turns[found]))


def least(window: Window) -> list[BaseMessage]:
    """What `fit` always shows: system messages and the last user message."""
    users = [message for message in window.messages if is_user(message)]
    return [*_system(window.messages), *users[-1:]]


def shorten_results(
    messages: Sequence[BaseMessage], max_tokens: int, count_text: Callable[[str], int]
) -> list[BaseMessage]:
    """`messages`, with the long tool results that a model has answered cut to head and tail.

    Those behind the last answer stand as they are: no model has seen them yet.

    Args:
        messages: The messages, oldest first.
        max_tokens: What a result may have at most.
        count_text: Counts a text.
    """
    answers = (i for i in reversed(range(len(messages))) if messages[i].type == "ai")
    last = next(answers, 0)

    def shown(place: int, message: BaseMessage) -> BaseMessage:
        if place > last or not isinstance(message, ToolMessage) or not _is_text(message.content):
            return message
        text = content_text(message.content)
        if count_text(text) <= max_tokens:
            return message
        short = shorten(text, max_tokens, count_text, _HOW_TO_GET_IT)
        return message.model_copy(update={"content": short})

    return [shown(place, message) for place, message in enumerate(messages)]


def _is_text(content: Any) -> bool:
    """Whether it is words alone: of a picture there is no head and tail."""
    blocks = content if isinstance(content, list) else [content]
    return all(
        isinstance(block, str) or (isinstance(block, dict) and block.get("type") == "text")
        for block in blocks
    )


def _fit_last_turn(window: Window, room: int, count: Count) -> Fitted:
    """The user message of the last turn, and the newest of its rounds that fit behind it."""
    places = [place for place, message in enumerate(window.live) if is_user(message)]
    begin = places[-1] + 1 if places else 0
    front = least(window._replace(live=window.live[:begin]))
    rounds = window.live[begin:]
    starts = [0, *cuts([message_shape(message) for message in rounds], 0, len(rounds))]

    def shown(start: int) -> list[BaseMessage]:
        return [*front, *_system(rounds[:start]), *rounds[start:]]

    found = bisect_left(starts, x=True, key=lambda start: count(shown(start)) <= room)
    start = starts[min(found, len(starts) - 1)]
    if rounds and start == len(rounds):
        short = _shortened(shown(starts[-2]), room, count)
        if count(short) <= room:
            return _fitted(window, short)
    return _fitted(window, shown(start))


def _fitted(window: Window, messages: list[BaseMessage]) -> Fitted:
    kept = [m for m in window.kept if any(m is message for message in messages)]
    return Fitted(messages, len(window.live) - (len(messages) - len(kept)))


def _system(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    return [message for message in messages if message.type == "system"]


def _shortened(messages: list[BaseMessage], room: int, count: Count) -> list[BaseMessage]:
    """With the tool results among them cut to share what is left of `room`."""
    results = [message for message in messages if isinstance(message, ToolMessage)]
    others = count([message for message in messages if not isinstance(message, ToolMessage)])
    each = max((room - others) // max(len(results), 1), 1)

    def shortened(message: BaseMessage) -> BaseMessage:
        def size(text: str) -> int:
            return count([message.model_copy(update={"content": text})])

        if not isinstance(message, ToolMessage) or count([message]) <= each:
            return message
        text = shorten(content_text(message.content), each, size)
        return message.model_copy(update={"content": text})

    return [shortened(message) for message in messages]
