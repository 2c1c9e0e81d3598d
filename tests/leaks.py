"""Texts that must not be in files, and a search for them that sees through encodings."""

from __future__ import annotations

import base64
import binascii
import gzip
import re
from typing import TYPE_CHECKING

from langchain_nanomem import Redaction
from langchain_nanomem.postgres_journal import PostgresJournal
from langchain_nanomem.workspaces import open_workspace
from tests.memory_graph import messages_in
from tests.stores import bytes_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRETS = {
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "github": "ghp_" + "Ab1" * 12,
    "openai": "sk-" + "proj-" + "aB3" * 16,
    "slack": "xoxb-" + "123456789012-1234567890123-" + "aBcDeFgHiJkLmNoPqRsTuVwX",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dBjftJeZ4CVPmB92K27uhbUJU1p1r",
    "card": "4111 1111 " + "1111 1111",
    "mail": "ada.lovelace@" + "example.org",
    "own": "PATIENT-" + "00471",
}
TOLD = "; ".join(f"my {name} is {text}" for name, text in SECRETS.items())
RULES = Redaction(custom={"patient": r"PATIENT-\d+"})
EVERYWHERE = Redaction(RULES.kinds, RULES.custom, sessions=True)
_CODED = re.compile(rb"[A-Za-z0-9+/]{16,}={0,2}")


def written(path: Path | PostgresJournal, *, without: tuple[str, ...] | list[str] = ()) -> bytes:
    """All bytes of a workspace, but those of these parts of it; unpacked where they are packed.

    Args:
        path: The directory, or the database.
        without: Names of files and directories that are left out.
    """
    if isinstance(path, PostgresJournal):
        return b"\n".join(bytes_in(path).values())
    files = [one for one in path.rglob("*") if one.is_file()]
    kept = [one for one in files if not {*without} & {*one.relative_to(path).parts}]
    return b"\n".join(_unpacked(one) for one in kept)


def _unpacked(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix == ".gz" else content


def leaks(content: bytes | str, *more: str) -> list[str]:
    """The names of the secrets in it, and those of further texts, in base64 too.

    What msgpack makes of a text has it as it is, once its base64 is undone.
    """
    raw = content if isinstance(content, bytes) else content.encode()
    layers = list(_layers(raw))
    texts = {**SECRETS, **{text: text for text in more}}
    return [name for name, text in texts.items() if any(text.encode() in one for one in layers)]


def _layers(raw: bytes) -> Iterator[bytes]:
    yield raw
    for piece in _CODED.findall(raw):
        try:
            yield from _layers(base64.b64decode(piece, validate=True))
        except binascii.Error:
            continue


def lines_of(workspace: Path | PostgresJournal) -> list[str]:
    """The ids of the messages that stand in lines of the thread ``t``, each in its turn."""
    records, _ = open_workspace(workspace).journal.read("t")
    return [one["id"] for one in messages_in(records)]
