# ruff: noqa: E402
"""Faults seen in the field, and what must hold instead: bytes in flight, disk, restart, outage (rows 19, 21, 24 to 27, 30 to 35);
and what the requirements say of the bytes (R2.3, R3.6, R6.1, R6.4)."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
from helpers import in_another_process

for package in ("xxhash", "zstandard", "ml_dtypes"):
    pytest.importorskip(package, reason=f"{package} is not installed: pip install 'tenure[tiers]'")

from tenure import CapacityError
from tenure.errors import StoreError
from tenure.node import Level, Node
from tests.node.making import SIZE, WHO, disk, host, kv_of, node, prompt, serve
from tests.node.moody import Moody, ends, filled, started
from tests.tiers.dying import Killed, dying
from tests.tiers.test_faults import file_limit


def lower(kv: Node, which: int, blocks: int = 4) -> tuple[str, ...]:
    return kv.match(prompt(which, blocks), WHO).lower


def held(kv: Node, tier: str) -> int:
    """Frames of a tier that have a block, or wait for one."""
    return kv.levels[tier].tier.frames - kv.tier_stats(tier).free


# -- bytes and index


@pytest.mark.parametrize("tier", ["host", "disk"])
def test_bytes_that_went_behind_the_index_are_a_miss_and_the_index_follows(tier: str, tmp_path: Path) -> None:
    """row 19: memory that was dropped answers nothing, and is not asked twice."""
    kv = filled(host(64) if tier == "host" else disk(tmp_path / "store"))
    kv.levels[tier].tier.erase(range(16))
    assert serve(kv, prompt(0, 4)) == 0
    assert kv.tier_stats(tier).lost == 4
    assert kv.lane_stats(tier).refused["empty"] == 4
    kv.check()
    kv.close()


def test_an_index_that_is_dropped_takes_the_bytes_with_it(tmp_path: Path) -> None:
    """row 19: in every tier, and for good."""
    with node(8, Level(host(64)), Level(disk(tmp_path / "store"))) as kv:
        serve(kv, prompt(0, 4))
        kv.flush()
        assert kv.clear() == 4
        assert (held(kv, "host"), held(kv, "disk"), kv.counts().free) == (0, 0, 8)
    with node(8, Level(disk(tmp_path / "store"))) as kv:
        assert lower(kv, 0) == ()


WRITER = """
from pathlib import Path
from tests.node.making import Level, disk, node, prompt, serve
with node(8, Level(disk(Path({store!r}))), seed={seed}) as kv:
    serve(kv, prompt(0, 4), extra_keys={{1: b"an image"}})
