"""A process that serves on a node with all levels until it is killed, and tells by line what it has done to the disk:

ready               the node is open
t FRAME KEY         from here on this frame may be written over, with that block (told before the first byte of it)
k FRAME KEY         the node has said that it is kept
i LIFE, I LIFE      the weights of this life are being invalidated; have been, for good
wrong ...           a hit without its bytes
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import resource
import sys
import threading
from pathlib import Path

from tenure import CapacityError, Identity, TenureError
from tenure.node import Level, Node
from tenure.transfers import BlockName, Write
from tests.node.making import SIZE, WHO, ArrayDevice, WrongBytesError, disk, host, kv_of

BRANCHES, DEPTH = 4, 5
TENANTS = ("default", "other")
KIB = 1 << 10


def person(life: int, tenant: str) -> Identity:
    return WHO.with_(weights=str(life), tenant=tenant)


def path_of(last: int) -> list[int]:
    """Blocks have numbers that tell which come before them: prompts are paths in a tree."""
    path = []
    while last:
        path.append(last)
        last //= BRANCHES + 1
    return path[::-1]


def tokens_of(path: list[int]) -> list[int]:
    return [number * 10 + i for number in path for i in range(SIZE)]


def key_of(who: Identity, tokens: list[int]) -> str:
    return f"{who.weights}:{who.tenant}:{tokens[0] // 10}"


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Telling(Node):
    """A node that tells what becomes of the frames of its disk."""

    def take_writes(self, tier: str, most: int = 64, *, demote: int = 0) -> list[Write]:
        orders = super().take_writes(tier, most, demote=demote)
        for order in orders if tier == "disk" else ():
            say("t", order.target, self.key(order.name))
        return orders

    def finish_write(self, write: Write, done: bool) -> bool:
        key = self.key(write.name) if write.tier == "disk" else ""
        counts = super().finish_write(write, done)
        if counts and key and key != "-":
            say("k", write.target, key)
        return counts

    def key(self, name: BlockName) -> str:
        try:
            content = self.content(name)
        except TenureError:  # it has just been invalidated
            return "-"
        return key_of(content.who, content.tokens.tolist())


def opened(folder: Path, kind: type[Node] = Node, **settings: bool) -> Node:
    levels = [Level(host(16)), Level(disk(folder, 0.5, segment_bytes=64 * KIB), policy="lru", deadline=10)]
    return kind(ArrayDevice(24), levels, SIZE, **settings)


def serve(kv: Node, who: Identity, path: list[int]) -> int:
    """As an engine does it; every hit is looked at."""
    tokens = tokens_of(path)
    bytes_of = kv.device.bytes  # type: ignore[attr-defined]
    with kv.sequence(tokens, who) as seq:
        for block, frame in enumerate(seq.block_table):
            right = kv_of(who, tokens[: (block + 1) * SIZE])
            if block >= seq.hit_tokens // SIZE:
                bytes_of[frame] = right
            elif not (bytes_of[frame] == right).all():
                raise WrongBytesError(f"{key_of(who, tokens[block * SIZE :])} is a hit without its bytes")
        return seq.hit_tokens // SIZE


def some_path(r: random.Random) -> list[int]:
    last = 0
    for _ in range(r.randint(1, DEPTH)):
        last = last * (BRANCHES + 1) + r.randint(1, BRANCHES)
    return path_of(last)


def work(kv: Node, seed: int, lives: list[int]) -> None:
    r = random.Random(seed)
    while True:
        try:
            serve(kv, person(lives[0], r.choice(TENANTS)), some_path(r))
        except CapacityError:
            continue
        except BaseException as error:
            say("wrong", repr(error))
            os._exit(1)


def fill(file: Path) -> None:
    """Takes all that is left of the disk."""
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as out:
        for _ in range(1 << 12):
            out.write(bytes(4 * KIB))


def main(folder: str, seed: str, life: str, mode: str) -> None:
    faulthandler.dump_traceback_later(120, exit=True)  # a deadlock ends with every thread's stack
    r = random.Random(int(seed))
    kv = opened(Path(folder) / "store", Telling)
    lives = [int(life)]
    if mode == "limit":  # files cannot be written beyond half a segment
        resource.setrlimit(resource.RLIMIT_FSIZE, (32 * KIB, resource.RLIM_INFINITY))
    filler = Path(folder) / "filler"
    say("ready")
    for _ in range(3):
        threading.Thread(target=work, args=(kv, r.random(), lives), daemon=True).start()
    while True:
        threading.Event().wait(r.uniform(0.01, 0.1))
        if mode == "full":
            filler.unlink() if filler.exists() else fill(filler)
        match r.randrange(4):
            case 0:
                old = lives[0]
                say("i", old)
                kv.invalidate(weights=str(old))
                if not kv._lanes["disk"].names.undropped:
                    say("I", old)
                lives[0] += 1
            case 1:
                kv.sweep()
            case 2:
                kv.set_policy(r.choice(["lru", "s3fifo", "fifo", "gdsf"]), tier="disk")
            case 3:
                kv.set_policy(r.choice(["lru", "lfu", "slru"]), tier="host")


if __name__ == "__main__":
    main(*sys.argv[1:])
