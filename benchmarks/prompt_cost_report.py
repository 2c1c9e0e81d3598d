"""The results as tables, a figure, and targets that hold or don't."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.figure import Figure
from prompt_cost_approaches import APPROACHES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from prompt_cost_run import Measured

FIXED, CHEAP = "ours, fixed", "ours, cost-aware"
REUSED = "ours, fixed, prompt reused"
CHEAP_REUSED = "ours, cost-aware, prompt reused"
OURS = {FIXED, CHEAP, REUSED, CHEAP_REUSED}
OUTPUT_PRICES = (1.0, 5.0)
INTRODUCTION = """\
# What prompts cost, side by side

Written by `benchmarks/prompt_cost.py`: the same conversations through each approach's own code,
with a model that replays the answers and one that writes recorded summaries (by one rule for all,
stated in `prompt_cost_models.py`). Tokens are counted by `TokenCounter`. The prompt before is what
a provider has cached: the longest common prefix costs a tenth, and so does the prefix of a
summary's prompt that the agent's last prompt has. Costs are in tokens of uncached input.

- **cost (1), cost (5)**: with output of the summaries at the price of input, and at five times
  that. The answers are the same for all and not in it.
- **÷ ours**: against ours with a fixed ratio of 0.5, at an output price of 5.
- **uncached**: of the agent's prompts, as a multiple of what was said.
- **shown**: of what left the prompt, the share that a summariser had been shown; a long text by
  its head and its tail.
