"""The preset "vllm" evicts the same blocks in the same order as vLLM's own KVCacheManager on the same requests."""

from __future__ import annotations

from typing import Any

import pytest
from driving import run_driver
from ours import Run, without_copies
from workloads import request_workload

from tenure import BlockManager

WORKLOADS = [
    request_workload(kind, seed, blocks=blocks)
    for kind in ("shared", "chat", "scan", "concurrent")
    for seed in range(8)
    for blocks in (40, 72)
]


@pytest.fixture(scope="module")
def theirs() -> list[dict[str, Any]]:
    return run_driver("vllm", WORKLOADS)


@pytest.mark.peers
@pytest.mark.parametrize("number", range(len(WORKLOADS)))
def test_same_hits_same_refusals_same_victims_in_the_same_order(theirs: list[dict[str, Any]], number: int) -> None:
    workload = WORKLOADS[number]
    manager = BlockManager.preset("vllm", workload["blocks"], workload["block_size"], events=1 << 16)
    ours = Run(manager).operations(workload["ops"])
    expected = without_copies(theirs[number]["results"])
    for step, (mine, other) in enumerate(zip(ours, expected, strict=True)):
        assert mine == other, f"{workload['kind']}, seed {workload['seed']}, step {step}: {workload['ops'][step][:2]}"
    manager.check()


@pytest.mark.peers
def test_the_workloads_do_evict(theirs: list[dict[str, Any]]) -> None:
    evicted = sum(len(r["evicted"]) for run in theirs for r in run["results"] if "evicted" in r)
    assert evicted > 5_000
