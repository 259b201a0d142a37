"""The one place where the lab meets the core: runs a whole trace through a pool in a single call. `replay` calls it,
and nobody else. It decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import NamedTuple

import numpy as np

from tenure import _core
from tenure.lab import bounds
from tenure.lab.trace import Ids, Ints, Trace
from tenure.retention import PrefillCost

_MOST = _NEVER = 2**32 - 1
Progress = Callable[[int], object]  # told how many requests are done


class Outcome(NamedTuple):
    """What the core counted. `hits` i64[n]: blocks found per request; `seconds`: time the replay took."""

    hit_blocks: int
    asked_blocks: int
    evictions: int
    seconds: float
    hits: Ints
    waited: int


def run(
    trace: Trace, policy: str, capacity: int, overlap: bool, params: Mapping[str, float], progress: Progress | None
) -> Outcome:
    """Serve the trace with a pool of `capacity` frames. Raises ConfigError for what the core refuses."""
    optimal = policy == "optimum"
    pool = _core.Pool(
        frames=capacity,
        block_size=1,
        policy=policy,
        parameters=dict(params),
        seed=0,
        pin_budget=0.0,
        partial_reuse=0,
        rewrite=True,
        events=0,
        evict_batch=1,
        tag=0,
        slope=PrefillCost().slope,
        block_tokens=float(trace.block_size),
        lower=[],
    )
    # The optimum is free to evict anyone: ids are never shared between tenants, so one namespace changes no hit.
    tenants = ("",) if optimal else trace.tenants
    spaces = np.array([pool.open_space(pool.open_tenant(tenant), 1.0, 1) for tenant in tenants], dtype=np.uint32)
    started = perf_counter()
    result = pool.replay(
        trace.offsets,
        trace.blocks,
        trace.arrival,
        trace.duration,
        np.minimum(trace.output, _MOST).astype(np.uint32),
        np.zeros_like(trace.tenant) if optimal else spaces[trace.tenant],
        _next_use(trace) if optimal else None,
        overlap,
        progress,
    )
    return Outcome(
        hit_blocks=int(result["hit"]),
        asked_blocks=int(result["asked"]),
        evictions=int(result["evictions"]),
        seconds=perf_counter() - started,
        hits=np.asarray(result["hits"], dtype=np.int64),
        waited=int(result["waited"]),
    )


def _next_use(trace: Trace) -> Ids:
    """The core counts requests in u32, and the largest stands for never."""
    following = bounds.next_use(trace)
    return np.where(np.isfinite(following), following, _NEVER).astype(np.uint32)
