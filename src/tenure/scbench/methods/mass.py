"""Attention weights of recorded queries over KV, as methods judge tokens by them.
Called by methods; it computes weights a few queries at a time and never keeps them all."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tenure.scbench.kv import KV, Queries

__all__ = ["last", "weights"]

_AT_A_TIME = 128


def weights(kv: KV, queries: Queries, layer: int, most: int) -> Iterator[torch.Tensor]:
    """Of the last `most` recorded queries, some at a time: fp32 weights [kv_heads, groups, queries, slots], causal; each row adds
    up to 1, or to 0 where a query sees nothing that is still there."""
    vectors = queries.vectors[layer][:, -most:].float()
    keys = kv.keys[layer].float()
    at = queries.positions(keys.device)[-most:]
    vectors = vectors.unflatten(0, (keys.shape[0], -1))
    for start in range(0, len(at), _AT_A_TIME):
        part = slice(start, start + _AT_A_TIME)
        scores = vectors[:, :, part] @ keys[:, None].transpose(-1, -2) * queries.scale
        hidden = at[part, None] < kv.positions[layer][:, None, None]
        yield scores.masked_fill(hidden, -torch.inf).softmax(-1).nan_to_num(0.0)


def last(kv: KV, queries: Queries, layer: int, most: int) -> torch.Tensor:
    """The same of all at once, for few queries."""
    return torch.cat(list(weights(kv, queries, layer, most)), 2)
