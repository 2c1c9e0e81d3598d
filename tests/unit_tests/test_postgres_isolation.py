"""Scopes that the database itself keeps apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from journal_records import contents, said
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, StateGraph
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool
from scripted import LONG, ScriptedChatModel, flat_tokens, save_memory

from langchain_nanomem import MemoryState, Nanomem
from langchain_nanomem.errors import DatabaseError, ScopeError
from langchain_nanomem.journal import ORIGIN
from langchain_nanomem.postgres_journal import PostgresJournal
from langchain_nanomem.workspace_copy import copy_workspace

if TYPE_CHECKING:
    from databases import Databases

ANN, BOB = ("user", "ann"), ("user", "bob")
HEAD = {"_type": "metadata", "key": "t"}
TABLES = (
    "journals",
    "chunks",
    "replaced",
    "indexes",
    "memories",
    "memory_versions",
    "log_entries",
    "searches",
    "search_sources",
    "search_passages",
    "search_texts",
    "search_vectors",
)


@pytest.fixture
def owner(databases: Databases):
    """The URL of a role that is no superuser, and may make schemas."""
    name = f"owner_{databases.schema()}"
    options = conninfo_to_dict(databases.url)
    databases.ask(f"CREATE ROLE {name} LOGIN PASSWORD 's3cret'")
    databases.ask(f'GRANT CREATE ON DATABASE "{options.get("dbname", "postgres")}" TO {name}')
    yield make_conninfo(**options | {"user": name, "password": "s3cret"})
    databases.ask(f"DROP OWNED BY {name} CASCADE")
    databases.ask(f"DROP ROLE {name}")


@pytest.fixture
def pool(owner):
    with ConnectionPool(owner, min_size=1, max_size=4, open=True) as pool:
        yield pool


@pytest.fixture
def journal(pool, schema):
    """The journal of an isolated schema, of the workspace's own scope."""
    return PostgresJournal(pool, schema=schema, isolation="scope")


@pytest.fixture
def users(journal):
    """The journals of two users."""
    return journal.isolated(ANN), journal.isolated(BOB)


def embedder():
    from langchain_core.embeddings import DeterministicFakeEmbedding  # noqa: PLC0415

    return DeterministicFakeEmbedding(size=8)


def filled(pool, schema):
    """A memory in which two users have something in every table."""
    mem = Nanomem(
        pool,
        schema=schema,
        isolation="scope",
        scope="user",
        model="extractive",
        embedder=embedder(),
    )
    for scope in (ANN, BOB):
        mine = mem.isolated(scope)
        name = scope[1]
        session = mine.sessions.get_or_create(f"chat:{name}")
        for n in range(6):
            session.add_message("user", f"{name} said otter{n}{LONG}")
            session.add_message("assistant", f"yes{LONG}")
        mine.sessions.save(session)
        with mine.sessions.writing(session.key) as records:
            mine.sessions.journal.keep_index(session.key, b"index")
            mine.sessions.rewrite(records, [*mine.sessions.journal.read(session.key)[0]])
            mine.sessions.journal.keep_index(session.key, b"index")
        memory = mine.memory_for(scope)
        memory.write_long_term(f"- {name} has an otter")
        memory.write_long_term(f"- {name} has two otters")
        memory.append_history(f"{name} told of otters")
        assert memory.over(mine.sessions).search_history("otter0")
    return mem


def counts(journal, *where):
    """How many rows of each table a statement without a condition sees."""
    make = journal.schema.statement
    told = journal.database.ask(*((make(f"SELECT count(*) FROM {{s}}.{t}"), ()) for t in TABLES))
    return {table: rows[0][0] for table, rows in zip(TABLES, told, strict=True)}


# --- what is not one's own --------------------------------------------------


def test_a_statement_without_a_condition_sees_ones_own_rows(pool, schema, databases):
    """Whatever is asked through our own connections: each scope has its rows, together all."""
    mem = filled(pool, schema)
    root = mem.sessions.journal
    ann, bob = (counts(root.isolated(scope)) for scope in (ANN, BOB))
    there = {
        table: databases.ask(f"SELECT count(*) FROM {schema}.{table}")[0][0] for table in TABLES
    }
    assert all(there.values())
    assert {table: ann[table] + bob[table] for table in TABLES} == there
    assert all(ann.values())
    assert not any(counts(root).values())


