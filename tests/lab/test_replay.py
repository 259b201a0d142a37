"""Replay: rows, the gap closed, sweeps and the report; on the reference pool."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tenure.errors import ConfigError, TraceError
from tenure.lab import bounds
from tenure.lab.plan import plan
from tenure.lab.replay import Row, compare, replay, report, sweep
from tenure.lab.settings import PolicyChoice, policies
from tenure.lab.trace import Trace

from .making import random_paths, trace_of

pytestmark = pytest.mark.usefixtures("on_reference")


@pytest.fixture
def trace() -> Trace:
    return trace_of(random_paths(np.random.default_rng(1), requests=200, branching=3, depth=4))


def test_one_replay_gives_one_row(trace: Trace) -> None:
    row = replay(trace, "lru", 20, overlap=False)
    assert (row.policy, row.capacity) == ("lru", 20)
    assert 0 < row.hit_rate < bounds.ceiling(trace)
    assert row.tokens_saved == round(row.hit_rate * trace.asked) * trace.block_size
    assert row.optimum is row.gap_closed is None


def test_a_sweep_has_every_policy_at_every_capacity_with_the_gap(trace: Trace) -> None:
    rows = sweep(trace, ["lfu", "lru"], [10, 20], overlap=False)
    assert [(row.policy, row.capacity) for row in rows] == [("lfu", 10), ("lfu", 20), ("lru", 10), ("lru", 20)]
    for row in rows:
        assert row.optimum is not None
        assert row.optimum >= row.hit_rate
        assert row.gap_closed is not None
    assert rows[2].gap_closed == rows[3].gap_closed == 0.0


def test_the_gap_is_the_part_of_the_way_from_lru_to_the_optimum() -> None:
    def row(policy: str, rate: float) -> Row:
        return Row(policy, 5, rate, 0, 0.0)

    half = compare(row("x", 0.3), row("lru", 0.2), row("optimum", 0.4))
    assert half.gap_closed == pytest.approx(0.5)
    assert half.optimum == 0.4
    assert compare(row("x", 0.1), row("lru", 0.2), row("optimum", 0.4)).gap_closed == pytest.approx(-0.5)
    assert compare(row("x", 0.4), row("lru", 0.4), row("optimum", 0.4)).gap_closed is None
    assert compare(row("x", 0.3995), row("lru", 0.4), row("optimum", 0.4009)).gap_closed is None


def test_jobs_change_nothing(trace: Trace) -> None:
    assert sweep(trace, ["lru", "lfu"], [10, 20], jobs=3) == sweep(trace, ["lru", "lfu"], [10, 20])


def test_watching_a_sweep_ends_at_every_request_of_every_run(trace: Trace) -> None:
    seen: dict[tuple[str, int], int] = {}
    sweep(trace, ["lru"], [10, 20], watch=lambda policy, capacity, done: seen.update({(policy, capacity): done}))
    assert seen == {(policy, size): trace.requests for policy in ("lru", "optimum") for size in (10, 20)}


def test_the_report_is_json_with_the_promised_fields(trace: Trace) -> None:
    document = json.loads(json.dumps(report(trace, sweep(trace, ["lru"], [10]), overlap=False)))
    assert document["trace"].keys() >= {"requests", "blocks", "distinct", "ceiling"}
    assert document["rows"][0].keys() >= {
        "policy",
        "capacity",
        "hit_rate",
        "optimum",
        "gap_closed",
        "evictions",
        "seconds",
    }
    assert document["trace"]["blocks"] == trace.asked


def test_parameters_reach_the_pool(trace: Trace) -> None:
    with pytest.raises(ConfigError, match="lfu has no parameter"):
        sweep(trace, policies("lfu:half_life=3"), [10])


@pytest.mark.parametrize("rate", [1.2, -0.1, float("nan")])
def test_a_row_cannot_hit_more_than_was_asked(rate: float) -> None:
    with pytest.raises(TraceError, match="cannot be") as caught:
        Row("lru", 10, rate, 0, 0.0)
    assert caught.value.numbers["capacity"] == 10


def test_a_pool_has_a_frame(trace: Trace) -> None:
    with pytest.raises(ConfigError, match="at least one frame"):
        replay(trace, "lru", 0)


def test_a_plan_reaches_its_target_with_few_frames_to_spare(trace: Trace) -> None:
    target = 0.8 * bounds.ceiling(trace)
    need, rows = plan(trace, PolicyChoice("lru"), target, overlap=False)
    assert replay(trace, "lru", need.high, overlap=False).hit_rate >= target
    assert replay(trace, "lru", need.low, overlap=False).hit_rate < target or need.low == need.high
    assert [row.capacity for row in rows] == sorted(row.capacity for row in rows)


def test_a_plan_for_the_impossible_is_refused(trace: Trace) -> None:
    with pytest.raises(ConfigError, match="cannot be reached"):
        plan(trace, PolicyChoice("lru"), 0.999)
    with pytest.raises(ConfigError, match="between 0 and 1"):
        plan(trace, PolicyChoice("lru"), 1.5)
