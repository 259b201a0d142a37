"""KIVI (arXiv 2402.02750): keys rounded along tokens by channel, values along channels by token, the last tokens not at all."""

from __future__ import annotations

import torch

from tenure.scbench.kv import KV
from tenure.scbench.methods.rounding import Rounding

__all__ = ["Kivi"]


class Kivi(Rounding):
    """Integers of `bits` bits in groups of `group` tokens or channels (all of a head's, where they do not divide), each with its
    lowest value and step in the KV's dtype. The last `residual` tokens, and what fills no group of tokens, are not rounded."""

    def __init__(self, bits: int, group: int = 32, residual: int = 32) -> None:
        self.name = f"kivi-int{bits}"
        self.bits, self.group, self.residual = bits, group, residual

    def transform(self, kv: KV) -> KV:
        """Rounded group by group."""
        keys, values, stored = [], [], 0
        for key, value in zip(kv.keys, kv.values, strict=True):
            tokens = max(0, key.shape[1] - self.residual) // self.group * self.group
            channels = self.group if value.shape[2] % self.group == 0 else value.shape[2]
            by_channel = key[:, :tokens].unflatten(1, (-1, self.group))
            by_token = value[:, :tokens].unflatten(2, (-1, channels))
            keys.append(torch.cat([self._rounded(by_channel, 2).flatten(1, 2), key[:, tokens:]], 1))
            values.append(torch.cat([self._rounded(by_token, 3).flatten(2, 3), value[:, tokens:]], 1))
            groups = by_channel.numel() // self.group + by_token.numel() // channels
            left = key[:, tokens:].numel() + value[:, tokens:].numel()
            stored += (by_channel.numel() + by_token.numel()) * self.bits // 8 + (2 * groups + left) * key.element_size()
        return kv.rounded(keys, values, stored)

    def _rounded(self, groups: torch.Tensor, axis: int) -> torch.Tensor:
        """Each group along `axis` in steps from its lowest value."""
        floats, most = groups.float(), (1 << self.bits) - 1
        lowest, highest = floats.amin(axis, keepdim=True), floats.amax(axis, keepdim=True)
        lowest = lowest.to(groups.dtype).float()
        step = ((highest - lowest) / most).to(groups.dtype).float()
        numbers = ((floats - lowest) / torch.where(step > 0, step, 1)).round().clamp(0, most)
        return (numbers * step + lowest).to(groups.dtype)
