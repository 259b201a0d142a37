"""A store's files cut, flipped, deleted or exchanged, in use or between two uses: a typed miss for what is hit, no more."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tenure.errors import StoreError
from tenure.tiers.record import pack

from .making import OTHER_SPACE, PAGED, SPACE, block, record, restored
from .storing import ENTRY, SLOTS, filled, flip, opened, read, write


def test_every_flipped_byte_of_an_entry_is_a_miss(tmp_path: Path) -> None:
    tier = filled(tmp_path)
    index = tmp_path / "store" / "index.tenure"
    refused = 0
    for at in range(ENTRY):
        flip(index, 3 * ENTRY + at, 1 << at % 8)
        got = read(tier, 2, 3, 4)
        flip(index, 3 * ENTRY + at, 1 << at % 8)
        assert (got[0], got[2]) == (None, None)
        assert got[1] in (None, "torn")
        refused += got[1] is not None
    assert refused == len(pack(record(PAGED, 3), 0, memoryview(block(PAGED, 3))))  # all but what lies behind the record
    assert tier.counters.refused == {"torn": refused}
    assert read(tier, 2, 3, 4) == [None] * 3


def test_a_damaged_entry_is_not_restored_and_its_frame_is_free(tmp_path: Path) -> None:
    filled(tmp_path).close()
    flip(tmp_path / "store" / "index.tenure", 3 * ENTRY + 70)
    with opened(tmp_path) as tier:
        assert set(restored(tier)) == {0, 1, 2, 4, 5, 6, 7}
        assert tier.counters.refused == {"torn": 1}
        assert set(restored(tier)) == {0, 1, 2, 4, 5, 6, 7}
        assert tier.counters.refused == {"torn": 1}  # it was emptied the first time
        assert write(tier, 3) == [None]


@pytest.mark.parametrize("at", [0, 1, 4095, 4096, PAGED.nbytes - 1])
@pytest.mark.parametrize("direct", [False, None])
def test_a_flipped_byte_of_a_payload_is_a_miss(tmp_path: Path, at: int, direct: bool | None) -> None:
    tier = filled(tmp_path, direct=direct)
    flip(tmp_path / "store" / "segment-000001.tenure", PAGED.nbytes + at, 0x80)
    assert read(tier, *range(8)) == [None] * 7 + ["checksum"]
    assert write(tier, 7) == [None]
    assert read(tier, 7) == [None]


def test_payloads_that_changed_places_are_misses(tmp_path: Path) -> None:
    tier = filled(tmp_path, direct=False)
    segment = tmp_path / "store" / "segment-000000.tenure"
    data = segment.read_bytes()
    with segment.open("r+b") as file:
        file.write(data[PAGED.nbytes : 2 * PAGED.nbytes] + data[: PAGED.nbytes])
    assert read(tier, 0, 1, 2) == ["checksum", "checksum", None]


def test_entries_that_changed_places_are_foreign(tmp_path: Path) -> None:
    tier = filled(tmp_path)
    index = tmp_path / "store" / "index.tenure"
    data = index.read_bytes()
    with index.open("r+b") as file:
        file.write(data[ENTRY : 2 * ENTRY] + data[:ENTRY])
    assert read(tier, 0, 1, 2) == ["foreign", "foreign", None]


@pytest.mark.parametrize("direct", [False, None])
@pytest.mark.parametrize("length", [0, 100, 4096, PAGED.nbytes, 2 * PAGED.nbytes - 1])
def test_a_segment_cut_while_in_use(tmp_path: Path, length: int, direct: bool | None) -> None:
    tier = filled(tmp_path, direct=direct)
    os.truncate(tmp_path / "store" / "segment-000000.tenure", length)
    whole = length // PAGED.nbytes
    assert read(tier, *range(8)) == [None] * whole + ["torn"] * (SLOTS - whole) + [None] * 2
    assert write(tier, 2, 3) == [None, None]
    assert read(tier, 2, 3) == [None, None]


def test_an_index_cut_while_in_use(tmp_path: Path) -> None:
    tier = filled(tmp_path)
    os.truncate(tmp_path / "store" / "index.tenure", 2 * ENTRY + 10)
    assert read(tier, *range(8)) == [None, None] + ["torn"] * 6
    assert write(tier, 5) == [None]
    assert read(tier, 1, 2, 3, 5) == [None, "torn", "empty", None]
    assert set(restored(tier)) == {0, 1, 5}


def test_files_deleted_while_in_use_are_misses_at_the_latest_when_opened_again(tmp_path: Path) -> None:
    tier = filled(tmp_path)
    (tmp_path / "store" / "segment-000000.tenure").unlink()
    assert read(tier, 6, 7) == [None, None]
    tier.close()
    with opened(tmp_path) as again:
        assert set(restored(again)) == {6, 7}
        assert write(again, 0) == [None]
        (tmp_path / "store" / "index.tenure").unlink()
    with opened(tmp_path) as third:
        assert restored(third) == {}


def test_a_directory_removed_while_in_use(tmp_path: Path) -> None:
    tier = filled(tmp_path)
    shutil.rmtree(tmp_path / "store")
    assert set(read(tier, 0, 1)) <= {None, "io", "torn"}
    with pytest.raises(StoreError, match="removed"):
        tier.put_namespace(OTHER_SPACE, b"")
    with opened(tmp_path) as other:  # another owner's store now
        assert restored(other) == {}
        with pytest.raises(StoreError, match="removed"):
            tier.drop_namespace(SPACE)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "longer"])
def test_a_damaged_table_of_namespaces_counts_nothing_and_brings_nothing_back(tmp_path: Path, damage: str) -> None:
    filled(tmp_path).close()
    table = tmp_path / "store" / "namespaces.tenure"
    data = table.read_bytes()
    changed = {"flip": data[:20] + bytes([data[20] ^ 4]) + data[21:], "cut": data[:-1], "empty": b"", "longer": data + b"\0"}
    table.write_bytes(changed[damage])
    with opened(tmp_path) as tier:
        assert tier.counters.refused == {"torn": 1}
        assert tier.namespaces() == {}
        tier.put_namespace(SPACE, b"of what")  # the same namespace in another life
        assert restored(tier) == {}
        assert tier.counters.refused == {"torn": 1, "namespace": 8}
        assert write(tier, 0) == [None]
