"""The rows of a grid, ordered: by cell and session, with dense's row of the same session beside. Everything that is reported
starts here; it averages nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tenure.errors import ConfigError
from tenure.scbench.results import Row

__all__ = [
    "CONTROLS",
    "DENSE",
    "PREFIX",
    "RECOMPUTE",
    "REQUESTS",
    "REUSED",
    "SWAPPED",
    "TURNS",
    "Key",
    "Samples",
    "fall",
    "first",
    "gather",
    "later",
    "rank",
    "whole",
]

DENSE, PREFIX, SWAPPED, RECOMPUTE = "dense", "prefix", "swapped", "recompute"
REUSED = {PREFIX: "exact prefixes", SWAPPED: "exact prefixes, swapped out and in"}
"""Methods that are to change no answer of RECOMPUTE's, and what they are."""
CONTROLS = frozenset({"random", "oracle", "random-reads", "pieces"})
"""Methods that show what a choice is worth; no claim pools them with others, and nobody would run them."""
TURNS, REQUESTS = "multi_turn", "multi_request"
_STAGES = ("none", "generation", "compression", "retrieval", "loading")

Key = tuple[str, str, str, str, float]
"""Of a cell: model, task, mode, method, budget."""


@dataclass(frozen=True, slots=True)
class Samples:
    """cells: by key, of each the sessions' rows by seed; both ascending, methods by `rank`."""

    cells: dict[Key, dict[int, Row]]

    def of(self, model: str, task: str, mode: str, method: str, budget: float | None = None) -> dict[int, Row]:
        """A cell's rows by seed; without a budget, of the method's only one or its largest. Empty where there are none."""
        if budget is not None:
            return self.cells.get((model, task, mode, method, budget), {})
        found = [rows for (*names, _), rows in self.cells.items() if names == [model, task, mode, method]]
        return found[0] if found else {}

    def names(self, place: int) -> list[str]:
        """All models (0), tasks (1), modes (2) or methods (3), in order."""
        return list(dict.fromkeys(str(key[place]) for key in self.cells))

    def settings(self, model: str) -> dict[tuple[str, float], Row]:
        """What was run with a model: method and budget, with a row that tells stage and memory."""
        found: dict[tuple[str, float], Row] = {}
        for (name, _, _, method, budget), rows in self.cells.items():
            if name == model:
                found.setdefault((method, budget), next(iter(rows.values())))
        return dict(sorted(found.items(), key=lambda item: rank(item[1])))

    def places(self) -> Iterator[tuple[str, str, str]]:
        """Every model, task and mode that has rows."""
        yield from dict.fromkeys(key[:3] for key in self.cells)


def rank(row: Row) -> tuple[int, str, str, bool, str, float]:
    """Where a method at a budget stands: along the life cycle, controls last, from the largest budget down."""
    stage = _STAGES.index(row.stage) if row.stage in _STAGES else len(_STAGES)
    return (stage, row.stage, row.memory, row.method in CONTROLS, row.method, -row.budget)


def gather(rows: Iterable[Row]) -> Samples:
    """The rows by cell. Of two rows of one cell and session the later counts. Raises ConfigError without rows, for a row that
    cannot be (scores beyond 0 to 1, none of them, nothing asked), and for rows of a method or session that contradict others."""
    methods: dict[str, tuple[str, str]] = {}
    sessions: dict[tuple[str, str, int], tuple[int, int]] = {}
    cells: dict[Key, dict[int, Row]] = {}
    for row in rows:
        _check(row)
        stage, memory = methods.setdefault(row.method, (row.stage, row.memory))
        if (stage, memory) != (row.stage, row.memory):
            raise ConfigError(f"method {row.method} is {stage}, {memory} in one row and {row.stage}, {row.memory} in another")
        shape = sessions.setdefault((row.model, row.task, row.seed), (row.size, len(row.scores)))
        if shape != (row.size, len(row.scores)):
            raise ConfigError(
                f"session {row.seed} of {row.task} on {row.model} has size {shape[0]} and {shape[1]} turns in one row, "
                f"{row.size} and {len(row.scores)} in another: rows of different grids cannot be compared"
            )
        cells.setdefault(row.cell, {})[row.seed] = row
    if not cells:
        raise ConfigError("nothing to report: no rows", rows=0)
    modes = {TURNS: 0, REQUESTS: 1}

    def place(key: Key) -> tuple[object, ...]:
        model, task, mode, _, _ = key
        return (model, task, modes.get(mode, 2), mode, *rank(next(iter(cells[key].values()))))

    return Samples({key: dict(sorted(cells[key].items())) for key in sorted(cells, key=place)})


def first(row: Row) -> float | None:
    """The score of turn 1. None where it is not of the KV that a method left: in a conversation the prefill itself, before
    anything is dropped, gives the first token, and the true answer has no more than that."""
    return None if row.mode == TURNS and row.lengths[0] <= 1 else row.scores[0]


def fall(row: Row) -> float | None:
    """`first` less `later`."""
    begin, rest = first(row), later(row)
    return None if begin is None or rest is None else begin - rest


def later(row: Row) -> float | None:
    """The mean score of turns 2 and on; None where there is one turn only."""
    return sum(row.scores[1:]) / len(row.scores[1:]) if len(row.scores) > 1 else None


def whole(row: Row) -> float:
    """The mean score of all turns."""
    return sum(row.scores) / len(row.scores)


def _check(row: Row) -> None:
    wrong = (
        "no scores"
        if not row.scores
        else f"scores {list(row.scores)}, which are not all from 0 to 1"
        if not all(0 <= score <= 1 for score in row.scores)
        else f"{len(row.predictions)} predictions for {len(row.scores)} scores"
        if len(row.predictions) != len(row.scores)
        else f"{len(row.lengths)} lengths for {len(row.scores)} scores"
        if len(row.lengths) != len(row.scores)
        else f"budget {row.budget}, full {row.full} and asked {row.asked}, which are to be above 0, and the budget at most 1"
        if not (0 < row.budget <= 1 and row.full > 0 and row.asked > 0)
        else ""
    )
    if wrong:
        raise ConfigError(f"the row of {'/'.join(map(str, row.cell))}, session {row.seed}, has {wrong}")
