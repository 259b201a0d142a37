"""Replay speed: LRU against libcachesim's bulk LRU on the same accesses; every policy, and a Python one, against our LRU."""

from __future__ import annotations

import os
import struct
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.ours import no_collection, request_times
from benchmarks.report import Row, ratio, save
from tenure import _core
from tenure.lab import pool
from tenure.lab.readers import read
from tenure.lab.trace import Trace

CAPACITY = 10_000
ROUNDS = 7


class OldestFirst:
    """A user's policy: LRU again, in Python."""

    def priority(self, block: _core.BlockView) -> float:
        return block.last_used


def conversation() -> Trace | None:
    folder = os.environ.get("TENURE_TRACES")
    path = Path(folder or "") / "mooncake" / "conversation_trace.jsonl"
    return read(path) if folder and path.exists() else None


def ours(trace: Trace, policy: str) -> float:
    """Accesses a second."""
    with no_collection():
        start = time.perf_counter()
        pool.run(trace, policy, CAPACITY, False, {}, None)
        return len(trace.blocks) / (time.perf_counter() - start)


def theirs(path: Path, count: int) -> float:
    import libcachesim

    reader = libcachesim.TraceReader(str(path), libcachesim.TraceType.ORACLE_GENERAL_TRACE)
    cache = libcachesim.LRU(cache_size=CAPACITY)
    with no_collection():
        start = time.perf_counter()
        cache.process_trace(reader)
        return count / (time.perf_counter() - start)


def oracle_general(trace: Trace, path: Path) -> None:
    """libCacheSim's binary format: time u32, object u64, size u32, next access i64."""
    record = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
    assert record.itemsize == struct.calcsize("<IQIq")
    rows = np.zeros(len(trace.blocks), record)
    rows["time"] = np.repeat(trace.arrival, np.diff(trace.offsets)).astype(np.uint32)
    rows["id"] = trace.blocks.astype(np.uint64) + 1
    rows["size"] = 1
    rows["next"] = -1
    rows.tofile(path)


def run() -> None:
    trace = conversation()
    rows: list[Row] = []
    if trace is None:
        print("replay speed: not run, TENURE_TRACES names no folder with mooncake/conversation_trace.jsonl")
    else:
        names = [name for name in _core.POLICIES if name != "optimum"]
        speed: dict[str, list[float]] = {name: [] for name in [*names, "libcachesim"]}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "conversation.oracleGeneral.bin"
            oracle_general(trace, path)
            for _ in range(ROUNDS):
                speed["libcachesim"].append(theirs(path, len(trace.blocks)))
                for name in names:
                    speed[name].append(ours(trace, name))
        rows.append(
            Row(
                "replay of the conversation trace, accesses a second: our lru ÷ libcachesim's bulk LRU",
                ratio(speed["lru"], speed["libcachesim"]),
                (">=", 3.0),
                {"ours": speed["lru"], "theirs": speed["libcachesim"]},
            )
        )
        rows += [
            Row(f"the same: {name} ÷ lru", ratio(speed[name], speed["lru"]), (">=", 0.5), {"ours": speed[name]})
            for name in names
            if name != "lru"
        ]
    lru, custom = [], []
    for _ in range(3):
        lru += request_times(2048, 4096, 200)
        custom += request_times(2048, 4096, 200, policy=OldestFirst())
    rows.append(
        Row("a 2,048-token request under a Python policy ÷ under lru, time", ratio(custom, lru), ("<=", 20.0), {"ours": custom})
    )
    save("policies", "Policies", rows)
