"""Consolidations, one after the other: plan, ask a model, apply."""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from langgraph.config import get_stream_writer

from langchain_nanomem.answers import Answer
from langchain_nanomem.conversation import Conversation, of_session
from langchain_nanomem.errors import ConsolidationError, NanomemError, ScopeError
from langchain_nanomem.memory_versions import MemoryVersion
from langchain_nanomem.merging import merge_lines
from langchain_nanomem.model_calls import Spent
from langchain_nanomem.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_core.language_models import BaseChatModel

    from langchain_nanomem.applying import Applier
    from langchain_nanomem.driving import Steps
    from langchain_nanomem.goals import Goal
    from langchain_nanomem.in_place import InPlace
    from langchain_nanomem.meter import Around, PromptMeter
    from langchain_nanomem.model_calls import ModelCaller
    from langchain_nanomem.planning import Plan, Planner

logger = logging.getLogger(__name__)

Kind = Literal["model", "extractive", "raw"]
EVENT = "nanomem_consolidation"
"""The type of the custom event that a graph streams for each consolidation."""
_NO_MEMORY = MemoryVersion("", "")


@dataclass(frozen=True)
class Consolidation:
    """A range of messages that went into memory."""

    id: str
    """Names its entry in HISTORY.md and the version of MEMORY.md that it replaced."""
    key: str
    """The session."""
    start: int
    """The first message of the range."""
    end: int
    """Behind the last message of the range."""
    kind: Kind
    """Whether a model wrote it, or it was extracted, or the messages were kept as they are."""
    history_entry: str
    """What was appended to HISTORY.md."""
    removed_tokens: int
    """What left the live window."""
    tokens_before: int = field(default=0, compare=False)
    """The prompt before it."""
    tokens_after: int = field(default=0, compare=False)
    """The prompt after it."""
    reason: str = field(default="", compare=False)
    """Why it was due, and why it went so far, in a sentence for people."""
    spent: Spent = field(default_factory=Spent, compare=False)
    """What the model calls took."""


class Written(NamedTuple):
    """What is to go into memory."""

    plan: Plan
    kind: Kind
    answer: Answer
    spent: Spent


