"""One request of T tokens, half of it cached, on a full pool: key, look-up, allocate (evicting), block table, release."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tenure import BlockManager, Identity

BLOCK = 16
STEMS = 1


@contextmanager
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


class Requests:
    """Prompts of `tokens` tokens: a shared stem of half the length, then tokens nobody has sent before."""

    def __init__(self, tokens: int, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.half = tokens // 2
        self.stems = [self.rng.integers(0, 50_000, self.half, dtype=np.int32) for _ in range(STEMS)]
        self.count = 0

    def next(self) -> np.ndarray:
        stem = self.stems[self.count % STEMS]
        self.count += 1
        return np.concatenate([stem, self.rng.integers(0, 50_000, self.half, dtype=np.int32)])


def frames_for(tokens: int) -> int:
    """A pool for four requests, as the peers are given, so that every request evicts."""
    return 4 * tokens // BLOCK


def filled(manager: BlockManager, who: Identity, requests: Requests) -> None:
    while manager.counts().free:
        manager.sequence(requests.next(), who, written=True).release()
    for _ in range(2 * STEMS):
        manager.sequence(requests.next(), who, written=True).release()


def request_times(tokens: int, frames: int, repeats: int, *, as_list: bool = False, policy: str | object = "lru") -> list[float]:
    """Nanoseconds of each of `repeats` requests."""
    manager = BlockManager(frames, BLOCK, policy=policy)
    who = Identity(model="bench")
    requests = Requests(tokens)
    filled(manager, who, requests)
    times: list[float] = []
    with no_collection():
        for _ in range(repeats):
            prompt = requests.next().tolist() if as_list else requests.next()  # as for the peers: just made, like a tokenizer's
            start = time.perf_counter_ns()
            sequence = manager.sequence(prompt, who, written=True)
            _ = sequence.block_table
            sequence.release()
            times.append(time.perf_counter_ns() - start)
            if sequence.hit_tokens != requests.half:
                raise RuntimeError(f"the stem was not hit: {sequence.hit_tokens} of {requests.half}")
    manager.check()
    return times
