"""Bounds: the ceiling, the next use, and that evicting the leaf used farthest ahead is the optimum."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from tenure.lab import bounds
from tenure.lab.trace import Trace

from .making import random_paths, trace_of
from .reference import ReferencePool


def best_possible(paths: list[list[int]], capacity: int) -> int:
    """The most leading blocks any choice of evictions can find: every set of evicted leaves is tried."""
    parent = {block: before for path in paths for before, block in zip([-1, *path[:-1]], path, strict=True)}

    def leaves(resident: frozenset[int], held: frozenset[int]) -> list[int]:
        inner = {parent[block] for block in resident}
        return [block for block in resident if block not in inner and block not in held]

    @cache
    def after(request: int, resident: frozenset[int]) -> int:
        if request == len(paths):
            return 0
        path = paths[request]
        hits = next((k for k, block in enumerate(path) if block not in resident), len(path))
        held = frozenset(path[:capacity])
        return hits + max(
            after(request + 1, left | held) for left in shrink(resident | held, held, len(resident | held) - capacity)
        )

    def shrink(resident: frozenset[int], held: frozenset[int], surplus: int) -> set[frozenset[int]]:
        if surplus <= 0:
            return {resident}
        return {left for leaf in leaves(resident, held) for left in shrink(resident - {leaf}, held, surplus - 1)}

    return after(0, frozenset())


def farthest_leaf(trace: Trace, capacity: int) -> int:
    result = ReferencePool(capacity, "optimum").replay(
        trace.offsets,
        trace.blocks,
        trace.arrival,
        trace.duration,
        trace.output,
        trace.tenant,
        bounds.next_use(trace),
        False,
        None,
    )
    return int(result["hit_blocks"])


@pytest.mark.parametrize("seed", range(40))
def test_no_choice_of_evictions_beats_the_farthest_leaf(seed: int) -> None:
    rng = np.random.default_rng(seed)
    paths = random_paths(rng, requests=7, branching=2, depth=3)
    trace = trace_of(paths)
    for capacity in (3, 4, 5):
        assert farthest_leaf(trace, capacity) == best_possible(paths, capacity)


def test_next_use_is_the_next_request_that_asks_again() -> None:
    trace = trace_of([[0, 1], [2], [0, 1, 3], [0]])
    assert bounds.next_use(trace).tolist() == [2, 2, math.inf, 3, math.inf, math.inf, math.inf]


def test_the_ceiling_counts_all_but_the_first() -> None:
    trace = trace_of([[0, 1], [0, 2], [0, 1]])
    assert bounds.ceiling(trace) == 3 / 6
    assert bounds.ceiling_hits(trace).tolist() == [0, 1, 2]


def test_the_ceiling_is_what_a_pool_without_limit_finds() -> None:
    trace = trace_of(random_paths(np.random.default_rng(3), requests=60))
    unlimited = ReferencePool(trace.distinct).replay(trace.offsets, trace.blocks, None, None, None, None, None, False, None)
    assert unlimited["per_request_hits"].tolist() == bounds.ceiling_hits(trace).tolist()


def test_bounds_of_an_empty_trace() -> None:
    trace = trace_of([])
    assert bounds.ceiling(trace) == 0.0
    assert len(bounds.next_use(trace)) == 0


def test_tokens_saved_do_not_count_what_a_partial_block_lacks() -> None:
    trace = trace_of([[0, 1], [0, 1]], block_size=4, input_tokens=np.array([7, 7]))
    assert bounds.tokens_saved(trace, np.array([0, 2])) == 7
    assert bounds.tokens_saved(trace, np.array([0, 1])) == 4
