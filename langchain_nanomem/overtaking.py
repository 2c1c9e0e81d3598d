"""What is done anew where another program wrote to the same session in the middle of it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from langchain_nanomem.errors import NanomemError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

_TRIES = 8


class OvertakenError(NanomemError):
    """Another wrote to the session since it was read. Nothing was written.

    Args:
        key: The session's key.
    """

    def __init__(self, key: str) -> None:
        super().__init__(
            f"session {key!r} was written to by another program meanwhile. This was not written; "
            "do it again: then it builds upon what is there now."
        )


def repeated(work: Callable[P, T]) -> Callable[P, T]:
    """Have a function done anew that was overtaken. It must do no harm when it is done again.

    Where a back end keeps others out all the time that a lock is held, it never is.
    """

    @functools.wraps(work)
    def run(*args: P.args, **options: P.kwargs) -> T:
        for _ in range(_TRIES - 1):
            try:
                return work(*args, **options)
            except OvertakenError:  # it was read anew: the next try sees what is there
                continue
        return work(*args, **options)

    return run
