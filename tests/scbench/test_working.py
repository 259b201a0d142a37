"""In which order sessions are measured, and how many at once: with processes that only say that they were asked."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
pytest.importorskip("transformers", reason="needs tenure[model]")

from tenure.errors import ConfigError, TenureError
from tenure.scbench import working
from tenure.scbench.grid import Grid
from tenure.scbench.kept import Unit


class Pool:
    """Of processes that never are."""

    of: ClassVar[list[int]] = []

    def __init__(self, jobs: int, *settings: Any) -> None:
        self.of.append(jobs)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, call: Any, unit: Unit) -> Future[tuple[Unit, list[Any]]]:
        asked: Future[tuple[Unit, list[Any]]] = Future()
        asked.unit = unit  # type: ignore[attr-defined]
        return asked


class Kept:
    """Of two grids of two tasks, five sessions each, of which one is there."""

    missing = [Unit(grid, task, seed) for seed in range(5) for grid in (0, 1) for task in ("retr_kv", "multi_hop")][1:]

    def __init__(self) -> None:
        self.added: list[Unit] = []

    def add(self, unit: Unit, rows: list[Any]) -> None:
        self.added.append(unit)


def test_what_is_timed_comes_first_and_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once: list[set[Unit]] = []

    def wait(waiting: set[Any], return_when: str) -> None:
        at_once.append({one.unit for one in waiting})
        first = min(waiting, key=lambda one: one.unit)
        first.set_result((first.unit, []))

    monkeypatch.setattr(working, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(working, "wait", wait)
    sizes = {"retr_kv": 3, "multi_hop": 3}
    grids = [Grid(model=name, sizes=sizes, methods=("dense",), sessions=5, timed=timed) for name, timed in (("a", 2), ("b", 1))]
    kept, told = Kept(), list[Unit]()
    working.measure(kept, grids, 3, told.append)  # type: ignore[arg-type]
    timed = {Unit(0, task, seed) for task in sizes for seed in (0, 1)} | {Unit(1, task, 0) for task in sizes}
    timed &= {*Kept.missing}
    assert [*map(len, at_once[: len(timed)])] == [1] * len(timed)
    assert {unit for units in at_once[: len(timed)] for unit in units} == timed
    assert {len(units) for units in at_once[len(timed) : -2]} == {3}
    assert sorted(kept.added) == sorted(told) == sorted(Kept.missing)
    assert Pool.of == [1, 3], "no second process begins while seconds are taken"


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (MemoryError(), "there is too little memory for session 3 of retr_kv: run it again to go on, with fewer jobs"),
        (torch.OutOfMemoryError("CUDA out of memory"), "there is too little memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 3 bytes"), "there is too little memory"),
        (RuntimeError("shapes do not match"), "session 3 of retr_kv failed: RuntimeError: shapes do not match"),
        (ConfigError("budget is 0"), "budget is 0"),
    ],
)
@pytest.mark.parametrize("where", ["loading", "measuring"])
def test_what_fails_is_said_by_the_session(where: str, problem: Exception, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Measuring:
        def __init__(self, grid: str) -> None:
            if where == "loading":
                raise problem

        def session(self, task: str, seed: int) -> list[Any]:
            raise problem

    monkeypatch.setattr(working, "_grids", ("a grid",))
    monkeypatch.setattr(working, "_measuring", {})
    monkeypatch.setattr(working, "Measuring", Measuring)
    with pytest.raises(TenureError, match=told):
        working._session(Unit(0, "retr_kv", 3))


def test_what_cannot_begin_is_said_by_the_first_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working, "_not_begun", TenureError("mine.py:3: ZeroDivisionError"))
    with pytest.raises(TenureError, match=r"mine\.py:3"):
        working._session(Unit(0, "retr_kv", 3))
