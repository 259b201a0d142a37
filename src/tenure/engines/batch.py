"""A running batch: its rows, the KV they compute with, and how many columns of it are there.
Called by the transformers cache before, during and after forward passes; it never looks at the model."""

from __future__ import annotations

import torch

from tenure.engines.rows import Row
from tenure.engines.working import Working
from tenure.errors import ConfigError, StaleHandleError, StateError, TokenError
from tenure.tiers.device import DTYPES, DeviceArena

__all__ = ["Batch"]


class Batch:
    """Rows in step: the first `done` columns of each are computed.

    What a forward pass has computed is committed to the arena when the next one begins or the batch closes: by then beams
    that lost and drafts that were refused are gone.
    """

    def __init__(self, arena: DeviceArena, rows: list[Row], memory: Working, done: int, ends: frozenset[int]) -> None:
        self.arena = arena
        self.rows = rows
        self.done = done
        self.ends = ends  # what is fed to a row that has generated one of these is padding: others are still running
        self.fed = False  # has a forward pass begun?
        self._memory: Working | None = memory
        self._coming = 0  # columns that the forward pass under way computes
        self._next = 0  # the layer whose turn it is

    @property
    def memory(self) -> Working:
        """The working memory. Raises StaleHandleError when the batch is closed."""
        if self._memory is None:
            raise StaleHandleError("this cache is closed: its sequences are released")
        return self._memory

    @property
    def closed(self) -> bool:
        """Has it given everything back?"""
        return self._memory is None

    def begin(self, fed: list[list[int]]) -> None:
        """A forward pass is coming that computes these tokens, for each row the same number of columns."""
        memory = self.memory
        self.commit()
        for row, tokens in zip(self.rows, fed, strict=True):
            if len(self.rows) > 1 and len(tokens) == 1 and row.generated(self.ends):
                row.end(self.done - row.pad)
            row.feed(tokens[max(row.pad - self.done, 0) :], max(self.done - row.pad, 0))
        self._coming = len(fed[0])
        self._next = 0
        self.fed = True
        memory.reserve(self.done + self._coming, self.done)

    def update(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Takes a layer's new KV, each [rows, heads, columns, head_size]; returns all of that layer's.

        Raises StateError when no forward pass was announced or a layer is left out, ConfigError for KV of another layout.
        """
        memory, layout, coming = self.memory, self.arena.layout, self._coming
        if layer != self._next or not coming:
            turn = f"it is layer {self._next}'s turn" if coming else "no forward pass was announced"
            raise StateError(f"layer {layer} gives KV, but {turn}")
        wanted = (len(self.rows), layout.heads, coming, layout.head_size)
        if keys.shape != wanted or values.shape != wanted or keys.dtype != DTYPES[self.arena.kv_dtype]:
            raise ConfigError(
                f"the model gives keys {tuple(keys.shape)} and values {tuple(values.shape)} of {keys.dtype}: this arena is for"
                f" {wanted} of {self.arena.kv_dtype}"
            )
        if keys.requires_grad and torch.is_grad_enabled():
            raise ConfigError("KV that is kept has no gradient: run the model under torch.no_grad()")
        start, stop = self.done, self.done + coming
        all_keys, all_values = memory.layer(layer)
        all_keys[:, :, start:stop] = keys
        all_values[:, :, start:stop] = values
        self._next += 1
        if self._next == layout.layers:
            self.done, self._coming = stop, 0
        return all_keys[:, :, :stop], all_values[:, :, :stop]

    def commit(self) -> None:
        """Brings every block that is full to the arena, and seals it."""
        filled: set[int] = set()
        for place, row in enumerate(self.rows):
            row.commit(self.arena, self.memory.row(place), self.done - row.pad, filled)

    def take(self, sources: list[int]) -> None:
        """Row i becomes what row sources[i] was: beams, several answers to one prompt. Shared blocks stay shared."""
        if not sources or min(sources) < 0 or max(sources) >= len(self.rows):
            raise TokenError(f"rows {sources} are asked for: the batch has rows 0 to {len(self.rows) - 1}")
        self.memory.take(sources, self.done)
        seen: set[int] = set()
        rows = []
        for source in sources:
            rows.append(self.rows[source].fork() if source in seen else self.rows[source])
            seen.add(source)
        old, self.rows = self.rows, rows
        for place, row in enumerate(old):
            if place not in seen:
                row.end(failed=True)

    def truncate(self, columns: int) -> None:
        """Keeps the first `columns` columns."""
        if not 0 <= columns <= self.done:
            raise TokenError(f"cannot keep {columns} columns: there are {self.done}", columns=self.done)
        for row in self.rows:
            row.cut(max(columns - row.pad, 0))
        self.done = columns

    def fork(self) -> Batch:
        """Another batch that goes on from here by itself; full blocks are shared."""
        self.commit()
        rows = [row.fork() for row in self.rows]
        memory = Working(self.arena, len(rows), self.memory.columns)
        memory.fill(self.memory, self.done)
        other = Batch(self.arena, rows, memory, self.done, self.ends)
        other.truncate(self.done)  # a prompt's rest may be fed to either: both must not write the same frames
        other.fed = self.fed
        return other

    def close(self, *, failed: bool = False) -> None:
        """Commits what is full and gives every reference back; at once, and only once."""
        if self._memory is None:
            return
        try:
            self.commit()
        except BaseException:
            failed = True
            raise
        finally:
            self._memory = None
            for row in self.rows:
                row.end(max(self.done - row.pad, 0), failed=failed)
