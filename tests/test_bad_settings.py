"""Bad settings, quotas, policies and clocks: a typed error that carries the figures, and nothing has changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import Build
from helpers import Clock, admit, hit_blocks, prompt, unchanged
from world import World

from tenure import BlockManager, Identity, PrefillCost, Quota
from tenure.errors import ConfigError, IdentityError, PolicyError

# -- settings


@pytest.mark.parametrize(
    "settings",
    [
        {"frames": 0},
        {"frames": -1},
        {"frames": 1 << 31},
        {"frames": 1 << 70},
        {"frames": 4.0},
        {"frames": "4"},
        {"frames": True},
        {"block_size": 0},
        {"block_size": 65536},
        {"block_size": None},
        {"seed": -1},
        {"seed": 1 << 64},
        {"pin_budget": -0.1},
        {"pin_budget": 1.1},
        {"pin_budget": math.nan},
        {"pin_budget": "half"},
        {"partial_reuse": -1},
        {"partial_reuse": 5},
        {"on_duplicate": "drop"},
        {"events": -1},
        {"evict_batch": 0},
        {"evict_batch": 17},
        {"policy": "best"},
        {"policy": ""},
        {"params": {"size": 1}},
        {"params": {"newest_first": 2}},
        {"params": {"newest_first": math.nan}},
        {"params": {"newest_first": "yes"}},
        {"policy": "cost", "params": {"horizon": 0}},
        {"policy": "cost", "params": {"horizon": math.inf}},
        {"block_tokens": -1},
        {"block_tokens": math.nan},
        {"block_tokens": "x"},
    ],
    ids=str,
)
def test_bad_settings_of_a_manager(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        BlockManager(**{"frames": 16, "block_size": 4} | settings)


@pytest.mark.parametrize("numbers", [{"parameters": 0}, {"parameters": -1}, {"layers": -1}, {"hidden": math.nan}])
def test_a_price_of_prefill_that_is_none(numbers: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        BlockManager(16, 4, policy="gdsf", prefill=PrefillCost(**numbers))


@pytest.mark.parametrize("policy", ["best", "", "LRU", "optimum "])
def test_an_unknown_policy_names_those_there_are(world: World, policy: str) -> None:
    with unchanged(world.kv), pytest.raises(ConfigError, match="lru, lfu, fifo"):
        world.kv.set_policy(policy)


@pytest.mark.parametrize(
    ("params", "numbers"),
    [
        ({"newest_first": 1.5}, {"value": 1.5, "least": 0, "most": 1}),
        ({"newest_first": -1}, {"value": -1, "least": 0, "most": 1}),
        ({"newest_first": math.nan}, {}),
        ({"newest_first": math.inf}, {}),
        ({"newest_first": "1"}, {}),
        ({"newest_first": None}, {}),
        ({"newest_first": [1]}, {}),
        ({"newest_first": 10**400}, {}),
        ({"newest_first": np.array([0.5, 1])}, {}),
        ({"oldest_first": 1}, {}),
        ({"newest_first": 1, "oldest_first": 1}, {}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_parameters(world: World, params: dict[str, Any], numbers: dict[str, float]) -> None:
    for call in (world.kv.set_params, lambda **p: world.kv.set_policy("lru", **p)):
        with unchanged(world.kv), pytest.raises(ConfigError) as caught:
            call(**params)
        assert caught.value.numbers.items() >= numbers.items()


@pytest.mark.parametrize(
    "quota",
    [
        {"floor": -0.1},
        {"floor": 1.1},
        {"cap": math.nan},
        {"cap": "all"},
        {"pins": 2},
        {"weight": 0},
        {"weight": -1},
        {"weight": math.inf},
        {"weight": math.nan},
        {"floor": True},
        {"floor": 0.5, "cap": 0.4},
    ],
    ids=str,
)
def test_bad_quotas(quota: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Quota(**quota)


def test_floors_that_add_up_to_more_than_one(world: World) -> None:
    with unchanged(world.kv), pytest.raises(ConfigError) as caught:
        world.kv.tenants["umbrella"] = Quota(floor=0.8)
    assert caught.value.numbers["floors"] == pytest.approx(1.05)


def test_a_floor_above_its_cap_says_both() -> None:
    with pytest.raises(ConfigError) as caught:
        Quota(floor=0.5, cap=0.4)
    assert caught.value.numbers == {"floor": 0.5, "cap": 0.4}


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_tenant_has_a_name(world: World, name: Any) -> None:
    with unchanged(world.kv), pytest.raises(ConfigError):
        world.kv.tenants[name] = Quota()


def test_a_tenant_is_given_a_quota_and_asked_for_by_name(world: World) -> None:
    with unchanged(world.kv):
        with pytest.raises(ConfigError):
            world.kv.tenants["acme"] = 0.5  # type: ignore[assignment]
        with pytest.raises(ConfigError, match="umbrella"):
            world.kv.tenants.stats("nobody")
        with pytest.raises(ConfigError):
            world.kv.victims("nobody")


@pytest.mark.parametrize("frame", [-1, 16, 1 << 40, "0", None, 1.0])
def test_a_frame_that_does_not_exist(world: World, frame: Any) -> None:
    with pytest.raises(ConfigError):
        world.kv.block(frame)


@pytest.mark.parametrize("fields", [{}, {"weight": "w"}, {"namespace": b""}, {"model": "m", "name": "x"}])
def test_invalidation_by_fields_that_do_not_exist(world: World, fields: dict[str, Any]) -> None:
    with unchanged(world.kv), pytest.raises(IdentityError):
        world.kv.invalidate(**fields)


def test_invalidation_of_what_is_not_there(world: World) -> None:
    with unchanged(world.kv):
        assert world.kv.invalidate(model="another") == 0


def test_events_since_the_future_are_none(world: World) -> None:
    assert world.kv.events(1 << 40) == []


# -- the clock


@pytest.mark.parametrize("reading", [math.nan, "now", None])
def test_a_clock_that_gives_no_time(world: World, clock: Clock, reading: Any) -> None:
    kv, who = world.kv, world.who
    calls: list[Callable[[], object]] = [
        lambda: kv.sequence(prompt(1, 9), who),
        lambda: kv.match(prompt(1), who),
        lambda: kv.pin(prompt(1), who, owner="o"),
        lambda: kv.lookup(prompt(1), who, owner="o", ttl=1),
        lambda: kv.release_lease(world.lease.id),
        lambda: world.seq.append([1]),
        lambda: world.seq.seal(),
        lambda: world.seq.fork(),
        lambda: world.seq.truncate(1),
        lambda: world.seq.release(),
        lambda: world.child.copied(),
        lambda: kv.set_policy("lfu"),
        lambda: kv.set_params(newest_first=1),
        lambda: kv.invalidate(model=who.model),
        lambda: kv.sweep(),
        lambda: kv.clear(),
    ]
    good = clock.now
    for call in calls:
        with unchanged(kv):
            clock.now = reading
            try:
                with pytest.raises(ConfigError if reading is math.nan else (ConfigError, TypeError)):
                    call()
            finally:
                clock.now = good
    world.seq.release()


def test_a_clock_that_raises_does_so_before_anything_changes(build: Build, who: Identity) -> None:
    def clock() -> float:
        if broken:
            raise OSError("no clock")
        return 0.0

    broken = False
    kv = BlockManager(8, 4, clock=clock)
    seq = admit(kv, who, 1, 2)
    broken = True
    for call in (lambda: admit(kv, who, 3), seq.release, lambda: seq.append([1]), kv.clear):
        before = (kv.counts(), list(kv.blocks()), kv.totals())
        with pytest.raises(OSError, match="no clock"):
            call()
        assert (kv.counts(), list(kv.blocks()), kv.totals()) == before
    broken = False
    seq.release()
    assert hit_blocks(kv, who, 1, 2) == 2


# -- a user's policy that cannot be one


@pytest.mark.parametrize("policy", [object(), 5, None, b"lru", ["lru"], type("NoMethod", (), {"priority": 3})()])
def test_a_policy_without_a_priority_is_refused(world: World, policy: Any) -> None:
    with unchanged(world.kv), pytest.raises(PolicyError, match="priority"):
        world.kv.set_policy(policy)
    with pytest.raises(PolicyError):
        BlockManager(4, 4, policy=policy)


def test_a_users_policy_has_no_parameters(world: World) -> None:
    class Mine:
        def priority(self, block: object) -> float:
            return 0

    with unchanged(world.kv), pytest.raises(ConfigError, match="none"):
        world.kv.set_policy(Mine(), size=1)
