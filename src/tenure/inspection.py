"""What a manager tells of itself: the books, counters, events, blocks. Base of BlockManager; it reads and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tenure import _core
from tenure.checks import integer
from tenure.errors import ConfigError
from tenure.identity import Identity
from tenure.ledger import EVENT_NAMES, STATES, BlockInfo, Counts, Event, Held, TenantStats, TierStats, block_info
from tenure.tenants import Tenants
from tenure.transfers import BlockName

__all__ = ["Inspection", "Inventory"]


class Inventory(NamedTuple):
    """What can be hit, at the moment when there had been so many `events`, and so many times `hidden`. `tiers`: by block, a bit
    for each tier that has it, the device's the lowest."""

    events: int
    hidden: int
    tiers: dict[BlockName, int]


class Inspection:
    """The reading half of BlockManager."""

    frames: int
    tenants: Tenants
    tiers: tuple[str, ...]
    kept_events: int
    _core: _core.Pool
    _clock: Callable[[], float]
    _identities: list[Identity]

    def check(self) -> Counts:
        """Recomputes every invariant from the records. Raises IntegrityError, with numbers, when the books are wrong."""
        self._core.check()
        return self.counts()

    def counts(self) -> Counts:
        """Device frames by state."""
        free, active, sealed, cached, _swapped = self._core.states()
        return Counts(self.frames, free, active, sealed, cached)

    def stats(self) -> dict[str, TenantStats]:
        """Counters by tenant."""
        return {name: self.tenants.stats(name) for name in self.tenants.names}

    def totals(self) -> dict[str, int]:
        """Counters of the whole pool: pinned frames, leases refused for want of budget, events so far, open sequences, and the
        blocks that are swapped out."""
        pinned, refused, logged, running = self._core.totals()
        swapped = self._core.states()[4]
        return {"pinned": pinned, "refused_leases": refused, "events": logged, "sequences": running, "swapped": swapped}

    def held(self) -> list[Held]:
        """What there is of each namespace: of those that have an open sequence or a block."""
        return [Held(self._identities[space], *counts) for space, *counts in self._core.held()]

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
                self.tiers[tier],
            )
            for i, (time_, what, block, generation, frame, tenant, state, tier) in enumerate(rows)
        ]

    def inventory(self) -> Inventory:
        """Every block that a request could hit and the tiers that have it, at one moment; each after the block before it."""
        events, hidden, rows = self._core.inventory()
        return Inventory(events, hidden, {BlockName(block, generation): tiers for block, generation, tiers in rows})

    def hidden(self) -> int:
        """How often blocks became unhittable without an event of their own: their namespace was invalidated, or they expired in
        use. `inventory` tells what is left."""
        return self._core.hidden()

    def block(self, frame: int, tier: str = "device") -> BlockInfo | None:
        """The block in a frame of a tier, None when it is free. Raises ConfigError for a frame or tier that does not exist."""
        integer("frame", frame, 0, (1 << 32) - 1)
        row = self._core.block(self._tier(tier), frame)
        return None if row is None else block_info(row, self.tenants.names)

    def blocks(self) -> Iterator[BlockInfo]:
        """Every block that has a frame on the device."""
        for frame in range(self.frames):
            info = self.block(frame)
            if info is not None:
                yield info

    def victims(self, tenant: str, tier: str = "device") -> list[int]:
        """The frames of a tenant that could be evicted now, in its policy's order. Invalidated ones go before all of them."""
        order = self._core.order(self._tier(tier), self.tenants.number(tenant), self._clock())
        return [int(frame) for frame in order]

    def tier_stats(self, tier: str) -> TierStats:
        """What came into a tier and left it. Raises ConfigError for a tier that is not there."""
        return TierStats(**self._core.moved(self._tier(tier)))

    def _tier(self, name: str) -> int:
        try:
            return self.tiers.index(name)
        except ValueError:
            raise ConfigError(f"there is no tier {name!r}; there are {', '.join(self.tiers)}") from None
