"""A store's files cut, flipped, deleted, made for something else; a disk that fails or fills: a typed miss, the rest goes on."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tenure.errors import ConfigError, StoreError
from tenure.tiers import BlockLayout, DiskTier, Int8, Zstd
from tenure.tiers.record import entry_bytes, pack

from .making import KEY, MIB, OTHER_SPACE, PAGED, SMALL, SPACE, block, buffers, record, restored

CAP = MIB // 2
SLOTS = 6  # a segment
ENTRY = entry_bytes(PAGED.block_size)


def opened(folder: Path, cap: int = CAP, **settings: Any) -> DiskTier:
    return DiskTier(folder / "store", settings.pop("layout", PAGED), cap, segment_bytes=SLOTS * PAGED.nbytes, **settings)


def filled(folder: Path, frames: int = 8, **settings: Any) -> DiskTier:
    tier = opened(folder, **settings)
    tier.put_namespace(SPACE, b"of what")
    write(tier, *range(frames))
    return tier


def write(tier: DiskTier, *frames: int) -> list[str | None]:
    outcomes = tier.write(frames, [block(PAGED, f) for f in frames], [record(PAGED, f) for f in frames])
    return [outcome and outcome.kind for outcome in outcomes]


def read(tier: DiskTier, *frames: int) -> list[str | None]:
    """Why each frame was refused; what is not refused must be right."""
    into = buffers(PAGED, len(frames))
    outcomes = tier.read(frames, [record(PAGED, f) for f in frames], into)
    for frame, outcome, data in zip(frames, outcomes, into, strict=True):
        assert outcome is not None or bytes(data) == block(PAGED, frame).tobytes()
    return [outcome and outcome.kind for outcome in outcomes]


def flip(path: Path, at: int, mask: int = 1) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ mask]))


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "store").iterdir()) if path.name != "lock.tenure"}


# -- what is on the disk was changed


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


# -- the store is not the one that was asked for


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


# -- the disk fails or is full


@pytest.mark.parametrize("call", ["preadv", "pwritev"])
def test_a_failing_disk_is_counted_and_only_its_blocks_are_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    tier = filled(tmp_path)
    bad = os.stat(tmp_path / "store" / "segment-000000.tenure").st_ino
    real = getattr(os, call)

    def failing(fd: int, buffers: list[memoryview], offset: int) -> int:
        if os.fstat(fd).st_ino == bad and offset <= PAGED.nbytes < offset + sum(map(len, buffers)):
            raise OSError(errno.EIO, "the medium failed")
        return int(real(fd, buffers, offset))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        if call == "preadv":
            assert read(tier, *range(8)) == [None, "io", *[None] * 6]
        else:
            assert write(tier, *range(8)) == [None, "io", *[None] * 6]
            assert read(tier, 0, 1, 2) == [None, "empty", None]
    assert tier.counters.refused["io"] == 1


def test_an_index_that_cannot_be_written_changes_no_payload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = filled(tmp_path)
    index = os.stat(tmp_path / "store" / "index.tenure").st_ino
    before = content(tmp_path)
    real = os.pwritev

    def failing(fd: int, buffers: list[memoryview], offset: int) -> int:
        if os.fstat(fd).st_ino == index:
            raise OSError(errno.EROFS, "read-only")
        return real(fd, buffers, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", failing)
        outcomes = tier.write([0, 1], [block(PAGED, 50)] * 2, [record(PAGED, 50)] * 2)
        assert [outcome and outcome.kind for outcome in outcomes] == ["io", "io"]
        assert [outcome and outcome.kind for outcome in tier.erase([2])] == ["io"]
    assert content(tmp_path) == before


@contextmanager
def file_limit(nbytes: int) -> Iterator[None]:
    """No file may be written beyond `nbytes`, as by a quota: needs no root and no file system of its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("direct", [False, None])
def test_a_full_disk_while_writing_is_counted_and_survived(tmp_path: Path, direct: bool | None) -> None:
    tier = filled(tmp_path, direct=direct)
    with file_limit(3 * PAGED.nbytes):
        assert write(tier, *range(SLOTS)) == [None] * 3 + ["full"] * 3
        assert read(tier, *range(8)) == [None] * 3 + ["empty"] * 3 + [None] * 2
    assert tier.counters.refused["full"] == 3
    assert write(tier, *range(SLOTS)) == [None] * SLOTS


def test_space_that_cannot_be_reserved_is_a_typed_error_and_leaves_nothing(tmp_path: Path) -> None:
    with file_limit(3 * PAGED.nbytes), pytest.raises(StoreError, match="smaller cap") as caught:
        opened(tmp_path)
    assert caught.value.numbers["needed"] > 3 * PAGED.nbytes
    assert caught.value.numbers["free"] > 0
    assert content(tmp_path) == {}
    assert filled(tmp_path).used_bytes() <= CAP


