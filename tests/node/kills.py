"""Kills a node's process again and again, and holds what the next one finds against what the dead one has told.
Used by test_killed; also a program, so that it can run where a small file system of its own is mounted."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from tenure.node import Node
from tests.node.victim import BRANCHES, opened, path_of, person, serve

ROOT = Path(__file__).parent.parent.parent


class Books:
    """What a store must have, may have and must not have, by what its processes have told."""

    def __init__(self) -> None:
        self.kept: dict[int, str] = {}  # by frame: kept, and not to be written over since
        self.possible: set[str] = set()  # ordered to be written at some time
        self.ordered: dict[int, int] = {}  # by frame: how many invalidations had begun when its write was ordered, if none was
        # under way: what was ordered before one of them may go with it
        self.begun = 0
        self.dropping: dict[str, set[str]] = {}  # by life: what was there when its invalidation began
        self.life = 0
        self.told = 0

    def enter(self, line: str) -> None:
        what, *rest = line.split()
        self.told += 1
        if what == "t":
            frame, key = int(rest[0]), rest[1]
            self.kept.pop(frame, None)
            self.possible.add(key)
            self.ordered[frame] = -1 if key.split(":")[0] in self.dropping else self.begun
            for before in self.dropping.values():
                before.discard(key)
        elif what == "k":
            if self.ordered[int(rest[0])] == self.begun:
                self.kept[int(rest[0])] = rest[1]
        elif what == "i":
            self.life = int(rest[0]) + 1
            self.begun += 1
            of_it = {key for key in self.possible if key.startswith(rest[0] + ":")}
            self.dropping[rest[0]] = of_it
            self.kept = {frame: key for frame, key in self.kept.items() if not key.startswith(rest[0] + ":")}
        elif what == "I":
            self.possible -= self.dropping.pop(rest[0])
        else:
            raise AssertionError(line)

    def owed(self) -> set[str]:
        """Kept with all blocks before them. What was kept while its weights were being invalidated is not owed."""
        there = {key for key in self.kept.values() if key.split(":")[0] not in self.dropping}
        return {key for key in there if all(before in there for before in above(key))}

    def found(self, kept: dict[int, str]) -> None:
        """The store has been looked at: this is what is in it."""
        self.kept = kept
        self.possible = set(kept.values())
        self.dropping.clear()


def above(key: str) -> list[str]:
    """The keys of the blocks before this one."""
    life, tenant, last = key.split(":")
    return [f"{life}:{tenant}:{number}" for number in path_of(int(last))[:-1]]


def live_and_die(folder: Path, books: Books, seed: int, mode: str) -> None:
    """One process, killed at a random moment under load; the books are brought up to that moment."""
    r = random.Random(seed)
    command = [sys.executable, "-m", "tests.node.victim", str(folder), str(seed), str(books.life), mode]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    lines: list[bytes] = []
    with tempfile.TemporaryFile() as said:  # a pipe that nobody reads would stop it
        victim = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, env=environment, bufsize=0, cwd=ROOT)
        assert victim.stdout is not None
        with victim, victim.stdout as out:
            first = out.readline()
            end = r.randint(0, 1500) if first == b"ready\n" else 0
            while len(lines) < end and (line := out.readline()):
                lines.append(line)
            victim.kill()
            lines += out.read().splitlines(keepends=True)
        said.seek(0)
        wrong = said.read().decode()
    assert first == b"ready\n", f"{first!r}\n{wrong}"
    assert "Traceback" not in wrong, wrong
    assert "Timeout" not in wrong, wrong
    for line in lines:
        if line.endswith(b"\n"):  # the last one may have been cut off
            books.enter(line.decode())


def look(folder: Path, books: Books) -> int:
    """A new node on the store: its books are exact, all that is owed is there, all that it has is right, nothing else counts.
    Returns how many blocks it has."""
    kv: Node = opened(folder / "store", background=False)
    try:
        kv.check()
        refused = kv.lane_stats("disk").refused
        assert set(refused) <= {"torn", "namespace"}, refused
        frames = kv.levels["disk"].tier.frames
        found: dict[int, str] = {}
        for frame in range(frames):
            block = kv.block(frame, "disk")
            if block is not None:
                life = kv._identities[_space(kv, block.handle)].weights
                found[frame] = f"{life}:{block.tenant}:{block.tokens[0] // 10}"
        assert kv.tier_stats("disk").free + len(found) == frames
        there = set(found.values())
        assert len(there) == len(found), "one block is there twice"
        missing, strange = books.owed() - there, there - books.possible
        assert not missing, f"kept, and lost: {sorted(missing)}"
        assert not strange, f"nobody wrote, or invalidated for good: {sorted(strange)}"
        for key in sorted(there):
            life, tenant, last = key.split(":")
            who, path = person(int(life), tenant), path_of(int(last))
            hits = serve(kv, who, path)  # which looks at the bytes
            assert hits == len(path), f"{key}: {hits} of {len(path)} blocks that are there can be read"
            kv.check()
        for last in range(1, 3 * BRANCHES):  # and whatever else is asked for
            serve(kv, person(books.life, "default"), path_of(last) if last % (BRANCHES + 1) else [last])
        kv.check()
        assert kv.lane_stats("disk").refused == refused, "what was restored could not be read"
        books.found(found)
        return len(found)
    finally:
        kv.close(flush=False)


def _space(kv: Node, handle: tuple[int, int]) -> int:
    return int(kv._core.content(*handle)[0])


def rounds(folder: Path, count: int, mode: str = "") -> tuple[int, int]:
    """Returns how much was told, and how many blocks were found, in all."""
    books = Books()
    blocks = 0
    for number in range(count):
        live_and_die(folder, books, number, mode)
        (folder / "filler").unlink(missing_ok=True)
        blocks += look(folder, books)
    return books.told, blocks


if __name__ == "__main__":
    print(*rounds(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
