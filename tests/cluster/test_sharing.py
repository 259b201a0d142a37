"""Nodes on one pool: what one has computed the others hit; what none may hit any more nobody does."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tenure import ConfigError, Identity, IdentityError
from tenure.errors import TierError
from tenure.node import Level, Node
from tests.cluster.making import SIZE, WHO, Clock, node, serve, with_host
from tests.cluster.memory import MemoryPool, Server
from tests.node.making import LAYOUT, ArrayDevice, WrongBytesError, disk, prompt

LONG = prompt(0, 6)


def two(clock: Clock, server: Server, **settings: Any) -> tuple[Any, Any]:
    return with_host(server, clock, **settings), with_host(server, clock, **settings)


def both_have(a: Node, b: Node) -> None:
    """One node has computed a prompt, the other has found it in the pool."""
    serve(a, LONG)
    a.flush()
    assert serve(b, LONG) == len(LONG)


def test_what_one_node_computed_another_hits() -> None:
    clock, server = Clock(), Server()
    a, b = two(clock, server)
    with a, b:
        assert serve(a, LONG) == 0
        assert serve(b, LONG) == 0  # not written down yet
        a.flush()
        b.clear()
        assert serve(b, LONG) == len(LONG)
        assert b.tier_stats("pool").loaded == len(LONG) // SIZE
        assert serve(b, [*LONG, 9, 9, 9, 9]) == len(LONG)  # from its device
        assert serve(b, [*LONG[:8], 7, 7, 7, 7]) == 8
        a.check()
        b.check()


def test_a_block_that_another_node_wrote_is_not_written_again() -> None:
    clock, server = Clock(), Server()
    a, b = two(clock, server)
    with a, b:
        serve(a, LONG)
        serve(b, LONG)
        a.flush()
        b.flush()
        assert b.levels["pool"].tier.claims.already == len(LONG) // SIZE
        assert len(server.bytes) == len(LONG) // SIZE
        assert serve(b, LONG) == len(LONG)


def test_a_look_up_costs_one_trip_and_a_full_local_hit_none() -> None:
    clock, server = Clock(), Server()
    a, b = two(clock, server)
    with a, b:
        serve(a, LONG)
        before = server.asked
        serve(a, prompt(5, 6))
        assert server.asked == before + 1
        serve(a, LONG)
        assert server.asked == before + 1


def test_other_tenants_and_other_weights_find_nothing() -> None:
    clock, server = Clock(), Server()
    a, b = two(clock, server)
    with a, b:
        serve(a, LONG)
        a.flush()
        assert serve(b, LONG, WHO.with_(tenant="b")) == 0
        assert serve(b, LONG, WHO.with_(weights="w2")) == 0
        assert serve(b, LONG) == len(LONG)


@pytest.mark.parametrize(
    "fields",
    [{"weights": "w1"}, {"tenant": "a"}, {"model": "m"}, {"weights": "w1", "tenant": "a"}, {"kv_dtype": "bf16"}],
)
def test_an_epoch_ends_what_was_there_on_every_node(fields: dict[str, Any]) -> None:
    clock, server = Clock(), Server()
    a, b = two(clock, server)
    with a, b:
        both_have(a, b)
        assert a.invalidate(**fields) == 1
        assert serve(a, LONG, label="new") == 0
        a.flush()
        assert serve(b, prompt(7, 2), label="new") == 0  # it asks the pool for this, and so hears of it
        assert serve(b, LONG, label="new") == len(LONG)
        a.check()
        b.check()


def test_a_local_hit_is_not_served_beyond_the_bound() -> None:
    clock, server = Clock(), Server()
    a, b = two(clock, server, trust=5.0)
    with a, b:
        serve(b, LONG)
        a.invalidate(model="m")  # before a has ever asked for it
        assert serve(b, LONG) == len(LONG)  # b has not asked again, and need not yet
        clock.now += 5.1
        assert serve(b, LONG, label="new") == 0
        assert a.invalidate(model="nobody has it") == 0


def test_polling_makes_the_bound_short() -> None:
    clock, server = Clock(), Server()
    a, b = two(clock, server, trust=50.0)
    with a, b:
        serve(b, LONG)
        serve(a, LONG)
        a.invalidate(tenant="a")
        assert b.refresh()
        assert serve(b, LONG, label="new") == 0
        b.sweep()
        assert b.counts().cached == 6  # those of before are gone


def test_without_the_pool_a_node_serves_only_what_is_proven() -> None:
    clock, server = Clock(), Server()
    with with_host(server, clock, trust=5.0) as kv:
        serve(kv, LONG)
        server.down = True
        clock.now += 4
        assert not kv.refresh()
        assert serve(kv, LONG) == len(LONG)
        clock.now += 4
        assert serve(kv, LONG) == 0  # unproven
        assert serve(kv, LONG) == len(LONG)  # what it has computed since is its own
        clock.now += 5
        assert serve(kv, LONG) == 0
        server.down = False
        clock.now += 70  # the breaker tries again
        assert kv.refresh()
        assert serve(kv, LONG) == len(LONG)  # nothing was raised meanwhile
        kv.check()


def test_an_epoch_that_the_pool_could_not_be_told_of_counts_here_and_is_told_later() -> None:
    clock, server = Clock(), Server()
    a, b = two(clock, server)
    with a, b:
        both_have(a, b)
        server.down = True
        assert a.invalidate(weights="w1") == 1
        assert serve(a, LONG, label="new") == 0
        server.down = False
        clock.now += 70
        assert a.refresh()
        assert b.refresh()
        assert serve(b, LONG, label="new") == 0


def test_a_pool_that_has_lost_an_epoch_begins_a_new_one() -> None:
    clock, server = Clock(), Server()
    a, b = two(clock, server)
    with a, b:
        serve(a, LONG)
        lost = dict(server.families)
        clock.now += 1
        a.invalidate(weights="w1")
        assert serve(a, LONG, label="new") == 0
        a.flush()
        server.families = lost  # a fail-over to a replica that was behind
        clock.now += 1
        assert a.refresh()
        assert serve(a, LONG, label="newer") == 0
        assert serve(b, LONG, label="newer") == 0  # nothing of before, of neither epoch


def test_a_pool_that_was_started_anew_begins_new_epochs() -> None:
    clock, server = Clock(), Server()
    a, b = two(clock, server)
    with a, b:
        both_have(a, b)
        server.forget()
        clock.now += 1
        assert a.refresh()
        assert serve(a, LONG, label="new") == 0
        assert b.refresh()
        a.flush()
        assert serve(b, LONG, label="new") == len(LONG)


def test_an_epoch_raised_under_a_look_up_counts() -> None:
    clock, server = Clock(), Server()
    a, b = two(clock, server)
    with a, b:
        serve(a, LONG)
        a.flush()
        serve(b, prompt(3, 2))
        raised: list[int] = []

        def raise_once() -> None:
            if not raised:
                raised.append(1)
                for name in server.families:
                    server.families[name] += 1

        server.before_answer = raise_once
        clock.now += 1
        assert serve(b, LONG) == len(LONG)  # it began before
        assert b.refresh()
        assert serve(b, LONG, label="new") == 0


def test_a_block_that_the_pool_has_lost_is_a_miss() -> None:
    clock, server = Clock(), Server()
    a, b = two(clock, server)
    with a, b:
        serve(a, LONG)
        a.flush()
        assert serve(b, LONG[:8]) == 8
        server.bytes.clear()
        server.heads = dict(list(server.heads.items())[:4])
        b.clear()
        assert serve(b, LONG) == 0
        b.check()
        assert serve(b, LONG) == len(LONG)


def test_a_block_that_was_lost_and_written_anew_is_hit_by_who_knew_the_old_one() -> None:
    clock, server = Clock(), Server()
    with node(server, clock) as a, node(server, clock, frames=8) as b, node(server, clock) as c:
        serve(a, prompt(1, 4))
        a.flush()
        assert serve(b, [*prompt(1, 4), 1]) == 16
        serve(b, prompt(2, 8))  # it leaves the device
        server.heads.clear()
        server.bytes.clear()
        serve(c, prompt(1, 4))
        c.flush()
        assert serve(b, [*prompt(1, 4), 1]) == 16


def test_a_pool_that_hangs_does_not_outlast_what_was_proven() -> None:
    clock, server = Clock(), Server()
    with with_host(server, clock, trust=30.0) as kv:
        serve(kv, LONG)
        clock.now += 29.5

        def hang() -> None:
            clock.now += 2
            raise TierError("io", "it hangs")

        server.before_answer = hang
        assert serve(kv, [*LONG, *prompt(9, 1)]) == 0


def test_names_of_blocks_that_were_only_read_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, server = Clock(), Server()
    level = Level(MemoryPool(server, LAYOUT, 8), write="selective", uses=1000)
    with node(server, clock) as a, Node(ArrayDevice(8), [level], SIZE, clock=clock, background=False) as b:
        names = b._lanes["pool"].names
        monkeypatch.setattr(names, "_forget_at", 20)
        for number in range(20):
            serve(a, prompt(number, 2))
            a.flush()
            assert serve(b, prompt(number, 2)) == 8
        assert len(names.digests) == 40
        assert b.refresh()
        assert len(names.digests) <= 8 + 8


def test_bytes_that_are_others_are_not_believed() -> None:
    clock, server = Clock(), Server()
    a, b = two(clock, server)
    with a, b:
        serve(a, LONG)
        a.flush()
        for key, (envelope, payload) in server.bytes.items():
            server.bytes[key] = envelope, bytes(len(payload))
        assert serve(b, LONG) == 0
        assert b.lane_stats("pool").refused["checksum"] > 0


def test_the_control_bites() -> None:
    clock, server = Clock(), Server()
    with with_host(server, clock) as kv:
        serve(kv, LONG)
        with pytest.raises(WrongBytesError):
            serve(kv, LONG, label="new")


def test_pins_and_matches_see_what_the_pool_has() -> None:
    clock, server = Clock(), Server()
    a, b = two(clock, server)
    with a, b:
        serve(a, LONG)
        a.flush()
        assert len(b.match(LONG, WHO).lower) == 6
        assert b.pin(LONG, WHO, owner="ops").tokens == len(LONG)
        assert serve(b, LONG) == len(LONG)


def test_more_in_the_pool_than_a_node_can_know_of() -> None:
    clock, server = Clock(), Server()
    with node(server, clock, 16) as a, node(server, clock, 16, pool_frames=4) as b:
        serve(a, LONG)
        a.flush()
        assert serve(b, LONG) == 16
        for which in range(1, 5):
            serve(a, prompt(which, 6))
            a.flush()
            assert serve(b, prompt(which, 6)) >= 16
            b.check()


def test_what_must_be_gone_by_some_time_is_not_shared() -> None:
    clock, server = Clock(), Server()
    a, b = two(clock, server)
    with a, b:
        serve(a, LONG, expire_after=10)
        a.flush()
        assert not server.heads
        assert serve(b, LONG) == 0


def test_extra_keys_are_part_of_what_is_looked_up() -> None:
    clock, server = Clock(), Server()
    a, b = two(clock, server)
    with a, b:
        serve(a, LONG, extra_keys={2: b"an image"})
        a.flush()
        assert serve(b, LONG) == 8
        b.clear()
        assert serve(b, LONG, extra_keys={2: b"an image"}) == len(LONG)


def test_max_hit_bounds_what_is_looked_up() -> None:
    clock, server = Clock(), Server()
    a, b = two(clock, server)
    with a, b:
        serve(a, LONG)
        a.flush()
        assert serve(b, LONG, max_hit=9) == 8
        assert b.tier_stats("pool").loaded == 2


def test_a_node_has_one_pool() -> None:
    server, clock = Server(), Clock()
    with pytest.raises(ConfigError, match="one pool"):
        node(server, clock, 8, Level(MemoryPool(server, LAYOUT, name="other")))


def test_an_identity_is_needed() -> None:
    server, clock = Server(), Clock()
    with with_host(server, clock) as kv, pytest.raises(IdentityError):
        kv.sequence(LONG, "me")  # type: ignore[arg-type]


def random_traffic(seed: int, trust: float) -> int:
    """Three nodes, random requests, epochs, losses and outages: a node never serves what it was told to be over, nor what was
    over for more than 10 s. Returns how many blocks were hit."""
    r = random.Random(seed)
    clock, server = Clock(), Server()
    people = [Identity(model="m", weights=w, tenant=t) for w in ("w1", "w2") for t in ("a", "b")]
    epoch = dict.fromkeys(("w1", "w2"), 0)  # the truth
    ended: dict[tuple[str, int], float] = {}
    nodes = [with_host(server, clock, trust=trust, pool_frames=20) for _ in range(3)]
    texts = [[r.randint(0, 1) for _ in range(32)] for _ in range(3)]
    hits = 0
    for _ in range(400):
        clock.now += r.choice((0.1, 0.5, 2.0))
        kv, who = r.choice(nodes), r.choice(people)
        what = r.random()
        if what < 0.04:
            before = server.down
            kv.invalidate(weights=who.weights)
            if not before:
                ended[who.weights, epoch[who.weights]] = clock.now
                epoch[who.weights] += 1
        elif what < (0.15 if server.down else 0.06):
            server.down = not server.down
        elif what < 0.1 and server.heads:
            del server.heads[r.choice(list(server.heads))]
        elif what < 0.3:
            kv.flush()
        elif what < 0.5:
            kv.refresh()
        else:
            text = r.choice(texts)
            tokens = text[: r.randint(4, 32)]
            with kv.sequence(tokens, who) as seq:
                table = seq.block_table
                device: Any = kv.device
                for block in range(len(tokens) // SIZE):
                    row = device.bytes[table[block]]
                    if block * SIZE < seq.hit_tokens:
                        index, stamp = row[0], int(row[1])
                        assert index == people.index(who), "another's bytes"
                        over = ended.get((who.weights, stamp))
                        assert over is None or clock.now - over <= 10.0, "bytes of an epoch that was over"
                        hits += 1
                    else:
                        row[:] = 0
                        row[0], row[1] = people.index(who), epoch[who.weights]
                seq.seal()
            kv.check()
    for kv in nodes:
        kv.close()
    return hits


@pytest.mark.parametrize("seed", range(6))
def test_random_traffic_never_gets_bytes_of_an_epoch_that_is_long_over(seed: int) -> None:
    assert random_traffic(seed, 10.0) > 60


def test_nodes_that_trust_for_too_long_are_found_out() -> None:
    """The control."""

    def found_out(seed: int) -> bool:
        try:
            random_traffic(seed, 1e6)
        except AssertionError as error:
            return "over" in str(error)
        return False

    assert any(found_out(seed) for seed in range(12))


@pytest.mark.parametrize("raised", [False, True])
def test_a_store_on_disk_is_warm_after_a_restart_unless_its_epoch_is_over(raised: bool, tmp_path: Path) -> None:
    clock, server = Clock(), Server()

    def start() -> Node:
        return node(server, clock, 16, Level(disk(tmp_path / "store"), deadline=30))

    with start() as kv:
        serve(kv, LONG)
        kv.flush()
    server.heads.clear()
    if raised:
        with node(server, clock) as other:
            other.invalidate(weights="w1")
    with start() as kv:
        assert serve(kv, LONG, label="new" if raised else "") == (0 if raised else len(LONG))
        assert (kv.tier_stats("disk").loaded > 0) is not raised
    server.down = True
    with start() as kv:
        assert serve(kv, LONG, label="newer") == 0  # it cannot be asked, and nothing is proven


def test_an_untold_epoch_is_not_forgotten_for_a_larger_one_that_the_pool_has() -> None:
    clock, server = Clock(), Server()
    a, b = two(clock, server)
    with a, b:
        serve(a, LONG)
        a.flush()
        serve(b, LONG)
        server.down = True
        b.invalidate(weights="w1")
        assert serve(b, LONG, label="b") == 0
        server.down = False
        a.invalidate(weights="w1")  # larger than what b made of it
        assert serve(a, LONG, label="a") == 0
        a.flush()
        clock.now += 70
        assert b.refresh()
        assert b.shared.epochs.untold == 0
        assert serve(b, LONG, label="newest") == 0  # after b's own
        b.flush()
        assert a.refresh()
        assert serve(a, LONG, label="newest") == len(LONG)


def test_an_epoch_raised_twice_before_the_pool_is_told_is_told_once() -> None:
    clock, server = Clock(), Server()
    with with_host(server, clock) as kv:
        serve(kv, LONG)
        server.down = True
        kv.invalidate(weights="w1")
        kv.invalidate(weights="w1")
        assert kv.shared.epochs.untold == 1
        server.down = False
        clock.now += 70
        assert kv.refresh()
        assert kv.shared.epochs.untold == 0
        assert serve(kv, LONG, label="new") == 0
        assert kv.refresh()
        assert serve(kv, LONG, label="new") == len(LONG)


def test_near_blocks_that_leave_under_a_look_up_are_a_shorter_hit() -> None:
    clock, server = Clock(), Server()
    a, b = two(clock, server)
    with a, b:
        serve(a, LONG)
        a.flush()
        assert serve(b, LONG[:16]) == 16
        server.before_answer = lambda: b.clear() and None
        assert serve(b, LONG) == 0  # what the answer begins with is no longer there
        server.before_answer = lambda: None
        b.check()
        assert serve(b, LONG) == 24


@pytest.mark.parametrize("who", [WHO, WHO.with_(public=True)])
def test_several_fields_reach_what_nobody_has_asked_for_lately(who: Identity) -> None:
    clock, server = Clock(), Server()
    with node(server, clock, trust=5.0) as kv, node(server, clock) as other:
        serve(kv, LONG, who)
        kv.flush()
        clock.now += 1000
        kv.refresh()  # the epochs of it are not kept up to date any more, and the pool has its blocks still
        assert kv.invalidate(tenant="nobody", model="m") == 0
        assert len(other.match(LONG, who).lower) == 6
        assert kv.invalidate(tenant=who.account, model="m") == 1
        assert serve(kv, LONG, who, label="new") == 0


def test_several_fields_reach_what_a_store_on_disk_has_brought_back(tmp_path: Path) -> None:
    clock, server = Clock(), Server()

    def start() -> Node:
        return node(server, clock, 16, Level(disk(tmp_path / "store"), deadline=30))

    with start() as kv:
        serve(kv, LONG)
        kv.flush()
    with start() as kv:
        assert kv.invalidate(tenant="a", model="m") == 1  # before anybody asks for it
        assert serve(kv, LONG, label="new") == 0  # the pool has it too


def test_what_an_epoch_costs_does_not_grow_with_those_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, server = Clock(), Server()
    with node(server, clock) as kv:
        looked = 0
        spaces_of = kv._spaces_of

        def counted(fields: Any) -> Any:
            nonlocal looked
            looked += 1
            return spaces_of(fields)

        monkeypatch.setattr(kv, "_spaces_of", counted)
        for turn in range(4):
            for tenant in range(20):
                serve(kv, prompt(0, 2), WHO.with_(tenant=f"t{tenant}"), label=str(turn))
            kv.invalidate(weights="w1")
        assert looked == 4  # the whole list of namespaces, once an invalidation, not for each tenant
        kv.check()


def test_a_node_that_only_reads_forgets_what_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.names._LEAST", 16)
    clock, server = Clock(), Server()
    with node(server, clock) as writes, node(server, clock, pool_frames=8) as reads:
        names = reads._lanes["pool"].names
        monkeypatch.setattr(names, "_forget_at", 16)
        for start in range(60):
            serve(writes, prompt(start, 6))
            writes.flush()
            assert serve(reads, prompt(start, 6)) == 6 * SIZE
            reads.refresh()
            assert len(names.digests) <= 16 + 2 * (16 + 8) + 6  # three times what there is room for, and a request's
        assert reads._lanes["pool"].tier.counters.writes == 0


def test_epochs_that_are_over_do_not_fill_the_table_of_a_store(tmp_path: Path) -> None:
    clock, server = Clock(), Server()
    with node(server, clock) as other:
        for turn in range(12):
            with node(server, clock, 16, Level(disk(tmp_path / "store", 0.2), deadline=30)) as kv:
                assert serve(kv, LONG, label=str(turn)) == 0
                kv.flush()
                assert kv.tier_stats("disk").stored == 6
                rows = len(kv._lanes["disk"].tier.namespaces())  # type: ignore[attr-defined]
            other.invalidate(model="m")  # while it is not running
        assert rows <= 3  # there is room for the blocks of two
