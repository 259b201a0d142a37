"""What a tier refuses for good is counted, tried no oftener than it must be, and takes nothing else along; memory has bounds."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure.errors import StoreError
from tenure.lane import Lane
from tenure.node import Level
from tenure.staging import Staging
from tenure.tiers import HostTier, Zstd
from tests.node.making import LAYOUT, SIZE, WHO, disk, host, node, prompt, serve
from tests.node.moody import Gated


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