- **lost question**: prompts without the user's last message.
- **over**: prompts over the window.
- **verbatim**: the conversation's own words in a prompt, on average.
- **evidence**: the turns that answer the data set's questions, in the last prompt; and there or
  given by our search tool, asked for the twelve words that the turn begins with. The peers' agents
  have no tool that searches (deepagents' can read the file that it offloads to).
- **systems**: different system prompts; **changed**: prompts whose system part is not, to the
  byte, that of the prompt before, though nothing was summarized in between.
- **ms**: the median of a whole turn, without what this benchmark's models took; "everything" is
  what it takes without a memory.
"""
_HEAD = (
    "| approach | cost (1) | cost (5) | ÷ ours | uncached | summaries | their input | largest "
    "| over | lost question | shown | verbatim | evidence | systems | changed | ms |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


class Total(NamedTuple):
    """Several conversations through one approach."""

    runs: list[Measured]

    def cost(self, output_price: float) -> float:
        """Of all of them."""
        return sum(run.cost(output_price) for run in self.runs)

    def sum(self, name: str) -> int:
        """The sum of one measure."""
        return sum(getattr(run, name) for run in self.runs)

    @property
    def verbatim(self) -> float:
        """The mean of the means."""
        return sum(run.verbatim for run in self.runs) / len(self.runs)

    @property
    def uncached(self) -> float:
        """As a multiple of what was said."""
        return self.sum("uncached") / self.sum("said")

    @property
    def shown(self) -> float:
        """The least share that a summariser was shown."""
        return min(run.shown_share for run in self.runs)


Totals = dict[tuple[str, int, float, bool], Total]
"""By approach, window, knob, and whether they are of the agent's log."""


def totals(runs: Iterable[Measured]) -> Totals:
    """The runs of each approach and setting together, dialogues and the agent's log apart."""
    found: dict[tuple[str, int, float, bool], list[Measured]] = defaultdict(list)
    for run in runs:
        found[run.approach, run.window, run.knob, run.talk == "tools"].append(run)
    return {key: Total(some) for key, some in found.items()}


def tables(found: Totals) -> str:
    """All tables, as Markdown."""
    parts = [INTRODUCTION]
    windows = sorted({window for _, window, _, _ in found})
    for is_log in (False, True):
        for window in windows:
            rows = list(_rows(found, window, is_log=is_log))
            what = "An agent's log" if is_log else "Dialogues"
            if rows:
                parts += [f"## {what}, a window of {window:,} tokens\n", _HEAD, *rows, ""]
    return "\n".join(parts)


def _rows(found: Totals, window: int, *, is_log: bool) -> Iterator[str]:
    base = found.get((FIXED, window, 0.5, is_log))
    for approach in APPROACHES:
        total = found.get((approach.name, window, approach.usual, is_log))
        if total is None:
            continue
        ratio = "-" if base is None else f"{total.cost(5) / base.cost(5):.2f}"
        name = f"**{approach.name}**" if approach.name in OURS else approach.name
        calls = total.sum("summary_calls")
        systems = total.sum("systems")
        evidence = (
            f"{total.sum('evidence_verbatim')} / {total.sum('evidence_reachable')} of "
            f"{total.sum('evidence')}"
        )
        milliseconds = sum(run.turn_ms for run in total.runs) / len(total.runs)
        cells = [
            name,
            *(f"{total.cost(price) / 1_000:,.0f} k" for price in OUTPUT_PRICES),
            ratio,
            f"{total.uncached:.2f}",
            str(calls),
            f"{total.sum('summary_input') / 1_000:,.0f} k",
            f"{max(run.largest for run in total.runs):,}",
            str(total.sum("over_window")),
            str(total.sum("lost_question")),
            f"{total.shown:.0%}",
            f"{total.verbatim:,.0f}",
            evidence,
            str(systems),
            str(total.sum("systems_changed")),
            f"{milliseconds:.0f}",
        ]
        yield f"| {' | '.join(cells)} |"


def draw(found: Totals, path: Path) -> None:
    """Cost against verbatim words, each approach over its settings."""
    windows = sorted({window for _, window, _, _ in found})
    figure = Figure(figsize=(6.5 * len(windows), 6), layout="constrained")
    for axes, window in zip(
        figure.subplots(1, len(windows), squeeze=False)[0], windows, strict=True
    ):
        for number, approach in enumerate(APPROACHES):
            line = _line(found, approach.name, window)
            if approach.name in {"everything", "trim_messages"} or not line:
                continue
            axes.plot(
                *zip(*line, strict=True),
                label=approach.name,
                marker="o" if approach.name in OURS else "s^vDPX*"[number % 7],
                linewidth=2.2 if approach.name in OURS else 1,
                linestyle="-" if approach.name in OURS else "--",
                color=_COLOURS.get(approach.name),
            )
        axes.set_title(f"A window of {window:,} tokens")
        axes.set_xlabel("Words of the conversation in a prompt, on average (tokens)")
        axes.set_ylabel("Cost (thousands of uncached input tokens, output 5)")
        axes.set_ylim(0, _tallest(found, window))
        axes.grid(alpha=0.3)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=120)


_COLOURS = {
    FIXED: "#d55e00",
    REUSED: "#e69f00",
    CHEAP: "#0072b2",
    CHEAP_REUSED: "#56b4e9",
}


def _tallest(found: Totals, window: int) -> float:
    """Half as much again as ours costs at most: what is far dearer leaves the picture."""
    ours = [cost for name in OURS for _, cost in _line(found, name, window)]
    return 1.5 * max(ours, default=1.0)


def _line(
    found: Totals, approach: str, window: int, output_price: float = 5
) -> list[tuple[float, float]]:
    return sorted(
        (total.verbatim, total.cost(output_price) / 1_000)
        for (name, size, _, is_log), total in found.items()
        if (name, size, is_log) == (approach, window, False)
    )


# --- targets --------------------------------------------------------------------------


_EVERYTHING = {4_000: 0.5, 8_000: 0.7}
_OF_A_PEER = 0.9


class Target(NamedTuple):
    """One thing that is to hold."""

    what: str
    figure: str
    holds: bool


def targets(found: Totals) -> Iterator[Target]:
    """Each target with its figure, for the dialogues."""
    for window in sorted({window for _, window, _, _ in found}):
        yield from _safe(found, window)
        yield from _cheap(found, window)
        yield from _against_peers(found, window)


