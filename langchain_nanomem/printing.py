"""What the commands print: text that can do no harm, columns, sizes, times, JSON."""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer
from rich.cells import cell_len

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_PICTURES, _DELETE = 0x2400, 0x7F
_UNITS = ("B", "kB", "MB", "GB")
_THOUSAND = 1000


def harmless(text: str, most: int | None = None) -> str:
    """`text` as a terminal may show it: what would move its cursor or turn its text is spelled.

    Args:
        text: Anything that somebody said.
        most: How many characters of it are shown at most; None: all.
    """
    shown = text if most is None else text[:most]
    left = len(text) - len(shown)
    spelled = _UNSEEN.sub(_spelled, shown.replace("\r\n", "\n"))
    return f"{spelled} … ({left:,} characters more)" if left else spelled


def one_line(text: str, most: int) -> str:
    """The beginning of `text` in one line of `most` characters."""
    line = " ".join(text[: 4 * most].split())
    return harmless(line if len(line) <= most else line[: most - 1] + "…")


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < ord(" "):
        return chr(_PICTURES + code)
    return "\u2421" if code == _DELETE else f"<U+{code:04X}>"


def columns(rows: Iterable[Sequence[str]], numbers: frozenset[int] = frozenset()) -> str:
    """Rows below each other, each column as wide as it has to be; these ones are to the right."""
    table = [list(row) for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(
            _padded(cell, widths[place], is_number=place in numbers)
            for place, cell in enumerate(row)
        ).rstrip()
        for row in table
    )


def _padded(cell: str, width: int, *, is_number: bool) -> str:
    space = " " * (width - cell_len(cell))
    return space + cell if is_number else cell + space


def size(number: float) -> str:
    """A number of bytes for people, such as ``4.3 MB``."""
    unit = 0
    while number >= _THOUSAND and unit < len(_UNITS) - 1:
        number, unit = number / _THOUSAND, unit + 1
    return f"{number:.0f} {_UNITS[unit]}" if unit == 0 else f"{number:.1f} {_UNITS[unit]}"


def moment(at: datetime | None) -> str:
    """A time in UTC, to the minute; "-" where it is not known."""
    return "-" if at is None else f"{at:%Y-%m-%d %H:%M}"


def emit(value: Any) -> None:
    """Print a value as JSON: times in ISO form, paths as text, in characters of ASCII alone."""
    typer.echo(json.dumps(value, indent=2, default=_plain))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    return str(value)
