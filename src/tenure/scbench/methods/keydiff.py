"""KeyDiff (arXiv 2504.15364): keys unlike the others stay. It looks at no query."""

from __future__ import annotations

import torch

from tenure.scbench.kv import Context
from tenure.scbench.methods.dropping import ByToken

__all__ = ["KeyDiff"]


class KeyDiff(ByToken):
    """score(token) = -cosine(its key, the mean of all keys' directions)."""

    name = "keydiff"

    def tokens(self, context: Context, layer: int) -> torch.Tensor:
        """Unlikeness to the mean direction."""
        keys = torch.nn.functional.normalize(context.kv.keys[layer].float(), dim=-1)
        return -torch.nn.functional.cosine_similarity(keys, keys.mean(1, keepdim=True), dim=-1)
