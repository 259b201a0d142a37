"""Tri-shape (arXiv 2412.10319): A-shape, but the last tokens of the prefill attend to all."""

from __future__ import annotations

import torch

from tenure.scbench.attend import Allow
from tenure.scbench.methods.a_shape import AShape

__all__ = ["TriShape"]


class TriShape(AShape):
    """A-shape with the last `tail` tokens dense."""

    name = "tri_shape"

    def __init__(self, tail: int = 100) -> None:
        self.tail = tail

    def allow(self, tokens: int, budget: float) -> Allow | None:
        """Sink, window and the last rows."""
        rest = super().allow(tokens, budget)
        if rest is None:
            return None
        dense = tokens - self.tail

        def shape(rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
            return rest(rows, columns) | (rows >= dense)

        return shape
