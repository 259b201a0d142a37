"""What goes wrong in a tier is a miss: late, hanging, failing, torn, deleted, full, closed; and several requests at once."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from tenure import CapacityError, StateError
from tenure.errors import StoreError
from tenure.node import Level, Node
from tests.node.making import LAYOUT, SIZE, WHO, disk, host, node, prompt, serve, try_serve
from tests.node.moody import Moody, filled


def test_a_tier_that_hangs_makes_a_miss_after_its_deadline_and_is_left_alone() -> None:
    now = [0.0]
    tier = Moody()
    kv = filled(tier, now, deadline=0.02, failures=2)
    tier.gate.clear()
    try:
        assert serve(kv, prompt(0, 4)) == 0
        kv.clear()
    finally:
        tier.gate.set()
    assert kv.lane_stats("moody").late == 1
    kv.check()


def test_what_comes_too_late_is_written_nowhere() -> None:
    tier = Moody()
    kv = filled(tier, deadline=0.02)
    tier.gate.clear()
    serve(kv, prompt(0, 4))
    before = kv.device.bytes.copy()  # type: ignore[attr-defined]
    tier.gate.set()
    for thread in threading.enumerate():
        if thread.name.startswith("tenure-moody"):
            thread.join(timeout=0.2)
    assert (kv.device.bytes == before).all()  # type: ignore[attr-defined]
    kv._lanes["moody"].deadline = 3600.0
    assert serve(kv, prompt(0, 4)) == 4 * SIZE
    kv.check()


def test_the_breaker_opens_probes_and_closes() -> None:
    now = [0.0]
    tier = Moody()
    kv = filled(tier, now, failures=2)
    tier.fails = "io"
    for which in range(2):
        assert try_serve(kv, prompt(which, 4)) in (0, 4 * SIZE)
        kv.flush()
    serve(kv, prompt(5, 4))
    kv.flush()
    serve(kv, prompt(6, 4))
    kv.flush()
    assert kv.lane_stats("moody").breaker == "open"
    reads = tier.reads
    assert kv.waiting("moody") or kv.tier_stats("moody").failed
    serve(kv, prompt(7, 4))
    assert kv.flush() == 0  # nothing is tried while it is open
    assert tier.reads == reads
    tier.fails = ""
    now[0] += 1.5
    kv.flush()
    assert kv.lane_stats("moody").breaker == "closed"
    assert kv.lane_stats("moody").opened == 1
    serve(kv, prompt(8, 4))
    kv.flush()
    kv.check()


def test_a_defect_in_a_tier_never_reaches_the_engine() -> None:
    tier = Moody()
    kv = filled(tier)
    tier.raises = True
    assert serve(kv, prompt(0, 4)) == 0
    kv.flush()
    tier.raises = False
    kv.check()
    assert kv.counts().active == kv.counts().sealed == 0


def four_at_once(kv: Node, tier: Moody) -> list[int]:
    """The hit tokens of four requests for prompt 0, all admitted while the tier hangs."""
    hits: list[int] = []
    threads = [threading.Thread(target=lambda: hits.append(serve(kv, prompt(0, 4)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert tier.asked.wait(60)
    while kv.counts().active < 16:
        pass
    tier.gate.set()
    for thread in threads:
        thread.join()
    return hits


def test_concurrent_requests_for_one_block_make_one_load() -> None:
    tier = Moody()
    kv = filled(tier, frames=24, deadline=30)
    tier.gate.clear()
    hits = four_at_once(kv, tier)
    assert hits == [4 * SIZE] * 4
    assert tier.reads == 4
    kv.check()


def test_when_the_one_load_fails_every_sharer_computes() -> None:
    tier = Moody()
    kv = filled(tier, frames=24, deadline=30)
    tier.gate.clear()
    tier.fails = "io"
    hits = four_at_once(kv, tier)
    assert sum(hits) <= 3 * 4 * SIZE  # whoever came after the first had sealed may hit that
    kv.check()


def test_an_unrelated_request_does_not_wait_for_a_load() -> None:
    tier = Moody()
    kv = filled(tier, frames=24, deadline=30)
    tier.gate.clear()
    waiting = threading.Thread(target=lambda: serve(kv, prompt(0, 4)))
    waiting.start()
    assert tier.asked.wait(60)
    assert serve(kv, prompt(3, 8)) == 8 * SIZE
    assert serve(kv, prompt(9, 2)) == 0
    assert waiting.is_alive()
    tier.gate.set()
    waiting.join()
    kv.check()


def test_a_sequence_dropped_while_it_loads_leaks_nothing() -> None:
    kv = filled(Moody())
    seq = super(Node, kv).sequence(prompt(0, 4), WHO)
    assert len(seq.loads) == 4
    with pytest.raises(StateError, match="loads have not been finished"):
        seq.append([1])
    seq.abort()
    kv.check()
    assert kv.counts().active == 0
    assert serve(kv, prompt(0, 4)) == 4 * SIZE


def test_invalidated_while_it_loads_is_computed_again() -> None:
    tier = Moody()
    kv = filled(tier, deadline=30)
    tier.gate.clear()
    hits: list[int] = []
    loading = threading.Thread(target=lambda: hits.append(serve(kv, prompt(0, 4))))
    loading.start()
    assert tier.asked.wait(60)
    kv.invalidate(model="m")
    tier.gate.set()
    loading.join()
    assert hits == [0]
    kv.check()
    assert serve(kv, prompt(0, 4)) == 0


@pytest.mark.parametrize("harm", ["truncate", "flip", "delete", "entry"])
def test_a_store_harmed_while_in_use_gives_misses(harm: str, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with node(8, Level(disk(folder))) as kv:
        serve(kv, prompt(0, 4))
        kv.flush()
        serve(kv, prompt(1, 8))
        segments = sorted(folder.rglob("*segment*")) or sorted(
            path for path in folder.rglob("*") if path.stat().st_size >= 1 << 20
        )
        index = next(path for path in folder.rglob("*") if "index" in path.name)
        if harm == "truncate":
            for path in segments:
                with open(path, "r+b") as file:
                    file.truncate(10)
        elif harm == "flip":
            for path in segments:
                data = bytearray(path.read_bytes())
                data[:: LAYOUT.nbytes // 2] = bytes(b ^ 1 for b in data[:: LAYOUT.nbytes // 2])
                path.write_bytes(data)
        elif harm == "delete":
            shutil.rmtree(folder)
        else:
            data = bytearray(index.read_bytes())
            data[::64] = bytes(b ^ 1 for b in data[::64])
            with open(index, "r+b") as file:
                file.write(data)
        hit = serve(kv, prompt(0, 4))
        assert hit == (4 * SIZE if harm == "delete" else 0)  # an open file outlives its name
        kv.check()
        serve(kv, prompt(2, 4))
        kv.flush()
        kv.check()


def test_a_store_has_one_owner(tmp_path: Path) -> None:
    with node(8, Level(disk(tmp_path / "store"))), pytest.raises(StoreError, match=r"in use|owner|locked|pid"):
        disk(tmp_path / "store")


def test_after_close_requests_go_on_without_the_tiers() -> None:
    kv = filled(host(64))
    kv.close()
    assert serve(kv, prompt(0, 4)) == 0
    kv.flush()
    kv.check()


def test_a_lower_tier_that_is_full_refuses_and_counts() -> None:
    kv = node(16, Level(host(4)))
    device: Any = kv.device
    with kv.sequence(prompt(0, 8), WHO) as seq:
        for frame in seq.block_table:
            device.bytes[frame] = 1
        seq.seal()
        kv.flush()
        assert kv.tier_stats("host").stored == 4
        assert kv.tier_stats("host").no_room >= 1
        kv.check()
    kv.check()


def hanging_write(kv: Node, tier: Moody) -> threading.Thread:
    """Begins to write down what is due, into a tier that hangs until its gate is opened."""
    tier.gate.clear()
    tier.asked.clear()
    writer = threading.Thread(target=kv.flush)
    writer.start()
    assert tier.asked.wait(60)
    return writer


def test_a_request_waits_for_the_copies_that_hold_its_frames() -> None:
    tier = Moody()
    kv = node(8, Level(tier))
    serve(kv, prompt(0, 8))
    writer = hanging_write(kv, tier)
    assert kv.counts().cached == 8
    with pytest.raises(CapacityError):
        super(Node, kv)._patiently(lambda: kv._core.admit(0, prompt(1, 8), 0.0, None, False))
    hits: list[int] = []
    reader = threading.Thread(target=lambda: hits.append(serve(kv, prompt(1, 8))))
    reader.start()
    tier.gate.set()
    reader.join()
    writer.join()
    assert hits == [0]
    assert kv.tier_stats("moody").stored >= 8
    kv.check()


def test_one_failed_read_loses_nothing_and_a_second_one_the_block() -> None:
    tier = Moody()
    kv = filled(tier, failures=5)
    tier.fails = "io"
    assert serve(kv, prompt(0, 4)) == 0
    assert kv.tier_stats("moody").lost == 0
    assert kv.match(prompt(0, 4), WHO).hit_tokens == 4 * SIZE
    kv.check()


def test_a_request_that_can_never_fit_is_refused_at_once() -> None:
    tier = Moody()
    kv = node(8, Level(tier))
    serve(kv, prompt(0, 4))
    writer = hanging_write(kv, tier)
    held = kv._core.held_by_copies()
    assert held == 4
    paused: list[float] = []
    kv._mover.paused = lambda seconds: paused.append(seconds)  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(CapacityError):
        kv.sequence(prompt(5, 9), WHO)
    assert not paused
    tier.gate.set()
    writer.join()


def test_a_tier_that_is_down_does_not_gather_more_than_it_could_ever_hold() -> None:
    tier = Moody()
    kv = node(8, Level(tier, write="selective", uses=1, failures=1))
    tier.fails = "io"
    for _ in range(3000):
        serve(kv, prompt(0, 4))
    assert kv.waiting("moody") <= 8
