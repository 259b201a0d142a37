"""The figures of docs/scale.md are those that were saved, and those that were saved are of the costs that were measured."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.scale_tables import PAGE, filled, marks, tables  # noqa: E402

PLAN = ROOT / "benchmarks" / "results" / "plan"
COSTS = json.loads((PLAN / "costs.json").read_text())
FOUND = json.loads((PLAN / "scale.json").read_text())


def test_the_page_has_every_table_as_it_was_saved() -> None:
    page = PAGE.read_text()
    made = tables(COSTS, FOUND)
    assert sorted(marks(page)) == sorted(made)
    assert filled(page, made) == page


def test_another_figure_would_be_another_page() -> None:
    page = PAGE.read_text()
    for name, rows in FOUND.items():
        if name in ("memory", "loads", "spread", "beside", "events", "incidents"):
            other = copy.deepcopy(FOUND)
            column = {"memory": "heads", "events": "events", "incidents": "least"}.get(name, "busiest")
            other[name][-1][column] = 1.5 * rows[-1][column] + 1
            assert filled(page, tables(COSTS, other)) != page, name


def test_the_plan_is_of_the_costs_that_were_measured() -> None:
    measured = {name: unit["value"] for name, unit in COSTS["units"].items()}
    used = FOUND["costs"]
    assert {name: used[name] for name in used if name in measured} == {name: measured[name] for name in used if name in measured}
    assert set(used) - set(measured) == {"rtt"}
