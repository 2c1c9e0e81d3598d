"""Work that is done behind the answer, so that nobody waits for it."""

from __future__ import annotations

import contextvars
import logging
import os
import threading
from collections import deque
from typing import TYPE_CHECKING

from langchain_core.runnables.config import var_child_runnable_config

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

_MAX_THREADS = 4


class DeferredWork:
    """Runs pieces of work in threads of its own, one at a time for each session.

    Nothing is begun once the program has come to its end, and what runs then ends with it.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._keys: set[str] = set()
        self._queue: deque[tuple[str, Callable[[], object]]] = deque()
        self._threads = 0

    def submit(self, key: str, work: Callable[[], object]) -> bool:
        """Have `work` done soon. False: some of this session is still to be done.

        It runs in the context of the caller, but for the graph's own: no stream is written to.
        """
        if self._process != os.getpid():  # a fork has none of the threads
            self._reset()
        task = _detached(work)
        with self._changed:
            if key in self._keys:
                return False
            self._keys.add(key)
            self._queue.append((key, task))
            if self._threads < _MAX_THREADS:
                self._threads += 1
                threading.Thread(target=self._run, name="nanomem-deferred", daemon=True).start()
        return True

    def wait(self, timeout_seconds: float | None) -> bool:
        """Wait until all is done, up to a time; what is not begun by then is dropped.

        Args:
            timeout_seconds: How long; None: as long as it takes; 0: not at all.

        Returns:
            Whether all is done.
        """
        with self._changed:
            is_done = self._changed.wait_for(lambda: not self._keys, timeout_seconds)
            self._keys.difference_update(key for key, _ in self._queue)
            self._queue.clear()
            return is_done

    def _run(self) -> None:
        while (task := self._next()) is not None:
            key, work = task
            try:
                work()
            except Exception:
                logger.exception("session %r: deferred consolidation failed", key)
            with self._changed:
                self._keys.discard(key)
                self._changed.notify_all()

    def _next(self) -> tuple[str, Callable[[], object]] | None:
        with self._changed:
            if self._queue and threading.main_thread().is_alive():
                return self._queue.popleft()
            self._threads -= 1
            return None


def _detached(work: Callable[[], object]) -> Callable[[], object]:
    """`work` with the caller's callbacks and variables, and without its place in a graph."""
    context = contextvars.copy_context()
    config = context.get(var_child_runnable_config)
    if config is not None:
        outside = config.copy()
        outside.pop("configurable", None)
        context.run(var_child_runnable_config.set, outside)
    return lambda: context.run(work)
