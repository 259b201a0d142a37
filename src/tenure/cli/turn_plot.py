"""The demo's turns as a picture: time to the first token cold and warm, and where each prompt's tokens came from. `tenure demo`
calls it; it needs matplotlib (extra `lab`) and writes only the files it returns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tenure.cli.turns import TIERS, Turn
from tenure.errors import ConfigError
from tenure.lab import plots

__all__ = ["draw"]

_COLOURS = {"device": "#0072b2", "host": "#56b4e9", "disk": "#009e73", "pool": "#f0e442", "computed": "#d55e00"}
_COLD, _WARM = "#999999", "#cc79a7"


def draw(turns: Sequence[Turn], stem: str | Path, title: str, tiers: Sequence[str] = TIERS) -> list[Path]:
    """Write `stem`.png and `stem`.svg; returns both paths. Raises ConfigError without matplotlib or without turns."""
    if not turns:
        raise ConfigError("nothing to plot: no turns", turns=0)
    places = range(len(turns))
    with plots.style() as plt:
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(max(6.0, 0.42 * len(turns) + 2.5), 6.4), layout="constrained", sharex=True
        )
        for shift, name, colour in ((-0.2, "cold", _COLD), (0.2, "warm", _WARM)):
            heights = [getattr(turn, name) for turn in turns]
            above.bar([place + shift for place in places], heights, 0.4, label=name, color=colour)
        above.set_ylabel("time to the first token (s)")
        above.set_title(title, loc="left")
        bottom = [0] * len(turns)
        for part in (*tiers, "computed"):
            counts = [turn.computed if part == "computed" else turn.reused.get(part, 0) for turn in turns]
            below.bar(places, counts, 0.8, bottom=bottom, label=part, color=_COLOURS[part])
            bottom = [low + count for low, count in zip(bottom, counts, strict=True)]
        below.set_ylabel("prompt tokens, by their source")
        labels = [f"{turn.node} {turn.session} {turn.number}".lstrip() for turn in turns]
        below.set_xticks(places, labels, rotation=60, ha="right", rotation_mode="anchor")
        for axes in (above, below):
            _dress(axes)
        return plots.write(plt, figure, stem)


def _dress(axes: Any) -> None:
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
