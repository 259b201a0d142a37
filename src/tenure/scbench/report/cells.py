"""What one cell says: accuracy with its interval, whole and by turn, against dense of the same sessions, and what it held, read,
ran and took. The report calls it; it pools no cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from statistics import median

import msgspec

from tenure.scbench.report.samples import DENSE, Key, Samples, fall, first, later, whole
from tenure.scbench.report.statistics import Estimate, mean
from tenure.scbench.results import Row
from tenure.scbench.scoring import LEAST_DENSE

__all__ = ["Cell", "cells", "fraction", "held", "over", "weak"]


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One model, task, mode, method and budget.

    sessions: rows of it. accuracy: mean score of all turns; by_turn: of each; first: of turn 1, where the answer is not the
    prefill's own (`samples.first`); later: of turns 2 and on; fall: first - later within sessions. difference: score - dense's,
    of the `difference.sessions` that both have. resident, read: bytes kept, and read by each token, over those of the whole KV
    (means). saved: share of the prompts' tokens that was not run. encoding_ratio, seconds_ratio: seconds to run the context, and
    after it, over dense's of the same session (medians). noise: dense is under `LEAST_DENSE` here. None: not measured, or not
    defined.
    """

    model: str
    task: str
    mode: str
    method: str
    stage: str
    memory: str
    budget: float
    sessions: int
    accuracy: Estimate | None
    by_turn: tuple[Estimate | None, ...]
    first: Estimate | None
    later: Estimate | None
    fall: Estimate | None
    difference: Estimate | None
    resident: float
    read: float
    saved: float
    encoding_ratio: float | None
    seconds_ratio: float | None
    noise: bool


def cells(samples: Samples) -> tuple[Cell, ...]:
    """All of them, in the samples' order."""
    poor = set(weak(samples))
    return tuple(_cell(samples, key, key[:3] in poor) for key in samples.cells)


def weak(samples: Samples) -> tuple[tuple[str, str, str], ...]:
    """Each model, task and mode where dense is under `LEAST_DENSE`."""
    found = []
    for place in samples.places():
        dense = mean([whole(row) for row in samples.of(*place, DENSE).values()])
        if dense is not None and dense.value < LEAST_DENSE:
            found.append(place)
    return tuple(found)


def fraction(values: Iterable[float]) -> float:
    """The mean, to six digits."""
    each = list(values)
    return round(sum(each) / len(each), 6)


def held(rows: Iterable[Row]) -> tuple[float, float, float]:
    """Of some rows: resident and read over full, and the share of prompt tokens that was not run."""
    rows = list(rows)
    saved = 1 - sum(row.prefilled for row in rows) / sum(row.asked for row in rows)
    resident, read = (
        fraction(part) for part in zip(*((row.resident / row.full, row.read / row.full) for row in rows), strict=True)
    )
    return resident, read, round(saved, 6) + 0.0


def over(rows: Mapping[int, Row], others: Mapping[int, Row], seconds: Callable[[Row], float | None]) -> float | None:
    """The median of what a session took over what it took in the other rows; None where no session has both."""
    pairs = [(seconds(row), seconds(others[seed])) for seed, row in rows.items() if seed in others]
    ratios = [took / other for took, other in pairs if took is not None and other]
    return round(median(ratios), 6) if ratios else None


def _cell(samples: Samples, key: Key, noise: bool) -> Cell:
    model, task, mode, method, budget = key
    rows = samples.cells[key]
    dense = samples.of(model, task, mode, DENSE)
    one = next(iter(rows.values()))
    turns = max(len(row.scores) for row in rows.values())
    resident, read, saved = held(rows.values())
    return Cell(
        model=model,
        task=task,
        mode=mode,
        method=method,
        stage=one.stage,
        memory=one.memory,
        budget=budget,
        sessions=len(rows),
        accuracy=mean([whole(row) for row in rows.values()]),
        by_turn=tuple(mean([row.scores[turn] for row in rows.values() if turn < len(row.scores)]) for turn in range(turns)),
        first=mean([score for row in rows.values() if (score := first(row)) is not None]),
        later=mean([score for row in rows.values() if (score := later(row)) is not None]),
        fall=mean([score for row in rows.values() if (score := fall(row)) is not None], -1.0),
        difference=mean([whole(row) - whole(dense[seed]) for seed, row in rows.items() if seed in dense], -1.0),
        resident=resident,
        read=read,
        saved=saved,
        encoding_ratio=over(rows, dense, lambda row: row.encoding),
        seconds_ratio=over(rows, dense, lambda row: None if row.encoding is None else row.seconds),
        noise=noise,
    )
