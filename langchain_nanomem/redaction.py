"""What is sensitive is replaced before it is written."""

from __future__ import annotations

import bisect
import functools
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Literal, NamedTuple, get_args

from langchain_nanomem.errors import RedactionError
from langchain_nanomem.sensitive import KINDS, SHOWN_IN_PART, Seen, detector, langchain_pii, seen

Strategy = Literal["mask", "redact", "hash", "block"]
"""What is done with what was found, by the names of LangChain's ``PIIMiddleware``."""
Spans = Iterable[tuple[int, int]]
"""Places in a text: where each begins, and where it ends."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_RULES = 1


class _Find(NamedTuple):
    start: int
    end: int
    kind: str


@dataclass(frozen=True)
class Redaction:
    """What counts as sensitive, and what is written in its place.

    The marks keep what a reader may need: ``mask`` writes what LangChain's ``PIIMiddleware``
    does for an address (``ann@****.com``), a card (``**** **** **** 1111``), an IP or a MAC
    address, and ``[secret]`` for anything else; ``redact`` writes ``[REDACTED_EMAIL]``; ``hash``
    writes ``[email:1a2b3c4d]``, the same for the same text, so that facts can still be joined;
    ``block`` lets nothing be written. What was replaced once is never changed again.

    With ``sessions`` a session's file is redacted too: its messages, and all that a graph keeps
    of its state, inputs, writes, interrupts and settings, in whatever form it was given; what
    is blocked is withheld there by lines. The run itself goes on with what it was given; what
    is read from the file again has the marks. Looked at are texts in plain data, messages,
    models and dataclasses, and whole numbers among a tool call's arguments. Not looked at are
    bytes and objects of other classes, which only a serializer can write, and what ties things
    together: ids, roles and times of messages, ids of tool calls, names of nodes and channels.

    A session's key (its ``thread_id`` or ``session_id``) and a user's id are never redacted:
    they name files and directories, and stand in the log and the index, so that an entry finds
    its session and `Nanomem.erase` finds all of it. Choose ones that tell nothing, such as a
    number, instead of an address.

    Args:
        kinds: What is looked for, and what is done with it: ``"email"``, ``"credit_card"``,
            ``"ip"``, ``"mac_address"``, ``"url"``, ``"secret"``, or a name of ``custom``.
        custom: Detectors of one's own, by the name of the kind: a regular expression, or a
            function from a text to places in it. One with the name of a built-in kind takes its
            place. What such a function raises passes through, and nothing is written then.
        default: What is done with a kind of ``custom`` that ``kinds`` doesn't name.
        hash_key: Key of the hashes. Without one, what has few possible values, as a telephone
            number or a card, can be found from its hash by trying them all.
        sessions: Whether sessions are redacted too, and not only what is made of them.

    Raises:
        ImportError: The extra ``redaction`` is not installed.
        ValueError: A kind or strategy is unknown, or a regular expression is none.
    """

    kinds: Mapping[str, Strategy] = field(
        default_factory=lambda: {"email": "mask", "credit_card": "mask", "secret": "mask"},
        hash=False,
    )
    custom: Mapping[str, str | re.Pattern[str] | Callable[[str], Spans]] = field(
        default_factory=dict, hash=False
    )
    default: Strategy = "mask"
    hash_key: bytes | str = field(default=b"", repr=False)
    sessions: bool = False

    def __post_init__(self) -> None:
        _check(self.kinds, self.custom, self.default)
        strategies = {**dict.fromkeys(self.custom, self.default), **self.kinds}
        object.__setattr__(self, "kinds", strategies)
        object.__setattr__(
            self, "custom", {kind: _compiled(kind, own) for kind, own in self.custom.items()}
        )
        for kind in self._built_in():
            detector(kind)

    def apply(self, text: str) -> str:
        """Replace what is sensitive.

        Args:
            text: Any text.

        Returns:
            The text; itself when there is nothing to replace.

        Raises:
            RedactionError: It holds something whose strategy is ``"block"``.
        """
        return self._settled(text, _refuse)

    def withhold(self, text: str) -> str:
        """Replace what is sensitive, and whole lines where ``apply`` would refuse the text.

        Args:
            text: Any text.

        Returns:
            The text. Lines that hold what is blocked are ``[withheld: <kind>]``; those of one
            private key are one.
        """
        return self._settled(text, _without_lines)

    def fingerprint(self) -> str:
        """Tell these settings from others, in any process.

        Returns:
            A hash. It changes with the settings and with detect-secrets' version. Of a function
            it knows the name alone.
        """
        found_by = _version("detect-secrets") if "secret" in self._built_in() else ""
        settings = {
            "kinds": dict(self.kinds),
            "custom": {kind: _identity(own) for kind, own in self.custom.items()},
            "sessions": self.sessions,
            "key": self._digest("key"),
            "rules": [_RULES, found_by],
        }
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    def _settled(self, text: str, blocked: Callable[[str, list[_Find]], str]) -> str:
        """Replace until nothing is found: what a mark shows is looked at too."""
        show = True
        while finds := self._finds(text):
            if refused := [find for find in finds if self.kinds[find.kind] == "block"]:
                text = blocked(text, refused)
                continue
            text = self._replaced(text, self._apart(finds), show=show)
            show = False  # so that each pass leaves less that can be found
        return text

    def _finds(self, text: str) -> list[_Find]:
        view = seen(text)
        finds = [
            _Find(*view.span(*span), kind)
            for kind in self._built_in()
            for span in detector(kind)(view)
        ]
        for kind, own in self.custom.items():
            finds += [_Find(*span, kind) for span in _own_spans(own, text, view)]
        return list(_outside(finds, [mark.span() for mark in self._marks.finditer(text)]))

    def _apart(self, finds: list[_Find]) -> list[_Find]:
        """One find for each place: those that show nothing first, then the longest."""
        whole = _joined(find for find in finds if not self._shows(find.kind))
        parts = sorted(
            (find for find in finds if self._shows(find.kind)), key=lambda f: f.start - f.end
        )
        for part in parts:
            place = bisect.bisect(whole, part)
            before = place > 0 and whole[place - 1].end > part.start
            behind = place < len(whole) and whole[place].start < part.end
            if not before and not behind:
                whole.insert(place, part)
        return whole

    def _replaced(self, text: str, finds: list[_Find], *, show: bool) -> str:
        pieces, end = [], 0
        for find in finds:
            value = seen(text[find.start : find.end]).text
            pieces += [text[end : find.start], self._mark(find.kind, value, show=show)]
            end = find.end
        return "".join((*pieces, text[end:]))

    def _mark(self, kind: str, value: str, *, show: bool) -> str:
        strategy = self.kinds[kind]
        if strategy == "redact":
            return f"[REDACTED_{kind.upper()}]"
        if strategy == "hash":
            return f"[{kind}:{self._digest(value)}]"
        if not (show and self._shows(kind)):
            return f"[{kind}]"
        match = {"type": kind, "value": value, "start": 0, "end": len(value)}
        return str(langchain_pii().apply_strategy(value, [match], "mask"))

    def _shows(self, kind: str) -> bool:
        return self.kinds[kind] == "mask" and kind in SHOWN_IN_PART and kind not in self.custom

    def _digest(self, value: str) -> str:
        key = self.hash_key.encode() if isinstance(self.hash_key, str) else self.hash_key
        return hmac.new(key, value.encode("utf-8", "surrogatepass"), "sha256").hexdigest()[:8]

    def _built_in(self) -> list[str]:
        return [kind for kind in self.kinds if kind not in self.custom]

    @functools.cached_property
    def _marks(self) -> re.Pattern[str]:
        kinds = "|".join(map(re.escape, {*KINDS, *self.kinds}))
        upper = "|".join(re.escape(kind.upper()) for kind in {*KINDS, *self.kinds})
        return re.compile(
            rf"\[(?:(?:{kinds})(?::[0-9a-f]{{8}})?|withheld: (?:{kinds})|REDACTED_(?:{upper}))\]"
        )


@functools.cache
def _version(library: str) -> str:
    """Its metadata are files, and a search asks for the fingerprint."""
    return version(library)


def _check(kinds: Mapping[str, Strategy], custom: Mapping[str, Any], default: Strategy) -> None:
    for kind in (*kinds, *custom):
        if kind not in (*KINDS, *custom):
            raise ValueError(f"unknown kind {kind!r}: it is one of {', '.join(KINDS)} or of custom")
        if not _NAME.fullmatch(kind):
            raise ValueError(f"kind {kind!r}: a name has letters, digits, '_' and '-' alone")
    for strategy in (*kinds.values(), default):
        if strategy not in get_args(Strategy):
            known = ", ".join(get_args(Strategy))
            raise ValueError(f"unknown strategy {strategy!r}: it is one of {known}")


def _compiled(kind: str, detector: Any) -> Any:
    if not isinstance(detector, str):
        return detector
    try:
        return re.compile(detector)
    except re.error as error:
        raise ValueError(f"custom[{kind!r}] is no regular expression: {error}") from error


def _identity(detector: Any) -> str:
    if isinstance(detector, re.Pattern):
        return f"{detector.flags} {detector.pattern}"
    named = detector if hasattr(detector, "__qualname__") else type(detector)
    return f"{named.__module__}.{named.__qualname__}"


def _own_spans(own: Any, text: str, view: Seen) -> Iterator[tuple[int, int]]:
    """Find with a detector of the user's: a pattern looks at the text as it is seen, too."""
    if not isinstance(own, re.Pattern):
        for start, end in own(text):
            if not 0 <= start <= end <= len(text):
                raise ValueError(f"a detector found {start} to {end} in {len(text)} characters")
            yield start, end
        return
    yield from (match.span() for match in own.finditer(text))
    if view.text != text:
        yield from (view.span(*match.span()) for match in own.finditer(view.text) if match.group())


