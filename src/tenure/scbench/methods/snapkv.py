"""SnapKV (arXiv 2404.14469): what the last tokens of the prompt attend to stays."""

from __future__ import annotations

import torch

from tenure.scbench.kv import Context
from tenure.scbench.methods.dropping import ByToken
from tenure.scbench.methods.mass import last

__all__ = ["SnapKV"]


class SnapKV(ByToken):
    """score(token) = mean attention from the last `window` tokens, averaged over `kernel` neighbours and the group's heads. The
    window's own tokens come before all others."""

    name = "snapkv"

    def __init__(self, window: int = 32, kernel: int = 5) -> None:
        self.observes = self.window = window
        self.kernel = kernel

    def tokens(self, context: Context, layer: int) -> torch.Tensor:
        """Pooled attention of the window."""
        kv, queries = context.kv, context.observed()
        mass = last(kv, queries, layer, self.window).mean(2)  # [kv_heads, groups, slots]
        own = kv.positions[layer] >= kv.length - min(self.window, queries.vectors[layer].shape[1])
        mass = mass.masked_fill(own[:, None], 0)
        pooled = torch.nn.functional.avg_pool1d(mass, self.kernel, 1, self.kernel // 2).mean(1)
        return pooled.masked_fill(own, torch.inf)
