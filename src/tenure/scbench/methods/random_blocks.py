"""Random blocks, the control: a method that keeps or reads no better than this has learnt nothing from the KV."""

from __future__ import annotations

import torch

from tenure.scbench.attend import Ask
from tenure.scbench.kv import KV, Context
from tenure.scbench.methods.dropping import Dropping
from tenure.scbench.methods.loading import Loading

__all__ = ["RandomBlocks", "RandomReads"]


class RandomBlocks(Dropping):
    """Blocks that stay by chance, in each layer and head others. The same for contexts of the same length."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def blocks(self, context: Context, layer: int, room: int) -> torch.Tensor:
        """Uniform numbers."""
        keys, length = context.kv.keys[layer], context.kv.length
        return _uniform(f"{self.seed} {layer} {length}", (keys.shape[0], context.kv.sealed(layer))).to(keys.device)


class RandomReads(Loading):
    """Blocks that are read by chance, for each token others. The same for contexts of the same length."""

    name = "random-reads"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def score(self, ask: Ask, kv: KV, about: torch.Tensor) -> torch.Tensor:
        """Uniform numbers."""
        shape = (ask.keys.shape[0], ask.queries.shape[1], kv.sealed(ask.layer))
        return _uniform(f"{self.seed} {ask.layer} {ask.keys.shape[1]}", shape).to(ask.keys.device)


def _uniform(seed: str, shape: tuple[int, ...]) -> torch.Tensor:
    number = int.from_bytes(seed.encode(), "big") % (1 << 61)
    return torch.rand(shape, generator=torch.Generator().manual_seed(number))
