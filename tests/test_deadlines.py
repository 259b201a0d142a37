"""Deadlines that come to nothing do not pile up; clocks that tell no time are refused."""

from __future__ import annotations

import math

import pytest
from conftest import Build
from helpers import prompt, put

from tenure import BlockManager, ConfigError, Identity, PriorityRange, Retention


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_deadlines_of_blocks_and_leases_that_are_gone_are_forgotten(build: Build, who: Identity) -> None:
    kv = build(4, policy="priority", events=0)
    keep = Retention((PriorityRange(priority=80, duration=1e9),))

    def traffic(rounds: int) -> None:
        for number in range(rounds):
            put(kv, who, number % 7, priority=keep, expire_after=1e9, protect_for=1e9 if number % 2 else None)
            for lease in kv.leases():
                kv.release_lease(lease.id)

    traffic(20_000)
    before = resident()
    traffic(60_000)
    assert resident() - before < 1 << 20


@pytest.mark.parametrize("reading", [math.nan, math.inf])
def test_a_clock_that_tells_no_time_is_refused(who: Identity, reading: float) -> None:
    now = [0.0]
    kv = BlockManager(4, 4, clock=lambda: now[0])
    put(kv, who, 1)
    now[0] = reading
    with pytest.raises(ConfigError, match="the clock gave no time"):
        kv.sequence(prompt(1), who)
    now[0] = 1.0
    assert put(kv, who, 1) == 4


def test_what_a_match_finds_is_what_a_request_would_hit(who: Identity) -> None:
    kv = BlockManager.preset("vllm", 8, 4)
    kv.sequence(range(8), who, written=True).release()
    assert kv.match(range(8), who).hit_tokens == kv.sequence(range(8), who).hit_tokens == 4
    with kv.pin(range(8), who, owner="ops") as pin:
        assert pin.tokens == 8, "a pin covers all of it: a longer prompt will hit it"
