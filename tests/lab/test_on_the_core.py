"""The lab on the real core: it finds what the slow reference finds, and no policy beats the optimum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tenure.errors import ConfigError
from tenure.lab import bounds, pool
from tenure.lab.generate import generate
from tenure.lab.replay import replay, sweep
from tenure.lab.settings import POLICIES
from tenure.lab.trace import Trace

from .making import random_paths, trace_of
from .reference import ReferencePool

core = pytest.importorskip("tenure._core", reason="the native core is not built")


def reference(trace: Trace, policy: str, capacity: int) -> dict[str, Any]:
    return ReferencePool(capacity, policy).replay(
        trace.offsets, trace.blocks, None, None, None, None, bounds.next_use(trace), False, None
    )


@pytest.mark.parametrize(("policy", "params"), [("lru", {}), ("lfu", {"ageing": 0.0}), ("optimum", {})])
@pytest.mark.parametrize("seed", range(8))
def test_every_request_finds_what_the_reference_finds(seed: int, policy: str, params: Mapping[str, float]) -> None:
    rng = np.random.default_rng(seed)
    trace = trace_of(random_paths(rng, requests=300, branching=3, depth=6))
    for capacity in (4, 7, 20, 60):
        expected = reference(trace, policy, capacity)
        got = pool.run(trace, policy, capacity, False, params, None)
        assert got.hits.tolist() == expected["per_request_hits"].tolist()
        assert got.evictions == expected["evictions"]


@pytest.mark.parametrize("overlap", [True, False])
def test_no_policy_beats_the_optimum_or_the_ceiling(overlap: bool) -> None:
    trace = generate("mixed", seconds=300, seed=2).trace()
    for row in sweep(trace, POLICIES, [2000, 8000], overlap=overlap):
        assert row.optimum is not None
        assert row.hit_rate <= row.optimum + 1e-12
        assert row.optimum <= bounds.ceiling(trace) + 1e-12


def test_with_a_frame_for_every_block_each_policy_reaches_the_ceiling() -> None:
    trace = generate("chat", seconds=200, seed=2).trace()
    for row in sweep(trace, POLICIES, [trace.distinct]):
        assert row.hit_rate == pytest.approx(bounds.ceiling(trace))
        assert row.evictions == 0


def test_jobs_change_no_rate() -> None:
    trace = generate("chat", seconds=200, seed=2).trace()
    one, two = (sweep(trace, ["lru", "arc"], [100, 400], jobs=jobs) for jobs in (1, 2))
    assert [row.hit_rate for row in one] == [row.hit_rate for row in two]


def test_running_requests_hold_their_path() -> None:
    """Two requests fill the pool; the third has to wait for the first to end."""
    trace = trace_of([[0, 1], [2, 3], [4]], arrival=[0.0, 0.1, 0.2])
    assert replay(trace, "lru", 4).waited > 0
    assert replay(trace, "lru", 4, overlap=False).waited == 0


def test_tenants_have_queues_of_their_own_but_the_optimum_has_one() -> None:
    paths = [[i] for i in range(6)] + [[i] for i in range(6)]
    trace = trace_of(paths, tenant=[i % 2 for i in range(12)], tenants=("a", "b"))
    assert replay(trace, "optimum", 5, overlap=False).hit_rate == pytest.approx(reference(trace, "optimum", 5)["hit_blocks"] / 12)


def test_unknown_parameters_are_refused_by_the_core() -> None:
    with pytest.raises(ConfigError, match="no parameter 'colour'"):
        replay(trace_of([[0]]), "lfu", 4, params={"colour": 3.0})


def test_the_names_are_those_of_the_core() -> None:
    assert set(core.POLICIES) == {*POLICIES, "optimum"}


def test_progress_reaches_the_caller() -> None:
    seen: list[int] = []
    replay(trace_of([[0]] * 3000), "lru", 4, progress=seen.append)
    assert seen == sorted(seen)
    assert len(seen) > 1


def test_a_callback_that_raises_ends_the_replay() -> None:
    def stop(done: int) -> None:
        raise KeyError(done)

    with pytest.raises(KeyError):
        replay(trace_of([[0]] * 3000), "lru", 4, progress=stop)
