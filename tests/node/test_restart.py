"""What a node finds on disk when it starts: all that it can prove comes back, the rest is emptied, nothing raises; and which
parts it takes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tenure import ConfigError, Identity
from tenure.errors import StoreError
from tenure.node import Level, Node
from tenure.tiers import DiskTier, Int8, Record
from tenure.tiers.base import Tier
from tests.node.making import SIZE, WHO, WrongBytesError, disk, host, kv_of, node, prompt, serve


def kept(folder: Path, blocks: int = 4, who: Identity = WHO, **asked: Any) -> list[tuple[int, Record]]:
    """A store with prompt 0; what is in it."""
    with node(8, Level(disk(folder))) as kv:
        serve(kv, prompt(0, blocks), who, **asked)
    with disk(folder) as tier:
        return sorted(tier.scan(), key=lambda entry: entry[1].depth)


def put(folder: Path, frame: int, record: Record, data: Any = None) -> None:
    with disk(folder) as tier:
        data = kv_of(WHO, record.token_ids.tolist()) if data is None else data
        assert tier.write([frame], [data], [record]) == [None]


def found(folder: Path, blocks: int = 4, who: Identity = WHO, **asked: Any) -> int:
    """How many blocks of prompt 0 a new node has; each is then served, and proven."""
    with node(8, Level(disk(folder))) as kv:
        frames = kv.levels["disk"].tier.frames
        there = kv.match(prompt(0, blocks), who, **asked).lower
        restored = sum(kv.block(frame, "disk") is not None for frame in range(frames))
        assert kv.tier_stats("disk").free + restored == frames
        kv.check()
        assert serve(kv, prompt(0, blocks), who, **asked) == len(there) * SIZE
        kv.check()
        return len(there)


def test_two_tiers_on_disk_both_give_back_what_they_kept(tmp_path: Path) -> None:
    def levels(frames_mib: int) -> list[Level]:
        return [Level(disk(tmp_path / "near", frames_mib, name="near")), Level(disk(tmp_path / "far", 8, name="far"))]

    with node(8, *levels(1)) as kv:
        near = kv.levels["near"].tier.frames
        texts = [prompt(0, 4)[: 2 * SIZE] + prompt(which, 6) for which in range(1, 2 + near // 5)]  # more than the first can keep
        for text in texts:
            serve(kv, text)
            kv.flush()
        before = [kv.match(text, WHO).lower for text in texts]
        counts = [kv.levels[name].tier.frames - kv.tier_stats(name).free for name in ("near", "far")]
        assert counts[0] < counts[1]
    with node(8, *levels(1)) as kv:
        kv.check()
        assert [kv.levels[name].tier.frames - kv.tier_stats(name).free for name in ("near", "far")] == counts
        assert sum(len(kv.match(text, WHO).lower) for text in texts) >= sum(map(len, before))
        for text in texts:
            assert serve(kv, text) == len(text)
        kv.check()
        kv.clear()
        kv.check()
        assert kv.tier_stats("near").free == kv.levels["near"].tier.frames


def test_the_earlier_expiry_of_two_copies_counts(tmp_path: Path) -> None:
    now = [0.0]
    settings: dict[str, Any] = {"clock": lambda: now[0], "wall": lambda: now[0] + 1e9}
    for name, seconds in (("near", 100.0), ("far", 50.0)):
        with node(8, Level(disk(tmp_path / name, name=name)), **settings) as kv:
            serve(kv, prompt(0, 2), expire_after=seconds)
    with node(8, *(Level(disk(tmp_path / name, name=name)) for name in ("near", "far")), **settings) as kv:
        assert kv.match(prompt(0, 2), WHO).lower == ("near",) * 2
        now[0] = 50.0
        kv.sweep()
        kv.check()
        assert kv.match(prompt(0, 2), WHO).lower == ()


def test_a_lossy_copy_does_not_answer_after_a_restart_that_no_longer_lets_it(tmp_path: Path) -> None:
    def tier() -> DiskTier:
        return disk(tmp_path / "store", codec=Int8())

    with node(8, Level(tier(), lossy_answers=True)) as kv:
        serve(kv, prompt(0, 4))
    with node(8, Level(tier())) as kv:
        assert kv.match(prompt(0, 4), WHO).lower == ()
        assert kv.tier_stats("disk").free == kv.levels["disk"].tier.frames


def test_the_first_of_two_equal_records_counts_and_the_other_is_emptied(tmp_path: Path) -> None:
    entries = kept(tmp_path / "store")
    put(tmp_path / "store", 60, entries[2][1], kv_of(WHO, prompt(0, 3)))
    assert found(tmp_path / "store") == 4
    with disk(tmp_path / "store") as tier:
        assert len(list(tier.scan())) == 4


def test_what_has_lost_the_blocks_before_it_is_emptied(tmp_path: Path) -> None:
    entries = kept(tmp_path / "store")
    with disk(tmp_path / "store") as tier:
        tier.erase([entries[1][0]])
    assert found(tmp_path / "store") == 1
    with disk(tmp_path / "store") as tier:
        assert len(list(tier.scan())) == 1 + 3  # those that have been served again


@pytest.mark.parametrize(
    "change",
    [
        {"tokens": np.full(SIZE, 1 << 31, "<u4").tobytes()},
        {"digest": bytes(31) + b"\1"},
        {"parent": bytes(31) + b"\1"},
        {"extra": b"another image"},
        {"depth": 4_000_000_000},
        {"tokens": np.arange(SIZE).astype("<u4").tobytes()},
    ],
    ids=["token", "digest", "parent", "extra", "depth", "tokens"],
)
def test_a_record_that_proves_nothing_is_a_miss(tmp_path: Path, change: dict[str, Any]) -> None:
    """Its checksum is right: it was written so."""
    entries = kept(tmp_path / "store")
    frame, record = entries[3]
    put(tmp_path / "store", frame, replace(record, **change), kv_of(WHO, prompt(7, 4)))
    assert found(tmp_path / "store") == 3


def test_a_namespace_that_nobody_can_read_is_dropped_with_its_blocks(tmp_path: Path) -> None:
    kept(tmp_path / "store")
    for value in (b"", b"\xff", msgspec.msgpack.encode({"model": 5}), WHO.with_(model="n").dump()):
        with disk(tmp_path / "store") as tier:
            tier.put_namespace(WHO.namespace, value)
        assert found(tmp_path / "store") == 0


def test_a_disk_smaller_than_before_keeps_what_fits(tmp_path: Path) -> None:
    with node(80, Level(disk(tmp_path / "store", 2))) as kv:
        for which in range(20):
            serve(kv, prompt(which, 4))
            kv.flush()
        held = sum(len(kv.match(prompt(which, 4), WHO).frames) for which in range(20))
        assert held == 80
    with node(8, Level(disk(tmp_path / "store", 1))) as kv:
        kv.check()
        tier = kv.levels["disk"].tier
        there = sum(len(kv.match(prompt(which, 4), WHO).lower) for which in range(20))
        assert kv.tier_stats("disk").free + there == tier.frames
        assert there > 0
        for which in range(20):
            serve(kv, prompt(which, 4))


def test_more_blocks_on_disk_than_the_device_and_host_have_frames(tmp_path: Path) -> None:
    with node(80, Level(disk(tmp_path / "store"))) as kv:
        serve(kv, list(range(70 * SIZE)))
    with node(4, Level(host(2)), Level(disk(tmp_path / "store"))) as kv:
        assert len(kv.match(list(range(70 * SIZE)), WHO).lower) == 70
        assert serve(kv, list(range(4 * SIZE))) == 4 * SIZE
        kv.flush()
        assert serve(kv, list(range(3 * SIZE))) == 3 * SIZE
        kv.check()


def test_an_invalidation_reaches_namespaces_whose_blocks_could_not_be_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(tmp_path / "store")
    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", lambda *_: (_ for _ in ()).throw(OSError(5, "the medium failed")))
        kv = node(8, Level(disk(tmp_path / "store", direct=False)))
        assert kv.match(prompt(0, 4), WHO).lower == ()
    assert kv.invalidate(weights="w") == 1
    kv.close()
    assert found(tmp_path / "store") == 0


def test_what_was_cleared_does_not_come_back(tmp_path: Path) -> None:
    with node(8, Level(disk(tmp_path / "store"))) as kv:
        serve(kv, prompt(0, 4))
        kv.flush()
        with kv.sequence(prompt(1, 2), WHO) as seq:
            seq.seal()
            kv.flush()
            assert kv.clear() == 4
    with disk(tmp_path / "store") as tier:
        assert len(list(tier.scan())) == 2  # what was in use
    assert found(tmp_path / "store") == 0


def test_expiry_is_kept_by_the_clock_on_the_wall(tmp_path: Path) -> None:
    """A wall clock that stepped back in between gives content more time by as much, one that stepped ahead less: no record can
    know. What has no expiry comes back in any case."""
    now, wall = [0.0], [1e9]
    settings: dict[str, Any] = {"clock": lambda: now[0], "wall": lambda: wall[0]}
    with node(8, Level(disk(tmp_path / "store")), **settings) as kv:
        serve(kv, prompt(0, 2), expire_after=50.0)
        serve(kv, prompt(1, 2))
    now[0], wall[0] = 7.0, 1e9 - 10
    with node(8, Level(disk(tmp_path / "store")), **settings) as kv:
        assert len(kv.match(prompt(0, 2), WHO).lower) == 2
        now[0] += 59.9
        assert len(kv.match(prompt(0, 2), WHO).lower) == 2
        now[0] = 0.0  # the manager's own clock stepped back: nothing un-expires, nothing breaks
        assert len(kv.match(prompt(0, 2), WHO).lower) == 2
        now[0] = 67.1
        assert kv.match(prompt(0, 2), WHO).lower == ()
        kv.check()
    wall[0] = 2e9
    with node(8, Level(disk(tmp_path / "store")), **settings) as kv:
        assert kv.match(prompt(0, 2), WHO).lower == ()
        assert len(kv.match(prompt(1, 2), WHO).lower) == 2


def test_a_store_with_the_bytes_of_another_block_is_noticed(tmp_path: Path) -> None:
    """The control: a record of one block over the bytes of another, as no crash leaves them and as only somebody could write
    them; what the checks of these tests look at would find it."""
    entries = kept(tmp_path / "store")
    put(tmp_path / "store", entries[2][0], entries[2][1], kv_of(WHO, prompt(9, 1)))
    with pytest.raises(WrongBytesError):
        found(tmp_path / "store")


# -- parts that do not fit


@pytest.mark.parametrize("lower", [lambda tier: [tier], lambda tier: [Level("disk")], lambda tier: ["disk"], lambda tier: [None]])
def test_what_is_no_level_is_a_typed_error(lower: Callable[[Tier], Any]) -> None:
    with pytest.raises(ConfigError, match="a Level with a Tier is needed"):
        node(8, *lower(host(4)))


def test_two_tiers_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="one name"):
        node(8, Level(host(4)), Level(host(8)))
    with pytest.raises(ConfigError, match="other than 'device'"):
        node(8, Level(host(4, name="device")))


def test_more_tiers_than_there_can_be_are_refused() -> None:
    with pytest.raises(ConfigError):
        node(8, *(Level(host(4, name=str(number))) for number in range(4)))


def test_a_tier_and_a_device_belong_to_one_node_until_it_is_closed(tmp_path: Path) -> None:
    tier = host(8)
    kv = node(8, Level(tier))
    with pytest.raises(ConfigError, match="'host' is in use by another node"):
        node(8, Level(tier))
    with pytest.raises(ConfigError, match="the device is in use by another node"):
        Node(kv.device, [Level(host(8))], SIZE)
    kv.close()
    Node(kv.device, [Level(host(8))], SIZE, background=False).close()
    serve(kv, prompt(0, 2))


def test_a_node_that_could_not_be_made_leaves_its_parts_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = disk(tmp_path / "store")

    def broken(*_: Any) -> int:
        raise StoreError("no")

    with monkeypatch.context() as patch:
        patch.setattr("tenure.node.restore", broken)
        with pytest.raises(StoreError):
            node(8, Level(tier))
    node(8, Level(tier)).close()
