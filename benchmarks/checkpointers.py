"""Our checkpointer beside LangGraph's own, in time, bytes and memory.

    python benchmarks/checkpointers.py                              # all of it: hours
    python benchmarks/checkpointers.py --workloads chat --turns 50 --repeats 1

Each measurement has a process of its own; the checkpointers take turns in every round. Tables,
figures and the measurements themselves go to `benchmarks/results/`, those of other workloads
stay. Some peers need 10 GB of disk or memory at the sizes of the full run.

PostgresSaver is a peer where NANOMEM_POSTGRES_URL names a database; it gets a schema of its own
there. `checkpointers-<workload>-note.md`, if it is in the results, becomes part of the tables.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from importlib.util import find_spec
from itertools import product
from pathlib import Path

from checkpointer_postgres import server_version
from checkpointer_results import Measurement, Results, describe_run
from checkpointer_run import Task
from checkpointer_savers import SAVERS, default_savers, is_peer, lacking
from checkpointer_tables import INTRODUCTION, section
from checkpointer_workloads import WORKLOADS

HERE = Path(__file__).parent


def main() -> None:
    """Measure what was chosen, workload by workload, and write it down."""
    parser = _parser()
    given = parser.parse_args()
    if (lack := lacking(given.savers)) and not given.report:
        parser.error(lack)
    if not find_spec("matplotlib"):
        print("matplotlib is not installed: no figures.", flush=True)
    for name in given.workloads if not given.report else ():
        measure(name, given).save(given.results)
        print(write_report(given.results, [name]), flush=True)
    write_report(given.results)
    print(f"Written to {given.results}.")


def measure(name: str, given: argparse.Namespace) -> Results:
    """All rounds of one workload."""
    settings = {"durability": given.durability, "rounds": given.repeats}
    if any("postgres" in saver for saver in given.savers):
        settings["PostgreSQL"] = server_version()
    results = Results(name, describe_run(settings, given.directory), {})
    sizes, savers = given.turns or WORKLOADS[name].turns, dict.fromkeys(given.savers)
    for _, turns, saver in product(range(given.repeats), sorted(set(sizes)), savers):
        if _is_played(name, saver, turns, given.peer_turns):
            measured = measure_apart(
                Task(name, saver, turns, given.durability, ""), given.directory
            )
            results.add(saver, turns, measured)
            print(
                f"{name:<7}{turns:>6,} turns  {SAVERS[saver].title:<32}"
                f"{measured.total_ms / 1_000:>9.2f} s {measured.last_ms:>9.2f} ms a last turn"
                f"{measured.stored_bytes / 1_000_000:>10.2f} MB",
                flush=True,
            )
    return results


def _is_played(name: str, saver: str, turns: int, peer_turns: int | None) -> bool:
    """Whether so many turns are asked of this checkpointer."""
    workload = WORKLOADS[name]
    if SAVERS[saver].has_delta and not workload.has_messages:
        return False
    return not is_peer(saver) or turns <= (peer_turns or workload.peer_turns)


def measure_apart(task: Task, directory: str | None) -> Measurement:
    """One measurement in a new process and a new directory.

    Raises:
        SystemExit: It failed; what it said is on the standard error.
    """
    with tempfile.TemporaryDirectory(prefix="checkpointers_", dir=directory) as place:
        wanted = json.dumps(asdict(task) | {"place": place})
        command = [sys.executable, str(HERE / "checkpointer_run.py"), wanted]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    # what this one left to be written must not slow the next
    os.sync()
    if done.returncode:
        raise SystemExit(f"failed: {task}")
    return Measurement(**json.loads(done.stdout))


def write_report(directory: Path, names: list[str] | None = None) -> str:
    """Draw the figures and write `checkpointers.md`, from the measurements that are kept there.

    Args:
        directory: Where they are.
        names: With these workloads alone, nothing is written but their figures.

    Returns:
        The text.
    """
    kept = [Results.load(directory, name) for name in names or WORKLOADS]
    found = [results for results in kept if results is not None]
    if find_spec("matplotlib"):
        from checkpointer_figures import draw  # noqa: PLC0415 - optional

        for results in found:
            draw(results, directory)
    text = "\n".join(section(results, directory) for results in found)
    if names is None and found:
        path = directory / "checkpointers.md"
        path.write_text(f"{INTRODUCTION}\n{text}", encoding="utf-8")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--workloads", nargs="+", choices=WORKLOADS, default=[*WORKLOADS], metavar="NAME",
        help=f"of {', '.join(WORKLOADS)}; all")  # fmt: skip
    add("--savers", nargs="+", choices=SAVERS, default=default_savers(), metavar="NAME",
        help=f"of {', '.join(SAVERS)}; without our variants")  # fmt: skip
    add("--turns", nargs="+", type=_at_least_two, metavar="N",
        help="numbers of turns; each workload's own")  # fmt: skip
    add("--peer-turns", type=int, metavar="N",
        help="the most that others than ours play; each workload's own")  # fmt: skip
    add("--repeats", type=_at_least_one, default=3, metavar="N", help="rounds; 3")
    add("--durability", choices=("sync", "async", "exit"), default="async",
        help="LangGraph's; async, which is its default")  # fmt: skip
    add("--results", type=Path, default=HERE / "results", metavar="DIRECTORY",
        help="where tables and figures go; benchmarks/results")  # fmt: skip
    add(
        "--directory",
        metavar="DIRECTORY",
        help="where the data are while measured; a temporary one",
    )
    add("--report", action="store_true", help="measure nothing: tables and figures anew")
    return parser


def _at_least(least: int, text: str) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be {least} or more, not {text!r}")
    return int(text)


def _at_least_one(text: str) -> int:
    return _at_least(1, text)


def _at_least_two(text: str) -> int:
    return _at_least(2, text)


if __name__ == "__main__":
    main()
