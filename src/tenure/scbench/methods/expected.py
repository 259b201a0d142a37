"""Expected attention (arXiv 2510.00636): what queries to come would attend to, were they distributed as those so far."""

from __future__ import annotations

import torch

from tenure.scbench.kv import Context, Queries, quarter, turned
from tenure.scbench.methods.base import ALL
from tenure.scbench.methods.dropping import ByToken

__all__ = ["ExpectedAttention"]


class ExpectedAttention(ByToken):
    """score(token) = softmax(k.mean scale + k.covariance.k scale^2 / 2), averaged over the group's heads, times |v|, with mean
    and covariance of the queries before RoPE, turned by RoPE's average over the next `ahead` positions. The first `sink` tokens
    count for nothing in either and come before all others."""

    name = "expected"
    observes = ALL

    def __init__(self, ahead: int = 512, sink: int = 4) -> None:
        self.ahead, self.sink = ahead, sink

    def tokens(self, context: Context, layer: int) -> torch.Tensor:
        """Expected attention times the value's length."""
        kv, queries = context.kv, context.observed()
        mean, covariance = self._statistics(queries, layer, kv.length)
        keys = kv.keys[layer].float()
        groups = (keys.shape[0], -1)
        linear = torch.einsum("hgd,hnd->hgn", mean.unflatten(0, groups), keys) * queries.scale
        square = torch.einsum("hnd,hgde,hne->hgn", keys, covariance.unflatten(0, groups), keys) * queries.scale**2 / 2
        own = kv.positions[layer] < self.sink
        expected = (linear + square).masked_fill(own[:, None], -torch.inf).softmax(-1).nan_to_num(0.0).mean(1)
        return (expected * kv.values[layer].float().norm(dim=-1)).masked_fill(own, torch.inf)

    def _statistics(self, queries: Queries, layer: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean [heads, head_size] and covariance [heads, head_size, head_size] of the queries to come."""
        vectors = queries.vectors[layer].float()
        at = queries.positions(vectors.device)
        vectors = vectors[:, at >= self.sink] if int(at[-1]) >= self.sink else vectors
        cosine, sine = (part[-vectors.shape[1] :].float() for part in queries.rotation(at))
        plain = turned(vectors, cosine, -sine) / (cosine**2 + sine**2)
        mean = plain.mean(1)
        centred = plain - mean[:, None]
        covariance = centred.transpose(1, 2) @ centred / centred.shape[1]
        cosine, sine = queries.rotation(torch.arange(length, length + self.ahead, device=vectors.device))
        unit = torch.eye(vectors.shape[-1], device=vectors.device)
        # RoPE of q is cos q + sin quarter(q)
        turn = torch.diag(cosine.float().mean(0)) + sine.float().mean(0)[:, None] * quarter(unit).T
        return mean @ turn.T, turn @ covariance @ turn.T
