"""Run a workload through SGLang's radix cache and print what it did.

Runs inside an environment that has SGLang (see tools/peers.sh):

    python sglang_driver.py [WORKLOAD.json]        (or the workload on stdin)

Input: ``{"pages": N, "page_size": P, "strategy": S, "ops": [...]}``, and optionally

* ``"cache"``: ``"radix"`` (RadixCache, the default), ``"unified-python"`` or
  ``"unified-rust"`` (UnifiedRadixCache, what the engine builds);
* ``"one_page_nodes"``: insert paths page by page, so that every node of the tree
  holds one page (default false: one insertion makes one node);
* ``"strategy_config"``: keyword arguments of the strategy.

Operations on the tree, which take no account of ``pages``:

* ``["insert", tokens, priority=0, inserted=0]``: the tokens before ``inserted``
  were inserted by the same request earlier and count no hit again;
* ``["match", tokens]``, ``["evict", tokens_wanted]``;
* ``["lock", tokens]``: match, then lock the node reached; ``["unlock", tokens]``.

Operations of requests, as the engine does them, in a pool of ``pages``:

* ``["admit", rid, tokens, priority=0]``: match all but the last token, lock, evict
  what is missing, allocate, insert the full pages, move the lock to their end;
* ``["append", rid, tokens]``: evict what is missing and allocate; the new pages
  stay outside the tree until the request ends;
* ``["free", rid]``: insert the full pages, unlock, release the partial page.

Each result has ``evicted``: ``[prefix tokens, digest]`` of each evicted page, in
order, the deepest page of a node first, and ``nodes``: how many pages each evicted
node had. ``match``, ``lock`` and ``admit`` add ``hit`` (tokens), ``insert`` adds
``existing`` (tokens already there), ``evict`` adds ``freed`` (tokens), ``admit``
and ``append`` add ``failed``. A failed operation allocates nothing, but may have
evicted and has touched what it matched. Clocks are replaced by a counter.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import warnings
from array import array
from types import SimpleNamespace
from typing import Any

from workloads import block_names

os.environ.update(HF_HUB_OFFLINE="1", SGLANG_RUST_BUILD_MODE="never")
warnings.simplefilter("ignore")

with contextlib.redirect_stdout(sys.stderr):
    import sglang
    import torch
    from sglang.srt.mem_cache import radix_cache
    from sglang.srt.mem_cache.base_prefix_cache import (
        BasePrefixCache,
        EvictParams,
        InsertParams,
        InsertResult,
        MatchPrefixParams,
        MatchResult,
    )
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey
    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

Name = tuple[int, str]
CACHES = ("radix", "unified-python", "unified-rust")


class Pool:
    """Counts slots in place of the KV allocator, and sees what the cache frees.

    Slot numbers are never used twice, so a freed slot tells which page it was.
    """

    device = "cpu"

    def __init__(self, capacity: int, page_size: int) -> None:
        self.capacity = capacity
        self.page_size = page_size
        self.used = 0
        self.freed: list[torch.Tensor] = []
        self._next_slot = page_size

    def available_size(self) -> int:
        return self.capacity - self.used

    def alloc(self, count: int) -> torch.Tensor:
        first, self._next_slot = self._next_slot, self._next_slot + count
        self.used += count
        return torch.arange(first, first + count, dtype=torch.int64)

    def free_segment(self, indices: torch.Tensor, *, start_pos: int = 0) -> None:
        self.used -= len(indices)
        self.freed.append(indices)

    def free(self, indices: torch.Tensor) -> None:
        self.free_segment(indices)


def make_cache(workload: dict[str, Any], pool: Pool) -> BasePrefixCache:
    """Like RadixCache.create_simulated, but with the eviction strategy chosen."""
    kind = workload.get("cache", "radix")
    if kind not in CACHES:
        raise ValueError(f"unknown cache: {kind}")
    params = CacheInitParams(
        disable=False,
        req_to_token_pool=None,
        token_to_kv_pool_allocator=pool,
        page_size=pool.page_size,
        eviction_policy=workload.get("strategy", "lru"),
        eviction_policy_config=workload.get("strategy_config"),
    )
    if kind == "radix":
        ticks = itertools.count(1)
        radix_cache.time = SimpleNamespace(monotonic=lambda: float(next(ticks)), perf_counter=lambda: 0.0)
        return RadixCache(params)
    params.tree_components = (ComponentType.FULL,)
    params.tree_core_backend = kind.removeprefix("unified-")
    return UnifiedRadixCache(params)


class Driver:
    """Applies operations to one cache and names what it evicts."""

    def __init__(self, workload: dict[str, Any]) -> None:
        self.page_size: int = workload["page_size"]
        self.pool = Pool(workload["pages"] * self.page_size, self.page_size)
        self.cache = make_cache(workload, self.pool)
        self.frees_duplicates = not isinstance(self.cache, RadixCache)
        self.one_page_nodes = workload.get("one_page_nodes", False)
        self.names: dict[int, Name] = {}
        self.locks: dict[tuple[int, ...], list[Any]] = {}
        self.running: dict[str, SimpleNamespace] = {}

    def floor(self, count: int) -> int:
        return count // self.page_size * self.page_size

    def key(self, tokens: list[int]) -> RadixKey:
        return RadixKey(array("q", tokens))

    def lookup(self, tokens: list[int]) -> MatchResult:
        return self.cache.match_prefix(MatchPrefixParams(key=self.key(tokens)))

    def store(self, tokens: list[int], slots: torch.Tensor, priority: int, inserted: int, owned: int) -> InsertResult:
        """Insert the full pages; the slots before ``owned`` are the tree's already."""
        length = self.floor(len(tokens))
        names = block_names(tokens[:length], self.page_size)
        self.names.update(zip(slots[: length : self.page_size].tolist(), names, strict=True))
        step = self.page_size if self.one_page_nodes else max(length, 1)
        existing = 0
        for end in range(step, length + 1, step) or (0,):
            first = end - step  # Whatever is before it, this loop has put there.
            protected = max(owned, first)
            result = self.cache.insert(
                InsertParams(
                    key=self.key(tokens[:end]),
                    value=slots[:end],
                    priority=priority,
                    inserted_len=max(inserted, first),
                    prev_prefix_len=protected,
                )
            )
            if not self.frees_duplicates and result.prefix_len > protected:
                self.pool.free_segment(slots[protected : result.prefix_len], start_pos=protected)
            if result.prefix_len > first or first == 0:
                existing = result.prefix_len
        self.pool.freed.clear()
        result.prefix_len = existing
        return result

    def reclaim(self, wanted: int) -> dict[str, Any]:
        """Evict at least this many tokens, and name the pages that went."""
        self.pool.freed.clear()
        freed = self.cache.evict(EvictParams(num_tokens=wanted)).num_tokens_evicted
        evicted: list[Name] = []
        nodes: list[int] = []
        for indices in self.pool.freed:
            pages = indices[:: self.page_size].tolist()
            evicted += [self.names.pop(page) for page in reversed(pages)]
            nodes.append(len(pages))
        self.pool.freed.clear()
        return {"freed": freed, "evicted": evicted, "nodes": nodes}

    def make_room(self, wanted: int) -> dict[str, Any]:
        """Evict the shortfall, as the engine's allocator does before allocating."""
        missing = wanted - self.pool.available_size()
        if missing <= 0:
            return {"evicted": [], "nodes": []}
        made = self.reclaim(missing)
        del made["freed"]
        return made

    def insert(self, tokens: list[int], priority: int = 0, inserted: int = 0) -> dict[str, Any]:
        slots = self.pool.alloc(self.floor(len(tokens)))
        return {"existing": self.store(tokens, slots, priority, inserted, 0).prefix_len}

    def match(self, tokens: list[int]) -> dict[str, Any]:
        return {"hit": self.lookup(tokens).device_prefix_len}

    def evict(self, wanted: int) -> dict[str, Any]:
        return self.reclaim(wanted)

    def lock(self, tokens: list[int]) -> dict[str, Any]:
        found = self.lookup(tokens)
        lock = self.cache.lock(found.last_device_node)
        self.locks.setdefault(tuple(tokens), []).append(lock)
        return {"hit": found.device_prefix_len}

    def unlock(self, tokens: list[int]) -> dict[str, Any]:
        self.cache.unlock(self.locks[tuple(tokens)].pop())
        return {}

    def admit(self, rid: str, tokens: list[int], priority: int = 0) -> dict[str, Any]:
        found = self.lookup(tokens[:-1])
        hit = found.device_prefix_len
        lock = self.cache.lock(found.last_device_node)
        wanted = -(-len(tokens) // self.page_size) * self.page_size - hit
        made = self.make_room(wanted)
        failed = self.pool.available_size() < wanted
        if failed:
            self.cache.unlock(lock)
        else:
            prefix = self.cache.path_device_indices(found.last_device_node)[:hit]
            slots = torch.cat((prefix, self.pool.alloc(wanted)))
            request = SimpleNamespace(tokens=list(tokens), slots=slots, priority=priority, inserted=0, owned=hit, lock=lock)
            self.checkpoint(request)
            self.running[rid] = request
        return {"hit": hit, "failed": failed, **made}

    def checkpoint(self, request: SimpleNamespace) -> None:
        """Put the full pages into the tree and move the request's lock to their end."""
        length = self.floor(len(request.tokens))
        if not length:
            return
        result = self.store(request.tokens, request.slots, request.priority, request.inserted, request.owned)
        lock = self.cache.lock(result.last_device_node)
        self.cache.unlock(request.lock)
        request.slots[:length] = self.cache.path_device_indices(result.last_device_node)
        request.lock, request.inserted, request.owned = lock, length, length

    def append(self, rid: str, tokens: list[int]) -> dict[str, Any]:
        request = self.running.get(rid)
        if request is None:
            return {"skipped": True}
        total = len(request.tokens) + len(tokens)
        wanted = -(-total // self.page_size) * self.page_size - len(request.slots)
        made = self.make_room(wanted)
        failed = self.pool.available_size() < wanted
        if not failed:
            request.tokens += tokens
            request.slots = torch.cat((request.slots, self.pool.alloc(wanted)))
        return {"failed": failed, **made}

    def free(self, rid: str) -> dict[str, Any]:
        request = self.running.pop(rid, None)
        if request is None:
            return {"skipped": True}
        self.checkpoint(request)
        self.cache.unlock(request.lock)
        self.pool.free_segment(request.slots[self.floor(len(request.tokens)) :])
        self.pool.freed.clear()
        return {}

    def apply(self, operation: list[Any]) -> dict[str, Any]:
        name, *arguments = operation
        if name not in ("insert", "match", "evict", "lock", "unlock", "admit", "append", "free"):
            raise ValueError(f"unknown operation: {name}")
        result: dict[str, Any] = getattr(self, name)(*arguments)
        return {"evicted": [], "nodes": [], **result}


def run(workload: dict[str, Any]) -> dict[str, Any]:
    """Apply every operation of a workload to a fresh cache."""
    driver = Driver(workload)
    results = [driver.apply(operation) for operation in workload["ops"]]
    return {
        "peer": "sglang",
        "version": sglang.__version__,
        "cache": workload.get("cache", "radix"),
        "results": results,
    }


def main() -> None:
    """Read one workload, or a list of them, and print the outcome as one line."""
    source = open(sys.argv[1]) if len(sys.argv) > 1 else sys.stdin  # noqa: SIM115
    with source:
        given = json.load(source)
    with contextlib.redirect_stdout(sys.stderr):
        made = [run(workload) for workload in given] if isinstance(given, list) else run(given)
    json.dump(made, sys.stdout)
    print()


if __name__ == "__main__":
    main()
