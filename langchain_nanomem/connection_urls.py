"""Addresses of databases: what is one, and what of it must not be shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    import os

_SCHEMES = ("postgresql://", "postgres://")
_AMBIGUOUS = "/?#@[] "
_WORDS = re.compile(r"\s*(host|hostaddr|port|dbname|user|password|service)\s*=")
"""How an address begins that is no URL."""


def is_url(source: str) -> bool:
    """Whether it is the URL of a PostgreSQL database."""
    return source.startswith(_SCHEMES)


def check_no_address(directory: str | os.PathLike[str]) -> None:
    """See that what is to be a directory is no database.

    Raises:
        ValueError: It is a URL, or a text of libpq's ``key=value`` form.
    """
    scheme, separator, _ = str(directory).partition("://")
    is_words = isinstance(directory, str) and _WORDS.match(directory)
    if separator or is_words:
        what = f"{scheme}:// is not supported as" if separator else "an address in words is not"
        raise ValueError(
            f"{what} a directory. For a PostgreSQL database give Nanomem its URL, "
            "postgresql://user:password@host:port/database, or give a PostgresJournal"
        )


def secrets_in(url: str) -> list[str]:
    """What of a URL must not be shown: its passwords, as they are written and as they are meant.

    Raises:
        ValueError: It can't be told where its password ends; libpq would take a part of it for
            something else, and show it.
    """
    rest = url.split("://", 1)[1]
    user, at, _ = rest.rpartition("@")
    if any(sign in user for sign in _AMBIGUOUS):
        raise ValueError(
            "the URL cannot be read: write / ? # @ [ ] and spaces in its user, password and "
            "options as %2F %3F %23 %40 %5B %5D %20"
        )
    passwords = [user.partition(":")[2]] if at else []
    options = rest.rpartition("?")[2].split("&") if "?" in rest else []
    passwords += [option.partition("=")[2] for option in options if "pass" in option.lower()]
    return [text for word in passwords if word for text in {word, unquote(word)}]


def forms_of(secret: str) -> list[str]:
    """A secret as it may stand in a message."""
    return [secret, quote(secret, safe="")] if secret else []


def without(secrets: list[str], message: str) -> str:
    """A message in which none of these secrets stands."""
    for secret in sorted(secrets, key=len, reverse=True):
        message = message.replace(secret, "***")
    return message
