"""Time what vLLM's KVCacheManager does for one request; print one JSON line.

Runs inside an environment that has vLLM (see tools/peers.sh):

    python peer_vllm.py --tokens 2048 32768 --repeats 30

The request has T tokens: half of them are a prefix that is cached and hot, half
are new. The pool is full of cached blocks, so that every request evicts as many
blocks as it adds. Phases, in nanoseconds by time.perf_counter_ns:

* ``key``: make the Request, which hashes its blocks (``make`` is the same without
  hashing, measured apart and not part of the total);
* ``lookup``: get_computed_blocks;
* ``allocate``: allocate_slots: hold the hits, evict, take blocks, register hashes;
* ``release``: free.

Every hash function that vLLM offers and that is installed is measured: sha256 (its
default) and xxhash over pickled values, and both over CBOR. KV events, statistics
and metrics are off. The garbage collector is frozen and disabled while timing.
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
from typing import Any

os.environ.update(
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_NO_USAGE_STATS="1",
    DO_NOT_TRACK="1",
    HF_HUB_OFFLINE="1",
    PYTHONHASHSEED=os.environ.get("PYTHONHASHSEED", "0"),
)

with contextlib.redirect_stdout(sys.stderr):
    import torch
    import vllm
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.request import Request

HASHES = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")
PHASES = ("key", "lookup", "allocate", "release")
VOCABULARY = 128_000


def make_manager(blocks: int, block_size: int) -> KVCacheManager:
    """One full-attention group over ``blocks`` usable blocks (the null block is extra)."""
    spec = FullAttentionSpec(block_size=block_size, num_kv_heads=8, head_size=128, dtype=torch.bfloat16)
    return KVCacheManager(
        KVCacheConfig(
            num_blocks=blocks + 1,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        ),
        max_model_len=1 << 30,
        scheduler_block_size=block_size,
        hash_block_size=block_size,
        enable_caching=True,
    )


def available(hash_name: str) -> bool:
    """Whether the package behind a hash function is installed."""
    try:
        get_hash_fn_by_name(hash_name)(b"")
    except ModuleNotFoundError:
        return False
    return True


class Bench:
    """One pool and one shared prefix; serves requests and times their phases."""

    def __init__(self, tokens: int, blocks: int, block_size: int, hash_name: str) -> None:
        if tokens % (2 * block_size) or blocks * block_size < tokens:
            raise ValueError("a request must consist of two halves of whole blocks and fit into the pool")
        hash_function = get_hash_fn_by_name(hash_name)
        init_none_hash(hash_function)
        self.random = random.Random(tokens)
        self.tokens = tokens
        self.blocks = blocks
        self.manager = make_manager(blocks, block_size)
        self.hasher = get_request_block_hasher(block_size, hash_function)
        self.sampling = SamplingParams(max_tokens=1)
        self.prefix = self.draw(tokens // 2)

    def draw(self, count: int) -> list[int]:
        return self.random.choices(range(VOCABULARY), k=count)

    def fill(self) -> None:
        """Serve requests until every block of the pool holds cached content."""
        cached = self.manager.block_pool.cached_block_hash_to_block
        while len(cached) < self.blocks:
            self.serve("fill")

    def serve(self, rid: str) -> dict[str, int]:
        """Serve one request whose second half is new, and return its phase times."""
        prompt = self.prefix + self.draw(self.tokens - len(self.prefix))
        clock = time.perf_counter_ns
        start = clock()
        Request(rid, prompt, self.sampling, None)
        begin = clock()
        request = Request(rid, prompt, self.sampling, None, block_hasher=self.hasher)
        keyed = clock()
        blocks, hit, _ = self.manager.get_computed_blocks(request)
        found = clock()
        taken = self.manager.allocate_slots(request, self.tokens - hit, hit, blocks)
        allocated = clock()
        self.manager.free(request)
        released = clock()
        if taken is None or hit not in (0, len(self.prefix)):
            raise RuntimeError(f"unexpected outcome: hit {hit}")
        return {
            "make": begin - start,
            "key": keyed - begin,
            "lookup": found - keyed,
            "allocate": allocated - found,
            "release": released - allocated,
            "total": released - begin,
            "hit": hit,
        }


def measure(tokens: int, blocks: int, block_size: int, hash_name: str, repeats: int, warmup: int) -> dict[str, Any]:
    """Fill a pool, warm up, and time ``repeats`` requests."""
    bench = Bench(tokens, blocks, block_size, hash_name)
    bench.fill()
    for index in range(warmup):
        bench.serve(f"warm{index}")
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        raw = [bench.serve(f"run{index}") for index in range(repeats)]
    finally:
        gc.enable()
        gc.unfreeze()
    if any(times.pop("hit") != len(bench.prefix) for times in raw):
        raise RuntimeError("a request missed the shared prefix")
    if len(bench.manager.block_pool.cached_block_hash_to_block) != blocks:
        raise RuntimeError("the pool was not full")
    names = ("make", *PHASES, "total")
    return {
        "tokens": tokens,
        "block_size": block_size,
        "blocks": blocks,
        "hash": hash_name,
        "evicted_blocks": (tokens - len(bench.prefix)) // block_size,
        "median_ns": {name: statistics.median(t[name] for t in raw) for name in names},
        "raw_ns": {name: [t[name] for t in raw] for name in names},
    }


def main() -> None:
    """Parse arguments, measure each length with each hash, print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[2048])
    parser.add_argument("--blocks", type=int, default=0, help="0: four requests' worth")
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--hash", nargs="+", choices=HASHES, default=list(HASHES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(sys.stderr):
        runs = [
            measure(
                tokens,
                options.blocks or 4 * tokens // options.block_size,
                options.block_size,
                name,
                options.repeats,
                options.warmup,
            )
            for tokens in options.tokens
            for name in options.hash
            if available(name)
        ]
    print(json.dumps({"peer": "vllm", "version": vllm.__version__, "runs": runs}))


if __name__ == "__main__":
    main()
