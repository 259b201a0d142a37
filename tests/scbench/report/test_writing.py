"""A report in its folder: the same bytes for the same rows, a page that is whole and harmless, pictures, and grids with little in
them."""

from __future__ import annotations

import base64
import builtins
import itertools
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from tenure.errors import ConfigError
from tenure.scbench.report import report, write
from tenure.scbench.report.drawing import _apart
from tenure.scbench.results import Row

from .making import ABOUT, answered, grid

VOID = {"meta", "img", "br"}
HOSTILE = '<script>alert("x")</script>&|`*$a_b$[red]\x00'


def small(**changes: Any) -> list[Row]:
    """A quick grid: three methods, one mode, two sessions of two turns."""
    shape: dict[str, Any] = {
        "models": ("m",),
        "tasks": ("retr_kv",),
        "modes": ("multi_turn",),
        "methods": ("dense", "snapkv", "kivi-int4"),
        "budgets": (0.5,),
        "sessions": 2,
        "turns": 2,
    }
    return list(grid(**(shape | changes)))


class Whole(HTMLParser):
    """Fails on a tag that closes another; keeps what was seen."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_same_rows_in_any_order_give_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = small(methods=("dense", "snapkv", "quest", "prefix", "recompute"), sessions=11)
    write(rows, tmp_path / "one", ABOUT)
    random.Random(5).shuffle(rows)
    write(rows, tmp_path / "two", ABOUT)
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert {"results.json", "claims.md", "index.html"} <= {str(path) for path in files}
    assert [(tmp_path / "one" / path).read_bytes() for path in files] == [
        (tmp_path / "two" / path).read_bytes() for path in files
    ]
    changed = report([*rows[1:]], ABOUT).document()
    assert changed != (tmp_path / "one" / "results.json").read_bytes()


def test_results_hold_the_grid_as_it_was_given_and_the_flags(tmp_path: Path) -> None:
    poor = dict.fromkeys(range(12), (0.0, 1.0))
    made = report(answered("dense", poor) + answered("snapkv", poor, 0.5), {"any": [1, {"thing": None}]})
    told = json.loads(made.document())
    assert told["grid"] == {"any": [1, {"thing": None}]}
    assert told["noise"] == [{"model": "smollm2", "task": "retr_kv", "mode": "multi_turn"}]
    assert {cell["noise"] for cell in told["cells"]} == {True}
    assert told["claims"]["findings"] == []
    assert "Noise is measured here" in printed(made.tables)


def printed(tables: Callable[[], list[Any]]) -> str:
    console = Console(width=220, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    for table in tables():
        console.print(table)
    return console.export_text()


def test_the_terminal_shows_names_as_they_are_and_groups_by_stage() -> None:
    made = report(small(models=("[red]m[/red]",)), ABOUT)
    shown = printed(made.tables)
    assert "[red]m[/red] / retr_kv / multi_turn" in shown
    at = [shown.index(word) for word in ("dense", "compression, O(k)", "snapkv", "compression, O(n)", "kivi-int4")]
    assert at == sorted(at)


def test_a_narrow_terminal_cuts_nothing_off() -> None:
    made = report(small(methods=("dense", "snapkv"), sessions=12), ABOUT)
    console = Console(width=70, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for table in made.tables():
        console.print(table)
    shown = console.export_text()
    assert "\u2026" not in shown
    cell = made.cells[0]
    assert cell.accuracy is not None
    assert shown.count(f"{cell.accuracy.high:.2f}]") >= 1


def test_a_page_is_whole_needs_nothing_and_runs_nothing(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [*small(sessions=12), *small(models=(HOSTILE,), tasks=(HOSTILE,), modes=("multi_turn", "multi_request"))]
    write(rows, tmp_path, {"model <b>": {HOSTILE: [HOSTILE, {"a": 1}]}, "command": ["tenure", "scbench", HOSTILE]})
    text = (tmp_path / "index.html").read_text("utf-8")
    page = Whole(text)
    assert "script" not in page.tags
    assert "<script" not in text
    assert '<script>alert("x")</script>&|`*$a_b$[red] ' in "".join(page.words)
    inside = [link for link in page.links if link.startswith("#")]
    assert len(inside) == len(set(inside)) >= 8
    assert all(f'<h2 id="{link[1:]}">' in text for link in inside)
    pictures = [link for link in page.links if link not in inside]
    assert pictures
    assert all(link.startswith("data:image/svg+xml;base64,") for link in pictures)
    for link in pictures:
        drawn = base64.b64decode(link.split(",")[1])
        assert ElementTree.fromstring(drawn).tag.endswith("svg")
        assert b"<script" not in drawn
        assert not re.findall(rb'(?:href|src)="(?!#)', drawn)
    styles = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert "url(" not in "".join(styles)
    assert "@import" not in "".join(styles)
    with pytest.raises(AssertionError):
        Whole("<p><b>control</p></b>")


def test_markdown_is_a_table_whatever_names_are(tmp_path: Path) -> None:
    lines = report(small(models=(HOSTILE,), sessions=12), ABOUT).markdown().splitlines()
    assert "<script" not in "".join(lines).replace("\\<script", "")
    rows = [line for line in lines if line.startswith("|")]
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in rows}
    assert rows
    assert widths <= {4, 10, 11}  # verdicts, choices, numbers


def test_pictures_are_written_and_name_their_methods(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write(
        small(methods=("dense", "snapkv", "quest", "kivi-int4"), sessions=3, modes=("multi_turn", "multi_request")),
        tmp_path,
        ABOUT,
    )
    found = {path.name for path in (tmp_path / "plots").iterdir()}
    kinds = ("by-turn", "by-budget-multi-turn", "by-budget-multi-request", "by-stage", "by-bytes", "costs")
    assert found == {f"1-m-{kind}.{suffix}" for kind in kinds for suffix in ("png", "svg")}
    for kind in kinds:
        assert (tmp_path / "plots" / f"1-m-{kind}.png").stat().st_size > 10_000
        drawn = (tmp_path / "plots" / f"1-m-{kind}.svg").read_text("utf-8")
        assert {"dense", "snapkv", "quest"} <= set(re.findall(r"[a-z]+", drawn))
    assert "kivi-int4" in (tmp_path / "plots" / "1-m-by-stage.svg").read_text("utf-8")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"methods": ("dense",)},
        {"methods": ("snapkv",)},
        {"methods": ("prefix", "recompute")},
        {"methods": ("dense", "kivi-int4", "pieces")},
        {"methods": ("dense", "random", "oracle"), "turns": 1},
        {"modes": ("multi_request",), "turns": 1, "sessions": 1},
        {"modes": ("another",)},
    ],
    ids=str,
)
def test_a_grid_with_little_in_it_is_reported_all_the_same(changes: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    made = write(small(**changes), tmp_path, {})
    assert made.cells
    assert printed(made.tables)
    Whole((tmp_path / "index.html").read_text("utf-8"))
    json.loads((tmp_path / "results.json").read_bytes())


def test_names_at_the_ends_of_lines_lie_apart_and_inside() -> None:
    for wanted in ([0.0] * 9, [0.0, 0.01, 0.5, 0.98, 1.0], [1.0] * 30, [0.3], []):
        places = _apart(wanted)
        assert len(places) == len(wanted)
        assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)
        gap = min(0.085, 1 / max(1, len(wanted) - 1))
        assert all(two - one >= gap - 1e-9 for one, two in itertools.pairwise(places))
    assert _apart([0.1, 0.5, 0.9]) == [0.1, 0.5, 0.9]


def test_a_description_that_is_no_json_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="JSON"):
        write(small(), tmp_path / "new", {"grid": object()})
    with pytest.raises(ConfigError, match="no rows"):
        write([], tmp_path / "new", {})
    assert not (tmp_path / "new").exists()


def test_without_matplotlib_the_numbers_are_written_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigError, match="lab"):
        write(small(), tmp_path, {})
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", "claims.md"}


def test_no_part_of_it_imports_torch() -> None:
    program = "import sys; import tenure.scbench.report; sys.exit(any(m in sys.modules for m in ('torch', 'transformers')))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