def test_a_statement_without_a_condition_changes_nothing_of_others(pool, schema):
    """Neither DELETE nor UPDATE reaches a row of another scope."""
    mem = filled(pool, schema)
    ann, bob = (mem.sessions.journal.isolated(scope) for scope in (ANN, BOB))
    before = counts(bob)
    make = ann.schema.statement
    ann.database.write(*((make(f"UPDATE {{s}}.{t} SET scope = scope"), ()) for t in TABLES[4:8]))
    ann.database.write(*((make(f"DELETE FROM {{s}}.{table}"), ()) for table in reversed(TABLES)))
    assert not any(counts(ann).values())
    assert counts(bob) == before
    assert "otters" in mem.isolated(BOB).memory_for(BOB).read_long_term()


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO {s}.memories (scope, facts) VALUES ('user+bob', '- lie')",
        "INSERT INTO {s}.memory_versions (scope, version, content) VALUES ('user+bob', '', '')",
        "INSERT INTO {s}.log_entries (scope, content) VALUES ('user+bob', 'lie')",
        "INSERT INTO {s}.searches (scope, format) VALUES ('user+bob', 99)",
        "INSERT INTO {s}.journals VALUES ('new', 'new', 1, '', 'user+bob')",
        "INSERT INTO {s}.chunks (journal, start, append_id, content) VALUES (%d, 9, 9, 'lie')",
        "INSERT INTO {s}.indexes (journal, content) VALUES (%d, 'lie')",
        "UPDATE {s}.journals SET scope = 'user+bob'",
    ],
)
def test_nothing_is_written_for_another_scope(users, statement):
    """A row of another scope, or of another's session, is refused."""
    ann, bob = users
    ann.append("a", [{**HEAD, "key": "a"}])
    end = bob.append("b", [{**HEAD, "key": "b"}])
    number = int.from_bytes(end.mark[:8], "big")
    text = statement.replace("%d", str(number))
    with pytest.raises(DatabaseError, match="row-level security"):
        ann.database.write((ann.schema.statement(text), ()))


def test_who_names_no_scope_is_refused(users, databases, owner, schema):
    """A connection on which nothing is set sees no row, nor one on which something was."""
    users[0].append("a", [{**HEAD, "key": "a"}])
    for before in ("SELECT 1", "SELECT set_config('nanomem.scope', '=user+ann', true)"):
        with psycopg.connect(owner, autocommit=True) as connection:
            connection.execute(before)
            for table in ("journals", "chunks"):
                with pytest.raises(psycopg.Error, match="isolated by scope") as told:
                    connection.execute(f"SELECT * FROM {schema}.{table}").fetchall()
                assert told.value.sqlstate == "NM001"


def test_a_session_of_another_is_not_there(users):
    """Asked by its name it is as if it were not there, and nothing becomes of it."""
    ann, bob = users
    end = ann.append("t", [HEAD, *said("secret")])
    assert bob.read("t") == ([], ORIGIN)
    assert bob.info("t") is None
    assert bob.list() == []
    assert bob.states() == {}
    assert bob.key_of(next(iter(ann.states()))) is None
    assert bob.delete("t") is False
    assert not bob.index("t")
    with bob.lock("t"):
        assert bob.read("t", ORIGIN) == ([], ORIGIN)
    with pytest.raises(DatabaseError, match="belongs to another scope"):
        bob.append("t", [HEAD, *said("lie")])
    with pytest.raises(DatabaseError, match="belongs to another scope"):
        bob.rewrite("t", [HEAD])
    assert ann.read("t", end) == ([], end)
    assert contents(ann.read("t")[0]) == ["secret"]


def test_an_end_of_another_does_not_open_its_session(users):
    """Neither reading on nor appending behind a position that leaked out."""
    ann, bob = users
    end = ann.append("t", [HEAD, *said("secret")])
    with bob.open("t") as reader, pytest.raises(Exception, match="t"):
        reader.read(end)
    with pytest.raises(Exception, match="t"):
        bob.append("t", said("lie"), expected_end=end)
    assert ann.read("t", end) == ([], end)


def test_a_memory_of_another_is_refused(journal, pool, schema):
    """Before the database is asked."""
    mem = Nanomem(pool, schema=schema, isolation="scope", scope="user")
    with pytest.raises(ScopeError, match="bob"):
        mem.isolated(ANN).memory_for(BOB)
    with pytest.raises(ScopeError, match="bob"):
        mem.memory_for(BOB)
    assert [one.name for one in mem.isolated(ANN)._workspace.memory.all()] == ["user+ann"]


