"""A real cluster behind proxies: its addresses lead through them, and what is done to them is what its nodes and clients see."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterator

import pytest

from tests.pool.history import Fault
from tests.pool.nemesis import Nemesis, schedule
from tests.pool.proxied import Behind, ProxiedCluster, proxied_cluster
from tests.pool.proxies import CUT, DROP, NO_ANSWERS, PASS
from tests.pool.servers import ReplyError, Server, _receive, _send, command, until
from tests.pool.world import ClusterWorld

KEY = "somewhere"
linux = pytest.mark.skipif(sys.platform != "linux", reason="the nodes need a loopback address each")


@pytest.fixture(scope="module")
def running() -> Iterator[ProxiedCluster]:
    with proxied_cluster() as made:
        yield made


@pytest.fixture
def cluster(running: ProxiedCluster) -> Iterator[ProxiedCluster]:
    yield running
    ClusterWorld(running).healed()


def behind(server: Server) -> Behind:
    assert isinstance(server, Behind)
    return server


def owner(cluster: ProxiedCluster) -> Behind:
    return behind(cluster.primary_of(KEY))


def written(server: Server, value: str, within_ms: int) -> int:
    """How many replicas have it."""
    with socket.create_connection(("127.0.0.1", server.port), 10) as link, link.makefile("rwb") as file:
        _send(file, "SET", KEY, value)
        assert _receive(file) == b"OK"
        _send(file, "WAIT", 1, within_ms)
        return int(_receive(file))


def test_clients_are_sent_through_the_proxies(cluster: ProxiedCluster) -> None:
    right = owner(cluster)
    wrong = next(server for server in cluster.primaries() if server is not right)
    with pytest.raises(ReplyError) as moved:
        command(behind(wrong).clients.port, "SET", KEY, "1")
    port = int(re.fullmatch(r"MOVED \d+ 127\.0\.0\.1:(\d+)", str(moved.value))[1])  # type: ignore[index]
    assert port == right.clients.port
    assert command(port, "SET", KEY, "1") == b"OK"
    assert command(port, "GET", KEY) == b"1"
    ports = {each.clients.port for each in cluster.behind}

    def told() -> set[int]:
        return {node[1] for shard in command(port, "CLUSTER", "SLOTS") for node in shard[2:]}

    until("all are named, by their proxies", lambda: told() == ports)


def test_who_is_shut_out_does_not_reach_a_node_that_the_others_do(cluster: ProxiedCluster) -> None:
    server = owner(cluster)
    cluster.shut_out(server, CUT)
    with pytest.raises(OSError):  # noqa: PT011 (whichever way a reset shows)
        command(server.clients.port, "PING")
    assert server.command("CLUSTER", "INFO").startswith(b"cluster_state:ok")
    cluster.shut_out(server, DROP)
    with pytest.raises(TimeoutError):
        command(server.clients.port, "PING", timeout=0.2)
    cluster.shut_out(server, PASS)
    assert command(server.clients.port, "PING") == b"PONG"


def test_what_is_asked_through_half_a_cut_is_done(cluster: ProxiedCluster) -> None:
    server = owner(cluster)
    server.command("SET", KEY, "before")
    cluster.shut_out(server, NO_ANSWERS)
    with pytest.raises(TimeoutError):
        command(server.clients.port, "SET", KEY, "after", timeout=0.2)
    until("it is done", lambda: server.command("GET", KEY) == b"after")


@linux
def test_an_isolated_primary_is_replaced_and_stops_answering_though_clients_reach_it(cluster: ProxiedCluster) -> None:
    server = owner(cluster)
    assert written(server, "old", within_ms=5000) == 1
    cluster.isolate(server, DROP)
    others = [other for other in cluster.behind if other is not server]

    def taken_over() -> bool:
        return any(other.command("ROLE")[0] == b"master" and cluster._slots(other) == slots for other in others)

    slots = cluster._slots(server)
    until("its replica has taken over", taken_over)
    new = next(other for other in others if cluster._slots(other) == slots)
    assert new.command("GET", KEY) == b"old"
    assert written(new, "new", within_ms=100) == 0  # its replica is cut off from it
    until("it knows that it is alone", lambda: server.command("CLUSTER", "INFO").startswith(b"cluster_state:fail"))
    with pytest.raises(ReplyError, match="CLUSTERDOWN"):
        command(server.clients.port, "GET", KEY)
    cluster.isolate(server, PASS)
    until("it has become a replica", lambda: server.command("ROLE")[0] == b"slave")
    ClusterWorld(cluster).healed()
    assert owner(cluster) is new
    assert new.command("GET", KEY) == b"new"


@pytest.mark.slow
def test_after_faults_at_random_the_cluster_is_whole(cluster: ProxiedCluster) -> None:
    world = ClusterWorld(cluster)
    faults: list[Fault] = []
    Nemesis(world.targets(), faults.append).run(schedule(3, 12, world.targets(), every=0.3, lasting=(0.5, 4.0)))
    assert {"kill", "pause", "fail over"} <= {fault.what for fault in faults}
    assert all(fault.error is None or fault.what == "fail over" for fault in faults), faults
    world.healed()

    def kept(key: str, value: bytes) -> bool:
        port = behind(cluster.primary_of(key)).clients.port
        return command(port, "SET", key, value) == b"OK" and command(port, "GET", key) == value

    for number in range(64):  # a fail-over that was asked for may still come
        until(f"key {number} is kept", lambda n=number: kept(f"key {n}", b"%d" % n))  # type: ignore[misc]
