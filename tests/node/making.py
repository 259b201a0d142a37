"""An engine for the tests of the node: its device is numpy; the KV of a block is a hash of whose it is and of all its tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenure import CapacityError, Identity
from tenure.node import Level, Node
from tenure.tiers import BlockLayout, Codec, DiskTier, HostTier, Raw

SIZE = 4
LAYOUT = BlockLayout.of("bf16", SIZE, layers=2, heads=2, head_size=16)
WHO = Identity(model="m", weights="w")
MIB = 1 << 20


class ArrayDevice:
    """Frames in a numpy array. `addressable=False`: as on a GPU, only copies."""

    def __init__(self, frames: int, block_bytes: int = LAYOUT.nbytes, addressable: bool = True) -> None:
        self.frames = frames
        self.block_bytes = block_bytes
        self.bytes = np.zeros((frames, block_bytes), np.uint8)
        self.addressable = addressable

    def views(self, frames: Sequence[int]) -> list[Any] | None:
        return [self.bytes[frame] for frame in frames] if self.addressable else None

    def read(self, frames: Sequence[int], into: Sequence[Any]) -> None:
        for frame, target in zip(frames, into, strict=True):
            target[:] = self.bytes[frame]

    def write(self, frames: Sequence[int], blocks: Sequence[Any]) -> None:
        for frame, block in zip(frames, blocks, strict=True):
            self.bytes[frame] = np.frombuffer(block, np.uint8)


def kv_of(who: Identity, tokens: list[int]) -> np.ndarray:
    """The KV of the last block of `tokens`, which depends on all before it too: bf16 values as bytes, all finite."""
    seed = hashlib.sha256(who.namespace + np.array(tokens, "<u4").tobytes()).digest()
    values = np.random.default_rng(np.frombuffer(seed, np.uint32)).standard_normal(LAYOUT.values).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype("<u2").view(np.uint8)


def host(frames: int, codec: Codec | None = None, **settings: Any) -> HostTier:
    return HostTier(LAYOUT, frames, codec=codec or Raw(), **settings)


def disk(folder: Path, mib: float = 4, **settings: Any) -> DiskTier:
    settings.setdefault("segment_bytes", 1 << 20)
    return DiskTier(folder, LAYOUT, int(mib * MIB), **settings)


def node(frames: int, *levels: Level, addressable: bool = True, **settings: Any) -> Node:
    settings.setdefault("background", False)
    return Node(ArrayDevice(frames, addressable=addressable), levels, SIZE, **settings)


class WrongBytesError(AssertionError):
    """A hit without its bytes."""


def serve(
    kv: Node,
    tokens: list[int],
    who: Identity = WHO,
    *,
    same: Callable[[Any, Any], bool] | None = None,
    **asked: Any,
) -> int:
    """One request, as an engine serves it; returns its hit tokens, all of whose bytes were right."""
    device: Any = kv.device
    with kv.sequence(tokens, who, **asked) as seq:
        table = seq.block_table
        for block in range(len(tokens) // SIZE):
            right = kv_of(who, tokens[: (block + 1) * SIZE])
            if block < seq.hit_tokens // SIZE:
                there = device.bytes[table[block]]
                if not (np.array_equal(there, right) if same is None else same(there, right)):
                    raise WrongBytesError(f"block {block} of {tokens} is a hit without its bytes")
            else:
                device.bytes[table[block]] = right
        return seq.hit_tokens


def try_serve(kv: Node, tokens: list[int], who: Identity = WHO, **asked: Any) -> int:
    """The same; 0 where there is no room."""
    try:
        return serve(kv, tokens, who, **asked)
    except CapacityError:
        return 0


def prompt(name: int, blocks: int) -> list[int]:
    """A prompt of so many blocks that shares nothing with one of another name."""
    return [1000 * name + i for i in range(blocks * SIZE)]
