"""Methods that drop blocks after the prefill: each is one score, of blocks or of tokens; the highest stay as the budget allows.
They extend this; it decides in each layer and KV head alone, and never touches the open block."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from tenure.scbench.kv import KV, Context
from tenure.scbench.methods.base import Method, best

__all__ = ["ByToken", "Dropping"]


class Dropping(Method, ABC):
    """Compression by dropping: what is gone is gone for every later turn and request."""

    stage = "compression"
    memory = "O(k)"

    @abstractmethod
    def blocks(self, context: Context, layer: int, room: int) -> torch.Tensor:
        """The score of each sealed block [kv_heads, sealed blocks]; the `room` highest of each head stay."""

    def room(self, kv: KV, layer: int, budget: float) -> int:
        """How many sealed blocks of a layer stay: in each layer as many, unless a method says otherwise. Raises ConfigError."""
        return kv.room(layer, budget)

    def keep(self, context: Context, budget: float) -> tuple[torch.Tensor, ...]:
        """For each layer which sealed blocks stay: bool [kv_heads, sealed blocks]. Raises ConfigError."""
        kv, kept = context.kv, []
        for layer in range(kv.layers):
            room = self.room(kv, layer, budget)
            everything = torch.ones((kv.keys[layer].shape[0], kv.sealed(layer)), dtype=torch.bool, device=kv.keys[layer].device)
            kept.append(everything if room == kv.sealed(layer) else best(self.blocks(context, layer, room), room))
        return tuple(kept)

    def compress(self, context: Context, budget: float) -> KV:
        """The KV with what `keep` names."""
        return context.kv.take(self.keep(context, budget))


class ByToken(Dropping):
    """Dropping by a score of tokens: a block's is the sum of its tokens'."""

    @abstractmethod
    def tokens(self, context: Context, layer: int) -> torch.Tensor:
        """The score of each slot [kv_heads, slots], in fp32."""

    def blocks(self, context: Context, layer: int, room: int) -> torch.Tensor:
        """Sums over blocks."""
        size = context.kv.block_size
        every = context.once((self, layer), lambda: self.tokens(context, layer))
        scores = every[:, : context.kv.sealed(layer) * size]
        return scores.unflatten(1, (-1, size)).sum(-1)
