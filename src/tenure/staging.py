"""What blocks are copied between: a device, and memory that they pass through where one side cannot address the other's.
Used by what moves bytes; what a late reader may still write into is never given back."""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Bytes", "Device", "Staging"]

Bytes: TypeAlias = npt.NDArray[np.uint8]
_KEPT = 64 << 20
"""Bytes that are kept for the next copies; what was taken beyond them goes back to the system."""


class Staging:
    """Buffers of one block, each on pages of its own, so that direct I/O can read and write them."""

    def __init__(self, block_bytes: int) -> None:
        self._size = block_bytes
        self._spare: deque[Bytes] = deque(maxlen=max(2, _KEPT // block_bytes))

    def take(self, count: int) -> list[Bytes]:
        """Buffers for so many blocks, with anything in them."""
        return [self._one() for _ in range(count)]

    def give_back(self, buffers: list[Any]) -> None:
        """Nobody reads or writes these any more."""
        self._spare.extend(buffers)

    @property
    def kept(self) -> int:
        """Buffers that are kept."""
        return len(self._spare)

    def _one(self) -> Bytes:
        try:
            return self._spare.pop()
        except IndexError:
            return np.frombuffer(mmap.mmap(-1, -(-self._size // mmap.PAGESIZE) * mmap.PAGESIZE), np.uint8)[: self._size]


class Device(Protocol):
    """Where the engine's KV lies, block by block."""

    frames: int
    block_bytes: int

    def views(self, frames: Sequence[int]) -> list[Bytes] | None:
        """The frames' own bytes, uint8 [block_bytes] each, writable; None where this process cannot address them."""

    def read(self, frames: Sequence[int], into: Sequence[Any]) -> None:
        """Copies blocks out."""

    def write(self, frames: Sequence[int], blocks: Sequence[Any]) -> None:
        """Copies blocks in; they are there when it returns."""
