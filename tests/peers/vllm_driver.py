"""Run a request workload through vLLM's KVCacheManager and print what it did.

Runs inside an environment that has vLLM (see tools/peers.sh):

    python vllm_driver.py [WORKLOAD.json]          (or the workload on stdin)

Input: ``{"blocks": N, "block_size": B, "ops": [...]}`` where N counts the blocks
that requests can use (vLLM's null block comes on top). Operations:

* ``["admit", rid, tokens]``: look up, then allocate the whole prompt at once.
* ``["append", rid, tokens]``: decode these tokens, that is allocate their slots.
* ``["free", rid]``: the request ends.

Output: ``{"peer", "version", "results": [...], "left": [...]}``. Each result has
``evicted``: ``[prefix tokens, digest]`` of each evicted block, in order, and
``copies``: for each of these how many blocks of the same content stay cached.
An admission adds ``hit`` (tokens) and ``failed``; an append adds ``failed``. A
failed operation leaves the pool and the request as they were; operations on a
request that was not admitted give ``{"skipped": true}``. ``left`` lists the free
queue at the end, next victim first: a name, or null for a block without content.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections import Counter
from typing import Any

from workloads import block_names

os.environ.update(
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_NO_USAGE_STATS="1",
    DO_NOT_TRACK="1",
    HF_HUB_OFFLINE="1",
    VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES="0",
)

with contextlib.redirect_stdout(sys.stderr):
    import torch
    import vllm
    from vllm.distributed.kv_events import BlockRemoved, BlockStored
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.request import Request

Name = tuple[int, str]
MAX_MODEL_LENGTH = 1 << 30


def make_manager(blocks: int, block_size: int) -> KVCacheManager:
    """One full-attention group over ``blocks`` usable blocks, with KV events."""
    spec = FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=8, dtype=torch.float32)
    return KVCacheManager(
        KVCacheConfig(
            num_blocks=blocks + 1,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        ),
        max_model_len=MAX_MODEL_LENGTH,
        scheduler_block_size=block_size,
        hash_block_size=block_size,
        enable_caching=True,
        enable_kv_cache_events=True,
    )


class Driver:
    """Applies operations to one manager and names what it evicts."""

    def __init__(self, blocks: int, block_size: int) -> None:
        init_none_hash(sha256)
        self.block_size = block_size
        self.manager = make_manager(blocks, block_size)
        self.hasher = get_request_block_hasher(block_size, sha256)
        self.sampling = SamplingParams(max_tokens=1)
        self.running: dict[str, Request] = {}
        self.names: dict[bytes, Name] = {}
        self.copies: Counter[bytes] = Counter()

    def remember(self, request: Request) -> None:
        """Map the hashes of a request's full blocks to their names."""
        names = block_names(request.all_token_ids, self.block_size)
        self.names.update(zip(request.block_hashes, names, strict=True))

    def evicted(self) -> dict[str, Any]:
        """Drain the events: what was evicted since the last call, in order."""
        names: list[Name] = []
        copies: list[int] = []
        for event in self.manager.take_events():
            if isinstance(event, BlockStored):
                self.copies.update(event.block_hashes)
            elif isinstance(event, BlockRemoved):
                for block_hash in event.block_hashes:
                    self.copies[block_hash] -= 1
                    names.append(self.names[block_hash])
                    copies.append(self.copies[block_hash])
        return {"evicted": names, "copies": copies}

    def admit(self, rid: str, tokens: list[int]) -> dict[str, Any]:
        request = Request(
            request_id=rid,
            prompt_token_ids=tokens,
            sampling_params=self.sampling,
            pooling_params=None,
            block_hasher=self.hasher,
        )
        self.remember(request)
        blocks, hit, _ = self.manager.get_computed_blocks(request)
        allocated = self.manager.allocate_slots(request, len(tokens) - hit, hit, blocks)
        if allocated is not None:
            request.num_computed_tokens = len(tokens)
            self.running[rid] = request
        return {"hit": hit, "failed": allocated is None, **self.evicted()}

    def append(self, rid: str, tokens: list[int]) -> dict[str, Any]:
        request = self.running.get(rid)
        if request is None:
            return {"skipped": True}
        before = request.num_tokens
        request.append_output_token_ids(tokens)
        self.remember(request)
        allocated = self.manager.allocate_slots(request, len(tokens))
        if allocated is not None:
            request.num_computed_tokens = request.num_tokens
        else:  # Take the tokens back, so that the operation had no effect.
            del request._all_token_ids[before:]
            del request._output_token_ids[before - request.num_prompt_tokens :]
            del request.block_hashes[before // self.block_size :]
        return {"failed": allocated is None, **self.evicted()}

    def free(self, rid: str) -> dict[str, Any]:
        request = self.running.pop(rid, None)
        if request is None:
            return {"skipped": True}
        self.manager.free(request)
        return self.evicted()

    def left(self) -> list[Name | None]:
        """The free queue, next victim first."""
        queue = self.manager.block_pool.free_block_queue.get_all_free_blocks()
        return [None if block.block_hash is None else self.names[block.block_hash[:-4]] for block in queue]

    def apply(self, operation: list[Any]) -> dict[str, Any]:
        name, *arguments = operation
        if name not in ("admit", "append", "free"):
            raise ValueError(f"unknown operation: {name}")
        result: dict[str, Any] = getattr(self, name)(*arguments)
        return result


def run(workload: dict[str, Any]) -> dict[str, Any]:
    """Apply every operation of a workload to a fresh manager."""
    driver = Driver(workload["blocks"], workload["block_size"])
    results = [driver.apply(operation) for operation in workload["ops"]]
    return {
        "peer": "vllm",
        "version": vllm.__version__,
        "results": results,
        "left": driver.left(),
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
