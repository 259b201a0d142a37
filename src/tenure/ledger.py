"""Why: a reason for every hit and miss, counters, events and what a block looks like, as plain values.
Built from what the core returns; called by the manager; it changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from tenure import _core
from tenure.identity import Identity

__all__ = ["BlockInfo", "Counts", "Event", "Held", "LeaseInfo", "Reason", "State", "TenantStats", "Why"]


class State(str, Enum):
    """R1's states of a block."""

    FREE = "Free"
    ACTIVE = "Active"
    SEALED = "Sealed"
    CACHED = "Cached"
    SWAPPED = "Swapped"


class Reason(str, Enum):
    """What ended a look-up."""

    HIT = "hit"
    """everything that fills a block was there"""
    NEVER_SEEN = "never_seen"
    TOO_SHORT = "too_short"
    """the prompt does not fill one block"""
    DIVERGED = "diverged"
    """another continuation is cached; `Why.at` is the first token that differs"""
    EVICTED = "evicted"
    EXPIRED = "expired"
    INVALIDATED = "invalidated"
    FOREIGN = "foreign"
    """another namespace has these tokens: tenant, adapter, weights, dtype, ... differ (`Why.differs`)"""
    LIMIT = "limit"
    """the caller's max_hit"""
    TIER_FAILED = "tier_failed"
    """a lower tier had it and could not give it back"""


class Why(NamedTuple):
    """Why a look-up ended at token `at`."""

    reason: Reason
    at: int
    when: float | None = None
    """evicted, expired or invalidated: at this time on the manager's clock, s"""
    policy: str | None = None
    """evicted: by this policy"""
    tenant: str | None = None
    """evicted: to make room for this tenant"""
    differs: tuple[str, ...] = ()
    """foreign: the identity fields that differ"""

    def __str__(self) -> str:
        text = f"{self.reason.value.replace('_', ' ')} at token {self.at}"
        if self.reason is Reason.EVICTED:
            text += f": by {self.policy} at {self.when:.3f} s, to make room for tenant {self.tenant!r}"
        elif self.when is not None:
            text += f": at {self.when:.3f} s"
        if self.differs:
            text += f": cached under another {', '.join(self.differs)}"
        return text


class Counts(NamedTuple):
    """Device frames by the state of their block: free + active + sealed + cached == frames."""

    frames: int
    free: int
    active: int
    sealed: int
    cached: int


class Held(NamedTuple):
    """What a manager has of one namespace: open sequences, blocks in whatever tier, and of both together those that have not been
    invalidated."""

    who: Identity
    sequences: int
    blocks: int
    valid: int


class Event(NamedTuple):
    """One thing that happened to a block; `seq` counts without gaps (a gap means that the log has moved on)."""

    seq: int
    time: float
    what: str
    block: int
    generation: int
    frame: int | None
    tenant: str
    state: State
    tier: str


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """One block as it is now. `handle` is (block, generation): equal handles are the same life of the same block."""

    handle: tuple[int, int]
    state: State
    frame: int
    refs: int
    pins: int
    holds: int
    depth: int
    parent_frame: int | None
    tenant: str
    uses: int
    last_used: float
    evictable: bool
    hittable: bool
    tokens: tuple[int, ...]


class LeaseInfo(NamedTuple):
    """A lease that is in force."""

    id: int
    kind: str
    tenant: str
    owner: str
    blocks: int
    deadline: float | None


@dataclass(frozen=True, slots=True)
class TenantStats:
    """A tenant's frames now, and its counters since the start; `endings` counts requests, `missed` blocks, by reason."""

    used: int
    busy: int
    pinned: int
    floor: int
    cap: int
    requests: int
    refused: int
    blocks_asked: int
    blocks_hit: int
    tokens_asked: int
    tokens_hit: int
    evicted: int
    evicted_by_others: int
    expired: int
    invalidated: int
    duplicates: int
    copies: int
    endings: dict[str, int]
    missed: dict[str, int]

    @property
    def hit_rate(self) -> float:
        """Blocks found ÷ full blocks asked for; 0 when none were."""
        return self.blocks_hit / self.blocks_asked if self.blocks_asked else 0.0


@dataclass(frozen=True, slots=True)
class TierStats:
    """A tier's free frames now, and what came into it and left it since the start, in blocks."""

    free: int
    stored: int
    loaded: int
    no_room: int
    failed: int
    unloaded: int
    lost: int
    evicted: int
    dropped: int


REASONS = tuple(Reason(name) for name in _core.REASONS)
STATES = tuple(State(name) for name in _core.STATES)
POLICY_NAMES: tuple[str, ...] = (*_core.POLICIES, "custom")
EVENT_NAMES: tuple[str, ...] = _core.EVENTS


def block_info(row: tuple[Any, ...], tenants: list[str]) -> BlockInfo:
    """From the core's tuple."""
    (block, generation, state, frame, refs, pins, holds, depth, parent, tenant, uses, last, queued, linked, tokens) = row
    return BlockInfo(
        handle=(block, generation),
        state=STATES[state],
        frame=frame,
        refs=refs,
        pins=pins,
        holds=holds,
        depth=depth,
        parent_frame=None if parent < 0 else parent,
        tenant=tenants[tenant],
        uses=uses,
        last_used=last,
        evictable=queued,
        hittable=linked,
        tokens=tuple(tokens),
    )
