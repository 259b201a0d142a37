"""Plots: both files, a line for each policy, and the same bytes each time."""

from __future__ import annotations

import builtins
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tenure.errors import ConfigError
from tenure.lab import plots
from tenure.lab.replay import Row


def some_rows() -> list[Row]:
    return [
        Row(policy, size, rate + extra, 0, 0.0, optimum=0.5)
        for policy, extra in (("lru", 0.0), ("hazard", 0.05))
        for size, rate in ((1000, 0.1), (10_000, 0.3))
    ]


def test_png_and_svg_with_every_policy_the_optimum_and_the_ceiling(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    png, svg = plots.hit_rate(some_rows(), 0.6, tmp_path / "new" / "hits.v1", "a title")
    assert (png.name, svg.name) == ("hits.v1.png", "hits.v1.svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    drawn = svg.read_text()
    for word in (
        "lru",
        "hazard",
        "optimum",
        "ceiling, no limit (60.0%)",
        "a title",
        "10k",
        "capacity (frames, log scale)",
    ):
        assert word in drawn


def test_the_same_rows_give_the_same_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first = [path.read_bytes() for path in plots.hit_rate(some_rows(), 0.6, tmp_path / "a")]
    assert first == [path.read_bytes() for path in plots.hit_rate(some_rows(), 0.6, tmp_path / "b")]


def test_no_rows_no_plot(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no rows"):
        plots.hit_rate([], 0.6, tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_message_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigError, match=r"pip install 'tenure\[lab\]'"):
        plots.hit_rate(some_rows(), 0.6, tmp_path / "a")


def test_curves_that_coincide_are_one_line_with_all_names(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [*some_rows(), *(replace(row, policy="priority") for row in some_rows() if row.policy == "lru")]
    drawn = plots.hit_rate(rows, 0.6, tmp_path / "a")[1].read_text()
    assert "lru = priority" in drawn
    best = [replace(row, optimum=row.hit_rate) for row in some_rows() if row.policy == "hazard"]
    drawn = plots.hit_rate(best, 0.6, tmp_path / "b")[1].read_text()
    assert "optimum = hazard" in drawn


def test_one_capacity_stands_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    seen: list[Any] = []
    dress = plots._dress
    monkeypatch.setattr(plots, "_dress", lambda axes, sizes, title: (dress(axes, sizes, title), seen.append(axes)))
    plots.hit_rate([Row("lru", 300, 0.03, 0, 0.0)], 0.04, tmp_path / "a")
    assert seen[0].get_xlim() == (150, 600)
    assert seen[0].get_ylim()[0] == 0


@pytest.mark.parametrize("name", ["p.png", "p.svg", "p"])
def test_a_known_ending_of_the_name_is_not_doubled(tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    assert [path.name for path in plots.hit_rate(some_rows(), 0.6, tmp_path / name)] == ["p.png", "p.svg"]
