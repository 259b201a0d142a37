"""Intervals against loops over the same draws, exact bounds where nothing varies, and how often an interval is right."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tenure.scbench.report.statistics import DRAWS, SEED, bound, draws, estimate, mean, ratio


def resampled(strata: list[list[tuple[float, ...]]]) -> list[list[float]]:
    """The means of each resample's columns, tasks weighing the same, by loops."""
    picks = [
        np.random.default_rng([SEED, stream]).integers(0, len(one), (DRAWS, len(one))).tolist()
        for stream, one in enumerate(strata)
    ]
    found = []
    for draw in range(DRAWS):
        columns = []
        for column in range(len(strata[0][0])):
            means = [sum(one[session][column] for session in picks[stream][draw]) / len(one) for stream, one in enumerate(strata)]
            columns.append(sum(means) / len(means))
        found.append(columns)
    return found


def test_a_mean_and_a_ratio_over_tasks_are_what_loops_over_the_same_draws_give() -> None:
    draw = random.Random(3)
    strata = [[(draw.random(), 0.5 + draw.random() / 2) for _ in range(count)] for count in (7, 4, 11)]
    arrays = [np.asarray(one) for one in strata]
    again = resampled(strata)
    middle = [sum(sum(row[column] for row in one) / len(one) for one in strata) / 3 for column in (0, 1)]
    for found, value, drawn in (
        (estimate(arrays, lambda means: means[..., 0], 0, 1), middle[0], [one[0] for one in again]),
        (ratio(arrays), middle[0] / middle[1], [one[0] / one[1] for one in again]),
    ):
        assert found is not None
        assert found.value == pytest.approx(value, abs=1e-6)
        assert (found.low, found.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=1e-6)
        assert found.sessions == 22
        assert not found.exact
    assert mean([row[0] for row in strata[0]]) != mean([row[1] for row in strata[0]])


def test_draws_of_two_tasks_are_not_the_same_and_each_draws_all_its_sessions() -> None:
    assert (draws(9, 0) != draws(9, 1)).any()
    assert (draws(9, 0).sum(axis=1) == 9).all()
    assert draws(9, 0).shape == (DRAWS, 9)


@pytest.mark.parametrize("count", [1, 2, 20])
def test_where_sessions_agree_the_bound_is_the_binomial_one(count: int) -> None:
    edge = 0.025 ** (1 / count)
    right, wrong = mean([1.0] * count), mean([0.0] * count)
    assert right is not None
    assert wrong is not None
    assert (right.value, right.high, right.exact) == (1, 1, True)
    assert right.low == pytest.approx(edge, abs=1e-6)
    assert edge**count == pytest.approx(0.025)  # so many right answers are no rarer than that
    assert (wrong.low, wrong.exact) == (0, True)
    assert wrong.high == pytest.approx(1 - edge, abs=1e-6)
    same = mean([0.0] * count, -1.0)
    assert same is not None
    assert (same.low, same.high) == pytest.approx((-bound(count), bound(count)), abs=1e-6)


def test_one_session_that_differs_gives_the_bootstrap_back() -> None:
    found = mean([1.0] * 9 + [0.0])
    assert found is not None
    assert not found.exact
    assert 0.6 <= found.low < 0.9 < found.high == 1


def test_what_is_not_there_has_no_estimate() -> None:
    assert mean([]) is None
    assert ratio([]) is None
    assert ratio([np.zeros((4, 2))]) is None  # over a dense that is always wrong


def test_intervals_contain_the_truth_about_as_often_as_they_say() -> None:
    """Of sessions of five questions with a chance of .8, and against a wrong truth as control."""
    generator = np.random.default_rng(0)
    found = [mean((generator.random((30, 5)) < 0.8).mean(axis=1).tolist()) for _ in range(300)]
    assert all(one is not None for one in found)
    right = sum(one.low <= 0.8 <= one.high for one in found if one) / len(found)
    wrong = sum(one.low <= 0.7 <= one.high for one in found if one) / len(found)
    assert 0.9 <= right <= 0.98
    assert wrong < 0.3
