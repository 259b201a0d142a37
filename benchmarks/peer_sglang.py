"""Time what SGLang's radix cache does for one request; print one JSON line.

Runs inside an environment that has SGLang (see tools/peers.sh):

    python peer_sglang.py --tokens 2048 32768 --repeats 30

The request has T tokens: half of them are a prefix that is cached and hot, half
are new. The pool is full of cached pages, so that every request evicts as many
pages as it adds; by default from one node, the whole tail of an earlier request,
which is the cheapest case for a radix tree (``--tail-nodes`` cuts the tails into
more nodes). Phases, in nanoseconds by time.perf_counter_ns:

* ``key``: the RadixKey over an int64 array (``pack``, making that array of a list,
  is another process's work in the engine, so it is not part of the total);
* ``lookup``: match_prefix on all but the last token, and the indices of the match;
* ``lock``: a lock on the matched node;
* ``evict``: evict_to_free_tokens, the shortfall of the pool;
* ``allocate``: the slots of the new pages, from SGLang's own paged allocator;
* ``insert``: insert with all indices (int64 tensor), and move the lock to the end;
* ``release``: unlock.

Measured are UnifiedRadixCache with its Rust core (what the engine builds by
default), the same with its Python core, and the older RadixCache. KV events and
metrics are off. The garbage collector is frozen and disabled while timing.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import random
import statistics
import sys
import time
import warnings
from array import array
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", SGLANG_RUST_BUILD_MODE="never")
warnings.simplefilter("ignore")

with contextlib.redirect_stdout(sys.stderr):
    import sglang
    import torch
    from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
    from sglang.srt.mem_cache.base_prefix_cache import (
        BasePrefixCache,
        InsertParams,
        MatchPrefixParams,
    )
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey
    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

CACHES = ("unified-rust", "unified-python", "radix")
PHASES = ("key", "lookup", "lock", "evict", "allocate", "insert", "release")
VOCABULARY = 128_000


def make_cache(kind: str, allocator: PagedTokenToKVPoolAllocator) -> BasePrefixCache:
    """A cache with the default strategy (LRU) over one full-attention pool."""
    params = CacheInitParams(
        disable=False,
        req_to_token_pool=None,
        token_to_kv_pool_allocator=allocator,
        page_size=allocator.page_size,
    )
    if kind == "radix":
        return RadixCache(params)
    params.tree_components = (ComponentType.FULL,)
    params.tree_core_backend = kind.removeprefix("unified-")
    cache = UnifiedRadixCache(params)
    if cache._tree_core_backend != params.tree_core_backend:
        raise RuntimeError(f"the {params.tree_core_backend} core is not available")
    return cache


class Bench:
    """One pool and one shared prefix; serves requests and times their phases."""

    def __init__(self, tokens: int, pages: int, page_size: int, kind: str, nodes: int) -> None:
        tail = tokens // 2 // page_size
        if tokens != 2 * tail * page_size or tail % nodes or pages % tail or pages < 2 * tail:
            raise ValueError("a pool must hold a whole number of half requests, each of whole pages and nodes")
        self.random = random.Random(tokens)
        self.tokens = tokens
        self.page_size = page_size
        self.nodes = nodes
        self.allocator = PagedTokenToKVPoolAllocator(pages * page_size, page_size, torch.bfloat16, "cpu", None, False)
        self.cache = make_cache(kind, self.allocator)
        self.frees_duplicates = kind != "radix"
        self.prefix = self.draw(tokens // 2)

    def draw(self, count: int) -> list[int]:
        return self.random.choices(range(VOCABULARY), k=count)

    def fill(self) -> None:
        """Serve requests until every page of the pool belongs to the tree."""
        self.serve(self.prefix)
        while self.allocator.available_size() > 0:
            self.serve()

    def cut(self, key: RadixKey) -> None:
        """Untimed: cut a request's tail into ``nodes`` nodes, by matches that end in it."""
        shared = len(self.prefix)
        pages = (self.tokens - shared) // self.page_size
        for part in range(1, self.nodes):
            end = shared + pages * part // self.nodes * self.page_size
            self.cache.match_prefix(MatchPrefixParams(key=key[:end]))

    def serve(self, prompt: list[int] | None = None) -> dict[str, int]:
        """Serve one request whose second half is new, and return its phase times."""
        if prompt is None:
            prompt = self.prefix + self.draw(self.tokens - len(self.prefix))
        cache, allocator = self.cache, self.allocator
        clock = time.perf_counter_ns
        begin = clock()
        ids = array("q", prompt)
        start = clock()
        key = RadixKey(ids)
        keyed = clock()
        found = cache.match_prefix(MatchPrefixParams(key=RadixKey(ids, limit=len(ids) - 1)))
        hit = found.device_prefix_len
        prefix = cache.path_device_indices(found.last_device_node)
        looked_up = clock()
        lock = cache.lock(found.last_device_node)
        locked = clock()
        before = allocator.available_size()
        wanted = len(ids) - hit
        allocator.evict_to_free_tokens(cache, wanted)
        evicted = clock()
        slots = allocator.alloc(wanted)
        allocated = clock()
        values = torch.cat((prefix, slots))
        result = cache.insert(InsertParams(key=key, value=values, prev_prefix_len=hit))
        moved = cache.lock(result.last_device_node)
        cache.unlock(lock)
        inserted = clock()
        cache.unlock(moved)
        released = clock()
        if result.prefix_len != hit:
            raise RuntimeError("the new half was already cached")
        self.cut(key)
        return {
            "pack": start - begin,
            "key": keyed - start,
            "lookup": looked_up - keyed,
            "lock": locked - looked_up,
            "evict": evicted - locked,
            "allocate": allocated - evicted,
            "insert": inserted - allocated,
            "release": released - inserted,
            "total": released - start,
            "hit": hit,
            "free_before": before,
        }