def _outside(finds: Iterable[_Find], marks: Sequence[tuple[int, int]]) -> Iterator[_Find]:
    """Leave out what is marked already."""
    begins, ends = [mark[0] for mark in marks], [mark[1] for mark in marks]
    for start, end, kind in finds:
        within = slice(bisect.bisect_right(ends, start), bisect.bisect_left(begins, end))
        for first, last in zip((start, *ends[within]), (*begins[within], end), strict=True):
            if first < last:
                yield _Find(first, last, kind)


def _joined(finds: Iterable[_Find]) -> list[_Find]:
    """Join what overlaps. The longest gives its name."""
    joined: list[_Find] = []
    longest = 0
    for find in sorted(finds):
        length = find.end - find.start
        if not joined or find.start >= joined[-1].end:
            joined.append(find)
            longest = length
            continue
        last = joined[-1]
        kind = find.kind if length > longest else last.kind
        longest = max(longest, length)
        joined[-1] = _Find(last.start, max(last.end, find.end), kind)
    return joined


def _refuse(_text: str, finds: Sequence[_Find]) -> str:
    raise RedactionError(min(finds).kind)


def _without_lines(text: str, finds: Sequence[_Find]) -> str:
    """Replace the lines of each find by what it is."""
    lines = []
    for start, end, kind in finds:
        stop = text.find("\n", end - 1)
        lines.append(_Find(text.rfind("\n", 0, start) + 1, len(text) if stop < 0 else stop, kind))
    for start, end, kind in reversed(_joined(lines)):
        text = f"{text[:start]}[withheld: {kind}]{text[end:]}"
    return text
