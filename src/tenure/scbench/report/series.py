"""What the pictures show, as numbers: a model's methods by group, and their scores pooled over its tasks. Plots call it; it draws
nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tenure.scbench.report import words
from tenure.scbench.report.cells import Cell
from tenure.scbench.report.pooling import Setting, begun, sound
from tenure.scbench.report.samples import DENSE, Samples, first
from tenure.scbench.report.statistics import Estimate, estimate
from tenure.scbench.results import Row

__all__ = ["Scene"]


@dataclass(frozen=True, slots=True)
class Scene:
    """One model's part of the grid. groups: methods by stage (compression in two), dense apart. tasks: those pooled: where dense
    is good; all if there is none. begun: those of them whose turn 1 says something."""

    samples: Samples
    cells: tuple[Cell, ...]
    model: str
    tasks: tuple[str, ...]
    begun: tuple[str, ...]
    groups: dict[str, list[str]]
    budgets: dict[str, list[float]]

    @classmethod
    def of(cls, samples: Samples, cells: Sequence[Cell], model: str) -> Scene:
        """The model's."""
        groups: dict[str, list[str]] = {}
        budgets: dict[str, list[float]] = {}
        for (method, budget), row in samples.settings(model).items():
            budgets.setdefault(method, []).append(budget)
            group = groups.setdefault(words.group(row.stage, row.memory), [])
            if method not in group:
                group.append(method)
        own = tuple(cell for cell in cells if cell.model == model)
        tasks = sound(samples, model) or tuple(dict.fromkeys(cell.task for cell in own))
        return cls(samples, own, model, tasks, begun(samples, model, tasks), groups, budgets)

    def sized(self) -> dict[str, list[str]]:
        """The groups' methods that were run at budgets below the whole."""
        found = {group: [one for one in methods if min(self.budgets[one]) < 1] for group, methods in self.groups.items()}
        return {group: methods for group, methods in found.items() if methods}

    def fixed(self) -> dict[str, list[str]]:
        """The groups' methods of one size, dense apart."""
        found = {
            group: [one for one in methods if one != DENSE and min(self.budgets[one]) >= 1]
            for group, methods in self.groups.items()
        }
        return {group: methods for group, methods in found.items() if methods}

    def sizes(self) -> list[float]:
        """All budgets below the whole, from the largest."""
        return sorted({one for each in self.budgets.values() for one in each if one < 1}, reverse=True)

    def modes(self) -> list[str]:
        """In which the model was asked, in order."""
        return [mode for mode in self.samples.names(2) if any(cell.mode == mode for cell in self.cells)]

    def score(
        self, mode: str, setting: Setting, part: Callable[[Row], float | None], tasks: Sequence[str] | None = None
    ) -> Estimate | None:
        """The mean of a part of the scores over the tasks, each task weighing the same."""
        strata = []
        for task in tasks or self.tasks:
            found = [part(row) for row in self.samples.of(self.model, task, mode, *setting).values()]
            strata.append(np.asarray([score for score in found if score is not None], np.float64)[:, None])
        return estimate(strata, lambda means: means[..., 0], 0.0, 1.0)

    def by_turn(self, mode: str, setting: Setting) -> list[float]:
        """The mean score of each turn, over the tasks in `begun`."""
        found: list[float] = []
        while self.begun and (one := self.score(mode, setting, partial(_of, len(found)), self.begun)) is not None:
            found.append(one.value)
        return found

    def mean(self, mode: str, setting: Setting, part: Callable[[Cell], float | None]) -> float | None:
        """Of a figure of the cells, over the tasks."""
        cells = [
            cell for cell in self.cells if (cell.mode, cell.method, cell.budget) == (mode, *setting) and cell.task in self.tasks
        ]
        found = [value for cell in cells if (value := part(cell)) is not None]
        return sum(found) / len(found) if found else None


def _of(turn: int, row: Row) -> float | None:
    return (row.scores[turn] if turn else first(row)) if turn < len(row.scores) else None
