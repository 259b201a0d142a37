"""The envelope: known bytes, what it proves, and that nothing else than a record or a RecordError comes out of any bytes."""

from __future__ import annotations

import math
import struct
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import ConfigError, RecordError, TierError
from tenure.tiers import MOST_EXTRA, NO_PARENT, BlockLayout, Record
from tenure.tiers.record import checked_key, checksum, entry_bytes, pack, unpack

from .making import KEY, LAYOUTS, SMALL, block, record

PAYLOAD = memoryview(b"the payload")


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=str)
@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "signed"])
def test_a_record_comes_back_as_it_was(layout: BlockLayout, key: bytes | None) -> None:
    told = record(layout, 1)
    packed = pack(told, 3, PAYLOAD, b"12345678", key)
    assert len(packed) <= entry_bytes(layout.block_size)
    found = unpack(packed + b"whatever follows")
    assert found.record == told
    assert found.record.expires == told.expires
    assert (found.codec, found.length, found.life) == (3, len(PAYLOAD), b"12345678")
    found.verify(PAYLOAD, key)
    assert found.record.token_ids.tolist() == np.frombuffer(told.tokens, "<u4").tolist()


def test_the_bytes_of_a_record_are_known() -> None:
    """Field by field, worked out here by hand: stores outlive versions of this library."""
    told = Record(b"n" * 32, b"d" * 32, NO_PARENT, 7, struct.pack("<4I", 1, 2, 3, 4), SMALL, b"image", math.inf)
    head = b"TNRBLOCK" + struct.pack("<HBBHH", 1, 0, 1, 0, 5) + struct.pack("<IQd", 7, len(PAYLOAD), math.inf)
    head += b"n" * 32 + b"d" * 32 + bytes(32) + b"lifelife" + checksum(PAYLOAD)
    head += struct.pack("<6I", 1, 2, 8, 0, 1, 4) + struct.pack("<4I", 1, 2, 3, 4) + b"image" + bytes(32)
    assert pack(told, 0, PAYLOAD, b"lifelife") == head + checksum(head)
    assert checksum(PAYLOAD).hex() == "c63507386f383c5ee3b9854e4f8ca9e0"


def test_any_flipped_bit_of_a_record_is_seen() -> None:
    packed = pack(record(SMALL, 1), 0, PAYLOAD)
    for at in range(len(packed)):
        for bit in range(8):
            changed = bytearray(packed)
            changed[at] ^= 1 << bit
            with pytest.raises(RecordError):
                unpack(bytes(changed))


def test_a_record_cut_anywhere_is_seen() -> None:
    packed = pack(record(SMALL, 1), 0, PAYLOAD)
    for end in range(len(packed)):
        with pytest.raises(RecordError):
            unpack(packed[:end])


@pytest.mark.parametrize(
    ("at", "form", "value", "said"),
    [
        (8, "<H", 2, "version 2"),
        (11, "<B", 9, "dtype code 9"),
        (12, "<H", 2, "flags 2"),
        (28, "<d", math.nan, "expires"),
        (156, "<I", 0, "layout"),
        (172, "<I", 0, "layout"),
    ],
    ids=["version", "dtype", "flags", "expires", "layers", "shards"],
)
def test_a_record_that_nobody_writes_is_refused_though_its_checksum_is_right(at: int, form: str, value: float, said: str) -> None:
    packed = bytearray(pack(record(SMALL, 1), 0, PAYLOAD)[:-16])
    struct.pack_into(form, packed, at, value)
    whole = bytes(packed)
    with pytest.raises(RecordError, match=said):
        unpack(whole + checksum(whole))


def test_a_record_with_too_long_an_extra_key_is_refused_though_its_checksum_is_right() -> None:
    told = record(SMALL, 1)
    object.__setattr__(told, "extra", bytes(MOST_EXTRA + 1))
    with pytest.raises(RecordError, match="extra"):
        unpack(pack(told, 0, PAYLOAD))


@given(st.binary(max_size=600))
def test_any_bytes_give_a_record_or_a_record_error(data: bytes) -> None:
    for candidate in (data, b"TNRBLOCK\1\0" + data):
        with pytest.raises(RecordError):
            unpack(candidate)


@given(st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=8)), min_size=1, max_size=6))
def test_any_damage_gives_the_record_or_a_record_error(damage: list[tuple[int, bytes]]) -> None:
    packed = pack(record(SMALL, 1), 0, PAYLOAD)
    changed = bytearray(packed)
    for at, new in damage:
        changed[at : at + len(new)] = new
    if bytes(changed[: len(packed)]) == packed:
        return
    with pytest.raises(RecordError):
        unpack(bytes(changed))


