"""The results as tables of Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from checkpointer_savers import FLOOR, OURS, SAVERS, is_peer
from checkpointer_targets import standing, targets_of
from checkpointer_workloads import SNAPSHOT_FREQUENCY, WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from checkpointer_results import Results

_ABSENT = "-"
_MB = 1_000_000
_LEAST = 0.001
INTRODUCTION = f"""\
# The checkpointers, side by side

Written by `benchmarks/checkpointers.py`. Each row is the median of all rounds. Every measurement
has a process of its own, and the checkpointers take turns, so that what else the machine does
hits all alike: compare rows, not runs. Every run is checked: the state has as many messages as it
must, and what is read, also after reopening, equals what the last turn gave.

- **a turn, first → last**: the median of the first 20th of the turns (without the very first) and
  of the last, each of five turns at least.
- **stored**: the size of the files once closed. PostgresSaver: its tables with their indexes.
  InMemorySaver: the serialized values it holds in memory.
- **payload**: the bytes of what was said: texts, tool results, images, fields.
- **get_tuple, get_state, list(10)**: of the thread's end, warm. With a `DeltaChannel` (here with
  `snapshot_frequency={SNAPSHOT_FREQUENCY}`) `get_tuple` and `list` read no messages: only
  `get_state` puts them together.
- **cold open**: a new checkpointer on the same data, and its first `get_tuple`; the modules are
  loaded and the files may be in the page cache.
- **peak RSS**: of the whole process, Python and LangGraph included.
- **floor**: a checkpointer that keeps the live objects and writes nothing: what LangGraph costs.
"""

_MORE_COLUMNS = {
    "get_tuple_ms": ("get_tuple ms", 1),
    "get_state_ms": ("get_state ms", 1),
    "list_ms": ("list(10) ms", 1),
    "cold_open_ms": ("cold open ms", 1),
    "delete_ms": ("delete ms", 1),
    "left_bytes": ("left after delete MB", _MB),
    "peak_rss_bytes": ("peak RSS MB", _MB),
}
_COMPARED = {
    "total_ms": "total",
    "last_ms": "a last turn",
    "stored_bytes": "stored",
    "get_tuple_ms": "get_tuple",
    "get_state_ms": "get_state",
    "list_ms": "list(10)",
    "cold_open_ms": "cold open",
    "delete_ms": "delete",
    "peak_rss_bytes": "peak RSS",
}


def section(results: Results, directory: Path) -> str:
    """Everything about one workload: tables, and the figure and the note if they are there."""
    name = results.workload
    parts = [f"## {WORKLOADS[name].title}\n"]
    parts.append("\n".join(f"- {what}: {said}" for what, said in results.about.items()) + "\n")
    if (targets := targets_of(results)) is not None:
        parts += [f"### The targets, at N = {targets.turns:,}\n", _targets(targets.rows)]
    parts += [f"{sentence}\n" for sentence in standing(results)]
    note = directory / f"checkpointers-{name}-note.md"
    if note.exists():
        parts.append(note.read_text(encoding="utf-8"))
    if (directory / f"checkpointers-{name}.png").exists():
        parts.append(
            f"![Time a turn and bytes stored against the turns](checkpointers-{name}.png)\n"
        )
    for turns in results.turns:
        parts += [f"### N = {turns:,} turns\n", _measures(results, turns)]
        if any(is_peer(saver) for saver in results.savers(turns)) and OURS in results.rounds:
            parts += [f"{SAVERS[OURS].title} ÷ …\n", _ratios(results, turns)]
    return "\n".join(parts)


def _targets(rows: Iterable[tuple[str, str, str, str]]) -> str:
    return _table(["what", "target", "measured (rounds)", "holds"], rows)


def _measures(results: Results, turns: int) -> str:
    head = ["checkpointer", "total s", "ms a turn, first → last", "last ÷ first"]
    head += ["stored MB", "stored ÷ payload", *(title for title, _ in _MORE_COLUMNS.values())]
    return _table(head, (_row(results, saver, turns) for saver in results.savers(turns)))


def _row(results: Results, saver: str, turns: int) -> list[str]:
    def median(measure: str, unit: float = 1) -> float | None:
        return _divided(results.median(saver, turns, measure), unit)

    first, last = median("first_ms"), median("last_ms")
    stored = median("stored_bytes") if saver != FLOOR else None
    return [
        SAVERS[saver].title,
        _number(median("total_ms", 1_000)),
        f"{_number(first)} → {_number(last)}",
        _number(_divided(last, first)),
        _number(_divided(stored, _MB)),
        _number(_divided(stored, median("payload_bytes"))),
        *(_number(median(name, unit)) for name, (_, unit) in _MORE_COLUMNS.items()),
    ]


def _ratios(results: Results, turns: int) -> str:
    rows = []
    for saver in results.savers(turns):
        if saver != OURS:
            ratios = [
                _divided(results.median(OURS, turns, name), results.median(saver, turns, name))
                for name in _COMPARED
            ]
            rows.append([SAVERS[saver].title, *map(_number, ratios)])
    return _table(["beside", *_COMPARED.values()], rows)


def _divided(value: float | None, by: float | None) -> float | None:
    return value / by if value is not None and by else None


def _number(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return _ABSENT
    if 0 < value < _LEAST:
        return f"< {_LEAST}"
    digits = next(digits for least, digits in ((100, 0), (10, 1), (1, 2), (0, 3)) if value >= least)
    return f"{value:,.{digits}f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
