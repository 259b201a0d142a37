"""Fixtures of the lab's tests: small traces, the slow reference pool in place of the core, and the real traces."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tenure.errors import ConfigError
from tenure.lab import bounds, pool
from tenure.lab.trace import Trace

from .reference import ReferencePool


@pytest.fixture
def real_traces() -> Path:
    """The folder with real traces, from TENURE_TRACES; skips without it."""
    folder = os.environ.get("TENURE_TRACES")
    if not folder or not Path(folder).is_dir():
        pytest.skip("TENURE_TRACES names no folder with traces")
    return Path(folder)


@pytest.fixture
def on_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays run on the reference pool: lru and optimum as they are, every other policy as lfu."""

    def run(
        trace: Trace,
        policy: str,
        capacity: int,
        overlap: bool,
        params: Mapping[str, float],
        progress: pool.Progress | None,
    ) -> pool.Outcome:
        if params:
            raise ConfigError(f"{policy} has no parameter", **params)
        kind = policy if policy in ("lru", "optimum") else "lfu"
        result = ReferencePool(capacity, kind).replay(
            trace.offsets,
            trace.blocks,
            trace.arrival,
            trace.duration,
            trace.output,
            trace.tenant,
            bounds.next_use(trace),
            overlap,
            progress,
        )
        return pool.Outcome(
            result["hit_blocks"],
            result["asked_blocks"],
            result["evictions"],
            result["seconds"],
            np.asarray(result["per_request_hits"]),
            result["waited"],
        )

    monkeypatch.setattr(pool, "run", run)
