"""A disk that fails, fills or cannot be written: typed errors, misses that are counted, and what can go on does."""

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
from tenure.tiers import DiskTier

from .making import PAGED, SMALL, block, record, restored
from .storing import CAP, PATH, SLOTS, content, filled, opened, read, write


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
    code = FULL.format(path=PATH, folder=str(tmp_path))
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
