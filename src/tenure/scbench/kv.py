"""The KV of one context, frozen: per layer keys (RoPE applied) and values, and the positions at which they were computed.
Made by forward passes, thinned and rounded by methods, read by later passes; nothing here changes in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from tenure.checks import integer, positive
from tenure.errors import ConfigError

__all__ = ["KV", "Context", "Queries", "Rotation", "by_slot", "quarter", "turned"]

Rotation = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Positions [n] to cosine and sine [n, head_size] of the model's RoPE, in fp32."""


@dataclass(frozen=True, eq=False)
class KV:
    """Keys and values [kv_heads, slots, head_size] and positions [kv_heads, slots] of each layer. A slot holds one token, slots
    are in the order of their positions; layers and heads may hold different tokens, the heads of a layer equally many.

    length: tokens that were seen, so the position of the next. exact: leading tokens whose KV is, in every layer and head, what
    full attention over unrounded KV computes; only these may be published as a prefix. stored: bytes that it takes where it is
    kept rounded (the tensors then hold what reading it gives); None where it is kept as it is.
    """

    keys: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...]
    positions: tuple[torch.Tensor, ...]
    length: int
    block_size: int
    exact: int
    stored: int | None = None

    @classmethod
    def of(
        cls, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor], block_size: int, start: int = 0, exact: bool = True
    ) -> KV:
        """Of tokens at consecutive positions from `start`."""
        integer("block_size", block_size, 1, 65535)
        heads, tokens = keys[0].shape[:2]
        places = torch.arange(start, start + tokens, device=keys[0].device).expand(heads, -1)
        length = start + tokens
        return cls(tuple(keys), tuple(values), (places,) * len(keys), length, block_size, length if exact else start)

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return len(self.keys)

    @property
    def token_bytes(self) -> int:
        """Bytes that one token takes in all layers, as it is."""
        return sum(2 * len(keys) * int(keys.shape[2]) * int(keys.element_size()) for keys in self.keys)

    @property
    def full(self) -> int:
        """Bytes that all tokens that were seen would take as they are: what a budget is a fraction of."""
        return self.length * self.token_bytes

    @property
    def resident(self) -> int:
        """Bytes that this takes."""
        return sum(2 * keys.numel() * keys.element_size() for keys in self.keys) if self.stored is None else self.stored

    def slots(self, layer: int) -> int:
        """Tokens that each head of this layer holds."""
        return int(self.keys[layer].shape[1])

    def sealed(self, layer: int) -> int:
        """Full blocks of this layer: what methods may drop, round or leave unread. The open block behind them always stays."""
        return self.slots(layer) // self.block_size

    def room(self, layer: int, budget: float, metadata: float = 0.0) -> int:
        """How many of a layer's sealed blocks a budget (a fraction of `full`) pays for, after the open block and `metadata` (a
        fraction of `full` too). Raises ConfigError."""
        if positive("budget", budget, 1.0) == 1:
            return self.sealed(layer)
        left = (budget - metadata) * self.length - self.slots(layer) % self.block_size
        return min(self.sealed(layer), max(0, int(left // self.block_size)))

    def take(self, keep: Sequence[torch.Tensor]) -> KV:
        """With only the sealed blocks that `keep` names: for each layer bool [kv_heads, sealed blocks], in each head equally
        many. Keeping all gives this KV itself. Raises ConfigError."""
        if self.stored is not None:
            raise ConfigError("this KV is rounded: drop blocks first, then round what stays")
        if len(keep) != self.layers:
            raise ConfigError(f"keep has {len(keep)} layers: the KV has {self.layers}", found=len(keep), needed=self.layers)
        for layer, mask in enumerate(keep):
            shape = (self.keys[layer].shape[0], self.sealed(layer))
            if mask.dtype != torch.bool or tuple(mask.shape) != shape:
                raise ConfigError(f"keep of layer {layer} is {mask.dtype} {list(mask.shape)}: bool {list(shape)} is needed")
            if len(set(mask.sum(-1).tolist())) > 1:
                raise ConfigError(f"keep of layer {layer} has {mask.sum(-1).tolist()} blocks by head: equally many are needed")
        if all(bool(mask.all()) for mask in keep):
            return self
        slots = [by_slot(mask, self.slots(layer), self.block_size) for layer, mask in enumerate(keep)]
        kept = replace(
            self,
            keys=tuple(_picked(part, mask) for part, mask in zip(self.keys, slots, strict=True)),
            values=tuple(_picked(part, mask) for part, mask in zip(self.values, slots, strict=True)),
            positions=tuple(_picked(part, mask) for part, mask in zip(self.positions, slots, strict=True)),
        )
        return replace(kept, exact=min(self.exact, *(_lead(places) for places in kept.positions)))

    def rounded(self, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor], stored: int) -> KV:
        """The same tokens as they read after rounding; `stored`: the bytes that the rounded form takes."""
        return replace(self, keys=tuple(keys), values=tuple(values), stored=stored, exact=0)

    def extended(self, more: KV) -> KV:
        """With the tokens that followed. Raises ConfigError for tokens that do not begin where these end."""
        start = more.length - more.slots(0)
        if start != self.length:
            raise ConfigError(f"the tokens begin at position {start}: {self.length} is next", found=start, needed=self.length)
        return replace(
            self,
            keys=tuple(torch.cat(pair, 1) for pair in zip(self.keys, more.keys, strict=True)),
            values=tuple(torch.cat(pair, 1) for pair in zip(self.values, more.values, strict=True)),
            positions=tuple(torch.cat(pair, 1) for pair in zip(self.positions, more.positions, strict=True)),
            length=more.length,
            exact=more.exact if self.exact == self.length else self.exact,
            stored=None if self.stored is None else self.stored + more.resident,
        )


@dataclass(frozen=True, eq=False)
class Queries:
    """Query vectors of the last tokens of a context, for methods that judge KV by them: for each layer [heads, tokens, head_size]
    with RoPE applied. first: the first one's position. scale: what the model multiplies scores by. rotation: its RoPE."""

    vectors: tuple[torch.Tensor, ...]
    first: int
    scale: float
    rotation: Rotation

    def extended(self, more: Queries, most: int) -> Queries:
        """With those of the tokens that followed; only the last `most`."""
        joined = tuple(torch.cat(pair, 1) for pair in zip(self.vectors, more.vectors, strict=True))
        spare = max(0, joined[0].shape[1] - most)
        return replace(self, vectors=tuple(part[:, spare:] for part in joined), first=self.first + spare)

    def positions(self, device: torch.device) -> torch.Tensor:
        """[tokens]."""
        return torch.arange(self.first, self.first + self.vectors[0].shape[1], device=device)


@dataclass(frozen=True, eq=False)
class Context:
    """What requests share: KV, the queries that were recorded with it, and the logits of the token to come [vocabulary].

    recomputed: how many of its tokens were run through the whole model for it, where the KV of the others was found; None: all.
    finding: seconds that it took here to make what others would have left, and so was found. known: what methods computed of it
    and will want again, at other budgets.
    """

    kv: KV
    queries: Queries | None = None
    logits: torch.Tensor | None = None
    recomputed: int | None = None
    finding: float = 0.0
    known: dict[object, torch.Tensor] = field(default_factory=dict, repr=False)

    def once(self, key: object, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """What `make` gives, made at the first call with this key. Not to be changed."""
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]

    def observed(self) -> Queries:
        """The queries. Raises ConfigError where none were recorded."""
        if self.queries is None:
            raise ConfigError("this method judges KV by queries: make the context with its own `prefill`, which records them")
        return self.queries


def by_slot(blocks: torch.Tensor, slots: int, block_size: int) -> torch.Tensor:
    """A mask of sealed blocks [..., blocks] as one of slots [..., slots]; the open block's slots are in it."""
    sealed = blocks.repeat_interleave(block_size, -1)
    return torch.nn.functional.pad(sealed, (0, slots - sealed.shape[-1]), value=True)


def turned(vectors: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Vectors [..., n, head_size] turned by RoPE's angles, given as cosine and sine [n or 1, head_size]; by `-sine`, back.
    Raises ConfigError for RoPE that turns only some channels."""
    if cosine.shape[-1] != vectors.shape[-1]:
        raise ConfigError(f"RoPE turns {cosine.shape[-1]} of {vectors.shape[-1]} channels: one that turns all is needed")
    return vectors * cosine + quarter(vectors) * sine


def quarter(vectors: torch.Tensor) -> torch.Tensor:
    """A quarter turn in each of RoPE's planes, which pair a channel with the one half the head further."""
    first, second = vectors.chunk(2, -1)
    return torch.cat([-second, first], -1)


def _picked(part: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return part[mask].view(part.shape[0], int(mask[0].sum()), *part.shape[2:])


def _lead(positions: torch.Tensor) -> int:
    """Leading positions that every head holds."""
    places = torch.arange(positions.shape[1], device=positions.device)
    return int((positions == places).cumprod(-1).sum(-1).min())
