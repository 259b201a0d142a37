"""A store over its life: a cap that everything counts against, growing and shrinking, restarts, direct I/O, what sync means."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest

from tenure import Identity
from tenure.errors import ConfigError
from tenure.tiers import DiskTier, Record
from tenure.tiers.files import direct_flag, space_taken

from .making import MIB, PAGED, SMALL, SPACE, block, restored
from .storing import CAP, opened, write

# -- the cap


@pytest.mark.parametrize("direct", [False, None])
def test_the_cap_holds_at_every_moment(tmp_path: Path, direct: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the middle of a replacement, when both copies are there."""
    most = 0
    real = os.replace

    def watching(source: Path, target: Path) -> None:
        nonlocal most
        most = max(most, space_taken(tmp_path / "store"))
        real(source, target)

    monkeypatch.setattr(os, "replace", watching)
    tier = opened(tmp_path, direct=direct)
    rng = np.random.default_rng(0)
    for turn in range(30):
        tier.put_namespace(rng.bytes(32), bytes(1500))
        tier.put_namespace(SPACE, bytes(turn))
        write(tier, *sorted(rng.choice(tier.frames, 5, replace=False).tolist()))
        most = max(most, tier.used_bytes())
    assert CAP // 2 < most <= CAP
    assert tier.capacity_bytes == CAP


def test_what_a_crash_left_behind_is_removed(tmp_path: Path) -> None:
    with opened(tmp_path) as tier:
        tier.put_namespace(SPACE, b"")
        write(tier, 0)
    left = ["namespaces.tenure.tmp", "store.tenure.tmp", "segment-000099.tenure"]
    for name in left:
        (tmp_path / "store" / name).write_bytes(bytes(1000))
    with opened(tmp_path) as tier:
        assert not set(left) & set(os.listdir(tmp_path / "store"))
        assert len(restored(tier)) == 1


def test_a_store_grows_and_keeps_all_and_shrinks_and_keeps_what_fits(tmp_path: Path) -> None:
    with opened(tmp_path) as tier:
        tier.put_namespace(SPACE, b"")
        count = tier.frames
        assert write(tier, *range(count)) == [None] * count
    with opened(tmp_path, cap=2 * CAP) as tier:
        assert tier.frames > 2 * count
        assert set(restored(tier)) == set(range(count))
        assert write(tier, tier.frames - 1) == [None]
        assert CAP < tier.used_bytes() <= 2 * CAP
    with opened(tmp_path, cap=CAP * 3 // 4) as tier:
        fewer = tier.frames
        assert fewer < count
        assert set(restored(tier)) == set(range(fewer))
        assert tier.used_bytes() <= CAP * 3 // 4
    with opened(tmp_path) as tier:
        assert set(restored(tier)) == set(range(fewer))  # nothing comes back from where it was cut


# -- restoring


def test_a_restart_restores_every_field_of_every_record(tmp_path: Path) -> None:
    who = Identity("m")
    tokens = list(range(5 * PAGED.block_size))
    chain = list(who.digest_chain(tokens, PAGED.block_size, {2: b"image"}))
    told = [
        Record(
            who.namespace,
            digest,
            chain[depth - 1] if depth else bytes(32),
            depth,
            np.array(tokens[depth * PAGED.block_size : (depth + 1) * PAGED.block_size], "<u4").tobytes(),
            PAGED,
            b"image" if depth == 2 else b"",
            math.inf if depth % 2 else 2e9 + depth,
        )
        for depth, digest in enumerate(chain)
    ]
    frames = [9, 3, 7, 0, 12]
    with opened(tmp_path) as tier:
        tier.put_namespace(who.namespace, who.encode())
        assert tier.write(frames, [block(PAGED, depth) for depth in range(5)], told) == [None] * 5
    with opened(tmp_path) as tier:
        found = restored(tier)
        assert list(found) == sorted(frames)
        for frame, depth in zip(frames, range(5), strict=True):
            got, data = found[frame]
            assert got == told[depth]
            assert got.expires == told[depth].expires
            assert got.token_ids.tolist() == tokens[depth * PAGED.block_size : (depth + 1) * PAGED.block_size]
            assert data == block(PAGED, depth).tobytes()


def test_a_scan_reads_the_index_in_large_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a store of many slots is no seek a slot."""
    calls = 0
    real = os.preadv

    def counting(fd: int, buffers: list[memoryview], offset: int) -> int:
        nonlocal calls
        calls += 1
        return real(fd, buffers, offset)

    with DiskTier(tmp_path / "store", SMALL, 16 * MIB) as tier:
        assert tier.frames > 3000
        monkeypatch.setattr(os, "preadv", counting)
        assert list(tier.scan()) == []
    assert calls <= 3 * (1 + 3000 * 600 // MIB)


# -- direct and synced


def test_direct_io_is_used_where_the_file_system_has_it(tmp_path: Path) -> None:
    probe = tmp_path / "probe"
    probe.write_bytes(bytes(4096))
    with opened(tmp_path) as tier:
        assert tier.direct == bool(direct_flag(probe))
    with opened(tmp_path, direct=False) as tier:
        assert not tier.direct


def test_direct_io_that_was_asked_for_and_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "O_DIRECT", 0, raising=False)
    with pytest.raises(ConfigError, match="direct"):
        opened(tmp_path, direct=True)
    opened(tmp_path).close()


def test_a_synced_write_puts_nothing_forward_that_is_not_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry emptied, synced; payload, synced; entry, synced: so no loss of power finds an entry without its payload."""
    done: list[str] = []
    write_real, sync_real = os.pwritev, os.fdatasync

    def name(fd: int) -> str:
        return Path(os.readlink(f"/proc/self/fd/{fd}")).name.split(".")[0].split("-")[0]

    def writing(fd: int, buffers: list[memoryview], offset: int) -> int:
        done.append(f"write {name(fd)}")
        return write_real(fd, buffers, offset)

    def syncing(fd: int) -> None:
        done.append(f"sync {name(fd)}")
        sync_real(fd)

    for sync in (True, False):
        with DiskTier(tmp_path / str(sync), PAGED, CAP, sync=sync) as tier:
            tier.put_namespace(SPACE, b"")
            with monkeypatch.context() as patch:
                patch.setattr(os, "pwritev", writing)
                patch.setattr(os, "fdatasync", syncing)
                write(tier, 0, 1)
                tier.erase([0])
    assert done[:6] == ["write index", "sync index", "write segment", "sync segment", "write index", "sync index"]
    assert done[6:8] == ["write index", "sync index"]
    assert done[8:] == ["write index", "write segment", "write index", "write index"]
