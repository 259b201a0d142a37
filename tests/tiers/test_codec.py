"""Codecs: what comes back, how far from what went in, within which bytes; any payload is decoded or refused, nothing else."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.errors import ConfigError, TierError
from tenure.tiers import CODECS, BlockLayout, Codec, Float8, Int4, Int8, Raw, Zstd
from tenure.tiers.quantised import from_floats, to_floats

from .making import HALF, LAYOUTS, ODD, PAGED, SMALL, block

LOSSY = [Int8(), Int4(), Float8()]
ALL = [Raw(), Zstd(), Zstd(level=3), *LOSSY]


def round_trip(codec: Codec, layout: BlockLayout, data: np.ndarray) -> np.ndarray:
    payload = memoryview(bytes(codec.encode(memoryview(data), layout)))
    assert len(payload) <= codec.bound(layout)
    out = bytearray(layout.nbytes)
    codec.decode(payload, layout, memoryview(out))
    return np.frombuffer(bytes(out), np.uint8)


def floats(layout: BlockLayout, data: np.ndarray) -> np.ndarray:
    return to_floats(memoryview(data), layout).astype(np.float64)


def from_values(layout: BlockLayout, values: np.ndarray) -> np.ndarray:
    out = np.zeros(layout.nbytes, np.uint8)
    from_floats(np.broadcast_to(values, layout.shape).astype(np.float32), layout, memoryview(out))
    return out


@pytest.mark.parametrize("codec", [Raw(), Zstd(), Zstd(level=9)], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=str)
def test_lossless_is_bit_for_bit_whatever_the_bits(codec: Codec, layout: BlockLayout) -> None:
    assert codec.lossless
    noise = np.random.default_rng(1).integers(0, 256, layout.nbytes, dtype=np.uint8)
    for data in (block(layout, 1), noise, np.zeros(layout.nbytes, np.uint8), np.full(layout.nbytes, 255, np.uint8)):
        assert round_trip(codec, layout, data).tobytes() == data.tobytes()


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=str)
@pytest.mark.parametrize("codec", [Int8(), Int4()], ids=str)
def test_integers_are_off_by_half_a_step_at_most(codec: Int8 | Int4, layout: BlockLayout) -> None:
    """Keys: a step is the channel's range over the block's tokens; values: the token's range over its channels."""
    data = block(layout, 3)
    before, after = floats(layout, data), floats(layout, round_trip(codec, layout, data))
    for part, axis in ((0, 2), (1, 3)):
        values = before[:, part]
        span = values.max(axis, keepdims=True) - values.min(axis, keepdims=True)
        lowest = np.abs(values.min(axis, keepdims=True))
        step = (span + lowest / 128) / (2**codec.bits - 1) * (1 + 1 / 128)  # lowest and step are rounded outwards to bf16
        rounding = np.abs(after[:, part]) / 256 if layout.dtype == "bf16" else np.abs(after[:, part]) / 2048
        assert (np.abs(after[:, part] - values) <= step / 2 + rounding + 1e-7).all()


def test_fp8_is_off_by_a_sixteenth_at_most() -> None:
    data = block(PAGED, 4)
    before, after = floats(PAGED, data), floats(PAGED, round_trip(Float8(), PAGED, data))
    largest = np.abs(before).max(axis=(3, 4), keepdims=True)
    assert (np.abs(after - before) <= np.abs(before) / 16 + np.abs(before) / 256 + largest / 448 / 512 * 1.01).all()


def test_a_loud_channel_of_the_keys_does_not_drown_the_others() -> None:
    """What KIVI quantises keys per channel for. The values, per token, show the opposite."""
    values = np.random.default_rng(0).standard_normal(PAGED.shape)
    values[..., 5] *= 1000
    data = from_values(PAGED, values)
    error = np.abs(floats(PAGED, round_trip(Int8(), PAGED, data)) - floats(PAGED, data))
    others = np.arange(PAGED.shape[4]) != 5
    assert error[:, 0][..., others].max() < 0.05
    assert error[:, 1][..., others].max() > 0.5


@pytest.mark.parametrize("codec", LOSSY, ids=str)
@pytest.mark.parametrize("layout", [SMALL, HALF, ODD], ids=str)
@pytest.mark.parametrize("value", [0.0, 1.0, -3.0, 6e4, -6e4])
def test_a_constant_block_comes_back_nearly_as_it_was(codec: Codec, layout: BlockLayout, value: float) -> None:
    data = from_values(layout, np.array(value))
    after = floats(layout, round_trip(codec, layout, data))
    assert np.allclose(after, floats(layout, data), rtol=0.01)


@pytest.mark.parametrize("codec", LOSSY, ids=str)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, -np.nan])
def test_values_that_are_not_finite_are_refused(codec: Codec, value: float) -> None:
    values = np.zeros(ODD.shape, np.float32)
    values[1, 0, 1, 2, 3] = value
    for data in (values, values.view(np.uint32) | np.where(np.isnan(values), 0x7FFFFF, 0).astype(np.uint32)):
        with pytest.raises(TierError) as caught:
            codec.encode(memoryview(data.reshape(-1).view(np.uint8)), ODD)
        assert caught.value.kind == "codec"


