"""What the benchmark in PostgreSQL has found, as tables, and whether it holds what is promised."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from checkpointer_savers import IN_POSTGRES, SAVERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

PEER = "postgres"
CONTESTANTS = [IN_POSTGRES, PEER, f"{PEER}+delta"]
INTRODUCTION = """\
# Checkpointers in PostgreSQL, side by side

Written by `benchmarks/postgres.py`. Each figure is the median of all rounds. Every measurement has
processes of its own and a schema of its own, and the checkpointers take turns, so that what else
the machine does hits all alike: compare rows, not runs. Every run is checked: each thread has as
many messages as it must. The server runs on the same machine, with its own defaults: it syncs
each commit to the disk.

- **stored**: `pg_total_relation_size` of all tables after the run: rows, indexes, TOAST.
- **WAL**: what the server wrote to its log meanwhile; each run begins behind a checkpoint.
- **a turn, first → last**: the medians of the first 20th of the turns and of the last.
- **cold open**: a new checkpointer on the same database, and its first `get_tuple`.
- The texts are those of the plain chat of `checkpointers.md`: 100 words a message.
"""
_MB = 1_000_000
_LONG = {
    "total_ms": ("total s", 1_000),
    "first_ms": ("first turn ms", 1),
    "last_ms": ("last turn ms", 1),
    "get_tuple_ms": ("get_tuple ms", 1),
    "cold_open_ms": ("cold open ms", 1),
    "stored_bytes": ("stored MB", _MB),
    "wal_bytes": ("WAL MB", _MB),
}
_MANY = {
    "turns_a_second": ("turns a second", 1),
    "p50_ms": ("p50 ms", 1),
    "p95_ms": ("p95 ms", 1),
    "p99_ms": ("p99 ms", 1),
    "errors": ("errors", 1),
    "stored_bytes": ("stored MB", _MB),
    "wal_bytes": ("WAL MB", _MB),
}
_COLUMNS = {"long": _LONG, "many": _MANY}


class Target(NamedTuple):
    """A ratio to the peer that must not be above its limit, or not below where it is the least."""

    kind: str
    what: str
    measure: str
    limit: float
    is_least: bool = False


TARGETS = [
    Target("long", "total time ÷ PostgresSaver", "total_ms", 0.35),
    Target("long", "stored ÷ PostgresSaver", "stored_bytes", 1 / 30),
    Target("long", "a last turn ÷ PostgresSaver", "last_ms", 0.2),
    Target("many", "throughput ÷ PostgresSaver", "turns_a_second", 2, is_least=True),
    Target("many", "p99 ÷ PostgresSaver", "p99_ms", 0.5),
]


@dataclass
class Results:
    """All measurements of a run: by kind and checkpointer, one a round."""

    about: dict[str, str]
    titles: dict[str, str]
    """What each kind is."""
    rounds: dict[str, dict[str, list[dict[str, Any]]]]

    def add(self, kind: str, saver: str, measured: dict[str, Any]) -> None:
        """Add the measurement of the next round."""
        self.rounds.setdefault(kind, {}).setdefault(saver, []).append(measured)

    def median(self, kind: str, saver: str, measure: str) -> float | None:
        """The median of the rounds; None where it was not measured."""
        values = [one[measure] for one in self.rounds.get(kind, {}).get(saver, [])]
        return statistics.median(values) if values else None

    def save(self, directory: Path) -> None:
        """Write ``postgres.json`` and ``postgres.md``, with ``postgres-note.md`` where it is."""
        directory.mkdir(parents=True, exist_ok=True)
        kept = json.dumps(asdict(self), indent=1)
        (directory / "postgres.json").write_text(f"{kept}\n", encoding="utf-8")
        note = directory / "postgres-note.md"
        more = note.read_text(encoding="utf-8") if note.exists() else ""
        (directory / "postgres.md").write_text(report(self, more), encoding="utf-8")


class Verdict(NamedTuple):
    """A target, and what was measured."""

    what: str
    limit: str
    measured: str
    holds: bool


def verdicts(results: Results) -> list[Verdict]:
    """All targets of which ours and the peer were measured, and that no turn failed."""
    told = [_verdict(results, target) for target in TARGETS]
    errors = results.median("many", IN_POSTGRES, "errors")
    if errors is not None:
        worst = max(one["errors"] for one in results.rounds["many"][IN_POSTGRES])
        told.append(Verdict("errors", "0", str(worst), worst == 0))
    return [one for one in told if one is not None]


def _verdict(results: Results, target: Target) -> Verdict | None:
    ours = results.median(target.kind, IN_POSTGRES, target.measure)
    peer = results.median(target.kind, PEER, target.measure)
    if ours is None or not peer:
        return None
    ratio = ours / peer
    rounds = results.rounds[target.kind]
    each = [
        one[target.measure] / another[target.measure]
        for one, another in zip(rounds[IN_POSTGRES], rounds[PEER], strict=True)
    ]
    holds = ratio >= target.limit if target.is_least else ratio <= target.limit
    limit = f"{'≥' if target.is_least else '≤'} {target.limit:.3g}"
    return Verdict(target.what, limit, f"{ratio:.3g} ({min(each):.3g} … {max(each):.3g})", holds)


def report(results: Results, note: str = "") -> str:
    """All of it, as Markdown, with a note behind the targets."""
    about = "\n".join(f"- {name}: {value}" for name, value in results.about.items())
    parts = [INTRODUCTION, f"{about}\n", "## Targets\n", _targets(results), note]
    for kind, title in results.titles.items():
        parts += [f"## {title}\n", _figures(results, kind), "NanomemSaver ÷\n"]
        parts += [_ratios(results, kind)]
    return "\n".join(parts)


def _targets(results: Results) -> str:
    rows = [(*one[:3], "yes" if one.holds else "**no**") for one in verdicts(results)]
    return _table(["what", "target", "measured (rounds)", "holds"], rows)


def _figures(results: Results, kind: str) -> str:
    columns = _COLUMNS[kind]
    rows = [
        [
            SAVERS[saver].title,
            *(
                _number((results.median(kind, saver, name) or 0) / unit)
                for name, (_, unit) in columns.items()
            ),
        ]
        for saver in results.rounds.get(kind, {})
    ]
    return _table(["", *(title for title, _ in columns.values())], rows)


def _ratios(results: Results, kind: str) -> str:
    names = [name for name in _COLUMNS[kind] if name != "errors"]
    rows = []
    for saver in results.rounds.get(kind, {}):
        if saver != IN_POSTGRES:
            pairs = [
                (results.median(kind, IN_POSTGRES, name), results.median(kind, saver, name))
                for name in names
            ]
            ratios = [_number(ours / peer) if ours and peer else "-" for ours, peer in pairs]
            rows.append([SAVERS[saver].title, *ratios])
    return _table(["beside", *(_COLUMNS[kind][name][0].split(" ms")[0] for name in names)], rows)


def _number(value: float) -> str:
    """Three digits that count."""
    digits = next(digits for least, digits in ((100, 0), (10, 1), (1, 2), (0, 3)) if value >= least)
    return f"{value:,.{digits}f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
