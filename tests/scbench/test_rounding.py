"""Rounding: KIVI against loops in plain numpy, the tiers' codecs against the codecs themselves; bytes as they would be packed."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
transformers = pytest.importorskip("transformers", reason="needs tenure[model]")

import numpy as np

from tenure import ConfigError
from tenure.scbench.attend import run
from tenure.scbench.kv import KV
from tenure.scbench.methods import METHODS, Rounding
from tenure.scbench.methods.codec import TierCodec
from tenure.scbench.methods.kivi import Kivi
from tenure.scbench.reading import prefill
from tenure.tiers.layout import BlockLayout
from tenure.tiers.quantised import Int4

from .making import CLOSE, SIZE, TOKENS, asked, ids

ROUNDING = sorted(name for name, method in METHODS.items() if isinstance(method, Rounding))


def drawn(tokens: int = 75, heads: int = 2, size: int = 64, dtype: Any = torch.float32, seed: int = 0) -> KV:
    """Two layers of normal values, some channels larger."""
    generator = torch.Generator().manual_seed(seed)
    parts = [torch.randn((heads, tokens, size), generator=generator) * (1 + torch.arange(size) % 5) for _ in range(4)]
    return KV.of([part.to(dtype) for part in parts[:2]], [part.to(dtype) for part in parts[2:]], 16)


def rounded_by_loops(values: Any, bits: int) -> Any:
    lowest, step = np.float32(values.min()), np.float32((values.max() - values.min()) / np.float32(2**bits - 1))
    numbers = [min(2**bits - 1, max(0, round(float((value - lowest) / step)))) if step else 0 for value in values]
    return np.array([number * step + lowest for number in numbers], np.float32)


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_kivi_is_that_of_plain_loops(bits: int) -> None:
    kv = drawn()
    found = Kivi(bits, group=32, residual=32).transform(kv)
    for layer in range(2):
        keys, values = kv.keys[layer].numpy().copy(), kv.values[layer].numpy().copy()
        for head in range(2):
            for channel in range(64):
                keys[head, :32, channel] = rounded_by_loops(keys[head, :32, channel], bits)
            for token in range(32):
                for start in (0, 32):
                    part = values[head, token, start : start + 32]
                    values[head, token, start : start + 32] = rounded_by_loops(part, bits)
        assert abs(found.keys[layer].numpy() - keys).max() < CLOSE
        assert abs(found.values[layer].numpy() - values).max() < CLOSE
        assert torch.equal(found.keys[layer][:, 32:], kv.keys[layer][:, 32:])
        assert not torch.equal(found.keys[layer][:, :32], kv.keys[layer][:, :32])
    groups = 2 * 2 * 2 * 64  # layers, keys and values, heads; as many groups in 32 tokens of either
    assert found.stored == 2 * 2 * 2 * 32 * 64 * bits // 8 + groups * 8 + 43 * kv.token_bytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_more_bits_are_closer_and_take_more(dtype: Any) -> None:
    kv = drawn(256, dtype=dtype)
    found = [Kivi(bits).transform(kv) for bits in (8, 4, 2)]
    errors = [max(float((a.float() - b.float()).abs().max()) for a, b in zip(one.keys, kv.keys, strict=True)) for one in found]
    assert errors[0] < errors[1] / 4 < errors[2] / 8
    assert found[0].resident > found[1].resident > found[2].resident
    assert found[0].keys[0].dtype == dtype
    if dtype == torch.bfloat16:  # a scale and a lowest value of two bytes each to 32 values: one bit more a value
        packed, left = 224 / 256, 32 / 256
        assert [one.resident / kv.full for one in found] == pytest.approx([packed * bits / 16 + left for bits in (9, 5, 3)])


def test_equal_values_and_short_contexts_are_left_exactly() -> None:
    kv = drawn(40)
    assert Kivi(2).transform(kv).resident == kv.full
    flat = KV.of([torch.full((2, 75, 64), 1.5)], [torch.full((2, 75, 64), -2.5)], 16)
    assert torch.equal(Kivi(2).transform(flat).keys[0], flat.keys[0])


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", [name for name in ROUNDING if name.startswith("codec")])
def test_a_tiers_codec_gives_what_the_tier_would(name: str, dtype: str) -> None:
    pytest.importorskip("ml_dtypes")
    kv = drawn(75, dtype={"fp32": torch.float32, "bf16": torch.bfloat16}[dtype])
    method: Any = METHODS[name]
    found, codec, layout = method.transform(kv), method._make(), BlockLayout.of(dtype, 16, 2, 2, 64)
    for block in range(4):
        cut = slice(16 * block, 16 * block + 16)
        both = torch.stack([torch.stack([kv.keys[layer][:, cut], kv.values[layer][:, cut]]) for layer in range(2)])
        out = bytearray(layout.nbytes)
        payload = codec.encode(memoryview(both.view(torch.uint8).numpy().tobytes()), layout)
        codec.decode(memoryview(payload), layout, memoryview(out))
        wanted = torch.frombuffer(out, dtype=both.dtype).view(both.shape)
        for layer in range(2):
            assert torch.equal(found.keys[layer][:, cut], wanted[layer, 0])
            assert torch.equal(found.values[layer][:, cut], wanted[layer, 1])
    assert torch.equal(found.keys[1][:, 64:], kv.keys[1][:, 64:])
    assert found.stored == 4 * codec.bound(layout) + 11 * kv.token_bytes


def test_a_block_that_the_codec_refuses_stays_as_it_is() -> None:
    kv = drawn(48)
    kv.keys[1][0, 20, 3] = torch.inf
    found = TierCodec("codec-int4", Int4).transform(kv)
    assert torch.equal(found.keys[0][:, 16:32], kv.keys[0][:, 16:32])
    assert not torch.equal(found.keys[0][:, :16], kv.keys[0][:, :16])
    assert found.stored == 2 * Int4().bound(BlockLayout.of("fp32", 16, 2, 2, 64)) + 16 * kv.token_bytes


def test_a_codec_refuses_what_no_tier_holds() -> None:
    method = TierCodec("codec-int4", Int4)
    with pytest.raises(ConfigError, match="fp64"):
        method.transform(drawn(dtype=torch.float64))
    kv = drawn(64)
    with pytest.raises(ConfigError, match="thinned"):
        method.transform(kv.take([torch.tensor([[True, False, True, True]] * 2)] * 2))


@pytest.mark.parametrize("name", ROUNDING)
def test_rounded_kv_is_read_as_it_was_rounded(tiny: Any, name: str) -> None:
    """The answer is that of the rounded tensors; no prefix of them counts as exact; the dense answer is another."""
    pytest.importorskip("ml_dtypes")
    context, found = asked(tiny, METHODS[name], 0.5, ids(1, TOKENS + 20), ids(2, 5))
    plain = KV.of(context.kv.keys, context.kv.values, SIZE)
    assert torch.equal(run(tiny, ids(2, 5), plain).logits, found)
    assert context.kv.exact == 0
    assert context.kv.resident < context.kv.full
    dense = asked(tiny, METHODS["dense"], 1.0, ids(1, TOKENS + 20), ids(2, 5))[1]
    assert not torch.equal(dense, found)
    if "int8" in name or "fp8" in name:
        assert (dense - found).abs().max() < (dense - dense.mean()).abs().max() / 2
    whole = prefill(tiny, ids(1, TOKENS + 20), METHODS[name], 1.0, SIZE)
    assert torch.equal(whole.kv.keys[0], context.kv.keys[0])  # of one size, whatever the budget