def measure(tokens: int, pages: int, page_size: int, kind: str, nodes: int, repeats: int, warmup: int) -> dict[str, Any]:
    """Fill a pool, warm up, and time ``repeats`` requests."""
    bench = Bench(tokens, pages, page_size, kind, nodes)
    bench.fill()
    for _ in range(warmup):
        bench.serve()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        raw = [bench.serve() for _ in range(repeats)]
    finally:
        gc.enable()
        gc.unfreeze()
    if any(times.pop("hit") != len(bench.prefix) for times in raw):
        raise RuntimeError("a request missed the shared prefix")
    if any(times.pop("free_before") for times in raw):
        raise RuntimeError("the pool was not full")
    names = ("pack", *PHASES, "total")
    return {
        "tokens": tokens,
        "page_size": page_size,
        "pages": pages,
        "cache": kind,
        "tail_nodes": nodes,
        "evicted_pages": (tokens - len(bench.prefix)) // page_size,
        "median_ns": {name: statistics.median(t[name] for t in raw) for name in names},
        "raw_ns": {name: [t[name] for t in raw] for name in names},
    }


def main() -> None:
    """Parse arguments, measure each length with each cache, print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[2048])
    parser.add_argument("--pages", type=int, default=0, help="0: four requests' worth")
    parser.add_argument("--page-size", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--tail-nodes", type=int, default=1)
    parser.add_argument("--cache", nargs="+", choices=CACHES, default=list(CACHES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(sys.stderr):
        runs = [
            measure(
                tokens,
                options.pages or 4 * tokens // options.page_size,
                options.page_size,
                kind,
                options.tail_nodes,
                options.repeats,
                options.warmup,
            )
            for tokens in options.tokens
            for kind in options.cache
        ]
    print(json.dumps({"peer": "sglang", "version": sglang.__version__, "runs": runs}))


if __name__ == "__main__":
    main()
