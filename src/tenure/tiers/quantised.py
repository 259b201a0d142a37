"""Lossy codecs: 8 and 4 bit integers the way of KIVI (keys per channel, values per token; arXiv 2402.02750), and fp8 (e4m3).
Called by tiers with whole blocks. Scales travel in the payload; a block with values that are not finite is refused."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tenure.errors import ConfigError, TierError
from tenure.tiers.codec import Codec, needed_length
from tenure.tiers.layout import BlockLayout

__all__ = ["Float8", "Int4", "Int8"]

Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.uint16]
"""bf16 values by their bits: numpy has no such dtype."""
_GROUPS = ((0, 2), (1, 3))  # (keys, along tokens), (values, along channels) of one [layers, heads, tokens, channels]
_LARGEST = {"bf16": 3.3895314e38, "fp16": 65504.0, "fp32": 3.4028235e38}
_E4M3_LARGEST = 448.0


class _Integers(Codec):
    """Unsigned integers of `bits` bits: value = lowest + number x step, with lowest and step of each group in bf16."""

    bits: ClassVar[int]
    lossless: ClassVar[bool] = False

    def bound(self, layout: BlockLayout) -> int:
        """Its exact size: 4 bytes a group, and the numbers."""
        return self._groups(layout) * 4 + self._packed(layout)

    def encode(self, block: memoryview, layout: BlockLayout) -> bytes:
        """Lowest and step of the keys' groups, of the values' groups, then the numbers in the block's order."""
        most = (1 << self.bits) - 1
        floats = to_floats(block, layout)
        numbers = np.empty(layout.shape, np.uint8)
        scales: list[bytes] = []
        with np.errstate(over="ignore", invalid="ignore"):
            for part, axis in _GROUPS:
                values = floats[:, part]
                low, high = values.min(axis, keepdims=True), values.max(axis, keepdims=True)
                lowest16 = _down(low)
                lowest = _wide(lowest16)
                step16 = _up((high - lowest) / most)
                step = _wide(step16)
                if not all(np.isfinite(found).all() for found in (low, high, lowest, step)):
                    raise TierError("codec", f"the block has values {self.name} cannot hold (infinite, NaN, too far apart)")
                scaled = np.rint((values - lowest) / np.where(step > 0, step, 1))
                numbers[:, part] = np.minimum(scaled, most)
                scales += [lowest16.tobytes(), step16.tobytes()]
        return b"".join([*scales, self._pack(numbers.reshape(-1)).tobytes()])

    def decode(self, payload: memoryview, layout: BlockLayout, out: memoryview) -> None:
        """The nearest values of the layout's dtype."""
        needed_length(payload, self.bound(layout))
        scales = self._groups(layout) * 4
        numbers = self._unpack(np.frombuffer(payload[scales:], np.uint8), layout.values).reshape(layout.shape)
        floats = np.empty(layout.shape, np.float32)
        start = 0
        with np.errstate(over="ignore", invalid="ignore"):
            for part, axis in _GROUPS:
                shape = list(numbers[:, part].shape)
                shape[axis] = 1
                count = int(np.prod(shape))
                lowest = _wide(np.frombuffer(payload, "<u2", count, start).reshape(shape))
                step = _wide(np.frombuffer(payload, "<u2", count, start + 2 * count).reshape(shape))
                start += 4 * count
                if not (np.isfinite(lowest).all() and np.isfinite(step).all()):
                    raise TierError("codec", "the payload has scales that are not finite")
                np.multiply(numbers[:, part], step, out=floats[:, part], dtype=np.float32)
                floats[:, part] += lowest
        from_floats(floats, layout, out)

    def _groups(self, layout: BlockLayout) -> int:
        return layout.layout.layers * layout.layout.heads * (layout.layout.head_size + layout.block_size)

    @abstractmethod
    def _packed(self, layout: BlockLayout) -> int:
        """Bytes that the numbers take."""

    @abstractmethod
    def _pack(self, numbers: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]: ...

    @abstractmethod
    def _unpack(self, packed: npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.uint8]: ...


