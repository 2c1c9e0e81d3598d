"""The demo on a terminal: a conversation of days, each in a new process, as it is played."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langchain_core.messages import HumanMessage
from langgraph.prebuilt import ToolNode
from rich.markdown import Markdown
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from langchain_nanomem.demo.replay import REPLAY, Event, build_graph, load_model, open_memory
from langchain_nanomem.values import from_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.runnables import RunnableConfig
    from rich.console import Console

    from langchain_nanomem.demo import DemoConversation, DemoQuestion
    from langchain_nanomem.demo.replay import Settings
    from langchain_nanomem.nanomem import Nanomem

_BAR = 30
_LINE = 78
_BLOCKS = "▁▂▃▄▅▆▇█"
_ENTRIES = 3
_ENTRY_LINES = 6
_NEW_CHAT = "a-brand-new-chat"


@dataclass
class _Tally:
    prompts: list[int] = field(default_factory=list)
    everything: int = 0
    for_memory: int = 0
    consolidations: int = 0


class DemoError(Exception):
    """A day's process failed."""


def show_demo(settings: Settings, console: Console) -> None:
    """Play a conversation and show what happens, and what is remembered at the end.

    Raises:
        DemoError: The process of a day failed.
        OSError: A file can't be read or written.
        ValueError: The model or the data can't be used.
    """
    conversation = settings.conversation()
    budget = open_memory(settings).consolidator.budget_tokens
    _show_head(settings, conversation, budget, console)
    tally = _Tally()
    for number, day in enumerate(conversation.days):
        console.rule(f"[bold]{day.date:%A, %d %B %Y}[/]  [dim]a new process[/]", align="left")
        _show_day(_day_events(settings, number), budget, tally, console)
    memory = open_memory(settings)
    _show_memory(memory, settings, console)
    _show_new_chat(memory, settings, conversation.questions, console)
    _show_costs(tally, budget, console)
    memory.close()


def _show_head(
    settings: Settings, conversation: DemoConversation, budget: int, console: Console
) -> None:
    turns = sum(len(day.turns) for day in conversation.days)
    if settings.model == REPLAY:
        mode = (
            "Offline: the assistant's lines are replayed, and consolidation is extractive "
            "(sentences picked without a model). --model openai:NAME uses a real model for both."
        )
    else:
        mode = f"{settings.model} answers and consolidates; the user's lines are replayed."
    text = (
        f"[bold]{conversation.title}[/]\n{len(conversation.days)} days, {turns} turns, through a "
        f"StateGraph with NanomemSaver and the memory node. The model's window has "
        f"{settings.window:,} tokens; {budget:,} of them are for the prompt, the rest for the "
        f"answer and a margin.\nFiles: {settings.workspace}\n{mode}"
    )
    console.print(Panel(text, title="nanomem demo", border_style="cyan"))


