"""A store that was made for something else, by another version or with another key: refused by name and left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tenure.errors import StoreError
from tenure.tiers import BlockLayout, Int8, Zstd
from tenure.tiers.record import pack

from .making import KEY, PAGED, SPACE, block, record, restored
from .storing import CAP, ENTRY, content, filled, flip, opened, read


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"layout": BlockLayout.of("bf16", 32, layers=2, heads=4, head_size=8)}, "block size 16: 32"),
        ({"layout": BlockLayout.of("fp16", 16, layers=2, heads=4, head_size=16)}, "dtype bf16: fp16"),
        ({"layout": BlockLayout.of("bf16", 16, layers=4, heads=2, head_size=16)}, "layers 2: 4"),
        ({"layout": BlockLayout.of("bf16", 16, layers=2, heads=4, head_size=16, shard=1, shards=2)}, "shard 0: 1"),
        ({"codec": Int8()}, "codec raw: int8"),
        ({"codec": Zstd()}, "codec raw: zstd"),
        ({"key": KEY}, "another key"),
    ],
    ids=str,
)
def test_a_store_for_something_else_is_refused_by_name_and_left_alone(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    filled(tmp_path).close()
    before = content(tmp_path)
    with pytest.raises(StoreError, match=said):
        opened(tmp_path, **settings)
    assert content(tmp_path) == before
    with opened(tmp_path) as tier:
        assert len(restored(tier)) == 8


def test_a_slot_size_that_differs_is_named(tmp_path: Path) -> None:
    opened(tmp_path, codec=Zstd(room=0.5)).close()
    with pytest.raises(StoreError, match="slot bytes 4096: 8192"):
        opened(tmp_path, codec=Zstd(room=0.75))


def test_a_store_with_another_key_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, key=KEY).close()
    for key in (KEY[::-1], None):
        with pytest.raises(StoreError, match="key"):
            opened(tmp_path, key=key)
    with opened(tmp_path, key=KEY) as tier:
        assert len(restored(tier)) == 8


def test_a_record_of_another_hand_is_refused_where_there_is_a_key(tmp_path: Path) -> None:
    """Whoever can write to the disk can make a whole, unsigned entry, but not a signed one."""
    tier = filled(tmp_path, key=KEY, direct=False)
    index, segment = tmp_path / "store" / "index.tenure", tmp_path / "store" / "segment-000000.tenure"
    life = tier._namespaces.life(SPACE)
    assert life is not None
    forged = block(PAGED, 99)
    with segment.open("r+b") as file:
        file.write(forged)
    with index.open("r+b") as file:
        file.write(pack(record(PAGED, 0), 0, memoryview(forged), life))
    assert read(tier, 0, 1) == ["signature", None]


@pytest.mark.parametrize("at", range(10))
def test_another_version_or_a_damaged_description_is_refused_and_left_alone(tmp_path: Path, at: int) -> None:
    filled(tmp_path).close()
    flip(tmp_path / "store" / "store.tenure", at, 2)
    before = content(tmp_path)
    with pytest.raises(StoreError, match="version [35]" if at == 8 else "version|damaged"):
        opened(tmp_path)
    assert content(tmp_path) == before


def test_files_of_others_are_left_alone_and_count_against_the_cap(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "notes.txt").write_bytes(bytes(100_000))
    (tmp_path / "store" / "more").mkdir()
    (tmp_path / "store" / "more" / "index.tenure").write_bytes(bytes(50_000))
    with filled(tmp_path) as tier:
        assert tier.used_bytes() <= CAP
        fewer = tier.frames
    assert (tmp_path / "store" / "notes.txt").stat().st_size == 100_000
    assert (tmp_path / "store" / "more" / "index.tenure").stat().st_size == 50_000
    (tmp_path / "store" / "notes.txt").unlink()
    with opened(tmp_path) as tier:
        assert tier.frames >= fewer + 100_000 // (PAGED.nbytes + ENTRY + 4096)
        assert len(restored(tier)) == 8
