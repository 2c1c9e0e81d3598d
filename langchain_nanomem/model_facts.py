"""What is known of a model: its window, what of that is left for a prompt, its tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_WINDOW_TOKENS = 65_536
"""The window of a model of which nothing is known."""


class WindowOptions(NamedTuple):
    """What a program said of a window; None: nothing."""

    window_tokens: int | None
    completion_tokens: int | None
    margin_tokens: int | None

    def budget(self, *models: Any) -> int:
        """The largest prompt: the window less the answer and a margin.

        Where the program does not say how large the window is, the first model does of which
        LangChain knows: its profile tells the input alone, and no answer is taken off again.

        Raises:
            ValueError: Nothing is left, or something is negative.
        """
        window, completion = self.window_tokens, self.completion_tokens
        if window is None and (window := _known_input(models)) is not None:
            completion = 0
        window = DEFAULT_WINDOW_TOKENS if window is None else window
        completion = min(4_096, window // 4) if completion is None else completion
        margin = min(1_024, window // 32) if self.margin_tokens is None else self.margin_tokens
        budget = window - completion - margin
        if budget <= 0 or min(completion, margin) < 0:
            raise ValueError(
                f"nothing is left for a prompt: context_window_tokens {window} less "
                f"max_completion_tokens {completion} less safety_margin_tokens {margin} is "
                f"{budget}. None of them may be negative."
            )
        return budget


def own_budget(window_tokens: int | None, model: Any) -> int | None:
    """The largest prompt of the model that consolidates; None where nothing is known of it.

    Raises:
        ValueError: Nothing is left of its window.
    """
    if window_tokens is None and max_input_tokens(model) is None:
        return None
    return WindowOptions(window_tokens, None, None).budget(model)


def _known_input(models: tuple[Any, ...]) -> int | None:
    return next(filter(None, map(max_input_tokens, models)), None)


def max_input_tokens(model: Any) -> int | None:
    """The input that a model takes, as LangChain knows it; None where it does not.

    It is found through what is bound to the model, its fallbacks, and what stands behind it.
    """
    while model is not None and not isinstance(model, str):
        profile = getattr(model, "profile", None)
        if isinstance(profile, dict):
            known = profile.get("max_input_tokens")
            return known if isinstance(known, int) and known > 0 else None
        model = inner_model(model)
    return None


def inner_model(model: Any) -> Any:
    """What is inside of a runnable that wraps a model; None where nothing is."""
    inner = (getattr(model, name, None) for name in ("bound", "runnable", "first"))
    return next((part for part in inner if part is not None), None)


def bound_tools(model: Any) -> Sequence[Any]:
    """The tools bound to a model, also to one with fallbacks, or before a parser."""
    while model is not None:
        tools: Sequence[Any] = getattr(model, "kwargs", {}).get("tools") or ()
        if tools:
            return tools
        model = inner_model(model)
    return ()
