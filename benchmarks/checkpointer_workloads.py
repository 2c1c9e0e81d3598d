"""What the graphs of the benchmark do in a turn, and the text they say, the same in each run."""

from __future__ import annotations

import base64
import random
import uuid
from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from typing_extensions import TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SNAPSHOT_FREQUENCY = 100
_WORDS = (
    "alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliet",
    "kilo", "lima", "mike", "november", "oscar", "papa", "quebec", "romeo", "sierra", "tango",
    "uniform", "victor", "whiskey", "xray", "yankee", "zulu", "memory", "session", "thread",
)  # fmt: skip
_TOOLS_AFTER = {None: ("search", "search"), "search": ("read",), "read": ()}
_TOOL_RESULT_BYTES = 10_000
_IMAGE_BYTES = 75_000
_TURNS_AN_IMAGE = 5
_WINDOW_MESSAGES = 20
_FIELDS = [f"field_{number:02}" for number in range(50)]
_FIELD_BYTES = 1_000
_BOOK_WORDS = 30_000

State = dict[str, Any]
Graph = StateGraph[Any, Any, Any, Any]


class DeltaMessagesState(TypedDict):
    """The messages as a channel that is stored as its changes, with a snapshot now and then."""

    messages: Annotated[
        list[AnyMessage],
        DeltaChannel(_messages_delta_reducer, snapshot_frequency=SNAPSHOT_FREQUENCY),
    ]


class Author:
    """Makes what is said in a run, and counts its bytes: the payload."""

    def __init__(self) -> None:
        self.payload_bytes = 0
        self._random = random.Random(7)
        self._book = " ".join(self._random.choice(_WORDS) for _ in range(_BOOK_WORDS))

    def words(self, count: int = 100) -> str:
        """So many words."""
        return self._counted(" ".join(self._random.choice(_WORDS) for _ in range(count)))

    def text(self, size: int) -> str:
        """So many bytes of words; costs nearly nothing, however many."""
        start = self._random.randrange(len(self._book) - size)
        return self._counted(self._book[start : start + size])

    def image(self) -> dict[str, str]:
        """A content block with an image."""
        encoded = base64.b64encode(self._random.randbytes(_IMAGE_BYTES)).decode()
        return {"type": "image", "base64": self._counted(encoded), "mime_type": "image/jpeg"}

    def new_id(self) -> str:
        """An id as a provider gives one."""
        return str(uuid.UUID(int=self._random.getrandbits(128)))

    def fields(self, number: int) -> list[str]:
        """So many of the names in a wide state."""
        return self._random.sample(_FIELDS, number)

    def _counted(self, text: str) -> str:
        self.payload_bytes += len(text)
        return text


@dataclass(frozen=True)
class Workload:
    """What is done in each turn, and how often."""

    title: str
    graph: Callable[[Author, type], Graph]
    """Builds the graph over a state's class: with messages, or with delta messages."""
    turn: Callable[[Author, int], State]
    """The input of a turn, from 0."""
    size: Callable[[int], int]
    """How many messages, or fields, the state has after so many turns."""
    turns: Sequence[int]
    """How many turns are played, unless chosen."""
    peer_turns: int
    """Beyond that the peers are left out: they would need tens of gigabytes, or hours."""
    has_messages: bool = True


def _say(author: Author, _: int) -> State:
    return {"messages": [HumanMessage(author.words(), id=author.new_id())]}


def _sequence(state: Any, **nodes: Any) -> Graph:
    """A graph that runs the nodes one after the other."""
    graph: Graph = StateGraph(state)
    graph.add_sequence([*nodes.items()])
    return graph.add_edge(START, next(iter(nodes)))


def _answering(author: Author) -> Callable[[Any], State]:
    def reply(state: Any) -> State:  # noqa: ARG001 - a node's form
        return {"messages": [AIMessage(author.words(), id=author.new_id())]}

    return reply


def _replying(author: Author, state_class: type) -> Graph:
    return _sequence(state_class, reply=_answering(author))


