"""From the live window into memory: plan, ask a model, apply. All of it, or nothing."""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from langchain_nanomem.answers import DEFAULT_INSTRUCTIONS, Prompt
from langchain_nanomem.applying import Applier
from langchain_nanomem.deferred import DeferredWork
from langchain_nanomem.driving import Steps, adrive, drive
from langchain_nanomem.goals import EVERYTHING_TOKENS, AllButTheLast, Halved, WithinThresholds
from langchain_nanomem.in_place import InPlace
from langchain_nanomem.memory import MemoryStore
from langchain_nanomem.memory_budget import DEFAULT_REWRITE_INSTRUCTIONS
from langchain_nanomem.memory_view import MemoryView
from langchain_nanomem.meter import Around, MeasuredSituation, PromptMeter, Tools
from langchain_nanomem.model_calls import CircuitBreaker, ModelCaller
from langchain_nanomem.model_facts import WindowOptions, max_input_tokens, own_budget
from langchain_nanomem.planning import MemoryLimits, Planner
from langchain_nanomem.policy import ConsolidationPolicy, FixedRatioPolicy, Thresholds
from langchain_nanomem.recall import Recall
from langchain_nanomem.rounds import Busy, Consolidation, RoundLimits, Rounds, opened
from langchain_nanomem.scopes import Scope, ScopeRule, check_scope_rule, only, resolve_scope
from langchain_nanomem.tokens import TokenCounter
from langchain_nanomem.window import is_user

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage, SystemMessage
    from langchain_core.runnables import RunnableConfig

    from langchain_nanomem.conversation import Conversation
    from langchain_nanomem.manager import SessionManager
    from langchain_nanomem.session import Session
    from langchain_nanomem.window import Window

Due = Steps[list[Consolidation]]
_LEAST_RESULT_TOKENS = 100
_ENTRY_TOKENS = 600
"""More than an entry for HISTORY.md takes, and the JSON around an answer."""


@dataclass(frozen=True)
class Account:
    """What the consolidations of a session took so far."""

    consolidations: int = 0
    """What is in memory: ranges, each with an entry in HISTORY.md."""
    raw: int = 0
    """Those of them that no model wrote, since it failed."""
    failures: int = 0
    """How often the model gave nothing that could be kept."""
    calls: int = 0
    """Model calls, those that failed too."""
    input_tokens: int = 0
    """As the provider told; counted where it did not."""
    output_tokens: int = 0
    seconds: float = 0.0
    """The time that the calls took."""


_ACCOUNT = [field.name for field in fields(Account)]


