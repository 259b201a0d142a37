"""Hit rate over capacity as a picture: a line a policy, the optimum, and the ceiling. The command line and benchmarks
call it, other plots use its `style`. It needs matplotlib (extra `lab`) and writes only the files it returns."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tenure.errors import ConfigError
from tenure.lab.replay import OPTIMUM, Row

COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#8c6bb1",
    "#a6761d",
    "#666666",
    "#b8a000",
    "#e31a1c",
)
MARKERS = "osD^vPX*<>"
_SUFFIXES = (".png", ".svg")
_SAME = 5e-5  # hit rates nearer than this are one point, in the plot as in the table


def hit_rate(rows: Sequence[Row], ceiling: float, stem: str | Path, title: str = "") -> list[Path]:
    """Write `stem`.png and `stem`.svg (`stem` may end in either); returns both paths. Curves that coincide are one line.

    Raises ConfigError without matplotlib or without rows.
    """
    if not rows:
        raise ConfigError("nothing to plot: no rows", rows=0)
    with style() as plt:
        figure, axes = plt.subplots(figsize=(8.0, 4.8), layout="constrained")
        sizes = sorted({row.capacity for row in rows})
        best = {row.capacity: row.optimum for row in rows if row.optimum is not None}
        curves = _curves(rows, best)
        axes.axhline(
            100 * ceiling,
            color="#444444",
            linestyle=(0, (6, 4)),
            linewidth=1.2,
            zorder=4,  # over a line that reaches it
            label=f"ceiling, no limit ({ceiling:.1%})",
        )
        if best:
            axes.plot(
                sorted(best),
                [100 * best[size] for size in sorted(best)],
                color="black",
                linewidth=1.8,
                marker=".",
                markersize=9,
                label=textwrap.fill(" = ".join(["optimum", *curves.pop(OPTIMUM, [])]), 26),
            )
        order = list(dict.fromkeys(row.policy for row in rows))
        for policy, same in curves.items():
            index = order.index(policy)
            line = sorted((row.capacity, 100 * row.hit_rate) for row in rows if row.policy == policy)
            axes.plot(
                *zip(*line, strict=True),
                label=textwrap.fill(" = ".join([policy, *same]), 26),
                color=COLOURS[index % len(COLOURS)],
                linewidth=1.5,
                marker=MARKERS[index % len(MARKERS)],
                markersize=4.5,
            )
        _dress(axes, sizes, title)
        lowest = 100 * min(row.hit_rate for row in rows)
        axes.set_ylim(bottom=0 if lowest < 50 * ceiling else max(0, 10 * math.floor((lowest - 5) / 10)))
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
        return write(plt, figure, stem)


def _curves(rows: Sequence[Row], best: Mapping[int, float]) -> dict[str, list[str]]:
    """The curves to draw, each with the policies that lie exactly under it; the optimum is one of them if known."""
    rates: dict[str, dict[int, float]] = {OPTIMUM: dict(best)} if best else {}
    for row in rows:
        rates.setdefault(row.policy, {})[row.capacity] = row.hit_rate
    curves: dict[str, list[str]] = {}
    for policy, line in rates.items():
        for drawn in curves:
            if rates[drawn].keys() == line.keys() and all(abs(rates[drawn][size] - line[size]) < _SAME for size in line):
                curves[drawn].append(policy)
                break
        else:
            curves[policy] = []
    return curves


def _dress(axes: Any, sizes: list[int], title: str) -> None:
    axes.set_xscale("log")
    if len(sizes) == 1:
        axes.set_xlim(sizes[0] / 2, sizes[0] * 2)
    shown = sizes if len(sizes) <= 10 else sizes[:: -(-len(sizes) // 10)]
    axes.set_xticks(shown, [_short(size) for size in shown])
    axes.minorticks_off()
    axes.set_xlabel("capacity (frames, log scale)")
    axes.set_ylabel("hit rate (% of blocks asked for)")
    axes.grid(color="#dddddd", linewidth=0.7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_title(title or "Hit rate over capacity", loc="left")


def _short(frames: int) -> str:
    for unit, letter in ((1_000_000, "m"), (1_000, "k")):
        if frames >= unit:
            return f"{frames / unit:.3g}{letter}"
    return str(frames)


@contextmanager
def style() -> Iterator[Any]:
    """matplotlib's pyplot, set so that the same figure gives the same bytes. Raises ConfigError where it is missing."""
    try:
        import matplotlib as mpl

        mpl.use("Agg", force=False)
        import matplotlib.pyplot as plt
    except ImportError:
        raise ConfigError("plots need matplotlib: pip install 'tenure[lab]'", extra="lab") from None
    with plt.rc_context({"font.size": 10, "svg.hashsalt": "tenure", "svg.fonttype": "none", "axes.axisbelow": True}):
        yield plt


def write(plt: Any, figure: Any, stem: str | Path) -> list[Path]:
    """The figure as `stem`.png and `stem`.svg; it is closed. Returns both paths."""
    stem = Path(stem)
    if stem.suffix in _SUFFIXES:
        stem = stem.with_suffix("")
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(stem.name + suffix) for suffix in _SUFFIXES]
    figure.savefig(paths[0], dpi=150, metadata={"Software": None})
    figure.savefig(paths[1], metadata={"Date": None})
    plt.close(figure)
    return paths
