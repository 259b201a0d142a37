"""Known answers on real traces: sizes and ceilings from the readers; LRU, plain LFU and the optimum from the pool."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tenure.lab import bounds
from tenure.lab.readers import read
from tenure.lab.replay import replay
from tenure.lab.trace import Trace

from .reference import ReferencePool

TOLERANCE = 0.0005

SIZES = {  # trace: requests, blocks asked, distinct, ceiling
    "conversation": (12_031, 288_500, 182_790, 0.3664),
    "synthetic": (3_993, 121_877, 43_924, 0.640),
    "agentic": (1_537, 2_547_660, 139_117, 0.9454),
}
HIT_RATES = {  # trace: policy: frames: hit rate
    "conversation": {
        "lru": {1_000: 0.0445, 3_000: 0.0653, 10_000: 0.2116, 30_000: 0.3257, 60_000: 0.3590},
        "lfu:ageing=0": {1_000: 0.0481, 3_000: 0.0750, 10_000: 0.1317, 30_000: 0.2760, 60_000: 0.3543},
        "optimum": {1_000: 0.1792, 3_000: 0.2916, 10_000: 0.3664, 30_000: 0.3664},
    },
    "synthetic": {
        "lru": {300: 0.027, 1_000: 0.0841, 3_000: 0.1906, 10_000: 0.4239},
        "optimum": {300: 0.117, 1_000: 0.2691, 3_000: 0.4438, 10_000: 0.6174},
    },
    "agentic": {
        "lru": {2_000: 0.1732, 5_000: 0.4130, 10_000: 0.6522, 20_000: 0.8846, 40_000: 0.9364},
        "lfu:ageing=0": {2_000: 0.1738, 5_000: 0.3388, 10_000: 0.3963, 20_000: 0.4542, 40_000: 0.5293},
        "optimum": {2_000: 0.1947, 5_000: 0.5396, 10_000: 0.7694, 20_000: 0.9159, 40_000: 0.9450},
    },
}
CASES = [(name, policy, frames) for name, table in HIT_RATES.items() for policy in table for frames in table[policy]]


@cache
def load(folder: Path, name: str) -> Trace:
    if name == "agentic":
        return read(folder / "agentic-coding", interleave=30)
    return read(folder / "mooncake" / f"{name}_trace.jsonl")


@pytest.mark.parametrize("name", SIZES)
def test_sizes_and_ceiling(real_traces: Path, name: str) -> None:
    trace = load(real_traces, name)
    requests, asked, distinct, ceiling = SIZES[name]
    assert (trace.requests, trace.asked, trace.distinct) == (requests, asked, distinct)
    assert bounds.ceiling(trace) == pytest.approx(ceiling, abs=TOLERANCE)


@pytest.mark.parametrize(("name", "policy", "frames"), CASES)
def test_hit_rates(real_traces: Path, name: str, policy: str, frames: int) -> None:
    pytest.importorskip("tenure._core", reason="the native core is not built")
    name_of, _, ageing = policy.partition(":ageing=")
    row = replay(load(real_traces, name), name_of, frames, overlap=False, params={"ageing": float(ageing)} if ageing else {})
    assert row.hit_rate == pytest.approx(HIT_RATES[name][policy][frames], abs=TOLERANCE)


@pytest.mark.parametrize(
    ("name", "policy", "frames"),
    [
        ("conversation", "lru", 10_000),
        ("conversation", "optimum", 1_000),
        ("synthetic", "lru", 300),
        ("synthetic", "optimum", 3_000),
    ],
)
def test_the_reference_pool_gives_them_too(real_traces: Path, name: str, policy: str, frames: int) -> None:
    trace = load(real_traces, name)
    got = ReferencePool(frames, policy).replay(
        trace.offsets, trace.blocks, None, None, None, None, bounds.next_use(trace), False, None
    )
    assert got["hit_blocks"] / trace.asked == pytest.approx(HIT_RATES[name][policy][frames], abs=TOLERANCE)


def test_agent_text_is_read_with_a_tokenizer(real_traces: Path) -> None:
    trace = read(real_traces / "agent-text", tokenizer="bytes", interleave=30)
    assert trace.requests == 372
    assert trace.session.max() == 18
    assert bounds.ceiling(trace) > 0.9
