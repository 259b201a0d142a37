"""FIFO and LRU decide like libcachesim, an implementation by others, request by request: hit or miss, and who goes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import Build
from helpers import SIZE, evicted_since

from tenure import Identity

libcachesim = pytest.importorskip("libcachesim", reason="the oracle libcachesim is not installed")


def zipf(requests: int, objects: int, alpha: float, seed: int) -> list[int]:
    """Object numbers whose popularity falls as a power of their rank."""
    weights = np.arange(1, objects + 1, dtype=float) ** -alpha
    rng = np.random.default_rng(seed)
    return [int(name) for name in rng.permutation(objects)[rng.choice(objects, requests, p=weights / weights.sum())]]


def ask_oracle(cache: Any, name: int) -> tuple[bool, int | None]:
    """Whether it was a hit, and which object went for it."""
    request = libcachesim.Request()
    request.obj_id = name + 1
    request.obj_size = 1
    victim = None
    if cache.find(request, False) is None and cache.get_n_obj() == cache.cache_size:
        victim = cache.to_evict(request).obj_id - 1
    return cache.get(request), victim


@pytest.mark.parametrize("policy", ["lru", "fifo"])
@pytest.mark.parametrize("frames", [1, 2, 7, 64, 150])
@pytest.mark.parametrize(("alpha", "seed"), [(0.6, 1), (1.0, 2), (1.4, 3)])
def test_every_hit_and_every_victim_is_the_oracles(
    build: Build, who: Identity, policy: str, frames: int, alpha: float, seed: int
) -> None:
    kv = build(frames, policy=policy)
    oracle = {"lru": libcachesim.LRU, "fifo": libcachesim.FIFO}[policy](cache_size=frames, hashpower=12)
    name_of: dict[int, int] = {}
    evictions = 0
    for i, name in enumerate(zipf(4000, 500, alpha, seed)):
        mark = kv.totals()["events"]
        with kv.sequence(range(name * SIZE, (name + 1) * SIZE), who, written=True) as seq:
            ours = seq.hit_tokens == SIZE
            gone = [name_of[block] for block in evicted_since(kv, mark)]
            block = kv.block(int(seq.block_table[0]))
        assert block is not None
        name_of[block.handle[0]] = name
        hit, victim = ask_oracle(oracle, name)
        assert (ours, gone) == (hit, [] if victim is None else [victim]), f"request {i}"
        evictions += len(gone)
    assert evictions > 50
