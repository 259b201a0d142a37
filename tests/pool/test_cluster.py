"""A cluster whose servers die, stop and move their slots: the others go on, and all of it after a fail-over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tenure.tiers.valkey import ValkeyTier
from tenure.tiers.valkey_client import slot_of
from tests.pool import servers
from tests.pool.making import KEYS, asked, digests, head_key, hurried, in_time, keys, learn, pool, prefix_of, read, write

FRAMES = range(40)


@pytest.fixture(scope="module")
def mine() -> Iterator[servers.Cluster]:
    """For the tests of this module; each leaves it whole."""
    with servers.cluster() as made:
        yield made


def back(cluster: servers.Cluster, dead: servers.Server) -> None:
    """A killed node returns, as a replica."""
    dead.start()
    servers.until("it is a replica in step", lambda: dead.command("ROLE")[::3][:2] == [b"slave", b"connected"])
    cluster.settle()


def at(cluster: servers.Cluster, tier: ValkeyTier, server: servers.Server) -> list[int]:
    """The frames whose blocks are there."""
    return [frame for frame in FRAMES if cluster.primary_of(head_key(tier, frame)) is server]


@pytest.mark.parametrize("key", [b"", b"a", b"a{b}c", b"{}x", b"{", b"a{b", b"{{a}b}", b"}{a}", b"x{y}{z}", bytes(range(256))])
def test_slots_are_the_servers_own(mine: servers.Cluster, key: bytes) -> None:
    assert slot_of(key) == mine.servers[0].command("CLUSTER", "KEYSLOT", key)


def test_the_keys_of_a_block_are_in_one_place(mine: servers.Cluster) -> None:
    with pool(mine.url) as tier:
        assert write(tier, *FRAMES) == [None] * 40
        found = keys(mine, tier)
        assert len(found) == KEYS * 40
        for frame in FRAMES:
            tag = digests(frame)[0].hex()
            assert len({slot_of(key.encode()) for key in found if tag in key}) == 1
        assert len({slot_of(key.encode()) for key in found}) > 20


def test_a_primary_that_dies_is_replaced(mine: servers.Cluster) -> None:
    with pool(mine.url) as tier:
        assert write(tier, *FRAMES) == [None] * 40
        victim = mine.primary_of(head_key(tier, 0))
        there = at(mine, tier, victim)
        assert 0 < len(there) < 40
        for primary in mine.primaries():
            servers.until("the replica has it all", lambda p=primary: p.command("WAIT", 1, 100) == 1)  # type: ignore[misc]
        victim.kill()
        kinds = dict(zip(FRAMES, in_time(lambda: read(tier, *FRAMES), 60), strict=True))
        assert {frame for frame, kind in kinds.items() if kind == "io"} == set(there)
        assert {kind for frame, kind in kinds.items() if frame not in there} == {None}
        mine.settle()
        assert read(tier, *FRAMES) == [None] * 40
        assert write(tier, *range(40, 60)) == [None] * 20
        assert learn(tier, *FRAMES) == 40
        back(mine, victim)


def test_a_primary_that_is_stopped_costs_one_timeout(mine: servers.Cluster) -> None:
    with pool(mine.url) as tier:
        assert write(tier, *FRAMES) == [None] * 40
        victim = mine.primary_of(head_key(tier, 0))
        there = at(mine, tier, victim)
        victim.pause()
        with hurried(tier, 3.0):
            kinds = in_time(lambda: read(tier, *FRAMES), 20)
            assert [frame for frame, kind in zip(FRAMES, kinds, strict=True) if kind == "io"] == there
            looked = in_time(lambda: asked(lambda: tier.look(digests(*there), [])), 20)
            assert looked in ("io", None)  # None: it is replaced by now
        mine.settle()
        servers.until("another serves", lambda: not set(read(tier, *FRAMES)) & {"io"})
        victim.resume()
        servers.until("it is a replica", lambda: victim.command("ROLE")[0] == b"slave")
        mine.settle()


def test_a_node_with_an_old_map_is_sent_on(mine: servers.Cluster) -> None:
    """A fail-over by hand, of which the client hears only by MOVED."""
    with pool(mine.url) as tier:
        assert write(tier, *FRAMES) == [None] * 40
        old = mine.primary_of(head_key(tier, 0))
        new = mine.replica_of(old)
        new.command("CLUSTER", "FAILOVER")
        servers.until("it has taken over", lambda: mine.primary_of(head_key(tier, 0)) is new)
        mine.settle()
        assert read(tier, *FRAMES) == [None] * 40
        trips = tier.claims.trips
        assert write(tier, *range(40, 50)) == [None] * 10
        assert tier.claims.trips - trips <= 3, "the map was asked for once, then nothing is sent on any more"


def test_a_slot_that_is_moving_is_asked_for_where_it_went(mine: servers.Cluster) -> None:
    with pool(mine.url) as tier:
        assert write(tier, 0) == [None]
        slot = slot_of(head_key(tier, 0))
        source = mine.primary_of(head_key(tier, 0))
        target = next(server for server in mine.primaries() if server is not source)
        names = [server.command("CLUSTER", "MYID") for server in (source, target)]
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", names[0])
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", names[1])
        moving = source.command("CLUSTER", "GETKEYSINSLOT", slot, 100)
        source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *moving)
        assert read(tier, 0) == [None]
        assert learn(tier, 0) == 1
        for server in (target, source):
            server.command("CLUSTER", "SETSLOT", slot, "NODE", names[1])
        assert read(tier, 0) == [None]
        mine.settle()


def test_an_epoch_is_confirmed_by_a_replica_of_the_server_that_has_it(mine: servers.Cluster) -> None:
    with pool(mine.url) as tier:
        tier.bump([b"family"])
        key = tier._keys.family(b"family")
        slot, source = slot_of(key), mine.primary_of(key)
        target = next(server for server in mine.primaries() if server is not source)
        names = [server.command("CLUSTER", "MYID") for server in (source, target)]
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", names[0])
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", names[1])
        moving = source.command("CLUSTER", "GETKEYSINSLOT", slot, 100)
        source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *moving)
        for server in (target, source):
            server.command("CLUSTER", "SETSLOT", slot, "NODE", names[1])
        replica = next(server for server in mine.servers if server.command("ROLE")[2] == target.port)
        replica.pause()
        with hurried(tier, 2.0):
            assert not tier.bump([b"family"]).confirmed  # the client has the old map
        replica.resume()
        servers.until("its replica has it", lambda: tier.bump([b"family"]).confirmed)
        mine.settle()


def test_one_seed_is_enough(mine: servers.Cluster) -> None:
    port = mine.servers[0].port
    with pool(f"valkey+cluster://127.0.0.1:{servers.free_port()},127.0.0.1:{port}") as tier:
        assert write(tier, *FRAMES) == [None] * 40
        with pool(f"valkey+cluster://127.0.0.1:{mine.servers[4].port}", prefix=prefix_of(tier)) as other:
            assert learn(other, *FRAMES) == 40


def test_a_server_that_is_in_no_cluster(one: servers.Server) -> None:
    with pool(one.url.replace("valkey:", "valkey+cluster:")) as tier:
        assert write(tier, 1) == ["io"]
