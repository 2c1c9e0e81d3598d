"""Does a turn cost more in a long conversation? Ours alone, and in a graph, beside LangGraph.

    python benchmarks/turn_growth.py [--sizes 100 10000] [--turns 60] [--results DIR]

- **node**, **middleware**: a turn's work of ours alone, without a checkpointer: the state has all
  messages, all but the last forty of them are in memory, nothing is due.
- **graph**: a whole turn of a graph with our checkpointer and node, with ``trim_state=True``, in a
  session of so many messages; **untrimmed** the same without trimming; **floor** the same graph
  with a node that only answers, and a checkpointer that keeps the live objects.
- **deferred**: turns around a consolidation that takes seconds behind the answer, against the
  same turns without any; the agent's model takes 0.2 s.

The sizes take turns within one run, so that what else the machine does hits all alike. Printed
are medians in milliseconds, and the ratio of the last size to the first.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from langchain_nanomem import MemoryState, Nanomem

if TYPE_CHECKING:
    from collections.abc import Callable

LIVE = 40
LONG = "And what of it, if one looks at it in a calm hour? " * 12
CONFIG: Any = {"configurable": {"thread_id": "t"}}


class Answering(BaseChatModel):
    """Says the same each time; consolidates, if asked to, after a while."""

    seconds: float = 0.0

    @property
    def _llm_type(self) -> str:
        return "answering"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:  # noqa: ARG002 - its base's form
        """The model itself."""
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - the base class's form
        run_manager: Any = None,  # noqa: ARG002 - the base class's form
        **_: Any,
    ) -> ChatResult:
        time.sleep(self.seconds)
        text = "An answer of a dozen words that says little, and says it every time."
        if "save_memory" in str(messages[0].content):
            args = {"history_entry": "They talked.", "memory_update": "- They talk."}
            call = {"name": "save_memory", "args": args, "id": "call"}
            message = AIMessage("", tool_calls=[call])
        else:
            message = AIMessage(text)
        return ChatResult(generations=[ChatGeneration(message=message)])


def conversation(size: int) -> list[BaseMessage]:
    """So many messages, with ids."""
    kinds = (HumanMessage, AIMessage)
    words = "what is said here is of no importance, but it is a dozen words long"
    return [kinds[n % 2](f"{n}: {words}", id=f"m{n}") for n in range(size)]


def opened(place: Path, **options: Any) -> Nanomem:
    """A memory whose window is never full."""
    settings = {"model": Answering(), "context_window_tokens": 1_000_000}
    return Nanomem(place, **(settings | options))


def consolidated(memory: Nanomem, messages: list[BaseMessage]) -> str:
    """Have all but the last messages in memory, as if it had been done; gives the pointer."""
    ids = [message.id for message in messages[:-LIVE]]
    memory.sessions.record_messages("t", messages)
    with memory.sessions.writing("t") as records:
        for start in range(0, len(ids), 500):
            part = ids[start : start + 500]
            name = f"c{start}"
            record = {"_type": "consolidation", "id": name, "kind": "model", "ids": part}
            record |= {"start": start, "end": start + len(part), "base": None}
            record |= {"at": None, "history_entry": "-", "memory_update": None, "memory_base": None}
            moved = {"_type": "consolidated", "id": name, "last_consolidated": start + len(part)}
            memory.sessions.commit(records, [record])
            memory.sessions.commit(records, [moved])
    return str(ids[-1])


# --- what is measured ---------------------------------------------------------


def node_alone(place: Path, size: int) -> Callable[[int], None]:
    """The memory node, called as a graph calls it."""
    memory = opened(place)
    messages = conversation(size)
    state = {"messages": messages, "last_consolidated_id": consolidated(memory, messages)}
    node = memory.node(Answering())

    def turn(number: int) -> None:
        state["messages"] = [*state["messages"], HumanMessage("And?", id=f"q{number}")]
        update = node.invoke(state, CONFIG)
        state["messages"] = [*state["messages"], *update["messages"]]

    return turn


def middleware_alone(place: Path, size: int) -> Callable[[int], None]:
    """The middleware's part of a model call, between request and response."""
    memory = opened(place)
    middleware = memory.middleware()
    messages = conversation(size)
    state: dict[str, Any] = {
        "messages": messages,
        "last_consolidated_id": consolidated(memory, messages),
    }
    return _in_agent(middleware, state)


def _in_agent(middleware: Any, state: dict[str, Any]) -> Callable[[int], None]:
    from langchain.agents.middleware.types import (  # noqa: PLC0415 - read where it is used
        ModelRequest,
        ModelResponse,
    )
    from langchain_core.runnables.config import set_config_context  # noqa: PLC0415

    model = Answering()

    def handler(request: Any) -> Any:
        return ModelResponse(result=[model.invoke(request.messages)])

    def turn(number: int) -> None:
        state["messages"] = [*state["messages"], HumanMessage("And?", id=f"q{number}")]
        request = ModelRequest(model=model, messages=state["messages"], state=state)
        with set_config_context(CONFIG) as context:
            response = context.run(middleware.wrap_model_call, request, handler)
        result = getattr(response, "model_response", response).result
        state["messages"] = [*state["messages"], *result]

    return turn


