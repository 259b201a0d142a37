"""The envelope of a block's bytes in a lower tier: what block it is, how its payload is coded, and what proves both.
Written and read by tiers, compared by them with what the caller expects; it never looks at KV values and never pickles."""

from __future__ import annotations

import hashlib
import hmac
import math
import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tenure.checks import integer
from tenure.errors import ConfigError, RecordError, TierError
from tenure.tiers.layout import DTYPES, BlockLayout

try:
    from xxhash import xxh3_128_digest
except ImportError as error:
    raise ImportError("the tiers need xxhash: pip install 'tenure[tiers]'") from error

__all__ = [
    "MOST_EXTRA",
    "NO_PARENT",
    "Envelope",
    "Record",
    "checked_key",
    "checksum",
    "entry_bytes",
    "pack",
    "packed_bytes",
    "unpack",
]

MOST_EXTRA = 256
"""Bytes that the extra key of a stored block may have."""
NO_PARENT = bytes(32)
"""The parent digest of a first block."""

_MAGIC = b"TNRBLOCK"
_VERSION = 1
_SIGNED = 1
# magic, version, codec, dtype, flags, bytes of the extra key, depth, payload length, expires, namespace, digest, parent,
# life of the namespace, payload checksum, then the layout: layers, heads, head size, shard, shards, block size
_FIXED = struct.Struct("<8s HBBHH IQd 32s32s32s 8s16s 6I".replace(" ", ""))
_MAC = 32
_CHECK = 16
_CODES = {name: code for code, name in enumerate(DTYPES, 1)}
_NAMES = {code: name for name, code in _CODES.items()}
_MOST = (1 << 32) - 1
_NO_LIFE = bytes(8)


@dataclass(frozen=True, slots=True)
class Record:
    """What block some bytes are of. Two records are equal when everything but `expires` is: that belongs to who keeps it.

    namespace, digest, parent: 32 bytes each; `digest` is the block's link of `Identity.digest_chain`, `parent` the link before
    (NO_PARENT for a first block). depth: blocks before it. tokens: little-endian uint32, 4 x block_size bytes. extra: its extra
    key, at most MOST_EXTRA bytes. expires: seconds since the epoch, math.inf for never.

    Raises RecordError for a field of the wrong type or length.
    """

    namespace: bytes
    digest: bytes
    parent: bytes
    depth: int
    tokens: bytes
    layout: BlockLayout
    extra: bytes = b""
    expires: float = field(default=math.inf, compare=False)

    def __post_init__(self) -> None:
        for name in ("namespace", "digest", "parent"):
            value = getattr(self, name)
            if not isinstance(value, bytes) or len(value) != 32:
                raise RecordError(f"record.{name} is {value!r}: 32 bytes are needed")
        if not isinstance(self.layout, BlockLayout):
            raise RecordError(f"record.layout is {self.layout!r}: a BlockLayout is needed")
        if not isinstance(self.tokens, bytes) or len(self.tokens) != 4 * self.layout.block_size:
            raise RecordError(
                f"record.tokens must be the {4 * self.layout.block_size} bytes of {self.layout.block_size} little-endian uint32",
                needed=4 * self.layout.block_size,
            )
        if not isinstance(self.extra, bytes) or len(self.extra) > MOST_EXTRA:
            raise RecordError(f"record.extra must be at most {MOST_EXTRA} bytes", most=MOST_EXTRA)
        if type(self.depth) is not int or not 0 <= self.depth <= _MOST:
            object.__setattr__(self, "depth", integer("record.depth", self.depth, 0, _MOST, RecordError))
        if not isinstance(self.expires, float | int) or math.isnan(self.expires):
            raise RecordError(f"record.expires is {self.expires!r}: seconds since the epoch are needed, math.inf for never")

    @property
    def token_ids(self) -> npt.NDArray[np.uint32]:
        """The tokens as an array, uint32[block_size]."""
        return np.frombuffer(self.tokens, "<u4")


@dataclass(frozen=True, slots=True)
class Envelope:
    """A record as it was found, with what proves its payload: codec id, length in bytes, checksum, and a MAC when signed.

    `life` is the life of the namespace that the block was written in (8 bytes): a namespace that was dropped and came back has
    another. `signed_part` is what the MAC covers besides the payload.
    """

    record: Record
    codec: int
    length: int
    checksum: bytes
    life: bytes
    mac: bytes | None
    signed_part: bytes

    def verify(self, payload: memoryview, key: bytes | None) -> None:
        """Raises TierError (torn, checksum, signature) unless the payload is the one that was written."""
        if len(payload) != self.length:
            raise TierError("torn", f"the payload has {len(payload)} of {self.length} bytes", found=len(payload))
        if checksum(payload) != self.checksum:
            raise TierError("checksum", "the payload is not what was written: its checksum differs")
        if key is None:
            return
        if self.mac is None:
            raise TierError("signature", "the record is not signed, and this tier has a key")
        if not hmac.compare_digest(_mac(key, self.signed_part, payload), self.mac):
            raise TierError("signature", "the record is signed with another key, or was changed")


