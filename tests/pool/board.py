"""Numbers that the processes of one run share: the driver's epoch labels, and how much each node has served.
A name is written by one process only; reading needs no lock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np


class Board:
    """An integer for each name, in a file that every process maps."""

    def __init__(self, file: Path, names: Sequence[str]) -> None:
        if not file.exists():
            file.write_bytes(bytes(8 * len(names)))
        self._at = {name: number for number, name in enumerate(names)}
        self._values = np.memmap(file, np.int64, "r+", shape=(len(names),))

    def __getitem__(self, name: str) -> int:
        return int(self._values[self._at[name]])

    def add(self, name: str) -> int:
        """One more; by the process whose name it is, one thread at a time. Returns the new value."""
        self._values[self._at[name]] += 1
        return self[name]
