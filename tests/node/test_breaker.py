"""A tier that fails for long is left alone and probed, one call at a time; the breaker by itself and under a node."""

from __future__ import annotations

import pytest

from tenure.breaker import Breaker
from tests.node.making import SIZE, WHO, prompt, serve, try_serve
from tests.node.moody import Moody, ends, filled, started


def test_calls_from_before_it_opened_say_nothing_new() -> None:
    now = [0.0]
    breaker = Breaker(lambda: now[0], failures=2, first=1.0, most=60.0)
    for _ in range(10):  # ten calls that were under way when the tier died
        breaker.failed()
    assert (breaker.state, breaker.opened) == ("open", 1)
    now[0] = 1.0
    assert breaker.allows()
    assert not breaker.allows()
    breaker.failed()
    now[0] = 2.9
    assert not breaker.allows()
    now[0] = 3.0
    assert breaker.allows()
    breaker.succeeded()
    assert breaker.state == "closed"


@pytest.mark.parametrize("call", ["read", "write"])
def test_a_tier_that_raises_is_given_up_and_probed_like_one_that_fails(call: str) -> None:
    now = [0.0]
    tier = Moody()
    kv = filled(tier, now, failures=2)
    tier.raises = True
    for which in range(5, 8):
        if call == "read":
            kv.sequence(prompt(0, 4), WHO).abort()
        else:
            serve(kv, prompt(which, 1))
            kv.flush()
    assert kv.lane_stats("moody").breaker == "open"
    now[0] += 1.5
    if call == "read":
        kv.sequence(prompt(0, 4), WHO).abort()
    else:
        serve(kv, prompt(8, 1))
        kv.flush()
    assert kv.lane_stats("moody").breaker == "open"  # the probe is over
    tier.raises = False
    now[0] += 10
    serve(kv, prompt(9, 1))
    kv.flush()
    assert kv.lane_stats("moody").breaker == "closed"
    kv.check()


def test_one_probe_at_a_time_and_others_go_on_without_the_tier() -> None:
    now = [0.0]
    tier = Moody()
    kv = filled(tier, now, frames=24, failures=1, deadline=30)
    tier.fails = "closed"  # fails, and loses nothing
    kv.sequence(prompt(0, 4), WHO).abort()
    assert kv.lane_stats("moody").breaker == "open"
    tier.fails = ""
    now[0] += 2
    tier.gate.clear()
    tier.asked.clear()
    hits: list[int] = []
    probe = started(lambda: hits.append(serve(kv, prompt(0, 4))))
    assert tier.asked.wait(60)
    assert kv.lane_stats("moody").breaker == "half-open"
    assert try_serve(kv, prompt(9, 2)) == 0
    assert kv.flush() == 0
    tier.gate.set()
    assert ends(probe)
    assert hits == [4 * SIZE]
    assert kv.lane_stats("moody").breaker == "closed"
    kv.check()


def test_a_full_disk_does_not_stop_reads() -> None:
    tier = Moody()
    kv = filled(tier, failures=2)
    tier.fails = "full"
    for which in range(10, 16):
        serve(kv, prompt(which, 1))
        kv.flush()
    tier.fails = ""
    assert kv.lane_stats("moody").breaker == "closed"
    assert kv.lane_stats("moody").refused["full"] >= 6
    assert serve(kv, prompt(0, 4)) == 4 * SIZE
