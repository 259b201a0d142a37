"""The simulated pool against closed forms of queues, against its own demand, and in what goes wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tenure import ConfigError
from tenure.lab.cluster import simulate
from tenure.lab.fleet import Costs, Found, Incident, Load
from tenure.lab.queues import Shards
from tenure.probing import first_asked

MANY = 60_000
COSTS = Costs(trip=10e-6, get=1e-6, families=2e-6, bump=10e-6, claim=2e-6, commit=5e-6, rtt=200e-6)
SMALL = Load(rate=20.0, blocks=32, shared=24, prefixes=50, held=10)


def waits(load: float, works: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arrivals at random to one shard that is so busy on average; when each came, waited, and was done."""
    random = np.random.default_rng(5)
    came = np.cumsum(random.exponential(works.mean() / load, len(works)))
    shard = Shards(1)
    done = np.array([shard.serve(when, work)[0] for when, work in zip(came, works[:, None], strict=True)])
    return came, done - came - works, done


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_equal_work_waits_as_in_m_d_1(load: float) -> None:
    _, waited, _ = waits(load, np.full(MANY, 1.0))
    assert waited.mean() == pytest.approx(load / (2 * (1 - load)), rel=0.06)
    assert waited.mean() != pytest.approx(load / (1 - load), rel=0.3)  # that is M/M/1


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_random_work_waits_as_in_m_m_1(load: float) -> None:
    _, waited, _ = waits(load, np.random.default_rng(6).exponential(1.0, MANY))
    assert waited.mean() == pytest.approx(load / (1 - load), rel=0.08)


def test_littles_law() -> None:
    came, _, done = waits(0.7, np.full(MANY, 1.0))
    looked = np.random.default_rng(7).uniform(0, came[-1], 20_000)  # at moments that know nothing of arrivals
    inside = np.searchsorted(came, looked) - np.searchsorted(np.sort(done), looked)
    rate = len(came) / came[-1]
    assert inside.mean() == pytest.approx(rate * (done - came).mean(), rel=0.03)


def test_a_batch_for_several_shards_is_done_when_the_last_is() -> None:
    shards = Shards(3)
    assert shards.serve(0.0, np.array([1.0, 3.0, 0.0])) == (3.0, True)
    assert shards.serve(1.0, np.array([1.0, 0.0, 0.5])) == (2.0, True)
    assert shards.busy.tolist() == [2.0, 3.0, 0.5]
    shards.down[1] = (2.0, 4.0)
    assert shards.serve(2.0, np.array([0.0, 1.0, 1.0])) == (3.0, False)
    assert shards.serve(4.0, np.array([0.0, 1.0, 0.0])) == (5.0, True)
    assert shards.busy.tolist() == [2.0, 4.0, 1.5]


def test_what_a_lookup_asks_for_first() -> None:
    assert first_asked(0) == []
    assert first_asked(3) == [0, 1, 2]
    assert first_asked(100) == [*range(16), 16, 32, 64, 99]


def figures(found: Found) -> tuple[object, ...]:
    return found.busy.tolist(), found.latency.tolist(), found.requests, found.won, found.hit


