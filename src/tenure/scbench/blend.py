"""The passes by which a context is put together from KV of pieces: find it, see where it deviates, recompute some tokens.
Called by methods that find KV which is no prefix; it decides nothing and keeps nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from tenure.scbench.attend import attention, forward, rotation_of, run
from tenure.scbench.kv import KV, Context, turned

__all__ = ["blend", "deviation", "gather"]


def gather(model: Any, ids: Sequence[int], piece: int, block_size: int) -> KV:
    """The KV of pieces of `piece` tokens, each as a request that held nothing else left it (computed alone, from position 0), its
    keys turned to where it stands here. Exact in the first piece alone. Raises TokenError, ConfigError."""
    rotation, found = rotation_of(model), []
    for start in range(0, len(ids), piece):
        alone = run(model, ids[start : start + piece], block_size=block_size).kv
        cosine, sine = rotation(torch.tensor([0, start], device=model.device))
        cosine, sine = cosine[1] / cosine[0], sine[1] / cosine[0]  # some RoPE scales too, which was done once
        keys = [turned(part.float(), cosine, sine).to(part.dtype) for part in alone.keys] if start else alone.keys
        found.append((keys, alone.values))
    keys, values = ([torch.cat(parts, 1) for parts in zip(*every, strict=True)] for every in zip(*found, strict=True))
    return replace(KV.of(keys, values, block_size), exact=min(piece, len(ids)))


def deviation(model: Any, ids: Sequence[int], found: KV) -> torch.Tensor:
    """How far the second layer's found KV is from the true one, which the first layer, run over all tokens with full attention,
    gives: for each token the length of the difference, keys and values of all heads together, in fp32 [tokens]. Zeros for a model
    of one layer, where nothing deviates."""
    if found.layers == 1:
        return torch.zeros(len(ids), device=model.device)
    try:
        forward(model, [ids], [torch.arange(len(ids))], [_First()])
    except _Known as known:
        pairs = zip(known.args, (found.keys[1], found.values[1]), strict=True)
        apart = torch.cat([(true.float() - other.float()).transpose(0, 1).flatten(1) for true, other in pairs], 1)
    return apart.norm(dim=-1)


def blend(model: Any, ids: Sequence[int], found: KV, places: torch.Tensor) -> Context:
    """The found KV with the tokens at `places` [n] recomputed in every layer, each over the mixed KV up to its own place. places:
    ascending, the last token's among them, none in the exact lead. `found` stays as it is."""
    work = _Mixed(found, places)
    logits = forward(model, [[ids[place] for place in places.tolist()]], [places.cpu()], [work])[0]
    return Context(replace(found, keys=tuple(work.keys), values=tuple(work.values)), None, logits, len(places))


class _Known(Exception):  # noqa: N818 - no error
    """Ends a pass: the second layer's keys and values are its arguments."""


class _First:
    """A pass of full attention that ends where the second layer's KV is known."""

    def layer(self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
        if layer:
            raise _Known(keys, values)
        return attention(queries, keys, values, scale, None, causal=True)


class _Mixed:
    """A pass of some tokens over found KV, in which their own KV takes its places layer by layer."""

    def __init__(self, found: KV, places: torch.Tensor) -> None:
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self._found, self._places = found, places
        self._mask = (places[:, None] >= torch.arange(found.length, device=places.device))[None]

    def layer(self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
        self.keys.append(self._found.keys[layer].index_copy(1, self._places, keys))
        self.values.append(self._found.values[layer].index_copy(1, self._places, values))
        return attention(queries, self.keys[layer], self.values[layer], scale, self._mask)