def graph(place: Path, size: int, *, trims: bool = True) -> Callable[[int], None]:
    """A graph with our checkpointer and node, in a session of so many messages."""
    memory = opened(place)
    built = StateGraph(MemoryState)
    built.add_node("memory", memory.node(Answering(), trim_state=trims))
    built.add_edge(START, "memory")
    compiled = built.compile(checkpointer=memory.checkpointer)
    messages = conversation(size)
    pointer = consolidated(memory, messages)
    update = {"messages": messages, "last_consolidated_id": pointer}
    compiled.update_state(CONFIG, update, as_node="memory")
    return _turn_of(compiled)


def untrimmed(place: Path, size: int) -> Callable[[int], None]:
    """The same graph without trimming."""
    return graph(place, size, trims=False)


def floor(place: Path, size: int) -> Callable[[int], None]:  # noqa: ARG001 - the others' form
    """What LangGraph itself takes, where nothing is stored."""
    model = Answering()
    built = StateGraph(MemoryState)
    built.add_node("chat", lambda state: {"messages": model.invoke(state["messages"][-LIVE:])})
    built.add_edge(START, "chat")
    compiled = built.compile(checkpointer=InMemorySaver())
    compiled.update_state(CONFIG, {"messages": conversation(size)}, as_node="chat")
    return _turn_of(compiled)


def _turn_of(compiled: Any, text: str = "And?") -> Callable[[int], None]:
    def turn(number: int) -> None:
        compiled.invoke({"messages": [HumanMessage(text, id=f"q{number}")]}, CONFIG)

    return turn


MEASURED: dict[str, Callable[[Path, int], Callable[[int], None]]] = {
    "node": node_alone,
    "middleware": middleware_alone,
    "graph": graph,
    "untrimmed": untrimmed,
    "floor": floor,
}


def medians(
    make: Callable[[Path, int], Callable[[int], None]], sizes: list[int], turns: int
) -> list[float]:
    """The median of a turn at each size, in milliseconds."""
    with tempfile.TemporaryDirectory(prefix="turn-growth-") as place:
        running = [make(Path(place) / str(size), size) for size in sizes]
        times: list[list[float]] = [[] for _ in sizes]
        for number in range(turns):
            for turn, found in zip(running, times, strict=True):
                begun = time.perf_counter()
                turn(number)
                found.append(1_000 * (time.perf_counter() - begun))
    return [statistics.median(found[turns // 5 :]) for found in times]


# --- behind the answer --------------------------------------------------------


def deferred(seconds: float, turns: int) -> tuple[float, float]:
    """The medians of turns while a consolidation runs behind them, and of turns without any."""
    with tempfile.TemporaryDirectory(prefix="turn-growth-") as place:
        busy = _talking(Path(place) / "busy", seconds, window=2_000)
        idle = _talking(Path(place) / "idle", seconds, window=1_000_000)
        times: dict[str, list[float]] = {"busy": [], "idle": []}
        for number in range(turns):
            for name, (turn, memory) in (("busy", busy), ("idle", idle)):
                begun = time.perf_counter()
                turn(number)
                took = 1_000 * (time.perf_counter() - begun)
                if name == "idle" or memory.consolidator.is_busy("t"):
                    times[name].append(took)
        busy[1].close(0)
    return statistics.median(times["busy"]), statistics.median(times["idle"])


def _talking(place: Path, seconds: float, *, window: int) -> tuple[Callable[[int], None], Nanomem]:
    memory = opened(
        place, model=Answering(seconds=seconds), deferred=True, context_window_tokens=window
    )
    agent = create_agent(
        Answering(seconds=0.2), middleware=[memory.middleware()], checkpointer=memory.checkpointer
    )
    return _turn_of(agent, LONG), memory


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 10_000])
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--only", nargs="+", choices=[*MEASURED, "deferred"])
    parser.add_argument("--seconds", type=float, default=20.0, help="of a consolidation")
    parser.add_argument("--results", type=Path, help="write the table there")
    options = parser.parse_args()
    chosen = options.only or [*MEASURED, "deferred"]
    head = "| | " + " | ".join(f"{size:,} messages, ms" for size in options.sizes) + " | ratio |"
    lines = [
        "# A turn in a long conversation",
        "",
        head,
        "|---|" + "--:|" * (len(options.sizes) + 1),
    ]
    for name in (name for name in chosen if name in MEASURED):
        found = medians(MEASURED[name], options.sizes, options.turns)
        cells = " | ".join(f"{value:.2f}" for value in found)
        lines.append(f"| {name} | {cells} | {found[-1] / found[0]:.2f} |")
    if "deferred" in chosen:
        busy, idle = deferred(options.seconds, options.turns)
        told = f"{busy:.1f} ms against {idle:.1f} ms without one, {busy / idle - 1:+.1%}."
        what = f"Turns around a consolidation of {options.seconds:g} s behind the answer:"
        lines += ["", f"{what} {told}"]
    print("\n".join(lines))
    if options.results:
        text = "\n".join(lines)
        (options.results / "turn-growth.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
