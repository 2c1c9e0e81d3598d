"""Months of real dialogue through a real graph, killed in the middle, and every word checked.

    NANOMEM_LOCOMO=locomo.json python benchmarks/locomo_replay.py [--window 4000]

Each conversation of the file is played with its dates through a StateGraph with NanomemSaver
and the memory node, in a process that is killed with SIGKILL somewhere in the middle and
started again. The consolidating model is replayed too: it answers with the summaries and facts
that come with the data. Then a new process checks that every turn is in the session, in order
and equal; that no prompt was over the budget; that HISTORY.md has each range once.

Without the data (CC BY-NC, not part of this project) it says so and does nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from scripted_summaries import Recorded

from langchain_nanomem import MemoryStore, NanomemSaver, SessionManager
from langchain_nanomem.demo.replay import THREAD, Settings, open_memory, play_day

_STAMP = re.compile(r"^\[(\d{4}-\d{2}-\d{2}) ", re.MULTILINE)
_MEMORY = re.compile(r"<current_memory>\n(.*?)\n</current_memory>", re.DOTALL)


class RecordedSummaries(Recorded):
    """Consolidates with the summaries and the facts that were recorded for each session."""

    by_date: dict[str, dict[str, Any]]

    def _saved(self, question: str) -> tuple[str, list[str]]:
        known = _MEMORY.search(question)
        lines = [] if known is None or known[1] == "(empty)" else known[1].splitlines()
        entries = []
        for date in dict.fromkeys(_STAMP.findall(question)):
            recorded = self.by_date.get(date, {"summary": "Nothing was recorded.", "facts": []})
            entries.append(recorded["summary"])
            lines += [f"- {fact}" for fact in recorded["facts"] if f"- {fact}" not in lines]
        return " ".join(entries), lines


def recorded_summaries(data: str, number: int) -> RecordedSummaries:
    """The recorded answers of one conversation, by the date of the session."""
    raw = json.loads(Path(data).read_text(encoding="utf-8"))[number]
    by_date: dict[str, dict[str, Any]] = {}
    for name, text in raw["conversation"].items():
        if name.endswith("_date_time") and raw["conversation"].get(name[:-10]):
            session = name[:-10]
            date = datetime.strptime(text, "%I:%M %p on %d %B, %Y").strftime("%Y-%m-%d")  # noqa: DTZ007 - a date alone
            observed = raw["observation"].get(f"{session}_observation", {})
            by_date[date] = {
                "summary": raw["session_summary"].get(f"{session}_summary", ""),
                "facts": [fact for facts in observed.values() for fact, *_ in facts],
            }
    return RecordedSummaries(by_date=by_date)


def play(settings: Settings) -> None:
    """The child: play what is left of the conversation, an event a line."""
    model = recorded_summaries(str(settings.data), settings.number)
    for day in range(len(settings.conversation().days)):
        for event in play_day(settings, day, model=model):
            print(json.dumps(event), flush=True)


class Run:
    """One conversation, played by processes of its own."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.events: list[dict[str, Any]] = []

    def start(self, *, kill_after: int | None = None) -> bool:
        """Play; kill the process after so many turns, with SIGKILL. Whether it was killed."""
        command = [sys.executable, __file__, "--play", self.settings.workspace]
        command += ["--window", str(self.settings.window), "--number", str(self.settings.number)]
        turns = 0
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                self.events.append(json.loads(line))
                turns += self.events[-1]["event"] == "turn"
                if turns == kill_after:
                    # somewhere within the next turn
                    time.sleep(random.uniform(0, 0.02))
                    process.send_signal(signal.SIGKILL)
                    kill_after = None
        if process.returncode not in {0, -signal.SIGKILL}:
            raise SystemExit(f"the process ended with {process.returncode}")
        return process.returncode == -signal.SIGKILL

    def check(self) -> dict[str, Any]:
        """Compare what is on the disk with what was said.

        Raises:
            AssertionError: A word is missing, changed, doubled or out of order.
        """
        conversation, workspace = self.settings.conversation(), self.settings.workspace
        said = [
            (role, text, turn.at.isoformat())
            for day in conversation.days
            for turn in day.turns
            for role, text in (("user", turn.user), ("assistant", turn.assistant))
        ]
        session = SessionManager(workspace).get_or_create(THREAD)
        kept = [(m["role"], m["content"], m["timestamp"]) for m in session.messages]
        assert kept == said, f"{conversation.title}: {_difference(kept, said)}"
        saved = NanomemSaver(SessionManager(workspace)).get_tuple(
            {"configurable": {"thread_id": THREAD}}
        )
        assert saved is not None
        state = [message.content for message in saved.checkpoint["channel_values"]["messages"]]
        assert state == [text for _, text, _ in said], f"{conversation.title}: the state differs"
        return self._figures(conversation, session, [text for _, text, _ in said])

    def _figures(self, conversation: Any, session: Any, texts: list[str]) -> dict[str, Any]:
        store = MemoryStore(self.settings.workspace)
        assert store.read_long_term().strip(), "MEMORY.md is missing or empty"
        entries = store.history_entries()
        sources = [entry.source for entry in entries]
        assert len(set(sources)) == len(sources) > 0, "a range is in HISTORY.md twice"
        ends = [int(str(source).rsplit("-", 1)[1]) for source in sources]
        assert session.last_consolidated == ends[-1], "the pointer is not behind the last range"
        budget = open_memory(self.settings).consolidator.budget_tokens
        turns = [event for event in self.events if event["event"] == "turn"]
        prompts = [size for event in turns for size in event["prompts"]]
        assert max(prompts) <= budget, f"a prompt had {max(prompts)} tokens of {budget}"
        size = sum(
            f.stat().st_size for f in Path(self.settings.workspace).rglob("*") if f.is_file()
        )
        return {
            "conversation": conversation.title.split(":")[0],
            "messages": len(texts),
            "consolidated": len(entries),
            "largest": f"{max(prompts)}/{budget}",
            "sent": sum(prompts),
            "of all": f"{100 * sum(prompts) // sum(sum(e['everything']) for e in turns)} %",
            "disk/text": f"{size / sum(len(text.encode()) for text in texts):.1f}",
        }


