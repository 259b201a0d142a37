"""Verdicts that fall each way, intervals against loops over the same draws, and what no claim is about."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tenure.scbench.report.claims import Claims, Finding, claims
from tenure.scbench.report.pooling import Compared, pool
from tenure.scbench.report.samples import gather
from tenure.scbench.report.sheets import claimed
from tenure.scbench.report.statistics import Estimate
from tenure.scbench.report.verdicts import above, grade, keeps, stays
from tenure.scbench.results import Row

from .making import answered, grid
from .test_statistics import resampled

FALLS = "accuracy falls more after turn 1 than dense's"
ALL = range(20)
GOOD: dict[int, tuple[float, ...]] = {seed: (1.0, 1.0 if seed else 0.5, 1.0) for seed in ALL}


def found(all_claims: Claims, statement: str, at: str = "1/2") -> Finding:
    here = [one for one in all_claims.findings if one.statement.startswith(statement) and one.at == at]
    assert len(here) == 1, [(one.statement, one.at) for one in all_claims.findings]
    return here[0]


def against(method: str, scores: dict[int, tuple[float, ...]], budget: float = 0.5) -> Claims:
    return claims(gather(answered("dense", GOOD) + answered(method, scores, budget)))


@pytest.mark.parametrize("method", ["snapkv", "quest", "a_shape", "cacheblend"])
def test_a_fall_holds_does_not_hold_or_is_not_settled(method: str) -> None:
    assert found(against(method, {seed: (1.0, 0.5, 0.5 * (seed % 2)) for seed in ALL}), FALLS).verdict == "holds"
    assert found(against(method, dict.fromkeys(ALL, (0.5, 1.0, 1.0))), FALLS).verdict == "does not hold"
    unclear = {seed: (1.0, 1.0, 1.0) if seed % 2 else (1.0, 0.5, 0.5) if seed % 4 else (0.0, 1.0, 1.0) for seed in ALL}
    assert found(against(method, unclear), FALLS).verdict == "not settled: the interval contains 0"
    few = dict.fromkeys(range(9), (1.0, 0.0, 0.0))
    assert found(against(method, few), FALLS).verdict.startswith("not settled: 9 sessions")


def test_what_is_kept_holds_does_not_hold_or_is_not_settled() -> None:
    statement = "at least 0.9 of dense's accuracy is kept: turn 1"
    for scores, verdict in ((0.95, "holds"), (0.5, "does not hold")):
        one = found(against("snapkv", {seed: (scores if seed % 5 else 1.0, 1.0, 1.0) for seed in ALL}), statement)
        assert one.verdict == verdict
    one = found(against("snapkv", {seed: (float(seed % 8 > 0), 1.0, 1.0) for seed in ALL}), statement)
    assert one.verdict == "not settled: the interval contains 0.9"


def test_thresholds_at_their_edges() -> None:
    def between(low: float, high: float, sessions: int = 10, exact: bool = False) -> Estimate:
        return Estimate((low + high) / 2, low, high, sessions, exact)

    assert above(None) == "not measured"
    assert above(between(0.006, 0.5)) == "holds"
    assert above(between(0.004, 0.5)) == "not settled: the interval contains 0"  # 0.00 is shown
    assert above(between(0.0, 0.5)) == "not settled: the interval contains 0"
    assert above(between(-0.5, 0.02)) == "not settled: the interval contains 0"
    assert above(between(-0.5, 0.014)) == "does not hold"
    assert above(between(-0.2, 0.2, exact=True)) == "not seen: no session differs"
    assert above(between(0.1, 0.5, 9)).startswith("not settled: 9 sessions")
    assert stays(between(-0.02, 0.1)) == "holds"
    assert stays(between(-0.026, 0.1)).startswith("not settled")
    assert stays(between(-0.3, -0.021)) == "does not hold"
    assert stays(between(-0.2, 0.2, exact=True)) == "holds: no session differs"

    def against(low: float, high: float, difference: float = -0.3, exact: bool = False) -> Compared:
        return Compared(between(0, 1), between(low, high), between(difference, 0.1, exact=exact))

    assert keeps(against(0.9, 1.0)) == "holds"
    assert keeps(against(0.896, 1.0)) == "holds"  # 0.90 is shown
    assert keeps(against(0.89, 1.0)) == "not settled: the interval contains 0.9"
    assert keeps(against(0.2, 0.89)) == "does not hold"
    assert keeps(against(0.88, 1.0, -0.1, exact=True)) == "holds: no session differs"


def test_intervals_are_those_of_loops_in_which_a_session_keeps_its_methods_together() -> None:
    rows = list(grid(models=("m",), methods=("dense", "snapkv", "h2o"), budgets=(0.5,), sessions=8))
    rows = [one for one in rows if not (one.method == "h2o" and one.seed == 3)]  # a session that one method lacks
    scores: dict[tuple[str, int, str], Row] = {(one.task, one.seed, one.method): one for one in rows if one.mode == "multi_turn"}

    def fall(row: Row) -> float:
        return row.scores[0] - sum(row.scores[1:]) / 4

    strata = []
    for task in ("multi_hop", "retr_kv"):
        own = []
        for seed in range(8):
            falls = [fall(scores[task, seed, name]) for name in ("snapkv", "h2o") if (task, seed, name) in scores]
            own.append((sum(falls) / len(falls) - fall(scores[task, seed, "dense"]),))
        strata.append(own)
    drawn = [one[0] for one in resampled(strata)]
    made = pool(gather(rows), "m", "both", [("snapkv", 0.5), ("h2o", 0.5)], ("multi_hop", "retr_kv"))
    assert made is not None
    assert made.fall is not None
    assert made.fall.sessions == made.sessions == 16
    assert made.fall.value == pytest.approx(sum(sum(row[0] for row in one) / 8 for one in strata) / 2, abs=1e-6)
    assert (made.fall.low, made.fall.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=1e-6)


def test_controls_are_apart_and_move_no_claim() -> None:
    rows = list(grid(models=("m",), methods=("dense", "snapkv", "quest"), budgets=(0.5,), sessions=12))
    noise = list(grid(models=("m",), methods=("random", "oracle", "random-reads", "pieces"), budgets=(0.5,), sessions=12))
    alone, both = claims(gather(rows)), claims(gather(rows + noise))
    assert alone.findings == both.findings
    assert alone.controls == ()
    assert {one.label for one in both.controls} == {"random", "oracle", "random-reads", "pieces"}
    assert all(not {"random", "oracle", "random-reads", "pieces"} & {*one.methods} for one in (*both.dropping, *both.keeping))


def test_no_claim_is_about_a_task_that_dense_is_bad_at() -> None:
    poor = dict.fromkeys(ALL, (0.0, 1.0, 0.5))
    rows = answered("dense", GOOD) + answered("snapkv", GOOD, 0.5)
    rows += answered("dense", poor, task="hard") + answered("snapkv", dict.fromkeys(ALL, (1.0, 0.0, 0.0)), 0.5, task="hard")
    made = claims(gather(rows))
    assert made.tasks == {"smollm2": ("retr_kv",)}
    assert found(made, FALLS).estimate == found(against("snapkv", GOOD), FALLS).estimate
    only = claims(gather([one for one in rows if one.task == "hard"]))
    assert (only.tasks, only.findings, only.dropping) == ({"smollm2": ()}, (), ())


def test_reading_a_part_is_set_against_dropping_and_falls_both_ways() -> None:
    much, little = dict.fromkeys(ALL, (1.0, 1.0, 0.5)), {seed: (1.0, 0.5 * (seed % 2), 0.0) for seed in ALL}
    for readers, droppers, verdict in ((much, little, "holds"), (little, much, "does not hold")):
        made = claims(gather(answered("dense", GOOD) + answered("quest", readers, 0.5) + answered("snapkv", droppers, 0.5)))
        assert found(made, "reading a part of all KV scores higher").verdict == verdict


def test_reuse_is_exact_only_where_every_answer_is_the_same() -> None:
    rows = answered("recompute", GOOD, asked=1000, prefilled=1000, encoding=None, seconds=4.0)
    same = answered("prefix", GOOD, asked=1000, prefilled=250, encoding=None, seconds=1.0)
    made = claims(gather(rows + same))
    assert found(made, "reuse changes no answer", "").verdict == "holds: all 60 are the same"
    assert found(made, "reuse costs no accuracy", "").verdict == "holds: no session differs"
    assert found(made, "reuse saves", "").verdict == "holds: 75 % of the prompts' tokens not run, 0.25x of the time"
    (reuse,) = made.reuse
    assert (reuse.sessions, reuse.answers, reuse.different, reuse.same.value, reuse.same.exact) == (20, 60, 0, 1.0, True)

    few = {seed: scores for seed, scores in GOOD.items() if seed < 9}
    made = claims(gather(rows + answered("prefix", few, asked=1000, prefilled=250, encoding=None, seconds=1.0)))
    assert found(made, "reuse changes no answer", "").verdict.startswith("not settled: 9 sessions")
    assert found(made, "reuse saves", "").verdict.startswith("not settled: 9 sessions")

    worse = answered("prefix", GOOD | dict.fromkeys(range(10), (1.0, 0.0, 1.0)), asked=1000, prefilled=1000, seconds=9.0)
    made = claims(gather(rows + worse))
    assert found(made, "reuse changes no answer", "").verdict == "does not hold: 10 of 60 differ"
    assert found(made, "reuse costs no accuracy", "").verdict == "does not hold"
    assert found(made, "reuse saves", "").verdict.startswith("does not hold: 0 %")


def test_swapped_prefixes_are_judged_apart() -> None:
    rows = answered("recompute", GOOD) + answered("prefix", GOOD)
    made = claims(gather(rows + answered("swapped", GOOD | {3: (0.0, 1.0, 1.0)})))
    assert [(one.method, one.different) for one in made.reuse] == [("prefix", 0), ("swapped", 1)]
    told = [(one.about, one.verdict) for one in made.findings if one.statement == "reuse changes no answer"]
    assert told == [
        ("exact prefixes, multi_turn", "holds: all 60 are the same"),
        ("exact prefixes, swapped out and in, multi_turn", "does not hold: 1 of 60 differ"),
    ]


def test_a_first_answer_of_one_token_is_the_prefills_and_counts_for_no_method() -> None:
    """Two tasks: the answers of one are a token each. What a method says at its turn 1 moves nothing, its later turns do."""

    def made(short: tuple[float, ...], mode: str = "multi_turn") -> Claims:
        rows = answered("dense", GOOD, mode=mode) + answered("snapkv", dict.fromkeys(ALL, (0.5, 0.5, 0.0)), 0.5, mode)
        rows += answered("dense", GOOD, mode=mode, length=1, task="labels")
        return claims(gather(rows + answered("snapkv", dict.fromkeys(ALL, short), 0.5, mode, length=1, task="labels")))

    right, wrong = made((1.0, 0.5, 0.5)), made((0.0, 0.5, 0.5))
    assert right == wrong
    assert right.tasks == {"smollm2": ("labels", "retr_kv")}
    assert right.begun == {"smollm2": ("retr_kv",)}
    first, later = found(right, "at least 0.9 of dense's accuracy is kept: turn 1"), found(right, FALLS)
    assert first.estimate is not None
    assert (first.estimate.value, first.estimate.sessions) == (0.5, 20)
    assert later.estimate is not None
    assert later.estimate.sessions == 20
    assert right != made((0.0, 0.5, 0.0))
    title = "smollm2: memory that was thinned, O(k)"
    (note,) = {sheet.note for sheet in claimed(right) if sheet.title == title}
    (rows,) = (sheet.rows for sheet in claimed(right) if sheet.title == title)
    assert {row[2] for row in rows} == {"40 (turn 1: 20)"}
    assert note.endswith("Turn 1 and the fall: of retr_kv, as the prefill itself gives first answers of one token.")
    assert made((1.0, 0.5, 0.5), "multi_request") != made((0.0, 0.5, 0.5), "multi_request")  # there it is the KV that answers


def test_rounding_is_judged_by_method_and_what_is_missing_is_not_claimed() -> None:
    rows = list(grid(models=("m",), methods=("dense", "kivi-int8", "kivi-int2"), modes=("multi_turn",), sessions=12))
    made = claims(gather(rows))
    kept = [one for one in made.findings if one.statement.endswith("turns 2 and on")]
    assert [(one.at, one.verdict) for one in kept] == [("kivi-int2", "does not hold"), ("kivi-int8", "holds")]
    assert not [one for one in made.findings if "multi-request" in one.statement]
    assert made.reuse == ()


def test_two_models_do_not_touch() -> None:
    rows = list(grid(methods=("dense", "snapkv"), budgets=(0.5,), sessions=10))
    random.Random(0).shuffle(rows)
    both = claims(gather(rows))
    alone = claims(gather(one for one in rows if one.model == "smollm2"))
    assert [one for one in both.findings if one.model == "smollm2"] == list(alone.findings)


def test_grades() -> None:
    def graded(scores: dict[int, tuple[float, ...]]) -> str:
        samples = gather(answered("dense", dict.fromkeys(ALL, (1.0, 1.0))) + answered("snapkv", scores, 0.5))
        made = pool(samples, "smollm2", "snapkv", [("snapkv", 0.5)], ["retr_kv"])
        assert made is not None
        assert made.first is not None
        return grade(made.first)

    assert graded(dict.fromkeys(ALL, (1.0, 1.0))) == "lossless"
    assert graded({seed: (float(seed > 0), 1.0) for seed in ALL}) == "usable"
    assert graded({seed: (float(seed > 4), 1.0) for seed in ALL}) == "loses 25 %"
