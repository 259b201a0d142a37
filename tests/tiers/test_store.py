"""A store over its life: one owner, a cap that everything counts against, growing and shrinking, namespaces, what sync means."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tenure import Identity
from tenure.errors import ConfigError, StoreError
from tenure.tiers import DiskTier, Record
from tenure.tiers.files import direct_flag, space_taken

from .making import MIB, OTHER_SPACE, PAGED, SMALL, SPACE, block, buffers, record, restored

CAP = MIB // 2


def opened(folder: Path, cap: int = CAP, **settings: object) -> DiskTier:
    return DiskTier(folder / "store", PAGED, cap, segment_bytes=6 * PAGED.nbytes, **settings)  # type: ignore[arg-type]


def write(tier: DiskTier, frames: list[int], namespace: bytes = SPACE) -> list[str | None]:
    records = [record(PAGED, frame, namespace) for frame in frames]
    outcomes = tier.write(frames, [block(PAGED, frame) for frame in frames], records)
    return [outcome and outcome.kind for outcome in outcomes]


# -- one owner

OWNER = """
import sys
sys.path[:0] = {path!r}
from tenure.tiers import DiskTier
from tiers.making import PAGED
tier = DiskTier({store!r}, PAGED, {cap})
print("open", flush=True)
sys.stdin.read()
"""


def owner(folder: Path) -> subprocess.Popen[str]:
    """Another process that has the store open."""
    path = [str(Path(__file__).parent.parent), *(entry for entry in sys.path if entry)]
    code = OWNER.format(path=path, store=str(folder / "store"), cap=CAP)
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def test_a_store_in_use_names_its_owner_and_is_free_once_that_is_killed(tmp_path: Path) -> None:
    process = owner(tmp_path)
    try:
        for _ in range(2):
            with pytest.raises(StoreError, match=f"in use by process {process.pid}") as caught:
                DiskTier(tmp_path / "store", PAGED, CAP)
            assert caught.value.numbers["owner"] == process.pid
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        DiskTier(tmp_path / "store", PAGED, CAP).close()
    finally:
        process.kill()
        process.communicate()


def test_a_store_is_open_once_in_a_process_too(tmp_path: Path) -> None:
    with opened(tmp_path) as tier:
        for _ in range(2):
            with pytest.raises(StoreError, match="open in this process"):
                opened(tmp_path)
        (tmp_path / "other").symlink_to(tmp_path / "store")
        with pytest.raises(StoreError, match="open in this process"):
            DiskTier(tmp_path / "other", PAGED, CAP)
        # and no attempt has given the lock away to another process
        with pytest.raises(AssertionError):
            owner(tmp_path)
        tier.put_namespace(SPACE, b"")
    opened(tmp_path).close()


def test_a_refused_opening_gives_the_lock_back(tmp_path: Path) -> None:
    opened(tmp_path).close()
    for _ in range(2):
        with pytest.raises(StoreError, match="dtype"):
            DiskTier(tmp_path / "store", replace(PAGED, dtype="fp16"), CAP)
        with pytest.raises(StoreError, match="too small"):
            opened(tmp_path, cap=1000)
    opened(tmp_path).close()


def test_a_closed_store_goes_on_to_the_next_owner_when_the_last_call_has_left(tmp_path: Path) -> None:
    tier = opened(tmp_path)
    tier.put_namespace(SPACE, b"")
    write(tier, [0, 1])
    scan = tier.scan()
    assert tier._enter()
    tier.close()
    with pytest.raises(StoreError, match="open in this process"):
        opened(tmp_path)
    tier._leave()
    assert list(scan) == []
    with opened(tmp_path) as again:
        assert len(restored(again)) == 2
    with pytest.raises(StoreError, match="closed"):
        tier.put_namespace(SPACE, b"")


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
        write(tier, sorted(rng.choice(tier.frames, 5, replace=False).tolist()))
        most = max(most, tier.used_bytes())
    assert CAP // 2 < most <= CAP
    assert tier.capacity_bytes == CAP


def test_what_a_crash_left_behind_is_removed(tmp_path: Path) -> None:
    with opened(tmp_path) as tier:
        tier.put_namespace(SPACE, b"")
        write(tier, [0])
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
        assert write(tier, list(range(count))) == [None] * count
    with opened(tmp_path, cap=2 * CAP) as tier:
        assert tier.frames > 2 * count
        assert set(restored(tier)) == set(range(count))
        assert write(tier, [tier.frames - 1]) == [None]
        assert CAP < tier.used_bytes() <= 2 * CAP
    with opened(tmp_path, cap=CAP * 3 // 4) as tier:
        fewer = tier.frames
        assert fewer < count
        assert set(restored(tier)) == set(range(fewer))
        assert tier.used_bytes() <= CAP * 3 // 4
    with opened(tmp_path) as tier:
        assert set(restored(tier)) == set(range(fewer))  # nothing comes back from where it was cut


# -- namespaces


def test_namespaces_and_their_values_survive(tmp_path: Path) -> None:
    who = Identity("smollm2-135m", weights="3f2a", tenant="acme")
    with opened(tmp_path) as tier:
        assert tier.namespaces() == {}
        tier.put_namespace(who.namespace, who.encode())
        tier.put_namespace(SPACE, b"")
        tier.put_namespace(SPACE, b"changed")
    with opened(tmp_path) as tier:
        assert tier.namespaces() == {who.namespace: who.encode(), SPACE: b"changed"}


def test_a_dropped_namespace_takes_its_blocks_with_it_at_once_and_for_ever(tmp_path: Path) -> None:
    with opened(tmp_path) as tier:
        tier.put_namespace(SPACE, b"one")
        tier.put_namespace(OTHER_SPACE, b"two")
        write(tier, [0, 1, 2])
        write(tier, [3, 4], OTHER_SPACE)
        assert tier.drop_namespace(SPACE)
        assert not tier.drop_namespace(SPACE)
        outcomes = tier.read([0], [record(PAGED, 0)], buffers(PAGED, 1))
        assert [outcome and outcome.kind for outcome in outcomes] == ["namespace"]
        assert write(tier, [5]) == ["namespace"]  # one that was in flight
        tier.put_namespace(SPACE, b"one")  # the same again, in another life
        outcomes = tier.read([0], [record(PAGED, 0)], buffers(PAGED, 1))
        assert [outcome and outcome.kind for outcome in outcomes] == ["namespace"]
    with opened(tmp_path) as tier:
        assert set(restored(tier)) == {3, 4}
        assert tier.counters.refused == {"namespace": 3}
        assert write(tier, [0]) == [None]
    with opened(tmp_path) as tier:
        assert set(restored(tier)) == {0, 3, 4}
        assert tier.counters.refused == {}


def test_a_value_that_changes_keeps_the_blocks(tmp_path: Path) -> None:
    with opened(tmp_path) as tier:
        tier.put_namespace(SPACE, b"one")
        write(tier, [0])
        tier.put_namespace(SPACE, b"two")
    with opened(tmp_path) as tier:
        assert set(restored(tier)) == {0}


def test_a_block_of_an_unknown_namespace_is_not_taken(tmp_path: Path) -> None:
    with opened(tmp_path) as tier:
        assert write(tier, [0]) == ["namespace"]
        assert restored(tier) == {}


def test_the_table_of_namespaces_has_a_bound_and_says_so(tmp_path: Path) -> None:
    with opened(tmp_path) as tier:
        tier.put_namespace(SPACE, b"fits")
        with pytest.raises(StoreError, match="room") as caught:
            tier.put_namespace(OTHER_SPACE, bytes(100_000))
        assert caught.value.numbers["needed"] > caught.value.numbers["room"]
        assert tier.namespaces() == {SPACE: b"fits"}


@pytest.mark.parametrize("given", [(b"short", b""), ("text" * 8, b""), (SPACE, "text"), (SPACE, None)], ids=repr)
def test_a_namespace_is_checked(tmp_path: Path, given: tuple[object, object]) -> None:
    with opened(tmp_path) as tier, pytest.raises(ConfigError):
        tier.put_namespace(*given)  # type: ignore[arg-type]


def test_a_drop_that_cannot_be_written_still_holds_now_and_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise OSError(5, "the medium failed")

    with opened(tmp_path) as tier:
        tier.put_namespace(SPACE, b"")
        write(tier, [0])
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", failing)
            with pytest.raises(StoreError, match="written"):
                tier.drop_namespace(SPACE)
        assert write(tier, [1]) == ["namespace"]
        tier.drop_namespace(SPACE)
    with opened(tmp_path) as tier:
        assert tier.namespaces() == {}
        assert restored(tier) == {}


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
                write(tier, [0, 1])
                tier.erase([0])
    assert done[:6] == ["write index", "sync index", "write segment", "sync segment", "write index", "sync index"]
    assert done[6:8] == ["write index", "sync index"]
    assert done[8:] == ["write index", "write segment", "write index", "write index"]


# -- a real process, really killed

WRITER = """
import os, sys
import numpy as np
sys.path[:0] = {path!r}
from tenure.tiers import DiskTier
from tiers.making import PAGED, SPACE, OTHER_SPACE, block, record
tier = DiskTier({store!r}, PAGED, {cap}, segment_bytes=6 * PAGED.nbytes, direct={direct})
for space in (SPACE, OTHER_SPACE):
    tier.put_namespace(space, b"")
