"""A slow, plain pool of one tier for tests: a heap of evictable leaves and dictionaries. It serves one request after
the other. The lab's own tests run on it where they are not about the core, and the core is compared with it."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np


class ReferencePool:
    """`capacity` frames; `policy` is "lru", "lfu" (no ageing) or "optimum" (the leaf used farthest ahead)."""

    def __init__(self, capacity: int, policy: str = "lru") -> None:
        self.capacity = capacity
        self.policy = policy
        self.parent: dict[int, int] = {}  # of resident blocks
        self.children: dict[int, int] = {}
        self.stamp: dict[int, int] = {}
        self.uses: dict[int, int] = {}
        self.next: dict[int, float] = {}
        self.heap: list[tuple[float, int, int]] = []
        self.clock = 0
        self.evictions = 0

    def key(self, block: int) -> float:
        """The least goes first; ties by stamp."""
        return {"lru": 0.0, "lfu": float(self.uses[block]), "optimum": -self.next[block]}[self.policy]

    def queue(self, block: int) -> None:
        """Offer a block for eviction if it is a leaf."""
        if block in self.stamp and not self.children.get(block):
            heapq.heappush(self.heap, (self.key(block), self.stamp[block], block))

    def evict(self, held: set[int]) -> bool:
        """Drop the next leaf that is not held; False when there is none."""
        aside = []
        victim = None
        while self.heap and victim is None:
            entry = heapq.heappop(self.heap)
            key, stamp, block = entry
            if self.stamp.get(block) != stamp or self.children.get(block) or self.key(block) != key:
                continue
            if block in held:
                aside.append(entry)
            else:
                victim = block
        for entry in aside:
            heapq.heappush(self.heap, entry)
        if victim is None:
            return False
        parent = self.parent.pop(victim)
        del self.stamp[victim], self.uses[victim], self.next[victim]
        self.evictions += 1
        if parent >= 0:
            self.children[parent] -= 1
            self.queue(parent)
        return True

    def serve(self, path: Sequence[int], next_use: Sequence[float]) -> int:
        """One request; returns how many leading blocks it found."""
        hits = 0
        while hits < len(path) and path[hits] in self.stamp:
            hits += 1
        kept = list(path[: self.capacity])
        held = set(kept)
        while len(self.stamp) + len(kept) - min(hits, len(kept)) > self.capacity and self.evict(held):
            pass
        for before, block in pairwise([-1, *kept]):
            if block not in self.stamp:
                self.parent[block] = before
                self.stamp[block] = -1
                self.uses[block] = 0
                self.next[block] = math.inf
                if before >= 0:
                    self.children[before] = self.children.get(before, 0) + 1
        for index in reversed(range(len(kept))):
            block = kept[index]
            self.clock += 1
            self.stamp[block] = self.clock
            self.uses[block] += 1
            self.next[block] = next_use[index]
            self.queue(block)
        return hits

    def replay(
        self,
        offsets: Any,
        blocks: Any,
        arrival: Any,
        finish_after: Any,
        output: Any,
        tenant_ns: Any,
        next_use: Any,
        overlap: bool,
        progress: Any,
    ) -> dict[str, Any]:
        """The call of the core's pool, one request after the other whatever `overlap` says."""
        hits = np.zeros(len(offsets) - 1, dtype=np.int64)
        following = np.full(len(blocks), np.inf) if next_use is None else next_use
        for i, (start, end) in enumerate(pairwise(offsets.tolist())):
            hits[i] = self.serve(blocks[start:end].tolist(), following[start:end].tolist())
            if progress is not None:
                progress(i + 1)
        return {
            "hit_blocks": int(hits.sum()),
            "asked_blocks": len(blocks),
            "evictions": self.evictions,
            "seconds": 0.0,
            "per_request_hits": hits,
            "waited": 0,
        }
