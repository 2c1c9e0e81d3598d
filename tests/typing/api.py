"""The public names as a user's type checker sees them. Checked by mypy, never run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

from langchain_nanomem import (
    BaseStoreBackend,
    Consolidation,
    Imported,
    MemoryConsolidator,
    MemoryPrompt,
    MemoryState,
    MemoryStore,
    Nanomem,
    NanomemChatMessageHistory,
    NanomemSaver,
    NanomemStore,
    PostgresJournal,
    Session,
    SessionManager,
    aanswer_interrupted_calls,
    aimport_checkpoints,
    answer_interrupted_calls,
    create_memory_node,
    create_search_memory_tool,
    import_checkpoints,
)

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage, ToolMessage
    from langchain_core.runnables import Runnable, RunnableConfig
    from langchain_core.tools import BaseTool
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.store.base import BaseStore, Item


def sessions() -> None:
    """Sessions and their manager."""
    with PostgresJournal("postgresql://localhost/bot", schema="bot") as journal:
        assert_type(SessionManager(journal).get_or_create("cli:ada"), Session)
    manager = SessionManager("workspace")
    session = manager.get_or_create("cli:ada")
    assert_type(session, Session)
    session.add_message("user", "hello", timestamp="2026-05-08T13:56:00+00:00")
    assert_type(session.get_history(max_messages=10), list[dict[str, Any]])
    manager.save(session)
    assert_type(manager.delete("cli:ada"), bool)
    assert_type(manager.list_sessions(), list[dict[str, Any]])


async def consolidation(model: BaseChatModel) -> None:
    """The consolidator, in both colours."""
    manager = SessionManager("workspace")
    memory = MemoryStore("workspace", scope=("user", "42"))
    consolidator = MemoryConsolidator(manager, memory, model, context_window_tokens=8_000)
    session = manager.get_or_create("cli:ada")
    assert_type(consolidator.maybe_consolidate_by_tokens(session), list[Consolidation])
    assert_type(await consolidator.amaybe_consolidate_by_tokens(session), list[Consolidation])
    assert_type(consolidator.estimate_prompt_tokens(session, system_prompt="hi"), int)
    assert_type(consolidator.pick_consolidation_boundary(session, 100), tuple[int, int] | None)
    assert_type(memory.read_long_term(), str)


def graph(model: BaseChatModel, config: RunnableConfig, state: MemoryState) -> None:
    """What goes into a graph or a chain."""
    with Nanomem("workspace", model="extractive", scope="user") as memory:
        assert_type(memory.checkpointer, NanomemSaver)
        assert_type(memory.node(model), Runnable[Any, dict[str, Any]])
        assert_type(memory.prompt, MemoryPrompt)
        assert_type(memory.prompt.invoke(state, config), list[BaseMessage])
        assert_type(memory.history("cli:ada"), NanomemChatMessageHistory)
        assert_type(memory.history("cli:ada").messages, list[BaseMessage])
        assert_type(memory.tools(), list[BaseTool])
        create_memory_node(memory.consolidator, model=model)
        create_search_memory_tool(memory.memory, memory.sessions)


async def migration(source: BaseCheckpointSaver[str], target: NanomemSaver) -> None:
    """Threads of another checkpointer, in both colours."""
    done = import_checkpoints(source, target, progress=print)
    assert_type(done, Imported)
    assert_type(done.checkpoints, int)
    assert_type(await aimport_checkpoints(source, target, thread_ids=["chat:1"]), Imported)


async def removal(
    saver: NanomemSaver, agent: CompiledStateGraph[MemoryState], config: RunnableConfig
) -> None:
    """What keeps threads small and whole, in both colours."""
    saver.prune(["chat:1"], keep_last=5)
    await saver.aprune(["chat:1"], keep_last=5)
    await saver.aprune(["chat:1"], strategy="delete")
    assert_type(answer_interrupted_calls(agent, config), list[ToolMessage])
    added = await aanswer_interrupted_calls(agent, config, abandon_tasks=True)
    assert_type(added, list[ToolMessage])


def stores(store: BaseStore) -> None:
    """The memory in a store, and as one."""
    memory = MemoryStore(BaseStoreBackend(store, "workspace"), ("user", "42"))
    assert_type(memory.read_long_term(), str)
    wired = Nanomem("workspace", base_store=store)
    assert_type(wired.store, NanomemStore)
    assert_type(wired.store.get(("memories",), "key"), Item | None)
    NanomemStore(memory, SessionManager("workspace"), content_field="text")
