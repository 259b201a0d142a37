"""Bytes that are right, for fuzzing to start from: a mutation of them gets further than noise."""

from __future__ import annotations

import numpy as np

from tenure import Identity
from tenure.cluster.handover import Handover
from tenure.tiers import CODECS, Raw, Record
from tenure.tiers.heads import Claim, Head
from tenure.tiers.record import entry_bytes, pack
from tenure.tiers.store import Format

from .targets import LAYOUT, LIFE

_PAYLOAD = memoryview(bytes(LAYOUT.nbytes))


def seeds() -> dict[str, list[bytes]]:
    """Some for each target."""
    told = Record(bytes(32), b"d" * 32, bytes(32), 3, bytes(16), LAYOUT, b"extra", 5.0)
    plain, signed = pack(told, 0, _PAYLOAD), pack(told, 0, _PAYLOAD, key=b"another key of 24 bytes.")
    entry = pack(told, 0, _PAYLOAD, LIFE).ljust(entry_bytes(LAYOUT.block_size), b"\0")
    description = Format.of(LAYOUT, Raw(), None, 1 << 30).pack()
    block = np.random.default_rng(0).standard_normal(LAYOUT.values, np.float32).view(np.uint16)[1::2].tobytes()
    row = b"TNRSPACE\1\0\1\0\0\0" + bytes(32) + b"lifelife" + b"\5\0\0\0value"
    return {
        "record": [plain, signed],
        "index": [entry, entry * 3, bytes(len(entry)) + entry],
        "table": [row],
        "description": [description, description[:-16]],
        "head": [Head(b"boot-1", 300, 4096, 1024, 2.03).encode(), Claim(b"boot-2", b"node:7").encode()],
        "handover": [Handover(Identity("m"), np.arange(5, dtype=np.int32), 4, {0: b"image"}).encode()],
        "reply": [b"*2\r\n$3\r\nabc\r\n:5\r\n+OK\r\n-ERR no\r\n$-1\r\n", b"$8\r\n12345678\r\n$8\r\n12345678\r\n"],
        "codec": [bytes(make().encode(memoryview(block), LAYOUT)) for make in CODECS.values()],
    }
