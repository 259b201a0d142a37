"""StreamingLLM (arXiv 2309.17453): the first block (the sink) and the most recent ones stay."""

from __future__ import annotations

import torch

from tenure.scbench.kv import Context
from tenure.scbench.methods.dropping import Dropping

__all__ = ["Streaming"]


class Streaming(Dropping):
    """score(block) = its place; the first one's is infinite. With room for one block only, that is the sink."""

    name = "streaming"

    def blocks(self, context: Context, layer: int, room: int) -> torch.Tensor:
        """Higher for later blocks, the same in every head."""
        kv = context.kv
        scores = torch.arange(kv.sealed(layer), dtype=torch.float32, device=kv.keys[layer].device)
        scores[:1] = torch.inf
        return scores.expand(kv.keys[layer].shape[0], -1)
