"""R7: tenants: isolation and quota."""

from __future__ import annotations

import random

import pytest
from conftest import Build
from helpers import admit, hit_blocks, prompt, put, resident, victims

from tenure import Identity, Quota, Reason
from tenure.errors import CapacityError, ConfigError, QuotaError

# -- R7.1


def test_r7_1_a_tenants_kv_is_never_hit_by_another(build: Build, who: Identity, other: Identity) -> None:
    kv = build(8)
    put(kv, who, 1, 2)
    assert put(kv, other, 1, 2) == 0
    assert kv.counts().cached == 4
    assert put(kv, who, 1, 2) == put(kv, other, 1, 2) == 8


@pytest.mark.parametrize(
    "field",
    [
        {"model": "m2"},
        {"weights": "w2"},
        {"adapter": "lora"},
        {"tokenizer": "t2"},
        {"kv_dtype": "fp8"},
        {"quantisation": "int4"},
        {"attention": "window"},
        {"epoch": 1},
    ],
    ids=lambda f: next(iter(f)),
)
def test_r7_1_nor_is_kv_of_another_kind(build: Build, who: Identity, field: dict[str, object]) -> None:
    kv = build(8)
    put(kv, who, 1, 2)
    elsewhere = who.with_(**field)
    found = kv.match(prompt(1, 2), elsewhere)
    assert (found.hit_tokens, found.why.reason) == (0, Reason.FOREIGN)
    assert found.why.differs == tuple(field)
    assert put(kv, elsewhere, 1, 2) == 0


def test_r7_1_eviction_order_is_kept_per_tenant(build: Build, who: Identity, other: Identity) -> None:
    kv = build(8, policy="lru")
    for name in (1, 2, 3):
        put(kv, who, name)
        put(kv, other, 10 - name)
    put(kv, who, 1)
    assert victims(kv, who) == [2, 3, 1]
    assert victims(kv, other) == [9, 8, 7]


def test_r7_1_what_is_public_is_shared_and_charged_to_the_public_account(build: Build, who: Identity) -> None:
    kv = build(8)
    put(kv, who.with_(public=True), 1)
    assert put(kv, who.with_(public=True, tenant="umbrella"), 1) == 4
    assert hit_blocks(kv, who, 1) == 0
    assert kv.stats()["public"].used == 1


# -- R7.3


def test_r7_3_no_tenant_can_exhaust_the_pool(build: Build, who: Identity, other: Identity) -> None:
    kv = build(10)
    kv.tenants["acme"] = Quota(cap=0.6)
    running = [admit(kv, who, name) for name in range(6)]
    with pytest.raises(QuotaError):
        admit(kv, who, 6)
    running += [admit(kv, other, name) for name in range(4)]
    with pytest.raises(CapacityError):
        admit(kv, other, 4)
    for seq in running:
        seq.release()


def test_r7_3_a_floor_can_be_had_at_any_time(build: Build, who: Identity, other: Identity) -> None:
    kv = build(10)
    kv.tenants["umbrella"] = Quota(floor=0.4)
    running = [admit(kv, who, name) for name in range(6)]
    with pytest.raises(CapacityError):
        admit(kv, who, 6)
    running.append(admit(kv, other, 1, 2, 3, 4))
    for seq in running:
        seq.release()


def test_r7_3_nobody_is_evicted_below_its_floor_by_another(build: Build, who: Identity, other: Identity) -> None:
    kv = build(10)
    kv.tenants["umbrella"] = Quota(floor=0.3)
    kv.tenants["acme"] = Quota(weight=100)
    for name in range(1, 6):
        put(kv, other, name)
    for name in range(100, 150):
        put(kv, who, name)
    assert kv.stats()["umbrella"].used == 3
    assert kv.stats()["umbrella"].evicted_by_others == 2


def test_r7_3_a_tenant_may_evict_its_own_below_its_floor(build: Build, who: Identity, other: Identity) -> None:
    kv = build(4)
    kv.tenants["acme"] = Quota(floor=0.5, cap=0.5)
    put(kv, other, 1, 2)
    for name in range(10):
        put(kv, who, name)
    assert resident(kv) == {1, 2, 8, 9}


