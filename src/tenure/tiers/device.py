"""The device tier: one tensor with room for the KV of every frame, one block after the other.
Called by engines and by what moves bytes between tiers; it never decides whose a frame is, nor when one is free."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tenure.checks import integer
from tenure.errors import CapacityError, ConfigError
from tenure.identity import Layout
from tenure.tiers.layout import BlockLayout

__all__ = ["DTYPES", "DeviceArena", "dtype_name"]

DTYPES: dict[str, torch.dtype] = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp64": torch.float64,
}
_SAME_SIZE = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_STAGED = 16
"""Blocks that cross between a GPU and pinned memory at a time."""


def dtype_name(dtype: torch.dtype | str) -> str:
    """The name of a KV dtype, as in `Identity.kv_dtype`. Raises ConfigError for one that no arena can hold."""
    for name, known in DTYPES.items():
        if dtype in (name, known):
            return name
    raise ConfigError(f"KV of dtype {dtype!r} cannot be held: one of {', '.join(DTYPES)} is needed")


def plain(tensor: torch.Tensor) -> Any:
    """What to copy through: on the CPU a numpy view of the same bytes (it copies strided memory several times faster than
    torch does, and in one thread), elsewhere the tensor."""
    return tensor.view(_SAME_SIZE[tensor.element_size()]).numpy() if tensor.device.type == "cpu" else tensor


def unwritten(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """A tensor that nobody has written. On the CPU in memory of numpy's, which asks for huge pages: taking a page at its first
    write costs more than the copy that it is for. It begins with a page, for direct I/O. Raises MemoryError."""
    try:
        with torch.inference_mode(False):  # else nobody outside inference mode could write to it
            if torch.device(device).type != "cpu":
                return torch.empty(shape, dtype=dtype, device=device)
            nbytes = math.prod(shape) * dtype.itemsize
            memory = np.empty(nbytes + mmap.PAGESIZE, np.uint8)
            start = -memory.ctypes.data % mmap.PAGESIZE
            return torch.from_numpy(memory[start : start + nbytes]).view(dtype).view(shape)
    except (RuntimeError, ValueError) as error:  # ValueError: more than can be addressed
        raise MemoryError(str(error)) from error


class DeviceArena:
    """Room for `frames` blocks: a tensor [frames, layers, 2, heads, block_size, head_size] (0: keys, 1: values), in which one
    block is contiguous.

    layout, block_size: of the KV it is for. dtype: "bf16", "fp16", "fp32", "fp64" or torch's. device: where.
    Raises ConfigError for what does not fit, CapacityError when the memory cannot be had.
    """

    def __init__(
        self,
        frames: int,
        layout: Layout,
        block_size: int = 16,
        *,
        dtype: str | torch.dtype = "bf16",
        device: str | torch.device = "cpu",
    ) -> None:
        self.frames = integer("frames", frames, 1, (1 << 31) - 1)
        self.block_size = integer("block_size", block_size, 1, 65535)
        if not isinstance(layout, Layout):
            raise ConfigError(f"layout is {layout!r}: a Layout is needed")
        self.layout = layout
        self.kv_dtype = dtype_name(dtype)
        shape = (self.frames, layout.layers, 2, layout.heads, block_size, layout.head_size)
        kind = DTYPES[self.kv_dtype]
        self.block_bytes = self.block_bytes_of(layout, block_size, dtype)
        try:
            self.tensor = unwritten(shape, kind, device)
        except MemoryError as error:
            raise CapacityError(
                f"{self.frames} frames of {self.block_bytes} bytes ({self.capacity_bytes}) cannot be had on {device}: {error}",
                frames=self.frames,
                bytes=self.capacity_bytes,
            ) from error
        self.device = self.tensor.device
        self._blocks = plain(self.tensor)
        self._bytes = self._blocks.reshape(self.frames, -1).view(np.uint8) if self.device.type == "cpu" else None
        self._staging: torch.Tensor | None = None
        self._stream: Any = None

    @staticmethod
    def block_bytes_of(layout: Layout, block_size: int, dtype: str | torch.dtype) -> int:
        """Bytes of one block."""
        size: int = DTYPES[dtype_name(dtype)].itemsize
        return layout.layers * 2 * layout.heads * block_size * layout.head_size * size

    @property
    def block_layout(self) -> BlockLayout:
        """How one block lies here, for the tiers below. Raises ConfigError for a dtype that they cannot hold (fp64)."""
        return BlockLayout(self.layout, self.kv_dtype, self.block_size)

    @property
    def capacity_bytes(self) -> int:
        """Bytes of all frames."""
        total: int = self.frames * self.block_bytes
        return total

    def gather(self, frames: Any, into: Any, at: int = 0, tokens: int | None = None) -> None:
        """Copies the first `tokens` tokens (all when None) of the frames, in order, to `into`, columns `at` and on.

        into: [layers, 2, heads, columns, head_size], as `plain` gives it: memory of the same dtype and device.
        """
        left = self.block_size * len(frames) if tokens is None else tokens
        for frame in self._checked(frames):
            take = min(left, self.block_size)
            into[:, :, :, at : at + take] = self._blocks[frame][:, :, :, :take]
            at += take
            left -= take

    def scatter(self, frames: Any, source: Any, at: int = 0) -> None:
        """Fills the frames, in order, from `source`, columns `at` and on: the reverse of `gather`."""
        size = self.block_size
        for frame in self._checked(frames):
            self._blocks[frame] = source[:, :, :, at : at + size]
            at += size

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Copies the first `tokens` tokens of frame `source` to frame `target` (copy-on-write, partial reuse)."""
        integer("tokens", tokens, 0, self.block_size)
        one, other = self._checked((source, target))
        self._blocks[other][:, :, :, :tokens] = self._blocks[one][:, :, :, :tokens]

    def bytes_of(self, frame: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """One block's bytes as a writable view, uint8 [block_bytes]. On the CPU only: ConfigError elsewhere."""
        (number,) = self._checked((frame,))
        if self._bytes is None:
            raise ConfigError(f"the arena lies on {self.device}: its bytes are had with read() and write()")
        view: np.ndarray[Any, np.dtype[np.uint8]] = self._bytes[number]
        return view

    def views(self, frames: Any) -> list[np.ndarray[Any, np.dtype[np.uint8]]] | None:
        """The frames' own bytes, each a writable view uint8 [block_bytes]; None where this process cannot address them."""
        numbers = self._checked(frames)
        return None if self._bytes is None else [self._bytes[number] for number in numbers]

    def read(self, frames: Any, into: Sequence[Any]) -> None:
        """Copies the blocks out, each to a writable buffer of block_bytes. What compute has queued so far on this
        thread's stream is waited for."""
        numbers, targets = self._pairs(frames, into)
        if not all(target.flags.writeable for target in targets):
            raise ConfigError("a buffer to read into is read-only")
        if self._bytes is not None:
            for number, target in zip(numbers, targets, strict=True):
                target[:] = self._bytes[number]
            return
        stream, staging = self._transfer()
        for start in range(0, len(numbers), _STAGED):
            part = numbers[start : start + _STAGED]
            with torch.cuda.stream(stream):
                for place, number in enumerate(part):
                    staging[place].copy_(self.tensor[number].view(-1).view(torch.uint8), non_blocking=True)
            stream.synchronize()
            for place, target in enumerate(targets[start : start + _STAGED]):
                target[:] = staging[place].numpy()

    def write(self, frames: Any, blocks: Sequence[Any]) -> None:
        """Copies blocks in, each from a buffer of block_bytes. They are there when it returns."""
        numbers, sources = self._pairs(frames, blocks)
        if self._bytes is not None:
            for number, source in zip(numbers, sources, strict=True):
                self._bytes[number] = source
            return
        stream, staging = self._transfer()
        for start in range(0, len(numbers), _STAGED):
            part = numbers[start : start + _STAGED]
            for place, source in enumerate(sources[start : start + _STAGED]):
                staging[place].numpy()[:] = source
            with torch.cuda.stream(stream):
                for place, number in enumerate(part):
                    self.tensor[number].view(-1).view(torch.uint8).copy_(staging[place], non_blocking=True)
            stream.synchronize()

    def _transfer(self) -> tuple[Any, torch.Tensor]:
        """The stream of the copies, behind what compute has queued so far, and the pinned memory they go through."""
        if self._staging is None:
            self._staging = torch.empty((_STAGED, self.block_bytes), dtype=torch.uint8, pin_memory=True)
            self._stream = torch.cuda.Stream(self.device)
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        return self._stream, self._staging

    def _pairs(self, frames: Any, buffers: Sequence[Any]) -> tuple[list[int], list[Any]]:
        numbers = self._checked(frames)
        try:
            views = [np.frombuffer(buffer, np.uint8) for buffer in buffers]
        except (TypeError, ValueError, BufferError) as error:
            raise ConfigError(f"contiguous buffers of {self.block_bytes} bytes are needed: {error}") from None
        if len(numbers) != len(views) or any(len(view) != self.block_bytes for view in views):
            raise ConfigError(
                f"{len(numbers)} frames and buffers of {sorted({len(view) for view in views})} bytes ({len(views)} of them): one"
                f" buffer of {self.block_bytes} bytes is needed for each frame",
                frames=len(numbers),
                block_bytes=self.block_bytes,
            )
        return numbers, views

    def _checked(self, frames: Any) -> list[int]:
        numbers = np.asarray(frames)
        if numbers.size == 0:
            return []
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= self.frames:
            raise ConfigError(
                f"frames are {frames!r}: numbers from 0 to {self.frames - 1} in one dimension are needed", frames=self.frames
            )
        found: list[int] = numbers.tolist()
        return found
