"""TOVA (arXiv 2401.06104): what the last token attends to stays."""

from __future__ import annotations

import torch

from tenure.scbench.kv import Context
from tenure.scbench.methods.dropping import ByToken
from tenure.scbench.methods.mass import last

__all__ = ["Tova"]


class Tova(ByToken):
    """score(token) = attention from the last token, averaged over all heads of the layer, which so keep the same tokens. The last
    token comes before all others."""

    name = "tova"
    observes = 1

    def tokens(self, context: Context, layer: int) -> torch.Tensor:
        """The last token's attention."""
        kv = context.kv
        mass = last(kv, context.observed(), layer, 1)[:, :, 0].mean((0, 1))
        scores = mass.expand(kv.keys[layer].shape[0], -1)
        own = kv.positions[layer] == kv.length - 1
        return scores.masked_fill(own, torch.inf)
