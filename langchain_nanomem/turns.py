"""The turns of a session, one after the other, in the order in which they came."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import Future
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


_inside: ContextVar[frozenset[tuple[int, str]]] = ContextVar("inside", default=frozenset())
"""The turns in which the program is, by whose they are and the session."""


class Turns:
    """Has a turn of a session wait for those of this process that came before it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._last: dict[str, Future[None]] = {}

    @contextlib.contextmanager
    def turn(self, key: str) -> Iterator[None]:
        """Wait for the earlier ones, then hold up the later ones until the block ends.

        One that begins inside of a turn of the same session is a part of that.
        """
        with self._queued(key) as before:
            if before is not None:
                before.result()
            yield

    @contextlib.asynccontextmanager
    async def aturn(self, key: str) -> AsyncIterator[None]:
        """`turn`, without blocking the event loop."""
        with self._queued(key) as before:
            if before is not None:
                await asyncio.shield(asyncio.wrap_future(before))  # it is others' too
            yield

    @contextlib.contextmanager
    def inside(self, key: str) -> Iterator[None]:
        """What is called until the block ends is called inside of a turn of this session."""
        token = _inside.set(_inside.get() | {(id(self), key)})
        try:
            yield
        finally:
            _inside.reset(token)

    @contextlib.contextmanager
    def _queued(self, key: str) -> Iterator[Future[None] | None]:
        """The end of the turn to wait for, if there is one; the block is the next turn."""
        if (id(self), key) in _inside.get():
            yield None
            return
        mine: Future[None] = Future()
        with self._guard:
            before = self._last.get(key)
            self._last[key] = mine
        try:
            yield before
        finally:
            self._end(key, before, mine)

    def _end(self, key: str, before: Future[None] | None, mine: Future[None]) -> None:
        """Let the next one in; behind one that was given up as it waited, once it would be due."""
        if before is None:
            self._let_in(key, mine)
        else:
            before.add_done_callback(lambda _: self._let_in(key, mine))

    def _let_in(self, key: str, mine: Future[None]) -> None:
        with self._guard:
            if self._last.get(key) is mine:
                del self._last[key]
        mine.set_result(None)
