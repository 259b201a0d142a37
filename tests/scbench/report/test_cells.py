"""Cells against a second way to count them, by hand where a session is missing, and rows that cannot be."""

from __future__ import annotations

import random

import pytest

from tenure.errors import ConfigError
from tenure.scbench.report.cells import Cell, cells, weak
from tenure.scbench.report.samples import gather
from tenure.scbench.results import Row

from ..rows import row
from .making import answered, grid


def only(rows: list[Row], method: str, mode: str = "multi_turn") -> Cell:
    found = [cell for cell in cells(gather(rows)) if (cell.method, cell.mode) == (method, mode)]
    assert len(found) == 1
    return found[0]


def test_means_are_those_of_plain_loops() -> None:
    rows = list(grid(models=("m",), budgets=(0.5, 0.25), sessions=6))
    random.Random(1).shuffle(rows)
    dense = {(one.task, one.mode, one.seed): one for one in rows if one.method == "dense"}
    found = cells(gather(rows))
    assert len(found) == len({one.cell for one in rows})
    for cell in found:
        own = [one for one in rows if one.cell == (cell.model, cell.task, cell.mode, cell.method, cell.budget)]
        scores = [score for one in own for score in one.scores]
        close = pytest.approx
        assert cell.sessions == len(own) == 6
        assert cell.accuracy.value == close(sum(scores) / len(scores), abs=1e-6)
        for turn, one in enumerate(cell.by_turn):
            assert one.value == close(sum(each.scores[turn] for each in own) / 6, abs=1e-6)
        rest = sum(sum(one.scores[1:]) / 4 for one in own) / 6
        assert cell.first == cell.by_turn[0]
        assert cell.later.value == close(rest, abs=1e-6)
        assert cell.fall.value == close(cell.first.value - rest, abs=1e-5)
        less = sum(sum(one.scores) - sum(dense[one.task, one.mode, one.seed].scores) for one in own) / 30
        assert cell.difference.value == close(less, abs=1e-6)
        assert cell.resident == close(sum(one.resident for one in own) / sum(one.full for one in own), abs=1e-6)
        assert cell.read == close(sum(one.read for one in own) / sum(one.full for one in own), abs=1e-6)
        assert cell.saved == close(1 - sum(one.prefilled for one in own) / sum(one.asked for one in own), abs=1e-6)
        over = sorted(one.seconds / dense[one.task, one.mode, one.seed].seconds for one in own)
        assert cell.seconds_ratio == close((over[2] + over[3]) / 2, abs=1e-6)


def test_a_method_is_compared_in_the_sessions_that_dense_has_too() -> None:
    rows = answered("dense", {0: (1.0, 1.0), 1: (1.0, 0.0), 3: (1.0, 1.0)})
    rows += answered("snapkv", {1: (1.0, 0.5), 2: (0.0, 0.0), 3: (1.0, 0.5)}, 0.5)
    found = only(rows, "snapkv")
    assert found.sessions == 3
    assert found.accuracy.value == 0.5
    assert found.difference.sessions == 2  # sessions 1 and 3: +.25 and -.25
    assert found.difference.value == 0
    assert (found.difference.low, found.difference.high) == (-0.25, 0.25)


def test_without_dense_nothing_is_compared_and_one_turn_has_no_later_ones() -> None:
    found = only(answered("snapkv", dict.fromkeys(range(3), (1.0,)), 0.5), "snapkv")
    assert found.difference is found.later is found.fall is found.seconds_ratio is None
    assert found.first == found.accuracy
    assert found.accuracy.exact


def test_dense_under_point_eight_is_flagged_where_it_is_and_nowhere_else() -> None:
    good, bad = {0: (1.0, 1.0), 1: (1.0, 0.5)}, {0: (1.0, 1.0), 1: (1.0, 0.0)}
    rows = answered("dense", good) + answered("dense", bad, mode="multi_request") + answered("snapkv", bad, 0.5)
    rows += answered("snapkv", good, 0.5, mode="multi_request")
    samples = gather(rows)
    assert weak(samples) == (("smollm2", "retr_kv", "multi_request"),)
    assert {(cell.mode, cell.noise) for cell in cells(samples)} == {("multi_turn", False), ("multi_request", True)}


def test_the_last_row_of_a_session_counts() -> None:
    rows = answered("dense", {0: (0.0, 0.0)}) + answered("dense", {0: (1.0, 1.0)})
    assert only(rows, "dense").accuracy.value == 1
    assert only(rows, "dense").sessions == 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no rows"),
        ([row(scores=(), predictions=(), kinds=())], "no scores"),
        ([row(scores=(2.0, 0.0, 0.0, 0.0, 0.0))], "from 0 to 1"),
        ([row(scores=(float("nan"), 0.0, 0.0, 0.0, 0.0))], "from 0 to 1"),
        ([row(predictions=("a",))], "1 predictions for 5 scores"),
        ([row(budget=0.0)], "above 0"),
        ([row(budget=2.0)], "at most 1"),
        ([row(full=0)], "above 0"),
        ([row(asked=0)], "above 0"),
        ([row(), row(seed=1, stage="loading")], "method snapkv is compression"),
        ([row(), row(mode="multi_request", size=64)], "different grids"),
    ],
)
def test_rows_that_cannot_be_are_refused(rows: list[Row], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        gather(rows)


def test_a_difference_that_was_never_seen_may_still_be_either_way() -> None:
    right = dict.fromkeys(range(20), (1.0, 1.0))
    found = only(answered("dense", right) + answered("snapkv", right, 0.5), "snapkv")
    edge = 1 - 0.025 ** (1 / 20)
    assert (found.difference.low, found.difference.high) == pytest.approx((-edge, edge), abs=1e-6)
    assert (found.fall.low, found.fall.high) == pytest.approx((-edge, edge), abs=1e-6)
    assert found.difference.exact