def checksum(payload: Any) -> bytes:
    """XXH3-128 of a payload, 16 bytes."""
    return xxh3_128_digest(payload)


def checked_key(key: bytes | None) -> bytes | None:
    """The deployment's key. Raises ConfigError unless it is None or 16 to 64 bytes."""
    if key is not None and (not isinstance(key, bytes) or not 16 <= len(key) <= 64):
        raise ConfigError("key must be 16 to 64 secret bytes, or None for unsigned records", least=16, most=64)
    return key


def entry_bytes(block_size: int) -> int:
    """The room that any record of this block size fits in, a multiple of 64 bytes."""
    return -(-(_FIXED.size + 4 * block_size + MOST_EXTRA + _MAC + _CHECK) // 64) * 64


def packed_bytes(record: Record) -> int:
    """The bytes of its envelope."""
    return _FIXED.size + len(record.tokens) + len(record.extra) + _MAC + _CHECK


def pack(record: Record, codec: int, payload: memoryview, life: bytes = _NO_LIFE, key: bytes | None = None) -> bytes:
    """The envelope of a payload as bytes, at most entry_bytes(block_size)."""
    layout = record.layout
    size = layout.layout
    head = b"".join(
        (
            _FIXED.pack(
                _MAGIC,
                _VERSION,
                codec,
                _CODES[layout.dtype],
                0 if key is None else _SIGNED,
                len(record.extra),
                record.depth,
                len(payload),
                record.expires,
                record.namespace,
                record.digest,
                record.parent,
                life,
                checksum(payload),
                size.layers,
                size.heads,
                size.head_size,
                size.shard,
                size.shards,
                layout.block_size,
            ),
            record.tokens,
            record.extra,
        )
    )
    whole = head + (bytes(_MAC) if key is None else _mac(key, head, payload))
    return whole + checksum(whole)


def unpack(data: bytes | memoryview) -> Envelope:
    """The envelope at the start of `data`; what follows it is ignored. Raises RecordError for bytes that are none."""
    if len(data) < _FIXED.size:
        raise RecordError(f"a record has at least {_FIXED.size} bytes: there are {len(data)}", found=len(data))
    (magic, version, codec, dtype, flags, extra, depth, length, expires, namespace, digest, parent, life, check, *sizes) = (
        _FIXED.unpack_from(data)
    )
    if magic != _MAGIC:
        raise RecordError("no record starts here")
    if version != _VERSION:
        raise RecordError(f"a record of version {version}: this reads version {_VERSION}", found=version, read=_VERSION)
    tokens_end = _FIXED.size + 4 * sizes[-1]
    head_end = tokens_end + extra
    end = head_end + _MAC + _CHECK
    if len(data) < end:
        raise RecordError(f"a record of {end} bytes is cut off after {len(data)}", needed=end, found=len(data))
    whole = bytes(data[:end])
    if checksum(whole[:-_CHECK]) != whole[-_CHECK:]:
        raise RecordError("the record was changed or not written whole: its checksum differs")
    if dtype not in _NAMES or flags not in (0, _SIGNED):
        raise RecordError(f"a record with dtype code {dtype} and flags {flags}: neither this version writes")
    try:
        layout = _layout(_NAMES[dtype], *sizes)
    except ConfigError as error:
        raise RecordError(f"a record of an impossible layout: {error}") from None
    tokens, extra_key = whole[_FIXED.size : tokens_end], whole[tokens_end:head_end]
    record = Record(namespace, digest, parent, depth, tokens, layout, extra_key, expires)
    mac = whole[head_end : head_end + _MAC] if flags & _SIGNED else None
    return Envelope(record, codec, length, check, life, mac, whole[:head_end])


@lru_cache(maxsize=64)
def _layout(dtype: str, layers: int, heads: int, head_size: int, shard: int, shards: int, block_size: int) -> BlockLayout:
    return BlockLayout.of(dtype, block_size, layers, heads, head_size, shard, shards)


def _mac(key: bytes, signed_part: bytes, payload: memoryview) -> bytes:
    mac = hashlib.blake2b(signed_part, digest_size=_MAC, key=key, person=b"tenure.record.1")
    mac.update(payload)
    return mac.digest()
