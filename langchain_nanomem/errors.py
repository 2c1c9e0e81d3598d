"""What can go wrong, as one tree.

::

    NanomemError
    ├── CorruptRecordError       a file holds something that cannot be read
    ├── UnsupportedFormatError   a file was written by a newer version
    ├── SessionNotFoundError     a session was deleted while an object of it was held
    ├── ConsolidationError       the model gave no usable memory
    ├── ScopeError               whose memory it is cannot be told, or it is another's
    ├── DatabaseError            a database could not be used; also an ``OSError``
    ├── MigrationError           a thread of another checkpointer could not be taken over
    ├── CopyError                something of a workspace could not be copied as it is
    └── RedactionError           a text holds what may not be kept; also a ``ValueError``

Wrong arguments are ``ValueError``. ``OSError`` and the model's own errors pass
through unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class NanomemError(Exception):
    """Base of every error that is this package's own."""


class CorruptRecordError(NanomemError):
    """A file holds something that cannot be read. It is left exactly as it was.

    Args:
        path: The damaged file.
        line_number: The damaged line, counted from 1.
        reason: What is wrong with it.
        remedy: What a person can do about it.
    """

    path: Path
    """The damaged file."""
    line_number: int
    """The damaged line, counted from 1."""

    def __init__(self, path: Path, line_number: int, reason: str, remedy: str) -> None:
        super().__init__(f"{path}, line {line_number}: {reason}. Nothing was changed. {remedy}")
        self.path = path
        self.line_number = line_number


class UnsupportedFormatError(NanomemError):
    """A file was written by a newer version of this package."""


class SessionNotFoundError(NanomemError):
    """A session was deleted, or replaced, while an object of it was still held."""


class ConsolidationError(NanomemError):
    """The model gave nothing that can be kept as memory, or there is no room to ask it."""


class ScopeError(NanomemError):
    """It cannot be told whose memory is meant, or the session belongs to someone else."""


class DatabaseError(NanomemError, OSError):
    """A database could not be used. What it was asked to write is not there, unless told otherwise.

    Args:
        message: What, where, and what to do. No password is in it.
        may_be_written: Whether it can't be told if something was written: the connection broke
            while the database was about to answer, and it could not be asked again.
    """

    may_be_written: bool
    """Whether what was to be written may be there all the same."""

    def __init__(self, message: str, *, may_be_written: bool = False) -> None:
        super().__init__(message)
        self.may_be_written = may_be_written


class MigrationError(NanomemError):
    """A thread of another checkpointer could not be taken over as it is there."""


class CopyError(NanomemError):
    """Something of a workspace could not be copied as it is; the target has it as it had it."""


class RedactionError(NanomemError, ValueError):
    """A text holds what may not be kept. Nothing of it was written.

    Args:
        kind: What was found; never the text itself.
    """

    kind: str
    """What was found."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind

    def __str__(self) -> str:
        return (
            f"The text holds what may not be kept: {self.kind}. Nothing of it was written. "
            f"Take it out, or give {self.kind!r} another strategy than 'block' in the Redaction"
        )