def test_a_run_of_another_is_refused(pool, schema):
    """What the config says of its user has to agree."""
    mine = Nanomem(pool, schema=schema, isolation="scope", scope="user").isolated(ANN)
    config = {"configurable": {"thread_id": "t", "user_id": "bob"}}
    with pytest.raises(ScopeError, match="only"):
        mine.node(ScriptedChatModel(replies=["a"])).invoke({"messages": [("user", "q")]}, config)


# --- it works ---------------------------------------------------------------


async def test_what_is_recalled_is_of_the_scope(pool, schema, call):
    """Words of another conversation stand before the question, those of another user never do."""
    mem = Nanomem(pool, schema=schema, isolation="scope", scope="user", recall_tokens=500)
    for name in ("ann", "bob"):
        history = mem.isolated(("user", name)).history(f"{name}:1")
        history.add_messages([HumanMessage(f"{name} keeps otters")])
    mine = mem.isolated(ANN)
    config = {"configurable": {"thread_id": "ann:2", "user_id": "ann"}}
    prompt = await call(mine.prompt, "invoke", [HumanMessage("who keeps otters")], config)
    shown = str(prompt)
    assert "ann keeps otters" in shown
    assert "bob" not in shown


async def test_all_flows_work_in_a_scope(pool, schema, call):
    """A graph with checkpoints, consolidation, memory and search, for two users side by side."""
    mem = Nanomem(
        pool,
        schema=schema,
        isolation="scope",
        scope="user",
        model=ScriptedChatModel(replies=[save_memory(f"entry {n}", "- fact") for n in range(9)]),
        context_window_tokens=500,
        token_counter=flat_tokens,
        max_completion_tokens=0,
        safety_margin_tokens=0,
    )
    for name in ("ann", "bob"):
        mine = mem.isolated(("user", name))
        graph = StateGraph(MemoryState)
        graph.add_node("model", mine.node(ScriptedChatModel(replies=[f"a{n}" for n in range(9)])))
        graph.add_edge(START, "model")
        app = graph.compile(checkpointer=mine.checkpointer)
        config = {"configurable": {"thread_id": f"{name}:1", "user_id": name}}
        for n in range(6):
            told = await call(
                app, "invoke", {"messages": [HumanMessage(f"{name} {n}{LONG}")]}, config
            )
        assert isinstance(told["messages"][-1], AIMessage)
        memory = mine.memory_for(("user", name))
        assert "fact" in memory.read_long_term()
        found = memory.over(mine.sessions).search_history(f"{name} 0")
        assert any(name in one.text for one in found)
        assert [one["key"] for one in mine.sessions.list_sessions()] == [f"{name}:1"]
        assert mine.sessions.get_or_create(f"{name}:1").scope == ("user", name)
    assert mem.sessions.list_sessions() == []
    erased = mem.isolated(ANN).erase(scope=ANN)
    assert erased.sessions == ["ann:1"]
    assert "fact" in mem.isolated(BOB).memory_for(BOB).read_long_term()


def test_one_connection_serves_all_scopes_in_turn(owner, schema):
    """Nothing of a scope is left on a connection that the next one gets."""
    with ConnectionPool(owner, min_size=1, max_size=1, open=True) as pool:
        root = PostgresJournal(pool, schema=schema, isolation="scope")
        ann, bob = root.isolated(ANN), root.isolated(BOB)
        for n in range(3):
            for name, one in (("a", ann), ("b", bob), ("w", root)):
                one.append(name, [{**HEAD, "key": name}, *said(str(n))][n > 0 :])
        listed = [[info.key for info in one.list()] for one in (ann, bob, root)]
        assert listed == [["a"], ["b"], ["w"]]
        with ann.lock("a"):
            ann.read("a")
        assert contents(bob.read("b")[0]) == ["0", "1", "2"]


def test_a_role_that_is_not_the_owner_needs_rights_for_data_alone(
    databases, journal, schema, owner
):
    """Such a role can't turn the isolation off."""
    journal.isolated(ANN).append("a", [HEAD])
    user = f"user_{databases.schema()}"
    databases.ask(f"CREATE ROLE {user} LOGIN PASSWORD 's3cret'")
    databases.ask(f"GRANT USAGE ON SCHEMA {schema} TO {user}")
    rights = f"SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema}"
    databases.ask(f"GRANT {rights} TO {user}")
    url = make_conninfo(**conninfo_to_dict(owner) | {"user": user})
    try:
        with PostgresJournal(url, schema=schema, isolation="scope") as other:
            other.isolated(BOB).append("b", [HEAD, *said("b")])
            assert contents(other.isolated(BOB).read("b")[0]) == ["b"]
            assert other.isolated(BOB).info("a") is None
            with pytest.raises(DatabaseError, match="no right"):
                other.isolate(is_on=False)
    finally:
        databases.ask(f"DROP OWNED BY {user}")
        databases.ask(f"DROP ROLE {user}")


