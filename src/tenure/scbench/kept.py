"""The folder of a grid that is being measured: its rows so far, so that an interrupted one goes on where it was.
The command line opens it; only whole sessions count, and only one process writes."""

from __future__ import annotations

import fcntl
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import msgspec

from tenure.errors import ConfigError
from tenure.scbench.grid import Grid
from tenure.scbench.results import Row, read_rows

__all__ = ["Kept", "Unit"]

_ROWS, _GRIDS, _LOCK = "rows.jsonl", "grids.json", "lock"


class Unit(NamedTuple):
    """One session of one grid."""

    grid: int
    task: str
    seed: int


class Kept:
    """Rows of `grids` in a folder. Use it in a `with` block.

    Raises ConfigError when the folder has another grid's rows, or another process writes to it; TraceError for a damaged file.
    More sessions of the same grids go on from what is there.
    """

    def __init__(self, folder: Path, grids: Sequence[Grid]) -> None:
        names = [_name(grid) for grid in grids]
        if len(set(names)) < len(names):
            raise ConfigError(f"models are called {', '.join(names)}: their rows could not be told apart")
        self.folder, self._grids = folder, tuple(grids)
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = (folder / _LOCK).open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise ConfigError(f"{folder} is being written by another process: wait for it, or choose another folder") from None
        try:
            self._agree()
            self._rows = self._whole(list(read_rows(folder / _ROWS)))
            self._file = (folder / _ROWS).open("ab")
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()
        self._lock.close()

    @property
    def rows(self) -> Iterator[Row]:
        """Of whole sessions, in the order of the grids: the same whoever measured them in whatever order."""
        for unit in self.units:
            yield from self._rows.get(unit, ())

    @property
    def units(self) -> list[Unit]:
        """All there are to measure; a session of every task before the next session, so that what there is can be compared."""
        parts = [
            [Unit(place, task, seed) for seed in grid.seeds(task)]
            for place, grid in enumerate(self._grids)
            for task in grid.sizes
        ]
        return [unit for units in zip_longest(*parts) for unit in units if unit is not None]

    @property
    def missing(self) -> list[Unit]:
        """Those that have yet to be measured."""
        return [unit for unit in self.units if unit not in self._rows]

    def add(self, unit: Unit, rows: Sequence[Row]) -> None:
        """Keeps a session's rows: all or, when the process dies, none that count. Raises OSError (a full disk)."""
        self._file.write(b"".join(row.line() for row in rows))
        self._file.flush()
        self._rows[unit] = list(rows)

    def _agree(self) -> None:
        path = self.folder / _GRIDS
        if path.exists():
            try:
                there = msgspec.json.decode(path.read_bytes(), type=list[Grid])
            except (msgspec.MsgspecError, ConfigError, ValueError) as problem:
                raise ConfigError(
                    f"{path} is of no grid that is known here ({problem}): give --use as before, or choose another folder"
                ) from None
            if other := _different(there, self._grids):
                raise ConfigError(
                    f"{self.folder} has the rows of another grid ({other} differs): choose another folder, or empty this one"
                )
        elif (self.folder / _ROWS).exists():
            raise ConfigError(f"{self.folder} has rows, but not the {_GRIDS} that says of what: choose another folder")
        _put(path, msgspec.json.format(msgspec.json.encode(self._grids), indent=1))

    def _whole(self, rows: list[Row]) -> dict[Unit, list[Row]]:
        """The sessions that have every cell; the file then has only those."""
        found: dict[Unit, list[Row]] = defaultdict(list)
        for row in rows:
            found[self._unit(row)].append(row)
        cells = [[tuple(cell) for cell in grid.cells] for grid in self._grids]
        whole = {
            unit: rows for unit, rows in found.items() if [(row.mode, row.method, row.budget) for row in rows] == cells[unit.grid]
        }
        lines = b"".join(row.line() for rows in whole.values() for row in rows)
        file = self.folder / _ROWS
        if file.exists() and len(lines) != file.stat().st_size:
            _put(file, lines)
        return whole

    def _unit(self, row: Row) -> Unit:
        for place, grid in enumerate(self._grids):
            if row.model == _name(grid) and row.task in grid.sizes:
                return Unit(place, row.task, row.seed)
        raise ConfigError(f"{self.folder} has rows of {row.model} and {row.task}, which are in no grid of it")


def _put(path: Path, content: bytes) -> None:
    """In place of what is there, which a process that dies in between leaves as it was."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    os.replace(new, path)


def _name(grid: Grid) -> str:
    """As rows call its model."""
    return Path(grid.model).resolve().name


def _different(there: Sequence[Grid], here: Sequence[Grid]) -> str:
    """What sets grids apart; nothing where they agree. How many sessions there are, of which the seconds are taken, and the path
    of a file that is used (`made_of` has its content) may differ."""
    if len(there) != len(here):
        return "the number of models"
    fields = [name for name in Grid.__struct_fields__ if name not in ("sessions", "timed", "use")]
    pairs = list(zip(there, here, strict=True))
    return ", ".join(name for name in fields if any(getattr(one, name) != getattr(other, name) for one, other in pairs))
