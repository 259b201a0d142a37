"""Every way of generating, with the KV coming from below the device: the same answers as on transformers' own cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
transformers = pytest.importorskip("transformers", reason="needs tenure[model]")

from tenure import Identity
from tenure.engines.transformers import Engine, node_for
from tenure.node import Node
from tenure.tiers.device import DeviceArena

from .making import Served, cold_logits, left_padded, llama, prompts
from .recorded import empty_device
from .test_generate import MODES, ONE_ROW, same

SIZE = 4
ROOM = 1 << 20
TIERS = ("host", "host packed", "host by copies", "disk", "disk packed", "disk at once", "host and disk")
WHO = Identity("tiny", weights="digest")
Build = Callable[..., Served]


@pytest.fixture
def build(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """Puts a model on a node with these tiers; another call for the same disk is a restart."""
    made: list[Node] = []

    def make(tiers: str, model: Any = None) -> Served:
        while made:
            made.pop().close()
        if tiers == "host by copies":  # as on a GPU
            monkeypatch.setattr(DeviceArena, "views", lambda self, frames: None)
        codec = {"codec": "zstd"} if "packed" in tiers else {}
        small = 40 * 4096  # frames for a part of what is on disk
        asked: dict[str, Any] = {}
        if not tiers.startswith("disk"):
            asked |= {"host_bytes": small if "disk" in tiers else 4 * ROOM, "host": codec}
        if "disk" in tiers:
            on_disk = codec | {"deadline": None if "at once" in tiers else 60}
            asked |= {"disk": tmp_path / "store", "disk_bytes": 8 * ROOM, "on_disk": on_disk}
        kv = node_for(
            tiny if model is None else model,
            **asked,
            device_bytes=ROOM,
            block_size=SIZE,
            background=False,
            clock=lambda: 0.0,
        )
        made.append(kv)
        assert isinstance(kv.device, DeviceArena)
        kv.device.tensor.fill_(float("nan"))  # what nobody has written must not be read
        return Served(kv, kv.device, Engine(tiny if model is None else model, kv, who=WHO))

    yield make
    for node in made:
        node.close()
        node.check()


def from_below(one: Served, inputs: dict[str, Any], mode: dict[str, Any]) -> tuple[int, int]:
    """As `same`, with nothing on the device; returns how many tokens were hit, and how many blocks were brought up."""
    assert isinstance(one.kv, Node)
    empty_device(one.kv)
    one.arena.tensor.fill_(float("nan"))
    before = brought(one)
    return same(one, inputs, mode), brought(one) - before


def brought(one: Served) -> int:
    return sum(one.kv.tier_stats(tier).loaded for tier in one.kv.tiers[1:])


@pytest.mark.parametrize("tiers", TIERS)
@pytest.mark.parametrize("mode", MODES | ONE_ROW)
def test_one_prompt(build: Build, tiers: str, mode: str) -> None:
    one = build(tiers)
    for seed in range(3):
        length = 9 + 6 * seed
        inputs = {"input_ids": prompts(seed, 1, length)}
        assert same(one, inputs, (MODES | ONE_ROW)[mode]) == 0
        hit = length // SIZE
        assert from_below(one, inputs, (MODES | ONE_ROW)[mode]) == (hit * SIZE, hit)


@pytest.mark.parametrize("tiers", TIERS)
@pytest.mark.parametrize("mode", MODES)
def test_a_batch_of_prompts_of_different_lengths(build: Build, tiers: str, mode: str) -> None:
    one = build(tiers)
    rows = [prompts(row, 1, length)[0] for row, length in enumerate((19, 8, 29))]
    rows.append(torch.cat([rows[0][:13], rows[2][:5]]))  # shares its first blocks with another row
    assert same(one, left_padded(*rows), MODES[mode]) == 0
    assert from_below(one, left_padded(*rows), MODES[mode]) == (16 + 8 + 28 + 16, 4 + 2 + 7 + 1)


@pytest.mark.parametrize("tiers", TIERS)
def test_an_assistant_drafts(build: Build, tiers: str) -> None:
    one = build(tiers)
    for seed in range(3):
        inputs = {"input_ids": prompts(seed, 1, 14 + seed)}
        mode = {"assistant_model": llama(seed=5) if seed % 2 else llama()}  # mostly wrong; always right
        assert same(one, inputs, mode) == 0
        assert from_below(one, inputs, mode)[1] >= 3


@pytest.mark.parametrize("tiers", [tiers for tiers in TIERS if "disk" in tiers])
@pytest.mark.parametrize("mode", MODES)
def test_after_a_restart(build: Build, tiers: str, mode: str) -> None:
    inputs = left_padded(prompts(1, 1, 21)[0], prompts(2, 1, 10)[0])
    same(build(tiers), inputs, MODES[mode])
    assert same(again := build(tiers), inputs, MODES[mode]) == 20 + 8
    assert brought(again) == 7


@pytest.mark.parametrize("tiers", TIERS)
def test_turns_of_a_chat(build: Build, tiers: str) -> None:
    one = build(tiers)
    said = prompts(3, 1, 10)
    heard = 1
    for turn in range(5):
        inputs = {"input_ids": said}
        hit, blocks = from_below(one, inputs, {})
        assert (hit, blocks) == ((heard - 1) // SIZE * SIZE, (heard - 1) // SIZE)
        answer = one.model.generate(said, max_new_tokens=13, do_sample=False)
        heard = answer.shape[1]
        said = torch.cat([answer, prompts(50 + turn, 1, 5)], dim=1)


@pytest.mark.parametrize("tiers", TIERS)
def test_bf16_comes_back_bit_by_bit(build: Build, tiers: str) -> None:
    half = llama().to(torch.bfloat16)
    one = build(tiers, half)
    ids = prompts(1, 1, 27)
    with torch.no_grad():
        with one.engine.cache(ids[:, :24]) as cache:
            half(ids[:, :24], cache=cache)
        blocks = one.arena.tensor[one.kv.match(ids[0], one.engine.who).frames.tolist()].clone()
        one.kv.flush()
        if "disk" in tiers:
            one = build(tiers, half)
        else:
            empty_device(one.kv)
            one.arena.tensor.fill_(float("nan"))
        with one.engine.cache(ids) as cache:
            assert (cache.hit_tokens, brought(one)) == ([24], 6)
            found = half(ids[:, 24:], cache=cache).logits
        frames = one.kv.match(ids[0], one.engine.who).frames.tolist()
    assert torch.equal(one.arena.tensor[frames], blocks)
    assert torch.equal(found, cold_logits(half, ids, cut=24))


@pytest.mark.parametrize("tiers", ["host", "host packed"])
def test_other_bytes_are_noticed(build: Build, tiers: str) -> None:
    """The control: answers do depend on what lies below."""
    one = build(tiers)
    inputs = {"input_ids": prompts(1, 1, 21)}
    same(one, inputs, {})
    tier = one.kv.levels["host"].tier
    empty_device(one.kv)
    for frame in range(5):
        nothing = bytes(tier.block_bytes)
        assert tier.write([frame], [nothing], [tier._held[frame].record]) == [None]
    with pytest.raises(AssertionError):
        from_below(one, inputs, {})
