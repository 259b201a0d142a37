"""R4: finer control: protection and expiry, leases, pins, anchors."""

from __future__ import annotations

import pytest
from conftest import Build
from helpers import Clock, admit, hit_blocks, prompt, put, resident, victims

from tenure import BlockManager, Identity, Quota
from tenure.errors import BudgetError, CapacityError, QuotaError, StaleHandleError


def flood(kv: BlockManager, who: Identity, count: int = 20) -> None:
    """One-off requests that want every frame they can have."""
    for name in range(500, 500 + count):
        put(kv, who, name)


# -- R4.1: protected for a time


def test_r4_1_a_protected_prefix_survives_chance_traffic_for_its_time(build: Build, clock: Clock, who: Identity) -> None:
    kv = build(6)
    put(kv, who, 1, 2, protect_for=10)
    flood(kv, who)
    assert hit_blocks(kv, who, 1, 2) == 2
    clock.advance(10)
    flood(kv, who)
    assert hit_blocks(kv, who, 1, 2) == 0


def test_r4_1_what_is_cached_can_be_protected_later(build: Build, clock: Clock, who: Identity) -> None:
    kv = build(6)
    put(kv, who, 1, 2, 3)
    lease = kv.protect(prompt(1, 2), who, ttl=10)
    assert lease.tokens == 8
    flood(kv, who)
    assert hit_blocks(kv, who, 1, 2, 3) == 2
    clock.advance(10)
    assert kv.leases() == []
    flood(kv, who)
    assert hit_blocks(kv, who, 1) == 0


def test_r4_1_protection_over_budget_is_a_counted_refusal_and_the_release_still_happens(build: Build, who: Identity) -> None:
    kv = build(4, pin_budget=0.25)
    put(kv, who, 1, 2, protect_for=10)
    assert kv.totals()["refused_leases"] == 1
    assert kv.counts().cached == 2
    assert kv.leases() == []


# -- R4.1: gone by then


def test_r4_1_expired_content_is_unhittable_and_gone_from_its_deadline_on(build: Build, clock: Clock, who: Identity) -> None:
    kv = build(6)
    put(kv, who, 1, 2, expire_after=5)
    clock.advance(4.999)
    assert hit_blocks(kv, who, 1, 2) == 2
    clock.advance(0.001)
    assert hit_blocks(kv, who, 1, 2) == 0
    assert kv.counts().free == 6
    assert kv.stats()["acme"].expired == 2


def test_r4_1_what_lies_below_expired_content_goes_with_it(build: Build, clock: Clock, who: Identity) -> None:
    kv = build(6)
    put(kv, who, 1, expire_after=5)
    put(kv, who, 1, 2)
    clock.advance(5)
    assert hit_blocks(kv, who, 1, 2) == 0
    assert kv.counts().free == 6


def test_r4_1_the_deadline_is_of_what_the_request_computed_not_of_what_it_hit(build: Build, clock: Clock, who: Identity) -> None:
    kv = build(6)
    put(kv, who, 1)
    put(kv, who, 1, 2, expire_after=5)
    clock.advance(5)
    assert hit_blocks(kv, who, 1, 2) == 1


def test_r4_1_a_running_request_keeps_expired_blocks_until_it_releases_them(build: Build, clock: Clock, who: Identity) -> None:
    kv = build(6)
    put(kv, who, 1, expire_after=5)
    seq = admit(kv, who, 1, 2)
    clock.advance(5)
    assert hit_blocks(kv, who, 1) == 0
    assert kv.counts().sealed == 2
    seq.append([1, 2, 3, 4, 5])
    seq.release()
    assert kv.counts().free == 6


def test_r4_1_expiry_ends_the_pins_on_what_expires(build: Build, clock: Clock, who: Identity) -> None:
    kv = build(6)
    put(kv, who, 1, 2, expire_after=5)
    lease = kv.pin(prompt(1, 2), who, owner="ops")
    clock.advance(5)
    assert kv.sweep() == 2
    assert kv.leases() == []
    assert lease.release() is False


