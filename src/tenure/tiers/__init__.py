"""Where the bytes of blocks lie below the device: tiers of frames, the records that prove them, and codecs."""

from tenure.tiers.base import KINDS, Buffer, Counters, Outcome, Tier
from tenure.tiers.codec import Codec, Raw, Zstd
from tenure.tiers.disk import DiskTier
from tenure.tiers.host import HostTier
from tenure.tiers.layout import BlockLayout
from tenure.tiers.quantised import Float8, Int4, Int8
from tenure.tiers.record import MOST_EXTRA, NO_PARENT, Record

__all__ = [
    "CODECS",
    "KINDS",
    "MOST_EXTRA",
    "NO_PARENT",
    "BlockLayout",
    "Buffer",
    "Codec",
    "Counters",
    "DiskTier",
    "Float8",
    "HostTier",
    "Int4",
    "Int8",
    "Outcome",
    "Raw",
    "Record",
    "Tier",
    "Zstd",
]

CODECS: dict[str, type[Codec]] = {codec.name: codec for codec in (Raw, Zstd, Int8, Int4, Float8)}
"""Every codec by its name."""
