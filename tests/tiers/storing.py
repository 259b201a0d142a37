"""What the tests of stores share: a small store on the layout PAGED, blocks in it by frame number, and its files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tenure.tiers import DiskTier
from tenure.tiers.record import entry_bytes

from .making import MIB, PAGED, SPACE, block, buffers, record

CAP = MIB // 2
SLOTS = 6
"""Slots a segment."""
ENTRY = entry_bytes(PAGED.block_size)
PATH = [str(Path(__file__).parent.parent), *(entry for entry in sys.path if entry)]
"""Where another process finds what this one does."""


def opened(folder: Path, cap: int = CAP, **settings: Any) -> DiskTier:
    return DiskTier(folder / "store", settings.pop("layout", PAGED), cap, segment_bytes=SLOTS * PAGED.nbytes, **settings)


def filled(folder: Path, frames: int = 8, **settings: Any) -> DiskTier:
    tier = opened(folder, **settings)
    tier.put_namespace(SPACE, b"of what")
    assert write(tier, *range(frames)) == [None] * frames
    return tier


def write(tier: DiskTier, *frames: int, namespace: bytes = SPACE) -> list[str | None]:
    """Into each frame the block of its number; why each was refused."""
    records = [record(PAGED, frame, namespace) for frame in frames]
    outcomes = tier.write(frames, [block(PAGED, frame) for frame in frames], records)
    return [outcome and outcome.kind for outcome in outcomes]


def read(tier: DiskTier, *frames: int) -> list[str | None]:
    """Why each frame was refused; what is not refused must be right."""
    into = buffers(PAGED, len(frames))
    outcomes = tier.read(frames, [record(PAGED, frame) for frame in frames], into)
    for frame, outcome, data in zip(frames, outcomes, into, strict=True):
        assert outcome is not None or bytes(data) == block(PAGED, frame).tobytes()
    return [outcome and outcome.kind for outcome in outcomes]


def content(folder: Path) -> dict[str, bytes]:
    """Every file but the lock."""
    return {path.name: path.read_bytes() for path in sorted((folder / "store").iterdir()) if path.name != "lock.tenure"}


def flip(path: Path, at: int, mask: int = 1) -> None:
    """Changes bits of one byte of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ mask]))
