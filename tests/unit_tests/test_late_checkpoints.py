"""A checkpoint that is put after what was written at it: LangGraph puts in the background."""

import threading
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from typing_extensions import TypedDict

from langchain_nanomem import Nanomem, NanomemSaver
from tests.memory_graph import session_lines


class Plain(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Delta(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer, snapshot_frequency=4)]


class LateSaver(NanomemSaver):
    """Puts a checkpoint only when something was written at it, as a busy machine may."""

    def __init__(self, sessions):
        super().__init__(sessions)
        self.held, self.lock = [], threading.RLock()

    def put(self, config, checkpoint, *args):
        self.held.append((config, checkpoint, *args))
        place = config["configurable"] | {"checkpoint_id": checkpoint["id"]}
        return {"configurable": place}

    def put_writes(self, *args, **options):
        with self.lock:
            super().put_writes(*args, **options)
            self.catch_up()

    def catch_up(self):
        with self.lock:
            while self.held:
                super().put(*self.held.pop(0))


def _graph(state, saver):
    builder = StateGraph(state)
    builder.add_node("think", lambda _: {"messages": [AIMessage("thinking")]})
    builder.add_node("answer", lambda state: {"messages": [AIMessage(_answer(state))]})
    builder.add_edge(START, "think")
    builder.add_edge("think", "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


def _answer(state):
    return f"answer {sum(message.type == 'human' for message in state['messages'])}"


@pytest.mark.parametrize("state", [Plain, Delta])
@pytest.mark.parametrize("said", [lambda text: ("user", text), HumanMessage], ids=["pair", "whole"])
async def test_lines_stand_in_the_order_in_which_they_were_said(tmp_path, call, state, said):
    """Whatever comes to the file first: a question has its turn before its answer, each once."""
    with Nanomem(tmp_path) as memory:
        saver = LateSaver(memory.sessions)
        saver.held = []
        graph, run = _graph(state, saver), {"configurable": {"thread_id": "t"}}
        for number in (1, 2, 3):
            given = {"messages": [said(f"question {number}")]}
            await call(graph, "invoke", given, run)
            saver.catch_up()
        expected = [
            text for n in (1, 2, 3) for text in (f"question {n}", "thinking", f"answer {n}")
        ]
        assert [message.content for message in graph.get_state(run).values["messages"]] == expected
        assert [
            message["content"] for message in memory.sessions.get_or_create("t").messages
        ] == expected
    raw = "".join(path.read_text("utf-8") for path in tmp_path.glob("sessions/*.jsonl"))
    assert [raw.count(f'"answer {n}"') for n in (1, 2, 3)] == [1, 1, 1]
    lines = [line["content"] for line in session_lines(tmp_path)]
    # LangGraph may write two nodes' messages in any order; only a value tells which came first.
    assert lines == expected if state is Plain else sorted(lines) == sorted(expected)
