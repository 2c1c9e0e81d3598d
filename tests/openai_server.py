"""A server on this machine that speaks OpenAI's chat completions, and answers as it is told."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from pytest_httpserver import HTTPServer
from werkzeug import Response

if TYPE_CHECKING:
    from werkzeug import Request

PATH = "/v1/chat/completions"
USAGE = {"prompt_tokens": 321, "completion_tokens": 45, "total_tokens": 366}

Body = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """One answer of a model, as a whole or in chunks, whichever is asked for."""

    text: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    """Id, name and arguments (JSON, or what a model takes for it) of each tool call."""
    finish_reason: str | None = None
    pace: Callable[[int], object] | None = None
    """Called with the number of chunks that went out, before the next one does."""

    def respond(self, body: Body) -> Response:
        if body.get("stream"):
            return Response(self._stream(body), content_type="text/event-stream")
        message = {"role": "assistant", "content": self.text or None} | self._calls()
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        return _json({**_head(body, "chat.completion"), "choices": [choice], "usage": USAGE})

    @property
    def _finish(self) -> str:
        return self.finish_reason or ("tool_calls" if self.calls else "stop")

    def _calls(self) -> Body:
        calls = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in self.calls
        ]
        return {"tool_calls": calls} if calls else {}

    def _stream(self, body: Body) -> Iterator[bytes]:
        head = _head(body, "chat.completion.chunk")
        deltas = [({"role": "assistant", "content": ""}, None)]
        deltas += [({"content": piece}, None) for piece in pieces(self.text)]
        deltas += [({"tool_calls": [call]}, None) for call in self._call_pieces()]
        for sent, (delta, finish) in enumerate([*deltas, ({}, self._finish)]):
            if self.pace is not None:
                self.pace(sent)
            yield _event({**head, "choices": [_chunk(delta, finish)]})
        if (body.get("stream_options") or {}).get("include_usage"):
            yield _event({**head, "choices": [], "usage": USAGE})
        yield b"data: [DONE]\n\n"

    def _call_pieces(self) -> Iterator[Body]:
        """Each call as OpenAI streams it: its name first, then its arguments bit by bit."""
        for index, call in enumerate(self._calls().get("tool_calls", [])):
            arguments = call["function"]["arguments"]
            yield {"index": index, **call, "function": {**call["function"], "arguments": ""}}
            for piece in pieces(arguments):
                yield {"index": index, "function": {"arguments": piece}}


def pieces(text: str) -> list[str]:
    """What a model takes for tokens here: words, each with the blank before it."""
    words = text.split(" ")
    return [word if not n else f" {word}" for n, word in enumerate(words)] if text else []


def save_memory(entry: Any = "An entry.", update: Any = "- a fact") -> Reply:
    """A call of save_memory."""
    arguments = json.dumps({"history_entry": entry, "memory_update": update})
    return Reply(calls=(("call_save", "save_memory", arguments),))


def refused(status: int = 400, message: str = "no", code: str | None = None) -> Response:
    """An error as OpenAI words it."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return _json({"error": error}, status)


Scripted = Reply | Response | str | Callable[[Body], "Scripted"]


@dataclass
class OpenAIServer:
    """Serves as many models as are scripted; keeps what it was asked.

    It refuses, as OpenAI does, a conversation in which calls and results don't belong together.
    """

    scripts: dict[str, list[Scripted]] = field(default_factory=dict)
    requests: dict[str, list[Body]] = field(default_factory=lambda: defaultdict(list))
    """The bodies of all requests, by model."""
    keys: set[str] = field(default_factory=set)
    """The authorizations that came with them."""
    illegal: list[str] = field(default_factory=list)
    """What was wrong with those that it refused by itself."""
    closing: threading.Event = field(default_factory=threading.Event)
    """Set when no answer matters any more: who waits for something stops."""

    def __enter__(self) -> Self:
        self._server = HTTPServer(host="127.0.0.1", port=0, threaded=True)
        self._server.expect_request(PATH, method="POST").respond_with_handler(self._respond)
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.stop()
        self._server.check()

    @property
    def url(self) -> str:
        """What a client takes as its base URL."""
        return self._server.url_for("/v1")

    def script(self, model: str, *replies: Scripted) -> None:
        """What `model` answers from now on: one after the other, the last one for ever."""
        self.scripts[model] = list(replies)

    def hold(self, _body: Body) -> Response:
        """No answer until the test is over."""
        self.closing.wait(30)
        return refused(503)

    def _respond(self, request: Request) -> Response:
        body = request.get_json()
        model = body["model"]
        self.keys.add(request.headers["Authorization"])
        self.requests[model].append(body)
        if problem := _problem(body["messages"]):
            self.illegal.append(problem)
            return refused(400, problem)
        replies = self.scripts[model]
        reply: Any = replies.pop(0) if len(replies) > 1 else replies[0]
        while callable(reply) and not isinstance(reply, Response):
            reply = reply(body)
        if isinstance(reply, str):
            reply = Reply(reply)
        return reply.respond(body) if isinstance(reply, Reply) else reply


def _problem(messages: Iterable[Body]) -> str | None:
    """What OpenAI would refuse in a conversation."""
    open_calls: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                return "a tool message must follow the message with its tool_calls"
            open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            return f"these tool_calls have no response: {open_calls}"
        open_calls = {call["id"] for call in message.get("tool_calls") or ()}
        if not message.get("content") and not open_calls:
            return "a message without content"
    return f"these tool_calls have no response: {open_calls}" if open_calls else None


def _head(body: Body, kind: str) -> Body:
    return {"id": "chatcmpl-1", "object": kind, "created": 1_780_000_000, "model": body["model"]}


def _chunk(delta: Body, finish_reason: str | None) -> Body:
    return {"index": 0, "delta": delta, "finish_reason": finish_reason}


def _json(content: Body, status: int = 200) -> Response:
    return Response(json.dumps(content), status, content_type="application/json")


def _event(content: Body) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"
