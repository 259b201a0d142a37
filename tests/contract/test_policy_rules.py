"""Each policy's own rule on small examples computed by hand. What all of them must do: test_contract.py."""

from __future__ import annotations

import math
import random

import pytest
from conftest import Build
from helpers import Clock, admit, prompt, put, resident, victims

from tenure import BlockManager, Identity, PrefillCost, PriorityRange, Retention, Sequence, _core

STEEP = PrefillCost(parameters=1, layers=1, hidden=1)
"""A token at position p costs 1 + 2p."""


def run(kv: BlockManager, who: Identity, *names: int) -> list[set[int]]:
    """One request of one block after the other; what is there after each."""
    after = []
    for name in names:
        put(kv, who, name)
        after.append(resident(kv))
    return after


# -- lru, fifo


def test_lru_newest_first_evicts_the_block_used_last(build: Build, who: Identity) -> None:
    kv = build(3, policy="lru", params={"newest_first": 1})
    assert run(kv, who, 1, 2, 3, 2, 4)[-1] == {1, 3, 4}


def test_fifo_counts_no_use(build: Build, who: Identity) -> None:
    kv = build(3, policy="fifo")
    assert run(kv, who, 1, 2, 3, 1, 1, 4, 5) == [
        {1},
        {1, 2},
        {1, 2, 3},
        {1, 2, 3},
        {1, 2, 3},
        {2, 3, 4},
        {3, 4, 5},
    ]


# -- lfu: ageing · L + uses, L the key of the last victim


def test_lfu_newcomers_rise_by_the_age_of_what_went(build: Build, who: Identity) -> None:
    kv = build(2, policy="lfu")
    run(kv, who, 1, 1, 1, 1, 1)  # key 5
    # The keys of the newcomers: 2: 1, 3: 1+1, 4: 2+1, 5: 3+1, 6: 4+1. Then 1 and 6 are level, and 1 is older.
    assert run(kv, who, 2, 3, 4, 5, 6) == [{1, 2}, {1, 3}, {1, 4}, {1, 5}, {1, 6}]
    assert run(kv, who, 7) == [{6, 7}]


def test_lfu_counts_requests_and_breaks_ties_by_last_use(build: Build, who: Identity) -> None:
    kv = build(4, policy="lfu")
    run(kv, who, 1, 2, 3, 2, 1, 4)
    assert victims(kv, who) == [3, 4, 2, 1]


@pytest.mark.parametrize("way", ["clear", "invalidate", "expire"])
def test_lfu_what_was_no_choice_of_the_policy_ages_nobody(build: Build, clock: Clock, who: Identity, way: str) -> None:
    kv = build(3, policy="lfu")
    run(kv, who, 1, 1)
    pin = kv.pin(prompt(1), who, owner="ops")
    favourite = who.with_(epoch=7)
    for _ in range(6):
        put(kv, favourite, 2, expire_after=10)
    if way == "clear":
        kv.clear()
    elif way == "invalidate":
        kv.invalidate(epoch=7)
        kv.sweep()
    else:
        clock.advance(10)
        kv.sweep()
    pin.release()
    assert resident(kv) == {1}
    run(kv, who, 3)  # L is still 0: one use weighs less than two
    assert victims(kv, who) == [3, 1]


# -- slru


def test_slru_protects_what_was_used_twice_up_to_its_share(build: Build, who: Identity) -> None:
    kv = build(4, policy="slru", params={"share": 0.5})
    run(kv, who, 1, 1, 2, 2)  # both protected: the share is full
    run(kv, who, 3, 3)  # the third drives 1, the longest unused, back to probation
    run(kv, who, 4)
    assert run(kv, who, 5, 6, 7) == [{2, 3, 4, 5}, {2, 3, 5, 6}, {2, 3, 6, 7}]


def test_slru_takes_from_the_protected_when_nothing_is_on_probation(build: Build, who: Identity) -> None:
    kv = build(3, policy="slru", params={"share": 1})
    run(kv, who, 1, 1, 2, 2, 3, 3, 1)
    assert run(kv, who, 4)[-1] == {1, 3, 4}


def test_slru_threshold_is_how_many_uses_it_takes(build: Build, who: Identity) -> None:
    kv = build(3, policy="slru", params={"threshold": 3})
    run(kv, who, 1, 1, 1, 2, 2, 3)
    assert run(kv, who, 4, 5)[-1] == {1, 4, 5}


