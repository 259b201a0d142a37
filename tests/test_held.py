"""What a manager tells of each namespace agrees with what a look at every frame and the test's own books say."""

from __future__ import annotations

import random
from collections import Counter

from tenure import BlockManager, CapacityError, Identity, LowerTier
from tenure.sequence import Sequence


def test_it_counts_sequences_and_blocks_of_every_namespace() -> None:
    kv = BlockManager(16, 4, clock=lambda: 0.0)
    one, two = Identity(model="m", weights="1"), Identity(model="m", weights="2")
    assert kv.held() == []
    with kv.sequence(range(8), one) as seq, kv.sequence(range(9), two):
        assert kv.held() == [(one, 1, 2, 3), (two, 1, 3, 4)]
        kv.invalidate(weights="1")
        assert kv.held() == [(one, 1, 2, 0), (two, 1, 3, 4)]
        seq.fork().release()
    assert kv.held() == [(two, 0, 2, 2)]
    kv.pin(range(4), two, owner="ops")
    kv.pin(range(100, 104), two, owner="of nothing")  # a lease is neither
    assert kv.held() == [(two, 0, 2, 2)]


def test_blocks_of_lower_tiers_count() -> None:
    kv = BlockManager(4, 4, clock=lambda: 0.0, lower=[LowerTier("host", 8)])
    who = Identity(model="m")
    kv.sequence(range(16), who, written=True).release()
    for write in kv.take_writes("host"):
        kv.finish_write(write, True)
    kv.sequence(range(100, 116), who, written=True).release()
    assert kv.counts().cached == 4
    swapped = kv.totals()["swapped"]
    assert swapped == 4
    assert kv.held() == [(who, 0, 4 + swapped, 4 + swapped)]


def test_at_random() -> None:
    r = random.Random(0)
    kv = BlockManager(48, 4, clock=lambda: 0.0)
    people = [Identity(model="m", tenant=t, weights=w) for t in "ab" for w in "12"]
    running: list[tuple[Identity, Sequence]] = []
    seen = 0
    for _ in range(600):
        who = r.choice(people)
        what = r.random()
        if what < 0.45:
            try:
                running.append((who, kv.sequence([r.randint(0, 1) for _ in range(r.randint(1, 24))], who)))
            except CapacityError:
                kv.invalidate(tenant=who.tenant)
        elif what < 0.8 and running:
            running.pop(r.randrange(len(running)))[1].release()
        elif what < 0.85:
            kv.invalidate(weights=who.weights)
        elif what < 0.9:
            kv.sweep()
        kv.check()
        held = kv.held()
        sequences = Counter(who for who, _ in running)
        assert {one.who: one.sequences for one in held if one.sequences} == sequences
        assert sum(one.blocks for one in held) == sum(1 for _ in kv.blocks())
        hittable = sum(block.hittable for block in kv.blocks())
        assert hittable <= sum(one.valid for one in held)
        seen += any(one.valid < one.sequences + one.blocks for one in held)
    assert seen > 20
    for _, seq in running:
        seq.release()
    kv.sweep()
    assert sum(one.valid for one in kv.held()) == sum(one.blocks for one in kv.held()) == kv.counts().cached > 0
