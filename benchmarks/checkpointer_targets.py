"""What is promised of the checkpointer beside others, and whether a run holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from checkpointer_savers import FLOOR, OURS, SAVERS, is_peer

if TYPE_CHECKING:
    from checkpointer_results import Results

_WORKLOAD = "chat"
_TURNS = 1_000
_SPREAD = 0.10
"""How far the bytes a turn may be from those at the targets' number of turns."""


class Target(NamedTuple):
    """A ratio of two measures that must not be larger than its limit."""

    what: str
    limit: float
    measure: str
    beside: str
    """The other checkpointer."""
    other_measure: str | None = None
    """Where it is not the same measure."""


TARGETS = [
    Target("total time ÷ SqliteSaver", 0.2, "total_ms", "sqlite"),
    Target("total time ÷ InMemorySaver", 0.3, "total_ms", "memory"),
    Target("a last turn ÷ floor", 6, "last_ms", FLOOR),
    Target("a last turn ÷ a first turn", 4, "last_ms", OURS, "first_ms"),
    Target("stored ÷ payload", 4, "stored_bytes", OURS, "payload_bytes"),
    Target("get_tuple ÷ SqliteSaver", 0.4, "get_tuple_ms", "sqlite"),
    Target("list(10) ÷ SqliteSaver", 0.3, "list_ms", "sqlite"),
    Target("cold open ÷ SqliteSaver", 1.3, "cold_open_ms", "sqlite"),
    Target("delete ÷ SqliteSaver", 0.01, "delete_ms", "sqlite"),
    Target("peak RSS ÷ InMemorySaver", 0.25, "peak_rss_bytes", "memory"),
]


class Verdicts(NamedTuple):
    """The targets of a run."""

    turns: int
    """The number of turns they were measured at."""
    rows: list[tuple[str, str, str, str]]
    """What, target, measured, holds."""


def targets_of(results: Results) -> Verdicts | None:
    """The targets as measured at 1,000 turns, or at the most that a peer played.

    None where there are none: for another workload, or if ours or the peers were left out.
    """
    turns = _compared_turns(results)
    if results.workload != _WORKLOAD or turns is None:
        return None
    rows = [_verdict(results, target, turns) for target in TARGETS]
    return Verdicts(turns, [*rows, _constancy(results, turns)])


def standing(results: Results) -> list[str]:
    """Whether ours is the first in time and in bytes among all at the most turns of the peers."""
    turns = _compared_turns(results)
    if turns is None:
        return []
    measures = {"total time": "total_ms", "bytes stored": "stored_bytes"}
    return [_place_of_ours(results, turns, *named) for named in measures.items()]


def _place_of_ours(results: Results, turns: int, name: str, measure: str) -> str:
    savers = [OURS, *filter(is_peer, results.savers(turns))]
    values = {saver: results.median(saver, turns, measure) or 0 for saver in savers}
    before = [saver for saver in savers if values[saver] < values[OURS]]
    if not before:
        return f"First in {name} at N = {turns:,}: {SAVERS[OURS].title}."
    named = ", ".join(
        f"{SAVERS[saver].title} ({values[saver] / values[OURS]:.2f} of it)"
        for saver in sorted(before, key=values.__getitem__)
    )
    return f"Before {SAVERS[OURS].title} in {name} at N = {turns:,}: {named}."


def _compared_turns(results: Results) -> int | None:
    """1,000 if ours and a peer played as many, else the most that both did."""
    both = [
        turns
        for turns in results.turns
        if OURS in results.savers(turns) and any(map(is_peer, results.savers(turns)))
    ]
    return _TURNS if _TURNS in both else max(both, default=None)


def _verdict(results: Results, target: Target, turns: int) -> tuple[str, str, str, str]:
    limit, other = f"≤ {target.limit:g}", target.other_measure or target.measure
    ours = results.median(OURS, turns, target.measure)
    beside = results.median(target.beside, turns, other)
    if ours is None or not beside:
        return target.what, limit, "not measured", "-"
    rounds = zip(
        results.of_rounds(OURS, turns, target.measure),
        results.of_rounds(target.beside, turns, other),
        strict=True,
    )
    each = [one / another for one, another in rounds]
    measured = f"{ours / beside:.3g} ({min(each):.3g} … {max(each):.3g})"
    return target.what, limit, measured, _holds(ours / beside <= target.limit)


def _constancy(results: Results, turns: int) -> tuple[str, str, str, str]:
    """How far the bytes a turn are, at other numbers of turns, from those at this one."""
    a_turn = {
        n: (results.median(OURS, n, "stored_bytes") or 0) / n
        for n in results.turns
        if OURS in results.savers(n)
    }
    off = {n: size / a_turn[turns] - 1 for n, size in a_turn.items() if n != turns}
    sizes = f"bytes a turn ({a_turn[turns]:,.0f}), N = {min(a_turn):,} … {max(a_turn):,}"
    measured = ", ".join(f"{100 * share:+.1f} % at {n:,}" for n, share in off.items())
    holds = _holds(all(abs(share) <= _SPREAD for share in off.values())) if off else "-"
    return sizes, f"± {100 * _SPREAD:.0f} %", measured or "one size alone", holds


def _holds(is_held: bool) -> str:  # noqa: FBT001 - a word for it
    return "yes" if is_held else "**no**"