# -- s3fifo


def test_s3fifo_moves_what_was_used_again_to_main_and_drops_the_rest(build: Build, who: Identity) -> None:
    kv = build(10, policy="s3fifo")
    run(kv, who, *range(1, 11), 1)
    assert run(kv, who, 11)[-1] == {1, *range(3, 12)}  # 1 came first, but moved on; 2 goes
    run(kv, who, 2)  # its ghost is there: straight to main
    assert run(kv, who, *range(20, 60))[-1] >= {1, 2}


def test_s3fifo_takes_from_main_when_small_is_within_its_share(build: Build, who: Identity) -> None:
    kv = build(4, policy="s3fifo", params={"small": 0.5})
    run(kv, who, 1, 2, 3, 4, 1, 2)
    # 1 and 2 move to main; small holds two of four frames, which is its share: 1, first in main and not used there, goes.
    assert run(kv, who, 5)[-1] == {2, 3, 4, 5}
    assert run(kv, who, 6)[-1] == {2, 4, 5, 6}  # small is over its share again


def test_s3fifo_each_use_in_main_buys_a_round(build: Build, who: Identity) -> None:
    kv = build(4, policy="s3fifo", params={"small": 0.5})
    run(kv, who, 1, 2, 3, 4, 1, 2, 3)
    assert run(kv, who, 5)[-1] == {2, 3, 4, 5}  # main: 2, (3 or 2 first by age)
    run(kv, who, 2)
    main = victims(kv, who)[-2:]
    assert sorted(main) in ([2, 3], [2, 5], [3, 5])
    before = resident(kv)
    after = run(kv, who, 6)[-1]
    assert 2 in after
    assert len(before - after) == 1


# -- arc


def arc_with_room(build: Build, who: Identity, frames: int) -> tuple[BlockManager, Sequence]:
    """A few frames in a pool whose ghost lists are large: the other frames are in use and never sealed."""
    spare = 4096
    kv = build(frames + spare, policy="arc")
    return kv, kv.sequence(range(spare * 4), who)


def test_arc_adapts_to_what_its_ghosts_say(build: Build, who: Identity) -> None:
    kv, filler = arc_with_room(build, who, 4)
    run(kv, who, 1, 2, 3, 4, 1, 2)  # used once: 3, 4; again: 1, 2
    steps = run(kv, who, 5, 3, 4, 6, 7, 1, 8)
    assert steps == [
        {1, 2, 4, 5},  # 3 goes from those used once
        {1, 2, 3, 5},  # so does 4; 3 comes back from its ghost: one frame is promised to those used once
        {2, 3, 4, 5},  # only 5 was used once, which is within it: 1 goes from the others; 4's ghost makes it two
        {3, 4, 5, 6},
        {4, 5, 6, 7},
        {1, 4, 6, 7},  # three were used once: 5 goes; 1 comes back from the others' ghosts: one frame again
        {1, 4, 7, 8},
    ]
    filler.abort()


# -- gdsf: L + uses · cost


def test_gdsf_weighs_uses_by_what_prefill_costs_and_ages(build: Build, who: Identity) -> None:
    kv = build(5, policy="gdsf", prefill=STEEP, block_tokens=1)
    put(kv, who, 1, 2, 3)  # costs 1, 3, 5
    run(kv, who, 4, 4)  # 2 · 1
    run(kv, who, 5)  # 1
    assert victims(kv, who) == [5, 4, 3]
    run(kv, who, 6)  # 5 went: L = 1, so 6 has 2, level with 4, which is older
    assert victims(kv, who) == [4, 6, 3]
    run(kv, who, 7)  # L = 2: 3
    assert victims(kv, who) == [6, 7, 3]
    run(kv, who, 8, 9, 10)  # 6 goes (L = 2), 7 (3), 8 (3): the newcomers have 3, 4, 4
    assert victims(kv, who) == [9, 10, 3]
    run(kv, who, 11, 12)  # 9 (4) and 10 (4) go: 5 and 5, level with 3, which is older; then 2 has 3
    assert victims(kv, who) == [3, 11, 12]
    run(kv, who, 13)
    assert victims(kv, who)[0] == 2


# -- cost: w1 · recency + w2 · rebuild cost + w3 · hit rate


