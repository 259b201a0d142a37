"""kill -9 of a whole node under load, again and again: all that it had said was kept is there, whole, and nothing else counts.
TENURE_KILLS rounds (6)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.node.kills import ROOT, Books, live_and_die, look, rounds
from tests.node.making import LAYOUT, WrongBytesError, disk

ROUNDS = int(os.environ.get("TENURE_KILLS", "6"))
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and kills processes as Linux does")


@pytest.mark.parametrize("mode", ["", "limit"], ids=["a disk with room", "a disk that takes a part"])
def test_kill_9_of_a_node_under_load(mode: str, tmp_path: Path) -> None:
    told, blocks = rounds(tmp_path, ROUNDS, mode)
    assert told > 10 * ROUNDS
    assert blocks > ROUNDS


def test_kill_9_of_a_node_whose_disk_fills_up(tmp_path: Path) -> None:
    """On a tmpfs of 2 MiB, filled to its last page and emptied while the node runs."""
    alone = ["unshare", "-rm"]
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs a mount namespace of its own (unshare -rm)")
    script = 'mount -t tmpfs -o size=2m tmpfs "$1" && exec "$2" -m tests.node.kills "$1" "$3" full'
    command = [*alone, "sh", "-c", script, "sh", str(tmp_path), sys.executable, str(ROUNDS)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT, timeout=60 + 30 * ROUNDS
    )
    if "mount:" in done.stderr:
        pytest.skip("no tmpfs can be mounted here")
    assert done.returncode == 0, done.stderr
    told, blocks = map(int, done.stdout.split())
    assert told > 10 * ROUNDS
    assert blocks > ROUNDS


# -- the controls: what the check of a round looks at would show a store that does not keep its word


def wrong_bytes(folder: Path, books: Books) -> None:
    """A record of one block over the bytes of another, with the checksum that belongs to them."""
    with disk(folder / "store", 0.5) as tier:
        (one, told), (other, others) = [entry for entry in tier.scan() if entry[1].depth == 0][:2]
        data = [bytearray(LAYOUT.nbytes) for _ in range(2)]
        assert tier.read([one, other], [told, others], data) == [None, None]
        assert tier.write([one, other], data[::-1], [told, others]) == [None, None]


def swapped_entries(folder: Path, books: Books) -> None:
    """Two entries change places, and their payloads do not."""
    index = folder / "store" / "index.tenure"
    with disk(folder / "store", 0.5) as tier:
        one, other = [frame for frame, record in tier.scan() if record.depth == 0][:2]
        size = index.stat().st_size // tier.frames
    data = bytearray(index.read_bytes())
    places = [slice(frame * size, (frame + 1) * size) for frame in (one, other)]
    data[places[0]], data[places[1]] = data[places[1]], data[places[0]]
    index.write_bytes(data)


def lost(folder: Path, books: Books) -> None:
    with disk(folder / "store", 0.5) as tier:
        tier.erase([next(frame for frame, key in books.kept.items() if key in books.owed())])


def not_gone(folder: Path, books: Books) -> None:
    """Weights that were invalidated for good; the store has blocks of them."""
    life = next(iter(books.kept.values())).split(":")[0]
    books.enter(f"i {life}")
    books.enter(f"I {life}")


@pytest.mark.parametrize(
    ("harm", "error", "message"),
    [
        (wrong_bytes, WrongBytesError, "without its bytes"),
        (swapped_entries, AssertionError, "can be read"),
        (lost, AssertionError, "kept, and lost"),
        (not_gone, AssertionError, "invalidated for good"),
    ],
)
def test_the_check_sees(harm: Callable[[Path, Books], None], error: type[AssertionError], message: str, tmp_path: Path) -> None:
    books = Books()
    for seed in range(20):
        live_and_die(tmp_path, books, seed, "")
        if look(tmp_path, books) > 10 and len({key for key in books.kept.values() if len(key.split(":")[2]) == 1}) > 2:
            break
    harm(tmp_path, books)
    with pytest.raises(error, match=message):
        look(tmp_path, books)
