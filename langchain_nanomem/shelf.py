"""Records that are read only when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from langchain_nanomem.journal import Address, Record


class Shelf:
    """Where records lie, by their numbers, and those of them that were read lately.

    Args:
        load: Reads the records of these numbers, which lie at these addresses.
        room: How many records are kept once they were read.
    """

    def __init__(
        self, load: Callable[[Sequence[int], Sequence[Address]], list[Record]], room: int
    ) -> None:
        self._load = load
        self._room = room
        self.addresses: dict[int, Address] = {}
        """Where each record lies; in the order in which they were put."""
        self._read: dict[int, Record] = {}

    def __contains__(self, number: object) -> bool:
        return number in self.addresses

    def __len__(self) -> int:
        return len(self.addresses)

    def __iter__(self) -> Iterator[int]:
        return iter(self.addresses)

    def __getitem__(self, number: int) -> Record:
        record = self._read.get(number)
        if record is None:
            (record,) = self._load([number], [self.addresses[number]])
            self._keep(number, record)
        return record

    def get(self, number: int) -> Record | None:
        """The record, to be looked at only; None where there is none."""
        return self[number] if number in self.addresses else None

    def put(self, number: int, address: Address, record: Record) -> None:
        """Note where a record lies, and keep it."""
        self.addresses[number] = address
        self._keep(number, record)

    def prefetch(self, numbers: Iterable[int]) -> None:
        """Read those of the records at once that were not read yet."""
        missing = [
            number for number in numbers if number in self.addresses and number not in self._read
        ]
        records = self._load(missing, [self.addresses[number] for number in missing])
        for number, record in zip(missing, records, strict=True):
            self._keep(number, record)

    def read(self, numbers: Sequence[int]) -> list[Record | None]:
        """The records of these numbers, to be looked at only; None for each that isn't there."""
        self.prefetch(numbers)
        kept = self._read.get
        return [kept(number) or self.get(number) for number in numbers]

    @property
    def weight(self) -> int:
        """How many records are kept."""
        return len(self._read)

    def _keep(self, number: int, record: Record) -> None:
        if len(self._read) >= self._room:
            for old in list(self._read)[: self._room // 2 + 1]:
                del self._read[old]
        self._read[number] = record
