"""A-shape: each token of the prefill attends to the first tokens and to those just before it. All KV is kept and read."""

from __future__ import annotations

import torch

from tenure.scbench.attend import Allow
from tenure.scbench.methods.base import Method

__all__ = ["AShape"]


class AShape(Method):
    """The budget is the fraction of a context that a token attends to at most: 1/32 of it the first tokens, else the last."""

    name = "a_shape"
    stage = "generation"

    def allow(self, tokens: int, budget: float) -> Allow | None:
        """Sink and window."""
        room = int(budget * tokens)
        if room >= tokens:
            return None
        sink = room // 32
        window = max(1, room - sink)

        def shape(rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
            return (columns < sink) | (rows - columns < window)

        return shape

    def attention(self, budget: float) -> str:
        """Its own, unless the budget does not bind."""
        return "full" if budget == 1 else f"{self.name}({budget:g})"
