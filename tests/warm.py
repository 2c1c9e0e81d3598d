"""Processes that start at once: each is forked from one that has imported everything.

That one does nothing else, so such a process is as a new interpreter, but for the two seconds
that importing and tidying up take. It can be killed at any moment.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import langchain_nanomem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MODULES = (
    "langchain.agents",
    "langchain_nanomem.cli",
    "langchain_openai",
    "langgraph.checkpoint.sqlite",
    "langgraph.prebuilt",
    "psycopg_pool",
)
_MOST_BYTES = 1 << 17


class Process:
    """A process that runs some Python code. Its streams are text.

    Args:
        code: What it runs.
        arguments: What it has as ``sys.argv[1:]``.
        env: Its environment; by default ours.
    """

    def __init__(
        self, code: str, arguments: Sequence[object] = (), env: dict[str, str] | None = None
    ) -> None:
        job = {"code": code, "arguments": [*map(str, arguments)], "env": env or {**os.environ}}
        (stdin, told_to), (told, stdout), (told_of, status) = os.pipe(), os.pipe(), os.pipe()
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - read later
        ends = [stdin, stdout, self._errors.fileno(), status]
        socket.send_fds(_server(), [json.dumps(job).encode()], ends)
        for end in (stdin, stdout, status):
            os.close(end)
        self.stdin = os.fdopen(told_to, "w", encoding="utf-8")
        self.stdout = os.fdopen(told, encoding="utf-8")
        self._status = os.fdopen(told_of)
        self.pid = int(self._status.readline())
        self._returncode: int | None = None

    def kill(self) -> None:
        """End it, whatever it does; it may have ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float = 60) -> int:
        """How it ended, once it has: as `subprocess` tells it. It is killed after so many seconds.

        Raises:
            TimeoutError: It was.
        """
        with self._killed_after(timeout):
            if self._returncode is None:
                self._returncode = int(self._status.readline())
            return self._returncode

    def communicate(self, timeout: float = 240) -> tuple[str, str]:
        """What it wrote, once it has ended; it is told nothing more.

        Raises:
            TimeoutError: It was killed after so many seconds.
        """
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        with self.stdout, self._errors, self._status, self._killed_after(timeout):
            written = self.stdout.read()
            self.wait(timeout)
            self._errors.seek(0)
            return written, self._errors.read()

    @contextlib.contextmanager
    def _killed_after(self, seconds: float) -> Iterator[None]:
        is_late = threading.Event()
        timer = threading.Timer(seconds, lambda: (is_late.set(), self.kill()))
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
        if is_late.is_set():
            raise TimeoutError(f"process {self.pid} took longer than {seconds} s")


def run(
    code: str, *arguments: object, env: dict[str, str] | None = None, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """What a process writes that runs this code, and how it ends; in so many seconds at most."""
    process = Process(code, arguments, env)
    written, errors = process.communicate(timeout)
    return subprocess.CompletedProcess(code, process.wait(), written, errors)


@functools.cache
def _server() -> socket.socket:
    """Gets at the process that all others are forked from."""
    ours, theirs = socket.socketpair()
    roots = [Path(__file__).parent, Path(langchain_nanomem.__file__).parents[1]]
    path = os.pathsep.join([*map(str, roots), os.environ.get("PYTHONPATH", "")])
    server = subprocess.Popen(
        [sys.executable, "-c", f"import warm; warm.serve({theirs.fileno()})"],
        pass_fds=[theirs.fileno()],
        env={**os.environ, "PYTHONPATH": path},
    )
    theirs.close()
    atexit.register(server.wait)
    atexit.register(ours.close)
    return ours


def serve(number: int) -> NoReturn:
    """Fork a process for each job that comes through a socket."""
    for name in _MODULES:
        importlib.import_module(name)
    with socket.socket(fileno=number) as jobs:
        while True:
            job, ends, _, _ = socket.recv_fds(jobs, _MOST_BYTES, 4)
            if not job:
                sys.exit()
            if os.fork() == 0:
                _begin(json.loads(job), ends)
            for end in ends:
                os.close(end)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _begin(job: dict[str, Any], ends: list[int]) -> NoReturn:
    """Fork the process of a job; tell its number, and how it ended."""
    if (worker := os.fork()) == 0:
        _work(job, ends)
    *streams, status = ends
    for end in streams:
        os.close(end)
    os.write(status, b"%d\n" % worker)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    os.write(status, b"%d\n" % code)
    os._exit(0)


def _work(job: dict[str, Any], ends: list[int]) -> NoReturn:
    """Be a new interpreter that runs the job's code."""
    for place, end in enumerate(ends[:3]):
        os.dup2(end, place)
    for end in ends:
        os.close(end)
    os.environ.clear()
    os.environ.update(job["env"])
    time.tzset()
    sys.argv = ["-c", *job["arguments"]]
    sys.stdin, sys.stdout, sys.stderr = (
        open(0, closefd=False),  # noqa: SIM115 - they are there as long as the process
        open(1, "w", closefd=False),  # noqa: SIM115
        open(2, "w", closefd=False, buffering=1),  # noqa: SIM115
    )
    code = 0
    try:
        exec(compile(job["code"], "<string>", "exec"), vars(sys.modules["__main__"]))
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
    except BaseException:  # noqa: BLE001 - as an interpreter does
        traceback.print_exc()
        code = 1
    threading._shutdown()  # what an interpreter does at its end, but for the second of tidying up
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
