"""From the live window into memory: plan, ask a model, apply. All of it, or nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from langchain_nanomem.answers import DEFAULT_INSTRUCTIONS, Answer, Call, Prompt
from langchain_nanomem.applying import Applier
from langchain_nanomem.conversation import Conversation, of_session
from langchain_nanomem.driving import Reply, Steps, adrive, drive
from langchain_nanomem.errors import ConsolidationError, NanomemError, ScopeError
from langchain_nanomem.memory import MemoryStore, fence_memory
from langchain_nanomem.memory_file import MemoryVersion
from langchain_nanomem.merging import merge_lines
from langchain_nanomem.planning import Plan, Planner
from langchain_nanomem.scopes import Scope, ScopeRule, check_scope_rule, resolve_scope
from langchain_nanomem.session import Session
from langchain_nanomem.tokens import TokenCounter
from langchain_nanomem.window import message_shape, pick_boundary, with_memory

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage, SystemMessage
    from langchain_core.runnables import RunnableConfig

    from langchain_nanomem.journal import Record
    from langchain_nanomem.manager import SessionManager

logger = logging.getLogger(__name__)

Kind = Literal["model", "extractive", "raw"]
Tools = Sequence[Any]
Rounds = Steps["list[Consolidation]"]

NO_MEMORY = MemoryVersion("", "")
_EVERYTHING_TOKENS = 2**62
_REST = "[The rest of the memory does not fit here.]"


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


class MemoryConsolidator:
    """Keeps prompts within the window by moving old turns into long-term memory.

    At or over the budget, that is the window less room for an answer and a margin, the oldest
    turns go: a model writes an entry for HISTORY.md and a new MEMORY.md, then the session's
    pointer moves. It goes on until the prompt is at `consolidation_ratio` of the budget, so that
    this happens seldom. A failing model never stops a turn; after `max_failures` in a row the
    messages themselves go to HISTORY.md, marked ``[RAW]``.

    Args:
        sessions: Where the sessions are kept.
        memory: The memory, or a function from a scope to its memory.
        model: A chat model; "extractive" for summaries made without one, marked as such; or
            None: then a consolidation that is due raises.
        context_window_tokens: The model's window.
        max_completion_tokens: Kept free for the answer; by default 4,096 or a quarter of the
            window, whichever is less.
        safety_margin_tokens: Kept free for what is not counted exactly; by default 1,024 or a
            32nd of the window, whichever is less.
        consolidation_ratio: How far down it goes, as a share of the budget.
        scope: Whose memory a run uses: "workspace", "user", or a function from the config to a
            scope. None: the workspace's, as long as no config has a user_id.
        token_counter: Counts a list of messages; used as it is. By default `TokenCounter`.
        prompt: Instructions in place of the built-in ones; or a function from the current memory
            and the conversation, both texts, to the messages that are sent.
        max_failures: How many failures in a row make a raw entry.
        max_rounds: How many ranges are consolidated at most in one call.
        on_consolidated: Called after each consolidation; an error in it is logged.

    Raises:
        ValueError: A number is out of range; nothing is left of the window.
    """

    budget_tokens: int
    """The largest prompt."""
    target_tokens: int
    """What a consolidation brings the prompt down to, if it can."""

    def __init__(  # noqa: PLR0913 - all but the first three are options with a default
        self,
        sessions: SessionManager,
        memory: MemoryStore | Callable[[Scope], MemoryStore],
        model: BaseChatModel | Literal["extractive"] | None,
        *,
        context_window_tokens: int,
        max_completion_tokens: int | None = None,
        safety_margin_tokens: int | None = None,
        consolidation_ratio: float = 0.5,
        scope: ScopeRule = None,
        token_counter: Callable[[Sequence[BaseMessage]], int] | None = None,
        prompt: Prompt = DEFAULT_INSTRUCTIONS,
        max_failures: int = 3,
        max_rounds: int = 5,
        on_consolidated: Callable[[Consolidation], None] | None = None,
    ) -> None:
        window = context_window_tokens
        completion = _default(max_completion_tokens, min(4_096, window // 4))
        margin = _default(safety_margin_tokens, min(1_024, window // 32))
        self.budget_tokens = window - completion - margin
        if self.budget_tokens <= 0 or min(completion, margin) < 0:
            raise ValueError(
                f"nothing is left for a prompt: context_window_tokens {window} less "
                f"max_completion_tokens {completion} less safety_margin_tokens {margin} is "
                f"{self.budget_tokens}. None of them may be negative."
            )
        if not 0 < consolidation_ratio <= 1:
            raise ValueError(f"consolidation_ratio must be in (0, 1], not {consolidation_ratio}")
        if max_failures < 1 or max_rounds < 1:
            raise ValueError("max_failures and max_rounds must be at least 1")
        if isinstance(model, str) and model != "extractive":
            raise ValueError(f'model must be a chat model, "extractive" or None, not {model!r}')
        check_scope_rule(scope)
        self._scope_rule = scope
        self.target_tokens = int(self.budget_tokens * consolidation_ratio)
        self.sessions = sessions
        self.memory = memory
        self.model = model
        self.counter = token_counter or TokenCounter()
        counter = self.counter
        self._text_counter = counter if isinstance(counter, TokenCounter) else TokenCounter()
        self._planner = Planner(self._text_counter, self.budget_tokens, prompt)
        self._applier = Applier(sessions, self.memory_for)
        self._max_failures = max_failures
        self._max_rounds = max_rounds
        self._on_consolidated = on_consolidated
        self._busy: set[str] = set()
        self._guard = threading.Lock()

    # --- what is asked of it ---

    def maybe_consolidate_by_tokens(
        self,
        session: Session | Conversation,
        *,
        system_prompt: str | SystemMessage | None = None,
        tools: Tools = (),
    ) -> list[Consolidation]:
        """Consolidate if the prompt of `session` is at or over the budget.

        What is new in `session` is saved first. A failing model is logged and counted, and the
        turn goes on with the window as it is.

        Args:
            session: The session; or a branch of a graph's conversation.
            system_prompt: What else stands in the prompt, without the memory.
            tools: The tools that the model is given.

        Returns:
            What was consolidated, oldest first; [] where nothing was due or possible.

        Raises:
            ConsolidationError: It is due and there is no model.
            ScopeError: The session belongs to another scope.
            OSError: The session could not be written.
        """
        return drive(self._steps(session, self._excess(session, system_prompt, tools)))

    async def amaybe_consolidate_by_tokens(
        self,
        session: Session | Conversation,
        *,
        system_prompt: str | SystemMessage | None = None,
        tools: Tools = (),
    ) -> list[Consolidation]:
        """`maybe_consolidate_by_tokens`, with the model called asynchronously."""
        return await adrive(self._steps(session, self._excess(session, system_prompt, tools)))

    def relieve(
        self,
        session: Session | Conversation,
        *,
        system_prompt: str | SystemMessage | None = None,
        tools: Tools = (),
    ) -> list[Consolidation]:
        """Consolidate half of a prompt that the provider refused as too long; once.

        It is more where the prompt is above the target by more.

        Returns:
            What was consolidated; [] where nothing can be, or another thread is at it.

        Raises:
            ConsolidationError: The model gave nothing that can be kept, or there is no model.
            OSError: Something could not be read or written.
        """
        return drive(self._steps(session, self._half(session, system_prompt, tools), strict=True))

    async def arelieve(
        self,
        session: Session | Conversation,
        *,
        system_prompt: str | SystemMessage | None = None,
        tools: Tools = (),
    ) -> list[Consolidation]:
        """`relieve`, with the model called asynchronously."""
        half = self._half(session, system_prompt, tools)
        return await adrive(self._steps(session, half, strict=True))

    def compact(self, session: Session | Conversation) -> list[Consolidation]:
        """Consolidate all but the last turn now, whatever the count.

        Of one long turn all but its last round of tools.

        Raises:
            ConsolidationError: The model gave nothing that can be kept, or there is no model.
            OSError: Something could not be read or written.
        """
        return drive(self._steps(session, self._all_but_the_last(session), strict=True))

    async def acompact(self, session: Session | Conversation) -> list[Consolidation]:
        """`compact`, with the model called asynchronously."""
        return await adrive(self._steps(session, self._all_but_the_last(session), strict=True))

    def estimate_prompt_tokens(
        self,
        session: Session | Conversation,
        *,
        system_prompt: str | SystemMessage | None = None,
        tools: Tools = (),
    ) -> int:
        """The tokens of what a model is sent: system prompt, memory, tools, live window."""
        conversation = _opened(session)
        system = with_memory((), system_prompt, self.memory_block(conversation.scope))
        counted = self.counter([*system, *conversation.window.messages])
        return counted + self.count_tools(tools)

    def count_tools(self, tools: Tools) -> int:
        """The tokens of the tools' schemas."""
        return self._text_counter.count_tools(tools) if tools else 0

    def pick_consolidation_boundary(
        self, session: Session | Conversation, tokens_to_remove: int
    ) -> tuple[int, int] | None:
        """Where the range to consolidate ends, and the tokens in it; None where there is none.

        It is the first user turn behind the pointer that removes enough, else the last one; in
        one long loop of tools a place between complete rounds. A call and its results are never
        parted.
        """
        conversation = _opened(session)
        start = conversation.last_consolidated
        window = conversation.consolidatable
        shapes = [message_shape(message) for message in window]
        found = pick_boundary(shapes, 0, tokens_to_remove, lambda i: self.counter([window[i]]))
        return None if found is None else (start + found[0], found[1])

    def memory_for(self, scope: Scope) -> MemoryStore:
        """The memory of a scope.

        Raises:
            ScopeError: The consolidator has one memory, and it is another scope's.
        """
        if not isinstance(self.memory, MemoryStore):
            return self.memory(scope)
        if scope not in {(), self.memory.scope}:
            raise ScopeError(
                f"this consolidator has the memory of the scope {self.memory.scope!r} alone; the "
                f"session belongs to {scope!r}"
            )
        return self.memory

    def memory_block(self, scope: Scope, fits: Callable[[str], bool] | None = None) -> str:
        """The memory as it stands in the prompt, in half the budget at most.

        It is "" where there is none; and, with a warning, where it can't be read.

        Args:
            scope: Whose memory.
            fits: Tells of a block whether there is room for it beside what else must be there;
                the memory is shortened until there is. None: always.
        """
        try:
            text = self._bounded(self.memory_for(scope).read_long_term())
            return fence_memory(text) if fits is None else _fitting_block(text, fits)
        except (OSError, NanomemError) as error:
            if isinstance(error, ScopeError):
                raise
            logger.warning("the memory is left out of the prompt: %s", error)
            return ""

    def scope_of(self, config: RunnableConfig) -> Scope:
        """Whose memory a run uses.

        Raises:
            ScopeError: It is not clear whose memory is meant.
        """
        scope = resolve_scope(self._scope_rule, config)
        return self.memory.scope if not scope and isinstance(self.memory, MemoryStore) else scope

    def _bounded(self, memory: str) -> str:
        """As many lines of the memory, from its start, as half the budget holds."""
        most, count = self.budget_tokens // 2, self._text_counter.count_text
        if count(memory) <= most:
            return memory
        logger.warning("MEMORY.md is larger than half the budget; only its start is in the prompt")
        return _start_of(memory, most, count) + _REST

    # --- plan, ask, apply ---

    def _excess(
        self, session: Session | Conversation, system_prompt: Any, tools: Tools
    ) -> Callable[[bool], int]:
        """A function that tells how many tokens are to go; below 1: none."""

        def excess(begun: bool) -> int:  # noqa: FBT001 - local
            estimate = self.estimate_prompt_tokens(
                session, system_prompt=system_prompt, tools=tools
            )
            if not begun and estimate < self.budget_tokens:
                return 0
            return estimate - self.target_tokens

        return excess

    def _half(
        self, session: Session | Conversation, system_prompt: Any, tools: Tools
    ) -> Callable[[bool], int]:
        """The same, for one round that takes out at least half."""

        def excess(begun: bool) -> int:  # noqa: FBT001 - local
            if begun:
                return 0
            estimate = self.estimate_prompt_tokens(
                session, system_prompt=system_prompt, tools=tools
            )
            return max(estimate - self.target_tokens, (estimate + 1) // 2)

        return excess

    def _all_but_the_last(self, session: Session | Conversation) -> Callable[[bool], int]:
        """The same, for all that lies before the boundary that there is at the beginning."""
        goal = 0

        def excess(begun: bool) -> int:  # noqa: FBT001 - local
            nonlocal goal
            if not begun:
                goal = self._due(session, _EVERYTHING_TOKENS) or 0
            return _EVERYTHING_TOKENS if _opened(session).last_consolidated < goal else 0

        return excess

    def _steps(
        self,
        session: Session | Conversation,
        excess: Callable[[bool], int],
        *,
        strict: bool = False,
    ) -> Rounds:
        """As many rounds as are due. Yields the model calls to make."""
        done: list[Consolidation] = []
        if not self._claim(session.key):
            return done  # another thread is at it; the prompt's view holds the limit meanwhile
        try:
            if not self._settle(session, strict=strict):
                return done
            while len(done) < self._max_rounds:
                boundary = self._due(session, excess(bool(done)))
                if boundary is None:
                    break
                result = yield from self._round(session, boundary, strict=strict)
                if result is None:
                    break
                done.append(result)
        finally:
            self._release(session.key)
        return done

    def _due(self, session: Session | Conversation, excess: int) -> int | None:
        boundary = self.pick_consolidation_boundary(session, excess) if excess > 0 else None
        return None if boundary is None else boundary[0]

    def _settle(self, session: Session | Conversation, *, strict: bool) -> bool:
        """Save what is new, and finish what a crash left unfinished."""
        if isinstance(session, Session):
            self.sessions.save(session)
        return self._applier.settle(_opened(session), strict=strict)

    def _round(
        self, session: Session | Conversation, boundary: int, *, strict: bool
    ) -> Generator[Call, Reply, Consolidation | None]:
        """One range. None: it failed, or someone else was faster; nothing moved."""
        if self.model is None:
            raise ConsolidationError(
                f"session {session.key!r} is due for consolidation, and there is no model for it. "
                'Give a chat model, or model="extractive" for summaries made without one.'
            )
        conversation = _opened(session)
        try:
            kind, plan, answer = yield from self._answer(conversation, boundary)
        except ScopeError:
            raise
        except (OSError, NanomemError) as error:
            count = self._applier.count_failure(conversation, error)
            if strict:
                raise
            if count < self._max_failures:
                return None
            kind = "raw"
            plan = self._planner.raw(conversation, boundary, NO_MEMORY)
            answer = Answer(f"[RAW]\n{plan.shown}", None)
        record = self._applier.commit(plan, kind, answer)
        if record is None or not self._applier.apply(conversation, record, strict=strict):
            return None
        return self._told(plan, record)

    def _answer(
        self, conversation: Conversation, boundary: int
    ) -> Generator[Call, Reply, tuple[Kind, Plan, Answer]]:
        """An answer to the memory as it is when the answer comes.

        A person may have edited the memory while the model thought: then it is asked once more.
        """
        store = self.memory_for(conversation.scope)
        plan = self._planner.plan(conversation, boundary, store.read_version())
        if self.model is None or isinstance(self.model, str):
            return "extractive", plan, self._planner.extract(plan)
        answer = yield from self._planner.ask(self.model, plan)
        current = store.read_version()
        if answer.memory_update is not None and current.version != plan.memory.version:
            first, plan = plan.memory, plan._replace(memory=current)
            answer = yield from self._planner.ask(self.model, plan)
            answer = _with_edits(answer, first.text, current.text)
        return "model", plan, answer

    def _told(self, plan: Plan, record: Record) -> Consolidation:
        result = Consolidation(
            id=plan.id,
            key=plan.conversation.key,
            start=plan.start,
            end=plan.end,
            kind=record["kind"],
            history_entry=record["history_entry"],
            removed_tokens=sum(self.counter([message]) for message in plan.messages),
        )
        if self._on_consolidated is not None:
            try:
                self._on_consolidated(result)
            except Exception:
                logger.exception("on_consolidated failed")
        return result

    def _claim(self, key: str) -> bool:
        with self._guard:
            if key in self._busy:
                return False
            self._busy.add(key)
            return True

    def _release(self, key: str) -> None:
        with self._guard:
            self._busy.discard(key)


def _with_edits(answer: Answer, base: str, edited: str) -> Answer:
    """An answer with what a person changed while the first one was made, taken up or not."""
    if answer.memory_update is None:
        return answer
    return answer._replace(memory_update=merge_lines(base, edited, answer.memory_update))


def _opened(session: Session | Conversation) -> Conversation:
    return of_session(session) if isinstance(session, Session) else session


def _fitting_block(memory: str, fits: Callable[[str], bool]) -> str:
    """The block of as many lines of the memory as there is room for; "" with no room at all."""
    block = fence_memory(memory)
    if block and not fits(block):
        logger.warning("what was said last leaves no room for all of the memory in the prompt")
    while block and not fits(block):
        memory = memory[: memory.rfind("\n", 0, len(memory) * 4 // 5) + 1]
        block = fence_memory(memory + _REST) if memory else ""
    return block


def _start_of(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """As many lines of it, from its start, as have no more tokens than that."""
    while text and (tokens := count(text)) > max_tokens:
        share = min(max(max_tokens, 0) / tokens, 0.95)
        text = text[: text.rfind("\n", 0, int(len(text) * share)) + 1]
    return text


def _default(given: int | None, default: int) -> int:
    return default if given is None else given
