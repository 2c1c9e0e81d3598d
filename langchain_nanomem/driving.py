"""Consolidations as steps: one code, driven synchronously and asynchronously."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from typing import TypeVar

from langchain_nanomem.model_calls import Call, Reply

Result = TypeVar("Result")
Steps = Generator[Call, Reply, Result]
"""Yields the model calls to make, and is sent what came of them."""


def drive(steps: Steps[Result]) -> Result:
    """Run the steps, making the model calls they ask for."""
    with contextlib.closing(steps):  # also when the user interrupts the model
        step = _next_step(steps, None)
        while isinstance(step, Call):
            step = _next_step(steps, step.invoke())
        return step


async def adrive(steps: Steps[Result]) -> Result:
    """The same: files are touched in a thread, the model is called asynchronously."""
    try:
        step = await _in_thread(steps, None)
        while isinstance(step, Call):
            step = await _in_thread(steps, await step.ainvoke())
        return step
    finally:
        with contextlib.suppress(ValueError):  # cancelled twice, it still runs in its thread
            steps.close()


async def _in_thread(steps: Steps[Result], reply: Reply | None) -> Call | Result:
    """The next step. A cancellation waits for it: nobody else may begin while it still writes."""
    step = asyncio.ensure_future(asyncio.to_thread(_next_step, steps, reply))
    try:
        return await asyncio.shield(step)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):  # the cancellation says more
            await step
        raise


def _next_step(steps: Steps[Result], reply: Reply | None) -> Call | Result:
    try:
        return steps.send(reply)  # type: ignore[arg-type]  # None starts a generator
    except StopIteration as stop:
        result: Result = stop.value
        return result
