"""The least that any policy can pay for a prompt with so many words of the conversation.

    NANOMEM_LOCOMO=locomo.json python benchmarks/prompt_cost_bound.py RESULTS

A conversation's real sizes through every pair of "begin at" and "keep" (1,100 of them), with
nothing in a prompt but the fixed part, the memory and the window; each summary takes one call. The
cheapest pair with at least a peer's words is the bound at that peer. It is given twice: bare, where
a summary is asked for with nothing but what it has to read, and a window may begin with an answer;
and with what a log and a search cost, which are the question that asks for both, the date and the
speaker of each message in it, as many questions as the model's window takes them in, an entry and a
memory for each, the tool's schema and the memory's fence in each prompt, and whole turns in the
window.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from langchain_core.messages import HumanMessage, SystemMessage
from prompt_cost_approaches import MEMORY_SHARE, SYSTEM, Setting
from prompt_cost_conversations import Talk, dialogues
from prompt_cost_models import COUNTER, ENTRY_TOKENS
from prompt_cost_report import CHEAP, CHEAP_REUSED, OUTPUT_PRICES, cost_at, peers, totals
from prompt_cost_run import Measured, priced

from langchain_nanomem import MemoryStore, SessionManager, create_search_memory_tool, in_place
from langchain_nanomem.answers import DEFAULT_INSTRUCTIONS, SAVE_MEMORY, build_prompt
from langchain_nanomem.memory import fence_memory
from langchain_nanomem.rendering import render_message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SOME_DAY = datetime(2026, 5, 8, 13, 56, tzinfo=UTC)
_STEPS = 40
_LOWEST = 12
"""The steps of the budget that a summary may begin at begin here: 0.3 of it."""
HEAD = (
    "\n## The least that any policy could cost\n\n"
    "Written by `benchmarks/prompt_cost_bound.py`, as a share of what each peer costs that shows "
    "everything, at its words, with output at 1 and at 5. **ours**: the cost-aware policy. "
    "**with log and search**: the cheapest of 1,100 policies whose prompts have the tool and the "
    "fence, whose windows are of whole turns, and whose summaries are asked for an entry and a "
    "memory in our words, with a date for each message, in a question that the window "
    "holds. **bare**: the cheapest of those with none of these. "
    "Where the bound is over 0.9, no policy reaches 0.9 of that peer at those words.\n"
)
_COLUMNS = (
    "| peer (its setting) | words | ours | with log and search | bare |\n|---|--:|--:|--:|--:|"
)


class Size(NamedTuple):
    """What a message has."""

    prompt_tokens: int
    words: int
    told: int = 0
    """In a question: with its date and its speaker."""


class Point(NamedTuple):
    """One policy over all dialogues."""

    verbatim: float
    costs: tuple[float, ...]
    """At each of the output prices."""


@dataclass
class Paid:
    """What is paid, and what for."""

    cached: int = 0
    uncached: int = 0
    written: int = 0
    words: int = 0
    prompts: int = 0

    def cost(self, output_price: float) -> float:
        """In uncached tokens of input."""
        return priced(self.cached, self.uncached, self.written, output_price)


class Policy(NamedTuple):
    """When a summary is made, and what stays."""

    begin: int
    keep: int
    memory: int
    fixed: int
    entry: int
    is_reusing: bool
    """The summary is asked behind the agent's prompt, which is cached."""
    asked: int = 0
    """The question of a summary."""
    room: int = 0
    """What of the conversation a question has room for. 0: all, and as it stands in a prompt."""
    goes: int = 1
    """How many messages go at a time: two are a turn."""

    def run(self, exchanges: Sequence[tuple[Size, Size]]) -> Paid:
        """Go through one dialogue."""
        paid, live, memory, held, words = Paid(), deque[Size](), 0, 0, 0
        fresh = self.fixed
        for question, answer in exchanges:
            live.append(question)
            held, words = held + question.prompt_tokens, words + question.words
            fresh += question.prompt_tokens
            if self.fixed + memory + held > self.begin:
                before, told = held, 0
                while len(live) > self.goes and self.fixed + self.memory + held > self.keep:
                    for gone in [live.popleft() for _ in range(self.goes)]:
                        held, words = held - gone.prompt_tokens, words - gone.words
                        told += gone.told
                if self.is_reusing:
                    self._pay_behind(paid, memory + before)
                else:
                    self._pay_apart(paid, memory, told if self.room else before - held)
                memory, fresh = self.memory, self.memory + held
            paid.uncached += fresh
            paid.cached += self.fixed + memory + held - fresh
            paid.words, paid.prompts = paid.words + words, paid.prompts + 1
            live.append(answer)
            held, words = held + answer.prompt_tokens, words + answer.words
            fresh = answer.prompt_tokens
        return paid

    def _pay_behind(self, paid: Paid, read: int) -> None:
        """A summary that is asked behind the agent's prompt."""
        paid.uncached += self.asked
        paid.cached += self.fixed + read
        paid.written += self.memory + self.entry

    def _pay_apart(self, paid: Paid, memory: int, told: int) -> None:
        """A summary that is asked in prompts of its own, each with the memory of the one before."""
        calls = math.ceil(told / self.room) if self.room else 1
        paid.uncached += calls * self.asked + memory + (calls - 1) * self.memory + told
        paid.written += calls * (self.memory + self.entry)


