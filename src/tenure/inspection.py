"""What a manager tells of itself: the books, counters, events, blocks. Base of BlockManager; it reads and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tenure import _core
from tenure.checks import integer
from tenure.ledger import EVENT_NAMES, STATES, BlockInfo, Counts, Event, TenantStats, block_info
from tenure.tenants import Tenants

__all__ = ["Inspection"]


class Inspection:
    """The reading half of BlockManager."""

    frames: int
    tenants: Tenants
    _core: _core.Pool
    _clock: Callable[[], float]

    def check(self) -> Counts:
        """Recomputes every invariant from the records. Raises IntegrityError, with numbers, when the books are wrong."""
        self._core.check()
        return self.counts()

    def counts(self) -> Counts:
        """Frames by state."""
        free, active, sealed, cached, _swapped = self._core.states()
        return Counts(self.frames, free, active, sealed, cached)

    def stats(self) -> dict[str, TenantStats]:
        """Counters by tenant."""
        return {name: self.tenants.stats(name) for name in self.tenants.names}

    def totals(self) -> dict[str, int]:
        """Counters of the whole pool: pinned frames, leases refused for want of budget, events so far, open sequences."""
        pinned, refused, logged, running = self._core.totals()
        return {"pinned": pinned, "refused_leases": refused, "events": logged, "sequences": running}

    def events(self, since: int = 0) -> list[Event]:
        """The events from number `since` on, as far as they are still kept."""
        first, rows = self._core.events(since)
        return [
            Event(
                first + i,
                time_,
                EVENT_NAMES[what],
                block,
                generation,
                None if frame < 0 else frame,
                self.tenants.names[tenant],
                STATES[state],
            )
            for i, (time_, what, block, generation, frame, tenant, state) in enumerate(rows)
        ]

    def block(self, frame: int) -> BlockInfo | None:
        """The block in a frame, None when it is free. Raises ConfigError for a frame that does not exist."""
        integer("frame", frame, 0, self.frames - 1)
        row = self._core.block(frame)
        return None if row is None else block_info(row, self.tenants.names)

    def blocks(self) -> Iterator[BlockInfo]:
        """Every block that has a frame."""
        for frame in range(self.frames):
            info = self.block(frame)
            if info is not None:
                yield info

    def victims(self, tenant: str) -> list[int]:
        """The frames of a tenant that could be evicted now, in its policy's order. Invalidated ones go before all of them."""
        return [int(frame) for frame in self._core.order(self.tenants.number(tenant), self._clock())]
