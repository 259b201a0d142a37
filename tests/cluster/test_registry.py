"""Nodes announce themselves in the pool, and are gone when they are silent."""

from __future__ import annotations

import time

import pytest

from tenure import ConfigError, Identity, RecordError
from tenure.cluster.registry import Registry, serving
from tenure.ledger import Held
from tests.cluster.making import SIZE, Clock, node, serve, with_host
from tests.cluster.memory import MemoryPool, Server
from tests.cluster.rolling import BASE, W2, Fleet
from tests.node.making import LAYOUT, prompt


def registry(server: Server) -> Registry:
    return Registry(MemoryPool(server, LAYOUT))


def test_a_node_says_what_it_serves() -> None:
    with Fleet(2) as fleet:
        a, b = fleet.nodes
        serve(a, prompt(0, 3), BASE)
        serve(a, prompt(1, 2), BASE.with_(tenant="b"))
        with a.sequence(prompt(2, 1), BASE.with_(weights=W2)):
            fleet.poll()
            one, two = registry(fleet.server).nodes()
        assert (one.name, two.name) == ("n0", "n1")
        assert one.boot != two.boot
        assert [(v.model, v.weights, v.sequences, v.blocks) for v in one.versions] == [
            ("m", BASE.weights, 0, 5),
            ("m", W2, 1, 1),
        ]
        assert two.versions == ()
        assert (one.age, two.age) == (0.0, 0.0)
        b.close()
        assert [info.name for info in registry(fleet.server).nodes()] == ["n0"]


def test_a_silent_node_is_gone_and_comes_back() -> None:
    with Fleet(2, trust=5.0) as fleet:
        a, b = fleet.nodes
        fleet.poll()
        for _ in range(4):
            fleet.poll(a)
        assert len(registry(fleet.server).nodes()) == 2
        fleet.poll(a)
        assert [info.name for info in registry(fleet.server).nodes()] == ["n0"]
        fleet.poll(b)
        assert [info.name for info in registry(fleet.server).nodes()] == ["n0", "n1"]


def test_a_node_that_cannot_read_its_epochs_says_so() -> None:
    with Fleet(1) as fleet:
        (a,) = fleet.nodes
        fleet.server.down = True
        serve(a, prompt(0, 1), BASE)
        assert a.shared is not None
        assert a.shared.epochs.age() is None
        fleet.server.down = False
        fleet.clock.now += 70
        a.refresh()
        fleet.clock.now += 7
        assert a.shared.epochs.age() == 7


def test_a_restarted_node_takes_its_name_over() -> None:
    clock = Clock()
    server = Server(clock)
    gone = node(server, clock, name="gpu")
    gone.refresh()
    with node(server, clock, name="gpu") as again:
        again.refresh()
        again.refresh()
        (info,) = registry(server).nodes()
        assert again.shared is not None
        assert info.boot == again.shared.member.boot
        gone.close()  # late: the name is not its own any more
        assert len(registry(server).nodes()) == 1


def test_two_nodes_of_one_name_are_two() -> None:
    clock = Clock()
    server = Server(clock)
    with node(server, clock, name="gpu") as a, node(server, clock, name="gpu") as b:
        for _ in range(3):
            a.refresh()
            b.refresh()
        first, second = registry(server).nodes()
        assert first.boot != second.boot
        assert {first.name, second.name} > {"gpu"}


def test_names_tell_nodes_apart_by_themselves() -> None:
    clock = Clock()
    server = Server(clock)
    with node(server, clock) as a, node(server, clock) as b:
        a.refresh()
        b.refresh()
        assert len(registry(server).nodes()) == 2


def test_a_node_announces_itself_without_being_asked_to() -> None:
    server = Server()
    with node(server, Clock(), background=True, poll=0.01, name="n"):
        until = time.monotonic() + 30
        while not registry(server).nodes() and time.monotonic() < until:
            time.sleep(0.01)
        assert [info.name for info in registry(server).nodes()] == ["n"]
    assert registry(server).nodes() == []


def test_a_pool_that_is_away_does_not_keep_a_node_from_closing() -> None:
    clock = Clock()
    server = Server(clock)
    with node(server, clock) as kv:
        assert kv.refresh()
        server.down = True
        assert not kv.refresh()
    assert len(server.names) == 1  # until its time is over


def test_what_cannot_be_read_is_said() -> None:
    clock = Clock()
    server = Server(clock)
    server.names["node:old"] = b"of another format"
    with pytest.raises(RecordError, match="node:old"):
        registry(server).nodes()
    with node(server, clock, name="old") as kv:  # it is its own name
        assert kv.refresh()
        assert len(registry(server).nodes()) == 1
        server.names["node:old"] = b"again"
        assert kv.refresh()
        assert [info.name for info in registry(server).nodes()] == ["old"]


@pytest.mark.parametrize("name", ["", "n" * 256, 5, "\ud800"])
def test_a_name_is_a_short_text(name: object) -> None:
    server, clock = Server(), Clock()
    with pytest.raises(ConfigError, match="name"):
        with_host(server, clock, name=name)


def test_the_versions_with_the_most_blocks_are_told() -> None:
    held = [Held(Identity(model="m", weights=f"w{i}", tenant=t), 1, i, i) for i in range(100) for t in "ab"]
    told = serving(held)
    assert len(told) == 64
    assert [(told[0].weights, told[0].sequences, told[0].blocks), told[-1].weights] == [("w99", 2, 198), "w36"]


def test_a_poll_costs_three_trips() -> None:
    clock = Clock()
    server = Server(clock)
    with node(server, clock) as kv:
        serve(kv, prompt(0, 2 * SIZE), BASE)
        kv.refresh()
        before = server.asked
        kv.refresh()
        assert server.asked - before == 3  # epochs, rollouts, itself
