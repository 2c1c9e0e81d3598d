"""Items in a namespace of any LangGraph store: lossless, and each of them read."""

from __future__ import annotations

import base64
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from langchain_nanomem.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langgraph.store.base import BaseStore, SearchItem

T = TypeVar("T")
Namespace = tuple[str, ...]
_PAGE = 1_000
_LEAST_PAGE = 100
"""A store that gives fewer has no more. Some give fewer than was asked for."""
_BASE64 = ":base64"
_LOCKS: WeakKeyDictionary[BaseStore, threading.RLock] = WeakKeyDictionary()
_MAKING = threading.Lock()


def lock_of(store: BaseStore) -> threading.RLock:
    """The lock for all that threads of this program do with a store object.

    `InMemoryStore` can't be read while another thread writes; `PostgresStore` and `SqliteStore`
    have such a lock of their own.
    """
    with _MAKING:
        return _LOCKS.setdefault(store, threading.RLock())


class StoreItems:
    """The items of one namespace, without those of namespaces below it.

    They neither expire nor are they embedded, whatever the store does by default.

    Args:
        store: The store.
        namespace: Where they are.
    """

    def __init__(self, store: BaseStore, namespace: Namespace) -> None:
        self._store, self.namespace = store, namespace

    def get(self, key: str) -> dict[str, Any] | None:
        """The value of an item; None where there is none.

        Raises:
            DatabaseError: The store could not be read.
        """
        item = self._asked(lambda: self._store.get(self.namespace, key))
        return None if item is None else _read(item.value)

    def all(self) -> dict[str, dict[str, Any]]:
        """All values by their keys, in no order.

        Raises:
            DatabaseError: The store could not be read.
        """
        seen: dict[tuple[Namespace, str], dict[str, Any]] = {}
        while True:
            page = self._page(max(0, len(seen) - 1))
            before = len(seen)
            if before and page and _place_of(page[0]) not in seen:
                seen.clear()  # one was removed meanwhile, so that another may have been passed over
                continue
            seen.update((_place_of(item), item.value) for item in page)
            if len(page) < _LEAST_PAGE or len(seen) == before:
                return self._own(seen)

    def _own(self, seen: dict[tuple[Namespace, str], dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Without what a store takes for being below a namespace that begins in the same way."""
        return {
            key: _read(value) for (space, key), value in seen.items() if space == self.namespace
        }

    def put(self, key: str, value: dict[str, Any]) -> None:
        """Have an item be so.

        Raises:
            DatabaseError: It may be written, or not.
        """
        made = _written(value)
        self._asked(
            lambda: self._store.put(self.namespace, key, made, index=False, ttl=None),
            is_written=True,
        )

    def remove(self, keys: Iterable[str]) -> None:
        """Remove items; those that are not there are none.

        Raises:
            DatabaseError: Some may be removed, or not.
        """
        for key in keys:
            self._asked(partial(self._store.delete, self.namespace, key), is_written=True)

    def _page(self, offset: int) -> list[SearchItem]:
        return self._asked(lambda: self._store.search(self.namespace, limit=_PAGE, offset=offset))

    def _asked(self, work: Callable[[], T], *, is_written: bool = False) -> T:
        return asked(self._store, self.namespace, work, is_written=is_written)


def asked(
    store: BaseStore, namespace: Namespace, work: Callable[[], T], *, is_written: bool = False
) -> T:
    """What a store answers, while no other thread uses it.

    Args:
        store: The store.
        namespace: What it is about, for people.
        work: Asks it.
        is_written: Whether it is asked to write.

    Raises:
        DatabaseError: It raised something.
    """
    try:
        with lock_of(store):
            return work()
    except Exception as error:
        verb = "written" if is_written else "read"
        raise DatabaseError(
            f"{type(store).__name__}, {'/'.join(namespace)}: could not be {verb} "
            f"({type(error).__name__}); see the cause",
            may_be_written=is_written,
        ) from error


def _place_of(item: SearchItem) -> tuple[Namespace, str]:
    return tuple(item.namespace), item.key


def _written(value: dict[str, Any]) -> dict[str, Any]:
    """A value that any store can keep: PostgreSQL's JSON has no NUL."""
    return {
        **{name: one for name, one in value.items() if not _has_nul(one)},
        **{
            f"{name}{_BASE64}": base64.b64encode(one.encode()).decode()
            for name, one in value.items()
            if _has_nul(one)
        },
    }


def _has_nul(value: Any) -> bool:
    return isinstance(value, str) and "\0" in value


def _read(value: dict[str, Any]) -> dict[str, Any]:
    return {
        name.removesuffix(_BASE64): (
            base64.b64decode(one).decode() if name.endswith(_BASE64) else one
        )
        for name, one in value.items()
    }
