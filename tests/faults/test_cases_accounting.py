"""Faults seen in the field, and what must hold instead: references, pins, accounting (rows 1 to 12)."""

from __future__ import annotations

import random
import threading

import pytest
from conftest import Build
from helpers import Clock, admit, evicted_since, hit_blocks, prompt, put, resident, unchanged, victims

from tenure import BlockManager, Identity, Sequence, State
from tenure.errors import BudgetError, CapacityError, ForeignHandleError, StaleHandleError


@pytest.mark.parametrize("end", ["release", "cancel", "expiry"])
def test_a_lookup_is_a_lease_that_ends(build: Build, clock: Clock, who: Identity, end: str) -> None:
    """row 1: blocks that a look-up found and nobody fetched are let go by its end, its cancellation or its deadline."""
    kv = build(2)
    put(kv, who, 1, 2)
    lease = kv.lookup(prompt(1, 2), who, owner="loader", ttl=30)
    assert kv.victims("acme") == []
    if end == "release":
        lease.release()
    elif end == "cancel":
        with pytest.raises(KeyboardInterrupt), lease:
            raise KeyboardInterrupt
    else:
        clock.advance(30)
    put(kv, who, 3, 4)
    assert resident(kv) == {3, 4}


@pytest.mark.parametrize("kind", ["pin", "lookup"])
@pytest.mark.parametrize("first", ["reference", "lease"])
def test_whichever_of_reference_and_lease_goes_last_frees(build: Build, who: Identity, first: str, kind: str) -> None:
    """row 2: a block becomes evictable when both are gone, in either order."""
    kv = build(2)
    seq = admit(kv, who, 1)
    seq.seal()
    ttl = {"ttl": 100.0}
    lease = kv.pin(prompt(1), who, owner="o", **ttl) if kind == "pin" else kv.lookup(prompt(1), who, owner="o", **ttl)
    steps = [seq.release, lease.release]
    if first == "lease":
        steps.reverse()
    steps[0]()
    assert kv.victims("acme") == []
    steps[1]()
    assert victims(kv, who) == [1]


@pytest.mark.parametrize("first", ["reference", "lease"])
def test_whichever_goes_last_gives_an_invalidated_block_back(build: Build, who: Identity, first: str) -> None:
    """row 2: the same when the namespace was invalidated in between: then the last one's end makes it Free."""
    kv = build(2)
    seq = admit(kv, who, 1)
    lease = kv.lookup(prompt(1), who, owner="o", ttl=100)
    kv.invalidate(model=who.model)
    steps = [seq.release, lease.release]
    if first == "lease":
        steps.reverse()
    steps[0]()
    assert kv.counts().free == 1
    steps[1]()
    assert kv.counts().free == 2


def test_a_pin_released_twice_takes_no_other_pin_with_it(build: Build, who: Identity) -> None:
    """row 3: pins are tokens; releasing one twice is harmless, and a pinned block is never evictable."""
    kv = build(4)
    put(kv, who, 1)
    first, second = (kv.pin(prompt(1), who, owner=owner) for owner in ("a", "b"))
    assert [first.release(), first.release(), kv.release_lease(first.id)] == [True, False, False]
    assert [block.pins for block in kv.blocks()] == [1]
    for name in range(10, 20):
        put(kv, who, name)
    assert 1 in resident(kv)
    assert second.release() is True
    assert [block.pins for block in kv.blocks() if block.tokens[0] == 1000] == [0]


def test_releasing_a_pin_that_was_never_given_is_a_typed_error(build: Build, who: Identity) -> None:
    """row 3: an unknown lease, another manager's lease, and a sequence's handle are not leases."""
    kv, elsewhere = build(4), build(4)
    put(kv, who, 1)
    lease = kv.pin(prompt(1), who, owner="a")
    with unchanged(kv):
        with pytest.raises(StaleHandleError):
            kv.release_lease(lease.id + 1)
        with pytest.raises(StaleHandleError):
            kv.release_lease(lease.id + (5 << 37))  # a life that has not been yet
        with pytest.raises(ForeignHandleError):
            elsewhere.release_lease(lease.id)
    lease.release()
    with pytest.raises(StaleHandleError):
        kv.release_lease(lease.id + (1 << 37))  # the next life of its place, which nobody has been given yet


def test_a_sequences_handle_releases_no_lease(build: Build, who: Identity) -> None:
    """row 3, row 8: both are numbers that count up, and yet neither is ever taken for the other."""
    kv = build(4)
    put(kv, who, 1)
    kv.pin(prompt(1), who, owner="first").release()
    lease = kv.pin(prompt(1), who, owner="second")
    with admit(kv, who, 3) as seq:
        with pytest.raises((StaleHandleError, ForeignHandleError)):
            kv.release_lease(seq.handle)
        assert [info.id for info in kv.leases()] == [lease.id]
        with pytest.raises((StaleHandleError, ForeignHandleError)):
            kv.resume(lease.id)


