"""Rows that belong to a scope, seen by that scope alone: policies in the database.

Each transaction names the scope whose rows it may see, in a setting that ends with it. The
policies are there in all tables that are up to date; they hold once they are turned on.
"""

from __future__ import annotations

from typing import Any, Literal

from langchain_nanomem.scope_names import scope_name

Isolation = Literal["scope", "all"] | None
"""What a program may see of tables that are isolated: the rows of a scope, or all."""
ALL = "*"
"""Names all scopes; the name of no scope has such a sign."""


def check_isolation(isolation: Any) -> None:
    """Refuse what is none.

    Raises:
        ValueError: It is none.
    """
    if isolation not in {"scope", "all", None}:
        raise ValueError(f'isolation must be "scope", "all" or None, not {isolation!r}')


def setting_of(isolation: Isolation, scope: tuple[str, ...]) -> str | None:
    """What a transaction sets to be shown its rows; None where it sets nothing."""
    if isolation == "scope":
        return f"={scope_name(scope)}"  # "" is what the server makes of a setting that has ended
    return ALL if isolation == "all" else None


_OF_SCOPE = ("journals", "replaced", "memories", "memory_versions", "log_entries", "searches")
_OF_JOURNAL = ("indexes",)
_OF_SEARCH = ("search_sources", "search_passages", "search_texts", "search_vectors")
_TABLES = (*_OF_SCOPE, *_OF_JOURNAL, *_OF_SEARCH, "chunks")

# In a subquery, so that it is called once. What has no scope of its own is seen where the row is
# that it belongs to, for which the policy of that one's table decides.
_HAS_SCOPE = "(SELECT {s}.named_scope()) IN (scope, '*')"
_HAS_JOURNAL = "EXISTS (SELECT FROM {s}.journals WHERE id = journal)"
_HAS_SEARCH = "EXISTS (SELECT FROM {s}.searches WHERE searches.id = search)"
_WAS_REPLACED = "EXISTS (SELECT FROM {s}.replaced WHERE replaced.journal = chunks.journal)"


def _policy(table: str, condition: str) -> str:
    """Has only those rows of a table be seen and written of which something holds."""
    return f"CREATE POLICY of_scope ON {{s}}.{table} USING ({condition});\n"


POLICIES = f"""
    ALTER TABLE {{s}}.replaced ADD COLUMN scope text;
    CREATE FUNCTION {{s}}.named_scope() -- whose rows this transaction may see; '*': all
    RETURNS text LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
    DECLARE
        named text := current_setting('nanomem.scope', true);
    BEGIN
        IF coalesce(named, '') = '' THEN
            RAISE SQLSTATE 'NM001' USING MESSAGE = 'the tables are isolated by scope, and '
                'nanomem.scope names none';
        END IF;
        RETURN CASE WHEN named = '*' THEN named ELSE substr(named, 2) END;
    END $$;
    {"".join(_policy(table, _HAS_SCOPE) for table in _OF_SCOPE)}
    {"".join(_policy(table, _HAS_JOURNAL) for table in _OF_JOURNAL)}
    {"".join(_policy(table, _HAS_SEARCH) for table in _OF_SEARCH)}
    {_policy("chunks", f"{_HAS_JOURNAL} OR {_WAS_REPLACED}")}
"""
"""A migration: what was released never changes."""


def turning(*, is_on: bool) -> str:
    """Has the policies hold for all but superusers, or for none."""
    how = "ENABLE {0}, FORCE {0}" if is_on else "DISABLE {0}, NO FORCE {0}"
    change = how.format("ROW LEVEL SECURITY")
    return "".join(f"ALTER TABLE {{s}}.{table} {change};\n" for table in _TABLES)


STATE = """
SELECT relrowsecurity, row_security_active(pg_class.oid), current_user::text
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %s AND relname = 'chunks' AND relkind = 'r'
"""
"""Gives whether the policies are on, and hold for this user; no row where there are no tables."""


def objection(isolation: Isolation, state: tuple[bool, bool, str]) -> str | None:
    """What keeps a program from using the tables, and what to do; None where nothing does.

    Args:
        isolation: What the program may see.
        state: The row of `STATE`.
    """
    is_on, holds, user = state
    if isolation is None and is_on:
        return (
            'the tables are isolated by scope. Give isolation="scope", or "all" to whoever may '
            "see the rows of all scopes."
        )
    if isolation != "scope" or holds:
        return None
    if not is_on:
        return (
            "the tables are not isolated yet. Stop the programs that use them without "
            "isolation, and turn it on: nanomem db isolate"
        )
    return (
        f"no isolation holds for the user {user!r}, who is a superuser or has BYPASSRLS. Connect "
        f"as a role that is neither: ALTER ROLE {user} NOSUPERUSER NOBYPASSRLS, or another one."
    )