def test_huge_claims_take_no_memory() -> None:
    packed = bytearray(pack(record(SMALL, 1), 0, PAYLOAD))
    struct.pack_into("<I", packed, 176, (1 << 32) - 1)  # tokens a block
    struct.pack_into("<H", packed, 14, (1 << 16) - 1)  # bytes of the extra key
    tracemalloc.start()
    with pytest.raises(RecordError, match="cut off"):
        unpack(bytes(packed))
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def test_a_payload_is_proven() -> None:
    envelope = unpack(pack(record(SMALL, 1), 0, PAYLOAD))
    for wrong, kind in ((b"the pay1oad", "checksum"), (b"the payloa", "torn"), (b"the payload ", "torn")):
        with pytest.raises(TierError) as caught:
            envelope.verify(memoryview(wrong), None)
        assert caught.value.kind == kind


def test_with_a_key_only_its_own_records_count() -> None:
    told = record(SMALL, 1)
    signed = unpack(pack(told, 0, PAYLOAD, key=KEY))
    signed.verify(PAYLOAD, KEY)
    signed.verify(PAYLOAD, None)  # who has no key cannot tell
    for envelope, key in ((signed, KEY[::-1]), (unpack(pack(told, 0, PAYLOAD)), KEY)):
        with pytest.raises(TierError) as caught:
            envelope.verify(PAYLOAD, key)
        assert caught.value.kind == "signature"


def test_a_forger_without_the_key_can_change_nothing_that_is_signed() -> None:
    """Checksums anyone can compute; the signature covers record and payload."""
    told = record(SMALL, 1)
    packed = pack(told, 0, PAYLOAD, key=KEY)
    mac = packed[-48:-16]

    def forged(other: Record, payload: memoryview) -> bytes:
        plain = pack(other, 0, payload)[:-48]
        signed = plain[:12] + struct.pack("<H", 1) + plain[14:] + mac
        return signed + checksum(signed)

    unpack(forged(told, PAYLOAD)).verify(PAYLOAD, KEY)  # nothing changed: the forgery is the original
    other_payload = memoryview(b"other bytes")
    for other, payload in (
        (replace(told, depth=told.depth + 1), PAYLOAD),
        (told, other_payload),
        (replace(told, expires=1), PAYLOAD),
    ):
        with pytest.raises(TierError) as caught:
            unpack(forged(other, payload)).verify(payload, KEY)
        assert caught.value.kind == "signature"


@pytest.mark.parametrize(
    "changes",
    [
        {"namespace": b"short"},
        {"digest": "text" * 8},
        {"parent": None},
        {"depth": -1},
        {"depth": 1 << 32},
        {"depth": True},
        {"tokens": bytes(15)},
        {"tokens": [1, 2, 3, 4]},
        {"extra": bytes(MOST_EXTRA + 1)},
        {"extra": None},
        {"expires": math.nan},
        {"expires": None},
    ],
    ids=lambda changes: f"{next(iter(changes))}={next(iter(changes.values()))!r:.12}",
)
def test_a_record_is_checked_when_it_is_made(changes: dict[str, object]) -> None:
    with pytest.raises(RecordError):
        record(SMALL, 1, **changes)  # type: ignore[arg-type]


def test_a_record_needs_a_layout() -> None:
    with pytest.raises(RecordError, match="layout"):
        Record(bytes(32), bytes(32), NO_PARENT, 0, b"", "bf16")  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [b"short", bytes(65), "text" * 8, 5], ids=repr)
def test_a_key_is_checked(key: object) -> None:
    with pytest.raises(ConfigError):
        checked_key(key)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        ("int8", 4, 1, 1, 8),
        ("bf16", 0, 1, 1, 8),
        ("bf16", 65536, 1, 1, 8),
        ("bf16", 4, 0, 1, 8),
        ("bf16", 4, 1, 1.5, 8),
        ("bf16", 4, 1 << 33, 1, 8),
        ("bf16", 65535, 1 << 20, 1 << 20, 8),
        ("bf16", 4, 1, 1, 8, 3, 2),
    ],
    ids=str,
)
def test_a_layout_is_checked(settings: tuple[object, ...]) -> None:
    with pytest.raises(ConfigError):
        BlockLayout.of(*settings)  # type: ignore[arg-type]


def test_a_layout_knows_its_size() -> None:
    layout = BlockLayout.of("bf16", 32, layers=30, heads=3, head_size=64)
    assert layout.nbytes == 720 * 1024
    assert block(SMALL, 0).nbytes == SMALL.nbytes == 256
