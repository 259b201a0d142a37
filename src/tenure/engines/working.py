"""The KV that running rows compute with: contiguous per row, growing geometrically, so that a step appends in place.
Called by the transformers engine; it knows columns and rows, never tokens, blocks or frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tenure.errors import CapacityError
from tenure.tiers.device import DTYPES, DeviceArena, plain, unwritten

__all__ = ["Working"]


class Working:
    """A tensor [layers, 2, rows, heads, columns, head_size] in the arena's dtype, on its device. Columns that nobody has
    written hold garbage. Raises CapacityError when the memory cannot be had."""

    def __init__(self, arena: DeviceArena, rows: int, columns: int) -> None:
        self._arena = arena
        self.rows = rows
        self.columns = columns
        self._adopt(self._allocate(rows, columns))

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A layer's keys and values, each [rows, heads, columns, head_size]."""
        return self._keys[index], self._values[index]

    def row(self, index: int) -> Any:
        """A row as the arena copies it: [layers, 2, heads, columns, head_size]."""
        return self._plain[:, :, index]

    def reserve(self, columns: int, used: int) -> None:
        """Makes room for `columns` columns; the first `used` are kept."""
        if columns > self.columns:
            self._move(list(range(self.rows)), max(columns, self.columns * 3 // 2), used)

    def take(self, sources: list[int], used: int) -> None:
        """Row i becomes what row sources[i] was, in its first `used` columns."""
        if len(sources) != self.rows:
            self._move(sources, self.columns, used)
            return
        moves = [(place, source) for place, source in enumerate(sources) if place != source]
        kept = {source: _copied(self.row(source)[:, :, :, :used]) for _, source in moves}
        for place, source in moves:
            self.row(place)[:, :, :, :used] = kept[source]

    def fill(self, other: Working, used: int) -> None:
        """Takes over the first `used` columns of another's rows, as many as it has."""
        for place in range(self.rows):
            self.row(place)[:, :, :, :used] = other.row(place)[:, :, :, :used]

    def _move(self, sources: list[int], columns: int, used: int) -> None:
        tensor = self._allocate(len(sources), columns)
        moved = plain(tensor)
        for place, source in enumerate(sources):
            moved[:, :, place, :, :used] = self.row(source)[:, :, :, :used]
        self.rows, self.columns = len(sources), columns
        self._adopt(tensor)

    def _allocate(self, rows: int, columns: int) -> torch.Tensor:
        arena, layout = self._arena, self._arena.layout
        shape = (layout.layers, 2, rows, layout.heads, columns, layout.head_size)
        try:
            return unwritten(shape, DTYPES[arena.kv_dtype], arena.device)
        except MemoryError as error:
            size = rows * columns * arena.block_bytes // arena.block_size
            raise CapacityError(
                f"{rows} rows of {columns} columns need {size} bytes on {arena.device}: {error}", bytes=size
            ) from error

    def _adopt(self, tensor: torch.Tensor) -> None:
        self._plain = plain(tensor)
        self._keys = [layer[0] for layer in tensor]
        self._values = [layer[1] for layer in tensor]


def _copied(part: Any) -> Any:
    return part.copy() if isinstance(part, np.ndarray) else part.clone()
