"""How long a call of the consolidating model may take, when it is made again, what it took."""

from __future__ import annotations

import threading
from contextvars import ContextVar

import pytest
from langchain_core.messages import AIMessage
from scripted import KEY, ScriptedChatModel, consolidator_of, save_memory, session_of, texts

from langchain_nanomem import Account, model_calls
from langchain_nanomem.model_calls import CircuitBreaker, is_transient


class StatusError(Exception):
    """As a provider's client raises it."""

    def __init__(self, status):
        super().__init__(f"status {status}")
        self.status_code = status


class APIConnectionError(Exception):
    """Named as openai's is."""


class OverloadedError(APIConnectionError):
    """One of its kind."""


class Stuck(ScriptedChatModel):
    """Its first call lasts until the test ends."""

    free: threading.Event

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        result = super()._generate(messages, stop, run_manager, **kwargs)
        if self.calls == 1:
            self.free.wait(60)
        return result


@pytest.fixture
def stuck():
    free = threading.Event()
    yield Stuck(replies=[save_memory("late"), save_memory("in time")], free=free)
    free.set()


@pytest.fixture
def quickly(monkeypatch):
    """The waits between attempts are short, and told."""
    monkeypatch.setattr(model_calls, "_MAX_DELAY_SECONDS", 0.001)


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        ConnectionResetError(),
        StatusError(408),
        StatusError(429),
        StatusError(500),
        StatusError(529),
        APIConnectionError(),
        OverloadedError(),
    ],
)
def test_what_passes(error):
    """Out of reach, too busy, too slow."""
    assert is_transient(error)


@pytest.mark.parametrize(
    "error", [None, StatusError(400), StatusError(401), StatusError(404), ValueError(), KeyError()]
)
def test_what_does_not(error):
    """A request that is wrong stays wrong."""
    assert not is_transient(error)


def test_a_call_that_takes_too_long_is_given_up(make, run, stuck):
    """cases/consolidation.md 17: the turn goes on with the window as it is; the next one works.

    What the lost call says in the end is heard by nobody.
    """
    consolidator = make(model=stuck, timeout_seconds=1)
    session = session_of(consolidator, "UAU")
    threading.Timer(2, stuck.free.set).start()  # the end of an event loop waits for its threads
    assert run(consolidator, session) == []
    assert session.last_consolidated == 0
    (told,) = run(consolidator, session)
    assert told.history_entry == "in time"
    assert texts(consolidator) == ["in time"]


def test_a_call_is_made_in_the_callers_context(make, run):
    """Tracing and the like see the call though it has a thread of its own."""
    variable, seen = ContextVar("variable", default="unset"), []

    def look(_messages):
        seen.append(variable.get())
        return save_memory()

    variable.set("set")
    assert run(make(look), session_of(make(), "UAU"))
    assert seen == ["set"]


@pytest.mark.parametrize("error", [TimeoutError("slow"), StatusError(503), APIConnectionError()])
def test_it_is_made_again(make, run, quickly, error):
    """As often as was said, in the same turn."""
    consolidator = make(error, error, save_memory("at last"), retries=2)
    (told,) = run(consolidator, session_of(consolidator, "UAU"))
    assert (told.history_entry, told.spent.calls) == ("at last", 3)
    assert consolidator.account(KEY).failures == 0


def test_a_wrong_request_is_not(make, run, quickly):
    """A key that is refused is refused again."""
    consolidator = make(StatusError(401), save_memory(), retries=5)
    assert run(consolidator, session_of(consolidator, "UAU")) == []
    assert consolidator.model.calls == 1


def test_nothing_is_made_again_by_default(make, run):
    """Chat models do that themselves."""
    consolidator = make(TimeoutError(), save_memory())
    assert run(consolidator, session_of(consolidator, "UAU")) == []
    assert consolidator.model.calls == 1


def test_the_waits_grow():
    """1, 2, 4 seconds, and so on up to 30."""
    caller = model_calls.ModelCaller(None, 7, CircuitBreaker(), len)
    steps = caller.through(one_call(), model_calls.Spent())
    delays = [next(steps).delay_seconds]
    delays += [steps.send(TimeoutError()).delay_seconds for _ in range(7)]
    assert delays == [0, 1, 2, 4, 8, 16, 30, 30]
    with pytest.raises(StopIteration) as end:
        steps.send(TimeoutError("the last"))
    assert str(end.value.value) == "the last"