class Busy:
    """The sessions that are being consolidated in this process."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._guard = threading.Lock()

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    @contextlib.contextmanager
    def claimed(self, key: str) -> Iterator[bool]:
        """Whether the session is ours until the block ends; False: another thread is at it."""
        with self._guard:
            is_ours = key not in self._keys
            self._keys.add(key)
        try:
            yield is_ours
        finally:
            if is_ours:
                with self._guard:
                    self._keys.discard(key)


class RoundLimits(NamedTuple):
    """How much is done at once, and when it is given up."""

    failures: int
    """How many failures in a row make a raw entry."""
    rounds: int
    """How many ranges are consolidated at most in one call."""


class Rounds:
    """Consolidates what is due, a range at a time.

    Args:
        model: Gives the chat model, "extractive" or None.
        pick: Finds where a range ends that takes out so many tokens; None: nowhere.
        meter: Counts prompts.
        planner: Makes plans, and asks the model.
        in_place: Makes plans that are asked behind the conversation itself; None: never.
        applier: Carries answers out.
        caller: Makes the model calls.
        busy: The sessions that are being consolidated.
        limits: How much is done, and when it is given up.
        on_consolidated: Called after each.
    """

    def __init__(  # noqa: PLR0913 - its parts, put together at one place
        self,
        model: Callable[[], BaseChatModel | Literal["extractive"] | None],
        *,
        pick: Callable[[Session | Conversation, int], tuple[int, int] | None],
        meter: PromptMeter,
        planner: Planner,
        in_place: InPlace | None,
        applier: Applier,
        caller: ModelCaller,
        busy: Busy,
        limits: RoundLimits,
        on_consolidated: Callable[[Consolidation], None] | None,
    ) -> None:
        self._model = model
        self._pick = pick
        self._meter = meter
        self._planner = planner
        self._in_place = in_place
        self._applier = applier
        self._caller = caller
        self._busy = busy
        self._limits = limits
        self._on_consolidated = on_consolidated

    def steps(
        self,
        session: Session | Conversation,
        goal: Goal,
        around: Around | None = None,
        *,
        strict: bool = False,
    ) -> Steps[list[Consolidation]]:
        """As many rounds as are due. Yields the model calls to make.

        Args:
            session: What is consolidated.
            goal: How far.
            around: What else stands in the prompt; None where that is not known.
            strict: Whether to raise what keeps it from being done.
        """
        done: list[Consolidation] = []
        with self._busy.claimed(session.key) as is_ours:
            # else the prompt's view holds the limit meanwhile
            if not is_ours or self._applier.is_off_the_record(session.key):
                return done
            if not self._settle(session, strict=strict):
                return done
            excess = goal.excess(begun=False)
            while len(done) < self._limits.rounds:
                before, boundary = goal.tokens, self.boundary(session, excess)
                result = yield from self._round(session, boundary, around, strict=strict)
                if result is None:
                    break
                excess = goal.excess(begun=True)
                done.append(self._told(result, before, goal))
        return done

    def boundary(self, session: Session | Conversation, excess: int) -> int | None:
        """Where a range ends that takes out so many tokens; None where nothing is to go."""
        found = self._pick(session, excess) if excess > 0 else None
        return None if found is None else found[0]

    def _settle(self, session: Session | Conversation, *, strict: bool) -> bool:
        """Save what is new, and finish what a crash left unfinished."""
        if isinstance(session, Session):
            self._applier.save(session)
        return self._applier.settle(opened(session), strict=strict)

    def _round(
        self,
        session: Session | Conversation,
        boundary: int | None,
        around: Around | None,
        *,
        strict: bool,
    ) -> Steps[Consolidation | None]:
        """One range. None: there is none; or it failed, or someone else was faster."""
        if boundary is None:
            return None
        if self._model() is None:
            raise ConsolidationError(
                f"session {session.key!r} is due for consolidation, and there is no model for it. "
                'Give a chat model, or model="extractive" for summaries made without one.'
            )
        if self._caller.is_paused and not strict:
            logger.info("session %r: the model is out of reach; it is let alone", session.key)
            return None
        conversation = opened(session)
        written = yield from self._written(conversation, boundary, around, strict=strict)
        record = None if written is None else self._applier.commit(*written)
        if written is None or record is None:
            return None
        if not self._applier.apply(conversation, record, strict=strict):
            return None
        return Consolidation(
            id=record["id"],
            key=conversation.key,
            start=record["start"] + max(0, conversation.offset),
            end=record["end"] + max(0, conversation.offset),
            kind=written.kind,
            history_entry=record["history_entry"],
            removed_tokens=self._meter.removed(written.plan.messages),
            spent=written.spent,
        )

    def _written(
        self, conversation: Conversation, boundary: int, around: Around | None, *, strict: bool
    ) -> Steps[Written | None]:
        """What is to go into memory. None: the model failed, and the messages can wait."""
        spent = Spent()
        try:
            return (yield from self._answer(conversation, boundary, around, spent))
        except ScopeError:
            raise
        except (OSError, NanomemError) as error:
            count = self._applier.count_failure(conversation, error, spent)
            if strict:
                raise
            if count < self._limits.failures:
                return None
            plan = self._planner.raw(conversation, boundary, _NO_MEMORY)
            return Written(plan, "raw", Answer(f"[RAW]\n{plan.shown}", None), Spent())

    def _answer(
        self, conversation: Conversation, boundary: int, around: Around | None, spent: Spent
    ) -> Steps[Written]:
        """An answer to the memory as it is when the answer comes.

        A person may have edited the memory while the model thought: then it is asked once more.
        """
        store, model = self._meter.memory.store(conversation.scope), self._model()
        memory = store.read_version()
        if model is None or isinstance(model, str):
            plan = self._planner.plan(conversation, boundary, memory)
            return Written(plan, "extractive", self._planner.extract(plan), spent)
        behind = self._plan_in_place(conversation, boundary, memory, around)
        written = yield from self._answer_in_place(model, behind, spent)
        if written is None:
            plan = self._planner.plan(conversation, boundary, memory)
            answer = yield from self._asked(model, plan, spent)
            written = Written(plan, "model", answer, spent)
        plan, current = written.plan, store.read_version()
        if written.answer.memory_update is not None and current.version != plan.memory.version:
            again = self._planner.plan(conversation, plan.end, current)
            answer = yield from self._asked(model, again, spent)
            merged = _with_edits(answer, plan.memory.text, current.text)
            written = Written(again, "model", merged, spent)
        fitted = self._planner.fitted(model, written.answer)
        answer = yield from self._caller.through(fitted, spent)
        return written._replace(answer=answer)

    def _plan_in_place(
        self,
        conversation: Conversation,
        boundary: int,
        memory: MemoryVersion,
        around: Around | None,
    ) -> Plan | None:
        """A plan that is asked behind the conversation; None where it can't be asked so."""
        if self._in_place is None or around is None:
            return None
        return self._in_place.plan(conversation, boundary, memory, around)

    def _answer_in_place(
        self, model: BaseChatModel, plan: Plan | None, spent: Spent
    ) -> Steps[Written | None]:
        """The answer to such a plan; None where there is none, or the model gave no such answer."""
        if self._in_place is None or plan is None:
            return None
        answer = yield from self._caller.through(self._in_place.ask(model, plan), spent)
        return None if answer is None else Written(plan, "model", answer, spent)

    def _asked(self, model: BaseChatModel, plan: Plan, spent: Spent) -> Steps[Answer]:
        return self._caller.through(self._planner.ask(model, plan), spent)

    def _told(self, result: Consolidation, tokens_before: int, goal: Goal) -> Consolidation:
        """What was done, told to whoever wants to know."""
        result = replace(
            result, tokens_before=tokens_before, tokens_after=goal.tokens, reason=goal.reason
        )
        _stream(result)
        if self._on_consolidated is not None:
            try:
                self._on_consolidated(result)
            except Exception:
                logger.exception("on_consolidated failed")
        return result


def opened(session: Session | Conversation) -> Conversation:
    """The conversation of a session, as it is now."""
    return of_session(session) if isinstance(session, Session) else session


def _with_edits(answer: Answer, base: str, edited: str) -> Answer:
    """An answer with what a person changed while the first one was made, taken up or not."""
    if answer.memory_update is None:
        return answer
    return answer._replace(memory_update=merge_lines(base, edited, answer.memory_update))


def _stream(result: Consolidation) -> None:
    """Have a graph's stream tell of it, in numbers: nothing of the memory is in a stream."""
    try:
        write = get_stream_writer()
    except (RuntimeError, KeyError):  # not in a graph
        return
    write(
        {
            "type": EVENT,
            "id": result.id,
            "kind": result.kind,
            "messages": result.end - result.start,
            "tokens_before": result.tokens_before,
            "tokens_after": result.tokens_after,
        }
    )
