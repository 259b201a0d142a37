"""What the tests of the tiers share: layouts, blocks and records from a seed, tiers of every kind, and what a tier holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from tenure.tiers import CODECS, BlockLayout, Codec, DiskTier, HostTier, Raw, Record, Tier

SMALL = BlockLayout.of("bf16", 4, layers=1, heads=2, head_size=8)
"""256 bytes: far less than a page."""
PAGED = BlockLayout.of("bf16", 16, layers=2, heads=4, head_size=16)
"""8,192 bytes: whole pages."""
ODD = BlockLayout.of("fp32", 5, layers=3, heads=3, head_size=7)
HALF = BlockLayout.of("fp16", 8, layers=2, heads=1, head_size=32)
LAYOUTS = {"small": SMALL, "paged": PAGED, "odd": ODD, "half": HALF}
SPACE = bytes(range(32))
OTHER_SPACE = bytes(range(32, 64))
KEY = b"a deployment's key, 32 bytes long"
MIB = 1 << 20


def block(layout: BlockLayout, seed: int) -> np.ndarray:
    """KV as models have it, roughly: gaussian with a scale per channel. uint8[layout.nbytes]."""
    rng = np.random.default_rng(seed)
    scale = np.exp(rng.standard_normal((*layout.shape[:3], 1, layout.shape[4])))
    values = (rng.standard_normal(layout.shape) * scale).astype(np.float32)
    if layout.dtype == "bf16":
        values = (values.view(np.uint32) >> 16).astype("<u2")
    elif layout.dtype == "fp16":
        values = values.astype("<f2")
    return values.reshape(-1).view(np.uint8).copy()


def record(layout: BlockLayout, seed: int, namespace: bytes = SPACE, **changes: object) -> Record:
    rng = np.random.default_rng([seed, 1])
    made = Record(
        namespace=namespace,
        digest=rng.bytes(32),
        parent=rng.bytes(32),
        depth=int(rng.integers(0, 100)),
        tokens=rng.integers(0, 1 << 31, layout.block_size).astype("<u4").tobytes(),
        layout=layout,
        extra=rng.bytes(int(rng.integers(0, 40))),
        expires=float(rng.integers(0, 1 << 31)),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Kind:
    """One kind of tier for the contract: makes one with at least `frames` frames. Another kind joins by a line in TIERS."""

    name: str
    make: Callable[[Path, BlockLayout, Codec, int], Tier]


def _host(verify: bool) -> Callable[[Path, BlockLayout, Codec, int], Tier]:
    return lambda folder, layout, codec, frames: HostTier(layout, frames, codec=codec, verify=verify)


def _disk(**settings: object) -> Callable[[Path, BlockLayout, Codec, int], Tier]:
    def make(folder: Path, layout: BlockLayout, codec: Codec, frames: int) -> Tier:
        slot = -(-codec.bound(layout) // 4096) * 4096
        cap = 2 * MIB + frames * 2 * slot
        tier = DiskTier(folder / "store", layout, cap, codec=codec, segment_bytes=3 * slot, **settings)  # type: ignore[arg-type]
        for space in (SPACE, OTHER_SPACE):
            tier.put_namespace(space, b"a namespace")
        return tier

    return make


def _arena(folder: Path, layout: BlockLayout, codec: Codec, frames: int) -> Tier:
    """On the device: without a codec."""
    pytest.importorskip("torch", reason="torch is not installed: pip install 'tenure[model]'")
    if not isinstance(codec, Raw):
        pytest.skip("device memory holds raw blocks only")
    from tenure.tiers.arena import ArenaTier
    from tenure.tiers.device import DeviceArena

    return ArenaTier(DeviceArena(frames, layout.layout, layout.block_size, dtype=layout.dtype))


TIERS = [
    Kind("device", _arena),
    Kind("host", _host(verify=False)),
    Kind("host-verifying", _host(verify=True)),
    Kind("disk", _disk()),
    Kind("disk-buffered", _disk(direct=False)),
    Kind("disk-signed", _disk(key=KEY)),
    Kind("disk-synced", _disk(sync=True)),
]


def codec(name: str) -> Codec:
    return CODECS[name]()


def buffers(layout: BlockLayout, count: int) -> list[bytearray]:
    return [bytearray(layout.nbytes) for _ in range(count)]


def decoded(tier: Tier, data: np.ndarray) -> bytes:
    """What a block comes back as, after the tier's codec."""
    out = bytearray(tier.block_bytes)
    payload = memoryview(bytes(tier.codec.encode(memoryview(data), tier.layout)))
    tier.codec.decode(payload, tier.layout, memoryview(out))
    return bytes(out)


def restored(tier: DiskTier) -> dict[int, tuple[Record, bytes]]:
    """Everything that a store gives back after it was opened. Fails unless each block that `scan` tells of can be read."""
    found = dict(tier.scan())
    into = buffers(tier.layout, len(found))
    outcomes = tier.read(list(found), list(found.values()), into)
    assert outcomes == [None] * len(found), "a block was restored that cannot be read"
    return {frame: (told, bytes(data)) for (frame, told), data in zip(found.items(), into, strict=True)}