def one_call():
    return (yield model_calls.Call(ScriptedChatModel(replies=[]), []))


# --- a model that is out of reach ---


def test_it_is_let_alone_after_five_failures(tmp_path, run):
    """Of whatever sessions; what is due waits, and no failure is counted meanwhile."""
    consolidator = consolidator_of(tmp_path, StatusError(503))
    for number in range(8):
        assert run(consolidator, session_of(consolidator, "UAU", key=f"c:{number}")) == []
    assert consolidator.model.calls == 5
    counts = [consolidator.account(f"c:{number}").failures for number in range(8)]
    assert counts == [1, 1, 1, 1, 1, 0, 0, 0]


def test_it_is_tried_again_after_a_pause():
    """Each further failure doubles the pause, up to the longest; an answer ends it."""
    now = [0.0]
    breaker = CircuitBreaker(
        threshold=2, pause_seconds=30, longest_seconds=100, clock=lambda: now[0]
    )
    breaker.note(TimeoutError())
    assert not breaker.is_open
    for pause in (30, 60, 100, 100):
        breaker.note(TimeoutError())
        now[0] += pause - 1
        assert breaker.is_open
        now[0] += 1
        assert not breaker.is_open
    breaker.note(AIMessage("I am back"))
    breaker.note(TimeoutError())
    assert not breaker.is_open


def test_what_is_no_such_failure_counts_as_an_answer():
    """A model that refuses is within reach."""
    breaker = CircuitBreaker(threshold=1, pause_seconds=30)
    breaker.note(StatusError(400))
    assert not breaker.is_open


def test_compact_tries_all_the_same(tmp_path, run):
    """Who asks for it is told what the model says."""
    consolidator = consolidator_of(tmp_path, *[StatusError(503)] * 5, save_memory("done"))
    sessions = [session_of(consolidator, "UAU", key=f"c:{number}") for number in range(6)]
    for session in sessions:
        run(consolidator, session)
    assert consolidator.model.calls == 5
    assert len(run(consolidator, sessions[5], how="compact")) == 1


def test_no_pause_if_none_is_wanted(tmp_path, run):
    """pause_seconds=0."""
    consolidator = consolidator_of(tmp_path, StatusError(503), pause_seconds=0)
    for number in range(7):
        run(consolidator, session_of(consolidator, "UAU", key=f"c:{number}"))
    assert consolidator.model.calls == 7


# --- accounts ---


def told(entry, input_tokens, output_tokens):
    usage = {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }
    return save_memory(entry).model_copy(update={"usage_metadata": usage})


def test_an_account_has_all_that_a_session_took(make, run):
    """Calls and tokens as the provider told, failures and raw entries; a new process reads it."""
    bad = AIMessage(
        "no",
        usage_metadata={"input_tokens": 7, "output_tokens": 1, "total_tokens": 8},
    )
    consolidator = make(told("one", 1_000, 50), bad, max_failures=1)
    session = session_of(consolidator, "UAU")
    run(consolidator, session)
    run(consolidator, session_of(consolidator, "AU"))
    account = make().account(KEY)
    assert account == consolidator.account(KEY)
    assert (account.consolidations, account.raw, account.failures) == (2, 1, 1)
    calls = consolidator.model.calls
    assert (account.calls, account.input_tokens) == (calls, 1_000 + 7 * (calls - 1))
    assert account.output_tokens == 50 + calls - 1
    assert account.seconds >= 0


def test_what_a_provider_does_not_tell_is_counted(make, run):
    """Then tokens are ours."""
    consolidator = make(save_memory())
    run(consolidator, session_of(consolidator, "UAU"))
    account = consolidator.account(KEY)
    assert account.input_tokens > 200
    assert 0 < account.output_tokens < 100


def test_of_a_session_without_any_it_is_empty(make):
    """Nothing was consolidated; or there is no such session."""
    consolidator = make()
    session_of(consolidator, "U")
    assert consolidator.account(KEY) == consolidator.account("no:such") == Account()
