"""The bounded memory of what is gone: one place by hash, the newer entry wins it. Used by the reference and by arc and s3fifo."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Ghosts(Generic[T]):
    """At least `entries` places, a power of two."""

    def __init__(self, entries: int) -> None:
        self._places = 8
        while self._places < entries:
            self._places *= 2
        self._kept: dict[int, tuple[int, T]] = {}

    def get(self, key: int) -> T | None:
        """What was stored under this key, if it still has its place."""
        kept = self._kept.get(key % self._places)
        return kept[1] if kept is not None and kept[0] == key | 1 else None

    def put(self, key: int, value: T) -> None:
        self._kept[key % self._places] = (key | 1, value)

    def drop(self, key: int) -> None:
        del self._kept[key % self._places]

    def count(self, value: T) -> int:
        """How many are stored with this value."""
        return sum(kept == value for _, kept in self._kept.values())
