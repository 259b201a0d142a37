"""Quest (arXiv 2406.10774): the blocks read are those whose keys' bounds allow the highest score."""

from __future__ import annotations

import torch

from tenure.scbench.attend import Ask
from tenure.scbench.kv import KV, Context
from tenure.scbench.methods.loading import Loading, grouped

__all__ = ["Quest"]


class Quest(Loading):
    """score(block) = sum over channels of max(q lowest, q highest), with the block's lowest and highest key by channel stored;
    the highest of the group's heads. Every layer selects."""

    name = "quest"

    def describe(self, context: Context, layer: int) -> torch.Tensor:
        """Lowest and highest [2, kv_heads, sealed blocks, head_size]."""
        kv = context.kv
        keys = kv.keys[layer][:, : kv.sealed(layer) * kv.block_size].unflatten(1, (-1, kv.block_size))
        return torch.stack(keys.aminmax(dim=2))

    def score(self, ask: Ask, kv: KV, about: torch.Tensor) -> torch.Tensor:
        """Upper bounds."""
        lowest, highest = about.float().transpose(-1, -2)[:, :, None]
        queries = grouped(ask)
        bounds = queries.clamp(min=0) @ highest + queries.clamp(max=0) @ lowest
        return bounds.amax(1)
