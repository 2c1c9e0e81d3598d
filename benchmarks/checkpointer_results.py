"""What was measured, by workload, checkpointer and number of turns, and where."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from langchain_nanomem import __version__

_PACKAGES = (
    "langgraph",
    "langgraph-checkpoint",
    "langchain-core",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
)
_PROBES = 50


@dataclass(frozen=True)
class Measurement:
    """One run of a workload on one checkpointer. Times are in ms; None where it can't be done."""

    payload_bytes: int
    """What was said, without names, ids and roles."""
    total_ms: float
    first_ms: float
    """A turn at the beginning: the median of the first 20th, and of five at least."""
    last_ms: float
    """A turn at the end, alike."""
    stored_bytes: int
    """On the disk, once closed; InMemorySaver: the serialized values it holds."""
    peak_rss_bytes: int
    """Of the process, at its largest."""
    get_tuple_ms: float | None = None
    get_state_ms: float | None = None
    list_ms: float | None = None
    """`list(limit=10)`."""
    cold_open_ms: float | None = None
    """Opening it anew, and the first `get_tuple`."""
    delete_ms: float | None = None
    """`delete_thread`."""
    left_bytes: int | None = None
    """What is stored after the thread was deleted."""


@dataclass
class Results:
    """All measurements of one workload, made in one run."""

    workload: str
    about: dict[str, str]
    """The machine, the versions and the settings."""
    rounds: dict[str, dict[int, list[Measurement]]]
    """By checkpointer and number of turns: one measurement a round."""

    def add(self, saver: str, turns: int, measured: Measurement) -> None:
        """Add the measurement of the next round."""
        self.rounds.setdefault(saver, {}).setdefault(turns, []).append(measured)

    @property
    def turns(self) -> list[int]:
        """The numbers of turns that were played, ascending."""
        return sorted({turns for sizes in self.rounds.values() for turns in sizes})

    def savers(self, turns: int) -> list[str]:
        """The checkpointers that played so many turns, in their order."""
        return [saver for saver, sizes in self.rounds.items() if turns in sizes]

    def of_rounds(self, saver: str, turns: int, measure: str) -> list[float]:
        """The measure in each round; empty where it was not measured."""
        rounds = self.rounds.get(saver, {}).get(turns, [])
        values = [getattr(measured, measure) for measured in rounds]
        return [value for value in values if value is not None]

    def median(self, saver: str, turns: int, measure: str) -> float | None:
        """The median of the rounds; None where it was not measured."""
        values = self.of_rounds(saver, turns, measure)
        return statistics.median(values) if values else None

    def save(self, directory: Path) -> None:
        """Write them to ``checkpointers-<workload>.json``."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"checkpointers-{self.workload}.json"
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, directory: Path, workload: str) -> Results | None:
        """What `save` wrote; None if nothing."""
        path = directory / f"checkpointers-{workload}.json"
        if not path.exists():
            return None
        kept = json.loads(path.read_text(encoding="utf-8"))
        rounds = {
            saver: {int(n): [Measurement(**m) for m in ms] for n, ms in sizes.items()}
            for saver, sizes in kept["rounds"].items()
        }
        return cls(kept["workload"], kept["about"], rounds)


def describe_run(settings: dict[str, Any], directory: str | None) -> dict[str, str]:
    """The day, the machine, the versions and the settings; no names of hosts or paths."""
    others = [f"{package} {_version(package)}" for package in _PACKAGES if _version(package)]
    versions = [f"langchain-nanomem {__version__}", *others, f"SQLite {sqlite3.sqlite_version}"]
    return {
        "Day": datetime.now(UTC).date().isoformat(),
        "Machine": f"{_cpu()}, {os.cpu_count()} cores, {_memory()}",
        "Kernel": f"{platform.system()} {platform.release()}",
        "Disk": f"{_file_system(directory)}, {_sync_ms(directory):.1f} ms a synced append of 4 kB",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "Packages": ", ".join(versions),
        "Settings": ", ".join(f"{name} {value}" for name, value in settings.items()),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    return _line_of("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()


def _memory() -> str:
    total = _line_of("/proc/meminfo", "MemTotal")
    return f"{int(total.split()[0]) / 2**20:.0f} GiB" if total else "memory unknown"


def _line_of(path: str, name: str) -> str | None:
    """The value of the first line with that name in a file of the Linux kernel."""
    if not Path(path).exists():
        return None
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    named = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in named if key.strip() == name), None)


def _file_system(directory: str | None) -> str:
    """The type of the file system that the data are on."""
    place = Path(directory or tempfile.gettempdir()).resolve()
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "file system unknown"
    mounted = [line.split()[1:3] for line in mounts.read_text(encoding="utf-8").splitlines()]
    around = [(point, kind) for point, kind in mounted if place.is_relative_to(point)]
    return max(around, key=lambda mount: len(mount[0]))[1]


def _sync_ms(directory: str | None) -> float:
    """The median time of an append that is synced."""
    times = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(_PROBES):
            start = time.perf_counter()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            times.append(time.perf_counter() - start)
    return 1_000 * statistics.median(times)