def _usual(found: Totals, name: str, window: int) -> Total | None:
    usual = next(approach.usual for approach in APPROACHES if approach.name == name)
    return found.get((name, window, usual, False))


def _safe(found: Totals, window: int) -> Iterator[Target]:
    checks: list[tuple[str, Callable[[Total], float], float]] = [
        ("prompts over the window", lambda t: t.sum("over_window"), 0),
        ("prompts without the live question", lambda t: t.sum("lost_question"), 0),
        ("evicted and never shown", lambda t: 1 - t.shown, 0),
        ("evidence out of reach", lambda t: t.sum("evidence") - t.sum("evidence_reachable"), 0),
        ("changed without a consolidation", lambda t: t.sum("systems_changed"), 0),
        ("uncached ÷ said", lambda t: t.uncached, 1.7),
    ]
    for name in sorted(OURS):
        total = _usual(found, name, window)
        for what, measure, most in checks if total else ():
            value = measure(total)
            yield Target(f"{window:,} {name}: {what} ≤ {most}", f"{value:.2f}", value <= most)


def _cheap(found: Totals, window: int) -> Iterator[Target]:
    limits = [
        ("LangChain, tuned", 1.0),
        ("LangChain, our budget", 1.03),
        ("trim_messages", 0.25),
        ("everything", _EVERYTHING.get(window, 1.0)),
    ]
    for name in (FIXED, REUSED):
        ours = _usual(found, name, window)
        for peer, most in limits:
            other = _usual(found, peer, window)
            if ours is None or other is None:
                continue
            values = [ours.cost(price) / other.cost(price) for price in OUTPUT_PRICES]
            figure = " and ".join(f"{value:.3f}" for value in values)
            yield Target(
                f"{window:,} {name}: cost ÷ {peer} ≤ {most} with output at 1 and at 5",
                figure,
                max(values) <= most,
            )


def _against_peers(found: Totals, window: int) -> Iterator[Target]:
    """At the words that each peer keeps which shows everything, ours costs nine tenths."""
    for name in (CHEAP, CHEAP_REUSED):
        for peer, total in peers(found, window):
            costs = [cost_at(found, name, window, price, total.verbatim) for price in OUTPUT_PRICES]
            if _line(found, name, window):
                yield _against(f"{window:,} {name}", peer, total, costs)


def peers(found: Totals, window: int) -> Iterator[tuple[str, Total]]:
    """The peers that show everything and stay in the window, each setting, in the dialogues."""
    for (peer, size, knob, is_log), total in sorted(found.items()):
        if size != window or is_log or peer in OURS or peer == "everything":
            continue
        if total.shown == 1 and not total.sum("over_window"):
            yield f"{peer} ({knob:g})", total


def _against(ours: str, peer: str, total: Total, costs: list[float | None]) -> Target:
    what = f"{ours}: cost at the words of {peer} ≤ {_OF_A_PEER} of it, output at 1 and at 5"
    prices = zip(costs, OUTPUT_PRICES, strict=True)
    ratios = [cost / total.cost(price) for cost, price in prices if cost is not None]
    if not ratios:
        return Target(what, f"none at {total.verbatim:,.0f}", holds=False)
    figure = ", ".join(f"{ratio:.3f}" for ratio in ratios)
    return Target(what, f"{figure} at {total.verbatim:,.0f}", max(ratios) <= _OF_A_PEER)


def cost_at(
    found: Totals, approach: str, window: int, output_price: float, verbatim: float
) -> float | None:
    """What an approach costs at so many words, on the line through its settings in the dialogues.

    None beyond its end, or where it was not run. Fewer words cost no more.
    """
    line = _line(found, approach, window, output_price)
    if line and verbatim < line[0][0]:
        return 1_000 * line[0][1]
    for (x, y), (right, top) in pairwise(line):
        if x <= verbatim <= right:
            return 1_000 * (y + (top - y) * (verbatim - x) / max(right - x, 1e-9))
    return None