class MemoryConsolidator:
    """Keeps prompts within the window by moving old turns into long-term memory.

    At or over the budget, that is the window less room for an answer and a margin, the oldest
    turns go: a model writes an entry for HISTORY.md and a new MEMORY.md, then the session's
    pointer moves. It goes on until the prompt is at `consolidation_ratio` of the budget, so that
    this happens seldom. A failing model never stops a turn; after `max_failures` in a row the
    messages themselves go to HISTORY.md, marked ``[RAW]``.

    In a graph each consolidation is told in the stream "custom", as a dictionary of ``type``
    "nanomem_consolidation", ``id``, ``kind``, ``messages`` (their number), ``tokens_before`` and
    ``tokens_after`` (of the prompt). A deferred one is not: it may end after its run.

    Args:
        sessions: Where the sessions are kept.
        memory: The memory, or a function from a scope to its memory.
        model: A chat model; "extractive" for summaries made without one, marked as such; or
            None: then a consolidation that is due raises.
        context_window_tokens: The window of the model that converses. None: what LangChain
            knows of it, where the node or the middleware is given one that it knows; else of
            `model`; else 65,536.
        max_completion_tokens: Kept free for the answer; by default 4,096 or a quarter of the
            window, whichever is less; nothing where LangChain knows what the input may have.
        safety_margin_tokens: Kept free for what is not counted exactly; by default 1,024 or a
            32nd of the window, whichever is less.
        consolidation_ratio: How far down it goes, as a share of the budget.
        policy: When it begins and how far down it goes, in place of `consolidation_ratio`: a
            `CostAwarePolicy`, or one of your own.
        deferred: Whether it is done behind the answer, in a thread, so that no turn waits for
            it. It then begins about a turn earlier. A prompt that is over the budget all the
            same is consolidated first; while its session is being consolidated already, it
            shows what fits.
        scope: Whose memory a run uses: "workspace", "user", or a function from the config to a
            scope. None: the workspace's, as long as no config has a user_id.
        token_counter: Counts a list of messages; used as it is. By default `TokenCounter`.
        prompt: Instructions in place of the built-in ones; or a function from the current memory
            and the conversation, both texts, to the messages that are sent.
        rewrite_prompt: Instructions for writing a memory anew that is over `max_memory_tokens`,
            in place of the built-in ones.
        reuse_prompt: Whether `model` is the very model that converses, and is asked behind the
            conversation as it stands in the prompt: then what it reads for a consolidation is
            in the provider's cache. It is asked in the usual way where that doesn't fit, or
            gives no such answer.
        consolidation_window_tokens: The window of `model`, where that is another model than the
            one that converses. None: what LangChain knows of it, else that one's.
        max_memory_tokens: What MEMORY.md may have. By default a tenth of the budget, but 200 at
            least and 4,000 at most. What the model writes beyond that it is asked to write
            shorter, once; then the oldest lines of the largest section leave. What leaves is
            in the entry for HISTORY.md, and the version before in the archive. What a person
            writes is never cut.
        memory_tags: Which facts prompts show: of the lines of MEMORY.md that have tags, such as
            ``#project``, only those with one of these. None: all.
        recall_tokens: How much a prompt shows, before the last user message, of what was said
            and logged earlier and matches that message best; what is in the prompt anyway is
            not shown again, and nothing is left out for it. 0: nothing.
        cache_control: The mark of a provider that wants to be told what to cache, such as
            ``{"type": "ephemeral"}``: it is put before the memory and behind it. None: none.
        max_tool_result_tokens: A prompt shows at most so many of a tool result that a model has
            answered: its head and its tail, with a mark that says how to get the rest. The
            session has all of it. None: prompts do, too.
        timeout_seconds: When a call of `model` is given up; None: never.
        retries: How often a call that failed in a way that passes (out of reach, too busy, too
            slow) is made again at once, after 1, 2, 4 seconds and so on. Most chat models do
            that themselves.
        pause_seconds: After five such failures in a row, of whatever sessions, `model` is let
            alone for so long; each further one doubles that, up to ten minutes. What is due
            waits meanwhile, and doesn't count as failed. 0: never.
        max_failures: How many failures in a row make a raw entry.
        max_rounds: How many ranges are consolidated at most in one call.
        on_consolidated: Called after each consolidation; an error in it is logged.

    Raises:
        ValueError: A number is out of range; nothing is left of the window.
    """

    budget_tokens: int
    """The largest prompt."""
    target_tokens: int
    """What a consolidation brings the prompt down to, if it can, where no policy is given."""
    counter: Callable[[Sequence[BaseMessage]], int]
    """Counts messages."""
    recall: Recall
    """Shows in a prompt what was said earlier, where that is asked for."""

    def __init__(  # noqa: PLR0913 - all but the first three are options with a default
        self,
        sessions: SessionManager,
        memory: MemoryStore | Callable[[Scope], MemoryStore],
        model: BaseChatModel | Literal["extractive"] | None,
        *,
        context_window_tokens: int | None = None,
        max_completion_tokens: int | None = None,
        safety_margin_tokens: int | None = None,
        consolidation_ratio: float = 0.5,
        policy: ConsolidationPolicy | None = None,
        deferred: bool = False,
        scope: ScopeRule = None,
        token_counter: Callable[[Sequence[BaseMessage]], int] | None = None,
        prompt: Prompt = DEFAULT_INSTRUCTIONS,
        rewrite_prompt: str = DEFAULT_REWRITE_INSTRUCTIONS,
        reuse_prompt: bool = False,
        consolidation_window_tokens: int | None = None,
        max_memory_tokens: int | None = None,
        memory_tags: Sequence[str] | None = None,
        recall_tokens: int = 0,
        cache_control: Mapping[str, Any] | None = None,
        max_tool_result_tokens: int | None = None,
        timeout_seconds: float | None = 120.0,
        retries: int = 0,
        pause_seconds: float = 30.0,
        max_failures: int = 3,
        max_rounds: int = 5,
        on_consolidated: Callable[[Consolidation], None] | None = None,
    ) -> None:
        check_scope_rule(scope)
        if isinstance(model, str) and model != "extractive":
            raise ValueError(f'model must be a chat model, "extractive" or None, not {model!r}')
        _check_at_least(1, max_failures=max_failures, max_rounds=max_rounds)
        _check_at_least(
            0, retries=retries, pause_seconds=pause_seconds, recall_tokens=recall_tokens
        )
        _check_at_least(1, timeout_seconds=timeout_seconds, max_memory_tokens=max_memory_tokens)
        _check_at_least(_LEAST_RESULT_TOKENS, max_tool_result_tokens=max_tool_result_tokens)
        self.sessions = sessions
        self.memory = memory
        self.model = model
        fixed = FixedRatioPolicy(consolidation_ratio)
        self.policy, self._ratio = policy or fixed, fixed.ratio
        self.deferred = deferred
        self.cache_control = cache_control
        self.counter = token_counter or TokenCounter()
        self._scope_rule = scope
        self._window = WindowOptions(
            context_window_tokens, max_completion_tokens, safety_margin_tokens
        )
        self._own_window_tokens = consolidation_window_tokens
        self._reuse_prompt = reuse_prompt and not callable(prompt)
        self._prompt, self._rewrite_prompt = prompt, rewrite_prompt
        self._max_memory_tokens = max_memory_tokens
        self._tags = None if memory_tags is None else tuple(memory_tags)
        self._max_result_tokens = max_tool_result_tokens
        self._breaker = CircuitBreaker(pause_seconds=pause_seconds)
        self._calls = (timeout_seconds, retries)
        self._limits = RoundLimits(max_failures, max_rounds)
        self._on_consolidated = on_consolidated
        self._texts = self.counter if isinstance(self.counter, TokenCounter) else TokenCounter()
        self.recall = Recall(self._searched, recall_tokens, self._texts)
        self._by_budget: dict[int, Self] = {}
        self._busy = Busy()
        self._behind = DeferredWork()
        self._fit(self._window.budget(model))

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
        return drive(self._due(session, Around(system_prompt, tools)))

    async def amaybe_consolidate_by_tokens(
        self,
        session: Session | Conversation,
        *,
        system_prompt: str | SystemMessage | None = None,
        tools: Tools = (),
    ) -> list[Consolidation]:
        """`maybe_consolidate_by_tokens`, with the model called asynchronously."""
        return await adrive(self._due(session, Around(system_prompt, tools)))

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
        return drive(self._half(session, Around(system_prompt, tools)))

    async def arelieve(
        self,
        session: Session | Conversation,
        *,
        system_prompt: str | SystemMessage | None = None,
        tools: Tools = (),
    ) -> list[Consolidation]:
        """`relieve`, with the model called asynchronously."""
        return await adrive(self._half(session, Around(system_prompt, tools)))

    def compact(self, session: Session | Conversation) -> list[Consolidation]:
        """Consolidate all but the last turn now, whatever the count.

        Of one long turn all but its last round of tools.

        Raises:
            ConsolidationError: The model gave nothing that can be kept, or there is no model.
            OSError: Something could not be read or written.
        """
        return drive(self._all_but_the_last(session))

    async def acompact(self, session: Session | Conversation) -> list[Consolidation]:
        """`compact`, with the model called asynchronously."""
        return await adrive(self._all_but_the_last(session))

    def estimate_prompt_tokens(
        self,
        session: Session | Conversation,
        *,
        system_prompt: str | SystemMessage | None = None,
        tools: Tools = (),
    ) -> int:
        """The tokens of what a model is sent: system prompt, memory, tools, live window.

        It is not less than what the provider told of the last call (``usage_metadata``) and what
        was said since, unless something was consolidated in between.
        """
        return self._meter.estimate(opened(session), Around(system_prompt, tools))

    def count_tools(self, tools: Tools) -> int:
        """The tokens of the tools' schemas."""
        return self._meter.count_tools(tools)

    def pick_consolidation_boundary(
        self, session: Session | Conversation, tokens_to_remove: int
    ) -> tuple[int, int] | None:
        """Where the range to consolidate ends, and the tokens in it; None where there is none.

        It is the first user turn behind the pointer that removes enough, else the last one; in
        one long loop of tools a place between complete rounds. A call and its results are never
        parted.
        """
        return self._meter.boundary(opened(session), tokens_to_remove)

    @property
    def max_memory_tokens(self) -> int:
        """What MEMORY.md may have."""
        return self._planner.limits.told_tokens

    def window_of(self, conversation: Conversation) -> Window:
        """The live window as a prompt shows it, with long tool results shortened if so chosen."""
        return self._meter.window(conversation)

    def thresholds(
        self,
        session: Session | Conversation,
        *,
        system_prompt: str | SystemMessage | None = None,
        tools: Tools = (),
    ) -> Thresholds:
        """From how many tokens on a prompt of this session is consolidated, how far, and why."""
        return self._thresholds(session, Around(system_prompt, tools))

    def for_model(self, model: Any) -> Self:
        """This consolidator, for the window of a model that converses.

        Args:
            model: The model, or a runnable around it.

        Returns:
            The same one where the window was given, or LangChain knows nothing of the model;
            else one that shares all but the budget.

        Raises:
            ValueError: Nothing is left of the model's window.
        """
        known = None if self._window.window_tokens is not None else max_input_tokens(model)
        if known is None or (budget := self._window.budget(model)) == self.budget_tokens:
            return self
        if budget not in self._by_budget:
            other = copy.copy(self)
            other._fit(budget)  # noqa: SLF001 - it is one of us
            self._by_budget.setdefault(budget, other)
        return self._by_budget[budget]

    def for_sessions(self, sessions: SessionManager) -> Self:
        """This consolidator, with the same memory, for other sessions."""
        other = copy.copy(self)
        other._take_over(sessions)  # noqa: SLF001 - it is one of us
        return other

    def for_scope(
        self, scope: Scope, sessions: SessionManager, memory: Callable[[Scope], MemoryStore]
    ) -> Self:
        """This consolidator for one scope alone, with sessions and a memory of its own."""
        other = self.for_sessions(sessions)
        other.memory, other._scope_rule = memory, only(scope, self._scope_rule)  # noqa: SLF001
        other.recall = self.recall.over(other._searched)  # noqa: SLF001 - it is one of us
        return other

    def _take_over(self, sessions: SessionManager) -> None:
        self.sessions, self._by_budget = sessions, {}
        self._busy, self._behind = Busy(), DeferredWork()
        self._fit(self.budget_tokens)

    def memory_for(self, scope: Scope) -> MemoryStore:
        """The memory of a scope.

        Raises:
            ScopeError: The consolidator has one memory, and it is another scope's.
        """
        return self._meter.memory.store(scope)

    def memory_block(self, scope: Scope, fits: Callable[[str], bool] | None = None) -> str:
        """The memory as it stands in the prompt, in half the budget at most.

        It is "" where there is none; and, with a warning, where it can't be read.

        Args:
            scope: Whose memory.
            fits: Tells of a block whether there is room for it beside what else must be there;
                the memory is shortened until there is. None: always.
        """
        return self._meter.memory.block(scope, fits)

    def scope_of(self, config: RunnableConfig) -> Scope:
        """Whose memory a run uses.

        Raises:
            ScopeError: It is not clear whose memory is meant.
        """
        scope = resolve_scope(self._scope_rule, config)
        return self.memory.scope if not scope and isinstance(self.memory, MemoryStore) else scope

    # --- behind the answer ---

    def defer(
        self,
        session: Session | Conversation,
        *,
        system_prompt: str | SystemMessage | None = None,
        tools: Tools = (),
    ) -> bool:
        """Consolidate soon, in a thread, if the next turn might bring it to the trigger.

        Nobody waits for it but `close`. Where the program ends before, the pointer has not
        moved, and the next turn does it.

        Returns:
            Whether it was begun.
        """
        around, ahead = Around(system_prompt, tools), self._turn_tokens(session)
        goal = self._within(session, around, ahead=ahead)
        if self.model is None or goal.excess(begun=False) <= 0:
            return False
        steps = partial(self._rounds.steps, session, goal, around)
        return self._behind.submit(session.key, lambda: drive(steps()))

    def is_busy(self, key: str) -> bool:
        """Whether a session is being consolidated by this consolidator just now."""
        return key in self._busy

    def note_sent(self, key: str) -> None:
        """Note that a model is sent a prompt of a session; for whoever builds prompts."""
        self._meter.note_sent(key, is_busy=self.is_busy(key))

    def close(self, timeout_seconds: float | None = 10.0) -> bool:
        """Wait for what was deferred.

        Args:
            timeout_seconds: How long; None: as long as it takes. What is not begun by then is
                not begun at all.

        Returns:
            Whether all is done.
        """
        return self._behind.wait(timeout_seconds)

    def account(self, key: str) -> Account:
        """What the consolidations of a session took so far, in calls, tokens and seconds."""
        with self.sessions.reading(key) as records:
            spent = records.spent
        return Account(**{name: spent[name] for name in _ACCOUNT if name in spent})

    # --- its parts ---

    def _fit(self, budget_tokens: int) -> None:
        """Make the parts that depend on the budget."""
        self.budget_tokens = budget_tokens
        self.target_tokens = int(budget_tokens * self._ratio)
        texts = self._texts
        view = MemoryView(lambda: self.memory, budget_tokens, texts.count_text, self._tags)
        self._meter = PromptMeter(self._count, texts, view, self.sessions, self._max_result_tokens)
        self._planner = Planner(
            texts,
            own_budget(self._own_window_tokens, self.model) or budget_tokens,
            self._prompt,
            MemoryLimits.within(budget_tokens, self._max_memory_tokens),
            self._rewrite_prompt,
        )
        self._rounds = Rounds(
            lambda: self.model,
            pick=self._picked,
            meter=self._meter,
            planner=self._planner,
            in_place=self._in_place(),
            applier=Applier(self.sessions, self.memory_for),
            caller=ModelCaller(*self._calls, self._breaker, texts),
            busy=self._busy,
            limits=self._limits,
            on_consolidated=self._on_consolidated,
        )

    def _in_place(self) -> InPlace | None:
        """What asks behind the conversation, which may have the room that is kept for answers."""
        if not self._reuse_prompt:
            return None
        window = self._window.window_tokens or self.budget_tokens
        answer = self._planner.limits.told_tokens + _ENTRY_TOKENS
        most = max(self.budget_tokens, window * 31 // 32 - answer)
        return InPlace(self._planner, self._meter, self._prompt, most, self.cache_control)

    def _searched(self, scope: Scope) -> MemoryStore:
        return self.memory_for(scope).over(self.sessions)

    def _due(self, session: Session | Conversation, around: Around) -> Due:
        return self._rounds.steps(session, self._within(session, around), around)

    def _half(self, session: Session | Conversation, around: Around) -> Due:
        target = lambda: self._thresholds(session, around).target_tokens  # noqa: E731
        goal = Halved(self._estimate(session, around), target)
        return self._rounds.steps(session, goal, around, strict=True)

    def _all_but_the_last(self, session: Session | Conversation) -> Due:
        goal = AllButTheLast(
            self._estimate(session, Around()),
            lambda: opened(session).last_consolidated,
            lambda: self._rounds.boundary(session, EVERYTHING_TOKENS) or 0,
        )
        return self._rounds.steps(session, goal, strict=True)

    def _count(self, messages: Sequence[BaseMessage]) -> int:
        return self.counter(messages)

    def _picked(self, session: Session | Conversation, excess: int) -> tuple[int, int] | None:
        return self.pick_consolidation_boundary(session, excess)

    def _estimate(self, session: Session | Conversation, around: Around) -> Callable[[], int]:
        return lambda: self.estimate_prompt_tokens(session, **around._asdict())

    def _within(
        self, session: Session | Conversation, around: Around, *, ahead: int | None = None
    ) -> WithinThresholds:
        """What a turn goes by: `ahead` tokens early, or, where that is deferred, at the limit."""

        def thresholds() -> Thresholds:
            chosen = self._thresholds(session, around)
            if ahead is not None:
                early = max(chosen.trigger_tokens - ahead, chosen.target_tokens)
                return chosen._replace(trigger_tokens=early)
            return chosen._replace(trigger_tokens=self.budget_tokens) if self.deferred else chosen

        memory = lambda: self._meter.memory_tokens(opened(session).scope)  # noqa: E731
        is_promised = isinstance(self.policy, FixedRatioPolicy)
        estimate = self._estimate(session, around)
        return WithinThresholds(estimate, thresholds, None if is_promised else memory)

    def _thresholds(self, session: Session | Conversation, around: Around) -> Thresholds:
        in_place = self._in_place()
        situation = MeasuredSituation(
            self._meter,
            opened(session),
            around,
            budget_tokens=self.budget_tokens,
            planner=self._planner,
            room_behind=in_place.room_tokens if in_place else None,
        )
        return self.policy.thresholds(situation)

    def _turn_tokens(self, session: Session | Conversation) -> int:
        """About what a turn of this conversation takes."""
        live = self.window_of(opened(session)).live
        return self.counter(live) // max(sum(map(is_user, live)), 1)


def _check_at_least(least: float, **options: float | None) -> None:
    for name, value in options.items():
        if value is not None and not value >= least:
            raise ValueError(f"{name} must be at least {least}, not {value}")


__all__ = ["Account", "Consolidation", "MemoryConsolidator"]
