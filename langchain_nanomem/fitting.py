"""A window that is too large for the budget, made to fit: for the prompt alone. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from langchain_core.messages import BaseMessage, ToolMessage

from langchain_nanomem.rendering import content_text, shorten
from langchain_nanomem.window import Window, cuts, message_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Fitted(NamedTuple):
    """What is shown of a window, and how much of it is not."""

    messages: list[BaseMessage]
    left_out: int
    """The number of messages that are not shown."""


def fit(window: Window, room: int, count: Callable[[Sequence[BaseMessage]], int]) -> Fitted:
    """As much of the newest end of `window` as `room` tokens hold.

    The oldest whole turns are left out first. Of the last turn, the oldest rounds of tools;
    then its long tool results are shown by their heads and tails. The last user message stays,
    verbatim, and so do system messages.
    """
    if count(window.messages) <= room:
        return Fitted(window.messages, 0)
    system = [message for message in window.kept if message.type == "system"]
    turns = [place for place, message in enumerate(window.live) if message.type == "human"]
    for start in turns:
        if start and count([*system, *window.live[start:]]) <= room:
            return Fitted([*system, *window.live[start:]], start)
    return _fit_last_turn(window, system, turns, room - count(system), count)


def _fit_last_turn(
    window: Window,
    system: list[BaseMessage],
    turns: list[int],
    room: int,
    count: Callable[[Sequence[BaseMessage]], int],
) -> Fitted:
    """The user message of the last turn, and the newest of its rounds that fit behind it."""
    if turns:
        user, rounds = [window.live[turns[-1]]], window.live[turns[-1] + 1 :]
    else:
        user, rounds = [m for m in window.kept if m.type == "human"][-1:], window.live
    starts = [0, *cuts([message_shape(message) for message in rounds], 0, len(rounds))]
    starts = [place for place in starts if place == 0 or place < len(rounds)]
    fitting = [place for place in starts if count([*user, *rounds[place:]]) <= room]
    start = fitting[0] if fitting else starts[-1]
    shown = rounds[start:] if fitting else _shortened(rounds[start:], room - count(user), count)
    left_out = len(window.live) - len(rounds[start:]) - (1 if turns else 0)
    return Fitted([*system, *user, *shown], left_out)


def _shortened(
    messages: list[BaseMessage], room: int, count: Callable[[Sequence[BaseMessage]], int]
) -> list[BaseMessage]:
    """With the tool results among them cut to share what is left of `room`."""
    results = [message for message in messages if isinstance(message, ToolMessage)]
    others = count([message for message in messages if not isinstance(message, ToolMessage)])
    if not results:
        return messages
    each = max((room - others) // len(results), 1)

    def shortened(message: BaseMessage) -> BaseMessage:
        def size(text: str) -> int:
            return count([message.model_copy(update={"content": text})])

        if not isinstance(message, ToolMessage) or count([message]) <= each:
            return message
        text = shorten(content_text(message.content), each, size)
        return message.model_copy(update={"content": text})

    return [shortened(message) for message in messages]
