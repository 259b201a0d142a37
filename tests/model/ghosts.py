"""The bounded memory of what is gone: one place by hash, the newer entry wins it. Used by the reference and by arc and s3fifo."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


FIRST = 1024
"""places of a table at first; it doubles as it fills"""


class Ghosts(Generic[T]):
    """At most so many places as the least power of two that is not below `entries`, and at least 8."""

    def __init__(self, entries: int) -> None:
        self._most = 8
        while self._most < entries:
            self._most *= 2
        self._places = min(self._most, FIRST)
        self._puts = 0
        self._kept: dict[int, tuple[int, T]] = {}

    def get(self, key: int) -> T | None:
        """What was stored under this key, if it still has its place."""
        kept = self._kept.get(self._place(key))
        return kept[1] if kept is not None and kept[0] == key >> 1 else None

    def put(self, key: int, value: T) -> None:
        self._puts += 1
        if self._puts >= self._places and self._places < self._most:
            self._places *= 2
            self._puts = 0
            self._kept = {name % self._places: (name, kept) for name, kept in self._kept.values()}
        self._kept[self._place(key)] = (key >> 1, value)

    def drop(self, key: int) -> None:
        del self._kept[self._place(key)]

    def count(self, value: T) -> int:
        """How many are stored with this value."""
        return sum(kept == value for _, kept in self._kept.values())

    def _place(self, key: int) -> int:
        return (key >> 1) % self._places