def _difference(kept: list[Any], said: list[Any]) -> str:
    place = next(
        (i for i, pair in enumerate(zip(kept, said, strict=False)) if pair[0] != pair[1]), 0
    )
    return (
        f"the session has {len(kept)} messages of {len(said)}, and at {place} "
        f"{kept[place : place + 2]} where {said[place : place + 2]} was said"
    )


def main() -> int:
    """Play and check all conversations of the file, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--window", type=int, default=4_000)
    parser.add_argument("--number", type=int, help="one conversation alone, from 0")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--play", help=argparse.SUPPRESS)
    given = parser.parse_args()
    data = os.environ.get("NANOMEM_LOCOMO", "")
    if not Path(data).is_file():
        print("NANOMEM_LOCOMO names no LoCoMo file; nothing to do.")
        return 0
    if given.play:
        play(Settings(given.play, given.window, data=data, number=given.number))
        return 0
    random.seed(given.seed)
    count = len(json.loads(Path(data).read_text(encoding="utf-8")))
    numbers = range(count) if given.number is None else [given.number]
    for place, number in enumerate(numbers):
        with tempfile.TemporaryDirectory() as workspace:
            run = Run(Settings(workspace, given.window, data=data, number=number))
            turns = sum(len(day.turns) for day in run.settings.conversation().days)
            started, stop = time.perf_counter(), random.randint(turns // 4, 3 * turns // 4)
            killed = run.start(kill_after=stop)
            assert killed, "the process ended before it was killed"
            run.start()
            row = {**run.check(), "killed in turn": stop + 1}
            row["seconds"] = f"{time.perf_counter() - started:.0f}"
        if place == 0:
            print("  ".join(f"{name:>12}" for name in row))
        print("  ".join(f"{value:>12}" for value in row.values()), flush=True)
    print("Every turn came back equal, in order, once; no prompt was over the budget.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