def test_r7_3_the_tenant_furthest_above_its_fair_share_gives(build: Build, who: Identity, other: Identity) -> None:
    kv = build(9)
    third = who.with_(tenant="third")
    for name in (1, 2, 3, 4, 5):
        put(kv, other, name)
    for name in (1, 2, 3, 4):
        put(kv, who, name)
    put(kv, third, 1)  # fair is 3 each: umbrella has 5, acme 4
    assert kv.stats()["umbrella"].used == 4
    put(kv, third, 2)  # a tie: the one that came first gives
    assert (kv.stats()["umbrella"].used, kv.stats()["acme"].used) == (3, 4)
    put(kv, third, 3)
    assert (kv.stats()["umbrella"].used, kv.stats()["acme"].used) == (3, 3)


def test_r7_3_weights_say_what_is_fair(build: Build, who: Identity, other: Identity) -> None:
    kv = build(12)
    kv.tenants["acme"] = Quota(weight=3)
    kv.tenants["umbrella"] = Quota(weight=1)
    rng = random.Random(5)
    for _ in range(300):
        put(kv, rng.choice([who, other]), rng.randrange(10_000))
    put(kv, who, 20_000)  # the asker's share is filled last
    assert (kv.stats()["acme"].used, kv.stats()["umbrella"].used) == (9, 3)


def test_r7_3_quotas_are_independent(build: Build, who: Identity, other: Identity) -> None:
    kv = build(10)
    kv.tenants["acme"] = Quota(floor=0.2, cap=0.5)
    kv.tenants["umbrella"] = Quota(floor=0.3, cap=0.6)
    rng = random.Random(6)
    for _ in range(300):
        put(kv, rng.choice([who, other]), rng.randrange(10_000))
        stats = kv.stats()
        assert stats["acme"].used <= 5
        assert stats["umbrella"].used <= 6
    assert kv.tenants["acme"] == Quota(floor=0.2, cap=0.5)
    assert kv.tenants["nobody"] == Quota()


@pytest.mark.parametrize("fraction", [0.07, 0.29, 0.57, 0.58, 1 / 3])
def test_r7_3_a_fraction_of_the_frames_is_rounded_down_and_no_further(build: Build, who: Identity, fraction: float) -> None:
    kv = build(100)
    kv.tenants["acme"] = Quota(floor=fraction, cap=fraction, pins=fraction)
    stats = kv.tenants.stats("acme")
    assert stats.floor == stats.cap == int(round(fraction * 100, 6))


def test_r7_3_lowering_a_cap_takes_effect_at_the_tenants_next_request(build: Build, who: Identity) -> None:
    kv = build(10)
    for name in range(8):
        put(kv, who, name)
    kv.tenants["acme"] = Quota(cap=0.4)
    assert kv.stats()["acme"].used == 8
    put(kv, who, 20)
    assert kv.stats()["acme"].used == 4
    assert 20 in resident(kv)


def test_r7_3_a_floor_that_others_use_just_now_cannot_be_promised(build: Build, who: Identity) -> None:
    kv = build(10)
    seq = admit(kv, who, *range(8))
    with pytest.raises(QuotaError) as caught:
        kv.tenants["umbrella"] = Quota(floor=0.5)
    assert caught.value.numbers == {"floor": 5, "short": 3}
    seq.release()
    kv.tenants["umbrella"] = Quota(floor=0.5)


def test_r7_3_floors_add_up_to_at_most_one(build: Build) -> None:
    kv = build(10)
    kv.tenants["acme"] = Quota(floor=0.6)
    with pytest.raises(ConfigError) as caught:
        kv.tenants["umbrella"] = Quota(floor=0.5)
    assert caught.value.numbers == {"floors": 1.1}
    kv.tenants["umbrella"] = Quota(floor=0.4)


def test_r7_3_a_shared_fair_share_never_starves_the_asker(build: Build, who: Identity, other: Identity) -> None:
    kv = build(4)
    kv.tenants["umbrella"] = Quota(floor=1.0)
    with pytest.raises(CapacityError):
        admit(kv, who, 1)
    put(kv, other, 1, 2, 3, 4)
    kv.tenants["umbrella"] = Quota(floor=0.5)
    put(kv, who, 1)
    assert kv.stats()["umbrella"].used == 3
