"""Making many objects at once, without the cyclic collector looking through them meanwhile."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Turn:
    """Whose turn it is to pause: one thread's at a time, so that nobody ends another's pause."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: int | None = None

    def take(self) -> bool:
        """Take it; False where another one has it, or this thread has it already."""
        if not self._lock.acquire(blocking=False):
            return False
        self._thread = threading.get_ident()
        return True

    def give_back(self) -> None:
        self._thread = None
        self._lock.release()

    def end_in_child(self) -> None:
        """End, in a forked process, the pause of a thread that there is only in its parent."""
        if self._thread not in {None, threading.get_ident()}:
            gc.enable()
            self.give_back()


_turn = _Turn()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_turn.end_in_child)


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Nothing is collected until the block ends; what is due by then is collected right after.

    For short blocks that make many objects and no garbage. The collector counts new objects,
    and looks through all that the process holds when they are many: for ten checkpoints of two
    thousand messages that took longer than making them. Of several threads that pause at once
    only one does, so that between any two of its pauses the collector gets its turn. Where a
    program has switched the collector off, it stays off.
    """
    if not gc.isenabled() or not _turn.take():
        yield
        return
    try:
        gc.disable()
        yield
    finally:
        gc.enable()
        _turn.give_back()
