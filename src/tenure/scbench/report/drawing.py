"""How the report's pictures look: a method's colour and mark, names at the ends of lines, plain axes. Its plots call it; it knows
no rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenure.lab.plots import COLOURS, MARKERS
from tenure.scbench.report import words
from tenure.scbench.report.samples import CONTROLS, DENSE

__all__ = ["Look", "dress", "looks", "name_ends", "shares"]

_GAP = 0.085  # between names at the ends of lines, as a part of the axes' height


@dataclass(frozen=True, slots=True)
class Look:
    """Of one method, the same in every picture. Marks differ too, so colours are not needed to tell methods apart."""

    colour: str
    marker: str
    line: Any = "-"

    def line_style(self) -> dict[str, Any]:
        """For `plot`."""
        return {"color": self.colour, "marker": self.marker, "linestyle": self.line, "linewidth": 1.4, "markersize": 4.5}


def looks(groups: Mapping[str, Sequence[str]]) -> dict[str, Look]:
    """Of all methods by name; groups: the methods that are drawn together. Dense is black, controls are grey and dashed."""
    found = {}
    for methods in groups.values():
        place = 0
        for method in methods:
            if method == DENSE:
                found[method] = Look("black", ".")
            elif method in CONTROLS:
                found[method] = Look("#666666", "*" if method == "oracle" else "x", (0, (4, 2)))
            else:
                found[method] = Look(COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)])
                place += 1
    return found


def dress(axes: Any, title: str = "", axis: str = "both") -> None:
    """Light grid, no frame at the top and right."""
    axes.grid(axis=axis, color="#dddddd", linewidth=0.7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if title:
        axes.set_title(words.plain(title), loc="left", fontsize=9)
    axes.tick_params(labelsize=8)


def shares(axes: Any, values: Iterable[float], reverse: bool) -> None:
    """A horizontal axis of shares on a log scale, marked at halves, quarters and so on; reverse: the largest comes first."""
    low = min([*values, 1.0])
    marks = [1.0]
    while marks[-1] > low * 1.01:
        marks.append(marks[-1] / 2)
    axes.set_xscale("log", base=2)
    axes.set_xticks(marks, [words.budget(mark) for mark in marks])
    axes.minorticks_off()
    left, right = marks[-1] / 1.15, 1.15
    axes.set_xlim((right, left) if reverse else (left, right))


def name_ends(axes: Any, ends: Sequence[tuple[str, float, str]]) -> None:
    """Write (name, height from 0 to 1, colour) right of the axes, moved apart where they would overlap."""
    ends = sorted(ends, key=lambda end: (end[1], end[0]))
    low, high = axes.get_ylim()
    wanted = [(height - low) / (high - low) for _, height, _ in ends]
    for (name, _, colour), height, place in zip(ends, wanted, _apart(wanted), strict=True):
        axes.annotate(
            words.plain(name),
            xy=(1.0, height),
            xytext=(1.06, place),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=colour,
            fontsize=8,
            va="center",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)},
            annotation_clip=False,
        )


def _apart(wanted: Sequence[float]) -> list[float]:
    """The ascending places from 0 to 1 nearest to those wanted that lie a gap apart: those that would touch are one heap about
    their middle."""
    gap = min(_GAP, 1 / max(1, len(wanted) - 1))

    def bottom(heap: Sequence[float]) -> float:
        spread = gap * (len(heap) - 1)
        return min(max(sum(heap) / len(heap) - spread / 2, 0.0), max(1 - spread, 0.0))

    heaps: list[list[float]] = []
    for place in wanted:
        heaps.append([place])
        while len(heaps) > 1 and bottom(heaps[-1]) < bottom(heaps[-2]) + gap * len(heaps[-2]):
            heaps[-2:] = [heaps[-2] + heaps[-1]]
    return [bottom(heap) + gap * place for heap in heaps for place in range(len(heap))]
