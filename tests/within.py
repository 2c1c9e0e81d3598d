"""Whether a text is anywhere in a value, however deep."""

from __future__ import annotations

import pickle
from typing import Any


def texts_within(value: Any, *texts: str) -> list[str]:
    """Those of the texts that are in a string of `value`, a key or a field included.

    A message's `repr` would do, and takes a hundred times as long.
    """
    try:
        whole = pickle.dumps(value)
    except (TypeError, AttributeError, pickle.PicklingError):  # a lock, a local function
        whole = f"{value!r} {value}".encode()
    return [text for text in texts if text.encode() in whole]