def policies(setting: Setting, *, with_log: bool, is_reusing: bool) -> Iterator[Policy]:
    """All of them, for a window."""
    budget = setting.budget_tokens
    memory = budget // MEMORY_SHARE
    fixed = COUNTER([SystemMessage(SYSTEM)]) + (_search_tokens() if with_log else 0)
    entry, goes = (ENTRY_TOKENS, 2) if with_log else (0, 1)
    asked = _question_tokens(is_reusing=is_reusing) if with_log else 0
    room = budget - asked - memory if with_log and not is_reusing else 0
    for begin in (budget * step // _STEPS for step in range(_LOWEST, _STEPS + 1)):
        for step in range(1, _STEPS):
            keep = fixed + memory + (begin - fixed - memory) * step // _STEPS
            if keep < begin:
                yield Policy(begin, keep, memory, fixed, entry, is_reusing, asked, room, goes)


def _question_tokens(*, is_reusing: bool) -> int:
    """What asks for an entry and a memory, without these and the conversation."""
    if is_reusing:  # as the agent's model gets it
        return COUNTER.count_text(in_place._INTRODUCTION + in_place._QUESTION)  # noqa: SLF001
    return COUNTER(build_prompt(DEFAULT_INSTRUCTIONS, "", "")) + COUNTER.count_tools([SAVE_MEMORY])


def _search_tokens() -> int:
    """The search tool's schema and the fence around the memory."""
    with tempfile.TemporaryDirectory() as place:
        tool = create_search_memory_tool(MemoryStore(place), SessionManager(place))
    fence = COUNTER.count_text(fence_memory("-")) - COUNTER.count_text("-")
    return COUNTER.count_tools([tool]) + fence


def points(talks: Sequence[Talk], some: Iterator[Policy]) -> list[Point]:
    """What each policy pays in all dialogues, for how many words."""
    sizes = [
        [(_size(one.question), _size(one.replies[0].content)) for one in t.exchanges] for t in talks
    ]
    found = []
    for policy in some:
        runs = [policy.run(one) for one in sizes]
        costs = tuple(sum(run.cost(price) for run in runs) for price in OUTPUT_PRICES)
        found.append(Point(sum(run.words / run.prompts for run in runs) / len(runs), costs))
    return found


def _size(text: object) -> Size:
    message = HumanMessage(str(text))
    told = COUNTER.count_text(render_message(message, _SOME_DAY)) + 1
    return Size(COUNTER.count_message(message), COUNTER.count_text(str(text)), told)


def section(runs: Sequence[Measured], talks: Sequence[Talk]) -> str:
    """The bounds at each peer, as Markdown."""
    found = totals(runs)
    parts = [HEAD]
    for window in sorted({run.window for run in runs}):
        for name, is_reusing in ((CHEAP, False), (CHEAP_REUSED, True)):
            bounds = [
                points(
                    talks, policies(Setting(window, 0), with_log=with_log, is_reusing=is_reusing)
                )
                for with_log in (True, False)
            ]
            parts += [f"**A window of {window:,} tokens, {name}**\n", _COLUMNS]
            for peer, total in peers(found, window):
                costs = [total.cost(price) for price in OUTPUT_PRICES]
                ours = [
                    cost_at(found, name, window, price, total.verbatim) for price in OUTPUT_PRICES
                ]
                least = [_least(bound, total.verbatim) for bound in bounds]
                cells = [_ratios(one, costs) for one in (ours, *least)]
                parts.append(f"| {peer} | {total.verbatim:,.0f} | {' | '.join(cells)} |")
            parts.append("")
    return "\n".join(parts)


def _least(bound: Sequence[Point], verbatim: float) -> list[float | None]:
    """The least at each output price; None where no policy has so many words."""
    enough = [point.costs for point in bound if point.verbatim >= verbatim]
    return [min(costs) for costs in zip(*enough, strict=True)] or [None] * len(OUTPUT_PRICES)


def _ratios(some: Sequence[float | None], costs: Sequence[float]) -> str:
    pairs = zip(some, costs, strict=True)
    return ", ".join("none" if one is None else f"{one / cost:.2f}" for one, cost in pairs)


def main() -> None:
    """Print the bounds at what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("results", type=Path, help="where prompt_cost.py has written")
    lines = (parser.parse_args().results / "prompt-cost.json").read_text(encoding="utf-8")
    path = os.environ.get("NANOMEM_LOCOMO")
    if not path:
        raise SystemExit("NANOMEM_LOCOMO names no file: there is nothing to compare with")
    print(section([Measured(**one) for one in json.loads(lines)], dialogues(Path(path))))


if __name__ == "__main__":
    main()
