"""The node beside a bare manager: what clean frames cost at eviction, and what others' loads cost a request that needs none."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.ours import BLOCK, Requests, frames_for, no_collection
from benchmarks.report import Row, ratio, save
from tenure import BlockManager, Identity
from tenure.node import Level, Node
from tenure.tiers import BlockLayout, HostTier, Record
from tenure.tiers.base import Outcome

LENGTHS = (2_048, 16_384)
REPEATS, WARM_UP = 300, 50
LAYOUT = BlockLayout.of("bf16", BLOCK, layers=1, heads=1, head_size=8)
"""So small that copying it costs nothing: what is measured is the manager and the mover."""
WHO, OTHERS = Identity("bench"), Identity("others")


class ArrayDevice:
    """Frames in a numpy array."""

    block_bytes = LAYOUT.nbytes

    def __init__(self, frames: int) -> None:
        self.frames = frames
        self.bytes = np.zeros((frames, self.block_bytes), np.uint8)

    def views(self, frames: Sequence[int]) -> list[Any]:
        return [self.bytes[frame] for frame in frames]

    def read(self, frames: Sequence[int], into: Sequence[Any]) -> None:
        for frame, target in zip(frames, into, strict=True):
            target[:] = self.bytes[frame]

    def write(self, frames: Sequence[int], blocks: Sequence[Any]) -> None:
        for frame, block in zip(frames, blocks, strict=True):
            self.bytes[frame] = block


class SlowTier(HostTier):
    """Memory that takes its time, as a disk or a network does."""

    seconds = 0.002

    def _read(self, frames: list[int], records: Sequence[Record], into: list[memoryview]) -> list[Outcome]:
        time.sleep(self.seconds)
        return super()._read(frames, records, into)


def eviction_times(tokens: int) -> dict[str, list[float]]:
    """Seconds of `sequence` on a full device, every request with a stem that is hit and as much that evicts: where the evicted
    blocks are in host memory too, and where they are dropped. The same requests, in turns."""
    frames = frames_for(tokens)
    dropping = BlockManager(frames, BLOCK)
    clean = Node(ArrayDevice(frames), [Level(HostTier(LAYOUT, 4 * frames))], BLOCK, background=False)
    pools: dict[str, BlockManager] = {"clean": clean, "dropping": dropping}
    found: dict[str, list[float]] = {name: [] for name in pools}
    requests = Requests(tokens)
    with clean, no_collection():
        for turn in range(REPEATS + WARM_UP):
            prompt = requests.next()
            for name in ("clean", "dropping") if turn % 2 else ("dropping", "clean"):
                start = time.perf_counter()
                seq = pools[name].sequence(prompt, WHO, written=True)
                spent = time.perf_counter() - start
                seq.release()
                if turn < WARM_UP:
                    continue
                found[name].append(spent)
                if seq.hit_tokens != requests.half or pools[name].counts().free:
                    raise RuntimeError(f"{name}: {seq.hit_tokens} tokens were hit, and {pools[name].counts()}")
            clean.flush()
            if clean.waiting("host"):
                raise RuntimeError("there are frames that are not clean")
    return found


def unrelated_times(tokens: int) -> dict[str, list[float]]:
    """Seconds of requests that are hit on the device, alone and while another thread's requests wait for a slow tier."""
    frames = frames_for(tokens)
    node = Node(ArrayDevice(frames), [Level(SlowTier(LAYOUT, 8 * frames), deadline=60)], BLOCK, background=False)
    theirs = [np.arange(i * tokens, (i + 1) * tokens, dtype=np.int32) for i in range(8)]  # more than the device has room for
    mine = np.arange(10**6, 10**6 + tokens // 2, dtype=np.int32)
    found: dict[str, list[float]] = {"alone": [], "beside loads": []}
    stop = threading.Event()
    loads = 0

    def keep_loading() -> None:
        nonlocal loads
        while not stop.is_set():
            for prompt in theirs:
                with node.sequence(prompt, OTHERS, written=True) as seq:
                    loads += seq.hit_tokens // BLOCK

    def measured() -> list[float]:
        times = []
        for _ in range(REPEATS // 3):
            start = time.perf_counter()
            seq = node.sequence(mine, WHO, written=True)
            times.append(time.perf_counter() - start)
            if seq.hit_tokens != len(mine):
                raise RuntimeError("the request was to be hit on the device")
            seq.release()
            time.sleep(0.0005)  # else it is the interpreter's lock that is measured
        return times

    with node, no_collection(), node.sequence(mine, WHO, written=True):  # which holds its blocks on the device
        for prompt in theirs:
            node.sequence(prompt, OTHERS, written=True).release()
            node.flush()
        for _ in range(3):
            found["alone"] += measured()
            stop.clear()
            thread = threading.Thread(target=keep_loading)
            thread.start()
            found["beside loads"] += measured()
            stop.set()
            thread.join()
    if not loads:
        raise RuntimeError("nothing was loaded")
    return found


def run() -> None:
    rows = []
    for tokens in LENGTHS:
        times = eviction_times(tokens)
        what = f"admission of {tokens:,} tokens that evicts: frames that host memory has too ÷ dropping"
        rows.append(Row(what, ratio(times["clean"], times["dropping"]), ("<=", 1.5), times))
    times = unrelated_times(LENGTHS[0])
    what = f"admission of {LENGTHS[0] // 2:,} tokens that are hit, while others load from a slow tier ÷ alone"
    rows.append(Row(what, ratio(times["beside loads"], times["alone"]), None, times))
    worst = statistics.quantiles(times["beside loads"], n=100)[98]
    rows.append(Row("the same, 99th percentile ÷ the least time a load takes", worst / SlowTier.seconds))
    save("node", "Tiers under a manager: eviction of clean frames, and loads beside other requests", rows)