def test_r4_1_a_clock_that_steps_back_revives_nothing(build: Build, clock: Clock, who: Identity) -> None:
    kv = build(6)
    put(kv, who, 1, expire_after=5)
    clock.advance(5)
    kv.sweep()
    clock.advance(-4)
    assert hit_blocks(kv, who, 1) == 0
    put(kv, who, 2, expire_after=5)
    assert hit_blocks(kv, who, 2) == 1


# -- R4.2: capacity by quota


def test_r4_2_a_tenant_has_its_quota_and_no_more(build: Build, who: Identity, other: Identity) -> None:
    kv = build(10)
    kv.tenants["acme"] = Quota(cap=0.3)
    put(kv, other, 9)
    for name in range(1, 8):
        put(kv, who, name)
    assert kv.stats()["acme"].used == 3
    assert hit_blocks(kv, other, 9) == 1
    with pytest.raises(QuotaError) as caught:
        kv.sequence(prompt(1, 2, 3, 4), who)
    assert (caught.value.numbers["cap"], caught.value.numbers["short"]) == (3, 1)


def test_r4_2_a_lease_has_an_owner_and_a_deadline(build: Build, clock: Clock, who: Identity) -> None:
    kv = build(4)
    put(kv, who, 1)
    kv.lookup(prompt(1), who, owner="loader", ttl=3)
    assert [(lease.kind, lease.owner, lease.tenant, lease.blocks, lease.deadline) for lease in kv.leases()] == [
        ("lookup", "loader", "acme", 1, 3.0)
    ]
    clock.advance(3)
    assert kv.leases() == []


# -- R4.3


def test_r4_3_a_pinned_prefix_stays(build: Build, who: Identity) -> None:
    kv = build(6)
    put(kv, who, 1, 2, 3)
    lease = kv.pin(prompt(1, 2), who, owner="ops")
    assert lease.tokens == 8
    assert list(lease.frames) == [0, 1]
    flood(kv, who)
    assert hit_blocks(kv, who, 1, 2, 3) == 2
    assert kv.clear() == 4
    assert hit_blocks(kv, who, 1, 2) == 2
    assert lease.release() is True
    assert victims(kv, who) == [2]


def test_r4_3_a_pin_ends_by_itself_at_its_deadline(build: Build, clock: Clock, who: Identity) -> None:
    kv = build(6)
    put(kv, who, 1)
    lease = kv.pin(prompt(1), who, owner="ops", ttl=60)
    clock.advance(59)
    assert len(kv.leases()) == 1
    clock.advance(1)
    assert kv.leases() == []
    assert lease.release() is False
    with pytest.raises(StaleHandleError):
        lease.frames  # noqa: B018


def test_r4_3_pins_have_a_budget_in_distinct_frames(build: Build, who: Identity) -> None:
    kv = build(8, pin_budget=0.25)
    put(kv, who, 1, 2)
    put(kv, who, 1, 3)
    kv.pin(prompt(1, 2), who, owner="a")
    kv.pin(prompt(1, 2), who, owner="b")  # the same two frames
    with pytest.raises(BudgetError) as caught:
        kv.pin(prompt(1, 3), who, owner="c")
    assert caught.value.numbers == {"needed": 1, "pinned": 2, "budget": 2, "tenant_pinned": 2, "tenant_budget": 8}
    assert kv.totals() == {"pinned": 2, "refused_leases": 1, "events": kv.totals()["events"], "sequences": 0, "swapped": 0}


