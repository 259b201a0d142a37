"""The operator's table: the best of each kind, never a control, and a sentence that the numbers bear."""

from __future__ import annotations

import msgspec

from tenure.scbench.report.choices import Choice, choices
from tenure.scbench.report.samples import gather
from tenure.scbench.results import Row

from .making import answered, grid

ALL = range(20)
SWAP = "swap: keep it in host memory, load it back"
RIGHT = dict.fromkeys(ALL, (1.0, 1.0, 1.0))


def table(rows: list[Row]) -> dict[str, Choice]:
    return {one.name: one for one in choices(gather(rows))}


def both(method: str, scores: dict[int, tuple[float, ...]], budget: float = 1.0, **changes: object) -> list[Row]:
    """The same in both modes."""
    return [one for mode in ("multi_turn", "multi_request") for one in answered(method, scores, budget, mode, **changes)]


def test_a_whole_grid_has_every_choice_once_and_no_control() -> None:
    found = choices(gather(grid(models=("m",))))
    budgets = ("1/2", "1/4", "1/8", "1/16")
    assert [one.name for one in found] == [
        "keep it all",
        "keep it all, reuse exact prefixes",
        SWAP,
        *(f"quantise to {bits} bits" for bits in (8, 4, 2)),
        *(f"keep it all, read {size}" for size in budgets),
        *(f"drop to {size}" for size in budgets),
        *(f"find pieces again, run {size} (cacheblend)" for size in budgets),
    ]
    assert not {one.measured.label for one in found} & {"random", "oracle", "random-reads", "pieces", "recompute"}
    assert {one.name: one.idle for one in found if one.idle == 0} == {SWAP: 0}
    assert {one.measured.label for one in found if one.name == "quantise to 4 bits"} == {"kivi-int4"}  # codec-int4 loses more


def test_sentences_follow_the_grades() -> None:
    half = dict.fromkeys(ALL, (1.0, 0.5, 0.0))
    rows = both("dense", RIGHT, resident=4800) + both("swapped", RIGHT, resident=4800, asked=7000, prefilled=1400)
    rows += answered("snapkv", half, 0.5, resident=2400) + answered("snapkv", half, 0.5, "multi_request", resident=2400)
    found = table(rows)
    assert (
        found[SWAP].when == "When the device is short of memory and the host is not (80 % of prefill is saved): nothing was lost."
    )
    assert found[SWAP].grades == {"turn 1": "lossless", "turns 2 and on": "lossless", "multi-request": "lossless"}
    dropped = found["drop to 1/2"]
    assert dropped.grades == {"turn 1": "lossless", "turns 2 and on": "loses 75 %", "multi-request": "loses 50 %"}
    assert dropped.when == (
        "When 2.0 times as many contexts have to fit, and only if the question is known before and none follows "
        "(lost: turns 2 and on: 75 %, multi-request: 50 %)."
    )
    wrong = dict.fromkeys(ALL, (0.5, 0.5, 0.5))
    assert table(both("dense", RIGHT) + both("snapkv", wrong, 0.25))["drop to 1/4"].when.startswith("Not for such tasks")
    near = {seed: (1.0 if seed > 1 else 0.5, 1.0, 1.0 if seed % 5 else 0.5) for seed in ALL}
    usable = table(both("dense", RIGHT) + both("quest", near, 0.25, read=1200.0))["keep it all, read 1/4"]
    assert "lossless" not in usable.grades["turn 1"]
    assert usable.when == (
        "When all of it fits and reading it is what takes the time (25 % is read), and 95 % of dense's accuracy is enough."
    )


def test_what_is_unsettled_is_neither_kept_nor_lost() -> None:
    """Turn 1 of five sessions only: the others' first answers are the prefill's."""

    def short(rows: list[Row]) -> list[Row]:
        return [msgspec.structs.replace(one, lengths=(1 + (one.seed < 5),) * 3) for one in rows]

    lost, near = dict.fromkeys(ALL, (1.0, 0.5, 0.5)), {seed: (1.0, 1.0, 0.5 + 0.5 * (seed > 1)) for seed in ALL}
    found = table(
        short(both("dense", RIGHT) + both("snapkv", lost, 0.5, resident=2400) + both("tova", near, 0.25, resident=1200))
    )
    assert found["drop to 1/2"].grades["turn 1"] == "not settled"
    assert found["drop to 1/2"].when.startswith(
        "Not for such tasks: each loses more than 10 % of dense's accuracy (turns 2 and on"
    )
    assert found["drop to 1/4"].when == (
        "When 4.0 times as many contexts have to fit (too few sessions for turn 1), and 98 % of dense's accuracy is enough."
    )


def test_few_sessions_bear_no_sentence() -> None:
    few = dict.fromkeys(range(2), (1.0, 1.0))
    found = table(answered("dense", few) + answered("snapkv", few, 0.5))
    assert found["drop to 1/2"].when == "Not to be said from 2 sessions; 10 are the least."
    assert found["drop to 1/2"].grades == {"turn 1": "not settled", "turns 2 and on": "not settled"}


def test_without_dense_there_is_no_choice() -> None:
    assert choices(gather(answered("snapkv", RIGHT, 0.5))) == ()