def assert_cost_order(kv: BlockManager, who: Identity, came: dict[tuple[int, int], float]) -> None:
    """The order of victims by the formula, computed from what a manager tells of its blocks."""
    p = kv.params
    scores = []
    for block in kv.blocks():
        came.setdefault(block.handle, block.last_used)
        if not block.evictable:
            continue
        rate = max(0, block.uses - 1) * p["horizon"] / max(p["horizon"], block.last_used - came[block.handle])
        score = (
            p["recency"] * block.last_used / p["horizon"]
            + p["rebuild"] * math.log2(1 + 2 * block.depth)
            + p["hits"] * math.log2(1 + rate)
        )
        scores.append((score, block.frame))
    shown = [score for frame in kv.victims(who.account) for score, where in scores if where == frame]
    assert len(shown) == len(scores)
    assert shown == pytest.approx(sorted(shown))


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"recency": 1, "rebuild": 3, "hits": 0, "horizon": 5},
        {"recency": 0, "rebuild": 1, "hits": 1, "horizon": 5},
        {"recency": 1, "rebuild": 1, "hits": 2, "horizon": 20},
    ],
)
def test_cost_follows_its_formula(build: Build, clock: Clock, who: Identity, params: dict[str, float]) -> None:
    kv = build(20, policy="cost", params=params, prefill=STEEP, block_tokens=1)
    rng = random.Random(31)
    came: dict[tuple[int, int], float] = {}
    for _ in range(150):
        clock.advance(rng.random() * 3)
        put(kv, who, *(rng.randrange(5) for _ in range(rng.randrange(1, 4))))
        assert_cost_order(kv, who, came)


@pytest.mark.parametrize("hits", [0, 1])
def test_cost_a_block_that_its_writer_leaves_for_a_copy_counts_as_used_then(
    build: Build, clock: Clock, who: Identity, hits: int
) -> None:
    kv = build(80, policy="cost", params={"recency": 1, "rebuild": 0, "hits": hits})
    for name in range(20):
        clock.advance(1)
        seq = admit(kv, who, name)
        seq.truncate(2)  # the sealed block stays behind: its writer goes on with a copy
        seq.append([5])
        seq.release()
        put(kv, who, 100 + name)
    assert victims(kv, who) == [first for name in range(20) for first in (name, 100 + name)]


# -- priority


def lower_than(kv: BlockManager, who: Identity, name: int) -> int:
    """How many of the nine probes, of priority 6, 16, ... 86, would go before the block."""
    order = victims(kv, who)
    return sum(1 for other in order[: order.index(name)] if other >= 900)


def with_probes(build: Build, who: Identity) -> BlockManager:
    kv = build(40, policy="priority")
    for i in range(9):
        put(kv, who, 900 + i, priority=6 + 10 * i)
    return kv


def test_priority_the_lowest_goes_first_the_longest_unused_of_equals(build: Build, who: Identity) -> None:
    kv = build(6, policy="priority")
    for name, priority in [(1, 50), (2, 10), (3, None), (4, 35), (5, 10)]:
        put(kv, who, name, priority=priority)
    assert victims(kv, who) == [2, 5, 3, 4, 1]


def test_priority_ranges_are_over_prompt_tokens_by_a_blocks_first(build: Build, who: Identity) -> None:
    kv = with_probes(build, who)
    ranges = Retention((PriorityRange(0, 4, 80), PriorityRange(4, 9, 20), PriorityRange(12, 15, 60)))
    for length in range(1, 6):
        put(kv, who, *range(10 * length, 11 * length), priority=ranges)
    leaves = [11 * length - 1 for length in range(1, 6)]
    # By first token: 0 in [0, 4), 4 and 8 in [4, 9), 12 in [12, 15), 16 in none: the default, 35.
    assert [lower_than(kv, who, leaf) for leaf in leaves] == [8, 2, 2, 6, 3]


def test_priority_of_what_is_decoded(build: Build, who: Identity) -> None:
    kv = with_probes(build, who)
    for name, retention in [(1, Retention((PriorityRange(priority=10),), 80)), (2, Retention(decode_priority=20))]:
        seq = kv.sequence(prompt(name), who, priority=retention)
        seq.append(prompt(name + 50))
        seq.release()
    assert lower_than(kv, who, 51) == 8
    assert lower_than(kv, who, 52) == 2


