"""Serves a trace with a BlockManager, request by request, and keeps the reason of every miss. `tenure why` calls it. It
answers "why is my hit rate low" and "why did this request miss"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tenure.errors import ConfigError
from tenure.identity import Identity
from tenure.lab.ids import Ints
from tenure.lab.settings import PolicyChoice
from tenure.lab.trace import Trace
from tenure.ledger import Reason, Why
from tenure.manager import BlockManager


@dataclass(frozen=True, slots=True)
class Look:
    """One look-up: request number from 0, arrival in s, tokens asked for (full blocks) and found, and why it ended."""

    request: int
    arrival: float
    tenant: str
    asked: int
    found: int
    why: Why

    @property
    def missed(self) -> int:
        """Tokens asked for and not found."""
        return self.asked - self.found


@dataclass(frozen=True, slots=True)
class Explained:
    """Every look-up of a trace in one pool, and how often each reason ended one."""

    looks: tuple[Look, ...]
    frames: int
    policy: str

    @property
    def reasons(self) -> list[tuple[Reason, int, int]]:
        """(reason, look-ups it ended, tokens missed through it), most missed tokens first."""
        ended = Counter(look.why.reason for look in self.looks)
        missed: Counter[Reason] = Counter()
        for look in self.looks:
            missed[look.why.reason] += look.missed
        return sorted(((reason, ended[reason], missed[reason]) for reason in ended), key=lambda row: (-row[2], -row[1]))

    def worst(self) -> Look:
        """The miss worth a look: the most tokens lost to eviction, or else the most missed for any reason."""
        lost = [look for look in self.looks if look.why.reason is Reason.EVICTED]
        return max(lost or self.looks, key=lambda look: look.missed)

    def look(self, request: int) -> Look:
        """The look-up of one request; ConfigError when there is no such request."""
        if not 0 <= request < len(self.looks):
            raise ConfigError(
                f"there is no request {request}: they are numbered 0 to {len(self.looks) - 1}",
                request=request,
                requests=len(self.looks),
            )
        return self.looks[request]


def explain(trace: Trace, frames: int, policy: PolicyChoice) -> Explained:
    """Serve the trace one request after the other in a pool of `frames`; places are in tokens, to the block.

    A request longer than the pool keeps what fits; one without a full block is too short.
    Raises ConfigError as BlockManager does.
    """
    now = 0.0
    kv = BlockManager(
        frames=frames,
        block_size=1,
        policy=policy.name,
        params=policy.params,
        clock=lambda: now,
        events=0,
        block_tokens=trace.block_size,
    )
    who = [Identity(model="trace", tenant=tenant or "default") for tenant in trace.tenants]
    looks = []
    for request in range(trace.requests):
        now = float(trace.arrival[request])
        path = trace.path(request)
        identity = who[trace.tenant[request]]
        if not len(path):
            looks.append(Look(request, now, identity.tenant, 0, 0, Why(Reason.TOO_SHORT, 0)))
            continue
        with kv.sequence(_tokens(path[:frames]), identity, written=True) as sequence:
            found, why = sequence.hit_tokens, sequence.why
        unit = trace.block_size
        looks.append(Look(request, now, identity.tenant, len(path) * unit, found * unit, why._replace(at=why.at * unit)))
    return Explained(tuple(looks), frames, policy.label or policy.name)


def last_asked(trace: Trace, request: int, token: int) -> int | None:
    """The last request before `request` that asked for its block at `token`; None when none did."""
    path = trace.path(request)
    index = token // trace.block_size
    if index >= len(path):
        return None
    before = np.flatnonzero(trace.blocks[: trace.offsets[request]] == path[index])
    return int(np.searchsorted(trace.offsets, before[-1], side="right") - 1) if len(before) else None


def _tokens(path: Iterable[int]) -> Ints:
    return np.asarray(path, dtype=np.int64)
