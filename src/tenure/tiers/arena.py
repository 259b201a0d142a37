"""A device's memory as a tier of its own: an arena's frames behind the interface that every tier has.
For an arena below another one (a second GPU, pinned memory), and to hold the arena to the tiers' contract; it has no codec."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.errors import TenureError, TierError
from tenure.tiers.base import Outcome, Tier
from tenure.tiers.codec import Raw
from tenure.tiers.device import DeviceArena
from tenure.tiers.record import Record

__all__ = ["ArenaTier"]


class ArenaTier(Tier):
    """The frames of a DeviceArena, each with the record of its block beside it. Ends with the process."""

    def __init__(self, arena: DeviceArena, *, name: str = "arena") -> None:
        super().__init__(name, arena.block_layout, Raw())
        self.arena = arena
        self.frames = arena.frames
        self.capacity_bytes = arena.capacity_bytes
        self._held: list[Record | None] = [None] * arena.frames

    def _write(self, frames: list[int], blocks: list[memoryview], records: Sequence[Record]) -> list[Outcome]:
        for frame in frames:
            self._held[frame] = None
        try:
            self.arena.write(frames, blocks)
        except (TenureError, RuntimeError) as error:
            return [TierError("io", f"{self.arena.device} took no blocks: {error}", frame=frame) for frame in frames]
        for frame, record in zip(frames, records, strict=True):
            self._held[frame] = record
        self._count("bytes_written", len(frames) * self.block_bytes)
        return [None] * len(frames)

    def _read(self, frames: list[int], records: Sequence[Record], into: list[memoryview]) -> list[Outcome]:
        outcomes = [self._differs(frame, self._held[frame], record) for frame, record in zip(frames, records, strict=True)]
        good = [place for place, outcome in enumerate(outcomes) if outcome is None]
        try:
            self.arena.read([frames[place] for place in good], [into[place] for place in good])
        except (TenureError, RuntimeError) as error:
            for place in good:
                outcomes[place] = TierError("io", f"{self.arena.device} gave no blocks: {error}", frame=frames[place])
            return outcomes
        self._count("bytes_read", len(good) * self.block_bytes)
        return outcomes

    def _erase(self, frames: list[int]) -> list[Outcome]:
        for frame in frames:
            self._held[frame] = None
        return [None] * len(frames)

    def _close(self) -> None:
        self._held = [None] * self.frames
