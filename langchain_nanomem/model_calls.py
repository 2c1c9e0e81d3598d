"""Calls of the consolidating model: how long they may take, when they are made again, or not."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.constants import TAG_NOSTREAM

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from langchain_core.runnables import Runnable, RunnableConfig

Result = TypeVar("Result")
Reply = BaseMessage | Exception

CONFIG: RunnableConfig = {"run_name": "nanomem_consolidation", "tags": [TAG_NOSTREAM, "nanomem"]}
"""Marks the call in traces, and keeps its tokens out of a graph's stream."""
_TRANSIENT_STATUS = frozenset({408, 409, 425, 429})
_SERVER_FAULT = range(500, 600)
_TRANSIENT_NAMES = ("Timeout", "Connection", "Transport", "Network", "RateLimit", "Unavailable")
_MAX_DELAY_SECONDS = 30.0


class Call(NamedTuple):
    """A model call that is to be made."""

    model: Runnable[Any, Any]
    messages: list[BaseMessage]
    timeout_seconds: float | None = None
    """When it is given up; None: never."""
    delay_seconds: float = 0.0
    """How long to wait before it."""

    def invoke(self) -> Reply:
        """What the model answered, or how it failed."""
        time.sleep(self.delay_seconds)
        try:
            call = lambda: self.model.invoke(self.messages, CONFIG)  # noqa: E731
            return _as_message(_within(self.timeout_seconds, call))
        except Exception as error:  # noqa: BLE001 - a model may fail in any way; the turn goes on
            return error

    async def ainvoke(self) -> Reply:
        """The same, asynchronously."""
        await asyncio.sleep(self.delay_seconds)
        try:
            call = self.model.ainvoke(self.messages, CONFIG)
            return _as_message(await asyncio.wait_for(call, self.timeout_seconds))
        except Exception as error:  # noqa: BLE001 - a model may fail in any way; the turn goes on
            return error


def _as_message(reply: Any) -> BaseMessage:
    return reply if isinstance(reply, BaseMessage) else AIMessage(str(reply))


def _within(timeout_seconds: float | None, call: Callable[[], Result]) -> Result:
    """What a call gives in that time. One that takes longer goes on by itself, unheard.

    Raises:
        TimeoutError: It takes longer.
    """
    if timeout_seconds is None:
        return call()
    outcome: Future[Result] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome.set_result(context.run(call))
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            outcome.set_exception(error)

    threading.Thread(target=run, name="nanomem-model-call", daemon=True).start()
    return outcome.result(timeout_seconds)


def statuses_of(error: BaseException) -> set[int]:
    """The HTTP statuses that an error of a provider's client tells."""
    places = (error, getattr(error, "response", None))
    names = ("status_code", "code", "http_status")
    found = (getattr(place, name, None) for place in places for name in names)
    return {status for status in found if isinstance(status, int)}


def is_transient(error: BaseException | None) -> bool:
    """Whether a model failed in a way that passes: out of reach, too busy, too slow."""
    if error is None:
        return False
    if isinstance(error, (TimeoutError, ConnectionError)):
        return True
    statuses = statuses_of(error)
    if statuses:
        return any(one in _TRANSIENT_STATUS or one in _SERVER_FAULT for one in statuses)
    names = [kind.__name__ for kind in type(error).__mro__]
    return any(part in name for name in names for part in _TRANSIENT_NAMES)


class CircuitBreaker:
    """Lets a model that is out of reach alone for a while.

    After `threshold` failures in a row that would pass, whatever the session, it is open for
    `pause_seconds`; then it is tried again, and each further failure doubles the pause.

    Args:
        threshold: How many failures open it.
        pause_seconds: The first pause; 0: it never opens.
        longest_seconds: The longest pause.
        clock: Tells the seconds.
    """

    def __init__(
        self,
        *,
        threshold: int = 5,
        pause_seconds: float = 30.0,
        longest_seconds: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._threshold = threshold
        self._first, self._longest = pause_seconds, longest_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the model is to be left alone now."""
        return self._failures >= self._threshold and self._clock() < self._until

    def note(self, reply: Reply) -> None:
        """Note what came of a call: an answer, whatever it says, or how the model failed."""
        with self._lock:
            if not (isinstance(reply, Exception) and is_transient(reply)):
                self._failures = 0
                return
            self._failures += 1
            doublings = min(max(self._failures - self._threshold, 0), 32)
            self._until = self._clock() + min(self._first * 2.0**doublings, self._longest)


@dataclass
class Spent:
    """What calls of the consolidating model took."""

    calls: int = 0
    input_tokens: int = 0
    """As the provider told; counted where it did not."""
    output_tokens: int = 0
    seconds: float = 0.0


class ModelCaller:
    """Makes calls with a timeout, makes those again that failed in a way that passes, and counts.

    The waits before the second, third and fourth time are 1, 2 and 4 seconds, and so on, up to
    30.

    Args:
        timeout_seconds: When a call is given up; None: never.
        retries: How often a call is made again.
        breaker: Is told what came of each.
        count: Counts the tokens of messages.
    """

    def __init__(
        self,
        timeout_seconds: float | None,
        retries: int,
        breaker: CircuitBreaker,
        count: Callable[[list[BaseMessage]], int],
    ) -> None:
        self._timeout = timeout_seconds
        self._retries = retries
        self._breaker = breaker
        self._count = count

    @property
    def is_paused(self) -> bool:
        """Whether the model is to be let alone now."""
        return self._breaker.is_open

    def through(
        self, steps: Generator[Call, Reply, Result], spent: Spent
    ) -> Generator[Call, Reply, Result]:
        """`steps`, with their calls made so; what they take is added to `spent`."""
        try:
            call = next(steps)
            while True:
                call = steps.send((yield from self._patient(call, spent)))
        except StopIteration as stop:
            result: Result = stop.value
            return result
        finally:
            steps.close()

    def _patient(self, call: Call, spent: Spent) -> Generator[Call, Reply, Reply]:
        reply = yield from self._attempt(call, spent)
        for number in range(self._retries):
            if not (isinstance(reply, Exception) and is_transient(reply)):
                break
            delay = min(2.0**number, _MAX_DELAY_SECONDS)
            reply = yield from self._attempt(call._replace(delay_seconds=delay), spent)
        return reply

    def _attempt(self, call: Call, spent: Spent) -> Generator[Call, Reply, Reply]:
        begun = time.monotonic()
        reply = yield call._replace(timeout_seconds=self._timeout)
        spent.seconds += time.monotonic() - begun - call.delay_seconds
        self._breaker.note(reply)
        spent.calls += 1
        if isinstance(reply, BaseMessage):
            usage = getattr(reply, "usage_metadata", None) or {}
            spent.input_tokens += usage.get("input_tokens") or self._count(call.messages)
            spent.output_tokens += usage.get("output_tokens") or self._count([reply])
        return reply
