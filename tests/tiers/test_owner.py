"""One owner for a store, named to all others; gone with its process, at whatever instant that is killed, and nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tenure.errors import StoreError
from tenure.tiers import DiskTier

from .making import OTHER_SPACE, PAGED, SPACE, block, record, restored
from .storing import CAP, PATH, opened, write

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
    code = OWNER.format(path=PATH, store=str(folder / "store"), cap=CAP)
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
    write(tier, 0, 1)
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
    kept: dict[int, int] = {}
    seen = 0
    for turn in range(int(os.environ.get("TENURE_KILLS", "4"))):
        code = WRITER.format(path=PATH, store=str(tmp_path / "store"), cap=CAP, seed=turn, direct=[None, False][turn % 2])
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