def assert_queue_is_exact(kv: BlockManager, who: Identity) -> None:
    """In the evictable queue ⇔ Cached, no reference, no hold, no pin, no child in the tree."""
    kv.leases()  # what is due goes first
    blocks = list(kv.blocks())
    parents = {block.parent_frame for block in blocks if block.hittable}
    for block in blocks:
        idle = (block.refs, block.holds, block.pins) == (0, 0, 0)
        assert block.evictable == (block.state is State.CACHED and idle and block.frame not in parents)
    assert sorted(kv.victims(who.account)) == sorted(block.frame for block in blocks if block.evictable)
    kv.check()


def test_the_evictable_queue_is_exact_after_every_step(build: Build, clock: Clock, who: Identity) -> None:
    """row 4: a pinned, held or referenced block is never in the queue; an idle leaf always is."""
    kv = build(24, pin_budget=1.0)
    put(kv, who, 0)
    rng = random.Random(4)
    running: list[Sequence] = []
    for step in range(500):
        clock.advance(0.5)
        names = [rng.randrange(3) for _ in range(rng.randrange(1, 4))]
        act = rng.choice(["admit", "append", "fork", "release", "release", "pin", "lookup", "protect"])
        try:
            if act == "admit":
                running.append(admit(kv, who, *names))
            elif act == "append" and running:
                rng.choice(running).append(prompt(rng.randrange(3)))
            elif act == "fork" and running:
                running.append(rng.choice(running).fork())
            elif act == "release" and running:
                running.pop(rng.randrange(len(running))).release()
            elif act == "pin":
                kv.pin(prompt(*names), who, owner=str(step), ttl=rng.random() * 5)
            elif act == "lookup":
                kv.lookup(prompt(*names), who, owner=str(step), ttl=rng.random() * 5)
            elif act == "protect":
                kv.protect(prompt(*names), who, ttl=rng.random() * 5)
        except (CapacityError, BudgetError):
            pass
        assert_queue_is_exact(kv, who)
    for seq in running:
        seq.release()


def test_releasing_a_sequence_twice_raises_and_changes_nothing(build: Build, who: Identity) -> None:
    """row 5: one block freed twice would corrupt the free list."""
    kv = build(4)
    seq = kv.sequence([*prompt(1), 5], who)
    seq.release()
    with unchanged(kv):
        for call in (seq.release, seq.abort, seq.fork, seq.seal, seq.copied):
            with pytest.raises(StaleHandleError):
                call()
        with pytest.raises(StaleHandleError):
            seq.append([1])
        with pytest.raises(StaleHandleError):
            seq.truncate(0)


def test_a_hit_is_held_before_anything_is_evicted_for_the_same_request(build: Build, who: Identity) -> None:
    """row 6: the longest unused block is the hit itself, and the pool is full."""
    kv = build(4)
    put(kv, who, 1, 2)
    put(kv, who, 3)
    put(kv, who, 4)
    seq = admit(kv, who, 1, 2, 5, 6)
    assert seq.hit_tokens == 8
    assert len(set(seq.block_table)) == 4
    seq.release()


def test_threads_never_share_a_frame_that_does_not_hold_their_tokens(build: Build, who: Identity) -> None:
    """row 6: eight threads on a pool that is too small for them; what each holds is what each asked for."""
    kv = build(12)
    wrong: list[str] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(150):
            tokens = prompt(*(rng.randrange(3) for _ in range(rng.randrange(1, 4))))
            try:
                seq = kv.sequence(tokens, who, written=True)
            except CapacityError:
                continue
            table = [int(frame) for frame in seq.block_table]
            held = [token for frame in table for token in kv.block(frame).tokens]  # type: ignore[union-attr]
            if held != tokens or len(set(table)) != len(table):
                wrong.append(f"{tokens} are not {held} in {table}")
            seq.release()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert kv.check().free + kv.counts().cached == 12


@pytest.mark.parametrize("partial", [0, 1])
def test_a_failed_admission_leaves_every_counter_and_queue_as_it_was(build: Build, who: Identity, partial: int) -> None:
    """row 7: hits, pins and free frames are there, and yet it is one frame too few."""
    kv = build(6, partial_reuse=partial)
    put(kv, who, 1, 2)
    put(kv, who, 3)
    kv.pin(prompt(3), who, owner="ops")
    running = kv.sequence([*prompt(1, 4), 9], who)
    with unchanged(kv):
        for names in [(1, 2, 5, 6, 7), (3, 5, 6, 7), (5, 6, 7), (1, 4, 5, 6)]:
            with pytest.raises(CapacityError):
                admit(kv, who, *names)
        with pytest.raises(CapacityError):
            running.append(prompt(7, 8, 9))
    running.release()


