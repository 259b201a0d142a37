"""After CacheBlend (arXiv 2405.16444): KV of pieces that other requests computed, put together, and some tokens recomputed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from tenure.checks import integer, positive
from tenure.errors import ConfigError
from tenure.scbench.blend import blend, deviation, gather
from tenure.scbench.kv import Context
from tenure.scbench.methods.base import Method, best
from tenure.scbench.timing import now

__all__ = ["CacheBlend", "Pieces"]


class CacheBlend(Method):
    """A context is cut into pieces of `piece` tokens (whole blocks), each found as a request of that text alone left it and moved
    by RoPE to its place. The budget is the fraction of the context's tokens that are recomputed: the last, whose logits are
    needed, and those whose KV deviates most in the second layer, outside the first piece, which is an exact prefix.

    They are chosen once and are the same in all layers, where CacheBlend lets fewer pass from layer to layer. All KV is kept and
    read. What is saved is prefill: only tokens that run through all layers count as recomputed, not the pass of the first layer
    over all tokens by which they are chosen, and pieces count as found, whoever computed them.
    """

    name = "cacheblend"
    stage = "retrieval"

    def __init__(self, piece: int = 256) -> None:
        self.piece = integer("piece", piece, 1, 1 << 31)

    def recomputed(self, tokens: int, budget: float) -> int | None:
        """How many of a context's tokens are recomputed; None: it is prefilled whole. Raises ConfigError."""
        if positive("budget", budget, 1.0) == 1 or tokens <= self.piece:
            return None
        return min(tokens - self.piece, max(1, int(budget * tokens)))

    def assemble(self, model: Any, ids: Sequence[int], budget: float, block_size: int) -> Context | None:
        """The pieces, blended. Raises TokenError, ConfigError (for pieces that are not whole blocks, too)."""
        count = self.recomputed(len(ids), budget)
        if count is None:
            return None
        if self.piece % block_size:
            raise ConfigError(f"pieces are of {self.piece} tokens: a multiple of the block size {block_size} is needed")
        began = now(model)
        found = gather(model, ids, self.piece, block_size)
        finding = now(model) - began
        places = torch.tensor([len(ids) - 1], device=model.device)
        if count > 1:
            scores = deviation(model, ids, found)
            scores[: self.piece], scores[-1] = -torch.inf, torch.inf
            places = best(scores, count).nonzero().flatten()
        return replace(blend(model, ids, found, places), finding=finding)

    def attention(self, tokens: int, budget: float) -> str:
        """Its own, unless the context is prefilled whole. Which tokens are recomputed depends on all of a context, so no part of
        it but the exact lead is another context's prefix."""
        return "full" if self.recomputed(tokens, budget) is None else f"{self.name}({self.piece},{budget})"


class Pieces(CacheBlend):
    """The control: the pieces as they are found, only the last token recomputed."""

    name = "pieces"
    fixed = True

    def recomputed(self, tokens: int, budget: float) -> int | None:
        """One, unless there is only one piece. Raises ConfigError."""
        positive("budget", budget, 1.0)
        return None if tokens <= self.piece else 1

    def attention(self, tokens: int, budget: float) -> str:
        """Its own, unless the context is prefilled whole."""
        return "full" if self.recomputed(tokens, budget) is None else f"{self.name}({self.piece})"