def _agent(author: Author, state_class: type) -> Graph:
    """Each turn calls two tools at once, then a third, then answers."""

    def agent(state: Any) -> State:
        tools = _TOOLS_AFTER[state["messages"][-1].name]
        calls = [
            {"name": tool, "args": {"query": author.words(8)}, "id": author.new_id()}
            for tool in tools
        ]
        said = author.words(10 if calls else 100)
        return {"messages": [AIMessage(said, tool_calls=calls, id=author.new_id())]}

    def tools(state: Any) -> State:
        return {
            "messages": [
                ToolMessage(
                    author.text(_TOOL_RESULT_BYTES),
                    tool_call_id=call["id"],
                    name=call["name"],
                    id=author.new_id(),
                )
                for call in state["messages"][-1].tool_calls
            ]
        }

    def goes_on(state: Any) -> str:
        return "tools" if state["messages"][-1].tool_calls else END

    graph: Graph = StateGraph(state_class)
    graph.add_node("agent", agent)
    graph.add_node("tools", tools)
    graph.add_edge(START, "agent").add_edge("tools", "agent")
    return graph.add_conditional_edges("agent", goes_on, ["tools", END])


def _show(author: Author, turn: int) -> State:
    said: list[str | dict[Any, Any]] = [{"type": "text", "text": author.words()}]
    if turn % _TURNS_AN_IMAGE == 0:
        said.append(author.image())
    return {"messages": [HumanMessage(said, id=author.new_id())]}


def _trimming(author: Author, state_class: type) -> Graph:
    """As the plain chat, and a node removes all but the newest messages."""

    def trim(state: Any) -> State:
        old = state["messages"][:-_WINDOW_MESSAGES]
        return {"messages": [RemoveMessage(message.id) for message in old]}

    return _sequence(state_class, reply=_answering(author), trim=trim)


def _wide(author: Author, _: type) -> Graph:
    """Each turn's input sets one field, or all at first, and a node sets two."""

    def change(state: Any) -> State:  # noqa: ARG001 - a node's form
        return {name: author.text(_FIELD_BYTES) for name in author.fields(2)}

    fields = [(name, str, "") for name in _FIELDS]
    return _sequence(make_dataclass("WideState", fields), change=change)


def _set_field(author: Author, turn: int) -> State:
    names = author.fields(1) if turn else _FIELDS
    return {name: author.text(_FIELD_BYTES) for name in names}


def _two_a_turn(turns: int) -> int:
    return 2 * turns


WORKLOADS = {
    "chat": Workload(
        "Plain chat: a message of 100 words and an answer of 100 words a turn",
        _replying, _say, _two_a_turn, (50, 200, 1_000, 5_000), 1_000,
    ),
    "tools": Workload(
        "Tool-heavy agent: three tool calls a turn in two steps, each result 10 kB",
        _agent, _say, lambda turns: 7 * turns, (50, 200, 1_000), 200,
    ),
    "images": Workload(
        "Images: as the plain chat, with an image of 100 kB (base64) in every fifth turn",
        _replying, _show, _two_a_turn, (50, 200, 1_000), 200,
    ),
    "trim": Workload(
        "Removals: as the plain chat, and every turn removes all but the newest 20 messages",
        _trimming, _say, lambda turns: min(2 * turns, _WINDOW_MESSAGES), (50, 200, 1_000), 1_000,
    ),
    "wide": Workload(
        "Wide state: 50 channels of 1 kB, three of them set in a turn",
        _wide, _set_field, lambda _: len(_FIELDS), (50, 200, 1_000), 1_000, has_messages=False,
    ),
}  # fmt: skip
"""Every workload by its name."""


def build_graph(workload: Workload, author: Author, *, has_delta: bool) -> Graph:
    """The workload's graph, not compiled."""
    return workload.graph(author, DeltaMessagesState if has_delta else MessagesState)


def size_of(workload: Workload, values: State) -> int:
    """How many messages a state has, or fields that are set."""
    return len(values["messages"]) if workload.has_messages else len(values)
