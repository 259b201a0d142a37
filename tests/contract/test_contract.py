"""What every policy must do, built in or a user's own: the pool's promises hold whichever policy is in force."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from conftest import Build
from helpers import Clock, admit, evicted_since, hit_blocks, prompt, put, resident, victims
from traffic import Traffic

from tenure import BlockInfo, BlockManager, Event, Identity, Quota, Sequence, _core
from tenure.errors import QuotaError

BUILT_IN = [name for name in _core.POLICIES if name != "optimum"]  # only a replay knows the future
POLICIES = [*BUILT_IN, "custom"]
IN_ORDER = ["lru", "lfu", "fifo", "gdsf", "cost", "priority", "custom"]  # whose victim() decides nothing by itself


class FewestUses:
    """A user's policy: the least used goes first, the deeper of two."""

    def priority(self, block: _core.BlockView) -> float:
        return block.uses - block.depth / 1000


def policy_of(name: str) -> Any:
    return FewestUses() if name == "custom" else name


@pytest.fixture(params=POLICIES)
def policy(request: pytest.FixtureRequest) -> Any:
    return policy_of(request.param)


@pytest.fixture(params=[0, 1])
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


# -- who may go


def assert_only_idle_leaves_went(
    before: list[BlockInfo], went: list[Event], floors: dict[str, int], used: dict[str, int], asker: str
) -> None:
    """Idle before the call, no child left at its turn, no other tenant's below its floor."""
    info = {block.handle: block for block in before}
    frames = {block.frame: block.handle for block in before}
    children: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for block in before:
        if block.parent_frame is not None and block.hittable:
            children.setdefault(frames[block.parent_frame], set()).add(block.handle)
    gone: set[tuple[int, int]] = set()
    for event in went:
        handle = (event.block, event.generation)
        block = info[handle]  # what came in this very call never goes in it
        assert (block.refs, block.pins, block.holds) == (0, 0, 0)
        assert children.get(handle, set()) <= gone
        assert event.tenant == asker or used[event.tenant] > floors.get(event.tenant, 0)
        used[event.tenant] -= 1
        gone.add(handle)


def test_only_unreferenced_leaves_go_and_the_books_stay_right(
    build: Build, clock: Clock, who: Identity, other: Identity, policy: Any, seed: int
) -> None:
    kv = build(14, policy=policy, pin_budget=0.4)
    kv.tenants["acme"] = Quota(cap=0.8)
    kv.tenants["umbrella"] = Quota(floor=0.3, weight=0.1)
    traffic = Traffic(kv, clock, [who, other, who.with_(tenant="third")], seed)
    evictions = 0
    for _ in range(400):
        clock.advance(traffic.rng.random())
        kv.leases()  # what is due goes first
        traffic.acknowledge()
        before, mark = list(kv.blocks()), kv.totals()["events"]
        stats = kv.stats()
        traffic.step()
        went = [event for event in kv.events(mark) if event.what == "evict"]
        evictions += len(went)
        used = {name: row.used for name, row in stats.items()}
        assert_only_idle_leaves_went(before, went, {"umbrella": 4}, used, traffic.asker)
        counts = kv.check()
        assert counts.free + counts.active + counts.sealed + counts.cached == 14
        assert kv.stats()["acme"].busy <= 11
    assert evictions > 50
    traffic.finish()


def test_what_is_pinned_or_held_stays(build: Build, who: Identity, policy: Any) -> None:
    kv = build(12, policy=policy)
    for names in [(1, 2), (3, 4), (5, 6)]:
        put(kv, who, *names)
    pin = kv.pin(prompt(1, 2), who, owner="ops")
    held = kv.lookup(prompt(3, 4), who, owner="loader", ttl=10)
    running = admit(kv, who, 5, 6)
    for name in range(100, 160):
        put(kv, who, name, name + 500, name + 1000)
    assert resident(kv) >= {1, 2, 3, 4, 5, 6}
    pin.release()
    held.release()
    running.release()
    admit(kv, who, *range(200, 212)).release()
    assert resident(kv) == set(range(200, 212))


def test_exactly_the_shortfall_goes(build: Build, who: Identity, policy: Any) -> None:
    kv = build(16, policy=policy)
    rng = random.Random(3)
    for _ in range(300):
        names = [rng.randrange(8) for _ in range(rng.randrange(1, 8))]
        missing = len(names) - hit_blocks(kv, who, *names)
        free, mark = kv.counts().free, kv.totals()["events"]
        put(kv, who, *names)
        assert len(evicted_since(kv, mark)) == max(0, missing - free)


def test_every_evictable_frame_can_be_had(build: Build, who: Identity, policy: Any) -> None:
    kv = build(16, policy=policy)
    rng = random.Random(4)
    for _ in range(60):
        put(kv, who, *(rng.randrange(4) for _ in range(rng.randrange(1, 5))))
        with admit(kv, who, *range(100, 116)):
            assert kv.counts() == (16, 0, 0, 16, 0)
        kv.clear()


# -- whose turn it is


def test_floors_and_caps_hold(build: Build, who: Identity, other: Identity, policy: Any) -> None:
    kv = build(20, policy=policy)
    kv.tenants["acme"] = Quota(cap=0.5)
    kv.tenants["umbrella"] = Quota(floor=0.25)
    rng = random.Random(5)
    for name in range(5):
        put(kv, other, name)
    third = who.with_(tenant="third")
    for _ in range(300):
        put(kv, rng.choice([who, third]), *(rng.randrange(60) for _ in range(rng.randrange(1, 6))))
        stats = kv.stats()
        assert stats["acme"].used <= 10
        assert stats["umbrella"].used >= 5
    running = admit(kv, who, *range(100, 110))
    with pytest.raises(QuotaError):
        admit(kv, who, 1)
    running.release()


