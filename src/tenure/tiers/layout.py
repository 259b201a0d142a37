"""How the bytes of one block lie: an array [layers, 2 (keys, values), heads, block_size, head_size] of one dtype, contiguous.
Used by records, codecs and tiers; it holds no bytes."""

from __future__ import annotations

from dataclasses import dataclass

from tenure.checks import integer
from tenure.errors import ConfigError, IdentityError
from tenure.identity import Layout

__all__ = ["DTYPES", "BlockLayout"]

DTYPES = {"bf16": 2, "fp16": 2, "fp32": 4}
"""Bytes a value."""
_MOST_BYTES = 1 << 40
_MOST_SIZE = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """One block's KV: the model's layout, the dtype ("bf16", "fp16" or "fp32") and the tokens a block.

    Raises ConfigError for an unknown dtype or a size out of range.
    """

    layout: Layout
    dtype: str
    block_size: int

    def __post_init__(self) -> None:
        if not isinstance(self.layout, Layout):
            raise ConfigError(f"layout is {self.layout!r}: a Layout is needed")
        if self.dtype not in DTYPES:
            raise ConfigError(f"dtype is {self.dtype!r}: one of {', '.join(DTYPES)} is needed")
        object.__setattr__(self, "block_size", integer("block_size", self.block_size, 1, 65535))
        for name in ("layers", "heads", "head_size", "shard", "shards"):
            integer(f"layout.{name}", getattr(self.layout, name), 0, _MOST_SIZE)
        if self.nbytes > _MOST_BYTES:
            raise ConfigError(f"a block of {self} has {self.nbytes} bytes: at most {_MOST_BYTES} are possible", bytes=self.nbytes)

    @classmethod
    def of(
        cls, dtype: str, block_size: int, layers: int, heads: int, head_size: int, shard: int = 0, shards: int = 1
    ) -> BlockLayout:
        """The same from bare numbers. Raises ConfigError."""
        try:
            return cls(Layout(layers, heads, head_size, shard, shards), dtype, block_size)
        except IdentityError as error:
            raise ConfigError(str(error), **error.numbers) from None

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """[layers, 2, heads, block_size, head_size]."""
        return (self.layout.layers, 2, self.layout.heads, self.block_size, self.layout.head_size)

    @property
    def values(self) -> int:
        """Values a block."""
        return 2 * self.layout.layers * self.layout.heads * self.block_size * self.layout.head_size

    @property
    def nbytes(self) -> int:
        """Bytes a block."""
        return self.values * DTYPES[self.dtype]

    def __str__(self) -> str:
        size = self.layout
        shard = f", shard {size.shard} of {size.shards}" if size.shards > 1 else ""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]{shard}"
