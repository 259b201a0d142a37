"""The same request from 10^4 to 10^7 blocks, and what a block costs in memory, measured as growth of a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.report import Row, ratio, save

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
TOKENS = 2048
ROUNDS = 3

_CHILD = """
import json, sys
import numpy as np
from benchmarks import ours
from tenure import BlockManager, Identity
import time

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

frames = int(sys.argv[1])
requests = ours.Requests(ours.BLOCK * 128)
before = resident()
manager = BlockManager(frames, ours.BLOCK)
who = Identity(model="bench")
ours.filled(manager, who, requests)
grown = resident() - before
prompts = [requests.next() for _ in range(400)]
times = []
with ours.no_collection():
    for prompt in prompts:
        start = time.perf_counter_ns()
        sequence = manager.sequence(prompt, who, written=True)
        _ = sequence.block_table
        sequence.release()
        times.append(time.perf_counter_ns() - start)
        assert sequence.hit_tokens == requests.half
print(json.dumps({"times": times, "bytes": grown / frames}))
"""


def run() -> None:
    times: dict[int, list[float]] = {size: [] for size in SIZES}
    memory: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(ROUNDS):
        for size in SIZES:
            out = subprocess.run([sys.executable, "-c", _CHILD, str(size)], capture_output=True, text=True, check=True).stdout
            found = json.loads(out)
            times[size] += found["times"]
            memory[size].append(found["bytes"])
    rows = [
        Row(
            f"a {TOKENS}-token request in {size:,} blocks ÷ in {SIZES[0]:,}",
            ratio(times[size], times[SIZES[0]]),
            ("<=", 3.0),
            {"ns": times[size]},
        )
        for size in SIZES[1:]
    ]
    rows += [
        Row(f"bytes a block at {size:,} blocks of 16 tokens, tokens included", sorted(memory[size])[ROUNDS // 2], ("<=", 200.0))
        for size in SIZES
    ]
    save("growth", "Growth and memory", rows)
