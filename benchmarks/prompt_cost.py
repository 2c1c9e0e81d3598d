"""What prompts cost: the same conversations through each approach's own code.

    NANOMEM_LOCOMO=locomo.json python benchmarks/prompt_cost.py [--results DIR] [--settings]

Six months-long dialogues, and the log of an agent with many tools, at windows of 4,000 and 8,000
tokens, through: everything, `trim_messages`, LangChain's `SummarizationMiddleware`, langmem,
deepagents, and ours. With ``--settings`` each over several settings, for the figure. With
``--check`` each target is printed with its figure. Peers need ``pip install langmem deepagents``;
without them they are left out, and that is said.

Without the dialogues (CC BY-NC, not part of this project) only the agent's log is run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import os
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_cost_approaches import APPROACHES, Approach, Setting
from prompt_cost_bound import section
from prompt_cost_conversations import Talk, agent_log, dialogues
from prompt_cost_report import draw, tables, targets, totals
from prompt_cost_run import Measured, measure

if TYPE_CHECKING:
    from collections.abc import Iterator

Job = tuple[str, Talk, Setting]


def main() -> None:
    """Run what was asked for, and print or write it."""
    options = _options()
    if options.report:
        runs = _kept(options.report, set())
    else:
        with ProcessPoolExecutor(options.processes, initializer=_quiet) as pool:
            runs = list(pool.map(_run, _jobs(options)))
        if options.approaches and options.results:
            runs = _kept(options.results, {run.approach for run in runs}) + runs
    found = totals(runs)
    print(tables(found))
    if options.check:
        for target in targets(found):
            print(f"{'holds' if target.holds else 'FAILS':6} {target.figure:>18}  {target.what}")
    if directory := options.results or options.report:
        directory.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(json.dumps(run.as_json()) for run in runs)
        (directory / "prompt-cost.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
        note = directory / "prompt-cost-note.md"
        told = note.read_text(encoding="utf-8") if note.exists() else ""
        bounds = section(runs, talks) if (talks := _dialogues()) else ""
        (directory / "prompt-cost.md").write_text(tables(found) + bounds + told, encoding="utf-8")
        draw(found, directory / "prompt-cost.png")


def _kept(directory: Path, new: set[str]) -> list[Measured]:
    """What was written there of other approaches."""
    path = directory / "prompt-cost.json"
    there = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return [Measured(**one) for one in there if one["approach"] not in new]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--windows", type=int, nargs="+", default=[4_000, 8_000])
    parser.add_argument(
        "--approaches", nargs="+", help="parts of their names; others stay as they are"
    )
    parser.add_argument("--talks", type=int, help="so many dialogues only")
    parser.add_argument("--settings", action="store_true", help="several settings each")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--check", action="store_true", help="print the targets")
    parser.add_argument("--results", type=Path, help="write tables and figure there")
    parser.add_argument("--report", type=Path, help="from what was written there, run nothing")
    return parser.parse_args()


def _jobs(options: argparse.Namespace) -> Iterator[Job]:
    talks = _dialogues()[: options.talks]
    if not talks:
        print("NANOMEM_LOCOMO names no file: the agent's log alone\n")
    for approach in _chosen(options.approaches):
        for window in options.windows:
            for talk in [*talks, agent_log()]:
                is_log = talk.name == "tools"
                knobs = approach.knobs if options.settings and not is_log else ()
                for knob in dict.fromkeys([approach.usual, *knobs]):
                    yield approach.name, talk, Setting(window, knob)


def _dialogues() -> list[Talk]:
    path = os.environ.get("NANOMEM_LOCOMO")
    return dialogues(Path(path)) if path else []


def _chosen(parts: list[str] | None) -> Iterator[Approach]:
    for approach in APPROACHES:
        missing = [name for name in approach.needs if importlib.util.find_spec(name) is None]
        if missing:
            print(f"{approach.name} is left out: pip install {' '.join(missing)}\n")
        elif parts is None or any(part in approach.name for part in parts):
            yield approach


def _quiet() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


def _run(job: Job) -> Measured:
    name, talk, setting = job
    return measure(next(one for one in APPROACHES if one.name == name), talk, setting)


if __name__ == "__main__":
    main()
