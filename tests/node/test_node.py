"""The node: hits in lower tiers have their bytes when a sequence begins, in every arrangement of tiers."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tenure import ConfigError, Identity
from tenure.node import Level, Node
from tenure.tiers import BlockLayout, HostTier, Int8, Zstd
from tests.node.making import LAYOUT, SIZE, WHO, ArrayDevice, WrongBytesError, disk, host, kv_of, node, prompt, serve, try_serve

ARRANGEMENTS = ("host", "host by copies", "disk", "disk in time", "host and disk", "host and disk, back", "host packed")


def arranged(name: str, folder: Path, frames: int = 8) -> Node:
    match name:
        case "host":
            return node(frames, Level(host(64)))
        case "host by copies":
            return node(frames, Level(host(64)), addressable=False)
        case "host packed":
            return node(frames, Level(host(64, Zstd())))
        case "disk":
            return node(frames, Level(disk(folder)))
        case "disk in time":
            return node(frames, Level(disk(folder), deadline=30))
        case "host and disk":
            return node(frames, Level(host(12)), Level(disk(folder), deadline=30))
        case _:
            return node(frames, Level(host(12), write="back"), Level(disk(folder), write="back"))


@pytest.mark.parametrize("name", ARRANGEMENTS)
def test_what_left_the_device_is_a_hit_with_its_bytes(name: str, tmp_path: Path) -> None:
    with arranged(name, tmp_path / "store") as kv:
        for _ in range(2):
            for which in range(4):
                serve(kv, prompt(which, 6))
                kv.flush()
                kv.check()
        assert serve(kv, prompt(0, 6)) == 24
        tiers = kv.tiers[1:]
        assert sum(kv.tier_stats(tier).loaded for tier in tiers) > 0
        assert all(kv.tier_stats(tier).unloaded == 0 for tier in tiers)
        assert all(not kv.lane_stats(tier).refused for tier in tiers)
        kv.check()


@pytest.mark.parametrize("name", ARRANGEMENTS)
@pytest.mark.parametrize("seed", range(4))
def test_random_requests_never_get_wrong_bytes(name: str, seed: int, tmp_path: Path) -> None:
    r = random.Random(seed)
    people = [WHO, WHO.with_(tenant="other")]
    texts = [[r.randint(0, 2) for _ in range(40)] for _ in range(4)]
    hits = 0
    with arranged(name, tmp_path / "store", frames=14) as kv:
        for _ in range(150):
            tokens = r.choice(texts)[: r.randint(0, 40)] + [r.randint(0, 2) for _ in range(r.randint(1, 8))]
            hits += try_serve(kv, tokens, r.choice(people))
            if r.random() < 0.7:
                kv.flush()
            if r.random() < 0.02:
                kv.invalidate(tenant=r.choice(("default", "other")))
            kv.check()
        assert hits
        assert sum(kv.tier_stats(tier).loaded for tier in kv.tiers[1:]) > 0


def test_bytes_that_are_overwritten_are_noticed() -> None:
    """The control: the engine of these tests does look at the bytes of its hits."""
    lower = host(64)
    kv = node(8, Level(lower))
    serve(kv, prompt(0, 6))
    kv.flush()
    serve(kv, prompt(1, 8))
    for frame in range(6):
        lower._slot(frame, LAYOUT.nbytes)[:] = bytes(LAYOUT.nbytes)
    with pytest.raises(WrongBytesError):
        serve(kv, prompt(0, 6))


def test_a_host_tier_that_proves_its_payloads_makes_bad_memory_a_miss() -> None:
    lower = host(64, verify=True)
    kv = node(8, Level(lower))
    serve(kv, prompt(0, 6))
    kv.flush()
    serve(kv, prompt(1, 8))
    lower._slot(2, LAYOUT.nbytes)[5] ^= 1
    assert serve(kv, prompt(0, 6)) == 2 * SIZE  # the third block is computed again, and those after it
    assert kv.lane_stats("host").refused == {"checksum": 1}
    assert kv.tier_stats("host").lost == 4
    kv.flush()
    serve(kv, prompt(1, 8))
    assert serve(kv, prompt(0, 6)) == 6 * SIZE
    kv.check()


@pytest.mark.parametrize("write", ["through", "selective", "back"])
def test_when_blocks_go_down(write: str) -> None:
    kv = node(8, Level(host(64), write=write))
    serve(kv, prompt(0, 4))
    kv.flush()
    assert kv.tier_stats("host").stored == (4 if write == "through" else 0)
    serve(kv, prompt(0, 4))
    kv.flush()
    assert kv.tier_stats("host").stored == (0 if write == "back" else 4)
    serve(kv, prompt(1, 6))
    assert kv.tier_stats("host").stored == 4
    assert serve(kv, prompt(0, 4)) == 4 * SIZE


def test_eviction_sinks_from_tier_to_tier(tmp_path: Path) -> None:
    kv = node(4, Level(host(4)), Level(disk(tmp_path / "store")))
    for which in range(3):
        serve(kv, prompt(which, 4))
        kv.flush()

    found = {which: kv.match(prompt(which, 4), WHO) for which in range(3)}
    assert found[2].hit_tokens == 4 * SIZE
    assert set(found[0].lower) == {"disk"}
    assert len(found[1].lower) == 4
    assert serve(kv, prompt(0, 4)) == 4 * SIZE
    kv.check()


def test_a_request_as_large_as_a_tier_loses_nothing_on_the_way_down() -> None:
    kv = node(100, Level(host(100), write="back"), Level(host(400, name="slow"), write="back"))
    for which in range(250):
        serve(kv, prompt(which, 1))
    serve(kv, list(range(1_000_000, 1_000_000 + 80 * SIZE)))
    for which in range(250):
        found = kv.match(prompt(which, 1), WHO)
        assert len(found.frames) + len(found.lower) == 1, which
    kv.check()


def test_each_tier_has_a_policy_of_its_own() -> None:
    kv = node(8, Level(host(8), policy="fifo"), policy="lru")
    assert (kv.policy_of("device"), kv.policy_of("host")) == ("lru", "fifo")
    kv.set_policy("cost", tier="host")
    assert (kv.policy_of("device"), kv.policy_of("host")) == ("lru", "cost")
    with pytest.raises(ConfigError, match="no tier 'tape'; there are device, host"):
        kv.set_policy("lru", tier="tape")


def test_a_lossy_copy_answers_only_where_that_was_said() -> None:
    kv = node(8, Level(host(64, Int8())))
    serve(kv, prompt(0, 4))
    kv.flush()
    assert kv.tier_stats("host").stored == 0
    coded = WHO.with_(quantisation="int8")

    def near(there: Any, right: Any) -> bool:
        values = [(part.view("<u2").astype(np.uint32) << 16).view(np.float32) for part in (there, right)]
        return bool(np.abs(values[0] - values[1]).max() < 0.1)

    serve(kv, prompt(0, 4), coded)
    kv.flush()
    serve(kv, prompt(1, 8), coded)
    assert serve(kv, prompt(0, 4), coded, same=near) == 4 * SIZE
    assert kv.tier_stats("host").loaded == 4

    said = node(8, Level(host(64, Int8()), lossy_answers=True))
    serve(said, prompt(0, 4))
    said.flush()
    serve(said, prompt(1, 8))
    assert serve(said, prompt(0, 4), same=near) == 4 * SIZE


def test_parts_that_do_not_fit_are_refused() -> None:
    other = BlockLayout.of("bf16", SIZE, layers=3, heads=2, head_size=16)
    with pytest.raises(ConfigError, match="bytes in tier 'host'"):
        node(8, Level(HostTier(other, 4)))
    with pytest.raises(ConfigError, match="blocks of 4 tokens, the node has 8"):
        Node(ArrayDevice(8), [Level(host(4))], 8)
    with pytest.raises(ConfigError, match="deadline"):
        node(8, Level(host(4), deadline=-1))


def test_background_threads_write_what_seals() -> None:
    with node(8, Level(host(64)), background=True) as kv:
        serve(kv, prompt(0, 6))
    assert kv.tier_stats("host").stored == 6


def test_a_flush_waits_for_what_is_being_written() -> None:
    class Waiting(HostTier):
        begun, gate = threading.Event(), threading.Event()

        def _write(self, *given: Any) -> Any:
            self.begun.set()
            self.gate.wait()
            return super()._write(*given)

    stored = []
    with node(8, Level(tier := Waiting(LAYOUT, 64)), background=True) as kv:
        serve(kv, prompt(0, 6))
        assert tier.begun.wait(60)
        flushing = threading.Thread(target=lambda: (kv.flush(), stored.append(kv.tier_stats("host").stored)))
        flushing.start()
        flushing.join(0.05)
        tier.gate.set()
        flushing.join()
    assert stored == [6]


def test_content_that_expires_is_gone_from_every_tier(tmp_path: Path) -> None:
    now = [100.0]
    kv = node(4, Level(host(64)), Level(disk(tmp_path / "store")), clock=lambda: now[0], wall=lambda: now[0] + 1e9)
    serve(kv, prompt(0, 4), expire_after=50)
    kv.flush()
    serve(kv, prompt(1, 4))
    assert len(kv.match(prompt(0, 4), WHO).lower) == 4
    kv.close()
    now[0] += 40
    again = node(4, Level(disk(tmp_path / "store")), clock=lambda: now[0], wall=lambda: now[0] + 1e9)
    assert len(again.match(prompt(0, 4), WHO).lower) == 4
    now[0] += 11
    again.sweep()
    assert again.match(prompt(0, 4), WHO).lower == ()
    again.close()
    third = node(4, Level(disk(tmp_path / "store")), clock=lambda: now[0], wall=lambda: now[0] + 1e9)
    assert third.match(prompt(0, 4), WHO).lower == ()
    third.check()


def test_a_restart_finds_what_was_written(tmp_path: Path) -> None:
    who = Identity(model="m", weights=b"\x00\x01", tenant="acme", adapter="a", kv_dtype="bf16")
    with node(8, Level(disk(tmp_path / "store"))) as kv:
        serve(kv, prompt(0, 6), who, extra_keys={2: b"an image"})
        kv.flush()
        serve(kv, prompt(0, 6), who)
    with node(8, Level(disk(tmp_path / "store"))) as kv:
        kv.check()
        assert serve(kv, prompt(0, 6), who, extra_keys={2: b"an image"}) == 24
        assert serve(kv, prompt(0, 6), who) == 24
        assert kv.match(prompt(0, 6), who.with_(tenant="evil")).lower == ()
        assert list(kv.tenants) == ["acme", "evil"]


def test_invalidation_reaches_the_disk_and_a_restart(tmp_path: Path) -> None:
    new = WHO.with_(weights="new")
    with node(4, Level(disk(tmp_path / "store"))) as kv:
        serve(kv, prompt(0, 4))
        serve(kv, prompt(0, 4), new)
        kv.flush()
        assert kv.invalidate(weights="w") == 1
        assert kv.match(prompt(0, 4), WHO).lower == ()
    with node(4, Level(disk(tmp_path / "store"))) as kv:
        assert kv.match(prompt(0, 4), WHO).lower == ()
        assert serve(kv, prompt(0, 4), new) == 16
        serve(kv, prompt(0, 4))
        kv.flush()
    with node(4, Level(disk(tmp_path / "store"))) as kv:
        assert serve(kv, prompt(0, 4)) == 16


def test_a_pin_brings_up_what_only_a_lower_tier_has() -> None:
    kv = node(16, Level(host(64)))
    serve(kv, prompt(0, 4))
    kv.flush()
    for which in (1, 2):
        serve(kv, prompt(which, 8))
        kv.flush()
    assert kv.match(prompt(0, 4), WHO).lower == ("host",) * 4
    lease = kv.pin(prompt(0, 4), WHO, owner="ops")
    assert lease.tokens == 4 * SIZE
    serve(kv, prompt(3, 8))
    assert kv.match(prompt(0, 4), WHO).hit_tokens == 4 * SIZE
    lease.release()
    kv.check()


def test_what_only_the_host_has_reaches_the_disk_at_the_end(tmp_path: Path) -> None:
    lasting = disk(tmp_path / "store")
    kv = node(4, Level(host(16)), Level(lasting))
    serve(kv, prompt(0, 4))
    for write in kv.take_writes("host"):  # as by the host's thread, with the disk's behind
        kv._lanes["host"].tier.write(
            [write.target],
            [kv.device.views([write.source])[0]],
            [kv._lanes["host"].names.record(write.name)],  # type: ignore[index]
        )
        assert kv.finish_write(write, True)
    with kv.sequence(prompt(1, 4), WHO):
        pass
    assert kv.match(prompt(0, 4), WHO).lower == ("host",) * 4
    assert kv.waiting("disk")
    kv.close()
    with node(4, Level(disk(tmp_path / "store"))) as again:
        assert again.match(prompt(0, 4), WHO).lower == ("disk",) * 4
        assert serve(again, prompt(0, 4)) == 4 * SIZE


def test_a_thread_keeps_the_next_victims_ready_where_blocks_go_down_at_eviction() -> None:
    kv = node(8, Level(host(64), write="back"))
    serve(kv, prompt(0, 3))
    assert kv._clean_ahead("host") == 3
    with kv.sequence(prompt(1, 3), WHO) as seq:
        seq.append(range(5000, 5000 + 5 * SIZE), written=False)  # decoding evicts prompt 0
        assert kv.match(prompt(0, 3), WHO).lower == ("host",) * 3
    kv.check()


@pytest.mark.parametrize(("write", "uses"), [("through", 1), ("selective", 1), ("selective", 2)])
def test_in_lock_step_no_tier_copies_a_block_before_its_sequence_goes_on(write: str, uses: int) -> None:
    """A block sealed at admission has its bytes only after the step; others that use it and go do not change that."""
    kv = node(8, Level(host(64), write=write, uses=uses))
    first = kv.sequence(prompt(0, 2), WHO, written=True)
    for _ in range(3):
        kv.sequence(prompt(0, 2), WHO, written=True).abort()
    second = kv.sequence(prompt(0, 3), WHO, written=True)
    assert kv.flush() == 0
    second.append([1])  # its own block is computed now, but not yet known to be: the one before it is the first's
    assert kv.flush() == 0
    for block, frame in enumerate(second.block_table[:3]):
        kv.device.bytes[frame] = kv_of(WHO, prompt(0, 3)[: (block + 1) * SIZE])  # type: ignore[attr-defined]
    first.append([2])
    second.release()
    first.release()
    kv.flush()
    assert kv.tier_stats("host").stored >= 2
    for which in (1, 2):
        serve(kv, prompt(which, 8))
    assert serve(kv, prompt(0, 2)) == 2 * SIZE
    kv.check()
