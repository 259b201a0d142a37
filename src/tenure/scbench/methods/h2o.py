"""H2O (arXiv 2306.14048): half of what stays is the most recent, half what was attended to most so far (heavy hitters)."""

from __future__ import annotations

import torch

from tenure.scbench.kv import Context
from tenure.scbench.methods.base import ALL
from tenure.scbench.methods.dropping import ByToken
from tenure.scbench.methods.mass import weights

__all__ = ["H2O"]


class H2O(ByToken):
    """score(token) = attention received from all tokens, summed, averaged over the group's heads."""

    name = "h2o"
    observes = ALL

    def tokens(self, context: Context, layer: int) -> torch.Tensor:
        """Attention received."""
        kv, queries = context.kv, context.observed()
        received = torch.zeros(kv.positions[layer].shape, device=kv.keys[layer].device)
        for part in weights(kv, queries, layer, ALL):
            received += part.sum(2).mean(1)
        return received

    def blocks(self, context: Context, layer: int, room: int) -> torch.Tensor:
        """Sums over blocks; the last `room // 2` before all others."""
        scores = super().blocks(context, layer, room)
        scores[:, scores.shape[1] - room // 2 :] = torch.inf
        return scores