rng = np.random.default_rng({seed})
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
say("ready")
while True:
    frames = sorted(rng.choice(tier.frames, int(rng.integers(1, 9)), replace=False).tolist())
    say("begin", *frames)
    if rng.random() < 0.15:
        assert tier.erase(frames) == [None] * len(frames)
        say("erased", *frames)
    else:
        names = rng.integers(0, 1000, len(frames)).tolist()
        spaces = [SPACE if n % 2 else OTHER_SPACE for n in names]
        records = [record(PAGED, n, s) for n, s in zip(names, spaces)]
        assert tier.write(frames, [block(PAGED, n) for n in names], records) == [None] * len(frames)
        say("written", *(f"{{f}}:{{n}}" for f, n in zip(frames, names)))
    if rng.random() < 0.05:
        say("dropping")
        tier.drop_namespace(OTHER_SPACE)
        say("dropped")
        tier.put_namespace(OTHER_SPACE, b"")
"""


def test_kill_9_at_any_instant_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """TENURE_KILLS rounds on one store: after each, all that was acknowledged is there, equal, and nothing else counts."""
    rng = np.random.default_rng(5)
    path = [str(Path(__file__).parent.parent), *(entry for entry in sys.path if entry)]
    kept: dict[int, int] = {}
    seen = 0
    for turn in range(int(os.environ.get("TENURE_KILLS", "4"))):
        code = WRITER.format(path=path, store=str(tmp_path / "store"), cap=CAP, seed=turn, direct=[None, False][turn % 2])
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(float(rng.uniform(0, 0.15)))
        process.send_signal(signal.SIGKILL)
        said, wrong = process.communicate()
        assert not wrong, wrong.decode()
        doubtful, dropping = told(said.decode().split("\n")[:-1], kept)
        with opened(tmp_path) as tier:
            found = restored(tier)
            assert tier.used_bytes() <= CAP
            for frame, name in kept.items():
                if frame not in doubtful and not (dropping and name % 2 == 0):
                    assert frame in found, f"round {turn}: frame {frame} was acknowledged and is lost"
            for frame, (got, data) in found.items():
                if frame in doubtful:
                    assert any(
                        data == block(PAGED, name).tobytes() for name in range(1000) if record(PAGED, name).digest == got.digest
                    )
                else:
                    name = kept[frame]
                    assert got == record(PAGED, name, SPACE if name % 2 else OTHER_SPACE)
                    assert data == block(PAGED, name).tobytes()
            seen += len(found)
            tier.erase(sorted(doubtful))
            kept = {frame: name for frame, name in kept.items() if frame in found and frame not in doubtful}
    assert seen > 0


def told(lines: list[str], kept: dict[int, int]) -> tuple[set[int], bool]:
    """Enters what the writer has done into `kept`; returns the frames in flight, and whether a namespace was being dropped."""
    doubtful: set[int] = set()
    dropping = False
    for line in lines:
        word, *rest = line.split()
        if word == "begin":
            doubtful = {int(frame) for frame in rest}
        elif word == "erased":
            for frame in doubtful:
                kept.pop(frame, None)
            doubtful = set()
        elif word == "written":
            kept |= {int(frame): int(name) for frame, name in (pair.split(":") for pair in rest)}
            doubtful = set()
        elif word == "dropping":
            dropping = True
        elif word == "dropped":
            for frame in [frame for frame, name in kept.items() if name % 2 == 0]:
                del kept[frame]
            dropping = False
    return doubtful, dropping
