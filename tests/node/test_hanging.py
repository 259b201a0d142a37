"""Tiers that hang, fail for long or refuse for good: nobody waits for ever, nothing piles up, and the rest goes on."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure import BlockManager, LowerTier
from tenure.breaker import Breaker
from tenure.errors import StaleHandleError, StoreError
from tenure.lane import Lane
from tenure.node import Level
from tenure.readers import Readers
from tenure.staging import Staging
from tenure.tiers import DiskTier, HostTier, Zstd
from tests.node.making import LAYOUT, SIZE, WHO, disk, host, node, prompt, serve, try_serve
from tests.node.moody import Moody, ends, filled, started


class Gated(DiskTier):
    """A disk whose table of namespaces hangs or fails as it is told."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, LAYOUT, 4 << 20, segment_bytes=1 << 20)
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Event()
        self.fails = False

    def _mood(self) -> None:
        self.asked.set()
        self.gate.wait()
        if self.fails:
            raise StoreError("the disk is read-only")

    def put_namespace(self, namespace: bytes, value: bytes) -> None:
        self._mood()
        super().put_namespace(namespace, value)

    def drop_namespace(self, namespace: bytes) -> bool:
        self._mood()
        return super().drop_namespace(namespace)


# -- threads for calls that may hang


def test_a_job_that_is_given_up_before_its_turn_is_never_run_and_holds_nothing() -> None:
    gate, ran = threading.Event(), []
    readers: Readers[None] = Readers("r", threads=1)
    first = readers.submit(lambda: gate.wait() and None)
    while not first.running():
        pass
    readers.give_up(readers.submit(lambda: ran.append(2)))
    assert not readers._jobs
    assert not readers.stuck
    readers.give_up(first)
    assert readers.stuck
    gate.set()
    assert readers.submit(lambda: ran.append(3)).result(30) is None
    assert ran == [3]
    assert not readers.stuck


def test_closed_readers_cancel_what_waits_and_what_comes() -> None:
    gate = threading.Event()
    readers: Readers[bool] = Readers("r", threads=1)
    running = readers.submit(gate.wait)
    while not running.running():
        pass
    waiting = readers.submit(gate.wait)
    readers.close()
    assert waiting.cancelled()
    assert readers.submit(gate.wait).cancelled()
    gate.set()
    assert running.result(30)


# -- the breaker


def test_calls_from_before_it_opened_say_nothing_new() -> None:
    now = [0.0]
    breaker = Breaker(lambda: now[0], failures=2, first=1.0, most=60.0)
    for _ in range(10):  # ten calls that were under way when the tier died
        breaker.failed()
    assert (breaker.state, breaker.opened) == ("open", 1)
    now[0] = 1.0
    assert breaker.allows()
    assert not breaker.allows()
    breaker.failed()
    now[0] = 2.9
    assert not breaker.allows()
    now[0] = 3.0
    assert breaker.allows()
    breaker.succeeded()
    assert breaker.state == "closed"


@pytest.mark.parametrize("call", ["read", "write"])
def test_a_tier_that_raises_is_given_up_and_probed_like_one_that_fails(call: str) -> None:
    now = [0.0]
    tier = Moody()
    kv = filled(tier, now, failures=2)
    tier.raises = True
    for which in range(5, 8):
        if call == "read":
            kv.sequence(prompt(0, 4), WHO).abort()
        else:
            serve(kv, prompt(which, 1))
            kv.flush()
    assert kv.lane_stats("moody").breaker == "open"
    now[0] += 1.5
    if call == "read":
        kv.sequence(prompt(0, 4), WHO).abort()
    else:
        serve(kv, prompt(8, 1))
        kv.flush()
    assert kv.lane_stats("moody").breaker == "open"  # the probe is over
    tier.raises = False
    now[0] += 10
    serve(kv, prompt(9, 1))
    kv.flush()
    assert kv.lane_stats("moody").breaker == "closed"
    kv.check()


