"""Methods that keep all KV and read part of it: each is one score of blocks for a query; every new token reads the highest.
They extend this; it decides for each token, layer and KV head alone, and counts what a method stores to decide by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from tenure.scbench.attend import Ask
from tenure.scbench.kv import KV, Context
from tenure.scbench.methods.base import Choice, Method, best

__all__ = ["Loading", "grouped"]


class Loading(Method, ABC):
    """Selection at reading. The query heads that share a KV head share what is read of it."""

    stage = "loading"

    def describe(self, context: Context, layer: int) -> torch.Tensor:
        """What is stored of a layer's sealed blocks to judge them by, made once a context. Its bytes are paid first."""
        return torch.empty(0)

    @abstractmethod
    def score(self, ask: Ask, kv: KV, about: torch.Tensor) -> torch.Tensor:
        """The score of each sealed block for each new token [kv_heads, new, sealed blocks]. about: what `describe` gave."""

    def choose(self, context: Context, budget: float) -> Choice | None:
        """A choice within the budget; None where the budget does not bind. Raises ConfigError."""
        kv, layers = context.kv, range(context.kv.layers)
        if all(kv.room(layer, budget) == kv.sealed(layer) for layer in layers):
            return None
        about = [self.describe(context, layer) for layer in layers]
        metadata = sum(stored.numel() * stored.element_size() for stored in about)
        return _Highest(self, kv, about, [kv.room(layer, budget, metadata / kv.full) for layer in layers], metadata)


@dataclass(frozen=True, eq=False)
class _Highest:
    """The blocks with the highest scores, `rooms` of them in each layer."""

    method: Loading
    kv: KV
    about: list[torch.Tensor]
    rooms: list[int]
    metadata: int

    def __call__(self, ask: Ask) -> torch.Tensor | None:
        room = self.rooms[ask.layer]
        if room == self.kv.sealed(ask.layer):
            return None
        return best(self.method.score(ask, self.kv, self.about[ask.layer]), room)


def grouped(ask: Ask) -> torch.Tensor:
    """The queries by the KV head that they read, in fp32: [kv_heads, groups, new, head_size]."""
    return ask.queries.float().unflatten(0, (ask.keys.shape[0], -1))