def test_r4_3_a_tenant_has_a_pin_budget_of_its_own(build: Build, who: Identity, other: Identity) -> None:
    kv = build(8, pin_budget=1.0)
    kv.tenants["acme"] = Quota(pins=0.125)
    put(kv, who, 1, 2)
    put(kv, other, 1, 2)
    with pytest.raises(BudgetError) as caught:
        kv.pin(prompt(1, 2), who, owner="ops")
    assert caught.value.numbers["tenant_budget"] == 1
    kv.pin(prompt(1, 2), other, owner="ops")


def test_r4_3_a_pin_cannot_take_what_is_promised_to_another(build: Build, who: Identity, other: Identity) -> None:
    kv = build(4, pin_budget=1.0)
    put(kv, who, 1, 2, 3)
    kv.tenants["umbrella"] = Quota(floor=0.5)
    with pytest.raises(CapacityError):
        kv.pin(prompt(1, 2, 3), who, owner="ops")
    kv.pin(prompt(1, 2), who, owner="ops")
    admit(kv, other, 1, 2).release()


def test_r4_3_a_pin_on_nothing_holds_nothing(build: Build, who: Identity) -> None:
    kv = build(4)
    with kv.pin(prompt(1), who, owner="ops") as lease:
        assert (lease.tokens, len(lease.frames)) == (0, 0)
        put(kv, who, 1)
        assert victims(kv, who) == [1]
    assert kv.leases() == []


# -- R4.4


def test_r4_4_an_anchor_keeps_a_sessions_newest_prefix_for_its_next_turn(build: Build, who: Identity) -> None:
    kv = build(8)
    put(kv, who, 1, 2, session="u42", anchor_for=60)
    flood(kv, who)
    assert put(kv, who, 1, 2, 3, session="u42", anchor_for=60) == 8
    flood(kv, who)
    assert hit_blocks(kv, who, 1, 2, 3) == 3
    assert [(lease.kind, lease.owner, lease.blocks) for lease in kv.leases()] == [("anchor", "u42", 3)]


def test_r4_4_an_anchor_moves_on_and_leaves_the_old_prefix(build: Build, who: Identity) -> None:
    kv = build(8)
    put(kv, who, 1, 2, session="u42", anchor_for=60)
    put(kv, who, 3, session="u42", anchor_for=60)
    flood(kv, who)
    assert (hit_blocks(kv, who, 1, 2), hit_blocks(kv, who, 3)) == (0, 1)


def test_r4_4_a_session_is_a_tenants_own(build: Build, who: Identity, other: Identity) -> None:
    kv = build(8)
    put(kv, who, 1, session="u42", anchor_for=60)
    put(kv, other, 2, session="u42", anchor_for=60)
    assert sorted((lease.tenant, lease.owner) for lease in kv.leases()) == [("acme", "u42"), ("umbrella", "u42")]


def test_r4_4_an_anchor_that_would_go_over_budget_leaves_the_old_one_in_place(build: Build, who: Identity) -> None:
    kv = build(8, pin_budget=0.25)
    put(kv, who, 1, 2, session="u42", anchor_for=60)
    put(kv, who, 1, 2, 3, session="u42", anchor_for=60)
    assert kv.totals()["refused_leases"] == 1
    flood(kv, who)
    assert hit_blocks(kv, who, 1, 2, 3) == 2


def test_r4_4_an_anchor_ends(build: Build, clock: Clock, who: Identity) -> None:
    kv = build(8)
    put(kv, who, 1, session="u42", anchor_for=60)
    clock.advance(60)
    flood(kv, who)
    assert 1 not in resident(kv)
    put(kv, who, 2, session="u42", anchor_for=60)
    assert [lease.owner for lease in kv.leases()] == ["u42"]


def test_r4_4_an_aborted_turn_moves_no_anchor(build: Build, who: Identity) -> None:
    kv = build(8)
    put(kv, who, 1, session="u42", anchor_for=60)
    admit(kv, who, 2, session="u42", anchor_for=60).abort()
    flood(kv, who)
    assert (hit_blocks(kv, who, 1), hit_blocks(kv, who, 2)) == (1, 0)