def test_priority_a_block_that_starts_in_the_prompt_belongs_to_the_prompt(build: Build, who: Identity) -> None:
    kv = with_probes(build, who)
    seq = kv.sequence([1000, 1001], who, priority=Retention((PriorityRange(priority=10),), 80))
    seq.append([1002, 1003])
    seq.release()
    assert lower_than(kv, who, 1) == 1


def test_priority_durations_start_at_release_and_fall_back_to_the_default(build: Build, clock: Clock, who: Identity) -> None:
    kv = with_probes(build, who)
    seq = admit(kv, who, 1, priority=Retention((PriorityRange(priority=90, duration=10),)))
    clock.advance(100)
    seq.release()
    clock.advance(9.5)
    assert lower_than(kv, who, 1) == 9
    clock.advance(0.5)
    assert lower_than(kv, who, 1) == 3
    put(kv, who, 2, priority=Retention((PriorityRange(priority=0, duration=10),)))
    assert lower_than(kv, who, 2) == 0
    clock.advance(10)
    assert lower_than(kv, who, 2) == 3


def test_priority_a_use_without_a_priority_changes_nothing(build: Build, who: Identity) -> None:
    kv = with_probes(build, who)
    put(kv, who, 1, priority=80)
    put(kv, who, 1)
    assert lower_than(kv, who, 1) == 8


def test_priority_a_raise_is_over_the_base_and_never_below_it(build: Build, clock: Clock, who: Identity) -> None:
    kv = with_probes(build, who)
    put(kv, who, 1, priority=60)
    put(kv, who, 1, priority=Retention((PriorityRange(priority=20, duration=10),)))
    assert lower_than(kv, who, 1) == 6
    put(kv, who, 1, priority=Retention((PriorityRange(priority=80, duration=10),)))
    assert lower_than(kv, who, 1) == 8
    clock.advance(5)
    put(kv, who, 1, priority=Retention((PriorityRange(priority=70, duration=2),)))
    assert lower_than(kv, who, 1) == 8
    clock.advance(5)
    assert lower_than(kv, who, 1) == 6


def test_priority_of_the_block_goes_with_the_block(build: Build, who: Identity) -> None:
    kv = with_probes(build, who)
    put(kv, who, 1, priority=0)
    for name in range(100, 131):  # one frame too few: the block of priority 0 goes
        put(kv, who, name)
    assert 1 not in resident(kv)
    put(kv, who, 2)  # now the probe of priority 6 goes, and the new block has its record and not its priority
    assert 900 not in resident(kv)
    assert lower_than(kv, who, 2) == 2


def test_priority_default_is_a_parameter(build: Build, who: Identity) -> None:
    kv = with_probes(build, who)
    put(kv, who, 1)
    assert lower_than(kv, who, 1) == 3
    kv.set_params(default=70)
    assert lower_than(kv, who, 1) == 7


def test_priority_sticky_a_raise_stays(build: Build, who: Identity) -> None:
    kv = with_probes(build, who)
    kv.set_policy("priority", sticky=1)
    put(kv, who, 1, priority=10)
    put(kv, who, 1, priority=60)
    put(kv, who, 1)
    order = victims(kv, who)
    put(kv, who, 2, priority=50)
    assert order[-1] == 1
    assert victims(kv, who)[-2:] == [2, 1]


# -- a policy of a user's own


def test_a_users_policy_is_told_what_the_block_is(build: Build, clock: Clock, who: Identity, other: Identity) -> None:
    seen: dict[tuple[int, int], tuple[int, float, float]] = {}

    class Listener:
        def priority(self, block: _core.BlockView) -> float:
            seen[block.tenant, block.depth] = (block.uses, block.last_used, block.cost)
            return -block.stamp

    kv = build(8, policy=Listener(), prefill=STEEP, block_tokens=1)
    put(kv, other, 9)
    clock.advance(3)
    put(kv, who, 1, 2)
    put(kv, who, 1, 2)
    kv.clear()
    assert seen == {(0, 0): (1, 0.0, 1.0), (1, 1): (2, 3.0, 3.0), (1, 0): (2, 3.0, 1.0)}


def test_a_users_policy_decides_and_ties_go_by_last_use(build: Build, who: Identity) -> None:
    class ByName:
        def priority(self, block: _core.BlockView) -> float:
            return math.inf if block.uses > 1 else 1

    kv = build(4, policy=ByName())
    run(kv, who, 3, 1, 2, 1)
    assert victims(kv, who) == [3, 2, 1]
