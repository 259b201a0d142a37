"""Tiers that hang: nobody waits for ever, nothing piles up, nothing is kept from others, and the rest goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure import BlockManager, LowerTier
from tenure.errors import StaleHandleError
from tenure.node import Level
from tests.node.making import LAYOUT, SIZE, WHO, disk, node, prompt, serve, try_serve
from tests.node.moody import Gated, Moody, ends, filled, started


def test_a_tier_whose_readers_all_hang_costs_nobody_a_wait_and_no_memory() -> None:
    now = [0.0]
    tier = Moody()
    kv = filled(tier, now, deadline=0.05, failures=1 << 20)
    tier.gate.clear()
    lane = kv._lanes["moody"]
    assert lane._readers is not None
    while not lane._readers.stuck:
        kv.sequence(prompt(0, 4), WHO).abort()
    while tier.reads < 8:  # both are in it
        pass
    late, reads = kv.lane_stats("moody").late, tier.reads
    for _ in range(20):
        seq = kv.sequence(prompt(0, 4), WHO)
        assert seq.hit_tokens == 0
        seq.abort()
    assert not lane._readers._jobs
    assert tier.reads == reads
    assert kv.lane_stats("moody").late == late + 20
    tier.gate.set()
    while lane._readers.stuck:
        pass
    lane.deadline = 3600.0
    assert serve(kv, prompt(0, 4)) == 4 * SIZE
    kv.check()


def test_closing_waits_for_no_tier_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.node._AT_THE_END", 0.2)
    tier = Moody()
    kv = node(8, Level(tier, deadline=0.2), background=True)
    tier.gate.clear()
    serve(kv, prompt(0, 4))
    assert tier.asked.wait(60)
    serve(kv, prompt(1, 2))
    closing = started(kv.close)
    assert ends(closing)
    assert serve(kv, prompt(0, 4)) == 4 * SIZE  # it was on the device all along
    tier.gate.set()


def test_closing_without_threads_waits_for_no_tier_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.node._AT_THE_END", 0.2)
    tier = Moody()
    kv = node(8, Level(tier, deadline=0.2))
    serve(kv, prompt(0, 4))
    tier.gate.clear()
    assert ends(started(kv.close))
    tier.gate.set()


def test_a_request_after_closing_waits_for_no_deadline() -> None:
    kv = filled(Moody(), deadline=3600.0)
    kv.close()
    done = started(lambda: serve(kv, prompt(0, 4)))
    assert ends(done)
    assert kv.lane_stats("moody").late == 0
    kv.check()


def test_eviction_does_not_wait_longer_than_the_deadline_for_a_tier_that_is_written_to_first() -> None:
    tier = Moody()
    kv = node(8, Level(tier, write="back", deadline=0.05))
    serve(kv, prompt(0, 4))
    tier.gate.clear()
    request = started(lambda: kv.sequence(prompt(1, 4), WHO).abort())
    assert ends(request)
    request = started(lambda: try_serve(kv, prompt(2, 5)))
    assert ends(request)
    assert kv.lane_stats("moody").late >= 1
    tier.gate.set()


def test_a_write_that_hangs_does_not_keep_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks are let go after the deadline; when it comes to its end, what is still there counts, and nothing else."""
    monkeypatch.setattr("tenure.lane._CHUNK", 8 * LAYOUT.nbytes)
    tier = Moody()
    kv = node(16, Level(tier, deadline=0.05))
    serve(kv, prompt(0, 12))
    serve(kv, prompt(9, 4))
    tier.gate.clear()
    tier.asked.clear()
    writer = started(kv.flush)
    assert tier.asked.wait(60)
    while kv._core.held_by_copies():
        pass
    assert kv.lane_stats("moody").late == 1  # let go: the write has not ended
    kv.check()
    assert serve(kv, prompt(1, 8)) == 0  # evicts some of what is being written
    tier.gate.set()
    assert ends(writer)
    kv.check()
    assert serve(kv, prompt(2, 16)) == 0
    serve(kv, prompt(0, 12))
    kv.flush()
    for which in range(3):
        serve(kv, prompt(which, 8))
    kv.check()
    kv.close()
    assert kv.clear()
    assert kv.tier_stats("moody").free == 64