@dataclass(frozen=True, slots=True)
class Int8(_Integers):
    """Eight bits a value."""

    name: ClassVar[str] = "int8"
    id: ClassVar[int] = 2
    bits: ClassVar[int] = 8

    def _packed(self, layout: BlockLayout) -> int:
        return layout.values

    def _pack(self, numbers: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        return numbers

    def _unpack(self, packed: npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.uint8]:
        return packed


@dataclass(frozen=True, slots=True)
class Int4(_Integers):
    """Four bits a value, two values a byte (the first in the low half)."""

    name: ClassVar[str] = "int4"
    id: ClassVar[int] = 3
    bits: ClassVar[int] = 4

    def _packed(self, layout: BlockLayout) -> int:
        return layout.values // 2  # keys and values: always even

    def _pack(self, numbers: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        packed = numbers[1::2] << np.uint8(4)
        packed |= numbers[0::2]
        return packed

    def _unpack(self, packed: npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.uint8]:
        numbers = np.empty(count, np.uint8)
        np.bitwise_and(packed, 15, out=numbers[0::2])
        np.right_shift(packed, 4, out=numbers[1::2])
        return numbers


@dataclass(frozen=True, slots=True)
class Float8(Codec):
    """fp8 (e4m3), scaled so that the largest value of each layer's keys or values in each head is the format's largest.

    Raises ConfigError where the package ml_dtypes is missing.
    """

    name: ClassVar[str] = "fp8"
    id: ClassVar[int] = 4
    lossless: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _e4m3()

    def bound(self, layout: BlockLayout) -> int:
        """Its exact size: 2 bytes a scale, one a value."""
        return 4 * layout.layout.layers * layout.layout.heads + layout.values

    def encode(self, block: memoryview, layout: BlockLayout) -> bytes:
        """The scales, then the values in the block's order."""
        floats = to_floats(block, layout)
        largest = np.abs(floats).max(axis=(3, 4), keepdims=True)
        step16 = _up(largest / _E4M3_LARGEST)
        step = _wide(step16)
        if not (np.isfinite(largest).all() and np.isfinite(step).all()):
            raise TierError("codec", "the block has values that fp8 cannot hold (infinite or NaN)")
        scaled = np.clip(floats / np.where(step > 0, step, 1), -_E4M3_LARGEST, _E4M3_LARGEST)
        return step16.tobytes() + scaled.astype(_e4m3()).tobytes()

    def decode(self, payload: memoryview, layout: BlockLayout, out: memoryview) -> None:
        """The nearest values of the layout's dtype."""
        needed_length(payload, self.bound(layout))
        layers, parts, heads = layout.shape[:3]
        count = layers * parts * heads
        step = _wide(np.frombuffer(payload, "<u2", count).reshape(layers, parts, heads, 1, 1))
        floats = np.frombuffer(payload[2 * count :], _e4m3()).reshape(layout.shape).astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            floats *= step
        if not np.isfinite(floats).all():
            raise TierError("codec", "the payload has values that are not finite")
        from_floats(floats, layout, out)


def to_floats(block: memoryview, layout: BlockLayout) -> Floats:
    """A block's values as float32, exactly."""
    if layout.dtype == "bf16":
        return _wide(np.frombuffer(block, "<u2").reshape(layout.shape))
    dtype = "<f2" if layout.dtype == "fp16" else "<f4"
    return np.frombuffer(block, dtype).reshape(layout.shape).astype(np.float32, copy=False)


def from_floats(floats: Floats, layout: BlockLayout, out: memoryview) -> None:
    """Rounds float32 values to the layout's dtype, to the nearest, never past its largest. Changes `floats`."""
    np.clip(floats, -_LARGEST[layout.dtype], _LARGEST[layout.dtype], out=floats)
    if layout.dtype == "bf16":
        bits = floats.view(np.uint32)
        bits += 0x7FFF + ((bits >> 16) & 1)  # to nearest, ties to even
        np.frombuffer(out, "<u2").reshape(layout.shape)[:] = bits >> 16
    else:
        np.frombuffer(out, "<f2" if layout.dtype == "fp16" else "<f4").reshape(layout.shape)[:] = floats


def _wide(halves: npt.NDArray[Any]) -> Floats:
    return (halves.astype(np.uint32) << 16).view(np.float32)


def _down(floats: Floats) -> Halves:
    """bf16 not above: so that the lowest value that is stored is never above the lowest there is."""
    bits = np.ascontiguousarray(floats).view(np.uint32)
    below = (bits >> 31) & ((bits & 0xFFFF) != 0)
    halves: Halves = ((bits >> 16) + below).astype(np.uint16)
    return halves


def _up(floats: Floats) -> Halves:
    """bf16 not below, of values that are not negative."""
    bits = np.ascontiguousarray(floats).view(np.uint32)
    return ((bits.astype(np.uint64) + 0xFFFF) >> 16).astype(np.uint16)


def _e4m3() -> Any:
    try:
        import ml_dtypes
    except ImportError:
        raise ConfigError("the codec fp8 needs the package ml_dtypes: pip install 'tenure[tiers]'") from None
    return ml_dtypes.float8_e4m3fn
