"""The oracle, a control: the blocks that truly get the most attention are read. It reads all keys to know that, uncounted."""

from __future__ import annotations

import torch

from tenure.scbench.attend import Ask
from tenure.scbench.kv import KV
from tenure.scbench.methods.loading import Loading, grouped

__all__ = ["Oracle"]


class Oracle(Loading):
    """score(block) = the attention that a token gives to it, summed over the group's heads."""

    name = "oracle"

    def score(self, ask: Ask, kv: KV, about: torch.Tensor) -> torch.Tensor:
        """True attention."""
        new, total = ask.queries.shape[1], ask.keys.shape[1]
        scores = grouped(ask) @ ask.keys.float()[:, None].transpose(-1, -2) * ask.scale
        ahead = torch.ones((new, total), dtype=torch.bool, device=scores.device).triu(total - new + 1)
        mass = scores.masked_fill(ahead, -torch.inf).softmax(-1).sum(1)
        return mass[..., : kv.sealed(ask.layer) * kv.block_size].unflatten(-1, (-1, kv.block_size)).sum(-1)