# --- on and off -------------------------------------------------------------


def test_a_superuser_is_refused(databases, schema):
    """No policy holds for one: the error says so, and what to do."""
    if not databases.ask("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")[0][0]:
        pytest.skip("the server's user is none")
    with PostgresJournal(databases.url, schema=schema, isolation="scope") as journal:
        with pytest.raises(DatabaseError, match=r"superuser.*BYPASSRLS.*Connect as"):
            journal.list()
        with pytest.raises(DatabaseError, match="superuser"):
            journal.isolated(ANN).append("a", [HEAD])


def test_a_program_without_isolation_is_refused_where_it_is_on(journal, pool, schema):
    """Also one that was at work when it was turned on: it takes nothing for missing."""
    journal.prepare()
    journal.isolate(is_on=False)
    early = PostgresJournal(pool, schema=schema)
    early.append("t", [HEAD])
    journal.isolate()
    assert journal.is_isolated()
    for ask in (early.list, lambda: early.read("t"), lambda: early.append("t", said("a"))):
        with pytest.raises(DatabaseError, match="isolated by scope"):
            ask()
    late = PostgresJournal(pool, schema=schema)
    for ask in (late.list, late.is_there):
        with pytest.raises(DatabaseError, match='isolation="scope"'):
            ask()
    with pytest.raises(ValueError, match="isolation"):
        late.isolated(ANN)


def test_tables_that_are_not_isolated_are_refused(pool, schema):
    """Until it is turned on: then what was there before has the scope that it was bound to."""
    with Nanomem(pool, schema=schema, scope="user", model="extractive") as before:
        before.sessions.bind_scope("ann:1", ANN)
        before.sessions.journal.append("unbound", [HEAD])
        before.memory_for(ANN).write_long_term("- a fact")
    journal = PostgresJournal(pool, schema=schema, isolation="scope")
    with pytest.raises(DatabaseError, match="nanomem db isolate"):
        journal.list()
    journal.isolate()
    mem = Nanomem(journal, scope="user", model="extractive")
    assert [one["key"] for one in mem.isolated(ANN).sessions.list_sessions()] == ["ann:1"]
    assert "a fact" in mem.isolated(ANN).memory_for(ANN).read_long_term()
    assert [one["key"] for one in mem.sessions.list_sessions()] == ["unbound"]


def test_maintenance_sees_all_scopes(users, pool, schema, tmp_path):
    """With isolation="all": a listing, a copy of everything, and a scope of one's own again."""
    for name, one in zip("ab", users, strict=True):
        one.append(name, [{**HEAD, "key": name}, *said(name)])
    everything = PostgresJournal(pool, schema=schema, isolation="all")
    assert [info.key for info in everything.list()] == ["a", "b"]
    copied = copy_workspace(everything, tmp_path)
    assert copied.sessions == 2
    assert [info.key for info in everything.isolated(ANN).list()] == ["a"]


def test_what_is_begun_in_a_scope_is_bound_to_it(pool, schema, tmp_path):
    """Its records say so, wherever they are copied to."""
    mine = Nanomem(pool, schema=schema, isolation="scope").isolated(ANN)
    session = mine.sessions.get_or_create("t")
    session.add_message("user", "a")
    mine.sessions.save(session)
    session.add_message("user", "b")
    mine.sessions.save(session)
    assert session.scope == ANN
    copy_workspace(PostgresJournal(pool, schema=schema, isolation="all"), tmp_path)
    assert Nanomem(tmp_path, model="extractive").sessions.get_or_create("t").scope == ANN


def test_what_is_no_isolation_is_refused(databases, tmp_path):
    """A wrong word, a directory, a scope that is none, a memory in another store."""
    with pytest.raises(ValueError, match="isolation must be"):
        PostgresJournal(databases.pool, isolation="user")
    with pytest.raises(ValueError, match="isolation is for a database"):
        Nanomem(tmp_path, isolation="scope")
    with pytest.raises(ValueError, match="keeps scopes apart"):
        Nanomem(tmp_path).isolated(ANN)
    with pytest.raises(ValueError, match="sequence"):
        PostgresJournal(databases.pool, isolation="scope").isolated("ann")