def test_giving_up_between_match_and_use_leaks_nothing(build: Build, who: Identity) -> None:
    """row 7: match holds nothing; abort gives everything back."""
    kv = build(6)
    put(kv, who, 1, 2)
    with unchanged(kv):
        kv.match(prompt(1, 2, 3), who)
    before = kv.counts()
    kv.sequence(prompt(1, 2, 3), who).abort()
    assert kv.counts() == before


def test_a_stale_handle_is_a_typed_error_and_its_slot_has_a_new_owner(build: Build, who: Identity) -> None:
    """row 8: sequences and blocks are reused, handles are not."""
    kv = build(2)
    old = admit(kv, who, 1)
    handle = old.handle
    block = kv.block(int(old.block_table[0]))
    assert block is not None
    old.release()
    kv.clear()
    new = admit(kv, who, 2)
    assert new.handle != handle
    fresh = kv.block(int(new.block_table[0]))
    assert fresh is not None
    assert fresh.handle[0] == block.handle[0]
    assert fresh.handle[1] > block.handle[1]
    with unchanged(kv):
        with pytest.raises(StaleHandleError):
            old.release()
        with pytest.raises(StaleHandleError):
            kv.resume(handle)
    kv.resume(new.handle).release()
    with pytest.raises(StaleHandleError):
        new.release()
    new.__exit__(ValueError, ValueError(), None)  # what a failing with-block does: nothing is left to give back


def test_a_handle_of_another_manager_is_a_typed_error(build: Build, who: Identity) -> None:
    """row 8: the same number may name somebody else's sequence there."""
    here, there = build(2), build(2)
    mine, theirs = admit(here, who, 1), admit(there, who, 1)
    with pytest.raises(ForeignHandleError):
        there.resume(mine.handle)
    mine.release()
    theirs.release()


def test_a_sequence_dropped_without_release_is_released_by_the_next_admission(build: Build, who: Identity) -> None:
    """row 8: and one that was released by its number is not released again."""
    kv = build(2)
    with pytest.warns(ResourceWarning):
        admit(kv, who, 1)
    put(kv, who, 2)
    assert kv.counts().cached == 2
    seq = admit(kv, who, 1)
    kv.resume(seq.handle).release()
    with pytest.warns(ResourceWarning):
        del seq
    put(kv, who, 2)


def test_sessions_cannot_pin_everything(build: Build, who: Identity) -> None:
    """row 9: anchors, protection and pins have one budget; beyond it is an explicit, counted refusal, never a deadlock."""
    kv = build(20, pin_budget=0.5)
    for user in range(10):
        put(kv, who, 100 + user, 200 + user, session=f"u{user}", anchor_for=1000, protect_for=1000)
    assert kv.totals()["pinned"] == 10
    assert kv.totals()["refused_leases"] == 10
    with pytest.raises(BudgetError) as caught:
        kv.pin(prompt(109, 209), who, owner="ops")
    assert caught.value.numbers["budget"] == 10
    admit(kv, who, *range(10)).release()
    with pytest.raises(CapacityError):
        admit(kv, who, *range(11))


def test_eviction_takes_the_exact_shortfall(build: Build, who: Identity) -> None:
    """row 10: whatever the mix of free, cached and hit blocks."""
    kv = build(30)
    rng = random.Random(10)
    for _ in range(300):
        names = [rng.randrange(12) for _ in range(rng.randrange(1, 12))]
        hit = hit_blocks(kv, who, *names)
        free, mark = kv.counts().free, kv.totals()["events"]
        put(kv, who, *names)
        assert len(evicted_since(kv, mark)) == max(0, len(names) - hit - free)


def test_a_requests_frames_are_reserved_all_or_nothing(build: Build, who: Identity) -> None:
    """row 11: two requests that each want more than half never hold a part and wait for the rest."""
    kv = build(8)
    barrier = threading.Barrier(2)
    got: list[int] = []

    def work(seed: int) -> None:
        for turn in range(100):
            barrier.wait()
            try:
                seq = admit(kv, who, *range(seed + turn * 100, seed + turn * 100 + 5))
            except CapacityError:
                seq = None
            barrier.wait()
            got.append(seq is not None)
            if seq is not None:
                seq.release()
            barrier.wait()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (10, 60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(got) == 100  # each time one of the two
    kv.check()


def test_nothing_waits(build: Build, clock: Clock, who: Identity) -> None:
    """row 12: what cannot be had is refused at once, with the figures; and a hold with a deadline never outlives it."""
    kv = build(2)
    put(kv, who, 1, 2)
    kv.lookup(prompt(1, 2), who, owner="a loader that died", ttl=5)
    for _ in range(3):
        with pytest.raises(CapacityError) as caught:
            admit(kv, who, 3)
        assert caught.value.numbers["short"] == 1
    clock.advance(5)
    put(kv, who, 3, 4)
