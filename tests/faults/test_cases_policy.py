"""Faults seen in the field, and what must hold instead: look-ups under pressure and policies (rows 23, 37 to 40)."""

from __future__ import annotations

import random
import threading

import pytest
from conftest import Build
from helpers import Clock, admit, hit_blocks, prompt, put, resident, victims

from tenure import Identity, PriorityRange, Quota, Retention, _core

LIVE = [name for name in _core.POLICIES if name != "optimum"]


def test_what_a_lookup_found_is_there_until_it_is_let_go(build: Build, who: Identity) -> None:
    """row 23: look-up and hold are one step: threads that evict all they can never get a frame in between."""
    kv = build(16)
    done = threading.Event()
    wrong: list[str] = []

    def flood(seed: int) -> None:
        rng = random.Random(seed)
        while not done.is_set():
            put(kv, who, *(rng.randrange(1000, 2000) for _ in range(4)))

    def load(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(300):
            tokens = prompt(rng.randrange(2), 7)
            if rng.random() < 0.5:
                kv.sequence(tokens, who, written=True).release()
            with kv.lookup(tokens, who, owner=str(seed), ttl=1e6) as lease:
                held: list[int] = []
                for frame in lease.frames:
                    held += kv.block(int(frame)).tokens  # type: ignore[union-attr]
                if held != tokens[: lease.tokens]:
                    wrong.append(f"{tokens[: lease.tokens]} are not {held}")

    floods = [threading.Thread(target=flood, args=(seed,)) for seed in (1, 2)]
    loads = [threading.Thread(target=load, args=(seed,)) for seed in (3, 4)]
    for thread in floods + loads:
        thread.start()
    for thread in loads:
        thread.join()
    done.set()
    for thread in floods:
        thread.join()
    assert wrong == []
    kv.check()


FRAMES = 200
HOT = 25


def hot_hits(build: Build, clock: Clock, who: Identity, policy: str, *, scan: bool) -> int:
    """Hits of 25 prompts of two blocks that come round again and again, with or without one-off prompts between them: ten
    times the frames in all, counted from the fourth round on."""
    kv = build(FRAMES, policy=policy, events=0)
    hits = 0
    scanned = 0
    for turn in range(8):
        for name in range(HOT):
            clock.advance(0.5)
            hit = put(kv, who, name, 100 + name)
            if turn >= 3:
                hits += hit
            if scan and turn >= 3:
                put(kv, who, *range(10_000 + scanned, 10_000 + scanned + 16))
                scanned += 16
    assert scanned in (0, 10 * FRAMES)
    return hits


@pytest.mark.parametrize("policy", ["slru", "hazard"])
def test_a_scan_of_ten_times_the_capacity_costs_the_hot_set_less_than_a_tenth(
    build: Build, clock: Clock, who: Identity, policy: str
) -> None:
    """row 37: one-off long prompts do not empty the cache; under LRU they do."""
    quiet = hot_hits(build, clock, who, policy, scan=False)
    assert quiet == HOT * 5 * 8
    assert hot_hits(build, clock, who, policy, scan=True) > 0.9 * quiet
    assert hot_hits(build, clock, who, "lru", scan=True) < 0.1 * quiet


@pytest.mark.parametrize("policy", LIVE)
def test_a_tenants_traffic_cannot_lower_anothers_floor(build: Build, who: Identity, other: Identity, policy: str) -> None:
    """row 38: by any policy, with any traffic, by one tenant or many."""
    kv = build(20, policy=policy)
    kv.tenants["umbrella"] = Quota(floor=0.3, weight=0.01)
    for name in range(6):
        put(kv, other, name)
    rng = random.Random(38)
    crowd = [who, *(who.with_(tenant=f"t{i}") for i in range(4))]
    for _ in range(400):
        put(kv, rng.choice(crowd), *(rng.randrange(50) for _ in range(rng.randrange(1, 6))))
        assert kv.stats()["umbrella"].used == 6
    assert sum(hit_blocks(kv, other, name) for name in range(6)) == 6


def with_priority(priority: int, duration: float | None = None) -> Retention:
    return Retention((PriorityRange(priority=priority, duration=duration),))


def test_a_raised_priority_ends_with_its_holder(build: Build, who: Identity) -> None:
    """row 39: it belongs to the request that raised it and falls back when that request lets the block go."""
    kv = build(4, policy="priority")
    put(kv, who, 1)
    put(kv, who, 2)
    put(kv, who, 1, priority=90)
    assert victims(kv, who) == [2, 1]
    put(kv, who, 2)
    assert victims(kv, who) == [1, 2]


def test_a_raise_with_a_duration_ends_with_it(build: Build, clock: Clock, who: Identity) -> None:
    """row 39: counted from the release."""
    kv = build(4, policy="priority")
    put(kv, who, 1)
    put(kv, who, 2)
    raiser = admit(kv, who, 1, priority=with_priority(90, 10))
    clock.advance(50)
    raiser.release()
    put(kv, who, 2)
    assert victims(kv, who) == [2, 1]
    clock.advance(9.9)
    assert victims(kv, who) == [2, 1]
    clock.advance(0.1)
    assert victims(kv, who) == [1, 2]


def test_a_prefix_goes_from_its_tail(build: Build, who: Identity) -> None:
    """row 40: leaf first: what is left of a prefix is always its head."""
    kv = build(6)
    put(kv, who, 1, 2, 3, 4)
    for name in (10, 11, 12, 13, 14):
        put(kv, who, name)
        left = hit_blocks(kv, who, 1, 2, 3, 4)
        assert resident(kv) & {1, 2, 3, 4} == set(range(1, left + 1))
    assert hit_blocks(kv, who, 1, 2, 3, 4) == 1


def test_a_request_touches_a_block_once(build: Build, who: Identity) -> None:
    """row 40: however often it grew, forked or was looked up."""
    kv = build(8)
    for _ in range(3):
        put(kv, who, 1, 2)
    with admit(kv, who, 1) as seq:
        seq.append(prompt(3))
        seq.append([1])
        kv.match(prompt(1, 2), who)
        kv.lookup(prompt(1), who, owner="o", ttl=1).release()
        child = seq.fork()
        child.release()
    uses = {block.tokens[0] // 1000: block.uses for block in kv.blocks() if block.hittable}
    assert uses == {1: 4, 2: 3, 3: 1}