def test_one_probe_at_a_time_and_others_go_on_without_the_tier() -> None:
    now = [0.0]
    tier = Moody()
    kv = filled(tier, now, frames=24, failures=1, deadline=30)
    tier.fails = "closed"  # fails, and loses nothing
    kv.sequence(prompt(0, 4), WHO).abort()
    assert kv.lane_stats("moody").breaker == "open"
    tier.fails = ""
    now[0] += 2
    tier.gate.clear()
    tier.asked.clear()
    hits: list[int] = []
    probe = started(lambda: hits.append(serve(kv, prompt(0, 4))))
    assert tier.asked.wait(10)
    assert kv.lane_stats("moody").breaker == "half-open"
    assert try_serve(kv, prompt(9, 2)) == 0
    assert kv.flush() == 0
    tier.gate.set()
    assert ends(probe)
    assert hits == [4 * SIZE]
    assert kv.lane_stats("moody").breaker == "closed"
    kv.check()


def test_a_full_disk_does_not_stop_reads() -> None:
    tier = Moody()
    kv = filled(tier, failures=2)
    tier.fails = "full"
    for which in range(10, 16):
        serve(kv, prompt(which, 1))
        kv.flush()
    tier.fails = ""
    assert kv.lane_stats("moody").breaker == "closed"
    assert kv.lane_stats("moody").refused["full"] >= 6
    assert serve(kv, prompt(0, 4)) == 4 * SIZE


# -- hanging


def test_a_tier_whose_readers_all_hang_costs_nobody_a_wait_and_no_memory() -> None:
    now = [0.0]
    tier = Moody()
    kv = filled(tier, now, deadline=0.05, failures=1 << 20)
    tier.gate.clear()
    lane = kv._lanes["moody"]
    assert lane._readers is not None
    while not lane._readers.stuck:
        kv.sequence(prompt(0, 4), WHO).abort()
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
    assert serve(kv, prompt(0, 4)) == 4 * SIZE
    kv.check()


def test_closing_waits_for_no_tier_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.node._AT_THE_END", 0.2)
    tier = Moody()
    kv = node(8, Level(tier, deadline=0.2), background=True)
    tier.gate.clear()
    serve(kv, prompt(0, 4))
    assert tier.asked.wait(10)
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
    assert tier.asked.wait(10)
    assert kv._core.held_by_copies() > 0
    while kv._core.held_by_copies():
        pass
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
    assert tier.asked.wait(10)
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
        assert tier.asked.wait(10)
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


# -- refused for good


def test_a_drop_that_fails_is_made_up_for_before_anything_else_is_written(tmp_path: Path) -> None:
    tier = Gated(tmp_path / "store")
    kv = node(8, Level(tier))
    serve(kv, prompt(0, 4))
    kv.flush()
    tier.fails = True
    kv.invalidate(weights="w")
    serve(kv, prompt(0, 4))  # the same namespace again: nothing of it may be kept before its past is gone
    kv.flush()
    assert kv.tier_stats("disk").stored == 4
    tier.fails = False
    kv.close()
    with node(8, Level(disk(tmp_path / "store"))) as again:
        assert again.match(prompt(0, 4), WHO).lower == ()


