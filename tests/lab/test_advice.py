"""Advice: the frames a target needs, and sentences that say what the rows say."""

from __future__ import annotations

import pytest

from tenure.errors import ConfigError
from tenure.lab.advice import advise, frames_needed, waits
from tenure.lab.replay import Row


def rows(policy: str, rates: dict[int, float], optimum: float = 0.5, gap: float | None = 0.25) -> list[Row]:
    return [Row(policy, size, rate, 0, 0.0, optimum=optimum, gap_closed=gap) for size, rate in rates.items()]


def test_a_measured_capacity_is_not_interpolated() -> None:
    need = frames_needed(rows("lru", {100: 0.2, 400: 0.4}), 0.4, ceiling=0.6)
    assert (need.frames, need.interpolated) == (400, False)
    assert frames_needed(rows("lru", {100: 0.2}), 0.1, ceiling=0.6).frames == 100


def test_between_two_capacities_the_line_is_over_log_frames() -> None:
    need = frames_needed(rows("lru", {400: 0.4, 100: 0.2}), 0.3, ceiling=0.6)
    assert (need.frames, need.low, need.high, need.interpolated) == (200, 100, 400, True)


@pytest.mark.parametrize(
    ("target", "words"), [(1.5, "between 0 and 1"), (0.7, "without any limit it is 0.6"), (0.5, "the best is 0.4")]
)
def test_targets_out_of_reach_are_refused(target: float, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        frames_needed(rows("lru", {100: 0.2, 400: 0.4}), target, ceiling=0.6)
    assert caught.value.numbers["hit_rate"] == target


def test_advice_names_the_best_policy_its_gap_and_the_next_size() -> None:
    text = advise(rows("lru", {100: 0.2, 200: 0.3}, gap=0.0) + rows("hazard", {100: 0.25, 200: 0.35}), ceiling=0.6)
    assert text[0] == (
        "At 100 frames hazard is best: 25.00% of blocks hit; it closes 25% of the gap between LRU and the "
        "optimum (50.00%); 200 frames add 10.0 points."
    )
    assert text[-1] == "More frames may still help: the ceiling, with no limit to them, is 60.00%."


def test_advice_says_when_it_is_enough_and_when_nothing_helps() -> None:
    assert advise(rows("lru", {100: 0.6, 200: 0.6}, gap=None), ceiling=0.6)[-1] == (
        "100 frames reach the ceiling, which is 60.00% with no limit to the frames."
    )
    assert advise(rows("lru", {100: 0.0}), ceiling=0.0) == [
        "No block is ever asked for twice: no size and no policy gives a hit."
    ]


def test_near_the_ceiling_is_said_with_its_distance() -> None:
    text = advise(rows("lru", {100: 0.4, 200: 0.5974}, gap=None), ceiling=0.6)[-1]
    assert text == "200 frames come within 0.3 points of the ceiling, which is 60.00% with no limit to the frames."
    assert advise(rows("lru", {1: 0.5951}), ceiling=0.6)[-1].startswith("1 frame comes within 0.5 points of")


def test_lru_is_best_only_where_it_alone_is() -> None:
    def first(lru: float, **others: float) -> str:
        found = rows("lru", {100: lru}) + [row for name, rate in others.items() for row in rows(name, {100: rate})]
        return advise(found, ceiling=0.6)[0].split(":")[0]

    assert first(0.3, fifo=0.2) == "At 100 frames lru is best"
    assert first(0.3, fifo=0.3) == "At 100 frames no policy beats LRU by 0.05 points"
    assert first(0.3, fifo=0.2, arc=0.3004) == "At 100 frames no policy beats LRU by 0.05 points"
    assert first(0.3, fifo=0.2, arc=0.301) == "At 100 frames arc is best"
    assert first(0.3, slru=0.31, arc=0.31, gdsf=0.31) == "At 100 frames slru, arc and gdsf are best"


def test_one_frame_and_gains_of_nothing() -> None:
    assert advise(rows("lru", {1: 0.2, 2: 0.2}), ceiling=0.6)[0] == (
        "At 1 frame lru hits 20.00% of blocks, the optimum is 50.00%."
    )


def test_waiting_is_told_by_capacity() -> None:
    def row(policy: str, size: int, waited: int) -> Row:
        return Row(policy, size, 0.2, 0, 0.0, waited=waited)

    assert waits([row("lru", 10, 953), row("arc", 10, 953), row("lru", 50, 0), row("arc", 50, 7)], 1537) == [
        "At 10 frames 953 of 1,537 requests waited for room.",
        "At 50 frames 0 to 7 (by policy) of 1,537 requests waited for room.",
    ]
    assert waits([row("lru", 10, 0)], 1537) == []
