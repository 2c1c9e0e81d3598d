"""The system calls by which a process changes the disk, open to be watched or broken off."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

CALLS = (
    "fdatasync",
    "fsync",
    "ftruncate",
    "link",
    "mkdir",
    "pwrite",
    "remove",
    "rename",
    "replace",
    "truncate",
    "unlink",
    "write",
    "writev",
)
Hook = Callable[..., Any]

_hooks: list[Hook] = []
real_write = os.write
"""`os.write` for what is no change of the disk."""


def watch() -> None:
    """Put a place for a hook around each of the calls, before others take hold of them."""
    for name in CALLS:
        if hasattr(os, name):
            setattr(os, name, _watched(getattr(os, name)))


def hook_in(hook: Hook) -> None:
    """Have `hook(call, *args)` run in place of each call from now on."""
    _hooks[:] = [hook]


def _watched(call: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*args: Any, **kwargs: Any) -> Any:
        return _hooks[0](call, *args, **kwargs) if _hooks else call(*args, **kwargs)

    return watched


class Death:
    """A hook that kills the process at one of its calls.

    Args:
        step: At which of them, from 0.
        how: "before" or "after" the call; "half": after half of it, of writes alone.
    """

    def __init__(self, step: int, how: str) -> None:
        self._left = step
        self._how = how

    def __call__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._left -= self._how != "half" or call.__name__ == "write"
        if self._left >= 0:
            return call(*args, **kwargs)
        if self._how == "after":
            call(*args, **kwargs)
        elif self._how == "half":
            call(args[0], bytes(args[1])[: len(args[1]) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("a killed process goes on")


class Syncs:
    """A hook that reports what a power loss can no longer take: the inode and size synced."""

    def __init__(self, report: Callable[[int, int], None]) -> None:
        self._report = report

    def __call__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if call.__name__ not in {"fsync", "fdatasync"}:
            return call(*args, **kwargs)
        status = os.fstat(args[0])
        call(*args, **kwargs)
        self._report(status.st_ino, status.st_size)
        return None
