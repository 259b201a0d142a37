"""The lossy codecs of Tenure's own tiers: what a block reads as after a stay in a tier that holds it rounded."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tenure.errors import ConfigError, TierError
from tenure.scbench.kv import KV
from tenure.scbench.methods.rounding import Rounding
from tenure.tiers.codec import Codec
from tenure.tiers.device import dtype_name
from tenure.tiers.layout import DTYPES, BlockLayout

__all__ = ["TierCodec"]


class TierCodec(Rounding):
    """Every sealed block through a codec and back. A block that the codec refuses stays as it is, and counts as that."""

    def __init__(self, name: str, make: Callable[[], Codec]) -> None:
        self.name, self._make = name, make

    def transform(self, kv: KV) -> KV:
        """Block by block. Raises ConfigError for a dtype that no tier holds, for KV that was thinned, or where the codec's
        package is missing."""
        dtype, sealed, size = dtype_name(kv.keys[0].dtype), kv.sealed(0), kv.block_size
        if dtype not in DTYPES:
            raise ConfigError(f"KV of dtype {dtype} is held by no tier: one of {', '.join(DTYPES)} is needed")
        if any(kv.slots(layer) != kv.length for layer in range(kv.layers)):
            raise ConfigError("this KV was thinned: a tier holds whole blocks")
        codec, layout = self._make(), BlockLayout.of(dtype, size, kv.layers, kv.keys[0].shape[0], kv.keys[0].shape[2])
        both = torch.stack(
            [torch.stack(pair) for pair in zip(kv.keys, kv.values, strict=True)]
        )  # [layers, 2, heads, slots, size]
        stored = (both.shape[3] - sealed * size) * kv.token_bytes
        for block in range(sealed):
            place = both[:, :, :, block * size : (block + 1) * size]
            raw = bytearray(place.contiguous().cpu().view(torch.uint8).numpy().tobytes())
            try:
                payload = codec.encode(memoryview(raw), layout)
            except TierError:
                stored += layout.nbytes
                continue
            stored += len(payload)
            codec.decode(memoryview(payload), layout, memoryview(raw))
            place.copy_(torch.frombuffer(raw, dtype=both.dtype).view(place.shape))
        return kv.rounded(both[:, 0].unbind(0), both[:, 1].unbind(0), stored)