print(hash("tenure"))
"""


def test_another_process_finds_what_one_has_written_whatever_its_hashes(tmp_path: Path) -> None:
    """row 21: neither Python's hash seed nor the manager's is in what names a block on disk."""
    hashes = []
    for seed in (1, 2):
        store = tmp_path / str(seed)
        code = WRITER.format(store=str(store), seed=seed)
        hashes.append(in_another_process(code, PYTHONHASHSEED=str(seed)))
        with node(8, Level(disk(store)), seed=3) as kv:
            assert serve(kv, prompt(0, 4), extra_keys={1: b"an image"}) == 4 * SIZE
    assert hashes[0] != hashes[1]
    records = [{record.digest for _, record in disk(tmp_path / seed).scan()} for seed in "12"]
    assert records[0] == records[1]


# -- bytes in flight


def test_both_ends_of_a_copy_down_are_held_until_it_is_acknowledged() -> None:
    """row 24: neither the frame that is read nor the one that is written has another block before."""
    tier = Moody(4)
    kv = node(8, Level(tier))
    serve(kv, prompt(0, 4))
    tier.gate.clear()
    tier.asked.clear()
    writer = started(kv.flush)
    assert tier.asked.wait(60)
    assert kv.victims("default") == []
    assert held(kv, "moody") == 4
    before = kv.device.bytes[:4].copy()  # type: ignore[attr-defined]
    with pytest.raises(CapacityError):
        kv.sequence(prompt(1, 5), WHO)
    serve(kv, prompt(1, 4))
    assert (kv.device.bytes[:4] == before).all()  # type: ignore[attr-defined]
    tier.gate.set()
    assert ends(writer)
    assert len(kv.victims("default")) > 0
    kv.check()


def test_both_ends_of_a_copy_up_are_held_until_it_is_acknowledged() -> None:
    """row 24: the lower frame keeps its block while it is read, though its tier is full and another wants in."""
    tier = Moody(4)
    kv = node(16, Level(tier, deadline=30))
    serve(kv, prompt(0, 4))
    kv.flush()
    kv.sequence(prompt(9, 16), WHO).abort()
    serve(kv, prompt(1, 4))  # would take its frames
    tier.gate.clear()
    tier.asked.clear()
    hits: list[int] = []
    loading = started(lambda: hits.append(serve(kv, prompt(0, 4))))
    assert tier.asked.wait(60)
    assert kv.take_writes("moody") == []
    assert kv.tier_stats("moody").no_room > 0
    tier.gate.set()
    assert ends(loading)
    assert hits == [4 * SIZE]
    kv.check()


def test_expiry_during_a_copy_makes_unhittable_at_once_and_frees_when_nobody_reads() -> None:
    """row 25."""
    now = [0.0]
    tier = Moody()
    kv = node(24, Level(tier, deadline=30), clock=lambda: now[0])
    serve(kv, prompt(0, 4), expire_after=10)
    kv.flush()
    for which in (1, 2, 3):
        serve(kv, prompt(which, 8))
    kv.flush()
    before = held(kv, "moody")
    tier.gate.clear()
    tier.asked.clear()
    hits: list[int] = []
    loading = started(lambda: hits.append(serve(kv, prompt(0, 4))))
    assert tier.asked.wait(60)
    now[0] = 11.0
    kv.sweep()
    assert lower(kv, 0) == ()
    assert held(kv, "moody") == before  # it is being read
    kv.check()
    tier.gate.set()
    assert ends(loading)
    assert hits == [0]
    assert held(kv, "moody") == before - 4
    kv.check()


def test_only_a_sealed_block_is_written_down() -> None:
    """row 26: and a sealed one only once it is computed."""
    kv = node(8, Level(host(64)))
    seq = kv.sequence(prompt(0, 4), WHO)
    assert kv.flush() == 0
    seq.seal(2 * SIZE)
    assert kv.flush() == 2
    seq.seal(2 * SIZE + 1)
    assert kv.flush() == 0
    seq.abort()
    assert kv.flush() == 0
    announced = kv.sequence(prompt(1, 4), WHO, written=True)
    assert kv.flush() == 0
    announced.release()
    assert kv.flush() == 4


@pytest.mark.parametrize("fault", ["fails", "raises", "hangs"])
def test_only_a_copy_that_was_proven_counts(fault: str) -> None:
    """row 27: what failed on its way down is not there, what failed on its way up is computed."""
    tier = Moody()
    kv = filled(tier, deadline=0.05)

    def break_it(broken: bool) -> None:
        tier.fails = "io" if broken and fault == "fails" else ""
        tier.raises = broken and fault == "raises"
        tier.gate.clear() if broken and fault == "hangs" else tier.gate.set()

    break_it(True)
    assert serve(kv, prompt(0, 4)) == 0
    assert kv.stats()["default"].missed["tier_failed"] == 4
    break_it(False)
    kv.flush()
    if fault != "hangs":
        break_it(True)
        serve(kv, prompt(5, 4))
        kv.flush()
        assert len(kv.match(prompt(5, 4), WHO).frames) == 4
        serve(kv, prompt(6, 8))
        assert lower(kv, 5) == ()
    kv.check()


# -- disk


def test_the_cap_counts_everything_at_every_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """row 30: slots, entries, tables, what is in flight and what is temporary, under traffic of many times its size."""
    tier = disk(tmp_path / "store", 0.5)
    most = 0
    real = os.pwritev

    def watched(fd: int, buffers: Any, offset: int) -> int:
        nonlocal most
        done = real(fd, buffers, offset)
        most = max(most, tier.used_bytes())
        return done

    monkeypatch.setattr(os, "pwritev", watched)
    with node(8, Level(tier)) as kv:
        for which in range(3 * tier.frames // 4):
            serve(kv, prompt(which, 4), WHO.with_(tenant=str(which % 20)))
            kv.flush()
        assert kv.tier_stats("disk").evicted > tier.frames
        kv.check()
    assert 0 < most <= tier.capacity_bytes == 1 << 19


@pytest.mark.parametrize("how", ["before", "middle", "after"])
def test_after_a_death_all_that_is_whole_is_found_and_all_that_is_torn_is_free(how: str, tmp_path: Path) -> None:
    """row 31: at every change of a file that writing two prompts down makes."""
    at, died = 0, True
    while died:
        folder = tmp_path / str(at)
        with node(16, Level(disk(folder))) as kv:
            serve(kv, prompt(0, 4))
        kv = node(16, Level(disk(folder)))
        serve(kv, prompt(1, 4))
        serve(kv, prompt(2, 4))
        died = False
        with dying(at, how):
            try:
                kv.flush()
            except Killed:
                died = True
        kv.levels["disk"].tier.close()
        with node(16, Level(disk(folder))) as again:
            again.check()
            there = [len(lower(again, which)) for which in range(3)]
            assert there[0] == 4
            assert sum(there) == held(again, "disk")
            assert died or there == [4, 4, 4]
            for which in range(3):
                assert serve(again, prompt(which, 4)) == SIZE * there[which]
            again.flush()
            assert held(again, "disk") == 12
            again.check()
        at += 1
    assert at > 3


OTHER_OWNER = """
from pathlib import Path
from tests.node.making import disk
try:
    disk(Path({store!r}))
