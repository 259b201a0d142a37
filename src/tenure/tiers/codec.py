"""How a tier writes a block's bytes down: as they are, losslessly smaller (zstd), or quantised (tenure.tiers.quantised).
Called by tiers with whole blocks; a codec keeps nothing between calls and never trusts a payload."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tenure.checks import integer, positive
from tenure.errors import ConfigError, TierError
from tenure.tiers.layout import DTYPES, BlockLayout

__all__ = ["Codec", "Raw", "Zstd"]

Bytes = npt.NDArray[np.uint8]


class Codec(ABC):
    """One way to write blocks of any layout. `id` stands in records: it is never given to another codec."""

    name: ClassVar[str]
    id: ClassVar[int]
    lossless: ClassVar[bool]

    @abstractmethod
    def bound(self, layout: BlockLayout) -> int:
        """The most bytes a payload may have."""

    @abstractmethod
    def encode(self, block: memoryview, layout: BlockLayout) -> memoryview | bytes:
        """The payload of a block of layout.nbytes bytes; may be the block itself. Raises TierError (codec) for one that it cannot
        write down within the bound."""

    @abstractmethod
    def decode(self, payload: memoryview, layout: BlockLayout, out: memoryview) -> None:
        """Fills `out` (layout.nbytes bytes) from a payload. Raises TierError (codec) for bytes that are none; `out` may then hold
        anything."""


@dataclass(frozen=True, slots=True)
class Raw(Codec):
    """The bytes as they are."""

    name: ClassVar[str] = "raw"
    id: ClassVar[int] = 0
    lossless: ClassVar[bool] = True

    def bound(self, layout: BlockLayout) -> int:
        """The block's own size."""
        return layout.nbytes

    def encode(self, block: memoryview, layout: BlockLayout) -> memoryview:
        """The block itself."""
        return block

    def decode(self, payload: memoryview, layout: BlockLayout, out: memoryview) -> None:
        """A copy."""
        needed_length(payload, layout.nbytes)
        if payload is not out:
            out[:] = payload


@dataclass(frozen=True, slots=True)
class Zstd(Codec):
    """Lossless: of each value the byte with its sign and exponent is compressed, the others are near random and stay as they are.

    level: zstd's. room: the fraction of a block's size that a slot gets. A tier has slots of one size, so compression makes room
    for more blocks only below 1; a block that needs more is then refused. Model KV in bf16 came to 0.68-0.70 of its size.

    Raises ConfigError for a bad setting or where the package zstandard is missing.
    """

    name: ClassVar[str] = "zstd"
    id: ClassVar[int] = 1
    lossless: ClassVar[bool] = True
    level: int = 1
    room: float = 1.0

    def __post_init__(self) -> None:
        integer("zstd level", self.level, 1, 19)
        positive("zstd room", self.room, 1.0)
        try:
            import zstandard  # noqa: F401
        except ImportError:
            raise ConfigError("the codec zstd needs the package zstandard: pip install 'tenure[tiers]'") from None

    def bound(self, layout: BlockLayout) -> int:
        """`room` of the block's size, or what incompressible bytes may come to."""
        plane = layout.values
        worst = layout.nbytes + (plane >> 8) + 512  # zstd's own bound for one plane, and its smallest overhead
        return worst if self.room >= 1 else int(layout.nbytes * self.room)

    def encode(self, block: memoryview, layout: BlockLayout) -> bytes:
        """The other bytes of each value as they are, then the compressed ones as one zstd frame."""
        import zstandard

        values = np.frombuffer(block, np.uint8).reshape(layout.values, DTYPES[layout.dtype])
        high = zstandard.ZstdCompressor(level=self.level).compress(np.ascontiguousarray(values[:, -1]).data)
        payload = values[:, :-1].tobytes() + high
        if len(payload) > self.bound(layout):
            raise TierError(
                "codec",
                f"the block takes {len(payload)} bytes compressed: its slot has {self.bound(layout)}",
                needed=len(payload),
                room=self.bound(layout),
            )
        return payload

    def decode(self, payload: memoryview, layout: BlockLayout, out: memoryview) -> None:
        """Allocates no more than the block's size, whatever the payload says."""
        import zstandard

        width = DTYPES[layout.dtype]
        low = layout.values * (width - 1)
        try:
            if zstandard.get_frame_parameters(payload[low:]).content_size != layout.values:  # before anything is allocated
                raise TierError("codec", "the compressed part does not hold one byte a value")
            high = zstandard.ZstdDecompressor().decompress(payload[low:], allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise TierError("codec", f"the payload does not decompress: {error}") from None
        values = np.frombuffer(out, np.uint8).reshape(layout.values, width)
        values[:, :-1] = np.frombuffer(payload[:low], np.uint8).reshape(layout.values, width - 1)
        values[:, -1] = np.frombuffer(high, np.uint8)


def needed_length(payload: memoryview, length: int) -> None:
    """Raises TierError (codec) unless the payload has exactly this length in bytes."""
    if len(payload) != length:
        raise TierError("codec", f"the payload has {len(payload)} bytes: {length} are needed", found=len(payload), needed=length)
