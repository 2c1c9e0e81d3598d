"""The results of a workload as a figure: time a turn, and bytes stored, against the turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from checkpointer_savers import FLOOR, OURS, SAVERS
from checkpointer_workloads import WORKLOADS
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

if TYPE_CHECKING:
    from pathlib import Path

    from checkpointer_results import Results
    from matplotlib.axes import Axes

_MB = 1_000_000
_COLOURS = {
    OURS: "#d55e00",
    FLOOR: "#777777",
    "memory": "#0072b2",
    "sqlite": "#009e73",
    "async-sqlite": "#cc79a7",
    "postgres": "#8c6d00",
}  # told apart by those who see fewer colours too
_MARKERS = {
    OURS: "o",
    FLOOR: ".",
    "memory": "s",
    "sqlite": "^",
    "async-sqlite": "v",
    "postgres": "D",
}
_LINES = {
    FLOOR: "--",
    "nanomem-async": "--",
    "nanomem-record": "-.",
    "nanomem-none": ":",
}


def draw(results: Results, directory: Path) -> None:
    """Write ``checkpointers-<workload>.png``."""
    figure = Figure(figsize=(11, 5.6), layout="constrained")
    times, sizes = figure.subplots(1, 2)
    for saver in results.rounds:
        _draw_line(times, results, saver, "last_ms", 1)
        if saver != FLOOR:
            _draw_line(sizes, results, saver, "stored_bytes", _MB)
    _draw_payload(sizes, results)
    _label(times, results, "Time of a turn at the thread's end", "ms a turn")
    _label(sizes, results, "Stored for the thread", "MB")
    figure.suptitle(WORKLOADS[results.workload].title, fontsize=12)
    lines = {line.get_label(): line for axes in (times, sizes) for line in axes.get_lines()}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(directory / f"checkpointers-{results.workload}.png", dpi=120)


def _draw_line(axes: Axes, results: Results, saver: str, measure: str, unit: float) -> None:
    turns = [n for n in results.turns if saver in results.savers(n)]
    values = [(results.median(saver, n, measure) or 0) / unit for n in turns]
    axes.plot(turns, values, label=SAVERS[saver].title, **_style(saver))


def _style(saver: str) -> dict[str, Any]:
    base, _, delta = saver.partition("+")
    family = base if base in _COLOURS else OURS
    style = {"color": _COLOURS[family], "marker": _MARKERS[family], "linewidth": 1.4, "zorder": 2}
    if delta:
        style["markerfacecolor"] = "white"
    style["linestyle"] = "--" if delta else _LINES.get(base, "-")
    if saver == OURS:
        style |= {"linewidth": 2.6, "zorder": 3}
    if base == "async-sqlite":
        # it stores what SqliteSaver stores: both lines are to be seen
        style |= {"linewidth": 4, "markersize": 9, "alpha": 0.5, "zorder": 1}
    return style


def _draw_payload(axes: Axes, results: Results) -> None:
    saver = max(results.rounds, key=lambda name: len(results.rounds[name]))
    turns = list(results.rounds[saver])
    values = [(results.median(saver, n, "payload_bytes") or 0) / _MB for n in turns]
    axes.plot(turns, values, ".:", label="what was said (payload)", color="black")


def _label(axes: Axes, results: Results, title: str, unit: str) -> None:
    axes.set(xscale="log", yscale="log", title=title, xlabel="turns in the thread, N", ylabel=unit)
    axes.set_xticks(results.turns, [f"{n:,}" for n in results.turns])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
