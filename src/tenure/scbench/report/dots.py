"""Pictures with a row a method: its score at turn 1, later and across requests; what it saves and takes. The report's plots call
it; it writes no files."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tenure.scbench.report import words
from tenure.scbench.report.cells import Cell
from tenure.scbench.report.drawing import dress
from tenure.scbench.report.samples import REQUESTS, TURNS, first, later, whole
from tenure.scbench.report.series import Scene
from tenure.scbench.report.statistics import Estimate

__all__ = ["by_stage", "costs"]

_PARTS: tuple[tuple[str, str, Callable[[Any], float | None], str, str], ...] = (
    ("turn 1", TURNS, first, "o", "#0072b2"),
    ("turns 2 and on", TURNS, later, "s", "#d55e00"),
    ("multi-request", REQUESTS, whole, "^", "#009e73"),
)


def by_stage(plt: Any, scene: Scene) -> Any:
    """A row a method, a column a budget; three marks, as far as they were measured."""
    methods = [one for methods in scene.groups.values() for one in methods][::-1]
    sizes = [1.0, *scene.sizes()]
    figure, panels = plt.subplots(
        1, len(sizes), figsize=(2.2 * len(sizes) + 1.6, 0.21 * len(methods) + 1.5), squeeze=False, sharex=True, sharey=True
    )
    for size, axes in zip(sizes, panels[0], strict=True):
        dress(axes, "one size, or whole" if size == 1 else f"budget {words.budget(size)}", "both")
        axes.set_xlim(-0.04, 1.04)
        axes.set_xlabel("accuracy")
        for height, method in enumerate(methods):
            found = [(style, one) for _, mode, part, *style in _PARTS if (one := scene.score(mode, (method, size), part))]
            if found:
                _marks(axes, height, found)
    _rows(panels[0][0], scene, methods)
    handles = [plt.Line2D([], [], color=colour, marker=marker, linestyle="", label=name) for name, _, _, marker, colour in _PARTS]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    return figure


def _marks(axes: Any, height: int, found: Sequence[tuple[Sequence[str], Estimate]]) -> None:
    """A method's values on a line, each with its interval."""
    values = [one.value for _, one in found]
    axes.plot([min(values), max(values)], [height, height], color="#bbbbbb", linewidth=2.2, solid_capstyle="round", zorder=1)
    for place, ((marker, colour), one) in enumerate(found):
        at = height + 0.2 * (len(found) - 1 - 2 * place) / 2
        axes.plot([one.low, one.high], [at, at], color=colour, linewidth=0.8, zorder=2)
        axes.plot(one.value, at, color=colour, marker=marker, markersize=4.5, zorder=3)


def costs(plt: Any, scene: Scene) -> Any:
    """A row a method, a column a figure and mode in which it was measured; a mark a budget, darker where it is smaller."""
    methods = [one for methods in scene.groups.values() for one in methods][::-1]
    sizes = [1.0, *scene.sizes()]
    figures: tuple[tuple[str, Callable[[Cell], float | None]], ...] = (
        ("prompt tokens not run (%)", lambda cell: 100 * cell.saved),
        ("context: seconds over dense's", lambda cell: cell.encoding_ratio),
        ("after it: seconds over dense's", lambda cell: cell.seconds_ratio),
    )
    columns: list[tuple[str, str, dict[tuple[int, float], float]]] = []
    for title, part in figures:
        for mode in scene.modes():
            settings = [(height, method, size) for height, method in enumerate(methods) for size in scene.budgets[method]]
            found = {(height, size): scene.mean(mode, (method, size), part) for height, method, size in settings}
            values = {place: value for place, value in found.items() if value is not None}
            if values:
                columns.append((mode, title, values))
    figure, grid = plt.subplots(
        1, len(columns), figsize=(2.7 * len(columns) + 1.5, 0.19 * len(methods) + 1.6), squeeze=False, sharey=True
    )
    styles = [
        ("#444444", "o"),
        *((plt.get_cmap("viridis_r")((n + 1) / len(sizes)), "sD^vP"[n % 5]) for n in range(len(sizes) - 1)),
    ]
    for axes, (mode, title, values) in zip(grid[0], columns, strict=True):
        dress(axes, mode.replace("_", "-"))
        axes.set_xlabel(title, fontsize=9)
        for (height, size), value in values.items():
            colour, marker = styles[sizes.index(size)]
            axes.plot(value, height, color=colour, marker=marker, markersize=4.5)
        if title == figures[0][0]:
            axes.set_xlim(-3, 103)
        else:
            _ratios(axes)
    _rows(grid[0][0], scene, methods)
    names = ["one size, or whole", *(f"budget {words.budget(size)}" for size in sizes[1:])]
    handles = [
        plt.Line2D([], [], color=colour, marker=marker, linestyle="", label=name)
        for name, (colour, marker) in zip(names, styles, strict=True)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    return figure


def _ratios(axes: Any) -> None:
    """A log scale that shows a half to twice at least, so that noise about 1 looks like that."""
    low, high = axes.get_xlim()
    ends = math.floor(math.log2(min(max(low, 1e-3), 0.5))), math.ceil(math.log2(max(high, 2.0)))
    axes.set_xscale("log", base=2)
    step = -(-(ends[1] - ends[0]) // 6)
    marks = [2.0**power for power in range(ends[0], ends[1] + 1, step)]
    axes.set_xticks(marks, [words.budget(mark) for mark in marks])
    axes.minorticks_off()
    axes.set_xlim(2.0 ** ends[0] / 1.1, 2.0 ** ends[1] * 1.1)


def _rows(axes: Any, scene: Scene, methods: Sequence[str]) -> None:
    """The methods' names up the side, a line between groups."""
    axes.set_yticks(range(len(methods)), [words.plain(one) for one in methods])
    axes.set_ylim(-0.7, len(methods) - 0.3)
    height = len(methods) - 0.5
    for group in list(scene.groups.values())[:-1]:
        height -= len(group)
        for panel in axes.figure.axes:
            if panel.get_subplotspec().rowspan == axes.get_subplotspec().rowspan:
                panel.axhline(height, color="#999999", linewidth=0.6)