def _day_events(settings: Settings, day: int) -> Iterator[Event]:
    """What a new process that plays one day tells, as it does."""
    command = [sys.executable, "-m", "langchain_nanomem.demo.replay"]
    command += ["--workspace", settings.workspace, "--day", str(day)]
    command += ["--window", str(settings.window), "--model", settings.model]
    if settings.data:
        command += ["--data", settings.data, "--number", str(settings.number)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603 - our own module
        for line in process.stdout or ():
            yield from_json(line)
    if process.returncode:
        raise DemoError(f"the process of day {day + 1} ended with {process.returncode}")


def _show_day(events: Iterator[Event], budget: int, tally: _Tally, console: Console) -> None:
    sizes: list[int] = []
    with console.status("") as status:
        for event in events:
            if event["event"] == "turn":
                sizes += event["prompts"]
                tally.prompts += event["prompts"]
                tally.everything += sum(event["everything"])
                status.update(_turn_line(event, budget))
                if not console.is_terminal:
                    console.print(_turn_line(event, budget))
            elif event["event"] == "consolidation":
                tally.consolidations += 1
                console.print(_consolidation_line(event))
            else:
                tally.for_memory += event["for_memory"]
    spark = "".join(_BLOCKS[min(7, size * 8 // (budget + 1))] for size in sizes)
    console.print(Text.assemble(("  prompts ", "dim"), (spark, "cyan")), soft_wrap=False)


def _turn_line(event: Event, budget: int) -> Text:
    size = event["prompts"][-1] if event["prompts"] else 0
    filled = min(_BAR, size * _BAR // budget)
    words = " ".join(event["user"].split())
    line = Text.assemble(
        f"  turn {event['number']:>3} ",
        ("█" * filled, "cyan"),
        ("░" * (_BAR - filled), "dim"),
        f" {size:>6,} / {budget:,}  ",
        (words[:_LINE], "dim"),
    )
    line.truncate(_LINE, overflow="ellipsis")
    return line


def _consolidation_line(event: Event) -> Text:
    count = event["end"] - event["start"]
    return Text.assemble(
        ("  ➜ consolidated ", "bold yellow"),
        f"{count} messages ({event['removed_tokens']:,} tokens) into memory",
        (f" [{event['kind']}]", "dim"),
    )


def _show_memory(memory: Nanomem, settings: Settings, console: Console) -> None:
    console.rule("[bold]MEMORY.md[/]", align="left")
    text = memory.memory.read_long_term()
    if text:
        console.print(Padding(Markdown(text), (0, 2)))
    elif settings.model == REPLAY:
        note = (
            "Empty: without a model nobody writes facts, and nothing made up is put there. You "
            "can write it by hand. What was said is found by search, as below."
        )
        console.print(Padding(note, (0, 2)), style="dim")
    console.rule("[bold]HISTORY.md[/]  [dim]the newest entries[/]", align="left")
    for entry in memory.memory.history_entries()[-_ENTRIES:]:
        lines = entry.text.splitlines()
        shown = "\n".join(lines[:_ENTRY_LINES]) + ("\n…" if len(lines) > _ENTRY_LINES else "")
        console.print(Padding(Text.assemble((entry.stamp, "green"), " ", shown), (0, 2, 1, 2)))


def _show_new_chat(
    memory: Nanomem, settings: Settings, questions: tuple[DemoQuestion, ...], console: Console
) -> None:
    """What a thread that never was before gives to the conversation's closing questions."""
    console.rule("[bold]A brand-new chat is asked[/]", align="left")
    for question in questions:
        answer = _answer(memory, settings, question.question)
        text = Text(answer)
        found = [text.highlight_words([word], "bold green") > 0 for word in question.answer_words]
        mark = ("✔ ", "green") if all(found) else ("✘ ", "red")
        console.print(Text.assemble("  ", mark, (question.question, "bold")))
        for line in _lines_with(text, question.answer_words):
            console.print(Padding(line, (0, 4)), overflow="ellipsis", no_wrap=True)
    if settings.model == REPLAY:
        note = (
            "✔: what search_memory finds for the question contains the answer (no model reads it)."
        )
        console.print(Padding(note, (0, 2)), style="dim")


def _answer(memory: Nanomem, settings: Settings, question: str) -> str:
    config: RunnableConfig = {"configurable": {"thread_id": _NEW_CHAT}}
    if settings.model == REPLAY:
        return str(memory.tools()[0].invoke({"query": question, "limit": 5}, config))
    model = load_model(settings.model).bind_tools(memory.tools())
    graph = build_graph(memory, model, ToolNode(memory.tools()))
    state = graph.invoke({"messages": [HumanMessage(question)]}, config)
    return str(state["messages"][-1].text)


def _lines_with(text: Text, words: tuple[str, ...]) -> list[Text]:
    """The lines in which the words stand, each from shortly before the word on; or the first."""
    lines = [line for line in text.split("\n") if any(word in line.plain for word in words)]
    if not lines:
        return list(text.split("\n")[1:2])
    shown = []
    for line in lines[:2]:
        place = min(line.plain.find(word) for word in words if word in line.plain)
        shown.append(Text("… ") + line[place - 40 :] if place > 40 else line)  # noqa: PLR2004 - half a line
    return shown


def _show_costs(tally: _Tally, budget: int, console: Console) -> None:
    console.rule("[bold]What it cost[/]", align="left")
    sent = sum(tally.prompts) + tally.for_memory
    table = Table(box=None, padding=(0, 2), show_header=False)
    table.add_column(justify="left")
    table.add_column(justify="right")
    table.add_row("model calls", f"{len(tally.prompts):,}")
    table.add_row("consolidations", f"{tally.consolidations:,}")
    table.add_row("largest prompt", f"{max(tally.prompts, default=0):,} of {budget:,} tokens")
    table.add_row("tokens sent", f"{sent:,}")
    table.add_row("  with the whole conversation in each prompt", f"{tally.everything:,}")
    if tally.everything:
        table.add_row("  that is", f"{100 * sent // tally.everything} %")
    console.print(table)
