"""Runs policies over a trace at one or many capacities, and says how far each is from LRU and from the optimum. The
command line and benchmarks call it. It evicts nothing itself: that is the pool's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from tenure.errors import ConfigError, TraceError
from tenure.lab import bounds, pool
from tenure.lab.settings import PolicyChoice
from tenure.lab.trace import Trace

OPTIMUM = "optimum"
BASELINE = "lru"
LEAST_GAP = 0.001  # between LRU and the optimum; a part of less says nothing
Watch = Callable[[str, int, int], object]  # policy, capacity, requests done


@dataclass(frozen=True, slots=True)
class Row:
    """One policy at one capacity. `hit_rate`: blocks found / blocks asked; `optimum`: that of the farthest-ahead leaf.

    `gap_closed`: (hit_rate - LRU) / (optimum - LRU), None where that gap is under 0.1 points (`LEAST_GAP`). `tokens_saved`:
    prefill spared. `waited`: requests that had to wait for frames. `seconds`: what the replay took.
    """

    policy: str
    capacity: int
    hit_rate: float
    evictions: int
    seconds: float
    tokens_saved: int = 0
    waited: int = 0
    optimum: float | None = None
    gap_closed: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.hit_rate <= 1:
            raise TraceError(
                f"{self.policy} at {self.capacity} frames: a hit rate of {self.hit_rate:g} cannot be",
                hit_rate=self.hit_rate,
                capacity=self.capacity,
            )

    def as_dict(self) -> dict[str, Any]:
        """The row as the report shows it, rates to six places."""
        return {
            "policy": self.policy,
            "capacity": self.capacity,
            "hit_rate": round(self.hit_rate, 6),
            "optimum": None if self.optimum is None else round(self.optimum, 6),
            "gap_closed": None if self.gap_closed is None else round(self.gap_closed, 6),
            "evictions": self.evictions,
            "seconds": round(self.seconds, 4),
            "tokens_saved": self.tokens_saved,
            "waited": self.waited,
        }


def replay(
    trace: Trace,
    policy: str,
    capacity: int,
    *,
    overlap: bool = True,
    params: Mapping[str, float] | None = None,
    progress: pool.Progress | None = None,
) -> Row:
    """Serve `trace` with `policy` in a pool of `capacity` frames; "optimum" is the leaf used farthest ahead.

    overlap: requests run for their duration and hold their path meanwhile; without, one is served after the other.
    Raises ConfigError (policy, parameter, capacity). `Row.optimum` and `gap_closed` stay None: see `sweep`.
    """
    if capacity < 1:
        raise ConfigError(f"a pool has at least one frame, not {capacity}", capacity=capacity)
    got = pool.run(trace, policy, capacity, overlap, params or {}, progress)
    return Row(
        policy=policy,
        capacity=capacity,
        hit_rate=got.hit_blocks / got.asked_blocks if got.asked_blocks else 0.0,
        evictions=got.evictions,
        seconds=got.seconds,
        tokens_saved=bounds.tokens_saved(trace, got.hits),
        waited=got.waited,
    )


def sweep(
    trace: Trace,
    policies: Iterable[PolicyChoice | str],
    capacities: Sequence[int],
    *,
    overlap: bool = True,
    jobs: int = 1,
    watch: Watch | None = None,
) -> list[Row]:
    """Every policy at every capacity, with the optimum and the gap closed; by policy as given, then by capacity.

    LRU and the optimum are replayed as well, shown or not. jobs: replays at a time (the core releases the GIL).
    """
    chosen = [PolicyChoice(p, {}, p) if isinstance(p, str) else p for p in policies]
    needed = {choice.label or choice.name: choice for choice in chosen}
    for extra in (BASELINE, OPTIMUM):
        needed.setdefault(extra, PolicyChoice(extra, {}, extra))
    tasks = [(label, capacity) for label in needed for capacity in capacities]

    def one(task: tuple[str, int]) -> Row:
        label, capacity = task
        tell = None if watch is None else (lambda done: watch(label, capacity, done))
        row = replay(trace, needed[label].name, capacity, overlap=overlap, params=needed[label].params, progress=tell)
        if watch is not None:
            watch(label, capacity, trace.requests)
        return replace(row, policy=label)

    if jobs > 1:
        with ThreadPoolExecutor(jobs) as workers:
            rows = dict(zip(tasks, workers.map(one, tasks), strict=True))
    else:
        rows = {task: one(task) for task in tasks}
    return [
        compare(rows[choice.label or choice.name, capacity], rows[BASELINE, capacity], rows[OPTIMUM, capacity])
        for choice in chosen
        for capacity in capacities
    ]


def compare(row: Row, lru: Row, optimum: Row) -> Row:
    """The row with the optimum beside it and the part of the gap between LRU and the optimum that it closes."""
    gap = optimum.hit_rate - lru.hit_rate
    closed = (row.hit_rate - lru.hit_rate) / gap if gap >= LEAST_GAP else None
    return replace(row, optimum=optimum.hit_rate, gap_closed=closed)


def report(trace: Trace, rows: Sequence[Row], *, overlap: bool = True) -> dict[str, Any]:
    """Trace and rows as one JSON document."""
    return {
        "trace": {
            "name": trace.name,
            "requests": trace.requests,
            "blocks": trace.asked,
            "distinct": trace.distinct,
            "ceiling": round(bounds.ceiling(trace), 6),
            "block_size": trace.block_size,
            "tenants": len(trace.tenants),
            "skipped": trace.skipped,
            "overlap": overlap,
        },
        "rows": [row.as_dict() for row in rows],
    }
