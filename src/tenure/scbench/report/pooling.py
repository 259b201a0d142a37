"""Methods against dense over several tasks: at turn 1, at the turns after it, across requests. Claims and the operator's table
are made of it; it judges nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from tenure.scbench.report.cells import held, weak
from tenure.scbench.report.samples import DENSE, REQUESTS, TURNS, Samples, fall, first, later, whole
from tenure.scbench.report.statistics import Estimate, Floats, estimate, ratio
from tenure.scbench.results import Row

__all__ = ["Compared", "Pool", "Setting", "begun", "contrast", "pool", "sound"]

Setting = tuple[str, float]
"""A method and its budget."""
Part = Callable[[Row], float | None]


class Compared(msgspec.Struct, frozen=True):
    """Against dense of the same sessions. accuracy: mean score; relative: over dense's; difference: less dense's."""

    accuracy: Estimate
    relative: Estimate | None
    difference: Estimate


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Methods at one budget on some tasks, each task weighing the same; a session's score is the mean over its methods.

    sessions: most that any of the figures is of. first, later: turn 1, of the tasks that `begun` names, and turns 2 and on, of
    conversations (multi_turn); fall: first - later, less the same of dense; request: all turns of multi_request. resident, read,
    saved: as of a cell. None: not measured.
    """

    model: str
    label: str
    methods: tuple[str, ...]
    budget: float
    tasks: tuple[str, ...]
    sessions: int
    first: Compared | None
    later: Compared | None
    fall: Estimate | None
    request: Compared | None
    resident: float
    read: float
    saved: float

    def parts(self) -> dict[str, Compared]:
        """What was measured of first, later and request, by name."""
        each = {"turn 1": self.first, "turns 2 and on": self.later, "multi-request": self.request}
        return {name: part for name, part in each.items() if part is not None}


def sound(samples: Samples, model: str) -> tuple[str, ...]:
    """The model's tasks on which dense was measured and is good in every mode: claims are about these, so that modes compare."""
    poor = {(name, task) for name, task, _ in weak(samples)}
    measured = {key[1] for key in samples.cells if key[0] == model and key[3] == DENSE}
    return tuple(task for task in samples.names(1) if task in measured and (model, task) not in poor)


def begun(samples: Samples, model: str, tasks: Sequence[str]) -> tuple[str, ...]:
    """The tasks whose turn 1 says something of a method: dense's row of some conversation has a `first`."""
    return tuple(task for task in tasks if any(first(row) is not None for row in samples.of(model, task, TURNS, DENSE).values()))


def pool(samples: Samples, model: str, label: str, chosen: Sequence[Setting], tasks: Sequence[str]) -> Pool | None:
    """The settings as one, all of one budget; None where no session on these tasks has them and dense."""
    parts = {
        name: _paired(samples, model, mode, tasks, chosen, part)
        for name, mode, part in (("first", TURNS, first), ("later", TURNS, later), ("request", REQUESTS, whole))
    }
    sessions = max((sum(map(len, strata)) for strata in parts.values()), default=0)
    rows = [
        row
        for task in tasks
        for mode in (TURNS, REQUESTS)
        for one in chosen
        for row in samples.of(model, task, mode, *one).values()
    ]
    if not sessions:
        return None
    resident, read, saved = held(rows)
    return Pool(
        model=model,
        label=label,
        methods=tuple(dict.fromkeys(method for method, _ in chosen)),
        budget=chosen[0][1],
        tasks=tuple(task for task in tasks if any(row.task == task for row in rows)),
        sessions=sessions,
        first=_compared(parts["first"]),
        later=_compared(parts["later"]),
        fall=_less(_paired(samples, model, TURNS, tasks, chosen, fall), -2.0, 2.0),
        request=_compared(parts["request"]),
        resident=resident,
        read=read,
        saved=saved,
    )


def contrast(
    samples: Samples, model: str, mode: str, tasks: Sequence[str], sides: tuple[Sequence[Setting], Sequence[Setting]], part: Part
) -> Estimate | None:
    """The first side's mean score less the second's, in the sessions that both have."""
    strata = []
    for task in tasks:
        one, other = (_scores(samples, model, task, mode, side, part) for side in sides)
        strata.append(_columns([(one[seed], other[seed]) for seed in one if seed in other]))
    return _less(strata, -1.0, 1.0)


def _paired(samples: Samples, model: str, mode: str, tasks: Sequence[str], chosen: Sequence[Setting], part: Part) -> list[Floats]:
    """Of each task its sessions: the methods' mean score, and dense's."""
    strata = []
    for task in tasks:
        scores = _scores(samples, model, task, mode, chosen, part)
        dense = samples.of(model, task, mode, DENSE)
        pairs = [(score, part(dense[seed])) for seed, score in scores.items() if seed in dense]
        strata.append(_columns([(score, against) for score, against in pairs if against is not None]))
    return strata


def _scores(samples: Samples, model: str, task: str, mode: str, chosen: Sequence[Setting], part: Part) -> dict[int, float]:
    """By session, the mean over the methods that it was run with."""
    each: dict[int, list[float]] = {}
    for method, budget in chosen:
        for seed, row in samples.of(model, task, mode, method, budget).items():
            if (score := part(row)) is not None:
                each.setdefault(seed, []).append(score)
    return {seed: sum(scores) / len(scores) for seed, scores in sorted(each.items())}


def _columns(pairs: Sequence[tuple[float, float]]) -> Floats:
    return np.asarray(pairs, np.float64).reshape(-1, 2)


def _less(strata: Sequence[Floats], lowest: float, highest: float) -> Estimate | None:
    return estimate([one[:, :1] - one[:, 1:] for one in strata], lambda means: means[..., 0], lowest, highest)


def _compared(strata: Sequence[Floats]) -> Compared | None:
    accuracy, difference = estimate(strata, lambda means: means[..., 0], 0.0, 1.0), _less(strata, -1.0, 1.0)
    return None if accuracy is None or difference is None else Compared(accuracy, ratio(strata), difference)
