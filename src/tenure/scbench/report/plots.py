"""The report's pictures, a set for each model: accuracy by turn, budget, stage and bytes, and what is saved. Methods are apart by
stage. The report calls it; it needs matplotlib (extra `lab`) and writes only the files it returns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenure.lab import plots
from tenure.scbench.report import dots, words
from tenure.scbench.report.cells import Cell
from tenure.scbench.report.drawing import Look, dress, looks, name_ends, shares
from tenure.scbench.report.pooling import Setting
from tenure.scbench.report.samples import DENSE, TURNS, Samples, later, whole
from tenure.scbench.report.series import Scene

__all__ = ["Picture", "draw"]

_DENSE: Setting = (DENSE, 1.0)
_SHARES = {"generation": "looked at in prefill", "retrieval": "of tokens recomputed", "loading": "of the bytes read"}
"""What a budget is a share of, by group."""
_LETTERS = 10.5  # of a title, in an inch


@dataclass(frozen=True, slots=True)
class Picture:
    """What a picture shows, in a sentence, and its files."""

    model: str
    title: str
    png: Path
    svg: Path


def draw(samples: Samples, cells: Sequence[Cell], folder: Path) -> list[Picture]:
    """All of them. Raises ConfigError without matplotlib."""
    pictures = []
    with plots.style() as plt, plt.rc_context({"text.parse_math": False, "figure.constrained_layout.use": True}):
        for number, model in enumerate(samples.names(0), 1):
            scene = Scene.of(samples, cells, model)
            slug = f"{number}-" + re.sub(r"[^A-Za-z0-9]+", "-", model).strip("-")[:40]
            for name, title, figure in _figures(plt, scene):
                wide = int(_LETTERS * figure.get_figwidth())
                figure.suptitle(textwrap.fill(words.plain(f"{model}: {title}"), wide), x=0.01, ha="left", fontsize=11)
                png, svg = plots.write(plt, figure, folder / f"{slug}-{name}.svg")
                pictures.append(Picture(model, title, png, svg))
    return pictures


def _figures(plt: Any, scene: Scene) -> Iterator[tuple[str, str, Any]]:
    look = looks(scene.groups)
    pooled, begun = _pooled(scene.tasks), _pooled(scene.begun) if scene.begun else "none"
    for mode in scene.modes():
        said = mode.replace("_", "-")
        if scene.sized():
            if mode == TURNS and scene.begun:
                yield "by-turn", f"accuracy by turn, {said} ({begun})", _by_turn(plt, scene, look)
            yield f"by-budget-{said}", f"accuracy by budget, {said} (bands: 95 %)", _by_budget(plt, scene, look, mode)
    at_first = "" if scene.begun == scene.tasks else f"; turn 1: {begun}"
    yield (
        "by-stage",
        f"turn 1, later turns, and requests that did not show their question ({pooled}{at_first})",
        dots.by_stage(plt, scene),
    )
    yield "by-bytes", f"accuracy over the bytes that are kept and read ({pooled})", _by_bytes(plt, scene, look)
    yield "costs", f"prefill saved and time taken ({pooled})", dots.costs(plt, scene)


def _pooled(tasks: Sequence[str]) -> str:
    return f"tasks {', '.join(tasks)}, each weighing the same" if len(tasks) > 1 else f"task {tasks[0]}"


def _by_turn(plt: Any, scene: Scene, look: dict[str, Look]) -> Any:
    """A row a group, a column a budget; the groups of one size side by side in a last row."""
    sized, sizes, fixed = scene.sized(), scene.sizes(), scene.fixed()
    rows = [
        [(f"{group} at {words.budget(size)}", [(one, size) for one in methods]) for size in sizes]
        for group, methods in sized.items()
    ]
    single = [(f"{group}, one size", [(one, 1.0) for one in methods]) for group, methods in fixed.items()]
    rows += [single[start : start + len(sizes)] for start in range(0, len(single), len(sizes))]
    figure, grid = plt.subplots(
        len(rows), len(sizes), figsize=(2.9 * len(sizes) + 0.5, 2.1 * len(rows) + 0.5), squeeze=False, sharey=True
    )
    dense = scene.by_turn(TURNS, _DENSE)
    for panels, row in zip(grid, rows, strict=True):
        for place, axes in enumerate(panels):
            if place >= len(row):
                axes.axis("off")
                continue
            title, settings = row[place]
            dress(axes, title)
            axes.set_ylim(-0.03, 1.03)
            _line(axes, dense, look[DENSE] if DENSE in look else Look("black", "."))
            ends = [("dense", dense[-1], "black")] if dense else []
            for method, size in settings:
                if line := scene.by_turn(TURNS, (method, size)):
                    _line(axes, line, look[method])
                    ends.append((method, line[-1], look[method].colour))
            name_ends(axes, ends)
            axes.set_xticks(range(1, max([len(dense), *(len(line.get_xdata()) for line in axes.lines)], default=1) + 1))
        panels[0].set_ylabel("accuracy")
    for axes in grid[-1]:
        axes.set_xlabel("turn")
    return figure


def _by_budget(plt: Any, scene: Scene, look: dict[str, Look], mode: str) -> Any:
    """A row a task, a column a group."""
    sized = scene.sized()
    tasks = list(dict.fromkeys(cell.task for cell in scene.cells if cell.mode == mode))
    figure, grid = plt.subplots(
        len(tasks), len(sized), figsize=(3.1 * len(sized) + 0.5, 2.3 * len(tasks) + 0.6), squeeze=False, sharey=True
    )
    for task, panels in zip(tasks, grid, strict=True):
        dense = scene.score(mode, _DENSE, whole, [task])
        for (group, methods), axes in zip(sized.items(), panels, strict=True):
            dress(axes, f"{task}: {group}")
            axes.set_ylim(-0.03, 1.03)
            ends = []
            if dense is not None:
                axes.axhline(dense.value, color="black", linewidth=1.2)
                axes.axhspan(dense.low, dense.high, color="black", alpha=0.08, linewidth=0)
                ends.append(("dense", dense.value, "black"))
            for method in methods:
                found = [(size, scene.score(mode, (method, size), whole, [task])) for size in scene.budgets[method]]
                points = [(size, one) for size, one in found if one is not None]
                if points:
                    xs, estimates = [size for size, _ in points], [one for _, one in points]
                    axes.plot(xs, [one.value for one in estimates], **look[method].line_style())
                    lows, highs = [one.low for one in estimates], [one.high for one in estimates]
                    axes.fill_between(xs, lows, highs, color=look[method].colour, alpha=0.1, linewidth=0)
                    if len(points) == 1:  # a band has no width there
                        axes.vlines(xs, lows, highs, color=look[method].colour, linewidth=0.8)
                    ends.append((method, estimates[-1].value, look[method].colour))
            shares(axes, scene.sizes(), reverse=True)
            name_ends(axes, ends)
        panels[0].set_ylabel("accuracy")
    for axes, group in zip(grid[-1], sized, strict=True):
        axes.set_xlabel(f"budget: share {_SHARES.get(group, 'of the bytes kept')}")
    return figure


def _by_bytes(plt: Any, scene: Scene, look: dict[str, Look]) -> Any:
    """A column a group, a row for what is kept and one for what is read; a method's budgets are joined."""
    groups = {group: methods for group, methods in scene.groups.items() if methods != [DENSE]} or scene.groups
    mode, part, said = (TURNS, later, "accuracy, turns 2..") if TURNS in scene.modes() else (scene.modes()[0], whole, "accuracy")
    if all(scene.score(mode, (one, scene.budgets[one][0]), part) is None for methods in groups.values() for one in methods):
        part, said = whole, "accuracy"
    figure, grid = plt.subplots(2, len(groups), figsize=(3.1 * len(groups) + 0.5, 5.4), squeeze=False, sharey=True)
    named: tuple[tuple[str, Callable[[Cell], float | None]], ...] = (
        ("resident", lambda cell: cell.resident),
        ("read", lambda cell: cell.read),
    )
    dense = scene.score(mode, _DENSE, part)
    for (name, share), panels in zip(named, grid, strict=True):
        everything: list[float] = []
        for (group, methods), axes in zip(groups.items(), panels, strict=True):
            dress(axes, group)
            axes.set_ylim(-0.03, 1.03)
            ends = [] if dense is None else [("dense", dense.value, "black")]
            if dense is not None:
                axes.axhline(dense.value, color="black", linewidth=1.2)
            for method in methods:
                settings = [(method, size) for size in scene.budgets[method]]
                found = [(scene.mean(mode, one, share), scene.score(mode, one, part)) for one in settings]
                points = [(x, one.value) for x, one in found if x and one is not None]
                if points and method != DENSE:
                    axes.plot(*zip(*points, strict=True), **look[method].line_style())
                    ends.append((method, points[-1][1], look[method].colour))
                    everything += [x for x, _ in points]
            name_ends(axes, ends)
            axes.set_xlabel(f"{name} (share of the KV's bytes)")
        for axes in panels:
            shares(axes, everything, reverse=True)
        panels[0].set_ylabel(said)
    return figure


def _line(axes: Any, line: Sequence[float], look: Look) -> None:
    if line:
        axes.plot(range(1, len(line) + 1), line, **look.line_style())
