"""The device tier: blocks go in and come out as they were, wherever they lie; what does not fit is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")

from tenure import CapacityError, ConfigError, Layout
from tenure.tiers.device import DTYPES, DeviceArena, dtype_name, plain

LAYOUT = Layout(layers=3, heads=2, head_size=8)
SIZE = 4
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def arena(frames: int = 8, dtype: str = "fp32", device: str = "cpu") -> DeviceArena:
    made = DeviceArena(frames, LAYOUT, SIZE, dtype=dtype, device=device)
    made.tensor.zero_()
    return made


def memory(columns: int, dtype: str = "fp32", device: str = "cpu", seed: int = 0) -> torch.Tensor:
    """Working memory of one row, every element another number."""
    shape = (LAYOUT.layers, 2, LAYOUT.heads, columns, LAYOUT.head_size)
    found = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DTYPES[dtype])
    return found.to(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_was_scattered_is_gathered(dtype: str, device: str) -> None:
    tier = arena(dtype=dtype, device=device)
    source, target = memory(14, dtype, device), torch.zeros_like(memory(14, dtype, device))
    tier.scatter([5, 0, 3], plain(source), at=1)
    tier.gather([5, 0, 3], plain(target), at=1, tokens=10)
    assert torch.equal(target[:, :, :, 1:11], source[:, :, :, 1:11])
    assert not target[:, :, :, 0].any()
    assert not target[:, :, :, 11:].any()  # no more than was asked for
    tier.gather(np.array([3], np.int32), plain(target), at=0)
    assert torch.equal(target[:, :, :, :4], source[:, :, :, 9:13])


@pytest.mark.parametrize("device", DEVICES)
def test_a_block_is_contiguous_and_lies_where_its_frame_is(device: str) -> None:
    tier = arena(device=device)
    source = memory(SIZE, device=device)
    tier.scatter([2], plain(source))
    assert torch.equal(tier.tensor[2], source.to(device))
    assert tier.tensor[2].is_contiguous()
    assert not tier.tensor[[0, 1, 3, 4, 5, 6, 7]].any()
    assert tier.capacity_bytes == tier.frames * tier.block_bytes == tier.tensor.nbytes


@pytest.mark.parametrize("tokens", range(SIZE + 1))
def test_a_copy_takes_the_leading_tokens(tokens: int) -> None:
    tier = arena()
    tier.scatter([0], plain(memory(SIZE, seed=1)))
    tier.scatter([1], plain(memory(SIZE, seed=2)))
    before = tier.tensor[1].clone()
    tier.copy(0, 1, tokens)
    assert torch.equal(tier.tensor[1, :, :, :, :tokens], tier.tensor[0, :, :, :, :tokens])
    assert torch.equal(tier.tensor[1, :, :, :, tokens:], before[:, :, :, tokens:])


@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_are_the_block_and_can_be_written(dtype: str) -> None:
    tier = arena(dtype=dtype)
    tier.scatter([1], plain(memory(SIZE, dtype)))
    view = tier.bytes_of(1)
    assert (view.dtype, len(view)) == (np.uint8, tier.block_bytes)
    tier.bytes_of(6)[:] = view
    assert torch.equal(tier.tensor[6], tier.tensor[1])


@pytest.mark.parametrize("device", DEVICES)
def test_bytes_go_out_and_in_by_the_batch(device: str) -> None:
    frames = 40  # more than are staged at a time
    tier, other = arena(frames, "bf16", device), arena(frames, "bf16", device)
    for frame in range(frames):
        tier.scatter([frame], plain(memory(SIZE, "bf16", device, seed=frame)))
    order = list(range(frames))[::-1]
    buffers = [bytearray(tier.block_bytes) for _ in order]
    tier.read(order, buffers)
    other.write(order, buffers)
    assert torch.equal(other.tensor, tier.tensor)


def test_bytes_of_a_gpu_are_not_in_reach() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    with pytest.raises(ConfigError, match="read"):
        arena(device="cuda").bytes_of(0)


BAD_FRAMES = ([-1], [8], [0, 99], [0.5], [[0]], ["a"])


@pytest.mark.parametrize(("frames", "verb"), list(itertools.product(BAD_FRAMES, ["gather", "scatter"])))
def test_a_frame_that_is_none_is_refused_before_anything_is_copied(frames: list[object], verb: str) -> None:
    tier = arena()
    tier.tensor.fill_(1)
    target = torch.zeros_like(memory(12))
    with pytest.raises(ConfigError, match="0 to 7"):
        getattr(tier, verb)(frames, plain(target))
    assert (tier.tensor == 1).all()
    assert not target.any()


def test_bad_buffers_are_refused() -> None:
    tier = arena()
    good = bytearray(tier.block_bytes)
    for frames, buffers in (([0], []), ([0], [good[:-1]]), ([0, 1], [good]), ([0], ["text"]), ([0], [3])):
        with pytest.raises(ConfigError, match=str(tier.block_bytes)):
            tier.read(frames, buffers)
        with pytest.raises(ConfigError, match=str(tier.block_bytes)):
            tier.write(frames, buffers)
    with pytest.raises(ConfigError, match="read-only"):
        tier.read([0], [bytes(good)])
    for tokens in (-1, SIZE + 1, 1.5):
        with pytest.raises(ConfigError, match="tokens"):
            tier.copy(0, 1, tokens)


def test_memory_that_cannot_be_had_is_a_typed_error_with_the_bytes() -> None:
    with pytest.raises(CapacityError, match="bytes") as error:
        DeviceArena((1 << 31) - 1, Layout(layers=1000, heads=1000, head_size=1000), 1000)
    assert error.value.numbers["bytes"] == ((1 << 31) - 1) * 1000 * 2 * 1000 * 1000 * 1000 * 2


def test_settings_that_do_not_fit_are_refused() -> None:
    for settings in ({"frames": 0}, {"block_size": 0}, {"layout": "llama"}, {"dtype": "int8"}, {"dtype": torch.int8}):
        with pytest.raises(ConfigError):
            DeviceArena(**{"frames": 1, "layout": LAYOUT} | settings)
    assert dtype_name(torch.bfloat16) == dtype_name("bf16") == "bf16"
