"""The hazard policy: at or above LRU on real traffic, LRU where it has nothing to learn from, and better where classes differ."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tenure.lab import pool
from tenure.lab.readers import read
from tenure.lab.trace import Trace

TRACES = os.environ.get("TENURE_TRACES")
SIZES = {"conversation": (1_000, 3_000, 10_000, 30_000, 60_000), "synthetic": (300, 1_000, 3_000, 10_000, 30_000)}


@pytest.fixture(scope="module", params=SIZES)
def traffic(request: pytest.FixtureRequest) -> tuple[str, Trace]:
    path = Path(TRACES or "") / "mooncake" / f"{request.param}_trace.jsonl"
    if not TRACES or not path.exists():
        pytest.skip("TENURE_TRACES names no folder with mooncake/*.jsonl")
    return request.param, read(path)


def hit_rate(trace: Trace, policy: str, capacity: int, overlap: bool = False) -> float:
    got = pool.run(trace, policy, capacity, overlap, {}, None)
    return got.hit_blocks / got.asked_blocks


@pytest.mark.parametrize("overlap", [False, True], ids=["one by one", "overlapping"])
def test_at_or_above_lru_at_every_size(traffic: tuple[str, Trace], overlap: bool) -> None:
    name, trace = traffic
    for capacity in SIZES[name]:
        assert hit_rate(trace, "hazard", capacity, overlap) >= hit_rate(trace, "lru", capacity, overlap), capacity


def test_closes_a_good_part_of_the_gap_where_there_is_one(traffic: tuple[str, Trace]) -> None:
    name, trace = traffic
    capacity, least = {"conversation": (3_000, 0.2), "synthetic": (10_000, 0.2)}[name]
    lru, hazard, optimum = (hit_rate(trace, policy, capacity) for policy in ("lru", "hazard", "optimum"))
    assert (hazard - lru) / (optimum - lru) >= least


def made(requests: int, seed: int, *, still: bool) -> Trace:
    """Chats that come back soon and say little, among one-off documents that never come back and are answered at length."""
    rng = np.random.default_rng(seed)
    offsets, blocks, output, fresh = [0], [], [], 0
    chats: list[list[int]] = []
    for number in range(requests):
        if number % 2:
            path = list(range(fresh, fresh + 24))
            fresh += 24
            output.append(1_000)
        else:
            chat = int(rng.integers(0, 12))
            if chat >= len(chats) or len(chats[chat]) > 60:
                chats.insert(chat, [])
                del chats[12:]
                chat = min(chat, len(chats) - 1)
            chats[chat] += range(fresh, fresh + 4)
            fresh += 4
            path = chats[chat]
            output.append(20)
        blocks += path
        offsets.append(len(blocks))
    arrival = np.zeros(requests) if still else np.arange(requests, dtype=float)
    return Trace(
        arrival=arrival,
        duration=np.zeros(requests),
        offsets=np.array(offsets, np.int64),
        blocks=np.array(blocks, np.uint32),
        output=np.array(output, np.int64),
        tenant=np.zeros(requests, np.uint32),
        tenants=("default",),
        session=np.full(requests, -1, np.int64),
        block_size=16,
        input_tokens=np.diff(offsets) * 16,
        name="made",
    )


def test_is_lru_while_the_clock_stands_still() -> None:
    trace = made(600, 1, still=True)
    for capacity in (80, 150, 300):
        mine, lru = (pool.run(trace, policy, capacity, False, {}, None) for policy in ("hazard", "lru"))
        assert list(mine.hits) == list(lru.hits)


def test_learns_which_class_does_not_come_back() -> None:
    trace = made(4_000, 2, still=False)
    lru, hazard, optimum = (hit_rate(trace, policy, 220) for policy in ("lru", "hazard", "optimum"))
    assert (hazard - lru) / (optimum - lru) > 0.5
