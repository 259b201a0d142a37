"""The folder of a grid: what an interrupted run leaves is gone on from, whole sessions only, by one process at a time."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

pytest.importorskip("torch", reason="needs tenure[model]")
pytest.importorskip("transformers", reason="needs tenure[model]")

from tenure.errors import ConfigError, TraceError
from tenure.scbench.grid import Grid
from tenure.scbench.kept import Kept, Unit
from tenure.scbench.results import Row

from .rows import row

FIRST = Grid(
    model="/models/one", sizes={"retr_kv": 8, "multi_hop": 9}, methods=("dense", "tova"), budgets=(0.5,), sessions=3, timed=0
)
SECOND = Grid(model="two", sizes={"retr_kv": 8}, methods=("dense",), budgets=(0.5,), sessions=2, timed=0)
GRIDS = (FIRST, SECOND)


def rows(unit: Unit) -> list[Row]:
    grid, name = GRIDS[unit.grid], ("one", "two")[unit.grid]
    made = [row(model=name, task=unit.task, seed=unit.seed) for _ in grid.cells]
    return [
        msgspec.structs.replace(one, mode=cell.mode, method=cell.method, budget=cell.budget)
        for one, cell in zip(made, grid.cells, strict=True)
    ]


def filled(folder: Path, count: int = 99) -> list[Row]:
    with Kept(folder, GRIDS) as kept:
        for unit in kept.missing[:count]:
            kept.add(unit, rows(unit))
        return list(kept.rows)


def test_units_go_round_the_tasks_and_grids(tmp_path: Path) -> None:
    with Kept(tmp_path, GRIDS) as kept:
        assert kept.units == kept.missing
        assert kept.units[:4] == [Unit(0, "retr_kv", 0), Unit(0, "multi_hop", 0), Unit(1, "retr_kv", 0), Unit(0, "retr_kv", 1)]
        assert len(kept.units) == 3 + 3 + 2


def test_what_is_there_is_not_measured_again(tmp_path: Path) -> None:
    some = filled(tmp_path, 3)
    with Kept(tmp_path, GRIDS) as kept:
        assert list(kept.rows) == some
        assert len(kept.missing) == 5
        kept.add(kept.missing[-1], rows(kept.missing[-1]))
    every = filled(tmp_path)
    other = tmp_path / "at-once"
    assert every == filled(other)
    assert len(every) == 2 * 3 * 4 + 2 * 2


@pytest.mark.parametrize("cut", [1, 200, 1000])
def test_a_session_that_was_cut_off_is_measured_again(tmp_path: Path, cut: int) -> None:
    every = filled(tmp_path)
    file = tmp_path / "rows.jsonl"
    file.write_bytes(file.read_bytes()[:-cut])
    with Kept(tmp_path, GRIDS) as kept:
        assert 1 <= len(kept.missing) <= 2
        whole = list(kept.rows)
    assert [one for one in every if one in whole] == whole
    assert filled(tmp_path) == every
    assert len(file.read_bytes().splitlines()) == len(every)


def test_more_sessions_go_on_from_fewer(tmp_path: Path) -> None:
    filled(tmp_path)
    more = tuple(msgspec.structs.replace(grid, sessions=4) for grid in GRIDS)
    with Kept(tmp_path, more) as kept:
        assert kept.missing == [Unit(1, "retr_kv", 2), Unit(0, "retr_kv", 3), Unit(0, "multi_hop", 3), Unit(1, "retr_kv", 3)]
    with Kept(tmp_path, GRIDS) as kept:
        assert not kept.missing


@pytest.mark.parametrize(
    "other",
    [
        (FIRST,),
        (FIRST, msgspec.structs.replace(SECOND, turns=4)),
        (msgspec.structs.replace(FIRST, methods=("dense",)), SECOND),
        (SECOND, FIRST),
    ],
)
def test_another_grid_is_refused_and_nothing_changes(tmp_path: Path, other: tuple[Grid, ...]) -> None:
    filled(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(ConfigError, match="another grid"):
        Kept(tmp_path, other)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with Kept(tmp_path, GRIDS), pytest.raises(ConfigError, match="another process"):
        Kept(tmp_path, GRIDS)
    with Kept(tmp_path, GRIDS):
        pass


def test_damage_is_told(tmp_path: Path) -> None:
    filled(tmp_path)
    file = tmp_path / "rows.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    lines[3] = b"what?\n"
    file.write_bytes(b"".join(lines))
    with pytest.raises(TraceError, match=r"rows\.jsonl:4"):
        Kept(tmp_path, GRIDS)
    (tmp_path / "grids.json").unlink()
    with pytest.raises(ConfigError, match=r"grids\.json"):
        Kept(tmp_path, GRIDS)


def test_models_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="told apart"):
        Kept(tmp_path, (FIRST, msgspec.structs.replace(SECOND, model="elsewhere/one")))
