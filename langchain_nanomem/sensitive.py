"""Finding what is sensitive in a text: keys, tokens, cards, addresses. Offline, and pure.

Two libraries do most of it: LangChain's detectors of personal data, as its ``PIIMiddleware``
has them, and the token formats of Yelp's detect-secrets. A few formats are added that neither
knows. A text is looked at as a reader sees it: full-width letters are plain ones, and what is
invisible isn't there.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
import unicodedata
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

SHOWN_IN_PART = ("email", "credit_card", "ip", "mac_address")
"""Kinds of which LangChain's mask shows a part."""
KINDS = (*SHOWN_IN_PART, "url", "secret")
"""The kinds that can be found."""

_PRIVATE_KEY = re.compile(
    r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
    r".*?(?:-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|\Z)"
    r"|PuTTY-User-Key-File-\d.*?(?:Private-MAC: ?\w+|\Z)",
    re.DOTALL,
)
_TOKEN = re.compile(
    r"(?<![\w-])(?:sk-(?=[\w-]{0,99}\d)[A-Za-z0-9][\w-]{19,}|eyJ[\w-]{9,}\.eyJ[\w-]{9,}\.?)"
    r"|\b(?:[rsp]k_(?:test|live)_\w{16,}|npm_\w{30,}|hf_\w{30,}|gsk_\w{30,}|xai-\w{30,}"
    r"|r8_\w{30,}|pplx-\w{30,}|tvly-[\w-]{20,}|(?:Bearer|Basic) +(?=[^\s\d]{0,99}\d)"
    r"([\w.~+/=-]{16,}))|whsec_\w{20,}|github_pat_\w{22,}|lsv2_[ps][kt]_\w{20,}|AIza[\w-]{35}"
    r"|xox[abeoprs]-[\w-]{10,}|xapp-[\w-]{20,}|ya29\.[\w-]{20,}|dop_v1_\w{40,}"
    r"|shp(?:at|ca|pa|ss)_\w{32}|AGE-SECRET-KEY-1\w{50,}",
    re.ASCII,
)
# In ASCII, and not what is a call, a placeholder or a variable in a program.
_VALUE = r"[!#$%*+\-./0-9:=?@A-Z^_a-z|~]"
_NAMED = re.compile(
    r"(?:pass(?:word|wd|phrase|code|wort)|pwd|secret|(?:api|access|auth|private)[ _-]?key|token"
    r"|mot de passe|contrase[ñn]a|пароль|密码|密碼|口令|パスワード|비밀번호)"
    r"\\?[\"'`]?\s{0,9}(?:=>|:=|[:=]|is\b|是|は|为)\s{0,9}\\?[\"'`]?(?!https?:|[$*])"
    rf"((?={_VALUE}{{0,99}}\d)(?={_VALUE}{{0,99}}[a-z]){_VALUE}{{6,}}(?<![.!?:]))",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(
    r"(?:\b[A-Z][A-Z0-9_]*_(?:PASSWORD|PASSWD|SECRET|TOKEN|KEY)"
    r"|[?&](?:[a-z]{1,9}_)?(?:key|token|secret|password|pwd|sig|signature))"
    rf"=[\"']?(?![$*])({_VALUE}{{8,}})"
)
_REST = re.compile(r"[A-Za-z0-9_~+/=-]*(?:\.[A-Za-z0-9_~+/=-]+)*")
_DECIMAL_POINT = re.compile(r"\d\.")
_LINE = re.compile(r"[^\r\n]+")
_LEFT_OUT = ("base", "ip_public")
_HIDDEN = "\0"
# Some of the libraries' patterns take time with the square of a text's length.
_WINDOW = 4096
_OVERLAP = 512


class Seen(NamedTuple):
    """A text as a reader sees it.

    Args:
        text: The text, without what is invisible, with plain letters for look-alikes.
        words: As long; a word ends where a script without spaces begins.
        places: Where each of its characters is in the original.
    """

    text: str
    words: str
    places: Sequence[int]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Tell where a part of it is in the original.

        Args:
            start: Where the part begins.
            end: Where it ends, behind ``start``.

        Returns:
            The same of the original.
        """
        return self.places[start], self.places[end - 1] + 1


class _Folded(dict[int, str]):
    """Characters that stand for one of ASCII, as that one; invisible ones as NUL."""

    def __missing__(self, point: int) -> str:
        self[point] = folded = _folded(chr(point))
        return folded


class _Parted(dict[int, str]):
    """Letters without case as no letters, as LangChain's detectors ask for a word's end."""

    def __missing__(self, point: int) -> str:
        self[point] = kept = "·" if unicodedata.category(chr(point)) == "Lo" else chr(point)
        return kept


_FOLDED = _Folded()
_PARTED = _Parted()


def seen(text: str) -> Seen:
    """See a text as a reader does.

    Args:
        text: Any text.

    Returns:
        It, and where its characters come from.
    """
    if text.isascii():
        return Seen(text, text, range(len(text)))
    folded = text.translate(_FOLDED)
    places: Sequence[int] = range(len(text))
    if _HIDDEN in folded:
        places = [place for place, character in enumerate(folded) if character != _HIDDEN]
        folded = folded.replace(_HIDDEN, "")
    return Seen(folded, folded.translate(_PARTED), places)


@functools.cache
def detector(kind: str) -> Callable[[Seen], Iterable[tuple[int, int]]]:
    """Make the detector of a kind.

    Args:
        kind: One of ``KINDS``.

    Returns:
        What finds where it is, in a text as it is seen.

    Raises:
        ImportError: The library that finds it is not installed.
    """
    try:
        if kind != "secret":
            return functools.partial(_personal, getattr(langchain_pii(), f"detect_{kind}"))
        return functools.partial(_secrets, tuple(_plugins()), _Keywords())
    except ImportError as error:
        raise ImportError(
            f"finding {kind!r} needs what is not installed: "
            "pip install 'langchain-nanomem[redaction]'"
        ) from error


def langchain_pii() -> Any:
    """Import LangChain's detectors: a function, since they are an extra.

    Returns:
        The module ``langchain.agents.middleware.pii``.
    """
    return importlib.import_module("langchain.agents.middleware.pii")


def _personal(detect: Callable[[str], Any], text: Seen) -> Iterator[tuple[int, int]]:
    def find(part: str) -> Iterator[tuple[int, int]]:
        for match in detect(part):
            start = match["start"]
            of_number = _DECIMAL_POINT.fullmatch(part, max(start - 2, 0), start)
            if match["type"] != "credit_card" or not of_number:
                yield start, match["end"]

    yield from _windowed(find, text.words)


def _secrets(plugins: Sequence[Any], keywords: _Keywords, text: Seen) -> Iterator[tuple[int, int]]:
    yield from (match.span() for match in _PRIVATE_KEY.finditer(text.words))
    yield from (_extent(match) for match in _TOKEN.finditer(text.words))
    for pattern in (_NAMED, _ASSIGNED):
        yield from (_extent(match) for match in pattern.finditer(text.text))
    formats = functools.partial(_formats, plugins)
    for line in _LINE.finditer(text.text):
        first, last = line.span()
        for find, part in ((formats, text.words[first:last]), (keywords, line.group())):
            yield from ((first + start, first + end) for start, end in _windowed(find, part))


def _windowed(
    find: Callable[[str], Iterable[tuple[int, int]]], text: str
) -> Iterator[tuple[int, int]]:
    """Find in parts that overlap. What a part cuts off is whole in the next, unless it is long."""
    for first in range(0, max(len(text) - _OVERLAP, 1), _WINDOW - _OVERLAP):
        last = min(first + _WINDOW, len(text))
        for start, end in find(text[first:last]):
            cut = (start == 0 < first) or (end == last - first and last < len(text))
            if not cut or end - start >= _OVERLAP:
                yield first + start, first + end


def _formats(plugins: Sequence[Any], line: str) -> Iterator[tuple[int, int]]:
    """Find what has a known format. The plugins tell what they found, but not where."""
    for plugin in plugins:
        for pattern in plugin.denylist:
            for match in pattern.finditer(line):
                if any(plugin.analyze_string(match.group())):
                    yield _extent(match)


def _extent(match: re.Match[str]) -> tuple[int, int]:
    """Tell a secret from what is only there to find it.

    It is a group of the pattern if that (nearly) ends what was found, as before a quote or an
    ``@``; else all of it, since other groups are of a prefix. Formats have grown longer than
    the patterns know: the rest of the word is part of it.
    """
    groups = [match.span(group) for group in range(1, match.re.groups + 1) if match[group]]
    nearly = [span for span in groups if span[1] >= match.end() - 1]
    start, end = max(nearly, key=lambda span: span[1] - span[0], default=match.span())
    rest = _REST.match(match.string, end)
    return start, rest.end() if rest else end


def _plugins() -> Iterator[Any]:
    """Make detect-secrets' plugins for formats.

    Its own way to make them reads settings that a process has but once; addresses are
    LangChain's to find, and entropy would take every commit hash.
    """
    package = importlib.import_module("detect_secrets.plugins")
    regex_based = importlib.import_module("detect_secrets.plugins.base").RegexBasedDetector
    for name in sorted(module.name for module in pkgutil.iter_modules(package.__path__)):
        module = importlib.import_module(f"detect_secrets.plugins.{name}")
        for thing in vars(module).values():
            own = isinstance(thing, type) and thing.__module__ == module.__name__
            if own and issubclass(thing, regex_based) and name not in _LEFT_OUT:
                yield thing()


class _Keywords:
    """detect-secrets' patterns for what stands quoted behind a telling name: all of a line's."""

    def __init__(self) -> None:
        module = importlib.import_module("detect_secrets.plugins.keyword")
        self._names = re.compile("|".join(module.DENYLIST), re.IGNORECASE)
        self._patterns = tuple(module.QUOTES_REQUIRED_DENYLIST_REGEX_TO_GROUP.items())

    def __call__(self, line: str) -> Iterator[tuple[int, int]]:
        if self._names.search(line):
            for pattern, group in self._patterns:
                yield from (match.span(group) for match in pattern.finditer(line))


def _folded(character: str) -> str:
    category = unicodedata.category(character)
    plain = unicodedata.normalize("NFKC", character)
    if len(plain) == 1 and plain.isascii():
        return plain
    if category == "Cf":
        return _HIDDEN
    if category == "Nd":
        return str(unicodedata.digit(character))
    return "-" if category == "Pd" else character
