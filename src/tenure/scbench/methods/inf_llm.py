"""After InfLLM (arXiv 2402.04617): the blocks read are those whose representative tokens score highest."""

from __future__ import annotations

import torch

from tenure.scbench.attend import Ask
from tenure.scbench.kv import KV, Context
from tenure.scbench.methods.base import ALL
from tenure.scbench.methods.loading import Loading, grouped

__all__ = ["InfLLM"]


class InfLLM(Loading):
    """score(block) = mean of q.k over its `representatives`, the tokens to which the `window` tokens behind them gave the highest
    score on average; their keys are stored. RoPE stays in the keys, where InfLLM compares without positions."""

    name = "inf_llm"
    observes = ALL

    def __init__(self, representatives: int = 1, window: int = 64) -> None:
        self.representatives, self.window = representatives, window

    def describe(self, context: Context, layer: int) -> torch.Tensor:
        """The representatives' keys [kv_heads, sealed blocks, representatives, head_size]."""
        kv, sealed = context.kv, context.kv.sealed(layer)
        size = kv.block_size
        keys = kv.keys[layer][:, : sealed * size].unflatten(1, (sealed, size))
        scores = self._followers(context, layer)[:, : sealed * size].unflatten(1, (sealed, size))
        order = scores.argsort(dim=-1, descending=True, stable=True)[..., : self.representatives]
        return keys.gather(2, order[..., None].expand(-1, -1, -1, keys.shape[-1]))

    def score(self, ask: Ask, kv: KV, about: torch.Tensor) -> torch.Tensor:
        """The representatives' mean score, the highest of the group's heads."""
        means = about.float().mean(2)[:, None]
        return (grouped(ask) @ means.transpose(-1, -2)).amax(1)

    def _followers(self, context: Context, layer: int) -> torch.Tensor:
        """For each slot the mean of q.k over the tokens right behind it [kv_heads, slots]; 0 where none was recorded."""
        kv, queries = context.kv, context.observed()
        keys, places = kv.keys[layer].float(), kv.positions[layer]
        vectors = queries.vectors[layer].double().unflatten(0, (keys.shape[0], -1)).mean(1)
        sums = torch.nn.functional.pad(vectors.cumsum(1), (0, 0, 1, 0))  # [kv_heads, recorded + 1, head_size]
        first = (places + 1 - queries.first).clamp(0, vectors.shape[1])
        end = (places + 1 + self.window - queries.first).clamp(0, vectors.shape[1])
        heads = torch.arange(keys.shape[0], device=keys.device)[:, None]
        mean = (sums[heads, end] - sums[heads, first]).float() / (end - first).clamp(min=1)[..., None]
        return (mean * keys).sum(-1)