except Exception as error:
    print(str(error).partition(":")[0])
"""


def test_a_store_in_use_is_refused_and_keeps_serving_its_owner(tmp_path: Path) -> None:
    """row 32: one owner a store; the second changes nothing."""
    kv = filled(disk(tmp_path / "store"))
    with pytest.raises(StoreError, match="open in this process"):
        disk(tmp_path / "store")
    assert in_another_process(OTHER_OWNER.format(store=str(tmp_path / "store"))).endswith(f"in use by process {os.getpid()}")
    assert serve(kv, prompt(0, 4)) == 4 * SIZE
    kv.close()


def test_a_missing_file_is_a_miss_counted_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """row 33: never an exception in the engine."""
    with node(8, Level(disk(tmp_path / "store", direct=False))) as kv:
        for which in range(6):
            serve(kv, prompt(which, 4))
            kv.flush()
        for segment in (tmp_path / "store").glob("segment-*"):
            os.truncate(segment, 0)
        with caplog.at_level(logging.WARNING, "tenure"):
            for which in range(4):
                assert serve(kv, prompt(which, 4)) == 0
        assert kv.lane_stats("disk").refused["torn"] == 16
        assert len(caplog.records) <= 1
        kv.check()


def test_a_disk_that_is_full_is_counted_and_survived(tmp_path: Path) -> None:
    """row 34: every block that was refused is counted, the others are kept, and later there is room again."""
    kv = node(16, Level(disk(tmp_path / "store", direct=False)))
    serve(kv, prompt(0, 2))
    kv.flush()
    with file_limit(6 * 4096):
        serve(kv, prompt(1, 8))
        kv.flush()
        stats, medium = kv.tier_stats("disk"), kv.lane_stats("disk")
        assert stats.failed >= medium.refused["full"] > 0
        assert stats.stored + stats.failed == 10
        assert stats.stored > 2
    serve(kv, prompt(2, 4))
    kv.flush()
    assert kv.tier_stats("disk").stored == stats.stored + 4
    assert medium.breaker == kv.lane_stats("disk").breaker == "closed"
    kv.check()
    kv.close()


def test_a_tier_that_is_down_costs_a_deadline_a_few_times_and_then_nothing_until_it_is_back() -> None:
    """row 35: deadline, breaker, back-off, one probe; serving goes on without the tier."""
    now = [0.0]
    tier = Moody()
    kv = filled(tier, now, frames=16, deadline=0.02, failures=3)
    tier.gate.clear()
    for _ in range(3):
        kv.sequence(prompt(0, 4), WHO).abort()
    assert kv.lane_stats("moody")[:3] == ("open", 1, 3)
    for which in range(20, 30):
        kv.sequence(prompt(0, 4), WHO).abort()
        assert serve(kv, prompt(which, 4)) == 0
        assert kv.flush() == 0
    assert kv.lane_stats("moody").late == 3
    now[0] += 1.0
    kv.sequence(prompt(0, 4), WHO).abort()  # the probe
    assert kv.lane_stats("moody")[:2] == ("open", 1)
    now[0] += 1.0  # not yet: it waits twice as long now
    kv.sequence(prompt(0, 4), WHO).abort()
    assert kv.lane_stats("moody").late == 4
    tier.gate.set()
    now[0] += 1.0
    while kv._lanes["moody"]._readers.stuck:  # type: ignore[union-attr]
        pass
    kv._lanes["moody"].deadline = 3600.0
    assert serve(kv, prompt(0, 4)) == 4 * SIZE
    assert kv.lane_stats("moody").breaker == "closed"
    kv.check()


# -- what the requirements say


def test_r2_3_a_shared_block_is_copied_before_its_writer_writes() -> None:
    """The source is held until the copy is said to be made; reader and writer then each have bytes of their own."""
    kv = node(4, Level(host(16)))
    device: Any = kv.device
    tokens = [*prompt(0, 1), 7, 8]
    first = kv.sequence(tokens, WHO)
    device.bytes[first.block_table[0]] = kv_of(WHO, prompt(0, 1))
    device.bytes[first.block_table[1]] = 1  # two of its tokens
    first.seal()
    second = first.fork()
    [copy] = second.append([9], written=False).copies
    first.release()
    with pytest.raises(CapacityError):  # nobody gets the source before the copy
        kv.sequence(prompt(5, 2), WHO)
    assert device.bytes[copy.source][0] == 1
    device.write([copy.target], [device.bytes[copy.source]])
    second.copied()
    device.bytes[copy.target][-1] = 2  # the writer writes
    assert (device.bytes[copy.source][-1], device.bytes[copy.target][0]) == (1, 1)
    second.append([10])
    second.release()
    kv.flush()
    kv.check()


def test_r3_6_what_leaves_a_tier_sinks_to_the_next_and_each_goes_by_its_own_policy(tmp_path: Path) -> None:
    kv = node(
        8,
        Level(host(4), policy="fifo", write="back"),
        Level(host(8, name="slow"), policy="lfu", write="back"),
        Level(disk(tmp_path / "store"), policy="gdsf", write="back"),
        policy="lru",
    )
    assert [kv.policy_of(tier) for tier in kv.tiers] == ["lru", "fifo", "lfu", "gdsf"]
    seen: dict[int, list[str]] = {which: [] for which in range(6)}
    for which in range(6):
        serve(kv, prompt(which, 4))
        for earlier in range(which + 1):
            found = kv.match(prompt(earlier, 4), WHO)
            assert len(found.frames) + len(found.lower) == 4, "nothing is lost on the way"
            seen[earlier] += sorted({"device" for _ in found.frames} | set(found.lower))
        kv.check()
    order = [tier for place, tier in enumerate(seen[0]) if tier not in seen[0][:place]]
    assert order == ["device", "host", "slow", "disk"]
    for which in range(6):
        assert serve(kv, prompt(which, 4)) == 4 * SIZE
    kv.check()
    kv.close()


def test_r6_1_new_weights_make_the_old_kv_unhittable_in_every_tier_in_flight_and_after_a_restart(tmp_path: Path) -> None:
    tier = Moody()
    kv = node(16, Level(tier, deadline=30), Level(disk(tmp_path / "store")))
    new = WHO.with_(weights="new")
    serve(kv, prompt(0, 4))
    serve(kv, prompt(0, 4), new)
    kv.flush()
    serve(kv, prompt(1, 4))  # waits to be written
    kv.sequence(prompt(9, 12), WHO.with_(tenant="other")).abort()
    tier.gate.clear()
    tier.asked.clear()
    hits: list[int] = []
    loading = started(lambda: hits.append(serve(kv, prompt(0, 4))))
    assert tier.asked.wait(60)
    assert kv.invalidate(weights="w") == 2
    assert lower(kv, 0) == () == lower(kv, 1)
    tier.gate.set()
    assert ends(loading)
    assert hits == [0]
    kv.flush()
    assert serve(kv, prompt(0, 4), new) == 4 * SIZE
    kv.check()
    kv.close()
    with node(16, Level(disk(tmp_path / "store"))) as again:
        assert lower(again, 0) == () == lower(again, 1)
        assert serve(again, prompt(0, 4), new) == 4 * SIZE


@pytest.mark.parametrize("field", ["adapter", "quantisation", "kv_dtype", "tenant"])
def test_r6_4_kv_of_another_adapter_or_quantisation_is_never_given_in_any_tier(field: str, tmp_path: Path) -> None:
    """The same tokens under two identities: each gets its own bytes, from memory, from disk and after a restart."""
    other = WHO.with_(**{field: "x"})
    with node(8, Level(host(64)), Level(disk(tmp_path / "store"))) as kv:
        serve(kv, prompt(0, 4))
        assert serve(kv, prompt(0, 4), other) == 0
        kv.flush()
        serve(kv, prompt(1, 8))
        assert serve(kv, prompt(0, 4), other) == 4 * SIZE  # serve() looks at whose bytes they are
        assert serve(kv, prompt(0, 4)) == 4 * SIZE
    with node(8, Level(disk(tmp_path / "store"))) as kv:
        assert serve(kv, prompt(0, 4), other) == 4 * SIZE
        assert serve(kv, prompt(0, 4)) == 4 * SIZE