@pytest.mark.parametrize("end", ["evicted", "invalidated", "stays", "recycled"])
def test_a_write_whose_block_was_let_go_counts_only_if_it_is_still_there(end: str) -> None:
    kv = BlockManager(4, SIZE, lower=[LowerTier("host", 8)])
    kv.sequence(prompt(0, 2), WHO).release()
    orders = kv.take_writes("host")
    for order in orders:
        kv.let_go(order)
        kv.let_go(order)
        kv.check()
    assert kv.take_writes("host") == []
    if end == "invalidated":
        kv.invalidate(model="m")
    elif end != "stays":
        kv.sequence(prompt(1, 4), WHO).abort()
    if end == "recycled":
        kv.sequence(prompt(0, 2), WHO).release()  # the same records, in another life
        assert len(kv.take_writes("host")) == 2
        kv.check()
    assert [kv.finish_write(order, True) for order in orders] == [end == "stays"] * 2
    kv.check()
    with pytest.raises(StaleHandleError):
        kv.let_go(orders[0])
    if end == "stays":
        kv.sequence(prompt(1, 4), WHO).abort()
        assert kv.match(prompt(0, 2), WHO).lower == ("host",) * 2
        kv.clear()
        assert kv.tier_stats("host").free == 8


def test_an_invalidation_does_not_wait_for_a_write_that_hangs() -> None:
    tier = Moody()
    kv = node(8, Level(tier, deadline=30), background=True)
    serve(kv, prompt(9, 1), WHO.with_(tenant="other"))
    tier.gate.clear()
    tier.asked.clear()
    serve(kv, prompt(0, 4))
    assert tier.asked.wait(60)
    assert ends(started(lambda: kv.invalidate(model="m")))
    assert kv.match(prompt(0, 4), WHO).hit_tokens == 0
    tier.gate.set()
    kv.close()
    kv.check()
    assert kv.tier_stats("moody").free == 64 or kv.sweep()


@pytest.mark.parametrize("what", ["put", "drop"])
def test_an_invalidation_counts_at_once_though_the_table_of_namespaces_hangs(what: str, tmp_path: Path) -> None:
    tier = Gated(tmp_path / "store")
    kv = node(8, Level(tier, deadline=0.1))
    new = WHO.with_(weights="new")
    serve(kv, prompt(0, 4))
    kv.flush()
    serve(kv, prompt(0, 2), new)
    tier.asked.clear()
    tier.gate.clear()
    if what == "put":
        writer = started(kv.flush)
        assert tier.asked.wait(60)
    assert ends(started(lambda: kv.invalidate(weights="w")))
    assert kv.match(prompt(0, 4), WHO).hit_tokens == 0
    tier.gate.set()
    if what == "put":
        assert ends(writer)
    kv.flush()
    kv.close()
    with node(8, Level(disk(tmp_path / "store"))) as again:
        assert again.match(prompt(0, 4), WHO).lower == ()  # it was made up for
        assert again.match(prompt(0, 2), new).lower == ("disk",) * 2


def test_a_tier_that_hangs_does_not_hold_up_the_copies_out_of_it_into_another() -> None:
    slow, fast = Moody(name="slow"), Moody(name="fast")
    kv = node(8, Level(slow, deadline=0.1), Level(fast, write="selective", uses=2, deadline=0.1))
    serve(kv, prompt(0, 4))
    kv.flush()
    serve(kv, prompt(0, 4))  # due in the other tier, and then out of the device
    kv.sequence(prompt(1, 8), WHO).abort()
    assert kv.waiting("fast")
    slow.gate.clear()
    assert ends(started(kv.flush))
    assert kv.tier_stats("fast").stored == 0
    slow.gate.set()
    kv.check()
    kv.close()
