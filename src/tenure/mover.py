"""Every copy between the tiers of one process: hits come up, sealed blocks go down; what fails, is late or wrong is a miss.
Called by the node for each request and by its threads; it never decides what is kept, nor raises into an engine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tenure.lane import Lane
from tenure.loader import Loader
from tenure.manager import BlockManager
from tenure.sequence import Sequence
from tenure.staging import Device, Staging
from tenure.writer import Writer

__all__ = ["Device", "Mover"]


class Mover:
    """Moves blocks between a device and the lanes below it, as the manager orders.

    lanes: by tier name, the fastest first.
    """

    def __init__(self, kv: BlockManager, device: Device, lanes: dict[str, Lane]) -> None:
        self._lanes = lanes
        self.staging = Staging(device.block_bytes)
        self._loader = Loader(kv, device, lanes, self.staging)
        self._writer = Writer(kv, device, lanes, self.staging)

    def load(self, seq: Sequence) -> None:
        """Brings in what lower tiers have of the sequence's prompt, as far as it comes in time; the rest is to be computed."""
        self._loader.load(seq)

    @property
    def batches(self) -> int:
        """How many batches of writes have ended so far."""
        return self._writer.batches

    def write(self, tier: str, most: int = 64, *, demote: int = 0) -> int:
        """Makes about `most` copies into a tier, as the manager orders them; returns how many orders there were."""
        return self._writer.write(tier, most, demote)

    def write_in_time(self, tier: str, most: int, *, demote: int = 0, patience: float | None = None) -> int:
        """The same, for a caller who does not wait longer than the tier's deadline (or `patience`, s): 0 when it came too late,
        and it goes on without the caller."""
        lane = self._lanes[tier]
        return lane.in_time(lambda: self._writer.write(tier, most, demote), patience, writes=True) or 0

    def wipe(self, tier: str) -> None:
        """Empties the frames of a tier that no block has, so that what was in them does not outlive the process."""
        lane = self._lanes[tier]
        lane.in_time(lambda: self._writer.wipe(lane), None)

    @contextmanager
    def paused(self, seconds: float) -> Iterator[None]:
        """No writes are under way meanwhile, but for those of a tier that did not end them in so many seconds."""
        until = time.monotonic() + seconds
        held = [lane for lane in self._lanes.values() if lane.writing.acquire(timeout=max(0.0, until - time.monotonic()))]
        try:
            yield
        finally:
            for lane in held:
                lane.writing.release()