def test_a_seed_gives_the_same_again_and_another_does_not() -> None:
    first, again, other = (figures(simulate(5, 3, SMALL, COSTS, 2.0, seed=seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_whole_numbers_are_numbers() -> None:
    whole, real = Load(rate=20, blocks=4, shared=0, prefill=0, poll=1), Load(rate=20.0, blocks=4, shared=0, prefill=0.0, poll=1.0)
    assert figures(simulate(3, 2, whole, replace(COSTS, digest=0), 2)) == figures(simulate(3, 2, real, COSTS, 2.0))


def test_the_work_is_that_of_the_requests() -> None:
    """One block that nobody else wants: a look-up, a claim, a commit; and polls."""
    load = Load(rate=50.0, blocks=1, shared=0, prefill=0.0, poll=0.5)
    found = simulate(20, 1, load, COSTS, 5.0)
    each = 3 * COSTS.trip + COSTS.families + COSTS.get + COSTS.claim + COSTS.commit
    polls = 20 * 5.0 / 0.5 * (COSTS.trip + COSTS.families)
    assert found.busy[0] * 5.0 == pytest.approx(found.requests * each + polls, rel=0.01)
    assert found.requests == pytest.approx(20 * 50.0 * 5.0, rel=0.03)
    assert (found.won, found.already, found.claimed, found.wasted) == (pytest.approx(found.requests, abs=20), 0, 0, 0)


def test_the_families_make_their_shard_the_hottest() -> None:
    """By the MGET of each look-up, and a batch of its own where no head that is asked for lies there too."""
    load = replace(SMALL, shared=0, blocks=4)
    asked = simulate(50, 8, load, COSTS, 4.0)
    polled = simulate(50, 8, replace(load, asked=False), COSTS, 4.0)
    assert asked.busy.argmax() == 0
    more = 50 * load.rate * (COSTS.families + COSTS.trip * (7 / 8) ** load.blocks)
    assert asked.busy[0] - polled.busy[0] == pytest.approx(more, rel=0.05)
    assert asked.busy[1:].mean() == pytest.approx(polled.busy[1:].mean(), rel=0.02)


def test_nodes_that_miss_at_once_compute_at_once() -> None:
    """After a new epoch, whoever asks between the first request and its commit computes in vain: rate x that time of them."""
    load = Load(rate=10.0, blocks=4, shared=4, prefixes=1, held=0, prefill=0.05)
    window = 4 * load.prefill + 2 * COSTS.rtt
    wasted = [simulate(4, 1, load, COSTS, 3.0, seed=seed, incidents=[Incident("bump", 0.0)]).wasted / 4 for seed in range(60)]
    assert np.mean(wasted) == pytest.approx(4 * load.rate * window, rel=0.12)
    assert simulate(4, 1, load, COSTS, 3.0).wasted == 0


def test_a_new_epoch_is_computed_again_and_then_found() -> None:
    found = simulate(10, 2, SMALL, COSTS, 8.0, incidents=[Incident("bump", 3.0)])
    usual = SMALL.shared / SMALL.blocks
    assert found.line_reused[2:6].min() == pytest.approx(usual)
    assert found.line_reused[6] < 0.8 * usual
    assert found.line_reused[-3:-1].mean() > 0.97 * usual


@pytest.mark.parametrize("shard", [0, 1])
def test_a_shard_that_is_away_costs_hits_and_no_answer(shard: int) -> None:
    away = Incident("down", 2.0, shard=shard, lasts=2.0, timeout=0.5)
    found = simulate(10, 2, SMALL, COSTS, 12.0, incidents=[away])
    calm = simulate(10, 2, SMALL, COSTS, 12.0)
    assert calm.failed == 0
    assert found.failed > 0
    assert found.line_failed[6] == 1.0  # breakers are open
    assert not found.line_failed[:4].any()
    assert not found.line_failed[-4:-1].any()
    assert found.requests > 0.95 * calm.requests
    assert found.hit < calm.hit


def test_more_nodes_are_more_work_and_find_what_is_there() -> None:
    found = simulate(10, 2, SMALL, COSTS, 6.0, incidents=[Incident("cold", 3.0, nodes=10)])
    assert found.line_busiest[8:11].mean() > 1.6 * found.line_busiest[2:5].mean()
    assert found.line_reused[6] == pytest.approx(SMALL.shared / SMALL.blocks)


def test_what_has_settled_is_counted_only() -> None:
    whole, part = (simulate(10, 2, SMALL, COSTS, 4.0, settle=settle) for settle in (0.0, 2.0))
    assert part.requests == pytest.approx(whole.requests / 2, rel=0.1)
    assert part.busy.sum() == pytest.approx(whole.busy.sum(), rel=0.15)  # a second


def test_runs_and_larger_trips_ask_less() -> None:
    plain, runs, large = (
        simulate(10, 4, replace(SMALL, **change), COSTS, 3.0).batches for change in ({}, {"run": 8}, {"together": 1 << 40})
    )
    assert runs < 0.5 * plain
    assert large < 0.8 * plain


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (lambda: replace(COSTS, get=-1.0), "costs.get"),
        (lambda: Costs.of({"trip": {"value": 1.0}}), "not whole"),
        (lambda: replace(SMALL, rate=0.0), "load.rate"),
        (lambda: replace(SMALL, shared=33), "load.shared"),
        (lambda: replace(SMALL, run=5), "runs of 5"),
        (lambda: Incident("flood", 1.0), "flood"),
        (lambda: Incident("cold", -1.0), "incident.at"),
        (lambda: simulate(0, 1, SMALL, COSTS, 1.0), "nodes"),
        (lambda: simulate(1, 0, SMALL, COSTS, 1.0), "shards"),
        (lambda: simulate(1, 1, SMALL, COSTS, 0.0), "duration"),
        (lambda: simulate(1, 1, SMALL, COSTS, 1.0, settle=1.0), "settle"),
        (lambda: simulate(1, 1, SMALL, COSTS, 1.0, incidents=[Incident("down", 0.1, shard=1, lasts=1.0)]), "incident.shard"),
    ],
)
def test_what_does_not_fit_is_refused(wrong: object, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        wrong()  # type: ignore[operator]
