"""Bad requests, handles and leases: a typed error that carries the figures, and nothing has changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from helpers import prompt, put, unchanged
from world import World

from tenure import PriorityRange, Quota, Retention
from tenure.errors import (
    BudgetError,
    ConfigError,
    ForeignHandleError,
    IdentityError,
    StaleHandleError,
    TenureError,
    TokenError,
)

# -- what goes with a request


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"priority": -1}, ConfigError),
        ({"priority": 101}, ConfigError),
        ({"priority": 1.5}, ConfigError),
        ({"priority": "high"}, ConfigError),
        ({"priority": True}, ConfigError),
        ({"protect_for": -1}, ConfigError),
        ({"protect_for": math.nan}, ConfigError),
        ({"protect_for": math.inf}, ConfigError),
        ({"protect_for": "long"}, ConfigError),
        ({"expire_after": -0.1}, ConfigError),
        ({"expire_after": True}, ConfigError),
        ({"expire_after": 10**400}, ConfigError),
        ({"anchor_for": 5}, ConfigError),
        ({"anchor_for": -5, "session": "u"}, ConfigError),
        ({"session": 5}, (TenureError, TypeError)),
        ({"max_hit": -1}, TenureError),
        ({"max_hit": 1 << 64}, TenureError),
        ({"max_hit": 2.0}, TenureError),
        ({"extra_keys": {3: b"x"}}, TokenError),
        ({"extra_keys": {1 << 31: b"x"}}, TokenError),
        ({"extra_keys": {1 << 40: b"x"}}, TenureError),
        ({"extra_keys": {-1: b"x"}}, TenureError),
        ({"extra_keys": {"0": b"x"}}, TenureError),
        ({"extra_keys": {0: b"x", "0": b"x"}}, TenureError),
        ({"extra_keys": {0: "text"}}, TenureError),
        ({"extra_keys": {0: None}}, TenureError),
        ({"extra_keys": [b"x"]}, TenureError),
        ({"extra_keys": 7}, TenureError),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_settings_of_a_request(world: World, settings: dict[str, Any], error: Any) -> None:
    with unchanged(world.kv), pytest.raises(error):
        world.kv.sequence(prompt(1, 2, 3), world.who, **settings)


def test_an_extra_key_beyond_the_prompt_says_where(world: World) -> None:
    with unchanged(world.kv), pytest.raises(TokenError) as caught:
        world.kv.sequence([*prompt(1), 5], world.who, extra_keys={0: b"a", 2: b"b"})
    assert caught.value.numbers == {"block": 2, "blocks": 2}
    for call in (world.kv.match, lambda *a, **k: world.kv.lookup(*a, owner="o", ttl=1, **k)):
        with unchanged(world.kv), pytest.raises(TokenError):
            call(prompt(1), world.who, extra_keys={1: b"b"})


@pytest.mark.parametrize(
    "make",
    [
        lambda: PriorityRange(start=-1),
        lambda: PriorityRange(start=4, end=4),
        lambda: PriorityRange(start=8, end=4),
        lambda: PriorityRange(start="a"),  # type: ignore[arg-type]
        lambda: PriorityRange(start=0.5),  # type: ignore[arg-type]
        lambda: PriorityRange(end="b"),  # type: ignore[arg-type]
        lambda: PriorityRange(priority=101),
        lambda: PriorityRange(duration=-1),
        lambda: PriorityRange(duration=math.nan),
        lambda: PriorityRange(start=1 << 70),
        lambda: Retention(decode_priority=-1),
        lambda: Retention(decode_duration=math.inf),
        lambda: Retention((5,)),  # type: ignore[arg-type]
        lambda: Retention(7),  # type: ignore[arg-type]
    ],
)
def test_bad_retention_is_refused_when_it_is_made(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError):
        make()


@pytest.mark.parametrize("nobody", [None, "acme", 5, object(), b"namespace"])
def test_who_must_be_an_identity(world: World, nobody: Any) -> None:
    for call in (
        lambda: world.kv.sequence(prompt(1), nobody),
        lambda: world.kv.match(prompt(1), nobody),
        lambda: world.kv.pin(prompt(1), nobody, owner="o"),
        lambda: world.kv.lookup(prompt(1), nobody, owner="o", ttl=1),
    ):
        with unchanged(world.kv), pytest.raises(IdentityError):
            call()


def test_a_refused_request_of_a_new_tenant_leaves_no_tenant_behind(world: World) -> None:
    new = world.who.with_(tenant="new")
    with unchanged(world.kv):
        with pytest.raises(TokenError):
            world.kv.sequence([-1], new)
        with pytest.raises(TokenError):
            world.kv.sequence([], new)
        with pytest.raises(ConfigError):
            world.kv.tenants["newer"] = Quota(floor=0.9)


# -- sequences


@pytest.mark.parametrize("length", [-1, 11, 1 << 31, 1 << 63, 1 << 64, 2.0, "2", None, True])
def test_bad_lengths(world: World, length: Any) -> None:
    with unchanged(world.kv), pytest.raises(TokenError):
        world.seq.truncate(length)
    if length is not None:  # seal(None) means all
        with unchanged(world.kv), pytest.raises(TokenError):
            world.seq.seal(length)


def test_stale_and_foreign_handles(world: World) -> None:
    kv = world.kv
    with unchanged(kv):
        with pytest.raises(StaleHandleError):
            kv.resume(world.done.handle)
        with pytest.raises(ForeignHandleError):
            kv.resume(world.elsewhere.handle)
        with pytest.raises(StaleHandleError):
            world.done.release()
        for attribute in ("block_table", "num_tokens", "written_tokens", "copies"):
            with pytest.raises(StaleHandleError):
                getattr(world.done, attribute)
    assert list(kv.resume(world.seq.handle).block_table) == list(world.seq.block_table)


@pytest.mark.parametrize("handle", [-1, 1 << 64, 1 << 200, "seq", None, 2.5])
def test_what_is_no_handle_at_all(world: World, handle: Any) -> None:
    error = StaleHandleError if isinstance(handle, int) else (StaleHandleError, TypeError)
    for call in (world.kv.resume, world.kv.release_lease):
        with unchanged(world.kv), pytest.raises(error):
            call(handle)


# -- leases


def test_a_pin_over_budget(world: World) -> None:
    kv = world.kv
    put(kv, world.who, 20, 21, 22)
    with unchanged(kv), pytest.raises(BudgetError) as caught:
        kv.pin(prompt(20, 21, 22), world.who, owner="o")
    assert caught.value.numbers == {"needed": 3, "pinned": 2, "budget": 4, "tenant_pinned": 2, "tenant_budget": 16}


@pytest.mark.parametrize("ttl", [-1, math.nan, math.inf, "1", True, None])
def test_bad_deadlines(world: World, ttl: Any) -> None:
    kv, who = world.kv, world.who
    with unchanged(kv):
        with pytest.raises(ConfigError):
            kv.lookup(prompt(1), who, owner="o", ttl=ttl)
        with pytest.raises(ConfigError):
            kv.protect(prompt(1), who, ttl=ttl)
        if ttl is not None:  # a pin without a deadline lasts
            with pytest.raises(ConfigError):
                kv.pin(prompt(1), who, owner="o", ttl=ttl)


@pytest.mark.parametrize("owner", [5, None, b"ops"])
def test_an_owner_has_a_name(world: World, owner: Any) -> None:
    with unchanged(world.kv), pytest.raises((TenureError, TypeError)):
        world.kv.pin(prompt(1), world.who, owner=owner)
