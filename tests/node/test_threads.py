"""Threads on one node with every level, over tiers that are slow and fail: no wrong byte, nothing leaks, no deadlock."""

from __future__ import annotations

import contextlib
import faulthandler
import random
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tenure import BudgetError, CapacityError, Identity
from tenure.errors import TierError
from tenure.node import Level, Node
from tenure.tiers import HostTier, Record
from tenure.tiers.base import Outcome
from tests.node.making import LAYOUT, SIZE, WHO, WrongBytesError, disk, host, kv_of, node, prompt

PEOPLE = [WHO, WHO.with_(tenant="other"), WHO.with_(weights="new")]
POLICIES = ["lru", "lfu", "s3fifo", "gdsf", "cost", "arc"]


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    """A deadlock ends the run with every thread's stack, instead of lasting for ever."""
    faulthandler.dump_traceback_later(300, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()


class Erratic(HostTier):
    """Mostly works; else it is slow, or fails, block by block or as a whole."""

    def __init__(self, frames: int, seed: int, name: str = "erratic") -> None:
        super().__init__(LAYOUT, frames, name=name)
        self.random = random.Random(seed)
        self.quiet = False

    def _mood(self, frames: list[int]) -> list[Outcome]:
        r = self.random
        if self.quiet:
            return [None] * len(frames)
        if r.random() < 0.1:
            time.sleep(r.uniform(0, 0.03))
        if r.random() < 0.05:
            raise RuntimeError("a defect")
        bad = r.choice(["io", "full", "checksum", "codec"]) if r.random() < 0.2 else ""
        return [TierError(bad, "as the seed says") if bad and r.random() < 0.5 else None for _ in frames]

    def _read(self, frames: list[int], records: Sequence[Record], into: list[memoryview]) -> list[Outcome]:
        return [bad or told for bad, told in zip(self._mood(frames), super()._read(frames, records, into), strict=True)]

    def _write(self, frames: list[int], blocks: list[memoryview], records: Sequence[Record]) -> list[Outcome]:
        moods = self._mood(frames)
        done = super()._write(frames, blocks, records)
        super()._erase([frame for frame, bad in zip(frames, moods, strict=True) if bad])
        return [bad or told for bad, told in zip(moods, done, strict=True)]


class Engine:
    """One thread's requests. Every block that it was told is a hit, or has computed, is looked at again at its end."""

    def __init__(self, kv: Node, seed: int) -> None:
        self.kv = kv
        self.random = random.Random(seed)
        self.bytes: Any = kv.device.bytes  # type: ignore[attr-defined]
        self.hits = 0

    def compute(self, who: Identity, tokens: list[int], table: Any, first: int) -> None:
        for block in range(first, len(tokens) // SIZE):
            self.bytes[table[block]] = kv_of(who, tokens[: (block + 1) * SIZE])

    def check(self, who: Identity, tokens: list[int], table: Any, blocks: int) -> None:
        for block in range(blocks):
            if not (self.bytes[table[block]] == kv_of(who, tokens[: (block + 1) * SIZE])).all():
                raise WrongBytesError(f"block {block} of {tokens} has not its bytes")

    def request(self) -> None:
        r = self.random
        who = r.choice(PEOPLE)
        tokens = prompt(r.randrange(6), r.randint(1, 3)) + prompt(10 + r.randrange(4), r.randint(0, 2)) + [r.randrange(5)]
        asked: dict[str, Any] = {"expire_after": r.choice([None, None, None, 0.05])}
        if r.random() < 0.1:
            asked["extra_keys"] = {0: r.choice([b"an image", b"another" * 60])}
            who = who.with_(adapter=asked["extra_keys"][0])  # so that its KV differs too
        with self.kv.sequence(tokens, who, **asked) as seq:
            hits = seq.hit_tokens // SIZE
            self.hits += hits
            self.check(who, tokens, seq.block_table, hits)
            self.compute(who, tokens, seq.block_table, hits)
            seq.seal()
            for _ in range(r.randrange(3)):
                more = [r.randrange(3) for _ in range(r.randint(1, 2 * SIZE))]
                with contextlib.suppress(CapacityError):
                    before = len(tokens) // SIZE
                    seq.append(more, written=False)
                    tokens = tokens + more
                    self.compute(who, tokens, seq.block_table, before)
                    seq.seal()
            if r.random() < 0.2:
                fork = seq.fork()
                self.check(who, tokens, fork.block_table, len(tokens) // SIZE)
                fork.abort()
            self.check(who, tokens, seq.block_table, len(tokens) // SIZE)
            if r.random() < 0.1:
                seq.truncate(r.randint(0, len(tokens)))
            if r.random() < 0.1:
                seq.abort()

    def operate(self) -> None:
        r, kv = self.random, self.kv
        match r.randrange(8):
            case 0:
                kv.invalidate(**r.choice([{"tenant": "other"}, {"weights": "new"}]))
            case 1:
                kv.sweep()
            case 2:
                kv.set_policy(r.choice(POLICIES), tier=r.choice(kv.tiers))
            case 3:
                kv.flush()
            case 4:
                kv.check()
            case 5:
                kv.clear() if r.random() < 0.2 else kv.match(prompt(0, 3), WHO)
            case 6:
                with contextlib.suppress(BudgetError, CapacityError):
                    kv.pin(prompt(r.randrange(6), 2), WHO, owner="o", ttl=0.01)
            case 7:
                with contextlib.suppress(CapacityError):
                    kv.lookup(prompt(r.randrange(6), 2), WHO, owner="o", ttl=0.01).release()

    def run(self, requests: int) -> None:
        for _ in range(requests):
            with contextlib.suppress(CapacityError):
                self.request()
            if self.random.random() < 0.2:
                self.operate()


@pytest.mark.parametrize("addressable", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_threads_on_every_level(seed: int, addressable: bool, tmp_path: Path) -> None:
    erratic = Erratic(20, seed)
    levels = [
        Level(host(12), write="selective" if seed == 1 else "through", uses=1),
        Level(erratic, deadline=0.01 if seed else None, failures=4, write="back" if seed == 2 else "through"),
        Level(disk(tmp_path / "store", 0.5), deadline=5.0),
    ]
    kv = node(40, *levels, addressable=addressable, background=True, on_duplicate="rewrite" if seed == 1 else "keep")
    for lane in kv._lanes.values():
        lane.breaker._first = 0.02  # seconds: so that it is tried again within the test
    engines = [Engine(kv, 10 * seed + number) for number in range(4)]
    wrong: list[BaseException] = []

    def run(engine: Engine) -> None:
        try:
            engine.run(120)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sum(engine.hits for engine in engines) > 50
    assert sum(kv.tier_stats(tier).loaded for tier in kv.tiers[1:]) > 0

    erratic.quiet = True
    kv.close()
    time.sleep(0.05)
    kv.check()
    kv.leases()  # the last ones are due
    counts = kv.check()
    assert (counts.active, counts.sealed) == (0, 0)
    kv.clear()
    assert kv.check().free == 40
    for tier, level in kv.levels.items():
        assert kv.tier_stats(tier).free == level.tier.frames

    with node(40, Level(disk(tmp_path / "store", 0.5))) as again:  # what it has left behind is right too
        again.check()
        engine = Engine(again, seed)
        for _ in range(50):
            with contextlib.suppress(CapacityError):
                engine.request()
        again.check()


def test_the_engine_of_this_test_looks_at_its_bytes() -> None:
    """The control."""
    kv = node(40, Level(host(20)))
    engine = Engine(kv, 1)
    engine.run(20)
    kv.device.bytes[:] = 0  # type: ignore[attr-defined]
    with pytest.raises(WrongBytesError):
        engine.run(100)
