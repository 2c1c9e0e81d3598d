"""Whose memory a run uses, and in which session it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import get_runtime

from langchain_nanomem.errors import ScopeError

Scope = tuple[str, ...]
ScopeRule = Literal["workspace", "user"] | Callable[[RunnableConfig], Scope] | None
"""One memory for the workspace, one for each user, or whatever a function makes of the config.

None is the workspace's, as long as nobody says who the user is.
"""


def check_scope_rule(rule: Any) -> None:
    """Refuse what is no scope rule.

    Raises:
        ValueError: It is none.
    """
    if rule not in ("workspace", "user", None) and not callable(rule):
        raise ValueError(f'scope must be "workspace", "user" or a function, not {rule!r}')


def resolve_scope(rule: ScopeRule, config: RunnableConfig) -> Scope:
    """Whose memory a run uses.

    The user is `user_id` of the runtime's context, else of ``config["configurable"]``.

    Raises:
        ScopeError: It is not clear whose memory is meant.
    """
    if rule == "workspace":
        return ()
    if callable(rule):
        return _checked(rule(config))
    user_id = _user_id(config)
    if rule == "user":
        if user_id is None:
            raise ScopeError(
                'scope="user" needs to know the user: pass config={"configurable": {"user_id": '
                "...}}, or a context with a user_id"
            )
        return ("user", user_id)
    if user_id is not None:
        raise ScopeError(
            f"there is a user_id ({user_id!r}), but no scope was chosen. Give each user a memory "
            'with scope="user", or let all share one with scope="workspace".'
        )
    return ()


def only(scope: Scope, rule: ScopeRule) -> Callable[[RunnableConfig], Scope]:
    """Whose memory a run uses, where it may be one scope's alone.

    Args:
        scope: That scope.
        rule: Gives whose a run says that it is, which has to agree; the scope's own where the
            rule is "workspace" or None, which ask nothing.
    """

    def scope_of(config: RunnableConfig) -> Scope:
        told = scope if rule in ("workspace", None) else resolve_scope(rule, config)
        if told != scope:
            raise ScopeError(f"the run belongs to {told!r}, and only {scope!r} is served here")
        return scope

    return scope_of


def session_key(config: RunnableConfig) -> str:
    """The session of a run: ``thread_id``, or ``session_id`` where there is none.

    In a `RunnableWithMessageHistory` it is that of the chat history.

    Raises:
        ValueError: The config has neither.
    """
    configurable = config.get("configurable") or {}
    history = configurable.get("message_history")
    if (key := getattr(history, "session_id", None)) is not None:
        return str(key)
    for name in ("thread_id", "session_id"):
        if (key := configurable.get(name)) is not None:
            return str(key)
    raise ValueError(
        "the config names no session: pass config={'configurable': {'thread_id': ...}} (or "
        "'session_id' in a chain)"
    )


def asks_off_the_record(config: RunnableConfig) -> bool:
    """Whether a run says that nothing of its session is to be remembered."""
    return bool((config.get("configurable") or {}).get("off_the_record"))


def _checked(scope: Any) -> Scope:
    is_names = isinstance(scope, (tuple, list)) and all(isinstance(p, str) and p for p in scope)
    if not is_names:
        raise ScopeError(f"the scope function must give a tuple of names, not {scope!r}")
    return tuple(scope)


def _user_id(config: RunnableConfig) -> str | None:
    places = [_context(), config.get("configurable")]
    found = (_field(place, "user_id") for place in places)
    user_id = next((value for value in found if value is not None), None)
    if user_id is not None and not str(user_id).strip():
        raise ScopeError("user_id is blank: whose memory is meant?")
    return None if user_id is None else str(user_id)


def _context() -> Any:
    try:
        return getattr(get_runtime(), "context", None)
    except (RuntimeError, KeyError):  # not in a graph
        return None


def _field(place: Any, name: str) -> Any:
    return place.get(name) if isinstance(place, Mapping) else getattr(place, name, None)
