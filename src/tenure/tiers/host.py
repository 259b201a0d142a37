"""Blocks in this machine's memory: one arena allocated at the start, cut into frames; a frame's record is kept beside it.
Called by whoever moves blocks; what it holds ends with the process."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tenure.checks import integer
from tenure.errors import ConfigError, TierError
from tenure.tiers.base import Outcome, Tier
from tenure.tiers.codec import Codec, Raw
from tenure.tiers.layout import BlockLayout
from tenure.tiers.record import Record, checksum

__all__ = ["HostTier"]

_PAGE = 4096


class _Held(NamedTuple):
    record: Record
    length: int
    checksum: bytes | None


class HostTier(Tier):
    """`frames` blocks in memory.

    touch: take the memory from the system now, page by page, rather than at the first write of each frame. verify: keep a
    checksum of each payload and prove it at every read. It is off by default: within one process no write is torn and nobody else
    writes, so a checksum could find only failing memory, which the block on the device is as much exposed to.

    Raises ConfigError for a bad setting or when the memory cannot be had.
    """

    def __init__(
        self,
        layout: BlockLayout,
        frames: int,
        *,
        codec: Codec | None = None,
        touch: bool = False,
        verify: bool = False,
        name: str = "host",
    ) -> None:
        super().__init__(name, layout, codec or Raw())
        self.frames = integer("frames", frames, 1, (1 << 31) - 1)
        self._stride = -(-self.codec.bound(layout) // _PAGE) * _PAGE  # page-aligned, so that direct disk I/O needs no copy
        self.capacity_bytes = self.frames * self._stride
        try:
            memory = mmap.mmap(-1, self.capacity_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError, ValueError) as error:
            raise ConfigError(
                f"{self.capacity_bytes} bytes of memory cannot be had: {error}", needed=self.capacity_bytes
            ) from None
        if huge := getattr(mmap, "MADV_HUGEPAGE", 0):
            with contextlib.suppress(OSError):  # a system without them; with them a frame's first write is several times faster
                memory.madvise(huge)
        self._arena = memoryview(memory)
        if touch:
            np.frombuffer(self._arena, np.uint8)[::_PAGE] = 0
        self._verify = verify
        self._held: list[_Held | None] = [None] * self.frames

    def _write(self, frames: list[int], blocks: list[memoryview], records: Sequence[Record]) -> list[Outcome]:
        return [self._write_one(*each) for each in zip(frames, blocks, records, strict=True)]

    def _write_one(self, frame: int, block: memoryview, record: Record) -> Outcome:
        self._held[frame] = None
        try:
            payload = memoryview(self.codec.encode(block, self.layout))
        except TierError as error:
            return error
        self._slot(frame, len(payload))[:] = payload
        self._held[frame] = _Held(record, len(payload), checksum(payload) if self._verify else None)
        self._count("bytes_written", len(payload))
        return None

    def _read(self, frames: list[int], records: Sequence[Record], into: list[memoryview]) -> list[Outcome]:
        return [self._read_one(*each) for each in zip(frames, records, into, strict=True)]

    def _read_one(self, frame: int, record: Record, out: memoryview) -> Outcome:
        held = self._held[frame]
        wrong = self._differs(frame, held and held.record, record)
        if held is None or wrong is not None:
            return wrong
        payload = self._slot(frame, held.length)
        if held.checksum is not None and checksum(payload) != held.checksum:
            return TierError("checksum", f"the payload in frame {frame} of {self.name} is not what was written", frame=frame)
        try:
            self.codec.decode(payload, self.layout, out)
        except TierError as error:
            return error
        if self._held[frame] is not held:
            return TierError("foreign", f"frame {frame} of {self.name} was given to another block under the copy", frame=frame)
        self._count("bytes_read", held.length)
        return None

    def _erase(self, frames: list[int]) -> list[Outcome]:
        for frame in frames:
            self._held[frame] = None
        return [None] * len(frames)

    def _close(self) -> None:
        self._held.clear()
        self._arena = memoryview(b"")

    def _slot(self, frame: int, length: int) -> memoryview:
        start = frame * self._stride
        return self._arena[start : start + length]