def test_what_comes_back_during_an_invalidation_is_kept_or_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the moment from which nothing is hit and the one at which the disk has dropped it, the namespace is used again."""
    kv = node(8, Level(disk(tmp_path / "store")))
    serve(kv, prompt(0, 4))
    kv.flush()
    real = Lane.settle

    def later(lane: Lane) -> None:
        if kv.match(prompt(0, 4), WHO).hit_tokens == 0:
            serve(kv, prompt(0, 4))
            kv.flush()
        real(lane)

    with monkeypatch.context() as patch:
        patch.setattr(Lane, "settle", later)
        kv.invalidate(weights="w")
    assert kv.tier_stats("disk").stored == 8
    kv.close()
    with node(8, Level(disk(tmp_path / "store"))) as again:
        assert again.match(prompt(0, 4), WHO).lower == ("disk",) * 4


@pytest.mark.parametrize("make", [host, None], ids=["host", "disk"])
def test_a_block_that_cannot_be_named_in_a_tier_is_not_kept_there_and_the_others_are(
    make: Callable[[int], HostTier] | None, tmp_path: Path
) -> None:
    tier = make(64) if make else disk(tmp_path / "store")
    kv = node(16, Level(tier))
    long = {1: b"an image" * 40}
    serve(kv, prompt(0, 4), extra_keys=long)
    serve(kv, prompt(1, 4))
    kv.flush()
    stats = kv.tier_stats(tier.name)
    if make:  # in memory a block needs no name of its own
        assert stats.stored == 8
    else:
        assert (stats.stored, stats.failed) == (5, 3)
        assert kv.lane_stats("disk").refused == {"codec": 1}
    serve(kv, prompt(5, 16))
    assert serve(kv, prompt(0, 4), extra_keys=long) == (16 if make else 4)
    assert serve(kv, prompt(1, 4)) == 16
    kv.check()
    kv.close()


def test_nothing_after_a_block_that_cannot_be_encoded_is_tried_again_and_again() -> None:
    tier = host(64, Zstd(room=0.3))
    kv = node(16, Level(tier), background=False)
    serve(kv, prompt(0, 8))
    while kv.flush():
        pass
    refused = kv.lane_stats("host").refused["codec"]
    serve(kv, [*prompt(0, 8), *prompt(1, 2)])
    kv.flush()
    assert kv.lane_stats("host").refused["codec"] == refused
    assert kv.tier_stats("host").stored == 0


def test_a_table_of_namespaces_that_is_full_keeps_nothing_new_and_says_so(tmp_path: Path) -> None:
    tier = disk(tmp_path / "store")
    kv = node(16, Level(tier))
    serve(kv, prompt(0, 2))
    kv.flush()
    for number in range(3000):
        with contextlib.suppress(StoreError):
            tier.put_namespace(number.to_bytes(32, "big"), bytes(2000 if number < 100 else 1))
    other = WHO.with_(tenant="one too many")
    serve(kv, prompt(0, 2), other)
    serve(kv, prompt(1, 2))
    kv.flush()
    assert kv.lane_stats("disk").refused == {"namespace": 1}
    assert kv.tier_stats("disk").stored == 4
    assert kv.lane_stats("disk").breaker == "closed"
    kv.check()
    kv.close()


def test_memory_for_copies_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.lane._CHUNK", 8 * LAYOUT.nbytes)
    monkeypatch.setattr("tenure.staging._KEPT", 16 * LAYOUT.nbytes)
    kv = node(300, Level(host(600)), Level(host(600, name="slow"), deadline=30, write="back"), addressable=False)
    taken: list[int] = []
    real = Staging.take
    monkeypatch.setattr(Staging, "take", lambda self, count: taken.append(count) or real(self, count))
    for _ in range(3):
        for which in range(3):
            serve(kv, list(range(which * 10_000, which * 10_000 + 250 * SIZE)))
            kv.flush()
    assert kv.tier_stats("host").loaded + kv.tier_stats("slow").loaded >= 250
    assert max(taken) == 8
    assert kv._mover.staging.kept <= 16


def test_what_is_kept_of_blocks_that_are_gone_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.names._LEAST", 20)
    kv = node(8, Level(disk(tmp_path / "store", mib=1)))
    frames = kv.levels["disk"].tier.frames
    for which in range(120):
        serve(kv, prompt(which, 8))
        kv.flush()
    assert len(kv._lanes["disk"].names.digests) <= 2 * (frames + 8) + 20 + 32
    kv.close()


def test_os_errors_of_the_medium_are_its_failure_and_not_the_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kv = node(8, Level(disk(tmp_path / "store")))
    serve(kv, prompt(0, 4))

    def broken(*_: Any) -> int:
        raise OSError(5, "the medium failed")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", broken)
        kv.flush()
    assert kv.tier_stats("disk").failed == 4
    assert kv.lane_stats("disk").refused.get("io", 0) + kv.lane_stats("disk").refused.get("namespace", 0) >= 1
    serve(kv, [*prompt(0, 4), 1, 2, 3, 4])
    kv.flush()
    assert kv.tier_stats("disk").stored == 5
    kv.close()
