"""A router of nodes that share a pool asks its index under the epochs of the moment."""

from __future__ import annotations

import pytest

pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'tenure[events]'")

from tenure.cluster.epochs import Epochs
from tenure.cluster.index import Index
from tenure.events import Publisher, Subscriber
from tests.cluster.making import WHO, Clock, serve, with_host
from tests.cluster.memory import MemoryPool, Server
from tests.node.making import LAYOUT, prompt

LONG = prompt(0, 6)


def test_a_router_finds_the_blocks_of_nodes_whose_epochs_it_reads() -> None:
    clock, server = Clock(), Server()
    epochs = Epochs(MemoryPool(server, LAYOUT), clock, 30.0, lambda old: None)
    index = Index()
    with (
        with_host(server, clock) as kv,
        Publisher(kv, node="n") as pub,
        Subscriber(pub.endpoint, replay=pub.replay, snapshot=pub.snapshot) as sub,
    ):

        def held() -> list[tuple[str, int]]:
            last = pub.flush(60)
            while sub.seq < last:
                for batch in sub.receive(timeout=0.1):
                    index.apply(batch)
            epochs.ask(epochs.families(WHO))
            return [(holder.node, holder.tokens) for holder in index.holders(LONG, epochs.of(WHO))]

        serve(kv, LONG)
        assert held() == [("n", len(LONG))]
        assert index.holders(LONG, WHO) == []  # the identity as requests name it has no blocks of its own
        kv.invalidate(weights=WHO.weights)
        assert held() == []
        serve(kv, LONG, label="new")
        assert held() == [("n", len(LONG))]
