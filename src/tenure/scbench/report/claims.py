"""What the benchmark is asked, answered from the rows whichever way they fall: does memory that was thinned last over turns and
requests, does memory that was kept, does exact reuse change anything. The report calls it; thresholds are in `verdicts`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from tenure.scbench.report import verdicts, words
from tenure.scbench.report.cells import held, over
from tenure.scbench.report.pooling import Pool, Setting, begun, contrast, pool, sound
from tenure.scbench.report.samples import CONTROLS, RECOMPUTE, REQUESTS, REUSED, TURNS, Samples, later, whole
from tenure.scbench.report.statistics import Estimate, estimate
from tenure.scbench.results import Row

__all__ = ["Claims", "Finding", "Reuse", "claims"]


class Finding(msgspec.Struct, frozen=True):
    """One claim about a model. at: the budget, or the method of one size, that it is about; "" for none. estimate: that
    decides it. verdict: in words."""

    model: str
    about: str
    statement: str
    at: str
    estimate: Estimate | None
    verdict: str


class Reuse(msgspec.Struct, frozen=True, kw_only=True):
    """A method of `REUSED` against "recompute" in one mode. answers: that both gave; different: those that are not the same
    text; same: the share that is; difference: of scores; saved: of prompt tokens; seconds_ratio: of the whole time (median)."""

    model: str
    method: str
    mode: str
    tasks: tuple[str, ...]
    sessions: int
    answers: int
    different: int
    same: Estimate
    difference: Estimate
    saved: float
    seconds_ratio: float | None


class Claims(msgspec.Struct, frozen=True):
    """dropping, keeping: O(k) and O(n) methods against dense, first all of a kind, then each; controls: apart.
    reuse: exact prefixes. tasks: by model, those that all but reuse is about; begun: those of them that turn 1 and the fall after
    it are about (`samples.first`)."""

    findings: tuple[Finding, ...]
    dropping: tuple[Pool, ...]
    keeping: tuple[Pool, ...]
    controls: tuple[Pool, ...]
    reuse: tuple[Reuse, ...]
    tasks: dict[str, tuple[str, ...]]
    begun: dict[str, tuple[str, ...]]


def claims(samples: Samples) -> Claims:
    """All of them, model by model. What a grid did not measure is left out."""
    findings: list[Finding] = []
    dropping: list[Pool] = []
    keeping: list[Pool] = []
    controls: list[Pool] = []
    reused: list[Reuse] = []
    tasks = {model: sound(samples, model) for model in samples.names(0)}
    for model, good in tasks.items():
        kinds = _kinds(samples, model)
        for label, settings in kinds.items():
            pools = list(_pools(samples, model, label, settings, good))
            (dropping if label == _DROPPERS else controls if label == _CONTROLS else keeping).extend(pools)
            single = all(budget == 1 for _, budget in settings)  # of one size each: each for itself
            judged = pools if single and label != _CONTROLS else [one for one in pools if one.label == label]
            findings += [found for one in judged for found in _judged(one, label)]
        findings += _contrasts(samples, model, good, kinds)
        pairs = [(method, mode) for method in REUSED for mode in samples.names(2)]
        reuse = [one for pair in pairs if (one := _reuse(samples, model, *pair)) is not None]
        findings += [found for one in reuse for found in _exact(one)]
        reused += reuse
    first = {model: begun(samples, model, good) for model, good in tasks.items()}
    return Claims(tuple(findings), tuple(dropping), tuple(keeping), tuple(controls), tuple(reused), tasks, first)


_DROPPERS, _CONTROLS = "all that drop KV, O(k)", "controls"
_KEEPERS = {
    "generation": "all that shape the prefill, O(n)",
    "compression": "all that round KV, O(n)",
    "retrieval": "all that find KV again, O(n)",
    "loading": "all that read a part, O(n)",
}


def _kinds(samples: Samples, model: str) -> dict[str, dict[Setting, Row]]:
    """The settings by the kind of method that they are, in the order of the life cycle; the controls last."""
    kinds: dict[str, dict[Setting, Row]] = {_DROPPERS: {}, **{label: {} for label in _KEEPERS.values()}, _CONTROLS: {}}
    for setting, row in samples.settings(model).items():
        if row.stage == "none" or row.method in (*REUSED, RECOMPUTE):
            continue
        kept = _KEEPERS.get(row.stage, f"all of {row.stage}, O(n)")
        label = _CONTROLS if row.method in CONTROLS else kept if row.memory == "O(n)" else _DROPPERS
        kinds.setdefault(label, {})[setting] = row
    return {label: settings for label, settings in kinds.items() if settings}


def _pools(samples: Samples, model: str, label: str, settings: dict[Setting, Row], tasks: Sequence[str]) -> Iterator[Pool]:
    """All of a kind at each budget, if they have budgets and are no controls; then every method by itself."""
    budgets = sorted({budget for _, budget in settings}, reverse=True)
    groups = (
        [] if label == _CONTROLS or budgets == [1] else [(label, [one for one in settings if one[1] == size]) for size in budgets]
    )
    for name, chosen in (*groups, *((method, [(method, size)]) for method, size in settings)):
        if (found := pool(samples, model, name, chosen, tasks)) is not None:
            yield found


def _judged(one: Pool, label: str) -> Iterator[Finding]:
    """What is claimed of the methods of a kind."""
    at = words.budget(one.budget) if one.label == label else one.label
    for name, part in one.parts().items():
        statement = f"at least {verdicts.USABLE:g} of dense's accuracy is kept: {name}"
        yield Finding(one.model, label, statement, at, part.relative, verdicts.keeps(part))
    if one.fall is not None:
        yield Finding(one.model, label, "accuracy falls more after turn 1 than dense's", at, one.fall, verdicts.above(one.fall))


def _contrasts(samples: Samples, model: str, tasks: Sequence[str], kinds: dict[str, dict[Setting, Row]]) -> Iterator[Finding]:
    """Reading a part against keeping a part, where both were run at a budget."""
    readers, droppers = kinds.get(_KEEPERS["loading"], {}), kinds.get(_DROPPERS, {})
    parts: tuple[tuple[str, str, Callable[[Row], float | None]], ...] = (
        ("turns 2 and on", TURNS, later),
        ("multi-request", REQUESTS, whole),
    )
    for name, mode, part in parts:
        for budget in sorted({size for _, size in readers} & {size for _, size in droppers}, reverse=True):
            sides = [one for one in readers if one[1] == budget], [one for one in droppers if one[1] == budget]
            found = contrast(samples, model, mode, tasks, sides, part)
            if found is not None:
                statement = f"reading a part of all KV scores higher than dropping as much: {name}"
                yield Finding(model, "read a part, or drop it", statement, words.budget(budget), found, verdicts.above(found))


def _reuse(samples: Samples, model: str, method: str, mode: str) -> Reuse | None:
    """All tasks, also those that dense is bad at: the same answer is the same answer."""
    pairs = []
    for task in samples.names(1):
        one, other = (samples.of(model, task, mode, name) for name in (method, RECOMPUTE))
        pairs.append([(one[seed], other[seed]) for seed in one if seed in other])
    both = [pair for task in pairs for pair in task]
    agreed = [[_agreed(*pair) for pair in task] for task in pairs]
    same = estimate([_column([sum(one) / len(one) for one in task]) for task in agreed], lambda means: means[..., 0], 0, 1)
    difference = estimate(
        [_column([whole(one) - whole(other) for one, other in task]) for task in pairs], lambda means: means[..., 0], -1, 1
    )
    if same is None or difference is None:
        return None
    answers = [one for task in agreed for session in task for one in session]
    took = over(
        dict(enumerate(one for one, _ in both)),
        dict(enumerate(other for _, other in both)),
        lambda row: row.seconds,
    )
    return Reuse(
        model=model,
        method=method,
        mode=mode,
        tasks=tuple(dict.fromkeys(one.task for one, _ in both)),
        sessions=len(both),
        answers=len(answers),
        different=len(answers) - sum(answers),
        same=same,
        difference=difference,
        saved=held(one for one, _ in both)[2],
        seconds_ratio=took,
    )


def _exact(one: Reuse) -> Iterator[Finding]:
    """What is claimed of reuse. One answer that differs is enough for the first."""
    about = f"{REUSED[one.method]}, {one.mode}"
    same = verdicts.early(one.same) or f"holds: all {one.answers:,} are the same"
    verdict = f"does not hold: {one.different:,} of {one.answers:,} differ" if one.different else same
    yield Finding(one.model, about, "reuse changes no answer", "", one.same, verdict)
    yield Finding(one.model, about, "reuse costs no accuracy", "", one.difference, verdicts.stays(one.difference))
    if one.seconds_ratio is not None:
        faster = verdicts.early(one.same) or ("holds" if one.seconds_ratio < 1 and one.saved > 0 else "does not hold")
        numbers = f"{words.percent(one.saved)} of the prompts' tokens not run, {words.times(one.seconds_ratio)} of the time"
        yield Finding(one.model, about, "reuse saves prefill and time", "", None, f"{faster}: {numbers}")


def _agreed(one: Row, other: Row) -> list[bool]:
    return [said == again for said, again in zip(one.predictions, other.predictions, strict=True)]


def _column(values: Sequence[float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.asarray(values, np.float64)[:, None]