@pytest.mark.parametrize("codec", LOSSY, ids=str)
def test_values_as_large_as_the_dtype_has_do_not_overflow(codec: Codec) -> None:
    values = np.full(HALF.shape, 65504.0)
    values[..., ::2] = -65504
    after = floats(HALF, round_trip(codec, HALF, from_values(HALF, values)))
    assert np.isfinite(after).all()
    assert np.abs(after - values).max() <= 65504 * 2 / 15 / 2 * 1.1


def test_values_too_far_apart_for_one_step_are_refused() -> None:
    values = np.zeros(ODD.shape, np.float32)
    values[0, 0, 0, 0, 0], values[0, 0, 0, 1, 0] = 3.4e38, -3.4e38
    with pytest.raises(TierError, match="too far apart"):
        Int8().encode(memoryview(values.reshape(-1).view(np.uint8)), ODD)


def test_what_the_codecs_take() -> None:
    layout = BlockLayout.of("bf16", 32, layers=30, heads=3, head_size=64)
    share = {codec.name: codec.bound(layout) / layout.nbytes for codec in LOSSY}
    assert share["int8"] == pytest.approx(0.547, abs=0.001)
    assert share["int4"] == pytest.approx(0.297, abs=0.001)
    assert share["fp8"] == pytest.approx(0.5005, abs=0.001)


def test_zstd_keeps_its_room_or_refuses() -> None:
    layout = BlockLayout.of("bf16", 32, layers=4, heads=3, head_size=64)
    narrow = Zstd(room=0.75)
    assert narrow.bound(layout) == layout.nbytes * 3 // 4
    data = block(layout, 1)
    assert round_trip(narrow, layout, data).tobytes() == data.tobytes()
    noise = np.random.default_rng(1).integers(0, 256, layout.nbytes, dtype=np.uint8)
    with pytest.raises(TierError) as caught:
        narrow.encode(memoryview(noise), layout)
    assert caught.value.kind == "codec"
    assert caught.value.numbers["room"] == layout.nbytes * 3 // 4


@pytest.mark.parametrize("codec", ALL, ids=str)
def test_a_damaged_payload_is_refused_or_decoded_and_nothing_else(codec: Codec) -> None:
    payload = bytes(codec.encode(memoryview(block(SMALL, 1)), SMALL))
    rng = np.random.default_rng(2)
    for _ in range(300):
        changed = bytearray(payload)
        for at in rng.integers(0, len(changed), rng.integers(1, 6)):
            changed[at] = rng.integers(0, 256)
        _decode(codec, bytes(changed[: rng.integers(0, len(changed) + 1)] if rng.random() < 0.3 else changed))


@settings(deadline=None)
@given(st.sampled_from(ALL), st.binary(max_size=700))
def test_any_payload_is_refused_or_decoded_and_nothing_else(codec: Codec, data: bytes) -> None:
    _decode(codec, data)
    _decode(codec, data.ljust(codec.bound(SMALL), b"\0")[: codec.bound(SMALL)])


def test_a_payload_that_claims_to_be_huge_takes_no_memory() -> None:
    import tracemalloc

    zstandard = pytest.importorskip("zstandard")
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 26))
    unknown = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 26))
    for high in (bomb, unknown):
        tracemalloc.start()
        with pytest.raises(TierError):
            Zstd().decode(memoryview(bytes(SMALL.values) + high), SMALL, memoryview(bytearray(SMALL.nbytes)))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        tracemalloc.stop()


@pytest.mark.parametrize(("name", "package"), [("zstd", "zstandard"), ("fp8", "ml_dtypes")])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, name: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=package):
        CODECS[name]()


@pytest.mark.parametrize("made", [{"level": 0}, {"level": 20}, {"level": "1"}, {"room": 0}, {"room": 1.5}], ids=str)
def test_settings_of_zstd_are_checked(made: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Zstd(**made)  # type: ignore[arg-type]


def test_codecs_have_names_and_ids_of_their_own() -> None:
    assert sorted(codec.id for codec in CODECS.values()) == list(range(len(CODECS)))
    assert set(CODECS) == {"raw", "zstd", "int8", "int4", "fp8"}


def test_rounding_to_bf16_is_to_nearest_ties_to_even() -> None:
    layout = BlockLayout.of("bf16", 4, layers=1, heads=1, head_size=1)
    ties = np.array([1.00390625, 1.01171875, -1.00390625, 1.0039060, 1.0039066, 3.4e38, 0, 1], np.float32)
    got = floats(layout, from_values(layout, ties.reshape(layout.shape))).reshape(-1)
    assert got.tolist()[:5] == [1.0, 1.015625, -1.0, 1.0, 1.0078125]
    assert np.isfinite(got).all()


def _decode(codec: Codec, payload: bytes) -> None:
    out = bytearray(SMALL.nbytes)
    kind = "codec"
    try:
        codec.decode(memoryview(payload), SMALL, memoryview(out))
    except TierError as error:
        kind = error.kind
    assert kind == "codec"
