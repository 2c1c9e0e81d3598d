"""Records as lines of a file: what one append writes, and what an interrupted one leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_nanomem.errors import CorruptRecordError
from langchain_nanomem.values import dump_record, from_json, load_record, may_be_tagged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from langgraph.checkpoint.serde.base import SerializerProtocol

    from langchain_nanomem.journal import Record

BOM = b"\xef\xbb\xbf"
"""What some editors put in front of a file."""
REMEDY = (
    "`nanomem doctor --repair` keeps the good records and puts the damaged file aside; or mend "
    "the line with an editor."
)
# A line that ends so is followed by another of the same append. It is what makes several
# lines one: where the last of them is missing, none of them counts.
_MORE = b',"_more":true}'
_FIRST = b'{"_type":"metadata"'


def frame(records: Sequence[Record]) -> bytes:
    """The lines of one append.

    A metadata record at the end stands for itself: the records before it are complete
    without it.
    """
    lines = [dump_record(record) for record in records]
    last = max((i for i, r in enumerate(records) if r.get("_type") != "metadata"), default=-1)
    joined = [line[:-1] + _MORE if i < last else line for i, line in enumerate(lines)]
    return b"".join(line + b"\n" for line in joined)


def sound_length(content: bytes) -> int:
    """The length of `content` without what an interrupted append left at its end.

    A last line that only lacks its line end, as editors leave it, is sound.
    """
    length = content.rfind(b"\n") + 1
    if _is_record(content[length:]):
        length = len(content)
    while content.endswith((_MORE, _MORE + b"\n"), 0, length):
        length = content.rfind(b"\n", 0, length - 1) + 1
    return length


def _is_record(line: bytes) -> bool:
    try:
        return isinstance(from_json(line.removeprefix(BOM)), dict)
    except ValueError:
        return False


def is_torn(rest: bytes, *, is_whole_file: bool) -> bool:
    """Whether what follows the sound lines is what an interrupted append leaves.

    That is the beginning of a record, perhaps with the zeros that some file systems fill in
    after a power loss. A whole file must begin as journals do, with a metadata record: what
    can't be read must not pass for empty.
    """
    head = b"".join(rest.rstrip(b"\0")[:1024].split())[: len(_FIRST)]
    if is_whole_file and rest and not head:
        return False  # nothing but zeros: it may have been anything
    start = _FIRST if is_whole_file else _FIRST[:2]
    return head.startswith(start) or start.startswith(head)


def ends_clean(tail: bytes) -> bool:
    """Whether a file that ends in `tail` (at least `TAIL_BYTES` of it) ends with a whole append."""
    return not tail or (tail.endswith(b"\n") and not tail.endswith(_MORE + b"\n"))


TAIL_BYTES = len(_MORE) + 1


def load_line(
    line: bytes,
    path: Path,
    line_number: Callable[[], int],
    objects: SerializerProtocol | None = None,
) -> Record:
    """The record of a line of `path`, without the mark of an append of several.

    Args:
        line: The line, without its end.
        path: For the error.
        line_number: Called for the number of the line, only where it is needed.
        objects: Makes the objects in it again; without it they stay as they are written.

    Raises:
        CorruptRecordError: The line is no record.
    """
    try:
        record = load_record(line.removeprefix(BOM), objects)
    except ValueError as error:
        reason = f"not a record that can be read ({error})"
        raise CorruptRecordError(path, line_number(), reason, REMEDY) from error
    record.pop("_more", None)
    return record


def load_lines(lines: Sequence[bytes], objects: SerializerProtocol | None = None) -> list[Record]:
    """The records of many lines, as `load_line` gives them, in a fraction of the time.

    Args:
        lines: The lines, without their ends.
        objects: Makes the objects in them again; without it they stay as they are written.

    Raises:
        ValueError: One of the lines is no record.
    """
    content = b"[" + b",".join(lines) + b"]"
    are_plain = all(line.startswith(b"{") and line.endswith(b"}") for line in lines)
    if not are_plain or may_be_tagged(content):
        records = [load_record(line.removeprefix(BOM), objects) for line in lines]
    else:
        records = from_json(content)
    if len(records) != len(lines) or not all(type(record) is dict for record in records):
        raise ValueError("one of the lines is no JSON object")
    for record in records:
        record.pop("_more", None)
    return records