def test_with_one_tenant_too_many_the_excess_goes_from_that_tenant(
    build: Build, who: Identity, other: Identity, policy: Any
) -> None:
    kv = build(10, policy=policy)
    for name in range(8):
        put(kv, other, name)
    mark = kv.totals()["events"]
    put(kv, who, 1, 2, 3, 4)
    assert {event.tenant for event in kv.events(mark) if event.what == "evict"} == {"umbrella"}
    assert kv.stats()["umbrella"].evicted_by_others == 2


# -- the order that a manager shows


def filled(build: Build, clock: Clock, who: Identity, policy: str, frames: int) -> BlockManager:
    """A pool of single blocks that were used at different times, how often differs too."""
    kv = build(frames, policy=policy_of(policy), block_tokens=1024)
    rng = random.Random(7)
    for name in rng.choices(range(frames + 3), k=6 * frames):
        clock.advance(rng.random())
        put(kv, who, name, priority=rng.choice([None, 10, 35, 80]))
    return kv


@pytest.mark.parametrize("policy", IN_ORDER)
def test_victims_is_the_order_in_which_blocks_go(build: Build, clock: Clock, who: Identity, policy: str) -> None:
    kv = filled(build, clock, who, policy, 12)
    order, mark = victims(kv, who), kv.totals()["events"]
    records = [block.handle[0] for name in order for block in kv.blocks() if block.tokens[0] == name * 1000]
    assert len(records) == 12
    admit(kv, who, *range(100, 112)).release()
    assert evicted_since(kv, mark) == records


@pytest.mark.parametrize("policy", IN_ORDER)
def test_the_first_of_victims_goes_next_in_a_tree(build: Build, clock: Clock, who: Identity, policy: str) -> None:
    kv = build(16, policy=policy_of(policy))
    traffic = Traffic(kv, clock, [who], 8)
    checked = 0
    for step in range(300):
        clock.advance(traffic.rng.random())
        traffic.step()
        waiting = kv.victims("acme") if kv.stats() else []
        if kv.counts().free or not waiting:
            continue
        block, mark = kv.block(waiting[0]), kv.totals()["events"]
        assert block is not None
        kv.sequence([900_000 + step], who).release()
        assert evicted_since(kv, mark) == [block.handle[0]]
        checked += 1
    assert checked > 25
    traffic.finish()


def test_victims_are_the_evictable_blocks_of_the_tenant(
    build: Build, clock: Clock, who: Identity, other: Identity, policy: Any
) -> None:
    kv = build(14, policy=policy)
    traffic = Traffic(kv, clock, [who, other], 9)
    for _ in range(200):
        clock.advance(traffic.rng.random())
        traffic.step()
        shown = {name: sorted(kv.victims(name)) for name in kv.tenants}
        for name, frames in shown.items():
            assert frames == sorted(block.frame for block in kv.blocks() if block.evictable and block.tenant == name)
    traffic.finish()


# -- change on a live pool


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(POLICIES, 2)))
def test_another_policy_takes_over_what_is_cached_and_goes_on(
    build: Build, clock: Clock, who: Identity, other: Identity, before: str, after: str
) -> None:
    kv = build(12, policy=policy_of(before))
    traffic = Traffic(kv, clock, [who, other], 10)
    for _ in range(60):
        clock.advance(1)
        traffic.step()
    contents, counts = list(kv.blocks()), kv.counts()
    kv.set_policy(policy_of(after))
    assert kv.check() == counts
    assert list(kv.blocks()) == contents
    for _ in range(60):
        clock.advance(1)
        traffic.step()
        kv.check()
    traffic.finish()
    with admit(kv, who, *range(100, 112)) if not kv.leases() else admit(kv, who, 100):
        kv.check()


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_parameter_change_keeps_what_is_cached(build: Build, clock: Clock, who: Identity, name: str) -> None:
    kv = build(12, policy=name)
    traffic = Traffic(kv, clock, [who], 11)
    for _ in range(60):
        clock.advance(1)
        traffic.step()
    contents = list(kv.blocks())
    for parameter, value in kv.params.items():
        for changed in (value / 2, 1.0, value):
            try:
                kv.set_params(**{parameter: changed})
            except ValueError:
                continue
            kv.check()
            assert kv.params[parameter] == changed
            assert list(kv.blocks()) == contents
    for _ in range(60):
        traffic.step()
        kv.check()
    traffic.finish()


# -- the same again


def test_the_same_calls_at_the_same_times_give_the_same_evictions(who: Identity, other: Identity, policy: Any, seed: int) -> None:
    logs = []
    for _ in range(2):
        clock = Clock()
        kv = BlockManager(12, 4, policy=policy, clock=clock, seed=99)
        traffic = Traffic(kv, clock, [who, other], seed)
        for _ in range(300):
            clock.advance(traffic.rng.random())
            traffic.step()
        traffic.finish()
        logs.append(kv.events())
    assert logs[0] == logs[1]
    assert any(event.what == "evict" for event in logs[0])


def test_hits_do_not_depend_on_the_policy_while_all_fits(build: Build, clock: Clock, who: Identity, policy: Any) -> None:
    kv, reference = build(64, policy=policy), build(64, policy="lru")
    rng = random.Random(12)
    running: list[Sequence] = []
    for _ in range(60):
        names = [rng.randrange(3) for _ in range(rng.randrange(1, 4))]
        pair = [admit(manager, who, *names) for manager in (kv, reference)]
        assert pair[0].hit_tokens == pair[1].hit_tokens
        running += pair
    for seq in running:
        seq.release()