def test_growth_that_cannot_be_had_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    filled(tmp_path).close()
    before = content(tmp_path)
    with pytest.raises(StoreError) as caught:
        opened(tmp_path, cap=1 << 60)
    assert caught.value.numbers["needed"] > 1 << 59
    assert content(tmp_path) == before
    with file_limit(SLOTS * PAGED.nbytes - 4096), pytest.raises(StoreError):
        opened(tmp_path, cap=2 * CAP)
    assert content(tmp_path) == before
    with opened(tmp_path) as tier:
        assert len(restored(tier)) == 8


FULL = """
import os, sys
from pathlib import Path
sys.path[:0] = {path!r}
from tenure.errors import StoreError
from tenure.tiers import DiskTier
from tiers.making import PAGED, SPACE, block, record
folder = Path({folder!r})
try:
    DiskTier(folder / "store", PAGED, 8 << 20)
except StoreError as error:
    print("refused", error.numbers["needed"] > error.numbers["free"])
with DiskTier(folder / "store", PAGED, 1 << 20, segment_bytes=1 << 17) as tier:
    tier.put_namespace(SPACE, b"")
    try:
        (folder / "filler").write_bytes(bytes(4 << 20))
    except OSError as error:
        print("full", error.errno)
    n = tier.frames
    outcomes = tier.write(range(n), [block(PAGED, i) for i in range(n)], [record(PAGED, i) for i in range(n)])
    print("written", outcomes == [None] * n)
    try:
        tier.put_namespace(bytes(32), bytes(6000))
        print("put")
    except StoreError:
        print("not put", list(tier.namespaces()) == [SPACE])
"""


def test_a_file_system_that_is_full(tmp_path: Path) -> None:
    """On a tmpfs of 4 MiB: what was reserved can be written though the rest of the disk is full."""
    path = [str(Path(__file__).parent.parent), *(entry for entry in sys.path if entry)]
    code = FULL.format(path=path, folder=str(tmp_path))
    script = 'mount -t tmpfs -o size=4m tmpfs "$1" && exec "$2" -c "$3"'
    mounted = ["sh", "-c", script, "sh", str(tmp_path), sys.executable, code]
    alone = ["unshare", "-rm"]
    if (
        not shutil.which("unshare")
        or subprocess.run([*alone, sys.executable, "-c", ""], check=False, capture_output=True).returncode
    ):
        pytest.skip("needs a mount namespace of its own (unshare -rm)")
    done = subprocess.run([*alone, *mounted], capture_output=True, text=True, check=False, timeout=60)
    if "mount:" in done.stderr:
        pytest.skip("no tmpfs can be mounted here")
    assert done.stdout.split("\n")[:4] == ["refused True", f"full {errno.ENOSPC}", "written True", "not put True"], done.stderr


def test_a_read_only_directory_is_a_typed_error(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        with pytest.raises(StoreError, match="cannot be opened"):
            DiskTier("/proc/tenure", PAGED, CAP)  # where not even root may write
        return
    filled(tmp_path).close()
    (tmp_path / "store").chmod(0o500)
    os.truncate(tmp_path / "store" / "lock.tenure", 0)
    try:
        with pytest.raises(StoreError, match="cannot be"):
            opened(tmp_path, cap=2 * CAP)
    finally:
        (tmp_path / "store").chmod(0o700)


def test_a_missing_parent_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        DiskTier(tmp_path / "no" / "store", PAGED, CAP)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="cannot be opened"):
        DiskTier(tmp_path / "file", PAGED, CAP)


@pytest.mark.parametrize(
    "settings",
    [{"cap": 0}, {"cap": 1.5}, {"layout": "bf16"}, {"codec": "raw"}, {"key": b"short"}, {"segment_bytes": 0}],
    ids=str,
)
def test_settings_are_checked_before_anything_is_touched(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        DiskTier(tmp_path / "store", **{"layout": PAGED, "cap": CAP} | settings)
    assert not (tmp_path / "store").exists()


def test_a_cap_too_small_for_one_block_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="too small") as caught:
        opened(tmp_path, cap=100_000)
    needed = caught.value.numbers["needed"]
    with pytest.raises(StoreError, match="too small"):
        opened(tmp_path, cap=needed - 1)
    with opened(tmp_path, cap=needed) as tier:
        assert tier.frames == 1
        assert tier.used_bytes() <= needed


def test_a_small_layout_takes_one_page_a_block(tmp_path: Path) -> None:
    with DiskTier(tmp_path / "store", SMALL, CAP) as tier:
        assert tier.used_bytes() <= CAP
        assert tier.frames * 4096 > CAP // 2
